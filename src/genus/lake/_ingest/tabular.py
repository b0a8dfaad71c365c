"""Events from tables, for CSV and Parquet files: a row is a record, a column a field.

Rows are grouped by type, then whole columns are converted to attribute columns. Rows that are not events become dead
letters with the row as JSON.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Types
from genus.lake._ingest.record_assembly import Positions, RecordAssembler, RecordFaults, assembler_for
from genus.lake._ingest.safe_cast import CastColumn, valid_rows
from genus.lake._ingest.values import convert_column
from genus.records._mapping import FieldPath, Mapping, format_path

Table = dict[str, pa.Array]
"""Columns by name; fields of structs are included, named by their paths with dots."""


def column_name(path: FieldPath) -> str:
    """The name of the column at a path."""
    return ".".join(path)


def flatten_structs(batch: pa.RecordBatch) -> Table:
    """The columns of a batch and the fields of its structs."""
    return {name: column for field, given in _columns(batch) for name, column in _inside(field, given)}


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    return zip(batch.schema.names, batch.columns, strict=True)


def _inside(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    yield name, column
    if pa.types.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            yield from _inside(f"{name}.{field.name}", inner)


class TableReader:
    """Reads events from tables. State: an assembler for each type name that occurred."""

    def __init__(self, mapping: Mapping, types: Types, changed_us: int, *, as_text: bool) -> None:
        self._mapping, self._types, self._changed_us, self._as_text = mapping, types, changed_us, as_text
        self._assemblers: dict[str, RecordAssembler | str] = {}

    def read(self, table: Table, positions: Positions) -> Iterator[Chunk]:
        """The events of a table, type by type, then the dead letters."""
        faults = RecordFaults()
        for name, rows in self._groups(table, len(positions), faults):
            assembler = self._assembler(name)
            if isinstance(assembler, str):
                faults.add(rows.tolist(), lambda _, reason=assembler: reason)  # type: ignore[misc]
            else:
                yield self._events(assembler, table, rows, positions, faults)
        if faults.reasons:
            yield list(_letters(table, positions, faults))

    def _groups(self, table: Table, rows: int, faults: RecordFaults) -> Iterator[tuple[str, Positions]]:
        """The rows of each type name."""
        if self._mapping.naming.fixed:
            yield self._mapping.naming.fixed, np.arange(rows)
            return
        names = self._names(table, rows)
        if names.null_count:
            fields = " and ".join(repr(format_path(path)) for path in self._mapping.naming.fields)
            faults.mask(~valid_rows(names), lambda _: f"no type: {fields} is missing")
        encoded = names.dictionary_encode()
        indices = encoded.indices.fill_null(-1).to_numpy()
        for index, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, np.flatnonzero(indices == index)

    def _names(self, table: Table, rows: int) -> pa.Array:
        parts = [
            pa.scalar(part) if isinstance(part, str) else _text(table, part, rows)
            for part in self._mapping.naming.parts
        ]
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")

    def _assembler(self, name: str) -> RecordAssembler | str:
        if name not in self._assemblers:
            self._assemblers[name] = assembler_for(name, self._mapping, self._types)
        return self._assemblers[name]

    def _events(
        self, assembler: RecordAssembler, table: Table, rows: Positions, positions: Positions, faults: RecordFaults
    ) -> Columns:
        is_all = len(rows) == len(positions)
        part = table if is_all else {name: column.take(pa.array(rows)) for name, column in table.items()}
        own = RecordFaults()
        self._note_unknown_columns(assembler, part, own)
        values = [self._convert(assembler, number, part, len(rows), own) for number in range(len(assembler.wanted))]
        columns = assembler.assemble(values, own, positions[rows], self._changed_us)
        for row, reason in own.reasons.items():
            faults.reasons[int(rows[row])] = reason
        return columns

    def _convert(
        self, assembler: RecordAssembler, number: int, table: Table, rows: int, faults: RecordFaults
    ) -> CastColumn:
        """The values of a wanted field; wrong ones are added to the faults."""
        wanted = assembler.wanted[number]
        column = table.get(column_name(wanted.field.path))
        if column is None:
            return CastColumn(pa.nulls(rows, pa.null()).cast(_stored_type(assembler, number)))
        form = wanted.field.value_format
        converted = convert_column(column, wanted.type, form.as_text() if self._as_text else form)
        faults.mask(converted.wrong, lambda row: assembler.describe_wrong(number, _python_value(column[row])))
        return converted

    def _note_unknown_columns(self, assembler: RecordAssembler, table: Table, faults: RecordFaults) -> None:
        """Add rows with a value in a column that the type does not have to the faults."""
        if self._mapping.ignore_rest:
            return
        known = {column_name(wanted.field.path) for wanted in assembler.wanted}
        known |= {column_name(path) for path in (*self._mapping.naming.fields, *self._mapping.ignore)}
        for name, column in table.items():
            is_known = name in known or any(name.startswith(f"{each}.") for each in known)
            if not is_known and not pa.types.is_struct(column.type) and column.null_count < len(column):
                reason = assembler.describe_unknown((name,))
                faults.mask(valid_rows(column), lambda _, reason=reason: reason)  # type: ignore[misc]


def _stored_type(assembler: RecordAssembler, number: int) -> pa.DataType:
    wanted = assembler.wanted[number]
    return convert_column(pa.nulls(0), wanted.type, wanted.field.value_format).column.type


def _text(table: Table, path: FieldPath, rows: int) -> pa.Array:
    """A column of text or integers as text; nulls if there is no such column or it has another type."""
    column = table.get(column_name(path))
    if column is None:
        return pa.nulls(rows, pa.string())
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    named = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return column.cast(pa.string()) if any(test(column.type) for test in named) else pa.nulls(rows, pa.string())


def _letters(table: Table, positions: Positions, faults: RecordFaults) -> Iterator[DeadLetter]:
    plain = {name: column for name, column in table.items() if not pa.types.is_struct(column.type)}
    for row, reason in sorted(faults.reasons.items()):
        values = {name: _python_value(column[row]) for name, column in plain.items() if column[row].is_valid}
        yield DeadLetter.of(int(positions[row]), reason, msgspec.json.encode(values, enc_hook=str))


def _python_value(value: pa.Scalar) -> object:
    """The Python value; escaped bytes if it is not UTF-8, its text if Python has no such value."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    except (ValueError, OverflowError):
        return str(value)
