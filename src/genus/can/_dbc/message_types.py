"""Event types of messages: declared from layouts, filled with the values of frames, and encoded as frames.

Every message is a family of its own below `Event`, because two messages may use one signal name for different things;
all types of a file share a kind with the file's name. A signal with a value table has two attributes: its number, which
is always exact, and the label of that number, which is absent if the table has none for it. So the number can be
compared even if the table only names "not available", and a value outside the table does not make the frame invalid.

To decode a frame, its bytes are read as two integers, one per byte order, and every signal is extracted from one of
them by shift and mask.

Events become the data of frames by the inverse. Raw values are rounded as cantools rounds them, and bits that no signal
has are 0. What the bits of a signal cannot hold is refused, and so is what the database does not allow: a value outside
the declared range, unless the value table names it; a signal that the multiplexer does not select; a label that is not
the label of the number.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, NoReturn, TypeAlias

from genus.bus.internal import Rejected
from genus.can._dbc.layout import (
    FLOAT_FORMATS,
    MEMBER_WORDS,
    MessageLayout,
    NameAllocator,
    Number,
    SignalLayout,
    same_bits,
)
from genus.can._j1939 import J1939Id, destination_of
from genus.errors import EventError
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
        """A function made for a plain message, which decodes frames as `event` does, but faster."""
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


Bits: TypeAlias = Callable[[Any], int]
"""A function from a raw value to the bits of a signal, as an unsigned integer."""

RANGE_TOLERANCE = 1e-6
"""How far a value may be outside the declared range, in units of the signal's scale: the error of rounding."""


class SignalEncoder(NamedTuple):
    layout: SignalLayout
    bits: Bits
    by_label: Mapping[str, int]
    """The lowest raw value of each label."""
    labels: Mapping[int, str]


class MessageEncoder:
    """Encodes the attributes of a message's event type to the data of its frames.

    >>> from genus.can._dbc.message_types import declare_kind, declare_type
    >>> lamp = SignalLayout("watts", "watts", 0, 8, 0, False, False, False, scale=0.5)
    >>> layout = MessageLayout("Lamp", "Lamp", 0x10, False, 1, (lamp,))
    >>> cls = declare_type(layout, declare_kind("House"))
    >>> MessageEncoder(layout).data(cls(watts=7.5)).hex()
    '0f'
    >>> MessageEncoder(layout).data(cls(watts=300.0))
    Traceback (most recent call last):
    genus.errors.EventError: Lamp.watts is 300.0; its 8 bits hold 0.0 to 127.5
    """

    def __init__(self, layout: MessageLayout) -> None:
        self.layout = layout
        self._signals: dict[str | None, list[SignalEncoder]] = {}
        for signal in layout.signals:
            self._signals.setdefault(signal.multiplexer, []).append(_signal_encoder(signal))
        self._optional = [signal for signal in layout.signals if signal.multiplexer is not None]
        self._has_overlaps = next(layout.overlapping(), None) is not None

    def data(self, event: Event) -> bytes:
        numbers = [0, 0]
        encoded: dict[str, tuple[SignalLayout, int]] = {}
        waiting = list(self._signals.get(None, ()))
        while waiting:
            signal = waiting.pop()
            layout = signal.layout
            raw = self._raw(signal, event)
            bits = signal.bits(raw)
            numbers[layout.big_endian] |= bits << layout.shift
            encoded[layout.name] = layout, bits
            if layout.selects is not None:
                if raw not in layout.selects:
                    self._refuse(layout, f"is {raw}, which selects nothing")
                below = self._signals.get(layout.name, ())
                waiting += [each for each in below if raw in each.layout.selected_by]
        self._check_unselected(event, encoded)
        data = _join(numbers[0], numbers[1], self.layout.length)
        if self._has_overlaps:
            self._check_overlaps(data, encoded.values())
        return data

    def _raw(self, signal: SignalEncoder, event: Event) -> Number:
        layout = signal.layout
        value = getattr(event, layout.attribute)
        label = None if layout.label is None else getattr(event, layout.label)
        if value is None:
            if label is None:
                self._refuse(layout, f"is missing{self._why_needed(layout)}")
            return signal.by_label[self._label_text(layout, signal, label)]
        raw = self._raw_number(layout, value)
        if label is not None and signal.labels.get(int(raw)) != self._label_text(layout, signal, label):
            self._refuse(layout, f"is {value!r}, which is not {_text_of(label)!r} as {layout.label} says")
        if raw not in signal.labels:
            self._check_range(layout, raw if layout.annotation == "bytes" else value)
        return raw

    def _label_text(self, layout: SignalLayout, signal: SignalEncoder, label: Any) -> str:
        text = _text_of(label)
        if text not in signal.by_label:
            self._refuse(layout, f"has the label {text!r}; there are {', '.join(signal.by_label)}")
        return text

    def _raw_number(self, layout: SignalLayout, value: Any) -> Number:
        if layout.annotation == "bytes":
            if not isinstance(value, bytes):
                self._refuse(layout, f"is {value!r}; it must be bytes, the raw value in big-endian order")
            raw: Number = same_bits(int.from_bytes(value, "big"), layout.length, layout.signed)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(layout, f"is {value!r}; it must be a number")
        elif layout.is_float:
            raw = float(value) if not layout.is_scaled else (value - layout.offset) / layout.scale
            return raw if self._fits_float(layout, raw) else self._refuse_range(layout, value)
        elif not math.isfinite(value):
            self._refuse(layout, f"is {value!r}; it must be a finite number")
        else:
            raw = _unscaled(layout, value)
        low, high = layout.raw_range
        return raw if low <= raw <= high else self._refuse_range(layout, value)

    @staticmethod
    def _fits_float(layout: SignalLayout, raw: float) -> bool:
        try:
            struct.pack(f">{FLOAT_FORMATS[layout.length][1]}", raw)
        except OverflowError:
            return False
        return True

    def _check_range(self, layout: SignalLayout, value: Number) -> None:
        slack = abs(layout.scale) * RANGE_TOLERANCE
        low, high = layout.minimum, layout.maximum
        if (low is not None and value < low - slack) or (high is not None and value > high + slack):
            shown = f"{'any' if low is None else low} to {'any' if high is None else high}"
            self._refuse(layout, f"is {value!r}; the database allows {shown}")

    def _check_unselected(self, event: Event, encoded: Mapping[str, object]) -> None:
        for layout in self._optional:
            names = (layout.attribute, *(() if layout.label is None else (layout.label,)))
            if layout.name not in encoded and any(getattr(event, name) is not None for name in names):
                self._refuse(layout, f"is present, but {layout.multiplexer} does not select it")

    def _check_overlaps(self, data: bytes, encoded: Iterable[tuple[SignalLayout, int]]) -> None:
        numbers = int.from_bytes(data, "little"), int.from_bytes(data, "big")
        for layout, bits in encoded:
            if numbers[layout.big_endian] >> layout.shift & layout.mask != bits:
                self._refuse(layout, "shares bits with another signal, which has another value for them")

    def _why_needed(self, layout: SignalLayout) -> str:
        return f", but {layout.multiplexer} selects it" if layout.multiplexer is not None else ""

    def _refuse_range(self, layout: SignalLayout, value: object) -> NoReturn:
        if layout.is_float:
            self._refuse(layout, f"is {value!r}, more than a float of {layout.length} bits holds")
        low, high = sorted((layout.scaled(layout.raw_range[0]), layout.scaled(layout.raw_range[1])))
        self._refuse(layout, f"is {value!r}; its {layout.length} bits hold {_shown(low)} to {_shown(high)}")

    def _refuse(self, layout: SignalLayout, why: str) -> NoReturn:
        raise EventError(f"{self.layout.type_name}.{layout.attribute} {why}")


def j1939_identifier(layout: MessageLayout, event: Any) -> int:
    """The identifier of a J1939 event: its own priority, source and destination, the latter else that of the file.

    EventError if one of them does not fit.
    """
    if event.pgn != layout.pgn:
        raise EventError(f"{layout.type_name}.pgn is {event.pgn!r}; it must be {layout.pgn}")
    destination = destination_of(layout.frame_id) if event.destination is None else event.destination
    try:
        return J1939Id(event.priority, layout.pgn, event.source, destination).pack()
    except (ValueError, TypeError):
        given = f"priority {event.priority!r}, source {event.source!r}, destination {destination!r}"
        raise EventError(f"{layout.type_name} cannot have {given}") from None


def _unscaled(layout: SignalLayout, value: Number) -> int:
    """The raw integer of a value, rounded to the nearest, as cantools computes it: exact where all are integers."""
    less = value - layout.offset
    if isinstance(layout.scale, int):
        quotient, remainder = divmod(less, layout.scale)
        return round(quotient if remainder == 0 else less / layout.scale)
    return round(less / layout.scale)


def _signal_encoder(signal: SignalLayout) -> SignalEncoder:
    by_label: dict[str, int] = {}
    for raw, label in signal.choices:
        by_label.setdefault(label, raw)
    return SignalEncoder(signal, _bits(signal), by_label, dict(signal.choices))


def _bits(signal: SignalLayout) -> Bits:
    if signal.is_float:
        bits, real = (struct.Struct(f">{code}") for code in FLOAT_FORMATS[signal.length])
        return lambda raw: int(bits.unpack(real.pack(raw))[0])
    mask = signal.mask
    return lambda raw: int(raw) & mask


def _text_of(label: object) -> str:
    return str(label.value) if isinstance(label, Enum) else str(label)


def _join(little: int, big: int, length: int) -> bytes:
    if not big:
        return little.to_bytes(length, "little")
    return (int.from_bytes(little.to_bytes(length, "little"), "big") | big).to_bytes(length, "big")


def _shown(bound: float) -> str:
    return repr(float(f"{bound:.12g}")) if isinstance(bound, float) else str(bound)
