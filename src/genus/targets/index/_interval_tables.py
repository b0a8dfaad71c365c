"""The exact intervals of all slots, in one table per number of intervals.

A slot's intervals are adjacent in memory. Verifying a candidate is bound by the time to read them, and reading whole
rows of one width is three times as fast as reading the same intervals one by one.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Slots: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Keys: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.uint16]


class GrowingArray:
    """State: an array that grows by appending rows, with a quarter more room each time it is full."""

    def __init__(self, dtype: npt.DTypeLike, *width: int) -> None:
        self._room: npt.NDArray[Any] = np.empty((0, *width), dtype)
        self.values: npt.NDArray[Any] = self._room

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The bytes allocated, with the room to grow."""
        return self._room.nbytes

    def extend(self, more: Any, count: int) -> None:
        """Append some rows, or one value a number of times."""
        used = len(self.values)
        self.reserve(used + count)
        self.values = self._room[: used + count]
        self.values[used:] = more

    def reserve(self, size: int) -> None:
        """Make room for a number of rows, so that appending copies nothing."""
        if size > len(self._room):
            room = np.empty((max(size, len(self._room) * 5 // 4), *self._room.shape[1:]), self._room.dtype)
            room[: len(self.values)] = self.values
            self._room, self.values = room, room[: len(self.values)]

    def keep(self, wanted: Flags) -> None:
        """Keep the wanted rows only."""
        self._room = self.values = self.values[wanted]


class WidthTable:
    """State: the slots with one number of intervals, ascending, and the attribute and bounds of each interval."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.slots, self.which = GrowingArray(np.int32), GrowingArray(np.uint16, width)
        self.low, self.high = GrowingArray(np.int64, width), GrowingArray(np.int64, width)

    @property
    def columns(self) -> tuple[GrowingArray, ...]:
        """All columns; they have the same length."""
        return self.slots, self.which, self.low, self.high

    @property
    def nbytes(self) -> int:
        """The bytes allocated."""
        return sum(column.nbytes for column in self.columns)

    def append(self, slots: Slots, which: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        """Append the intervals of some slots, concatenated."""
        self.slots.extend(slots, len(slots))
        for column, values in ((self.which, which), (self.low, low), (self.high, high)):
            column.extend(np.reshape(values, (len(slots), self.width)), len(slots))

    def failing(self, rows: Slots, keys: Keys) -> Slots:
        """The rows with an interval that does not contain the key of its attribute; a row may be repeated."""
        values = keys.take(self.which.values.take(rows, axis=0))
        failed = (self.low.values.take(rows, axis=0) > values) | (self.high.values.take(rows, axis=0) < values)
        return failed.ravel().nonzero()[0] // max(self.width, 1)

    def keep(self, alive: Flags, moved: Slots) -> None:
        """Drop the removed slots and renumber the others."""
        wanted = alive[self.slots.values]
        for column in self.columns:
            column.keep(wanted)
        self.slots.values[:] = moved[self.slots.values]


class IntervalTables:
    """State: the tables, and the table and row of each slot."""

    def __init__(self) -> None:
        self._tables = {0: WidthTable(0)}
        self._width, self._row = GrowingArray(np.uint16), GrowingArray(np.int32)

    def __len__(self) -> int:
        return sum(len(table.slots) * table.width for table in self._tables.values())

    @property
    def nbytes(self) -> int:
        """The bytes allocated."""
        return self._width.nbytes + self._row.nbytes + sum(table.nbytes for table in self._tables.values())

    def reserve(self, lengths: Slots) -> None:
        """Make room for slots with these numbers of intervals."""
        self._width.reserve(len(self._width) + len(lengths))
        self._row.reserve(len(self._row) + len(lengths))
        for width, count in enumerate(np.bincount(lengths).tolist()):
            table = self._table(width)
            for column in table.columns:
                column.reserve(len(column) + count)

    def append(self, lengths: Slots, which: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        """Append slots with these numbers of intervals, and the intervals, concatenated."""
        first = len(self._width)
        self._width.extend(lengths, len(lengths))
        self._row.extend(0, len(lengths))
        which, low, high = np.asarray(which, np.uint16), np.asarray(low, np.int64), np.asarray(high, np.int64)
        for width in set(lengths.tolist()):
            slots = (lengths == width).nonzero()[0] + first
            chosen = slice(None) if len(slots) == len(lengths) else np.repeat(lengths == width, lengths)
            self._append(width, slots, which[chosen], low[chosen], high[chosen])

    def _append(self, width: int, slots: Slots, which: Numbers, low: Keys, high: Keys) -> None:
        table = self._table(width)
        self._row.values[slots] = np.arange(len(table.slots), len(table.slots) + len(slots))
        table.append(slots, which, low, high)

    def _table(self, width: int) -> WidthTable:
        return self._tables.get(width) or self._tables.setdefault(width, WidthTable(width))

    def of_slot(self, slot: int) -> tuple[Numbers, Keys, Keys]:
        """The attributes and bounds of a slot's intervals."""
        table, row = self._tables[int(self._width.values[slot])], self._row.values[slot]
        return table.which.values[row], table.low.values[row], table.high.values[row]

    def failing(self, candidates: Slots, keys: Keys) -> Flags:
        """Whether each of some slots has an interval that does not contain the key of its attribute."""
        failed = np.zeros(len(candidates), np.bool_)
        rows = self._row.values.take(candidates)
        if len(only := [table for table in self._tables.values() if len(table.slots)]) == 1:
            failed[only[0].failing(rows, keys)] = True
            return failed
        widths = self._width.values.take(candidates)
        for width in np.bincount(widths).nonzero()[0].tolist():
            chosen = (widths == width).nonzero()[0]
            failed[chosen[self._tables[width].failing(rows[chosen], keys)]] = True
        return failed

    def between(self, first: int, last: int) -> tuple[Slots, Numbers, Keys, Keys]:
        """The intervals of a range of slots: the slot of each, counted from the first, its attribute and bounds."""
        runs = [self._run(table, first, last) for table in self._tables.values()]
        owners, which, low, high = (np.concatenate(columns) for columns in zip(*runs, strict=True))
        return owners, which, low, high

    def _run(self, table: WidthTable, first: int, last: int) -> tuple[Slots, Numbers, Keys, Keys]:
        rows = slice(*np.searchsorted(table.slots.values, [first, last]).tolist())
        which, low, high = (column.values[rows].ravel() for column in (table.which, table.low, table.high))
        return np.repeat(table.slots.values[rows] - first, table.width), which, low, high

    def sample(self, size: int) -> tuple[Numbers, Keys, Keys]:
        """About `size` of the intervals, evenly spaced: their attributes and bounds."""
        step = max(1, len(self) // size)
        tables = [(table.which, table.low, table.high) for table in self._tables.values()]
        columns = zip(*tables, strict=True)
        which, low, high = (np.concatenate([one.values[::step].ravel() for one in column]) for column in columns)
        return which, low, high

    def of_attribute(self, number: int) -> tuple[Keys, Keys]:
        """The bounds of all intervals of one attribute."""
        chosen = [(table, table.which.values == number) for table in self._tables.values()]
        low = np.concatenate([table.low.values[where] for table, where in chosen])
        high = np.concatenate([table.high.values[where] for table, where in chosen])
        return low, high

    def keep(self, alive: Flags, moved: Slots) -> None:
        """Drop the removed slots and renumber the others."""
        for table in self._tables.values():
            table.keep(alive, moved)
        for column in (self._width, self._row):
            column.keep(alive)
        for table in self._tables.values():
            self._row.values[table.slots.values] = np.arange(len(table.slots))
