"""Frames as columns of events: what `decode` does with one frame, done with very many at once.

Frames are told apart by their messages, and every signal is cut out of all frames of a message together. A multiplexed
signal is computed for all of them and masked where it is not there. Values and reasons are the same as those of
`Dbc.decode`, which tests hold against it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.can._dbc.decode import UNKNOWN_ID
from genus.can._dbc.layout import MessageLayout, SignalLayout
from genus.can._dbc.log_file import Logged
from genus.can._dbc.signal_columns import LABEL, Bits, Presence, RawSignal, SignalColumns, Table, Words

# Which signals are in which frames of a message, for many frames at once.
#
# Signals that the same values of the same multiplexer choose are one group, with one mask. Multiplexers are asked in
# the order in which the decoder of single frames comes to them, so that a frame with several wrong ones gets the same
# reason.


Mask: TypeAlias = npt.NDArray[np.bool_]

Group: TypeAlias = tuple[str, frozenset[int]] | None
"""A multiplexer's name and the raw values that choose the signals of a group; None for those that are always there."""


def group_of(signal: SignalLayout) -> Group:
    """The signals that are there together with this one."""
    return None if signal.multiplexer is None else (signal.multiplexer, signal.selected_by)


class _Chooser(NamedTuple):
    """A multiplexer: where it is itself, the values it may have, and which of them choose each group."""

    source: RawSignal
    values: Table
    groups: dict[Group, Mask]
    """For each group, whether each value chooses it; the last is for values that choose nothing."""


class Multiplexing:
    """The multiplexers of a message."""

    def __init__(self, message: MessageLayout) -> None:
        below: dict[str | None, list[SignalLayout]] = {}
        for signal in message.signals:
            below.setdefault(signal.multiplexer, []).append(signal)
        self.signals: list[SignalLayout] = []
        """Those that can be there at all, in the order in which they are decoded."""
        self._length = message.length
        self._choosers: list[_Chooser] = []
        self._visit(None, below)

    def _visit(self, multiplexer: str | None, below: dict[str | None, list[SignalLayout]]) -> None:
        """Note the signals that a multiplexer chooses, then those below them: of the last multiplexer first."""
        signals = below.pop(multiplexer, [])
        self.signals += signals
        choosing = [signal for signal in signals if signal.selects is not None]
        self._choosers += [_chooser(RawSignal(signal, self._length), below.get(signal.name, [])) for signal in choosing]
        for signal in reversed(choosing):
            self._visit(signal.name, below)

    @property
    def is_used(self) -> bool:
        """Whether the message has a multiplexer."""
        return bool(self._choosers)

    def wrong(self, words: Words) -> Iterator[tuple[SignalLayout, Mask]]:
        """The multiplexers that select nothing, each with the frames of which it is the first such."""
        found = np.zeros(len(words), np.bool_)
        for chooser, choice, mask in self._choices(words):
            refused = (choice < 0) & ~found if mask is None else (choice < 0) & mask & ~found
            if refused.any():
                yield chooser.source.signal, refused
                found |= refused

    def presences(self, words: Words) -> dict[Group, Presence]:
        """Where the signals of each group are."""
        found: dict[Group, Presence] = {None: Presence()}
        for chooser, choice, mask in self._choices(words):
            for group, chosen in chooser.groups.items():
                found[group] = Presence.of(_within(mask, chosen[choice]))
        return found

    def _choices(self, words: Words) -> Iterator[tuple[_Chooser, npt.NDArray[np.int32], Mask | None]]:
        """Each multiplexer with the number of its value in each frame, or -1; and the frames that it is in."""
        masks: dict[Group, Mask | None] = {None: None}
        for chooser in self._choosers:
            choice, mask = chooser.values.find(chooser.source.raw(words)), masks[group_of(chooser.source.signal)]
            for group, chosen in chooser.groups.items():
                masks[group] = _within(mask, chosen[choice])
            yield chooser, choice, mask


def _within(outer: Mask | None, inner: Mask) -> Mask:
    return inner if outer is None else outer & inner


def _chooser(source: RawSignal, below: list[SignalLayout]) -> _Chooser:
    values = sorted(source.signal.selects or ())
    groups = {group_of(each): np.array([*(value in each.selected_by for value in values), False]) for each in below}
    return _Chooser(source, Table(source, ((value, number) for number, value in enumerate(values))), groups)


EXTENDED = 0x8000_0000
"""This bit of an identifier in a column says that it is one of 29 bits."""
INSTANT = pa.timestamp("us", tz="UTC")
_ID_BITS = np.uint32(0x1FFF_FFFF)
_NOBODY = -1

Rows: TypeAlias = npt.NDArray[np.intp]
"""Which frames, by their numbers in `Frames`."""


class Frames(NamedTuple):
    """Data frames of a log, as columns."""

    at_us: npt.NDArray[np.int64]
    """When each was seen, in microseconds since 1970 (UTC)."""
    identifier: npt.NDArray[np.uint32]
    """With the bit `EXTENDED` if it has 29 bits."""
    length: npt.NDArray[np.uint8]
    data: npt.NDArray[np.uint8]
    """A row of 8 bytes for each, or of 64; what is behind its length does not count."""
    position: npt.NDArray[np.int64]
    """Where in the log each is."""
    channel: npt.NDArray[np.int32]
    """Which of `channels` each was seen on."""
    channels: tuple[str | None, ...]

    def take(self, rows: Rows) -> "Frames":
        """Some of the frames."""
        taken = (self.at_us[rows], self.identifier[rows], self.length[rows], self.data[rows], self.position[rows])
        return Frames(*taken, self.channel[rows], self.channels)


class Decoded(NamedTuple):
    """Events of one message: a column for each attribute that any of them has."""

    message: MessageLayout
    batch: pa.RecordBatch
    rows: Rows
    """The frames that they were."""


class Refused(NamedTuple):
    """Frames that are no events, all for one reason."""

    reason: str
    rows: Rows


class ColumnDecoder:
    """Makes columns of events out of columns of frames, by the messages of a DBC file."""

    def __init__(self, messages: Iterable[MessageLayout]) -> None:
        self.messages = tuple(messages)
        self._columns: dict[int, MessageColumns] = {}
        self._by_id = _Numbers({_key(each): number for number, each in enumerate(self.messages)})
        self._by_pgn = _Numbers(_only_ones(self.messages))

    def decode(self, frames: Frames) -> Iterator[Decoded | Refused]:
        """The events of frames, message by message, and the frames that are none."""
        which = self._which(frames.identifier)
        for number, rows in _grouped(which, len(self.messages)):
            if number == _NOBODY:
                yield Refused(UNKNOWN_ID, rows)
            else:
                yield from self.columns(number).decode(frames, rows)

    def columns(self, number: int) -> "MessageColumns":
        """The decoder of a message; made when its first frame comes."""
        if number not in self._columns:
            self._columns[number] = MessageColumns(self.messages[number])
        return self._columns[number]

    def _which(self, identifier: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """The number of each frame's message."""
        which = self._by_id.find(identifier)
        if self._by_pgn and (unknown := np.flatnonzero((which == _NOBODY) & (identifier >= EXTENDED))).size:
            which[unknown] = self._by_pgn.find(_pgns(identifier[unknown]))
        return which


def _key(message: MessageLayout) -> int:
    return message.frame_id | (EXTENDED if message.extended else 0)


def _only_ones(messages: Sequence[MessageLayout]) -> dict[int, int]:
    """J1939 messages by parameter group, if it is of one message only."""
    by_pgn: dict[int, list[int]] = {}
    for number, message in enumerate(messages):
        if message.j1939:
            by_pgn.setdefault(message.pgn, []).append(number)
    return {pgn: numbers[0] for pgn, numbers in by_pgn.items() if len(numbers) == 1}


def _pgns(identifier: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The parameter groups of identifiers, as `pgn_of` has them."""
    pgn = identifier >> 8 & 0x3FFFF
    return np.where(pgn >> 8 & 0xFF >= 240, pgn, pgn & 0x3FF00)


class _Numbers:
    """Small numbers by sparse keys."""

    def __init__(self, numbers: dict[int, int]) -> None:
        keys = sorted(numbers)
        self._keys = np.array(keys, np.uint32)
        self._numbers = np.array([numbers[key] for key in keys], np.int32)

    def __bool__(self) -> bool:
        return len(self._keys) > 0

    def find(self, keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """The number of each key; -1 if it has none."""
        if not self:
            return np.full(len(keys), _NOBODY, np.int32)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._numbers[at], np.int32(_NOBODY))


def _grouped(which: npt.NDArray[np.int32], most: int) -> Iterator[tuple[int, Rows]]:
    """The rows of each number that is there; numbers begin at -1."""
    narrow = which.astype(np.int16) if most < 1 << 15 else which  # 16 bits are sorted by counting
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(which + 1, minlength=most + 1))
    for number in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        yield number - 1, order[ends[number - 1] if number else 0 : ends[number]]


class MessageColumns:
    """Makes columns of the frames of one message."""

    def __init__(self, message: MessageLayout) -> None:
        self.message = message
        self._multiplexing = Multiplexing(message)
        self._signals = [SignalColumns(signal, message.length) for signal in self._multiplexing.signals]
        self._sender = message.senders[0] if len(message.senders) == 1 else None

    @property
    def fields(self) -> list[pa.Field]:
        """The columns that a batch may have."""
        context = [pa.field("time", INSTANT), pa.field("source", LABEL), pa.field("place", LABEL)]
        return [*context, *(field for signal in self._signals for field in signal.fields)]

    def decode(self, frames: Frames, rows: Rows) -> Iterator[Decoded | Refused]:
        """The events of some frames, all of this message; a frame may be longer than it, never shorter."""
        refused = list(self._refused(frames, rows))
        yield from refused
        if refused:
            rows = rows[~np.isin(rows, np.concatenate([each.rows for each in refused]))]
        if len(rows):
            yield Decoded(self.message, self._batch(frames, rows), rows)

    def _refused(self, frames: Frames, rows: Rows) -> Iterator[Refused]:
        name, needed = self.message.type_name, self.message.length
        lengths = frames.length[rows]
        for size in np.unique(lengths[lengths < needed]).tolist():
            yield Refused(f"{name}: too short: {size} of {needed} bytes", rows[lengths == size])
        whole = rows[lengths >= needed]
        if len(whole) and self._multiplexing.is_used:
            for multiplexer, wrong in self._multiplexing.wrong(self._words(frames, whole)):
                yield Refused(f"{name}: multiplexer {multiplexer.name} selects nothing", whole[wrong])

    def _words(self, frames: Frames, rows: Rows) -> Words:
        """The data of some frames, as many words as the message has bytes in."""
        words: Bits = frames.data.view("<u8")[:, : (self.message.length + 7) // 8]
        return Words(words[rows])

    def _batch(self, frames: Frames, rows: Rows) -> pa.RecordBatch:
        words, columns = self._words(frames, rows), self._context(frames, rows)
        presences = self._multiplexing.presences(words)
        for signal in self._signals:
            presence = presences[group_of(signal.signal)]
            if not presence.is_empty:
                columns.update(signal.columns(words, presence))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _context(self, frames: Frames, rows: Rows) -> dict[str, pa.Array]:
        """When, where and from whom, as far as frames tell."""
        time = pa.Array.from_buffers(INSTANT, len(rows), [None, pa.py_buffer(frames.at_us[rows])])
        named = {"source": self._sources(frames.identifier[rows]), "place": _places(frames, rows)}
        return {"time": time} | {name: column for name, column in named.items() if column is not None}

    def _sources(self, identifier: npt.NDArray[np.uint32]) -> pa.Array | None:
        """The message's one sender; of J1939 frames that another address sent, that address."""
        own = (identifier & _ID_BITS) == self.message.frame_id
        if self._sender is None and own.all():
            return None
        names = [self._sender, *(f"{address:#04x}" for address in range(256))] if not own.all() else [self._sender]
        return _named(names, np.where(own, 0, (identifier & 0xFF) + 1))


def _places(frames: Frames, rows: Rows) -> pa.Array | None:
    """The channels that frames were seen on; None if nobody knows."""
    return _named(frames.channels, frames.channel[rows]) if any(frames.channels) else None


def _named(names: Sequence[str | None], which: npt.NDArray[Any]) -> pa.DictionaryArray:
    """Some of the names for each row; those that are None are absent."""
    mask = np.array([name is None for name in names])[which] if None in names else None
    return pa.DictionaryArray.from_arrays(
        pa.array(which.astype(np.int32, copy=False), mask=mask), pa.array([name or "" for name in names])
    )


# Frames that were read one by one, as columns.


def gathered(logged: Sequence[tuple[int, Logged]]) -> Frames:
    """Frames of a log, each with its position, as columns.

    >>> from genus.can._wire.frame import Frame
    >>> frames = gathered([(0, Logged(5, "can0", Frame(0x123, b"hi", extended=False)))])
    >>> frames.data.tolist(), frames.channels
    ([[104, 105, 0, 0, 0, 0, 0, 0]], ('can0',))
    """
    seen = [each.frame for _, each in logged]
    width = 8 if all(len(frame.data) <= 8 for frame in seen) else 64
    channels = {name: number for number, name in enumerate(dict.fromkeys(each.channel for _, each in logged))}
    return Frames(
        np.array([each.at_us for _, each in logged], np.int64),
        np.array([frame.id | EXTENDED * frame.extended for frame in seen], np.uint32),
        np.array([len(frame.data) for frame in seen], np.uint8),
        np.frombuffer(b"".join(frame.data.ljust(width, b"\0") for frame in seen), np.uint8).reshape(-1, width),
        np.array([position for position, _ in logged], np.int64),
        np.array([channels[each.channel] for _, each in logged], np.int32),
        tuple(channels),
    )


def joined(parts: Sequence[Frames]) -> Frames:
    """Frames of several parts, with data of one width, as one."""
    if len(parts) == 1:
        return parts[0]
    channels = {name: number for number, name in enumerate(dict.fromkeys(n for part in parts for n in part.channels))}
    renumbered = [np.array([channels[name] for name in part.channels], np.int32)[part.channel] for part in parts]
    return Frames(
        np.concatenate([part.at_us for part in parts]),
        np.concatenate([part.identifier for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.position for part in parts]),
        np.concatenate(renumbered),
        tuple(channels),
    )
