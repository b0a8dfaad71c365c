"""The subscriptions of one family in columns, and the three stages that an event goes through.

1. Shape: which slots accept the event's class and its present attributes; bits kept per shape, for there are few.
2. Sieve: the rows of the buckets its values fall into, or-ed together; what no row rejects is a candidate.
3. Proof: the candidates' intervals are compared exactly, and what no interval can say is left to an evaluator.

Slots are appended. The last few are not painted yet and go straight to the proof; painting is done for some hundreds at
once. A removed slot is rejected by every shape until the partition is laid out anew: on growth by a quarter, or when
most slots are dead.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._evaluate import evaluate, raise_event_error
from genus.model import Event, attributes
from genus.targets.index._bitmaps import SAMPLE, WORD, Dimension, Words, clear_bits, pack, whole_words
from genus.targets.index._decompose import Anatomy, Parts
from genus.targets.index._interval_table import Column, Flags, Intervals, Numbers, Slots
from genus.targets.index._intervals import UNKNOWN, Codes, Interval

UNPAINTED = 256
"""So many slots are proved one by one before they are painted."""
CHUNK = 1 << 14
"""So many slots are painted at a time: their temporary arrays stay in the cache."""
LEAST_ROOM = 4096
"""So much room is left, if a quarter would be less."""
BATCH = 1 << 13
"""So many subscriptions are appended at a time."""
SHAPES = 64
"""So many shapes are remembered."""


def holds(residual: x.Predicate, event: Event) -> bool:
    """Whether the part of a subscription that no interval can say is true: here its evaluator is chosen."""
    try:
        return evaluate(residual, event) is True
    except (TypeError, AttributeError, OverflowError) as problem:
        raise_event_error(event, problem)


@dataclass(slots=True)
class Shape:
    """What is known of one (class, present attributes)."""

    cls: type
    present: set[str]
    accepted: Flags
    """By profile."""
    rejected: Words
    """By painted slot: of another profile, dead, or testing an attribute that is absent."""
    dimensions: list[Dimension]
    """Those of the attributes that are present."""


class Partition:
    """State: the slots of one family, or of `Event` and the kinds together."""

    def __init__(self, name: str, slots: Column) -> None:
        self.name = name
        self.anatomy = Anatomy()
        self.dead = 0
        self.residuals: dict[int, x.Predicate] = {}
        self._staged: list[tuple[int, Parts]] = []
        self._slot_of_handle = slots
        self._painted = self._room = 0
        self._handles, self._alive, self._profile = Column(np.int64), Column(np.bool_), Column(np.int32)
        self._intervals = Intervals()
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._carried: dict[type, list[str | None]] = {}
        self._sieve = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._alive) + len(self._staged) - self.dead

    @property
    def nbytes(self) -> dict[str, int]:
        """The memory taken, by what it is for."""
        shapes = sum(shape.rejected.nbytes + shape.accepted.nbytes for shape in self._shapes.values())
        return {
            "bitmaps": sum(dimension.nbytes for dimension in self.anatomy.dimensions),
            "intervals": self._intervals.nbytes,
            "slots": self._handles.nbytes + self._alive.nbytes + self._profile.nbytes,
            "shapes": shapes + self._sieve.nbytes,
        }

    def handles_of(self, slots: Slots) -> Slots:
        """The handles of some slots."""
        handles: Slots = self._handles.values[slots]
        return handles

    def intervals_of(self, handle: int) -> dict[str, Interval]:
        """The interval of each attribute that a subscription tests."""
        which, low, high = self._intervals.of_slot(int(self._slot_of_handle.values[handle]))
        names = [self.anatomy.dimensions[number].name for number in which]
        return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))

    def explain(self) -> list[str]:
        """What is indexed how, and what it takes."""
        self.append_staged()
        memory = ", ".join(f"{what} {size / 1e6:.1f} MB" for what, size in self.nbytes.items())
        return [
            f"{self.name}: {len(self)} subscriptions, {self._painted} of them painted, {self.dead} removed, "
            f"{len(self.anatomy.profiles)} profiles, {len(self.residuals)} with a residual",
            *(
                f"  {dimension.name}: {len(self._intervals.of_dimension(dimension.number)[0])} intervals "
                f"in {dimension.buckets} buckets, {dimension.nbytes / 1e6:.1f} MB"
                for dimension in self.anatomy.dimensions
            ),
            f"  {memory}",
        ]

    # Adding and removing

    def add(self, handle: int, subscription: Subscription) -> None:
        """Add a subscription, and paint once that pays."""
        self.stage(handle, subscription)
        if len(self._alive) + len(self._staged) - self._painted >= UNPAINTED:
            self.settle()

    def stage(self, handle: int, subscription: Subscription) -> None:
        """Take a subscription apart, to be appended with others before the next event."""
        self._staged.append((handle, self.anatomy.take_apart(subscription)))
        if len(self._staged) >= BATCH:
            self.append_staged()

    def append_staged(self) -> None:
        """Give slots to the subscriptions that are waiting."""
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
        """Give slots to subscriptions whose profiles, numbers of intervals and intervals come as columns."""
        first, count = len(self._alive), len(handles)
        self._slot_of_handle.extend(0, max(0, int(handles.max()) + 1 - len(self._slot_of_handle)))
        self._slot_of_handle.values[handles] = np.arange(first, first + count)
        self._handles.extend(handles, count)
        self._alive.extend(True, count)
        self._profile.extend(profile, count)
        self._intervals.append(lengths, which, low, high)

    def reserve(self, lengths: Slots) -> None:
        """Make room for slots with so many intervals each."""
        self._intervals.reserve(lengths)
        for column in (self._handles, self._alive, self._profile):
            column.reserve(len(column) + len(lengths))

    def remove(self, handle: int) -> None:
        """Let a subscription match nothing from now on."""
        self.append_staged()
        slot = int(self._slot_of_handle.values[handle])
        self._alive.values[slot] = False
        self.dead += 1
        self.residuals.pop(slot, None)
        if slot < self._painted:
            for shape in self._shapes.values():
                shape.rejected.view(np.uint8)[slot >> 3] |= np.uint8(1 << (slot & 7))
        if self.dead > len(self) + LEAST_ROOM:
            self.lay_out()

    # Painting

    def settle(self) -> None:
        """Paint what was appended, if that pays."""
        self.append_staged()
        fresh = len(self._alive) - self._painted
        if fresh < UNPAINTED:
            return
        if len(self._alive) > self._room:
            self.lay_out(tight=fresh >= self._painted)
        else:
            self._paint()

    def lay_out(self, *, tight: bool = False) -> None:
        """Drop dead slots, choose buckets for the subscriptions there are now, and paint all.

        Tight leaves no room to grow: right after a bulk that was larger than all before.
        """
        self.append_staged()
        self._drop_dead()
        for dimension in self.anatomy.dimensions:
            dimension.clear()
        size = len(self._alive)
        self._room = whole_words(size + (0 if tight else max(size // 4, LEAST_ROOM)))
        self._choose_buckets()
        self._painted = 0
        self._paint()

    def _drop_dead(self) -> None:
        alive = self._alive.values
        if self.dead:
            moved = np.cumsum(alive) - 1
            self._intervals.keep(alive, moved)
            self.residuals = {int(moved[slot]): residual for slot, residual in self.residuals.items()}
            for column in (self._handles, self._profile, self._alive):
                column.keep(alive)
            self._slot_of_handle.values[self._handles.values] = np.arange(len(self._handles))
            self.dead = 0

    def _choose_buckets(self) -> None:
        """Lay out each dimension by a sample of its intervals; forget the codes that none uses."""
        count = len(self.anatomy.dimensions)
        which, low, high = self._intervals.sample(SAMPLE * max(count, 1))
        sampled_slots = max(1, len(self._alive) * len(which) // max(1, len(self._intervals)))
        for dimension, chosen in zip(self.anatomy.dimensions, _grouped(which, count), strict=True):
            if len(chosen):
                dimension.lay_out(low[chosen], high[chosen], self._room // WORD, len(chosen) / sampled_slots)
            if isinstance(dimension.domain, Codes):
                self._forget_codes(dimension)

    def _forget_codes(self, dimension: Dimension) -> None:
        assert isinstance(dimension.domain, Codes)
        low, high = self._intervals.of_dimension(dimension.number)
        codes = np.array(list(dimension.domain.codes.values()), np.int64)
        begun = np.searchsorted(np.sort(low), codes, "right")
        ended = np.searchsorted(np.sort(high), codes, "left")
        dimension.domain.keep((begun > ended).tolist())

    def _paint(self) -> None:
        """Paint the slots not painted yet, again from the beginning of the last word."""
        until = whole_words(len(self._alive))
        for first in range(self._painted // WORD * WORD, until, CHUNK):
            self._paint_chunk(first, min(first + CHUNK, until))
        self._painted = len(self._alive)
        self._shapes.clear()
        self._sieve = np.empty(until // WORD, np.uint64)
        for dimension in self.anatomy.dimensions:
            dimension.show(until // WORD)

    def _paint_chunk(self, first: int, last: int) -> None:
        owners, which, low, high = self._intervals.between(first, last)
        dimensions = self.anatomy.dimensions
        for dimension, chosen in zip(dimensions, _grouped(which, len(dimensions)), strict=True):
            if not len(chosen):
                continue
            if not dimension.nbytes:
                dimension.lay_out(low[chosen], high[chosen], self._room // WORD, len(chosen) / (last - first))
            dimension.paint(first, last - first, owners[chosen], low[chosen], high[chosen])

    # Matching

    def match(self, event: Event) -> tuple[Slots, bool]:
        """The slots that match, ascending; False beside them if some attribute's value is not of its type.

        Then the slots are candidates only: every one that matches is among them.
        """
        self.append_staged()
        shape = self._shape(event)
        keys = [UNKNOWN] * len(self.anatomy.dimensions)
        sieve, sifted, regular = self._sieve, shape.rejected, True
        for dimension in shape.dimensions:
            key = dimension.domain.key(getattr(event, dimension.name))
            if key is None:
                regular = False
                continue
            keys[dimension.number] = key
            if dimension.rows:
                sifted = np.bitwise_or(sifted, dimension.row(key), sieve)
        candidates = self._candidates(sifted, shape)
        return (self._proved(candidates, keys, event), True) if regular else (candidates, False)

    def _candidates(self, sieve: Words, shape: Shape) -> Slots:
        sieved = clear_bits(sieve)
        if self._painted == len(self._alive):
            return sieved
        fresh = shape.accepted[self._profile.values[self._painted :]] & self._alive.values[self._painted :]
        return np.concatenate([sieved, np.flatnonzero(fresh) + self._painted])

    def _proved(self, candidates: Slots, keys: list[int], event: Event) -> Slots:
        proved = candidates[~self._intervals.failing(candidates, np.array(keys, np.int64))]
        return self._without_failing_residuals(proved, event) if self.residuals else proved

    def _without_failing_residuals(self, slots: Slots, event: Event) -> Slots:
        residuals = self.residuals
        passed = [slot for slot in slots.tolist() if slot not in residuals or holds(residuals[slot], event)]
        return np.array(passed, np.int64)

    def _shape(self, event: Event) -> Shape:
        present = tuple([name is not None and getattr(event, name) is not None for name in self._watched(type(event))])
        shape = self._shapes.get((type(event), present))
        if shape is None:
            shape = self._new_shape(type(event), present)
        elif len(shape.accepted) < len(self.anatomy.profiles):
            shape.accepted = self._accepted(shape.cls, shape.present, shape.accepted)
        return shape

    def _watched(self, cls: type) -> list[str | None]:
        """The watched attributes in order, None for those that a class does not carry."""
        names = self._carried.get(cls)
        if names is None or len(names) < len(self.anatomy.watched):
            declared = {attribute.name for attribute in attributes(cls)}
            names = self._carried[cls] = [name if name in declared else None for name in self.anatomy.watched]
        return names

    def _new_shape(self, cls: type, presence: tuple[bool, ...]) -> Shape:
        present = {name for name, there in zip(self.anatomy.watched, presence, strict=True) if there}
        accepted = self._accepted(cls, present, np.empty(0, np.bool_))
        painted = slice(self._painted)
        rejected = ~pack(accepted[self._profile.values[painted]] & self._alive.values[painted])
        for dimension in self.anatomy.dimensions:
            if dimension.rows and dimension.name not in present:
                rejected |= dimension.rows[-1]
        if len(self._shapes) >= SHAPES:
            del self._shapes[next(iter(self._shapes))]
        carried = [dimension for dimension in self.anatomy.dimensions if dimension.name in present]
        shape = Shape(cls, present, accepted, rejected, carried)
        self._shapes[cls, presence] = shape
        return shape

    def _accepted(self, cls: type, present: set[str], known: Flags) -> Flags:
        more = [profile.accepts(cls, present) for profile in self.anatomy.profiles[len(known) :]]
        return np.concatenate([known, np.array(more, np.bool_)])


def _grouped(which: Numbers, count: int) -> list[Slots]:
    """For each dimension, the places where it stands."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.searchsorted(which[order], np.arange(1, count)))[:count]
