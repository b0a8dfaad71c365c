"""Recording what passes and replaying it, whole or damaged."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genus import Event, Float32, Maybe, Subscription, open_bus, this
from genus.bus._codec import encode_event
from genus.bus._recording import HEADER, RecordingWriter, read_recording, record, replay
from genus.errors import RecordingError
from genus.testing import Generator, Sampler


class Mode(Enum):
    OFF = 0
    ON = 1


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
    assert [one.event.rpm for one in read_recording(path, [Motor])] == [2, 3]  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_cut_short_it_replays_up_to_the_cut_and_says_so(path: Path, cut: int) -> None:
    write(path, MOTORS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    recording = read_recording(path, [Motor])
    found = [one.event for one in recording]
    assert found == MOTORS[: len(found)]
    assert 17 <= len(found) < 20
    (said,) = recording.damage
    assert "truncated at byte" in said


def test_damage_in_the_middle_costs_only_what_it_hits(path: Path) -> None:
    write(path, MOTORS)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    data[len(data) // 2 + 1] ^= 0xFF
    path.write_bytes(data)
    recording = read_recording(path, [Motor])
    found = [one.event for one in recording]
    assert len(found) in (18, 19)
    assert all(event in MOTORS for event in found)
    assert "damaged at byte" in recording.damage[0]


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_never_raises_and_never_invents_events(path: Path, seed: int) -> None:
    write(path, MOTORS)
    random = Generator(seed).random
    data = bytearray(path.read_bytes())
    for _ in range(random.randint(1, 10)):
        data[random.randrange(len(HEADER), len(data))] = random.randrange(256)
    path.write_bytes(data)
    assert all(one.event in MOTORS for one in read_recording(path, [Motor]))


def test_types_unknown_to_the_reader_are_counted_by_name(path: Path) -> None:
    write(path, [*MOTORS[:2], Sampler(number=1)])
    recording = read_recording(path, [Motor])
    assert len(list(recording)) == 2
    assert recording.problems == {"unknown type Sampler": 1}


def test_values_the_type_does_not_allow_are_counted_with_the_place(path: Path) -> None:
    with RecordingWriter(path) as writer:
        writer.append(msgspec.msgpack.encode(["Motor", 0, {"rpm": "fast"}]))
        writer.write(MOTORS[1], 0)
    recording = read_recording(path, [Motor])
    assert [one.event for one in recording] == [MOTORS[1]]
    ((reason, count),) = recording.problems.items()
    assert "rpm" in reason
    assert count == 1


@pytest.mark.parametrize("content", [b"", b"hello", HEADER[:-1], b"PK\x03\x04" * 10])
def test_a_file_that_is_no_recording_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="not a recording"):
        read_recording(path)
    if content:
        with pytest.raises(RecordingError, match="not a recording"):
            RecordingWriter(path, append=True)
        assert path.read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_ends_the_recording_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Further events are counted, nothing is raised into publishers, and closing the recorder says why."""
    with open_bus() as bus:
        recorder = record(bus, path)
        recorder.writer._file.close()
        recorder.writer._file = open("/dev/full", "wb", buffering=0)  # type: ignore[assignment]  # noqa: SIM115
        for motor in MOTORS:
            bus.publish(motor)
        with pytest.raises(RecordingError, match="No space left"):
            recorder.close()
    assert recorder.lost == len(MOTORS)
    assert [entry.getMessage() for entry in caplog.records] == [f"recording ended: {recorder.problem}"]


def test_a_missing_file_and_an_unwritable_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_recording(tmp_path / "nothing.genus")
    with pytest.raises(RecordingError, match="cannot write"):
        RecordingWriter(tmp_path / "no" / "folder.genus")
