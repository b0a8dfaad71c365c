"""Processes that are killed: what a session handles once, and whose tokens count."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from genus import open_bus
from genus.bus import Bus
from genus.errors import NoReceiver
from genus.net import NetLink
from tests.net.fault_counts import Counts
from tests.net.mqtt_process import KillAnswer, KillNumber, KillQuestion, Process
from tests.net.mqtt_servers import Mosquitto, running
from tests.waiting import wait_for

WINDOW = 20
"""Messages that mosquitto sends before the first is acknowledged."""


class Handled:
    """What the processes of a session wrote."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    @property
    def numbers(self) -> Counter[int]:
        return Counter(int(line) for line in self.lines() if not line.startswith("lost"))

    @property
    def told(self) -> int:
        return sum(int(line.removeprefix("lost ")) for line in self.lines() if line.startswith("lost"))


def kill_and_restart(folder: Path, seed: int, count: int, kills: int, seconds: float, *, with_file: bool) -> Counts:
    """Kill the process of a session some times; all events are handled or told, some twice."""
    chance, handled = Random(seed), Handled(folder / "handled")
    told: list[object] = []
    with running(Mosquitto(folder)) as server, open_bus(f"mqtt://127.0.0.1:{server.port}/city") as bus:
        address = f"mqtt://127.0.0.1:{server.port}/city?session=actuator"
        if with_file:
            address += f"&session_file={folder / 'actuator.session'}"
        process = Process("handle", address, folder / "handled", seconds)
        with bus.channel(KillNumber, on_problem=told.append) as channel:
            for number in range(count):
                channel.publish(KillNumber(number=number))
            for part in range(1, kills + 1):
                target = part * count // (kills + 1) + chance.randint(-10, 10)
                wait_for(lambda target=target: len(handled.lines()) >= target)  # type: ignore[misc]
                process.kill()
                process = Process("handle", address, folder / "handled", seconds)
            wait_for(lambda: len(handled.numbers) + handled.told >= count, f"{len(handled.numbers)} were handled")
            process.popen.communicate()
    assert len(handled.numbers) + handled.told == count
    assert handled.told == 0
    assert told == []
    return Counts(count, len(handled.numbers), handled.numbers.total() - count, handled.told, len(told))


@pytest.mark.slow
def test_a_killed_process_gets_what_it_had_not_handled_and_only_what_it_was_handling_twice(tmp_path: Path) -> None:
    assert kill_and_restart(tmp_path, 1, count=300, kills=2, seconds=0.002, with_file=True).doubled <= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_file", [True, False])
def test_killed_processes_lose_nothing(tmp_path: Path, seed: int, with_file: bool) -> None:
    counts = kill_and_restart(tmp_path, seed, count=2100, kills=8, seconds=0.001, with_file=with_file)
    assert counts.doubled <= 8 * (1 if with_file else WINDOW)


@pytest.mark.slow
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_process_that_closes_its_session_while_events_wait_leaves_them_to_the_next(
    tmp_path: Path, is_sealed: bool
) -> None:
    handled, key = Handled(tmp_path / "handled"), tmp_path / "realm.key"
    key.touch(0o600)
    key.write_bytes(b"0123456789abcdef")
    option = f"realm_key={key}" if is_sealed else "qos=1"
    with running(Mosquitto(tmp_path)) as server, open_bus(f"mqtt://127.0.0.1:{server.port}/city?{option}") as bus:
        address = f"mqtt://127.0.0.1:{server.port}/city?session=actuator&{option}"
        process = Process("handle", address, tmp_path / "handled", 0.002)
        for number in range(200):
            bus.publish(KillNumber(number=number))
        wait_for(lambda: len(handled.numbers) > 20)
        process.popen.communicate()
        assert len(handled.numbers) < 200
        process = Process("handle", address, tmp_path / "handled", 0)
        wait_for(lambda: len(handled.numbers) == 200)
        process.popen.communicate()
    assert handled.numbers.total() == 200


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(0, 30), pytest.param(1, 100, marks=pytest.mark.slow)])
def test_after_closes_and_kills_in_any_order_no_token_of_a_dead_one_counts(
    tmp_path: Path, seed: int, count: int
) -> None:
    """Also not of those that died while the broker was away, whose wills it has forgotten and whose tokens it kept."""
    chance, server = Random(seed), Mosquitto(tmp_path)
    server.start()
    try:
        address = f"mqtt://127.0.0.1:{server.port}/city?keep_alive=1s"
        processes = [Process("show", address, 5) for _ in range(3)]
        buses: list[Bus] = []
        for _ in range(count):
            buses.append(open_bus(address))
            buses[-1].collection(KillQuestion).subscribe(lambda event: None)
            if chance.random() < 0.9:
                buses.pop(chance.randrange(len(buses))).close()
            if processes and chance.random() < 0.02:
                processes.pop().kill()
        server.stop()
        for process in processes:
            process.kill()
        server.start()
        with open_bus(address) as room:
            assert isinstance(room.link, NetLink)
            present = room.link.participants
            wait_for(lambda: len(present()) == len(buses), "ghosts stay")
            for bus in buses:
                bus.close()
            wait_for(lambda: not present(), "ghosts stay")
            with pytest.raises(NoReceiver):
                room.collection(KillQuestion).request(KillQuestion(), KillAnswer, timeout="5s")
    finally:
        server.stop()
