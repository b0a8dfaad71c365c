"""Writing tables in a task: columns get tag, shape and day, and go to one Parquet file per family and day.

Names and contents of the files depend on the split alone, so a task that is tried again, or twice at the same time,
writes the same files. Rows are sorted by type and time in each row group, which lets readers pass over most of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from genus.lake._ingest.format import Columns, DeadLetter, TypePlan
from genus.lake._tables.columns import (
    CODE,
    DAY,
    INGESTED,
    INSTANT,
    POSITION,
    RECORDED,
    SHAPE,
    SOURCE,
    TAG,
    TYPE,
    Shape,
    file_schema,
    shape_number,
)
from genus.lake._tables.files import write_file

ROWS_PER_FILE = 2_000_000
ROW_GROUP = 128 * 1024
TABLES, DEAD = "tables", "dead"
DEAD_LETTERS = "dead letters"
"""The name of their table in the ledger; no family can be called so."""
MOST_SHAPES = 50_000
"""A split with more shapes of one family reports its types only."""

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
_MICROS_PER_DAY = 86_400_000_000


Write: TypeAlias = Callable[[str, Callable[[Any], None]], int]
"""Has a file written at a path, and returns its size."""


class Written(msgspec.Struct, frozen=True):
    """A file that a task wrote."""

    table: str
    folder: str
    rows: int
    bytes: int


class Report(msgspec.Struct):
    """What came of one split."""

    source: int
    rows: int = 0
    dead: int = 0
    newest_us: int | None = None
    files: list[Written] = []
    shapes: list[Shape] = []


class Origin(msgspec.Struct, frozen=True):
    """What a split is part of: the rows of a table say so."""

    root: str
    """The lake's path."""
    commit: str
    source: int
    path: str
    number: int
    """The split's number in the commit."""
    ingested_us: int


class TableWriter:
    """State: rows of one split that are not written yet, by family and day."""

    def __init__(self, origin: Origin, write: Write = write_file) -> None:
        self.report = Report(origin.source)
        self._origin = origin
        self._write_file = write
        self._waiting: dict[tuple[str, int], list[pa.Table]] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._shapes: dict[tuple[str, str], dict[str, Shape]] = {}
        self._letters: list[DeadLetter] = []
        self._files = 0

    def add(self, columns: Columns, plan: TypePlan) -> None:
        """Take in events of one type."""
        schema = self._schemas.setdefault(plan.family, file_schema(plan.vector))
        tags = tags_of(columns.batch, plan)
        self._note_shapes(tags, plan)
        table = table_rows(columns.batch, plan, tags, self._origin, schema)
        self.report.rows += table.num_rows
        self._note_newest(table)
        for day, rows in _by_day(table):
            key = plan.family, day
            self._waiting.setdefault(key, []).append(rows)
            self._rows[key] = self._rows.get(key, 0) + rows.num_rows
            if self._rows[key] >= ROWS_PER_FILE:
                self._flush(key)

    def _note_newest(self, table: pa.Table) -> None:
        newest = pc.max(table.column(RECORDED).cast(pa.int64())).as_py()
        self.report.newest_us = max(
            (each for each in (self.report.newest_us, newest) if each is not None), default=None
        )

    def reject(self, letters: list[DeadLetter]) -> None:
        """Take in what is no event."""
        self.report.dead += len(letters)
        self._letters += letters
        if len(self._letters) >= ROW_GROUP:
            self._flush_letters()

    def finish(self) -> Report:
        """Write what is left, and say what was written."""
        for key in sorted(self._waiting):
            self._flush(key)
        self._flush_letters()
        self.report.shapes = [shape for seen in self._shapes.values() for shape in _listed(seen)]
        return self.report

    def _note_shapes(self, tags: "Tags", plan: TypePlan) -> None:
        seen = self._shapes.setdefault((plan.family, plan.name), {})
        if len(seen) <= MOST_SHAPES:
            texts = [f"{bits:x}" for bits in tags.distinct]
            seen |= {text: Shape(plan.family, plan.name, plan.code, text) for text in texts}

    def _flush(self, key: tuple[str, int]) -> None:
        family, day = key
        waiting = self._waiting.pop(key)
        del self._rows[key]
        folder = f"{TABLES}/{family}/_commit={self._origin.commit}/{DAY}={np.datetime64(day, 'D')}"
        self._write(family, folder, _sorted(waiting))

    def _flush_letters(self) -> None:
        if not self._letters:
            return
        letters, self._letters = self._letters, []
        table = letter_rows(letters, self._origin)
        self._write(DEAD_LETTERS, f"{DEAD}/_commit={self._origin.commit}", table)

    def _write(self, name: str, folder: str, table: pa.Table) -> None:
        path = f"{self._origin.root}/{folder}/part-{self._origin.number:05}-{self._files:03}.parquet"
        self._files += 1
        size = self._write_file(path, lambda stream: _write_parquet(stream, table))
        self.report.files.append(Written(name, folder, table.num_rows, size))


def letter_rows(letters: Sequence[DeadLetter], origin: Origin) -> pa.Table:
    """Dead letters with the columns of their table."""
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


def _write_parquet(stream: Any, table: pa.Table) -> None:
    plain = {POSITION, RECORDED, "time"}
    dictionaries = [name for name in table.schema.names if name not in plain]
    pq.write_table(table, stream, row_group_size=ROW_GROUP, compression="zstd", use_dictionary=dictionaries)


def table_rows(batch: pa.RecordBatch, plan: TypePlan, tags: "Tags", origin: Origin, schema: pa.Schema) -> pa.Table:
    """Events of one type with the columns of their family's files, or with some of them."""
    rows = batch.num_rows
    own = {
        TYPE: pa.repeat(plan.name, rows),
        CODE: pa.repeat(plan.code, rows),
        TAG: pa.DictionaryArray.from_arrays(tags.which, pa.array([f"{bits:x}" for bits in tags.distinct])),
        SHAPE: pa.array([shape_number(plan.name, bits) for bits in tags.distinct], pa.int64()).take(tags.which),
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


class Tags(NamedTuple):
    """The presence bits of a batch's rows: the distinct ones, and which of them each row has."""

    distinct: list[int]
    which: pa.Array


def tags_of(batch: pa.RecordBatch, plan: TypePlan) -> Tags:
    """Which attributes the rows of a batch carry."""
    bits = {attribute.name: bit for bit, attribute in enumerate(plan.vector)}
    always = 0
    words: dict[int, npt.NDArray[np.int64]] = {}
    for name in filter(bits.__contains__, batch.schema.names):
        column = batch.column(name)
        if column.null_count == 0:
            always |= 1 << bits[name]
        elif column.null_count < batch.num_rows:
            word = words.setdefault(bits[name] // 63, np.zeros(batch.num_rows, np.int64))
            word |= _valid(column).astype(np.int64) << bits[name] % 63
    distinct, which = _distinct(words, batch.num_rows)
    return Tags([always | varying for varying in distinct], pa.array(which, pa.int32()))


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _distinct(words: dict[int, npt.NDArray[np.int64]], rows: int) -> tuple[list[int], npt.NDArray[np.int32]]:
    """The distinct combinations of words as whole numbers, and which of them each row has."""
    if not words:
        return [0], np.zeros(rows, np.int32)
    places = sorted(words)
    if len(places) == 1:
        found, which = np.unique(words[places[0]], return_inverse=True)
        combined = found.reshape(-1, 1)
    else:
        combined, which = np.unique(np.stack([words[place] for place in places], axis=1), axis=0, return_inverse=True)
    numbers = [sum(int(word) << 63 * place for word, place in zip(row, places, strict=True)) for row in combined]
    return numbers, which.reshape(-1).astype(np.int32)


def _by_day(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each day, by the event's own time or else by when it was recorded."""
    at = pc.coalesce(table.column("time"), table.column(RECORDED)).cast(pa.int64()).to_numpy()
    days = at // _MICROS_PER_DAY
    if len(days) and days.min() == days.max():
        yield int(days[0]), table
        return
    for day in np.unique(days).tolist():
        yield day, table.filter(pa.array(days == day))


def _sorted(tables: list[pa.Table]) -> pa.Table:
    """Rows by type, time and position, of tables that hold one type each."""
    by_type: dict[str, list[pa.Table]] = {}
    for table in tables:
        by_type.setdefault(table.column(TYPE)[0].as_py(), []).append(table)
    return pa.concat_tables([_in_time(pa.concat_tables(by_type[name])) for name in sorted(by_type)])


def _in_time(table: pa.Table) -> pa.Table:
    """The rows of one type by time; those that are in order already, as most recorders write them, stay as they are."""
    if _is_ordered(table.column("time"), strict=False) and _is_ordered(table.column(POSITION), strict=True):
        return table
    order = [("time", "ascending"), (POSITION, "ascending")]
    return table.combine_chunks().take(pc.sort_indices(table.select(["time", POSITION]), sort_keys=order))


def _is_ordered(column: pa.ChunkedArray, strict: bool) -> bool:
    if column.null_count:
        return False
    steps = np.diff(column.cast(pa.int64()).to_numpy())
    return bool((steps > 0).all() if strict else (steps >= 0).all())


def _listed(seen: dict[str, Shape]) -> list[Shape]:
    """The shapes of a type; one without a tag if there are too many."""
    if len(seen) <= MOST_SHAPES:
        return list(seen.values())
    first = next(iter(seen.values()))
    return [Shape(first.family, first.type, first.code, None)]
