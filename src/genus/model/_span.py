"""`Span`: a length of time, written the same way in every public call, file, address and command."""

from datetime import timedelta
from decimal import Decimal
from numbers import Real
from string import ascii_letters
from typing import TypeAlias

from genus.errors import SpanError
from genus.model._plain import plain_value

Span: TypeAlias = float | str | timedelta
"""A length of time: seconds as a number, text such as `"100ms"`, `"5 min"` or `"90 days"`, or a timedelta."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000_000, 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000
_UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "": _SECOND,
    "s": _SECOND, "second": _SECOND, "seconds": _SECOND,
    "min": _MINUTE, "minute": _MINUTE, "minutes": _MINUTE,
    "h": _HOUR, "hour": _HOUR, "hours": _HOUR,
    "d": _DAY, "day": _DAY, "days": _DAY,
    "week": 7 * _DAY, "weeks": 7 * _DAY,
    "year": 365 * _DAY, "years": 365 * _DAY,
}  # fmt: skip
"""The units of a text with their nanoseconds; a number without one means seconds, a year has 365 days."""
_LETTERS = f"{ascii_letters}µμ "
_MAX_NS = 292 * 365 * _DAY
"""So that nanoseconds fit 64 bits, and seconds are a timeout that threads can wait for."""


def nanoseconds(span: Span, what: str = "span", *, zero: bool = True, error: type[Exception] = SpanError) -> int:
    """Return a length of time in whole nanoseconds.

    Args:
        span: Seconds as a number, a number and a unit as text, or a timedelta.
        what: The name of the argument or option, for the message.
        zero: Whether zero is allowed.
        error: What to raise instead of SpanError; readers of files, addresses and options give their own error.

    Raises:
        SpanError: It is none of these, negative, longer than 292 years, or zero where that is not allowed.

    >>> nanoseconds(0.1), nanoseconds("100ms"), nanoseconds("5 min"), nanoseconds(timedelta(microseconds=3))
    (100000000, 100000000, 300000000000, 3000)
    >>> nanoseconds("90 days") == nanoseconds(timedelta(days=90)) == nanoseconds(90 * 86_400)
    True
    >>> nanoseconds("soon", "period")
    Traceback (most recent call last):
    genus.errors.SpanError: period is 'soon'; write seconds as a number, text such as '100ms', '5 min' or '90 days', \
or a timedelta
    >>> nanoseconds("5 m", "period")
    Traceback (most recent call last):
    genus.errors.SpanError: period is '5 m', and 'm' is no unit of time; write ns, us, ms, s, min, h, days, weeks or \
years
    """
    try:
        found = _nanoseconds(span)
    except KeyError as unit:
        units = "ns, us, ms, s, min, h, days, weeks or years"
        raise error(f"{what} is {_shown(span)}, and {unit} is no unit of time; write {units}") from None
    except (ValueError, TypeError, ArithmeticError):
        others = ", or a timedelta" if error is SpanError else ""
        forms = f"seconds as a number, text such as '100ms', '5 min' or '90 days'{others}"
        raise error(f"{what} is {_shown(span)}; write {forms}") from None
    if not 0 <= found <= _MAX_NS:
        raise error(f"{what} is {_shown(span)}, which is {'negative' if found < 0 else 'longer than 292 years'}")
    if found == 0 and not zero:
        raise error(f"{what} is {_shown(span)}; it must be above zero")
    return found


def seconds(span: Span, what: str = "span", *, zero: bool = True, error: type[Exception] = SpanError) -> float:
    """Return a length of time in seconds; see `nanoseconds`.

    >>> seconds("250ms"), seconds(timedelta(minutes=1))
    (0.25, 60.0)
    """
    return nanoseconds(span, what, zero=zero, error=error) / _SECOND


def duration(span: Span, what: str = "span", *, zero: bool = True, error: type[Exception] = SpanError) -> timedelta:
    """Return a length of time as a timedelta, in whole microseconds; see `nanoseconds`.

    >>> duration("5 min"), duration(1.5)
    (datetime.timedelta(seconds=300), datetime.timedelta(seconds=1, microseconds=500000))
    """
    micros = (nanoseconds(span, what, zero=zero, error=error) + 500) // 1000
    if not micros and not zero:
        raise error(f"{what} is {_shown(span)}; it must be at least a microsecond")
    return timedelta(microseconds=micros)


def _nanoseconds(span: object) -> int:
    span = plain_value(span)
    if isinstance(span, timedelta):
        below_micros: int = getattr(span, "nanoseconds", 0)  # of a pandas.Timedelta
        return (span.days * 86_400 + span.seconds) * _SECOND + span.microseconds * 1_000 + below_micros
    if isinstance(span, str):
        text = span.strip()
        number = text.rstrip(_LETTERS)
        return _whole(Decimal(number) * _UNITS[text[len(number) :].strip()])
    if isinstance(span, bool) or not isinstance(span, Real) or hasattr(span, "dtype"):
        raise TypeError  # for numpy, a timedelta64 is a number too
    return _whole(Decimal(repr(float(span))) * _SECOND)


def _whole(length: Decimal) -> int:
    """Round to whole nanoseconds; what is too long stays too long without becoming an integer of a million digits."""
    if not length.is_finite():
        raise ValueError
    return round(length) if abs(length) <= _MAX_NS else int(Decimal(_MAX_NS + 1).copy_sign(length))


def _shown(span: object) -> str:
    text = repr(span)
    return text if len(text) <= 60 else f"{text[:57]}..."


def format_span(span: Span) -> str:
    """Return a short text of a length of time, which is exactly that length again when it is read.

    >>> format_span("1500ms"), format_span(120), format_span(timedelta(hours=36)), format_span(0.000_5)
    ('1.5s', '2min', '36h', '500us')
    """
    return format_nanoseconds(nanoseconds(span))


def format_nanoseconds(length: int) -> str:
    """Return the text of a number of nanoseconds; see `format_span`."""
    if length and length % _SECOND == 0:
        unit = next(unit for unit in ("d", "h", "min", "s") if length % _UNITS[unit] == 0)
    else:
        unit = next((unit for unit in ("s", "ms", "us") if length >= _UNITS[unit]), "ns" if length else "s")
    whole, rest = divmod(length, _UNITS[unit])
    digits = str(rest).zfill(len(str(_UNITS[unit])) - 1).rstrip("0")
    return f"{whole}.{digits}{unit}" if digits else f"{whole}{unit}"
