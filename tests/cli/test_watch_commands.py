"""`genus bus` and `genus monitor`, and the other bus commands on a network: here one within this process."""

import contextlib
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genus import Event, Subscription, open_bus
from genus.bus import BestEffort, Bus, register_link
from genus.cli._events import load_types
from genus.cli._watch import MAX_ROWS, OTHERS, RATE_S, Watch, _last_values, printable
from genus.net import NetLink
from genus.testing import run_command as genus
from tests.net.memory_network import MemoryNetwork

TYPES = """
from genus import Event, Maybe

class TrackSensor(Event):
    axle: int

class TrackState(Event):
    free: bool
"""

PATIENCE_S = 30.0
"""How long a command may take to see what a test waits for."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "track.py").write_text(TYPES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENUS_TYPES", "track.py")
    return tmp_path


@pytest.fixture
def network() -> Iterator[MemoryNetwork]:
    """A network whose packets arrive by themselves, for the addresses `memory:REALM`."""
    made, ends = MemoryNetwork(), threading.Event()
    register_link("memory", lambda realm: NetLink(made.transport(), realm or "genus", medium="memory"))

    def carry() -> None:
        while not ends.wait(0.001):
            made.deliver()

    carrier = threading.Thread(target=carry)
    carrier.start()
    yield made
    ends.set()
    carrier.join()


def types() -> tuple[type[Any], type[Any]]:
    sensor, state = load_types("track.py")
    return sensor, state


@pytest.fixture
def watch_until(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Bus], bool]], None]:
    """Ends the next command when a condition of its bus holds, however busy the machine is, instead of by `--for`.

    The test fails if that takes too long.
    """

    def end_when(holds: Callable[[Bus], bool]) -> None:
        opened: list[Bus] = []
        until = time.monotonic() + PATIENCE_S

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                if time.monotonic() > until:
                    pytest.fail(f"not so within {PATIENCE_S} s; the link counts {opened[0].traffic().link}")
                return holds(opened[0]) or super().wait(0.005)

        def open_and_keep(address: str) -> Bus:
            opened.append(open_bus(address))
            return opened[0]

        monkeypatch.setattr("genus.cli._watch.open_bus", open_and_keep)
        monkeypatch.setattr("genus.cli._watch.stopped_by_signals", lambda: contextlib.nullcontext(Stop()))

    return end_when


def interests(bus: Bus) -> int:
    assert isinstance(bus.link, NetLink)
    return len(bus.link.interest_texts())


def received(bus: Bus) -> int:
    return bus.traffic().link.get("received", 0)


def repeatedly(bus: Bus, publish: Callable[[], object]) -> Callable[[], None]:
    """Publish every few milliseconds, until the function that is returned is called."""
    timer = bus.every("5ms", publish)
    return timer.cancel


WatchUntil = Callable[[Callable[[Bus], bool]], None]


def test_bus_shows_who_is_there_what_they_want_and_what_happens(
    folder: Path, network: MemoryNetwork, watch_until: WatchUntil
) -> None:
    with open_bus("memory:rail") as bus:
        sensor, state = types()
        bus.subscribe(Subscription(sensor, where="axle > 2"), lambda event: None)
        kept = bus.channel(state, BestEffort(), keep=True)
        kept.announce()
        kept.publish(state(free=True, source="A8"))
        end = repeatedly(bus, lambda: bus.publish(sensor(axle=3)))
        watch_until(lambda bus: interests(bus) == 1 and received(bus) > 20 and bool(_last_values(bus)))
        done = genus("bus", "memory:rail", "--for", "1h", "--json")
        end()
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        (participant,) = found["participants"]
        assert isinstance(bus.link, NetLink)
        assert participant["uid"] == bus.link.uid.hex()
        assert participant["interests"] == ["TrackSensor where axle > 2"]
        assert participant["pid"].isdecimal()
        assert [row["type"] for row in found["types"]] == ["TrackSensor", "TrackState"]
        assert found["types"][0]["last"] == "TrackSensor(axle=3)"
        assert found["types"][0]["events"] > 10
        assert found["types"][0]["rate"] > 0
        assert found["last_values"] == ["TrackState(source='A8', free=True)"]
        assert found["losses"] == {}
        assert found["link"]["received"] > 10


def test_bus_prints_lines_if_there_is_no_terminal(
    folder: Path, network: MemoryNetwork, watch_until: WatchUntil
) -> None:
    with open_bus("memory:rail") as bus:
        sensor, _ = types()
        for number in range(25):
            bus.subscribe(Subscription(sensor, where=f"axle > {number}"), lambda event: None)
        watch_until(lambda bus: interests(bus) == 25)
        done = genus("bus", "memory:rail", "--for", "1h")
    first, who, *rest = done.stdout.splitlines()
    assert first.startswith("on memory:rail 1 other participant, 0 events in ")
    assert who.startswith("participant ")
    assert rest[0] == "  wants TrackSensor where axle > 0"
    assert rest[-1] == "  wants and 5 more"


def test_bus_shows_wants_and_events_of_types_that_it_does_not_know(
    folder: Path, network: MemoryNetwork, watch_until: WatchUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has other types; here it is played by a raw participant."""
    monkeypatch.delenv("GENUS_TYPES")
    from genus.net._link.messages import control_key, encode_text
    from genus.net._transport import Sending

    class Silent:
        def packet(self, key: str, envelope: bytes, payload: bytes) -> None: ...
        def token(self, key: str, is_present: bool) -> None: ...
        def dropped(self, key: str, count: int, reason: str) -> None: ...
        def connected(self, is_connected: bool) -> None: ...

    other, uid = network.transport(), "0123456789abcdef"
    other.open(Silent())
    about = json.dumps({"host": "a\x1b[31m" + "x" * 999, "pid": [1], "program": None})
    other.declare(control_key("rail", "here", uid, encode_text(about)))
    other.declare(control_key("rail", "want", uid, uid, encode_text("NeverHeardOf where x > 1"), "2"))
    sender = other.sender("rail/NeverHeardOf", Sending())
    ends = threading.Event()

    def publish() -> None:
        while not ends.wait(0.01):
            sender.put(b"\x80", bytes(25))

    publisher = threading.Thread(target=publish)
    publisher.start()
    unknown = "delivered as Event: NeverHeardOf is not known"
    watch_until(lambda bus: interests(bus) == 1 and bus.traffic().link.get(unknown, 0) > 0)
    try:
        done = genus("bus", "memory:rail", "--for", "1h", "--json")
    finally:
        ends.set()
        publisher.join()
    found = json.loads(done.stdout)
    (participant,) = found["participants"]
    assert participant["host"].startswith("a?[31mxxx")
    assert len(participant["host"]) < 300
    assert participant["interests"] == ["NeverHeardOf where x > 1 (2 gateways away)"]
    assert found["losses"][unknown] > 0


def test_monitor_counts_by_type_and_source(folder: Path, network: MemoryNetwork, watch_until: WatchUntil) -> None:
    with open_bus("memory:rail") as bus:
        sensor, _ = types()

        def publish() -> None:
            bus.publish(sensor(axle=1, source="north"))
            bus.publish(sensor(axle=9, source="south"))

        end = repeatedly(bus, publish)
        watch_until(lambda bus: received(bus) > 10)
        done = genus("monitor", "memory:rail", "TrackSensor where axle > 2", "--for", "1h", "--json")
        watch_until(lambda bus: received(bus) > 10)
        lines = genus("monitor", "memory:rail", "--for", "1h")
        end()
    found = json.loads(done.stdout)
    (row,) = found["rows"]
    assert (row["type"], row["source"], row["last"]) == ("TrackSensor", "south", "TrackSensor(source='south', axle=9)")
    assert row["events"] > 5
    assert found["losses"] == {}
    assert sorted(line.split(":")[0] for line in lines.stdout.splitlines()) == [
        "type TrackSensor from north",
        "type TrackSensor from south",
    ]


def test_what_cannot_be_watched_is_one_line(folder: Path) -> None:
    for words, said in (
        (("bus", "local:"), "local: stays within this command"),
        (("monitor", "zenho:"), "'zenho:' is not an address of a bus: did you mean 'zenoh'?"),
        (
            ("sub", "--bus", "nowhere"),
            "'nowhere' is not an address of a bus: known are can:, coap:, coaps:, ipc:, local:",
        ),
    ):
        done = genus(*words)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_pub_waits_for_those_who_are_found_late(folder: Path, network: MemoryNetwork) -> None:
    """A command that publishes one event and leaves must not be gone before others have been found."""
    with open_bus("memory:rail") as bus:
        inbox = bus.inbox(Subscription(Event))
        done = genus("pub", "--bus", "memory:rail", "TrackSensor", "axle=4")
        assert done.stderr == "published 1 event; reached 1 process\n"
        assert repr(inbox.get(timeout=30)) == "TrackSensor(axle=4)"


def test_metrics_of_a_command_are_served_while_it_runs(folder: Path, network: MemoryNetwork) -> None:
    pytest.importorskip("prometheus_client")
    port, found = _free_port(), list[str]()
    with open_bus("memory:rail") as bus:

        def ask() -> None:
            bus.publish(Event(place="A8"))
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                    found.append(answer.read().decode())
                if 'genus_link_total{what="received"}' in found[-1]:
                    bus.publish(Event(place="end"))

        end = repeatedly(bus, ask)
        done = genus(
            "sub", "--bus", "memory:rail", "Event where place == 'end'", "--limit", "1", "--metrics", str(port)
        )
        end()
    assert done.returncode == 0, done.stderr
    assert f"metrics at http://127.0.0.1:{port}/metrics" in done.stderr
    assert "genus_delivered_total{subscription=\"Event where place == 'end'\"} 0.0" in found[0]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# -- what was seen -----------------------------------------------------------------------------------------------------


class Axle(Event): ...


def test_rates_are_of_the_last_seconds() -> None:
    time = [100.0]
    watch = Watch(by_source=False, now=lambda: time[0])
    for second in range(20):
        time[0] += 1.0
        for _ in range(10 if second < 10 else 2):
            watch(Axle())
        (row,) = watch.rows()
        if second == 9:
            assert row.rate == pytest.approx(10)
    assert row.events == 120
    assert row.rate == pytest.approx(2)
    time[0] += RATE_S + 1
    watch.rows()
    time[0] += RATE_S + 1
    assert watch.rows()[0].rate == 0


def test_very_many_sources_are_a_bounded_number_of_rows() -> None:
    watch = Watch(by_source=True)
    for number in range(MAX_ROWS + 500):
        watch(Axle(source=str(number)))
    rows = watch.rows()
    assert len(rows) == MAX_ROWS + 1
    assert rows[0].type == OTHERS
    assert sum(row.events for row in rows) == MAX_ROWS + 500


@pytest.mark.parametrize(
    ("text", "shown"), [("a\nb\x1b]0;x\x07", "a?b?]0;x?"), ("ü€", "ü€"), ("x" * 500, "x" * 200 + "...")]
)
def test_texts_of_others_cannot_control_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown
