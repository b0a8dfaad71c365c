"""Values as texts and numbers that a page can show: exact, short, and with nothing that JSON cannot carry."""

import math
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from genus.model import Event, name_of

LONGEST = 200
"""Longest text of a value, in characters."""


def value_text(value: object) -> str:
    """A value as a person would write it; long ones are cut.

    >>> value_text(2**63), value_text(float("nan")), value_text("<b>"), value_text(b"ab")
    ('9223372036854775808', 'nan', '<b>', "b'ab'")
    """
    match value:
        case Enum():
            text = str(value.value)
        case str():
            text = value
        case datetime():
            text = value.isoformat().replace("+00:00", "Z")
        case timedelta():
            text = f"{value.total_seconds():g} s"
        case float():
            text = f"{value:.10g}"
        case _:
            text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


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


def values_of(event: Event) -> dict[str, Any]:
    """The attributes that an event carries, by name."""
    found = {name: getattr(event, name) for name in event.__struct_fields__}
    return {name: value for name, value in found.items() if value is not None}


def event_text(event: Event) -> str:
    """An event as one line."""
    shown = ", ".join(f"{name}={value_text(value)}" for name, value in values_of(event).items())
    text = f"{name_of(type(event))}({shown})"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def three_digits(number: float) -> float:
    """A number to three digits: what a person reads, and no change where there is none to see.

    >>> three_digits(1234.5), three_digits(0.00012345)
    (1230.0, 0.000123)
    """
    return float(f"{number:.3g}")
