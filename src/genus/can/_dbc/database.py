"""DBC files read through cantools, as layouts under names that event types can have.

What cantools refuses only because signals overlap or do not fit is read all the same, and said: overlapping signals
are common in files from the field, and each has its bits. Signals of which no value can be made are left out, and
said.
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
    Names,
    Number,
    SignalLayout,
    same_bits,
    shift_of,
)
from genus.can._dbc.log_file import quiet
from genus.errors import DbcError

LONGEST_FRAME = 64
_SIZE = re.compile(r"^\s*BO_\s+\d+\s+\w+\s*:\s*(\d+)|:\s*(\d+)\s*\|\s*(\d+)\s*@", re.MULTILINE)
_RANGES = re.compile(r"^SG_MUL_VAL_[^;]*", re.MULTILINE)
_MOST_DIGITS = 5
"""Of sizes that are handed to cantools, which makes a text of every bit and a list of every number in a range."""


@dataclass(slots=True)
class Layouts:
    """State while a file is read; afterwards what was found in it."""

    path: Path
    types: Names = field(default_factory=lambda: Names(TYPE_WORDS))
    """The names of messages, of the file and of enumerations: those a module of all types has."""
    name: str = ""
    messages: tuple[MessageLayout, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    """Names of the file and what became of them, each with the message before it where it has one."""
    problems: list[str] = field(default_factory=list)

    def rename(self, wanted: str, name: str, owner: str = "") -> str:
        """Note that something got another name."""
        if name != wanted:
            self.renamed[f"{owner}{wanted}"] = name
        return name

    def say(self, what: str) -> None:
        """Note a problem."""
        self.problems.append(what)


def read_layouts(path: str | os.PathLike[str]) -> Layouts:
    """The messages of a DBC file; DbcError says why there are none."""
    found = Layouts(Path(path))
    messages = _database(found, _text(found.path)).messages
    names = [found.rename(message.name, found.types.give(message.name)) for message in messages]
    found.name = found.rename(found.path.stem, found.types.give(found.path.stem))
    found.messages = tuple(_message(found, *named) for named in zip(names, messages, strict=True))
    for sharing in _sharing(found.messages):
        *others, last = (message.type_name for message in sharing)
        found.say(f"{last}: has the identifier of {' and '.join(others)}, whose frames it gets")
    return found


def _text(path: Path) -> str:
    """The file's text; files from before UTF-8 are of Windows code page 1252."""
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
    """Refuse sizes that would take cantools all memory there is."""
    sizes = [size for found in _SIZE.findall(text) for size in found]
    ends = [end for ranges in _RANGES.findall(text) for end in re.findall(r"-\s*(\d+)", ranges)]
    if huge := next((size for size in sizes + ends if len(size.lstrip("0")) > _MOST_DIGITS), None):
        raise DbcError(f"{path}: no message has bits, bytes or multiplexed signals up to {huge[:30]}")


def _database(found: Layouts, text: str) -> Database:
    _check_sizes(found.path, text)
    try:
        return _parse(text, strict=True)
    except Exception as refused:
        try:
            database = _parse(text, strict=False)
        except Exception:
            raise DbcError(f"{found.path}: cantools cannot read it: {_one_line(refused)}") from refused
        found.say(f"cantools refuses it unless lenient: {_one_line(refused)}")
        return database


def _parse(text: str, *, strict: bool) -> Database:
    with quiet("cantools"):
        database = cantools.database.load_string(text, database_format="dbc", strict=strict)
    assert isinstance(database, Database)
    return database


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


def _message(found: Layouts, type_name: str, message: Message) -> MessageLayout:
    if not 0 <= message.length <= LONGEST_FRAME:
        found.say(f"{type_name}: has {message.length} bytes, and no frame has")
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
        found.say(f"{type_name}.{lost.name}: its multiplexer {lost.multiplexer} is never there, so neither is it")
    return layout


def _signals(found: Layouts, owner: str, message: Message) -> Iterator[SignalLayout]:
    """The signals of a message; labels get their names after all signals have theirs."""
    names = Names(ATTRIBUTE_WORDS)
    layouts = []
    for signal in message.signals:
        layout = _signal(signal, message)
        if problem := layout.problem(message.length):
            found.say(f"{owner}.{signal.name}: {problem}; it is left out")
        else:
            attribute = found.rename(signal.name, names.give(signal.name), f"{message.name}.")
            layouts.append(msgspec.structs.replace(layout, attribute=attribute))
    for layout in layouts:
        yield _labelled(found, owner, layout, names) if layout.choices else layout


def _labelled(found: Layouts, owner: str, signal: SignalLayout, names: Names) -> SignalLayout:
    """A signal with a value table, and where its labels go."""
    low, high = signal.raw_range
    if beyond := [f"{value} ({label})" for value, label in signal.choices if not low <= value <= high]:
        found.say(f"{owner}.{signal.name}: its value table names {', '.join(beyond)}, beyond {low} to {high}")
    wanted = f"{signal.attribute}_label"
    label = found.rename(wanted, names.give(wanted), f"label of {signal.name}: {owner}.")
    enumeration = found.types.give(f"{owner}_{signal.attribute}")
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
    )


def _conversion(signal: Signal) -> tuple[Number, Number]:
    """Scale and offset, as integers if both are."""
    scale, offset = signal.conversion.scale, signal.conversion.offset
    whole = all(isinstance(number, int) or number.is_integer() for number in (scale, offset))
    return (int(scale), int(offset)) if whole else (scale, offset)


def _selects(signal: Signal, message: Message) -> frozenset[int] | None:
    """The values that select a signal; and those of the table: some select nothing on purpose."""
    if not signal.is_multiplexer:
        return None
    chosen = [other.multiplexer_ids or () for other in message.signals if other.multiplexer_signal == signal.name]
    return frozenset().union(*chosen, dict(_choices(signal))) or None


def _choices(signal: Signal) -> tuple[tuple[int, str], ...]:
    """The value table by raw values; where two entries name the same bits, the one that names the value itself wins."""
    table = {int(value): str(label) for value, label in (signal.conversion.choices or {}).items()}
    raw = {value: same_bits(value, signal.length, signal.is_signed) for value in table}
    by_bits = sorted(table, key=lambda value: raw[value] == value)
    return tuple(sorted({raw[value]: table[value] for value in by_bits}.items()))


def _sharing(messages: tuple[MessageLayout, ...]) -> Iterator[list[MessageLayout]]:
    by_id: dict[tuple[int, bool], list[MessageLayout]] = {}
    for message in messages:
        by_id.setdefault((message.frame_id, message.extended), []).append(message)
    return (sharing for sharing in by_id.values() if len(sharing) > 1)
