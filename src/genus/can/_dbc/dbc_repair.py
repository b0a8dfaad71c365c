"""Repairs of DBC files that cantools refuses: what is meant stays, what cannot be read is left out, both are listed.

The file is read statement by statement and written again in the form that cantools reads, with only what event types
need: messages, signals, value tables, multiplexing, senders, comments and attributes. Names that DBC does not allow are
replaced by placeholders, so that the layouts can have the names of the file. `dbc_attributes` reads the attributes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from genus.can._dbc.dbc_text import (
    MAX_DIGITS,
    UNKNOWN,
    AttributeRepair,
    Part,
    Statement,
    decimal,
    integer,
    is_name,
    quoted,
    scale_and_offset,
    split_statements,
    value_ranges,
)
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK

EXTENDED_FLAG = 1 << 31
"""This bit of an identifier in a DBC file marks one of 29 bits."""
NO_NODE = "Vector__XXX"
NO_MESSAGE = "VECTOR__INDEPENDENT_SIG_MSG"
"""The name of a message that holds the signals of no message; cantools leaves it out."""
SHOWN = 60
"""So many characters of a statement are shown."""

_MESSAGE = re.compile(
    r"(?P<id>\S+)\s+(?P<name>[^\":]*?)\s*(?::|\s)\s*(?P<size>\d+)\b\s*:?\s*(?P<sender>[^\s\",;]*)", re.DOTALL
)
_SIGNAL = re.compile(
    r"(?P<head>[^\"]*?)\s*:\s*(?P<start>\d+)\s*[|,]\s*(?P<size>\d+)\s*@\s*(?P<order>\d)\s*(?P<sign>[+-]?)"
    r"\s*\((?P<factors>[^()]*)\)\s*(?:\[(?P<range>[^\]\"]*)\])?\s*(?P<rest>.*)",
    re.DOTALL,
)
_MARKED = re.compile(r"(?P<name>.*?\S)\s+(?:(?P<multiplexer>M)|m\s?(?P<value>\d+|0[xX][0-9A-Fa-f]+)\s?(?P<both>M?))")
_RECEIVERS = re.compile(r"\s*[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*\s*")
_TABLE = re.compile(r"(?P<id>\w+)\s+(?P<name>[^\";]*?\S)\s*(?P<pairs>[-+]?[\d.]\S*\s*\".*)?", re.DOTALL)
_PAIR = re.compile(r"(?P<value>[-+]?[\w.]+)\s*\"(?P<label>(?:\\.|[^\"\\])*)\"", re.DOTALL)
_NAMED_TABLE = re.compile(r"(?P<id>\d+)\s+(?P<name>\w+)\s+(?P<table>[A-Za-z_]\w*)")
_COMMENT = re.compile(r"(?P<kind>SG_|BO_)\s*(?P<id>\w+)\s*(?P<name>[^\"]*?)\s*\"(?P<text>.*)", re.DOTALL)
_VALUE_TYPE = re.compile(r"(?P<id>\w+)\s+(?P<name>[^\":]*?)\s*(?::|\s)\s*(?P<type>\d+)")
_RANGES = re.compile(r"(?P<id>\w+)\s+(?P<name>\S+)\s+(?P<multiplexer>\S+)\s+(?P<ranges>[\d\s,-]+)")
_SENDERS = re.compile(r"(?P<id>\w+)\s*:?\s*(?P<nodes>.*)", re.DOTALL)


@dataclass(slots=True)
class MessageParts:
    """A message: its own statement, its signals, and what the file says about them elsewhere."""

    name: str
    """The name in the file."""
    number: int
    """The identifier given to cantools."""
    head: Part
    signals: list[Part] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The names of its signals in the file, and the names given to cantools."""
    extras: list[Part] = field(default_factory=list)

    def add(self, statement: Statement, text: str) -> None:
        self.extras.append(Part(statement.line, text))

    def parts(self) -> Iterator[Part]:
        """Yield all statements, those that cantools needs first before the others."""
        yield self.head
        yield from self.signals
        yield from self.extras


@dataclass(slots=True)
class Repaired:
    """State while a file is repaired; afterwards what is given to cantools, and what was repaired."""

    messages: list[MessageParts] = field(default_factory=list)
    attributes: list[Part] = field(default_factory=list)
    """Definitions of attributes, and attributes of nodes."""
    placeholders: dict[str, str] = field(default_factory=dict)
    """Names of the file that DBC does not allow, by the name given to cantools."""
    notes: list[tuple[int, str]] = field(default_factory=list)
    """What was repaired or left out, with the line."""

    @property
    def text(self) -> str:
        return dbc_text(self.attributes, self.messages)

    @property
    def repairs(self) -> tuple[str, ...]:
        return tuple(f"line {line}: {what}" for line, what in sorted(self.notes, key=lambda note: note[0]))

    def note(self, line: int, what: str) -> None:
        self.notes.append((line, what))

    def leave_out(self, statement: Statement, why: str) -> None:
        self.note(statement.line, f"{shown(statement.text)} is left out: {why}")

    def usable_name(self, name: str, line: int, what: str) -> str:
        if is_name(name):
            return name
        known = next((token for token, given in self.placeholders.items() if given == name), None)
        token = known or f"Genus__{len(self.placeholders)}"
        self.placeholders[token] = name
        self.note(line, f"{what} {name!r} is not a name that DBC allows")
        return token


def dbc_text(attributes: list[Part], messages: list[MessageParts]) -> str:
    parts = [*attributes, *(part for message in messages for part in message.parts())]
    return "\n".join(['VERSION ""', *(part.text for part in parts), ""])


def shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def repair_dbc(text: str) -> Repaired:
    """Return what can be read of a DBC file.

    >>> repaired = repair_dbc('BO_ 2147485000 M: 8 A\\n SG_ 2nd : 0|8@1+ (1,0) [0|0] ""\\nVAL_ 7 s 0 "off" ;\\n')
    >>> for each in repaired.repairs: print(each)
    line 2: signal name '2nd' is not a name that DBC allows
    line 2: 2nd: has no receiver, or one that cannot be read
    line 3: VAL_ 7 s 0 "off" is left out: the file has no message 7
    """
    repair = _Repair()
    statements = list(split_statements(text))
    for statement in statements:
        repair.read_message_or_signal(statement)
    for statement in statements:
        repair.read_rest(statement)
    repair.done.attributes[:0] = repair.attributes.definitions()
    return repair.done


class _Repair:
    def __init__(self) -> None:
        self.done = Repaired()
        self.attributes = AttributeRepair(self.done.note)
        self._current: MessageParts | None = None
        """The message that the next signals belong to; None if it is left out."""
        self._is_first = True
        self._by_number: dict[int, MessageParts] = {}
        """The messages by the number in the file, of several the first."""
        self._tables: dict[str, str] = {}
        """Value tables that have a name of their own."""

    # -- messages and signals ------------------------------------------------------------------------------------------

    def read_message_or_signal(self, statement: Statement) -> None:
        """First pass: messages with their signals, and what has no message."""
        if statement.keyword == "BO_":
            self._current, self._is_first = self._message(statement), False
        elif statement.keyword == "SG_":
            self._signal(statement)
        elif statement.keyword == "VAL_TABLE_":
            name, _, pairs = statement.body.partition(" ")
            self._tables[name] = pairs
        elif statement.keyword in ("BA_DEF_", "BA_DEF_DEF_"):
            self.attributes.define(statement)
        elif statement.keyword == "BU_":
            self._nodes(statement)
        elif statement.keyword == "BS_" and statement.body.strip(": "):
            self.done.leave_out(statement, "event types need no bit rate")
        elif statement.keyword == UNKNOWN:
            self.done.leave_out(statement, "no statement of DBC begins like this")

    def _nodes(self, statement: Statement) -> None:
        """Only look at the names: messages say who sends them."""
        nodes = re.split(r"[\s,]+", statement.body.lstrip(":").strip())
        if bad := [node for node in nodes if node and not is_name(node)]:
            self.done.note(statement.line, f"node names that DBC does not allow: {shown(', '.join(bad))}")

    def _message(self, statement: Statement) -> MessageParts | None:
        found = _MESSAGE.match(statement.body)
        number = integer(found["id"]) if found else None
        if found is None or number is None or not found["name"]:
            self.done.leave_out(statement, "it is not a message; its signals are left out with it")
            return None
        if found["name"] == NO_MESSAGE:
            return None
        given = self._identifier(statement, number)
        if given is None or len(found["size"].lstrip("0")) > MAX_DIGITS:
            self.done.leave_out(statement, "no message has such an identifier or length")
            return None
        sender = found["sender"] or NO_NODE
        if not found["sender"]:
            self.done.note(statement.line, f"{found['name']}: has no sender")
        name = self.done.usable_name(found["name"], statement.line, "message name")
        sender = self.done.usable_name(sender, statement.line, "sender")
        head = Part(statement.line, f"BO_ {given} {name}: {int(found['size'])} {sender}")
        message = MessageParts(found["name"], given, head)
        self._by_number.setdefault(number, message)
        self.done.messages.append(message)
        return message

    def _identifier(self, statement: Statement, number: int) -> int | None:
        """The identifier with its flag as DBC has it; None if it cannot be one."""
        if "x" in statement.body.split()[0].lower():
            self.done.note(statement.line, f"identifier {number:#x} is hexadecimal")
        if 0 <= number <= STANDARD_ID_MASK or EXTENDED_FLAG <= number <= EXTENDED_FLAG | ID_MASK:
            return number
        if not 0 <= number < 1 << 32:
            return None
        bits = number & ID_MASK
        why = (
            "is taken as extended, though the flag is missing" if bits == number else f"is taken as {bits:#x}, extended"
        )
        self.done.note(statement.line, f"identifier {number:#x} has more than 11 bits and {why}")
        return bits | EXTENDED_FLAG

    def _signal(self, statement: Statement) -> None:
        message, found = self._current, _SIGNAL.match(statement.body)
        if message is None or found is None:
            if message is not None or self._is_first:
                self.done.leave_out(statement, "it is not a signal" if message else "it belongs to no message")
            return
        try:
            text = self._signal_text(statement.line, found, message)
        except _Unusable as problem:
            self.done.leave_out(statement, str(problem))
        else:
            message.signals.append(Part(statement.line, text))

    def _signal_text(self, line: int, found: re.Match[str], message: MessageParts) -> str:
        size, start = int(found["size"][:99]), int(found["start"][:99])
        if not 0 < size < 10**MAX_DIGITS or start >= 10**MAX_DIGITS:
            raise _Unusable("no signal has such bits")
        factors = scale_and_offset(found["factors"])
        if factors is None:
            raise _Unusable(f"scale and offset cannot be read: ({shown(found['factors'])})")
        name, marker = _name_and_marker(" ".join(found["head"].split()))
        if not name:
            raise _Unusable("it has no name")
        given = self.done.usable_name(name, line, "signal name")
        message.names.setdefault(name, given)
        for what in _oddities(found, factors):
            self.done.note(line, f"{name}: {what}")
        bits = f"{start}|{size}@{found['order']}{found['sign'] or '+'}"
        unit, _ = _unit_and_receivers(found["rest"])
        limits = "|".join(_limits(found["range"]) or ("0", "0"))
        return f"SG_ {given}{marker} : {bits} ({factors[0]},{factors[1]}) [{limits}] {quoted(unit)} {NO_NODE}"

    # -- statements about messages -------------------------------------------------------------------------------------

    def read_rest(self, statement: Statement) -> None:
        """Second pass: statements about messages and signals; what event types do not need is left out."""
        if not statement.ended and statement.keyword in _READERS:
            self.done.note(statement.line, f"{shown(statement.text)}: a `;` or a quote is missing")
        if reader := _READERS.get(statement.keyword):
            try:
                reader(self, statement)
            except _Unusable as problem:
                self.done.leave_out(statement, str(problem))

    def _find(self, statement: Statement, number: str) -> MessageParts:
        found = integer(number)
        if found is not None:
            for meant in (found, found ^ EXTENDED_FLAG):
                if message := self._by_number.get(meant):
                    if meant != found:
                        self.done.note(statement.line, f"identifier {found} is taken as {message.name}, {meant}")
                    return message
        raise _Unusable(f"the file has no message {number}")

    def _find_signal(self, statement: Statement, number: str, name: str) -> tuple[MessageParts, str]:
        message = self._find(statement, number)
        given = message.names.get(" ".join(name.split()))
        if given is None:
            raise _Unusable(f"message {message.name} has no signal {name}")
        return message, given

    def _value_table(self, statement: Statement) -> None:
        if (named := _NAMED_TABLE.fullmatch(statement.body)) and named["table"] in self._tables:
            self._add_table(statement, named["id"], named["name"], self._tables[named["table"]])
        elif (found := _TABLE.fullmatch(statement.body)) and integer(found["id"]) is not None:
            self._add_table(statement, found["id"], found["name"], found["pairs"] or "")
        elif integer(statement.body.partition(" ")[0]) is not None:
            raise _Unusable("it is not a value table")
        # else it is about an environment variable

    def _add_table(self, statement: Statement, number: str, name: str, pairs: str) -> None:
        message, given = self._find_signal(statement, number, name)
        table, rest = _pairs(pairs)
        if rest:
            self.done.note(statement.line, f"{shown(statement.text)}: cannot read {shown(rest)!r}")
        if table:
            text = " ".join(f"{value} {quoted(label)}" for value, label in table.items())
            message.add(statement, f"VAL_ {message.number} {given} {text} ;")

    def _comment(self, statement: Statement) -> None:
        found = _COMMENT.fullmatch(statement.body)
        if found is None:
            if statement.body.startswith(("SG_", "BO_", "VAL_")):
                raise _Unusable("it is not a comment")
            return
        text = found["text"].rstrip().removesuffix('"')
        if found["kind"] == "BO_":
            message = self._find(statement, found["id"])
            message.add(statement, f"CM_ BO_ {message.number} {quoted(text)};")
            return
        if not found["name"]:
            raise _Unusable("it names no signal")
        message, given = self._find_signal(statement, found["id"], found["name"])
        message.add(statement, f"CM_ SG_ {message.number} {given} {quoted(text)};")

    def _value_type(self, statement: Statement) -> None:
        found = _matching(_VALUE_TYPE, statement)
        message, given = self._find_signal(statement, found["id"], found["name"])
        message.add(statement, f"SIG_VALTYPE_ {message.number} {given} : {found['type']};")

    def _multiplexing(self, statement: Statement) -> None:
        found = _matching(_RANGES, statement)
        message, given = self._find_signal(statement, found["id"], found["name"])
        _, multiplexer = self._find_signal(statement, found["id"], found["multiplexer"])
        ranges = value_ranges(found["ranges"])
        if not ranges:
            raise _Unusable("the values of the multiplexer cannot be read, or are too many")
        values = ", ".join(f"{low}-{high}" for low, high in ranges)
        message.add(statement, f"SG_MUL_VAL_ {message.number} {given} {multiplexer} {values};")

    def _senders(self, statement: Statement) -> None:
        found = _matching(_SENDERS, statement)
        message = self._find(statement, found["id"])
        nodes = [
            self.done.usable_name(node, statement.line, "sender")
            for node in re.split(r"[\s,]+", found["nodes"])
            if node
        ]
        if nodes:
            message.add(statement, f"BO_TX_BU_ {message.number} : {','.join(nodes)};")

    def _attribute(self, statement: Statement) -> None:
        attribute = self.attributes.read(statement)
        if attribute is None:
            return
        line, name, value = statement.line, quoted(attribute.name), attribute.value
        if attribute.kind == "BU_" and is_name(attribute.owner):
            self.done.attributes.append(Part(line, f"BA_ {name} BU_ {attribute.owner} {value};"))
        elif attribute.kind == "BO_":
            message = self._find(statement, attribute.number)
            message.add(statement, f"BA_ {name} BO_ {message.number} {value};")
        elif attribute.kind == "SG_":
            message, given = self._find_signal(statement, attribute.number, attribute.owner)
            message.add(statement, f"BA_ {name} SG_ {message.number} {given} {value};")


class _Unusable(Exception):
    """A statement cannot be used; the message says why."""


_READERS: Mapping[str, Callable[[_Repair, Statement], None]] = MappingProxyType(
    {
        "VAL_": _Repair._value_table,
        "CM_": _Repair._comment,
        "SIG_VALTYPE_": _Repair._value_type,
        "SG_MUL_VAL_": _Repair._multiplexing,
        "BO_TX_BU_": _Repair._senders,
        "BA_": _Repair._attribute,
    }
)


def _matching(pattern: re.Pattern[str], statement: Statement) -> re.Match[str]:
    if found := pattern.match(statement.body):
        return found
    raise _Unusable("it cannot be read")


def _name_and_marker(head: str) -> tuple[str, str]:
    """Return the name of a signal, and how it is multiplexed as cantools wants that to be written."""
    found = _MARKED.fullmatch(head)
    if found is None:
        return head, ""
    marker = "M" if found["multiplexer"] else f"m{integer(found['value'])}{found['both']}"
    return found["name"], f" {marker}"


def _unit_and_receivers(rest: str) -> tuple[str, str]:
    before, quote, after = rest.partition('"')
    if not quote:
        return "", before
    unit, quote, receivers = after.rpartition('"')
    if quote:
        return unit, receivers
    unit, _, receivers = after.partition(" ")
    return unit, receivers


def _limits(text: str | None) -> tuple[str, str] | None:
    low, high, *more = [*map(decimal, (text or "").split("|")), None]
    return None if low is None or high is None or len(more) != 1 else (low, high)


def _oddities(found: re.Match[str], factors: tuple[str, str]) -> Iterator[str]:
    if not found["sign"]:
        yield "has no sign and is taken as unsigned"
    if ",".join(factors) != "".join(found["factors"].split()):
        yield f"scale and offset ({shown(found['factors'])}) are taken as {factors[0]} and {factors[1]}"
    if _limits(found["range"]) is None:
        yield "its limits cannot be read"
    unit, receivers = _unit_and_receivers(found["rest"])
    if found["rest"].count('"') != 2 or '"' in unit:
        yield "the quotes of its unit are not in order"
    if not _RECEIVERS.fullmatch(receivers):
        yield "has no receiver, or one that cannot be read"


def _pairs(text: str) -> tuple[dict[int, str], str]:
    table: dict[int, str] = {}
    rest, end = "", 0
    for found in _PAIR.finditer(text):
        rest += text[end : found.start()].strip()
        end = found.end()
        value = integer(found["value"])
        if value is None:
            rest += found.group()
        else:
            table[value] = found["label"]
    return table, rest + text[end:].strip()
