"""The base class of prime schemes: a code is the least common multiple of the parents' codes times a prime.

Then `code[b] % code[a] == 0` tests whether a is b or above b (Preuveneers and Berbers, "Encoding semantic awareness
in resource-constrained devices", 2008). A scheme is a **rule**: which primes a new type must not take because they
could make a false pair, now or through any later addition the scheme allows. The new type gets the smallest of the
others, or of those that are not kept for types to come. Codes are append-only. The same rule decides whether a stored
code is accepted when a scheme is restored; what is kept for types to come does not matter there.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from math import isqrt, lcm
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from genus.codes._hierarchy import order_breadth_first
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


# -- primes and sets of primes -----------------------------------------------------------------------------------------
#
# Prime numbers: a sieve of Eratosthenes over odd numbers that doubles when it runs out, and bit sets of primes.
#
# A set of primes is an integer with the bits of their *positions*; `position` and `prime_at` convert. The union of two
# sets and the smallest prime outside a set are then one or two operations on integers.
#
# `is_prime` is the Miller-Rabin test with the first four prime bases, which is exact below 3.2e9
# (Jaeschke, "On strong pseudoprimes to several bases", 1993), or thirteen, which is exact below 3.3e24 (Sorenson and
# Webster, "Strong pseudoprimes to twelve prime bases", 2015).

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_EXACT_BY_FOUR_BELOW = 3_215_031_751
_EXACT_BELOW = 3_317_044_064_679_887_385_961_981
_SMALL = 1 << 12
_SIEVE_END = 1 << 20

_placed: list[int] = []
_positions: dict[int, int] = {}
_sieved = 0
_placing = Lock()
_later = count(_SIEVE_END + 1, 2)


def prime_at(position: int) -> int:
    """Return the prime that a bit stands for in bit sets of primes, counted from zero; the inverse of `position`.

    >>> [prime_at(place) for place in range(8)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    while position >= len(_placed):
        with _placing:
            _sieve_more() if _sieved < _SIEVE_END else _place(_next_unplaced())
    return _placed[position]


def position(prime: int) -> int:
    """Return the bit that stands for a prime in bit sets of primes.

    Primes below 2**20 are placed in their order, later ones in the order in which they are first asked for: a large
    prime in a stored code needs neither a sieve nor a bit set of its size.

    >>> position(2), position(3), position(104_729)
    (0, 1, 9999)
    """
    while (found := _positions.get(prime)) is None:
        with _placing:
            if _sieved < _SIEVE_END:
                _sieve_more()
            elif prime not in _positions:
                _place(prime)
    return found


def lowest_outside(bits: int) -> int:
    """Return the lowest bit that is not in a bit set.

    >>> lowest_outside(0b1011) == 0b100
    True
    """
    return ~bits & (bits + 1)


def lowest_bits_outside(bits: int, number: int) -> int:
    """So many of the lowest bits that are not in a bit set.

    >>> lowest_bits_outside(0b1011, 2) == 0b10100
    True
    """
    filled = bits
    for _ in range(number):
        filled |= lowest_outside(filled)
    return filled ^ bits


def _next_unplaced() -> int:
    return next(number for number in _later if number not in _positions and is_prime(number))


def _place(*primes: int) -> None:
    for prime in primes:
        _placed.append(prime)
        _positions[prime] = len(_placed) - 1


def is_prime(number: int) -> bool:
    """Return whether a number is prime; numbers too large for an exact answer count as not prime.

    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    >>> is_prime(3_215_031_751)
    False
    """
    if number < 2 or number >= _EXACT_BELOW:
        return False
    bases = _BASES[:4] if number < _EXACT_BY_FOUR_BELOW else _BASES
    return number in _BASES or all(_is_probable_prime(number, base) for base in bases)


def _is_probable_prime(number: int, base: int) -> bool:
    if number % base == 0:
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    power = pow(base, (number - 1) >> twos, number)
    return power == 1 or any(pow(power, 1 << i, number) == number - 1 for i in range(twos))


def _sieve_more() -> None:
    global _sieved
    start, end = _sieved, max(_SMALL, 2 * _sieved)
    odds = odd_sieve(end)
    _place(*([2] if start == 0 else []), *compress(range(start + 1, end, 2), odds[start // 2 :]))
    _sieved = end


def odd_sieve(limit: int) -> bytearray:
    """One byte for each odd number below an even limit: entry i says whether 2*i + 1 is prime."""
    odds = bytearray(b"\x01") * (limit // 2)
    odds[0] = 0
    for i in range(1, isqrt(limit) // 2 + 1):
        if odds[i]:
            first, step = 2 * i * (i + 1), 2 * i + 1
            odds[first::step] = bytes(len(range(first, len(odds), step)))
    return odds
