"""Figure 2 of "Types in Their Prime": the bytes of the largest code of full balanced trees, per scheme.

Trees of up to 2.4 million vertices need not be made: within a level all subtrees are alike, so the primes of a level
follow from the level above. `nth_prime` counts in the sieve without making a list, so the two-millionth prime takes
20 MB for a moment instead of 80 MB permanently. `python -m bench.balanced_trees --png FILE` prints and draws it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log, prod
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from genus._extras import install_command
from genus.codes import code_size
from genus.codes._scheme import odd_sieve
from genus.errors import GenusError


@dataclass(frozen=True, slots=True)
class TreeCodeSize:
    """A point of Figure 2: the bytes of the largest code of a full balanced tree."""

    scheme: str
    levels: int
    children: int
    bytes: int


@cache
def nth_prime(n: int) -> int:
    """Return the n-th prime, counted from one.

    >>> nth_prime(1), nth_prime(8), nth_prime(100_000)
    (2, 19, 1299709)
    """
    if n < 1:
        raise ValueError(f"primes are counted from 1, not from {n}")
    if n == 1:
        return 2
    return 2 * _nth_set(odd_sieve(_bound(n)), n - 1) + 1


def _bound(n: int) -> int:
    """Return an even number above the n-th prime (Rosser and Schoenfeld, 1962)."""
    return 2 * int(n * (log(n) + log(log(n))) / 2 + 1) if n >= 6 else 14


def _nth_set(flags: bytearray, n: int) -> int:
    """Return the position of the n-th set byte: whole chunks are counted, only the last is searched."""
    start, chunk = 0, 1 << 12
    while (inside := flags.count(1, start, start + chunk)) < n:
        n -= inside
        start += chunk
    for _ in range(n):
        start = flags.index(1, start) + 1
    return start - 1


def largest_original(levels: int, children: int) -> int:
    """The largest original code of a full balanced tree: the last vertex of each level has the last prime of the level.

    >>> largest_original(levels=8, children=8).bit_length()
    108
    """
    vertices = [sum(children**level for level in range(depth + 1)) for depth in range(levels)]
    return prod(map(nth_prime, vertices))


def largest_compact(levels: int, children: int) -> int:
    """Return the largest compact code: each level takes as many new primes as a vertex has children.

    >>> largest_compact(levels=8, children=8) == 19 * 53 * 89 * 131 * 173 * 223 * 263
    True
    """
    return prod(nth_prime(depth * children) for depth in range(1, levels))


def largest_line(levels: int, children: int) -> int:
    """Return the largest line code: of each vertex's children one takes its parent's prime again, the others new ones.

    >>> largest_line(levels=8, children=8).bit_length()
    46
    """
    return prod(nth_prime(1 + depth * (children - 1)) for depth in range(1, levels))


MAX_CODES: Mapping[str, Callable[[int, int], int]] = {
    "original": largest_original,
    "compact": largest_compact,
    "line": largest_line,
}
"""For each scheme of Figure 2, a function of levels and children that gives the largest code of a tree."""


def measure_balanced_trees(
    levels: Iterable[int] = range(2, 9), children: Iterable[int] = range(2, 9)
) -> list[TreeCodeSize]:
    """Figure 2: the bytes of the largest code of full balanced trees, for each scheme, number of levels and children.

    >>> cells = measure_balanced_trees()
    >>> {scheme: max(cell.bytes for cell in cells if cell.scheme == scheme) for scheme in MAX_CODES}
    {'original': 14, 'compact': 6, 'line': 6}
    """
    grid = [(level, width) for width in children for level in levels]
    return [
        TreeCodeSize(scheme, level, width, code_size(largest(level, width)))
        for scheme, largest in MAX_CODES.items()
        for level, width in grid
    ]


_TITLES = {"original": "original primes", "compact": "compact primes", "line": "line primes"}


def draw_balanced_trees(cells: Sequence[TreeCodeSize], path: Path) -> None:
    """Draw Figure 2: bytes of the largest code over the levels of a tree, one line per number of children.

    The suffix of the path chooses the format. Raises GenusError if matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise GenusError(f"a picture needs matplotlib: {install_command('plot')}") from problem
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


def _grid(scheme: str, cells: Sequence[TreeCodeSize]) -> Table:
    mean = sum(cell.bytes for cell in cells) / len(cells)
    table = Table(
        title=f"{scheme}: bytes of the largest code by children and levels, mean {mean:.2f}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    levels = sorted({cell.levels for cell in cells})
    table.add_column("children")
    for level in levels:
        table.add_column(str(level), justify="right")
    for width in sorted({cell.children for cell in cells}):
        row = {cell.levels: cell.bytes for cell in cells if cell.children == width}
        table.add_row(str(width), *(str(row[level]) for level in levels))
    return table


@click.command()
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Also draw it to this file.")
def figure_2(png: Path | None) -> None:
    """Print the bytes of the largest code of full balanced trees of up to 8 levels and 8 children."""
    cells = measure_balanced_trees()
    for scheme in MAX_CODES:
        Console().print(_grid(scheme, [cell for cell in cells if cell.scheme == scheme]))
    if png:
        draw_balanced_trees(cells, png)


if __name__ == "__main__":
    figure_2()
