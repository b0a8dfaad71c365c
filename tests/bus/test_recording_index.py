"""The index of a recording: reading from a time on gives what reading all of it gives from there."""

import os
import random
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.bus import RecordingWriter, _recording_index, read_recording
from genus.bus._blocks import Block, blocks_in
from genus.bus._codec import encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, FileBytes, FrameFormat
from genus.bus._recording_index import FRAMES_PER_PLACE
from genus.bus.types import Recorded
from genus.errors import RecordingError
from genus.model import Unit
from tests.examples import some_of


class Step(Event):
    number: int
    load: Maybe[bytes] = None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "steps.genus"


def write(path: Path, times: list[int], form: FrameFormat | None = None) -> None:
    """In blocks, or in the frames of an older format."""
    rest = random.Random(len(times))
    events = [Step(number=number, load=rest.randbytes(rest.randrange(40))) for number in range(len(times))]
    if form is not None:
        packets = [encode_event(event, at_us) for event, at_us in zip(events, times, strict=True)]
        path.write_bytes(form.header + b"".join(map(form.frame, packets)))
        return
    path.unlink(missing_ok=True)
    with RecordingWriter(path) as writer:
        for event, at_us in zip(events, times, strict=True):
            writer.write(event, at_us)
            if rest.random() < 0.01:
                writer.flush()


def later(found: list[Recorded], time_us: int) -> list[Recorded]:
    """The law: the events from the first on that is of the time or later."""
    latest = list(accumulate((each.at_us for each in found), max))
    return [each for each, at_us in zip(found, latest, strict=True) if at_us >= time_us]


@pytest.mark.parametrize("form", [None, FORMAT, FIRST_FORMAT], ids=["blocks", "second", "first"])
@pytest.mark.parametrize("seed", some_of(range(6), 5))
def test_reading_from_a_time_gives_what_is_there_from_it_on(path: Path, form: FrameFormat | None, seed: int) -> None:
    """Also where times go back, and after damage anywhere."""
    rest = random.Random(seed)
    times = [number * 1000 + rest.choice([0, 0, 0, -50_000, 7_000]) for number in range(5 * FRAMES_PER_PLACE)]
    write(path, times, form)
    if seed % 2:
        content = bytearray(path.read_bytes())
        for _ in range(20):
            at = rest.randrange(len(content))
            content[at : at + rest.randrange(1, 400)] = rest.randbytes(rest.randrange(400))
        path.write_bytes(content)
    if seed % 3 == 2:  # it was killed: there is no index
        path.write_bytes(path.read_bytes()[:-100])
    recording = read_recording(path, [Step])
    found = list(recording)
    for time_us in [-(10**9), 0, *rest.sample(range(max(times)), 8), max(times), max(times) + 1]:
        assert list(recording.read_from(time_us)) == later(found, time_us)


@pytest.mark.parametrize("what", ["index", "all", "from"])
@pytest.mark.parametrize("form", [None, FORMAT], ids=["blocks", "frames"])
@given(st.integers(0, 12), st.floats(0, 1), st.booleans())
def test_a_file_that_is_cut_while_it_is_read_is_an_error(
    form: FrameFormat | None, what: str, reads: int, share: float, is_open: bool
) -> None:
    """Whenever it is cut, and wherever: mapped to memory it would end the process."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path, left = Path(folder) / "steps.genus", [reads]
        patch.setattr("genus.bus._frames.READ_AHEAD", 2000)
        write(path, [number * 1000 for number in range(400)], form)
        if is_open:  # it was not closed, so that there is no index in it
            os.truncate(path, path.stat().st_size - 50)
        recording = read_recording(path, [Step])
        size, read = path.stat().st_size, FileBytes._read

        def read_and_cut(data: FileBytes, start: int, length: int) -> bytes:
            left[0] -= 1
            if left[0] == 0:
                os.truncate(path, int(size * share))
            return read(data, start, length)

        patch.setattr(FileBytes, "_read", read_and_cut)
        is_cut = False
        try:
            if what == "index":
                recording.index()
            else:
                list(recording if what == "all" else recording.read_from(200_000))
        except RecordingError as problem:
            is_cut = "was cut to" in str(problem)
        assert left[0] < reads or not reads, "the bytes are those of this reader"
        assert not is_cut or left[0] <= 0


CUT = """
import sys
from genus import Event, Maybe
from genus.bus import read_recording
from genus.errors import RecordingError
class Step(Event):
    number: int
    load: Maybe[bytes] = None
while True:
    try:
        recording = read_recording(sys.argv[1], [Step])
        recording.index()
        print(sum(1 for _ in recording), flush=True)
    except RecordingError:
        print("error", flush=True)
"""


@pytest.mark.slow
def test_a_process_that_reads_survives_whatever_is_cut(path: Path) -> None:
    """Another process reads all the time while the file is cut and written again, 300 times."""
    write(path, [number * 1000 for number in range(20_000)])
    content, rest = path.read_bytes(), random.Random(7)
    with subprocess.Popen([sys.executable, "-c", CUT, str(path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            for _ in range(300):
                os.truncate(path, rest.randrange(len(content)))
                path.write_bytes(content)
                if rest.random() < 0.2:
                    assert reader.stdout.readline().strip()
            assert reader.poll() is None
        finally:
            reader.kill()


def test_the_index_says_what_a_recording_has(path: Path) -> None:
    write(path, [5_000, 1_000, 9_000, 3_000])
    index = read_recording(path, [Step]).index()
    assert (index.start_us, index.end_us, index.events, index.types) == (5_000, 9_000, 4, {"Step": 4})
    assert (index.damaged, index.size) == (0, path.stat().st_size)


def test_types_that_are_not_known_are_counted_too(path: Path) -> None:
    write(path, [1, 2])
    recording = read_recording(path, [])
    assert recording.index().types == {"Step": 2}
    assert list(recording.read_from(0)) == []
    assert recording.problems == {"unknown type Step": 2}


def test_a_recording_without_events_has_no_times(path: Path) -> None:
    RecordingWriter(path).close()
    recording = read_recording(path, [Step])
    index = recording.index()
    assert (index.start_us, index.end_us, index.events) == (None, None, 0)
    assert list(recording.read_from(0)) == []


def test_damage_and_problems_are_those_of_what_was_read(path: Path) -> None:
    write(path, [number * 1000 for number in range(3 * FRAMES_PER_PLACE)])
    content = bytearray(path.read_bytes())
    for at in (len(content) // 10, len(content) * 9 // 10):
        content[at : at + 40] = bytes(40)
    path.write_bytes(content)
    recording = read_recording(path, [Step])
    assert recording.index().events == 3 * FRAMES_PER_PLACE
    list(recording)
    assert len(recording.damage) == 2
    list(recording.read_from(2 * FRAMES_PER_PLACE * 1000))
    assert len(recording.damage) == 1


def test_a_time_is_found_without_a_pass_over_the_file(path: Path) -> None:
    """Whether it was closed or killed: of the blocks before, at most their heads are read."""
    write(path, list(range(6000)))
    whole = path.read_bytes()
    heads = [each for each in blocks_in(whole) if isinstance(each, Block)]
    for size in (heads[-1].end, heads[-1].start):
        content = bytearray(whole[:size])
        for block in heads[: len(heads) // 2]:
            content[block.payload_start : block.end] = bytes(block.end - block.payload_start)
        path.write_bytes(content)
        recording = read_recording(path, [Step])
        start = heads[len(heads) // 2].head.first_us
        assert [each.at_us for each in recording.read_from(start + 3)] == list(range(start + 3, 6000))
        assert not recording.damage


def test_units_that_were_stated_before_hold(path: Path) -> None:
    """The units of a class are stated before its first event alone, and again where another class continues."""

    def old() -> type[Event]:
        class Gauge(Event):
            level: Annotated[float, Unit("m")]

        return Gauge

    def new() -> type[Event]:
        class Gauge(Event):
            level: Annotated[float, Unit("cm")]

        return Gauge

    older, newer = old(), new()
    with RecordingWriter(path) as writer:
        for second in range(2 * FRAMES_PER_PLACE):
            writer.write(older(level=2.0), second)  # type: ignore[call-arg]
        for second in range(2 * FRAMES_PER_PLACE, 4 * FRAMES_PER_PLACE):
            writer.write(newer(level=3.0), second)  # type: ignore[call-arg]
    recording = read_recording(path, [newer])
    first = 2 * FRAMES_PER_PLACE
    for start in (0, first - 1, first, first + 1, 3 * FRAMES_PER_PLACE + 7):
        levels = [each.event.level for each in recording.read_from(start)]  # type: ignore[attr-defined]
        assert levels == [200.0 if second < first else 3.0 for second in range(start, 4 * FRAMES_PER_PLACE)]


def test_progress_is_told_and_can_end_the_pass(path: Path) -> None:
    write(path, list(range(100)))
    told: list[tuple[int, int]] = []
    size = path.stat().st_size
    read_recording(path, [Step]).index(lambda done, total: told.append((done, total)))
    assert told[-1] == (size, size)

    def stop(done: int, total: int) -> None:
        raise InterruptedError

    recording = read_recording(path, [Step])
    with pytest.raises(InterruptedError):
        recording.index(stop)
    assert recording.index().events == 100


@pytest.mark.parametrize("form", [FORMAT, FIRST_FORMAT], ids=["second", "first"])
def test_the_index_of_an_older_file_says_what_it_has(
    path: Path, form: FrameFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that go back and what is no event do not count; units that were stated hold from a time on too."""
    monkeypatch.setattr(_recording_index, "REPORT_BYTES", 3000)
    monkeypatch.setattr(_recording_index, "FRAMES_PER_PLACE", 10)

    class Pipe(Event, name="index.Pipe"):
        flow: Annotated[float, Unit("m/s")]

    pack = msgspec.msgpack.encode
    packets = [pack(("units of index.Pipe", 0, {"flow": "km/h"}))]
    packets += [encode_event(Pipe(flow=36.0), 1000 * number) for number in range(100)]
    packets += [encode_event(Step(number=1), 500), pack(("Step", 1 << 62, {"number": 1}))]
    frames = [*map(form.frame, packets)]
    frames[7] = bytes(len(frames[7]))
    path.write_bytes(form.header + b"".join(frames))
    recording, told = read_recording(path, [Pipe, Step]), list[tuple[int, int]]()
    index = recording.index(lambda done, total: told.append((done, total)))
    assert recording.index() is index
    assert (index.start_us, index.end_us, index.events) == (0, 99_000, 100)
    assert index.types == {"index.Pipe": 99, "Step": 1}
    assert (index.damaged, index.size) == (1, path.stat().st_size)
    assert told[-1] == (index.size, index.size)
    assert told[:-1] == sorted(set(told[:-1]))
    assert len(told) >= index.size // 4000
    assert [(each.at_us, each.event.flow) for each in recording.read_from(98_000) if isinstance(each.event, Pipe)] == [
        (98_000, 10.0), (99_000, 10.0),
    ]  # fmt: skip
    assert [each.type for each in index.units] == ["index.Pipe"]
    assert len(index.places) == -(-len(frames) // 10)
    monkeypatch.setattr(_recording_index, "BYTES_PER_PLACE", 1)
    assert len(read_recording(path).index().places) == len(frames)


@pytest.mark.parametrize("form", [None, FORMAT, FIRST_FORMAT], ids=["blocks", "second", "first"])
def test_a_file_without_events_has_an_index_without_times(path: Path, form: FrameFormat | None) -> None:
    write(path, [], form)
    index = read_recording(path).index()
    assert (index.start_us, index.end_us, index.events, index.types, index.damaged) == (None, None, 0, {}, 0)
    assert list(read_recording(path).read_from(0)) == []


def test_an_index_that_is_not_where_it_says_is_not_used(path: Path) -> None:
    """Bytes before it are missing: the heads of the blocks that are there say what the file has."""
    write(path, list(range(2000)))
    data = path.read_bytes()
    blocks = [each for each in blocks_in(data) if isinstance(each, Block) and each.head.events]
    assert len(blocks) > 2
    path.write_bytes(data[: blocks[1].start] + data[blocks[1].end :])
    index = read_recording(path).index()
    assert index.events == 2000 - blocks[1].head.events
    assert [place.offset for place in index.places][:2] == [blocks[0].start, blocks[1].start]
