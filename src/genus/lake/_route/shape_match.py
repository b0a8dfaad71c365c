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
from genus.lake._tables.columns import Shape
from genus.model import Vector, name_of, pure_kind
from genus.targets.index._decompose import Profile

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


# Groups: units that no subscription with the same kind of key can tell apart are one.
#
# A key of a lookup table is a group and a value, so a subscription stands in it once per group, not once per shape. To
# find the groups, every (class, profile) pair gets a random number of 128 bits, and a unit is signed with the sum of
# those that accept it: units with the same sum are accepted by the same. Subscriptions to a root and to its leaves
# would still be repeated for every leaf; if that takes too much room, those that accept many units get groups of their
# own.


ROOM = 4_000_000
"""Entries of a table that are always allowed; beyond, so many for each that was asked for:"""
REPEATS = 8
WIDER = 8
"""Profiles that accept so many times more units are grouped apart from the others."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which groups a unit is in, one for each class that accepts it, and which groups an entry is to be found in."""

    unit: Ints
    group: Ints
    class_: Ints
    """The first three are rows: a unit, a group that it is in, and the class of that group."""
    entry: Ints
    entry_group: Ints
    """Pairs: an entry of a table, and a group that it belongs to."""


def grouped(profile: Ints, class_: Ints, accepted: Accepted, units: int) -> Groups:
    """The groups for entries of some profiles and classes; entries of different classes never share a group."""
    found = _grouped(profile, class_, class_, accepted, units)
    if len(found.entry) <= max(ROOM, REPEATS * len(profile)):
        return found
    width = np.log(np.maximum(accepted.counts()[profile], 1)) / np.log(WIDER)
    return _grouped(profile, class_ * 64 + width.astype(np.int64), class_, accepted, units)


def _grouped(profile: Ints, apart: Ints, class_: Ints, accepted: Accepted, units: int) -> Groups:
    several = max(len(accepted.mask_of), 1)
    pairs, first, pair_of = np.unique(apart * several + profile, return_index=True, return_inverse=True)
    which, unit = accepted.pairs(profile[first])
    _, place_class = np.unique(pairs // several, return_inverse=True)
    runs = _runs(place_class[which] * units + unit, which)
    signs = np.random.default_rng(20).integers(0, 2**64, (len(pairs), 2), np.uint64)
    group, representative = _alike(np.add.reduceat(signs[runs.member], runs.start, axis=0))
    groups = _members(runs, representative)
    entry, entry_group = _expanded(pair_of, groups, len(pairs))
    return Groups(runs.place % units, group, class_[first][runs.member[runs.start]], entry, entry_group)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Members by place: those of the i-th place begin at `start[i]`."""

    place: Ints
    start: Ints
    count: Ints
    member: Ints


def _runs(place: Ints, member: Ints) -> _Runs:
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    start = np.flatnonzero(np.diff(ordered, prepend=-1))
    return _Runs(ordered[start], start, np.diff(start, append=len(ordered)), member[order])


def _alike(signatures: np.ndarray) -> tuple[Ints, Ints]:
    """A number for each signature, and a place that has it."""
    whole = np.ascontiguousarray(signatures).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    _, representative, number = np.unique(whole, return_index=True, return_inverse=True)
    return number.astype(np.int64), representative.astype(np.int64)


def _members(runs: _Runs, representative: Ints) -> tuple[Ints, Ints]:
    """Pairs of a group and something that accepts its units."""
    counts = runs.count[representative]
    return np.repeat(np.arange(len(representative)), counts), runs.member[spread(runs.start[representative], counts)]


def _expanded(pair_of: Ints, groups: tuple[Ints, Ints], pairs: int) -> tuple[Ints, Ints]:
    """Every entry once for each group of its pair."""
    group, pair = groups
    order = np.argsort(pair, kind="stable")
    count = np.bincount(pair, minlength=pairs)
    start = np.cumsum(count) - count
    of_entry = count[pair_of]
    return np.repeat(np.arange(len(pair_of)), of_entry), group[order][spread(start[pair_of], of_entry)]
