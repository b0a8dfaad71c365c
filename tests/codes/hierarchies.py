"""Hierarchies made by rule, and random orders of growth, for benchmarks and tests; equal seeds, equal results."""

from collections.abc import Callable, Mapping, Sequence
from math import lgamma, log
from random import Random

from genus.codes._hierarchy import children_of

Hierarchy = Mapping[str, Sequence[str]]


def flat(count: int) -> Hierarchy:
    """A root and so many types right below it."""
    return {"Root": [], **{f"T{i}": ["Root"] for i in range(count)}}


def chain(count: int) -> Hierarchy:
    """So many types, each below the one before it."""
    return {f"T{i}": [f"T{i - 1}"] if i else [] for i in range(count)}


def class_library(seed: int = 1, count: int = 3665, joining: int = 1476) -> Hierarchy:
    """A class library: few types have many below them, and so many types have two to four parents.

    One type in eight is made to be derived from; which of them a new type derives from is chosen with a probability
    that grows with the number of types that do so already.
    """
    chance = Random(seed)
    joins = set(chance.sample(range(count // 60, count), joining))
    made: dict[str, list[str]] = {"T0": []}
    urn = ["T0"]
    for number in range(1, count):
        wanted = chance.choices((2, 3, 4), (75, 20, 5))[0] if number in joins else chance.random() > 0.02
        parents = _draw(chance, urn, int(wanted))
        made[f"T{number}"] = parents
        urn += parents
        if number < 5 or chance.random() < 1 / 8:
            urn += [f"T{number}"] * 3
    return made


def _draw(chance: Random, urn: Sequence[str], wanted: int) -> list[str]:
    drawn: dict[str, None] = {}
    while len(drawn) < wanted:
        drawn[chance.choice(urn)] = None
    return list(drawn)


def one_goes_on(levels: int = 8, width: int = 458) -> Hierarchy:
    """Levels of siblings of which one, no other than the rest when it comes, has the next level below it."""
    made: dict[str, list[str]] = {}
    parent: list[str] = []
    for level in range(levels):
        made |= {f"L{level}.{i}": parent for i in range(width)}
        parent = [f"L{level}.0"]
    return made


def least_mean_bytes(levels: int, width: int) -> float:
    """The least expected mean size that codes of `one_goes_on` can have in random order, by any scheme whatsoever.

    docs/codes.md says why: each level multiplies the code of the type that goes on by an expected 2 to the mean of
    log2 over width different numbers from 2 on.
    """
    per_level = lgamma(width + 2) / log(2) / width
    return per_level * (levels + 1) / 2 / 8


def with_all_above(hierarchy: Hierarchy, seed: int) -> list[str]:
    """Types in random order, each preceded by those above it that are missing: how a catalog registers classes."""
    names, order = list(hierarchy), dict[str, None]()
    Random(seed).shuffle(names)
    for name in names:
        stack = [name]
        while stack:
            missing = [parent for parent in hierarchy[stack[-1]] if parent not in order]
            if missing:
                stack += missing
            else:
                order[stack.pop()] = None
    return list(order)


def any_ready(hierarchy: Hierarchy, seed: int) -> list[str]:
    """Each next type is any of those whose parents are there, all with the same probability."""
    chance, children = Random(seed), children_of(hierarchy)
    waiting = {name: len(parents) for name, parents in hierarchy.items()}
    ready, order = [name for name, count in waiting.items() if not count], list[str]()
    while ready:
        place = chance.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        order.append(ready.pop())
        for child in children[order[-1]]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return order


ORDERS: Mapping[str, Callable[[Hierarchy, int], list[str]]] = {
    "with all above": with_all_above,
    "any ready": any_ready,
}
"""The random orders of growth by name."""
