"""Pictures that need matplotlib: the cycle and the load of a plan, and which station used the bus when in a trace."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from genus._extras import install_command
from genus.can._plan.admission import Plan
from genus.can._plan.calendar import Slot
from genus.can._plan.system import format_bitrate, format_bound
from genus.can._sim.trace import Passage, Trace, TrafficClass
from genus.can._wire.frame import ETAG_MASK
from genus.errors import GenusError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INK = "#7d8590"
"""The colour of text and lines: a grey that is readable on white and on black."""
PARTS = {"wait": "#b6bec9", "attempts": "#2f7fd6", "gap": "#e0a53a"}
CLASSES = {"hard": "#2f7fd6", "soft": "#3aa76d", "none": "#9a6dd7", "system": "#c9792e"}
_MEANINGS = {
    "wait": "may wait for a frame on the wire",
    "attempts": "sends, and repeats what fails",
    "gap": "gap for clocks that differ",
}
_CLASS_NAMES = {"hard": "hard", "soft": "soft", "none": "none", "system": "middleware"}
_ROW = 0.62


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw the cycle and the load of a plan to a file, whose suffix says the format.

    GenusError if matplotlib is not installed or the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise GenusError(f"a picture needs matplotlib: {install_command('plot')}") from problem
    rows = max(len(plan.calendar.slots), 1)
    with rc_context({"svg.hashsalt": "genus"}):  # the same plan gives the same file
        figure = Figure(figsize=(10, 2.8 + 0.3 * rows), layout="constrained")
        figure.patch.set_alpha(0)
        cycle, load = figure.subplots(2, 1, height_ratios=(0.9 + 0.3 * rows, 0.8))
        _draw_cycle(cycle, plan)
        _draw_load(load, plan)
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as problem:
            raise GenusError(f"cannot write {path}: {problem}") from problem


def _draw_cycle(axes: "Axes", plan: Plan) -> None:
    slots, cycle_ns = plan.calendar.slots, plan.calendar.cycle_ns
    scale, unit = (1e6, "ms") if cycle_ns >= 1_000_000 else (1e3, "µs")
    for row, slot in enumerate(slots):
        axes.axhline(row, color=INK, alpha=0.25, linewidth=0.6, zorder=0)
        _draw_slot(axes, row, slot, cycle_ns, scale)
    axes.set_yticks(range(len(slots)), [slot.channel for slot in slots])
    axes.set_ylim(max(len(slots), 1) - 0.4, -0.6)
    axes.set_xlim(0, cycle_ns / scale or 1)
    axes.set_xlabel(f"{unit} of a cycle of {format_bound(cycle_ns)}; ▾ deadline and delivery", color=INK)
    title = f"Hard slots at {format_bitrate(plan.system.bus.timing.bitrate)}" if slots else "No hard slots"
    axes.set_title(title, loc="left", color=INK, fontsize=12, pad=26)
    _style(axes)
    _legend(axes, {_MEANINGS[part]: color for part, color in PARTS.items()})


def _draw_slot(axes: "Axes", row: int, slot: Slot, cycle_ns: int, scale: float) -> None:
    """Draw the occurrences of a slot; one that crosses the end of the cycle continues at its beginning."""
    parts = {"wait": slot.wait_ns, "attempts": slot.attempts_ns, "gap": slot.gap_ns}
    for start in range(slot.offset_ns, cycle_ns, slot.period_ns):
        for at in (start, start - cycle_ns):
            for part, length in parts.items():
                axes.broken_barh([(at / scale, length / scale)], (row - _ROW / 2, _ROW), facecolor=PARTS[part])
                at += length
            axes.plot([at / scale], [row - _ROW / 2], marker=7, color=INK, markersize=5)


def _draw_load(axes: "Axes", plan: Plan) -> None:
    """Draw the share of each class; bus time that is reserved but not used is available to other classes."""
    left, hard = 0.0, plan.load.shares[0]
    for share in plan.load.shares:
        axes.broken_barh([(left, 100 * share.used)], (0.6, 0.8), facecolor=CLASSES[share.qos_class])
        left += 100 * share.used
    axes.broken_barh([(0, 100 * hard.reserved)], (1.5, 0.25), facecolor=CLASSES["hard"], alpha=0.45)
    axes.set_xlim(0, max(100, left, 100 * hard.reserved))
    axes.set_ylim(0.4, 1.9)
    axes.set_yticks([1.0, 1.625], ["load", "reserved"])
    axes.set_xlabel("% of the bus", color=INK)
    _style(axes)
    refused = len(plan.refused)
    verdict = "all channels admitted" if not refused else f"{refused} of {len(plan.verdicts)} channels not admitted"
    axes.set_title(verdict, loc="right", color=INK, fontsize=10)
    names = {f"{_CLASS_NAMES[share.qos_class]} {share.used:.1%}": share.qos_class for share in plan.load.shares}
    _legend(axes, {name: CLASSES[qos_class] for name, qos_class in names.items()})


def _legend(axes: "Axes", colors: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(facecolor=color, label=label) for label, color in colors.items()],
        ncols=len(colors),
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        fontsize=9,
        labelcolor=INK,
    )


def _style(axes: "Axes") -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)


SlotSpan: TypeAlias = tuple[int, int, str]
"""Start and end of a slot in nanoseconds, and its label."""

_UNITS = ((10_000_000_000, "s", 1e9), (10_000_000, "ms", 1e6), (0, "µs", 1e3))


class TimelineRow(msgspec.Struct, frozen=True):
    label: str
    passages: tuple[Passage, ...]


def timeline_rows(trace: Trace, names: Mapping[int, str] | None = None) -> list[TimelineRow]:
    """Return a row for the whole bus, then one for each station that sent; `names` are those of stations by number."""
    numbers = sorted({number for each in trace for number in each.senders})
    rows = [
        TimelineRow(
            (names or {}).get(number, f"node {number}"), tuple(each for each in trace if number in each.senders)
        )
        for number in numbers
    ]
    return [TimelineRow("bus", tuple(trace)), *rows]


def shown_span(trace: Trace, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
    """Return the span of time to show: the one given, or from the first start to the last end."""
    start = trace.first_ns if start_ns is None else start_ns
    return start, max(trace.span_ns if end_ns is None else end_ns, start + 1)


def time_unit(span_ns: int) -> tuple[str, float]:
    """Return the unit in which to show a span, and its length in nanoseconds.

    >>> time_unit(5_000_000), time_unit(60_000_000)
    (('µs', 1000.0), ('ms', 1000000.0))
    """
    return next((name, ns) for least, name, ns in _UNITS if span_ns >= least)


MAX_LABELS = 400
_BAR, _TEXT_WIDTH = 0.62, 0.0062
"""The height of a bar as a share of its row's, and the width of a letter as a share of the picture's."""
_NAMES = {
    TrafficClass.HARD: "hard real time",
    TrafficClass.SOFT: "soft real time",
    TrafficClass.SYSTEM: "middleware",
    TrafficClass.NONE: "no deadline",
}


class Theme(msgspec.Struct, frozen=True):
    paper: str
    ink: str
    faint: str
    stripe: str
    slot: str
    error: str
    classes: dict[TrafficClass, str]


LIGHT = Theme(
    paper="#ffffff", ink="#24292f", faint="#6e7781", stripe="#f4f6f8", slot="#d5e1f5", error="#d1242f",
    classes={
        TrafficClass.HARD: "#1f5fbf", TrafficClass.SOFT: "#1a936f",
        TrafficClass.SYSTEM: "#b08900", TrafficClass.NONE: "#8794a1",
    },
)  # fmt: skip


def draw_timeline(
    trace: Trace,
    path: str | PathLike[str],
    *,
    slots: Sequence[SlotSpan] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
    names: Mapping[int, str] | None = None,
    etag_names: Mapping[int, str] | None = None,
    title: str = "",
) -> None:
    """Draw a timeline to a file, whose suffix gives the format. Needs matplotlib.

    `names` are the names of stations, `etag_names` those of event tags, which are shown on bars that are wide enough.
    GenusError if matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise GenusError(f"a picture needs matplotlib: {install_command('plot')}") from problem
    start, end = shown_span(trace, start_ns, end_ns)
    rows = timeline_rows(trace.between(start, end), names)
    picture = _Picture(LIGHT, start, end)
    figure = Figure(figsize=(13, 1.7 + 0.4 * len(rows)), layout="constrained", facecolor=picture.theme.paper)
    axes = figure.subplots()
    picture.prepare(axes, rows, title or trace.header.title)
    picture.add_slots(axes, slots)
    for position, row in enumerate(rows):
        picture.add_row(axes, position, row, etag_names or {})
        picture.add_missed(axes, position, row)
    figure.legend(
        handles=picture.legend(rows[0].passages, slots), loc="outside lower center", ncols=9, frameon=False,
        fontsize=8.5, labelcolor=picture.theme.ink, handlelength=1.2, columnspacing=1.6,
    )  # fmt: skip
    try:
        figure.savefig(Path(path), dpi=150, facecolor=picture.theme.paper)
    except (OSError, ValueError) as problem:
        raise GenusError(f"cannot write {path}: {problem}") from problem


class _Picture(msgspec.Struct, frozen=True):
    """The theme and the span of time of a picture."""

    theme: Theme
    start_ns: int
    end_ns: int

    @property
    def unit(self) -> tuple[str, float]:
        return time_unit(self.end_ns - self.start_ns)

    def x(self, time_ns: float) -> float:
        return time_ns / self.unit[1]

    def prepare(self, axes: "Axes", rows: Sequence[TimelineRow], title: str) -> None:
        theme = self.theme
        axes.set_facecolor(theme.paper)
        for position in range(0, len(rows), 2):
            axes.axhspan(position - 0.5, position + 0.5, color=theme.stripe, linewidth=0, zorder=0)
        axes.axhline(0.5, color=theme.faint, linewidth=0.6, zorder=1)
        axes.set_xlim(self.x(self.start_ns), self.x(self.end_ns))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [row.label for row in rows], color=theme.ink)
        axes.set_xlabel(f"time ({self.unit[0]})", color=theme.ink)
        axes.set_title(title, color=theme.ink, loc="left", fontsize=11, pad=20)
        axes.tick_params(axis="x", colors=theme.faint, labelcolor=theme.ink)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(theme.faint)

    def add_slots(self, axes: "Axes", slots: Sequence[SlotSpan]) -> None:
        shown = [slot for slot in slots if slot[0] < self.end_ns and slot[1] > self.start_ns]
        for start, end, label in shown:
            axes.axvspan(self.x(start), self.x(end), color=self.theme.slot, linewidth=0, zorder=0.5)
            if self._fits(start, end, label):
                middle = (max(start, self.start_ns) + min(end, self.end_ns)) / 2
                axes.annotate(
                    label, (self.x(middle), 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                    textcoords="offset points", ha="center", va="bottom", color=self.theme.faint, fontsize=8,
                )  # fmt: skip

    def add_row(self, axes: "Axes", position: int, row: TimelineRow, etag_names: Mapping[int, str]) -> None:
        spans: dict[str, list[tuple[float, float]]] = {}
        for each in row.passages:
            bar = self.x(each.start_ns), self.x(each.end_ns - each.start_ns)
            spans.setdefault(self._colour(each), []).append(bar)
        extent, edge = (position - _BAR / 2, _BAR), self.theme.paper
        for colour, bars in spans.items():
            axes.broken_barh(bars, extent, facecolors=colour, edgecolors=edge, linewidth=0.4, zorder=2)
        if len(row.passages) <= MAX_LABELS:
            for each in row.passages:
                self._add_label(axes, position, each, etag_names)

    def _add_label(self, axes: "Axes", position: int, passage: Passage, etag_names: Mapping[int, str]) -> None:
        etag = passage.id & ETAG_MASK
        label = etag_names.get(etag, str(etag))
        if self._fits(passage.start_ns, passage.end_ns, label):
            middle = (max(passage.start_ns, self.start_ns) + min(passage.end_ns, self.end_ns)) / 2
            axes.text(
                self.x(middle), position, label, ha="center", va="center", fontsize=7, color=self.theme.paper, zorder=3
            )  # fmt: skip

    def add_missed(self, axes: "Axes", position: int, row: TimelineRow) -> None:
        """Add a dot to each frame that a station missed."""
        times = [self.x(each.end_ns) for each in row.passages if each.missed_by]
        axes.plot(times, [position + _BAR / 2] * len(times), "o", color=self.theme.error, markersize=4, zorder=5)

    def legend(self, passages: Sequence[Passage], slots: Sequence[SlotSpan]) -> list[Any]:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        theme = self.theme
        good = {each.traffic_class for each in passages if each.outcome.is_good}
        entries: list[Any] = [
            Patch(color=theme.classes[kind], label=_NAMES[kind]) for kind in TrafficClass if kind in good
        ]
        if any(not each.outcome.is_good for each in passages):
            entries.append(Patch(color=theme.error, label="error"))
        if any(each.missed_by for each in passages):
            entries.append(Line2D([], [], linewidth=0, color=theme.error, marker="o", label="missed by some"))
        if slots:
            entries.append(Patch(color=theme.slot, label="slot"))
        return entries

    def _colour(self, passage: Passage) -> str:
        return self.theme.classes[passage.traffic_class] if passage.outcome.is_good else self.theme.error

    def _fits(self, start_ns: int, end_ns: int, label: str) -> bool:
        shown = min(end_ns, self.end_ns) - max(start_ns, self.start_ns)
        return bool(label) and shown / (self.end_ns - self.start_ns) > _TEXT_WIDTH * len(label) + 0.003
