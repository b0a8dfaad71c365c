"""The ledger: which types a catalog knows, what they declare, and the vector of each family. It knows no numbers.

A type's entry holds only what it declares itself; what it carries follows from its line up to `Event`. So a type that
gains an attribute gives it to all below it, without a change of their entries.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias

import msgspec

from genus.codes._etags import Block
from genus.model import Attribute, Vector

# What a catalog says: entries, findings and the record of a registration. All frozen.


Status = Literal["added", "deprecated", "kept", "missing", "refused", "conflict"]


class TypeEntry(msgspec.Struct, frozen=True):
    """One type as the catalog holds it; `attributes` says of each it declares itself whether it is required."""

    name: str
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    attributes: Mapping[str, bool]
    code: int
    blocks: tuple[Block, ...]
    deprecated: str | None


class Finding(msgspec.Struct, frozen=True):
    """One line of a check or a difference: what happens to a type or attribute, and why."""

    status: Status
    subject: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.subject}" + (f" {self.text}" if self.text else "")


class Registered(msgspec.Struct, frozen=True):
    """What one registration added; false when it added nothing.

    `attributes` are the names a family's vector grew by, `gained` those that types known before may now carry, and
    `values` those that an enumeration (`family.attribute`) grew by.
    """

    types: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = {}
    gained: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, tuple[str | int, ...]] = {}

    def __bool__(self) -> bool:
        return any((self.types, self.attributes, self.gained, self.values))

    def findings(self) -> Iterator[Finding]:
        """The same as lines."""
        for name in self.types:
            yield Finding("added", name)
        for family, names in self.attributes.items():
            for name in names:
                yield Finding("added", f"{family}.{name}", "(attribute)")
        for type_, names in self.gained.items():
            yield Finding("added", type_, f"may now carry {', '.join(names)}")
        for place, values in self.values.items():
            yield Finding("added", place, f"may now be {', '.join(map(repr, values))}")


ROOT = "Event"
"""The first type of every catalog; its vector is the context that kinds are described by."""


Tagged: TypeAlias = tuple[str, ...]
"""Attributes whose presence event tags tell, the first by the highest bit."""


class Declared(msgspec.Struct, frozen=True):
    """A type as declared: each attribute of its own is required (True) or may be absent (False)."""

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


class Ledger:
    """State: types by name and vectors by family, both in the order in which they came, and what families tag."""

    def __init__(
        self,
        types: dict[str, Declared],
        vectors: dict[str, dict[str, Attribute]],
        tagged: dict[str, Tagged] | None = None,
    ) -> None:
        self.types = types
        self.vectors = vectors
        self.tagged: dict[str, Tagged] = tagged or {}

    def copy(self) -> Self:
        """One that can change while this stays; entries are shared, as they are frozen."""
        return type(self)(dict(self.types), dict(self.vectors), dict(self.tagged))

    def line(self, name: str) -> Iterator[Declared]:
        """A type and the event types it extends, up to `Event`; nothing for a kind."""
        current = None if self.types[name].kind else name
        while current is not None:
            yield self.types[current]
            current = self.types[current].line

    def carried(self, name: str) -> dict[str, bool]:
        """Every attribute events of a type may carry, and whether they must."""
        found: dict[str, bool] = {}
        for declared in reversed(list(self.line(name))):
            found |= declared.attributes
        return found

    def families(self) -> list[str]:
        """Every family but that of `Event` alone."""
        return [family for family in self.vectors if family != ROOT]

    def tagged_of(self, name: str) -> Tagged:
        """The attributes that the event tags of a type tell; a kind and `Event` have none."""
        return self.tagged.get(self.types[name].family or ROOT, ())

    def unit(self, name: str) -> int:
        """How many event tags are a type's own: one for each set of tagged attributes that may be present."""
        return 1 << len(self.tagged_of(name))

    def vector(self, family: str) -> Vector:
        """A family's vector; what its root type requires, every event of the family carries."""
        required = self.carried(family)
        among = self.vectors[family].values()
        return Vector(family, tuple(Attribute(a.name, a.type, not required.get(a.name), a.unit) for a in among))

    def put(self, declared: Declared) -> None:
        """Enter a type, or replace its entry."""
        self.types[declared.name] = declared

    def put_attribute(self, family: str, attribute: Attribute) -> None:
        """Append an attribute to a vector, or replace it in place; vectors of other copies stay."""
        self.vectors[family] = {**self.vectors.get(family, {}), attribute.name: attribute}

    def family_of(self, name: str, line: str | None) -> str:
        """The family of a type that extends another."""
        above = None if line is None else self.types[line].family
        return name if above in (None, ROOT) else str(above)
