"""Reading DBC files with cantools into layouts, with names that event types can have.

A file that cantools refuses only because signals overlap or do not fit is read leniently, and this is reported:
overlapping signals are common in real files, and each of them can be decoded. Signals that cannot be decoded are left
out and reported.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cantools.database
import msgspec
from cantools.database.can import Database, Message, Signal

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
from genus.can._logs.log_file import suppress_warnings
from genus.can._wire.frame import FD_BYTES
from genus.errors import DbcError

_SIZE = re.compile(r"^\s*BO_\s+\d+\s+\w+\s*:\s*(\d+)|:\s*(\d+)\s*\|\s*(\d+)\s*@", re.MULTILINE)
_RANGES = re.compile(r"^SG_MUL_VAL_[^;]*", re.MULTILINE)
_MOST_DIGITS = 5
"""The longest size, in digits, given to cantools, which builds lists of all bits and of all numbers in a range."""


@dataclass(slots=True)
class Layouts:
    """State while a file is read; afterwards its messages, renamed names and problems."""

    path: Path
    types: NameAllocator = field(default_factory=lambda: NameAllocator(TYPE_WORDS))
    """The names of messages, of the file and of enumerations, which share the namespace of a module."""
    name: str = ""
    messages: tuple[MessageLayout, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    """Original and new names; a signal's original name has its message in front."""
    problems: list[str] = field(default_factory=list)

    def rename(self, wanted: str, name: str, owner: str = "") -> str:
        """Record the new name if it differs from the wanted one; returns the new name."""
        if name != wanted:
            self.renamed[f"{owner}{wanted}"] = name
        return name

    def report(self, problem: str) -> None:
        """Record a problem."""
        self.problems.append(problem)


def read_layouts(path: str | os.PathLike[str]) -> Layouts:
    """The layouts of the messages of a DBC file; DbcError if it cannot be read."""
    found = Layouts(Path(path))
    messages = _load_database(found, _read_text(found.path)).messages
    names = [found.rename(message.name, found.types.allocate(message.name)) for message in messages]
    found.name = found.rename(found.path.stem, found.types.allocate(found.path.stem))
    found.messages = tuple(_message(found, *named) for named in zip(names, messages, strict=True))
    for sharing in _same_identifier(found.messages):
        *others, last = (message.type_name for message in sharing)
        found.report(f"{last}: has the identifier of {' and '.join(others)}, and gets all of their frames")
    return found


def _read_text(path: Path) -> str:
    """The file's text: UTF-8, or else Windows code page 1252."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise DbcError(f"cannot read {path}: {problem.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    return text.replace("\r\n", "\n")


def _check_sizes(path: Path, text: str) -> None:
    """Refuse sizes for which cantools would use up all memory."""
    sizes = [size for found in _SIZE.findall(text) for size in found]
    ends = [end for ranges in _RANGES.findall(text) for end in re.findall(r"-\s*(\d+)", ranges)]
    if huge := next((size for size in sizes + ends if len(size.lstrip("0")) > _MOST_DIGITS), None):
        raise DbcError(f"{path}: no message has bits, bytes or multiplexed signals up to {huge[:30]}")


def _load_database(found: Layouts, text: str) -> Database:
    _check_sizes(found.path, text)
    try:
        return _parse(text, strict=True)
    except Exception as refused:
        try:
            database = _parse(text, strict=False)
        except Exception:
            raise DbcError(f"{found.path}: cantools cannot read it: {_one_line(refused)}") from refused
        found.report(f"cantools refuses it in strict mode: {_one_line(refused)}")
        return database


def _parse(text: str, *, strict: bool) -> Database:
    with suppress_warnings("cantools"):
        database = cantools.database.load_string(text, database_format="dbc", strict=strict)
    assert isinstance(database, Database)
    return database


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


def _message(found: Layouts, type_name: str, message: Message) -> MessageLayout:
    if not 0 <= message.length <= FD_BYTES:
        found.report(f"{type_name}: has {message.length} bytes, but a frame has at most {FD_BYTES}")
    layout = MessageLayout(
        name=message.name,
        type_name=type_name,
        frame_id=message.frame_id,
        extended=message.is_extended_frame,
        length=max(0, message.length),
        signals=tuple(_signals(found, type_name, message)),
        fd=message.is_fd,
        j1939=message.protocol == "j1939",
        senders=tuple(message.senders),
        cycle_time_ms=message.cycle_time,
        comment=message.comment or None,
    )
    for lost in set(layout.signals) - set(layout.reachable()):
        found.report(f"{type_name}.{lost.name}: its multiplexer {lost.multiplexer} is never present, so neither is it")
    return layout


def _signals(found: Layouts, owner: str, message: Message) -> Iterator[SignalLayout]:
    """The signals of a message; labels are named after all signals are."""
    names = NameAllocator(ATTRIBUTE_WORDS)
    layouts = []
    for signal in message.signals:
        layout = _signal(signal, message)
        if problem := layout.problem(message.length):
            found.report(f"{owner}.{signal.name}: {problem}; it is left out")
        else:
            attribute = found.rename(signal.name, names.allocate(signal.name), f"{message.name}.")
            layouts.append(msgspec.structs.replace(layout, attribute=attribute))
    for layout in layouts:
        yield _add_label(found, owner, layout, names) if layout.choices else layout


def _add_label(found: Layouts, owner: str, signal: SignalLayout, names: NameAllocator) -> SignalLayout:
    """A signal with a value table, with the names of its label and its enumeration."""
    low, high = signal.raw_range
    if beyond := [f"{value} ({label})" for value, label in signal.choices if not low <= value <= high]:
        found.report(f"{owner}.{signal.name}: its value table names {', '.join(beyond)}, beyond {low} to {high}")
    wanted = f"{signal.attribute}_label"
    label = found.rename(wanted, names.allocate(wanted), f"label of {signal.name}: {owner}.")
    enumeration = found.types.allocate(f"{owner}_{signal.attribute}")
    return msgspec.structs.replace(signal, label=label, enumeration=enumeration)


def _signal(signal: Signal, message: Message) -> SignalLayout:
    big_endian = signal.byte_order == "big_endian"
    scale, offset = _conversion(signal)
    return SignalLayout(
        name=signal.name,
        attribute=signal.name,
        start=signal.start,
        length=signal.length,
        shift=shift_of(signal.start, signal.length, big_endian, message.length),
        big_endian=big_endian,
        signed=signal.is_signed,
        is_float=signal.conversion.is_float,
        scale=scale,
        offset=offset,
        unit=signal.unit or None,
        multiplexer=signal.multiplexer_signal,
        selected_by=frozenset(signal.multiplexer_ids or ()),
        selects=_selects(signal, message),
        choices=_choices(signal),
        comment=signal.comment or None,
        minimum=signal.minimum,
        maximum=signal.maximum,
    )


def _conversion(signal: Signal) -> tuple[Number, Number]:
    """Scale and offset; as integers if both are whole numbers."""
    scale, offset = signal.conversion.scale, signal.conversion.offset
    whole = all(isinstance(number, int) or number.is_integer() for number in (scale, offset))
    return (int(scale), int(offset)) if whole else (scale, offset)


def _selects(signal: Signal, message: Message) -> frozenset[int] | None:
    """The valid values of a multiplexer: those that select a signal, and those of its value table."""
    if not signal.is_multiplexer:
        return None
    chosen = [other.multiplexer_ids or () for other in message.signals if other.multiplexer_signal == signal.name]
    return frozenset().union(*chosen, dict(_choices(signal))) or None


def _choices(signal: Signal) -> tuple[tuple[int, str], ...]:
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
