"""Matching of subscriptions with shapes, on the driver, once for all events of a shape.

The type of a shape is tested by dividing codes, its attributes by masks. A type with too many shapes is listed once,
without presence bits; then the masks are tested on events. What subscriptions ask of shapes (their profiles) are few
compared with subscriptions, and so are the types and masks in them: each is tested once.

Shapes that are accepted by the same profiles form a group. The key of a lookup table is a group and a value, so a
subscription is in it once per group, not once per shape. To find the groups, every (class, profile) pair gets a random
number of 128 bits, and a shape is signed with the sum of the numbers of the pairs that accept it: shapes with equal
sums are accepted by the same profiles. Subscriptions to a root and to its leaves would still be repeated for every
leaf; if that takes too much space, profiles that accept many shapes get groups of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from genus.catalog import Catalog
from genus.lake._tables.columns import Shape
from genus.model import Vector, name_of, pure_kind
from genus.targets._decompose import Profile

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Mask: TypeAlias = tuple[int, int]
"""Bits that must be set, and bits that must not."""

WORD = 63
"""Bits of a mask in one signed 64-bit number."""
ROOM = 4_000_000
"""Entries that a lookup table may always have."""
REPEATS = 8
"""Entries per subscription that a larger lookup table may have."""
WIDER = 8
"""Profiles are grouped apart from those that accept this many times fewer shapes."""


@dataclass(frozen=True, slots=True)
class ShapeList:
    """Shapes of a family that are matched in the same way, and the vector of their presence bits."""

    shapes: Sequence[Shape]
    vector: Vector
    tagged: bool
    """Whether the shapes have presence bits; if not, each is a type and masks are tested on events."""

    def __len__(self) -> int:
        return len(self.shapes)


def list_shapes(shapes: Iterable[Shape], vector: Vector) -> list[ShapeList]:
    """The shapes of a family with presence bits, and those without; each type is in one of the two lists."""
    listed = list(dict.fromkeys(shapes))
    untagged = {shape.type: shape for shape in listed if shape.tag is None}
    tagged = [shape for shape in listed if shape.type not in untagged]
    both = ShapeList(tagged, vector, True), ShapeList(list(untagged.values()), vector, False)
    return [shape_list for shape_list in both if len(shape_list)]


@dataclass(frozen=True, slots=True)
class ShapeMatches:
    """The shapes that each profile accepts: those of profile p are `shapes[start[p]:start[p + 1]]`."""

    start: Ints
    shapes: Ints
    masks: Sequence[Mask]
    """Masks to be tested on events; the first asks for nothing."""
    mask_of: Ints
    """The mask of each profile."""

    def counts(self) -> Ints:
        """The number of shapes that each profile accepts."""
        return np.diff(self.start)

    def pairs(self, profiles: Ints) -> tuple[Ints, Ints]:
        """For each shape that some profiles accept: the position in the list of profiles, and the shape."""
        counts = self.counts()[profiles]
        return np.repeat(np.arange(len(profiles)), counts), self.shapes[expand_runs(self.start[profiles], counts)]


def expand_runs(starts: Ints, counts: Ints) -> Ints:
    """The positions start, start + 1, ... of several runs, concatenated.

    >>> expand_runs(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = np.cumsum(counts)
    positions: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def match_shapes(profiles: Sequence[Profile], shapes: ShapeList, catalog: Catalog) -> ShapeMatches:
    """Match every profile with every shape, type by type and mask by mask."""
    types = _TypeMatcher(shapes, catalog)
    bits = _MaskMatcher(shapes)
    numbers: dict[Mask, int] = {(0, 0): 0}
    found, mask_of = [], []
    for profile in profiles:
        accepted, mask = types.accepted_by(profile), bits.mask(profile)
        if mask is None:
            accepted, mask = accepted[:0], (0, 0)
        if shapes.tagged:
            accepted, mask = accepted[bits.fitting(mask)[accepted]], (0, 0)
        found.append(accepted)
        mask_of.append(numbers.setdefault(mask, len(numbers)))
    start = np.cumsum([0, *map(len, found)])
    every = np.concatenate([np.empty(0, np.int64), *found])
    return ShapeMatches(start, every, list(numbers), np.array(mask_of, np.int64))


class _TypeMatcher:
    """Finds the shapes whose type conforms. State: the answers so far."""

    def __init__(self, shapes: ShapeList, catalog: Catalog) -> None:
        self._catalog = catalog
        self._codes = {shape.type: int(shape.code) for shape in shapes.shapes}
        of_type: dict[str, list[int]] = {}
        for number, shape in enumerate(shapes.shapes):
            of_type.setdefault(shape.type, []).append(number)
        self._shapes = {name: np.array(numbers, np.int64) for name, numbers in of_type.items()}
        self._exact_names = {name: _exact_name(name, catalog) for name in of_type}
        self._known: dict[tuple[tuple[type, ...], bool], Ints] = {}

    def accepted_by(self, profile: Profile) -> Ints:
        """The shapes whose type conforms to those of a profile."""
        key = profile.types, profile.exact
        if key not in self._known:
            names = self._exactly(*profile.types) if profile.exact else self._below(profile.types)
            self._known[key] = np.concatenate([np.empty(0, np.int64), *(self._shapes[name] for name in names)])
        return self._known[key]

    def _exactly(self, wanted: type) -> Iterator[str]:
        name = name_of(pure_kind(wanted) or wanted)
        return (each for each, exact_name in self._exact_names.items() if exact_name == name)

    def _below(self, wanted: tuple[type, ...]) -> Iterator[str]:
        codes = [self._catalog.code(cls) for cls in wanted]
        return (name for name, code in self._codes.items() if all(code % above == 0 for above in codes))


def _exact_name(name: str, catalog: Catalog) -> str:
    """The name that exact subscriptions compare: of a pure class, that of its kind."""
    declared = catalog.declare(name) if name in catalog else None
    kind = pure_kind(declared) if declared is not None else None
    return name if kind is None else name_of(kind)


class _MaskMatcher:
    """Tests the presence bits of shapes, held as words, against masks. State: the answers so far."""

    def __init__(self, shapes: ShapeList) -> None:
        self._position = {attribute.name: bit for bit, attribute in enumerate(shapes.vector)}
        words = range(0, max(len(shapes.vector), 1), WORD)
        self._bits = np.array([[word_of(shape.bits, at) for at in words] for shape in shapes.shapes], np.int64)
        self._known: dict[Mask, Flags] = {}

    def mask(self, profile: Profile) -> Mask | None:
        """The mask of a profile; None if it asks for an attribute that the family does not have."""
        if not profile.has <= self._position.keys():
            return None
        has = sum(1 << self._position[name] for name in profile.has)
        return has, sum(1 << self._position[name] for name in profile.lacks if name in self._position)

    def fitting(self, mask: Mask) -> Flags:
        """Whether each shape fits a mask."""
        if mask not in self._known:
            offsets = range(0, WORD * self._bits.shape[1], WORD)
            has, lacks = (np.array([word_of(bits, at) for at in offsets], np.int64) for bits in mask)
            self._known[mask] = ((self._bits & (has | lacks)) == has).all(axis=1)
        return self._known[mask]


def word_of(bits: int, at: int) -> int:
    """The `WORD` bits of a large number that begin at a position.

    >>> word_of(0b1011 << 63, 63)
    11
    """
    return bits >> at & (1 << WORD) - 1


# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShapeGroups:
    """The groups of each shape, one for each class that accepts it, and the groups of each entry of a table."""

    shape: Ints
    group: Ints
    class_: Ints
    """Rows of the first three arrays: a shape, a group that it is in, and the class of that group."""
    entry: Ints
    entry_group: Ints
    """Rows of the last two: an entry of a table, and a group that it belongs to."""


def group_shapes(profile: Ints, class_: Ints, matches: ShapeMatches, shapes: int) -> ShapeGroups:
    """The groups for entries with given profiles and classes; entries of different classes never share a group."""
    found = _group(profile, class_, class_, matches, shapes)
    if len(found.entry) <= max(ROOM, REPEATS * len(profile)):
        return found
    width = np.log(np.maximum(matches.counts()[profile], 1)) / np.log(WIDER)
    return _group(profile, class_ * 64 + width.astype(np.int64), class_, matches, shapes)


def _group(profile: Ints, apart: Ints, class_: Ints, matches: ShapeMatches, shapes: int) -> ShapeGroups:
    several = max(len(matches.mask_of), 1)
    pairs, first, pair_of = np.unique(apart * several + profile, return_index=True, return_inverse=True)
    which, shape = matches.pairs(profile[first])
    _, class_of_pair = np.unique(pairs // several, return_inverse=True)
    runs = _runs(class_of_pair[which] * shapes + shape, which)
    signatures = np.random.default_rng(20).integers(0, 2**64, (len(pairs), 2), np.uint64)
    group, representative = _number_signatures(np.add.reduceat(signatures[runs.member], runs.start, axis=0))
    members = _members(runs, representative)
    entry, entry_group = _expand_entries(pair_of, members, len(pairs))
    return ShapeGroups(runs.key % shapes, group, class_[first][runs.member[runs.start]], entry, entry_group)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Members sorted by key: those of the i-th key begin at `start[i]`."""

    key: Ints
    start: Ints
    count: Ints
    member: Ints


def _runs(key: Ints, member: Ints) -> _Runs:
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    start = np.flatnonzero(np.diff(ordered, prepend=-1))
    return _Runs(ordered[start], start, np.diff(start, append=len(ordered)), member[order])


def _number_signatures(signatures: np.ndarray) -> tuple[Ints, Ints]:
    """A number for each signature, equal for equal ones, and for each number the position of one that has it."""
    whole = np.ascontiguousarray(signatures).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    _, representative, number = np.unique(whole, return_index=True, return_inverse=True)
    return number.astype(np.int64), representative.astype(np.int64)


def _members(runs: _Runs, representative: Ints) -> tuple[Ints, Ints]:
    """Rows of a group and a pair that accepts its shapes."""
    counts = runs.count[representative]
    member = runs.member[expand_runs(runs.start[representative], counts)]
    return np.repeat(np.arange(len(representative)), counts), member


def _expand_entries(pair_of: Ints, members: tuple[Ints, Ints], pairs: int) -> tuple[Ints, Ints]:
    """Every entry once for each group of its pair."""
    group, pair = members
    order = np.argsort(pair, kind="stable")
    count = np.bincount(pair, minlength=pairs)
    start = np.cumsum(count) - count
    of_entry = count[pair_of]
    return np.repeat(np.arange(len(pair_of)), of_entry), group[order][expand_runs(start[pair_of], of_entry)]
