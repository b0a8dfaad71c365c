"""Writes the events of one split as Parquet files, one per family and day, with presence bits and shapes added.

Names and contents of the files depend on the split only, so a task that is retried, or run twice at the same time,
writes the same files. Rows are sorted by type and time, so that readers can skip most row groups.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.format import Chunk, Columns, DeadLetter, TypePlan, Types
from genus.lake._ingest.values import valid_rows
from genus.lake._tables.commits import (
    CODE,
    DAY,
    DEAD,
    DEAD_LETTERS,
    INGESTED,
    MAX_SHAPES,
    POSITION,
    RECORDED,
    SHAPE,
    SOURCE,
    TAG,
    TYPE,
    IngestedFile,
    Shape,
    StoredFile,
    shape_number,
    table_folder,
)
from genus.lake._tables.files import WrittenContent, write_file
from genus.lake._tables.part_writer import DEAD_SCHEMA, INSTANT, FileReport, event_schema, file_schema, write_parquet

ROWS_PER_FILE = 2_000_000
LETTERS_PER_FILE = 128 * 1024
_MICROS_PER_DAY = 86_400_000_000

Write: TypeAlias = Callable[[str, Callable[[Any], None]], WrittenContent]
"""Writes a file at a path by calling a function with a stream."""

MAX_COUNTED = 1 << 16
"""The rows of each shape are counted for files with at most this many shapes."""


class TaskReport(msgspec.Struct):
    """Result of reading a file, or one split of it."""

    source: int
    path: str = ""
    bytes: int = 0
    modified_us: int = 0
    is_known: bool = False
    """Whether the lake, or the same task, has read this content before; nothing was written then."""
    rows: int = 0
    dead: int = 0
    newest_us: int | None = None
    earlier: IngestedFile | None = None
    """The result of an earlier ingest of the file, whose dead letters are tried again."""
    files: list[FileReport] = []
    shapes: list[Shape] = []


class Origin(msgspec.Struct, frozen=True):
    """Where the rows of a split come from: the source, its path, and the commit they are written in."""

    root: str
    """Path of the lake."""
    commit: str
    source: int
    path: str
    number: int
    """Number of the split in the commit."""
    ingested_us: int


class TableWriter:
    """Writes the rows of one split. State: rows that are not written yet, by table and folder."""

    def __init__(self, origin: Origin, write: Write = write_file) -> None:
        self.report = TaskReport(origin.source, origin.path)
        self._origin = origin
        self._write_file = write
        self._waiting: dict[tuple[str, str], list[pa.Table]] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._shapes: dict[str, dict[Shape, None]] = {}
        self._files = 0

    def add(self, columns: Columns, plan: TypePlan) -> None:
        schema = self._schemas.setdefault(plan.family, event_schema(plan.vector))
        bits = presence_bits(columns.batch, plan)
        shapes = self._shapes.setdefault(plan.name, {})
        if len(shapes) <= MAX_SHAPES:
            shapes |= dict.fromkeys(Shape(plan.family, plan.name, plan.code, f"{each:x}") for each in bits.distinct)
        table = event_table(columns.batch, plan, bits, self._origin, schema)
        stored = file_schema(plan.vector)
        table = table.rename_columns(stored.names).cast(stored)
        self.report.rows += table.num_rows
        newest = pc.max(table.column(RECORDED).cast(pa.int64())).as_py()
        known = [each for each in (self.report.newest_us, newest) if each is not None]
        self.report.newest_us = max(known, default=None)
        for day, rows in _by_day(table):
            folder = f"{table_folder(plan.family)}/_commit={self._origin.commit}/{DAY}={np.datetime64(day, 'D')}"
            self._hold((plan.family, folder), [rows])

    def take(self, chunk: Chunk, types: Types) -> None:
        if not isinstance(chunk, list):
            self.add(chunk, types.expected(chunk.type))
        elif chunk:
            self.report.dead += len(chunk)
            table = dead_letter_table(chunk, self._origin)
            self._hold((DEAD_LETTERS, f"{DEAD}/_commit={self._origin.commit}"), [table])

    def take_over(self, other: "TableWriter") -> None:
        """Write the rows of another writer that it has not written yet; it reports them still."""
        for place, tables in other._waiting.items():
            self._hold(place, tables)
        other._waiting = {}

    def finish(self) -> TaskReport:
        for place in sorted(self._waiting):
            self._write(*place, self._waiting.pop(place))
        for shapes in map(list, self._shapes.values()):
            too_many = len(shapes) > MAX_SHAPES  # one without presence bits stands for them
            self.report.shapes += [msgspec.structs.replace(shapes[0], presence=None)] if too_many else shapes
        return self.report

    def _hold(self, place: tuple[str, str], tables: list[pa.Table]) -> None:
        """Keep rows of a table until there are enough for a file in their folder."""
        held = self._waiting.setdefault(place, [])
        held += tables
        max_rows = LETTERS_PER_FILE if place[0] == DEAD_LETTERS else ROWS_PER_FILE
        if sum(table.num_rows for table in held) >= max_rows:
            self._write(*place, self._waiting.pop(place))

    def _write(self, name: str, folder: str, tables: list[pa.Table]) -> None:
        table = pa.concat_tables(tables) if name == DEAD_LETTERS else _sort_rows(tables)
        file = f"part-{self._origin.number:05}-{self._files:03}.parquet"
        self._files += 1
        written = self._write_file(f"{self._origin.root}/{folder}/{file}", lambda stream: write_parquet(stream, table))
        stored = StoredFile(file, table.num_rows, *written)
        self.report.files.append(FileReport(name, folder, stored, count_shapes(table)))


def dead_letter_table(letters: Sequence[DeadLetter], origin: Origin) -> pa.Table:
    return pa.table(
        [
            pa.array([letter.reason for letter in letters], pa.string()),
            pa.repeat(origin.path, len(letters)),
            pa.repeat(pa.scalar(origin.source, pa.int64()), len(letters)),
            pa.array([letter.position for letter in letters], pa.int64()),
            pa.array([letter.raw for letter in letters], pa.string()),
            pa.repeat(pa.scalar(origin.ingested_us, INSTANT), len(letters)),
        ],
        schema=DEAD_SCHEMA,
    )


def count_shapes(table: pa.Table) -> dict[int, int] | None:
    """Return the number of rows of each shape; None if there are too many shapes, or no column of shapes."""
    if SHAPE not in table.schema.names:
        return None
    shapes, rows = np.unique(table.column(SHAPE).to_numpy(), return_counts=True)
    return dict(zip(shapes.tolist(), rows.tolist(), strict=True)) if len(shapes) <= MAX_COUNTED else None


def event_table(
    batch: pa.RecordBatch, plan: TypePlan, bits: "PresenceBits", origin: Origin, schema: pa.Schema
) -> pa.Table:
    """Events of one type with the columns of a schema, which is that of the family's files or a part of it."""
    rows = batch.num_rows
    own = {
        TYPE: pa.repeat(plan.name, rows),
        CODE: pa.repeat(plan.code, rows),
        TAG: pa.DictionaryArray.from_arrays(bits.which, pa.array([f"{each:x}" for each in bits.distinct])),
        SHAPE: pa.array([shape_number(plan.name, each) for each in bits.distinct], pa.int64()).take(bits.which),
        SOURCE: pa.repeat(pa.scalar(origin.source, pa.int64()), rows),
        INGESTED: pa.repeat(pa.scalar(origin.ingested_us, INSTANT), rows),
    }
    given = {name: batch.column(name) for name in batch.schema.names}
    columns = [_column(own | given, field, rows) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(given: dict[str, Any], field: pa.Field, rows: int) -> pa.Array:
    column = given.get(field.name)
    if column is None:
        return pa.nulls(rows, field.type)
    return column if column.type == field.type else column.cast(field.type)


class PresenceBits(NamedTuple):
    """The presence bits of a batch's rows: the distinct numbers, and the index of each row's number."""

    distinct: list[int]
    which: pa.Array


def presence_bits(batch: pa.RecordBatch, plan: TypePlan) -> PresenceBits:
    """Compute which attributes each row of a batch carries."""
    bits = {attribute.name: bit for bit, attribute in enumerate(plan.vector)}
    always = 0
    words: dict[int, npt.NDArray[np.int64]] = {}
    for name in filter(bits.__contains__, batch.schema.names):
        column = batch.column(name)
        if column.null_count == 0:
            always |= 1 << bits[name]
        elif column.null_count < batch.num_rows:
            word = words.setdefault(bits[name] // 63, np.zeros(batch.num_rows, np.int64))
            word |= valid_rows(column).astype(np.int64) << bits[name] % 63
    distinct, which = _distinct(words, batch.num_rows)
    return PresenceBits([always | varying for varying in distinct], pa.array(which, pa.int32()))


def _distinct(words: dict[int, npt.NDArray[np.int64]], rows: int) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the distinct combinations of words as numbers, and the index of each row's number."""
    if not words:
        return [0], np.zeros(rows, np.int32)
    indexes = sorted(words)
    if len(indexes) == 1:
        found, which = np.unique(words[indexes[0]], return_inverse=True)
        combined = found.reshape(-1, 1)
    else:
        combined, which = np.unique(np.stack([words[index] for index in indexes], axis=1), axis=0, return_inverse=True)
    numbers = [sum(int(word) << 63 * index for word, index in zip(row, indexes, strict=True)) for row in combined]
    return numbers, which.reshape(-1).astype(np.int32)


def _by_day(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each day of the event's time, or of its recording if it has no time."""
    at = pc.coalesce(table.column("time"), table.column(RECORDED)).cast(pa.int64()).to_numpy()
    days = at // _MICROS_PER_DAY
    if len(days) and days.min() == days.max():
        yield int(days[0]), table
        return
    for day in np.unique(days).tolist():
        yield day, table.filter(pa.array(days == day))


def _sort_rows(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of tables with one type each, sorted by type, time and position."""
    by_type: dict[str, list[pa.Table]] = {}
    for table in tables:
        by_type.setdefault(table.column(TYPE)[0].as_py(), []).append(table)
    return pa.concat_tables([_sort_by_time(pa.concat_tables(by_type[name])) for name in sorted(by_type)])


def _sort_by_time(table: pa.Table) -> pa.Table:
    """Sort the rows of one type by time, unless they are in order already, as most recorders write them."""
    if _is_ordered(table.column("time"), strict=False) and _is_ordered(table.column(POSITION), strict=True):
        return table
    order = [("time", "ascending"), (POSITION, "ascending")]
    return table.combine_chunks().take(pc.sort_indices(table.select(["time", POSITION]), sort_keys=order))


def _is_ordered(column: pa.ChunkedArray, strict: bool) -> bool:
    if column.null_count:
        return False
    steps = np.diff(column.cast(pa.int64()).to_numpy())
    return bool((steps > 0).all() if strict else (steps >= 0).all())
