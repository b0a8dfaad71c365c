"""The three prime schemes: `OriginalPrimes`, `CompactPrimes` and `LinePrimes`.

Line primes are the smallest prime codes we know that stay sound for every addition they allow. They add four ideas:

* **Own primes again.** A child may multiply by a prime that is in its parent's code already: 2, 4, 8 for a line of
  types.
* **Heavy first.** A whole hierarchy is added by falling number of types below, so heavy subtrees get the small
  primes.
* **Kinds in chains.** Only kinds may be joined at will, so only their primes are kept from reuse, and even those are
  shared down a chain: the kinds whose own factor is q are k1 above k2 above k3 ..., with exactly q, q^2, q^3 in their
  codes.
* **Room for kinds.** Added one by one, a type that is not a kind leaves the smallest unused primes to kinds to come: it
  finds a prime to use again in most places, while a kind needs one that no line has.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, lcm
from operator import or_
from typing import Literal, get_args

from genus.codes._encoding import code_size
from genus.codes._hierarchy import order_breadth_first, order_heaviest_first, with_ancestors
from genus.codes._scheme import NewType, Scheme, lowest_bits_outside, prime_at
from genus.errors import HierarchyError


@dataclass(slots=True)
class _Vertex:
    """State: a vertex of a forest. Primes are bits: its own factor, those down to it, of its children, of all below."""

    above: "_Vertex | None" = None
    own: int = 0
    line: int = 0
    children: int = 0
    below: int = 0


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
        self._top = _Vertex()
        self._vertices: dict[str | None, _Vertex] = {None: self._top}

    def add(self, name: str, parent: str | None, factor: int) -> None:
        """Add a vertex with its own factor.

        A prime below a vertex is also below all above it, so the walk ends where the prime is known already.
        """
        vertex: _Vertex | None = self._vertices[parent]
        assert vertex is not None
        self._vertices[name] = _Vertex(vertex, factor, vertex.line | factor)
        vertex.children |= factor
        while vertex is not None and not vertex.below & factor:
            vertex.below |= factor
            vertex = vertex.above

    def barred(self, parent: str | None) -> int:
        """Return the own factors that a new child of a vertex must not have, by 1 and 2."""
        vertex = self._vertices[parent]
        found = vertex.below
        while (above := vertex.above) is not None:
            if above.children != vertex.own:
                found |= above.children ^ vertex.own
            vertex = above
        return found

    def line_factors(self, name: str | None) -> int:
        """Return the own factors of a vertex and of all above it."""
        return self._vertices[name].line

    def child_factors(self, name: str | None) -> int:
        """Return the own factors of the children of a vertex."""
        return self._vertices[name].children

    def factors(self) -> int:
        """Every own factor in use."""
        return self._top.below


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
        self._used = 0

    def _barred(self, new: NewType) -> int:
        return self._used

    def _record(self, new: NewType, factor: int) -> None:
        self._used |= factor


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

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole tree breadth first, by the paper's rule."""
        for name in order_breadth_first(hierarchy, self._codes):
            parents = hierarchy[name]
            self._add(name, parents, kind=False, avoid=self._up_to_largest_beside(parents[0]) if parents else 0)

    def _up_to_largest_beside(self, vertex: str) -> int:
        """Return all primes up to the largest own factor of a vertex and its siblings."""
        beside = self._forest.child_factors(self._tree_parent(self._entries[vertex].parents))
        return (1 << beside.bit_length()) - 1

    def _barred(self, new: NewType) -> int:
        if len(new.nearest) > 1:
            raise HierarchyError(
                f"cannot add {new.name!r}: compact codes allow one parent, not {', '.join(new.nearest)}; "
                "keep one, or use LinePrimes or OriginalPrimes"
            )
        parent = self._tree_parent(new.nearest)
        return self._forest.barred(parent) | self._forest.line_factors(parent)

    def _record(self, new: NewType, factor: int) -> None:
        self._forest.add(new.name, self._tree_parent(new.nearest), factor)

    def _tree_parent(self, parents: Sequence[str]) -> str | None:
        """Return the parent in the forest, to which a root of code 1 does not belong."""
        return next((parent for parent in parents if self._codes[parent] > 1), None)


Joins = Literal["kinds", "any"]

RESERVED_PER_KIND = 8
"""So many primes are kept for kinds to come for each prime that kinds have; none while there are no kinds."""

MAX_RESERVED = 32
"""The most primes that are kept for kinds to come."""


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
        self._in_kinds = 0
        self._open_chains: dict[str, int] = {}
        self._chain_ends: dict[int, int] = {}

    @property
    def kinds(self) -> frozenset[str]:
        """The types of which any may be joined in one type."""
        return frozenset(entry.name for entry in self._entries.values() if entry.kind)

    def add(self, name: str, parents: Sequence[str] = (), *, kind: bool = False, reserve: bool = True) -> int:
        """Add a type and return its code; a kind's parents must be kinds, else HierarchyError.

        Where there are kinds, a type that is none leaves some small primes to kinds to come. `reserve=False` does not:
        it is for types of a whole hierarchy that come in the order of their weight.
        """
        is_kind = kind or self.joins == "any"
        return self._add(name, parents, kind=is_kind, avoid=self._kept_for_kinds() if reserve and not is_kind else 0)

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole hierarchy, heaviest types first; types that must be kinds for its joins become kinds."""
        kinds = kinds_of(hierarchy, self.kinds)
        for name in order_heaviest_first(hierarchy, self._codes):
            self.add(name, hierarchy[name], kind=name in kinds, reserve=False)

    def _kept_for_kinds(self) -> int:
        number = min(MAX_RESERVED, RESERVED_PER_KIND * self._in_kinds.bit_count())
        return lowest_bits_outside(self._forest.factors() | self._in_kinds, number)

    def _barred(self, new: NewType) -> int:
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
        if new.kind:
            return (self._forest.factors() | self._in_kinds) & ~self._extensible(new)
        return self._forest.barred(lines[0] if lines else None) | self._in_kinds

    def _extensible(self, new: NewType) -> int:
        """The primes of the chains whose last kind is above a new kind: it has the prime to the length of the chain.

        A chain that does not end above a kind never will, so its prime is not looked at again below the kind.
        """
        found = rest = reduce(or_, (self._open_chains.get(parent, 0) for parent in new.nearest), 0)
        while rest:
            factor = rest & -rest
            rest ^= factor
            if new.base % self._chain_ends[factor]:
                found ^= factor
        for parent in new.nearest:
            self._open_chains[parent] = self._open_chains.get(parent, 0) & found
        return found

    def _record(self, new: NewType, factor: int) -> None:
        if new.kind:
            self._open_chains[new.name] = self._extensible(new) | factor
            self._in_kinds |= factor
            self._chain_ends[factor] = self._chain_ends.get(factor, 1) * prime_at(factor.bit_length() - 1)
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


# -- comparing schemes -------------------------------------------------------------------------------------------------


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


def compare_schemes(hierarchy: Mapping[str, Sequence[str]]) -> list[CodeCost | NotApplicable]:
    """Return the sizes of the codes that each scheme gives a hierarchy (type -> parents), as table 1 of the paper.

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
    density = 100 * len(sizes) / largest
    return CodeCost(label, len(sizes), len(_own_factors(scheme)), largest, sum(sizes) / len(sizes), max(sizes), density)


def _own_factors(scheme: Scheme) -> set[int]:
    codes = scheme.codes
    factors = (entry.code // lcm(*(codes[parent] for parent in entry.parents)) for entry in scheme.entries)
    return {factor for factor in factors if factor > 1}
