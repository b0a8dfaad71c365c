"""Excerpts: some attributes of the events of a recording, the same as the events have them, without the others."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from genus import Event, Maybe, Renamed, Unit
from genus.bus import RecordingWriter, read_recording
from genus.bus._blocks import BUNDLE, HEADER, Block, EventGroup, blocks_in, bundle, pack_events
from genus.bus._codec import FIRST_US, LAST_US, encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, FrameFormat
from genus.bus._recording import RUN, Excerpt, Recording

COUNT = 3 * BUNDLE + 1


class Pond(Event):
    number: int
    level: Maybe[float] = None
    note: str = ""


class Lake(Pond):
    depth: Maybe[float] = None


class Rain(Event):
    number: int
    amount: float = 0.0


def some_events() -> list[Any]:
    """Of three types in turn, one of which is below another."""
    kinds: list[Any] = [Pond, Lake, Rain]
    made = [kinds[number % 3](number=number) for number in range(COUNT)]
    return [msgspec.structs.replace(each, level=each.number / 2) if each.number % 2 and type(each) is not Rain else each
            for each in made]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "water.genus"


def write(path: Path, events: Iterable[Event], **options: Any) -> None:
    with RecordingWriter(path, **options) as writer:
        for at, event in enumerate(events):
            writer.write(event, 10 * at)


def levels(found: Iterable[Excerpt]) -> dict[type, list[tuple[int, int, float | None]]]:
    """By class: time, number and level of each event."""
    by_class: dict[type, list[tuple[int, int, float | None]]] = {}
    for each in found:
        assert len(each.times) == len(each.events)
        own = by_class.setdefault(each.type, [])
        own += [(at, one.number, one.level) for at, one in zip(each.times, each.events, strict=True)]
    return by_class


def expected(recording: Recording) -> dict[type, list[tuple[int, int, float | None]]]:
    by_class: dict[type, list[tuple[int, int, float | None]]] = {}
    for each in recording:
        if isinstance(event := each.event, Pond):
            by_class.setdefault(type(event), []).append((each.at_us, event.number, event.level))
    return by_class


WANTED: dict[type[Event], list[str]] = {Pond: ["number", "level"]}


@pytest.mark.parametrize("compress", [None, "zstd"])
@pytest.mark.parametrize("types", [{Pond}, {Pond, Rain}, {Pond, Lake, Rain}], ids=len)
def test_they_have_what_events_have_of_a_type_and_of_those_below_it(
    path: Path, types: set[type], compress: Any
) -> None:
    events = [each for each in some_events() if type(each) in types]
    write(path, events, compress=compress)
    recording = read_recording(path, [Pond, Rain])
    found = list(recording.excerpts(WANTED))
    assert not any(each.has_gap for each in found)
    assert (recording.events, recording.lost, recording.damage) == (len(events), 0, [])
    assert levels(found) == expected(recording)
    assert {each.type for each in found} == types - {Rain}
    assert not hasattr(found[0].events[0], "note")


def test_a_type_has_the_attributes_that_were_asked_for_of_all_types_above_it(path: Path) -> None:
    write(path, [Pond(number=1), Lake(number=2, depth=3.0), Rain(number=4)])
    recording = read_recording(path, [Pond, Rain])
    found = {each.type: each.events for each in recording.excerpts({Pond: ["number"], Lake: ["depth"]})}
    assert found.keys() == {Pond, Lake}
    ((pond,), (lake,)) = found[Pond], found[Lake]
    assert (pond.number, lake.number, lake.depth) == (1, 2, 3.0)
    assert not hasattr(pond, "depth")


@pytest.mark.parametrize("form", [FIRST_FORMAT, FORMAT])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_those_of_older_files_are_the_same(path: Path, form: FrameFormat, is_damaged: bool) -> None:
    """Some thousand events at a time; after damage, there is a gap before those of the same and the next run."""
    events = [*some_events(), *(Pond(number=number) for number in range(RUN))]
    frames = [form.frame(encode_event(event, 10 * at)) for at, event in enumerate(events)]
    if is_damaged:
        frames[1] = bytes(len(frames[1]))
    path.write_bytes(form.header + b"".join(frames))
    recording = read_recording(path, [Pond, Rain])
    found = list(recording.excerpts(WANTED))
    assert [each.has_gap for each in found] == [is_damaged, is_damaged, False]
    assert [each.type for each in found] == [Pond, Lake, Pond]
    assert (recording.events, recording.lost) == (len(events) - is_damaged, int(is_damaged))
    assert levels(found) == expected(recording)


def test_after_damage_there_is_a_gap_and_the_others_have_their_times(path: Path) -> None:
    """In the block that is damaged and in that after one that is lost, not in the next ones."""
    with RecordingWriter(path) as writer:
        for at, event in enumerate(some_events() * 5):
            writer.write(event, 10 * at)
            if at % COUNT == COUNT - 1:
                writer.flush()
    data = bytearray(path.read_bytes())
    blocks = [each for each in blocks_in(bytes(data)) if isinstance(each, Block) and each.head.events]
    assert len(blocks) == 5
    for at in (blocks[1].start, blocks[3].end - 900):
        data[at : at + 40] = bytes(40)
    path.write_bytes(data)
    recording = read_recording(path, [Pond, Rain])
    found = list(recording.excerpts(WANTED))
    lost, damage = recording.lost, list(recording.damage)
    gaps = [{each.has_gap for each in found if [at // 10 // COUNT for at in each.times[:1]] == [block]}
            for block in (0, 2, 3, 4)]  # fmt: skip
    assert gaps == [{False}, {True}, {True}, {False}]
    assert len(damage) == 2
    assert levels(found) == expected(recording)
    assert (lost, damage) == (recording.lost, recording.damage)
    assert lost == 5 * COUNT - recording.events > COUNT


def block_of(maps: list[Any], times: list[int], units: dict[str, str] | None = None) -> bytes:
    """A file with one block of events of `Pond` with these attributes."""
    raw = [msgspec.Raw(msgspec.msgpack.encode(each)) for each in maps]
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, raw)
    return HEADER + pack_events(times, b"", [EventGroup("Pond", units or {}, len(maps), ends, bundles)])


def test_values_that_do_not_fit_are_left_out_and_make_a_gap(path: Path) -> None:
    path.write_bytes(block_of([{"number": 1}, {"number": "two"}, {"number": 3}], [10, 20, 30]))
    (found,) = read_recording(path, [Pond, Rain]).excerpts(WANTED)
    assert [(at, one.number) for at, one in zip(found.times, found.events, strict=True)] == [(10, 1), (30, 3)]
    assert found.has_gap


@pytest.mark.parametrize(
    ("at", "is_time"), [(FIRST_US - 1, False), (FIRST_US, True), (LAST_US, True), (LAST_US + 1, False)]
)
def test_what_is_no_time_of_recording_is_left_out_and_makes_a_gap(path: Path, at: int, is_time: bool) -> None:
    path.write_bytes(block_of([{"number": 1}, {"number": 2}], [10, at]))
    recording = read_recording(path, [Pond, Rain])
    (found,) = recording.excerpts(WANTED)
    assert [one.number for one in found.events] == [1, 2][: 1 + is_time]
    assert found.times == [10, at][: 1 + is_time] or tuple(found.times) == (10, at)
    assert found.has_gap is not is_time
    assert [each.at_us for each in recording] == [10, at][: 1 + is_time]
    assert recording.problems == ({} if is_time else {"not a time of recording": 1})


def test_values_are_converted_to_the_units_and_names_of_the_class(path: Path) -> None:
    class Tank(Event, name="excerpts.Tank"):
        height: Annotated[float, Unit("m")]

    write(path, [Tank(height=2.0), Tank(height=3.0)])

    class Newer(Event, name="excerpts.Tank"):
        level: Annotated[float, Unit("cm"), Renamed("height")]

    (found,) = read_recording(path, [Newer]).excerpts({Newer: ["level"]})
    assert [one.level for one in found.events] == [200.0, 300.0]
    (found,) = read_recording(path, [Tank]).excerpts({Tank: ["height"]})
    assert [one.height for one in found.events] == [2.0, 3.0]


def test_the_size_of_a_recording_is_that_of_its_file(path: Path) -> None:
    write(path, some_events())
    assert read_recording(path, [Pond, Rain]).size == path.stat().st_size


def test_one_event_that_is_missing_before_the_first_is_a_gap(path: Path) -> None:
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, [{"number": 1}])
    path.write_bytes(HEADER + pack_events([10], b"", [EventGroup("Pond", {}, 1, ends, bundles)], before=1))
    recording = read_recording(path, [Pond, Rain])
    (found,) = recording.excerpts(WANTED)
    assert (found.has_gap, recording.lost, len(found.events)) == (True, 1, 1)


def test_values_of_another_unit_alone_are_converted_too(path: Path) -> None:
    class Tower(Event, name="excerpts.Tower"):
        height: Annotated[float, Unit("m")]

    write(path, [Tower(height=2.0)])

    class Newer(Event, name="excerpts.Tower"):
        height: Annotated[float, Unit("cm")]

    (found,) = read_recording(path, [Newer]).excerpts({Newer: ["height"]})
    assert [one.height for one in found.events] == [200.0]
