"""Whether a value is the same after it was written and read: the test of values that msgspec does not know as they are.

msgspec encodes built-in classes and no subclasses of them, so `encodable_value` converts these, in every encoder.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from genus.model._plain import encodable_value, plain_value
from genus.model._types import micros_of_time

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
