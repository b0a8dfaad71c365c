"""Events from single records, by a mapping: a decoded JSON object becomes an event, or the reason why it is none.

What is accepted is what the lake's reader of JSON accepts, value by value, with two differences, as the lake
has no classes: an opaque value must have the type that the class declares, and the class's own bounds hold.
"""

from collections.abc import Iterable
from collections.abc import Mapping as Fields
from typing import Any, TypeAlias

import msgspec

from genus.model import Event, OpaqueType
from genus.model._check import describe_invalid, invalid_finders
from genus.model._event import create_event
from genus.records._fields import (
    ENVELOPE,
    FieldNode,
    FieldPlan,
    cloud_mapping,
    describe_no_type,
    describe_version,
    plan_for,
    show_value,
)
from genus.records._known_types import DeclaredType, DeclaredTypes
from genus.records._mapping import FieldPath, MappedField, Mapping, format_path, read_constant
from genus.records._rejected import Rejected
from genus.records._values import ERRORS, ReadValue, value_reader

Record: TypeAlias = Fields[str, Any]
"""A decoded JSON object."""


class _Fault(Exception):
    """Ends the reading of a record."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.rejected = Rejected(reason, detail)


class MappedReader:
    """Reads events from records by a mapping that was checked. State: a reader for each type name that occurred.

    `fallback` are fields to use where a record does not have an attribute otherwise.
    """

    def __init__(
        self,
        mapping: Mapping,
        types: DeclaredTypes,
        cloud_events: bool | None = None,
        fallback: tuple[MappedField, ...] = (),
    ) -> None:
        self._types = types
        self._mapping, self._cloud_mapping = mapping, cloud_mapping(mapping)
        self._asked, self._fallback = cloud_events, fallback
        self._readers: dict[tuple[bool, str], _TypeReader | str] = {}

    def read(self, record: object) -> Event | Rejected:
        """The event that a record is, or why it is none; never raises."""
        try:
            return self._read(record)
        except _Fault as fault:
            return fault.rejected

    def _read(self, record: object) -> Event:
        if type(record) is not dict:
            raise _Fault("not an object", f"not an object: {show_value(record)}")
        is_cloud = self._is_cloud(record)
        mapping = self._cloud_mapping if is_cloud else self._mapping
        name = _name_in(mapping, record)
        if type(name) is not str and type(name) is not int:
            raise _Fault("no type", describe_no_type(mapping, name))
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
            made = self._make_reader(is_cloud, name)
            if isinstance(made, str):
                return made  # not kept: names of unknown types are without number
            self._readers[key] = made
        return self._readers[key]

    def _make_reader(self, is_cloud: bool, name: str) -> "_TypeReader | str":
        mapping = self._cloud_mapping if is_cloud else self._mapping
        plan = plan_for(name, mapping, self._types, ENVELOPE if is_cloud else self._fallback)
        if isinstance(plan, str):
            return plan
        if is_cloud:
            plan.ignore_envelope(mapping)
        return _TypeReader(plan)


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


def _name_in(mapping: Mapping, record: Record) -> Any:
    """The type name in a record; valid names are text or integers."""
    naming = mapping.naming
    if naming.fixed:
        return naming.fixed
    parts = [part if isinstance(part, str) else value_at(record, part) for part in naming.parts]
    if len(parts) == 1:
        return parts[0]
    return "".join(map(str, parts)) if all(type(part) is str or type(part) is int for part in parts) else None


def value_at(record: Any, path: FieldPath) -> Any:
    """The value at a path in a record; None if there is none."""
    for key in path:
        record = record.get(key) if type(record) is dict else None
    return record


class _TypeReader:
    """Reads records of one type."""

    def __init__(self, plan: FieldPlan) -> None:
        assert isinstance(plan.type, DeclaredType)
        self._plan, self._cls = plan, plan.type.cls
        annotations = {field.name: field.type for field in msgspec.structs.fields(self._cls)}
        self._readers: list[ReadValue] = [
            _OpaqueReader(annotations[wanted.field.attribute], wanted.field.value_format.absent)
            if isinstance(wanted.type, OpaqueType)
            else value_reader(wanted.type, wanted.field.value_format)
            for wanted in plan.wanted
        ]
        self._names = [wanted.field.attribute for wanted in plan.wanted]
        types = {each.name: each.type for each in plan.type.attributes}
        self._blank = dict.fromkeys(types) | {
            name: read_constant(value, types[name]) for name, value in plan.constants.items()
        }

    def read(self, record: Record) -> Event:
        found: dict[int, Any] = {}
        if not _find(self._plan.tree, record, found):
            found.clear()
            self._gather(self._plan.tree, record, (), found)
        made: dict[str, Any] = {}
        for number in sorted(found):
            if (value := self._convert(number, found[number])) is not None and (name := self._names[number]):
                made.setdefault(name, value)  # of several fields the first counts
        return self._checked(self._made({**self._blank, **made}))

    def _gather(self, node: FieldNode, record: Record, path: FieldPath, found: dict[int, Any]) -> None:
        """Collect the values of wanted fields; raise for the first fault, in the order in which the lake finds them."""
        if not node.takes_rest:
            for key in record:
                if key not in node.children and record[key] is not None:
                    reason = f"{self._plan.type.name} has no such attribute"
                    raise _Fault(reason, self._plan.describe_unknown((*path, key)))
        for key, child in node.children.items():
            value = record.get(key)
            if child.refused and value is not None:
                raise _Fault(child.refused)
            if child.wanted or child.children:
                self._enter(child, value, (*path, key), found)

    def _enter(self, node: FieldNode, value: Any, path: FieldPath, found: dict[int, Any]) -> None:
        if value is not None:
            found.update(dict.fromkeys(node.wanted, value))
        if not node.children:
            return
        if type(value) is dict:
            self._gather(node, value, path, found)
        elif value is not None and not node.wanted and not node.is_ignored:
            raise _Fault(f"the field {format_path(path)!r} is not an object")

    def _convert(self, number: int, value: Any) -> Any:
        try:
            return self._readers[number](value)
        except ERRORS:
            raise _Fault(self._plan.describe_type(number), self._plan.describe_wrong(number, value)) from None

    def _made(self, values: dict[str, Any]) -> Event:
        for name in self._plan.type.required:
            if values[name] is None:
                raise _Fault(self._plan.describe_missing(name))
        try:
            made: Event = create_event(self._cls, **values)
            return made
        except Exception as problem:  # of a class's own __post_init__
            raise _Fault(f"not a {self._plan.type.name}", f"not a {self._plan.type.name}: {problem}") from None

    def _checked(self, event: Event) -> Event:
        """The event, unless a bound of its class's own does not hold."""
        if (invalid := invalid_finders[self._cls](event)) is not None:
            raise _Fault(*describe_invalid(event, invalid))
        return event


def _find(node: FieldNode, record: Record, found: dict[int, Any]) -> bool:
    """Collect the values of wanted fields; false if there is a fault. It visits what a record has, not what it may."""
    for key, value in record.items():
        if value is None:
            continue
        child = node.children.get(key)
        if child is None:
            if not node.takes_rest:
                return False
            continue
        for number in child.wanted:
            found[number] = value
        if child.refused or (child.children and not (type(value) is dict and _find(child, value, found))):
            return False
    return True


class _OpaqueReader:
    """Converts JSON values to those of a nested struct or a list."""

    def __init__(self, annotation: Any, absent: tuple[Any, ...]) -> None:
        self._decode = msgspec.json.Decoder(annotation).decode
        self._absent = absent

    def __call__(self, value: Any) -> Any:
        if type(value) in (str, int, float) and value in self._absent:
            return None
        return self._decode(msgspec.json.encode(value))
