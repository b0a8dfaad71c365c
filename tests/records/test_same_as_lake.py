"""A record that is read alone gives the event that the lake's columns have, or is refused where they refuse it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the lake, which is compared with, needs it")

from genus import Event, Maybe
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.tabular import ParquetFiles
from genus.lake._ingest.values import convert_json
from genus.model import Float32, Int8, Opaque, Renamed, UInt32
from genus.model import attributes as attributes_of
from genus.model.types import AttributeType, ChoiceType, DurationType, OpaqueType, TimeType
from genus.records import Mapping, RecordReader, read_mapping
from genus.records._mapping import DeclaredTypes
from genus.records._reader import MappedReader
from genus.records._values import ERRORS, ValueFormat, value_reader
from genus.records.types import Rejected
from tests.examples import examples
from tests.lake.foreign_files import Found, expected, types_for, written


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Gear(Enum):
    FIRST = 1
    SECOND = 2


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    tiny: Maybe[Int8] = None
    count: Maybe[UInt32] = None
    ratio: Maybe[Float32] = None
    gear: Maybe[Gear] = None
    is_closed: Maybe[bool] = None
    blob: Maybe[bytes] = None
    gap: Maybe[timedelta] = None
    parts: Maybe[Annotated[Any, Opaque("Parts")]] = None
    note: Annotated[Maybe[str], Renamed("remark")] = None


class Lamp(Event):
    watts: float


TYPES = types_for(Loop, Lamp)
ATTRIBUTES = {each.name: each.type for each in attributes_of(Loop) if not isinstance(each.type, OpaqueType)}

# -- values ------------------------------------------------------------------------------------------------------------

ZONES = ("", "Europe/Berlin", "America/St_Johns", "UTC")
EDGES = [0, 1, -1, 127, 128, 255, 256, 2**31, 2**32 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30]
NUMBER_TEXTS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.text("0123456789+-.eExXinfaINFA_ ()", max_size=12),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "inf", "nan(1)", "1e400", "+5", "0x10", "1_0", " 1", "١", "true"]),
)
TIME_TEXTS = st.one_of(
    st.builds(
        lambda moment, sign, form: moment.isoformat(sep=sign) + form,
        st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)),
        st.sampled_from("T t"),
        st.sampled_from(["", "Z", "z", "+01:00", "-0130", "+05", "+23:59", "+24:00", "-12:60", " Z", "123Z", ".5Z"]),
    ),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.from_regex(
        r"20[0-2][0-9]-[01][0-9]-[0-3][0-9]([Tt ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,9})?)?)?(Z|\+0[0-9])?)?",
        fullmatch=True,
    ),
    st.sampled_from(["2026-10-25T02:30:00", "2026-03-29T02:30:00", "15.11.2026 02:30", "29.03.2026 02:30", "1/2/3"]),
)
DURATION_TEXTS = st.one_of(
    st.timedeltas().map(msgspec.to_builtins),
    st.sampled_from(["P1D", "pt1s", "-P2DT3H", "P1Y", "PT", "+PT1.5S", "P200000000D", "1.5", "soon", " 7 ", "1_000"]),
)
OTHER_TEXTS = st.one_of(
    st.text(max_size=8),
    st.binary(max_size=6).map(lambda b: b.hex()),
    st.sampled_from(["truck", "car", "TRUCK", "AP8=", "AP8", "YQ==", "61 62", "true", "FALSE", "0", ""]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(EDGES),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**54), 2**54).map(float),
    NUMBER_TEXTS,
    TIME_TEXTS,
    DURATION_TEXTS,
    OTHER_TEXTS,
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2))
FORMATS = ["", "iso", "text", "s", "ms", "us", "ns", "hex", "base64", "%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S%z"]
FORMS = st.builds(
    ValueFormat,
    st.sampled_from(FORMATS),
    st.sampled_from(ZONES),
    st.sampled_from([None, None, 2, 1000, -3, 0.5, 0.27778, 1e300]),
    st.sampled_from([(), ("", "NA", -999), (0, 1.5, "1"), (10**15, 1e300)]),
)


def column_value(value: Any, type_: AttributeType, form: ValueFormat) -> tuple[str, Any]:
    """What the lake makes of a value."""
    column, wrong = convert_json([value], type_, form)
    if wrong[0]:
        return "wrong", None
    (found,) = column.cast("int64").to_pylist() if isinstance(type_, TimeType | DurationType) else column.to_pylist()
    return "kept", repr(found)


def single_value(value: Any, type_: AttributeType, form: ValueFormat) -> tuple[str, Any]:
    """What a reader of single records makes of it, as the lake would store it."""
    try:
        found = None if value is None else value_reader(type_, form)(value)
    except ERRORS:
        return "wrong", None
    if found is not None and isinstance(type_, TimeType):
        found = (found - datetime.fromisoformat("1970-01-01T00:00:00Z")) // timedelta(microseconds=1)
    if isinstance(found, timedelta):
        found = found // timedelta(microseconds=1)
    if isinstance(type_, ChoiceType) and found is not None:
        found = getattr(found, "value", None)
    return "kept", repr(found)


@pytest.mark.slow
@examples(3000)
@given(VALUES, st.sampled_from(sorted(set(ATTRIBUTES) - {"ratio"})), FORMS)
def test_a_value_is_read_as_a_column_of_it_is(value: Any, name: str, form: ValueFormat) -> None:
    type_ = ATTRIBUTES[name]
    assert single_value(value, type_, form) == column_value(value, type_, form)


def fitting_texts() -> Iterator[tuple[str, st.SearchStrategy[str]]]:
    yield from ((name, TIME_TEXTS) for name in ("time", "deadline"))
    yield "gap", DURATION_TEXTS
    yield from ((name, NUMBER_TEXTS) for name in ("lane", "speed", "gear", "time", "gap"))


@pytest.mark.parametrize(("name", "texts"), list(fitting_texts()))
def test_texts_of_the_right_kind_are_read_alike(name: str, texts: st.SearchStrategy[str]) -> None:
    @examples(400)
    @given(texts, FORMS)
    def compare(text: str, form: ValueFormat) -> None:
        assert single_value(text, ATTRIBUTES[name], form) == column_value(text, ATTRIBUTES[name], form)

    compare()


# -- records -----------------------------------------------------------------------------------------------------------

MAPPINGS = [
    "",
    'ignore = "rest"\nabsent = ["", "NA", -999]',
    'unknown = "count"\nabsent = ["NA"]\n[attributes]\n"vehicle.kmh" = "speed"',
    """
    absent = ["NA", 0]
    ignore = ["id", "meta"]
    zone = "Europe/Berlin"
    recorded = { field = "seen", format = "ms" }
    [type]
    name = "{kind}/{vehicle.class}"
    [types]
    "loop/*" = "Loop"
    "lamp/x" = "Lamp"
    [attributes]
    "place.lane" = "lane"
    "vehicle.kmh" = { to = "speed", scale = 0.27778 }
    "vehicle.ms" = "speed"
    at = { to = "time", format = "s" }
    [of.Lamp]
    "vehicle.class" = "source"
    [constants]
    source = "north"
    time = 2026-11-15T00:00:00Z
    """,
    """
    inside = "data.values"
    [type]
    is = "Loop"
    [attributes]
    count = { to = "count", format = "text" }
    """,
    """
    [type]
    field = "type"
    strip = "city."
    [types]
    L = "Loop"
    "La*" = "Lamp"
    [of.Loop]
    lane = { to = "lane", scale = 2 }
    watts = "speed"
    """,
]
NAMES = st.sampled_from(
    [
        "lane",
        "speed",
        "category",
        "tiny",
        "count",
        "ratio",
        "gear",
        "is_closed",
        "blob",
        "gap",
        "parts",
        "note",
        "time",
        "source",
        "place",
        "deadline",
        "expires",
        "watts",
        "type",
        "kind",
        "vehicle",
        "class",
        "kmh",
        "ms",
        "at",
        "id",
        "meta",
        "seen",
        "data",
        "values",
        "remark",
        "colour",
        "specversion",
        "data_base64",
        "place.lane",
    ]
)
TYPE_NAMES = st.sampled_from(["Loop", "Lamp", "loop", "lamp", "x", "L", "La1", "city.L", "Tram", 7, None, True, "1.0"])
FITTING = st.one_of(
    st.integers(0, 9), st.sampled_from(["truck", "NaN", "AP8=", "PT1S", "2026-11-15T12:00:00Z", "NA", 1.0, 0.5, None])
)
LEAVES = st.one_of(FITTING, FITTING, TYPE_NAMES, SCALARS, st.lists(FITTING, max_size=2))
OBJECTS = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=5),
    max_leaves=12,
)
GOOD: list[dict[str, Any]] = [
    {"type": "Loop", "lane": 1},
    {"type": "Lamp", "watts": 60, "time": "2026-11-15T12:00:00Z"},
    {"type": "city.L", "lane": 3, "watts": 2},
    {"specversion": "1.0", "id": "7", "type": "Loop", "source": "/a8", "data": {"lane": 1}},
    {"specversion": "1.0", "id": "7", "type": "Lamp", "source": "genus:", "data": {"watts": 60, "source": "x"}},
    {"kind": "loop", "vehicle": {"class": "car", "kmh": 72}, "place": {"lane": 2}, "at": 1.5, "seen": 7},
    {"kind": "lamp", "vehicle": {"class": "x"}, "watts": 1.5},
    {"data": {"values": {"lane": 4, "note": "x"}}, "count": "12"},
]
"""Records that some of the mappings read."""
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "speed": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([3, "NaN", "x"])),
    "category": st.sampled_from(["truck", "tram", None]),
    "gear": st.sampled_from([1, 2.0, 3]),
    "blob": st.sampled_from(["AP8=", "AP8"]),
    "gap": DURATION_TEXTS,
    "time": TIME_TEXTS,
    "parts": st.lists(FITTING, max_size=3),
    "note": st.text(max_size=3),
    "remark": st.text(max_size=3),
}
EXTRA = st.one_of(st.just({}), st.fixed_dictionaries({}, optional=OPTIONAL), OBJECTS)
RECORDS = st.one_of(OBJECTS, *[st.builds(lambda good, extra: {**good, **extra}, st.sampled_from(GOOD), EXTRA)] * 4)


@pytest.mark.slow
@examples(1500)
@given(RECORDS, st.sampled_from(MAPPINGS))
def test_a_record_is_read_as_the_lake_reads_it(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any], text: str
) -> None:
    mapping = read_mapping(text)
    line = msgspec.json.encode(record)
    record = msgspec.json.decode(line)
    path = written(tmp_path_factory.getbasetemp() / "record.jsonl", line)
    lake = Found(JsonLines(mapping), path, TYPES)
    alone = RecordReader(mapping, [Loop, Lamp]).read(record)
    assert (lake.events(), lake.reasons) == told([alone])


def test_cloud_events_can_be_demanded_or_denied() -> None:
    """The option decides where plain records may have a field specversion, or only CloudEvents are wanted."""
    cloud = {"specversion": "1.0", "type": "Lamp", "id": "1", "data": {"watts": 60}}
    plain = {"type": "Lamp", "watts": 60}
    demanding = RecordReader(types=[Lamp], cloud_events=True)
    assert demanding.read(cloud) == RecordReader(types=[Lamp], cloud_events=False).read(plain)
    assert str(demanding.read(plain)).startswith("specversion is None")
    assert str(RecordReader(types=[Lamp], cloud_events=False).read(cloud)).startswith("Lamp has no attribute")


def told(found: list[Event | Rejected]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows and reasons that the lake must have."""
    events = [each for each in found if isinstance(each, Event)]
    return expected(events), [str(each) for each in found if isinstance(each, Rejected)]


# -- many at once ------------------------------------------------------------------------------------------------------

HEADER = ["type", "kind", "vehicle.class", "lane", "place.lane", "data.values.lane", "count", "watts", "vehicle.kmh"]
HEADER += [*OPTIONAL, "ratio", "is_closed", "tiny", "at", "seen", "id", "meta.x", "colour"]
TYPICAL: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["Loop", "Lamp", "city.L"]),
    "kind": st.sampled_from(["loop", "lamp"]),
    "vehicle.class": st.sampled_from(["car", "x"]),
    "colour": st.none(),
    "id": st.text(max_size=2),
    "meta.x": st.text(max_size=2),
    "category": st.sampled_from(["truck", "car"]),
    "time": st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda moment: f"{moment.isoformat()}Z"),
    "gap": st.sampled_from(["PT1S", "1.5", "2"]),
    "blob": st.just("AP8="),
    "parts": st.sampled_from(["[1]", "7", '{"a": null}']),
    "is_closed": st.sampled_from(["true", "0"]),
    "gear": st.sampled_from(["1", "2"]),
    "note": st.text(max_size=3),
    "remark": st.none(),
}
TEXTS = st.one_of(NUMBER_TEXTS, TIME_TEXTS, DURATION_TEXTS, OTHER_TEXTS)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[dict[str, str | None]]]:
    """Rows of text in two columns or more, most of them of usual values, a few with anything in some column."""
    names = [
        "lane",
        "note",
        *draw(st.lists(st.sampled_from(HEADER), unique=True, max_size=6)),
    ]  # a row is no blank line
    names = list(dict.fromkeys([*draw(st.sampled_from([["type"], ["kind", "vehicle.class"], []])), *names]))
    usual = {name: TYPICAL.get(name, st.sampled_from(["0", "1", "2.0", None])) for name in names}
    rows: list[dict[str, str | None]] = draw(st.lists(st.fixed_dictionaries(usual), min_size=1, max_size=8))
    rows = [{name: row[name] for name in names} for row in rows * draw(st.sampled_from([1, 1, 30]))]
    for _ in range(draw(st.integers(0, 3))):
        rows[draw(st.integers(0, len(rows) - 1))][draw(st.sampled_from(names))] = draw(TEXTS)
    return names, rows


def quoted(names: list[str], rows: list[dict[str, str | None]]) -> str:
    cells: list[list[str | None]] = [[*names], *([row[name] for name in names] for row in rows)]
    return "".join(",".join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row) + "\n" for row in cells)


@examples(400)
@given(tables(), st.sampled_from(MAPPINGS))
def test_rows_of_text_are_read_as_records_of_text(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[str], list[dict[str, str | None]]], text: str
) -> None:
    """From CSV; whatever the others in a column are."""
    mapping, (names, rows) = read_mapping(text), table
    alone = MappedReader(mapping, DeclaredTypes([Loop, Lamp]), False, is_flat=True, as_text=True)
    path = written(tmp_path_factory.getbasetemp() / "rows.csv", quoted(names, rows))
    lake = Found(Csv(mapping), path, TYPES)
    assert (lake.events(), lake.reasons) == told(list(map(alone.read, rows)))


COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))),
    (pa.uint64(), st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.one_of(st.floats(), st.sampled_from([0.0, 1.0, -0.0, 2.5]))),
    (pa.decimal128(38, 2), st.decimals(-1000, 1000, places=2)),
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=3)),
    (pa.timestamp("us", "Asia/Tokyo"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("ms"), st.datetimes(datetime(1950, 1, 1)).map(lambda moment: moment.replace(microsecond=0))),
    (pa.date32(), st.dates(datetime(1950, 1, 1).date())),
    (pa.duration("us"), st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))),
    (pa.list_(pa.int8()), st.lists(st.integers(0, 3), max_size=2)),
]


@st.composite
def typed_tables(draw: st.DrawFn) -> pa.Table:
    names = ["lane", *draw(st.lists(st.sampled_from(HEADER[1:]), unique=True, max_size=4))]
    rows = draw(st.integers(1, 6))
    made: dict[str, pa.Array] = {"type": pa.array(["Loop"] * rows)} | {"kind": pa.array(["loop"] * rows)}
    for name in dict.fromkeys(names):
        kind, values = draw(st.sampled_from(COLUMNS)) if name != "lane" else (pa.int32(), st.integers(0, 2))
        made[name] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
    return pa.concat_tables([pa.table(made)] * draw(st.sampled_from([1, 1, 20])))


@pytest.mark.slow
@examples(400)
@given(typed_tables(), st.sampled_from(MAPPINGS))
def test_rows_of_values_are_read_as_records_of_values(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, text: str
) -> None:
    """From Parquet: times, durations and bytes need no text."""
    mapping = read_mapping(text)
    alone = MappedReader(mapping, DeclaredTypes([Loop, Lamp]), False, is_flat=True)
    path = tmp_path_factory.getbasetemp() / "rows.parquet"
    pq.write_table(table, path)
    lake = Found(ParquetFiles(mapping), path, TYPES)
    records = [{name: plain_number(value) for name, value in row.items()} for row in table.to_pylist()]
    assert (lake.events(), lake.reasons) == told(list(map(alone.read, records)))


def plain_number(value: Any) -> Any:
    """JSON has no decimals."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


def test_the_reasons_are_those_of_the_lake(tmp_path: Path) -> None:
    reader = RecordReader(Mapping(), [Loop])
    for record in (
        None,
        {},
        {"type": "Tram"},
        {"type": "Loop"},
        {"type": "Loop", "lane": "x"},
        {"type": "Loop", "lane": 1, "colour": 2},
        {"type": "Loop", "lane": 1, "time": "noon"},
        {"specversion": "0.3"},
    ):
        read = Found(JsonLines(), written(tmp_path / "a.jsonl", msgspec.json.encode(record) + b"\n{}"), TYPES)
        assert str(reader.read(record)) == read.reasons[0]


def test_reasons_that_are_counted_do_not_hold_values() -> None:
    reader = RecordReader(Mapping(), [Loop])
    records: list[dict[str, Any]] = [{"type": "Loop", "lane": "x"}, {"type": "Loop", "lane": "y"}]
    found = list(map(reader.read, records))
    assert {each.reason for each in found if isinstance(each, Rejected)} == {"Loop.lane must be int64"}
    found = [reader.read({"type": name}) for name in ("A", "B")]
    assert {each.reason for each in found if isinstance(each, Rejected)} == {"unknown type"}


class Bounded(Event):
    level: Annotated[int, msgspec.Meta(ge=0, le=100)]
    marks: Maybe[list[int]] = None


def test_bounds_and_types_of_the_class_hold_though_the_lake_does_not_know_them() -> None:
    reader = RecordReader(read_mapping('type.is = "Bounded"'), [Bounded])
    assert reader.read({"level": 7, "marks": [1, 2]}) == Bounded(level=7, marks=[1, 2])
    assert "Bounded.level must be int64, Meta(" in str(getattr(reader.read({"level": 101}), "reason", ""))
    assert getattr(reader.read({"level": 7, "marks": ["x"]}), "reason", "") == "Bounded.marks must be JSON"


@pytest.mark.parametrize("record", GOOD)
def test_the_compared_records_are_events_for_some_mapping(record: dict[str, Any]) -> None:
    """So that the comparison above is not one of refusals alone."""
    readers = [RecordReader(read_mapping(text), [Loop, Lamp]) for text in MAPPINGS]
    assert any(isinstance(reader.read(record), Event) for reader in readers)
