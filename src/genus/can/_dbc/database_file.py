"""Files that describe the frames of a bus, read with cantools: DBC, ARXML, KCD and SYM, and CDD for diagnostic data.

The format is recognised by the content. cantools checks neither overlapping signals nor signals beyond the end of their
message here: overlapping signals are common in real files, and each of them can be decoded. A DBC file that cantools
refuses is repaired; if it refuses that too, messages are tried one by one, and what it refuses is left out. Messages of
KCD and SYM files are tried one by one too.
"""

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import cantools.database
from cantools.database.can import Message
from cantools.database.can.database import Database
from cantools.database.diagnostics.did import Did

from genus.can._dbc.dbc_repair import MessageParts, Repaired, dbc_text, repair_dbc, shown
from genus.can._dbc.dbc_text import MAX_DIGITS, integer, value_ranges
from genus.can._logs.log_file import suppress_warnings
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK
from genus.errors import DbcError

XML_ROOTS: Mapping[str, str] = MappingProxyType({"AUTOSAR": "arxml", "NetworkDefinition": "kcd", "CANDELA": "cdd"})
"""The formats of XML files, by the name of their first element."""
ENDINGS = ("dbc", "arxml", "kcd", "sym", "cdd")
"""The endings of the files that can be read."""
MAX_REASON = 300
"""cantools shows the whole line that it refuses, which is a long one if the file is no text."""

_PROLOG = r"\s*(?:<\?.*?\?>\s*|<!--.*?-->\s*|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>\s*)*"
_XML_ROOT = re.compile(rf"{_PROLOG}<(?:\w+:)?(\w[\w.-]*)", re.DOTALL)
_DBC = re.compile(r"^[^\S\n]*(?:BO_|BU_|CM_|NS_|VERSION)(?=[\s:])", re.MULTILINE)
_SYM = re.compile(r"\s*(?://[^\n]*\n\s*)*FormatVersion\s*=", re.IGNORECASE)
_LONG = rf"0*\d{{{MAX_DIGITS + 1},}}"
_HUGE = re.compile(
    rf"^[^\S\n]*BO_\s+\S+\s+[^:\n]*:\s*{_LONG}"  # the bytes of a message in DBC
    rf"|:\s*(?:\d+\s*\|\s*{_LONG}|{_LONG}\s*\|\s*\d+)\s*@"  # the bits of a signal
    rf"|\b(?:length|offset|count|bl)\s*=\s*[\"']{_LONG}"  # KCD and CDD
    rf"|<(?:LENGTH|FRAME-LENGTH|START-POSITION)>\s*{_LONG}"  # ARXML
    rf"|^[^\S\n]*(?:Len|Var|Sig)\s*=[^/\n]*\b{_LONG}",  # SYM
    re.MULTILINE,
)
"""Sizes with which cantools would use up all memory."""
_MULTIPLEXING = re.compile(r"^[^\S\n]*SG_MUL_VAL_\s[^;]*", re.MULTILINE)
_DECLARED = re.compile(r"^[^\S\n]*(?:BO_\s+\d+\s+\w+\s*:|SG_\s+\w+[^\":\n]*:\s*\d+\s*\|)", re.MULTILINE)
"""Lines that declare messages and signals, also in comments."""
_END: Mapping[str, str] = MappingProxyType({"dbc": "\nBS_:\n"})
"""An empty statement to end with: cantools does not report an incomplete statement at the end of a DBC file."""
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127, 65279), " ")


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    messages: tuple[Message, ...]
    dids: tuple[Did, ...] = ()
    """Diagnostic data, which a CDD file describes instead of messages."""
    placeholders: Mapping[str, str] = field(default_factory=dict)
    """The names that the file has for names that cantools could not read."""
    repairs: tuple[str, ...] = ()
    """What was repaired or left out so that cantools could read the file."""

    @property
    def size(self) -> int:
        return sum(1 + len(message.signals) for message in self.messages)

    def name(self, name: str | None) -> str:
        """Return the name in the file for a name that cantools gives; empty if the file has none."""
        return self.placeholders.get(name, name) if name else ""


def read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise DbcError(f"cannot read {path}: {problem.strerror}") from None


def read_database(path: Path, data: bytes) -> DatabaseFile:
    text = decode_text(data)
    if not text.strip():
        raise DbcError(f"{path}: is empty")
    format = detect_format(text, path)
    try:
        return _read_dbc(text) if format == "dbc" else _read_other(text, format)
    except _Refused as refused:
        raise DbcError(f"{path}: cantools cannot read it as {format.upper()}: {refused}") from refused.__cause__


# -- text --------------------------------------------------------------------------------------------------------------


def decode_text(data: bytes) -> str:
    """Return the text of a file: UTF-16 or UTF-8, or line by line UTF-8 or Windows code page 1252.

    >>> decode_text("°C\\r".encode("utf-16")), decode_text(b"\\xc2\\xb0C\\r\\n\\xb0C")
    ('°C\\n', '°C\\n°C')
    """
    text = _decode_utf16(data)
    if text is None:
        data = data.removeprefix(b"\xef\xbb\xbf")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\n".join(map(_decode_line, data.split(b"\n")))
    return re.sub(r"\r+\n?", "\n", text).translate(_CONTROLS)


def _decode_utf16(data: bytes) -> str | None:
    """Return the text, if the file begins as UTF-16 does: with a byte order mark, or a character of two bytes."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    for start, encoding in ((data[1:4:2], "utf-16-le"), (data[0:4:2], "utf-16-be")):
        if start == b"\0\0" and data[:4] != bytes(4):
            return data.decode(encoding, "replace")
    return None


def _decode_line(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def detect_format(text: str, path: Path) -> str:
    """Return the format of a file: one of `ENDINGS`, by its content, or else by its ending; DbcError for other XML.

    >>> detect_format('<?xml version="1.0"?><NetworkDefinition/>', Path("bus.xml"))
    'kcd'
    """
    if text.lstrip().startswith("<"):
        root = _XML_ROOT.match(text)
        if root and root[1] in XML_ROOTS:
            return XML_ROOTS[root[1]]
        known = ", ".join(f"<{name}> of {format.upper()}" for name, format in XML_ROOTS.items())
        raise DbcError(f"{path}: is XML, but does not begin with {known}")
    if _SYM.match(text):
        return "sym"
    ending = path.suffix.lower().removeprefix(".")
    return ending if ending in ENDINGS and not _DBC.search(text) else "dbc"


# -- cantools ----------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """cantools refuses a text; the message says why, on one line."""


def _load(text: str, format: str) -> DatabaseFile:
    if huge := _find_huge(text):
        raise _Refused(f"no message or signal is as large as {shown(huge)!r}")
    with suppress_warnings("cantools"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cantools deprecates diagnostic data, and warns for each
        try:
            found = cantools.database.load_string(text + _END.get(format, ""), database_format=format, strict=False)
        except Exception as problem:
            raise _Refused(_reason(problem)) from problem
    if isinstance(found, Database):
        return DatabaseFile(tuple(found.messages))
    return DatabaseFile((), tuple(found.dids or ()))


def _find_huge(text: str) -> str | None:
    """A size, or a range of a multiplexer's values, with which cantools would use up all memory; None without any."""
    if huge := _HUGE.search(text):
        return huge[0]
    ranges = (found[0] for found in _MULTIPLEXING.finditer(text))
    return next((each for each in ranges if value_ranges(each) is None), None)


def _reason(problem: Exception) -> str:
    """Return the cause that cantools gives, on one line and without the name of the format."""
    cause = problem.__cause__ or problem
    if isinstance(cause, KeyError):
        return f"{cause} is missing"
    text = " ".join(str(cause).split()) or type(cause).__name__
    text = re.sub(r'^[A-Z]+: "(.*)"$', r"\1", text)
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."


def _read_other(text: str, format: str) -> DatabaseFile:
    try:
        return _load(text, format)
    except _Refused:
        choice = _messages_of(text, format)
        if choice is None:
            raise
        refused = {at: why for at in range(len(choice.names)) if (why := _why_refused(choice.text_with([at]), format))}
        accepted = [at for at in range(len(choice.names)) if at not in refused]
        if not accepted:
            raise
        left_out = [f"{choice.names[at]} is left out: {why}" for at, why in refused.items()]
        return replace(_load(choice.text_with(accepted), format), repairs=(*choice.repairs, *left_out))


def _why_refused(text: str, format: str = "dbc") -> str | None:
    try:
        _load(text, format)
    except _Refused as refused:
        return str(refused)
    return None


# -- KCD and SYM -------------------------------------------------------------------------------------------------------

_KCD = "{http://kayak.2codeornot2code.org/1.0}"
_SYM_BLOCK = re.compile(r"^\[(?P<name>[^\]\n]*)\][^\n]*\n(?:(?![\[{]).*\n?)*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _MessageChoice:
    names: tuple[str, ...]
    text_with: Callable[[Collection[int]], str]
    """The text with the messages of these positions in `names`."""
    repairs: tuple[str, ...] = ()
    """What was repaired in them."""


def _messages_of(text: str, format: str) -> _MessageChoice | None:
    if format == "kcd":
        return _kcd(text)
    return _sym(text) if format == "sym" else None


def _kcd(text: str) -> _MessageChoice | None:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    found = [(bus, message) for bus in root.iter(f"{_KCD}Bus") for message in bus.findall(f"{_KCD}Message")]
    for bus, message in found:
        bus.remove(message)

    def text_with(chosen: Collection[int]) -> str:
        kept = [pair for at, pair in enumerate(found) if at in chosen]
        for bus, message in kept:
            bus.append(message)
        try:
            return ElementTree.tostring(root, encoding="unicode")
        finally:
            for bus, message in kept:
                bus.remove(message)

    repairs = [f"{_titled(message)} {problem}" for _, message in found if (problem := _extend(message))]
    return _MessageChoice(tuple(_titled(message) for _, message in found), text_with, tuple(repairs))


def _titled(message: ElementTree.Element) -> str:
    return f"message {message.get('name', '')} ({message.get('id', 'no identifier')})"


def _extend(message: ElementTree.Element) -> str | None:
    """Mark a message as extended if its identifier is; returns what was wrong."""
    number = integer(message.get("id", ""))
    if number is None or not STANDARD_ID_MASK < number <= ID_MASK or message.get("format") == "extended":
        return None
    message.set("format", "extended")
    return "is taken as extended: its identifier has more than 11 bits"


def _sym(text: str) -> _MessageChoice:
    """A message may have several blocks, one for each value of its multiplexer; only the first has its identifier."""
    blocks = list(_SYM_BLOCK.finditer(text))
    names = tuple(dict.fromkeys(block["name"] for block in blocks))
    first = {block["name"]: text.count("\n", 0, block.start()) + 1 for block in reversed(blocks)}

    def text_with(chosen: Collection[int]) -> str:
        kept = {names[at] for at in chosen}
        return _SYM_BLOCK.sub(lambda block: block.group() if block["name"] in kept else _blank(block.group()), text)

    return _MessageChoice(tuple(f"line {first[name]}: message {name}" for name in names), text_with)


def _blank(text: str) -> str:
    """As many empty lines as a text has, so that the lines after it keep their numbers."""
    return "\n" * text.count("\n")


# -- DBC ---------------------------------------------------------------------------------------------------------------


def _read_dbc(text: str) -> DatabaseFile:
    if not _DBC.search(text):  # cantools and the repairs take minutes to refuse a large file of another kind
        raise _Refused("no line begins with VERSION, BU_ or BO_")
    try:
        found = _load(text, "dbc")
    except _Refused as refused:
        repaired = _load_repaired(text, refused)
        if not repaired.messages:
            raise
        return repaired
    if len(_DECLARED.findall(text)) <= found.size:
        return found
    repaired = _load_repaired(text, _Refused("a quote that is not closed hides messages or signals"))
    return repaired if repaired.size > found.size else found


def _load_repaired(text: str, refused: _Refused) -> DatabaseFile:
    repaired = repair_dbc(text)
    try:
        found = _load(repaired.text, "dbc")
    except _Refused:
        _leave_out_refused(repaired)
        found = _load(repaired.text, "dbc")
    repairs = repaired.repairs or (f"read statement by statement, because cantools refuses it: {refused}",)
    return replace(found, placeholders=repaired.placeholders, repairs=repairs)


def _leave_out_refused(repaired: Repaired) -> None:
    repaired.messages[:] = [each for message in repaired.messages for each in _accepted(repaired, message)]


def _accepted(repaired: Repaired, message: MessageParts) -> Iterator[MessageParts]:
    """Yield the message without what cantools refuses of it; nothing if it refuses the message itself."""
    if not _why_refused(dbc_text(repaired.attributes, [message])):
        yield message
        return
    kept = replace(message, signals=[], extras=[])
    if why := _why_refused(dbc_text(repaired.attributes, [kept])):
        repaired.note(message.head.line, f"{shown(message.head.text)} is left out: {why}")
        return
    for parts, accepted in ((message.signals, kept.signals), (message.extras, kept.extras)):
        for part in parts:
            accepted.append(part)
            if why := _why_refused(dbc_text(repaired.attributes, [kept])):
                accepted.pop()
                repaired.note(part.line, f"{shown(part.text)} is left out: {why}")
    yield kept
