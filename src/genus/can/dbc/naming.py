"""Names from outside as names of types, attributes and enumeration members: one rule, and what it changed.

1. A character other than a letter of ASCII, a digit or `_` becomes `_`.
2. A name that is empty, or begins with a digit or `_`, gets an `x` before it.
3. A name that Python or Genus keeps for itself gets a `_` behind it.
4. A name that is taken already gets `_2`, `_3` and so on behind it.
"""

import keyword
import re
from collections.abc import Set

from genus.model import RESERVED, Event, attributes

PYTHON_WORDS = frozenset((*keyword.kwlist, *keyword.softkwlist))

ATTRIBUTE_WORDS = PYTHON_WORDS | RESERVED | {attribute.name for attribute in attributes(Event)}
"""Words that no signal may have as the name of its attribute."""

DECLARING_WORDS = frozenset(
    {"Annotated", "Enum", "Event", "Kind", "Maybe", "Unit", "annotations", "bool", "bytes", "float", "int", "str"}
    | {"Float32", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"}
)
"""Words in which types are declared; a module could not say them any more if a type had such a name."""

TYPE_WORDS = PYTHON_WORDS | RESERVED | DECLARING_WORDS
"""Words that no message may have as the name of its type."""

MEMBER_WORDS = PYTHON_WORDS | {"mro", "name", "value"}
"""Words that no member of an enumeration may have as its name."""


class Names:
    """State: the names given so far in one place.

    >>> names = Names(ATTRIBUTE_WORDS)
    >>> [names.give(wanted) for wanted in ("speed", "time", "_crc", "1st value", "speed")]
    ['speed', 'time_', 'x_crc', 'x1st_value', 'speed_2']
    """

    def __init__(self, words: Set[str]) -> None:
        self._words = words
        self._given: set[str] = set()

    def give(self, wanted: str) -> str:
        """The name something gets that would like to be called so."""
        name = self._free(_usable(wanted, self._words))
        self._given.add(name)
        return name

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._given:
            number += 1
            free = f"{name}_{number}"
        return free


def _usable(wanted: str, words: Set[str]) -> str:
    name = re.sub(r"[^0-9A-Za-z_]", "_", wanted)
    if not re.match(r"[A-Za-z]", name):
        name = f"x{name}"
    return f"{name}_" if name in words else name
