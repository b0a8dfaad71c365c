"""Reads the events of one family from Parquet files: of each row group that can have matches, the columns needed.

The footer of a file says the bounds of each column in each row group. A row group is skipped if no row can match, and
its predicate is not evaluated if all rows do. Otherwise the tested columns are read first, and the others only if a row
matches. Checksums of pages are verified.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from genus.errors import LakeDamaged
from genus.filters import Subscription
from genus.lake._local.zones import ABSENT, ANY, TRUE, Values, Zone, outcomes
from genus.lake._tables.columns import CODE, DAY, OWN_SCHEMA, TAG, TYPE, stored_type
from genus.lake._tables.files import local_path, open_input
from genus.model import Attribute, Vector
from genus.targets import arrow
from genus.targets._arrow_values import constant, constants

_DICTIONARIES = [TYPE, CODE, TAG]
"""Columns with few values, which are read as dictionaries and decoded when their rows are selected."""
_EPOCH = date(1970, 1, 1)
EVENT_FIELDS = {field.name: field for field in (*OWN_SCHEMA, pa.field(DAY, pa.date32()))}


class DataFile(NamedTuple):
    """A file of a table."""

    path: str
    day: date | None


class RowGroup(NamedTuple):
    """A row group that can have matches."""

    file: DataFile
    metadata: Any
    """The metadata of the file, so that its footer is read once."""
    number: int
    rows: int
    is_whole: bool
    """Whether all rows match."""
    is_typed: bool
    """Whether all rows are of types that match."""
    absent: frozenset[str]
    """Columns in the file that have no value."""

    @property
    def bytes(self) -> int:
        """The size of its columns in the file."""
        return compressed_bytes(self.metadata.row_group(self.number))


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
            read_dictionary=_DICTIONARIES,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as problem:
        raise damaged(file, problem) from problem


def damaged(file: DataFile, problem: Exception) -> LakeDamaged:
    """The error for a file that cannot be read."""
    what = str(problem).partition("\n")[0]
    return LakeDamaged(f"{file.path} cannot be read: {what}; see `genus lake check`, restore it from a backup")


class TableScan:
    """How the files of one family are read; has no state, so that threads may share it.

    Args:
        subscription: What is asked.
        vector: The attributes of the family.
        types: The names of its types that can match.
        schema: The columns of the result.
        sources: The attribute of each column of the result; columns of other families are NULL.
        is_every_type: Whether the files have events of these types only.
    """

    def __init__(
        self,
        subscription: Subscription,
        vector: Vector,
        types: Sequence[str],
        schema: pa.Schema,
        sources: Mapping[str, str],
        *,
        is_every_type: bool = False,
    ) -> None:
        self.subscription = subscription
        self.types = sorted(types)
        self.schema = schema
        self._sources = sources
        self._is_every_type = is_every_type
        self._filter = arrow.compile(subscription)
        self._first_names = {attribute.name: attribute.first_name for attribute in vector}
        self._tested = self._filter.reads

    # -- which row groups --------------------------------------------------------------------------------------------

    def row_groups(self, file: DataFile) -> list[RowGroup]:
        """The row groups of a file that can have matches, by its footer."""
        with open_file(file) as opened:
            metadata = opened.metadata
        columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        found = (self._row_group(file, metadata, number, columns) for number in range(metadata.num_row_groups))
        return [group for group in found if group is not None]

    def _row_group(self, file: DataFile, metadata: Any, number: int, columns: Mapping[str, int]) -> RowGroup | None:
        group = metadata.row_group(number)
        type_bounds = _values(group, columns[TYPE], group.num_rows)
        candidates = self._types_within(type_bounds)
        if not candidates or not group.num_rows:
            return None
        zone = {name: self._values(group, name, columns) for name in self._tested}
        possible = outcomes(self.subscription.where, zone)
        if not possible & TRUE or not self._may_carry(zone):
            return None
        is_typed = self._is_every_type or (type_bounds.low is not None and type_bounds.low == type_bounds.high)
        is_whole = is_typed and possible == TRUE and self._carries(zone)
        absent = frozenset(name for name, at in columns.items() if _values(group, at, group.num_rows) is ABSENT)
        return RowGroup(file, metadata, number, group.num_rows, is_whole, is_typed, absent)

    def _values(self, group: Any, name: str, columns: Mapping[str, int]) -> Values:
        column = columns.get(self._first_names[name])
        return ABSENT if column is None else _values(group, column, group.num_rows)

    def _types_within(self, bounds: Values) -> list[str]:
        """The types that rows of a row group can have."""
        if bounds.low is None or bounds.high is None:
            return self.types
        low, high = bounds.low.decode(), bounds.high.decode()
        return [name for name in self.types[bisect_left(self.types, low) :] if name <= high]

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

    def count(self, group: RowGroup) -> int:
        """The number of matching rows of a row group; only the tested columns are read."""
        if group.is_whole:
            return group.rows
        with open_file(group.file, group.metadata) as opened:
            return int(self._mask(group, self._read(opened, group, self._tested_columns(group))).true_count)

    def read(self, group: RowGroup) -> pa.RecordBatch | None:
        """The matching rows of a row group; None if there are none."""
        with open_file(group.file, group.metadata) as opened:
            if group.is_whole:
                return self._result(group, self._read(opened, group, self._result_columns()))
            tested = self._read(opened, group, self._tested_columns(group))
            mask = self._mask(group, tested)
            if not mask.true_count:
                return None
            read = {*tested.schema.names, *group.absent}
            others = [name for name in self._result_columns() if name not in read]
            found = _joined(tested, self._read(opened, group, others)) if others else tested
        return self._result(group, found if mask.true_count == len(mask) else found.filter(mask))

    def _tested_columns(self, group: RowGroup) -> list[str]:
        """The columns in the file that the subscription tests."""
        return [*([] if group.is_typed else [TYPE]), *map(self._first_names.__getitem__, self._tested)]

    def _result_columns(self) -> list[str]:
        """The columns in the file that the result has."""
        return [column for name in self.schema.names if (column := self._column_of(name)) is not None]

    def _column_of(self, name: str) -> str | None:
        """The column in the file of a column of the result; None if there is none."""
        if name in EVENT_FIELDS:
            return None if name == DAY else name
        return self._first_names.get(self._sources.get(name, ""))

    def _read(self, opened: Any, group: RowGroup, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of a row group, without those that have no value; at least one, to know the rows."""
        names = set(opened.metadata.schema.names) - group.absent
        there = [name for name in columns if name in names] or [TYPE]
        try:
            table = opened.read_row_group(group.number, columns=there, use_threads=False)
        except (pa.ArrowException, OSError) as problem:
            raise damaged(group.file, problem) from problem
        return table.combine_chunks().to_batches()[0]

    def _mask(self, group: RowGroup, tested: pa.RecordBatch) -> pa.BooleanArray:
        present = {self._first_names[name]: name for name in self._tested}
        names = [present.get(name, name) for name in tested.schema.names]
        columns = list(tested.columns)
        if TYPE not in names:
            names.append(TYPE)
            columns.append(_constant(self.types[0], group.rows))
        return self._filter.mask(pa.RecordBatch.from_arrays(columns, names), self.types)

    def _result(self, group: RowGroup, found: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a file with the columns of the result."""
        return pa.RecordBatch.from_arrays(
            [self._result_column(group, found, field) for field in self.schema], schema=self.schema
        )

    def _result_column(self, group: RowGroup, found: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == DAY:
            return pa.repeat(_date(group.file.day), found.num_rows)
        column = self._column_of(field.name)
        if column is None or column not in found.schema.names:
            return pa.nulls(found.num_rows, field.type)
        array = found.column(column)
        return array if array.type == field.type else array.cast(field.type)


def _date(day: date | None) -> pa.Scalar:
    return constant(None if day is None else (day - _EPOCH).days, pa.date32())


def _constant(name: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(constant(0, pa.int8()), rows), constants([name], pa.string()))


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*first.columns, *second.columns], [*first.schema.names, *second.schema.names])


def _values(group: Any, column: int, rows: int) -> Values:
    """What the statistics of a column say; bounds that are not numbers are not used."""
    found = group.column(column).statistics
    if found is None:
        return ANY
    nulls = found.null_count if found.has_null_count else None
    if nulls == rows:
        return ABSENT
    may_be_absent = nulls != 0
    if not found.has_min_max or found.min_raw != found.min_raw or found.max_raw != found.max_raw:
        return Values(may_be_absent=may_be_absent)
    return Values(found.min_raw, found.max_raw, may_be_absent=may_be_absent)


def result_schema(columns: Sequence[str], attributes: Mapping[str, Attribute]) -> pa.Schema:
    """The schema of a result; `attributes` are those of its columns."""
    return pa.schema([EVENT_FIELDS.get(name) or pa.field(name, stored_type(attributes[name].type)) for name in columns])
