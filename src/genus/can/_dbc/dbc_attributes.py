"""Attributes of DBC files in a form that cantools accepts: definitions, defaults, and values of the right type.

An attribute without a definition gets one from its values. A value of the wrong type is left out; an enumeration may
have its value by name. cantools uses some attributes itself, and refuses a file if these have an unexpected type.
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
INTEGERS = ("INT", "HEX")
NUMBERS = (*INTEGERS, "FLOAT")
EXPECTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"GenMsgSendType": ("ENUM", "STRING"), "GenSigStartValue": (*NUMBERS, "ENUM"), "SPN": INTEGERS}
)
"""The types of the attributes that cantools reads in every message or signal."""

_STRING = r'"((?:\\.|[^"\\])*)"'
_DEFINITION = re.compile(rf"(?P<kind>BU_|BO_|SG_|EV_)?\s*{_STRING}\s*(?P<type>[A-Za-z]+)\s*(?P<rest>.*)", re.DOTALL)
_DEFAULT = re.compile(rf"{_STRING}\s*(?P<value>.*)", re.DOTALL)
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
class Definition:
    """State: the type of an attribute, and its default."""

    line: int
    kind: str
    type: str
    limits: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    given: bool = True
    """Whether the file has it."""

    def accepted(self, text: str) -> str | None:
        """A value as cantools accepts it; None if it has the wrong type."""
        plain = text.strip().strip('"')
        if self.type == "ENUM":
            number = self.choices.index(plain) if plain in self.choices else integer(plain)
            return str(number) if number is not None and 0 <= number < max(len(self.choices), 1) else None
        if self.type in NUMBERS:
            return decimal(plain)
        return text if text.startswith('"') else quoted(text)


@dataclass(slots=True)
class AttributeRepair:
    """State: the definitions of attributes, from the file or from values."""

    note: Callable[[int, str], None]
    _known: dict[str, Definition] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)

    def define(self, statement: Statement) -> None:
        """Read a definition (`BA_DEF_`) or a default (`BA_DEF_DEF_`)."""
        if statement.keyword == "BA_DEF_DEF_":
            self._default(statement)
        elif found := _DEFINITION.match(statement.body):
            self._define(statement.line, found)
        else:
            self.note(statement.line, f"{statement.text[:60]} is left out: it is not a definition")

    def _define(self, line: int, found: re.Match[str]) -> None:
        name, type_, choices = found[2], found["type"].upper(), tuple(re.findall(_STRING, found["rest"]))
        if name == "VFrameFormat":
            type_, choices = "ENUM", (*choices, *FRAME_FORMATS[len(choices) :])
        if type_ not in EXPECTED.get(name, (type_,)) or (type_ == "ENUM" and not choices):
            self._refused.add(name)
            self.note(line, f"attribute {name} is left out: {type_} is not a type that it can have")
            return
        limits = [decimal(each) for each in found["rest"].split()] if type_ in NUMBERS else []
        if limits and (None in limits or len(limits) != 2):
            self.note(line, f"attribute {name}: its limits cannot be read")
        text = " ".join(map(str, limits)) if len(limits) == 2 and None not in limits else ""
        self._known[name] = Definition(line, found["kind"] or "", type_, text, choices)

    def _default(self, statement: Statement) -> None:
        found = _DEFAULT.match(statement.body)
        definition = self._known.get(found[1]) if found else None
        if found is None or definition is None:
            return
        value = definition.accepted(found["value"])
        if value is None and found["value"].strip().strip('"'):
            self.note(statement.line, f"attribute {found[1]}: its default is not of type {definition.type}")
        if value is not None and definition.type == "ENUM":
            value = quoted(definition.choices[int(value)])
        definition.default = value

    def read(self, statement: Statement) -> Attribute | None:
        """A value; None if it is left out."""
        found = _VALUE.match(statement.body)
        if found is None:
            self.note(statement.line, f"{statement.text[:60]} is left out: it is not an attribute")
            return None
        name, kind, value = found[1], found["kind"] or "", found["value"]
        if kind == "EV_" or name in self._refused:
            return None
        definition = self._known.get(name) or self._infer(statement.line, name, kind, value)
        if not definition.given and definition.type == "INT" and integer(value) is None and decimal(value) is not None:
            definition.type = "FLOAT"
        accepted = definition.accepted(value)
        if accepted is None:
            self.note(statement.line, f"{statement.text[:60]} is left out: it is not of type {definition.type}")
            return None
        number, _, owner = (found["owner"] or "").partition(" ") if kind != "BU_" else ("", "", found["owner"])
        return Attribute(name, kind, number, owner.strip(), accepted)

    def _infer(self, line: int, name: str, kind: str, value: str) -> Definition:
        """The definition of an attribute that has none."""
        if name == "VFrameFormat":
            type_ = "ENUM"
        elif integer(value) is not None:
            type_ = "INT"
        else:
            type_ = "STRING" if decimal(value) is None else "FLOAT"
        self.note(line, f"attribute {name} is not defined, and taken as {type_}")
        choices = FRAME_FORMATS if type_ == "ENUM" else ()
        self._known[name] = Definition(line, kind, type_, choices=choices, given=False)
        return self._known[name]

    def definitions(self) -> Iterator[Part]:
        """The statements that define all attributes."""
        for name, each in self._known.items():
            rest = ",".join(map(quoted, each.choices)) if each.type == "ENUM" else each.limits
            yield Part(each.line, f"BA_DEF_ {each.kind} {quoted(name)} {each.type} {rest};")
            if each.default is not None:
                yield Part(each.line, f"BA_DEF_DEF_ {quoted(name)} {each.default};")
