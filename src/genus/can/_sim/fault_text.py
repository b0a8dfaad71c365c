"""The text format of faults: `name key=value ...`, where the type and name of a field say how its value is written.

A key is the name of a field without `_ns`; the value of such a field is a time, `10ms`, `-250us` or seconds.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from genus.can._sim.trace import TrafficClass
from genus.errors import BusError, did_you_mean
from genus.model import nanoseconds

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))


def format_fault(name: str, fault: msgspec.Struct) -> str:
    """Return the text of a fault, without fields that have their default value."""
    words = [name]
    for field in msgspec.structs.fields(fault):
        value = getattr(fault, field.name)
        if field.required or value != field.default:
            words.append(f"{field_key(field)}={_format_value(field, value)}")
    return " ".join(words)


def field_key(field: msgspec.structs.FieldInfo) -> str:
    return field.name.removesuffix("_ns")


def parse_value(field: msgspec.structs.FieldInfo, text: str, where: str) -> Any:
    """Parse the value of a field; BusError names `where` it is and what is expected."""
    if field.name.endswith("_ns"):
        return _parse_time(text, where)
    for kind, parse, expected in _PARSERS:
        if kind in _types_of(field.type):
            try:
                return parse(text)
            except ValueError:
                raise BusError(f"{where} is {text!r}; it should be {expected}") from None
    raise TypeError(f"{where} has no text form")


def format_exact_span(span_ns: int) -> str:
    """Return a length of time in the largest unit that gives a whole number.

    The text of a fault is part of the seed of its random generator, so this must not change.

    >>> format_exact_span(10_000_000), format_exact_span(-1_500), format_exact_span(0)
    ('10ms', '-1500ns', '0s')
    """
    unit, factor = next((unit, factor) for unit, factor in _UNITS if span_ns % factor == 0)
    return f"{span_ns // factor}{unit}"


def _parse_time(text: str, where: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * nanoseconds(text.removeprefix("-"), where, error=BusError)


def _format_value(field: msgspec.structs.FieldInfo, value: Any) -> str:
    if field.name.endswith("_ns"):
        return format_exact_span(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _types_of(annotation: Any) -> set[Any]:
    """Return the types of an annotation, those of a union included."""
    return {getattr(part, "__origin__", part) for part in getattr(annotation, "__args__", ())} | {
        getattr(annotation, "__origin__", annotation)
    }


def _parse_numbers(text: str) -> tuple[int, ...]:
    """Parse numbers and ranges: `1,2,5-8`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first, 0), int(last or first, 0) + 1)
    if not found:
        raise ValueError
    return tuple(found)


_PARSERS: tuple[tuple[Any, Any, str], ...] = (
    (tuple, _parse_numbers, "numbers such as 1,2,5-8"),
    (TrafficClass, TrafficClass, f"one of {', '.join(TrafficClass)}"),
    (float, float, "a number"),
    (int, lambda text: int(text, 0), "a whole number"),
)


def join_units(words: Iterable[str], fields: Mapping[str, msgspec.structs.FieldInfo]) -> list[str]:
    """Return the words, each unit that stands alone joined to the time before it: `at=5 min`."""
    joined: list[str] = []
    for word in words:
        field = fields.get(joined[-1].partition("=")[0]) if joined and "=" not in word else None
        if field is not None and field.name.endswith("_ns"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def parse_word(
    word: str, fault: str, fields: Mapping[str, msgspec.structs.FieldInfo], nodes: Mapping[str, int]
) -> tuple[str, object]:
    """Return the name and the value of a field, from `key=value`."""
    key, equals, value = word.partition("=")
    if key not in fields or not equals:
        raise BusError(f"{fault} does not take {word!r}; write key=value with one of the keys {', '.join(fields)}")
    if key in ("node", "nodes"):
        value = ",".join(_number_of(part, nodes, fault) for part in value.split(","))
    return fields[key].name, parse_value(fields[key], value, f"{fault}: {key}")


def node_names(text: str) -> set[str]:
    """Return the names of nodes in the text of a fault, without numbers and ranges of numbers.

    >>> node_names("partition nodes=sensor,3,5-8 from=1s")
    {'sensor'}
    """
    values = [word.partition("=")[2] for word in text.split() if word.startswith(("node=", "nodes="))]
    return {part for value in values for part in value.split(",") if not part.replace("-", "").isdigit()}


def _number_of(part: str, nodes: Mapping[str, int], fault: str) -> str:
    """Return the number of a node name, as text; numbers and ranges of numbers are returned unchanged."""
    if part in nodes:
        return str(nodes[part])
    if nodes and not part.replace("-", "").isdigit():
        raise BusError(f"{fault}: there is no node {part!r}; {did_you_mean(part, nodes)}known are {', '.join(nodes)}")
    return part
