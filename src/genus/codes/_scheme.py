"""What all prime schemes share: a code is the least common multiple of the parents' codes times a prime.

Then `code[b] % code[a] == 0` tests whether a is b or above b (Preuveneers and Berbers, "Encoding semantic awareness
in resource-constrained devices", 2008). A scheme is a **rule**: which primes a newcomer may take without making a
false pair, now or through any later addition it allows. The newcomer gets the smallest of them. Codes are
append-only, so the same rule also tells whether a stored code can be taken back.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import lcm
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from genus.codes._primes import is_prime, primes
from genus.codes._topological import breadth_first
from genus.errors import HierarchyError

Rule = Callable[[int], bool]


class Entry(NamedTuple):
    """One line of an append-only record of codes."""

    name: str
    parents: tuple[str, ...]
    code: int
    kind: bool = False
    deprecated: bool = False


class Newcomer(NamedTuple):
    """A type about to be added; `nearest` are its parents without those above another, `base` their codes' lcm."""

    name: str
    parents: tuple[str, ...]
    nearest: tuple[str, ...]
    base: int
    kind: bool


class Scheme(ABC):
    """Codes for the types of one hierarchy; they never change once given.

    With `rooted`, the first type is the root of all others: it gets 1 and a second root is refused. Without, there may
    be any number of roots and each gets a prime.
    """

    def __init__(self, *, rooted: bool) -> None:
        self.rooted = rooted
        self._entries: dict[str, Entry] = {}
        self._codes: dict[str, int] = {}
        self._deprecated: set[str] = set()

    @property
    def codes(self) -> Mapping[str, int]:
        """Every type's code, deprecated ones included, in the order they were given."""
        return MappingProxyType(self._codes)

    @property
    def deprecated(self) -> frozenset[str]:
        """The types that are kept as placeholders only."""
        return frozenset(self._deprecated)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What `restore` needs to continue from here, in the order the codes were given."""
        return tuple(e._replace(deprecated=e.name in self._deprecated) for e in self._entries.values())

    def add(self, name: str, parents: Sequence[str] = ()) -> int:
        """Give a new type its code."""
        return self._add(name, parents, kind=False)

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole hierarchy, in the order that suits the scheme best; it stops at the first type it must refuse."""
        for name in breadth_first(hierarchy, self._codes):
            self.add(name, hierarchy[name])

    def subsumes(self, a: str, b: str) -> bool:
        """Whether a is b or one of the types above b."""
        return self._code(b) % self._code(a) == 0

    def deprecate(self, name: str) -> None:
        """Keep a type as a placeholder: its code stays taken, its name too, and nothing can be added below it."""
        self._code(name)
        self._deprecated.add(name)

    @classmethod
    def restore(cls, entries: Iterable[Entry], **options: Any) -> Self:
        """A scheme with the codes as stored, which continues as the one that gave them would have.

        An entry that the scheme could not have given (a false pair now or possible later) is refused by name.
        """
        scheme = cls(**options)
        stored = [Entry(*entry) for entry in entries]
        for entry in stored:
            scheme._take_back(entry)
        scheme._deprecated.update(entry.name for entry in stored if entry.deprecated)
        return scheme

    @abstractmethod
    def _rule(self, newcomer: Newcomer) -> Rule:
        """The primes a newcomer may take as its own factor; every prime never used must be among them."""

    @abstractmethod
    def _record(self, newcomer: Newcomer, factor: int) -> None:
        """Note what the rule needs to know about a factor now taken."""

    def _add(self, name: str, parents: Sequence[str], *, kind: bool, above: int = 1) -> int:
        newcomer = self._newcomer(name, parents, kind=kind)
        for parent in parents:
            if parent in self._deprecated:
                raise HierarchyError(f"cannot add {name!r}: its parent {parent!r} is deprecated; choose another parent")
        if self._is_top(newcomer):
            return self._keep(newcomer, 1)
        rule = self._rule(newcomer)
        return self._keep(newcomer, next(prime for prime in primes() if prime > above and rule(prime)))

    def _take_back(self, entry: Entry) -> None:
        newcomer = self._newcomer(entry.name, entry.parents, kind=entry.kind)
        factor, rest = divmod(entry.code, newcomer.base)
        if rest or not (factor == 1 if self._is_top(newcomer) else is_prime(factor) and self._rule(newcomer)(factor)):
            raise HierarchyError(f"stored code {entry.code} of {entry.name!r} contradicts the entries before it")
        self._keep(newcomer, factor)

    def _newcomer(self, name: str, parents: Sequence[str], *, kind: bool) -> Newcomer:
        if not name or name in self._codes:
            raise HierarchyError(f"cannot add {name!r}: " + ("it has a code" if name else "a type needs a name"))
        if len(set(parents)) < len(parents):
            raise HierarchyError(f"cannot add {name!r}: it names a parent twice")
        codes = {parent: self._parent_code(name, parent) for parent in parents}
        if self.rooted and self._codes and not parents:
            raise HierarchyError(f"cannot add {name!r}: there is a root; name a parent, or use rooted=False")
        nearest = tuple(p for p in parents if not any(p != q and codes[q] % codes[p] == 0 for q in parents))
        return Newcomer(name, tuple(parents), nearest, lcm(*codes.values()), kind)

    def _keep(self, newcomer: Newcomer, factor: int) -> int:
        if factor > 1:
            self._record(newcomer, factor)
        code = newcomer.base * factor
        self._entries[newcomer.name] = Entry(newcomer.name, newcomer.parents, code, newcomer.kind)
        self._codes[newcomer.name] = code
        return code

    def _is_top(self, newcomer: Newcomer) -> bool:
        return self.rooted and not newcomer.parents

    def _code(self, name: str) -> int:
        try:
            return self._codes[name]
        except KeyError:
            raise HierarchyError(f"unknown type {name!r}") from None

    def _parent_code(self, name: str, parent: str) -> int:
        if parent not in self._codes:
            raise HierarchyError(f"cannot add {name!r}: its parent {parent!r} is unknown; add the parent first")
        return self._codes[parent]


# Reusing primes in a forest where every vertex has at most one parent.
#
# A new child v of p with own factor q makes no false pair if and only if
#
# 1. q is not the own factor of a vertex below p, and
# 2. q is not the own factor of a child of a vertex above p, unless that child is p or above p itself.
#
# *Why.* Let all pairs be right before v comes, and code(v) = code(p) * q. If code(v) divides code(x), so does code(p):
# x is below p, and carries more of q than p does, so a vertex between has the own factor q: against 1. If code(x)
# divides code(v) and x is neither above p nor p, x carries more of q than p does. Let w be the vertex of x's line that
# brought the last q: code(parent of w) divides code(p), so w is a child of p or of a vertex above p, off the line, with
# own factor q: against 1 or 2. The other direction: breaking 1 or 2 makes such a pair. As the rule holds at each
# addition, it holds for every order of them. Nothing forbids that q divides code(p) already.


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
