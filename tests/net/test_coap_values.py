"""Events as CBOR: one meaning for every attribute type, and nothing wrong is read."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from math import inf, nan
from random import Random
from typing import Annotated, Any

import msgspec
import pytest

from genus import Event, Maybe
from genus.bus._attribute_map import UnreadValues
from genus.catalog import Catalog
from genus.errors import EventError
from genus.model import Float32, Int8, UInt32
from genus.model._plain import is_same
from genus.net._coap.values import EventReader, EventWriter, Unreadable, join_pairs, read_body, read_cbor, write_cbor
from tests import generators
from tests.generators import Generator, declare


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 10
    HIGH = 20


class Part(msgspec.Struct):
    name: str
    at: datetime


class CoapEverything(Event):
    flag: Maybe[bool] = None
    tiny: Maybe[Int8] = None
    count: Maybe[UInt32] = None
    number: Maybe[int] = None
    single: Maybe[Float32] = None
    real: Maybe[float] = None
    text: Maybe[str] = None
    blob: Maybe[bytes] = None
    moment: Maybe[datetime] = None
    span: Maybe[timedelta] = None
    colour: Maybe[Colour] = None
    level: Maybe[Level] = None
    part: Maybe[Part] = None
    parts: Maybe[list[int]] = None
    bounded: Maybe[Annotated[int, msgspec.Meta(ge=0, le=9)]] = None


CATALOG = Catalog()
CATALOG.register(CoapEverything, generators)
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)
FIRST = 5
"""The number of the first attribute after those that every event has."""

GOLDEN = [
    (CoapEverything(flag=True), {FIRST: True}),
    (CoapEverything(tiny=-128), {FIRST + 1: -128}),
    (CoapEverything(count=4_000_000_000), {FIRST + 2: 4_000_000_000}),
    (CoapEverything(number=-(1 << 63)), {FIRST + 3: -(1 << 63)}),
    (CoapEverything(single=0.5), {FIRST + 4: 0.5}),
    (CoapEverything(real=0.1), {FIRST + 5: 0.1}),
    (CoapEverything(text="é"), {FIRST + 6: "é"}),
    (CoapEverything(blob=b"\x00"), {FIRST + 7: b"\x00"}),
    (CoapEverything(moment=MOMENT), {FIRST + 8: 1_772_366_400_000_250}),
    (CoapEverything(span=timedelta(seconds=-1)), {FIRST + 9: -1_000_000}),
    (CoapEverything(colour=Colour.BLUE), {FIRST + 10: 1}),
    (CoapEverything(level=Level.LOW), {FIRST + 11: 0}),
    (CoapEverything(parts=[1, 2]), {FIRST + 13: b"\x92\x01\x02"}),
    (CoapEverything(time=MOMENT, source="s", place="p"), {0: 1_772_366_400_000_250, 1: "s", 2: "p"}),
]


def writer() -> EventWriter:
    return EventWriter(CoapEverything, CATALOG)


def reader(unread: UnreadValues | None = None) -> EventReader:
    return EventReader(CoapEverything, CATALOG, UnreadValues() if unread is None else unread)


@pytest.mark.parametrize(("event", "values"), GOLDEN)
def test_every_attribute_type_has_one_form(event: CoapEverything, values: dict[int, object]) -> None:
    tag, written = writer().write(event)
    assert read_cbor(written) == values
    assert written == write_cbor(values)
    assert tag == CATALOG.tag(event) == sum(1 << number for number in values)
    assert reader().read(values) == event


def test_floats_are_as_short_as_they_are_exact() -> None:
    sizes = {1.5: "f93e00", 1e5: "fa47c35000", 0.1: "fb3fb999999999999a", inf: "f97c00", -inf: "f9fc00"}
    for value, form in sizes.items():
        assert writer().write(CoapEverything(real=value))[1].hex() == "a10a" + form
    assert writer().write(CoapEverything(real=nan))[1].hex() == "a10af97e00"
    assert is_same(reader().read({10: nan}), CoapEverything(real=nan))


def test_an_opaque_value_keeps_times_and_names() -> None:
    event = CoapEverything(part=Part("x", MOMENT))
    assert reader().read(read_cbor(writer().write(event)[1])) == event


@pytest.mark.parametrize("seed", range(10))
def test_random_events_are_read_as_they_were_written(seed: int) -> None:
    unread = UnreadValues()
    for event in Generator(seed).events(40):
        tag, written = EventWriter(type(event), CATALOG).write(event)
        back = EventReader(type(event), CATALOG, unread).read(read_cbor(written))
        assert is_same(event, back)
        assert tag == CATALOG.tag(event)
    assert not unread


WRONG = [
    {5: 1},
    {6: 1.5},
    {6: True},
    {8: "1"},
    {10: "1"},
    {10: True},
    {11: b"x"},
    {12: "x"},
    {13: 1.5},
    {13: MOMENT},
    {15: -1},
    {15: "blue"},
    {17: b"\xc1"},
    {17: b"\x01\x02"},
    {17: [1]},
    {"flag": True},
    {-1: True},
    {True: True},
    {5: None},
    {1.5: 1},
]


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_what_is_no_value_of_its_attribute_is_refused(values: dict[object, object]) -> None:
    found = reader().read(values)
    if values == {5: None}:
        assert found == Unreadable("not a CoapEverything: flag is no bool")
    else:
        assert isinstance(found, Unreadable)
        assert found.reason


WIDER = [{6: 128}, {7: -1}, {8: 1 << 63}, {18: b"\x91\xa1x"}, {19: 10}]
UNKNOWN = [{8: 1 << 80}, {10: 1 << 80}, {13: 1 << 62}, {14: 1 << 80}, {15: 2}, {77: "new"}, {77: [1, {2: 3}]}]
"""Values that the catalog itself has no form for."""


@pytest.mark.parametrize("values", [*WIDER, *UNKNOWN], ids=str)
def test_a_value_of_a_wider_declaration_is_absent_and_counted(values: dict[int, object]) -> None:
    unread = UnreadValues()
    found = reader(unread).read({5: True, **values})
    assert found == CoapEverything(flag=True)
    assert unread.total() == 1
    assert isinstance(found, CoapEverything)
    assert set(read_cbor(writer().write(found)[1])) == {5, *({} if values in UNKNOWN else values)}


def test_an_event_whose_values_cannot_be_read_here_is_passed_on_as_it_came() -> None:
    """A server with an older class gives its clients what newer ones have sent."""

    class NewColour(Enum):
        RED = "red"
        BLUE = "blue"
        GREEN = "green"

    kept = {"colour": NewColour, "moment": datetime, "span": timedelta, "parts": list[int], "real": float}
    fields: dict[str, Any] = {"tiny": Int8, **kept}
    newer: Any = declare("CoapGrown", Event, {name: type_ | None for name, type_ in fields.items()})
    older: Any = declare("CoapGrown", Event, {"tiny": Int8 | None, "colour": Colour | None})
    catalog = Catalog()
    catalog.register(newer)
    sent = newer(tiny=5, colour=NewColour.GREEN, moment=MOMENT, span=timedelta(seconds=2), parts=[1, 2], real=0.5)
    tag, written = EventWriter(newer, catalog).write(sent)
    unread = UnreadValues()
    between = EventReader(older, catalog, unread).read(read_cbor(written))
    assert between == older(tiny=5)
    assert set(unread) == {f"CoapGrown.{name}" for name in kept}
    assert isinstance(between, Event)
    assert EventWriter(older, catalog).write(between) == (tag, written)


def test_the_names_of_values_that_are_not_read_are_bounded() -> None:
    unread = UnreadValues()
    assert reader(unread).read(dict.fromkeys(range(20, 70_000), 1)) == CoapEverything()
    assert len(unread) < 1000
    assert unread.total() == 70_000 - 20


def test_numbers_from_the_future_are_left_out_and_counted() -> None:
    unread = UnreadValues()
    assert reader(unread).read({5: True, 77: "new"}) == CoapEverything(flag=True)
    assert dict(unread) == {"CoapEverything.unknown attributes": 1}
    assert "number 77" in unread.reasons["CoapEverything.unknown attributes"]


def test_a_value_that_cannot_be_read_back_is_refused_before_it_is_sent() -> None:
    wrong: object = "x"
    with pytest.raises(EventError, match=r"CoapEverything\.number is 'x'"):
        writer().write(CoapEverything(number=wrong))  # type: ignore[arg-type]


def test_every_truncation_of_a_body_is_refused() -> None:
    event = CoapEverything(text="abc", real=0.1, moment=MOMENT, parts=[1, 2, 3])
    single = writer().write(event)[1]
    for whole in (single, join_pairs([(12, single)] * 3)):
        for length in range(len(whole)):
            assert isinstance(read_body(1, whole[:length]), Unreadable)
        assert isinstance(read_body(1, whole + b"\x00"), Unreadable)


def test_damaged_bodies_are_read_or_refused() -> None:
    random = Random(3)
    read = reader()
    whole = writer().write(CoapEverything(text="abc", real=0.1, moment=MOMENT, parts=[1], colour=Colour.RED))[1]
    for _ in range(5000):
        data = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] = random.randrange(256)
        found = read_body(1, bytes(data))
        if isinstance(found, dict):
            assert isinstance(read.read(found), CoapEverything | Unreadable)
