"""Events from single records, by a mapping: a decoded JSON object becomes an event, or the reason why it is none.

The lake reads whole columns of records, and has the others read here, so both give the same events and reasons, with
two differences, as the lake has no classes: an opaque value must have the type that the class declares, and the class's
own bounds hold.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as Fields
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.model import Event
from genus.model.internal import create_event, describe_invalid, invalid_finders
from genus.model.types import OpaqueType
from genus.records._mapping import (
    DeclaredType,
    DeclaredTypes,
    FieldPath,
    KnownTypes,
    MappedField,
    Mapping,
    RecordType,
    TypeNaming,
    format_path,
    own_attributes,
    read_constant,
)
from genus.records._payload import Rejected, UnreadFields
from genus.records._values import ERRORS, TEXT, ReadValue, ValueFormat, is_absent, value_reader
from genus.records._writer import (
    ENVELOPE,
    FieldNode,
    FieldPlan,
    cloud_mapping,
    column_name,
    describe_version,
    show_value,
)

Record: TypeAlias = Fields[str, Any]
"""A decoded JSON object."""


class _Fault(Exception):
    """Ends the reading of a record."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.rejected = Rejected(reason, detail)


class RecordValues(NamedTuple):
    """What a record says: its type, the values of all attributes, None where absent, and when it was recorded."""

    type: RecordType
    values: dict[str, Any]
    recorded: datetime | None


class MappedReader:
    """Reads events from records by a mapping that was checked. State: a reader for each type name that occurred.

    `fallback` are fields to use where a record does not have an attribute otherwise. Records of tables are flat, with
    the names of columns; with `as_text` all values are text, as in CSV. Unknown fields are counted in `unread` if the
    mapping says so. With `refuses_empty` a record must give an attribute that not every event may carry.
    """

    def __init__(
        self,
        mapping: Mapping,
        types: KnownTypes,
        cloud_events: bool | None = None,
        fallback: tuple[MappedField, ...] = (),
        *,
        is_flat: bool = False,
        as_text: bool = False,
        unread: UnreadFields | None = None,
        refuses_empty: bool = False,
    ) -> None:
        self._types = types
        self._unread = (unread or UnreadFields()) if mapping.counts_unknown else None
        self._refuses_empty = refuses_empty
        self._mapping, self._cloud_mapping = mapping, cloud_mapping(mapping)
        self._asked, self._fallback, self._is_flat, self._as_text = cloud_events, fallback, is_flat, as_text
        self._readers: dict[tuple[bool, str], _TypeReader | str] = {}
        self.name_of = tuple(_name_getter(each.naming, is_flat) for each in (mapping, self._cloud_mapping))
        """Functions that get the name of the type of a plain record, and of a CloudEvent."""

    def read(self, record: object) -> Event | Rejected:
        """Return the event that a record is, or why it is none; never raises. Types must be known by their classes."""
        try:
            return _event_of(self._read(record))
        except _Fault as fault:
            return fault.rejected

    def read_values(self, record: object) -> RecordValues | Rejected:
        """What a record says, or why it is no event; never raises. For types that are known without their classes."""
        try:
            return self._read(record)
        except _Fault as fault:
            return fault.rejected

    def plan(self, is_cloud: bool, name: str) -> FieldPlan | str:
        """Return the plan for records that name their type so; if the type is not known, the reason as text."""
        mapping = self._cloud_mapping if is_cloud else self._mapping
        type_ = mapping.naming.fixed or mapping.naming.type_of(name)
        known = None if type_ is None else self._types.plan(type_)
        if known is None:
            return f"unknown type {show_value(name)}" + (f" ({type_})" if type_ not in (None, name) else "")
        fallback = ENVELOPE if is_cloud else self._fallback
        plan = FieldPlan(mapping, known, fallback, is_flat=self._is_flat, as_text=self._as_text)
        if is_cloud:
            plan.ignore_envelope(mapping)
        return plan

    def _read(self, record: object) -> RecordValues:
        if type(record) is not dict:
            raise _Fault("not an object", f"not an object: {show_value(record)}")
        is_cloud = self._is_cloud(record)
        mapping = self._cloud_mapping if is_cloud else self._mapping
        name = self.name_of[is_cloud](record)
        if type(name) is not str and type(name) is not int:
            fields = " and ".join(repr(format_path(path)) for path in mapping.naming.fields)
            raise _Fault("no type", f"no type: {fields} {'is missing' if name is None else f'is {show_value(name)}'}")
        reader = self._reader(is_cloud, str(name))
        if isinstance(reader, str):
            raise _Fault("unknown type", reader)
        return reader.read(record)

    def _is_cloud(self, record: Record) -> bool:
        if self._asked is False or not (self._asked or "specversion" in record):
            return False
        if (version := record.get("specversion")) != "1.0":
            raise _Fault("unknown specversion", describe_version(version))
        return True

    def _reader(self, is_cloud: bool, name: str) -> "_TypeReader | str":
        key = is_cloud, name
        if key not in self._readers:
            plan = self.plan(is_cloud, name)
            if isinstance(plan, str):
                return plan  # not kept: names of unknown types are without number
            self._readers[key] = _TypeReader(plan, self._unread, self._refuses_empty)
        return self._readers[key]


class RecordReader(MappedReader):
    """Reads events from records of other systems.

    `types` are the event types that records may have, with their subtypes; all that are declared, if not given.
    `cloud_events` says whether records are CloudEvents; if None, those with `specversion` are. MappingError if the
    mapping does not fit the types.

    >>> from genus import Event
    >>> from genus.records import read_mapping
    >>> class Lamp(Event):
    ...     watts: float
    >>> reader = RecordReader(read_mapping('type.is = "Lamp"'), [Lamp])
    >>> reader.read({"watts": 60, "place": "hall"})
    Lamp(place='hall', watts=60.0)
    >>> print(reader.read({"watts": "sixty"}))
    Lamp.watts is 'sixty', but must be float64
    """

    def __init__(
        self,
        mapping: Mapping = Mapping(),  # noqa: B008 - it is frozen
        types: Iterable[type] | None = None,
        *,
        cloud_events: bool | None = None,
    ) -> None:
        known = DeclaredTypes(types)
        mapping.check(known)
        super().__init__(mapping, known, cloud_events)


def _name_getter(naming: TypeNaming, is_flat: bool) -> Callable[[Record], Any]:
    """A function that gets the name of a record's type; valid names are text or integers."""
    if naming.fixed:
        return lambda record: naming.fixed
    parts = [(column_name(part),) if is_flat and not isinstance(part, str) else part for part in naming.parts]
    if len(parts) == 1 and not isinstance(parts[0], str):
        first, *rest = parts[0]
        return (lambda record: value_at(record.get(first), rest)) if rest else lambda record: record.get(first)

    def join(record: Record) -> str | None:
        found = [part if isinstance(part, str) else value_at(record, part) for part in parts]
        return "".join(map(str, found)) if all(type(each) is str or type(each) is int for each in found) else None

    return join


def value_at(record: Any, path: Sequence[str]) -> Any:
    """Return the value at a path in a record; None if there is none."""
    for key in path:
        record = record.get(key) if type(record) is dict else None
    return record


class _TypeReader:
    def __init__(self, plan: FieldPlan, unread: UnreadFields | None, refuses_empty: bool) -> None:
        self._plan, self._unread, self._refuses_empty = plan, unread, refuses_empty
        self._own = own_attributes(plan.type)
        cls = plan.type.cls if isinstance(plan.type, DeclaredType) else None
        annotations = {} if cls is None else {field.name: field.type for field in msgspec.structs.fields(cls)}
        self._readers: list[ReadValue] = [
            _opaque_reader(annotations[wanted.field.attribute], wanted.field.value_format)
            if isinstance(wanted.type, OpaqueType) and cls is not None
            else value_reader(wanted.type, wanted.field.value_format)
            for wanted in plan.wanted
        ]
        self._names = [wanted.field.attribute for wanted in plan.wanted]
        types = {each.name: each.type for each in plan.type.attributes}
        self._blank = dict.fromkeys(types) | {
            name: read_constant(value, types[name]) for name, value in plan.constants.items()
        }

    def read(self, record: Record) -> RecordValues:
        found: dict[int, Any] = {}
        unknown: list[str] = []
        self._gather(self._plan.tree, record, (), found, unknown)
        made: dict[str, Any] = {}
        for number in sorted(found):
            if (value := self._convert(number, found[number])) is not None:
                made.setdefault(self._names[number], value)  # of several fields the first counts
        recorded = made.pop("", None)
        values = {**self._blank, **made}
        for name in self._plan.type.required:
            if values[name] is None:
                raise _Fault(f"{self._plan.type.name} lacks {name!r}, which it must carry")
        if (self._refuses_empty or unknown) and self._own and all(values[name] is None for name in self._own):
            self._refuse_unmapped(record, unknown)
        return RecordValues(self._plan.type, values, recorded)

    def _refuse_unmapped(self, record: Record, unknown: list[str]) -> None:
        """Raise unless a field of the record is an attribute of the type, though its value means absent."""
        if not self._has_own(self._plan.tree, record):
            name, fields = self._plan.type.name, ", ".join(unknown[:10])
            detail = f"the record gives none of {', '.join(self._own)}; not read: {fields or 'nothing'}"
            raise _Fault(f"no attribute of {name}", f"no attribute of {name}: {detail}")

    def _has_own(self, node: FieldNode, record: Record) -> bool:
        known = [(node.children[key], value) for key, value in record.items() if key in node.children]
        return any(
            any(self._names[number] in self._own for number in child.wanted)
            or (type(value) is dict and self._has_own(child, value))
            for child, value in known
        )

    def _gather(
        self, node: FieldNode, record: Record, path: FieldPath, found: dict[int, Any], unknown: list[str]
    ) -> None:
        """Collect the values of wanted fields; raise for the first fault. Visits what a record has, not what it may."""
        for key, value in record.items():
            if value is None:
                continue
            child = node.children.get(key)
            if child is None:
                if not node.takes_rest and not self._plan.is_inside(key):
                    unknown.append(self._unknown(format_path((*path, key))))
                continue
            if child.refused:
                raise _Fault(child.refused)
            for number in child.wanted:
                found[number] = value
            if child.children and type(value) is dict:
                self._gather(child, value, (*path, key), found, unknown)
            elif child.children and not child.wanted and not child.is_ignored:
                raise _Fault(f"the field {format_path((*path, key))!r} is not an object")

    def _unknown(self, where: str) -> str:
        """Count a field that no attribute takes; raise if that is a fault."""
        name = self._plan.type.name
        if self._unread is None:
            raise _Fault(f"{name} has no such attribute", f"{name} has no attribute {where!r}")
        self._unread.add(f"{name}.{where}")
        return where

    def _convert(self, number: int, value: Any) -> Any:
        try:
            return self._readers[number](value)
        except ERRORS:
            raise _Fault(self._plan.describe_type(number), self._plan.describe_wrong(number, value)) from None


def _event_of(found: RecordValues) -> Event:
    assert isinstance(found.type, DeclaredType)
    cls = found.type.cls
    try:
        event: Event = create_event(cls, **found.values)
    except Exception as problem:  # of a class's own __post_init__
        raise _Fault(f"not a {found.type.name}", f"not a {found.type.name}: {problem}") from None
    if (invalid := invalid_finders[cls](event)) is not None:  # a bound of the class's own
        raise _Fault(*describe_invalid(event, invalid))
    return event


def _opaque_reader(annotation: Any, form: ValueFormat) -> ReadValue:
    """Return a function that converts JSON values to those of a nested struct or a list."""
    decode, is_text = msgspec.json.Decoder(annotation).decode, form.format == TEXT

    def read(value: Any) -> Any:
        if is_absent(value, form.absent):
            return None
        return decode(value if is_text and type(value) is str else msgspec.json.encode(value))

    return read
