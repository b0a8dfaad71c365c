"""Recordings and packets of one class, read by a class that is newer or older: names, missing attributes and units."""

import logging
import math
import struct
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Renamed, Unit, read_recording, replay
from genus.bus import RecordingWriter
from genus.bus._codec import EventDecoder, Recorded, Rejected, UnitsStated, encode_event
from genus.model._units import _UNITS, unit_conversion

from ..examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BIG = 1 << 63


def loop(**notes: Any) -> Any:
    metaclass: Any = type(Event)
    return metaclass("Loop", (Event,), {"__annotations__": {"lane": int, **notes}, "__module__": __name__})


def unit(symbol: str, type_: Any = float, *former: str) -> Any:
    found = Annotated[type_, Unit(symbol)]
    return (Annotated[found, Renamed(*former)] if former else found) | None


def write(path: Path, *events: Event) -> Path:
    with RecordingWriter(path) as recording:
        for at_us, event in enumerate(events):
            recording.write(event, at_us)
    return path


def decoded(cls: type, *events: Event) -> tuple[list[Event], EventDecoder]:
    decoder = EventDecoder([cls])
    found = [decoder.decode(encode_event(event, 0)) for event in events]
    return [each.event for each in found if isinstance(each, Recorded)], decoder


OLD = loop(speed=float | None, category=str | None)
NEW = loop(velocity=Annotated[float, Renamed("v", "speed")] | None, category=str | None)
FORGETFUL = loop(velocity=float | None, category=str | None)


# -- names -------------------------------------------------------------------------------------------------------------


@given(st.integers(-BIG, BIG - 1), st.none() | st.floats(allow_nan=False), st.none() | TEXT, st.none() | TEXT)
@examples(100)
def test_a_former_name_is_read_into_the_attribute(
    lane: int, speed: float | None, category: str | None, place: str | None
) -> None:
    time = datetime(2026, 5, 1, tzinfo=UTC)
    old = OLD(time=time, place=place, lane=lane, speed=speed, category=category)
    new = NEW(time=time, place=place, lane=lane, velocity=speed, category=category)
    (read, again), decoder = decoded(NEW, old, new)
    assert read == again == new
    assert type(read) is NEW
    assert not decoder.unread


def test_new_recordings_have_the_new_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.genus", NEW(lane=1, velocity=3.0))
    assert b"\xa8velocity" in path.read_bytes()
    assert b"\xa5speed" not in path.read_bytes()  # as a name in msgpack; the statement of the type has it as former


def test_the_present_name_goes_first_and_the_other_value_is_counted() -> None:
    packet = msgspec.msgpack.encode(("Loop", 0, {"speed": 1.0, "lane": 2, "velocity": 3.0, "v": None}))
    decoder = EventDecoder([NEW])
    assert decoder.decode(packet) == Recorded(0, NEW(lane=2, velocity=3.0))
    assert dict(decoder.unread) == {"Loop.speed": 1}


def test_a_required_attribute_is_read_by_its_former_name() -> None:
    (read,), _ = decoded(loop(velocity=Annotated[float, Renamed("speed")]), loop(speed=float)(lane=1, speed=2.0))
    assert read.velocity == 2.0  # type: ignore[attr-defined]


def test_a_value_of_another_type_is_refused_with_the_present_name() -> None:
    found = EventDecoder([NEW]).decode(msgspec.msgpack.encode(("Loop", 0, {"lane": 2, "speed": "fast"})))
    assert found == Rejected("not a Loop: Expected `float | null`, got `str` - at `$.velocity`")


# -- values without an attribute ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.none() | st.floats(), st.none() | TEXT), max_size=8))
@examples(50)
def test_values_that_vanish_are_counted(values: list[tuple[float | None, str | None]]) -> None:
    poor = loop()
    events, decoder = decoded(poor, *(OLD(lane=1, speed=speed, category=text) for speed, text in values))
    assert events == [poor(lane=1)] * len(values)
    speeds, texts = (
        (sum(value is not None for value in column) for column in zip(*values, strict=True)) if values else (0, 0)
    )
    assert dict(decoder.unread) == {n: c for n, c in (("Loop.speed", speeds), ("Loop.category", texts)) if c}


def test_they_are_said_with_the_attribute_that_may_have_replaced_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "a.genus", OLD(lane=1, speed=2.0), OLD(lane=1, speed=3.0, category="car"), OLD(lane=2))
    recording, events = read_recording(path, [FORGETFUL]), list[Event]()
    with caplog.at_level(logging.WARNING, "genus.bus"):
        assert replay(recording, events.append) == 3
    assert recording.unread == {"Loop.speed": 2}
    assert not recording.problems
    line = (
        "2 values of Loop.speed were not read: the class has no attribute of that name; "
        "did velocity replace speed? Declare it with Renamed('speed')"
    )
    assert recording.unread.lines() == [line]
    assert caplog.messages == [f"{path}: {line}"]
    assert replay(read_recording(path, [OLD]), events.append) == 3
    assert len(caplog.messages) == 1


HINTS: dict[str, tuple[Any, str]] = {
    "one with such values": (loop(pace=float | None, category=str | None), "did pace replace speed"),
    "one of several by its name": (loop(pace=float | None, top_speed=float | None), "did top_speed replace speed"),
    "none has such values": (loop(pace=str | None), ""),
    "several have": (loop(pace=float | None, rate=float | None), ""),
}


@pytest.mark.parametrize("case", HINTS)
def test_hints(case: str) -> None:
    cls, hint = HINTS[case]
    _, decoder = decoded(cls, OLD(lane=1, speed=2.0))
    reason = decoder.unread.reasons["Loop.speed"]
    assert hint in reason
    assert ("did" in reason) == bool(hint)


def test_an_event_that_lacks_what_replaced_it_is_refused_with_the_hint() -> None:
    found = EventDecoder([loop(velocity=float)]).decode(encode_event(OLD(lane=1, speed=2.0), 0))
    assert isinstance(found, Rejected)
    assert found.reason == (
        "not a Loop: Loop requires lane, velocity, but 'velocity' was not given; "
        "did velocity replace speed? Declare it with Renamed('speed')"
    )


@given(st.binary(max_size=40))
@examples(100)
def test_a_map_of_any_bytes_never_raises(noise: bytes) -> None:
    body = msgspec.Raw(b"\x82\xa5speed" + noise)
    for name in ("Loop", "units of Loop"):
        EventDecoder([NEW]).decode(msgspec.msgpack.encode((name, 0, body)))


# -- units -------------------------------------------------------------------------------------------------------------


@given(st.floats(allow_nan=False))
@examples(100)
def test_values_are_converted_to_the_unit_of_the_class(speed: float) -> None:
    """A recording states its units; float64 arithmetic in the written order."""
    before = EventDecoder([loop(speed=unit("m/s"))])
    units = msgspec.msgpack.encode(("units of Loop", 0, {"speed": "km/h"}))
    assert before.decode(units) == UnitsStated("Loop", {"speed": "km/h"})
    found = before.decode(encode_event(loop(speed=unit("km/h"))(lane=1, speed=speed), 0))
    assert isinstance(found, Recorded)
    assert bits(found.event.speed) == bits(speed * 5 / 18)  # type: ignore[attr-defined]


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_a_recording_of_one_unit_is_read_by_a_class_with_another(tmp_path: Path) -> None:
    kmh, ms = loop(speed=unit("km/h")), loop(speed=unit("m/s"))
    path = write(tmp_path / "a.genus", kmh(lane=1, speed=36.0), kmh(lane=2), kmh(lane=3, speed=90.0))
    assert [each.event for each in read_recording(path, [ms])] == [
        ms(lane=1, speed=10.0),
        ms(lane=2),
        ms(lane=3, speed=25.0),
    ]
    assert [each.event.speed for each in read_recording(path, [kmh])] == [36.0, None, 90.0]  # type: ignore[attr-defined]
    undeclared = loop(speed=float | None)
    assert [each.event.speed for each in read_recording(path, [undeclared])] == [36.0, None, 90.0]  # type: ignore[attr-defined]


def test_units_of_a_renamed_attribute(tmp_path: Path) -> None:
    path = write(tmp_path / "a.genus", loop(speed=unit("km/h"))(lane=1, speed=36.0))
    ms = loop(velocity=unit("m/s", float, "speed"))
    assert [each.event for each in read_recording(path, [ms])] == [ms(lane=1, velocity=10.0)]


def test_each_part_of_an_appended_recording_has_its_own_units(tmp_path: Path) -> None:
    kmh, ms = loop(speed=unit("km/h")), loop(speed=unit("m/s"))
    path = write(tmp_path / "a.genus", kmh(lane=1, speed=36.0))
    with RecordingWriter(path, append=True) as recording:
        recording.write(ms(lane=2, speed=10.0), 5)
    assert [each.event.speed for each in read_recording(path, [ms])] == [10.0, 10.0]  # type: ignore[attr-defined]
    assert [each.event.speed for each in read_recording(path, [kmh])] == [36.0, 36.0]  # type: ignore[attr-defined]


def test_a_type_without_units_is_written_as_before(tmp_path: Path) -> None:
    assert b"units of" not in write(tmp_path / "a.genus", OLD(lane=1, speed=2.0)).read_bytes()


UNSOUND: dict[str, tuple[Any, Any, str]] = {
    "another dimension": (
        unit("kg"),
        3.0,
        "Loop.speed is in kg, but values in km/h cannot be converted to kg: speed is no mass",
    ),
    "a unit that is not known": (unit("furlong/h"), 3.0, "Genus does not know the unit 'furlong/h'"),
    "integers by a fraction": (
        unit("m/s", int),
        3,
        "its values, of type int64, are not converted from km/h; declare it as float",
    ),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_refused_where_conversion_would_be_wrong(case: str, tmp_path: Path) -> None:
    note, value, reason = UNSOUND[case]
    old, new = loop(speed=unit("km/h", type(value))), loop(speed=note)
    recording = read_recording(write(tmp_path / "a.genus", old(lane=1, speed=value), old(lane=2)), [new])
    assert [each.event for each in recording] == [new(lane=2)]
    assert [reason in each for each in recording.problems] == [True]


def test_integers_are_converted_by_whole_factors_exactly(tmp_path: Path) -> None:
    old, new = loop(length=unit("km", int)), loop(length=unit("m", int))
    path = write(tmp_path / "a.genus", old(lane=1, length=2**53 + 1), old(lane=2, length=2**60))
    recording = read_recording(path, [new])
    assert [each.event.length for each in recording] == [(2**53 + 1) * 1000]  # type: ignore[attr-defined]
    assert recording.problems.total() == 1


@given(st.sampled_from(sorted(_UNITS)), st.sampled_from(sorted(_UNITS)), st.floats(-1e6, 1e6))
@examples(300)
def test_every_conversion_is_right_to_a_few_bits(old: str, new: str, value: float) -> None:
    """Against exact arithmetic; its constants are exact in float64, but for offsets."""
    conversion = unit_conversion(old, new)
    first, second = _UNITS[old], _UNITS[new]
    assert (conversion is None) == (first.dimension != second.dimension)
    if conversion is not None:
        exact = (Fraction(value) + first.offset) * first.scale / second.scale - second.offset
        scale = max(
            abs(exact), abs(Fraction(value) * first.scale / second.scale), abs(second.offset), abs(first.offset)
        )
        assert abs(Fraction(conversion.convert(value)) - exact) <= 4 * scale * Fraction(math.ulp(1.0)) + Fraction(
            5e-324
        )
        assert Fraction(conversion.numerator) / Fraction(conversion.denominator) == first.scale / second.scale
        assert 0.0 in (conversion.before, conversion.after)


def test_known_conversions() -> None:
    known = [
        ("°F", "°C", 212.0, 100.0),
        ("°C", "°F", 100.0, 212.0),
        ("K", "°C", 273.15, 0.0),
        ("psi", "Pa", 1.0, 6894.757293168362),
    ]
    known += [
        ("mph", "km/h", 100.0, 160.9344),
        ("kn", "m/s", 900.0, 463.0),
        ("deg", "rad", 180.0, math.pi),
        ("%", "1", 50.0, 0.5),
    ]
    for old, new, value, expected in known:
        conversion = unit_conversion(old, new)
        assert conversion is not None
        assert conversion.convert(value) == expected, (old, new)


@pytest.mark.parametrize("reader", ["km/h", "m/s"])
def test_classes_of_one_name_with_other_units_are_told_apart_in_one_recording(tmp_path: Path, reader: str) -> None:
    """Also one without units, and one that a later session writes."""
    kmh, ms, bare = loop(speed=unit("km/h")), loop(speed=unit("m/s")), loop(speed=float | None)
    path = write(tmp_path / "a.genus", kmh(lane=1, speed=36.0), ms(lane=2, speed=10.0), kmh(lane=3, speed=36.0))
    with RecordingWriter(path, append=True) as recording:
        recording.write(bare(lane=4, speed=7.0), 9)
    found = [each.event for each in read_recording(path, [kmh if reader == "km/h" else ms])]
    speed = 36.0 if reader == "km/h" else 10.0
    assert [event.speed for event in found] == [speed, speed, speed, 7.0]  # type: ignore[attr-defined]
