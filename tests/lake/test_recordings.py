"""Recordings as a source: the same events as in a replay, however the file is cut, and dead letters for the rest."""

import random
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from genus import Event, Float32, Maybe, UInt8
from genus.bus import RecordingWriter, _frames, read_recording
from genus.bus._blocks import HEADER
from genus.bus._codec import EventDecoder, Recorded, encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, FrameFormat
from genus.catalog import Catalog
from genus.errors import RecordingError
from genus.lake._ingest.format import Columns, DeadLetter, Split, Types, types_of
from genus.lake._ingest.recordings import Recordings
from genus.model import attributes, check, name_of
from genus.model._values import unread_values
from genus.model.types import Attribute, OpaqueType
from genus.targets.arrow import to_batch
from tests.evolutions import Evolution
from tests.generators import Generator, Sampler
from tests.lake.stored import ingest_draft

PACK = msgspec.msgpack.encode
FORMATS = [FIRST_FORMAT, FORMAT]


class Fuel(Enum):
    DIESEL = "diesel"
    NONE = "none"


class Gear(Enum):
    FIRST = 1
    SECOND = 2


class Truck(Event):
    axles: UInt8
    weight: Maybe[float] = None
    share: Maybe[Float32] = None
    fuel: Maybe[Fuel] = None
    gear: Maybe[Gear] = None
    pause: Maybe[timedelta] = None
    load: Maybe[bytes] = None
    stops: Maybe[list[int]] = None
    open: Maybe[bool] = None


class Trailer(Truck):
    time: datetime
    stops: list[int]


class Unregistered(Event):
    number: int


TRUCKS = [Truck, Trailer]
EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def types() -> Types:
    catalog = Catalog()
    catalog.register(*TRUCKS, Sampler)
    return types_of(catalog.text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trucks.genus"


class Found(msgspec.Struct):
    """The events and dead letters of some splits, in order of position."""

    events: list[tuple[int, str, dict[str, Any]]]
    letters: list[DeadLetter]

    @property
    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.letters]


def read(path: Path, types: Types, target: int = 1 << 40) -> Found:
    """Read a file in splits of some size."""
    splits = Recordings().splits(str(path), path.stat().st_size, target)
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    assert (splits[0].start, splits[-1].end) == (0, path.stat().st_size)
    found = Found([], [])
    for split in splits:
        for chunk in Recordings().read(split, types):
            if isinstance(chunk, Columns):
                check_schema(chunk, types)
                found.events += rows_of(chunk)
            else:
                found.letters += chunk
    found.events.sort(key=lambda event: event[0])
    found.letters.sort(key=lambda letter: letter.position)
    return found


def check_schema(chunk: Columns, types: Types) -> None:
    plan = types.plan(chunk.type)
    assert plan is not None
    for field in chunk.batch.schema:
        if not field.name.startswith("_"):
            assert field.type == plan.schema.field(field.name).type


def rows_of(chunk: Columns) -> Iterable[tuple[int, str, dict[str, Any]]]:
    for row in chunk.batch.to_pylist():
        position = row.pop("_position")
        said = {name: value for name, value in row.items() if value is not None}
        yield position, chunk.type, said


def expected(recorded: Recorded) -> tuple[str, dict[str, Any]]:
    """An event of the bus as a lake stores it."""
    event = recorded.event
    row = to_batch([event]).to_pylist()[0]
    said = {name: value for name, value in row.items() if value is not None and name != "_type"}
    return name_of(type(event)), said | {"_recorded": EPOCH + timedelta(microseconds=recorded.at_us)}


def write(path: Path, events: Iterable[Event]) -> None:
    with RecordingWriter(path) as writer:
        for number, event in enumerate(events):
            writer.write(event, number * 1_000_000)


def write_packets(path: Path, *packets: Any) -> None:
    """Write a file of the second format, which may hold any packets."""
    encoded = [packet if isinstance(packet, bytes) else PACK(packet) for packet in packets]
    path.write_bytes(FORMAT.header + b"".join(map(FORMAT.frame, encoded)))


def rewrite(path: Path, form: FrameFormat) -> None:
    """Write a recording again in a format."""
    packets = [encode_event(one.event, one.at_us) for one in read_recording(path, TRUCKS)]
    path.write_bytes(form.header + b"".join(map(form.frame, packets)))


def test_types_may_have_names_in_any_letters(path: Path) -> None:
    """In a process that has not encoded the name before."""

    class Gewächshaus(Event):
        wärme: float

    catalog = Catalog()
    catalog.register(Gewächshaus)
    write(path, [Gewächshaus(wärme=21.5)])
    found = read(path, Types(Catalog.parse(catalog.text())))
    assert ([kind for _, kind, _ in found.events], found.letters) == (["Gewächshaus"], [])


# -- splits and damage -------------------------------------------------------------------------------------------------


def some_truck(chance: random.Random) -> Event:
    """A truck whose load may contain other frames or parts of them."""
    frame = chance.choice(FORMATS).frame
    inner = b"".join(frame(encode_event(Truck(axles=number), 7)) for number in range(chance.randrange(4)))
    cut = inner[chance.randrange(8) :] if chance.random() < 0.3 else inner
    return Truck(axles=chance.randrange(9), load=cut or None, place="x" * chance.randrange(40))


def damage(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(1, 30)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 30))
            case 3:
                data[at:at] = chance.choice(FORMATS).frame(encode_event(Truck(axles=99), 9))[: chance.randrange(1, 40)]
            case 4:
                data[at:] = data[at : at + chance.randrange(60)]
        if not data:
            data += HEADER


@pytest.mark.parametrize("block", [*range(3), *(pytest.param(block, marks=pytest.mark.slow) for block in range(3, 30))])
def test_an_older_recording_is_read_as_replay_reads_it(path: Path, types: Types, block: int) -> None:
    """Good frames are read once and damage is reported once, whatever size of splits is asked for."""
    for seed in range(block * 8, block * 8 + 8):
        chance = random.Random(f"frames/{seed}")
        path.unlink(missing_ok=True)
        write(path, [some_truck(chance) for _ in range(chance.randrange(1, 25))])
        rewrite(path, chance.choice(FORMATS))
        data = bytearray(path.read_bytes())
        damage(data, chance)
        path.write_bytes(data)
        whole = read(path, types)
        agree_with_replay(path, whole)
        assert read(path, types, 13) == whole, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("block", [*range(3), *(pytest.param(block, marks=pytest.mark.slow) for block in range(3, 30))])
def test_every_split_size_gives_the_same_blocks(
    path: Path, types: Types, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """The events that replay gives, each at its own position, and what was lost once, for any cuts; also if compressed,
    and if a file is read in small pieces."""
    for seed in range(block * 8, block * 8 + 8):
        chance = random.Random(f"blocks/{seed}")
        path.unlink(missing_ok=True)
        with RecordingWriter(path, compress=chance.choice([None, "zstd"])) as writer:
            for number in range(chance.randrange(1, 60)):
                writer.write(some_truck(chance) if number % 3 else Trailer(axles=1, stops=[number], time=NOON), number)
                if chance.random() < 0.1:
                    writer.flush()
        data = bytearray(path.read_bytes())
        damage(data, chance)
        path.write_bytes(data)
        whole = read(path, types)
        try:
            replayed = [expected(one) for one in read_recording(path, TRUCKS)]
        except RecordingError:
            replayed = []
        assert [event[1:] for event in whole.events] == replayed
        assert len({event[0] for event in whole.events}) == len(whole.events)
        for target in (1, 13, 100, chance.randrange(1, len(data) + 1)):
            assert read(path, types, target) == whole, f"seed {seed}, target {target}"
        with monkeypatch.context() as patch:
            patch.setattr(_frames, "READ_AHEAD", 50)
            assert read(path, types, 100) == whole


def agree_with_replay(path: Path, found: Found) -> None:
    try:
        recording = read_recording(path, TRUCKS)
    except RecordingError:
        assert not found.events
        assert [letter.position for letter in found.letters] == [0]
        return
    assert [event[1:] for event in found.events] == [expected(one) for one in recording]
    passed = [letter for letter in found.letters if "bytes skipped" in letter.reason]
    said = [line.rpartition(": ") for line in recording.damage if ": 0 bytes" not in line]
    assert [f"{letter.position}: {letter.reason.partition(': ')[2]}" for letter in passed] == [
        f"{before.rpartition(' ')[2]}: {many}" for before, _, many in said
    ]
    assert len(found.letters) - len(passed) == recording.problems.total()


def test_splits_are_about_as_large_as_asked(path: Path) -> None:
    with RecordingWriter(path) as writer:
        for number in range(100):
            for _ in range(10):
                writer.write(Truck(axles=2, place="A8"), number)
            writer.flush()
    size = path.stat().st_size
    splits = Recordings().splits(str(path), size, size // 4)
    assert len(splits) == 4
    assert max(split.end - split.start for split in splits) < size // 4 + 1000
    assert Recordings().splits(str(path), size, size) == [Split(str(path), 0, size)]


@pytest.mark.parametrize("content", [b"", b"hello", HEADER[:-1], b"PK\x03\x04" * 1000, FORMAT.marker * 40])
@pytest.mark.parametrize("target", [3, 1 << 30])
def test_a_file_that_is_no_recording_is_one_dead_letter(path: Path, types: Types, content: bytes, target: int) -> None:
    path.write_bytes(content)
    (letter,) = read(path, types, target).letters
    assert letter.position == 0
    assert letter.reason.startswith("not a recording")
    assert letter.raw.startswith(content[:5].decode("utf-8", "backslashreplace"))


def test_a_recording_without_events_is_good(path: Path, types: Types) -> None:
    path.write_bytes(HEADER)
    assert read(path, types) == Found([], [])


def test_a_file_that_is_cut_while_it_is_read_ends_early(path: Path, types: Types) -> None:
    write(path, [Truck(axles=2)] * 10)
    size = path.stat().st_size
    split = Split(str(path), 0, size * 3)
    chunks = list(Recordings().read(split, types))
    assert isinstance(chunks[0], Columns)
    assert chunks[0].batch.num_rows == 10


# -- values ------------------------------------------------------------------------------------------------------------


def test_an_events_position_is_in_its_block_and_it_was_recorded_when_that_says(path: Path, types: Types) -> None:
    write(path, [Truck(axles=2, time=NOON), Truck(axles=3)])
    first, second = read(path, types).events
    assert (first[0], second[0]) == (len(HEADER), len(HEADER) + 1)
    assert second[2] == {"axles": 3, "_recorded": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}


def test_every_generated_event_is_stored_as_arrow_stores_it(path: Path, types: Types) -> None:
    events = [event for event in Generator(11).events(4000) if type(event) is Sampler]
    assert len(events) > 300
    write(path, events)
    found = read(path, types)
    assert not found.letters
    wanted = [expected(one) for one in read_recording(path, [Sampler])]
    assert repr([event[1:] for event in found.events]) == repr(wanted), "by repr, for NaN"


@pytest.mark.parametrize("seed", range(6))
def test_what_an_older_program_recorded_of_newer_events_is_whole_in_a_lake(path: Path, seed: int) -> None:
    """Values that it could not read are in the recording, with their units."""
    made = Evolution(seed)
    catalog = Catalog()
    catalog.register(made.new)
    newer = [made.new_event() for _ in range(50)]
    write(path, newer)
    wanted = [event[1:] for event in read(path, types_of(catalog.text())).events]
    assert len(wanted) == len(newer)
    seen = [each.event for each in read_recording(path, [made.old])]
    path.unlink()
    write(path, seen)
    found = read(path, types_of(catalog.text()))
    assert not found.letters
    assert [event[1:] for event in found.events] == wanted


BAD: list[tuple[Any, str]] = [
    (["Lorry", 0, {}], "unknown type Lorry"),
    (["Unregistered", 0, {"number": 1}], "unknown type Unregistered"),
    (["Truck", 0, {"axles": 2, "wheels": 4}], "not a Truck: Object contains unknown field `wheels`"),
    (["Truck", 0, {}], "not a Truck: Object missing required field `axles`"),
    (["Truck", 0, {"axles": None}], "not a Truck: Expected `int`, got `None` - at `$.axles`"),
    (["Truck", 0, {"axles": "two"}], "not a Truck: Expected `int`, got `str` - at `$.axles`"),
    (["Truck", 0, {"axles": 256}], "not a Truck: Expected `int` <= 255 - at `$.axles`"),
    (["Truck", 0, {"axles": True}], "not a Truck: Expected `int`, got `bool` - at `$.axles`"),
    (["Truck", 0, {"axles": 2, "weight": True}], "not a Truck: Expected `float | null`, got `bool` - at `$.weight`"),
    (["Truck", 0, {"axles": 2, "fuel": "petrol"}], "not a Truck: Invalid enum value 'petrol' - at `$.fuel`"),
    (["Truck", 0, {"axles": 2, "gear": 3}], "not a Truck: Invalid enum value 3 - at `$.gear`"),
    (["Truck", 0, {"axles": 2, "gear": True}], "not a Truck: Expected `int | null`, got `bool` - at `$.gear`"),
    (["Truck", 0, {"axles": 2, "time": "2026-01-01T00:00:00"}], "with a timezone component - at `$.time`"),
    (["Truck", 0, {"axles": 2, "time": "noon"}], "not a Truck: Invalid RFC3339 encoded datetime - at `$.time`"),
    (["Truck", 0, {"axles": 2, "time": 5}], "not a Truck: Expected `datetime | null`, got `int` - at `$.time`"),
    (["Truck", 0, {"axles": 2, "time": "0001-01-01T00:00:00+01:00"}], "time must be a time with a zone, in the years"),
    (["Truck", 0, {"axles": 2, "pause": timedelta.max}], "pause must be a duration of 64 bits"),
    (
        ["Truck", 0, {"axles": 2, "stops": msgspec.msgpack.Ext(5, b"?")}],
        "stops must be present and representable in JSON",
    ),
    (["Trailer", 0, {"axles": 2, "time": NOON, "stops": None}], "stops must be present and representable in JSON"),
    (["Trailer", 0, {"axles": 2, "time": None, "stops": []}], "Expected `datetime`, got `None` - at `$.time`"),
    (["Trailer", 0, {"axles": 2, "stops": []}], "not a Trailer: Object missing required field `time`"),
    (["Truck", 1 << 62, {"axles": 2}], "not a Truck: the time of recording must be a time"),
    (["Truck", 0, {"axles": 2}, 1], ""),
    (["Truck", "now", {"axles": 2}], "not a packet"),
    ([1, 2, 3], "not a packet"),
    (PACK(["Truck", 0, {"axles": 2}]) + b"\x01", "not a packet"),
    (PACK(["Truck", 0, {"axles": 2, "place": "abc"}]).replace(b"abc", b"\xed\xa0\x80"), "not a Truck: 'utf-8' codec"),
    (b"\x93\xa5Truck\x00\x82\xa5axles\x02\xa4time\xd7\xff" + b"\xff" * 8, "nanoseconds out of range - at `$.time`"),
]  # fmt: skip


@pytest.mark.parametrize(("packet", "reason"), BAD, ids=[reason or "array of four" for _, reason in BAD])
def test_what_is_no_event_is_a_dead_letter_and_its_neighbours_are_kept(
    path: Path, types: Types, packet: Any, reason: str
) -> None:
    good = [[name, 0, {"axles": 2, "time": NOON, "stops": []}] for name in ("Truck", "Trailer")]
    write_packets(path, *good, packet, *good)
    found = read(path, types)
    assert len(found.events) == 4
    (letter,) = found.letters
    raw = packet if isinstance(packet, bytes) else PACK(packet)
    start = path.read_bytes().index(raw) - FORMAT.size
    assert letter.position == start
    if reason:
        assert reason in letter.reason
        assert letter.raw == raw.decode("utf-8", "backslashreplace")
    else:
        assert letter.reason == f"damaged: {FORMAT.size + len(raw)} bytes skipped"


ODD_TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(2600, 1, 1, microsecond=7, tzinfo=UTC),
    NOON.astimezone(timezone(timedelta(hours=-7))),
    "2026-06-01T12:00:00.000001+05:30",
    msgspec.msgpack.Ext(-1, struct.pack(">Q", 1500 << 34 | 5)),
    msgspec.msgpack.Ext(-1, struct.pack(">Iq", 2500, -5)),
]


def test_times_in_all_their_forms_are_what_the_bus_reads(path: Path, types: Types) -> None:
    """Also those that are rounded to microseconds."""
    write_packets(path, *(["Truck", 0, {"axles": 2, "time": moment}] for moment in [*ODD_TIMES, None]))
    found = read(path, types)
    wanted = [one.event.time for one in read_recording(path, TRUCKS)]
    assert [said.get("time") for _, _, said in found.events] == wanted
    assert not found.letters


VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 10, -1, 127, 128, -128, 255, 256, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**63,
    0.5, 1.0, 1e300, float("inf"), "", "red", "green", "1", "P1D", "-P2DT0.5S", "PT1e5S", "2026-06-01T12:00:00Z",
    "0001-01-01T00:00:00+05:00", b"", b"octets", [], [1, "x"], {"a": [1]}, {1: 2}, NOON, timedelta(microseconds=-1),
    timedelta.max, timedelta.min, msgspec.msgpack.Ext(5, b"??????"), msgspec.msgpack.Ext(-1, b"12345"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_is_what_the_bus_takes_and_check_passes(path: Path, types: Types, seed: int) -> None:
    """Any value in any attribute: an event here exactly if the decoder says so there, and then `check` does too.

    But for lists: a catalog says no more of them than that they are opaque.
    """
    chance = random.Random(seed)
    known = [attribute for attribute in attributes(Sampler) if not isinstance(attribute.type, OpaqueType)]
    packets = [PACK(["Sampler", number, some_values(known, chance)]) for number in range(4000)]
    write_packets(path, *packets)
    wanted = [number for number, packet in enumerate(packets) if is_taken(packet)]
    found = read(path, types)
    taken = [(said["_recorded"] - EPOCH) // timedelta(microseconds=1) for *_, said in found.events]
    assert taken == wanted
    assert 500 < len(wanted) < 3500
    assert len(found.letters) == len(packets) - len(wanted)
    assert not any("does not fit" in reason for reason in found.reasons)


def some_values(known: list[Attribute], chance: random.Random) -> dict[str, Any]:
    return {each.name: chance.choice(VALUES) for each in chance.sample(known, chance.choice((1, 1, 2)))}


def is_taken(packet: bytes) -> bool:
    decoded = EventDecoder([Sampler]).decode(packet)
    if not isinstance(decoded, Recorded):
        return False
    check(decoded.event)
    to_batch([decoded.event])
    return not unread_values(decoded.event)  # of which a lake makes a dead letter, until its catalog has them


# -- through the job ---------------------------------------------------------------------------------------------------


def test_a_recording_goes_into_tables_through_the_job(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Several tasks write all good events once, with their shapes, and dead letters for the rest."""
    catalog = Catalog()
    catalog.register(*TRUCKS)
    events: list[Event] = [Truck(axles=number % 200, time=NOON + timedelta(hours=number % 30)) for number in range(500)]
    write(path, [*events, Unregistered(number=1), Trailer(axles=1, time=NOON, stops=[1, 2])])
    with path.open("ab") as file:
        file.write(b"the end")
    root = tmp_path / "lake"
    draft = ingest_draft(spark, root, catalog, str(path), Recordings(), 4000)
    (source,) = draft.sources
    assert (source.rows, source.dead) == (501, 2)
    assert {(shape.type, shape.presence) for shape in draft.shapes} == {("Truck", "21"), ("Trailer", "1021")}
    stored = pa.concat_tables([pq.read_table(file, partitioning=None) for file in (root / "tables").rglob("*.parquet")])
    assert stored.num_rows == 501
    assert sorted(stored.column("_position").to_pylist()) == sorted(
        position for position, _, _ in read(path, types_of(catalog.text())).events
    )
    letters = pa.concat_tables([pq.read_table(file, partitioning=None) for file in (root / "dead").rglob("*.parquet")])
    assert sorted(letters.column("reason").to_pylist()) == [
        "cut short: 7 bytes skipped",
        "unknown type Unregistered",
    ]
