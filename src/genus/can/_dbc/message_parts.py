"""KCD and SYM files with only some of their messages, to find those that cantools refuses."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from xml.etree import ElementTree

from genus.can._dbc.dbc_numbers import integer
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK

_KCD = "{http://kayak.2codeornot2code.org/1.0}"
_SYM_BLOCK = re.compile(r"^\[(?P<name>[^\]\n]*)\][^\n]*\n(?:(?![\[{]).*\n?)*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MessageChoice:
    """The messages of a file, by name, and the text of the file with some of them."""

    names: tuple[str, ...]
    text_with: Callable[[Collection[int]], str]
    """The text with the messages of these positions in `names`."""
    repairs: tuple[str, ...] = ()
    """What was repaired in them."""


def messages_of(text: str, format: str) -> MessageChoice | None:
    """The messages of a KCD or SYM file; None if it is another format, or damaged as a whole."""
    if format == "kcd":
        return _kcd(text)
    return _sym(text) if format == "sym" else None


def _kcd(text: str) -> MessageChoice | None:
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

    repairs = [f"{_shown(message)} {problem}" for _, message in found if (problem := _extend(message))]
    return MessageChoice(tuple(_shown(message) for _, message in found), text_with, tuple(repairs))


def _shown(message: ElementTree.Element) -> str:
    return f"message {message.get('name', '')} ({message.get('id', 'no identifier')})"


def _extend(message: ElementTree.Element) -> str | None:
    """Mark a message as extended if its identifier is; returns what was wrong."""
    number = integer(message.get("id", ""))
    if number is None or not STANDARD_ID_MASK < number <= ID_MASK or message.get("format") == "extended":
        return None
    message.set("format", "extended")
    return "is taken as extended: its identifier has more than 11 bits"


def _sym(text: str) -> MessageChoice:
    """A message may have several blocks, one for each value of its multiplexer; only the first has its identifier."""
    blocks = list(_SYM_BLOCK.finditer(text))
    names = tuple(dict.fromkeys(block["name"] for block in blocks))
    first = {block["name"]: text.count("\n", 0, block.start()) + 1 for block in reversed(blocks)}

    def text_with(chosen: Collection[int]) -> str:
        kept = {names[at] for at in chosen}
        return _SYM_BLOCK.sub(lambda block: block.group() if block["name"] in kept else _blank(block.group()), text)

    return MessageChoice(tuple(f"line {first[name]}: message {name}" for name in names), text_with)


def _blank(text: str) -> str:
    """As many empty lines as a text has, so that the lines after it keep their numbers."""
    return "\n" * text.count("\n")
