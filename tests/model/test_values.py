"""Which values an attribute may have: `check`, the encoder and the decoders accept exactly the same."""

import random
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from genus import Event, Int16, Maybe, UInt8, Unit, check
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.errors import DeclarationError, EventError
from genus.model import name_of
from genus.model._read_back import is_same
from genus.testing._generators import declare
from genus.testing._wild_values import ANNOTATIONS, WILD, Rank, wild_event, wild_type

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
    ("level", np.float32(1.5), False),
    ("count", np.int64(1), False),
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


def test_a_number_of_numpy_is_named_with_what_to_do() -> None:
    with pytest.raises(EventError, match=r"Meter\.count is np\.int64\(3\), but must be int64; convert it by int\("):
        check(Meter(count=np.int64(3)))  # type: ignore[arg-type]


def test_bounds_are_in_the_message() -> None:
    with pytest.raises(EventError, match=r"Meter\.percent is -1, but must be int64, Meta\(ge=0\)"):
        check(Meter(percent=-1))


def test_a_pandas_time_passes_only_if_it_has_no_nanoseconds() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert agree(Meter(time=pandas.Timestamp("2026-01-01T00:00:00.000001Z")))
    assert not agree(Meter(time=pandas.Timestamp("2026-01-01T00:00:00.000000001Z")))


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
        ({"percent": 2**63}, "not a Meter: Meter.percent must be int64, Meta(ge=0)"),
        (
            {"time": "0001-01-01T00:00:00+05:00"},
            "not a Meter: Meter.time must be a datetime with a time zone, in years",
        ),
    ):
        found = decoder.decode(PACK([name_of(Meter), 0, body]))
        assert isinstance(found, Rejected)
        assert found.reason.startswith(reason)
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
