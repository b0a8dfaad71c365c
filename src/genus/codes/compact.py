"""The compact prime codes of "Types in Their Prime" (Thoelen et al., 2013), with a sound rule for later additions.

Whole trees are coded as the paper prints it (its 2.1): the root gets 1; the children of a vertex take the primes that
follow the largest used by that vertex or its siblings. Its rule for single additions (2.2) is unsound and is not
used: a leaf may be given the prime of a sibling that was added to its parent's parent meanwhile, and then tests as a
subtype of it. The rule here is that of `genus.codes.grove`; on the paper's own two examples it gives the paper's
primes.
"""

from collections.abc import Mapping, Sequence

from genus.codes.grove import Grove
from genus.codes.order import breadth_first
from genus.codes.scheme import Newcomer, Rule, Scheme
from genus.errors import HierarchyError


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
