"""The fields of records of one type: which are wanted, for which attributes, and which are known or ignored.

A `FieldPlan` is made of a mapping and a type. Readers of single records and of columns gather values by the same plan.
"""

from collections.abc import Iterator

import msgspec

from genus.model.internal import type_text
from genus.model.types import Attribute, AttributeType, OpaqueType, TextType, TimeType
from genus.records._mapping import FieldPath, MappedField, Mapping, RecordType, format_path
from genus.records._values import ISO, TEXT, ValueFormat

NO_SOURCE = "genus:"
"""The source of a CloudEvent whose event has none: CloudEvents must name one, and this is not read as an attribute."""

ENVELOPE = (
    MappedField(("time",), "time"),
    MappedField(("source",), "source", ValueFormat(absent=(NO_SOURCE,))),
    MappedField(("subject",), "place", ValueFormat(absent=("",))),
)
"""Fields of a CloudEvent's envelope that are attributes unless its data has them."""

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
        """Return the node at the end of a path; created if it does not exist."""
        if not path:
            return self
        return self.children.setdefault(path[0], FieldNode(takes_rest=self.takes_rest)).at(path[1:])


class FieldPlan:
    """The wanted fields of records of one type.

    `fallback` are fields to use where a record does not have an attribute otherwise. Records of tables are flat, with
    the names of columns; with `as_text` all values are text, as in CSV. `sources` has for each attribute
    the numbers of its wanted fields, the first that is not absent counts; `recorded` is the number of the field with
    the time of recording. `constants` are the stated values of attributes, as the mapping has them.
    """

    def __init__(
        self,
        mapping: Mapping,
        type_: RecordType,
        fallback: tuple[MappedField, ...] = (),
        *,
        is_flat: bool = False,
        as_text: bool = False,
    ) -> None:
        self.type = type_
        self._is_flat, self._as_text = is_flat, as_text
        self.tree = FieldNode(takes_rest=mapping.ignore_rest)
        self.wanted: list[WantedField] = []
        self.sources: dict[str, list[int]] = {}
        self.recorded: int | None = None
        self._want_all(mapping, fallback)
        for path in (*mapping.naming.fields, *mapping.ignore):
            node = self._node(path)
            node.is_ignored = node.takes_rest = True
        self.constants = {name: value for name, value in mapping.constants if self.attribute(name)}

    def _want_all(self, mapping: Mapping, fallback: tuple[MappedField, ...]) -> None:
        named = mapping.fields_for(self.type.name)
        for field in (*named, *self._alike(mapping, named), *fallback):
            attribute = self.attribute(field.attribute)
            if attribute is not None and not _is_foreign_source(field, attribute):
                self.sources.setdefault(attribute.name, []).append(self._want(field, attribute.type))
        if mapping.recorded is not None:
            self.recorded = self._want(mapping.recorded, TimeType())

    def _alike(self, mapping: Mapping, named: tuple[MappedField, ...]) -> Iterator[MappedField]:
        """Fields named like attributes that the mapping does not mention; a former name comes after the present one."""
        stated = {field.attribute for field in named}
        paths = [*(field.path for field in named), *mapping.naming.fields, *mapping.ignore]
        taken = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        value_format = ValueFormat(zone=mapping.zone, absent=mapping.absent)
        for attribute in self.type.attributes:
            for name in (attribute.name, *attribute.former):
                path = (*mapping.inside, name)
                if attribute.name not in stated and path not in taken:
                    yield MappedField(path, attribute.name, value_format)

    def _want(self, field: MappedField, type_: AttributeType) -> int:
        form = field.value_format
        if self._as_text:
            form = form.as_text()
        elif self._is_flat and isinstance(type_, OpaqueType):
            form = msgspec.structs.replace(form, format=TEXT)  # tables may hold JSON as text only
        field = msgspec.structs.replace(field, value_format=form)
        self.wanted.append(WantedField(field, type_))
        self._node(field.path).wanted.append(len(self.wanted) - 1)
        return len(self.wanted) - 1

    def _node(self, path: FieldPath) -> FieldNode:
        return self.tree.at((column_name(path),) if self._is_flat else path)

    def is_inside(self, column: str) -> bool:
        """Return whether a column of a table is within one that is wanted or ignored, such as a field of a struct."""
        return self._is_flat and column.startswith(tuple(f"{name}." for name in self.tree.children))

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute of a name, if the type has it."""
        return next((each for each in self.type.attributes if each.name == name), None)

    def ignore_envelope(self, mapping: Mapping) -> None:
        """Ignore unknown fields of a CloudEvent's envelope, but not of its data."""
        self.tree.takes_rest = True
        self.tree.at(mapping.inside)
        binary = self.tree.at(("data_base64",))
        if not binary.wanted and not binary.is_ignored:
            binary.refused = "data_base64 holds binary data, which the mapping gives to no attribute"

    def describe_wrong(self, number: int, value: object) -> str:
        wanted = self.wanted[number]
        path, name = format_path(wanted.field.path), wanted.field.attribute
        at = "" if path == name else f" (field {path!r})"
        return f"{self._subject(number)} is {show_value(value)}, but must be {_must(wanted)}{_hint(wanted, value)}{at}"

    def describe_type(self, number: int) -> str:
        """Return what the values of a field must be, without the value at fault."""
        return f"{self._subject(number)} must be {_must(self.wanted[number])}"

    def _subject(self, number: int) -> str:
        name = self.wanted[number].field.attribute
        return f"{self.type.name}.{name}" if name else "the time of recording"


def column_name(path: FieldPath) -> str:
    """Return the name that the column of a table has for a path."""
    return ".".join(path)


def _is_foreign_source(field: MappedField, attribute: Attribute) -> bool:
    """Whether a field is the envelope's source or subject, a text, of a type where that attribute is a number."""
    return field in ENVELOPE and field.attribute != "time" and not isinstance(attribute.type, TextType)


def cloud_mapping(mapping: Mapping) -> Mapping:
    """Return the mapping for CloudEvents: attributes are in `data` unless the mapping says otherwise."""
    return msgspec.structs.replace(mapping, inside=mapping.inside or ("data",))


def describe_version(version: object) -> str:
    return f"specversion is {show_value(version)}; CloudEvents 1.0 are read"


def _must(wanted: WantedField) -> str:
    return "JSON" if isinstance(wanted.type, OpaqueType) else type_text(wanted.type)


def _hint(wanted: WantedField, value: object) -> str:
    if isinstance(wanted.type, TimeType) and wanted.field.value_format.format in ("", ISO, TEXT):
        return " with a zone, as ISO 8601 writes it" if isinstance(value, str) else " (the mapping may state a format)"
    return ""


def show_value(value: object) -> str:
    """Return a value as shown in reasons, shortened if it is long."""
    try:
        text = repr(value) if not isinstance(value, str) else repr(value[: _SHOWN + 1])
    except RecursionError:
        return "a value with too many levels"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
