"""A registration on trial: the ledger as it would be, what would be added, and every reason to refuse it.

What is refused is what would break somebody who relies on the catalog: an attribute that changes its type or unit, a
requirement made or dropped after events were recorded, a type that moves in the hierarchy. A class that knows *less*
than the catalog (an optional attribute, the last values of an enumeration) is accepted: it cannot be told from an
older version of the class, started again while newer ones run, and every event of it is still a valid one.
"""

from collections.abc import Iterable

import msgspec

from genus.catalog._records import ROOT, Declared, Finding, Ledger, Registered
from genus.errors import CatalogConflict
from genus.model import Attribute, ChoiceType, attributes, is_event_type, name_of, parents, tagged


class Draft:
    """State: a copy of a ledger that classes are admitted to, parents first."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger.copy()
        self.problems: list[Finding] = []
        self.kept: list[Finding] = []
        self._types: list[str] = []
        self._attributes: dict[str, list[str]] = {}
        self._gained: dict[str, list[str]] = {}
        self._values: dict[str, tuple[str | int, ...]] = {}

    @property
    def registered(self) -> Registered:
        """What would be added."""
        return Registered(
            tuple(self._types),
            {family: tuple(names) for family, names in self._attributes.items()},
            {name: tuple(names) for name, names in self._gained.items()},
            dict(self._values),
        )

    def admit(self, cls: type) -> None:
        """Enter a class, or compare it with its entry."""
        known = self.ledger.types.get(name_of(cls))
        if known is None:
            self._enter(cls)
        elif self._same_place(known, cls):
            self._same_tags(known, cls)
            self._compare(known, cls)

    def refuse(self, subject: str, text: str) -> None:
        """Note a reason to refuse the whole registration."""
        self.problems.append(Finding("refused", subject, text))

    def settle(self) -> None:
        """Raise CatalogConflict if there is a reason to refuse."""
        if self.problems:
            first, *more = self.problems
            rest = f" (and {len(more)} more; Catalog.check lists them)" if more else ""
            raise CatalogConflict(f"{first.subject} {first.text}{rest}")

    # -- types -------------------------------------------------------------------------------------------------------

    def _enter(self, cls: type) -> None:
        name, above = name_of(cls), tuple(map(name_of, parents(cls)))
        for parent in above:
            if (note := self.ledger.types[parent].deprecated) is not None:
                why = f" ({note})" if note else ""
                self.refuse(name, f"derives from {parent}, which is deprecated{why}; derive from another type")
        kind = not is_event_type(cls)
        family = None if kind else self.ledger.family_of(name, above[0] if above else None)
        if family == name != ROOT:
            self.ledger.vectors[name] = dict(self.ledger.vectors[ROOT])
            self.ledger.tagged |= {name: tagged(cls)} if tagged(cls) else {}
        own = {attribute.name: not attribute.optional for attribute in _own(cls)}
        self.ledger.put(Declared(name, above, kind, family, own))
        self._types.append(name)
        for attribute in attributes(cls):
            self._describe(name, attribute)

    def _same_place(self, known: Declared, cls: type) -> bool:
        """Whether a known type is still what and where it was."""
        kind, above = not is_event_type(cls), tuple(map(name_of, parents(cls)))
        if known.kind != kind:
            was, now = ("a kind", "an event type") if known.kind else ("an event type", "a kind")
            self.refuse(known.name, f"is {now}, but {was} in the catalog; give one of them another name")
        elif set(known.parents) != set(above):
            self.refuse(
                known.name,
                f"derives from {_listed(above)}, but from {_listed(known.parents)} in the catalog; "
                "keep these, or give the changed class another name",
            )
        else:
            return True
        return False

    def _same_tags(self, known: Declared, cls: type) -> None:
        """Refuse a family's root that tags other attributes than before: its event tags are laid out for those."""
        before, now = self.ledger.tagged_of(known.name), tagged(cls)
        if known.name == known.family and before != now:
            self.refuse(
                known.name,
                f"has tagged {_listed(now)}, but {_listed(before)} in the catalog, which event tags on the bus follow; "
                "keep that, or give the changed class another name",
            )

    # -- attributes --------------------------------------------------------------------------------------------------

    def _compare(self, known: Declared, cls: type) -> None:
        """Compare what a type declares itself; what it inherits was compared above it."""
        carried = self.ledger.carried(known.name)
        declared = {attribute.name: attribute for attribute in attributes(cls)}
        own = {attribute.name for attribute in _own(cls)} | known.attributes.keys()
        for name in (*declared, *(lost for lost in carried if lost not in declared)):
            if name not in own:
                continue
            if name not in declared:
                self._lose(known, name, required=carried[name])
            elif name not in carried:
                self._gain(known.name, declared[name])
            else:
                self._keep(known, declared[name], required=carried[name])

    def _lose(self, known: Declared, name: str, *, required: bool) -> None:
        place = f"{known.name}.{name}"
        if required:
            self.refuse(
                place, "is required in the catalog, but the class lost it; readers rely on it: declare it again"
            )
        else:
            self.kept.append(Finding("kept", place, "in the catalog, though the class does not declare it"))

    def _gain(self, owner: str, attribute: Attribute) -> None:
        if not attribute.optional:
            self.refuse(
                f"{owner}.{attribute.name}",
                "is new and required, but events without it exist; make it Maybe[...], or declare it in a new type",
            )
        known = self.ledger.types[owner]
        grown = {**known.attributes, attribute.name: not attribute.optional}
        self.ledger.put(msgspec.structs.replace(known, attributes=grown))
        self._gained.setdefault(owner, []).append(attribute.name)
        self._describe(owner, attribute)

    def _keep(self, known: Declared, attribute: Attribute, *, required: bool) -> None:
        place = f"{known.name}.{attribute.name}"
        if required and attribute.optional:
            self.refuse(place, "may be absent, but is required in the catalog and readers rely on it; require it again")
        elif not required and not attribute.optional:
            self.refuse(
                place, "is required, but may be absent in the catalog and in recorded events; make it Maybe[...] again"
            )
        self._describe(known.name, attribute)

    def _describe(self, owner: str, attribute: Attribute) -> None:
        """Put an attribute into the vector of its owner's family; one of `Event` into every vector."""
        family = self.ledger.types[owner].family
        assert family is not None
        for each in (ROOT, *self.ledger.families()) if family == ROOT else (family,):
            known = self.ledger.vectors.get(each, {}).get(attribute.name)
            if known is None:
                self._append(each, attribute)
            else:
                self._agree(f"{owner}.{attribute.name}", each, known, attribute)

    def _append(self, family: str, attribute: Attribute) -> None:
        type_ = attribute.type
        plain = ChoiceType(type_.values) if isinstance(type_, ChoiceType) else type_
        self.ledger.put_attribute(family, Attribute(attribute.name, plain, True, attribute.unit))
        self._attributes.setdefault(family, []).append(attribute.name)

    def _agree(self, place: str, family: str, known: Attribute, attribute: Attribute) -> None:
        if isinstance(known.type, ChoiceType) and isinstance(attribute.type, ChoiceType):
            self._agree_on_values(place, family, known, known.type, attribute.type)
        elif known.type != attribute.type:
            self.refuse(
                place,
                f"is {attribute.type.describe()}, but {known.type.describe()} in family {family}; "
                "rename the attribute or give it the family's type",
            )
        if attribute.unit is not None and attribute.unit != known.unit:
            self.refuse(
                place,
                f"is in {attribute.unit}, but {f'in {known.unit}' if known.unit else 'without a unit'} in family "
                f"{family}; rename the attribute or keep its unit",
            )

    def _agree_on_values(self, place: str, family: str, known: Attribute, before: ChoiceType, now: ChoiceType) -> None:
        shared = min(len(before.values), len(now.values))
        if before.values[:shared] != now.values[:shared]:
            self.refuse(
                place,
                f"may be {_listed(now.values)}, but {_listed(before.values)} in family {family}; "
                "keep these in their order and append new values, or rename the attribute",
            )
        elif new := now.values[shared:]:
            self.ledger.put_attribute(family, msgspec.structs.replace(known, type=ChoiceType(now.values)))
            self._values[f"{family}.{known.name}"] = new
        elif missing := before.values[shared:]:
            self.kept.append(Finding("kept", place, f"may be {_listed(missing)}, though the class does not say so"))


def _own(cls: type) -> list[Attribute]:
    """The attributes a class declares itself, new or narrowed."""
    above = parents(cls)
    inherited = set(attributes(above[0])) if above else set()
    return [attribute for attribute in attributes(cls) if attribute not in inherited]


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "nothing"
