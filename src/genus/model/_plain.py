"""Plain values: what a value of numpy, pandas or another subclass stands for, and which are read back as they were.

Events hold plain values and predicates compare with plain constants, so that all targets see the same: a value is
converted where an event is created and where a predicate is made. Only what is exactly equal is converted. Everything
else stays as it is, and `check` and predicates refuse it. Neither numpy nor pandas is imported.

msgspec encodes built-in classes and no subclasses of them, so `encodable_value` converts these, in every encoder.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from genus.model._types import MICROSECOND, micros_of_time

Convert: TypeAlias = Callable[[Any], Any]

PLAIN_CLASSES = frozenset({bool, int, float, str, bytes, datetime, timedelta})
"""The classes of plain values."""

UNCHANGED: set[type] = {*PLAIN_CLASSES, type(None), list, tuple, dict, set, frozenset}
"""State: the classes whose values are not converted, as far as they were met. Constructors look here first."""

NANOSECONDS = {"W": 604_800 * 10**9, "D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9}
NANOSECONDS |= {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_NOT_A_TIME = -(2**63)


def plain_value(value: Any) -> Any:
    """Return the built-in value that is equal to a value, or the value itself if there is none.

    Members of an `Enum` and values of classes that no attribute has stay as they are.

    >>> class Celsius(float): ...
    >>> plain_value(Celsius(21.5)), plain_value([1])
    (21.5, [1])
    """
    cls = value.__class__
    if cls in UNCHANGED:
        return value
    convert = _converter(cls)
    if convert is None:
        UNCHANGED.add(cls)
        return value
    with suppress(Exception):  # a NaT has no year, and a time zone of the user's own may raise anything
        return convert(value)
    return value


def encodable_value(value: Any) -> Any:
    """Return the plain value of a value that msgspec cannot encode: the `enc_hook` of all encoders.

    Raises NotImplementedError if there is none.
    """
    plain = plain_value(value)
    if plain is value:
        raise NotImplementedError(f"a {type(value).__name__} cannot be encoded")
    return plain


def explain_unplain(value: object) -> str:
    """Return advice about a value of numpy or pandas that has no plain form; empty if there is none.

    >>> import numpy
    >>> explain_unplain(numpy.timedelta64(5, "ns"))
    '; write whole microseconds'
    """
    cls = type(value)
    if cls.__module__.partition(".")[0] not in ("numpy", "pandas"):
        return ""
    if str(value) in ("NaT", "<NA>"):
        return f"; {value} is no value: leave out an attribute that is absent, or give None"
    if cls.__name__ == "datetime64":
        return "; it has no time zone: write pandas.Timestamp(value, tz='UTC')"
    if isinstance(value, datetime | timedelta) or cls.__name__ == "timedelta64":
        return "; write whole microseconds"
    return "; write one element of it" if hasattr(value, "__len__") else ""


def _converter(cls: type) -> Convert | None:
    """Return the function that converts values of a class; None if they stay as they are."""
    if issubclass(cls, Enum):
        return None
    for base, convert in _OF_SUBCLASSES.items():
        if issubclass(cls, base):
            return convert
    return _plain_scalar if any(f"{one.__module__}.{one.__name__}" == "numpy.generic" for one in cls.__mro__) else None


def _plain_scalar(value: Any) -> Any:
    """Convert a scalar of numpy: bool, integer, float of up to 64 bits or duration."""
    kind = value.dtype.kind
    if kind == "m":
        return _plain_timedelta64(value)
    return value.item() if kind in "biu" or (kind == "f" and value.dtype.itemsize <= 8) else value


def _plain_timedelta64(value: Any) -> Any:
    """Convert a duration of numpy by its count and unit, as numpy itself rounds and overflows without an error."""
    found = re.fullmatch(r".m8\[(\d*)(\w+)\]", value.dtype.str)
    count = value.astype("int64").item()
    if found is None or found[2] not in NANOSECONDS or count == _NOT_A_TIME:
        return value
    micros, rest = divmod(count * int(found[1] or 1) * NANOSECONDS[found[2]], 1000)
    return value if rest else micros * MICROSECOND


def _plain_datetime(value: datetime) -> datetime:
    date, time = (value.year, value.month, value.day), (value.hour, value.minute, value.second, value.microsecond)
    plain = datetime(*date, *time, tzinfo=value.tzinfo, fold=value.fold)
    return plain if plain == value else value


def _plain_timedelta(value: timedelta) -> timedelta:
    plain = timedelta(value.days, value.seconds, value.microseconds)
    return plain if plain == value else value


_OF_SUBCLASSES: dict[type, Convert] = {
    int: int.__int__,  # the methods of the base class: a subclass may have others
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: b"".join((value,)),
    datetime: _plain_datetime,
    timedelta: _plain_timedelta,
}


_encode = msgspec.msgpack.Encoder(enc_hook=encodable_value).encode


class ReadBack:
    """Tests whether values of an annotation are the same after they were encoded and decoded.

    >>> reads_back = ReadBack(list[float])
    >>> reads_back([1.5, float("nan"), 2]), reads_back(["two"]), reads_back((1.5,))
    (True, False, False)
    """

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    @cached_property
    def _decode(self) -> Any:
        return msgspec.msgpack.Decoder(self._annotation).decode

    def __call__(self, value: object) -> bool:
        """Whether a value reads back; None does not, as it means absent."""
        try:
            return value is not None and is_same(value, self._decode(_encode(value)))
        except Exception:  # of msgspec, and of methods of the user's own classes
            return False


def is_same(value: Any, back: Any) -> bool:
    """Return whether a value that was read is the one that was written: an equal value of the same kind.

    NaN is the same as NaN, an integer is the same as the nearest float, and times are the same if they are the same
    instant. A tuple, a list and a set are of different kinds, and so are bytes and a bytearray.
    """
    match value := plain_value(value):
        case float() | int():
            return _is_same_number(value, back)
        case datetime():
            return _is_same_time(value, back)
        case list() | tuple():
            return isinstance(value, type(back)) and _are_same(value, back)
        case dict():
            return isinstance(back, dict) and _are_same(value, back) and _are_same(value.values(), back.values())
        case set() | frozenset():
            return isinstance(value, type(back)) and (value == back or _encoded(value) == _encoded(back))
        case msgspec.Struct():
            return type(value) is type(back) and _are_same(_fields(value), _fields(back))
    return type(value) is type(back) and bool(value == back)


def _is_same_number(value: float | int, back: Any) -> bool:
    if isinstance(value, bool) or isinstance(back, bool):
        return value is back
    if isinstance(value, float):
        return isinstance(back, float) and bool(value == back or (value != value and back != back))
    return bool(value == back or (type(back) is float and float(value) == back))


def _is_same_time(value: datetime, back: Any) -> bool:
    """By the instant: `==` finds times in the hour that summer time repeats unequal to those of another zone."""
    if type(value) is datetime and isinstance(back, datetime) and value.utcoffset() is not None and back.tzinfo:
        return micros_of_time(value) == micros_of_time(back)
    return bool(value == back)


def _are_same(values: Iterable[Any], backs: Iterable[Any]) -> bool:
    return all(is_same(value, back) for value, back in zip(values, backs, strict=True))


def _encoded(values: Iterable[Any]) -> list[bytes]:
    """Return the values of a set in an order, by which one with NaN can be compared."""
    return sorted(map(_encode, values))


def _fields(value: msgspec.Struct) -> list[Any]:
    return [getattr(value, name) for name in value.__struct_fields__]
