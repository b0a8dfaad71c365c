"""Matching of subscriptions with shapes, on the driver, once for all events of a shape.

What subscriptions ask of shapes (their profiles) are few compared with subscriptions, and so are the types and masks in
them. The type of a shape is tested by dividing codes, its attributes by masks of presence bits; only the bits of
attributes that some profile names are kept.

Events are looked up by the *group* of their shape: shapes that are accepted by the same profiles. Shapes with the same
type and the same relevant bits need not be told apart, so at first they are merged. To find the groups, every profile
gets a random number of 128 bits, and a shape is signed with the sum of the numbers of the profiles that accept it:
shapes with equal sums are accepted by the same profiles.

If so many shapes and profiles meet that lists would become too long, types are grouped instead of shapes, and the masks
are tested on the candidates. So are types with too many shapes to be listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.catalog import Catalog
from genus.lake._query.number_tables import Ints, Numbers, expand_runs
from genus.lake._tables.commits import Shape
from genus.lake._tables.lake_catalog import exact_name
from genus.model import name_of
from genus.model import vector as vector_of
from genus.model.internal import INT64_MAX, hidden_names
from genus.model.types import Vector
from genus.targets.internal import Profile

Flags: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.int32]
"""Bits in rows of words; up to 32 bits are one word of 32 bits, which is compared faster."""

MERGED_BITS = 40
"""Shapes are merged by up to this many relevant bits; with more, types are grouped."""
WIDER = 8
"""Profiles are looked up apart from those that accept this many times fewer shapes."""
_NONE: Ints = np.empty(0, np.int64)


def pack_bits(flags: npt.NDArray[Any]) -> Words:
    """Rows of flags as rows of words, at least one.

    >>> pack_bits(np.array([[True, False, True]])).tolist()
    [[5]]
    """
    size = 4 if flags.shape[1] <= 32 else -(-flags.shape[1] // 64) * 8
    packed = np.zeros((len(flags), size), np.uint8)
    packed[:, : -(-flags.shape[1] // 8)] = np.packbits(flags.astype(np.bool_), axis=1, bitorder="little")
    return packed.view(np.int32) if size == 4 else packed.view(np.int64)


def split_shapes(shapes: Mapping[int, Shape]) -> tuple[dict[int, Shape], list[Shape]]:
    """Return the shapes with presence bits, by number, and those without; each type is in one of the two."""
    without = {shape.type: shape for shape in shapes.values() if shape.presence is None}
    with_presence = {number: shape for number, shape in shapes.items() if shape.type not in without}
    return with_presence, list(without.values())


# -- profiles ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of presence bits: `(word & (has | lacks)) == has`, word by word. The first asks for nothing."""

    has: Words
    both: Words

    def fit(self, masks: Numbers | int, words: Words) -> Flags:
        """Return whether each row of words fits its own mask, or one mask."""
        fits: Flags
        if words.shape[1] == 1:
            fits = (words[:, 0] & self.both[:, 0][masks]) == self.has[:, 0][masks]
        else:
            fits = ((words & self.both[masks]) == self.has[masks]).all(axis=1)
        return fits


class ProfileMatches:
    """What each profile asks of some shapes of a family: some types, and a mask of relevant presence bits.

    The position of a shape is its ordinal. Without presence bits (`has_presence`), each shape is a type, and
    masks are tested on events.
    """

    def __init__(
        self, profiles: Sequence[Profile], shapes: Sequence[Shape], has_presence: bool, catalog: Catalog, vector: Vector
    ) -> None:
        self._catalog = catalog
        code_of = {shape.type: int(shape.code) for shape in shapes}
        numbers = {name: number for number, name in enumerate(code_of)}
        self.type_of = np.array([numbers[shape.type] for shape in shapes], np.int32)
        self._codes = np.array(list(code_of.values()), np.int64 if max(code_of.values()) <= INT64_MAX else object)
        self._exact_names = np.array([exact_name(name, catalog) for name in code_of], object)
        self._numbers: dict[tuple[tuple[type, ...], bool], int] = {}
        self.members: list[Ints] = []
        """The types in each set of types that a profile accepts."""
        named = {name for profile in profiles for name in profile.has | profile.lacks}
        known = {attribute.name: bit for bit, attribute in enumerate(vector)}
        self.relevant = tuple(name for name in known if name in named)
        """The attributes that any profile names, whose presence is in the words."""
        self.words = _presence_words(shapes, [known[name] for name in self.relevant]) if has_presence else None
        """The presence bits of the relevant attributes of each shape."""
        masks: dict[tuple[frozenset[str], frozenset[str]], int] = {(frozenset(), frozenset()): 0}
        self.mask_of = np.zeros(len(profiles), np.int32)
        self.types_of = np.full(len(profiles), -1, np.int32)
        """The set of types of each profile; -1 if it asks for an attribute that the family does not have."""
        for number, profile in enumerate(profiles):
            visible = known.keys() - hidden_names(vector, vector_of(profile.types[0]))
            if profile.has <= visible:
                self.mask_of[number] = masks.setdefault((profile.has, profile.lacks & visible), len(masks))
                self.types_of[number] = self._set_of(profile)
        has, lacks = (
            pack_bits(np.array([[name in names for name in self.relevant] for names in side], np.bool_))
            for side in zip(*masks, strict=True)
        )
        self.masks = Masks(has, has | lacks)
        per_type = np.bincount(self.type_of)
        accepted = np.array([per_type[each].sum() for each in self.members], np.int64)
        self.accepted = np.append(accepted, 0)[self.types_of]
        """The number of shapes whose types each profile accepts."""

    def _set_of(self, profile: Profile) -> int:
        """Return the number of the set of types that a profile accepts."""
        key = profile.types, profile.exact
        if key not in self._numbers:
            self._numbers[key] = len(self.members)
            self.members.append(self._exactly(*profile.types) if profile.exact else self._below(profile.types))
        return self._numbers[key]

    def _exactly(self, wanted: type) -> Ints:
        return np.flatnonzero(self._exact_names == exact_name(name_of(wanted), self._catalog))

    def _below(self, wanted: tuple[type, ...]) -> Ints:
        codes = [self._catalog.code(cls) for cls in wanted]
        if max(codes) > self._codes.max():  # divides none, and may have more than 64 bits
            return _NONE
        below: Flags = np.all([self._codes % above == 0 for above in codes], axis=0)
        return np.flatnonzero(below)


def _presence_words(shapes: Sequence[Shape], bits: Sequence[int]) -> Words:
    """Some presence bits of each shape."""
    size = max(bits, default=0) // 8 + 1
    tags = b"".join((shape.bits & (1 << 8 * size) - 1).to_bytes(size, "little") for shape in shapes)
    octets, at = np.frombuffer(tags, np.uint8).reshape(-1, size), np.array(bits, np.int64)
    return pack_bits(octets[:, at // 8] >> (at % 8).astype(np.uint8) & 1)


# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of shapes, and the entries of each: the entries of group g follow one another in `entry`."""

    by_type: bool
    """Whether all shapes of a type are in one group."""
    tests_masks: bool
    """Whether candidates must be tested by their masks."""
    kinds: int
    """The number of shapes, or of types, that any profile accepts."""
    group_of: Numbers
    """The group of each shape; -1 if no profile accepts it."""
    entry: Ints
    entry_group: Ints
    """Rows of an entry and a group that it belongs to, in the order of groups."""

    def __len__(self) -> int:
        return int(self.entry_group[-1]) + 1 if len(self.entry_group) else 0


def group_shapes(matches: ProfileMatches, profile: Ints, max_entries: int) -> Iterator[tuple[Ints, Groups]]:
    """Groups of shapes for entries with given profiles, and which entries they are for.

    Entries are split by the number of shapes that they accept if otherwise there are more than `max_entries` rows:
    subscriptions to a root and to its leaves would be repeated for every leaf.
    """
    found = _group(matches, profile, max_entries)
    if len(found.entry) <= max_entries:
        yield np.arange(len(profile)), found
        return
    width = (np.log(np.maximum(matches.accepted[profile], 1)) / np.log(WIDER)).astype(np.int64)
    for each in np.unique(width).tolist():
        mine = np.flatnonzero(width == each)
        yield mine, _group(matches, profile[mine], max_entries)


def _group(matches: ProfileMatches, profile: Ints, max_entries: int) -> Groups:
    used, which = np.unique(profile, return_inverse=True)
    types = _group_types(matches, used)
    merged = _merge_shapes(matches, matches.words, used, types, max_entries) if matches.words is not None else None
    if merged is not None:
        pairs = _accepted(matches, used, merged, np.bincount(which, minlength=len(used)), max_entries)
        if pairs is not None:
            return _entries(merged, pairs, which, len(used))
    pairs = _accepted(matches, used, types, None, max_entries)
    assert pairs is not None, "without a limit, all pairs are listed"
    found = _entries(types, pairs, which, len(used))
    tests_masks, group_of = bool(matches.mask_of[used].any()), found.group_of[matches.type_of]
    return replace(found, by_type=True, tests_masks=tests_masks, group_of=group_of)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Types, or shapes, that need not be told apart, as cases."""

    case_of: Numbers
    """The case of each type or shape; -1 for none."""
    of_set: dict[int, Ints]
    """The cases in each set of types."""
    count: int
    words: Words | None = None
    """The relevant bits of each case, of shapes."""


def _group_types(matches: ProfileMatches, profiles: Ints) -> _Merged:
    """Merge types that are in the same sets."""
    sets = [each for each in np.unique(matches.types_of[profiles]).tolist() if each >= 0]
    signature = np.zeros((int(matches.type_of.max()) + 1, 2), np.uint64)
    for one, random in zip(sets, _random_numbers(len(sets)), strict=True):
        signature[matches.members[one]] += random
    number, first = _number_signatures(signature)
    empty = (signature[first] == 0).all(axis=1)
    renumbered = np.where(empty, -1, np.cumsum(~empty) - 1)
    class_of = renumbered[number].astype(np.int32)
    of_set = {one: np.unique(class_of[matches.members[one]]).astype(np.int64) for one in sets}
    return _Merged(class_of, of_set, int((~empty).sum()))


def _merge_shapes(
    matches: ProfileMatches, words: Words, profiles: Ints, types: _Merged, max_entries: int
) -> _Merged | None:
    """Merge shapes whose types are of one class and whose bits, of those in the profiles' masks, are the same.

    None if there are too many such bits, or probably more than `max_entries` cases.
    """
    both = np.bitwise_or.reduce(matches.masks.both[np.unique(matches.mask_of[profiles])], axis=0)
    size = 8 * both.itemsize
    bits = [(word, bit) for word, mask in enumerate(both.tolist()) for bit in range(size) if mask >> bit & 1]
    if len(bits) > MERGED_BITS or min(types.count << len(bits), len(matches.type_of)) > max_entries:
        return None
    class_of = types.case_of[matches.type_of]
    key = class_of.astype(np.int64) << len(bits)
    for place, (word, bit) in enumerate(bits):
        key |= (words[:, word] >> bit & 1).astype(np.int64) << place
    accepted = np.flatnonzero(class_of >= 0)
    cases, first, which = np.unique(key[accepted], return_index=True, return_inverse=True)
    case_of = np.full(len(class_of), -1, np.int32)
    case_of[accepted] = which
    starts = np.searchsorted(cases >> len(bits), np.arange(types.count + 1))
    of_set = {
        one: expand_runs(starts[classes], starts[classes + 1] - starts[classes])
        for one, classes in types.of_set.items()
    }
    return _Merged(case_of, of_set, len(cases), words[accepted[first]])


def _accepted(
    matches: ProfileMatches, profiles: Ints, merged: _Merged, entries: Ints | None, max_entries: int
) -> tuple[Ints, Ints] | None:
    """Pairs of a profile, by its position among those used, and a case that it accepts.

    None if they have more than `max_entries` entries together.
    """
    fitting: dict[int, Flags] = {}
    found: list[Ints] = []
    total = 0
    asked = zip(matches.types_of[profiles].tolist(), matches.mask_of[profiles].tolist(), strict=True)
    for number, (types, mask) in enumerate(asked):
        cases = merged.of_set[types] if types >= 0 else _NONE
        if mask and merged.words is not None:
            if mask not in fitting:
                fitting[mask] = matches.masks.fit(mask, merged.words)
            cases = cases[fitting[mask][cases]]
        found.append(cases)
        if entries is not None:
            total += len(cases) * int(entries[number])
            if total > max_entries:
                return None
    counts = np.fromiter(map(len, found), np.int64, len(found))
    return np.repeat(np.arange(len(found)), counts), np.concatenate([_NONE, *found])


def _entries(merged: _Merged, pairs: tuple[Ints, Ints], which: Ints, profiles: int) -> Groups:
    """Group the cases that the same profiles accept, and list the entries of each group."""
    order = np.argsort(pairs[1], kind="stable")
    member, case = pairs[0][order], pairs[1][order]
    start = np.flatnonzero(np.diff(case, prepend=-1))
    count = np.diff(start, append=len(case))
    signatures = _random_numbers(profiles)[member]
    sums = np.add.reduceat(signatures, start, axis=0) if len(start) else np.zeros((0, 2), np.uint64)
    number, first = _number_signatures(sums)
    group_of_case = np.full(int(merged.case_of.max(initial=-1)) + 2, -1, np.int32)
    group_of_case[case[start]] = number
    listed = member[expand_runs(start[first], count[first])]
    group = np.repeat(np.arange(len(first)), count[first])
    own_order = np.argsort(which, kind="stable")
    own = np.bincount(which, minlength=profiles)
    own_start = np.cumsum(own) - own
    entry = own_order[expand_runs(own_start[listed], own[listed])]
    group_of = group_of_case[merged.case_of]
    kinds = int(np.count_nonzero(group_of >= 0))
    return Groups(False, False, kinds, group_of, entry, np.repeat(group, own[listed]))


def _random_numbers(count: int) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(20).integers(0, 2**64, (count, 2), np.uint64)


def _number_signatures(signatures: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return a number for each signature, equal for equal ones, and for each number the position of one that has it."""
    whole = np.ascontiguousarray(signatures).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    _, representative, number = np.unique(whole, return_index=True, return_inverse=True)
    return number.astype(np.int64), representative.astype(np.int64)
