"""A registration before it takes effect: the type table as it would be, what would be added, and all reasons against.

A change is refused if it would break programs that rely on the catalog: an attribute that changes its type or unit, an
attribute that becomes required or optional after events were recorded, a type that moves in the hierarchy. A class with
*less* than the catalog (without an optional attribute, or the last values of an enumeration) is accepted: it may be an
older version of the class that runs beside newer ones, and every event of it is still valid. So is a class that has an
attribute under a former name, with the same type and unit.

`compare_catalogs` yields the differences between two catalogs, and whether one extends the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol

import msgspec

from genus.catalog._records import ROOT, Finding, RegistrationResult, Status, TypeEntry, TypeRecord, TypeTable
from genus.errors import CatalogConflict
from genus.model import attributes, is_event_type, name_of, parents, tagged_attributes
from genus.model.internal import RETYPABLE, retyped_attributes, type_text
from genus.model.types import Attribute, ChoiceType, Vector


class Registration:
    """State: a copy of the type table to which classes are added, parents first."""

    def __init__(self, table: TypeTable) -> None:
        self.table = table.copy()
        self.problems: list[Finding] = []
        self.kept: list[Finding] = []
        self._types: list[str] = []
        self._attributes: dict[str, list[str]] = {}
        self._gained: dict[str, list[str]] = {}
        self._values: dict[str, tuple[str | int, ...]] = {}
        self._renamed: dict[str, tuple[str, ...]] = {}

    @property
    def result(self) -> RegistrationResult:
        """What would be added."""
        return RegistrationResult(
            tuple(self._types),
            {family: tuple(names) for family, names in self._attributes.items()},
            {name: tuple(names) for name, names in self._gained.items()},
            dict(self._values),
            dict(self._renamed),
        )

    def add_class(self, cls: type) -> None:
        """Add a class, or compare it with its record."""
        name = name_of(cls)
        known = self.table.types.get(name)
        if known is None:
            self._add_type(cls)
        elif self._check_declaration(known, cls):
            self._rename_attributes(cls, known.family)
            self._check_tagged(known, cls)
            self._compare(self.table.types[name], cls)

    def refuse(self, subject: str, text: str) -> None:
        """Add a reason to refuse the whole registration."""
        self.problems.append(Finding("refused", subject, text))

    def deprecated(self, cls: type) -> Iterator[Finding]:
        """Findings about a registered class that is deprecated, or declares deprecated attributes."""
        known = self.table.types.get(name_of(cls))
        if known is None:
            return
        if known.deprecated is not None:
            yield Finding("deprecated", known.name, known.deprecated)
        for attribute in _own_attributes(cls):
            note = self._note_of(known.family, self.table.present_name(known.family, attribute.name))
            if note is not None:
                yield Finding("deprecated", f"{known.name}.{attribute.name}", note)

    def _note_of(self, family: str | None, name: str) -> str | None:
        """Return the note of a deprecated attribute; None if it is not deprecated, or there is no such attribute."""
        attribute = self.table.vectors.get(family or ROOT, {}).get(name)
        return None if attribute is None else attribute.deprecated

    def _refuse_deprecated(self, owner: str, family: str | None, name: str) -> None:
        if (note := self._note_of(family, name)) is not None:
            why = f" ({note})" if note else ""
            self.refuse(f"{owner}.{name}", f"is deprecated in family {family}{why}; leave it out of further types")

    def raise_problems(self) -> None:
        """Raise CatalogConflict if there is a reason to refuse."""
        if self.problems:
            first, *more = self.problems
            rest = f" (and {len(more)} more; Catalog.check lists them)" if more else ""
            raise CatalogConflict(f"{first.subject} {first.text}{rest}")

    # -- types -------------------------------------------------------------------------------------------------------

    def _add_type(self, cls: type) -> None:
        name, above = name_of(cls), tuple(map(name_of, parents(cls)))
        for parent in above:
            if (note := self.table.types[parent].deprecated) is not None:
                why = f" ({note})" if note else ""
                self.refuse(name, f"derives from {parent}, which is deprecated{why}; derive from another type")
        kind = not is_event_type(cls)
        family = None if kind else self.table.family_of(name, above[0] if above else None)
        if family == name != ROOT:
            self.table.vectors[name] = {**self.table.vectors[ROOT], **_retyped(cls)}
            self.table.tagged |= {name: tagged_attributes(cls)} if tagged_attributes(cls) else {}
        self._rename_attributes(cls, family)
        own = {self.table.present_name(family, a.name): not a.optional for a in _own_attributes(cls)}
        for attribute_name in own:
            self._refuse_deprecated(name, family, attribute_name)
        self.table.put(TypeRecord(name, above, kind, family, own))
        self._types.append(name)
        for attribute in self._present_attributes(cls, family):
            self._add_to_vector(name, attribute)

    def _check_declaration(self, known: TypeRecord, cls: type) -> bool:
        """Return whether a known type is still a type or kind with the same parents."""
        kind, above = not is_event_type(cls), tuple(map(name_of, parents(cls)))
        if known.kind != kind:
            was, now = ("a kind", "an event type") if known.kind else ("an event type", "a kind")
            self.refuse(known.name, f"is {now}, but {was} in the catalog; give one of them another name")
        elif set(known.parents) != set(above):
            self.refuse(
                known.name,
                f"derives from {_join(above)}, but from {_join(known.parents)} in the catalog; "
                "keep these, or give the changed class another name",
            )
        else:
            return True
        return False

    def _check_tagged(self, known: TypeRecord, cls: type) -> None:
        """Refuse a family's root with other tagged attributes than before: its event tags are laid out for those."""
        before = self.table.tagged_attributes(known.name)
        now = tuple(self.table.present_name(known.family, name) for name in tagged_attributes(cls))
        if known.name == known.family and before != now:
            self.refuse(
                known.name,
                f"has tagged {_join(now)}, but {_join(before)} in the catalog, and event tags on the bus depend on it; "
                "keep that, or give the changed class another name",
            )

    # -- names -------------------------------------------------------------------------------------------------------

    def _rename_attributes(self, cls: type, family: str | None) -> None:
        """Rename what a class has as renamed, and note former names that the catalog does not know."""
        for attribute in attributes(cls):
            if attribute.names and family is not None:
                for old in attribute.former:
                    self._rename(f"{name_of(cls)}.{attribute.name}", family, old, attribute)
                self._add_names(f"{name_of(cls)}.{attribute.name}", family, attribute)

    def _rename(self, subject: str, family: str, old: str, attribute: Attribute) -> None:
        vector = self.table.vectors[family]
        known = vector.get(old)
        if known is None:
            return
        if attribute.name in vector:
            self.refuse(
                subject,
                f"is renamed from {old}, but family {family} has both with a bit of their own; leave Renamed out, and "
                "keep both attributes",
            )
        elif (reason := _describe_change(known, attribute)) is not None:
            self.refuse(
                subject,
                f"is renamed from {old}, but {reason} in family {family}, and it would take over its bit; keep that, "
                "or leave Renamed out, so that it is a new attribute",
            )
        else:
            self.table.rename_attribute(family, old, attribute.name)
            self._note_renamed(family, attribute.name, (old,))

    def _add_names(self, subject: str, family: str, attribute: Attribute) -> None:
        """Add former names that are new to the catalog to an attribute that it has."""
        known = self.table.vectors[family].get(attribute.name)
        if known is None:
            return
        new = [old for old in attribute.former if old not in known.names and old not in self.table.vectors[family]]
        for old in new:
            if (other := self.table.present_name(family, old)) != old:
                self.refuse(subject, f"is renamed from {old}, but in family {family} that became {other}; remove it")
                return
        if new:
            self.table.put_attribute(family, known.with_names(new))
            self._note_renamed(family, attribute.name, tuple(new))

    def _note_renamed(self, family: str, name: str, names: tuple[str, ...]) -> None:
        key = f"{family}.{name}"
        self._renamed[key] = (*self._renamed.get(key, ()), *names)

    def _present_attributes(self, cls: type, family: str | None) -> list[Attribute]:
        """Return the attributes of a class under their present names, in case that it is an older one."""
        declared = attributes(cls)
        if family not in self.table.renamed:
            return list(declared)
        names = {attribute.name for attribute in declared}
        return [self._present_attribute(name_of(cls), family, attribute, names) for attribute in declared]

    def _present_attribute(self, owner: str, family: str, attribute: Attribute, names: set[str]) -> Attribute:
        now = self.table.present_name(family, attribute.name)
        if now == attribute.name:
            return attribute
        subject, known = f"{owner}.{attribute.name}", self.table.vectors[family][now]
        if now in names or (reason := _describe_change(known, attribute)) is not None:
            what = "declared beside it" if now in names else f"{reason} there"
            self.refuse(subject, f"is the former name of {now} in family {family}, but {what}; choose another name")
        else:
            self.kept.append(Finding("kept", subject, f"as {now}, its present name in the catalog"))
        return msgspec.structs.replace(attribute, name=now, names=())

    # -- attributes --------------------------------------------------------------------------------------------------

    def _compare(self, known: TypeRecord, cls: type) -> None:
        """Compare the attributes a type declares itself; inherited ones were compared with its parents."""
        stored = self.table.attributes_of(known.name)
        declared = {attribute.name: attribute for attribute in self._present_attributes(cls, known.family)}
        named = {self.table.present_name(known.family, attribute.name) for attribute in _own_attributes(cls)}
        own = named | known.attributes.keys()
        for name in (*declared, *(lost for lost in stored if lost not in declared)):
            if name not in own:
                continue
            if name not in declared:
                self._check_removed(known, name, required=stored[name])
            elif name not in stored:
                self._add_attribute(known.name, declared[name])
            else:
                self._check_kept(known, declared[name], required=stored[name])

    def _check_removed(self, known: TypeRecord, name: str, *, required: bool) -> None:
        subject = f"{known.name}.{name}"
        if required:
            self.refuse(
                subject,
                "is required in the catalog, but the class does not have it; declare it again: readers rely on it",
            )
        else:
            self.kept.append(Finding("kept", subject, "in the catalog, though the class does not declare it"))

    def _add_attribute(self, owner: str, attribute: Attribute) -> None:
        if not attribute.optional:
            self.refuse(
                f"{owner}.{attribute.name}",
                "is new and required, but events without it exist; make it Maybe[...], or declare it in a new type",
            )
        known = self.table.types[owner]
        self._refuse_deprecated(owner, known.family, attribute.name)
        grown = {**known.attributes, attribute.name: not attribute.optional}
        self.table.put(msgspec.structs.replace(known, attributes=grown))
        self._gained.setdefault(owner, []).append(attribute.name)
        self._add_to_vector(owner, attribute)

    def _check_kept(self, known: TypeRecord, attribute: Attribute, *, required: bool) -> None:
        subject = f"{known.name}.{attribute.name}"
        if required and attribute.optional:
            self.refuse(
                subject, "may be absent, but is required in the catalog and readers rely on it; require it again"
            )
        elif not required and not attribute.optional:
            self.refuse(
                subject,
                "is required, but optional in the catalog and absent from recorded events; make it Maybe[...] again",
            )
        self._add_to_vector(known.name, attribute)

    def _add_to_vector(self, owner: str, attribute: Attribute) -> None:
        """Add an attribute to the vector of its owner's family; one of `Event` to every vector."""
        family = self.table.types[owner].family
        assert family is not None
        for each in (ROOT, *self.table.families()) if family == ROOT else (family,):
            known = self.table.vectors.get(each, {}).get(attribute.name)
            if known is not None and each != family and attribute.name in RETYPABLE:
                continue  # the root of that family declares it, maybe with another type
            if known is None:
                self._append(each, attribute)
            else:
                self._check_type(f"{owner}.{attribute.name}", each, known, attribute)

    def _append(self, family: str, attribute: Attribute) -> None:
        type_ = attribute.type
        plain = ChoiceType(type_.values) if isinstance(type_, ChoiceType) else type_
        self.table.put_attribute(family, Attribute(attribute.name, plain, True, attribute.unit, attribute.names))
        self._attributes.setdefault(family, []).append(attribute.name)

    def _check_type(self, subject: str, family: str, known: Attribute, attribute: Attribute) -> None:
        if isinstance(known.type, ChoiceType) and isinstance(attribute.type, ChoiceType):
            self._check_values(subject, family, known, known.type, attribute.type)
        elif known.type != attribute.type:
            self.refuse(
                subject,
                f"is {type_text(attribute.type)}, but {type_text(known.type)} in family {family}; "
                "rename the attribute or give it the family's type",
            )
        if attribute.unit is not None and attribute.unit != known.unit:
            self.refuse(
                subject,
                f"is in {attribute.unit}, but {f'in {known.unit}' if known.unit else 'without a unit'} in family "
                f"{family}, and what was written in that unit is not converted; keep it, or declare a new attribute",
            )

    def _check_values(self, subject: str, family: str, known: Attribute, before: ChoiceType, now: ChoiceType) -> None:
        shared = min(len(before.values), len(now.values))
        if before.values[:shared] != now.values[:shared]:
            self.refuse(
                subject,
                f"may be {_join(now.values)}, but {_join(before.values)} in family {family}; "
                "keep these in their order and append new values, or rename the attribute",
            )
        elif new := now.values[shared:]:
            self.table.put_attribute(family, msgspec.structs.replace(known, type=ChoiceType(now.values)))
            self._values[f"{family}.{known.name}"] = new
        elif missing := before.values[shared:]:
            self.kept.append(Finding("kept", subject, f"may be {_join(missing)}, though the class does not say so"))


def _describe_change(known: Attribute, attribute: Attribute) -> str | None:
    """Return what is different about an attribute under another name: its type or its unit; None if nothing is."""
    are_choices = isinstance(known.type, ChoiceType) and isinstance(attribute.type, ChoiceType)
    if known.type != attribute.type and not are_choices:
        return f"is {type_text(attribute.type)} and that is {type_text(known.type)}"
    if attribute.unit not in (None, known.unit):
        return f"is in {attribute.unit} and that is {f'in {known.unit}' if known.unit else 'without a unit'}"
    return None


def _retyped(cls: type) -> dict[str, Attribute]:
    """Return the attributes of `Event` that a family's root declares with another type, as a vector has them."""
    names = retyped_attributes(cls)
    return {
        each.name: Attribute(each.name, each.type, True, each.unit) for each in attributes(cls) if each.name in names
    }


def _own_attributes(cls: type) -> list[Attribute]:
    """Return the attributes a class declares itself, new or narrowed."""
    above = parents(cls)
    inherited = set(attributes(above[0])) if above else set()
    return [attribute for attribute in attributes(cls) if attribute not in inherited]


def _join(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "nothing"


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
