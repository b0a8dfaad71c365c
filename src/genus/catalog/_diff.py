"""The differences between two catalogs, and whether one extends the other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol

import msgspec

from genus.catalog._records import Finding, Status, TypeEntry
from genus.model.internal import type_text
from genus.model.types import Attribute, ChoiceType, Vector


class CatalogView(Protocol):
    """The parts of a catalog that are compared."""

    @property
    def entries(self) -> Mapping[str, TypeEntry]:
        """Its types."""

    @property
    def families(self) -> Mapping[str, Vector]:
        """Its vectors."""

    def tagged_attributes(self, type_: str, /) -> tuple[str, ...]:
        """Return its tagged attributes."""


def compare_catalogs(old: CatalogView, new: CatalogView) -> Iterator[Finding]:
    """Yield what the new catalog added, deprecated or lacks, and where the two contradict each other."""
    before, now = old.entries, new.entries
    former, vectors = old.families, new.families
    for name in dict.fromkeys((*before, *now)):
        if name not in before:
            yield Finding("added", name, f"with code {now[name].code}")
        elif name not in now:
            yield Finding("missing", name, f"with code {before[name].code}")
        else:
            yield from _between_types(before[name], _as_named_before(now[name], vectors, former))
    for family, vector in former.items():
        if family in vectors:
            tagged = _names_before(new.tagged_attributes(family), vector, vectors[family])
            yield from _between_tagged(family, old.tagged_attributes(family), tagged)
            yield from _between_vectors(vector, vectors[family])


def _names_before(names: Iterable[str], old: Vector, new: Vector) -> tuple[str, ...]:
    """Names of attributes in a vector as those that the same bits had in an older one."""
    before = {now.name: was.name for was, now in zip(old, new, strict=False)}
    return tuple(before.get(name, name) for name in names)


def _as_named_before(entry: TypeEntry, vectors: Mapping[str, Vector], former: Mapping[str, Vector]) -> TypeEntry:
    """Return an entry with the names of attributes in an older catalog, so that only other differences are left."""
    family = entry.family
    if family is None or family not in former or family not in vectors:
        return entry
    names = _names_before(entry.attributes, former[family], vectors[family])
    named = dict(zip(names, entry.attributes.values(), strict=True))
    return msgspec.structs.replace(entry, attributes=named)


def extends(new: CatalogView, old: CatalogView) -> bool:
    """Return whether the new catalog has everything the old one has, in the same order and unchanged."""
    before = list(old.entries)
    begins_alike = list(new.entries)[: len(before)] == before
    return begins_alike and all(
        found.status in ("added", "renamed", "deprecated") for found in compare_catalogs(old, new)
    )


def _between_types(old: TypeEntry, new: TypeEntry) -> Iterator[Finding]:
    for field in ("kind", "parents", "code"):
        before, now = getattr(old, field), getattr(new, field)
        if before != now:
            yield Finding("conflict", old.name, f"has {field} {now}, but had {before}")
    yield from _between_blocks(old, new)
    yield from _between_attributes(old, new)
    yield from _between_notes(old.name, old.deprecated, new.deprecated)


def _between_notes(subject: str, old: str | None, new: str | None) -> Iterator[Finding]:
    """Yield what was deprecated since; a note never changes."""
    if old is None and new is not None:
        yield Finding("deprecated", subject, new)
    elif old != new:
        yield Finding("missing", subject, f"was deprecated: {old}")


def _between_blocks(old: TypeEntry, new: TypeEntry) -> Iterator[Finding]:
    shared = min(len(old.blocks), len(new.blocks))
    if old.blocks[:shared] != new.blocks[:shared]:
        yield Finding("conflict", old.name, "has other event tags")
    elif len(new.blocks) != len(old.blocks):
        more = abs(len(new.blocks) - len(old.blocks))
        yield Finding(
            "added" if len(new.blocks) > shared else "missing", old.name, f"has {more} more block(s) of event tags"
        )


def _between_attributes(old: TypeEntry, new: TypeEntry) -> Iterator[Finding]:
    for name in dict.fromkeys((*old.attributes, *new.attributes)):
        if name not in old.attributes:
            yield Finding("added", f"{old.name}.{name}", "may be carried")
        elif name not in new.attributes:
            yield Finding("missing", f"{old.name}.{name}")
        elif old.attributes[name] != new.attributes[name]:
            words = ("optional", "required")
            now, before = words[new.attributes[name]], words[old.attributes[name]]
            yield Finding("conflict", f"{old.name}.{name}", f"is {now}, but was {before}")


def _between_tagged(family: str, old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[Finding]:
    if old != new:
        now, before = (", ".join(names) or "nothing" for names in (new, old))
        yield Finding("conflict", family, f"has tagged {now}, but had {before}")


def _between_vectors(old: Vector, new: Vector) -> Iterator[Finding]:
    for bit, (before, now) in enumerate(zip_longest(old, new)):
        if before is None:
            yield Finding("added", f"{new.scope}.{now.name}", f"at bit {bit}")
        elif now is None:
            yield Finding("missing", f"{old.scope}.{before.name}", f"at bit {bit}")
        else:
            yield from _between_bits(f"{old.scope} bit {bit}", before, now)
            yield from _between_notes(f"{new.scope}.{now.name}", before.deprecated, now.deprecated)


def _between_bits(where: str, old: Attribute, new: Attribute) -> Iterator[Finding]:
    before, now = _values(old), _values(new)
    grown = before and now and before[: len(now)] == now[: len(before)]
    names = _between_names(old, new)
    if names is None or old.unit != new.unit or (old.type != new.type and not grown):
        yield Finding("conflict", where, f"is {_describe(new)}, but was {_describe(old)}")
        return
    yield from (Finding(status, where, text) for status, text in names)
    if len(before) != len(now):
        longer = max(before, now, key=len)[min(len(before), len(now)) :]
        values = ", ".join(map(repr, longer))
        yield Finding("added" if len(now) > len(before) else "missing", where, f"{new.name} may be {values}")


def _between_names(old: Attribute, new: Attribute) -> list[tuple[Status, str]] | None:
    """Return how the names of a bit differ; None if neither attribute has all names of the other, in the same order."""
    before, now = (each.names or (each.name,) for each in (old, new))
    if before[: len(now)] != now[: len(before)] or (len(before) == len(now) and old.name != new.name):
        return None
    if len(before) == len(now):
        return []
    later, names = (new, now[len(before) :]) if len(now) > len(before) else (old, before[len(now) :])
    other = new.name if later is old else old.name
    text = f"is {later.name}, was {other}" if later.name != other else f"{later.name} was {', '.join(names)}"
    return [("renamed" if later is new else "missing", text)]


def _describe(attribute: Attribute) -> str:
    unit = f" in {attribute.unit}" if attribute.unit else ""
    return f"{attribute.name}: {type_text(attribute.type)}{unit}"


def _values(attribute: Attribute) -> Sequence[str | int]:
    return attribute.type.values if isinstance(attribute.type, ChoiceType) else ()
