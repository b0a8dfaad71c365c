"""Structs as text: `name key=value ...`, where a field's type, or the unit in its name, says how its value is written.

A key is a field's name without `_ns`; such a field is written as a time, `10ms` or `-250us`.
"""

from typing import Any

import msgspec

from genus.bus._qos import nanoseconds
from genus.can._sim.trace import Band
from genus.errors import BusError

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))


def text_of(name: str, fault: msgspec.Struct) -> str:
    """The text of a fault without its default values."""
    words = [name]
    for field in msgspec.structs.fields(fault):
        value = getattr(fault, field.name)
        if field.required or value != field.default:
            words.append(f"{key_of(field)}={_written(field, value)}")
    return " ".join(words)


def key_of(field: msgspec.structs.FieldInfo) -> str:
    """How a field is called in text."""
    return field.name.removesuffix("_ns")


def read_value(field: msgspec.structs.FieldInfo, text: str, where: str) -> Any:
    """The value of a field; BusError says what it should have been."""
    if field.name.endswith("_ns"):
        return _time(text, where)
    for kind, read, wanted in _READERS:
        if kind in _kinds(field.type):
            try:
                return read(text)
            except ValueError:
                raise BusError(f"{where} is {text!r}; it should be {wanted}") from None
    raise TypeError(f"{where} has no text form")


def shown_time(ns: int) -> str:
    """A time in the largest unit that gives a whole number.

    >>> shown_time(10_000_000), shown_time(-1_500), shown_time(0)
    ('10ms', '-1500ns', '0s')
    """
    unit, factor = next((unit, factor) for unit, factor in _UNITS if ns % factor == 0)
    return f"{ns // factor}{unit}"


def _time(text: str, where: str) -> int:
    return -nanoseconds(text[1:], where) if text.startswith("-") else nanoseconds(text, where)


def _written(field: msgspec.structs.FieldInfo, value: Any) -> str:
    if field.name.endswith("_ns"):
        return shown_time(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kinds(annotation: Any) -> set[Any]:
    return {getattr(part, "__origin__", part) for part in getattr(annotation, "__args__", ())} | {
        getattr(annotation, "__origin__", annotation)
    }


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers and ranges: `1,2,5-8`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first, 0), int(last or first, 0) + 1)
    if not found:
        raise ValueError
    return tuple(found)


_READERS: tuple[tuple[Any, Any, str], ...] = (
    (tuple, _numbers, "numbers such as 1,2,5-8"),
    (Band, Band, f"one of {', '.join(Band)}"),
    (float, float, "a number"),
    (int, lambda text: int(text, 0), "a whole number"),
)
