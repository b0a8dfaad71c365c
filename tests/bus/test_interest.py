"""Which processes on an `ipc:` bus subscribed to an event."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, open_bus, this
from genus.bus import Bus, IpcLink
from genus.bus._interest import MAX_LISTED, InterestFile, PeerInterests
from genus.bus._ipc import ipc_folder


class Wired(Kind):
    pass


class Chime(Event):
    pitch: int
    room: Maybe[str] = None


class WiredChime(Chime, Wired):
    volts: Maybe[float] = None


SUBSCRIPTIONS = [
    Subscription(Event),
    Subscription(Chime, exact=True),
    Subscription(Chime, has="room"),
    Subscription(Chime, where=this.pitch > 3),
    Subscription(WiredChime, lacks="volts"),
    Subscription(Wired),
    Subscription(all_of(Chime, Wired), where=this.room == "a: b\nc\u2028"),
]
events = st.builds(Chime, pitch=st.integers(0, 6), room=st.sampled_from([None, "hall", "a: b\nc\u2028"])) | st.builds(
    WiredChime,
    pitch=st.integers(0, 6),
    room=st.sampled_from([None, "a: b\nc\u2028"]),
    volts=st.sampled_from([None, 1.5]),
)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def others() -> Iterator[list[Bus]]:
    opened = [open_bus("ipc:interest") for _ in range(2)]
    yield opened
    for bus in opened:
        bus.close()


def count(bus: Bus, event: Event) -> int:
    assert isinstance(bus.link, IpcLink)
    return len(bus.link.subscribers(event))


@given(st.sets(st.sampled_from(range(len(SUBSCRIPTIONS)))), events)
def test_a_process_is_counted_if_one_of_its_subscriptions_matches(chosen: set[int], event: Event) -> None:
    with TemporaryDirectory() as folder:
        own = Path(folder) / "1-a"
        written = InterestFile(own)
        for number in chosen:
            written.add(SUBSCRIPTIONS[number])
        assert PeerInterests().is_wanted(event, own) == any(SUBSCRIPTIONS[number].matches(event) for number in chosen)
        written.remove()
        assert list(own.parent.iterdir()) == []


def test_subscriptions_come_and_go(others: list[Bus]) -> None:
    """A process that has opened the bus, but subscribed to nothing, is not counted."""
    first, second = others
    with open_bus("ipc:interest") as bus:
        assert count(bus, Chime(pitch=1)) == 0
        high = first.collection(Chime).subscribe(lambda _: None, where=this.pitch > 5)
        second.collection(Chime).inbox()
        assert (count(bus, Chime(pitch=1)), count(bus, Chime(pitch=9))) == (1, 2)
        high.cancel()
        assert count(bus, Chime(pitch=9)) == 1


def test_nothing_is_left_behind(others: list[Bus]) -> None:
    others[0].collection(Chime).inbox()
    assert any(ipc_folder("interest").iterdir())
    for bus in others:
        bus.close()
    assert list(ipc_folder("interest").iterdir()) == []


def test_a_process_with_very_many_subscriptions_lists_all_events(others: list[Bus]) -> None:
    """So it is counted for events that it did not subscribe to; the list stays short."""
    inboxes = [others[0].collection(Chime).inbox(where=this.pitch == -1 - number) for number in range(MAX_LISTED + 1)]
    with open_bus("ipc:interest") as bus:
        assert count(bus, Chime(pitch=1)) == 1
        inboxes[0].cancel()
        assert count(bus, Chime(pitch=1)) == 0
