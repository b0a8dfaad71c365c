"""The attributes of a damaged DBC file that event types need, in the form that cantools accepts.

These are the format and the cycle time of frames, and names of more than 32 characters. All others are left out: no
event has them, and cantools refuses a file for their types, definitions and defaults.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from genus.can._dbc.dbc_text import Part, Statement, decimal, integer, quoted

FRAME_FORMATS = (
    *("StandardCAN", "ExtendedCAN", "reserved", "J1939PG"),
    *("reserved",) * 10,
    *("StandardCAN_FD", "ExtendedCAN_FD"),
)
"""The values of `VFrameFormat`."""
TYPES: Mapping[str, str] = MappingProxyType(
    {
        "VFrameFormat": f"BO_ %s ENUM {','.join(map(quoted, FRAME_FORMATS))}",
        "GenMsgCycleTime": "BO_ %s INT 0 0",
        "SystemMessageLongSymbol": "BO_ %s STRING",
        "SystemSignalLongSymbol": "SG_ %s STRING",
        "SystemNodeLongSymbol": "BU_ %s STRING",
    }
)
"""The attributes that are kept, and how they are defined."""

_STRING = r'"((?:\\.|[^"\\])*)"'
_DEFINITION = re.compile(rf"(?:BU_|BO_|SG_|EV_)?\s*{_STRING}\s*(?P<value>.*)", re.DOTALL)
_VALUE = re.compile(
    rf"{_STRING}\s*(?:(?P<kind>BO_|SG_|BU_|EV_)\s+(?P<owner>[^\"]*?\S)\s+)?(?P<value>{_STRING}|[-+]?[\d.]\S*)",
    re.DOTALL,
)


class Attribute(NamedTuple):
    """The value of an attribute of a message, signal or node."""

    name: str
    kind: str
    """`BO_`, `SG_` or `BU_`; empty for one of the whole file."""
    number: str
    """The identifier of the message, if there is one."""
    owner: str
    """The name of the signal or node."""
    value: str
    """A number or a string in quotes."""


@dataclass(slots=True)
class AttributeRepair:
    """State: the frame formats that the file names, and its defaults."""

    note: Callable[[int, str], None]
    _formats: tuple[str, ...] = FRAME_FORMATS
    _defaults: dict[str, Part] = field(default_factory=dict)

    def define(self, statement: Statement) -> None:
        """Read a definition (`BA_DEF_`) or a default (`BA_DEF_DEF_`)."""
        found = _DEFINITION.match(statement.body)
        if found is None or found[1] not in TYPES:
            return
        if statement.keyword == "BA_DEF_DEF_":
            value = self._accepted(statement, found[1], found["value"]) if found["value"].strip('" ') else None
            if value is not None and found[1] == "VFrameFormat":
                value = quoted(FRAME_FORMATS[int(value)])
            if value is not None:
                self._defaults[found[1]] = Part(statement.line, f"BA_DEF_DEF_ {quoted(found[1])} {value};")
        elif found[1] == "VFrameFormat":
            named = re.findall(_STRING, found["value"])
            self._formats = (*named, *FRAME_FORMATS[len(named) :])

    def read(self, statement: Statement) -> Attribute | None:
        """Return a value; None if it is left out."""
        found = _VALUE.match(statement.body)
        if found is None or found[1] not in TYPES:
            return None
        accepted = self._accepted(statement, found[1], found["value"])
        if accepted is None:
            return None
        kind = found["kind"] or ""
        number, _, owner = (found["owner"] or "").partition(" ") if kind != "BU_" else ("", "", found["owner"])
        return Attribute(found[1], kind, number, owner.strip(), accepted)

    def _accepted(self, statement: Statement, name: str, text: str) -> str | None:
        """Return a value as cantools accepts it; None, and a note, if it cannot be one."""
        plain = text.strip().strip('"')
        if name == "VFrameFormat":
            number = integer(plain)
            is_known = number is not None and 0 <= number < len(self._formats)
            format = self._formats[number] if is_known and number is not None else plain
            value = str(FRAME_FORMATS.index(format)) if format in FRAME_FORMATS else None
        elif name == "GenMsgCycleTime":
            value = None if (milliseconds := decimal(plain)) is None else str(round(float(milliseconds)))
        else:
            value = quoted(plain)
        if value is None:
            self.note(statement.line, f"{statement.text[:60]} is left out: it is no {name}")
        return value

    def definitions(self) -> Iterator[Part]:
        """Yield the statements that define all attributes."""
        for name, type_ in TYPES.items():
            yield Part(0, f"BA_DEF_ {type_ % quoted(name)};")
        yield from self._defaults.values()
