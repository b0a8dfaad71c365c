"""Frames as events: `load_dbc` reads a file once, `Dbc.decode` makes an event of a frame or says why there is none.

A frame belongs to a message by its identifier; one of J1939 also by its parameter group, whoever sent it. Its bytes
are read as two integers, one per byte order, and every signal is cut out of one of them.
"""

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from genus.bus._codec import Rejected
from genus.can._dbc.database import Layouts, read_layouts
from genus.can._dbc.layout import MessageLayout, SignalLayout, pgn_of
from genus.can._dbc.types import attributes_of, declare_kind, declare_type
from genus.errors import DbcError
from genus.model import ChoiceType, Event, Kind, attributes, name_of, vector

UNKNOWN_ID = "unknown identifier"
"""The reason for which frames of no message are rejected."""

_FLOATS = {16: ("H", "e"), 32: ("I", "f"), 64: ("Q", "d")}


def load_dbc(path: str | os.PathLike[str], types: Iterable[type] = ()) -> "Dbc":
    """The messages of a DBC file as event types; DbcError says why there are none.

    What had to be renamed or left out is in `renamed` and `problems`. Loading a file again declares its types again;
    give the classes of a module made from it (`genus can types --python`) to have events of those.
    """
    return Dbc(read_layouts(path), types)


class Dbc:
    """The event types of a DBC file, and the frames they are sent in."""

    def __init__(self, layouts: Layouts, types: Iterable[type] = ()) -> None:
        given = {name_of(cls): cls for cls in types}
        self.path = layouts.path
        self.messages = layouts.messages
        self.renamed: Mapping[str, str] = MappingProxyType(layouts.renamed)
        """Names of the file that could not stay as they were; signals as `Message.signal`."""
        self.problems = tuple(layouts.problems)
        """What was found wrong with the file."""
        self.kind: type[Kind] = given.get(layouts.name) or declare_kind(layouts.name)
        """The kind of all its types, named after the file."""
        self.types: Mapping[str, type[Event]] = MappingProxyType(
            {m.type_name: _given(given, m) or declare_type(m, self.kind) for m in layouts.messages}
        )
        """The event types by their names: those of the messages, but for the renamed."""
        self._decoders = {m.type_name: MessageDecoder(m, self.types[m.type_name]) for m in layouts.messages}
        self._by_id = {(m.frame_id, m.extended): self._decoders[m.type_name] for m in layouts.messages}
        self._by_pgn = _only_ones(m for m in layouts.messages if m.j1939)

    def message_of(self, frame_id: int, extended: bool = False) -> MessageLayout | None:
        """The message that frames of an identifier are of."""
        decoder = self._find(frame_id, extended)
        return decoder.layout if decoder else None

    def type_of(self, frame_id: int, extended: bool = False) -> type[Event] | None:
        """The event type that frames of an identifier become."""
        decoder = self._find(frame_id, extended)
        return decoder.cls if decoder else None

    def decode(
        self,
        frame_id: int,
        data: bytes,
        extended: bool = False,
        *,
        time: datetime | None = None,
        place: str | None = None,
    ) -> Event | Rejected:
        """The event of a frame, or the reason why there is none; never raises.

        `source` is the message's sender if it has but one; of a J1939 frame that another address sent, that address.
        """
        decoder = self._find(frame_id, extended)
        if decoder is None:
            return Rejected(UNKNOWN_ID)
        values = decoder.values(data)
        if isinstance(values, Rejected):
            return values
        return decoder.cls(time=time, source=decoder.source(frame_id), place=place, **values)

    def _find(self, frame_id: int, extended: bool) -> "MessageDecoder | None":
        exact = self._by_id.get((frame_id, extended))
        if exact is not None or not extended:
            return exact
        name = self._by_pgn.get(pgn_of(frame_id))
        return self._decoders[name] if name is not None else None

    def __repr__(self) -> str:
        return f"<Dbc {self.path}: {len(self.messages)} messages>"


def _given(given: Mapping[str, type], message: MessageLayout) -> type[Event] | None:
    """The class that was given for a message, if there is one; it must say what the file says."""
    cls = given.get(message.type_name)
    if cls is None:
        return None
    own = tuple(each for each in attributes(cls) if each not in attributes(Event))
    if not issubclass(cls, Event) or own != attributes_of(message):
        raise DbcError(f"{name_of(cls)} in {cls.__module__} is not what the DBC file says; make the module anew")
    return cls


def _only_ones(messages: Iterable[MessageLayout]) -> dict[int, str]:
    """J1939 messages by parameter group; groups of several messages are told apart by whole identifiers only."""
    by_pgn: dict[int, list[str]] = {}
    for message in messages:
        by_pgn.setdefault(message.pgn, []).append(message.type_name)
    return {pgn: names[0] for pgn, names in by_pgn.items() if len(names) == 1}


Convert: TypeAlias = Callable[[int], Any]
"""From the bits of a signal, as an unsigned integer, to its value."""


class Cut(NamedTuple):
    """One signal, ready to be cut out of a frame."""

    attribute: str
    big_endian: bool
    shift: int
    mask: int
    value: Convert
    raw: Convert
    """The bits as the signed or unsigned integer, or the float, that multiplexers and value tables speak of."""
    label: str | None
    members: Mapping[Any, Enum]
    layout: SignalLayout


class MessageDecoder:
    """Makes the attributes of one message's event type out of data."""

    def __init__(self, layout: MessageLayout, cls: type[Event]) -> None:
        self.layout = layout
        self.cls = cls
        self._cuts: dict[str | None, list[Cut]] = {}
        for signal in layout.signals:
            self._cuts.setdefault(signal.multiplexer, []).append(_cut(signal, cls))
        self._chosen: dict[tuple[str, Any], list[Cut]] = {}
        self._sender = layout.senders[0] if len(layout.senders) == 1 else None

    def source(self, frame_id: int) -> str | None:
        """Who sent a frame, as far as its identifier tells."""
        return self._sender if frame_id == self.layout.frame_id else f"{frame_id & 0xFF:#04x}"

    def values(self, data: bytes) -> dict[str, Any] | Rejected:
        """The attributes that are present; a frame may be longer than its message, never shorter."""
        length = self.layout.length
        if len(data) < length:
            return Rejected(f"{self.layout.type_name}: too short: {len(data)} of {length} bytes")
        data = bytes(data[:length])
        numbers = int.from_bytes(data, "little"), int.from_bytes(data, "big")
        values: dict[str, Any] = {}
        waiting = [self._cuts.get(None, [])]
        while waiting:
            for attribute, big_endian, shift, mask, value, raw, label, members, layout in waiting.pop():
                bits = numbers[big_endian] >> shift & mask
                values[attribute] = value(bits)
                if label is not None and (member := members.get(raw(bits))) is not None:
                    values[label] = member
                if layout.selects is not None:
                    if raw(bits) not in layout.selects:
                        return Rejected(f"{self.layout.type_name}: multiplexer {layout.name} selects nothing")
                    waiting.append(self._chosen_by(layout.name, raw(bits)))
        return values

    def _chosen_by(self, multiplexer: str, value: Any) -> list[Cut]:
        """The signals that a multiplexer chooses with a value; there are never more values than `selects` has."""
        chosen = self._chosen.get((multiplexer, value))
        if chosen is None:
            below = self._cuts.get(multiplexer, [])
            chosen = self._chosen[multiplexer, value] = [cut for cut in below if value in cut.layout.selected_by]
        return chosen


def _cut(signal: SignalLayout, cls: type[Event]) -> Cut:
    raw = _raw(signal)
    place = signal.big_endian, signal.shift, signal.mask
    return Cut(signal.attribute, *place, _value(signal, raw), raw, signal.label, _members(signal, cls), signal)


def _raw(signal: SignalLayout) -> Convert:
    if signal.is_float:
        bits, real = (struct.Struct(f">{code}") for code in _FLOATS[signal.length])
        return lambda number: real.unpack(bits.pack(number))[0]
    if signal.signed:
        sign = 1 << signal.length - 1
        return lambda number: (number ^ sign) - sign
    return lambda number: number


def _value(signal: SignalLayout, raw: Convert) -> Convert:
    if signal.annotation == "bytes":
        size = (signal.length + 7) // 8
        return lambda number: number.to_bytes(size, "big")
    if not signal.is_scaled:
        return raw
    scaled = signal.scaled
    if signal.annotation == "float":
        return lambda number: float(scaled(raw(number)))
    return lambda number: scaled(raw(number))


def _members(signal: SignalLayout, cls: type[Event]) -> Mapping[Any, Enum]:
    if signal.label is None:
        return {}
    labels = vector(cls).find(signal.label).type
    assert isinstance(labels, ChoiceType)
    assert labels.enum is not None
    return {value: labels.enum(label) for value, label in signal.choices}
