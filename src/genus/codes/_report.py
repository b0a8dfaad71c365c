"""The sizes of codes: Table 1 and Figure 2 of "Types in Their Prime", for any hierarchy and for all schemes.

Figure 2's largest identifiers, of full balanced trees with up to 2.4 million vertices, need no tree: within a level
all subtrees are alike, so the primes of a level follow from the level above.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod
from pathlib import Path

from genus._extras import install_command
from genus.codes._encoding import code_size
from genus.codes._prime_schemes import CompactPrimes, LinePrimes, OriginalPrimes
from genus.codes._primes import nth_prime
from genus.codes._scheme import Scheme
from genus.errors import GenusError, HierarchyError


@dataclass(frozen=True, slots=True)
class CodeCost:
    """A line of Table 1: the number and sizes of the codes that one scheme gives a hierarchy."""

    scheme: str
    vertices: int
    primes: int
    largest: int
    mean_bytes: float
    max_bytes: int
    density_percent: float


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A line of Table 1 for a scheme that cannot code the hierarchy, with the reason."""

    scheme: str
    reason: str


@dataclass(frozen=True, slots=True)
class TreeCodeSize:
    """A point of Figure 2: the bytes of the largest code of a full balanced tree."""

    scheme: str
    levels: int
    children: int
    bytes: int


def compare_schemes(hierarchy: Mapping[str, Sequence[str]]) -> list[CodeCost | NotApplicable]:
    """Table 1 for a hierarchy (type -> parents): one line for each scheme.

    >>> [line.largest for line in compare_schemes({"A": [], "B": ["A"], "C": ["A"], "D": ["B"]})]
    [42, 10, 4, 4]
    """
    return [
        filled if isinstance(filled, NotApplicable) else measure_scheme(label, filled)
        for label, filled in _fill_schemes(hierarchy).items()
    ]


def assign_codes(hierarchy: Mapping[str, Sequence[str]]) -> dict[str, Mapping[str, int] | NotApplicable]:
    """Return the codes that each scheme gives a hierarchy (type -> parents), or why it gives none.

    >>> assign_codes({"A": [], "B": ["A"], "C": ["B"]})["line"]
    mappingproxy({'A': 1, 'B': 2, 'C': 4})
    """
    return {
        label: filled if isinstance(filled, NotApplicable) else filled.codes
        for label, filled in _fill_schemes(hierarchy).items()
    }


def _fill_schemes(hierarchy: Mapping[str, Sequence[str]]) -> dict[str, Scheme | NotApplicable]:
    """Return all schemes with the hierarchy in them; one root has the code 1 where the scheme allows it."""
    rooted = sum(not parents for parents in hierarchy.values()) == 1
    schemes: dict[str, Scheme] = {
        "original": OriginalPrimes(),
        "compact": CompactPrimes(rooted=rooted),
        "line": LinePrimes(rooted=rooted),
        "line, any join": LinePrimes(rooted=rooted, joins="any"),
    }
    return {label: _fill(label, scheme, hierarchy) for label, scheme in schemes.items()}


def _fill(label: str, scheme: Scheme, hierarchy: Mapping[str, Sequence[str]]) -> Scheme | NotApplicable:
    try:
        scheme.add_all(hierarchy)
    except HierarchyError:
        if any(len(parents) > 1 for parents in hierarchy.values()):
            return NotApplicable(label, "several parents")
        raise
    return scheme


def measure_scheme(label: str, scheme: Scheme) -> CodeCost:
    """Return the line of Table 1 for a scheme that has its types already."""
    codes = scheme.codes.values()
    sizes = [code_size(code) for code in codes]
    largest = max(codes)
    density = float(Fraction(100 * len(sizes), largest))
    return CodeCost(label, len(sizes), len(_own_factors(scheme)), largest, sum(sizes) / len(sizes), max(sizes), density)


def _own_factors(scheme: Scheme) -> set[int]:
    codes = scheme.codes
    factors = (entry.code // lcm(*(codes[parent] for parent in entry.parents)) for entry in scheme.entries)
    return {factor for factor in factors if factor > 1}


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
