"""The messages of a file as layouts, with names that event types can have.

Signals that overlap are reported; each of them is decoded. Signals that cannot be decoded are left out and reported.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from cantools.database.can import Message, Signal
from cantools.database.diagnostics.data import Data
from cantools.database.diagnostics.did import Did

from genus.can._dbc.database_file import DatabaseFile, read_content, read_database
from genus.can._dbc.j1939 import J1939_WORDS, GroupIndex, j1939_hint, standard_messages
from genus.can._dbc.layout import (
    ATTRIBUTE_WORDS,
    TYPE_WORDS,
    MessageLayout,
    NameAllocator,
    Number,
    SignalLayout,
    same_bits,
    shift_of,
)
from genus.can._j1939 import MAX_FAST, MAX_LENGTH, pgn_of
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, PRIORITY_SHIFT

_BUS_PROTOCOL = re.compile(rb'^\s*BA_\s+"ProtocolType"\s+"(?:J1939|NMEA ?2000)"', re.MULTILINE | re.IGNORECASE)
PAIRS_SHOWN = 5
"""So many pairs of overlapping signals of a message are named."""


@dataclass(slots=True, eq=False)
class Layouts:
    """State while a file is read; afterwards its messages, renamed names and problems."""

    path: Path
    file: DatabaseFile
    types: NameAllocator = field(default_factory=lambda: NameAllocator(TYPE_WORDS))
    """The names of messages, of the file and of enumerations, which share the namespace of a module."""
    name: str = ""
    messages: tuple[MessageLayout, ...] = ()
    standard: tuple[MessageLayout, ...] = ()
    """Messages that every J1939 bus has, and the file does not."""
    dids: tuple[MessageLayout, ...] = ()
    """Diagnostic data; their identifiers are not those of frames."""
    repairs: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    """Original and new names; a signal's original name has its message in front."""
    problems: list[str] = field(default_factory=list)

    def rename(self, wanted: str, name: str, owner: str = "") -> str:
        if name != wanted:
            self.renamed[f"{owner}{wanted}"] = name
        return name

    def report(self, problem: str) -> None:
        self.problems.append(problem)


def read_layouts(
    path: str | os.PathLike[str], *, truncated: bool = False, j1939: bool | None = None, nmea2000: bool = False
) -> Layouts:
    """Return the layouts of the messages of a file; DbcError if it cannot be read. The same content is parsed once.

    `j1939` says whether messages with 29-bit identifiers are J1939 messages; by default those of which the file says
    it. With `nmea2000` they are, and those longer than a frame are sent in fast packets.
    """
    return _parse_layouts(Path(path), read_content(Path(path)), truncated, j1939, nmea2000)


@lru_cache(maxsize=8)
def _parse_layouts(path: Path, content: bytes, truncated: bool, j1939: bool | None, nmea2000: bool) -> Layouts:
    file = read_database(path, content)
    protocol = _Protocol(j1939 if not nmea2000 else True, nmea2000, says_j1939(content))
    found = Layouts(path, file, repairs=file.repairs)
    messages: list[Message | Did] = [*_without_repeats(found, protocol, file.messages), *file.dids]
    wanted = [file.name(message.name) for message in messages]
    names = [found.rename(name, found.types.allocate(name)) for name in wanted]
    found.name = found.rename(found.path.stem, found.types.allocate(found.path.stem))
    layouts = [
        _message(found, protocol, name, message) if isinstance(message, Message) else _did(found, name, message)
        for name, message in zip(names, messages, strict=True)
    ]
    if not layouts:
        found.report("the file has no messages, so there are no types, and no frame can be decoded")
    layouts = [msgspec.structs.replace(layout, truncated=truncated) for layout in layouts]
    found.messages = tuple(layout for layout in layouts if not layout.diagnostic)
    found.dids = tuple(layout for layout in layouts if layout.diagnostic)
    _complete_j1939(found, is_asked=j1939 is not None, truncated=truncated)
    for sharing in _same_identifier(found.messages):
        *others, last = (message.type_name for message in sharing)
        found.report(f"{last}: has the identifier of {' and '.join(others)}, and gets all of their frames")
    return found


class _Protocol(NamedTuple):
    """Which messages are J1939 messages: as was asked for, or as the file says."""

    asked: bool | None
    nmea2000: bool
    is_said: bool

    def is_j1939(self, message: Message) -> bool:
        said = message.protocol == "j1939" or self.is_said
        return message.is_extended_frame and (said if self.asked is None else self.asked)


def says_j1939(file: bytes) -> bool:
    """Return whether a DBC file says that its bus is a J1939 bus, without saying it of single messages.

    >>> says_j1939(b'BA_ "ProtocolType" "J1939";')
    True
    """
    return b'"VFrameFormat"' not in file and _BUS_PROTOCOL.search(file) is not None


def _complete_j1939(found: Layouts, *, is_asked: bool, truncated: bool) -> None:
    if any(message.j1939 for message in found.messages):
        for problem in GroupIndex(found.messages).problems():
            found.report(problem)
        standard = standard_messages(found.messages, found.types)
        found.standard = tuple(msgspec.structs.replace(each, truncated=truncated) for each in standard)
    elif not is_asked and (hint := j1939_hint(found.messages)):
        found.report(hint)


def _without_repeats(found: Layouts, protocol: _Protocol, messages: tuple[Message, ...]) -> Iterator[Message]:
    """Yield the messages without those that a later one repeats: of the same name and identifier, empty or equal to it.

    J1939 messages are repeated if they have one parameter group: then their identifiers are only examples.
    """
    keys = [_key_of(protocol, message) for message in messages]
    later = dict(zip(keys, messages, strict=True))
    for key, message in zip(keys, messages, strict=True):
        last = later[key]
        if message is last or (message.signals and str(message.signals) != str(last.signals)):
            yield message
        else:
            found.report(f"{found.file.name(message.name)}: is in the file twice; the first is left out")


def _key_of(protocol: _Protocol, message: Message) -> tuple[str, int, bool]:
    is_j1939 = protocol.is_j1939(message)
    identifier = pgn_of(message.frame_id) if is_j1939 else message.frame_id
    return message.name, identifier, message.is_extended_frame


def _message(found: Layouts, protocol: _Protocol, type_name: str, message: Message) -> MessageLayout:
    is_j1939 = protocol.is_j1939(message)
    most, what = (MAX_LENGTH, "J1939 message") if is_j1939 else (FD_BYTES, "frame")
    if not 0 <= message.length <= most:
        found.report(f"{type_name}: has {message.length} bytes, but a {what} has at most {most}")
    if message.is_container:
        found.report(f"{type_name}: is a container of other messages, which are not decoded")
    layouts = _merged([_signal(found, signal, message) for signal in message.signals])
    layout = MessageLayout(
        name=found.file.name(message.name),
        type_name=type_name,
        frame_id=message.frame_id,
        extended=message.is_extended_frame,
        length=max(0, message.length),
        signals=tuple(_named(found, type_name, message, layouts, J1939_WORDS if is_j1939 else frozenset())),
        fd=message.is_fd,
        j1939=is_j1939,
        fast=is_j1939 and protocol.nmea2000 and CLASSIC_BYTES < message.length <= MAX_FAST,
        senders=tuple(found.file.name(sender) for sender in message.senders if sender),
        cycle_time_ms=round(message.cycle_time) if isinstance(message.cycle_time, int | float) else None,
        comment=message.comment or None,
        id_mask=_id_mask(message),
    )
    for lost in set(layout.signals) - set(layout.reachable()):
        found.report(f"{type_name}.{lost.name}: its multiplexer {lost.multiplexer} is never present, so neither is it")
    if pairs := [f"{one.name} and {other.name}" for one, other in layout.overlapping()]:
        more = f" and {len(pairs) - PAIRS_SHOWN} more pairs" if len(pairs) > PAIRS_SHOWN else ""
        found.report(f"{type_name}: signals overlap, and all are decoded: {', '.join(pairs[:PAIRS_SHOWN])}{more}")
    return layout


def _id_mask(message: Message) -> int:
    """Return what `GenusIdMask` says of the priority, which alone may vary: other bits say what the event has."""
    given = None if message.dbc is None else message.dbc.attributes.get("GenusIdMask")
    varies = message.is_extended_frame and given is not None and str(given.value).isdecimal()
    return int(given.value) & ID_MASK | (1 << PRIORITY_SHIFT) - 1 if given is not None and varies else ID_MASK


def _merged(layouts: list[SignalLayout]) -> list[SignalLayout]:
    """The signals; those that several values of a multiplexer select, and that the file repeats for each, are one."""
    selected: dict[SignalLayout, list[frozenset[int]]] = {}
    for layout in layouts:
        if layout.multiplexer is not None:
            selected.setdefault(_whenever(layout), []).append(layout.selected_by)
    merged: list[SignalLayout] = []
    for layout in layouts:
        by = selected.get(_whenever(layout), [])
        if len(set(by)) < 2:
            merged.append(layout)
        elif layout.selected_by == by[0]:
            merged.append(msgspec.structs.replace(layout, selected_by=frozenset().union(*by)))
    return merged


def _whenever(layout: SignalLayout) -> SignalLayout:
    return msgspec.structs.replace(layout, selected_by=frozenset(), comment=None)


def _did(found: Layouts, type_name: str, did: Did) -> MessageLayout:
    """Diagnostic data as a message; its identifier is the one by which they are requested."""
    layouts = [_layout(found, data, did.length) for data in did.datas]
    signals = tuple(_named(found, type_name, did, layouts))
    return MessageLayout(did.name, type_name, did.identifier, False, did.length, signals, diagnostic=True)


def _named(
    found: Layouts, owner: str, message: Message | Did, layouts: list[SignalLayout], words: frozenset[str] = frozenset()
) -> Iterator[SignalLayout]:
    """Yield the signals that can be decoded, with names of attributes; labels are named after all signals are.

    `words` are attributes that the message has besides.
    """
    names = NameAllocator(ATTRIBUTE_WORDS | words)
    named: dict[SignalLayout, SignalLayout] = {}
    for layout in layouts:
        problem = "is in the message twice" if layout in named else layout.problem(message.length)
        if problem:
            found.report(f"{owner}.{layout.name}: {problem}; it is left out")
        else:
            attribute = found.rename(layout.name, names.allocate(layout.name), f"{found.file.name(message.name)}.")
            named[layout] = msgspec.structs.replace(layout, attribute=attribute)
    for layout in named.values():
        yield _add_label(found, owner, layout, names) if layout.choices else layout


def _add_label(found: Layouts, owner: str, signal: SignalLayout, names: NameAllocator) -> SignalLayout:
    low, high = signal.raw_range
    if beyond := [f"{value} ({label})" for value, label in signal.choices if not low <= value <= high]:
        found.report(f"{owner}.{signal.name}: its value table names {', '.join(beyond)}, beyond {low} to {high}")
    wanted = f"{signal.attribute}_label"
    label = found.rename(wanted, names.allocate(wanted), f"label of {signal.name}: {owner}.")
    enumeration = found.types.allocate(f"{owner}_{signal.attribute}")
    return msgspec.structs.replace(signal, label=label, enumeration=enumeration)


def _signal(found: Layouts, signal: Signal, message: Message) -> SignalLayout:
    multiplexer = signal.multiplexer_signal
    return msgspec.structs.replace(
        _layout(found, signal, message.length),
        multiplexer=None if multiplexer is None else found.file.name(multiplexer),
        selected_by=frozenset(signal.multiplexer_ids or ()),
        selects=_selects(signal, message),
        comment=signal.comment or None,
    )


def _layout(found: Layouts, signal: Signal | Data, length: int) -> SignalLayout:
    big_endian = signal.byte_order == "big_endian"
    scale, offset = _conversion(signal)
    return SignalLayout(
        name=found.file.name(signal.name),
        attribute=found.file.name(signal.name),
        start=signal.start,
        length=signal.length,
        shift=shift_of(signal.start, signal.length, big_endian, length),
        big_endian=big_endian,
        signed=signal.is_signed,
        is_float=signal.conversion.is_float,
        scale=scale,
        offset=offset,
        unit=signal.unit or None,
        choices=_choices(signal),
        minimum=signal.minimum,
        maximum=signal.maximum,
    )


def _conversion(signal: Signal | Data) -> tuple[Number, Number]:
    scale, offset = signal.conversion.scale, signal.conversion.offset
    whole = all(isinstance(number, int) or number.is_integer() for number in (scale, offset))
    return (int(scale), int(offset)) if whole else (scale, offset)


def _selects(signal: Signal, message: Message) -> frozenset[int] | None:
    if not signal.is_multiplexer:
        return None
    chosen = [other.multiplexer_ids or () for other in message.signals if other.multiplexer_signal == signal.name]
    return frozenset().union(*chosen, dict(_choices(signal))) or None


def _choices(signal: Signal | Data) -> tuple[tuple[int, str], ...]:
    """The value table by raw value; of two entries for the same bits, the one with the raw value itself is taken."""
    table = {int(value): str(label) for value, label in (signal.conversion.choices or {}).items()}
    raw = {value: same_bits(value, signal.length, signal.is_signed) for value in table}
    by_bits = sorted(table, key=lambda value: raw[value] == value)
    return tuple(sorted({raw[value]: table[value] for value in by_bits}.items()))


def _same_identifier(messages: tuple[MessageLayout, ...]) -> Iterator[list[MessageLayout]]:
    by_id: dict[tuple[int, bool], list[MessageLayout]] = {}
    for message in messages:
        by_id.setdefault((message.frame_id, message.extended), []).append(message)
    return (sharing for sharing in by_id.values() if len(sharing) > 1)
