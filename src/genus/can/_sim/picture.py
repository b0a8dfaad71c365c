"""A trace as a picture: who had the bus when, with slots shaded, errors red and deadlines marked."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from genus.can._sim.trace import Band, Passage, Trace
from genus.errors import GenusError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Which lane of a timeline a frame belongs to, and a timeline as text.


LanesBy: TypeAlias = Literal["node", "band"]
Slot: TypeAlias = tuple[int, int, str]
"""Start, end and label of a slot, in nanoseconds."""

_LETTERS = {Band.HARD: "H", Band.SOFT: "S", Band.SYSTEM: "m", Band.NONE: "n"}
_IDLE, _ERROR, _SLOT, _MARK = "·", "x", "=", "^"
_UNITS = ((10_000_000_000, "s", 1e9), (10_000_000, "ms", 1e6), (0, "µs", 1e3))


class Mark(msgspec.Struct, frozen=True):
    """An instant to mark, such as a deadline: in the lane of one station, or across all."""

    at_ns: int
    label: str = ""
    node: int | None = None


class Lane(msgspec.Struct, frozen=True):
    """A line of a timeline, with the frames on it."""

    label: str
    passages: tuple[Passage, ...]
    node: int | None = None


def lanes_of(trace: Trace, by: LanesBy = "node", names: Mapping[int, str] | None = None) -> list[Lane]:
    """The whole bus, and then a lane for each station that sent or each band; stations may have names."""
    every = Lane("bus", tuple(trace))
    if by == "band":
        return [every, *(_lane(band, [each for each in trace if each.band is band]) for band in trace.by_band())]
    names = names or {}
    stations = sorted({number for each in trace for number in each.senders})
    return [every, *(_station(number, names.get(number, f"node {number}"), trace) for number in stations)]


def _station(number: int, label: str, trace: Trace) -> Lane:
    return Lane(label, tuple(each for each in trace if number in each.senders), number)


def _lane(label: str, passages: Iterable[Passage]) -> Lane:
    return Lane(label, tuple(passages))


def span_of(trace: Trace, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
    """What is to be shown: what was asked for, or from the first start to the last end."""
    start = trace.first_ns if start_ns is None else start_ns
    return start, max(trace.span_ns if end_ns is None else end_ns, start + 1)


def time_unit(span_ns: int) -> tuple[str, float]:
    """The unit to show a span in, and its nanoseconds.

    >>> time_unit(5_000_000), time_unit(60_000_000)
    (('µs', 1000.0), ('ms', 1000000.0))
    """
    return next((name, ns) for least, name, ns in _UNITS if span_ns >= least)


def timeline_text(
    trace: Trace,
    *,
    width: int = 100,
    by: LanesBy = "node",
    slots: Sequence[Slot] = (),
    marks: Sequence[Mark] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
    names: Mapping[int, str] | None = None,
) -> str:
    """A timeline for a terminal: `H` hard, `S` soft, `m` the middleware's own, `n` none real time, `x` errors.

    >>> from genus.can._sim.fault_hooks import Outcome
    >>> from genus.can._wire.frame import Frame
    >>> trace = Trace()
    >>> trace.record(0, 200_000, Frame(7 << 14), (7,), Outcome.SENT, (8,))
    >>> trace.record(300_000, 400_000, Frame(254 << 21 | 8 << 14), (8,), Outcome.ERROR, ())
    >>> print(timeline_text(trace, width=20, slots=[(0, 250_000, "a")], marks=[Mark(350_000, node=8)]))
    slots   =============·······
    bus     HHHHHHHHHH·····xxxxx
    node 7  HHHHHHHHHH··········
    node 8  ···············xx^xx
            0             400 µs
    """
    start, end = span_of(trace, start_ns, end_ns)
    ruler = _Ruler(start, end, width)
    lanes = lanes_of(trace.between(start, end), by, names)
    rows = {"slots": ruler.row([(start, stop, _SLOT) for start, stop, _ in slots])} if slots else {}
    for lane in lanes:
        row = ruler.row([(each.start_ns, each.end_ns, _letter(each)) for each in lane.passages])
        wanted = [mark.at_ns for mark in marks if mark.node == lane.node]
        rows[lane.label] = ruler.marked(row, wanted)
    room = max(map(len, rows))
    return "\n".join([*(f"{label:<{room}}  {row}" for label, row in rows.items()), " " * (room + 2) + ruler.axis()])


def _letter(passage: Passage) -> str:
    return _LETTERS[passage.band] if passage.outcome.is_good else _ERROR


class _Ruler(msgspec.Struct, frozen=True):
    """A span of time in columns of characters."""

    start_ns: int
    end_ns: int
    width: int

    def column(self, at_ns: int) -> int:
        return (at_ns - self.start_ns) * self.width // (self.end_ns - self.start_ns)

    def row(self, pieces: Iterable[tuple[int, int, str]]) -> str:
        cells = [_IDLE] * self.width
        for start, end, letter in pieces:
            first = max(self.column(start), 0)
            last = min(max(self.column(end - 1), first), self.width - 1)
            for column in range(first, last + 1):
                if cells[column] != _ERROR:
                    cells[column] = letter
        return "".join(cells)

    def marked(self, row: str, instants: Iterable[int]) -> str:
        cells = list(row)
        for instant in instants:
            if 0 <= (column := self.column(instant)) < self.width:
                cells[column] = _MARK
        return "".join(cells)

    def axis(self) -> str:
        unit, ns = time_unit(self.end_ns - self.start_ns)
        left, right = f"{self.start_ns / ns:g}", f"{self.end_ns / ns:g} {unit}"
        return left + right.rjust(max(self.width - len(left), len(right) + 1))


MOST_LABELS = 400
_BAR, _TEXT_WIDTH = 0.62, 0.0062
"""The height of a bar in its lane; the width of a letter, as a share of the picture's."""
_NAMES = {
    Band.HARD: "hard real time",
    Band.SOFT: "soft real time",
    Band.SYSTEM: "middleware",
    Band.NONE: "no deadline",
}


class Theme(msgspec.Struct, frozen=True):
    """Colours of a picture."""

    paper: str
    ink: str
    faint: str
    stripe: str
    slot: str
    error: str
    mark: str
    bands: dict[Band, str]


LIGHT = Theme(
    paper="#ffffff", ink="#24292f", faint="#6e7781", stripe="#f4f6f8", slot="#d5e1f5", error="#d1242f", mark="#8250df",
    bands={Band.HARD: "#1f5fbf", Band.SOFT: "#1a936f", Band.SYSTEM: "#b08900", Band.NONE: "#8794a1"},
)  # fmt: skip
DARK = Theme(
    paper="#0d1117", ink="#e6edf3", faint="#8b949e", stripe="#161c25", slot="#1d3050", error="#ff5c5c", mark="#c297ff",
    bands={Band.HARD: "#58a6ff", Band.SOFT: "#3fcf9b", Band.SYSTEM: "#e3b341", Band.NONE: "#8a96a5"},
)  # fmt: skip


def draw(
    trace: Trace,
    path: str | PathLike[str],
    *,
    by: LanesBy = "node",
    slots: Sequence[Slot] = (),
    marks: Sequence[Mark] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
    names: Mapping[int, str] | None = None,
    tags: Mapping[int, str] | None = None,
    title: str = "",
    dark: bool = False,
) -> None:
    """Write the picture; its format follows from the suffix. Needs matplotlib.

    `names` are of stations, `tags` of event tags; a bar that is wide enough shows its tag.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise GenusError("a picture needs matplotlib; install genus[plot]") from problem
    start, end = span_of(trace, start_ns, end_ns)
    lanes = lanes_of(trace.between(start, end), by, names)
    picture = _Picture(DARK if dark else LIGHT, start, end, len(lanes))
    figure = Figure(figsize=(13, 1.7 + 0.4 * len(lanes)), layout="constrained", facecolor=picture.theme.paper)
    axes = figure.subplots()
    picture.prepare(axes, lanes, title or trace.header.title)
    picture.add_slots(axes, slots)
    for position, lane in enumerate(lanes):
        picture.add_lane(axes, position, lane, tags or {})
        picture.add_marks(axes, position, [mark for mark in marks if mark.node == lane.node])
        picture.add_missed(axes, position, lane)
    figure.legend(
        handles=picture.legend(lanes[0].passages, slots, marks), loc="outside lower center", ncols=9, frameon=False,
        fontsize=8.5, labelcolor=picture.theme.ink, handlelength=1.2, columnspacing=1.6,
    )  # fmt: skip
    try:
        figure.savefig(Path(path), dpi=150, facecolor=picture.theme.paper)
    except (OSError, ValueError) as problem:
        raise GenusError(f"cannot write {path}: {problem}") from problem


class _Picture(msgspec.Struct, frozen=True):
    """What all parts of a picture need to know."""

    theme: Theme
    start_ns: int
    end_ns: int
    lanes: int

    @property
    def unit(self) -> tuple[str, float]:
        return time_unit(self.end_ns - self.start_ns)

    def x(self, time_ns: float) -> float:
        return time_ns / self.unit[1]

    def prepare(self, axes: "Axes", lanes: Sequence[Lane], title: str) -> None:
        theme = self.theme
        axes.set_facecolor(theme.paper)
        for position in range(0, len(lanes), 2):
            axes.axhspan(position - 0.5, position + 0.5, color=theme.stripe, linewidth=0, zorder=0)
        axes.axhline(0.5, color=theme.faint, linewidth=0.6, zorder=1)
        axes.set_xlim(self.x(self.start_ns), self.x(self.end_ns))
        axes.set_ylim(len(lanes) - 0.5, -0.5)
        axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes], color=theme.ink)
        axes.set_xlabel(f"time ({self.unit[0]})", color=theme.ink)
        axes.set_title(title, color=theme.ink, loc="left", fontsize=11, pad=20)
        axes.tick_params(axis="x", colors=theme.faint, labelcolor=theme.ink)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(theme.faint)

    def add_slots(self, axes: "Axes", slots: Sequence[Slot]) -> None:
        seen = [slot for slot in slots if slot[0] < self.end_ns and slot[1] > self.start_ns]
        for start, end, label in seen:
            axes.axvspan(self.x(start), self.x(end), color=self.theme.slot, linewidth=0, zorder=0.5)
            if self._fits(start, end, label):
                middle = (max(start, self.start_ns) + min(end, self.end_ns)) / 2
                axes.annotate(
                    label, (self.x(middle), 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                    textcoords="offset points", ha="center", va="bottom", color=self.theme.faint, fontsize=8,
                )  # fmt: skip

    def add_lane(self, axes: "Axes", position: int, lane: Lane, tags: Mapping[int, str]) -> None:
        spans: dict[str, list[tuple[float, float]]] = {}
        for each in lane.passages:
            bar = self.x(each.start_ns), self.x(each.end_ns - each.start_ns)
            spans.setdefault(self._colour(each), []).append(bar)
        place, edge = (position - _BAR / 2, _BAR), self.theme.paper
        for colour, bars in spans.items():
            axes.broken_barh(bars, place, facecolors=colour, edgecolors=edge, linewidth=0.4, zorder=2)
        if len(lane.passages) <= MOST_LABELS:
            for each in lane.passages:
                self._add_label(axes, position, each, tags)

    def _add_label(self, axes: "Axes", position: int, passage: Passage, tags: Mapping[int, str]) -> None:
        label = tags.get(passage.id & 0x3FFF, str(passage.id & 0x3FFF))
        if self._fits(passage.start_ns, passage.end_ns, label):
            middle = (max(passage.start_ns, self.start_ns) + min(passage.end_ns, self.end_ns)) / 2
            axes.text(
                self.x(middle), position, label, ha="center", va="center", fontsize=7, color=self.theme.paper, zorder=3
            )  # fmt: skip

    def add_marks(self, axes: "Axes", position: int, marks: Sequence[Mark]) -> None:
        """Across all lanes if the mark is nobody's own; it is then of the first lane."""
        top, bottom = (-0.5, self.lanes - 0.5) if position == 0 else (position - 0.46, position + 0.46)
        times = [self.x(mark.at_ns) for mark in marks if self.start_ns <= mark.at_ns <= self.end_ns]
        if times:
            axes.vlines(times, top, bottom, color=self.theme.mark, linewidth=1.1, zorder=4)
            axes.plot(
                times, [top] * len(times), "v", color=self.theme.mark, markersize=5, zorder=5, clip_on=False
            )  # fmt: skip

    def add_missed(self, axes: "Axes", position: int, lane: Lane) -> None:
        """A dot on each frame that some station should have heard and did not."""
        times = [self.x(each.end_ns) for each in lane.passages if each.missed]
        axes.plot(times, [position + _BAR / 2] * len(times), "o", color=self.theme.error, markersize=4, zorder=5)

    def legend(self, passages: Sequence[Passage], slots: Sequence[Slot], marks: Sequence[Mark]) -> list[Any]:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        theme = self.theme
        good = {each.band for each in passages if each.outcome.is_good}
        entries: list[Any] = [Patch(color=theme.bands[band], label=_NAMES[band]) for band in Band if band in good]
        if any(not each.outcome.is_good for each in passages):
            entries.append(Patch(color=theme.error, label="error"))
        if any(each.missed for each in passages):
            entries.append(Line2D([], [], linewidth=0, color=theme.error, marker="o", label="missed by some"))
        if slots:
            entries.append(Patch(color=theme.slot, label="slot"))
        if marks:
            entries.append(Line2D([], [], color=theme.mark, marker="v", label=marks[0].label or "deadline"))
        return entries

    def _colour(self, passage: Passage) -> str:
        return self.theme.bands[passage.band] if passage.outcome.is_good else self.theme.error

    def _fits(self, start_ns: int, end_ns: int, label: str) -> bool:
        shown = min(end_ns, self.end_ns) - max(start_ns, self.start_ns)
        return bool(label) and shown / (self.end_ns - self.start_ns) > _TEXT_WIDTH * len(label) + 0.003
