"""The Arrow target answers as `Subscription.matches` does, for whole columns at a time."""

import importlib.util
import math
import random
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, this
from genus.errors import EventError, GenusError, SubscriptionError
from genus.filters._evaluate import COMPARE, COMPUTE
from genus.filters.types import Predicate, Term
from genus.model import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, name_of
from genus.model._types import INT64_MAX, INT64_MIN, int_range
from tests.examples import examples

pa = pytest.importorskip("pyarrow", reason="the arrow target needs the extra genus[arrow]")

from genus.targets import arrow  # noqa: E402
from genus.targets._arrow_values import constant, constants  # noqa: E402

MICROSECOND = timedelta(microseconds=1)


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    NONE = ""


class Level(IntEnum):
    LOW = -1
    HIGH = 10


class Point(msgspec.Struct):
    x: int


class Audible(Kind): ...


class Visible(Kind): ...


class Sample(Event):
    """A family with an attribute of every type."""

    flag: Maybe[bool] = None
    i8: Maybe[Int8] = None
    i16: Maybe[Int16] = None
    i32: Maybe[Int32] = None
    i64: Maybe[int] = None
    j64: Maybe[int] = None
    u8: Maybe[UInt8] = None
    u16: Maybe[UInt16] = None
    u32: Maybe[UInt32] = None
    f32: Maybe[Float32] = None
    f64: Maybe[float] = None
    g64: Maybe[float] = None
    text: Maybe[str] = None
    word: Maybe[str] = None
    blob: Maybe[bytes] = None
    span: Maybe[timedelta] = None
    colour: Maybe[Colour] = None
    level: Maybe[Level] = None
    spot: Maybe[Point] = None
    many: Maybe[list[int]] = None


class Loud(Sample, Audible):
    volume: Maybe[float] = None


class Bright(Sample, Audible, Visible):
    pass


class Stranger(Event):
    """Of another family."""


class Chime(Event, Audible):
    """Pure: nothing beyond its one kind."""


NAN, INF = math.nan, math.inf
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, NAN, INF, -INF, 5e-324, 1e300, -1.7e308, 2.0**53, 2.0**63, 9007199254740993.0]
INTS = [
    0,
    1,
    -1,
    2,
    -3,
    2**31,
    2**32,
    2**53 - 1,
    2**53 + 1,
    -(2**53) - 1,
    3037000500,
    INT64_MAX,
    INT64_MAX - 1,
    INT64_MIN,
]
TEXTS = [
    "",
    "a",
    "ab",
    "A",
    "b",
    "aXb",
    "ä",
    "é",
    "e\u0301",
    "\uffff",
    "\U00010000",
    "\U0001f600a",
    "a.b",
    "a%",
    "\0",
    "x\0y",
]
BLOBS = [b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\x80\0", b"a", b"ab"]
TIMES = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2))),
    datetime(2024, 2, 29, 0, 0, tzinfo=timezone(timedelta(hours=-11, minutes=-30))),
]
SPANS = [timedelta(0), MICROSECOND, -MICROSECOND, timedelta(days=1), INT64_MAX * MICROSECOND, INT64_MIN * MICROSECOND]

INTEGERS = {
    "i8": (8, True),
    "i16": (16, True),
    "i32": (32, True),
    "u8": (8, False),
    "u16": (16, False),
    "u32": (32, False),
}
VALUES: dict[str, list[Any]] = {
    **{name: [0, 1, *int_range(*width), 7] for name, width in INTEGERS.items()},
    **dict.fromkeys(("i64", "j64"), INTS),
    **dict.fromkeys(("f32", "f64", "g64"), FLOATS),
    **dict.fromkeys(("text", "word", "place", "source"), TEXTS),
    **dict.fromkeys(("time", "deadline", "expires"), TIMES),
    "flag": [True, False],
    "blob": BLOBS,
    "span": SPANS,
    "colour": list(Colour),
    "level": list(Level),
    "spot": [Point(1)],
    "many": [[], [1]],
}

ALIKE = [
    [*INTEGERS, "i64", "j64"],
    ["f32", "f64", "g64"],
    ["text", "word", "place", "source"],
    ["time", "deadline", "expires"],
    ["blob"],
    ["span"],
]
ORDER: list[Callable[[Any, Any], Any]] = list(COMPARE.values())


class Dice:
    """Random events and predicates from a seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed).choice
        self.chance = random.Random(seed + 1).random

    def event(self, absence: float) -> Event:
        fields = {name: self.pick(values) for name, values in VALUES.items() if self.chance() > absence}
        return self.pick([Sample, Sample, Loud, Bright])(**fields)

    def predicate(self, depth: int) -> Predicate:
        if depth == 0 or self.chance() < 0.3:
            return self.pick([self.order, self.order, self.number, self.number, self.moment, self.plain])()
        if self.chance() < 0.3:
            return ~self.predicate(depth - 1)
        left, right = self.predicate(depth - 1), self.predicate(depth - 1)
        return self.pick([left & right, left | right])

    def order(self) -> Predicate:
        """An attribute compared with another of its type, with a constant, or with several."""
        group = self.pick(ALIKE)
        name = self.pick(group)
        known = [value for value in VALUES[name] if value == value]
        other = self.pick([this[self.pick(group)], self.pick(known)])
        if self.chance() < 0.3:
            return this[name].isin([self.pick(known) for _ in range(3)])
        return self.pick(ORDER)(this[name], other)  # type: ignore[no-any-return]

    def number(self) -> Predicate:
        result: Predicate = self.pick(ORDER)(self.value(2), self.value(self.pick([0, 2])))
        return result

    def value(self, depth: int) -> Any:
        if depth == 0 or self.chance() < 0.2:
            return this[self.pick([*INTEGERS, "i64", "j64", "f32", "f64"])]
        left, right = self.value(depth - 1), self.pick([self.value(depth - 1), self.pick(INTS), self.pick(FLOATS[:5])])
        return self.pick([left + right, left - right, left * right, left * right, left / right, -left])

    def moment(self) -> Predicate:
        spans: Term = self.pick(
            [this.span, this.span * this.i64, -this.span, this.deadline - this.time, this.span + this.span]
        )
        times: Term = self.pick([this.time + spans, this.time - this.span])
        left, constant = self.pick([(spans, self.pick(SPANS)), (times, self.pick(TIMES)), (times, this.expires)])
        return self.pick(ORDER)(left, constant)  # type: ignore[no-any-return]

    def plain(self) -> Predicate:
        """What has no order, texts and presence."""
        part, name = self.pick([*TEXTS, "", "b"]), self.pick(list(VALUES))
        return self.pick(
            [
                this.flag == self.pick([True, False]),
                this.colour == self.pick(list(Colour)),
                this.colour.isin(["red", ""]),
                this.level != self.pick(list(Level)),
                this.level.isin(Level),
                this.text.startswith(part),
                this.text.endswith(part),
                this.text.contains(part),
                this[name].is_present(),
                this[name].is_absent(),
                this.i64.isin([1, 2.0**53, -0.0]),
            ]
        )


def answers(subscription: Subscription, batch: Any) -> list[bool]:
    mask = arrow.compile(subscription).mask(batch)
    assert mask.type == pa.bool_()
    assert mask.null_count == 0
    return mask.to_pylist()  # type: ignore[no-any-return]


def agree(subscription: Subscription, events: Iterable[Event]) -> None:
    listed = list(events)
    batch = arrow.to_batch(listed)
    expected = [subscription.matches(event) for event in listed]
    for found, event, wanted in zip(answers(subscription, batch), listed, expected, strict=True):
        assert found is wanted, (str(subscription), event)


# -- meaning -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_agrees_with_the_oracle_on_random_predicates_and_edge_values(seed: int) -> None:
    dice = Dice(seed)
    events = [Sample(), *(dice.event(dice.pick([0.0, 0.2, 0.9])) for _ in range(59))]
    batch = arrow.to_batch(events)
    for _ in range(60):
        subscription = Subscription(dice.pick([Sample, Sample, Sample, Loud, Bright]), where=dice.predicate(3))
        expected = [subscription.matches(event) for event in events]
        found = answers(subscription, batch)
        assert found == expected, [
            str(subscription),
            [e for e, a, b in zip(events, found, expected, strict=True) if a != b],
        ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_agrees_on_type_has_lacks_and_where_together(seed: int) -> None:
    dice = Dice(100 + seed)
    events = [dice.event(dice.pick([0.2, 0.7])) for _ in range(60)]
    types: list[Any] = [
        Event,
        Sample,
        Loud,
        Bright,
        Audible,
        Visible,
        all_of(Sample, Audible),
        all_of(Audible, Visible),
    ]
    for _ in range(50):
        names = dice.pick([("time",), ("place", "source"), ()]), dice.pick([("deadline",), ("expires",), ()])
        where = dice.pick([None, this.place >= "a", this.time < this.expires])
        agree(Subscription(dice.pick(types), has=names[0], lacks=names[1], where=where), events)


INT64 = st.one_of(st.sampled_from(INTS), st.integers(INT64_MIN, INT64_MAX))


@examples(150)
@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=20), INT64)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_an_integer_result_outside_64_bits_is_unknown(pairs: list[tuple[int, int]], constant: int) -> None:
    """Asked for both a comparison and its opposite, so that unknown and false are distinguished."""
    events = [Sample(i64=a, j64=b) for a, b in pairs]
    for result in (this.i64 + this.j64, this.i64 - this.j64, this.i64 * this.j64, this.i64 * constant, -this.i64):
        agree(Subscription(Sample, where=result >= constant), events)
        agree(Subscription(Sample, where=~(result >= constant)), events)


@pytest.mark.parametrize("name", ["+", "-", "*"])
@given(pairs=st.lists(st.tuples(INT64, INT64), min_size=1, max_size=30))
def test_overflow_is_found_exactly(name: str, pairs: list[tuple[int, int]]) -> None:
    left, right = (pa.array(side, pa.int64()) for side in zip(*pairs, strict=True))
    exact = COMPUTE[name]
    expected = [exact(a, b) if INT64_MIN <= exact(a, b) <= INT64_MAX else None for a, b in pairs]
    assert arrow._exact(arrow.ArrowCompiler.operators[name], left, right).to_pylist() == expected


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
def test_overflow_is_found_at_the_very_border(off: int) -> None:
    """Products next to ±2**63, where doubles do not distinguish adjacent integers."""
    factors = [3, 7, 127, 3037000499, 3037000500, 2**31 - 1, 2**32 + 1, 2**61 - 1]
    pairs = [(sign * a, border // a + off) for a in factors for sign in (1, -1) for border in (2**63, -(2**63))]
    events = [Sample(i64=a, j64=b) for a, b in pairs] + [Sample(i64=INT64_MIN, j64=-1)]
    agree(Subscription(Sample, where=(this.i64 * this.j64 > 0) | (this.i64 * this.j64 <= 0)), events)


FLOAT = st.one_of(st.sampled_from(FLOATS), st.floats())


@examples(100)
@given(st.lists(st.tuples(FLOAT, FLOAT), min_size=1, max_size=20), st.floats(allow_nan=False))
def test_floats_follow_ieee_but_nan_and_division_by_zero_are_unknown(
    pairs: list[tuple[float, float]], constant: float
) -> None:
    events = [Sample(f64=a, g64=b, f32=a) for a, b in pairs]
    values = (this.f64 + this.g64, this.f64 * this.g64, this.f64 / this.g64, this.f32, -this.f64)
    for where in (*(value != constant for value in values), *(~(value < constant) for value in values)):
        agree(Subscription(Sample, where=where), events)
    agree(Subscription(Sample, where=~this.f64.isin([constant, 0.0])), events)


def test_nan_is_present_but_equals_nothing() -> None:
    batch = arrow.to_batch([Sample(f64=NAN), Sample()])
    assert answers(Subscription(Sample, has="f64"), batch) == [True, False]
    assert answers(Subscription(Sample, where=(this.f64 != 1.0) | (this.f64 == 1.0)), batch) == [False, False]
    assert answers(Subscription(Sample, where=~this.f64.isin([1.0])), batch) == [False, False]


def test_negative_zero_is_zero_also_in_a_list() -> None:
    batch = arrow.to_batch([Sample(f64=0.0), Sample(f64=-0.0)])
    for zero in (0.0, -0.0):
        assert answers(Subscription(Sample, where=this.f64.isin([zero, 7.0])), batch) == [True, True]
        assert answers(Subscription(Sample, where=this.f64 == zero), batch) == [True, True]


@examples(100)
@given(st.lists(st.text(max_size=3), min_size=1, max_size=10), st.text(max_size=2))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_text_is_ordered_by_code_point_and_parts_are_literal(texts: list[str], part: str) -> None:
    events = [Sample(text=text, blob=text.encode()) for text in [*texts, *TEXTS]]
    tests = (this.text < part, this.blob < part.encode(), this.text.startswith(part), this.text.endswith(part))
    for where in (*tests, this.text.contains(part)):
        agree(Subscription(Sample, where=where), events)


@pytest.mark.parametrize(
    "text", ["1 < 2", "not 1 < 2", "1 / 0 > 1 or i64 == 1", "5 in (5, 6)", "'ab' startswith 'a'", "1 + 2 < f64"]
)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_constants_alone_are_answered_for_every_row(text: str) -> None:
    agree(Subscription(Sample, where=text), [Sample(), Sample(i64=1, f64=4.0)])
    assert answers(Subscription(Sample, where=text), arrow.to_batch([], Sample)) == []


# -- types -------------------------------------------------------------------------------------------------------------


def test_exact_leaves_out_what_lies_below() -> None:
    batch = arrow.to_batch([Sample(), Loud(), Bright()])
    assert answers(Subscription(Sample, exact=True), batch) == [True, False, False]
    assert answers(Subscription(Sample), batch) == [True, True, True]


def test_an_exact_kind_delivers_its_pure_classes() -> None:
    batch = arrow.to_batch([Chime(), Loud()], Audible)
    assert answers(Subscription(Audible, exact=True), batch) == [True, False]


def test_names_of_no_declared_type_do_not_match() -> None:
    for names in (pa.array(["Sample", "Unheard", None]), pa.array(["Sample", "Unheard", None]).dictionary_encode()):
        batch = pa.record_batch({"_type": names})
        assert answers(Subscription(Event), batch) == [True, False, False]


def test_types_declared_after_compiling_match() -> None:
    filter_ = arrow.compile(Subscription(Sample, exact=False))

    class Later(Sample):
        pass

    assert filter_.mask(arrow.to_batch([Later(), Sample()])).to_pylist() == [True, True]


def test_a_dictionary_of_types_is_tested_once_per_name() -> None:
    batch = arrow.to_batch([Sample(), Loud(), Bright(), Loud()])
    encoded = batch.set_column(0, "_type", batch["_type"].dictionary_encode())
    assert answers(Subscription(Loud), encoded) == [False, True, False, True]


@pytest.mark.parametrize("codes", [[0], [2], [0, 1], [1, 2], [0, 2], [1, 3], []])
def test_a_dictionary_of_types_may_have_any_of_them(codes: list[int]) -> None:
    """Also where those that match are next to each other in the dictionary, or there are none; no index is no type."""
    known = [Loud, Bright]
    dictionary = [name_of(known.pop()) if code in codes and known else f"Unheard{code}" for code in range(4)]
    indices = pa.array([0, 1, 2, 3, None, 2, 1], pa.int8())
    batch = pa.record_batch({"_type": pa.DictionaryArray.from_arrays(indices, pa.array(dictionary))})
    matching = {code for code, name in enumerate(dictionary) if not name.startswith("Unheard")}
    expected = [code in matching for code in (0, 1, 2, 3, None, 2, 1)]
    assert answers(Subscription(Audible), batch) == expected


def test_a_dictionary_of_types_of_which_all_match_has_every_row_with_an_index() -> None:
    names = pa.array([name_of(Loud), name_of(Bright), name_of(Chime)])
    batch = pa.record_batch({"_type": pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1], pa.int32()), names)})
    assert answers(Subscription(Audible), batch) == [True, False, True, True]
    assert answers(Subscription(Loud), batch) == [False, False, True, False]


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([True, False], pa.bool_()),
        (["a", "", "é"], pa.string()),
        ([b"a", b"", b"\xff"], pa.binary()),
        ([-1, 2**31 - 1], pa.int32()),
        ([-1, 2**63 - 1], pa.int64()),
        ([0.5, math.inf], pa.float64()),
        ([19_000], pa.date32()),
        ([], pa.string()),
    ],
    ids=str,
)
def test_constants_are_those_of_pyarrow(values: list[Any], type_: Any) -> None:
    assert constants(values, type_).equals(pa.array(values, type_))
    assert [constant(value, type_) for value in values] == [pa.scalar(value, type_) for value in values]
    assert constant(None, type_).equals(pa.scalar(None, type_))


# -- batches -----------------------------------------------------------------------------------------------------------


def test_the_schema_has_the_vector_in_native_types() -> None:
    assert str(arrow.arrow_schema(Sample)).splitlines()[:26] == [
        "_type: string",
        "time: timestamp[us, tz=UTC]",
        "source: string",
        "place: string",
        "deadline: timestamp[us, tz=UTC]",
        "expires: timestamp[us, tz=UTC]",
        "flag: bool",
        "i8: int8",
        "i16: int16",
        "i32: int32",
        "i64: int64",
        "j64: int64",
        "u8: uint8",
        "u16: uint16",
        "u32: uint32",
        "f32: float",
        "f64: double",
        "g64: double",
        "text: string",
        "word: string",
        "blob: binary",
        "span: duration[us]",
        "colour: string",
        "level: int64",
        "spot: string",
        "many: string",
    ]
    assert "volume" in arrow.arrow_schema(Sample).names
    assert arrow.arrow_schema(Visible).names == ["_type", "time", "source", "place", "deadline", "expires"]


def test_a_batch_holds_the_values_of_the_events() -> None:
    fields: dict[str, Any] = {name: values[-1] for name, values in VALUES.items()}
    full, empty = arrow.to_batch([Bright(**fields), Sample()]).to_pylist()
    stored = {**fields, "colour": "", "level": 10, "spot": '{"x":1}', "many": "[1]", "f32": 2.0**53, "volume": None}
    assert full == {"_type": name_of(Bright), **stored}
    assert empty == {"_type": name_of(Sample), **dict.fromkeys(stored)}


def test_an_attribute_is_read_only_where_a_class_declares_it() -> None:
    class Odd(Sample):
        def volume(self) -> float:
            return 1.0

    assert arrow.to_batch([Loud(volume=2.0), Odd()])["volume"].to_pylist() == [2.0, None]


def test_a_float_attribute_may_hold_an_integer_of_any_size() -> None:
    assert arrow.to_batch([Sample(f64=2**53 + 1, f32=1)])["f64"].to_pylist() == [2.0**53]


def test_filter_keeps_the_matching_rows_of_a_slice() -> None:
    events = [Sample(i64=n, span=n * MICROSECOND, flag=n % 2 == 0) for n in range(20)]
    kept = arrow.compile(Subscription(Sample, where="flag and span > 7us")).filter(arrow.to_batch(events).slice(5, 10))
    assert kept["i64"].to_pylist() == [8, 10, 12, 14]


def test_a_missing_column_is_absent_from_every_row() -> None:
    batch = arrow.to_batch([Sample(i64=1), Sample()]).select(["_type", "i64"])
    assert answers(Subscription(Sample, has="text"), batch) == [False, False]
    assert answers(Subscription(Sample, lacks="text", where=this.i64 == 1), batch) == [True, False]
    assert answers(Subscription(Sample, where=~(this.f64 * 2 > 1) | (this.i64 > 0)), batch) == [True, False]


def test_other_layouts_of_the_same_values_are_read() -> None:
    texts = pa.array(["a", None, "b"])
    for column in (texts.cast(pa.large_string()), texts.dictionary_encode(), texts.cast(pa.string_view())):
        batch = pa.record_batch({"_type": pa.array(["Sample"] * 3), "text": column, "i64": pa.nulls(3)})
        assert answers(Subscription(Sample, lacks="i64", where=this.text.isin(["b"])), batch) == [False, False, True]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"_type": ["Sample"], "i64": ["one"]}, "column 'i64' holds string, but should hold int64"),
        ({"_type": [1], "i64": [1]}, "column '_type' holds int64, but should hold string"),
        ({"i64": [1]}, "has no column '_type'"),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(SubscriptionError, match=message):
        answers(Subscription(Sample, where=this.i64 > 0), pa.record_batch(columns))


def test_a_column_given_twice_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array(["Sample"]), pa.array([1]), pa.array([2])], ["_type", "i64", "i64"])
    with pytest.raises(SubscriptionError, match="2 columns called 'i64'"):
        answers(Subscription(Sample, where=this.i64 > 0), twice)


def test_events_of_another_family_are_refused() -> None:
    with pytest.raises(EventError, match="Stranger is not of Sample's family"):
        arrow.to_batch([Sample(), Stranger()])
    with pytest.raises(EventError, match="int is not of Event's family"):
        arrow.to_batch([3])  # type: ignore[list-item]
    assert arrow.to_batch([Event(), Sample(i8=1)])["i8"].to_pylist() == [None, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"i8": 300},
        {"i64": 2**70},
        {"time": datetime(2024, 1, 1)},
        {"time": 5},
        {"f64": "1"},
        {"text": "\ud800"},
        {"span": timedelta.max},
        {"colour": 3},
        {"flag": 1},
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_attribute(wrong: dict[str, Any]) -> None:
    with pytest.raises(GenusError, match=rf"\(at {next(iter(wrong))}\)$"):
        arrow.to_batch([Sample(**wrong)])


def test_no_events_make_an_empty_batch() -> None:
    assert arrow.to_batch([], Sample).schema == arrow.arrow_schema(Sample)
    assert arrow.to_batch([]).num_rows == 0


def test_explain_names_the_stages_and_the_columns_read() -> None:
    filter_ = arrow.compile(Subscription(Loud, has="place", lacks="spot", where=this.volume * 2 > this.i8))
    assert filter_.explain().splitlines() == [
        "arrow: Loud has place lacks spot where volume * 2.0 > i8",
        "  type: _type in (Loud); names of undeclared types do not match",
        "  attributes: place is valid and spot is null",
        "  contents: volume * 2.0 > i8, on the rows left, by column",
        "  reads: _type, place, i8, spot, volume",
    ]


def test_without_pyarrow_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    spec = importlib.util.spec_from_file_location("arrow_alone", Path(arrow.__file__))
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"pip install .*\[arrow\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
