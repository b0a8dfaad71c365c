"""Events from text and JSON, as the command line takes them, and values of other formats for classes."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest

from genus import Event, Maybe, Renamed, UInt8, Unit
from genus.bus import parse_event
from genus.bus._attribute_map import MapReader, UnreadValues, in_unit, plain_unread, unwrap_map, value_at
from genus.errors import EventError
from genus.model import attributes

PACK = msgspec.msgpack.encode


class Mode(Enum):
    OFF = "off"
    EXTREME = "extreme"


class Gear(Enum):
    REVERSE = -1
    FIRST = 1


class Machine(Event):
    number: int = 0
    small: Maybe[UInt8] = None
    speed: Maybe[Annotated[float, Unit("km/h")]] = None
    mode: Maybe[Mode] = None
    gear: Maybe[Gear] = None
    since: Maybe[timedelta] = None
    load: Maybe[bytes] = None
    until: Annotated[Maybe[datetime], Renamed("end")] = None


VALUES: list[tuple[str, Any, object]] = [
    ("number", "7", 7),
    ("small", 255, 255),
    ("speed", "1.5", 1.5),
    ("mode", "off", Mode.OFF),
    ("gear", "-1", Gear.REVERSE),
    ("gear", 1, Gear.FIRST),
    ("mode", None, None),
    ("load", "AQI=", b"\x01\x02"),
    ("until", "2026-11-15T10:00:00Z", datetime(2026, 11, 15, 10, tzinfo=UTC)),
    ("since", "7us", timedelta(microseconds=7)),
    ("since", "-1.5ms", timedelta(microseconds=-1500)),
    ("since", "2s", timedelta(seconds=2)),
    ("since", "2min", timedelta(minutes=2)),
    ("since", "2h", timedelta(hours=2)),
    ("since", "2d", timedelta(days=2)),
]


@pytest.mark.parametrize(("name", "given", "value"), VALUES)
def test_values_are_written_as_text_or_as_json_has_them(name: str, given: Any, value: object) -> None:
    assert getattr(parse_event(Machine, {name: given}), name) == value


def test_the_present_time_is_written_now() -> None:
    before = datetime.now(UTC)
    event = parse_event(Machine, {"until": "now"})
    assert event.until is not None
    assert before <= event.until <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sped": 1}, "Machine has no attribute sped; did you mean .speed.\\? it has time, source"),
        ({"b": 1, "a": 1}, "Machine has no attribute a, b; it has"),
        ({"mode": "of"}, "not a Machine: mode cannot be 'of'; did you mean .off.\\? it is one of 'off', 'extreme'"),
        ({"gear": 2}, "not a Machine: gear cannot be 2; .*it is one of -1, 1"),
        ({"until": "today"}, "not a Machine: 'today' is not a time: write it like 2026-11-15T10:00:00Z, or now"),
        ({"until": 7}, "not a Machine: 7 is not a time"),
        ({"number": "high"}, "not a Machine: number: Expected `int`, got `str`"),
        ({"small": 256}, "not a Machine: .*small"),
        ({"since": "2 weeks"}, "not a Machine: since: "),
        ({"since": "2sx"}, "not a Machine: since: "),
    ],
)
def test_what_an_event_cannot_have_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError, match=message):
        parse_event(Machine, given)


# -- other formats -----------------------------------------------------------------------------------------------------


def reader(**units: str) -> MapReader:
    return MapReader(Machine, UnreadValues(), units)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("mode", "off", Mode.OFF),
        ("until", "2026-11-15T10:00:00Z", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ("end", "2026-11-15T10:00:00Z", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ("mode", "other", "other"),
        ("strange", "off", "off"),
    ],
)
def test_a_value_of_json_is_as_the_attribute_has_it_if_it_can_be(name: str, given: Any, value: object) -> None:
    assert reader().plain(name, given) == value


def test_values_of_other_units_are_converted_and_others_stay() -> None:
    event = Machine(number=3, speed=10.0)
    assert reader(speed="m/s").convert(event) == Machine(number=3, speed=36.0)
    assert reader(speed="km/h").convert(event) is event
    assert reader(speed="m/s").convert(absent := Machine(number=3)) is absent
    assert reader(strange="m/s").convert(event) is event
    with pytest.raises(EventError, match=r"Machine\.speed is in km/h, but"):
        reader(speed="kg").convert(event)


def test_a_class_converts_if_a_unit_differs_and_knows_what_it_renamed() -> None:
    assert reader(speed="m/s").converts
    assert not reader(speed="km/h").converts
    assert reader().renames == {"until"}


def test_values_that_were_kept_with_their_unit_or_number_are_unwrapped() -> None:
    """Of attributes that are known; None if nothing was to do."""
    known = {each.name: each for each in attributes(Machine)}
    fields = {
        "number": msgspec.Raw(PACK(7)),
        "speed": in_unit(msgspec.Raw(PACK(10.0)), "m/s"),
        "strange": in_unit(msgspec.Raw(PACK(1.0)), "m/s"),
    }
    body = unwrap_map("Machine", known, PACK(fields))
    assert body is not None
    read = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw])
    assert bytes(read["number"]) == PACK(7)
    assert bytes(read["speed"]) == PACK(36.0)
    assert bytes(read["strange"]) == bytes(fields["strange"])
    assert unwrap_map("Machine", known, PACK({"number": 7, "strange": fields["strange"]})) is None


def test_a_value_of_an_enumeration_has_its_number() -> None:
    known = {each.name: each for each in attributes(Machine)}
    assert bytes(value_at(["off", "extreme"], 1)) == PACK("extreme")
    for number, text in ((0, "off"), (1, "extreme")):
        wrapped = value_at([], number)
        body = unwrap_map("Machine", known, PACK({"mode": wrapped}))
        assert body == PACK({"mode": text})
    kept = value_at(["off", "extreme"], 2)
    assert unwrap_map("Machine", known, PACK({"mode": kept})) == PACK({"mode": kept})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", "7"), ("small", "7"), ("speed", "fast"), ("mode", 1), ("gear", "first"), ("load", "text"),
        ("load", 7), ("place", 7), ("since", 7.5), ("until", 7),
    ],
)  # fmt: skip
def test_a_value_of_another_sort_is_refused_and_not_left_out(name: str, value: object) -> None:
    """A newer declaration allows more values of the sort, never another sort."""
    with pytest.raises(msgspec.ValidationError, match=name):
        reader().decode(PACK({name: value}))


@pytest.mark.parametrize(("name", "value"), [("small", 256), ("number", 1 << 63), ("mode", "fast"), ("gear", 2)])
def test_a_value_that_a_newer_declaration_may_allow_is_left_out(name: str, value: object) -> None:
    event = reader().decode(PACK({name: value, "place": "A8"}))
    assert (getattr(event, name), event.place) == (None, "A8")
    assert plain_unread(event) == {name: value}


def test_what_is_kept_with_its_unit_or_number_has_no_plain_value() -> None:
    """Other formats than msgpack cannot say these."""
    kept = {"strange": in_unit(msgspec.Raw(PACK(1.0)), "m/s"), "mode": value_at([], 7), "more": msgspec.Raw(PACK(7))}
    assert plain_unread(reader().decode(PACK(kept))) == {"more": 7}
