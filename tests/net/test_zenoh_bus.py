"""`open_bus("zenoh:...")`: events between processes over zenoh."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genus import BestEffort, Bus, Event, open_bus
from genus.errors import BusError
from genus.net import EventsLost, NetLink
from tests.waiting import wait_for

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.zenoh_network import Process, free_port, router


class ZenohLamp(Event):
    number: int


SENSOR = """
import os
import signal
import subprocess
import sys
import threading
from genus import open_bus
from tests.net.test_zenoh_bus import ZenohLamp
with open_bus(sys.argv[1], source="sensor") as bus:
    lamps = bus.collection(ZenohLamp)
    print("ready", flush=True)
    for line in sys.stdin:
        first, last = map(int, line.split())
        lamps.publish_all(ZenohLamp(number=number) for number in range(first, last))
        print("published", flush=True)
"""


@pytest.fixture
def address() -> str:
    return f"zenoh:city?port={free_port()}&overflow=block"


@contextmanager
def sensor(address: str) -> Iterator[Process]:
    process = Process(SENSOR, address)
    try:
        assert process.line() == "ready"
        yield process
    finally:
        process.kill()


def link(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


def meet(*buses: Bus) -> None:
    """Wait until all know each other."""
    wait_for(lambda: all(len(link(bus).participants()) == len(buses) - 1 for bus in buses))


def publish_until(publish: Callable[[ZenohLamp], None], lamp: ZenohLamp, condition: Callable[[], bool]) -> None:
    def publish_and_look() -> bool:
        publish(lamp)
        return condition()

    wait_for(publish_and_look)


def test_a_subscription_gets_its_events_and_those_of_subtypes_from_another_process(address: str) -> None:
    got: list[int] = []
    with open_bus(address) as bus:
        bus.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number), where="number >= 100")
        with sensor(address) as process:
            wait_for(lambda: link(bus).participants())
            wait_for(lambda: process.ask("0 1000") == "published" and len(set(got)) == 900)
        wait_for(lambda: not link(bus).participants())
    assert set(got) == set(range(100, 1000))


def test_kept_events_reach_a_later_bus(address: str) -> None:
    with open_bus(address) as early:
        channel = early.channel(ZenohLamp, BestEffort(), keep=True)
        channel.announce()
        for number in range(50):
            channel.publish(ZenohLamp(number=number, source=str(number % 10)))
        with open_bus(address) as late:
            got: list[int] = []
            late.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number))
            wait_for(lambda: len(got) == 10)
            assert sorted(got) == list(range(40, 50))


def test_a_loss_while_the_router_is_away_is_told_to_both_ends() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    address = f"zenoh:city?connect={endpoint}"
    at_sender: list[EventsLost] = []
    at_receiver: list[EventsLost] = []
    got: list[int] = []
    with router(endpoint) as first, open_bus(address) as a, open_bus(address) as b:
        b.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number), on_problem=at_receiver.append)
        meet(a, b)
        channel = a.channel(ZenohLamp, BestEffort(), on_problem=at_sender.append)
        channel.announce()
        publish_until(channel.publish, ZenohLamp(number=-1), lambda: bool(got))
        first.kill()
        wait_for(lambda: not link(a).is_connected and not link(b).is_connected)
        sent = 200
        for number in range(sent):
            channel.publish(ZenohLamp(number=number))
        with router(endpoint):
            meet(a, b)
            publish_until(channel.publish, ZenohLamp(number=sent), lambda: sent in got)
            wait_for(lambda: sum(each.count for each in at_receiver) >= sent)
            wait_for(lambda: sum(each.count for each in at_sender) >= sent)
    assert not set(range(sent)) & set(got)


def test_reliable_events_survive_the_router() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    address = f"zenoh:city?reliable=1&connect={endpoint}"
    problems: list[object] = []
    got: list[int] = []
    with router(endpoint) as first, open_bus(address) as a, open_bus(address) as b:
        b.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number), on_problem=problems.append)
        meet(a, b)
        lamps = a.collection(ZenohLamp)
        publish_until(lamps.publish, ZenohLamp(number=-1), lambda: bool(got))
        first.kill()
        wait_for(lambda: not link(a).is_connected and not link(b).is_connected)
        for number in range(500):
            lamps.publish(ZenohLamp(number=number))
        with router(endpoint):
            wait_for(lambda: 499 in got)
    numbers = [number for number in got if number >= 0]
    assert numbers == list(range(500))
    assert not problems


def test_hard_channels_are_refused_with_the_reason(address: str) -> None:
    from genus import Hard

    with open_bus(address) as bus, pytest.raises(BusError, match="zenoh has no calendar"):
        bus.channel(ZenohLamp, Hard(period="10ms")).announce()


def test_zenoh_is_imported_by_the_first_open_only() -> None:
    program = "import sys, genus.net; genus.net.open_zenoh('x'); print('zenoh' in sys.modules)"
    process = Process(program)
    try:
        assert process.line() == "False"
    finally:
        process.kill()
    assert "zenoh" in sys.modules


# -- order -------------------------------------------------------------------------------------------------------------


class ZenohDoor(Event, tagged=("place",)):
    number: int


class ZenohWindow(Event):
    number: int


ORDERED = """
import random, sys
from genus import open_bus
from tests.net.test_zenoh_bus import ZenohDoor, ZenohLamp, ZenohWindow
chance = random.Random(int(sys.argv[2]))
with open_bus(sys.argv[1]) as bus:
    print("ready", flush=True)
    for line in sys.stdin:
        kinds = [ZenohLamp, ZenohWindow, ZenohDoor, lambda number: ZenohDoor(number=number, place="A8")]
        number = 0
        while number < 20_000:
            make = chance.choice(kinds)
            some = [make(number=number + each) for each in range(chance.choice((1, 1, 1, 2, 70)))]
            if chance.random() < 0.2:
                bus.publish_all(some)
            else:
                for each in some:
                    bus.publish(each)
            number += len(some)
        print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_events_of_one_thread_arrive_in_order_whatever_their_types(address: str, seed: int) -> None:
    got: list[int] = []
    with open_bus(address) as bus:
        bus.collection(ZenohLamp).subscribe(lambda event: got.append(event.number))
        bus.collection(ZenohWindow).subscribe(lambda event: got.append(event.number))
        bus.collection(ZenohDoor).subscribe(lambda event: got.append(event.number), has="place")
        bus.collection(ZenohDoor).subscribe(lambda event: got.append(event.number), lacks="place")
        process = Process(ORDERED, address, seed)
        try:
            assert process.line() == "ready"
            wait_for(lambda: link(bus).participants())
            count = int(process.ask("go"))
            wait_for(lambda: got and got[-1] == count - 1)
        finally:
            process.kill()
    assert got == list(range(got[0], count))
    assert len(got) > 10_000


def test_the_second_of_two_events_is_not_held_back(address: str) -> None:
    """Events that are published at once may travel as one packet, but do not wait for a third one."""
    got: list[int] = []
    with open_bus(address) as a, open_bus(address) as b:
        b.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number))
        meet(a, b)
        publish_until(a.publish, ZenohLamp(number=-1), lambda: bool(got))
        spans = []
        for _ in range(9):
            began = time.monotonic()
            a.publish(ZenohLamp(number=1))
            a.publish(ZenohLamp(number=2))
            wait_for(lambda: got[-2:] == [1, 2])
            got.clear()
            spans.append(time.monotonic() - began)
        assert sorted(spans)[4] < 0.1  # beats are 0.5 s apart; the median, since others use the processor too


def test_packets_that_wait_for_others_are_sent_before_a_beat(address: str) -> None:
    problems: list[object] = []
    got: list[int] = []
    with open_bus(address) as a, open_bus(address) as b:
        b.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number), on_problem=problems.append)
        meet(a, b)
        publish_until(a.publish, ZenohLamp(number=-1), lambda: bool(got))
        for number in range(3000):
            a.publish(ZenohLamp(number=number))
        link(a)._losses.beat()
        wait_for(lambda: got[-1] == 2999)
    assert not problems


# -- handlers that take their time -------------------------------------------------------------------------------------


def test_a_handler_may_publish_and_subscribe(address: str) -> None:
    got: list[int] = []
    with open_bus(address) as a, open_bus(address) as b:
        windows = b.collection(ZenohWindow)

        def answer(lamp: ZenohLamp) -> None:
            windows.publish(ZenohWindow(number=lamp.number))
            b.collection(ZenohDoor).subscribe(lambda door: None).cancel()

        b.collection(ZenohLamp).subscribe(answer)
        a.collection(ZenohWindow).subscribe(lambda window: got.append(window.number))
        meet(a, b)
        publish_until(a.publish, ZenohLamp(number=-1), lambda: bool(got))
        for number in range(200):
            a.publish(ZenohLamp(number=number))
        wait_for(lambda: got[-1] == 199)
    assert [number for number in got if number >= 0] == list(range(200))


def test_a_handler_that_blocks_stops_neither_other_sessions_nor_tokens_and_loses_nothing(address: str) -> None:
    go = threading.Event()
    at_quick: list[int] = []
    at_slow: list[int] = []

    def handle_slowly(lamp: ZenohLamp) -> None:
        go.wait()
        at_slow.append(lamp.number)

    with open_bus(address) as a, open_bus(address) as slow, open_bus(address) as quick:
        slow.collection(ZenohLamp).subscribe(handle_slowly)
        quick.collection(ZenohLamp).subscribe(lambda lamp: at_quick.append(lamp.number))
        meet(a, slow, quick)
        publish_until(a.publish, ZenohLamp(number=-1), lambda: bool(at_quick))
        for number in range(5000):
            a.publish(ZenohLamp(number=number))
        wait_for(lambda: at_quick[-1] == 4999)
        assert link(slow).is_connected
        assert not at_slow
        go.set()
        wait_for(lambda: at_slow[-1:] == [4999])
    assert [number for number in at_slow if number >= 0] == list(range(5000))


# -- the end of a process ----------------------------------------------------------------------------------------------

FORGETFUL = """
import sys, time
from genus import open_bus
from tests.net.test_zenoh_bus import ZenohLamp
bus = open_bus(sys.argv[1])
bus.collection(ZenohLamp).subscribe(lambda lamp: None)
for number in range(1000):
    bus.publish(ZenohLamp(number=number))
print("ready", flush=True)
if sys.argv[2] == "waits":
    time.sleep(100)
while sys.argv[2] == "publishes":
    bus.publish(ZenohLamp(number=1000))
"""


@pytest.mark.slow
@pytest.mark.parametrize("does", ["ends", "waits", "publishes"])
def test_a_bus_that_is_not_closed_keeps_no_process_alive(address: str, does: str) -> None:
    """A program ends at its end, or at Ctrl-C, and what it had published is sent."""
    got: list[int] = []
    with open_bus(address) as bus:
        bus.collection(ZenohLamp).subscribe(lambda lamp: got.append(lamp.number))
        process = subprocess.Popen(
            [sys.executable, "-c", FORGETFUL, address, does],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        with process.stdout:
            wait_for(lambda: process.stdout and process.stdout.readline() == "ready\n")
            if does != "ends":
                process.send_signal(signal.SIGINT)
            process.stdout.read()
            process.wait(20)
        wait_for(lambda: not link(bus).participants())
        wait_for(lambda: 999 in got)


def test_a_queue_gives_each_event_to_one_process_sealed_or_not(address: str, tmp_path: Path) -> None:
    key = tmp_path / "realm.key"
    key.write_text("0123456789abcdef")
    key.chmod(0o600)
    for each in (address, f"zenoh:town?port={free_port()}&overflow=block&realm_key={key}"):
        taken: list[int] = []
        with open_bus(each) as bus, open_bus(each) as one, open_bus(each) as two:
            for consumer in (one, two):
                consumer.collection(ZenohLamp, "queue").subscribe(lambda event, taken=taken: taken.append(event.number))  # type: ignore[misc]
            link = bus.link
            assert isinstance(link, NetLink)
            wait_for(lambda link=link: [len(each) for each in link._groups.members.values()] == [2])  # type: ignore[misc]
            for number in range(200):
                bus.publish(ZenohLamp(number=number))
            wait_for(lambda taken=taken: len(taken) == 200)  # type: ignore[misc]
            assert sorted(taken) == list(range(200))
            assert one.traffic().link["received"] == two.traffic().link["received"] == 100
