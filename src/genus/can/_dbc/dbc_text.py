"""The text of a DBC file: statements, and numbers, names and strings as people and tools write them.

The text is cut into statements so that one damaged statement does not affect the others. A statement begins with a
keyword and ends at the first `;` outside of strings, or with its line where the format has no `;` (messages and
signals). If that `;` is missing, or a quote is, the next line that begins with a keyword ends the statement: a comment
may contain such lines, but only if its own quotes and its `;` are in order.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

KEYWORDS = frozenset(
    {"BA_", "BA_DEF_", "BA_DEF_DEF_", "BA_DEF_DEF_REL_", "BA_DEF_REL_", "BA_DEF_SGTYPE_", "BA_REL_", "BA_SGTYPE_"}
    | {"BO_", "BO_TX_BU_", "BS_", "BU_", "BU_BO_REL_", "BU_EV_REL_", "BU_SG_REL_", "CAT_", "CAT_DEF_", "CM_"}
    | {"ENVVAR_DATA_", "EV_", "EV_DATA_", "FILTER", "NS_", "NS_DESC_", "SG_", "SG_MUL_VAL_", "SGTYPE_", "SGTYPE_VAL_"}
    | {"SIG_GROUP_", "SIG_TYPE_REF_", "SIG_VALTYPE_", "SIGTYPE_VALTYPE_", "VAL_", "VAL_TABLE_", "VERSION"}
)
"""The words that begin statements; none of them can be a name."""
ONE_LINE = frozenset({"BO_", "SG_", "BS_", "BU_", "VERSION"})
"""Statements that end with their line."""
UNKNOWN = ""
"""The keyword of text that begins with none."""

_WORDS = "|".join(sorted(KEYWORDS, key=len, reverse=True))
_START = re.compile(rf'^[^\S\n]*(?P<keyword>{_WORDS})(?=[\s:"]|\Z)', re.MULTILINE)
_KEYWORD = re.compile(rf'(?:{_WORDS})(?=[\s:"]|\Z)')
_GAP = re.compile(r"[\s;]*+(?>(?://[^\n]*[\s;]*+)*)")
_SYMBOLS = re.compile(r"NS_\s*:?[^\S\n]*+(?>(?:\n\s*[A-Z_]+[^\S\n]*(?=\n|\Z))*)")
"""The section of new symbols: keywords alone on their lines."""
_STRING = r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_TO_SEMICOLON = re.compile(rf'(?>(?:[^";]++|{_STRING})*);', re.DOTALL)
_MAX_LENGTH = 1 << 16
"""A longer comment is damaged; a bound, because the search for a missing quote would read the file to its end."""
_COMMENT = re.compile(rf'CM_\s+(?:(?:SG_|BO_|BU_|EV_)[^";]*)?{_STRING}\s*;', re.DOTALL)
_NEXT_ON_LINE = re.compile(r"(?<=\s)(?:SG_\s+[^\":\n]+:\s*\d+\s*\||BO_\s+\d+\s+[^\":\n]+:\s*\d)")
_LINE_COMMENT = re.compile(r'^((?>(?:[^"/]++|"[^"]*"|/(?!/))*))//.*')


class Statement(NamedTuple):
    """One statement: where it begins, its keyword, and its text from there, without its `;`."""

    line: int
    """Counted from 1."""
    keyword: str
    text: str
    ended: bool
    """Whether its end was found: a `;`, or the end of the line where that is enough."""

    @property
    def body(self) -> str:
        return self.text[len(self.keyword) :].strip()


class Part(NamedTuple):
    line: int
    text: str


def split_statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file in their order; comments and the section of new symbols are left out.

    >>> [tuple(each)[:3] for each in split_statements('BO_ 1 M: 8 A\\n SG_ s : 0|8@1+ (1,0) [0|0] "" B\\nCM_ "open;')]
    [(1, 'BO_', 'BO_ 1 M: 8 A'), (2, 'SG_', 'SG_ s : 0|8@1+ (1,0) [0|0] "" B'), (3, 'CM_', 'CM_ "open')]
    """
    starts = [found.start("keyword") for found in _START.finditer(text)]
    newlines = [found.start() for found in re.finditer("\n", text)]
    at = _skip(text, 0)
    while at < len(text):
        found = _KEYWORD.match(text, at)
        keyword = found.group() if found else UNKNOWN
        following = bisect_right(starts, at)
        most = starts[following] if following < len(starts) else len(text)
        end, ended = _end_of(text, at, keyword, most)
        if keyword != "NS_":
            yield Statement(bisect_right(newlines, at) + 1, keyword, _stripped(text[at:end], keyword), ended)
        at = _skip(text, end)


def _skip(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    assert found is not None  # it matches nothing too
    return found.end()


def _end_of(text: str, at: int, keyword: str, most: int) -> tuple[int, bool]:
    if keyword == "NS_" and (symbols := _SYMBOLS.match(text, at)):
        return symbols.end(), True
    if keyword in ONE_LINE or keyword == UNKNOWN:
        return _end_of_line(text, at, most), True
    found = _TO_SEMICOLON.match(text, at, most)
    if found is None and keyword == "CM_":
        found = _COMMENT.match(text, at, at + _MAX_LENGTH)
    return (found.end(), True) if found else (most, False)


def _end_of_line(text: str, at: int, most: int) -> int:
    """Return the end of the line, or of the first statement on it; signals that are broken into lines are joined."""
    following = _NEXT_ON_LINE.search(text, at + 1, most)
    line = text.find("\n", at, most)
    end = most if line < 0 else line
    if text.startswith("SG_", at) and line >= 0 and "(" not in text[at:line]:
        end = most
    return min(end, following.start()) if following else end


def _stripped(text: str, keyword: str) -> str:
    """Return a statement without its `;` and, if it is a line, without a comment at its end."""
    if keyword in ONE_LINE and (found := _LINE_COMMENT.match(text)):
        text = found.group(1)
    return text.strip().removesuffix(";").rstrip() if keyword != UNKNOWN else text.strip()


# -- numbers, names and strings ----------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\Z")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9A-Fa-f]+|\d+)\Z")
MAX_DIGITS = 5
"""The longest size, in digits, given to cantools, which builds lists of all bits and of all numbers in a range."""
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")
_MAX_DIGITS = 400
"""A longer number is damage, and Python refuses to convert very long ones."""


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None and text not in KEYWORDS


def decimal(text: str) -> str | None:
    """A number as a DBC file may write it; None if it is none, or not finite.

    >>> [decimal(each) for each in ("1E-3", ".5", "-5.", "1,5", "0x10", "1.#INF", "")]
    ['1E-3', '0.5', '-5.', '1.5', '16', None, None]
    """
    text = text.strip().replace(",", ".", 1)
    if len(text) > _MAX_DIGITS:
        return None
    if _DECIMAL.match(text):
        return re.sub(r"^([-+]?)\.", r"\g<1>0.", text)
    return str(integer(text)) if integer(text) is not None else None


def integer(text: str) -> int | None:
    """Return a whole number, also hexadecimal or with zeros behind a point; None if it is none.

    >>> [integer(each) for each in ("12", "0x7FF", "-3", "4.0", "4.5", "x")]
    [12, 2047, -3, 4, None, None]
    """
    text = re.sub(r"\.0*\Z", "", text.strip())
    return int(text, 0 if "x" in text.lower() else 10) if _INTEGER.match(text) and len(text) < _MAX_DIGITS else None


def value_ranges(text: str) -> list[tuple[int, int]] | None:
    """Return the ranges of a multiplexer's values, each with its first and last value; None if one has too many.

    >>> value_ranges("2-2, 529920-529923"), value_ranges("0-100000")
    ([(2, 2), (529920, 529923)], None)
    """
    found = _RANGE.findall(text)
    if any(len(end) > _MAX_DIGITS for pair in found for end in pair):
        return None
    ranges = [(int(low), int(high)) for low, high in found]
    return None if any(high - low >= 10**MAX_DIGITS for low, high in ranges) else ranges


def scale_and_offset(text: str) -> tuple[str, str] | None:
    """Return the two numbers between the brackets of a signal; None if they cannot be told.

    Some tools write a decimal comma. Then the numbers are those that can be meant: the scale is not 0, and zeros at the
    end of fractions are written in both numbers or in none.

    >>> [scale_and_offset(each) for each in ("0.1,-40", "0,1,0", "0,5,-40,0", "1,2,5", "a,b")]
    [('0.1', '-40'), ('0.1', '0'), ('0.5', '-40.0'), None, None]
    """
    parts = [part.strip() for part in re.split(r"[,;]", text)]
    if len(parts) == 3:
        possible = [(".".join(parts[:2]), parts[2]), (parts[0], ".".join(parts[1:]))]
        found = [pair for pair in map(_pair, possible) if pair and _is_plausible(*pair)]
        return found[0] if len(found) == 1 else None
    half = len(parts) // 2
    return _pair((".".join(parts[:half]), ".".join(parts[half:]))) if len(parts) in (2, 4) else None


def _pair(texts: tuple[str, str]) -> tuple[str, str] | None:
    scale, offset = map(decimal, texts)
    return None if scale is None or offset is None else (scale, offset)


def _is_plausible(scale: str, offset: str) -> bool:
    return float(scale) != 0 and scale.endswith(".0") == offset.endswith(".0")


def quoted(text: str) -> str:
    """Return a text as a string of a DBC file; a `\\` at its end would escape the quote, and gets a blank after it.

    >>> quoted('5" pipe'), quoted("C:\\\\")
    ('"5\\\\" pipe"', '"C:\\\\ "')
    """
    text = text.replace('\\"', '"').replace('"', '\\"')
    return f'"{text} "' if text.endswith("\\") else f'"{text}"'


# -- attributes --------------------------------------------------------------------------------------------------------

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

_TEXT = r'"((?:\\.|[^"\\])*)"'
_DEFINITION = re.compile(rf"(?:BU_|BO_|SG_|EV_)?\s*{_TEXT}\s*(?P<value>.*)", re.DOTALL)
_VALUE = re.compile(
    rf"{_TEXT}\s*(?:(?P<kind>BO_|SG_|BU_|EV_)\s+(?P<owner>[^\"]*?\S)\s+)?(?P<value>{_TEXT}|[-+]?[\d.]\S*)", re.DOTALL
)


class Attribute(NamedTuple):
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
            named = re.findall(_TEXT, found["value"])
            self._formats = (*named, *FRAME_FORMATS[len(named) :])

    def read(self, statement: Statement) -> Attribute | None:
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
        for name, type_ in TYPES.items():
            yield Part(0, f"BA_DEF_ {type_ % quoted(name)};")
        yield from self._defaults.values()
