"""Counts and mean speeds, gathered from minutes into as many columns as a picture has room for."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import msgspec

from genus_traffic.report.figures import Clock, micros_of
from genus_traffic.results import Minute
from genus_traffic.types import Category

KMH = 3.6
"""Kilometres per hour in a metre per second."""


class Seen(msgspec.Struct, frozen=True):
    """What was seen of one category in one column."""

    count: int
    kmh: float | None


class Columns:
    """Spans of time of equal length, each a minute or several, and no more than there is room for."""

    def __init__(self, clock: Clock, most: int) -> None:
        minutes = max(ceil((clock.end_us - clock.start_us) / 60e6), 1)
        self.width_us = 60_000_000 * ceil(minutes / most)
        self.start_us = clock.start_us
        self.number = ceil(minutes * 60e6 / self.width_us)
        self.end_us = self.start_us + self.number * self.width_us

    def column(self, minute: Minute) -> int:
        """Where a minute belongs; the ends take what lies beyond them."""
        return min(max((micros_of(minute.start) - self.start_us) // self.width_us, 0), self.number - 1)

    def starts(self) -> Iterator[int]:
        """The instants at which columns begin."""
        return iter(range(self.start_us, self.end_us, self.width_us))


def categories_in(minutes: Iterable[Minute]) -> list[str]:
    """The categories that were seen: the known ones in their order, then others by name."""
    known = [category.value for category in Category]
    return sorted({minute.category for minute in minutes}, key=lambda name: (_place(name, known), name))


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)


def gathered(minutes: Iterable[Minute], columns: Columns) -> dict[str, list[Seen]]:
    """Per category a value for every column; a mean speed is weighted by the vehicles of its minutes."""
    gathered: dict[str, list[list[Minute]]] = {}
    for minute in minutes:
        row = gathered.setdefault(minute.category, [[] for _ in range(columns.number)])
        row[columns.column(minute)].append(minute)
    return {category: [_seen(cell) for cell in row] for category, row in gathered.items()}


def _seen(minutes: Sequence[Minute]) -> Seen:
    weighed = [(max(minute.count, 1), minute.speed_mean) for minute in minutes if minute.speed_mean is not None]
    weight = sum(count for count, _ in weighed)
    mean = KMH * sum(count * speed for count, speed in weighed) / weight if weight else None
    return Seen(sum(minute.count for minute in minutes), mean)
