"""A flat hash table of integers, built and searched by numpy."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.int32]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4)."""
ROOM = 4
"""Slots per key, at least half of it; so most keys are found at once."""
BLOCK = 1 << 17
"""Elements of arrays that are processed at once: they stay in the processor's cache, and their memory is reused."""


class IntTable:
    """The positions of distinct 64-bit keys, by open addressing with linear probing.

    >>> IntTable(np.array([70, -3])).find(np.array([-3, 5, 70])).tolist()
    [1, -1, 0]
    """

    def __init__(self, keys: Ints) -> None:
        bits = max((ROOM * len(keys)).bit_length() - 1, 3)
        self._shift, self._last = np.uint64(64 - bits), (1 << bits) - 1
        self._positions = np.full(1 << bits, -1, np.int32)
        self._keys = np.zeros(1 << bits, np.int64)
        waiting, slots = np.arange(len(keys), dtype=np.int32), self._slots(keys)
        while len(waiting):
            free = self._positions[slots] < 0
            self._positions[slots[free]] = waiting[free]
            left = self._positions[slots] != waiting
            waiting, slots = waiting[left], (slots[left] + 1) & self._last
        taken = self._positions >= 0
        self._keys[taken] = keys[self._positions[taken]]

    def _slots(self, keys: Ints) -> Ints:
        return ((keys.view(np.uint64) * _FACTOR) >> self._shift).view(np.int64)

    def find(self, keys: Ints) -> Positions:
        """The position of each key; -1 if the table does not have it."""
        found = np.empty(len(keys), np.int32)
        for at in range(0, len(keys), BLOCK):
            found[at : at + BLOCK] = self._find(keys[at : at + BLOCK])
        return found

    def _find(self, keys: Ints) -> Positions:
        slots = self._slots(keys)
        found = self._positions[slots]
        other = np.flatnonzero((self._keys[slots] != keys) & (found >= 0))
        slots = slots[other]
        while len(other):
            slots = (slots + 1) & self._last
            at = self._positions[slots]
            found[other] = at
            left = (self._keys[slots] != keys[other]) & (at >= 0)
            other, slots = other[left], slots[left]
        return found
