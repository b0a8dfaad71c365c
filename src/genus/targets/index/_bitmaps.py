"""Bitmaps of one attribute: per bucket of keys, a row of bits that reject the slots without a key in the bucket.

The keys are divided at quantiles of the bounds of some intervals. The rows of the buckets that an event's values fall
into are or-ed; what no row rejects are candidates, to be compared exactly. A last row rejects all slots that have an
interval of the attribute; it is for values that are unknown. After the bitmap indexes of databases (O'Neil, Quass:
Improved query performance with variant indexes, 1997).
"""

from bisect import bisect_right
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from genus.model.internal import INT64_MAX
from genus.targets._intervals import UNKNOWN, Domain, Interval

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
