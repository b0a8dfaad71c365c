"""Buses between the processes of one user on one machine: `open_bus("ipc:...")`."""

import os
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from genus import BestEffort, Event, Kind, Maybe, open_bus, this
from genus.bus import Bus
from genus.errors import BusError, EventError, QueueFull
from genus.net import EventsLost, NetLink
from genus.net._envelope import ENVELOPE
from genus.net._ipc.connections import ipc_folder
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sending
from tests.net.recording_receiver import RecordingReceiver
from tests.waiting import wait_for


class Beep(Event):
    tone: int


class Wired(Kind): ...


class IpcChime(Event):
    pitch: int
    room: Maybe[str] = None


class WiredChime(IpcChime, Wired):
    volts: Maybe[float] = None


class Film(Event):
    frames: bytes


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def link_of(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


CHILD = """
import sys
from genus import Event, open_bus
class Beep(Event):
    tone: int
with open_bus("ipc:test") as bus:
    inbox = bus.collection(Beep).inbox(where="tone > 0")
    print("ready", flush=True)
    for _ in range(int(sys.argv[1])):
        event = inbox.get(timeout=120)
        bus.publish(Beep(tone=-event.tone))
"""


def test_events_go_to_another_process_and_back() -> None:
    with open_bus("ipc:test") as bus:
        beeps = bus.collection(Beep)
        answers = beeps.inbox(where="tone < 0")
        child = subprocess.Popen([sys.executable, "-c", CHILD, "3"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for tone in (1, 2, 3):
            beeps.publish(Beep(tone=tone))
        assert [answers.get(timeout=120).tone for _ in range(3)] == [-1, -2, -3]
        assert child.wait(120) == 0
        child.stdout.close()
        assert bus.traffic().link["received"] == 3


def test_one_that_died_is_forgotten_and_blocks_nobody() -> None:
    with open_bus("ipc:test") as bus:
        child = subprocess.Popen([sys.executable, "-c", CHILD, "1"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        wait_for(lambda: link_of(bus).wanted_by(Beep(tone=1)) != set())
        child.kill()
        child.wait()
        child.stdout.close()
        bus.publish(Beep(tone=1))
        bus.publish(Beep(tone=2))
        wait_for(lambda: len(os.listdir(ipc_folder("test"))) == 1)
        wait_for(lambda: not link_of(bus).participants() and not link_of(bus).wanted_by(Beep(tone=1)))


def test_malformed_packets_are_counted_and_harm_nothing() -> None:
    with open_bus("ipc:test") as bus:
        inbox = bus.collection(Beep).inbox()
        stranger = IpcTransport("test")
        stranger.open(RecordingReceiver())
        for number, junk in enumerate((b"junk", b"\xff" * 100, b"\x81\xa4tone\xa1x")):
            envelope = ENVELOPE.pack(b"stranger", number, 0, b"stranger", number)
            stranger.sender("test/Beep", Sending()).put(junk, envelope)
        stranger.sender("test/Beep", Sending()).put(b"\x81\xa4tone\x07", b"")
        with open_bus("ipc:test") as other:
            other.publish(Beep(tone=7))
            assert inbox.get(timeout=120) == Beep(tone=7)
        wait_for(lambda: sum(n for key, n in bus.traffic().link.items() if key.startswith("rejected")) == 4)
        stranger.close()


def test_its_own_events_come_once() -> None:
    with open_bus("ipc:test") as bus, open_bus("ipc:test"):
        found: list[Any] = []
        bus.collection(Beep).subscribe(found.append)
        bus.publish(Beep(tone=1))
        assert found == [Beep(tone=1)]


def test_addresses_that_are_wrong_are_refused(tmp_path: Path) -> None:
    for address, message in (
        ("ipc:../../etc", "letters, digits"),
        ("ipc:test?overflo=block", "did you mean 'overflow'"),
        ("ipc:test?full=block", "it is called overflow now"),
        ("ipc:test?overflow=drop_oldset", "did you mean 'drop_oldest'"),
    ):
        with pytest.raises(BusError, match=message):
            open_bus(address)
    (tmp_path / "genus").write_text("in the way")
    with pytest.raises(BusError, match="cannot open the bus in"):
        open_bus("ipc:test")


def test_subscriptions_of_others_are_known_as_they_come_and_go() -> None:
    """A process that has opened the bus, but subscribed to nothing, is not counted."""
    with open_bus("ipc:test") as bus, open_bus("ipc:test") as first, open_bus("ipc:test") as second:

        def wanted(event: Event) -> int:
            return len(link_of(bus).wanted_by(event))

        assert wanted(IpcChime(pitch=1)) == 0
        high = first.collection(IpcChime).subscribe(lambda _: None, where=this.pitch > 5)
        second.collection(Wired).inbox()
        wait_for(lambda: (wanted(IpcChime(pitch=1)), wanted(WiredChime(pitch=9))) == (0, 2))
        with open_bus("ipc:test") as late:
            assert len(link_of(late).wanted_by(WiredChime(pitch=9))) == 2
        high.cancel()
        wait_for(lambda: wanted(WiredChime(pitch=9)) == 1)


def test_a_large_event_arrives_and_one_of_more_than_64_mb_is_refused() -> None:
    with open_bus("ipc:test") as bus, open_bus("ipc:test") as other:
        inbox = other.collection(Film).inbox()
        large = bytes(range(256)) * (24 * 4096)
        bus.publish(Film(frames=large))
        assert inbox.get(timeout=120) == Film(frames=large)
        with pytest.raises(EventError, match="at most"):
            bus.publish(Film(frames=bytes(64 << 20)))


def test_the_last_value_of_each_source_comes_to_later_subscribers() -> None:
    with open_bus("ipc:test") as bus, bus.channel(IpcChime, BestEffort(), keep=True) as chimes:
        for source, pitch in (("hall", 1), ("roof", 2), ("hall", 3)):
            chimes.publish(IpcChime(pitch=pitch, source=source))
        with open_bus("ipc:test") as other:
            inbox = other.collection(IpcChime).inbox()
            got = [inbox.get(timeout=120) for _ in range(2)]
            assert sorted(got, key=lambda event: event.pitch) == [
                IpcChime(pitch=2, source="roof"),
                IpcChime(pitch=3, source="hall"),
            ]
            chimes.publish(IpcChime(pitch=4, source="roof"))
            assert inbox.get(timeout=120) == IpcChime(pitch=4, source="roof")


@pytest.mark.parametrize("full", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_every_event_is_delivered_or_told_as_lost_to_both_ends(full: str, side: str) -> None:
    """Whichever queue was full, also if nothing is published after it."""
    options = {
        "sender": (f"overflow={full}&capacity=20", "receive_overflow=block&receive_capacity=1"),
        "receiver": ("", f"receive_overflow={full}&receive_capacity=20"),
    }[side]
    began, go_on, got = threading.Event(), threading.Event(), []
    here: list[EventsLost] = []
    there: list[EventsLost] = []

    def handle(event: Film) -> None:
        began.set()
        assert go_on.wait(60)
        got.append(event.frames[:1])

    with open_bus(f"ipc:test?{options[0]}") as bus, open_bus(f"ipc:test?{options[1]}") as other:
        other.collection(Film).subscribe(handle, on_problem=there.append)
        with bus.channel(Film, on_problem=here.append) as films:
            for number in range(100):
                films.publish(Film(frames=bytes([number]) + bytes(1 << 17)))
                assert began.wait(60)  # who has just subscribed counts from the first event that it gets
            wait_for(lambda: sum(problem.count for problem in here) > 0)
            go_on.set()
            wait_for(lambda: len(got) + sum(problem.count for problem in there) == 100)
            wait_for(lambda: bus.traffic().link.get("lost by receivers") == 100 - len(got))
            wait_for(lambda: sum(problem.count for problem in here) >= 100 - len(got))
        assert sum(problem.count for problem in here) == 100 - len(got) > 0
        assert len(set(got)) == len(got)
        assert {problem.type for problem in (*here, *there)} == {"Film"}


def test_with_a_key_of_the_realm_nobody_else_is_heard(tmp_path: Path) -> None:
    key = tmp_path / "realm.key"
    for text, mode, message in (
        ("", 0o600, "has 0 bytes"),
        ("x" * 32, 0o604, "chmod 600"),
        (None, 0, "cannot be read"),
    ):
        key.unlink(missing_ok=True)
        if text is not None:
            key.write_text(text)
            key.chmod(mode)
        with pytest.raises(BusError, match=message):
            open_bus(f"ipc:test?realm_key={key}")
    key.write_text("0123456789abcdef\n")
    key.chmod(0o600)
    address = f"ipc:test?realm_key={key}"
    with open_bus(address) as bus, open_bus(f"{address}&format=cloudevents") as cloud, open_bus("ipc:test") as stranger:
        inbox, strange = bus.collection(Beep).inbox(), stranger.collection(Beep).inbox()
        stranger.publish(Beep(tone=1))
        cloud.publish(Beep(tone=2))
        assert inbox.get(timeout=60) == Beep(tone=2)
        rejected = "rejected: a packet without the seal of the realm"
        wait_for(lambda: bus.traffic().link.get(rejected, 0) >= 1)
        bus.publish(Beep(tone=3))
        wait_for(lambda: any(name.startswith("rejected: an envelope") for name in stranger.traffic().link))
        assert strange.counters.delivered == 1  # its own


def test_a_queue_gives_each_event_to_one_process() -> None:
    taken: list[list[int]] = [[], [], []]

    def take(here: list[int], event: Beep) -> None:
        here.append(event.tone)

    with open_bus("ipc:test") as bus, open_bus("ipc:test") as one, open_bus("ipc:test") as two:
        listeners = [
            each.collection(Beep, "queue").subscribe(partial(take, here))
            for each, here in zip((bus, one, two), taken, strict=True)
        ]
        wait_for(lambda: all(len(next(iter(link_of(each)._groups.members.values()))) == 3 for each in (bus, one, two)))
        for tone in range(300):
            (bus, one)[tone % 2].publish(Beep(tone=tone))
        wait_for(lambda: sum(map(len, taken)) == 300)
        assert sorted(chain.from_iterable(taken)) == list(range(300))
        assert all(len(each) == 100 for each in taken)
        listeners[1].cancel()
        bus.collection(Beep).publish_all([Beep(tone=tone) for tone in range(300, 400)])
        wait_for(lambda: sum(map(len, taken)) == 400)
        assert sorted(chain.from_iterable(taken)) == list(range(400))


def test_a_receiver_takes_packets_again_however_much_it_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.net._mailbox.MAX_BYTES", 1 << 20)
    held, got = threading.Event(), []

    def handle(event: Film) -> None:
        assert held.wait(60)
        got.append(len(event.frames))

    with open_bus("ipc:test") as bus, open_bus("ipc:test?receive_overflow=drop_newest&receive_capacity=4") as other:
        other.collection(Film).subscribe(handle)
        for _ in range(40):
            bus.publish(Film(frames=bytes(1 << 17)))
        wait_for(lambda: other.traffic().link.get("dropped: the mailbox is full", 0) > 10)
        held.set()
        wait_for(lambda: len(got) + other.traffic().link["dropped: the mailbox is full"] >= 40)
        before = len(got)
        bus.publish(Film(frames=b"1"))
        wait_for(lambda: got[before:] == [1])


def publish_films(bus: Bus) -> None:
    for _ in range(400):
        bus.publish(Film(frames=bytes(1 << 18)))


def test_a_full_queue_raises_by_that_policy() -> None:
    held = threading.Event()
    with open_bus("ipc:test?overflow=raise&capacity=2") as bus, open_bus("ipc:test?receive_overflow=block") as other:
        other.collection(Film).subscribe(lambda _: held.wait(60))
        with pytest.raises(QueueFull, match="holds 2 packets"):
            publish_films(bus)
        held.set()


def test_closing_ends_a_publisher_that_waits() -> None:
    """Whatever waits: the bus is closed in the time of a flush."""
    held = threading.Event()
    with open_bus("ipc:test?receive_overflow=block&receive_capacity=1") as other:
        other.collection(Film).subscribe(lambda _: held.wait(60))
        bus = open_bus("ipc:test?overflow=block&capacity=2")
        refused: list[str] = []

        def publish() -> None:
            try:
                publish_films(bus)
            except BusError as problem:
                refused.append(str(problem))

        publisher = threading.Thread(target=publish)
        publisher.start()
        publisher.join(1)
        assert publisher.is_alive()
        started = time.monotonic()
        bus.close()
        publisher.join(60)
        assert time.monotonic() - started < 30
        assert "waited for room" in refused[0]
        held.set()
