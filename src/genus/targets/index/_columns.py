"""The constants of many subscriptions of one form in columns, and the intervals of an attribute in bitmaps.

One operation tests all of them.

Numbers are an array. Text, bytes, bools and choices are codes: a test is made once for each distinct value, or by a
look-up, and then taken for all rows.

A bitmap has, per bucket of keys of one attribute, a row of bits that reject the slots without a key in it. The keys are
divided at quantiles of the bounds of some intervals. The rows of the buckets that an event's values fall into are
or-ed; what no row rejects are candidates, to be compared exactly. A last row rejects all slots that have an interval of
the attribute; it is for values that are unknown. After the bitmap indexes of databases (O'Neil, Quass: Improved query
performance with variant indexes, 1997).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.filters.internal import COMPARE, TEXT, matcher
from genus.model.internal import INT64_MAX
from genus.targets._intervals import UNKNOWN, Domain, Interval

Flags: TypeAlias = npt.NDArray[np.bool_]


class GrowingArray:
    """State: an array that grows by appending rows, with a quarter more room each time it is full."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._room: npt.NDArray[Any] = np.empty(0, dtype)
        self.values: npt.NDArray[Any] = self._room

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The bytes allocated, with the room to grow."""
        return self._room.nbytes

    def append(self, value: Any) -> None:
        used = len(self.values)
        if used == len(self._room):
            room = np.empty(max(16, used * 5 // 4), self._room.dtype)
            room[:used] = self.values
            self._room = room
        self._room[used] = value
        self.values = self._room[: used + 1]

    def replace_by_last(self, row: int) -> None:
        """Remove a row; the last one takes its place."""
        self.values[row] = self.values[-1]
        self.values = self.values[:-1]


class NumberColumn(GrowingArray):
    """State: constants that are numbers; times and durations are microseconds."""

    def __init__(self, is_float: bool) -> None:
        super().__init__(np.float64 if is_float else np.int64)
        self.uniform: float | None = None
        """The constant of all rows, if it has always been the same."""

    def append(self, value: Any) -> None:
        if not len(self):
            self.uniform = value
        elif value != self.uniform:
            self.uniform = None
        super().append(value)


class CodedColumn:
    """State: constants that are no numbers, as codes of the distinct values."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self._rows = GrowingArray(np.int32)
        self._lengths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same constant."""
        return len(self.codes) == 1

    @property
    def nbytes(self) -> int:
        """The bytes of the codes."""
        return self._rows.nbytes

    def append(self, value: Any) -> None:
        self._rows.append(self._code(value))

    def replace_by_last(self, row: int) -> None:
        """Remove a row; the last one takes its place. Values that no row has are dropped when they are most."""
        self._rows.replace_by_last(row)
        if len(self.codes) > 2 * len(self) + 64:
            values, old = list(self.codes), self._rows.values
            self.codes, self._lengths = {}, Counter()
            old[:] = [self._code(values[code]) for code in old.tolist()]

    def _code(self, value: Any) -> int:
        code = self.codes.setdefault(value, len(self.codes))
        if code == len(self.codes) - 1 and isinstance(value, Sized):
            self._lengths[len(value)] += 1
        return code

    def compare(self, op: str, value: Any) -> Flags:
        """Return whether `value op constant` is true, for each row."""
        if op in ("==", "!="):
            code = self.codes.get(value, -1)
            rows: Flags = self._rows.values == code if op == "==" else self._rows.values != code
            return rows
        return self._take(constant for constant in self.codes if COMPARE[op](value, constant))

    def find_parts(self, op: str, text: str) -> Flags:
        """Return whether a text test of the constant is true, for each row."""
        return self._take(matching_parts(op, text, self.codes, self._lengths))

    def _take(self, matching: Iterable[Any]) -> Flags:
        hits = np.zeros(len(self.codes), np.bool_)
        for constant in matching:
            hits[self.codes[constant]] = True
        rows: Flags = hits[self._rows.values]
        return rows


def passes(op: str, text: str, part: str) -> bool:
    """Return whether a text passes a text test; a pattern is compiled when it is first used.

    >>> passes("endswith", "A8", "8"), passes("like", "A8", "_8%")
    (True, True)
    """
    return matcher(part)(text) is not None if op == "like" else TEXT[op](text, part)


def matching_parts(op: str, text: str, parts: Mapping[str, Any], lengths: Mapping[int, int]) -> Iterator[str]:
    """Those of many parts for which a text test is true, each once; `lengths` counts the parts by length.

    The pieces of the text are looked up among the parts, unless there are fewer parts than pieces.

    >>> parts = {"ab": 1, "b": 2, "c": 3}
    >>> sorted(matching_parts("contains", "abab", parts, {1: 2, 2: 1}))
    ['ab', 'b']
    """
    fitting = [length for length, count in lengths.items() if count and length <= len(text)]
    pieces = sum(len(text) - length + 1 for length in fitting) if op == "contains" else len(fitting)
    if op not in _PIECES or pieces > 2 * len(parts):
        return (part for part in parts if passes(op, text, part))
    return (piece for length in fitting for piece in _PIECES[op](text, length) if piece in parts)


_PIECES: dict[str, Callable[[str, int], Iterable[str]]] = {
    "startswith": lambda text, length: (text[:length],),
    "endswith": lambda text, length: (text[len(text) - length :],),
    "contains": lambda text, length: {text[i : i + length] for i in range(len(text) - length + 1)},
}


Words: TypeAlias = npt.NDArray[np.uint64]
Slots: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.int64]

WORD = 64
MAX_BUCKETS = 96
MIN_BUCKETS = 4
ALL_SET = np.uint64(2**64 - 1)
FEW_WORDS = 64
"""Up to so many words, unpacking all of them is quicker than choosing those with a clear bit."""


class AttributeBitmaps:
    """State: the buckets of one attribute in a segment, and the slots that each rejects."""

    def __init__(self, domain: Domain, low: Keys, high: Keys, slots: int, share: float) -> None:
        buckets = min(MAX_BUCKETS, max(MIN_BUCKETS, round(MAX_BUCKETS * share)))
        self.edges = quantiles(_cuts(domain, low, high), buckets)
        self._edge_keys = np.array(self.edges, np.int64)
        self.matrix = np.zeros((len(self.edges) + 2, slots // WORD), np.uint64)
        self._octets = self.matrix.view(np.uint8)
        self._numbers = np.arange(len(self.matrix), dtype=np.uint8)

    def row(self, key: int) -> Words:
        """Return the row of bits that reject a key."""
        row: Words = self.matrix[bisect_right(self.edges, key) if key != UNKNOWN else -1]
        return row

    def set_range(self, first: int, last: int, owners: Slots, low: Keys, high: Keys) -> None:
        """Set the bits of the slots from `first` to `last`, multiples of 8; owners are counted from the first."""
        lowest, highest = np.zeros(last - first, np.uint8), np.full(last - first, 255, np.uint8)
        lowest[owners] = np.searchsorted(self._edge_keys, low, "right")
        highest[owners] = np.searchsorted(self._edge_keys, high, "right")
        rejected = (lowest > self._numbers[:, None]) | (highest < self._numbers[:, None])
        self._octets[:, first // 8 : last // 8] = np.packbits(rejected, axis=1, bitorder="little")

    def set_one(self, slot: int, interval: Interval | None) -> None:
        """Set the bits of one slot; None if its subscription does not test the attribute."""
        column, bit = self._octets[:, slot >> 3], np.uint8(1 << (slot & 7))
        column &= ~bit
        if interval is not None:
            low, high = (bisect_right(self.edges, bound) for bound in interval)
            column[:low] |= bit
            column[high + 1 :] |= bit


def _cuts(domain: Domain, low: Keys, high: Keys) -> Keys:
    """Return the keys where acceptance begins or ends: a lower bound, and the key after an upper one."""
    inner = high[high < min(domain.high, INT64_MAX)]
    return np.concatenate([low[low > domain.low], inner + 1])


def quantiles(cuts: Keys, buckets: int) -> list[int]:
    """At most `buckets - 1` of the cuts, with about as many cuts between any two; all if they are few.

    >>> quantiles(np.arange(100), 4), quantiles(np.array([5, 5, 5, 9]), 4)
    ([25, 50, 75], [5, 9])
    """
    distinct = np.unique(cuts)
    if len(distinct) < buckets:
        return [int(cut) for cut in distinct]
    places = np.arange(1, buckets) * len(cuts) // buckets
    return [int(cut) for cut in np.unique(np.sort(cuts)[places])]


def clear_bits(words: Words) -> Slots:
    """Return the positions of the bits that are not set, ascending; only words that have one are unpacked.

    >>> clear_bits(np.array([2**64 - 1, 2**64 - 1 - 2**40], np.uint64))
    array([104])
    """
    if len(words) <= FEW_WORDS:
        return np.unpackbits(np.invert(words).view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    open_words = (words != ALL_SET).nonzero()[0]
    octets = np.invert(words[open_words]).view(np.uint8)
    bits = np.unpackbits(octets, bitorder="little").view(np.bool_).nonzero()[0]
    found: Slots = (open_words[bits >> 6] << 6) + (bits & 63)
    return found


def float_keys(numbers: npt.NDArray[np.float64]) -> Keys:
    """Return the keys of many floats, as `float_key` gives them."""
    bits = (numbers + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ INT64_MAX, bits)
