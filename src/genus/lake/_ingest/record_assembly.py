"""Assembly of events from records of one type according to a mapping.

`RecordAssembler` knows which fields are wanted. Each format gathers their values in its own way, converts them to
columns, and calls `assemble`, which returns the events and notes why other records are not events.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.format import POSITION_FIELD, RECORDED_FIELD, Columns, TypePlan, Types
from genus.lake._ingest.mapping import FieldPath, MappedField, Mapping, constant_column, format_path
from genus.lake._ingest.safe_cast import CastColumn, Mask, valid_rows
from genus.lake._ingest.values import ValueFormat
from genus.lake._tables.columns import INSTANT
from genus.model import Attribute, AttributeType, TimeType

Positions: TypeAlias = npt.NDArray[np.int64]
_SHOWN = 60
"""Number of characters of a wrong value that a reason shows."""


class WantedField(msgspec.Struct, frozen=True):
    """A field to read, and the attribute type of its values; without an attribute it is the time of recording."""

    field: MappedField
    type: AttributeType


class FieldNode(msgspec.Struct):
    """A node in the tree of wanted and known fields of a record."""

    wanted: list[int] = []
    """Indexes of the wanted fields that are here."""
    children: dict[str, "FieldNode"] = {}
    is_ignored: bool = False
    takes_rest: bool = False
    """Whether fields without a node are ignored here."""
    refused: str = ""
    """If not empty, why a value here is a fault."""

    def at(self, path: FieldPath) -> "FieldNode":
        """The node at the end of a path; created if it does not exist."""
        if not path:
            return self
        return self.children.setdefault(path[0], FieldNode(takes_rest=self.takes_rest)).at(path[1:])


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


class RecordAssembler:
    """Makes events of one type from records.

    `fallback` are fields to use where a record does not have an attribute otherwise.
    """

    def __init__(self, mapping: Mapping, plan: TypePlan, fallback: tuple[MappedField, ...] = ()) -> None:
        self.plan = plan
        self.tree = FieldNode(takes_rest=mapping.ignore_rest)
        self.wanted: list[WantedField] = []
        self._sources: dict[str, list[int]] = {}
        self._recorded: int | None = None
        self._constants: dict[str, pa.Array] = {}
        self._want_all(mapping, fallback)
        for path in (*mapping.naming.fields, *mapping.ignore):
            node = self.tree.at(path)
            node.is_ignored = node.takes_rest = True
        for name, value in mapping.constants:
            if attribute := self._attribute(name):
                self._constants[name] = constant_column(value, attribute.type).column[0]

    def _want_all(self, mapping: Mapping, fallback: tuple[MappedField, ...]) -> None:
        named = mapping.fields_for(self.plan.name)
        for field in (*named, *self._alike(mapping, named), *fallback):
            if attribute := self._attribute(field.attribute):
                self._sources.setdefault(attribute.name, []).append(self._want(field, attribute.type))
        if mapping.recorded is not None:
            self._recorded = self._want(mapping.recorded, TimeType())

    def _alike(self, mapping: Mapping, named: tuple[MappedField, ...]) -> Iterator[MappedField]:
        """Fields named like attributes that the mapping does not mention; a former name comes after the present one."""
        stated = {field.attribute for field in named}
        paths = [*(field.path for field in named), *mapping.naming.fields, *mapping.ignore]
        taken = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        value_format = ValueFormat(zone=mapping.zone, absent=mapping.absent)
        for attribute in self.plan.attributes:
            for name in (attribute.name, *attribute.former):
                path = (*mapping.inside, name)
                if attribute.name not in stated and path not in taken:
                    yield MappedField(path, attribute.name, value_format)

    def _want(self, field: MappedField, type_: AttributeType) -> int:
        self.wanted.append(WantedField(field, type_))
        self.tree.at(field.path).wanted.append(len(self.wanted) - 1)
        return len(self.wanted) - 1

    def _attribute(self, name: str) -> Attribute | None:
        return next((each for each in self.plan.attributes if each.name == name), None)

    def describe_unknown(self, path: FieldPath) -> str:
        """The reason for a field that the type does not have."""
        return f"{self.plan.name} has no attribute {format_path(path)!r}"

    def describe_wrong(self, number: int, value: object) -> str:
        """The reason for a wrong value of a field."""
        wanted = self.wanted[number]
        path, name = format_path(wanted.field.path), wanted.field.attribute
        described = wanted.type.describe()
        must = (
            described
            if isinstance(described, str)
            else f"one of {described['enum']}"
            if "enum" in described
            else "JSON"
        )
        what = f"{self.plan.name}.{name}" if name else "the time of recording"
        at = "" if path == name else f" (field {path!r})"
        return f"{what} is {show_value(value)}, but must be {must}{_hint(wanted, value)}{at}"

    def assemble(
        self, values: list[CastColumn], faults: RecordFaults, positions: Positions, changed_us: int
    ) -> Columns:
        """The events of the rows without a fault; `values` has a column for each wanted field.

        Wrong values must be among the faults already. Missing required attributes are added to them here.
        """
        rows = len(positions)
        columns = {name: self._column(name, values) for name in (*self._sources, *self._constants)}
        for name in self.plan.required:
            column = columns.get(name)
            missing = np.ones(rows, np.bool_) if column is None else ~valid_rows(column) if column.null_count else None
            faults.mask(missing, lambda _, name=name: f"{self.plan.name} lacks {name!r}, which it must carry")  # type: ignore[misc]
        recorded = self._recorded_at(values, columns.get("time"), rows, changed_us)
        columns = {name: column for name, column in columns.items() if column.null_count < rows}
        schema = pa.schema([*(self.plan.schema.field(name) for name in columns), POSITION_FIELD, RECORDED_FIELD])
        batch = pa.RecordBatch.from_arrays([*columns.values(), pa.array(positions), recorded], schema=schema)
        return Columns(self.plan.name, batch.filter(faults.keep(rows)) if faults.reasons else batch)

    def _column(self, name: str, values: list[CastColumn]) -> pa.Array:
        """An attribute's column: the first of its fields that has a value, otherwise the constant."""
        given = [values[number].column for number in self._sources.get(name, ())]
        if name in self._constants:
            constant = self._constants[name]
            given.append(constant if given else pa.repeat(constant, len(values[0].column)))
        return given[0] if len(given) == 1 else pc.coalesce(*given)

    def _recorded_at(self, values: list[CastColumn], time: pa.Array | None, rows: int, changed_us: int) -> pa.Array:
        """The time of recording: as stated, or the event's time, or the time of the file's last change."""
        stated = [] if self._recorded is None else [values[self._recorded].column]
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
    if plan is None:
        return f"unknown type {show_value(name)}" + (f" ({type_})" if type_ not in (None, name) else "")
    return RecordAssembler(mapping, plan, fallback)


def _hint(wanted: WantedField, value: object) -> str:
    if isinstance(wanted.type, TimeType) and wanted.field.value_format.format in ("", "iso", "text"):
        return " with a zone, as ISO 8601 writes it" if isinstance(value, str) else " (the mapping may state a format)"
    return ""


def show_value(value: object) -> str:
    """A value as shown in reasons, shortened if it is long."""
    text = repr(value) if not isinstance(value, str) else repr(value[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
