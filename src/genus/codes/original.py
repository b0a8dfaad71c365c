"""The original prime codes: every type has a prime that no other type uses.

Preuveneers and Berbers, "Prime numbers considered useful: ontology encoding for efficient subsumption testing"
(2006). Sound for any hierarchy and any order, since a type's prime occurs in no code but its own and those below it.
"""

from genus.codes.scheme import Newcomer, Rule, Scheme


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
