"""Values as texts and numbers that a page can show: exact, short, and with nothing that JSON cannot carry."""

import json
import math
from datetime import datetime, timedelta
from enum import Enum
from reprlib import Repr
from typing import Any

import msgspec

from genus.model import Event, micros_of_time, name_of

LONGEST = 200
"""Longest text of a value, in characters."""

_encode = msgspec.json.Encoder().encode
_short = Repr()
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = LONGEST
_short.maxlong = _short.maxstring = _short.maxother = 2 * LONGEST


def value_text(value: object) -> str:
    """A value as a person would write it; long ones are cut.

    >>> value_text(2**63), value_text(float("nan")), value_text("<b>"), value_text(b"ab")
    ('9223372036854775808', 'nan', '<b>', "b'ab'")
    """
    try:
        return cut(_text(value))
    except Exception as problem:  # of a class's own code, or of an integer with thousands of digits
        return cut(f"<{type(value).__name__} that cannot be shown: {type(problem).__name__}>")


def _text(value: object) -> str:
    match value:
        case Enum():
            return str(value.value)
        case str():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():g} s"
        case float():
            return f"{value:.10g}"
        case bytes() | bytearray():
            return repr(bytes(value[: LONGEST + 1]))
    return _short.repr(value)


def cut(text: str) -> str:
    """A text that is not too long, and that JSON can carry: of half a surrogate pair the number is shown.

    >>> cut("a" * 300)[190:], cut("\\ud800")
    ('aaaaaaaaaa…', '\\\\ud800')
    """
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
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
    """A value as a number to draw; None if it is none, or not finite.

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
    """The attributes that an event carries, by name."""
    found = {name: getattr(event, name) for name in event.__struct_fields__}
    return {name: value for name, value in found.items() if value is not None}


def event_text(event: Event) -> str:
    """An event as one line."""
    shown = ", ".join(f"{name}={value_text(value)}" for name, value in values_of(event).items())
    return cut(f"{name_of(type(event))}({shown})")


def three_digits(number: float) -> float:
    """A number to three digits: what a person reads, and no change where there is none to see.

    >>> three_digits(1234.5), three_digits(0.00012345)
    (1230.0, 0.000123)
    """
    return float(f"{number:.3g}")
