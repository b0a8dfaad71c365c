"""Figure 2 as a picture: bytes of the largest identifier over the levels of a tree, one line per number of children."""

from collections.abc import Sequence
from pathlib import Path

from genus.codes.report import Cell
from genus.errors import GenusError

_TITLES = {"original": "original primes", "compact": "compact primes", "line": "line primes"}


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Write the picture; its format follows from the suffix. Needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise GenusError("a picture needs matplotlib; install genus[plot]") from problem
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, len(_TITLES), sharey=True)
    widths = sorted({cell.children for cell in cells})
    for panel, (scheme, title) in zip(panels, _TITLES.items(), strict=True):
        for position, width in enumerate(widths):
            line = [(c.levels, c.bytes) for c in cells if c.scheme == scheme and c.children == width]
            color = colormaps["viridis_r"]((position + 1) / len(widths))
            panel.plot(*zip(*line, strict=True), marker="o", markersize=4, color=color, label=str(width))
        mean = _mean([c.bytes for c in cells if c.scheme == scheme])
        panel.set_title(f"{title}: mean {mean:.2f} bytes", fontsize=11)
        panel.set_xlabel("levels of the tree")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(bottom=0)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("bytes of the largest code")
    panels[-1].legend(title="children", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as problem:
        raise GenusError(f"cannot write {path}: {problem}") from problem


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
