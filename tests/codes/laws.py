"""Random hierarchies, arrival orders and the oracle for the laws every scheme must keep."""

from collections.abc import Mapping, Sequence
from random import Random

from hypothesis import strategies as st

Hierarchy = Mapping[str, Sequence[str]]


@st.composite
def trees(draw: st.DrawFn, size: int = 24, roots: int = 1) -> dict[str, list[str]]:
    """Trees (or forests) in the order of their arrival."""
    count = draw(st.integers(1, size))
    tree: dict[str, list[str]] = {}
    for i in range(count):
        parent = None if i == 0 or (roots > 1 and draw(st.integers(0, 5)) == 0) else draw(st.integers(0, i - 1))
        tree[f"t{i}"] = [] if parent is None else [f"t{parent}"]
    return tree


@st.composite
def dags(draw: st.DrawFn, size: int = 20) -> dict[str, list[str]]:
    """Hierarchies with any joins, in the order of their arrival."""
    count = draw(st.integers(1, size))
    dag: dict[str, list[str]] = {"t0": []}
    for i in range(1, count):
        parents = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=3))
        dag[f"t{i}"] = [f"t{p}" for p in parents]
    return dag


@st.composite
def lines_and_kinds(draw: st.DrawFn, size: int = 24) -> tuple[dict[str, list[str]], set[str]]:
    """Hierarchies in which all parents but one are kinds, in the order of their arrival, with their kinds."""
    hierarchy: dict[str, list[str]] = {}
    kinds: list[str] = []
    lines: list[str] = []
    for i in range(draw(st.integers(1, size))):
        is_kind = draw(st.booleans())
        parents = draw(st.lists(st.sampled_from(kinds), unique=True, max_size=2)) if kinds else []
        if not is_kind and lines and draw(st.integers(0, 4)):
            parents = [draw(st.sampled_from(lines)), *parents]
        hierarchy[f"t{i}"] = parents
        (kinds if is_kind else lines).append(f"t{i}")
    return hierarchy, set(kinds)


def shuffled(hierarchy: Hierarchy, seed: int) -> list[str]:
    """A random order of arrival, parents before children."""
    random, order = Random(seed), dict[str, None]()

    def arrive(name: str) -> None:
        for parent in hierarchy[name]:
            if parent not in order:
                arrive(parent)
        order[name] = None

    names = list(hierarchy)
    random.shuffle(names)
    for name in names:
        if name not in order:
            arrive(name)
    return list(order)


def ancestors(hierarchy: Hierarchy) -> dict[str, frozenset[str]]:
    """The oracle: each type with all above it, found by walking parents."""
    found: dict[str, frozenset[str]] = {}
    for name in shuffled(hierarchy, 0):
        found[name] = frozenset({name}).union(*(found[parent] for parent in hierarchy[name]))
    return found


def wrong_pairs(codes: Mapping[str, int], hierarchy: Hierarchy) -> list[tuple[str, str]]:
    """All pairs (a, b) on which codes and parents disagree whether a is b or above b; exhaustive."""
    above = ancestors(hierarchy)
    items = list(codes.items())
    return [(a, b) for b, code in items for a, divisor in items if (code % divisor == 0) != (a in above[b])]
