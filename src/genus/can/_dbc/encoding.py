"""Events of a database's types as the data of frames: the inverse of `MessageDecoder`.

Raw values are rounded as cantools rounds them, and bits that no signal has are 0. What the bits of a signal cannot hold
is refused, and so is what the database does not allow: a value outside the declared range, unless the value table names
it; a signal that the multiplexer does not select; a label that is not the label of the number.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeAlias

from genus.can._dbc.layout import FLOAT_FORMATS, MessageLayout, Number, SignalLayout, same_bits
from genus.can._j1939.identifier import J1939Id, destination_of
from genus.errors import EventError
from genus.model import Event

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
