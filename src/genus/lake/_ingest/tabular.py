"""Tables as columns of events: what CSV and Parquet files have in common.

A row is a record whose fields are the table's columns. Rows are taken apart by type, then each column is turned into an
attribute's column at once; rows that do not fit are dead letters, with the row as JSON.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.cast import Read
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Types
from genus.lake._ingest.mapping import FieldPath, Mapping, path_text
from genus.lake._ingest.record_assembly import Faults, Positions, Reading, shown
from genus.lake._ingest.values import convert

Table = dict[str, pa.Array]
"""Columns by name; what is inside a struct is there as well, by its path with dots."""


def column_name(path: FieldPath) -> str:
    """The name of the column that a path leads to."""
    return ".".join(path)


def unfolded(batch: pa.RecordBatch) -> Table:
    """The columns of a batch, and those inside its structs."""
    return {name: column for field, given in _columns(batch) for name, column in _inside(field, given)}


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    return zip(batch.schema.names, batch.columns, strict=True)


def _inside(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    yield name, column
    if pa.types.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            yield from _inside(f"{name}.{field.name}", inner)


class TableReader:
    """Turns tables into columns of events; knows how to read each type by the time it has met it."""

    def __init__(self, mapping: Mapping, types: Types, changed_us: int, *, as_text: bool) -> None:
        self._mapping, self._types, self._changed_us, self._as_text = mapping, types, changed_us, as_text
        self._readings: dict[str, Reading | str] = {}

    def read(self, table: Table, positions: Positions) -> Iterator[Chunk]:
        """The events of a table, type by type, and then what is no event."""
        faults = Faults()
        for name, rows in self._groups(table, len(positions), faults):
            reading = self._reading(name)
            if isinstance(reading, str):
                faults.add(rows.tolist(), lambda _, reason=reading: reason)  # type: ignore[misc]
            else:
                yield self._events(reading, table, rows, positions, faults)
        if faults.reasons:
            yield list(_letters(table, positions, faults))

    def _groups(self, table: Table, rows: int, faults: Faults) -> Iterator[tuple[str, Positions]]:
        """The rows of each name of a type."""
        if self._mapping.naming.fixed:
            yield self._mapping.naming.fixed, np.arange(rows)
            return
        names = self._names(table, rows)
        if names.null_count:
            fields = " and ".join(repr(path_text(path)) for path in self._mapping.naming.fields)
            faults.mask(_null(names), lambda _: f"no type: {fields} is missing")
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

    def _reading(self, name: str) -> Reading | str:
        if name not in self._readings:
            naming = self._mapping.naming
            type_ = naming.fixed or naming.type_of(name)
            plan = None if type_ is None else self._types.plan(type_)
            unknown = f"unknown type {shown(name)}" + (f" ({type_})" if type_ not in (None, name) else "")
            self._readings[name] = unknown if plan is None else Reading(self._mapping, plan)
        return self._readings[name]

    def _events(self, reading: Reading, table: Table, rows: Positions, positions: Positions, faults: Faults) -> Columns:
        is_all = len(rows) == len(positions)
        part = table if is_all else {name: column.take(pa.array(rows)) for name, column in table.items()}
        own = Faults()
        self._find_strange(reading, part, own)
        reads = [self._read(reading, number, part, len(rows), own) for number in range(len(reading.wanted))]
        columns = reading.assemble(reads, own, positions[rows], self._changed_us)
        for row, reason in own.reasons.items():
            faults.reasons[int(rows[row])] = reason
        return columns

    def _read(self, reading: Reading, number: int, table: Table, rows: int, faults: Faults) -> Read:
        wanted = reading.wanted[number]
        column = table.get(column_name(wanted.field.path))
        if column is None:
            return Read(pa.nulls(rows, pa.null()).cast(_stored(reading, number)))
        spelling = wanted.field.spelling
        read = convert(column, wanted.type, spelling.as_text() if self._as_text else spelling)
        faults.mask(read.wrong, lambda row: reading.wrong(number, _python(column[row])))
        return read

    def _find_strange(self, reading: Reading, table: Table, faults: Faults) -> None:
        """Rows with a value in a column that is none of the type's."""
        if self._mapping.ignore_rest:
            return
        known = {column_name(wanted.field.path) for wanted in reading.wanted}
        known |= {column_name(path) for path in (*self._mapping.naming.fields, *self._mapping.ignore)}
        for name, column in table.items():
            is_known = name in known or any(name.startswith(f"{each}.") for each in known)
            if not is_known and not pa.types.is_struct(column.type) and column.null_count < len(column):
                reason = reading.outside((name,))
                faults.mask(column.is_valid().to_numpy(zero_copy_only=False), lambda _, reason=reason: reason)  # type: ignore[misc]


def _stored(reading: Reading, number: int) -> pa.DataType:
    empty = convert(pa.nulls(0), reading.wanted[number].type, reading.wanted[number].field.spelling)
    return empty.column.type


def _text(table: Table, path: FieldPath, rows: int) -> pa.Array:
    """A column as text; absent where it is neither text nor an integer."""
    column = table.get(column_name(path))
    if column is None:
        return pa.nulls(rows, pa.string())
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    named = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return column.cast(pa.string()) if any(test(column.type) for test in named) else pa.nulls(rows, pa.string())


def _null(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _letters(table: Table, positions: Positions, faults: Faults) -> Iterator[DeadLetter]:
    shown_columns = {name: column for name, column in table.items() if not pa.types.is_struct(column.type)}
    for row, reason in sorted(faults.reasons.items()):
        values = {name: _python(column[row]) for name, column in shown_columns.items() if column[row].is_valid}
        yield DeadLetter.of(int(positions[row]), reason, msgspec.json.encode(values, enc_hook=str))


def _python(value: pa.Scalar) -> object:
    """A value as Python has it; its bytes where it is no text, its text where Python has nothing like it."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    except (ValueError, OverflowError):
        return str(value)
