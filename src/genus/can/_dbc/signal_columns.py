"""One signal in many frames at once: from its bits to Arrow columns of values and labels.

The data of frames are words of 64 bits, in each byte order. A signal of up to 64 bits is in one of them, or in two
neighbours; a longer one is extracted in pieces. Values are exactly those that `Dbc.decode` gives for single frames:
what 64 bits can hold is computed in columns, everything else with Python's integers. As in the tables of a lake,
unsigned integers have the next wider signed type, and texts are dictionaries.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.can._dbc.layout import Number, SignalLayout

Numbers: TypeAlias = npt.NDArray[Any]
Bits: TypeAlias = npt.NDArray[np.uint64]
Scaling: TypeAlias = Callable[[Numbers], Numbers]
"""A function from raw values, which it may overwrite, to values."""

WORD = 64
_ALL = (1 << WORD) - 1
_EXACT = 1 << 53
"""Up to here floats represent integers exactly."""
_TINY = 1e-200
"""The product of an integer other than 0 and a larger scale than this is not 0."""
_FLOATS: dict[int, tuple[Any, Any]] = {
    16: (np.uint16, np.float16),
    32: (np.uint32, np.float32),
    64: (np.uint64, np.float64),
}


class Words:
    """The data of some frames of one message: a row of words for each, its bytes in little-endian order."""

    def __init__(self, little: Bits) -> None:
        self.little = little

    @cached_property
    def big(self) -> Bits:
        return self.little.byteswap()

    def __len__(self) -> int:
        return len(self.little)


class BitField(NamedTuple):
    """The location of up to 64 bits: in one word, or in that word and a neighbour."""

    big_endian: bool
    word: int
    shift: np.uint64
    mask: np.uint64
    neighbour: int | None
    rest: np.uint64
    """How many of the bits are in the first of two words."""

    @classmethod
    def of(cls, signal: SignalLayout, length: int, skip: int = 0) -> "BitField":
        """Return the bits of a signal in a message of `length` bytes, without the lowest `skip`; 64 bits at most."""
        size = min(signal.length - skip, WORD)
        if signal.big_endian:
            end = 8 * length - signal.shift - skip
            word, step = (end - 1) // WORD, -1
            shift = WORD * (word + 1) - end
        else:
            (word, shift), step = divmod(signal.shift + skip, WORD), 1
        neighbour = word + step if shift + size > WORD else None
        mask, rest = np.uint64((1 << size) - 1), np.uint64((WORD - shift) % WORD)
        return cls(signal.big_endian, word, np.uint64(shift), mask, neighbour, rest)

    def bits(self, words: Words) -> Bits:
        source = words.big if self.big_endian else words.little
        found: Bits = source[:, self.word] >> self.shift
        if self.neighbour is not None:
            found |= source[:, self.neighbour] << self.rest
        found &= self.mask
        return found


class RawSignal:
    def __init__(self, signal: SignalLayout, length: int) -> None:
        self.signal = signal
        self._fields = [BitField.of(signal, length, skip) for skip in range(0, signal.length, WORD)]
        self._unused = np.uint64(max(WORD - signal.length, 0))

    @property
    def type(self) -> Any:
        if self.signal.is_float:
            return np.float64
        if self.signal.length > WORD:
            return object
        return np.uint64 if self.signal.length == WORD and not self.signal.signed else np.int64

    def raw(self, words: Words) -> Numbers:
        if self.signal.length > WORD:
            return np.array(
                [int.from_bytes(row, "big", signed=self.signal.signed) for row in self._rows(words)], object
            )
        bits = self._fields[0].bits(words)
        if self.signal.is_float:
            unsigned, real = _FLOATS[self.signal.length]
            with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
                reals: Numbers = bits.astype(unsigned).view(real).astype(np.float64)
            return reals
        if self.signal.signed:
            bits <<= self._unused
            signed = bits.view(np.int64)
            signed >>= self._unused.view(np.int64)
            return signed
        return bits.view(self.type)

    def raw_bytes(self, words: Words) -> npt.NDArray[np.uint8]:
        """Return the bits as one row of bytes for each frame, the highest first."""
        pieces = [field.bits(words) for field in reversed(self._fields)]
        joined = np.stack(pieces, axis=1).astype(">u8").view(np.uint8)
        return np.ascontiguousarray(joined[:, joined.shape[1] - (self.signal.length + 7) // 8 :])

    def _rows(self, words: Words) -> list[bytes]:
        found = self.raw_bytes(words)
        if self.signal.signed and self.signal.length % 8:
            unused = 8 - self.signal.length % 8
            found[:, 0] = (found[:, 0] << unused).view(np.int8) >> unused
        return [row.tobytes() for row in found]


def scaling_of(signal: SignalLayout) -> Scaling | None:
    """Return the function that gives what `SignalLayout.scaled` gives; None if values are the raw values."""
    scale, offset = signal.scale, signal.offset
    if not signal.is_scaled:
        return None
    if signal.is_float or isinstance(scale, float):
        return _float_scaling(signal)
    if isinstance(offset, int) and signal.annotation != "float" and signal.length <= WORD:
        return _integer_scaling(scale, offset)
    if max(abs(raw * scale) for raw in signal.raw_range) <= _EXACT and abs(offset) <= _EXACT:
        return _float_scaling(signal)
    return lambda raw: raw.astype(object) * scale + offset  # exact integers, rounded once


def _float_scaling(signal: SignalLayout) -> Scaling:
    scale, offset = float(signal.scale), float(signal.offset)
    never_minus_zero = offset == 0 and scale > _TINY and not signal.is_float

    def scaled(raw: Numbers) -> Numbers:
        values: npt.NDArray[np.float64] = raw.astype(np.float64)
        with np.errstate(all="ignore"):
            values *= scale
            if not never_minus_zero:
                values += offset
        return values

    return scaled


def _integer_scaling(scale: int, offset: int) -> Scaling:
    """Scale modulo 2^64: intermediate values may overflow, but the results fit in 64 bits."""
    factor, summand = np.uint64(scale & _ALL), np.uint64(offset & _ALL)

    def scaled(raw: Numbers) -> Numbers:
        values = raw.view(np.uint64) * factor
        values += summand
        return values.view(np.int64)

    return scaled


# -- Arrow columns -----------------------------------------------------------------------------------------------------

_STORED: dict[str, tuple[Any, pa.DataType]] = {
    "Int8": (np.int8, pa.int8()),
    "Int16": (np.int16, pa.int16()),
    "Int32": (np.int32, pa.int32()),
    "Int64": (np.int64, pa.int64()),
    "UInt8": (np.int16, pa.int16()),
    "UInt16": (np.int32, pa.int32()),
    "UInt32": (np.int64, pa.int64()),
    "Float32": (np.float32, pa.float32()),
    "float": (np.float64, pa.float64()),
    "bytes": (np.uint8, pa.binary()),
}
LABEL = pa.dictionary(pa.int32(), pa.string())
SHORT_TABLE = 10
"""Signals of up to this many bits are looked up in an array of all their values."""


class Presence:
    """The frames in which a signal is present; shared by all signals of a group."""

    def __init__(self, mask: npt.NDArray[np.bool_] | None = None) -> None:
        self.mask = mask
        """None if it is present in all frames."""
        self.is_empty = False
        """Whether it is present in no frame."""
        self.bitmap: pa.Buffer | None = None

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_]) -> "Presence":
        count = np.count_nonzero(mask)
        if count == len(mask):
            return cls()
        found = cls(mask)
        found.is_empty, found.bitmap = count == 0, pa.py_buffer(np.packbits(mask, bitorder="little"))
        return found

    def where(self, mask: npt.NDArray[np.bool_]) -> "Presence":
        return Presence.of(mask if self.mask is None else mask & self.mask)


class ValueTable:
    def __init__(self, source: RawSignal, values: Iterable[tuple[int, int]]) -> None:
        """`values` are pairs of a raw value and its number, 0 or more; impossible raw values are left out."""
        signal = source.signal
        known = sorted((value, number) for value, number in values if _can_be(value, signal))
        self._keys = np.array([value for value, _ in known], source.type)
        self._numbers = np.array([-1, *(number for _, number in known)], np.int32)
        self._all: npt.NDArray[np.int32] | None = None
        if signal.length <= SHORT_TABLE and not signal.is_float:
            self._low = signal.raw_range[0]
            self._all = np.full(1 << signal.length, -1, np.int32)
            self._all[[value - self._low for value, _ in known]] = self._numbers[1:]

    def find(self, raw: Numbers) -> npt.NDArray[np.int32]:
        if self._all is not None:
            found: npt.NDArray[np.int32] = self._all[raw - self._low if self._low else raw]
            return found
        if not len(self._keys):
            return np.full(len(raw), -1, np.int32)
        at = np.minimum(np.searchsorted(self._keys, raw), len(self._keys) - 1)
        return self._numbers[np.where(self._keys[at] == raw, at + 1, 0)]


def _can_be(value: int, signal: SignalLayout) -> bool:
    """Return whether a raw value can be this integer: it fits the bits, or is exactly a float."""
    if signal.is_float:
        return _nearest_float(value) == value
    low, high = signal.raw_range
    return low <= value <= high


def _nearest_float(value: int) -> Number:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


class LabelColumn:
    def __init__(self, source: RawSignal) -> None:
        labels = source.signal.labels
        self._texts = pa.array(labels, pa.string())
        self._table = ValueTable(source, [(value, labels.index(label)) for value, label in source.signal.choices])

    def column(self, raw: Numbers, presence: Presence) -> pa.DictionaryArray | None:
        which = self._table.find(raw)
        labelled = Presence.of(which >= 0 if presence.mask is None else (which >= 0) & presence.mask)
        if labelled.is_empty:
            return None
        indices = pa.Array.from_buffers(pa.int32(), len(which), [labelled.bitmap, pa.py_buffer(which)])
        return pa.DictionaryArray.from_arrays(indices, self._texts, safe=False)


class SignalColumns:
    def __init__(self, signal: SignalLayout, length: int) -> None:
        annotation = signal.annotation
        self.signal = signal
        self.numpy_type, self.type = _STORED[annotation]
        self._is_bytes = annotation == "bytes"
        self._source = RawSignal(signal, length)
        self._scaling = scaling_of(signal)
        self._labels = LabelColumn(self._source) if signal.label is not None else None

    @property
    def fields(self) -> list[pa.Field]:
        label = [pa.field(self.signal.label, LABEL)] if self.signal.label is not None else []
        return [pa.field(self.signal.attribute, self.type), *label]

    def columns(self, words: Words, presence: Presence) -> Iterator[tuple[str, pa.Array]]:
        if self._is_bytes:
            yield self.signal.attribute, _binary(self._source.raw_bytes(words), presence)
            if self._labels is None:
                return
        raw = self._source.raw(words)
        if self._labels is not None and (labels := self._labels.column(raw, presence)) is not None:
            yield str(self.signal.label), labels
        if not self._is_bytes:
            yield self.signal.attribute, self._numbers(self._scaling(raw) if self._scaling else raw, presence)

    def _numbers(self, values: Numbers, presence: Presence) -> pa.Array:
        with np.errstate(all="ignore"):  # a float beyond the 32 bits it came from is infinite
            stored = values.astype(self.numpy_type, copy=False)
        return pa.Array.from_buffers(self.type, len(stored), [presence.bitmap, pa.py_buffer(stored)])


def _binary(rows: npt.NDArray[np.uint8], presence: Presence) -> pa.Array:
    count, size = rows.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * size, size, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [presence.bitmap, offsets, pa.py_buffer(rows)])
