"""Bucket bitmaps of one attribute, and conversions between bits and slots.

The keys of an attribute are divided into buckets at quantiles of the intervals' bounds. Each bucket has one row of bits
that *reject*: a set bit says that the slot's interval has no key in the bucket. A last row rejects all slots that have
an interval; it is for events whose value is unknown. So a slot that is not in the bitmaps yet, or has no interval for
the attribute, is not rejected; the exact intervals are compared afterwards for the slots that remain. After the bitmap
indexes of databases (O'Neil, Quass: Improved query performance with variant indexes, 1997).
"""

from bisect import bisect_right
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from genus.model._types import INT64_MAX
from genus.targets.index._interval_tables import Flags, Keys, Slots
from genus.targets.index._intervals import UNKNOWN, Domain

Words: TypeAlias = npt.NDArray[np.uint64]

WORD = 64
MAX_BUCKETS = 96
MIN_BUCKETS = 4
SAMPLE = 20_000
ALL_SET = np.uint64(2**64 - 1)


class AttributeBitmaps:
    """State: the buckets of one attribute, and the slots that each rejects."""

    def __init__(self, name: str, number: int, domain: Domain) -> None:
        self.name = name
        self.number = number
        self.domain = domain
        self.clear()

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return self._matrix.nbytes

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return len(self.edges) + 1

    def clear(self) -> None:
        """Drop all rows, before they are built again."""
        self.edges: list[int] = []
        self._matrix = np.zeros((0, 0), np.uint64)
        self.rows: list[Words] = []

    def choose_buckets(self, low: Keys, high: Keys, words: int, share: float) -> None:
        """Choose the buckets for some intervals: the more, the larger the share of slots that have one."""
        buckets = min(MAX_BUCKETS, max(MIN_BUCKETS, round(MAX_BUCKETS * share)))
        self.edges = quantiles(self._cuts(low, high), buckets)
        self._matrix = np.zeros((self.buckets + 1, words), np.uint64)

    def _cuts(self, low: Keys, high: Keys) -> Keys:
        """The keys where acceptance begins or ends: a lower bound, and the key after an upper one."""
        inner = high[high < min(self.domain.high, INT64_MAX)]
        return np.concatenate([low[low > self.domain.low], inner + 1])

    def set_bits(self, first: int, count: int, owners: Slots, low: Keys, high: Keys) -> None:
        """Set the bits of `count` slots from the first on; owners are counted from the first."""
        edges = np.array(self.edges, np.int64)
        lowest, highest = np.zeros(count, np.uint8), np.full(count, 255, np.uint8)
        lowest[owners] = np.searchsorted(edges, low, "right")
        highest[owners] = np.searchsorted(edges, high, "right")
        octets = self._matrix.view(np.uint8)[:, first // 8 : (first + count) // 8]
        buckets = np.arange(len(octets), dtype=np.uint8)[:, None]
        octets[:] = np.packbits((lowest > buckets) | (highest < buckets), axis=1, bitorder="little")

    def truncate_rows(self, words: int) -> None:
        """Let rows end where the slots in the bitmaps end."""
        self.rows = [row[:words] for row in self._matrix]

    def row(self, key: int) -> Words:
        """The row of bits that reject a key."""
        return self.rows[bisect_right(self.edges, key) if key != UNKNOWN else -1]


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
    """The positions of the bits that are not set, ascending; only words that have one are unpacked.

    >>> clear_bits(np.array([2**64 - 1, 2**64 - 1 - 2**40], np.uint64))
    array([104])
    """
    open_words = (words != ALL_SET).nonzero()[0]
    octets = np.invert(words[open_words]).view(np.uint8)
    bits = np.unpackbits(octets, bitorder="little").view(np.bool_).nonzero()[0]
    found: Slots = (open_words[bits >> 6] << 6) + (bits & 63)
    return found


def pack(flags: Flags) -> Words:
    """Flags as bits; the unused bits of the last word are clear.

    >>> pack(np.array([True, False, True]))
    array([5], dtype=uint64)
    """
    octets = np.zeros(whole_words(len(flags)) // 8, np.uint8)
    octets[: (len(flags) + 7) // 8] = np.packbits(flags, bitorder="little")
    return octets.view(np.uint64)


def whole_words(slots: int) -> int:
    """The number of slots, rounded up to whole words."""
    return -(-slots // WORD) * WORD


def float_keys(numbers: npt.NDArray[np.float64]) -> Keys:
    """The keys of many floats, as `float_key` gives them."""
    bits = (numbers + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ INT64_MAX, bits)
