"""A recorder writes only what can be read back: the rest is refused where it is published, or counted."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from genus import Event, Maybe, open_bus
from genus.bus import _recording_writer as writer_module
from genus.bus import read_recording, record, record_to_folder
from genus.bus.types import FolderRecorder, Recorder, Refused
from genus.errors import BusError, EventError
from tests.generators import Sampler
from tests.wild_values import wild_event


class Loop(Event):
    lane: int
    parts: Maybe[list[int]] = None


NAIVE: Any = Loop(lane=1, time=datetime(2026, 1, 1))
TEXT: Any = Loop(lane="two")  # type: ignore[arg-type]
LIST: Any = Loop(lane=1, parts=["x"])  # type: ignore[list-item]

Start = Callable[..., Recorder | FolderRecorder]


@pytest.fixture(params=[record, record_to_folder])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    return lambda bus, **options: request.param(bus, tmp_path / "made", **options)


def written(tmp_path: Path) -> list[Event]:
    files = [path for path in (tmp_path / "made", *tmp_path.glob("made/*.genus")) if path.is_file()]
    return [one.event for file in files for one in read_recording(file, [Loop])]


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (NAIVE, r"Loop\.time is datetime.*, but must be a datetime with a time zone"),
        (TEXT, r"Loop\.lane is 'two', but must be int64"),
        (LIST, r"Loop\.parts is \['x'\], but must be list\[int\]"),
    ],
)
def test_publish_raises_after_other_subscribers_were_served(
    start: Start, tmp_path: Path, event: Event, problem: str
) -> None:
    seen: list[Event] = []
    with open_bus() as bus:
        bus.collection(Loop).subscribe(seen.append)
        with start(bus) as recorder:
            bus.collection(Loop).subscribe(seen.append)
            with pytest.raises(EventError, match=problem):
                bus.publish(event)
            bus.publish(Loop(lane=2))
        assert (recorder.written, recorder.refused.total, recorder.lost) == (1, 1, 0)
    assert seen == [event, event, Loop(lane=2), Loop(lane=2)]
    assert written(tmp_path) == [Loop(lane=2)]


def test_counted_if_asked_so_by_reason_with_the_last_one(start: Start, tmp_path: Path) -> None:
    with open_bus() as bus, start(bus, invalid="count") as recorder:
        for _ in range(1000):
            bus.publish(NAIVE)
        bus.publish(TEXT)
        bus.publish(Loop(lane=2**63))
        bus.publish(Loop(lane=7))
    reasons = dict(recorder.refused)
    assert reasons["Loop.lane must be int64"] == Refused(2, f"Loop.lane is {2**63}, but must be int64")
    assert [found.count for found in reasons.values()] == [1000, 2]
    assert recorder.refused.total == 1002
    assert written(tmp_path) == [Loop(lane=7)]


def test_other_errors_of_a_recorder_are_no_refusals(start: Start) -> None:
    problems: list[Any] = []

    def fail() -> int:
        raise OverflowError("no time")

    with open_bus(on_error=lambda *what: problems.append(what)) as bus, start(bus, clock=fail) as recorder:
        bus.publish(Loop(lane=1))
    assert len(problems) == 1
    assert not recorder.refused


def test_a_time_of_recording_that_cannot_be_read_back_is_refused(start: Start) -> None:
    with open_bus() as bus, start(bus, clock=lambda: 10**30), pytest.raises(EventError, match="years 1 to 9999"):
        bus.publish(Loop(lane=1))


def test_an_event_that_is_too_long_is_refused(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_SIZE", 100)
    with open_bus() as bus, start(bus) as recorder:
        with pytest.raises(EventError, match="at most 100 of one"):
            bus.publish(Loop(lane=1, place="x" * 100))
        bus.publish(Loop(lane=1))
    assert (recorder.written, dict(recorder.refused).popitem()[0]) == (1, "Loop cannot be encoded")
    assert written(tmp_path) == [Loop(lane=1)]


def test_another_word_is_no_option(start: Start, tmp_path: Path) -> None:
    with open_bus() as bus, pytest.raises(BusError, match="invalid='drop' is none of raise, count"):
        start(bus, invalid="drop")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_recorded_can_be_replayed(tmp_path: Path, seed: int) -> None:
    """Random values of any type in any attribute: what was written is replayed, and the rest was refused."""
    chance = random.Random(seed)
    events = [wild_event(chance, Sampler) for _ in range(2000)]
    with open_bus() as bus, record(bus, tmp_path / "wild.genus", invalid="count") as recorder:
        for event in events:
            bus.publish(event)
    recording = read_recording(tmp_path / "wild.genus", [Sampler])
    assert len(list(recording)) == recorder.written
    assert recorder.written + recorder.refused.total == len(events)
    assert 100 < recorder.written < 1900
    assert not recording.problems
    assert not recording.damage


def test_a_time_with_a_zone_is_recorded(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with open_bus() as bus, record(bus, tmp_path / "loops.genus"):
        bus.publish(Loop(lane=1, time=moment))
    assert [one.event for one in read_recording(tmp_path / "loops.genus", [Loop])] == [Loop(lane=1, time=moment)]
