"""Reads the events of one family from Parquet files: of each row group that can have matches, the columns needed.

The footer of a file says the bounds of each column in each row group; row groups without matches are skipped. Checksums
of pages are verified.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache, partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from genus.errors import LakeDamaged
from genus.filters import Subscription
from genus.lake._query.selection import ABSENT, ANY, TRUE, Values, outcomes
from genus.lake._tables.commits import BATCH, CODE, DAY, TAG, TYPE
from genus.lake._tables.files import local_path, open_input
from genus.lake._tables.part_writer import OWN_SCHEMA
from genus.model.internal import hidden_names
from genus.model.types import Vector
from genus.targets import arrow
from genus.targets.internal import constant

_DICTIONARIES = [TYPE, CODE, TAG]
"""Columns with few values, which are read as dictionaries and decoded when their rows are selected."""
_EPOCH = date(1970, 1, 1)
EVENT_FIELDS = {field.name: field for field in (*OWN_SCHEMA, pa.field(DAY, pa.date32()), pa.field(BATCH, pa.int64()))}


class DataFile(NamedTuple):
    path: str
    day: date | None


class Footer:
    """The footer of a file: where its columns are, and what is known of their values in each row group."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self._columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        self._values: dict[tuple[int, str], Values] = {}

    def values(self, group: int, column: str) -> Values:
        """Return what the statistics of a row group say of a column; a column that the file does not have is absent."""
        found = self._values.get((group, column))
        if found is None:
            at = self._columns.get(column)
            found = ABSENT if at is None else _values(self.metadata.row_group(group), at)
            self._values[group, column] = found
        return found


class RowGroup(NamedTuple):
    file: DataFile
    footer: Footer
    number: int
    types: Sequence[str]
    """The types that can match, of those that it can have."""

    @property
    def rows(self) -> int:
        return int(self.footer.metadata.row_group(self.number).num_rows)

    def has_value(self, column: str) -> bool:
        return self.footer.values(self.number, column).may_be_present


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
    what = str(problem).partition("\n")[0]
    return LakeDamaged(f"{file.path} cannot be read: {what}; see `genus lake check`, restore it from a backup")


@lru_cache(1024)
def read_footer(file: DataFile) -> Footer:
    """Return the footer of a file; those of the files that were read last are kept, as files of a lake never change."""
    with open_file(file) as opened:
        return Footer(opened.metadata)


class TableScan:
    """How the files of one family are read; has no state, so that threads may share it.

    `types` are those that can match, `schema` is that of the result, and `sources` has the attribute of each of its
    columns, by default the one of its name. Other columns are NULL.
    """

    def __init__(
        self,
        subscription: Subscription,
        vector: Vector,
        types: Sequence[str],
        schema: pa.Schema,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.subscription = subscription
        self.types = sorted(types)
        self.schema = schema
        self._sources = {name: name for name in schema.names} if sources is None else sources
        self._filter = arrow.compile(subscription)
        self._first_names = {attribute.name: attribute.first_name for attribute in vector}
        self._hidden = hidden_names(vector, subscription.vector)
        self._tested = {self._first_names[name]: name for name in self._filter.reads}

    def row_groups(self, file: DataFile) -> list[RowGroup]:
        """Return the row groups of a file that can have matches, by its footer."""
        footer = read_footer(file)
        groups = (self._row_group(file, footer, number) for number in range(footer.metadata.num_row_groups))
        return [group for group in groups if group.rows and group.types and self._can_match(group)]

    def _row_group(self, file: DataFile, footer: Footer, number: int) -> RowGroup:
        low, high, *_ = footer.values(number, TYPE)
        first = 0 if low is None else bisect_left(self.types, low.decode())
        last = len(self.types) if high is None else bisect_right(self.types, high.decode())
        return RowGroup(file, footer, number, self.types[first:last])

    def _can_match(self, group: RowGroup) -> bool:
        asked, values = self.subscription, partial(group.footer.values, group.number)
        zone = {name: ABSENT if name in self._hidden else values(column) for column, name in self._tested.items()}
        return (
            all(zone[name].may_be_present for name in asked.has)
            and all(zone[name].may_be_absent for name in asked.lacks)
            and bool(outcomes(asked.where, zone) & TRUE)
        )

    def read_file(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        return (batch for group in self.row_groups(file) if (batch := self.read(group)) is not None)

    def count(self, group: RowGroup) -> int:
        """Return the number of matching rows; only the type and the tested columns are read."""
        with open_file(group.file, group.footer.metadata) as opened:
            return int(self._mask(group, self._read(opened, group, [TYPE, *self._tested], group.rows)).true_count)

    def read(self, group: RowGroup) -> pa.RecordBatch | None:
        """Return the matching rows; None if there are none.

        The type and the tested columns are read first, the others up to the last row that matches.
        """
        with open_file(group.file, group.footer.metadata) as opened:
            tested = self._read(opened, group, [TYPE, *self._tested], group.rows)
            mask = self._mask(group, tested)
            if not mask.true_count:
                return None
            rows = pc.indices_nonzero(mask)[-1].as_py() + 1
            wanted = [column for name in self.schema.names if (column := self._column_of(name)) is not None]
            others = [name for name in wanted if name not in tested.schema.names and group.has_value(name)]
            more = _columns(self._read(opened, group, others, rows)) if others else {}
        columns = _columns(tested.slice(0, rows)) | more
        kept = mask.slice(0, rows)
        arrays = [self._result_column(group.file, columns, field, kept) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _read(self, opened: Any, group: RowGroup, columns: Sequence[str], rows: int) -> pa.RecordBatch:
        """The first rows of some columns, without those that have no value; pages are decoded up to these rows."""
        there = [name for name in columns if group.has_value(name)]
        found, left = [], rows
        try:
            for batch in opened.iter_batches(rows, [group.number], there, use_threads=False):
                found.append(batch)
                left -= batch.num_rows
                if left <= 0:
                    break
        except (pa.ArrowException, OSError) as problem:
            raise damaged(group.file, problem) from problem
        if left > 0:
            raise damaged(group.file, ValueError("it has fewer rows than its footer says"))
        return found[0] if len(found) == 1 else pa.Table.from_batches(found).combine_chunks().to_batches()[0]

    def _mask(self, group: RowGroup, tested: pa.RecordBatch) -> pa.BooleanArray:
        names = [self._tested.get(name, name) for name in tested.schema.names]
        return self._filter.mask(tested.rename_columns(names), group.types)

    def _column_of(self, name: str) -> str | None:
        """Return the column in the file of a column of the result; None if there is none."""
        if name in EVENT_FIELDS:
            return None if name == DAY else name
        source = self._sources.get(name, "")
        if source in self._hidden and pa.types.is_string(self.schema.field(name).type):
            return None
        return self._first_names.get(source)

    def _result_column(
        self, file: DataFile, columns: Mapping[str, pa.Array], field: pa.Field, kept: pa.BooleanArray
    ) -> pa.Array:
        if field.name == DAY:
            day = None if file.day is None else (file.day - _EPOCH).days
            return pa.repeat(constant(day, pa.date32()), kept.true_count)
        column = columns.get(self._column_of(field.name) or "")
        if column is None:
            return pa.nulls(kept.true_count, field.type)
        found = column.filter(kept)
        return found if found.type == field.type else found.cast(field.type)


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _values(group: Any, column: int) -> Values:
    """Return what the statistics of a column say; bounds that are not numbers are not used."""
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
