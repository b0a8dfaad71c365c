"""A record that is read alone gives the event that the lake's columns have, or is refused where they refuse it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the lake, which is compared with, needs it")

from genus import Event, Maybe
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.values import convert_json
from genus.model import (
    AttributeType,
    ChoiceType,
    DurationType,
    Float32,
    Int8,
    Opaque,
    OpaqueType,
    Renamed,
    TimeType,
    UInt32,
)
from genus.model import attributes as attributes_of
from genus.records import Mapping, RecordReader, Rejected, read_mapping
from genus.records._values import ERRORS, ValueFormat, value_reader
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
# Without a zone of their own only up to 2037: Arrow's rules for summer time end there, Python's do not.
TIME_TEXTS = st.one_of(
    st.builds(
        lambda moment, sign, form: moment.isoformat(sep=sign) + form,
        st.datetimes(datetime(1950, 1, 1), datetime(2037, 1, 1)),
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
    if wrong is not None and wrong[0]:
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


@examples(1500)
@given(RECORDS, st.sampled_from(MAPPINGS), st.sampled_from([None, None, False, True]))
def test_a_record_is_read_as_the_lake_reads_it(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any], text: str, cloud_events: bool | None
) -> None:
    mapping = read_mapping(text)
    line = msgspec.json.encode(record)
    record = msgspec.json.decode(line)
    path = written(tmp_path_factory.getbasetemp() / "record.jsonl", line)
    lake = Found(JsonLines(mapping, cloud_events), path, TYPES)
    alone = RecordReader(mapping, [Loop, Lamp], cloud_events=cloud_events).read(record)
    if isinstance(alone, Rejected):
        assert lake.events() == []
        assert _sorted_words(lake.letter().reason) == _sorted_words(str(alone))
    else:
        assert lake.letters == []
        assert lake.events() == expected([alone])


def _sorted_words(reason: str) -> str:
    """The reason; of several unknown fields the lake names any."""
    return reason.partition(" has no attribute ")[0]


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
