"""Groups: units that no subscription with the same kind of key can tell apart are one.

A key of a lookup table is a group and a value, so a subscription stands in it once per group, not once per shape. To
find the groups, every (class, profile) pair gets a random number of 128 bits, and a unit is signed with the sum of
those that accept it: units with the same sum are accepted by the same. Subscriptions to a root and to its leaves would
still be repeated for every leaf; if that takes too much room, those that accept many units get groups of their own.
"""

from dataclasses import dataclass

import numpy as np

from genus.lake.route.units import Accepted, Ints, spread

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
