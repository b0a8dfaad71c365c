"""Events from records as columns, according to a mapping: the columns of tables, or of fields that were gathered.

Parquet files of other systems are such tables: splits are row groups, the position of an event is its row's number.

Records are grouped by type, and all values of a field become an attribute's column at once. Records with any value that
is not taken so, or with a field too many or too few, are read one by one by the reader of `genus.records`: they are
events after all, or dead letters with its reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Split, TypePlan, Types, changed_us
from genus.lake._ingest.values import (
    CastColumn,
    Mask,
    convert_column,
    plain_column,
    python_values,
    stored_values,
    valid_rows,
)
from genus.lake._tables.commits import POSITION, RECORDED
from genus.lake._tables.files import open_input
from genus.lake._tables.part_writer import INSTANT, OWN_SCHEMA
from genus.model.types import TimeType
from genus.records import Mapping
from genus.records.internal import FieldPlan, MappedReader, RecordValues, column_name, read_constant
from genus.records.types import Rejected

Positions: TypeAlias = npt.NDArray[np.int64]
Table: TypeAlias = dict[str, pa.Array]
"""Columns by name; fields of structs are included, named by their paths with dots."""


class Row(NamedTuple):
    """A record that is read alone: its position, its fields or why it has none, and the text for a dead letter."""

    position: int
    record: object
    raw: bytes


class TypeColumns:
    """Makes events of one type from columns of the fields that a plan wants."""

    def __init__(self, plan: FieldPlan, changed_us: int) -> None:
        assert isinstance(plan.type, TypePlan)
        self.plan, self.type = plan, plan.type
        self._changed = pa.scalar(changed_us, INSTANT)
        types = {each.name: each.type for each in self.type.attributes}
        self._constants = {
            name: stored_values([read_constant(value, types[name])], types[name])[0]
            for name, value in plan.constants.items()
        }

    def assemble(self, given: Sequence[CastColumn], good: Mask, positions: Positions) -> Columns:
        """The events of good rows, from a column for each wanted field; rows with a fault are set not to be good."""
        values = [each.column for each in given]
        for each in given:
            good &= ~each.wrong
        columns = {name: self._column(name, values, len(good)) for name in (*self.plan.sources, *self._constants)}
        for name in self.type.required:
            good &= valid_rows(columns[name]) if name in columns else False
        stated = [] if self.plan.recorded is None else [values[self.plan.recorded]]
        return self._batch(columns, positions, stated, good)

    def of_values(self, found: Sequence[RecordValues], positions: Sequence[int]) -> Columns:
        columns = {
            each.name: stored_values([one.values[each.name] for one in found], each.type)
            for each in self.type.attributes
        }
        stated = stored_values([one.recorded for one in found], TimeType())
        return self._batch(columns, np.array(positions, np.int64), [stated], np.ones(len(found), np.bool_))

    def _batch(self, columns: Table, positions: Positions, stated: list[pa.Array], good: Mask) -> Columns:
        """The time of recording is the stated one, or the event's time, or the time of the file's last change."""
        known = [*stated, *([columns["time"]] if "time" in columns else [])]
        is_stated = bool(known) and known[0].null_count == 0
        recorded = known[0] if is_stated else pc.coalesce(*known, pa.repeat(self._changed, len(good)))
        present = {name: column for name, column in columns.items() if column.null_count < len(good)}
        own = (OWN_SCHEMA.field(name) for name in (POSITION, RECORDED))
        schema = pa.schema([*(self.type.schema.field(name) for name in present), *own])
        batch = pa.RecordBatch.from_arrays([*present.values(), pa.array(positions), recorded], schema=schema)
        return Columns(self.type.name, batch if good.all() else batch.filter(pa.array(good)))

    def _column(self, name: str, values: Sequence[pa.Array], rows: int) -> pa.Array:
        """An attribute's column: the first of its fields that has a value, otherwise the constant."""
        given = [values[number] for number in self.plan.sources.get(name, ())]
        if name in self._constants:
            given.append(pa.repeat(self._constants[name], rows))
        return given[0] if len(given) == 1 else pc.coalesce(*given)


class RecordsReader:
    """Base of the readers of records. State: the types that occurred, by the names that records have for them."""

    def __init__(self, mapping: Mapping, types: Types, at_us: int, single: MappedReader) -> None:
        self._mapping, self._types, self._changed_us, self._single = mapping, types, at_us, single
        self._by_name: dict[tuple[bool, str], TypeColumns] = {}

    def type_columns(self, name: str, *, is_cloud: bool = False) -> TypeColumns | None:
        """Return what makes events of records that name their type so; None if the catalog has no such type."""
        if (is_cloud, name) not in self._by_name:
            plan = self._single.plan(is_cloud, name)
            if isinstance(plan, str):
                return None
            self._by_name[is_cloud, name] = TypeColumns(plan, self._changed_us)
        return self._by_name[is_cloud, name]

    def read_alone(self, rows: Iterable[Row]) -> Iterator[Chunk]:
        """Read records one by one: events, type by type, then dead letters."""
        letters: list[DeadLetter] = []
        events: dict[str, list[tuple[RecordValues, int]]] = {}
        for position, record, raw in rows:
            found = record if isinstance(record, Rejected) else self._single.read_values(record)
            if isinstance(found, Rejected):
                letters.append(DeadLetter.of(position, str(found), raw))
            else:
                events.setdefault(found.type.name, []).append((found, position))
        for name, each in events.items():
            plan = FieldPlan(Mapping(), self._types.expected(name))
            yield TypeColumns(plan, self._changed_us).of_values(*map(list, zip(*each, strict=True)))
        if letters:
            yield letters


class TableReader(RecordsReader):
    """Reads events from tables: a row is a record, a column a field. With `as_text` all values are text, as in CSV."""

    def __init__(self, mapping: Mapping, types: Types, at_us: int, *, as_text: bool) -> None:
        single = MappedReader(mapping, types, False, is_flat=True, as_text=as_text)
        super().__init__(mapping, types, at_us, single)

    def read(self, table: Table, positions: Positions) -> Iterator[Chunk]:
        table = {name: plain_column(column) for name, column in table.items()}
        alone: list[Row] = []
        for name, rows in self._groups(table, len(positions)):
            columns = None if name is None else self.type_columns(name)
            is_all = len(rows) == len(positions)
            part = table if is_all else {each: column.take(pa.array(rows)) for each, column in table.items()}
            good = np.full(len(rows), columns is not None)
            fields = self._fields(part, columns)
            if columns is not None:
                yield self._events(columns, part, fields, good, positions[rows])
            if not good.all():
                alone += _rows(part, fields, np.flatnonzero(~good), positions[rows])
        yield from self.read_alone(sorted(alone))

    def _groups(self, table: Table, rows: int) -> Iterator[tuple[str | None, Positions]]:
        """Yield the rows of each type name; of those without one too."""
        if self._mapping.naming.fixed:
            yield self._mapping.naming.fixed, np.arange(rows)
            return
        parts = [
            pa.repeat(part, rows) if isinstance(part, str) else _names(table.get(column_name(part)), rows)
            for part in self._mapping.naming.parts
        ]
        names = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
        encoded = names.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        for index, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, np.flatnonzero(indices == index)

    def _fields(self, table: Table, columns: TypeColumns | None) -> list[str]:
        """Return the columns that are fields of records: not those inside others that are, nor structs that are not."""
        if columns is None:
            return [column_name(path) for path in self._mapping.naming.fields if column_name(path) in table]
        plan = columns.plan
        return [
            name
            for name, column in table.items()
            if name in plan.tree.children or not (plan.is_inside(name) or pa.types.is_struct(column.type))
        ]

    def _events(
        self, columns: TypeColumns, table: Table, fields: list[str], good: Mask, positions: Positions
    ) -> Columns:
        plan = columns.plan
        for name in fields if not plan.tree.takes_rest else ():
            if name not in plan.tree.children and table[name].null_count < len(good):
                good &= ~valid_rows(table[name])
        absent = pa.nulls(len(good))
        converted = [
            convert_column(table.get(column_name(each.field.path), absent), each.type, each.field.value_format)
            for each in plan.wanted
        ]
        return columns.assemble(converted, good, positions)


def _names(column: pa.Array | None, rows: int) -> pa.Array:
    """Return a column of text or integers as text; nulls if there is no such column or it has another type."""
    if column is None or not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
        return pa.nulls(rows, pa.string())
    return column.cast(pa.string())


def _rows(table: Table, fields: list[str], which: Positions, positions: Positions) -> Iterator[Row]:
    """Some rows of a table as records, with all values for a dead letter."""
    values = {name: python_values(column.take(pa.array(which))) for name, column in table.items()}
    shown = [name for name, column in table.items() if not pa.types.is_struct(column.type)]
    for number, row in enumerate(which.tolist()):
        raw = {name: value for name in shown if (value := values[name][number]) is not None}
        record = {name: values[name][number] for name in fields}
        yield Row(int(positions[row]), record, msgspec.json.encode(raw, enc_hook=str))


def flatten_structs(batch: pa.RecordBatch) -> Table:
    """Return the columns of a batch and the fields of its structs."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return {name: column for field, given in columns for name, column in _inside(field, given)}


def _inside(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    yield name, column
    if pa.types.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            yield from _inside(f"{name}.{field.name}", inner)


# -- Parquet files -----------------------------------------------------------------------------------------------------

_ROWS = 65_536


class ParquetFiles(msgspec.Struct, frozen=True):
    mapping: Mapping = Mapping()

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        try:
            with open_input(path) as file:
                metadata = pq.ParquetFile(file).metadata
        except (pa.ArrowException, OSError):  # reading the file reports the problem
            return [Split(path, 0, 1)]
        cuts, held = [0], 0
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).total_byte_size
            if held and held + size > target:
                cuts.append(group)
                held = 0
            held += size
        return [Split(path, start, end) for start, end in pairwise([*cuts, metadata.num_row_groups])]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        reader = TableReader(self.mapping, types, changed_us(split.path), as_text=False)
        with open_input(split.path) as stream:
            try:
                file = pq.ParquetFile(stream)
            except (pa.ArrowException, OSError) as problem:
                yield [DeadLetter.of(0, f"not a Parquet file: {problem}", b"")]
                return
            for group in range(split.start, min(split.end, file.num_row_groups)):
                yield from _read_group(file, group, reader)


def _read_group(file: pq.ParquetFile, group: int, reader: TableReader) -> Iterator[Chunk]:
    """Yield the events of a row group; one dead letter for its rest if it is damaged."""
    position = sum(file.metadata.row_group(before).num_rows for before in range(group))
    try:
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group], use_threads=False):
            yield from reader.read(flatten_structs(batch), np.arange(position, position + batch.num_rows))
            position += batch.num_rows
    except (pa.ArrowException, OSError) as problem:
        yield [DeadLetter.of(position, f"row group {group} is damaged here: {problem}", b"")]
