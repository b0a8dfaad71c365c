"""Orders in which a hierarchy (name -> parents) can be added: parents always come before their children."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from genus.errors import HierarchyError

Hierarchy = Mapping[str, Sequence[str]]


def breadth_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Level by level, siblings side by side: children follow in the order of their first-named parent.

    >>> breadth_first({"C": ["A"], "E": ["B"], "A": [], "B": [], "D": ["A"]})
    ['A', 'B', 'C', 'D', 'E']
    """
    order = as_far_as_possible(hierarchy, known)
    if len(order) < len(hierarchy):
        stuck = next(name for name in hierarchy if name not in set(order))
        raise HierarchyError(f"{stuck!r} is in or below a cycle of parents")
    return order


def as_far_as_possible(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Breadth first, leaving out what is in or below a cycle.

    >>> as_far_as_possible({"A": [], "B": ["A", "C"], "C": ["B"]})
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


def heaviest_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """The types with most types below them first; among equals, breadth first.

    >>> heaviest_first({"A": [], "B": ["A"], "C": ["A"], "D": ["C"], "E": ["C"]})
    ['A', 'C', 'B', 'D', 'E']
    """
    order = breadth_first(hierarchy, known)
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


def above(hierarchy: Hierarchy, names: Iterable[str]) -> set[str]:
    """The named types and all above them.

    >>> sorted(above({"A": [], "B": ["A"], "C": ["A"]}, ["B"]))
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
