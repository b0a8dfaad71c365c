"""Reads the events of one family from Parquet files: of each row group that can have matches, the columns needed.

The footer of a file says the bounds of each column in each row group. A row group is skipped if no row can match, and
its predicate is not evaluated if all rows do. Otherwise the types are read first, then the tested columns up to the
last row of a type that is asked for, and the others only if a row matches: rows are sorted by type in most files.
Checksums of pages are verified.
"""

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from genus.errors import LakeDamaged
from genus.filters import Subscription
from genus.lake._local.zones import ABSENT, ANY, TRUE, Values, Zone, outcomes
from genus.lake._tables.columns import CODE, DAY, OWN_SCHEMA, TAG, TYPE, stored_type
from genus.lake._tables.files import local_path, open_input
from genus.model import Attribute, Vector
from genus.model._vector import hidden_names
from genus.targets import arrow
from genus.targets._arrow_values import constant

_DICTIONARIES = [TYPE, CODE, TAG]
"""Columns with few values, which are read as dictionaries and decoded when their rows are selected."""
_EPOCH = date(1970, 1, 1)
ROWS_AT_ONCE = 128 * 1024
"""Small row groups are read together, up to so many rows."""
_NOTHING = pa.RecordBatch.from_arrays([], [])
EVENT_FIELDS = {field.name: field for field in (*OWN_SCHEMA, pa.field(DAY, pa.date32()))}


class DataFile(NamedTuple):
    """A file of a table."""

    path: str
    day: date | None


class Footer:
    """The footer of a file: where its columns are, and what is known of their values in each row group."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self._columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        self._values: dict[tuple[int, str], Values] = {}

    def values(self, group: int, column: str) -> Values:
        """What the statistics of a row group say of a column; a column that the file does not have is absent."""
        found = self._values.get((group, column))
        if found is None:
            at = self._columns.get(column)
            found = ABSENT if at is None else _values(self.metadata.row_group(group), at)
            self._values[group, column] = found
        return found


class RowGroups(NamedTuple):
    """Row groups of a file that can have matches, and of which the same is known; they are read as one."""

    file: DataFile
    footer: Footer
    numbers: tuple[int, ...]
    rows: int
    is_whole: bool
    """Whether all rows match."""
    is_typed: bool
    """Whether all rows are of types that match."""

    @property
    def bytes(self) -> int:
        """The size of all columns in the file."""
        return sum(compressed_bytes(self.footer.metadata.row_group(number)) for number in self.numbers)

    def has_value(self, column: str) -> bool:
        """Whether a column may have a value in one of the row groups."""
        return any(self.footer.values(number, column).may_be_present for number in self.numbers)


class Rows(NamedTuple):
    """The rows that are of types that match: those from `start` up to `stop` that are in a mask."""

    start: int
    stop: int
    mask: pa.BooleanArray | None = None
    """None if all of them are."""


def compressed_bytes(group: Any) -> int:
    """The size of the columns of a row group in the file."""
    return sum(group.column(n).total_compressed_size for n in range(group.num_columns))


def open_file(file: DataFile, metadata: Any = None) -> Any:
    """Open a Parquet file; LakeDamaged if it is not one."""
    local = local_path(file.path)
    try:
        return pq.ParquetFile(
            open_input(file.path) if local is None else local,
            metadata=metadata,
            memory_map=local is not None,
            pre_buffer=local is None,
            read_dictionary=_DICTIONARIES,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as problem:
        raise damaged(file, problem) from problem


def damaged(file: DataFile, problem: Exception) -> LakeDamaged:
    """The error for a file that cannot be read."""
    what = str(problem).partition("\n")[0]
    return LakeDamaged(f"{file.path} cannot be read: {what}; see `genus lake check`, restore it from a backup")


def read_footer(file: DataFile) -> Footer:
    """The footer of a file; those of the files that were read last are kept until they are changed."""
    local = local_path(file.path)
    if local is None:
        return _read_footer(file)
    try:
        status = os.stat(local)
    except OSError as problem:
        raise damaged(file, problem) from problem
    return _known_footer(file, status.st_ino, status.st_size, status.st_mtime_ns)


def _read_footer(file: DataFile) -> Footer:
    with open_file(file) as opened:
        return Footer(opened.metadata)


@lru_cache(128)
def _known_footer(file: DataFile, *_status: int) -> Footer:
    return _read_footer(file)


class TableScan:
    """How the files of one family are read; has no state, so that threads may share it.

    Args:
        subscription: What is asked.
        vector: The attributes of the family.
        types: The names of its types that can match.
        schema: The columns of the result.
        sources: The attribute of each column of the result; columns of other families are NULL.
        others: The names of all other types that files of the family have events of; None if they are not known.
    """

    def __init__(
        self,
        subscription: Subscription,
        vector: Vector,
        types: Sequence[str],
        schema: pa.Schema,
        sources: Mapping[str, str],
        *,
        others: Sequence[str] | None = None,
    ) -> None:
        self.subscription = subscription
        self.types = sorted(types)
        self.schema = schema
        self._sources = sources
        self._others = None if others is None else sorted(others)
        self._filter = arrow.compile(subscription)
        self._first_names = {attribute.name: attribute.first_name for attribute in vector}
        self._hidden = hidden_names(vector, subscription.vector)
        self._tested = self._filter.reads
        self._is_tested = bool(self._tested) or subscription.where is not None

    # -- which row groups --------------------------------------------------------------------------------------------

    def row_groups(self, file: DataFile) -> list[RowGroups]:
        """The row groups of a file that can have matches, by its footer; some are read as one, up to `ROWS_AT_ONCE`."""
        footer = read_footer(file)
        found: list[RowGroups] = []
        for number in range(footer.metadata.num_row_groups):
            group = self._row_group(file, footer, number)
            if group is None:
                continue
            last = found[-1] if found else group
            is_alike = (last.is_whole, last.is_typed) == (group.is_whole, group.is_typed)
            if found and is_alike and last.rows + group.rows <= ROWS_AT_ONCE:
                found[-1] = last._replace(numbers=(*last.numbers, number), rows=last.rows + group.rows)
            else:
                found.append(group)
        return found

    def _row_group(self, file: DataFile, footer: Footer, number: int) -> RowGroups | None:
        types = footer.values(number, TYPE)
        if not _has_between(self.types, types):
            return None
        zone = {name: self._values(footer, number, name) for name in self._tested}
        possible = outcomes(self.subscription.where, zone)
        rows = footer.metadata.row_group(number).num_rows
        if not rows or not possible & TRUE or not self._may_carry(zone):
            return None
        is_typed = self._has_no_others(types)
        is_whole = is_typed and possible == TRUE and self._carries(zone)
        return RowGroups(file, footer, (number,), rows, is_whole, is_typed)

    def _values(self, footer: Footer, number: int, name: str) -> Values:
        return ABSENT if name in self._hidden else footer.values(number, self._first_names[name])

    def _has_no_others(self, bounds: Values) -> bool:
        """Whether all rows of a row group are of types that match, if those at its bounds are."""
        if self._others is None:
            return bounds.low is not None and bounds.low == bounds.high
        return not _has_between(self._others, bounds)

    def _may_carry(self, zone: Zone) -> bool:
        asked = self.subscription
        return all(zone[name].may_be_present for name in asked.has) and all(
            zone[name].may_be_absent for name in asked.lacks
        )

    def _carries(self, zone: Zone) -> bool:
        """Whether all rows carry what is asked, and lack what is not."""
        asked = self.subscription
        return not any(zone[name].may_be_absent for name in asked.has) and not any(
            zone[name].may_be_present for name in asked.lacks
        )

    # -- which rows --------------------------------------------------------------------------------------------------

    def count(self, groups: RowGroups) -> int:
        """The number of matching rows; only the tested columns are read."""
        if groups.is_whole:
            return groups.rows
        with open_file(groups.file, groups.footer.metadata) as opened:
            rows, _, mask = self._find_rows(opened, groups)
        return rows.stop - rows.start if mask is None else int(mask.true_count)

    def read(self, groups: RowGroups) -> pa.RecordBatch | None:
        """The matching rows; None if there are none."""
        with open_file(groups.file, groups.footer.metadata) as opened:
            rows, tested, mask = self._find_rows(opened, groups)
            if rows.start == rows.stop or (mask is not None and not mask.true_count):
                return None
            read = tested.schema.names
            others = [name for name in self._result_columns() if name not in read and groups.has_value(name)]
            found = _joined(tested, self._read(opened, groups, others, rows)) if others or not read else tested
        return self._result(groups.file, found if mask is None else found.filter(mask))

    def _find_rows(self, opened: Any, groups: RowGroups) -> tuple[Rows, pa.RecordBatch, pa.BooleanArray | None]:
        """The rows of types that match, their tested columns, and which of them match; None if all do."""
        rows = Rows(0, groups.rows) if groups.is_typed else self._typed_rows(opened, groups)
        if groups.is_whole or not self._is_tested or rows.start == rows.stop:
            return rows, _NOTHING, rows.mask
        tested = self._read(opened, groups, [self._first_names[name] for name in self._tested], rows)
        mask = self._mask(rows, tested)
        return rows, tested, None if mask.true_count == len(mask) else mask

    def _typed_rows(self, opened: Any, groups: RowGroups) -> Rows:
        types = self._read(opened, groups, [TYPE], Rows(0, groups.rows))
        found = self._filter.match_types(types, self.types)
        places = pc.indices_nonzero(found)
        if not len(places):
            return Rows(0, 0)
        start, stop = places[0].as_py(), places[-1].as_py() + 1
        return Rows(start, stop, None if stop - start == len(places) else found.slice(start, stop - start))

    def _result_columns(self) -> list[str]:
        """The columns in the file that the result has."""
        return [column for name in self.schema.names if (column := self._column_of(name)) is not None]

    def _column_of(self, name: str) -> str | None:
        """The column in the file of a column of the result; None if there is none."""
        if name in EVENT_FIELDS:
            return None if name == DAY else name
        source = self._sources.get(name, "")
        if source in self._hidden and pa.types.is_string(self.schema.field(name).type):
            return None
        return self._first_names.get(source)

    def _read(self, opened: Any, groups: RowGroups, columns: Sequence[str], rows: Rows) -> pa.RecordBatch:
        """Some columns of some rows, without those that have no value; at least one, to know the rows.

        Pages are decoded up to the last of the rows only.
        """
        there = [name for name in columns if groups.has_value(name)] or [TYPE]
        found, left = [], rows.stop
        try:
            for batch in opened.iter_batches(left, groups.numbers, there, use_threads=False):
                found.append(batch)
                left -= batch.num_rows
                if left <= 0:
                    break
        except (pa.ArrowException, OSError) as problem:
            raise damaged(groups.file, problem) from problem
        if left > 0:
            raise damaged(groups.file, ValueError("it has fewer rows than its footer says"))
        table = pa.Table.from_batches(found).slice(rows.start, rows.stop - rows.start)
        return table.combine_chunks().to_batches()[0]

    def _mask(self, rows: Rows, tested: pa.RecordBatch) -> pa.BooleanArray:
        """Which of the rows match."""
        present = {self._first_names[name]: name for name in self._tested}
        names = [present.get(name, name) for name in tested.schema.names]
        found = self._filter.match_contents(pa.RecordBatch.from_arrays(tested.columns, names))
        return found if rows.mask is None else pc.and_(found, rows.mask)

    def _result(self, file: DataFile, found: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a file with the columns of the result."""
        return pa.RecordBatch.from_arrays(
            [self._result_column(file, found, field) for field in self.schema], schema=self.schema
        )

    def _result_column(self, file: DataFile, found: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == DAY:
            return pa.repeat(_date(file.day), found.num_rows)
        column = self._column_of(field.name)
        if column is None or column not in found.schema.names:
            return pa.nulls(found.num_rows, field.type)
        array = found.column(column)
        return array if array.type == field.type else array.cast(field.type)


def _date(day: date | None) -> pa.Scalar:
    return constant(None if day is None else (day - _EPOCH).days, pa.date32())


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*first.columns, *second.columns], [*first.schema.names, *second.schema.names])


def _has_between(names: Sequence[str], bounds: Values) -> bool:
    """Whether a type can be among some sorted names, by what is known of the types of a row group."""
    if bounds.low is None or bounds.high is None:
        return bool(names)
    at = bisect_left(names, bounds.low.decode())
    return at < len(names) and names[at] <= bounds.high.decode()


def _values(group: Any, column: int) -> Values:
    """What the statistics of a column say; bounds that are not numbers are not used."""
    found = group.column(column).statistics
    if found is None:
        return ANY
    nulls = found.null_count if found.has_null_count else None
    if nulls == group.num_rows:
        return ABSENT
    may_be_absent = nulls != 0
    if not found.has_min_max or found.min_raw != found.min_raw or found.max_raw != found.max_raw:
        return Values(may_be_absent=may_be_absent)
    return Values(found.min_raw, found.max_raw, may_be_absent=may_be_absent)


def result_schema(columns: Sequence[str], attributes: Mapping[str, Attribute]) -> pa.Schema:
    """The schema of a result; `attributes` are those of its columns."""
    return pa.schema([EVENT_FIELDS.get(name) or pa.field(name, stored_type(attributes[name].type)) for name in columns])
