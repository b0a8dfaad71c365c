"""The type table: which types a catalog knows, what they declare, and the vector of each family. It holds no numbers.

The record of a type holds only what the type declares itself; inherited attributes follow from the types above it. So a
type that gains an attribute gives it to all below it, without a change of their records.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias, TypeVar

import msgspec

from genus.codes.types import Block
from genus.model.types import Attribute, Vector

V = TypeVar("V")

Status = Literal["added", "renamed", "deprecated", "kept", "missing", "refused", "conflict"]


class TypeEntry(msgspec.Struct, frozen=True):
    """One type as the catalog has it: its declaration, code and event tags.

    `attributes` are those the type declares itself, each with whether it is required (True) or may be absent (False).
    `blocks` are its blocks of event tags, and `deprecated` is the note of a deprecated type, else None.
    """

    name: str
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    attributes: Mapping[str, bool]
    code: int
    blocks: tuple[Block, ...]
    deprecated: str | None


class Finding(msgspec.Struct, frozen=True):
    """One line of `Catalog.check` or `Catalog.diff`: the status of a type or attribute, and the reason.

    `subject` is the name of a type, or `family.attribute`; `str()` gives the line as text.
    """

    status: Status
    subject: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.subject}" + (f" {self.text}" if self.text else "")


class RegistrationResult(msgspec.Struct, frozen=True):
    """What a registration added; false if it added nothing.

    `types` are the new types, `attributes` the new names in the vector of each family, `gained` the new attributes of
    types that were registered before, `values` the new values of enumerations (`family.attribute`), and `renamed` the
    names that attributes (`family.attribute`) had before.
    """

    types: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = {}
    gained: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, tuple[str | int, ...]] = {}
    renamed: Mapping[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return any((self.types, self.attributes, self.gained, self.values, self.renamed))

    def findings(self) -> Iterator[Finding]:
        """Yield the additions as findings, one for each."""
        for name in self.types:
            yield Finding("added", name)
        for family, names in self.attributes.items():
            for name in names:
                yield Finding("added", f"{family}.{name}", "(attribute)")
        for type_, names in self.gained.items():
            yield Finding("added", type_, f"may now carry {', '.join(names)}")
        for attribute, values in self.values.items():
            yield Finding("added", attribute, f"may now be {', '.join(map(repr, values))}")
        for attribute, names in self.renamed.items():
            yield Finding("renamed", attribute, f"was {', '.join(names)}")


def without_names(result: RegistrationResult) -> RegistrationResult:
    """What a registration added that is not only another name of an attribute, whose bit a class can use as it is."""
    return msgspec.structs.replace(result, renamed={})


ROOT = "Event"
"""The first type of every catalog; its vector is also that of kinds."""


TaggedNames: TypeAlias = tuple[str, ...]
"""Tagged attributes, the one with the highest bit first."""


class TypeRecord(msgspec.Struct, frozen=True):
    """A type as declared, with its own attributes: each is required (True) or may be absent (False)."""

    name: str
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    attributes: Mapping[str, bool]
    deprecated: str | None = None

    @property
    def line(self) -> str | None:
        """The event type it extends; None for `Event` and for kinds."""
        return self.parents[0] if self.parents and not self.kind else None


class TypeTable:
    """State: types by name and vectors by family, in the order of registration, and tagged attributes by family.

    `renamed` has the present name of each former name of an attribute, by family.
    """

    def __init__(
        self,
        types: dict[str, TypeRecord],
        vectors: dict[str, dict[str, Attribute]],
        tagged: dict[str, TaggedNames] | None = None,
    ) -> None:
        self.types = types
        self.vectors = vectors
        self.tagged: dict[str, TaggedNames] = tagged or {}
        self.renamed: dict[str, dict[str, str]] = {}

    def copy(self) -> Self:
        """A copy that can change while this one stays; the frozen records are shared."""
        made = type(self)(dict(self.types), dict(self.vectors), dict(self.tagged))
        made.renamed = dict(self.renamed)
        return made

    def line(self, name: str) -> Iterator[TypeRecord]:
        """Yield a type and the event types it extends, up to `Event`; nothing for a kind."""
        current = None if self.types[name].kind else name
        while current is not None:
            yield self.types[current]
            current = self.types[current].line

    def attributes_of(self, name: str) -> dict[str, bool]:
        """Every attribute that events of a type may carry, inherited ones included, and whether it is required."""
        found: dict[str, bool] = {}
        for declared in reversed(list(self.line(name))):
            found |= declared.attributes
        return found

    def families(self) -> list[str]:
        """Every family but that of `Event` alone."""
        return [family for family in self.vectors if family != ROOT]

    def tagged_attributes(self, name: str) -> TaggedNames:
        """Return the tagged attributes of a type's family; a kind and `Event` have none."""
        return self.tagged.get(self.types[name].family or ROOT, ())

    def own_etag_count(self, name: str) -> int:
        """Return the number of a type's own event tags: one for each set of tagged attributes that may be present."""
        return 1 << len(self.tagged_attributes(name))

    def vector(self, family: str) -> Vector:
        """Return a family's vector; an attribute that its root type requires is required in the whole family."""
        required = self.attributes_of(family)
        found = self.vectors[family].values()
        return Vector(family, tuple(msgspec.structs.replace(a, optional=not required.get(a.name)) for a in found))

    def put(self, declared: TypeRecord) -> None:
        """Add a type, or replace its record."""
        self.types[declared.name] = declared

    def put_attribute(self, family: str, attribute: Attribute) -> None:
        """Append an attribute to a vector, or replace it in place; vectors of other copies stay."""
        self.vectors[family] = {**self.vectors.get(family, {}), attribute.name: attribute}
        self._put_former_names(family, attribute)

    def present_name(self, family: str | None, name: str) -> str:
        """Return the name that an attribute of a family has now."""
        return self.renamed.get(family or ROOT, {}).get(name, name)

    def rename_attribute(self, family: str, old: str, new: str) -> None:
        """Give an attribute another name; its bit, and what types say about it, stay."""
        attribute = self.vectors[family][old]
        attribute = msgspec.structs.replace(attribute.with_names((new,)), name=new)
        self.vectors[family] = _with_key(self.vectors[family] | {old: attribute}, old, new)
        self._put_former_names(family, attribute)
        for declared in [each for each in self.types.values() if each.family == family and old in each.attributes]:
            self.put(msgspec.structs.replace(declared, attributes=_with_key(declared.attributes, old, new)))
        if old in self.tagged.get(family, ()):
            self.tagged[family] = tuple(new if name == old else name for name in self.tagged[family])

    def _put_former_names(self, family: str, attribute: Attribute) -> None:
        if attribute.names:
            known = {old: new for old, new in self.renamed.get(family, {}).items() if old != attribute.name}
            self.renamed[family] = known | dict.fromkeys(attribute.former, attribute.name)

    def family_of(self, name: str, line: str | None) -> str:
        """Return the family of a type that extends another."""
        above = None if line is None else self.types[line].family
        return name if above in (None, ROOT) else str(above)


def _with_key(mapping: Mapping[str, V], old: str, new: str) -> dict[str, V]:
    """Return a mapping in the same order with another key for one of its entries."""
    return {new if key == old else key: value for key, value in mapping.items()}
