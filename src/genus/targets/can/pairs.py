"""(value, mask) pairs: the test a CAN controller makes of every identifier, and how such tests combine.

A pair accepts the identifiers that equal `value` in the bits of `mask`. Geometrically it is a face of a cube of bits;
two pairs join to the smallest face that holds both, which loses nothing and may accept more.
"""

from collections.abc import Iterable
from typing import NamedTuple

ETAG_BITS = 14
"""The low bits of an identifier, which hold the event tag."""


class Pair(NamedTuple):
    """One acceptance filter.

    >>> Pair(0b1000, 0b1100).accepts(0b1011), Pair(0b1000, 0b1100).accepts(0b0011)
    (True, False)
    """

    value: int
    mask: int

    def accepts(self, identifier: int) -> bool:
        """Whether an identifier passes."""
        return identifier & self.mask == self.value

    def covers(self, other: "Pair") -> bool:
        """Whether all that pass the other pass this one."""
        return not self.mask & ~other.mask and other.value & self.mask == self.value

    def joined(self, other: "Pair") -> "Pair":
        """The narrowest pair that both pass.

        >>> Pair(0b1000, 0b1111).joined(Pair(0b1001, 0b1111))
        Pair(value=8, mask=14)
        """
        mask = self.mask & other.mask & ~(self.value ^ other.value)
        return Pair(self.value & mask, mask)

    def is_twin_of(self, other: "Pair") -> bool:
        """Whether the two differ in one bit only, so that joined they accept nothing more."""
        return self.mask == other.mask and (self.value ^ other.value).bit_count() == 1

    def __str__(self) -> str:
        places = [1 << place for place in reversed(range(ETAG_BITS))]
        pattern = "".join("-" if not self.mask & bit else "1" if self.value & bit else "0" for bit in places)
        return f"{self.value:#06x}/{self.mask:#06x}  {pattern}"


def uncovered(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The pairs that no other one covers, each once, in the order of their values.

    >>> uncovered([Pair(8, 15), Pair(8, 12), Pair(8, 15)])
    (Pair(value=8, mask=12),)
    """
    widest: list[Pair] = []
    for pair in sorted(set(pairs), key=lambda pair: (pair.mask.bit_count(), pair)):
        if not any(kept.covers(pair) for kept in widest):
            widest.append(pair)
    return tuple(sorted(widest))


def condensed(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Fewer pairs that together accept exactly the same: twins are joined as far as that goes (Quine 1952).

    >>> condensed([Pair(4, 15), Pair(5, 15), Pair(6, 14), Pair(1, 15)])
    (Pair(value=1, mask=11), Pair(value=4, mask=12))
    """
    left = set(uncovered(pairs))
    covered = {prime: set(filter(prime.covers, left)) for prime in uncovered(_with_all_joined(left))}
    chosen: list[Pair] = []
    while left:
        chosen.append(max(covered, key=lambda prime: len(covered[prime] & left)))
        left -= covered.pop(chosen[-1])
    return tuple(sorted(chosen))


def _with_all_joined(pairs: set[Pair]) -> set[Pair]:
    """The pairs, their joined twins, the joined twins among these, and so on."""
    found, new = set(pairs), pairs
    while new:
        new = {one.joined(other) for one in new for other in found if one.is_twin_of(other)} - found
        found |= new
    return found
