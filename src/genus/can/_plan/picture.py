"""The cycle of a plan as a picture: hard slots with their parts, and the load of all classes."""

from pathlib import Path
from typing import TYPE_CHECKING

from genus._extras import install_command
from genus.can._plan.admission import Plan
from genus.can._plan.calendar import Slot
from genus.can._plan.units import format_bitrate, format_bound
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
