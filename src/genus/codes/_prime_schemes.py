"""The three prime schemes: `OriginalPrimes`, `CompactPrimes` and `LinePrimes`.

Line primes are the smallest prime codes we know that stay sound for every addition they allow. They add three ideas:

* **Own primes again.** A child may multiply by a prime that is in its parent's code already: 2, 4, 8 for a line of
  types.
* **Heavy first.** A whole hierarchy is added by falling number of types below, so heavy subtrees get the small
  primes.
* **Kinds in chains.** Only kinds may be joined at will, so only their primes are kept from reuse, and even those are
  shared down a chain: the kinds whose own factor is q are k1 above k2 above k3 ..., with exactly q, q^2, q^3 in their
  codes.

A type that is not a kind has at most one parent that is not: its *line*. Hence its code is S * K, where S is the
product of the own factors down the line and K the least common multiple of its kinds' codes, over disjoint sets of
primes.

*Why it is sound.* A kind k, the e-th of the chain of q, and only what is below k, carries q^e: the least common
multiple takes the largest exponent of the parents, and only a type below the last of the chain may prolong it. So k
divides a code if and only if k is above it, whatever is joined later. For types in line, S divides S if and only if
one is above the other in the forest, and then K follows. S is never 1, so no line type divides a kind.

*Why not more.* A scheme in which any two types may be joined later must give every type a prime power found only
below it, for otherwise the join of all types not below it would be a false subtype; and types with powers of one
prime then form a chain. So chains are all the reuse that `joins="any"` leaves, and refusing to join two lines is the
price of the rest.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal, get_args

from genus.codes._scheme import NewType, Rule, Scheme
from genus.codes._topological import order_breadth_first, order_heaviest_first, with_ancestors
from genus.errors import HierarchyError


class PrimeForest:
    """State: the own factors of a forest's vertices; None is the parent of all roots.

    Every vertex has at most one parent, and primes are used again in other branches. A new child v of p with own
    factor q makes no false pair if and only if

    1. q is not the own factor of a vertex below p, and
    2. q is not the own factor of a child of a vertex above p, unless that child is p or above p itself.

    *Proof.* Let all pairs be right before v comes, and code(v) = code(p) * q. If code(v) divides code(x), so does
    code(p): x is below p, and carries more of q than p does, so a vertex between has the own factor q, against 1. If
    code(x) divides code(v) and x is neither above p nor p, x carries more of q than p does. Let w be the vertex of x's
    line that brought the last q: code(parent of w) divides code(p), so w is a child of p or of a vertex above p, off
    the line, with own factor q, against 1 or 2. Conversely, breaking 1 or 2 makes such a pair. As the rule holds at
    each addition, it holds for every order of them. q may divide code(p) already.
    """

    def __init__(self) -> None:
        self._parent: dict[str, str | None] = {}
        self._child_by_factor: defaultdict[str | None, dict[int, str]] = defaultdict(dict)
        self._below: defaultdict[str | None, set[int]] = defaultdict(set)

    def add(self, name: str, parent: str | None, factor: int) -> None:
        """Add a vertex with its own factor."""
        self._parent[name] = parent
        self._child_by_factor[parent][factor] = name
        for vertex in self._line(parent):
            self._below[vertex].add(factor)

    def rule(self, parent: str | None) -> Rule:
        """The own factors that a new child of a vertex may have."""
        taken = self._below[parent] | self._sibling_factors(parent)
        return lambda factor: factor not in taken

    def line_factors(self, name: str | None) -> set[int]:
        """The own factors of a vertex and of all above it."""
        line = self._line(name)
        return {f for a in line for f, child in self._child_by_factor[a].items() if child in line}

    def factors(self) -> set[int]:
        """Every own factor in use."""
        return self._below[None]

    def _sibling_factors(self, name: str | None) -> set[int]:
        line = self._line(name)
        return {f for a in line[1:] for f, child in self._child_by_factor[a].items() if child not in line}

    def _line(self, name: str | None) -> list[str | None]:
        """A vertex, its parent, and so on up to None."""
        line = [name]
        while name is not None:
            name = self._parent[name]
            line.append(name)
        return line


class OriginalPrimes(Scheme):
    """Every type gets the next prime; any hierarchy, any order of additions, the longest codes.

    Preuveneers and Berbers, "Prime numbers considered useful: ontology encoding for efficient subsumption testing"
    (2006). Sound for any hierarchy and any order, since a type's prime occurs only in its own code and those below it.

    >>> scheme = OriginalPrimes()
    >>> scheme.add("Event"), scheme.add("Roadside"), scheme.add("Loop", ["Event", "Roadside"])
    (2, 3, 30)
    >>> scheme.subsumes("Roadside", "Loop"), scheme.subsumes("Roadside", "Event")
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(rooted=False)
        self._used: set[int] = set()

    def _rule(self, new: NewType) -> Rule:
        return lambda prime: prime not in self._used

    def _record(self, new: NewType, factor: int) -> None:
        self._used.add(factor)


class CompactPrimes(Scheme):
    """Primes reused in disjoint subtrees; one parent per type, each prime at most once in a code.

    The codes of "Types in Their Prime" (Thoelen et al., 2013). Whole trees are coded as in its section 2.1: the root
    gets 1; the children of a vertex take the primes that follow the largest used by that vertex or its siblings. Its
    rule for single additions (2.2) is unsound and is not used: a leaf may get the prime of a sibling that was added to
    its parent's parent meanwhile, and then tests as a subtype of it. `PrimeForest` has the rule used instead; on the
    paper's own two examples it gives the paper's primes.

    >>> scheme = CompactPrimes()
    >>> scheme.add_all({"A": [], "B": ["A"], "C": ["A"], "D": ["B"], "E": ["C"]})
    >>> dict(scheme.codes)
    {'A': 1, 'B': 2, 'C': 3, 'D': 10, 'E': 15}
    """

    def __init__(self, *, rooted: bool = True) -> None:
        super().__init__(rooted=rooted)
        self._forest = PrimeForest()
        self._largest_below: dict[str | None, int] = {}

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole tree breadth first, by the paper's rule."""
        for name in order_breadth_first(hierarchy, self._codes):
            parents = hierarchy[name]
            self._add(name, parents, kind=False, above=self._largest_beside(parents[0]) if parents else 1)

    def _largest_beside(self, vertex: str) -> int:
        """The largest own factor of a vertex and its siblings."""
        return self._largest_below.get(self._tree_parent(self._entries[vertex].parents), 1)

    def _rule(self, new: NewType) -> Rule:
        if len(new.nearest) > 1:
            raise HierarchyError(
                f"cannot add {new.name!r}: compact codes allow one parent, not {', '.join(new.nearest)}; "
                "keep one, or use LinePrimes or OriginalPrimes"
            )
        parent = self._tree_parent(new.nearest)
        free, in_code = self._forest.rule(parent), self._forest.line_factors(parent)
        return lambda prime: prime not in in_code and free(prime)

    def _record(self, new: NewType, factor: int) -> None:
        parent = self._tree_parent(new.nearest)
        self._forest.add(new.name, parent, factor)
        self._largest_below[parent] = max(factor, self._largest_below.get(parent, 1))

    def _tree_parent(self, parents: Sequence[str]) -> str | None:
        """The parent in the forest, to which a root of code 1 does not belong."""
        return next((parent for parent in parents if self._codes[parent] > 1), None)


Joins = Literal["kinds", "any"]


class LinePrimes(Scheme):
    """Small primes for heavy subtrees, reused in every other line; several parents if all but one are kinds.

    The scheme of catalogs. With `joins="any"` every type counts as a kind: no join is refused, and codes are longer.

    >>> scheme = LinePrimes()
    >>> scheme.add("Event"), scheme.add("Roadside", kind=True), scheme.add("Loop", ["Event", "Roadside"])
    (2, 3, 12)
    >>> scheme.subsumes("Roadside", "Loop"), scheme.subsumes("Roadside", "Event")
    (True, False)
    """

    def __init__(self, *, rooted: bool = False, joins: Joins = "kinds") -> None:
        if joins not in get_args(Joins):
            raise ValueError(f"joins must be one of {', '.join(get_args(Joins))}, not {joins!r}")
        super().__init__(rooted=rooted)
        self.joins = joins
        self._forest = PrimeForest()
        self._chain_end: dict[int, str] = {}

    @property
    def kinds(self) -> frozenset[str]:
        """The types of which any may be joined in one type."""
        return frozenset(entry.name for entry in self._entries.values() if entry.kind)

    def add(self, name: str, parents: Sequence[str] = (), *, kind: bool = False) -> int:
        """Add a type and return its code; a kind's parents must be kinds, else HierarchyError."""
        return self._add(name, parents, kind=kind or self.joins == "any")

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole hierarchy, heaviest types first; types that must be kinds for its joins become kinds."""
        kinds = kinds_of(hierarchy, self.kinds)
        for name in order_heaviest_first(hierarchy, self._codes):
            self.add(name, hierarchy[name], kind=name in kinds)

    def _rule(self, new: NewType) -> Rule:
        if self.joins == "any" and not new.kind:
            raise HierarchyError(f"stored {new.name!r} is no kind, so not every join is possible; use joins='kinds'")
        lines = self._line_parents(new)
        if new.kind and lines:
            raise HierarchyError(f"cannot add kind {new.name!r}: its parent {lines[0]!r} is not a kind")
        if len(lines) > 1:
            raise HierarchyError(
                f"cannot add {new.name!r}: it joins {' and '.join(map(repr, lines))}; "
                "all parents but one must be kinds, or use joins='any'"
            )
        return self._kind_rule(new) if new.kind else self._line_rule(lines)

    def _kind_rule(self, new: NewType) -> Rule:
        in_lines = self._forest.factors()

        def free(prime: int) -> bool:
            end = self._chain_end.get(prime)
            return prime not in in_lines if end is None else new.base % self._codes[end] == 0

        return free

    def _line_rule(self, lines: Sequence[str]) -> Rule:
        free = self._forest.rule(lines[0] if lines else None)
        return lambda prime: prime not in self._chain_end and free(prime)

    def _record(self, new: NewType, factor: int) -> None:
        if new.kind:
            self._chain_end[factor] = new.name
        else:
            lines = self._line_parents(new)
            self._forest.add(new.name, lines[0] if lines else None, factor)

    def _line_parents(self, new: NewType) -> list[str]:
        return [p for p in new.nearest if self._codes[p] > 1 and not self._entries[p].kind]


def kinds_of(hierarchy: Mapping[str, Sequence[str]], known: frozenset[str] = frozenset()) -> set[str]:
    """Known kinds, and the types that must be kinds so that no type joins two lines; the deepest parent stays a line.

    >>> sorted(kinds_of({"Event": [], "Roadside": [], "Loop": ["Event"], "RoadLoop": ["Loop", "Roadside"]}))
    ['Roadside']
    """
    kinds = set(known)

    def depth(parent: str) -> float:
        return len(with_ancestors(hierarchy, [parent]) - kinds) if parent in hierarchy else inf

    for parents in hierarchy.values():
        lines = [parent for parent in parents if parent not in kinds]
        if len(lines) > 1:
            line = with_ancestors(hierarchy, [max(lines, key=depth)])
            kinds |= with_ancestors(hierarchy, [parent for parent in lines if parent not in line])
    return kinds
