"""Reusing primes in a forest where every vertex has at most one parent.

A new child v of p with own factor q makes no false pair if and only if

1. q is not the own factor of a vertex below p, and
2. q is not the own factor of a child of a vertex above p, unless that child is p or above p itself.

*Why.* Let all pairs be right before v comes, and code(v) = code(p) * q. If code(v) divides code(x), so does code(p):
x is below p, and carries more of q than p does, so a vertex between has the own factor q: against 1. If code(x)
divides code(v) and x is neither above p nor p, x carries more of q than p does. Let w be the vertex of x's line that
brought the last q: code(parent of w) divides code(p), so w is a child of p or of a vertex above p, off the line, with
own factor q: against 1 or 2. The other direction: breaking 1 or 2 makes such a pair. As the rule holds at each
addition, it holds for every order of them. Nothing forbids that q divides code(p) already.
"""

from collections import defaultdict

from genus.codes.scheme import Rule


class Grove:
    """The own factors of a forest's vertices; None stands for the place above all roots."""

    def __init__(self) -> None:
        self._parent: dict[str, str | None] = {}
        self._child_by_factor: defaultdict[str | None, dict[int, str]] = defaultdict(dict)
        self._below: defaultdict[str | None, set[int]] = defaultdict(set)

    def plant(self, name: str, parent: str | None, factor: int) -> None:
        """Add a vertex with its own factor."""
        self._parent[name] = parent
        self._child_by_factor[parent][factor] = name
        for vertex in self._line(parent):
            self._below[vertex].add(factor)

    def rule(self, parent: str | None) -> Rule:
        """The own factors a new child of a vertex may have."""
        taken = self._below[parent] | self._beside(parent)
        return lambda factor: factor not in taken

    def line_factors(self, name: str | None) -> set[int]:
        """The own factors of a vertex and of all above it."""
        line = self._line(name)
        return {f for a in line for f, child in self._child_by_factor[a].items() if child in line}

    def factors(self) -> set[int]:
        """Every own factor in use."""
        return self._below[None]

    def _beside(self, name: str | None) -> set[int]:
        line = self._line(name)
        return {f for a in line[1:] for f, child in self._child_by_factor[a].items() if child not in line}

    def _line(self, name: str | None) -> list[str | None]:
        """A vertex, its parent, and so on up to None."""
        line = [name]
        while name is not None:
            name = self._parent[name]
            line.append(name)
        return line
