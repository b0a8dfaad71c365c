"""Segments: subscriptions whose predicate is one interval per attribute, found by bitmaps (`_bitmaps`).

A segment has a fixed number of slots, one per subscription. The slots that no bitmap rejects are compared exactly.

Adding and removing touch the bits of one slot: nothing is rebuilt, copied or sorted, however many subscriptions there
are. The last slots of a segment are not in the bitmaps yet, so that bits are set for many slots at once; they are all
compared exactly. When a segment is full, a larger one is begun.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.model.internal import INT64_MAX
from genus.targets._intervals import Domain, Interval
from genus.targets.index._columns import ALL_SET, WORD, AttributeBitmaps, Flags, Keys, Slots, Words, clear_bits

Handles: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[np.int32]
KeyPairs: TypeAlias = npt.NDArray[np.int64]
"""The key of each attribute of an event and its complement, which has the opposite order."""
Numbers: TypeAlias = npt.NDArray[np.uint16]

SAMPLE = 4_000
"""So many intervals of an attribute decide its buckets."""
PENDING = 256
"""So many slots are compared one by one before they are added to the bitmaps."""
CHUNK = 1 << 14
"""So many slots are added to the bitmaps at a time: their temporary arrays stay in the cache."""
SMALL = 4096
"""A segment with at most so many slots is matched without bitmaps. By measurement: `python -m bench.engine`."""
MIN_INTERVALS = 32
"""With fewer intervals of an attribute it gets no bitmaps: their buckets would be chosen badly."""
FIRST_SEGMENT = 1 << 16
GROWTH = 3
"""A new segment has so many times the slots of all before it, so that segments are few."""
MAX_WASTE = 64
"""The buckets are chosen again when so many candidates per slot have failed the exact comparison."""


class Dimension(NamedTuple):
    """An attribute with intervals: its name, its number in the family, and the keys of its values."""

    name: str
    number: int
    domain: Domain


_ALL_TRUE = {width: (np.dtype(f"u{2 * width}"), int.from_bytes(b"\1" * (2 * width), "little")) for width in (1, 2, 4)}
"""The flags of one, two and four intervals as a number, and the number if all are true."""


class WidthTable:
    """State: the slots with one number of intervals, and the attribute and bounds of each interval, a row per slot.

    A slot's intervals are adjacent in memory: comparing candidates is bound by the time to read them. The arrays have
    room for all slots of the segment, which takes memory only where it is used.
    """

    def __init__(self, width: int, room: int) -> None:
        self.width = width
        self.used = 0
        self._free: list[int] = []
        self.which = np.empty((room, width), np.uint16)
        self.slots = np.empty(room, np.int32)
        self._bounds = np.empty((room, width, 2), np.int64)
        """The lower bound, and the complement of the upper one, so that one comparison tests both."""

    def intervals(self, rows: Rows) -> tuple[Numbers, Keys, Keys]:
        """Return the attributes, lower and upper bounds of some rows."""
        bounds = self._bounds.take(rows, axis=0)
        return self.which.take(rows, axis=0), bounds[:, :, 0], ~bounds[:, :, 1]

    @property
    def nbytes(self) -> int:
        """The bytes in use."""
        return self.used * (4 + self.width * (2 + 8 + 8))

    def add(self, slot: int, which: list[int], low: list[int], high: list[int]) -> int:
        """Store the intervals of a slot and return their row."""
        row = self._free.pop() if self._free else self.used
        self.used = max(self.used, row + 1)
        self.slots[row], self.which[row] = slot, which
        self._bounds[row] = [(one, ~other) for one, other in zip(low, high, strict=True)]
        return row

    def add_all(self, slots: Slots, which: Numbers, low: Keys, high: Keys) -> Slots:
        """Store the intervals of many slots and return their rows."""
        first, self.used = self.used, self.used + len(which)
        rows = slice(first, self.used)
        self.slots[rows] = slots
        self.which[rows], self._bounds[rows, :, 0], self._bounds[rows, :, 1] = which, low, ~high
        return np.arange(first, self.used)

    def remove(self, row: int) -> None:
        """Free a row; no key is within its bounds."""
        self._bounds[row] = INT64_MAX
        self._free.append(row)

    def find(self, keys: KeyPairs) -> Rows:
        """Return the slots of all rows whose intervals contain the keys."""
        within = self._bounds[: self.used] <= keys.take(self.which[: self.used], axis=0)
        if self.width in _ALL_TRUE:
            octets, all_true = _ALL_TRUE[self.width]
            passed = within.reshape(-1).view(octets) == all_true
        else:
            passed = within.reshape(self.used, -1).all(axis=1)
        slots: Rows = self.slots.take(passed.nonzero()[0])
        return slots

    def passing(self, rows: Rows, keys: KeyPairs) -> Flags:
        """Return whether all intervals of each row contain the key of their attribute."""
        values = keys.take(self.which.take(rows, axis=0), axis=0)
        within = self._bounds.take(rows, axis=0) <= values
        return np.asarray(within.reshape(len(rows), -1).all(axis=1))


class View:
    """State: what a shape sees of a segment: the bits of the slots it cannot match, as of a position in the log."""

    __slots__ = ("rejected", "seen")

    def __init__(self, rejected: Words) -> None:
        self.rejected, self.seen = rejected, 0


class Segment:
    """State: subscriptions in slots, with their intervals and bitmaps."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = self.count = self._indexed = self._wasted = 0
        self._max_waste = MAX_WASTE
        self._handles = np.empty(room, np.int64)
        self._profile = np.zeros(room, np.int32)
        self._alive = np.zeros(room, np.bool_)
        self._width, self._row = np.zeros(room, np.uint16), np.zeros(room, np.int32)
        self._tables: dict[int, WidthTable] = {}
        self._bitmaps: dict[int, AttributeBitmaps] = {}
        self._free: list[int] = []
        self._changed: list[int] = []
        """The words of slots that were changed, in order; views remember how far they have followed."""
        self._views: dict[int, View] = {}
        self._buffer = np.empty(room // WORD, np.uint64)

    @property
    def has_room(self) -> bool:
        """Whether another subscription can be added."""
        return bool(self._free) or self.used < self.room

    @property
    def nbytes(self) -> dict[str, int]:
        """The bytes in use, by purpose."""
        words = -(-self.used // WORD)
        return {
            "bitmaps": sum(len(one.matrix) * words * 8 for one in self._bitmaps.values()),
            "ranges": sum(table.nbytes for table in self._tables.values()),
            "subscriptions": self.used * (4 + 1 + 2 + 4 + 8),
            "shapes": (len(self._views) + 1) * words * 8,
        }

    # Adding and removing

    def add(self, handle: int, profile: int, intervals: dict[int, Interval], store: "RangeStore") -> int:
        """Add a subscription and return its slot."""
        slot = self._free.pop() if self._free else self.used
        which = list(intervals)
        low, high = [one[0] for one in intervals.values()], [one[1] for one in intervals.values()]
        self.used = max(self.used, slot + 1)
        self._handles[slot], self._profile[slot], self._alive[slot] = handle, profile, True
        self._width[slot], self._row[slot] = len(which), self._table(len(which)).add(slot, which, low, high)
        self.count += 1
        self._changed.append(slot // WORD)
        if slot < self._indexed:
            for number, bitmaps in self._bitmaps.items():
                bitmaps.set_one(slot, intervals.get(number))
        elif self.used - self._indexed >= PENDING:
            self.extend_bitmaps(store)
        return slot

    def add_all(
        self, handles: Handles, profile: int | Slots, lengths: Slots, which: Numbers, low: Keys, high: Keys
    ) -> None:
        """Append many subscriptions; their intervals are concatenated, `lengths` of each."""
        first, last = self.used, self.used + len(handles)
        self.used, self.count = last, self.count + len(handles)
        self._handles[first:last] = handles
        self._profile[first:last], self._alive[first:last], self._width[first:last] = profile, True, lengths
        starts = np.cumsum(lengths) - lengths
        for width in np.unique(lengths).tolist():
            chosen = (lengths == width).nonzero()[0]
            positions = starts[chosen][:, None] + np.arange(width)
            rows = self._table(width).add_all(first + chosen, which[positions], low[positions], high[positions])
            self._row[first + chosen] = rows
        self._changed += range(first // WORD, -(-last // WORD))

    def remove(self, slot: int) -> None:
        """Remove a subscription; its slot may be used again."""
        self._tables[int(self._width[slot])].remove(int(self._row[slot]))
        self._alive[slot] = False
        self.count -= 1
        self._free.append(slot)
        self._changed.append(slot // WORD)

    def contents(self) -> tuple[Handles, Slots, Slots, Numbers, Keys, Keys]:
        """Return all subscriptions, as `add_all` takes them."""
        slots = self._alive.nonzero()[0]
        owners, which, low, high = self._intervals_between(0, self.used)
        order = np.argsort(owners, kind="stable")
        profiles, lengths = self._profile[slots].astype(np.int64), self._width[slots].astype(np.int64)
        return self._handles[slots], profiles, lengths, which[order], low[order], high[order]

    def handles(self) -> Handles:
        return self._handles[: self.used][self._alive[: self.used]]

    def intervals_of(self, slot: int) -> dict[int, Interval]:
        """Return the intervals of a slot, by number of the attribute."""
        columns = self._tables[int(self._width[slot])].intervals(self._row[slot : slot + 1])
        which, low, high = (column[0].tolist() for column in columns)
        return dict(zip(which, zip(low, high, strict=True), strict=True))

    def _table(self, width: int) -> WidthTable:
        if width not in self._tables:
            self._tables[width] = WidthTable(width, self.room)
        return self._tables[width]

    # Bitmaps

    def extend_bitmaps(self, store: "RangeStore") -> None:
        """Add the pending slots to the bitmaps."""
        first, last = self._indexed // WORD * WORD, -(-self.used // WORD) * WORD
        for start in range(first, last, CHUNK):
            self._set_chunk(start, min(start + CHUNK, last), store)
        self._changed += range(first // WORD, last // WORD)
        self._indexed = self.used

    @property
    def is_wasteful(self) -> bool:
        """Whether the buckets were chosen badly, for other intervals than there are now."""
        return self._wasted > self._max_waste * max(self.used, WORD)

    def renew_bitmaps(self, store: "RangeStore") -> None:
        """Choose the buckets again. If that does not help, the next time comes later."""
        self._bitmaps.clear()
        self._wasted, self._max_waste, self._indexed = 0, 4 * self._max_waste, 0
        self.extend_bitmaps(store)

    def _set_chunk(self, first: int, last: int, store: "RangeStore") -> None:
        owners, which, low, high = self._intervals_between(first, min(last, self.used))
        slots = min(last, self.used) - first
        order = np.argsort(which, kind="stable")
        numbers, starts = np.unique(which[order], return_index=True)
        for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            if number in self._bitmaps or self._begin_bitmaps(store, number, low[chosen], high[chosen], slots):
                self._bitmaps[number].set_range(first, last, owners[chosen] - first, low[chosen], high[chosen])

    def _begin_bitmaps(self, store: "RangeStore", number: int, low: Keys, high: Keys, slots: int) -> bool:
        """Choose the buckets of an attribute, if enough of its intervals are known: in a chunk, or in all segments.

        `low` and `high` are the bounds in a chunk of so many slots.

        Slots that were added before have no bits then; they stay candidates.
        """
        known_low, known_high, share = store.sample(number)
        if len(low) > len(known_low):
            known_low, known_high, share = low, high, len(low) / max(1, slots)
        if len(known_low) < MIN_INTERVALS:
            return False
        domain = store.dimensions[number].domain
        self._bitmaps[number] = AttributeBitmaps(domain, known_low, known_high, self.room, share)
        return True

    def _intervals_between(self, first: int, last: int) -> tuple[Slots, Numbers, Keys, Keys]:
        """Return the slot, attribute and bounds of all intervals of a range of slots."""
        slots = np.arange(first, last)[self._alive[first:last]]
        parts = []
        for width in np.unique(self._width[slots]).tolist():
            chosen = slots[self._width[slots] == width]
            table, rows = self._tables[width], self._row[chosen]
            parts.append((np.repeat(chosen, width), *(column.ravel() for column in table.intervals(rows))))
        empty = (np.empty(0, np.int64), np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.int64))
        owners, which, low, high = (np.concatenate(one) for one in zip(empty, *parts, strict=True))
        return owners, which, low, high

    def sample(self, number: int, size: int) -> tuple[Keys, Keys, float]:
        """Bounds of some intervals of an attribute, and the share of slots that have one."""
        step = max(1, self.used // size)
        slots = np.arange(0, self.used, step)[self._alive[: self.used : step]]
        low, high = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for width, table in self._tables.items():
            which, lower, upper = table.intervals(self._row[slots[self._width[slots] == width]])
            low.append(lower[which == number])
            high.append(upper[which == number])
        lows = np.concatenate(low)
        return lows, np.concatenate(high), len(lows) / max(1, len(slots))

    # Matching

    def match(self, shape: "ShapeKeys", accepted: Flags, keys: KeyPairs) -> Handles:
        if self.used <= SMALL and 0 not in self._tables:
            return self._match_all(accepted, keys)
        words = -(-self.used // WORD)
        rejected = self._view(shape, accepted)[:words]
        buffer = self._buffer[:words]
        for number, key in shape.present:
            bitmaps = self._bitmaps.get(number)
            if bitmaps is not None:
                rejected = np.bitwise_or(rejected, bitmaps.row(key)[:words], buffer)
        candidates = clear_bits(rejected)
        if not len(candidates):
            return self._handles[:0]
        passed = candidates[self._passing(candidates, keys)]
        self._wasted += len(candidates) - len(passed)
        return self._handles.take(passed)

    def _match_all(self, accepted: Flags, keys: KeyPairs) -> Handles:
        """Compare all intervals, without bitmaps: few are quicker so."""
        found = [table.find(keys) for table in self._tables.values()]
        slots = found[0] if len(found) == 1 else np.concatenate(found)
        return self._handles.take(slots[accepted.take(self._profile.take(slots))])

    def _passing(self, candidates: Slots, keys: KeyPairs) -> Flags:
        rows = self._row.take(candidates)
        if len(self._tables) == 1:
            (table,) = self._tables.values()
            return table.passing(rows, keys)
        passed = np.empty(len(candidates), np.bool_)
        widths = self._width.take(candidates)
        for width, table in self._tables.items():
            chosen = (widths == width).nonzero()[0]
            if len(chosen):
                passed[chosen] = table.passing(rows.take(chosen), keys)
        return passed

    def _view(self, shape: "ShapeKeys", accepted: Flags) -> Words:
        """The bits of the slots that a shape cannot match: of another profile, removed, or of an absent attribute."""
        view = self._views.get(shape.number)
        if view is None:
            rejected = np.full(self.room // WORD, ALL_SET, np.uint64)
            view = self._views[shape.number] = View(rejected)
            self._reject(view.rejected, np.arange(-(-self.used // WORD)), shape, accepted)
        elif view.seen < len(self._changed):
            words = np.unique(np.array(self._changed[view.seen :], np.int64))
            self._reject(view.rejected, words, shape, accepted)
        view.seen = len(self._changed)
        return view.rejected

    def _reject(self, rejected: Words, words: Slots, shape: "ShapeKeys", accepted: Flags) -> None:
        slots = words[:, None] * WORD + np.arange(WORD)
        passing = accepted[self._profile[slots]] & self._alive[slots]
        bits = ~np.packbits(passing, axis=1, bitorder="little").view(np.uint64).ravel()
        present = {number for number, _ in shape.present}
        for number, bitmaps in self._bitmaps.items():
            if number not in present:
                bits |= bitmaps.matrix[-1][words]
        rejected[words] = bits

    def forget(self, number: int) -> None:
        """Drop the view of a shape."""
        self._views.pop(number, None)

    def trim_log(self) -> None:
        """Drop the views and the log of changes, when the log has become longer than the segment."""
        if len(self._changed) > self.room + 4096:
            self._views.clear()
            self._changed.clear()


class ShapeKeys(NamedTuple):
    """A shape's number, and for an event of it the attributes that are present with their keys."""

    number: int
    present: list[tuple[int, int]]


class RangeStore:
    """State: the segments of one family."""

    def __init__(self, dimensions: list[Dimension]) -> None:
        self.dimensions = dimensions
        self.segments: list[Segment] = []
        self._with_room: list[Segment] = []

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    def add(self, handle: int, profile: int, intervals: dict[int, Interval]) -> tuple[Segment, int]:
        """Add a subscription; returns its location."""
        while self._with_room and not self._with_room[-1].has_room:
            self._with_room.pop()
        segment = self._with_room[-1] if self._with_room else self._begin(1)
        segment.trim_log()
        return segment, segment.add(handle, profile, intervals, self)

    def add_all(
        self, handles: Handles, profile: int | Slots, lengths: Slots, which: Numbers, low: Keys, high: Keys
    ) -> list[tuple[Segment, int]]:
        """Add many subscriptions to a segment of their own; returns their locations."""
        segment = self._begin(len(handles))
        segment.add_all(handles, profile, lengths, which, low, high)
        segment.extend_bitmaps(self)
        return [(segment, slot) for slot in range(len(handles))]

    def remove(self, segment: Segment, slot: int) -> None:
        """Remove a subscription by its location."""
        if not segment.has_room:
            self._with_room.append(segment)
        segment.remove(slot)
        segment.trim_log()

    def match(self, shape: ShapeKeys, accepted: Flags, keys: KeyPairs) -> Iterator[Handles]:
        for segment in self.segments:
            if segment.count:
                yield segment.match(shape, accepted, keys)
                if segment.is_wasteful:
                    segment.renew_bitmaps(self)

    def sample(self, number: int) -> tuple[Keys, Keys, float]:
        """Bounds of some intervals of an attribute and how frequent it is, from the segment with most of them."""
        samples = [segment.sample(number, SAMPLE) for segment in self.segments[-2:]]
        return max(samples, key=lambda one: len(one[0]))

    def compact(self) -> dict[int, tuple[Segment, int]]:
        """Put all subscriptions into one segment without room to grow; returns their new locations by handle."""
        parts = [segment.contents() for segment in self.segments if segment.count]
        self.segments, self._with_room = [], []
        if not parts:
            return {}
        handles, profile, lengths, which, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
        segment = Segment(-(-len(handles) // WORD) * WORD)
        self.segments.append(segment)
        segment.add_all(handles, profile, lengths, which, low, high)
        segment.extend_bitmaps(self)
        return {handle: (segment, slot) for slot, handle in enumerate(handles.tolist())}

    def _begin(self, least: int) -> Segment:
        size = max(FIRST_SEGMENT, GROWTH * sum(segment.room for segment in self.segments), least)
        segment = Segment(-(-size // WORD) * WORD)
        self.segments.append(segment)
        self._with_room.append(segment)
        return segment
