"""Recording what passes and replaying it, whole or damaged."""

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genus import Event, Float32, Maybe, Subscription, all_of, open_bus, this
from genus.bus import RecordingWriter, _recording_writer, read_recording, record, replay
from genus.bus._blocks import HEADER, MAX_TYPES, Block, EventGroup, blocks_in, bundle, pack_events
from genus.bus._codec import encode_event
from genus.bus._recording_writer import FEW, FIRST_EVENTS, group_by_class
from genus.catalog.internal import state_type
from genus.errors import BusError, RecordingError, SpanError
from tests.examples import examples
from tests.generators import Generator, Sampler, declare


class Mode(Enum):
    OFF = 0
    ON = 1


class Parcel(Event):
    load: bytes


class Route(Event):
    stops: list[int]


class Motor(Event):
    rpm: int
    mode: Maybe[Mode] = None
    load: Maybe[Float32] = None
    since: Maybe[timedelta] = None
    direction: str = "left"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "motors.genus"


def write(path: Path, events: list[Event], **options: Any) -> None:
    with RecordingWriter(path, **options) as writer:
        for position, event in enumerate(events):
            writer.write(event, at_us=position * 1_000_000)


MOTORS: list[Event] = [Motor(rpm=rpm, time=datetime(2026, 1, 1, 0, 0, rpm, tzinfo=UTC)) for rpm in range(20)]


def test_what_was_recorded_is_what_is_read(path: Path) -> None:
    event = Motor(rpm=-1, mode=Mode.ON, load=float("nan"), since=timedelta(microseconds=-1), direction="right")
    write(path, [event])
    (back,) = (recorded.event for recorded in read_recording(path, [Motor]))
    assert isinstance(back, Motor)
    assert repr(back) == repr(event)


def test_every_generated_event_survives(path: Path) -> None:
    events = Generator(5).events(300)
    write(path, events)
    recording = read_recording(path, {type(event) for event in events})
    assert [repr(one.event.place) for one in recording] == [repr(event.place) for event in events]
    assert recording.events == 300
    assert not recording.problems


def test_an_absent_attribute_takes_no_space_and_a_default_is_written_out() -> None:
    packet = encode_event(Motor(rpm=1), 0)
    assert b"mode" not in packet
    assert b"left" in packet, "the reader's default may be another one day"


def test_recording_a_bus_is_driven_by_a_subscription(path: Path) -> None:
    with open_bus() as bus:
        with record(bus, path, Subscription(Motor, where=this.rpm > 1)) as recorder:
            for event in MOTORS[:4]:
                bus.publish(event)
        bus.publish(Motor(rpm=99))
        assert recorder.written == 2
    assert [one.event.rpm for one in read_recording(path, Motor)] == [2, 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", [Motor, all_of(Motor), "Motor"])
def test_recording_and_replaying_take_what_a_bus_subscribes_to(path: Path, asked: Any) -> None:
    with open_bus() as bus:
        with pytest.raises(BusError, match="cannot be subscribed to"):
            record(bus, path, 3)  # type: ignore[arg-type]
        assert not path.exists()
        with record(bus, path, asked):
            bus.publish(MOTORS[0])
            bus.publish(Event(place="A8"))
    found: list[Event] = []
    assert replay(path, found.append, asked) == 1
    assert found == [MOTORS[0]]


def test_replay_is_driven_by_a_subscription_too(path: Path) -> None:
    write(path, MOTORS)
    with open_bus() as bus:
        found: list[Any] = []
        bus.collection(Motor).subscribe(found.append)
        count = replay(read_recording(path, [Motor]), bus.publish, Subscription(Motor, where=this.rpm >= 18))
    assert count == 2
    assert [event.rpm for event in found] == [18, 19]


def test_original_time_and_faster(path: Path) -> None:
    """Time is an input: nothing here really sleeps."""
    write(path, MOTORS[:4])
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    for speed, gap in ((1.0, 1.0), (4.0, 0.25)):
        slept.clear()
        replay(read_recording(path, [Motor]), lambda _: None, speed=speed, sleep=sleep, clock=lambda: now[0])
        assert slept == pytest.approx([gap] * 3)
    with pytest.raises(ValueError, match="more than 0"):
        replay(read_recording(path, [Motor]), print, speed=0)


def test_appending_continues_and_overwriting_is_refused(path: Path) -> None:
    write(path, MOTORS[:2])
    with pytest.raises(RecordingError, match="exists"):
        RecordingWriter(path)
    write(path, MOTORS[2:3], append=True)
    assert len(list(read_recording(path, [Motor]))) == 3


def test_an_empty_file_can_be_appended_to(path: Path) -> None:
    path.touch()
    write(path, MOTORS[:2], append=True)
    assert len(list(read_recording(path, [Motor]))) == 2


def test_types_unknown_to_the_reader_are_counted_by_name(path: Path) -> None:
    write(path, [*MOTORS[:2], Sampler(number=1)])
    recording = read_recording(path, [Motor])
    assert len(list(recording)) == 2
    assert recording.problems == {"unknown type Sampler": 1}


def test_values_the_type_does_not_allow_are_counted_with_the_place(path: Path) -> None:
    """One event of a block does not fit; those around it are read."""
    fast = msgspec.Raw(msgspec.msgpack.encode({"rpm": "fast"}))
    maps = [msgspec.Raw(msgspec.msgpack.encode(MOTORS[1])), fast, msgspec.Raw(msgspec.msgpack.encode(MOTORS[2]))]
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, maps)
    path.write_bytes(HEADER + pack_events([1, 2, 3], b"", [EventGroup("Motor", {}, 3, ends, bundles)]))
    recording = read_recording(path, [Motor])
    assert [(one.at_us, one.event) for one in recording] == [(1, MOTORS[1]), (3, MOTORS[2])]
    ((reason, count),) = recording.problems.items()
    assert "rpm" in reason
    assert count == 1


def test_types_in_turn_come_back_in_order(path: Path) -> None:
    """Also if several blocks are needed, of values that are encoded at once and of those that are encoded later."""
    events: list[Event] = [
        (Motor(rpm=number), Sampler(number=number), Parcel(load=b"x" * (number % 7)))[number % 3]
        for number in range(3 * FIRST_EVENTS)
    ]
    write(path, events)
    recording = read_recording(path, [Motor, Sampler, Parcel])
    assert [one.event for one in recording] == events
    assert [one.at_us for one in recording] == [number * 1_000_000 for number in range(len(events))]
    assert not recording.damage


def test_a_list_that_is_changed_after_it_was_recorded_is_recorded_as_it_was(path: Path) -> None:
    stops = [1, 2]
    with RecordingWriter(path) as writer:
        for _ in range(3):
            writer.write(Route(stops=stops), 0)
        stops.append(3)
    assert [one.event for one in read_recording(path, [Route])] == [Route(stops=[1, 2])] * 3


def test_compressed_it_is_smaller_and_the_same(path: Path, tmp_path: Path) -> None:
    write(path, MOTORS * 50)
    write(tmp_path / "packed.genus", MOTORS * 50, compress="zstd")
    assert list(read_recording(tmp_path / "packed.genus", [Motor])) == list(read_recording(path, [Motor]))
    assert (tmp_path / "packed.genus").stat().st_size < path.stat().st_size / 2
    with pytest.raises(RecordingError, match="write 'zstd'"):
        RecordingWriter(tmp_path / "other.genus", compress="gzip")  # type: ignore[arg-type]


def test_threads_write_every_event_once_and_each_in_its_order(path: Path) -> None:
    threads, each = 4, 3000

    def write_all(writer: RecordingWriter, first: int) -> None:
        for number in range(each):
            writer.write(Motor(rpm=first * each + number) if number % 2 else Parcel(load=b"%d" % number), number)
            if number % 700 == 0:
                writer.flush()

    with RecordingWriter(path) as writer, ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(write_all, writer, first) for first in range(threads)]:
            done.result()
    assert (writer.written, writer.lost) == (threads * each, 0)
    found = [one.event for one in read_recording(path, [Motor, Parcel])]
    assert len(found) == threads * each
    numbers = [event.rpm for event in found if isinstance(event, Motor)]
    for first in range(threads):
        own = [number for number in numbers if number // each == first]
        assert own == list(range(first * each + 1, (first + 1) * each, 2))


def test_without_zstd_a_compressed_recording_is_refused_before_it_begins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with open_bus() as bus, pytest.raises(RecordingError, match="needs: pip install"):
        record(bus, path, compress="zstd")
    assert not path.exists()


def test_nothing_is_written_to_a_closed_file(path: Path) -> None:
    write(path, MOTORS[:1])
    writer = RecordingWriter(path, append=True)
    writer.close()
    writer.close()
    with pytest.raises(RecordingError, match="is closed"):
        writer.write(MOTORS[1], 0)
    assert len(list(read_recording(path, [Motor]))) == 1


@pytest.mark.parametrize("content", [b"", b"hello", HEADER[:-1], b"PK\x03\x04" * 10])
def test_a_file_that_is_no_recording_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="not a recording"):
        read_recording(path)
    if content:
        with pytest.raises(RecordingError, match="not a recording"):
            RecordingWriter(path, append=True)
        assert path.read_bytes() == content


# -- flushing ----------------------------------------------------------------------------------------------------------


class Hand:
    """A ticker that ticks when it is told to."""

    def __call__(self, call: Callable[[], None], seconds: float) -> "Hand":
        self.tick, self.seconds, self.is_stopped = call, seconds, False
        return self

    def stop(self) -> None:
        self.is_stopped = True


@given(st.lists(st.sampled_from(["publish", "tick"]), max_size=40))
@examples(100)
def test_what_was_flushed_can_be_read_and_is_what_written_counts(steps: list[str]) -> None:
    """Whatever was published before the last tick is in the file, as after the process was killed."""
    hand, published, flushed = Hand(), 0, 0
    with TemporaryDirectory() as folder, open_bus() as bus:
        file = Path(folder) / "motors.genus"
        with record(bus, file, flush="150ms", ticker=hand) as recorder:
            assert hand.seconds == 0.15
            for step in steps:
                if step == "publish":
                    bus.publish(Motor(rpm=published))
                    published += 1
                else:
                    hand.tick()
                    flushed = published
                assert recorder.written == flushed
            assert [one.event.rpm for one in read_recording(file, [Motor])] == list(range(flushed))  # type: ignore[attr-defined]
        assert hand.is_stopped
        assert recorder.written == published == len(list(read_recording(file, [Motor])))


@pytest.mark.parametrize("flush", [0, -1, "soon", None])
def test_a_flush_time_that_is_none_is_refused(path: Path, flush: Any) -> None:
    with open_bus() as bus, pytest.raises(SpanError, match="flush is"):
        record(bus, path, flush=flush)
    assert not path.exists()


KILLED = """
import sys
from genus import Event, open_bus
from genus.bus import record

class Step(Event):
    number: int

with open_bus() as bus, record(bus, sys.argv[1]) as recorder:
    for number in range(40):
        bus.publish(Step(number=number))
    while recorder.written < 40:
        pass
    print("flushed", flush=True)
    sys.stdin.read()
"""


class Step(Event):
    number: int


def test_after_kill_9_all_events_older_than_the_flush_time_are_read(path: Path) -> None:
    """By a thread of the recorder: nothing is published after the events, and nothing flushes them otherwise."""
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        process.send_signal(signal.SIGKILL)
    recording = read_recording(path, [Step])
    assert [one.event.number for one in recording] == list(range(40))  # type: ignore[attr-defined]
    assert not recording.damage
    assert recording.index().events == 40


class SmallDisk:
    """A file on a disk that has room for so many bytes; it takes a part of what does not fit, as a disk does."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: Any) -> int:
        if self._room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken: int = self._file.write(data[: self._room])
        self._room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@given(room=st.integers(0, 1500), batches=st.lists(st.integers(1, 5), min_size=1, max_size=6))
@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_on_a_full_disk_written_is_what_can_be_read_and_the_rest_is_lost(
    room: int, batches: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised into publishers; closing the recorder says why. The file is whole up to what was written."""
    caplog.clear()
    hand, published = Hand(), 0
    with TemporaryDirectory() as folder, open_bus() as bus:
        file = Path(folder) / "motors.genus"
        recorder = record(bus, file, ticker=hand)
        recorder.writer._file = SmallDisk(recorder.writer._file, room)  # type: ignore[assignment]
        for batch in batches:
            for _ in range(batch):
                bus.publish(Motor(rpm=published))
                published += 1
            hand.tick()
        if recorder.problem is None:
            recorder.close()
        else:
            with pytest.raises(RecordingError, match="No space left"):
                recorder.close()
            assert [entry.getMessage() for entry in caplog.records] == [f"recording ended: {recorder.problem}"]
        recording = read_recording(file, [Motor])
        assert [one.event.rpm for one in recording] == list(range(recorder.written))  # type: ignore[attr-defined]
        assert not recording.damage
        assert recorder.written + recorder.lost == published


def test_a_missing_file_and_an_unwritable_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_recording(tmp_path / "nothing.genus")
    with pytest.raises(RecordingError, match="cannot write"):
        RecordingWriter(tmp_path / "no" / "folder.genus")


def test_a_recording_that_cannot_be_written_has_ended(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """This is told once; what comes later is lost, and only closing raises."""
    hand = Hand()
    with open_bus() as bus:
        recorder = record(bus, path, ticker=hand)
        recorder.writer._file = SmallDisk(recorder.writer._file, 0)  # type: ignore[assignment]
        bus.publish(Motor(rpm=1))
        assert (recorder.written, recorder.lost, recorder.problem) == (0, 0, None)
        hand.tick()
        problem = recorder.problem
        assert problem is not None
        for _ in range(2):
            bus.publish(Motor(rpm=2))
            hand.tick()
        assert (recorder.written, recorder.lost) == (0, 3)
        assert recorder.problem is problem
        for _ in range(2):
            with pytest.raises(RecordingError, match="No space left"):
                recorder.close()
    assert [entry.getMessage() for entry in caplog.records] == [f"recording ended: {problem}"]


def test_a_recording_whose_last_block_cannot_be_written_says_so_when_it_is_closed(path: Path) -> None:
    with open_bus() as bus:
        recorder = record(bus, path, ticker=Hand())
        recorder.writer._file = SmallDisk(recorder.writer._file, 0)  # type: ignore[assignment]
        bus.publish(Motor(rpm=1))
        with pytest.raises(RecordingError, match="No space left"):
            recorder.close()
        assert (recorder.written, recorder.lost, recorder.problem is None) == (0, 1, False)


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, MAX_TYPES, MAX_TYPES + 1])
def test_a_block_has_events_of_so_many_types(count: int) -> None:
    classes = [type(f"Of{number}", (), {}) for number in range(count)]
    events = [cls() for cls in classes for _ in range(2)] + [classes[0]()]
    grouped = group_by_class(events)
    if count > MAX_TYPES:
        assert grouped is None
        return
    assert grouped is not None
    assert [*grouped.kinds] == [number for number in range(count) for _ in range(2)] + [0]
    assert list(grouped.groups) == classes
    assert [event for cls in classes for event in grouped.groups[cls]] == [
        events[0],
        events[1],
        events[-1],
        *events[2:-1],
    ]


def test_events_of_more_types_than_a_block_can_have_are_written_to_several(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_recording_writer, "MAX_TYPES", 12)
    made: Any = [declare(f"recording.Of{number}", Event, {"number": int}) for number in range(15)]
    with RecordingWriter(path) as writer:
        writer._limit = 10_000
        for number, cls in enumerate(made):
            writer.write(cls(number=number), number)
        assert writer.waiting == len(made)
        writer.flush()
        assert (writer.waiting, writer.written) == (0, len(made))
    recording = read_recording(path, made)
    assert [one.event.number for one in recording] == [*range(len(made))]  # type: ignore[attr-defined]
    assert [type(one.event) for one in recording] == made
    assert recording.index().events == len(made)


def test_blocks_that_would_be_too_long_are_split(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recording_writer, "MAX_SIZE", 700)
    write(path, MOTORS)
    recording = read_recording(path, [Motor])
    assert [one.event for one in recording] == MOTORS
    blocks = [each for each in blocks_in(path.read_bytes()) if isinstance(each, Block) and each.head.events]
    assert len(blocks) > 1
    assert sum(block.head.events for block in blocks) == len(MOTORS)
    assert all(block.end - block.start <= 700 or block.head.events == 1 for block in blocks)


def test_an_event_that_takes_more_than_a_block_can_is_lost_and_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_recording_writer, "MAX_PAYLOAD", 3000)
    monkeypatch.setattr(_recording_writer, "MAX_SIZE", 3000)
    with RecordingWriter(path) as writer:
        for direction in ("left", "x" * 3000, "right"):
            writer.write(Motor(rpm=1, direction=direction), 0)
        writer.flush()
        assert (writer.written, writer.lost) == (2, 1)
    assert [one.event.direction for one in read_recording(path, [Motor])] == ["left", "right"]  # type: ignore[attr-defined]
    (entry,) = caplog.records
    assert re.search(r"motors\.genus: an event of 3,\d+ bytes is too long and was not written", entry.getMessage())


def test_types_that_the_program_does_not_have_are_read_by_what_the_recording_states(path: Path) -> None:
    """Below its own classes; if types were asked for, only those that are below one of them."""
    text = state_type(declare("recording.Fan", Motor, {"speed": float | None}))
    assert text is not None
    raw = [msgspec.Raw(msgspec.msgpack.encode({"rpm": 3, "speed": 2.0}))]
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, raw)
    groups = [EventGroup("recording.Vent", {}, 1, ends, bundles, text.replace(b"recording.Fan", b"recording.Vent"))]
    path.write_bytes(HEADER + pack_events([5], b"", groups))
    for types in (None, [Motor], [Step, Motor]):
        recording = read_recording(path, types)
        ((at_us, event),) = ((one.at_us, one.event) for one in recording)
        assert (at_us, type(event).__name__, isinstance(event, Motor)) == (5, "Vent", True)
        assert (event.rpm, event.speed) == (3, 2.0)  # type: ignore[attr-defined]
    recording = read_recording(path, Step)
    assert list(recording) == []
    assert recording.problems == {"unknown type recording.Vent": 1}


def test_a_type_is_stated_in_the_first_block_that_has_events_of_it(path: Path) -> None:
    with RecordingWriter(path) as writer:
        for event in (Motor(rpm=1), Motor(rpm=2), Step(number=1), Motor(rpm=3)):
            writer.write(event, 0)
            writer.flush()
    blocks = [each for each in blocks_in(path.read_bytes()) if isinstance(each, Block) and each.head.events]
    stated = [(group.name, bool(group.statement)) for block in blocks for group in block.groups]
    assert stated == [("Motor", True), ("Motor", False), ("Step", True), ("Motor", False)]
