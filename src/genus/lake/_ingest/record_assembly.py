"""A mapping made ready for the records of one type: where each attribute is found, and what else may be there.

Formats gather the values of the fields as they can; `Reading.assemble` makes the columns of events of them and says of
every record that is none why.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.cast import Mask, Read
from genus.lake._ingest.format import POSITION_FIELD, RECORDED_FIELD, Columns, TypePlan
from genus.lake._ingest.mapping import Field, FieldPath, Mapping, constant_column, path_text
from genus.lake._ingest.values import Spelling
from genus.lake._tables.columns import INSTANT
from genus.model import Attribute, AttributeType, TimeType

Positions: TypeAlias = npt.NDArray[np.int64]
_SHOWN = 60
"""So many characters of a wrong value are shown in a reason."""


class Wanted(msgspec.Struct, frozen=True):
    """A field to be read, as values of an attribute's type; without an attribute, it is when the record was made."""

    field: Field
    type: AttributeType


class Node(msgspec.Struct):
    """A place in a record: what is wanted of it, and what is inside it."""

    wanted: list[int] = []
    children: dict[str, "Node"] = {}
    is_ignored: bool = False
    takes_rest: bool = False
    """Whether what is inside and has no node is passed over."""
    refused: str = ""
    """Why there must be nothing here."""

    def at(self, path: FieldPath) -> "Node":
        """The node at the end of a path, made if need be."""
        if not path:
            return self
        return self.children.setdefault(path[0], Node(takes_rest=self.takes_rest)).at(path[1:])


class Faults:
    """State: why records are no events; the first reason that is found counts."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, rows: Iterable[int], reason: Callable[[int], str]) -> None:
        """Rows that are wrong, and how to say why."""
        for row in rows:
            if row not in self.reasons:
                self.reasons[row] = reason(row)

    def mask(self, wrong: Mask | None, reason: Callable[[int], str]) -> None:
        """The same for rows of a mask."""
        if wrong is not None:
            self.add(np.flatnonzero(wrong).tolist(), reason)

    def keep(self, rows: int) -> pa.Array:
        """Which of so many rows have no fault."""
        good = np.ones(rows, np.bool_)
        good[list(self.reasons)] = False
        return pa.array(good)


class Reading:
    """How records become events of one type."""

    def __init__(self, mapping: Mapping, plan: TypePlan, fallback: tuple[Field, ...] = ()) -> None:
        self.plan = plan
        self.tree = Node(takes_rest=mapping.ignore_rest)
        self.wanted: list[Wanted] = []
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

    def _want_all(self, mapping: Mapping, fallback: tuple[Field, ...]) -> None:
        named = mapping.fields_for(self.plan.name)
        for field in (*named, *self._alike(mapping, named), *fallback):
            if attribute := self._attribute(field.attribute):
                self._sources.setdefault(attribute.name, []).append(self._want(field, attribute.type))
        if mapping.recorded is not None:
            self._recorded = self._want(mapping.recorded, TimeType())

    def _alike(self, mapping: Mapping, named: tuple[Field, ...]) -> Iterator[Field]:
        """The fields with names of attributes: those that the mapping says nothing else of."""
        stated = {field.attribute for field in named}
        paths = [*(field.path for field in named), *mapping.naming.fields, *mapping.ignore]
        taken = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        spelling = Spelling(zone=mapping.zone, absent=mapping.absent)
        for attribute in self.plan.attributes:
            path = (*mapping.inside, attribute.name)
            if attribute.name not in stated and path not in taken:
                yield Field(path, attribute.name, spelling)

    def _want(self, field: Field, type_: AttributeType) -> int:
        self.wanted.append(Wanted(field, type_))
        self.tree.at(field.path).wanted.append(len(self.wanted) - 1)
        return len(self.wanted) - 1

    def _attribute(self, name: str) -> Attribute | None:
        return next((each for each in self.plan.attributes if each.name == name), None)

    def outside(self, path: FieldPath) -> str:
        """Says that a field is none of the type's."""
        return f"{self.plan.name} has no attribute {path_text(path)!r}"

    def wrong(self, number: int, value: object) -> str:
        """Says that the value of a field is wrong."""
        wanted = self.wanted[number]
        path, name = path_text(wanted.field.path), wanted.field.attribute
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
        return f"{what} is {shown(value)}, but must be {must}{_hint(wanted, value)}{at}"

    def assemble(self, reads: list[Read], faults: Faults, positions: Positions, changed_us: int) -> Columns:
        """The events of the rows without a fault. What was read wrong must be among the faults already."""
        rows = len(positions)
        columns = {name: self._column(name, reads) for name in (*self._sources, *self._constants)}
        for name in self.plan.required:
            column = columns.get(name)
            missing = np.ones(rows, np.bool_) if column is None else _missing(column)
            faults.mask(missing, lambda _, name=name: f"{self.plan.name} lacks {name!r}, which it must carry")  # type: ignore[misc]
        recorded = self._recorded_at(reads, columns.get("time"), rows, changed_us)
        columns = {name: column for name, column in columns.items() if column.null_count < rows}
        schema = pa.schema([*(self.plan.schema.field(name) for name in columns), POSITION_FIELD, RECORDED_FIELD])
        batch = pa.RecordBatch.from_arrays([*columns.values(), pa.array(positions), recorded], schema=schema)
        return Columns(self.plan.name, batch.filter(faults.keep(rows)) if faults.reasons else batch)

    def _column(self, name: str, reads: list[Read]) -> pa.Array:
        """An attribute's column: the first of its fields that says something, or else the constant."""
        given = [reads[number].column for number in self._sources.get(name, ())]
        if name in self._constants:
            constant = self._constants[name]
            given.append(constant if given else pa.repeat(constant, len(reads[0].column)))
        return given[0] if len(given) == 1 else pc.coalesce(*given)

    def _recorded_at(self, reads: list[Read], time: pa.Array | None, rows: int, changed_us: int) -> pa.Array:
        stated = [] if self._recorded is None else [reads[self._recorded].column]
        known = [*stated, *([] if time is None else [time])]
        if known and known[0].null_count == 0:
            return known[0]
        changed = pa.scalar(changed_us, INSTANT)
        return pc.coalesce(*known, changed) if known else pa.repeat(changed, rows)


def _missing(column: pa.Array) -> Mask | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _hint(wanted: Wanted, value: object) -> str:
    if isinstance(wanted.type, TimeType) and wanted.field.spelling.format in ("", "iso", "text"):
        return " with a zone, as ISO 8601 writes it" if isinstance(value, str) else " (the mapping may state a format)"
    return ""


def shown(value: object) -> str:
    """A value as reasons show it."""
    text = repr(value) if not isinstance(value, str) else repr(value[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
