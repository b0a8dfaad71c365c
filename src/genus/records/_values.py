"""Values of foreign records: how one is written in JSON, and the attribute value that it stands for.

The table in docs/lake-ingest.md shows which values an attribute type accepts. Nothing is guessed: text is not a number
unless the mapping says so; true is not 1; 1.0 is the integer 1, 1.5 is not an integer. Times, durations and bytes that
Python has already, from a table or from TOML, are taken as they are. The lake lets Arrow convert whole columns where it
does the same, and calls these functions for all other values; a property test compares the two.
"""

import base64
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from genus.model import micros_of_duration, micros_of_time
from genus.model.internal import INT64_MAX, INT64_MIN, int_range, is_same
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)

ISO, TEXT, HEX, BASE64 = "iso", "text", "hex", "base64"
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Units of times and durations given as numbers, in nanoseconds."""
EXACT = 2.0**53
"""Integers up to here are exact as floats; a larger float may have been rounded."""
NON_FINITE = ("NaN", "Infinity", "-Infinity")
"""Numbers that JSON has not, as text."""

ReadValue: TypeAlias = Callable[[Any], Any]
"""Converts a JSON value that is not null to an attribute value, or None if it is absent; raises one of `ERRORS`."""


class ValueFormat(msgspec.Struct, frozen=True):
    """How the values of a field are written."""

    format: str = ""
    """`iso`, `s`, `ms`, `us`, `ns` or a pattern of strptime; `hex` for bytes; `text` for numbers written as text."""
    zone: str = ""
    """Time zone of times without one."""
    scale: float | None = None
    """Factor for numbers."""
    absent: tuple[str | int | float, ...] = ()
    """Values that mean the attribute is absent."""

    def as_text(self) -> "ValueFormat":
        """This format for CSV, where every value is text and the CSV parser handles absent values."""
        return msgspec.structs.replace(self, format=self.format or TEXT, absent=())


class WrongValue(ValueError):
    """A value is not one of the attribute."""


ERRORS = (ValueError, OverflowError, RecursionError)
"""The errors of a function that reads a value."""


def value_reader(type_: AttributeType, form: ValueFormat) -> ReadValue:
    """A function that converts JSON values to those of an attribute type; it raises one of `ERRORS` for wrong ones.

    A value of an enum is its member where the type has its class; an opaque value is what JSON has.

    >>> read = value_reader(IntType(8), ValueFormat(absent=(-1,)))
    >>> read(7.0), read(-1)
    (7, None)
    """
    convert, absent = _READERS[type(type_)], form.absent

    def read(value: Any) -> Any:
        if absent and is_absent(value, absent):
            return None
        return convert(value, type_, form)

    return read


def is_absent(value: Any, absent: tuple[Any, ...]) -> bool:
    """Return whether a value is one of those that mean absent; true is not 1, and NaN is NaN."""
    if type(value) not in (str, int, float):
        return False
    return value in absent or (value != value and any(each != each for each in absent))


# -- numbers, text and bytes -------------------------------------------------------------------------------------------

_WHOLE_TEXT = re.compile(r"-?[0-9]+")
_NUMBER_TEXT = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan(?:\([a-z0-9_]*\))?))"
)
_BOOL_TEXTS = {"true": True, "1": True, "false": False, "0": False}


def _bool(value: Any, type_: AttributeType, form: ValueFormat) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and form.format == TEXT and value.lower() in _BOOL_TEXTS:
        return _BOOL_TEXTS[value.lower()]
    raise WrongValue


def _int(value: Any, type_: AttributeType, form: ValueFormat) -> int:
    assert isinstance(type_, IntType)
    low, high = int_range(type_.bits, type_.signed)
    if form.scale is None or isinstance(form.scale, int):
        number = _integer(value, form) * (1 if form.scale is None else form.scale)
    else:
        scaled = _number(value, form) * form.scale
        number = _whole(float(round(scaled)) if math.isfinite(scaled) else scaled)
    if low <= number <= high:
        return number
    raise WrongValue


def _integer(value: Any, form: ValueFormat) -> int:
    """Return a whole number of 64 bits."""
    if type(value) is str and form.format == TEXT:
        value = _number_of_text(value)
    if type(value) is float:
        return _whole(value)
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    raise WrongValue


def _whole(number: float) -> int:
    if math.isfinite(number) and number == math.floor(number) and abs(number) <= EXACT:
        return int(number)
    raise WrongValue


def _number_of_text(text: str) -> int | float:
    """Return the integer of 64 bits, else the float, that a text is."""
    if _WHOLE_TEXT.fullmatch(text) and len(text) <= 20 and INT64_MIN <= int(text) <= INT64_MAX:
        return int(text)
    return _float_of_text(text)


def _float_of_text(text: str) -> float:
    if not _NUMBER_TEXT.fullmatch(text):
        raise WrongValue
    return float(text.partition("(")[0])


def _number(value: Any, form: ValueFormat) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str and (form.format == TEXT or value in NON_FINITE):
        return _float_of_text(value)
    raise WrongValue


def _float(value: Any, type_: AttributeType, form: ValueFormat) -> float:
    number = _number(value, form)
    return number if form.scale is None else number * float(form.scale)


def _text(value: Any, type_: AttributeType, form: ValueFormat) -> str:
    if type(value) is str:
        return value
    raise WrongValue


def _bytes(value: Any, type_: AttributeType, form: ValueFormat) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise WrongValue
    return bytes.fromhex(value) if form.format == HEX else base64.b64decode(value, validate=True)


def _choice(value: Any, type_: AttributeType, form: ValueFormat) -> Any:
    assert isinstance(type_, ChoiceType)
    found = _integer(value, form) if type(type_.values[0]) is int else _text(value, type_, form)
    if found not in type_.values:
        raise WrongValue
    return found if type_.enum is None else type_.enum(found)


def _opaque(value: Any, type_: AttributeType, form: ValueFormat) -> Any:
    return msgspec.json.decode(value) if type(value) is str and form.format == TEXT else value


# -- times and durations -----------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ](?:[01][0-9]|2[0-3])(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?(?:Z|[+-][0-9]{2}(?::?[0-5][0-9])?)?)?"
)


def _time(value: Any, type_: AttributeType, form: ValueFormat) -> datetime:
    if isinstance(value, date):
        value = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return _in_utc(value, form.zone)
    if form.format in UNITS:
        return _EPOCH + timedelta(microseconds=_micros(value, UNITS[form.format]))
    if type(value) is not str:
        raise WrongValue
    if form.format in ("", ISO, TEXT):
        if not _ISO_TIME.fullmatch(value.upper()):  # Python takes other forms as well
            raise WrongValue
        return _in_utc(datetime.fromisoformat(value.upper()), form.zone)
    return _in_utc(datetime.strptime(value, form.format), form.zone)


def _in_utc(time: datetime, zone: str) -> datetime:
    return (time if time.tzinfo is not None else _localized(time, zone)).astimezone(UTC)


def _localized(naive: datetime, zone: str) -> datetime:
    """A time of a zone: the earlier one in the hour that is repeated; wrong in the hour that is skipped."""
    if not zone:
        raise ValueError("no time zone")
    localized = naive.replace(tzinfo=ZoneInfo(zone))
    if localized.astimezone(UTC).astimezone(localized.tzinfo).replace(tzinfo=None) != naive:
        raise ValueError("skipped by summer time")
    return localized


def _duration(value: Any, type_: AttributeType, form: ValueFormat) -> timedelta:
    if type(value) is timedelta:
        _fitting(micros_of_duration(value))
        return value
    if type(value) is str and form.format not in UNITS:
        return timedelta(microseconds=_micros_of_text(value))
    return timedelta(microseconds=_micros(value, UNITS.get(form.format, UNITS["s"])))


def _micros_of_text(text: str) -> int:
    """The microseconds of an ISO 8601 duration, or of a number of seconds; ValueError if it is neither or too long."""
    if text.lstrip("+-")[:1] in ("P", "p"):
        micros = micros_of_duration(msgspec.convert(text, timedelta))
    else:
        micros = round(float(text) * 1e6) if not text.lstrip("+-").isdigit() else int(text) * 10**6
    return _fitting(micros)


def _micros(value: Any, unit: int) -> int:
    """A number of a unit as microseconds: rounded if it is a float, cut off if it is nanoseconds."""
    if type(value) is str:
        value = _number_of_text(value)
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return _fitting(value * unit // 1000)
    if type(value) is not float or not math.isfinite(value):
        raise WrongValue
    return _fitting(round(value * (unit / 1000)))


def _fitting(micros: int) -> int:
    if INT64_MIN <= micros <= INT64_MAX:
        return micros
    raise ValueError("exceeds 64 bits")


_READERS: dict[type, Callable[[Any, AttributeType, ValueFormat], Any]] = {
    BoolType: _bool,
    IntType: _int,
    FloatType: _float,
    TextType: _text,
    BytesType: _bytes,
    TimeType: _time,
    DurationType: _duration,
    ChoiceType: _choice,
    OpaqueType: _opaque,
}


# -- writing -----------------------------------------------------------------------------------------------------------

WriteValue: TypeAlias = Callable[[Any], Any]
"""Converts an attribute value to a JSON value; ValueError if it would not be read back as the same."""


def scale_problem(type_: AttributeType, form: ValueFormat) -> str:
    """Why values that are scaled cannot be written; empty if they can."""
    if form.scale is None:
        return ""
    if not form.scale:
        return "a scale of 0 cannot be undone"
    if isinstance(type_, IntType) and not isinstance(form.scale, int):
        return f"the scale {form.scale} rounds an integer, which cannot be undone"
    return ""


def value_writer(type_: AttributeType, form: ValueFormat) -> WriteValue:
    """A function that writes values so that `value_reader` with the same arguments reads them; ValueError if it cannot.

    >>> write = value_writer(FloatType(), ValueFormat(scale=0.5))
    >>> write(20.0)
    40.0
    """
    write, read = _WRITERS[type(type_)], value_reader(type_, form)

    def write_checked(value: Any) -> Any:
        written = write(value, form)
        back = read(written)
        if isinstance(type_, OpaqueType) or is_same(value, back):
            return written
        if isinstance(type_, FloatType) and form.scale is not None and _is_near(back, value):
            return written
        raise ValueError("absent, as the mapping has it" if back is None else f"read back as {back!r}")

    return write_checked


def _is_near(back: Any, value: Any) -> bool:
    """Return whether a float that was divided and multiplied differs in its last digits at most."""
    return isinstance(back, float) and math.isclose(back, value, rel_tol=1e-15)


def _write_int(value: Any, form: ValueFormat) -> int | str:
    number, rest = divmod(int(value), int(form.scale or 1))
    if rest:
        raise ValueError(f"no multiple of {form.scale}")
    return str(number) if form.format == TEXT else number


def _write_float(value: Any, form: ValueFormat) -> float | str:
    number = float(value) if form.scale is None else float(value) / form.scale
    if form.format == TEXT:
        return repr(number)
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def _write_bytes(value: Any, form: ValueFormat) -> str:
    return bytes(value).hex() if form.format == HEX else base64.b64encode(value).decode()


def _write_time(value: Any, form: ValueFormat) -> Any:
    if form.format in UNITS:
        return _number_of_micros(micros_of_time(value), UNITS[form.format])
    if form.format in ("", ISO, TEXT):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.astimezone(ZoneInfo(form.zone) if form.zone else UTC).strftime(form.format)


def _write_duration(value: Any, form: ValueFormat) -> Any:
    micros = micros_of_duration(value)
    if form.format in UNITS:
        return _number_of_micros(micros, UNITS[form.format])
    return msgspec.to_builtins(timedelta(microseconds=micros))


def _number_of_micros(micros: int, unit: int) -> int | float:
    whole, rest = divmod(micros * 1000, unit)
    return micros * 1000 / unit if rest else whole


def _write_choice(value: Any, form: ValueFormat) -> Any:
    found = getattr(value, "value", value)
    return str(found) if form.format == TEXT else found


_WRITERS: dict[type, Callable[[Any, ValueFormat], Any]] = {
    BoolType: lambda value, form: ("true" if value else "false") if form.format == TEXT else value,
    IntType: _write_int,
    FloatType: _write_float,
    TextType: lambda value, form: value,
    BytesType: _write_bytes,
    TimeType: _write_time,
    DurationType: _write_duration,
    ChoiceType: _write_choice,
    OpaqueType: lambda value, form: msgspec.json.decode(msgspec.json.encode(value)),
}
