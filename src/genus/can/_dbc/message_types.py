"""Event types of messages: declared from layouts, and filled with the values of frames.

Every message is a family of its own below `Event`, because two messages may use one signal name for different things;
all types of a file share a kind with the file's name. A signal with a value table has two attributes: its number, which
is always exact, and the label of that number, which is absent if the table has none for it. So the number can be
compared even if the table only names "not available", and a value outside the table does not make the frame invalid.

To decode a frame, its bytes are read as two integers, one per byte order, and every signal is extracted from one of
them by shift and mask.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeAlias

from genus.bus.internal import Rejected
from genus.can._dbc.layout import FLOAT_FORMATS, MEMBER_WORDS, MessageLayout, NameAllocator, SignalLayout
from genus.can._j1939.identifier import J1939Id
from genus.model import Event, Float32, Int8, Int16, Int32, Int64, Kind, Maybe, UInt8, UInt16, UInt32, Unit, vector
from genus.model.internal import EventMeta, KindMeta, create_event, read_annotation
from genus.model.types import Attribute, ChoiceType

UNKNOWN_ID = "unknown identifier"
"""The reason for which a frame is rejected whose identifier belongs to no message."""

ANNOTATIONS: MappingProxyType[str, Any] = MappingProxyType(
    {"Int8": Int8, "Int16": Int16, "Int32": Int32, "Int64": Int64, "UInt8": UInt8, "UInt16": UInt16, "UInt32": UInt32}
    | {"Float32": Float32, "float": float, "bytes": bytes}
)
"""The types that the names of annotations stand for."""


# -- declaring ---------------------------------------------------------------------------------------------------------


def declare_kind(name: str) -> type[Kind]:
    kind: type[Kind] = KindMeta(name, (Kind,), {"__module__": name, "__doc__": f"A message of {name}."})
    return kind


def declare_type(message: MessageLayout, kind: type[Kind]) -> type[Event]:
    """Return the event type of a message.

    >>> from genus.model import vector
    >>> lamp = SignalLayout("watts", "watts", 0, 8, 0, False, False, False, unit="W", scale=0.5)
    >>> cls = declare_type(MessageLayout("Lamp", "Lamp", 0x10, False, 1, (lamp,)), declare_kind("House"))
    >>> cls(watts=7.5), issubclass(cls, Event), vector(cls).find("watts").unit
    (Lamp(watts=7.5), True, 'W')
    """
    notes = _annotations(message, kind.__module__)
    place = {"__module__": kind.__module__, "__qualname__": message.type_name}
    namespace = {"__annotations__": notes, "__doc__": describe(message), **place, **j1939_defaults(message)}
    cls: type[Event] = EventMeta(message.type_name, (Event, kind), namespace)
    return cls


def attributes_of(message: MessageLayout) -> tuple[Attribute, ...]:
    notes = _annotations(message, message.type_name)
    return tuple(Attribute(name, *read_annotation(note)) for name, note in notes.items())


def _annotations(message: MessageLayout, module: str) -> dict[str, object]:
    notes: dict[str, object] = dict(_J1939_ANNOTATIONS) if message.j1939 else {}
    for signal in message.signals:
        notes[signal.attribute] = _annotation(signal, message)
        if signal.label is not None:
            notes[signal.label] = _optional(_declare_labels(signal, module))
    return notes


def j1939_defaults(message: MessageLayout) -> dict[str, int]:
    """Return the values that the identifier of a J1939 message has in the file, for events that state no others."""
    if not message.j1939:
        return {}
    known = J1939Id.unpack(message.frame_id)
    return {"source": known.source, "priority": known.priority, "pgn": known.pgn}


def _declare_labels(signal: SignalLayout, module: str) -> type[Enum]:
    assert signal.enumeration is not None
    make: Any = Enum  # mypy does not know that this call makes a class
    labels: type[Enum] = make(signal.enumeration, list(member_names(signal.labels)), module=module)
    return labels


def member_names(labels: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Pairs of a valid name for an enumeration member and its label.

    >>> list(member_names(["OFF", "not available", "100 %"]))
    [('OFF', 'OFF'), ('not_available', 'not available'), ('x100__', '100 %')]
    """
    names = NameAllocator(MEMBER_WORDS)
    return ((names.allocate(label), label) for label in labels)


def describe(message: MessageLayout) -> str:
    """Return the docstring of a message's type: its comment or name, identifier, length, senders and cycle time."""
    kind = "diagnostic data" if message.diagnostic else "FD frame" if message.fd else "frame"
    about = f"{kind} {message.frame_id:#0{10 if message.extended else 5}x}, {message.length} bytes"
    sent = f" from {', '.join(message.senders)}" if message.senders else ""
    cycle = f" every {message.cycle_time_ms} ms" if message.cycle_time_ms else ""
    comment = " ".join((message.comment or "").split())
    return f"{comment or message.name} ({about}{sent}{cycle})"


def _optional(note: Any) -> object:
    maybe: Any = Maybe
    return maybe[note]


_J1939_ANNOTATIONS: MappingProxyType[str, object] = MappingProxyType(
    {"source": UInt8, "destination": _optional(UInt8), "priority": UInt8, "pgn": UInt32, "sender": _optional(str)}
)
"""The attributes of every J1939 message."""


def _annotation(signal: SignalLayout, message: MessageLayout) -> object:
    plain = ANNOTATIONS[signal.annotation]
    with_unit: Any = Annotated[plain, Unit(signal.unit)] if signal.unit else plain
    return _optional(with_unit) if message.is_optional(signal) else with_unit


# -- decoding ----------------------------------------------------------------------------------------------------------

Convert: TypeAlias = Callable[[int], Any]
"""A function from the bits of a signal, as an unsigned integer, to a value."""


class SignalDecoder(NamedTuple):
    attribute: str
    big_endian: bool
    shift: int
    mask: int
    value: Convert
    raw: Convert
    """The bits as the integer, signed or unsigned, or the float that multiplexers and value tables use."""
    label: str | None
    members: Mapping[Any, Enum]
    layout: SignalLayout


class MessageDecoder:
    def __init__(self, layout: MessageLayout, cls: type[Event]) -> None:
        self.layout = layout
        self.cls = cls
        self._signals: dict[str | None, list[SignalDecoder]] = {}
        for signal in layout.signals:
            self._signals.setdefault(signal.multiplexer, []).append(_signal_decoder(signal, cls))
        self._selected: dict[tuple[str, Any], list[SignalDecoder]] = {}
        is_multiplexed = any(each.multiplexer is not None or each.selects is not None for each in layout.signals)
        self.is_plain = not layout.j1939 and not is_multiplexed
        """Whether every frame has the same signals, and the identifier tells nothing: `compiled` decodes it."""
        self._compiled: CompiledDecoder | None = None

    @property
    def compiled(self) -> "CompiledDecoder":
        """A function made for a plain message, which decodes frames as `event` does, several times as fast."""
        if self._compiled is None:
            self._compiled = _compile_decoder(self, self._signals.get(None, []))
        return self._compiled

    def event(self, frame_id: int, data: bytes, time: datetime | None, place: str | None = None) -> Event | Rejected:
        values = self.values(data)
        if isinstance(values, Rejected):
            return values
        return self.cls(time=time, place=place, **self.context(frame_id), **values)

    def context(self, frame_id: int) -> dict[str, Any]:
        """The attributes that the identifier of a frame tells; the sender, if the file has one for the address."""
        layout = self.layout
        if not layout.j1939:
            return {"source": layout.sender}
        priority, pgn, source, destination = J1939Id.unpack(frame_id)
        sender = layout.sender if source == layout.frame_id & 0xFF else None
        return {"source": source, "destination": destination, "priority": priority, "pgn": pgn, "sender": sender}

    def values(self, data: bytes) -> dict[str, Any] | Rejected:
        """The attributes that are present; a frame may be longer than its message, and shorter if that is allowed."""
        length, reach = self.layout.length, len(data)
        if reach < length and not self.layout.truncated:
            return Rejected(f"{self.layout.type_name}: too short: {reach} of {length} bytes")
        data = bytes(data[:length]).ljust(length, b"\0")
        numbers = int.from_bytes(data, "little"), int.from_bytes(data, "big")
        values: dict[str, Any] = {}
        waiting = [self._signals.get(None, [])]
        while waiting:
            group = waiting.pop()
            if reach < length:
                group = [each for each in group if each.layout.bytes_needed(length) <= reach]
            for attribute, big_endian, shift, mask, value, raw, label, members, layout in group:
                bits = numbers[big_endian] >> shift & mask
                values[attribute] = value(bits)
                if label is not None and (member := members.get(raw(bits))) is not None:
                    values[label] = member
                if layout.selects is not None:
                    if raw(bits) not in layout.selects:
                        return Rejected(f"{self.layout.type_name}: multiplexer {layout.name} selects nothing")
                    waiting.append(self._selected_by(layout.name, raw(bits)))
        return values

    def _selected_by(self, multiplexer: str, value: Any) -> list[SignalDecoder]:
        """Return the signals that a value of a multiplexer selects; `selects` bounds how many values are remembered."""
        selected = self._selected.get((multiplexer, value))
        if selected is None:
            below = self._signals.get(multiplexer, [])
            selected = self._selected[multiplexer, value] = [each for each in below if value in each.layout.selected_by]
        return selected


CompiledDecoder: TypeAlias = Callable[[bytes, datetime | None], Event | Rejected]


def _compile_decoder(decoder: MessageDecoder, signals: list[SignalDecoder]) -> CompiledDecoder:
    """Make the function that decodes frames of a plain message; short ones and what is rare are left to `event`."""
    layout = decoder.layout
    names: dict[str, Any] = {"cls": decoder.cls, "create": create_event, "sender": layout.sender}
    names["rest"] = partial(decoder.event, layout.frame_id)
    lines = ["def decode(data, time):", f"    if len(data) < {layout.length}:", "        return rest(data, time)"]
    for order in {"big" if each.big_endian else "little" for each in signals}:
        lines.append(f"    {order} = int.from_bytes(data[:{layout.length}], {order!r})")
    attributes = ["time=time", "source=sender"]
    for number, each in enumerate(signals):
        order, signal = "big" if each.big_endian else "little", each.layout
        names |= {f"value{number}": each.value, f"raw{number}": each.raw, f"labels{number}": each.members}
        names |= {f"scale{number}": signal.scale, f"offset{number}": signal.offset}
        bits = f"({order} >> {each.shift} & {each.mask})"
        if signal.annotation == "bytes" or signal.is_float:
            lines.append(f"    bits{number} = {bits}")
            raw, value = f"raw{number}(bits{number})", f"value{number}(bits{number})"
        else:
            sign = 1 << signal.length - 1
            lines.append(f"    raw{number}_ = {f'({bits} ^ {sign}) - {sign}' if signal.signed else bits}")
            raw = value = f"raw{number}_"
            if signal.is_scaled:
                value = f"{raw} * scale{number} + offset{number}"
                value = f"float({value})" if signal.annotation == "float" else value
        attributes.append(f"{each.attribute}={value}")
        if each.label is not None:
            attributes.append(f"{each.label}=labels{number}.get({raw})")
    lines.append(f"    return create(cls, {', '.join(attributes)})")
    exec(compile("\n".join(lines), f"<genus decode {layout.type_name}>", "exec"), names)
    made: CompiledDecoder = names["decode"]
    return made


def _signal_decoder(signal: SignalLayout, cls: type[Event]) -> SignalDecoder:
    raw = _raw(signal)
    bits = signal.big_endian, signal.shift, signal.mask
    return SignalDecoder(signal.attribute, *bits, _value(signal, raw), raw, signal.label, _members(signal, cls), signal)


def _raw(signal: SignalLayout) -> Convert:
    if signal.is_float:
        bits, real = (struct.Struct(f">{code}") for code in FLOAT_FORMATS[signal.length])
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
