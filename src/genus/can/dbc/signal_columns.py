"""One signal of many frames as Arrow columns: its values, and the labels of its value table.

Unsigned integers are in the next wider signed type, as lakes keep them; texts are dictionaries.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.can.dbc.bits import Numbers, RawSignal, Words, scaling
from genus.can.dbc.layout import Number, SignalLayout

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
"""Signals of up to so many bits are looked up in a list of all their values."""


class Presence:
    """In which frames a signal is; shared by all signals that are there together."""

    def __init__(self, mask: npt.NDArray[np.bool_] | None = None) -> None:
        self.mask = mask
        """None if it is in all of them."""
        self.is_empty = False
        """Whether it is in none of them."""
        self.bitmap: pa.Buffer | None = None

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_]) -> "Presence":
        """The presence of a mask."""
        count = np.count_nonzero(mask)
        if count == len(mask):
            return cls()
        found = cls(mask)
        found.is_empty, found.bitmap = count == 0, pa.py_buffer(np.packbits(mask, bitorder="little"))
        return found


class Table:
    """Numbers to look for among raw values, and what each stands for."""

    def __init__(self, source: RawSignal, values: Iterable[tuple[int, int]]) -> None:
        """`values` gives raw values with small numbers of 0 or more; those that the bits cannot be are left out."""
        signal = source.signal
        known = sorted((value, stands_for) for value, stands_for in values if _can_be(value, signal))
        self._keys = np.array([value for value, _ in known], source.type)
        self._stands_for = np.array([-1, *(number for _, number in known)], np.int32)
        self._all: npt.NDArray[np.int32] | None = None
        if signal.length <= SHORT_TABLE and not signal.is_float:
            self._low = signal.raw_range[0]
            self._all = np.full(1 << signal.length, -1, np.int32)
            self._all[[value - self._low for value, _ in known]] = self._stands_for[1:]

    def find(self, raw: Numbers) -> npt.NDArray[np.int32]:
        """What each raw value stands for; -1 if it is not in the table."""
        if self._all is not None:
            found: npt.NDArray[np.int32] = self._all[raw - self._low if self._low else raw]
            return found
        if not len(self._keys):
            return np.full(len(raw), -1, np.int32)
        at = np.minimum(np.searchsorted(self._keys, raw), len(self._keys) - 1)
        return self._stands_for[np.where(self._keys[at] == raw, at + 1, 0)]


def _can_be(value: int, signal: SignalLayout) -> bool:
    """Whether a raw value can be this integer: by its bits, or as a float that is exactly it."""
    if signal.is_float:
        return _as_float(value) == value
    low, high = signal.raw_range
    return low <= value <= high


def _as_float(value: int) -> Number:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


class Labels:
    """Makes the column of a value table's labels."""

    def __init__(self, source: RawSignal) -> None:
        labels = source.signal.labels
        self._texts = pa.array(labels, pa.string())
        self._table = Table(source, [(value, labels.index(label)) for value, label in source.signal.choices])

    def column(self, raw: Numbers, presence: Presence) -> pa.DictionaryArray | None:
        """The labels of raw values; None if no frame has one."""
        which = self._table.find(raw)
        labelled = Presence.of(which >= 0 if presence.mask is None else (which >= 0) & presence.mask)
        if labelled.is_empty:
            return None
        indices = pa.Array.from_buffers(pa.int32(), len(which), [labelled.bitmap, pa.py_buffer(which)])
        return pa.DictionaryArray.from_arrays(indices, self._texts, safe=False)


class SignalColumns:
    """Makes the columns of one signal."""

    def __init__(self, signal: SignalLayout, length: int) -> None:
        """`length` is that of the message."""
        annotation = signal.annotation
        self.signal = signal
        self.numpy_type, self.type = _STORED[annotation]
        self._is_bytes = annotation == "bytes"
        self._source = RawSignal(signal, length)
        self._scaling = scaling(signal)
        self._labels = Labels(self._source) if signal.label is not None else None

    @property
    def fields(self) -> list[pa.Field]:
        """The columns it may give."""
        label = [pa.field(self.signal.label, LABEL)] if self.signal.label is not None else []
        return [pa.field(self.signal.attribute, self.type), *label]

    def columns(self, words: Words, presence: Presence) -> Iterator[tuple[str, pa.Array]]:
        """Its attributes by their names; one that no frame has is not among them."""
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
