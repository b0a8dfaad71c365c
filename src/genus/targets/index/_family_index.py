"""The index of one family: its subscriptions in columns, one slot each, and the three steps of a look-up.

1. Shape: the slots that accept the event's class and present attributes. Their bits are cached per shape, as there are
   few shapes.
2. Bitmaps: the rows of the buckets that the event's values fall into, or-ed together; a slot that no row rejects is a
   candidate.
3. Verification: the candidates' intervals are compared exactly, and then residual predicates are evaluated.

Slots are appended. The last few are not in the bitmaps yet and are all candidates; bitmaps are extended by some
hundreds of slots at once. A removed slot is rejected for every shape until the bitmaps are rebuilt: on growth by a
quarter, or when most slots are removed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._evaluate import evaluate, raise_event_error
from genus.model import Event, attributes
from genus.targets.index._bitmaps import SAMPLE, WORD, AttributeBitmaps, Words, clear_bits, pack, whole_words
from genus.targets.index._decompose import Decomposition, Parts
from genus.targets.index._interval_tables import Flags, GrowingArray, IntervalTables, Numbers, Slots
from genus.targets.index._intervals import UNKNOWN, Codes, Interval

MAX_UNINDEXED = 256
"""So many slots are compared one by one before they are added to the bitmaps."""
CHUNK = 1 << 14
"""So many slots are added to the bitmaps at a time: their temporary arrays stay in the cache."""
MIN_ROOM = 4096
"""The least room for more slots; usually a quarter."""
BATCH = 1 << 13
"""So many subscriptions are appended at a time."""
MAX_SHAPES = 64
"""So many shapes are cached."""


def holds(residual: x.Predicate, event: Event) -> bool:
    """Whether a residual predicate is true of an event; EventError if a value does not have its declared type."""
    try:
        return evaluate(residual, event) is True
    except (TypeError, AttributeError, OverflowError) as problem:
        raise_event_error(event, problem)


@dataclass(slots=True)
class IndexedShape:
    """State: a class and its present attributes, with the slots it cannot match."""

    cls: type
    present: set[str]
    accepted: Flags
    """By profile: whether it accepts the shape."""
    rejected: Words
    """By slot in the bitmaps: of another profile, removed, or with a test of an absent attribute."""
    dimensions: list[AttributeBitmaps]
    """The bitmaps of the attributes that are present."""


class FamilyIndex:
    """State: the subscriptions of one family, or of `Event` and kinds together."""

    def __init__(self, name: str, slots: GrowingArray) -> None:
        self.name = name
        self.decomposition = Decomposition()
        self.removed = 0
        self.residuals: dict[int, x.Predicate] = {}
        self._staged: list[tuple[int, Parts]] = []
        self._slot_of_handle = slots
        self._indexed = self._room = 0
        self._handles, self._alive = GrowingArray(np.int64), GrowingArray(np.bool_)
        self._profile = GrowingArray(np.int32)
        self._intervals = IntervalTables()
        self._shapes: dict[tuple[object, ...], IndexedShape] = {}
        self._carried: dict[type, list[str | None]] = {}
        self._buffer = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._alive) + len(self._staged) - self.removed

    @property
    def nbytes(self) -> dict[str, int]:
        """The bytes of the arrays, by their purpose."""
        shapes = sum(shape.rejected.nbytes + shape.accepted.nbytes for shape in self._shapes.values())
        return {
            "bitmaps": sum(dimension.nbytes for dimension in self.decomposition.dimensions),
            "ranges": self._intervals.nbytes,
            "subscriptions": self._handles.nbytes + self._alive.nbytes + self._profile.nbytes,
            "shapes": shapes + self._buffer.nbytes,
        }

    def handles_of(self, slots: Slots) -> Slots:
        """The handles of some slots."""
        handles: Slots = self._handles.values[slots]
        return handles

    def intervals_of(self, handle: int) -> dict[str, Interval]:
        """The interval of each attribute that a subscription tests, by name."""
        which, low, high = self._intervals.of_slot(int(self._slot_of_handle.values[handle]))
        names = [self.decomposition.dimensions[number].name for number in which]
        return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))

    def explain(self) -> list[str]:
        """What is in the index, and its memory, as lines of text."""
        self.append_staged()
        memory = ", ".join(f"{what} {size / 1e6:.1f} MB" for what, size in self.nbytes.items())
        profiles = len(self.decomposition.profiles)
        waiting = len(self._alive) - self._indexed
        counts = f"{self._indexed} in bitmaps and {waiting} compared one by one"
        gone = f", {self.removed} removed" if self.removed else ""
        return [
            f"  {self.name}: {len(self)} subscriptions, {counts}{gone}",
            f"    {profiles} combination{'s' if profiles != 1 else ''} of type and attributes, "
            f"{len(self.residuals)} subscriptions with a part that is evaluated",
            *(
                f"    {dimension.name}: {len(self._intervals.of_attribute(dimension.number)[0])} ranges "
                f"in {dimension.buckets} buckets, {dimension.nbytes / 1e6:.1f} MB"
                for dimension in self.decomposition.dimensions
            ),
            f"    memory: {memory}",
        ]

    # Adding and removing

    def add(self, handle: int, subscription: Subscription) -> None:
        """Add a subscription; the bitmaps are updated when enough have been added."""
        self.stage(handle, subscription)
        if len(self._alive) + len(self._staged) - self._indexed >= MAX_UNINDEXED:
            self.update_bitmaps()

    def stage(self, handle: int, subscription: Subscription) -> None:
        """Decompose a subscription, to be appended with others before the next event."""
        self._staged.append((handle, self.decomposition.decompose(subscription)))
        if len(self._staged) >= BATCH:
            self.append_staged()

    def append_staged(self) -> None:
        """Append the staged subscriptions."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        found = [found for _, (_, found, _) in staged]
        for slot, (_, (_, _, residual)) in enumerate(staged, len(self._alive)):
            if residual is not None:
                self.residuals[slot] = residual
        self.append_columns(
            np.array([handle for handle, _ in staged], np.int64),
            [profile for _, (profile, _, _) in staged],
            np.array([len(one) for one in found], np.int64),
            [number for one in found for number in one],
            [low for one in found for low, _ in one.values()],
            [high for one in found for _, high in one.values()],
        )

    def append_columns(
        self, handles: Slots, profile: object, lengths: Slots, which: npt.ArrayLike, low: npt.ArrayLike,
        high: npt.ArrayLike,
    ) -> None:  # fmt: skip
        """Append subscriptions whose profiles, numbers of intervals and intervals are given as columns."""
        first, count = len(self._alive), len(handles)
        self._slot_of_handle.extend(0, max(0, int(handles.max()) + 1 - len(self._slot_of_handle)))
        self._slot_of_handle.values[handles] = np.arange(first, first + count)
        self._handles.extend(handles, count)
        self._alive.extend(True, count)
        self._profile.extend(profile, count)
        self._intervals.append(lengths, which, low, high)

    def reserve(self, lengths: Slots) -> None:
        """Make room for slots with these numbers of intervals."""
        self._intervals.reserve(lengths)
        for column in (self._handles, self._alive, self._profile):
            column.reserve(len(column) + len(lengths))

    def remove(self, handle: int) -> None:
        """Remove a subscription: it matches nothing from now on."""
        self.append_staged()
        slot = int(self._slot_of_handle.values[handle])
        self._alive.values[slot] = False
        self.removed += 1
        self.residuals.pop(slot, None)
        if slot < self._indexed:
            for shape in self._shapes.values():
                shape.rejected.view(np.uint8)[slot >> 3] |= np.uint8(1 << (slot & 7))
        if self.removed > len(self) + MIN_ROOM:
            self.rebuild()

    # Bitmaps

    def update_bitmaps(self) -> None:
        """Add the appended slots to the bitmaps, if they are enough."""
        self.append_staged()
        fresh = len(self._alive) - self._indexed
        if fresh < MAX_UNINDEXED:
            return
        if len(self._alive) > self._room:
            self.rebuild(tight=fresh >= self._indexed)
        else:
            self._build_bitmaps()

    def rebuild(self, *, tight: bool = False) -> None:
        """Drop removed slots, choose the buckets for the subscriptions there are now, and build all bitmaps.

        `tight` leaves no room to grow: used after a bulk that was larger than all before.
        """
        self.append_staged()
        self._drop_removed()
        for dimension in self.decomposition.dimensions:
            dimension.clear()
        size = len(self._alive)
        self._room = whole_words(size + (0 if tight else max(size // 4, MIN_ROOM)))
        self._choose_buckets()
        self._indexed = 0
        self._build_bitmaps()

    def _drop_removed(self) -> None:
        alive = self._alive.values
        if self.removed:
            moved = np.cumsum(alive) - 1
            self._intervals.keep(alive, moved)
            self.residuals = {int(moved[slot]): residual for slot, residual in self.residuals.items()}
            for column in (self._handles, self._profile, self._alive):
                column.keep(alive)
            self._slot_of_handle.values[self._handles.values] = np.arange(len(self._handles))
            self.removed = 0

    def _choose_buckets(self) -> None:
        """Choose the buckets of each attribute by a sample of its intervals; drop codes that are not used."""
        count = len(self.decomposition.dimensions)
        which, low, high = self._intervals.sample(SAMPLE * max(count, 1))
        sampled_slots = max(1, len(self._alive) * len(which) // max(1, len(self._intervals)))
        for dimension, chosen in zip(self.decomposition.dimensions, _group_positions(which, count), strict=True):
            if len(chosen):
                dimension.choose_buckets(low[chosen], high[chosen], self._room // WORD, len(chosen) / sampled_slots)
            if isinstance(dimension.domain, Codes):
                self._drop_unused_codes(dimension)

    def _drop_unused_codes(self, dimension: AttributeBitmaps) -> None:
        assert isinstance(dimension.domain, Codes)
        low, high = self._intervals.of_attribute(dimension.number)
        codes = np.array(list(dimension.domain.codes.values()), np.int64)
        begun = np.searchsorted(np.sort(low), codes, "right")
        ended = np.searchsorted(np.sort(high), codes, "left")
        dimension.domain.keep((begun > ended).tolist())

    def _build_bitmaps(self) -> None:
        """Add the slots that are not in the bitmaps, from the beginning of the last word."""
        until = whole_words(len(self._alive))
        for first in range(self._indexed // WORD * WORD, until, CHUNK):
            self._build_chunk(first, min(first + CHUNK, until))
        self._indexed = len(self._alive)
        self._shapes.clear()
        self._buffer = np.empty(until // WORD, np.uint64)
        for dimension in self.decomposition.dimensions:
            dimension.truncate_rows(until // WORD)

    def _build_chunk(self, first: int, last: int) -> None:
        owners, which, low, high = self._intervals.between(first, last)
        dimensions = self.decomposition.dimensions
        for dimension, chosen in zip(dimensions, _group_positions(which, len(dimensions)), strict=True):
            if not len(chosen):
                continue
            if not dimension.nbytes:
                dimension.choose_buckets(low[chosen], high[chosen], self._room // WORD, len(chosen) / (last - first))
            dimension.set_bits(first, last - first, owners[chosen], low[chosen], high[chosen])

    # Matching

    def match(self, event: Event) -> tuple[Slots, bool]:
        """The slots that match, ascending, and True; or candidates and False, if a value does not have its type.

        Every slot that matches is among the candidates.
        """
        self.append_staged()
        shape = self._shape(event)
        keys = [UNKNOWN] * len(self.decomposition.dimensions)
        buffer, rejected, valid = self._buffer, shape.rejected, True
        for dimension in shape.dimensions:
            key = dimension.domain.key(getattr(event, dimension.name))
            if key is None:
                valid = False
                continue
            keys[dimension.number] = key
            if dimension.rows:
                rejected = np.bitwise_or(rejected, dimension.row(key), buffer)
        candidates = self._candidates(rejected, shape)
        return (self._verify(candidates, keys, event), True) if valid else (candidates, False)

    def _candidates(self, rejected: Words, shape: IndexedShape) -> Slots:
        found = clear_bits(rejected)
        if self._indexed == len(self._alive):
            return found
        fresh = shape.accepted[self._profile.values[self._indexed :]] & self._alive.values[self._indexed :]
        return np.concatenate([found, np.flatnonzero(fresh) + self._indexed])

    def _verify(self, candidates: Slots, keys: list[int], event: Event) -> Slots:
        passed = candidates[~self._intervals.failing(candidates, np.array(keys, np.int64))]
        return self._evaluate_residuals(passed, event) if self.residuals else passed

    def _evaluate_residuals(self, slots: Slots, event: Event) -> Slots:
        residuals = self.residuals
        passed = [slot for slot in slots.tolist() if slot not in residuals or holds(residuals[slot], event)]
        return np.array(passed, np.int64)

    def _shape(self, event: Event) -> IndexedShape:
        present = tuple(
            [name is not None and getattr(event, name) is not None for name in self._watched_names(type(event))]
        )
        shape = self._shapes.get((type(event), present))
        if shape is None:
            shape = self._new_shape(type(event), present)
        elif len(shape.accepted) < len(self.decomposition.profiles):
            shape.accepted = self._accept_profiles(shape.cls, shape.present, shape.accepted)
        return shape

    def _watched_names(self, cls: type) -> list[str | None]:
        """The watched attributes in order, with None for those that a class does not have."""
        names = self._carried.get(cls)
        if names is None or len(names) < len(self.decomposition.watched):
            declared = {attribute.name for attribute in attributes(cls)}
            names = self._carried[cls] = [name if name in declared else None for name in self.decomposition.watched]
        return names

    def _new_shape(self, cls: type, presence: tuple[bool, ...]) -> IndexedShape:
        present = {name for name, there in zip(self.decomposition.watched, presence, strict=True) if there}
        accepted = self._accept_profiles(cls, present, np.empty(0, np.bool_))
        indexed = slice(self._indexed)
        rejected = ~pack(accepted[self._profile.values[indexed]] & self._alive.values[indexed])
        for dimension in self.decomposition.dimensions:
            if dimension.rows and dimension.name not in present:
                rejected |= dimension.rows[-1]
        if len(self._shapes) >= MAX_SHAPES:
            del self._shapes[next(iter(self._shapes))]
        carried = [dimension for dimension in self.decomposition.dimensions if dimension.name in present]
        shape = IndexedShape(cls, present, accepted, rejected, carried)
        self._shapes[cls, presence] = shape
        return shape

    def _accept_profiles(self, cls: type, present: set[str], known: Flags) -> Flags:
        more = [profile.accepts(cls, present) for profile in self.decomposition.profiles[len(known) :]]
        return np.concatenate([known, np.array(more, np.bool_)])


def _group_positions(which: Numbers, count: int) -> list[Slots]:
    """For each number below `count`, its positions."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.searchsorted(which[order], np.arange(1, count)))[:count]
