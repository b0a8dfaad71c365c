"""Topological orders of a hierarchy (name -> parents): parents come before their children."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from genus.errors import HierarchyError

Hierarchy = Mapping[str, Sequence[str]]


def order_breadth_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Level by level, siblings together: children follow in the order of their first-named parent.

    `known` are parents outside the hierarchy. HierarchyError if there is a cycle or a parent is unknown.

    >>> order_breadth_first({"C": ["A"], "E": ["B"], "A": [], "B": [], "D": ["A"]})
    ['A', 'B', 'C', 'D', 'E']
    """
    order = order_acyclic_part(hierarchy, known)
    if len(order) < len(hierarchy):
        stuck = next(name for name in hierarchy if name not in set(order))
        raise HierarchyError(f"{stuck!r} is in or below a cycle of parents")
    return order


def order_acyclic_part(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Return the breadth-first order of all types that are not in or below a cycle.

    >>> order_acyclic_part({"A": [], "B": ["A", "C"], "C": ["B"]})
    ['A']
    """
    children = children_of(hierarchy, known)
    waiting = {name: sum(parent in hierarchy for parent in parents) for name, parents in hierarchy.items()}
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for child in children[name]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    return order


def order_heaviest_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Return the types with most types below them first; among equals, breadth first.

    >>> order_heaviest_first({"A": [], "B": ["A"], "C": ["A"], "D": ["C"], "E": ["C"]})
    ['A', 'C', 'B', 'D', 'E']
    """
    order = order_breadth_first(hierarchy, known)
    below = _reachable(order, children_of(hierarchy, known))
    return sorted(order, key=lambda name: -below[name].bit_count())


def children_of(hierarchy: Hierarchy, known: Collection[str] = ()) -> dict[str, list[str]]:
    """Each type's children, in the order of the hierarchy.

    >>> children_of({"A": [], "B": ["A"]})
    {'A': ['B'], 'B': []}
    """
    children: dict[str, list[str]] = {name: [] for name in hierarchy}
    for name, parents in hierarchy.items():
        for parent in parents:
            if parent in children:
                children[parent].append(name)
            elif parent not in known:
                raise HierarchyError(f"parent {parent!r} of {name!r} is unknown")
    return children


def with_ancestors(hierarchy: Hierarchy, names: Iterable[str]) -> set[str]:
    """Return the named types and all above them.

    >>> sorted(with_ancestors({"A": [], "B": ["A"], "C": ["A"]}, ["B"]))
    ['A', 'B']
    """
    found: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name in hierarchy and name not in found:
            found.add(name)
            stack.extend(hierarchy[name])
    return found


def _reachable(order: Sequence[str], children: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """For each type a bit set of itself and everything below it, so that shared descendants count once."""
    below: dict[str, int] = {}
    for position, name in reversed(list(enumerate(order))):
        below[name] = 1 << position
        for child in children[name]:
            below[name] |= below[child]
    return below
