"""Units: `Span`, a length of time, and units of measurement that values are converted between.

A unit has a dimension, and a value in the dimension's base unit is (value + offset) * scale, with exact rational
numbers. A conversion between two units is reduced to one form, so that all readers compute the same bits:
((value + before) * numerator / denominator) + after in float64, from left to right, without the steps that change
nothing. Numerator and denominator are exact in float64. One of `before` and `after` is 0: an offset is added before
scaling if only there it is exact (°F to °C: (value - 32) * 5 / 9), otherwise after it (°C to °F: value * 9 / 5 + 32).
"""

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from string import ascii_letters
from typing import Any, NamedTuple, TypeAlias

from genus.errors import SpanError
from genus.model._plain import plain_value

Span: TypeAlias = float | str | timedelta
"""A length of time: seconds as a number, text such as `"100ms"`, `"5 min"` or `"90 days"`, or a timedelta."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000_000, 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000
_NANOSECONDS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000,
    "s": _SECOND, "second": _SECOND, "seconds": _SECOND,
    "min": _MINUTE, "minute": _MINUTE, "minutes": _MINUTE,
    "h": _HOUR, "hour": _HOUR, "hours": _HOUR,
    "d": _DAY, "day": _DAY, "days": _DAY,
    "week": 7 * _DAY, "weeks": 7 * _DAY,
    "year": 365 * _DAY, "years": 365 * _DAY,
}  # fmt: skip
"""The units of a text with their nanoseconds; a year has 365 days."""
_LETTERS = f"{ascii_letters}µμ "
_MAX_NS = 292 * 365 * _DAY
"""So that nanoseconds fit 64 bits, and seconds are a timeout that threads can wait for."""


def nanoseconds(span: Span, what: str = "span", *, zero: bool = True, error: type[Exception] = SpanError) -> int:
    """Return a length of time in whole nanoseconds.

    Args:
        span: Seconds as a number, a number and a unit as text (only 0 needs none), or a timedelta.
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
        if unit.args == ("",):
            text = str(span).strip()
            raise error(f"{what} is {_shown(span)}, which has no unit: write {text}s, {text}ms or {text}min") from None
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
        length, unit = Decimal(number), text[len(number) :].strip()
        return _whole(length * (_NANOSECONDS[unit] if unit or length else 1))
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
        unit = next(unit for unit in ("d", "h", "min", "s") if length % _NANOSECONDS[unit] == 0)
    else:
        unit = next((unit for unit in ("s", "ms", "us") if length >= _NANOSECONDS[unit]), "ns" if length else "s")
    whole, rest = divmod(length, _NANOSECONDS[unit])
    digits = str(rest).zfill(len(str(_NANOSECONDS[unit])) - 1).rstrip("0")
    return f"{whole}.{digits}{unit}" if digits else f"{whole}{unit}"


_PI = Fraction(math.pi)


class _Unit(NamedTuple):
    dimension: str
    scale: Fraction
    offset: Fraction = Fraction(0)


_SCALES: dict[str, dict[str, Any]] = {
    "speed": {"m/s": 1, "km/h": "5/18", "kph": "5/18", "mph": "0.44704", "kn": "463/900", "cm/s": "0.01"},
    "length": {"m": 1, "km": 1000, "cm": "0.01", "mm": "0.001", "um": "1e-6", "µm": "1e-6", "nm": "1e-9"}
    | {"mi": "1609.344", "ft": "0.3048", "in": "0.0254", "yd": "0.9144", "nmi": 1852},
    "area": {"m²": 1, "m2": 1, "km²": 10**6, "ha": 10**4, "cm²": "1e-4"},
    "volume": {"m³": 1, "m3": 1, "l": "0.001", "L": "0.001", "ml": "1e-6"},
    "duration": {"s": 1, "ms": "0.001", "us": "1e-6", "µs": "1e-6", "ns": "1e-9", "min": 60, "h": 3600, "d": 86400},
    "mass": {"kg": 1, "g": "0.001", "mg": "1e-6", "t": 1000, "lb": "0.45359237"},
    "pressure": {"Pa": 1, "hPa": 100, "kPa": 1000, "MPa": 10**6, "mbar": 100, "bar": 10**5, "atm": 101325}
    | {"psi": "8896443230521/1290320000"},
    "force": {"N": 1, "kN": 1000},
    "torque": {"Nm": 1, "N m": 1, "kNm": 1000},
    "voltage": {"V": 1, "mV": "0.001", "kV": 1000},
    "current": {"A": 1, "mA": "0.001", "kA": 1000},
    "charge": {"C": 1, "Ah": 3600, "mAh": "3.6"},
    "power": {"W": 1, "mW": "0.001", "kW": 1000, "MW": 10**6},
    "energy": {"J": 1, "kJ": 1000, "MJ": 10**6, "Wh": 3600, "kWh": 3_600_000},
    "frequency": {"Hz": 1, "kHz": 1000, "MHz": 10**6, "GHz": 10**9, "rpm": "1/60", "1/min": "1/60"},
    "angle": {"rad": 1, "deg": _PI / 180, "°": _PI / 180},
    "angular speed": {"rad/s": 1, "deg/s": _PI / 180, "°/s": _PI / 180},
    "acceleration": {"m/s²": 1, "m/s2": 1, "m/s^2": 1, "g0": "9.80665"},
    "ratio": {"1": 1, "%": "0.01", "ppm": "1e-6"},
    "temperature": {"K": 1},
}
_UNITS = {
    symbol: _Unit(dimension, Fraction(scale))
    for dimension, scales in _SCALES.items()
    for symbol, scale in scales.items()
} | {
    symbol: _Unit("temperature", scale, Fraction(offset))
    for symbols, scale, offset in ((("°C", "degC"), Fraction(1), "273.15"), (("°F", "degF"), Fraction(5, 9), "459.67"))
    for symbol in symbols
}


class UnitConversion(NamedTuple):
    """The steps from a value in one unit to the same in another, in float64; see the top of the module."""

    before: float
    numerator: float
    denominator: float
    after: float

    def convert(self, value: float) -> float:
        value = value + self.before if self.before else value
        value = value * self.numerator if self.numerator != 1 else value
        value = value / self.denominator if self.denominator != 1 else value
        return value + self.after if self.after else value

    @property
    def is_whole(self) -> bool:
        """Whether every whole number becomes a whole number."""
        return self.denominator == 1 and self.before.is_integer() and self.after.is_integer()

    def convert_whole(self, value: int) -> int:
        """Convert an integer exactly; only if `is_whole`."""
        return (value + int(self.before)) * int(self.numerator) + int(self.after)


@lru_cache(maxsize=256)
def unit_conversion(old: str, new: str) -> UnitConversion | None:
    """Return the conversion from one unit to another; None if one is not known or they measure different things.

    >>> unit_conversion("km/h", "m/s").convert(36.0), unit_conversion("°F", "°C").convert(212.0)
    (10.0, 100.0)
    >>> unit_conversion("km/h", "kg") is unit_conversion("km/h", "furlong") is None
    True
    """
    first, second = _UNITS.get(old), _UNITS.get(new)
    if first is None or second is None or first.dimension != second.dimension:
        return None
    scale = first.scale / second.scale
    before, after = first.offset - second.offset / scale, first.offset * scale - second.offset
    adds_first = _is_exact(before) and not _is_exact(after)
    return UnitConversion(
        float(before) if adds_first else 0.0,
        float(scale.numerator),
        float(scale.denominator),
        0.0 if adds_first else float(after),
    )


def _is_exact(number: Fraction) -> bool:
    return Fraction(float(number)) == number


def describe_units(old: str, new: str) -> str:
    """Why values are not converted from one unit to another."""
    unknown = [symbol for symbol in (old, new) if symbol not in _UNITS]
    if unknown:
        return f"values in {old} cannot be converted to {new}: Genus does not know the unit {unknown[0]!r}"
    return f"values in {old} cannot be converted to {new}: {_UNITS[old].dimension} is no {_UNITS[new].dimension}"
