"""Lookups: how the events of a family find candidates among the subscriptions, in numpy.

A lookup gives each event of a batch a *cell*: the group of its shape, or the group together with the value or the bin
of one attribute. The subscriptions of the cells are one flat array with offsets. Each event is repeated for the
subscriptions of its cell; ranges are compared, masks tested where types were grouped instead of shapes, and residuals
evaluated. There is one lookup for subscriptions that only ask for a shape, and one for the equalities and one for the
ranges of each attribute.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._query.decompose import KeyColumns
from genus.lake._query.number_tables import (
    BLOCK,
    Bounds,
    Ints,
    IntTable,
    Matches,
    Numbers,
    bin_of,
    bins_per_group,
    expand_runs,
    positions_for,
)
from genus.lake._query.shape_match import Groups
from genus.lake._query.templates import EventColumns, Values, key_type
from genus.model.types import Attribute

Item = TypeVar("Item")
Method: TypeAlias = Literal["shape", "equal", "range"]

DENSE = 8
"""Cells per entry up to which cells are an array; beyond that a hash table has those that are not empty."""
DIRECT = 4
"""A table of integers is an array by value if it has at most this many places per value."""


def gather(items: Iterable[Item], size_of: Callable[[Item], int], size: int) -> Iterator[list[Item]]:
    """Lists of neighbouring items: each but the last has at least a size together.

    >>> list(gather(["a", "bcd", "e"], len, 3))
    [['a', 'bcd'], ['e']]
    """
    waiting: list[Item] = []
    together = 0
    for item in items:
        waiting.append(item)
        together += size_of(item)
        if together >= size:
            yield waiting
            waiting, together = [], 0
    if waiting:
        yield waiting


def join_matches(found: Iterable[Matches], size: int) -> Iterator[Matches]:
    """Return the same matches in fewer pieces: each but the last has at least `size`."""
    return map(concat_matches, gather(found, lambda piece: len(piece.rows), size))


def concat_matches(pieces: Sequence[Matches]) -> Matches:
    if len(pieces) == 1:
        return pieces[0]
    rows, subscriptions = zip(*pieces, strict=True)
    return Matches(np.concatenate(rows), np.concatenate(subscriptions))


class Cells:
    """The subscriptions of each cell: those of cell c begin at `offset[c]`."""

    def __init__(self, cell: Ints, count: int, *columns: npt.NDArray[Any]) -> None:
        order = np.argsort(cell, kind="stable") if len(cell) and np.any(cell[1:] < cell[:-1]) else slice(None)
        self.columns = [np.ascontiguousarray(column[order]) for column in columns]
        ordered, self._table = cell[order], None
        if count > max(DENSE * len(cell), 1 << 16):
            distinct = np.unique(ordered)
            self._table = IntTable(distinct)
            ordered, count = np.searchsorted(distinct, ordered), len(distinct)
        self._offset: npt.NDArray[Any] = np.zeros(count + 1, np.int32 if len(cell) < 1 << 31 else np.int64)
        np.cumsum(np.bincount(ordered, minlength=count), out=self._offset[1:])

    def __len__(self) -> int:
        return len(self._offset) - 1

    @property
    def nbytes(self) -> int:
        return self._offset.nbytes + sum(column.nbytes for column in self.columns)

    def runs(self, cell: "Ints | Numbers") -> tuple[Ints, Ints]:
        """Return where the subscriptions of some cells begin, and how many there are."""
        if self._table is not None:
            found = self._table.find(cell.astype(np.int64, copy=False))
            cell = np.where(found < 0, 0, found)
            start = self._offset[cell]
            return start, np.where(found < 0, 0, self._offset[cell + 1] - start)
        start = self._offset[cell]
        return start, self._offset[cell + 1] - start


class Lookup:
    """One pass over a batch of events that finds candidates: here by the group of the shape, below also by a key."""

    method: Method = "shape"
    key: Attribute | None = None

    def __init__(self, groups: Groups, subscription: Ints) -> None:
        self._fill(groups, Cells(groups.entry_group, len(groups), subscription[groups.entry].astype(np.int32)))

    def _fill(self, groups: Groups, cells: Cells) -> None:
        self.by_type, self.tests_masks, self.kinds = groups.by_type, groups.tests_masks, groups.kinds
        self._group_of, self.cells = np.append(groups.group_of, np.int32(-1)), cells
        """The group of each shape; the last one is that of none."""
        self.templates: list[int] = []
        """The templates by which candidates are tested."""

    @property
    def is_plain(self) -> bool:
        """Whether what is found matches without a further test."""
        return self.method == "shape" and not self.tests_masks and not self.templates

    @property
    def nbytes(self) -> int:
        return int(self._group_of.nbytes) + self.cells.nbytes

    def per_shape(self) -> tuple[Ints, Ints]:
        """Where the subscriptions of each shape begin in the cells, if there is no key, and how many there are."""
        start, counts = self.cells.runs(np.arange(len(self.cells)))
        group = self._group_of[:-1]
        return np.append(start, 0).astype(np.int64)[group], np.append(counts, 0).astype(np.int64)[group]

    def count_events(self, events_per_shape: Ints, subscriptions: int) -> Ints:
        """The number of events of each subscription, if there is no key, given the number of events of each shape."""
        known = np.flatnonzero(self._group_of >= 0)
        per_group = np.bincount(self._group_of[known], events_per_shape[known], minlength=len(self.cells))
        _, counts = self.cells.runs(np.arange(len(self.cells)))
        found = np.bincount(self.cells.columns[0], np.repeat(per_group, counts), minlength=subscriptions)
        return found.astype(np.int64)

    def candidates(self, events: EventColumns, shapes: Numbers) -> Iterator[Matches]:
        """Pairs of an event and a subscription, a limited number at once; `shapes` are ordinals, -1 for none."""
        group = self._group_of[shapes]
        rows = np.flatnonzero(group >= 0)
        yield from self._find(events, rows, group if len(rows) == len(group) else group[rows])

    def _find(self, events: EventColumns, rows: Ints, group: Ints | Numbers) -> Iterator[Matches]:
        for chosen, start, counts in self._pieces(group):
            yield Matches(np.repeat(rows[chosen], counts), self.cells.columns[0][expand_runs(start, counts)])

    def _pieces(self, cell: Ints | Numbers) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Positions of cells with subscriptions, and their runs; together about BLOCK candidates at once."""
        for at in range(0, len(cell), BLOCK):
            start, counts = self.cells.runs(cell[at : at + BLOCK])
            chosen = np.flatnonzero(counts)
            start, counts = start[chosen], counts[chosen].astype(np.int64)
            chosen += at
            total = np.cumsum(counts)
            cuts = np.arange(BLOCK, total[-1] if len(total) else 0, BLOCK)
            ends = np.unique(np.append(np.searchsorted(total, cuts), len(chosen)))
            begin = 0
            for end in ends.tolist():
                yield chosen[begin:end], start[begin:end], counts[begin:end]
                begin = end


class ValueLookup(Lookup):
    """Finds subscriptions by the group of the shape and the value of an attribute."""

    method = "equal"

    def __init__(self, groups: Groups, subscription: Ints, keys: KeyColumns, rows: Ints) -> None:
        self.key = keys.key
        self._values = _values_of(key_type(keys.key.type), [keys.values[row] for row in rows.tolist()])
        self._size = len(self._values)
        cell = groups.entry_group * self._size + self._values.given[groups.entry]
        self._fill(groups, Cells(cell, len(groups) * self._size, subscription[groups.entry].astype(np.int32)))

    def _find(self, events: EventColumns, rows: Ints, group: Ints | Numbers) -> Iterator[Matches]:
        assert self.key is not None
        code = self._values.codes(events, self.key, rows)
        found = np.flatnonzero(code >= 0)
        if len(found) < len(code):
            rows, group, code = rows[found], group[found], code[found]
        yield from super()._find(events, rows, group.astype(np.int64) * self._size + code)


class NumberValues:
    """Codes of the distinct numbers that subscriptions compare with."""

    def __init__(self, values: Ints) -> None:
        distinct, self.given = np.unique(values, return_inverse=True)
        self._size = len(distinct)
        self._least = distinct[:1].view(np.uint64)
        span = int(distinct[-1]) - int(distinct[0]) + 1
        self._direct: npt.NDArray[np.int32] | None = None
        self._table: IntTable | None = None
        if span <= DIRECT * len(distinct) + 1024:
            self._direct = np.full(span + 1, -1, np.int32)
            self._direct[distinct - distinct[0]] = np.arange(len(distinct))
        else:
            self._table = IntTable(distinct)

    def __len__(self) -> int:
        return self._size

    def codes(self, events: EventColumns, key: Attribute, rows: Ints) -> Numbers:
        """Return the code of each row's value; -1 if no subscription compares with it."""
        values, known = events.numbers(key)
        whole = len(rows) == len(values)
        values = _number_keys(values if whole else values[rows])
        code = self._codes(values)
        if known is not None:
            code[~(known if whole else known[rows])] = -1
        return code

    def _codes(self, values: Ints) -> Numbers:
        if self._direct is None:
            assert self._table is not None
            return self._table.find(values)
        offset = values.view(np.uint64) - self._least  # modulo 2**64: values below the least one become large
        found: Numbers = self._direct[np.minimum(offset, np.uint64(len(self._direct) - 1))]
        return found


class TextValues:
    """Codes of the distinct texts or bytes that subscriptions compare with."""

    def __init__(self, values: Sequence[Any], type_: pa.DataType) -> None:
        coded = pa.array(values, type_).dictionary_encode()
        self._values, self.given = coded.dictionary, coded.indices.to_numpy().astype(np.int64)

    def __len__(self) -> int:
        return len(self._values)

    def codes(self, events: EventColumns, key: Attribute, rows: Ints) -> Numbers:
        """Return the code of each row's value; -1 if no subscription compares with it."""
        column = events.text(key.name, key.type)
        if column is None:
            return np.full(len(rows), -1, np.int32)
        return find_texts(column if len(rows) == events.rows else column.take(pa.array(rows)), self._values)


def find_texts(column: pa.Array, values: pa.Array) -> Numbers:
    """Return the position of each text or bytes of a column among some values; -1 if it is null or not there.

    >>> find_texts(pa.array(["b", None, "c"]), pa.array(["a", "b"])).tolist()
    [1, -1, -1]
    """
    if pa.types.is_dictionary(column.type):
        of_value = np.append(find_texts(column.dictionary, values), np.int32(-1))
        found: Numbers = of_value[pc.fill_null(column.indices, len(of_value) - 1).to_numpy()]
        return found
    plain = column if column.type == values.type else column.cast(values.type)
    positions: Numbers = pc.fill_null(pc.index_in(plain, values, skip_nulls=True), -1).to_numpy()
    return positions


def _values_of(type_: pa.DataType, values: Sequence[Any]) -> NumberValues | TextValues:
    if type_ in (pa.int64(), pa.float64()):
        return NumberValues(_number_keys(np.array(values, type_.to_pandas_dtype())))
    return TextValues(values, type_)


def _number_keys(values: Bounds) -> Ints:
    """Numbers as integers that are equal where they are; -0.0 is 0.0."""
    return (values + 0.0).view(np.int64) if values.dtype == np.float64 else values  # type: ignore[return-value]


class RangeLookup(Lookup):
    """Finds subscriptions by the group of the shape and the bin of an attribute's value, then compares the bounds."""

    method = "range"

    def __init__(self, groups: Groups, subscription: Ints, keys: KeyColumns, rows: Ints) -> None:
        self.key, number = keys.key, key_type(keys.key.type).to_pandas_dtype()
        low, high = (np.array(bounds, number)[rows] for bounds in (keys.low, keys.high))
        self._positions = positions_for(low, high)
        first, last = self._positions.of(low)[groups.entry], self._positions.of(high)[groups.entry]
        bins = bins_per_group(first, last, groups.entry_group, len(groups))
        self._bins, self._base = bins, np.cumsum(bins) - bins
        first, last = bin_of(first, bins[groups.entry_group]), bin_of(last, bins[groups.entry_group])
        covered = last - first + 1
        cell = expand_runs(self._base[groups.entry_group] + first, covered)
        entry = np.repeat(groups.entry, covered)
        columns = subscription[entry].astype(np.int32), low[entry], high[entry]
        self._fill(groups, Cells(cell, int(bins.sum()), *columns))

    def _find(self, events: EventColumns, rows: Ints, group: Ints | Numbers) -> Iterator[Matches]:
        assert self.key is not None
        values, known = events.numbers(self.key)
        if known is not None:
            mine = np.flatnonzero(known[rows])
            rows, group = rows[mine], group[mine]
        for at in range(0, len(rows), BLOCK):
            chosen = rows[at : at + BLOCK]
            yield from self._find_values(values[chosen], chosen, group[at : at + BLOCK])

    def _find_values(self, values: Values, rows: Ints, group: Ints | Numbers) -> Iterator[Matches]:
        cell = self._base[group] + bin_of(self._positions.of(values), self._bins[group])
        subscription, low, high = self.cells.columns
        for chosen, start, counts in self._pieces(cell):
            which, entry = np.repeat(chosen, counts), expand_runs(start, counts)
            value = values[which]
            inside = np.flatnonzero((low[entry] <= value) & (value <= high[entry]))
            yield Matches(rows[which[inside]], subscription[entry[inside]])
