"""Divisibility without division, for processors that have none.

Write a = 2^k * d with d odd. Multiplying by the inverse of d modulo 2^w permutes the w-bit numbers and maps exactly
the multiples of d onto 0 .. (2^w - 1) // d, so one multiplication and two comparisons decide whether a divides b.
From Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), section 9.
"""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Divisor:
    """The constants a device needs to test whether one code divides another of at most `width` bits."""

    width: int
    low_bits: int
    inverse: int
    limit: int

    @classmethod
    def of(cls, code: int, width: int) -> Self:
        """The constants for a code at a word width such as 8, 16, 32 or 64 (any positive width is right).

        >>> Divisor.of(6, 8)
        Divisor(width=8, low_bits=1, inverse=171, limit=85)
        """
        if not 0 < code < 1 << width:
            raise ValueError(f"code {code} is not a positive integer of at most {width} bits")
        power_of_two = code & -code
        odd = code // power_of_two
        return cls(width, power_of_two - 1, pow(odd, -1, 1 << width), ((1 << width) - 1) // odd)

    def divides(self, code: int) -> bool:
        """Whether the code given to `of` divides this one, which must fit the width.

        >>> [b for b in range(1, 20) if Divisor.of(6, 8).divides(b)]
        [6, 12, 18]
        """
        if not 0 <= code < 1 << self.width:
            raise ValueError(f"code {code} does not fit {self.width} bits")
        product = code * self.inverse & (1 << self.width) - 1
        return code & self.low_bits == 0 and product <= self.limit
