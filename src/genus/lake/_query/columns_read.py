"""The columns of a batch of events as routing reads them: converted once, however many lookups ask for them."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._query.int_table import Ints
from genus.lake._query.templates import ValueType
from genus.model import AttributeType, OpaqueType, TextType, TimeType
from genus.targets.arrow import computed_type, is_hidden_column

Flags: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]

INSTANT = pa.timestamp("us", tz="UTC")


class EventColumns:
    """The columns of a table or record batch. State: those converted so far; a column that is missing is all null."""

    def __init__(self, batch: pa.Table | pa.RecordBatch) -> None:
        self.rows: int = batch.num_rows
        self._batch, self._names = batch, set(batch.schema.names)
        self._computed: dict[tuple[str, bool], pa.Array] = {}
        """By name, and whether the attribute is text: `source` may be meant as text though it has numbers here."""
        self._numbers: dict[str, tuple[Values, Flags | None]] = {}

    def stored(self, name: str) -> pa.Array | None:
        """A column as it is; None if it is missing."""
        if name not in self._names:
            return None
        column = self._batch.column(name)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def integers(self, name: str) -> Ints | None:
        """A column of integers without nulls; None if it is missing."""
        column = self.stored(name)
        return None if column is None else column.cast(pa.int64()).to_numpy()

    def computed(self, name: str, type_: AttributeType) -> pa.Array:
        """An attribute in the type it is computed in."""
        key = name, isinstance(type_, TextType)
        if key not in self._computed:
            self._computed[key] = self._compute(name, type_)
        return self._computed[key]

    def text(self, name: str, type_: AttributeType) -> pa.Array | None:
        """A column of texts or other values as it is; None if it is missing, or not the attribute that is meant."""
        column = self.stored(name)
        return None if column is None or is_hidden_column(column.type, name, type_) else column

    def _compute(self, name: str, type_: AttributeType) -> pa.Array:
        wanted, column = computed_type(type_), self.text(name, type_)
        if column is None:
            return pa.nulls(self.rows, wanted)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if isinstance(type_, OpaqueType):
            return column
        if isinstance(type_, TimeType) and column.type != INSTANT and pa.types.is_timestamp(column.type):
            column = column.cast(INSTANT)
        return column if column.type == wanted else column.cast(wanted)

    def numbers(self, name: str, type_: AttributeType, value_type: ValueType) -> tuple[Values, Flags | None]:
        """An attribute as numbers, and where they are known; None if they are everywhere. NaN is unknown."""
        if name not in self._numbers:
            self._numbers[name] = _numbers(self.computed(name, type_), value_type)
        return self._numbers[name]

    def present(self, name: str) -> Flags:
        """Whether each row has a value."""
        column = self.stored(name)
        if column is None:
            return np.zeros(self.rows, np.bool_)
        there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
        return there

    def take(self, attributes: Mapping[str, AttributeType], rows: pa.Array) -> dict[str, pa.Array]:
        """Some attributes of some rows, in the types they are computed in."""
        return {name: self.computed(name, type_).take(rows) for name, type_ in attributes.items()}


def _numbers(column: pa.Array, value_type: ValueType) -> tuple[Values, Flags | None]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    column = column if column.type == value_type.arrow else column.cast(value_type.arrow)
    known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    values = pc.fill_null(column, 0).to_numpy() if column.null_count else column.to_numpy()
    if value_type is ValueType.DOUBLE:
        number = values == values
        if not number.all():
            known = number if known is None else known & number
    return values, known
