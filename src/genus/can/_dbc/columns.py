"""Frames in columns to events in columns: what `Dbc.decode` does with one frame, done with very many at once.

Frames are grouped by message, and every signal is extracted from all frames of a message together. A multiplexed signal
is computed for all of them and masked where it is absent. Values and reasons are the same as those of `Dbc.decode`;
tests compare the two.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.can._dbc.j1939 import AmbiguousGroup, GroupIndex, LongMessages
from genus.can._dbc.layout import MessageLayout, SignalLayout, masked_ids
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._dbc.signal_columns import LABEL, Bits, Presence, RawSignal, SignalColumns, ValueTable, Words
from genus.can._j1939 import (
    PRIORITY_SHIFT,
    TRANSFER_CONTROL,
    TRANSFER_DATA,
    Incomplete,
    LongMessage,
    is_pdu1,
)
from genus.can._logs.frames import EXTENDED, FrameColumns, Rows
from genus.can._wire.frame import CLASSIC_BYTES, ID_MASK

INSTANT = pa.timestamp("us", tz="UTC")
TRANSFER = (TRANSFER_CONTROL, TRANSFER_DATA)
_NO_MESSAGE = -1
_J1939_FIELDS = [
    pa.field("source", pa.int16()),
    pa.field("destination", pa.int16()),
    pa.field("priority", pa.int16()),
    pa.field("pgn", pa.int64()),
    pa.field("sender", LABEL),
]

Mask: TypeAlias = npt.NDArray[np.bool_]
Reach: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | None
"""The lengths of frames of which some are shorter than their message; None if none is."""


class DecodedFrames(NamedTuple):
    """The events of one message: an Arrow column for each attribute that any of them has."""

    message: MessageLayout
    batch: pa.RecordBatch
    rows: Rows
    """The rows of the frames that were decoded."""


class RefusedFrames(NamedTuple):
    """Frames that are no events, all for one reason."""

    reason: str
    rows: Rows


class PartFrames(NamedTuple):
    """Frames that are parts of long messages (`LongColumns`), and no messages by themselves."""

    rows: Rows


class ColumnDecoder:
    """Decode columns of frames to columns of events, by the messages of a DBC file (`load_dbc(...).messages`)."""

    def __init__(self, messages: Iterable[MessageLayout]) -> None:
        self.messages = tuple(messages)
        self._columns: dict[int, MessageColumns] = {}
        self._by_id = _SparseIndex({_key(each): number for number, each in enumerate(self.messages)})
        self._masked = [(mask, _SparseIndex(known)) for mask, known in masked_ids(self.messages).items()]
        self._groups = GroupIndex(self.messages)
        fast = {each.pgn for each in self.messages if each.fast}
        self._fast, self._transfer = (np.array(sorted(pgns), np.uint32) for pgns in (fast, TRANSFER))

    def decode(
        self, frames: FrameColumns, *, are_whole: bool = False
    ) -> Iterator[DecodedFrames | RefusedFrames | PartFrames]:
        """Yield the events of frames, message by message, and the frames that are no events; each frame is in one part.

        `are_whole` says that they are messages already, made of several frames, so none of them is a part.
        """
        numbers = self._by_id.find(frames.identifier)
        for mask, index in self._masked:
            unknown = np.flatnonzero((numbers == _NO_MESSAGE) & (frames.identifier >= EXTENDED))
            numbers[unknown] = index.find(frames.identifier[unknown] & np.uint32(mask))
        refused = self._find_groups(frames.identifier, numbers, are_whole) if self._groups else []
        for number, rows in _group_rows(numbers, len(self.messages) + 1 + len(refused)):
            if number == _NO_MESSAGE:
                yield RefusedFrames(UNKNOWN_ID, rows)
            elif number == len(self.messages):
                yield PartFrames(rows)
            elif number > len(self.messages):
                yield RefusedFrames(refused[number - len(self.messages) - 1].reason, rows)
            else:
                yield from self._message_columns(number).decode(frames, rows)

    def _message_columns(self, number: int) -> "MessageColumns":
        if number not in self._columns:
            self._columns[number] = MessageColumns(self.messages[number])
        return self._columns[number]

    def _find_groups(
        self, identifier: npt.NDArray[np.uint32], numbers: npt.NDArray[np.int32], are_whole: bool
    ) -> list[AmbiguousGroup]:
        """Set the numbers of J1939 frames that are known by their groups, and of parts.

        The numbers after those of messages are for parts, and then for the groups that are returned.
        """
        parts = len(self.messages)
        refused: dict[AmbiguousGroup, int] = {}
        unknown = np.flatnonzero((numbers == _NO_MESSAGE) & (identifier >= EXTENDED))
        if unknown.size:
            distinct, which = np.unique(identifier[unknown], return_inverse=True)
            found = [self._groups.find(int(each) & ID_MASK) for each in distinct.tolist()]
            for each in found:
                if isinstance(each, AmbiguousGroup):
                    refused.setdefault(each, parts + 1 + len(refused))
            numbers[unknown] = np.array([_number(each, refused) for each in found], np.int32)[which.reshape(-1)]
        if not are_whole:
            numbers[part_rows(identifier, self._fast)] = parts
            transfer = part_rows(identifier, self._transfer)
            numbers[transfer[numbers[transfer] == _NO_MESSAGE]] = parts
        return list(refused)


def _key(message: MessageLayout) -> int:
    return message.frame_id | (EXTENDED if message.extended else 0)


def _number(found: int | AmbiguousGroup | None, refused: dict[AmbiguousGroup, int]) -> int:
    if found is None:
        return _NO_MESSAGE
    return refused[found] if isinstance(found, AmbiguousGroup) else found


def part_rows(identifier: npt.NDArray[np.uint32], pgns: npt.NDArray[np.uint32]) -> Rows:
    """The rows of frames with 29-bit identifiers of some parameter groups, which are given in ascending order."""
    if not len(pgns):
        return np.empty(0, np.intp)
    pgn = identifier >> 8 & 0x3FFFF
    pgn = np.where(pgn >> 8 & 0xFF >= 240, pgn, pgn & 0x3FF00)
    return np.flatnonzero(np.isin(pgn, pgns) & (identifier >= EXTENDED))


class _SparseIndex:
    def __init__(self, numbers: dict[int, int]) -> None:
        keys = sorted(numbers)
        self._keys = np.array(keys, np.uint32)
        self._numbers = np.array([numbers[key] for key in keys], np.int32)

    def __bool__(self) -> bool:
        return len(self._keys) > 0

    def find(self, keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        if not self:
            return np.full(len(keys), _NO_MESSAGE, np.int32)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._numbers[at], np.int32(_NO_MESSAGE))


def _group_rows(numbers: npt.NDArray[np.int32], count: int) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each number from -1 to `count` - 1 that occurs."""
    narrow = numbers.astype(np.int16) if count < 1 << 15 else numbers  # numpy sorts 16 bits by counting
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(numbers + 1, minlength=count + 1))
    for number in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        yield number - 1, order[ends[number - 1] if number else 0 : ends[number]]


class MessageColumns:
    def __init__(self, message: MessageLayout) -> None:
        self.message = message
        self._multiplexing = Multiplexing(message)
        self._signals = [SignalColumns(signal, message.length) for signal in self._multiplexing.signals]
        self._needs = [signal.bytes_needed(message.length) for signal in self._multiplexing.signals]

    @property
    def fields(self) -> list[pa.Field]:
        sender = _J1939_FIELDS if self.message.j1939 else [pa.field("source", LABEL)]
        context = [pa.field("time", INSTANT), *sender, pa.field("place", LABEL)]
        return [*context, *(field for signal in self._signals for field in signal.fields)]

    def decode(self, frames: FrameColumns, rows: Rows) -> Iterator[DecodedFrames | RefusedFrames]:
        """Yield the events of some frames, all of this message, which may be longer, and shorter if that is allowed."""
        refused = list(self._refuse(frames, rows))
        yield from refused
        if refused:
            rows = rows[~np.isin(rows, np.concatenate([each.rows for each in refused]))]
        if len(rows):
            yield DecodedFrames(self.message, self._batch(frames, rows), rows)

    def _refuse(self, frames: FrameColumns, rows: Rows) -> Iterator[RefusedFrames]:
        name, needed = self.message.type_name, self.message.length
        if not self.message.truncated:
            lengths = frames.length[rows]
            for size in np.unique(lengths[lengths < needed]).tolist():
                yield RefusedFrames(f"{name}: too short: {size} of {needed} bytes", rows[lengths == size])
            rows = rows[lengths >= needed]
        if len(rows) and self._multiplexing.is_used:
            words, reach = self._words(frames, rows), self._reach(frames, rows)
            for multiplexer, invalid in self._multiplexing.find_invalid(words, reach):
                yield RefusedFrames(f"{name}: multiplexer {multiplexer.name} selects nothing", rows[invalid])

    def _reach(self, frames: FrameColumns, rows: Rows) -> Reach:
        lengths = frames.length[rows]
        return lengths if (lengths < self.message.length).any() else None

    def _words(self, frames: FrameColumns, rows: Rows) -> Words:
        """Return the data of some frames, in as many words as the bytes of the message need."""
        count = (self.message.length + 7) // 8
        words: Bits = frames.data.view("<u8")[:, :count][rows]
        if words.shape[1] < count:  # all frames are truncated
            words = np.pad(words, ((0, 0), (0, count - words.shape[1])))
        return Words(words)

    def _batch(self, frames: FrameColumns, rows: Rows) -> pa.RecordBatch:
        words, columns = self._words(frames, rows), self._context(frames, rows)
        reach = self._reach(frames, rows)
        presences = self._multiplexing.find_presences(words, reach)
        for signal, needs in zip(self._signals, self._needs, strict=True):
            presence = presences[group_of(signal.signal)]
            if reach is not None:
                presence = presence.where(reach >= needs)
            if not presence.is_empty:
                columns.update(signal.columns(words, presence))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _context(self, frames: FrameColumns, rows: Rows) -> dict[str, pa.Array]:
        columns = {"time": pa.Array.from_buffers(INSTANT, len(rows), [None, pa.py_buffer(frames.at_us[rows])])}
        if self.message.j1939:
            columns.update(self._addresses(frames.identifier[rows]))
        elif self.message.sender is not None:
            columns["source"] = _dictionary([self.message.sender], np.zeros(len(rows), np.int32))
        if any(frames.channels):
            columns["place"] = _dictionary(frames.channels, frames.channel[rows])
        return columns

    def _addresses(self, identifier: npt.NDArray[np.uint32]) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns of what J1939 identifiers tell; the sender, if the file has one for the address."""
        source = identifier & 0xFF
        yield "source", pa.array(source.astype(np.int16))
        if is_pdu1(self.message.pgn):
            yield "destination", pa.array((identifier >> 8 & 0xFF).astype(np.int16))
        yield "priority", pa.array((identifier >> PRIORITY_SHIFT & 7).astype(np.int16))
        yield "pgn", pa.array(np.full(len(identifier), self.message.pgn, np.int64))
        own = source == self.message.frame_id & 0xFF
        if self.message.sender is not None and own.any():
            yield "sender", _dictionary([self.message.sender, None], np.where(own, 0, 1))


def _dictionary(names: Sequence[str | None], which: npt.NDArray[Any]) -> pa.DictionaryArray:
    """Return a text column: for each row the number of its name; a name that is None is null."""
    mask = np.array([name is None for name in names])[which] if None in names else None
    return pa.DictionaryArray.from_arrays(
        pa.array(which.astype(np.int32, copy=False), mask=mask), pa.array([name or "" for name in names])
    )


# -- multiplexing ------------------------------------------------------------------------------------------------------

Group: TypeAlias = tuple[str, frozenset[int]] | None
"""A multiplexer and the raw values that select the signals of a group; None for signals that are always present."""


def group_of(signal: SignalLayout) -> Group:
    return None if signal.multiplexer is None else (signal.multiplexer, signal.selected_by)


class _Multiplexer(NamedTuple):
    """A multiplexer: its own bits, the values it may have, and which of them select each group."""

    source: RawSignal
    needs: int
    """How many bytes a frame must have so that the multiplexer is in it."""
    values: ValueTable
    groups: dict[Group, Mask]
    """For each group, whether each value selects it; the last element is for invalid values."""


class Multiplexing:
    """The multiplexers of a message: which signals are in which frames.

    Multiplexers are tested in the order in which `MessageDecoder` tests them, so that a frame with several invalid ones
    gets the same reason.
    """

    def __init__(self, message: MessageLayout) -> None:
        below: dict[str | None, list[SignalLayout]] = {}
        for signal in message.signals:
            below.setdefault(signal.multiplexer, []).append(signal)
        self.signals: list[SignalLayout] = []
        """The signals that a frame can have, in the order in which they are decoded."""
        self._length = message.length
        self._multiplexers: list[_Multiplexer] = []
        self._visit(None, below)

    def _visit(self, multiplexer: str | None, below: dict[str | None, list[SignalLayout]]) -> None:
        """Add the signals that a multiplexer selects, then those below them: of the last multiplexer first."""
        signals = below.pop(multiplexer, [])
        self.signals += signals
        inner = [signal for signal in signals if signal.selects is not None]
        self._multiplexers += [_multiplexer(each, self._length, below.get(each.name, [])) for each in inner]
        for signal in reversed(inner):
            self._visit(signal.name, below)

    @property
    def is_used(self) -> bool:
        return bool(self._multiplexers)

    def find_invalid(self, words: Words, reach: Reach = None) -> Iterator[tuple[SignalLayout, Mask]]:
        """Yield the multiplexers with invalid values, each with the frames in which it is the first such."""
        found = np.zeros(len(words), np.bool_)
        for multiplexer, choice, mask in self._choices(words, reach):
            invalid = (choice < 0) & ~found if mask is None else (choice < 0) & mask & ~found
            if invalid.any():
                yield multiplexer.source.signal, invalid
                found |= invalid

    def find_presences(self, words: Words, reach: Reach = None) -> dict[Group, Presence]:
        found: dict[Group, Presence] = {None: Presence()}
        for multiplexer, choice, mask in self._choices(words, reach):
            for group, selected in multiplexer.groups.items():
                found[group] = Presence.of(_both(mask, selected[choice]))
        return found

    def _choices(self, words: Words, reach: Reach) -> Iterator[tuple[_Multiplexer, npt.NDArray[np.int32], Mask | None]]:
        """Each multiplexer, the number of its value in each frame (-1 if invalid), and the frames that have it."""
        masks: dict[Group, Mask | None] = {None: None}
        for multiplexer in self._multiplexers:
            choice = multiplexer.values.find(multiplexer.source.raw(words))
            mask = masks[group_of(multiplexer.source.signal)]
            if reach is not None:
                mask = _both(mask, reach >= multiplexer.needs)
            for group, selected in multiplexer.groups.items():
                masks[group] = _both(mask, selected[choice])
            yield multiplexer, choice, mask


def _both(outer: Mask | None, inner: Mask) -> Mask:
    return inner if outer is None else outer & inner


def _multiplexer(signal: SignalLayout, length: int, below: list[SignalLayout]) -> _Multiplexer:
    source, values = RawSignal(signal, length), sorted(signal.selects or ())
    groups = {group_of(each): np.array([*(value in each.selected_by for value in values), False]) for each in below}
    table = ValueTable(source, ((value, number) for number, value in enumerate(values)))
    return _Multiplexer(source, signal.bytes_needed(length), table, groups)


# -- long messages -----------------------------------------------------------------------------------------------------

LONG_POSITION = 1 << 40
"""Is added to the position of a message's last frame, which may be an event itself."""


class _Whole(NamedTuple):
    message: LongMessage
    part: int


class LongColumns:
    """State: the long messages in progress, from one block of frames to the next."""

    def __init__(
        self, messages: Iterable[MessageLayout], on_incomplete: Callable[[Incomplete], object] | None = None
    ) -> None:
        self.bus = LongMessages(messages, on_incomplete)
        self._pgns = np.array(sorted(self.bus.pgns), np.uint32)

    def add(self, frames: FrameColumns) -> FrameColumns | None:
        """Take frames in the order of the log; returns the messages that they complete, None if there are none.

        The mark of an incomplete message is the position, time, channel, identifier and data of its first frame.
        """
        rows = part_rows(frames.identifier, self._pgns)
        rows = rows[frames.length[rows] <= CLASSIC_BYTES]
        found = [each for each in self._receive_all(frames.take(rows)) if each is not None]
        return _columns_of(found, rows, frames) if found else None

    def close(self) -> None:
        """Give up all messages in progress."""
        self.bus.close()

    def _receive_all(self, parts: FrameColumns) -> Iterator[_Whole | None]:
        data, receive, channels = parts.data[:, :CLASSIC_BYTES].tobytes(), self.bus.receive, parts.channels
        columns = (parts.position, parts.at_us, parts.channel, parts.identifier, parts.length)
        for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            position, at_us, channel, identifier, length = row
            frame_id, name, start = identifier & ~EXTENDED, channels[channel], CLASSIC_BYTES * number
            payload = data[start : start + length]
            message = receive(name, frame_id, payload, at_us, (position, at_us, name, frame_id, payload))
            yield None if message is None else _Whole(message, number)


def _columns_of(found: list[_Whole], parts: Rows, frames: FrameColumns) -> FrameColumns:
    """Messages as frames that are as long as they need to be; `parts` are the rows of all parts."""
    rows = parts[[each.part for each in found]]
    lengths = [len(each.message.data) for each in found]
    width = -(-max(lengths) // 8) * 8
    padded = b"".join(each.message.data.ljust(width, b"\0") for each in found)
    return FrameColumns(
        frames.at_us[rows],
        np.array([each.message.frame_id | EXTENDED for each in found], np.uint32),
        np.array(lengths, np.uint16),
        np.frombuffer(padded, np.uint8).reshape(-1, width),
        frames.position[rows] + LONG_POSITION,
        frames.channel[rows],
        frames.channels,
        frames.direction[rows],
    )
