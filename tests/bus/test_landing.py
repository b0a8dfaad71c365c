"""Recording into a landing folder: files appear whole, in order, and survive the death of their recorder."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genus import Event, Subscription, open_bus, this
from genus.bus import RecordingWriter, read_recording
from genus.bus import _folder_recorder as landing_module
from genus.bus._codec import encode_event
from genus.bus._folder_recorder import FolderRecorder, record_to_folder
from genus.bus._frames import FIRST_FORMAT, FORMAT, FrameFormat
from genus.bus._recorder import Ticking
from genus.errors import EventError, RecordingError
from genus.testing import VirtualClock


class Step(Event):
    number: int


class Hand:
    """A ticker that ticks when it is told to."""

    def __init__(self) -> None:
        self.stopped = False
        self.interval = 0.0
        self.tick: Callable[[], None] = lambda: None

    def __call__(self, call: Callable[[], None], seconds: float) -> "Hand":
        self.tick, self.interval = call, seconds
        return self

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000_000_000)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def start(tmp_path: Path, clock: VirtualClock, hand: Hand) -> Callable[..., FolderRecorder]:
    def start(bus: Any, *arguments: Any, **options: Any) -> FolderRecorder:
        chosen: dict[str, Any] = {"clock": clock, "steady": clock.seconds, "ticker": hand} | options
        return record_to_folder(bus, tmp_path / "landing", *arguments, **chosen)

    return start


def landed(folder: Path, name: str = "events") -> dict[str, list[int]]:
    """The numbers in each file that has landed, in the order of names."""
    return {
        path.name: [one.event.number for one in read_recording(path, [Step])]  # type: ignore[attr-defined]
        for path in sorted(folder.glob(f"landing/{name}-*.genus"))
    }


def test_a_file_lands_with_its_last_event_and_the_rest_when_the_recorder_is_closed(
    start: Callable[..., FolderRecorder], tmp_path: Path, hand: Hand
) -> None:
    with open_bus() as bus, start(bus, max_events=3) as recorder:
        for number in range(7):
            bus.publish(Step(number=number))
        assert list(landed(tmp_path).values()) == [[0, 1, 2], [3, 4, 5]]
        assert (recorder.written, recorder.landed) == (6, 2)
        hand.tick()
        assert recorder.written == 7
    assert landed(tmp_path) == {
        "events-000000000001.genus": [0, 1, 2],
        "events-000000000002.genus": [3, 4, 5],
        "events-000000000003.genus": [6],
    }
    assert [path.name for path in (tmp_path / "landing").iterdir() if path.suffix == ".part"] == []


def test_a_quiet_bus_lands_its_last_events_too(
    start: Callable[..., FolderRecorder], tmp_path: Path, clock: VirtualClock, hand: Hand
) -> None:
    """`every` counts from a file's first event; while nothing comes, nothing lands."""
    with open_bus() as bus, start(bus, every=5):
        clock.sleep(100)
        hand.tick()
        bus.publish(Step(number=1))
        clock.sleep(4.9)
        hand.tick()
        assert not landed(tmp_path)
        clock.sleep(0.1)
        hand.tick()
        assert list(landed(tmp_path).values()) == [[1]]
        clock.sleep(100)
        hand.tick()
    assert len(landed(tmp_path)) == 1
    assert hand.stopped


def test_what_is_recorded_is_chosen_by_a_subscription_and_stamped_by_the_clock(
    start: Callable[..., FolderRecorder], tmp_path: Path
) -> None:
    with open_bus() as bus, start(bus, Subscription(Step, where=this.number > 1)):
        for number in range(4):
            bus.publish(Step(number=number))
    (file,) = (tmp_path / "landing").glob("*.genus")
    assert [(one.at_us, one.event) for one in read_recording(file, [Step])] == [
        (1_000_000, Step(number=2)),
        (1_000_000, Step(number=3)),
    ]


def test_no_file_without_events_lands(start: Callable[..., FolderRecorder], tmp_path: Path, hand: Hand) -> None:
    """Neither of a bus on which nothing passed, nor of an event that cannot be written."""
    with open_bus() as bus, start(bus) as recorder:
        hand.tick()
        with pytest.raises(EventError, match=r"Step\.number is <object"):
            bus.publish(Step(number=object()))  # type: ignore[arg-type]
        hand.tick()
    assert recorder.refused.total == 1
    assert not landed(tmp_path)
    assert [path.name for path in (tmp_path / "landing").iterdir()] == [".events.lock"]


def test_numbers_go_on_after_a_restart_also_if_landed_files_were_taken_away(
    start: Callable[..., FolderRecorder], tmp_path: Path
) -> None:
    """A reader may remember names: one is never used twice."""
    for number in range(3):
        with open_bus() as bus, start(bus):
            bus.publish(Step(number=number))
        for file in (tmp_path / "landing").glob("*.genus"):
            assert file.name == f"events-{number + 1:012}.genus"
            file.unlink()


def test_a_name_is_one_recorders_at_a_time(start: Callable[..., FolderRecorder], tmp_path: Path) -> None:
    with open_bus() as bus:
        with start(bus, name="north"), start(bus, name="north-1"):
            with pytest.raises(RecordingError, match=r"another recorder writes to .* as 'north'"):
                start(bus, name="north")
            bus.publish(Step(number=1))
        assert len(landed(tmp_path, "north")) == 2
        with start(bus, name="north"):
            bus.publish(Step(number=2))
    assert landed(tmp_path, "north")["north-000000000002.genus"] == [2]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b"])
def test_a_name_that_is_no_file_name_is_refused(start: Callable[..., FolderRecorder], name: str) -> None:
    with open_bus() as bus, pytest.raises(RecordingError, match="cannot be named"):
        start(bus, name=name)


@pytest.mark.parametrize("options", [{"every": 0}, {"max_events": 0}, {"flush": "0s"}])
def test_sizes_of_nothing_are_refused(start: Callable[..., FolderRecorder], options: dict[str, Any]) -> None:
    with open_bus() as bus, pytest.raises(ValueError, match=r"more than 0|above zero"):
        start(bus, **options)


def test_a_folder_that_cannot_be_made_is_said(start: Callable[..., FolderRecorder], tmp_path: Path) -> None:
    (tmp_path / "landing").write_text("a file")
    with open_bus() as bus, pytest.raises(RecordingError, match="cannot write to"):
        start(bus)


# -- dying -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(0, 600, 20))
def test_what_a_dead_recorder_left_lands_up_to_its_last_whole_block(
    start: Callable[..., FolderRecorder], tmp_path: Path, cut: int
) -> None:
    """However much of the file had reached the disk; without a whole block it is removed."""
    folder = tmp_path / "landing"
    folder.mkdir()
    part = folder / ".events-000000000007.part"
    ends = []
    with RecordingWriter(part) as writer:
        for number in range(3):
            writer.write(Step(number=number), 0)
            writer.flush()
            ends.append(part.stat().st_size)
    size = max(part.stat().st_size - cut, 0)
    part.write_bytes(part.read_bytes()[:size])
    with open_bus() as bus, start(bus):
        bus.publish(Step(number=9))
    left = [number for number in range(3) if ends[number] <= size]
    wanted = {"events-000000000007.genus": left, "events-000000000008.genus": [9]}
    assert landed(tmp_path) == {file: numbers for file, numbers in wanted.items() if numbers}
    assert all(not read_recording(file, [Step]).damage for file in folder.glob("*.genus"))
    assert not list(folder.glob(".*.part"))


def test_of_a_large_block_that_was_cut_the_events_before_the_cut_land(
    start: Callable[..., FolderRecorder], tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    part = folder / ".events-000000000001.part"
    with RecordingWriter(part) as writer:
        for number in range(3000):
            writer.write(Step(number=number, place="x" * (number % 90)), 0)
    part.write_bytes(part.read_bytes()[:-60_000])
    with open_bus() as bus, start(bus):
        pass
    (numbers,) = landed(tmp_path).values()
    assert numbers == list(range(len(numbers)))
    assert 1500 < len(numbers) < 3000
    assert not read_recording(next(folder.glob("*.genus")), [Step]).damage


DYING = """
import os, signal, sys
from genus import Event, open_bus
from genus.bus._folder_recorder import record_to_folder

class Step(Event):
    number: int

class Hand:
    def __init__(self, call, seconds):
        self.tick = call
    def stop(self):
        pass

first = int(sys.argv[2])
made = []
by_hand = lambda *a: made.append(Hand(*a)) or made[0]
with open_bus() as bus, record_to_folder(bus, sys.argv[1], max_events=7, ticker=by_hand):
    number = first
    while True:
        bus.publish(Step(number=number))
        if number % 3 == 0:
            made[0].tick()
            print(number, flush=True)
        number += 1
"""


def test_killed_at_any_point_nothing_flushed_is_lost_and_nothing_lands_twice(
    start: Callable[..., FolderRecorder], tmp_path: Path
) -> None:
    """Four lives, each ended by kill -9 when it has said that some events were flushed."""
    chance = random.Random(4)
    folder = tmp_path / "landing"
    said = [kill_one(folder, life * 100_000, chance.randrange(1, 60)) for life in range(4)]
    with open_bus() as bus, start(bus):
        pass
    numbers = [number for file in landed(tmp_path).values() for number in file]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    for life, last in enumerate(said):
        of_life = [number for number in numbers if number // 100_000 == life]
        assert of_life == list(range(life * 100_000, of_life[-1] + 1)), "without a gap"
        assert of_life[-1] >= last, "what was flushed is there"


def kill_one(folder: Path, first: int, after: int) -> int:
    """Let a recorder run until it has flushed some times, then kill it; gives the last number it said."""
    command = [sys.executable, "-c", DYING, str(folder), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(after)]
        process.send_signal(signal.SIGKILL)
    return said[-1]


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_land_now_lands_later(
    start: Callable[..., FolderRecorder], tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost by a folder that refuses for a while, and events go on being written."""
    with open_bus() as bus, start(bus, max_events=2) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refuse)
            for number in range(5):
                bus.publish(Step(number=number))
            with pytest.raises(RecordingError, match="cannot write to"):
                hand.tick()
        assert (recorder.written, recorder.landed, recorder.lost) == (5, 0, 0)
        hand.tick()
        assert list(landed(tmp_path).values()) == [[0, 1], [2, 3]]
    assert list(landed(tmp_path).values()) == [[0, 1], [2, 3], [4]]


def test_events_that_cannot_be_written_are_counted_and_reported_once(
    start: Callable[..., FolderRecorder],
    tmp_path: Path,
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk is one line of the log, not one per event; when there is room again, recording goes on."""
    with open_bus() as bus, start(bus, max_events=30) as recorder:
        bus.publish(Step(number=0))
        hand.tick()
        with monkeypatch.context() as patch:
            patch.setattr(RecordingWriter, "_write_out", refuse)
            recorder._landing._writer._limit = 2  # type: ignore[union-attr]
            for number in range(1, 20):
                bus.publish(Step(number=number))
        bus.publish(Step(number=20))
        hand.tick()
        assert (recorder.written, recorder.lost) == (2, 19)
    assert list(landed(tmp_path).values()) == [[0, 20]]
    assert len(caplog.records) == 1


def refuse(*_: object, **options: object) -> None:
    raise OSError(30, os.strerror(30))


def test_the_thread_ticks_on_after_an_error_and_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    calls, enough = [], threading.Event()

    def call() -> None:
        calls.append(1)
        if len(calls) >= 4:
            enough.set()
        if len(calls) < 4:
            raise RecordingError("the disk is full")

    ticking = Ticking(call, 0.001)
    assert enough.wait(120)
    ticking.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "a recording cannot be written and is tried again: the disk is full"
    ]


def test_by_default_a_thread_lands_what_is_old_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()
    monkeypatch.setattr(landing_module, "_sync", lambda _: seen.set())
    with open_bus() as bus, record_to_folder(bus, tmp_path / "landing", every=0.001, flush=0.001):
        bus.publish(Step(number=1))
        assert seen.wait(120)
        assert list(landed(tmp_path).values()) == [[1]]


@pytest.mark.parametrize("form", [FIRST_FORMAT, FORMAT])
@pytest.mark.parametrize("kept", [0, 2])
def test_what_a_dead_recorder_of_an_older_version_left_lands_up_to_its_last_whole_frame(
    start: Callable[..., FolderRecorder], tmp_path: Path, form: FrameFormat, kept: int
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    frames = [form.frame(encode_event(Step(number=number), 0)) for number in range(3)]
    part = folder / ".events-000000000007.part"
    part.write_bytes(form.header + b"".join(frames[:kept]) + frames[2][:-1])
    with open_bus() as bus, start(bus):
        pass
    assert landed(tmp_path) == ({"events-000000000007.genus": [*range(kept)]} if kept else {})
    assert all(not read_recording(file, [Step]).damage for file in folder.glob("*.genus"))
    assert not part.exists()


def test_an_event_for_which_no_file_can_be_made_is_lost_and_told(
    start: Callable[..., FolderRecorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once for all of them, and again after some that were written."""
    with open_bus() as bus, start(bus, max_events=1) as recorder:
        for turn in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(landing_module, "RecordingWriter", refuse)
                for number in range(3):
                    bus.publish(Step(number=number))
            assert recorder.lost == 3 * turn + 3
            bus.publish(Step(number=9))
        assert (recorder.written, recorder.lost, recorder.landed) == (2, 6, 2)
    assert list(landed(tmp_path).values()) == [[9], [9]]
    assert len(caplog.records) == 2
    assert caplog.records[0].getMessage().startswith("events are not recorded, which is tried again: cannot write to")
