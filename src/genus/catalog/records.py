"""What a catalog says: entries, findings and the record of a registration. All frozen."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from genus.codes.etags import Block

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
