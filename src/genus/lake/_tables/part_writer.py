"""Tables of a lake: their columns, and the Parquet files of their parts, written by Spark's tasks.

A family's table has one column per attribute, in vector order, NULL where the attribute is absent, followed by columns
that Genus adds. The names of the added columns begin with an underscore; attribute names never do. Unsigned integers
are stored in the next wider signed type because Spark has no unsigned ones. An enum is stored by value, a nested struct
or a list as JSON. Files have durations as integers, in microseconds, because open table formats have no durations.

The files of an attribute that was renamed keep the column name that it had first, so that files of all times are alike;
tables show it under its present name.

A file is named by the partition, its number there and its content. So a task that is retried, or run twice at the same
time, writes the same files again if it gets the rows in the same order, and otherwise files with other names: it never
changes a file that another attempt has reported.
The driver gets a small report of each file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from genus.lake._tables.commits import CODE, INGESTED, POSITION, RECORDED, SHAPE, SOURCE, TAG, TYPE, StoredFile
from genus.lake._tables.file_systems import FileSystem
from genus.lake._tables.files import WrittenContent, content_of, put_content
from genus.model import micros_of_time
from genus.model.types import AttributeType, DurationType, Vector
from genus.targets import arrow

INSTANT = pa.timestamp("us", tz="UTC")
FIRST_US = micros_of_time(datetime.min.replace(tzinfo=UTC))
LAST_US = micros_of_time(datetime.max.replace(tzinfo=UTC))
"""The times that a lake can store, the years 1 to 9999, in microseconds since 1970."""

OWN_SCHEMA = pa.schema(
    [
        pa.field(TYPE, pa.string(), nullable=False),
        pa.field(CODE, pa.string(), nullable=False),  # decimal digits: prime products may exceed 64 bits
        pa.field(TAG, pa.string(), nullable=False),  # hexadecimal digits: vectors may exceed 64 bits
        pa.field(SHAPE, pa.int64(), nullable=False),
        pa.field(SOURCE, pa.int64(), nullable=False),
        pa.field(POSITION, pa.int64(), nullable=False),
        pa.field(RECORDED, INSTANT, nullable=False),
        pa.field(INGESTED, INSTANT, nullable=False),
    ]
)
"""Columns that Genus adds to the attributes in Parquet files; commit and day are in the paths of files."""

DEAD_SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field(SOURCE, pa.int64(), nullable=False),
        pa.field(POSITION, pa.int64(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
        pa.field(INGESTED, INSTANT, nullable=False),
    ]
)
"""Columns of the dead-letter table."""

_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def stored_type(type_: AttributeType) -> pa.DataType:
    """Return the Arrow type of an attribute's column.

    >>> from genus.model.types import IntType
    >>> stored_type(IntType(16, signed=False))
    DataType(int32)
    """
    found = arrow.stored_type(type_)
    return _SIGNED.get(found, found)


def attribute_schema(vector: Vector) -> pa.Schema:
    return pa.schema([pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector])


def event_schema(vector: Vector) -> pa.Schema:
    """Return the Arrow schema of a family's events: attributes by their present names, then the added columns."""
    return pa.schema([*attribute_schema(vector), *OWN_SCHEMA])


def file_schema(vector: Vector) -> pa.Schema:
    """Return the Arrow schema of a family's Parquet files, which has the first names of attributes."""
    columns = [
        pa.field(each.first_name, pa.int64() if isinstance(each.type, DurationType) else stored_type(each.type))
        for each in vector
    ]
    return pa.schema([*columns, *OWN_SCHEMA])


ROW_GROUP = 32 * 1024
"""Rows of a row group: few, so that a question about one type of many reads little; see `docs/benchmarks.md`."""
MAX_ROWS = 4_000_000
"""Rows of a file at most, and of all files that a task has open; their content is in memory."""
_Place: TypeAlias = tuple[str, str]
"""Where rows belong: the table, and the folder."""
_PLAIN = {POSITION, RECORDED, "time"}
"""Columns with hardly any equal values."""


def write_parquet(stream: Any, table: pa.Table) -> None:
    write_tables(stream, table.schema, [table])


def write_tables(stream: Any, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a file of the rows of several tables, which are needed one after the other only."""
    with open_parquet(stream, schema) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP)


def open_parquet(stream: Any, schema: pa.Schema) -> pq.ParquetWriter:
    dictionaries = [name for name in schema.names if name not in _PLAIN]
    return pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=dictionaries, write_page_checksum=True)


# -- what tasks return -------------------------------------------------------------------------------------------------

RESULT_SCHEMA = "path string, content binary"
"""Rows that tasks return: reports, which have no path, and before them the files that the driver has to write."""
_RESULT = pa.schema([("path", pa.string()), ("content", pa.binary())])


def result_row(path: str | None, content: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([path], pa.string()), pa.array([content], pa.binary())], schema=_RESULT)


class DriverUpload:
    """Files of one task that the driver writes, because pyarrow has no file system for the path of the lake.

    Everything written then passes through one process, so this is for small lakes on unusual file systems.
    """

    def __init__(self) -> None:
        self._files: list[tuple[str, bytes]] = []

    def write(self, path: str, write: Callable[[Any], None]) -> WrittenContent:
        content = content_of(write).to_pybytes()
        self._files.append((path, content))
        return WrittenContent.of(content)

    def rows(self, *reports: bytes) -> Iterator[pa.RecordBatch]:
        yield from (result_row(path, content) for path, content in self._files)
        yield from (result_row(None, report) for report in reports)


def write_uploads(files: FileSystem, rows: Iterable[Any]) -> Iterator[bytes]:
    """Write the files that tasks returned, and yield their reports."""
    for path, content in rows:
        if path is None:
            yield bytes(content)
        else:
            files.replace(path, bytes(content))


# -- in tasks ----------------------------------------------------------------------------------------------------------


class FileReport(msgspec.Struct, frozen=True):
    """A file that a task wrote."""

    table: str
    folder: str
    """Path relative to the store."""
    file: StoredFile
    shapes: Mapping[int, int] | None = None
    """The number of rows of each shape; None if they were not counted."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.file.name}"


class WritePlan(msgspec.Struct, frozen=True):
    """What tasks write: rows of one table, or of several, each in a column of structs of its name."""

    root: str
    """Path of the store."""
    draft: str
    """Name of the folder of the draft in the folder of a table."""
    tables: Mapping[str, pa.Schema]
    """The columns of the files, by table."""
    days: str | None
    """The column of days, each of which gets a folder."""
    upload: bool
    """Whether the driver writes the files."""

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        if batch.schema.names != list(self.tables) or not all(map(pa.types.is_struct, batch.schema.types)):
            yield next(iter(self.tables)), pa.Table.from_batches([batch])
            return
        for name, column in zip(self.tables, batch.columns, strict=True):
            yield name, pa.Table.from_struct_array(column.filter(column.is_valid()))


class _OpenFile:
    """A file that is being written. State: its content so far, and the rows of the next row group."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._stream = pa.BufferOutputStream()
        self._writer = open_parquet(self._stream, schema)
        self._next: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows; only whole row groups are written."""
        self.rows += rows.num_rows
        self._next.append(rows.select(self._schema.names).cast(self._schema))
        waiting = sum(each.num_rows for each in self._next)
        if waiting >= ROW_GROUP:
            self._flush(waiting - waiting % ROW_GROUP)

    def close(self) -> pa.Buffer:
        if self._next:
            self._flush(sum(each.num_rows for each in self._next))
        self._writer.close()
        return self._stream.getvalue()

    def _flush(self, count: int) -> None:
        rows = pa.concat_tables(self._next)
        self._writer.write_table(rows.slice(0, count), row_group_size=ROW_GROUP)
        self._next = [rows.slice(count)] if count < rows.num_rows else []


class PartitionWriter:
    """Writes the rows of one partition. State: the files that are open, one for each table and day."""

    def __init__(self, plan: WritePlan, partition: int) -> None:
        self._plan, self._partition = plan, partition
        self._open: dict[_Place, _OpenFile] = {}
        self._files = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows; returns a report of each file, after its content if the driver writes it."""
        for batch in batches:
            for table, rows in self._plan.rows_of(batch):
                for place, part in self._places(table, rows):
                    yield from self._add(place, part)
        for place in list(self._open):
            yield from self._close(place)

    def _places(self, table: str, rows: pa.Table) -> Iterator[tuple[_Place, pa.Table]]:
        """Yield the rows by where they belong: those of each day in a folder of its own."""
        folder = f"{table}/{self._plan.draft}"
        if self._plan.days is None:
            yield (table, folder), rows
            return
        days = rows.column(self._plan.days).cast(pa.int32()).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for start, end in pairwise(cuts if len(days) else ()):
            day = np.datetime64(int(days[start]), "D")
            yield (table, f"{folder}/{self._plan.days}={day}"), rows.slice(start, end - start)

    def _add(self, place: _Place, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        while rows.num_rows:
            if place not in self._open:
                self._open[place] = _OpenFile(self._plan.tables[place[0]])
            file = self._open[place]
            room = MAX_ROWS - file.rows
            file.add(rows.slice(0, room))
            rows = rows.slice(room)
            if file.rows == MAX_ROWS:
                yield from self._close(place)
        if sum(file.rows for file in self._open.values()) > MAX_ROWS:
            yield from self._close(max(self._open, key=lambda each: self._open[each].rows))

    def _close(self, place: _Place) -> Iterator[pa.RecordBatch]:
        file = self._open.pop(place)
        content = file.close()
        written = WrittenContent.of(memoryview(content))
        name = f"part-{self._partition:05}-{self._files:03}-{written.checksum[:12]}.parquet"
        self._files += 1
        path = f"{self._plan.root}/{place[1]}/{name}"
        if self._plan.upload:
            yield result_row(path, content.to_pybytes())
        else:
            put_content(path, content)
        stored = StoredFile(name, file.rows, *written)
        yield result_row(None, msgspec.json.encode(FileReport(*place, stored)))
