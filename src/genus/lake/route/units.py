"""Units: what is matched once on the driver instead of event by event.

A unit is a shape: its type is tested by dividing codes, its attributes by masks. Where a type has too many shapes to be
listed, the unit is the type, and the masks are left to be tested on events. Profiles, what subscriptions ask of shapes,
are few compared with subscriptions, and so are the types and masks in them: each is tested once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from genus.catalog import Catalog
from genus.lake.shapes import Shape
from genus.model import Vector, name_of, pure_kind
from genus.targets.index.anatomy import Profile

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Mask: TypeAlias = tuple[int, int]
"""Bits that must be set, and bits that must not."""

WORD = 63
"""Bits of a mask in one signed 64-bit number."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one kind in a family, and the vector that their masks are over."""

    shapes: Sequence[Shape]
    vector: Vector
    tagged: bool
    """Whether masks are tested here, the shapes being listed with their tags."""

    def __len__(self) -> int:
        return len(self.shapes)


def units_of(shapes: Iterable[Shape], vector: Vector) -> list[Units]:
    """The shapes of a family, and its types whose shapes are not listed; each type is in one of the two."""
    listed = list(dict.fromkeys(shapes))
    untagged = {shape.type: shape for shape in listed if shape.tag is None}
    tagged = [shape for shape in listed if shape.type not in untagged]
    both = Units(tagged, vector, True), Units(list(untagged.values()), vector, False)
    return [units for units in both if len(units)]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Which units each profile accepts: those of profile p are `units[start[p]:start[p + 1]]`."""

    start: Ints
    units: Ints
    masks: Sequence[Mask]
    """Masks that are still to be tested; the first asks for nothing."""
    mask_of: Ints
    """The mask of each profile."""

    def counts(self) -> Ints:
        """How many units each profile accepts."""
        return np.diff(self.start)

    def pairs(self, profiles: Ints) -> tuple[Ints, Ints]:
        """Positions in a list of profiles, and the units that each of them accepts."""
        counts = self.counts()[profiles]
        return np.repeat(np.arange(len(profiles)), counts), self.units[spread(self.start[profiles], counts)]


def spread(starts: Ints, counts: Ints) -> Ints:
    """Positions start, start + 1, ... of several runs, one after the other.

    >>> spread(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = np.cumsum(counts)
    positions: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def accepted(profiles: Sequence[Profile], units: Units, catalog: Catalog) -> Accepted:
    """Match every profile with every unit, type by type and mask by mask."""
    types = _Types(units, catalog)
    bits = _Bits(units)
    numbers: dict[Mask, int] = {(0, 0): 0}
    found, mask_of = [], []
    for profile in profiles:
        of_type, mask = types.accepting(profile), bits.mask(profile)
        if mask is None:
            of_type, mask = of_type[:0], (0, 0)
        if units.tagged:
            of_type, mask = of_type[bits.fitting(mask)[of_type]], (0, 0)
        found.append(of_type)
        mask_of.append(numbers.setdefault(mask, len(numbers)))
    start = np.cumsum([0, *map(len, found)])
    return Accepted(start, np.concatenate([np.empty(0, np.int64), *found]), list(numbers), np.array(mask_of, np.int64))


class _Types:
    """State: the units of each type, and of each combination of types that was asked for."""

    def __init__(self, units: Units, catalog: Catalog) -> None:
        self._catalog = catalog
        self._codes = {shape.type: int(shape.code) for shape in units.shapes}
        of_type: dict[str, list[int]] = {}
        for number, shape in enumerate(units.shapes):
            of_type.setdefault(shape.type, []).append(number)
        self._units = {name: np.array(numbers, np.int64) for name, numbers in of_type.items()}
        self._stands_for = {name: _stands_for(name, catalog) for name in of_type}
        self._known: dict[tuple[tuple[type, ...], bool], Ints] = {}

    def accepting(self, profile: Profile) -> Ints:
        """The units whose type conforms."""
        key = profile.types, profile.exact
        if key not in self._known:
            names = self._exactly(*profile.types) if profile.exact else self._below(profile.types)
            self._known[key] = np.concatenate([np.empty(0, np.int64), *(self._units[name] for name in names)])
        return self._known[key]

    def _exactly(self, wanted: type) -> Iterator[str]:
        name = name_of(pure_kind(wanted) or wanted)
        return (each for each, stands_for in self._stands_for.items() if stands_for == name)

    def _below(self, wanted: tuple[type, ...]) -> Iterator[str]:
        codes = [self._catalog.code(cls) for cls in wanted]
        return (name for name, code in self._codes.items() if all(code % above == 0 for above in codes))


def _stands_for(name: str, catalog: Catalog) -> str:
    """The type that exact subscriptions know a type by: a pure class is its kind."""
    declared = catalog.declare(name) if name in catalog else None
    kind = pure_kind(declared) if declared is not None else None
    return name if kind is None else name_of(kind)


class _Bits:
    """State: the tags of units as words, and which units fit the masks asked for so far."""

    def __init__(self, units: Units) -> None:
        self._position = {attribute.name: bit for bit, attribute in enumerate(units.vector)}
        words = range(0, max(len(units.vector), 1), WORD)
        self._tags = np.array([[word_of(shape.bits, at) for at in words] for shape in units.shapes], np.int64)
        self._known: dict[Mask, Flags] = {}

    def mask(self, profile: Profile) -> Mask | None:
        """What must be there and what must not; None if an attribute is asked for that the family does not have."""
        if not profile.has <= self._position.keys():
            return None
        has = sum(1 << self._position[name] for name in profile.has)
        return has, sum(1 << self._position[name] for name in profile.lacks if name in self._position)

    def fitting(self, mask: Mask) -> Flags:
        """Whether each unit carries what a mask asks for."""
        if mask not in self._known:
            places = range(0, WORD * self._tags.shape[1], WORD)
            has, lacks = (np.array([word_of(bits, at) for at in places], np.int64) for bits in mask)
            self._known[mask] = ((self._tags & (has | lacks)) == has).all(axis=1)
        return self._known[mask]


def word_of(bits: int, at: int) -> int:
    """Some bits of a large number, from a position.

    >>> word_of(0b1011 << 63, 63)
    11
    """
    return bits >> at & (1 << WORD) - 1
