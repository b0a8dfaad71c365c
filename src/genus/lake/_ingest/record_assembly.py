"""Assembly of events from records of one type according to a mapping.

A `RecordAssembler` is a plan of wanted fields, as `genus.records` makes it. Each format gathers their values in its own
way, converts them to columns, and calls `assemble`, which returns the events and notes why other records are not
events.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.format import POSITION_FIELD, RECORDED_FIELD, Columns, TypePlan, Types
from genus.lake._ingest.safe_cast import CastColumn, Mask, valid_rows
from genus.lake._ingest.values import convert_json
from genus.lake._tables.columns import INSTANT
from genus.records._fields import FieldPlan, describe_unknown_type
from genus.records._mapping import MappedField, Mapping, constant_json
from genus.records._values import ValueFormat

Positions: TypeAlias = npt.NDArray[np.int64]


class RecordFaults:
    """The reasons why records are not events, by row; the first reason of a row is kept."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, rows: Iterable[int], reason: Callable[[int], str]) -> None:
        """Add faulty rows; `reason` is called for rows that have no fault yet."""
        for row in rows:
            if row not in self.reasons:
                self.reasons[row] = reason(row)

    def mask(self, wrong: Mask | None, reason: Callable[[int], str]) -> None:
        """Add the rows of a mask."""
        if wrong is not None:
            self.add(np.flatnonzero(wrong).tolist(), reason)

    def keep(self, rows: int) -> pa.Array:
        """A mask of the rows without a fault."""
        good = np.ones(rows, np.bool_)
        good[list(self.reasons)] = False
        return pa.array(good)


class RecordAssembler(FieldPlan):
    """Makes events of one type from records.

    `fallback` are fields to use where a record does not have an attribute otherwise.
    """

    def __init__(self, mapping: Mapping, plan: TypePlan, fallback: tuple[MappedField, ...] = ()) -> None:
        super().__init__(mapping, plan, fallback)
        self._schema = plan.schema
        self._scalars = {name: self._scalar(name, value) for name, value in self.constants.items()}

    def _scalar(self, name: str, value: Any) -> pa.Scalar:
        attribute = self.attribute(name)
        assert attribute is not None
        return convert_json([constant_json(value)], attribute.type, ValueFormat()).column[0]

    def assemble(
        self, values: list[CastColumn], faults: RecordFaults, positions: Positions, changed_us: int
    ) -> Columns:
        """The events of the rows without a fault; `values` has a column for each wanted field.

        Wrong values must be among the faults already. Missing required attributes are added to them here.
        """
        rows = len(positions)
        columns = {name: self._column(name, values) for name in (*self.sources, *self._scalars)}
        for name in self.type.required:
            column = columns.get(name)
            missing = np.ones(rows, np.bool_) if column is None else ~valid_rows(column) if column.null_count else None
            faults.mask(missing, lambda _, name=name: self.describe_missing(name))  # type: ignore[misc]
        recorded = self._recorded_at(values, columns.get("time"), rows, changed_us)
        columns = {name: column for name, column in columns.items() if column.null_count < rows}
        schema = pa.schema([*(self._schema.field(name) for name in columns), POSITION_FIELD, RECORDED_FIELD])
        batch = pa.RecordBatch.from_arrays([*columns.values(), pa.array(positions), recorded], schema=schema)
        return Columns(self.type.name, batch.filter(faults.keep(rows)) if faults.reasons else batch)

    def _column(self, name: str, values: list[CastColumn]) -> pa.Array:
        """An attribute's column: the first of its fields that has a value, otherwise the constant."""
        given = [values[number].column for number in self.sources.get(name, ())]
        if name in self._scalars:
            constant = self._scalars[name]
            given.append(constant if given else pa.repeat(constant, len(values[0].column)))
        return given[0] if len(given) == 1 else pc.coalesce(*given)

    def _recorded_at(self, values: list[CastColumn], time: pa.Array | None, rows: int, changed_us: int) -> pa.Array:
        """The time of recording: as stated, or the event's time, or the time of the file's last change."""
        stated = [] if self.recorded is None else [values[self.recorded].column]
        known = [*stated, *([] if time is None else [time])]
        if known and known[0].null_count == 0:
            return known[0]
        changed = pa.scalar(changed_us, INSTANT)
        return pc.coalesce(*known, changed) if known else pa.repeat(changed, rows)


def assembler_for(
    name: str, mapping: Mapping, types: Types, fallback: tuple[MappedField, ...] = ()
) -> RecordAssembler | str:
    """The assembler for records that name their type so; if the catalog lacks the type, the reason as text."""
    type_ = mapping.naming.fixed or mapping.naming.type_of(name)
    plan = None if type_ is None else types.plan(type_)
    return describe_unknown_type(name, type_) if plan is None else RecordAssembler(mapping, plan, fallback)
