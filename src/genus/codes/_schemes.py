"""Line primes: the smallest prime codes we know that stay sound for every legal addition to come.

Three ideas on top of `genus.codes._scheme`:

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
one is above the other in the grove, and then K follows. S is never 1, so no line type divides a kind.

*Why not more.* A scheme in which any two types may be joined later must give every type a prime power found only
below it, for otherwise the join of all types not below it would be a false subtype; and types with powers of one
prime then form a chain. So chains are all the reuse that `joins="any"` leaves, and refusing to join two lines is the
price of the rest.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal, get_args

from genus.codes._scheme import Grove, Newcomer, Rule, Scheme
from genus.codes._topological import above, breadth_first, heaviest_first
from genus.errors import HierarchyError

# The original prime codes: every type has a prime that no other type uses.
#
# Preuveneers and Berbers, "Prime numbers considered useful: ontology encoding for efficient subsumption testing"
# (2006). Sound for any hierarchy and any order, since a type's prime occurs in no code but its own and those below it.


class OriginalPrimes(Scheme):
    """Every type its own next prime; any hierarchy, any order of additions, the longest codes.

    >>> scheme = OriginalPrimes()
    >>> scheme.add("Event"), scheme.add("Roadside"), scheme.add("Loop", ["Event", "Roadside"])
    (2, 3, 30)
    >>> scheme.subsumes("Roadside", "Loop"), scheme.subsumes("Roadside", "Event")
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(rooted=False)
        self._used: set[int] = set()

    def _rule(self, newcomer: Newcomer) -> Rule:
        return lambda prime: prime not in self._used

    def _record(self, newcomer: Newcomer, factor: int) -> None:
        self._used.add(factor)


# The compact prime codes of "Types in Their Prime" (Thoelen et al., 2013), with a sound rule for later additions.
#
# Whole trees are coded as the paper prints it (its 2.1): the root gets 1; the children of a vertex take the primes that
# follow the largest used by that vertex or its siblings. Its rule for single additions (2.2) is unsound and is not
# used: a leaf may be given the prime of a sibling that was added to its parent's parent meanwhile, and then tests as a
# subtype of it. The rule here is that of `genus.codes._scheme`; on the paper's own two examples it gives the paper's
# primes.


class CompactPrimes(Scheme):
    """Primes reused in disjoint subtrees; one parent per type, each prime at most once in a code.

    >>> scheme = CompactPrimes()
    >>> scheme.add_all({"A": [], "B": ["A"], "C": ["A"], "D": ["B"], "E": ["C"]})
    >>> dict(scheme.codes)
    {'A': 1, 'B': 2, 'C': 3, 'D': 10, 'E': 15}
    """

    def __init__(self, *, rooted: bool = True) -> None:
        super().__init__(rooted=rooted)
        self._grove = Grove()
        self._largest_below: dict[str | None, int] = {}

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole tree breadth first, by the paper's rule."""
        for name in breadth_first(hierarchy, self._codes):
            parents = hierarchy[name]
            self._add(name, parents, kind=False, above=self._largest_beside(parents[0]) if parents else 1)

    def _largest_beside(self, vertex: str) -> int:
        """The largest own factor of a vertex and its siblings."""
        return self._largest_below.get(self._tree_parent(self._entries[vertex].parents), 1)

    def _rule(self, newcomer: Newcomer) -> Rule:
        if len(newcomer.nearest) > 1:
            raise HierarchyError(
                f"cannot add {newcomer.name!r}: compact codes allow one parent, not {', '.join(newcomer.nearest)}; "
                "keep one, or use LinePrimes or OriginalPrimes"
            )
        parent = self._tree_parent(newcomer.nearest)
        free, in_code = self._grove.rule(parent), self._grove.line_factors(parent)
        return lambda prime: prime not in in_code and free(prime)

    def _record(self, newcomer: Newcomer, factor: int) -> None:
        parent = self._tree_parent(newcomer.nearest)
        self._grove.plant(newcomer.name, parent, factor)
        self._largest_below[parent] = max(factor, self._largest_below.get(parent, 1))

    def _tree_parent(self, parents: Sequence[str]) -> str | None:
        """The parent in the grove, where a root of code 1 has no place."""
        return next((parent for parent in parents if self._codes[parent] > 1), None)


Joins = Literal["kinds", "any"]


class LinePrimes(Scheme):
    """Small primes for heavy subtrees, reused in every other line; several parents if all but one are kinds.

    With `joins="any"` every type counts as a kind: nothing is ever refused, codes are longer.

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
        self._grove = Grove()
        self._chain_end: dict[int, str] = {}

    @property
    def kinds(self) -> frozenset[str]:
        """The types that may be joined at will."""
        return frozenset(entry.name for entry in self._entries.values() if entry.kind)

    def add(self, name: str, parents: Sequence[str] = (), *, kind: bool = False) -> int:
        """Give a new type its code; a kind's parents must be kinds."""
        return self._add(name, parents, kind=kind or self.joins == "any")

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole hierarchy, heaviest types first; what its joins need to be kinds becomes kinds."""
        kinds = kinds_of(hierarchy, self.kinds)
        for name in heaviest_first(hierarchy, self._codes):
            self.add(name, hierarchy[name], kind=name in kinds)

    def _rule(self, newcomer: Newcomer) -> Rule:
        if self.joins == "any" and not newcomer.kind:
            raise HierarchyError(
                f"stored {newcomer.name!r} is no kind, so not every join is possible; use joins='kinds'"
            )
        lines = self._lines(newcomer)
        if newcomer.kind and lines:
            raise HierarchyError(f"cannot add kind {newcomer.name!r}: its parent {lines[0]!r} is not a kind")
        if len(lines) > 1:
            raise HierarchyError(
                f"cannot add {newcomer.name!r}: it joins {' and '.join(map(repr, lines))}; "
                "all parents but one must be kinds, or use joins='any'"
            )
        return self._kind_rule(newcomer) if newcomer.kind else self._line_rule(lines)

    def _kind_rule(self, newcomer: Newcomer) -> Rule:
        in_lines = self._grove.factors()

        def free(prime: int) -> bool:
            end = self._chain_end.get(prime)
            return prime not in in_lines if end is None else newcomer.base % self._codes[end] == 0

        return free

    def _line_rule(self, lines: Sequence[str]) -> Rule:
        free = self._grove.rule(lines[0] if lines else None)
        return lambda prime: prime not in self._chain_end and free(prime)

    def _record(self, newcomer: Newcomer, factor: int) -> None:
        if newcomer.kind:
            self._chain_end[factor] = newcomer.name
        else:
            lines = self._lines(newcomer)
            self._grove.plant(newcomer.name, lines[0] if lines else None, factor)

    def _lines(self, newcomer: Newcomer) -> list[str]:
        return [p for p in newcomer.nearest if self._codes[p] > 1 and not self._entries[p].kind]


def kinds_of(hierarchy: Mapping[str, Sequence[str]], known: frozenset[str] = frozenset()) -> set[str]:
    """Known kinds, and the types that must be kinds so that no type joins two lines; the deepest parent stays a line.

    >>> sorted(kinds_of({"Event": [], "Roadside": [], "Loop": ["Event"], "RoadLoop": ["Loop", "Roadside"]}))
    ['Roadside']
    """
    kinds = set(known)

    def depth(parent: str) -> float:
        return len(above(hierarchy, [parent]) - kinds) if parent in hierarchy else inf

    for parents in hierarchy.values():
        lines = [parent for parent in parents if parent not in kinds]
        if len(lines) > 1:
            line = above(hierarchy, [max(lines, key=depth)])
            kinds |= above(hierarchy, [parent for parent in lines if parent not in line])
    return kinds
