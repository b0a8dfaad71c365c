"""The base class of prime schemes: a code is the least common multiple of the parents' codes times a prime.

Then `code[b] % code[a] == 0` tests whether a is b or above b (Preuveneers and Berbers, "Encoding semantic awareness
in resource-constrained devices", 2008). A scheme is a **rule**: which primes a new type must not take because they
could make a false pair, now or through any later addition the scheme allows. The new type gets the smallest of the
others, or of those that are not kept for types to come. Codes are append-only. The same rule decides whether a stored
code is accepted when a scheme is restored; what is kept for types to come does not matter there.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import lcm
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from genus.codes._primes import is_prime, lowest_outside, position, prime_at
from genus.codes._topological import order_breadth_first
from genus.errors import HierarchyError


class CodeEntry(NamedTuple):
    """One line of an append-only record of codes: a type, its parents and its code.

    `Scheme.entries` gives them and `Scheme.restore` reads them.
    """

    name: str
    parents: tuple[str, ...]
    code: int
    kind: bool = False
    deprecated: bool = False


class NewType(NamedTuple):
    """A type to be added; `nearest` are its parents without those above another, `base` is the lcm of their codes."""

    name: str
    parents: tuple[str, ...]
    nearest: tuple[str, ...]
    base: int
    kind: bool


class Scheme(ABC):
    """Codes for the types of one hierarchy; a code never changes once given. The base class of all schemes.

    With `rooted`, the first type is the root of all others: it gets the code 1, and a second root is refused. Without,
    there may be any number of roots and each gets a prime.
    """

    def __init__(self, *, rooted: bool) -> None:
        self.rooted = rooted
        self._entries: dict[str, CodeEntry] = {}
        self._codes: dict[str, int] = {}
        self._deprecated: set[str] = set()

    @property
    def codes(self) -> Mapping[str, int]:
        """Every type's code, deprecated ones included, in the order they were given."""
        return MappingProxyType(self._codes)

    @property
    def deprecated(self) -> frozenset[str]:
        """The deprecated types."""
        return frozenset(self._deprecated)

    @property
    def entries(self) -> tuple[CodeEntry, ...]:
        """All entries in the order the codes were given, as `restore` takes them."""
        return tuple(e._replace(deprecated=e.name in self._deprecated) for e in self._entries.values())

    def add(self, name: str, parents: Sequence[str] = ()) -> int:
        """Add a type and return its code.

        Raises HierarchyError if the name is taken, a parent is unknown or deprecated, or the scheme cannot code it.
        """
        return self._add(name, parents, kind=False)

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add a whole hierarchy (type -> parents), in the order that gives the smallest codes.

        Raises HierarchyError at the first type that the scheme refuses; those before it stay added.
        """
        for name in order_breadth_first(hierarchy, self._codes):
            self.add(name, hierarchy[name])

    def subsumes(self, a: str, b: str) -> bool:
        """Return whether a is b or one of the types above b."""
        return self._code(b) % self._code(a) == 0

    def deprecate(self, name: str) -> None:
        """Mark a type as deprecated: it keeps its name and code, and no type can be added below it."""
        self._code(name)
        self._deprecated.add(name)

    @classmethod
    def restore(cls, entries: Iterable[CodeEntry], **options: Any) -> Self:
        """Return a scheme with the stored entries, which continues as the one that made them would have.

        `options` are those of the scheme's constructor. Raises HierarchyError, with the type's name, for an entry that
        the scheme could not have made (a false pair now or possible later).
        """
        scheme = cls(**options)
        stored = [CodeEntry(*entry) for entry in entries]
        for entry in stored:
            scheme._restore_entry(entry)
        scheme._deprecated.update(entry.name for entry in stored if entry.deprecated)
        return scheme

    @abstractmethod
    def _barred(self, new: NewType) -> int:
        """The primes, as a bit set, that could make a false pair as the own factor of a new type; all are in use.

        Raises HierarchyError if no prime makes the type possible.
        """

    @abstractmethod
    def _record(self, new: NewType, factor: int) -> None:
        """Store what the rule needs to know about an own factor, a bit of a bit set, that is now taken."""

    def _add(self, name: str, parents: Sequence[str], *, kind: bool, avoid: int = 0) -> int:
        """Add a type with the smallest prime that is neither barred nor among those to avoid, a bit set."""
        new = self._describe_new(name, parents, kind=kind)
        for parent in parents:
            if parent in self._deprecated:
                raise HierarchyError(f"cannot add {name!r}: its parent {parent!r} is deprecated; choose another parent")
        if self._is_top(new):
            return self._store(new, 0)
        return self._store(new, lowest_outside(self._barred(new) | avoid))

    def _restore_entry(self, entry: CodeEntry) -> None:
        new = self._describe_new(entry.name, entry.parents, kind=entry.kind)
        factor, rest = divmod(entry.code, new.base)
        if rest or not (factor == 1 if self._is_top(new) else self._may_take(new, factor)):
            raise HierarchyError(f"stored code {_show(entry.code)} of {entry.name!r} contradicts the entries before it")
        self._store(new, 0 if factor == 1 else 1 << position(factor))

    def _may_take(self, new: NewType, factor: int) -> bool:
        """Return whether a stored own factor is a prime that is not barred."""
        return is_prime(factor) and not self._barred(new) >> position(factor) & 1

    def _describe_new(self, name: str, parents: Sequence[str], *, kind: bool) -> NewType:
        if not name or name in self._codes:
            raise HierarchyError(
                f"cannot add {name!r}: " + ("it has a code already" if name else "a type needs a name")
            )
        if len(set(parents)) < len(parents):
            raise HierarchyError(f"cannot add {name!r}: it names a parent twice")
        codes = {parent: self._parent_code(name, parent) for parent in parents}
        if self.rooted and self._codes and not parents:
            raise HierarchyError(f"cannot add {name!r}: there is a root; name a parent, or use rooted=False")
        nearest = tuple(p for p in parents if not any(p != q and codes[q] % codes[p] == 0 for q in parents))
        return NewType(name, tuple(parents), nearest, lcm(*codes.values()), kind)

    def _store(self, new: NewType, factor: int) -> int:
        code = new.base
        if factor:
            self._record(new, factor)
            code *= prime_at(factor.bit_length() - 1)
        self._entries[new.name] = CodeEntry(new.name, new.parents, code, new.kind)
        self._codes[new.name] = code
        return code

    def _is_top(self, new: NewType) -> bool:
        return self.rooted and not new.parents

    def _code(self, name: str) -> int:
        try:
            return self._codes[name]
        except KeyError:
            raise HierarchyError(f"unknown type {name!r}") from None

    def _parent_code(self, name: str, parent: str) -> int:
        if parent not in self._codes:
            raise HierarchyError(f"cannot add {name!r}: its parent {parent!r} is unknown; add the parent first")
        return self._codes[parent]


def _show(code: int) -> str:
    """Return a code for a message; Python does not convert integers of any size to decimal digits."""
    return str(code) if code.bit_length() < 1024 else f"{code:#x}"
