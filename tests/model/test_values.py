"""Which values an attribute may have: `check`, the encoder and the decoders accept exactly the same."""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from genus import Catalog, Event, Int16, Maybe, UInt8, Unit, check, this
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.can._wire.payload import PayloadCodec
from genus.errors import DeclarationError, EventError, SubscriptionError
from genus.model import attributes, name_of, subtypes
from genus.model._plain import is_same
from genus.model.types import BoolType, DurationType, FloatType, IntType, TimeType
from genus.net._coap.values import EventWriter
from genus.net._link.messages import encode_payload
from genus.records import Mapping, RecordWriter
from genus.testing._generator import pool
from tests.generators import Sampler, Stranger, declare
from tests.wild_values import ANNOTATIONS, WILD, Rank, wild_event, wild_type

from ..scalars import scalars

PACK = msgspec.msgpack.encode


class Meter(Event):
    count: Maybe[int] = None
    level: Maybe[float] = None
    name: Maybe[str] = None
    raw: Maybe[bytes] = None
    since: Maybe[timedelta] = None
    percent: Maybe[Annotated[int, msgspec.Meta(ge=0)]] = None


def passes(event: Event) -> bool:
    try:
        check(event)
    except EventError:
        return False
    return True


def encoded(event: Event) -> bytes | None:
    try:
        return encode_event(event, 0)
    except EventError:
        return None


def is_read_back(event: Event, packet: bytes) -> bool:
    found = EventDecoder([type(event)]).decode(packet)
    return isinstance(found, Recorded) and is_same(event, found.event)


def agree(event: Event) -> bool:
    """Whether an event passes; the law is that it passes if and only if it can be written and read back."""
    packet = encoded(event)
    assert passes(event) == (packet is not None), event
    assert packet is None or is_read_back(event, packet), event
    return packet is not None


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 20))])
def test_what_passes_is_what_can_be_written_and_read_back(block: int) -> None:
    """Random types with random values, good and bad."""
    chance = random.Random(block)
    passed = [agree(wild_event(chance, cls)) for cls in (wild_type(chance) for _ in range(60)) for _ in range(40)]
    assert len(passed) // 10 < sum(passed) < len(passed) * 9 // 10


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_every_value_in_an_attribute_of_every_type(annotation: Any) -> None:
    cls: Any = declare("Single", Event, {"value": annotation})
    passed = [agree(cls(value=value)) for value in WILD]
    assert any(passed)
    assert not all(passed)


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_what_a_decoder_accepts_passes(annotation: Any) -> None:
    """Any body in msgpack or JSON: an event that passes, or a reason."""
    cls = declare("Single", Event, {"value": annotation})
    decoder = EventDecoder([cls])
    texts = ["P200000000D", "-P106751992D", "PT1S", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-01:00"]
    texts += ["2026-06-01T12:00:00", "2026-06-01T12:00:00.5Z", "10000-01-01T00:00:00Z"]
    bodies = [packed for value in (*WILD, *texts) if (packed := pack(value)) is not None]
    found = [decoder.decode(PACK(["Single", 0, {"value": msgspec.Raw(body)}])) for body in bodies]
    for one in found:
        assert isinstance(one, Rejected) or (isinstance(one, Recorded) and agree(one.event))
    assert {type(one) for one in found} == {Recorded, Rejected}


def pack(value: Any) -> bytes | None:
    try:
        return PACK(value)
    except Exception:
        return None


CASES: list[tuple[str, Any, bool]] = [
    ("level", 30, True),
    ("level", 2**63 - 1, True),
    ("level", 10**30, False),
    ("level", True, False),
    ("level", np.float64(1.5), True),
    ("level", np.float32(1.5), True),
    ("count", np.int64(1), True),
    ("count", np.uint64(2**63), False),
    ("count", np.float64(1), False),
    ("count", np.bool_(True), False),
    ("count", np.array([1]), False),
    ("level", np.longdouble(1.5), False),
    ("level", np.complex64(1), False),
    ("since", np.timedelta64(1, "s"), True),
    ("since", np.timedelta64(1500, "ns"), False),
    ("since", np.timedelta64("NaT"), False),
    ("since", np.timedelta64(1, "M"), False),
    ("since", np.timedelta64(2**62, "s"), False),
    ("since", np.timedelta64(1), False),
    ("since", pd.Timedelta("1s"), True),
    ("since", pd.Timedelta("1ns"), False),
    ("time", np.datetime64("2026-01-01"), False),
    ("time", pd.Timestamp("2026-01-01T00:00:00.000001Z"), True),
    ("time", pd.Timestamp("2026-01-01T00:00:00.000000001Z"), False),
    ("time", pd.Timestamp("2026-01-01"), False),
    ("time", pd.NaT, False),
    ("since", pd.NaT, False),
    ("name", pd.NA, False),
    ("count", Rank.FIRST, True),
    ("count", True, False),
    ("count", 2**63, False),
    ("percent", 2**63, False),
    ("percent", -1, False),
    ("name", np.str_("x"), True),
    ("name", "\ud800", False),
    ("raw", np.bytes_(b"x"), True),
    ("raw", bytearray(b"x"), False),
    ("since", timedelta.max, False),
    ("time", datetime(2026, 1, 1), False),
    ("time", datetime(2026, 1, 1, tzinfo=UTC), True),
]


@pytest.mark.parametrize(("name", "value", "good"), CASES)
def test_the_values_that_the_page_names(name: str, value: Any, good: bool) -> None:
    assert agree(Meter(**{name: value})) is good


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("since", np.timedelta64(1500, "ns"), "write whole microseconds"),
        ("time", pd.NaT, "NaT is no value: leave out an attribute that is absent, or give None"),
        ("time", np.datetime64("2026-01-01"), "it has no time zone: write pandas.Timestamp(value, tz='UTC')"),
        ("count", np.array([1, 2]), "write one element of it"),
    ],
)
def test_a_value_of_numpy_or_pandas_that_does_not_fit_has_advice(name: str, value: Any, advice: str) -> None:
    with pytest.raises(EventError, match=rf"Meter\.{name} is .*; {re.escape(advice)}$"):
        check(Meter(**{name: value}))


class Celsius(float):
    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = float.__hash__


@pytest.mark.parametrize("cls", [*subtypes(Sampler), Stranger])
def test_a_constructor_makes_values_of_numpy_and_pandas_plain(cls: Any) -> None:
    """The value is equal and of the built-in class, also one of a subclass; so the event equals one with the value."""
    required = {each.name: pool(each.type)[0] for each in attributes(cls) if not each.optional}
    assert type(Meter(level=Celsius(1.5)).level) is float
    for attribute in attributes(cls):
        for value in pool(attribute.type):
            for scalar in scalars(value):
                made = cls(**required | {attribute.name: scalar})
                assert made == cls(**required | {attribute.name: value})
                assert type(getattr(made, attribute.name)) is type(value)


CATALOG = Catalog()
CATALOG.register(Sampler)
PAYLOADS = PayloadCodec.of(Sampler, CATALOG.vector(Sampler))
WRITERS: dict[str, Callable[[Any], object]] = {
    "packet": lambda event: encode_event(event, 0),
    "payload": encode_payload,
    "record": RecordWriter(Mapping(), Sampler).write,
    "coap": EventWriter(Sampler, CATALOG).write,
    "can": lambda event: PAYLOADS.encode(event, 0),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_values_that_were_not_made_plain_are_written_as_the_plain_ones(writer: str) -> None:
    """As in an event that `msgspec.structs.replace` made."""
    write = WRITERS[writer]
    for attribute in attributes(Sampler):
        for value in pool(attribute.type):
            for scalar in scalars(value):
                foreign = msgspec.structs.replace(Sampler(), **{attribute.name: scalar})
                assert write(foreign) == write(Sampler(**{attribute.name: value}))


@pytest.mark.parametrize("type_", [BoolType(), IntType(), FloatType(), DurationType(), TimeType()], ids=str)
def test_constants_of_numpy_and_pandas_are_plain_too(type_: Any) -> None:
    for value, scalar in [(one, scalar) for one in pool(type_) for scalar in scalars(one)]:
        assert (this.x == scalar) == (this.x == value)
        assert this.x.isin([scalar]) == this.x.isin([value])
        assert str(scalar == this.x) == str(this.x == value)
        assert str(scalar > this.x) == str(this.x < value)


def test_options_may_be_an_array() -> None:
    assert this.x.isin(np.array([1, 2])) == this.x.isin([1, 2])


@pytest.mark.parametrize("value", [pd.NaT, np.datetime64("2026-01-01"), np.array([1, 2]), pd.Timestamp(1, tz="UTC")])
def test_constants_without_a_plain_form_are_refused(value: Any) -> None:
    with pytest.raises(SubscriptionError, match="which no attribute can be compared with; "):
        _ = this.time == value


def test_bounds_are_in_the_message() -> None:
    with pytest.raises(EventError, match=r"Meter\.percent is -1, but must be int64, Meta\(ge=0\)"):
        check(Meter(percent=-1))


@pytest.mark.parametrize(
    ("annotation", "value", "good"),
    [
        (list[int], {1}, False),
        (list[int], (1,), False),
        (list[int], [1], True),
        (list[int], [1.0], False),
        (list[int], [np.int64(1)], True),
        (set[int], frozenset({1}), False),
        (set[int], {1}, True),
        (set[int], [1], False),
        (list[bytes], [bytearray(b"x")], False),
        (dict[str, list[float]], {"a": [1, 2.5]}, True),
        (dict[str, list[float]], {"a": {1.5}}, False),
    ],
)
def test_opaque_values_are_read_back_as_the_same_kind(annotation: Any, value: Any, good: bool) -> None:
    cls: Any = declare("Single", Event, {"value": annotation})
    assert agree(cls(value=value)) is good


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(EventError) as caught:
        check(Meter(count="x" * 10_000))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [2**63, "\ud800"])
def test_an_enum_with_a_value_that_cannot_be_written_is_refused(value: Any) -> None:
    members: Any = Enum("Members", {"ONE": value})  # type: ignore[misc]
    with pytest.raises(DeclarationError, match=r"Wrong\.value is the Enum Members with the value"):
        declare("Wrong", Event, {"value": members})


def test_decoders_name_the_attribute_and_what_it_must_be() -> None:
    decoder = EventDecoder([Meter])
    for body, reason in (
        ({"since": "P200000000D"}, "not a Meter: Meter.since must be a timedelta of 64 bits of microseconds"),
        (
            {"time": "0001-01-01T00:00:00+05:00"},
            "not a Meter: Meter.time must be a datetime with a time zone, in years",
        ),
    ):
        found = decoder.decode(PACK([name_of(Meter), 0, body]))
        assert isinstance(found, Rejected)
        assert found.reason.startswith(reason)
    assert decoder.decode(PACK([name_of(Meter), 0, {"percent": 2**63}])) == Recorded(0, Meter())
    assert decoder.unread.reasons == {f"{name_of(Meter)}.percent": "Meter.percent must be int64, Meta(ge=0)"}
    assert decoder.decode(PACK(["Meter", 2**60, {}])) == Rejected("not a packet")


def test_a_sized_integer_may_have_narrower_bounds() -> None:
    """Bounds of the width and of the annotation count together; msgspec alone refuses several of them."""

    class Gauge(Event):
        percent: Annotated[UInt8, msgspec.Meta(le=100)]
        level: Maybe[Annotated[Int16, msgspec.Meta(gt=-3, multiple_of=2), Unit("m")]] = None
        step: Maybe[Annotated[UInt8, msgspec.Meta(multiple_of=4), msgspec.Meta(multiple_of=6)]] = None

    for good in (Gauge(percent=0, step=24), Gauge(percent=100, level=-2), Gauge(percent=1, level=32766)):
        check(good)
        assert msgspec.json.decode(msgspec.json.encode(good), type=Gauge) == good
    wrong_levels = (Gauge(percent=1, level=-4), Gauge(percent=1, level=3))
    wrong_steps = (Gauge(percent=1, step=4), Gauge(percent=1, step=6))
    for wrong in (Gauge(percent=101), Gauge(percent=-1), *wrong_levels, *wrong_steps):
        with pytest.raises(EventError, match=r"Gauge\.(percent|level|step) is"):
            check(wrong)
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode(wrong), type=Gauge)
