"""Charts that are as wide as their place and as high as they say: text keeps its size on a phone and on paper.

Positions along x are therefore per cent of the width, those along y are pixels. Lines and areas cannot have per cent in
them; they are drawn in a box of their own that is stretched, without stretching their strokes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from genus_traffic.report.figures import Clock
from genus_traffic.report.markup import NOTHING, Markup, element, short, together
from genus_traffic.report.scale import Scale

_ACROSS = 1000
"""Units of the stretched box along x."""
_AXIS_PX = 20
"""Room below for the labels of the x axis."""


class Plot(msgspec.Struct, frozen=True):
    """The area of a chart."""

    x: Scale
    y: Scale
    height: int

    def top(self, value: float) -> float:
        """The pixel of a value of y."""
        return self.height * (1 - self.y.part(value))

    def chart(self, *drawn: Markup, label: str, y_labels: Markup, x_labels: Markup = NOTHING) -> Markup:
        """The whole chart: labels of y beside the area, those of x below."""
        height = self.height + (_AXIS_PX if x_labels else 2)
        area = element(
            "svg", *drawn, x_labels, class_="plot", width="100%", height=height, role="img", aria_label=label
        )
        return element("div", y_labels, area, class_="chart")

    def y_labels(self, unit: str, wanted: int = 3) -> Markup:
        """The values of y, beside the area, and their unit above."""
        values = [
            element("text", f"{value:,g}", x="100%", y=self.top(value) + 4, text_anchor="end")
            for value in self.y.ticks(wanted)
        ]
        head = element("text", unit, x="100%", y=-8, text_anchor="end", class_="unit")
        return element("svg", head, *values, class_="axis", width=40, height=self.height, aria_hidden="true")

    def grid(self, wanted: int = 3) -> Markup:
        """A thin line at every labelled value of y."""
        return together(
            element("line", x1=0, x2="100%", y1=self.top(value), y2=self.top(value), class_="grid")
            for value in self.y.ticks(wanted)
        )

    def times(self, clock: Clock, wanted: int = 5) -> Markup:
        """Times of day below the area."""
        return self.x_labels((at, clock.time_of_day(at)) for at in self.x.time_ticks(wanted))

    def x_labels(self, labels: Iterable[tuple[float, str]]) -> Markup:
        """Labels below the area."""
        return together(self._x_label(at, text) for at, text in labels)

    def _x_label(self, at: float, text: str) -> Markup:
        x, part = self.x.percent(at), self.x.part(at)
        anchor = "start" if part < 0.04 else "end" if part > 0.96 else "middle"
        tick = element("line", x1=x, x2=x, y1=self.height, y2=self.height + 4, class_="tick")
        return together([tick, element("text", text, x=x, y=self.height + 16, text_anchor=anchor)])

    def stretched(self, *paths: Markup) -> Markup:
        """The box that paths are drawn in."""
        box = f"0 0 {_ACROSS} {self.height}"
        return element("svg", *paths, viewBox=box, preserveAspectRatio="none", width="100%", height=self.height)

    def steps(self, spans: Iterable[tuple[float, float, float, float]], class_: str) -> Markup:
        """An area of boxes: each from x to x, from y to y."""
        parts = [self._box(*span) for span in spans]
        return element("path", d="".join(parts), class_=class_) if parts else NOTHING

    def line(self, points: Sequence[tuple[float, float | None]], class_: str) -> Markup:
        """A line through points; one without a value is a gap, and one alone is a dot."""
        commands, down = [], False
        for x, y in points:
            if y is not None:
                commands.append(f"{'L' if down else 'M'}{self._across(x)} {short(self.top(y))}{'' if down else 'h0'}")
            down = y is not None
        return element("path", d="".join(commands), class_=class_) if commands else NOTHING

    def _box(self, start: float, end: float, low: float, high: float) -> str:
        across, wide = self.x.part(start) * _ACROSS, self.x.part(end) * _ACROSS - self.x.part(start) * _ACROSS
        top, bottom = self.top(high), self.top(low)
        return f"M{short(across)} {short(bottom)}V{short(top)}h{short(wide)}V{short(bottom)}z"

    def _across(self, x: float) -> str:
        return short(self.x.part(x) * _ACROSS)

    def hover(self, start: float, end: float, tip: str) -> Markup:
        """A column that shows nothing but its tip."""
        where = {"x": self.x.percent(start), "width": self.x.width(start, end)}
        return element("rect", element("title", tip), **where, y=0, height=self.height, class_="hover")

    def marker(self, at: float, class_: str) -> Markup:
        """A vertical line over the whole height."""
        x = self.x.percent(at)
        return element("line", x1=x, x2=x, y1=0, y2=self.height, class_=class_)
