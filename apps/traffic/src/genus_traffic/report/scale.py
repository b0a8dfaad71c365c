"""Where a value lies on an axis, and which round values an axis shows."""

from math import floor, log10
from typing import Self

import msgspec

from genus_traffic.report.markup import short

_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


class Scale(msgspec.Struct, frozen=True):
    """A straight axis from a low to a higher value."""

    low: float
    high: float

    @classmethod
    def up_to(cls, highest: float) -> Self:
        """From zero to a value, and a little above."""
        return cls(0.0, highest * 1.05 if highest > 0 else 1.0)

    def part(self, value: float) -> float:
        """How far along the axis a value lies: 0 at the low end, 1 at the high one."""
        span = self.high - self.low
        return (value - self.low) / span if span > 0 else 0.0

    def percent(self, value: float) -> str:
        """The same as an SVG or CSS length, kept on the axis.

        >>> [Scale(0, 50).percent(value) for value in (10, 70)]
        ['20%', '100%']
        """
        return f"{short(100 * min(max(self.part(value), 0.0), 1.0))}%"

    def width(self, start: float, end: float) -> str:
        """What lies on the axis between two values, as a length."""
        first, last = (min(max(self.part(value), 0.0), 1.0) for value in (start, end))
        return f"{short(100 * max(last - first, 0.0))}%"

    def ticks(self, wanted: int = 4) -> list[float]:
        """About so many round values.

        >>> Scale(0, 47).ticks()
        [0.0, 10.0, 20.0, 30.0, 40.0]
        """
        return self.ticks_apart((self.high - self.low) / max(wanted, 1))

    def ticks_apart(self, rough: float) -> list[float]:
        """Values that are about so far apart, and round."""
        step = _round_step(rough)
        first, last = _multiples(self.low, self.high, step)
        return [round(number * step, 9) for number in range(first, last + 1)]

    def time_ticks(self, wanted: int = 6) -> list[int]:
        """About so many instants at round times, on an axis of microseconds since 1970."""
        rough = (self.high - self.low) / 1e6 / max(wanted, 1)
        step = 1_000_000 * next((step for step in _TIME_STEPS_S if step >= rough), _TIME_STEPS_S[-1])
        first, last = _multiples(self.low, self.high, step)
        return [number * step for number in range(first, last + 1)]


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** floor(log10(rough))
    return power * min((1, 2, 5, 10), key=lambda factor: abs(factor * power - rough))


def _multiples(low: float, high: float, step: float) -> tuple[int, int]:
    return -floor(-(low / step - 1e-9)), floor(high / step + 1e-9)
