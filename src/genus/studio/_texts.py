"""Values as texts and numbers that a page can show: exact, short, and with nothing that JSON cannot carry."""

import json
import math
import struct
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import islice
from reprlib import Repr
from typing import Any

import msgspec

from genus.model import Event, attributes, micros_of_time
from genus.model.types import FloatType

MAX_LENGTH = 200
"""Longest text of a value, in characters."""

_FLOAT32 = struct.Struct("<f")
_encode = msgspec.json.Encoder().encode
_short = Repr()
_short.maxlong = _short.maxstring = _short.maxother = 2 * MAX_LENGTH


def value_text(value: object) -> str:
    """Return a value as a person would write it, and not as Python would; long ones are cut.

    >>> value_text(2**63), value_text(float("nan")), value_text("<b>"), value_text(b"ab"), value_text(True)
    ('9223372036854775808', 'nan', '<b>', '61 62', 'true')
    >>> value_text([timedelta(seconds=2), (1, None)]), value_text({"lane": 2.50})
    ('2 s, 1, none', 'lane: 2.5')
    """
    try:
        return cut(_text(value))
    except Exception as problem:  # of a class's own code, or of an integer with thousands of digits
        return cut(f"<{type(value).__name__} that cannot be shown: {type(problem).__name__}>")


def _text(value: object) -> str:
    match value:
        case Enum():
            return _text(value.value)
        case str():
            return value
        case None | bool():
            return str(value).lower()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.10g} s"
        case float():
            return f"{value:.10g}"
        case bytes() | bytearray():
            return bytes(value[: MAX_LENGTH + 1]).hex(" ")
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(_text, islice(value, MAX_LENGTH)))
        case Mapping():
            return ", ".join(f"{_text(key)}: {_text(each)}" for key, each in islice(value.items(), MAX_LENGTH))
    return _short.repr(value)


def float32(value: float) -> float:
    """Return the number with the fewest digits that is the same float of 32 bits.

    >>> float32(13.797471714019775), float32(0.1), float32(1e300)
    (13.797472, 0.1, 1e+300)
    """
    try:
        stored = _FLOAT32.pack(value)
    except OverflowError:  # it is none
        return value
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((float(text) for text in texts if _FLOAT32.pack(float(text)) == stored), value)


@cache
def _floats32(cls: type[Event]) -> frozenset[str]:
    """Return the attributes of a class that are floats of 32 bits."""
    return frozenset(each.name for each in attributes(cls) if each.type == FloatType(32))


def cut(text: str) -> str:
    """A text that is not too long, and that JSON can carry: of half a surrogate pair the number is shown.

    >>> cut("a" * 300)[190:], cut("\\ud800")
    ('aaaaaaaaaa…', '\\\\ud800')
    """
    shown = text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"
    return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode()


def encode(content: Any) -> bytes:
    """Something as JSON.

    Names and texts of a program may have what `msgspec` refuses: half a surrogate pair, or an integer of more than 64
    bits. They are rare, and take longer.

    >>> encode({"speed": float("nan"), "code": 2**64, "name": "\\ud800"})
    b'{"speed": null, "code": 18446744073709551616, "name": "\\\\ud800"}'
    """
    try:
        return _encode(content)
    except (UnicodeEncodeError, OverflowError):
        text = json.dumps(msgspec.to_builtins(content, builtin_types=(bytes, datetime)), default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def number_of(value: object) -> float | None:
    """Return a value as a number to draw; None if it is none, or not finite.

    >>> number_of(True), number_of(3), number_of(float("inf")), number_of("3")
    (1.0, 3.0, None, None)
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, bool | int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def time_us_of(event: Event) -> int | None:
    """The time that an event carries, in microseconds since 1970; None if it has none, or one without a time zone."""
    try:
        return None if event.time is None else micros_of_time(event.time)
    except TypeError:
        return None


def values_of(event: Event) -> dict[str, Any]:
    """Return the attributes that an event carries, by name; floats of 32 bits have no more digits than they need."""
    found = {name: getattr(event, name) for name in event.__struct_fields__}
    short = {name: float32(found[name]) for name in _floats32(type(event)) if isinstance(found.get(name), float)}
    return {name: value for name, value in (found | short).items() if value is not None}


def event_text(event: Event, names: Collection[str] | None = None) -> str:
    """What an event says, as one line: names, values and units of attributes that it carries, all or some of them."""
    units, values = _units(type(event)), values_of(event)
    said = values if names is None else {name: values[name] for name in names if name in values}
    parts = (f"{name} {value_text(value)} {units.get(name) or ''}".rstrip() for name, value in said.items())
    return cut(", ".join(parts))


@cache
def _units(cls: type[Event]) -> dict[str, str | None]:
    return {each.name: each.unit for each in attributes(cls)}


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def three_digits(number: float) -> float:
    """Return a number to three digits: what a person reads, and no change where there is none to see.

    >>> three_digits(1234.5), three_digits(0.00012345)
    (1230.0, 0.000123)
    """
    return float(f"{number:.3g}")
