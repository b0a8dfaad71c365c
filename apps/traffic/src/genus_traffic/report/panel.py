"""A panel of the traffic of one place: vehicles above, speeds below, by category."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Self, TypeAlias

import msgspec

from genus_traffic.report.figures import Clock, count
from genus_traffic.report.markup import Markup, element, together
from genus_traffic.report.minutes import Columns, Seen
from genus_traffic.report.plot import Plot
from genus_traffic.report.scale import Scale

SERIES = 4
"""Colours for categories; a fifth category would begin anew."""
SeenBy: TypeAlias = dict[str, list[Seen]]
"""Per category, what was seen in every column."""


class Panel(msgspec.Struct, frozen=True):
    """What all panels share: the time, the columns, the categories in their order, and the highest values."""

    clock: Clock
    columns: Columns
    categories: Sequence[str]
    most: float
    fastest: float

    @classmethod
    def of(cls, clock: Clock, columns: Columns, categories: Sequence[str], shown: Sequence[SeenBy]) -> Self:
        """One that has room for all of these."""
        most = max((_most(seen) for seen in shown), default=0)
        fastest = max((cell.kmh or 0.0 for seen in shown for row in seen.values() for cell in row), default=0.0)
        return cls(clock, columns, categories, most, fastest)

    def draw(self, title: str, says: str, seen: SeenBy, height: int) -> Markup:
        """A panel: counts above, speeds below."""
        x = Scale(float(self.columns.start_us), float(self.columns.end_us))
        head = element("h3", title, " ", element("small", says))
        counts, speeds = (Plot(x, Scale.up_to(highest), height) for highest in (self.most, self.fastest))
        return element(
            "div",
            head,
            self._counts(counts, title, seen),
            self._speeds(speeds, title, seen),
            class_="panel",
            data_site=title,
        )

    def _counts(self, plot: Plot, title: str, seen: SeenBy) -> Markup:
        minutes = self.columns.width_us // 60_000_000
        return plot.chart(
            plot.grid(),
            plot.stretched(*self._stacked(plot, seen)),
            self._tips(plot, seen),
            label=f"Vehicles at {title} over time",
            y_labels=plot.y_labels("veh/min" if minutes == 1 else f"in {minutes} min"),
        )

    def _stacked(self, plot: Plot, seen: SeenBy) -> Iterator[Markup]:
        """Categories on top of each other."""
        levels = [0] * self.columns.number
        for number, category in enumerate(self.categories):
            counts = [cell.count for cell in seen.get(category, ())]
            spans = zip(self.columns.starts(), levels, counts, strict=False)
            boxes = [self._box(start, level, count) for start, level, count in spans if count]
            levels = [level + count for level, count in zip_longest(levels, counts, fillvalue=0)]
            yield plot.steps(boxes, f"bar series-{number % SERIES}")

    def _box(self, start: int, level: int, count: int) -> tuple[float, float, float, float]:
        gap = self.columns.width_us * 0.08
        return start + gap, start + self.columns.width_us - gap, level, level + count

    def _speeds(self, plot: Plot, title: str, seen: SeenBy) -> Markup:
        half = self.columns.width_us / 2
        lines = []
        for number, category in enumerate(self.categories):
            cells = zip(self.columns.starts(), seen.get(category, ()), strict=False)
            lines.append(
                plot.line([(start + half, cell.kmh) for start, cell in cells], f"line series-{number % SERIES}")
            )
        return plot.chart(
            plot.grid(),
            plot.stretched(*lines),
            self._tips(plot, seen),
            label=f"Mean speeds at {title} over time",
            y_labels=plot.y_labels("km/h"),
            x_labels=plot.times(self.clock, 4),
        )

    def _tips(self, plot: Plot, seen: SeenBy) -> Markup:
        starts = enumerate(self.columns.starts())
        return together(
            plot.hover(start, start + self.columns.width_us, tip)
            for column, start in starts
            if (tip := self._tip(column, start, seen))
        )

    def _tip(self, column: int, start: int, seen: SeenBy) -> str:
        cells = [(category, seen[category][column]) for category in self.categories if category in seen]
        lines = [_spoken(category, cell) for category, cell in cells if cell.count or cell.kmh is not None]
        return "\n".join([self.clock.time_of_day(start), *lines]) if lines else ""


def _most(seen: SeenBy) -> int:
    """The most vehicles in a column, all categories together."""
    return max((sum(cell.count for cell in cells) for cells in zip(*seen.values(), strict=True)), default=0)


def _spoken(category: str, cell: Seen) -> str:
    speed = f", {cell.kmh:.0f} km/h" if cell.kmh is not None else ""
    return f"{count(cell.count)} × {category}{speed}"
