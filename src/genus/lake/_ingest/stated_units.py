"""Units that a recording states, and values that are converted to the units of the catalog while they are ingested.

The arithmetic is that of `genus.model._units`, on one value after the other, as in the bus's own reader; so both give
the same bits.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.bus._attribute_map import UNITS_OF, Convert
from genus.errors import EventError
from genus.model import Attribute, IntType
from genus.model._types import int_range

_UNITS = UNITS_OF.encode()

StatedUnits: TypeAlias = dict[str, Mapping[str, str]]
"""The units that a recording has stated so far, by type and attribute."""

_open_units = msgspec.msgpack.Decoder(tuple[str, int, dict[str, str]]).decode


class UnitsChange(NamedTuple):
    """The units of a type from a row on."""

    row: int
    type: str
    units: Mapping[str, str]


def read_stated_units(packet: bytes) -> tuple[str, Mapping[str, str]] | None:
    """The type and its units in a packet that states them; None for every other packet."""
    if packet.find(_UNITS, 2, 3 + len(_UNITS)) == -1:
        return None
    try:
        name, _, units = _open_units(packet)
    except Exception:  # msgspec's errors, UnicodeDecodeError
        return None
    return name.removeprefix(UNITS_OF), units


def split_at_changes(
    rows: Sequence[int], changes: Sequence[UnitsChange]
) -> Iterator[tuple[Sequence[int], UnitsChange | None]]:
    """The rows before the first change of units, and after each change; only parts that have rows."""
    cuts = [0, *(bisect_left(rows, change.row) for change in changes), len(rows)]
    for (start, end), change in zip(pairwise(cuts), [None, *changes], strict=True):
        if end > start:
            yield (rows if end - start == len(rows) else rows[start:end]), change


# -- values ----------------------------------------------------------------------------------------------------------


def value_getter(attribute: Attribute, converters: Mapping[str, Convert] = {}) -> Callable[[Any], Any]:
    """A function that gets the value of an attribute from a body; under a former name if it has none otherwise.

    The value is converted; where that cannot be done, it is an `Unconverted`.
    """
    names = (attribute.name, *attribute.former)
    if len(names) == 1 and attribute.name not in converters:
        return attrgetter(attribute.name)
    getters = [(attrgetter(name), converters.get(name)) for name in names]

    def get(body: Any) -> Any:
        for value_of, convert in getters:
            value = value_of(body)
            if value is not None:
                return value if convert is None else _converted(value, convert)
        return None

    return get


class Unconverted(NamedTuple):
    """Why a value could not be converted to the unit of its attribute."""

    reason: str


def _converted(value: Any, convert: Convert) -> object:
    try:
        return convert(value)
    except EventError as problem:
        return Unconverted(str(problem))


def take_unconverted(values: list[Any], attribute: Attribute) -> list[int]:
    """The rows of values that could not be converted, or do not fit after it; None takes their place."""
    low, high = int_range(attribute.type.bits, attribute.type.signed) if isinstance(attribute.type, IntType) else (0, 0)
    is_int = isinstance(attribute.type, IntType)
    rows = [
        row
        for row, value in enumerate(values)
        if isinstance(value, Unconverted) or (is_int and value is not None and not low <= value <= high)
    ]
    for row in rows:
        values[row] = None
    return rows
