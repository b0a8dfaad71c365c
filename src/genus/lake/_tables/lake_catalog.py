"""Which types of a lake a subscription is about, by codes: also types that this process has no class for."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from genus.catalog import Catalog, RegistrationResult, TypeEntry
from genus.errors import CatalogDamaged, LakeDamaged, LakeError
from genus.filters import AllOf, AttributeRef, Subscription
from genus.lake._tables.columns import Shape, check_names
from genus.lake._tables.files import Files, local_path
from genus.model import ChoiceType, name_of, vector

# The catalog of a lake: one file beside its data, in the form that buses and brokers use too.


CATALOG = "catalog.json"


class Agreed:
    """Reads the catalog again when it was changed, and registers types with it."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = f"{path}/{CATALOG}"
        self._files = files
        self._text = ""
        self._catalog = Catalog()

    @property
    def text(self) -> str:
        """What the file holds by now."""
        content = self._files.read(self.path)
        if content is None:
            raise LakeDamaged(f"{self.path} is missing: a lake cannot be read without its catalog")
        try:
            return content.decode()
        except UnicodeDecodeError as problem:
            raise LakeDamaged(f"{self.path}: not UTF-8 text") from problem

    @property
    def catalog(self) -> Catalog:
        """The catalog by now; not to be changed, `register` does that."""
        text = self.text
        if text != self._text:
            self._catalog, self._text = self._parsed(text), text
        return self._catalog

    def _parsed(self, text: str) -> Catalog:
        """A catalog that knows its types by the classes that were registered here before."""
        try:
            parsed = Catalog.parse(text)
        except CatalogDamaged as problem:
            raise LakeDamaged(f"{self.path}: {problem}") from problem
        parsed.use_classes(*(self._catalog.declare(name) for name in self._catalog.types if name in parsed))
        return parsed

    def register(self, what: Sequence[type | ModuleType]) -> RegistrationResult:
        """Add types to the file; CatalogConflict, and nothing changed, if any contradicts what is there."""
        draft = Catalog() if self._files.read(self.path) is None else Catalog.parse(self.text)
        added = draft.register(*what)
        for family in draft.families.values():
            check_names(family)
        if (local := local_path(self.path)) is not None:
            _make_folder(os.path.dirname(local))
            Catalog.update(self.path, *what)
        elif added or self._files.read(self.path) is None:
            self._files.replace(self.path, draft.text().encode())
        self._catalog.use_classes(*(each for each in what if isinstance(each, type)))
        return added


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as problem:
        raise LakeError(f"cannot make {path}: {problem.strerror or problem}") from problem


def type_names(subscription: Subscription, catalog: Catalog, shapes: Iterable[Shape] = ()) -> dict[str, list[str]]:
    """The event types whose events can match, by family; shapes may know of types that the catalog does not.

    >>> from genus import Event, Subscription
    >>> class Loop(Event):
    ...     lane: int
    >>> class Radar(Loop): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Radar)
    >>> type_names(Subscription(Loop), catalog, [Shape("Loop", "Lidar", str(catalog.code(Loop) * 101), "8")])
    {'Loop': ['Lidar', 'Loop', 'Radar']}
    """
    codes = [catalog.code(wanted) for wanted in subscription.types]
    entries = catalog.entries
    found: dict[str, set[str]] = {}
    for family, name, code in _known_types(entries, shapes):
        if all(code % each == 0 for each in codes) and _is_direct(subscription, catalog, entries, name):
            found.setdefault(family, set()).add(name)
    return {family: sorted(names) for family, names in sorted(found.items())}


def _known_types(entries: Mapping[str, TypeEntry], shapes: Iterable[Shape]) -> set[tuple[str, str, int]]:
    registered = {(entry.family or entry.name, entry.name, entry.code) for entry in entries.values() if not entry.kind}
    return registered | {(shape.family, shape.type, int(shape.code)) for shape in shapes}


def _is_direct(subscription: Subscription, catalog: Catalog, entries: Mapping[str, TypeEntry], name: str) -> bool:
    """Whether a type conforms directly, if that is asked for; of one that nobody declared it cannot be told."""
    return not subscription.exact or (name in entries and subscription.accepts(catalog.declare(name)))


def family_of(what: type | str, catalog: Catalog) -> str:
    """The family that a type is of, whose table its events are in; NotRegistered if the catalog has no such type."""
    name = what if isinstance(what, str) else name_of(what)
    catalog.code(name)
    entry = catalog.entries[name]
    if entry.kind:
        raise LakeError(f"{name} is a kind, which several families may have; name a type")
    return entry.family or name


class Terms:
    """Subscriptions in terms of a catalog: by its types, refused if it does not know them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._is_old: dict[type, bool] = {}

    def __call__(self, what: Subscription | str | type | AllOf[Any]) -> Subscription:
        """A subscription, given as such, as its text or as a type; NotRegistered and LakeError name what lacks."""
        if isinstance(what, str):
            return self.parsed(what)
        found = what if isinstance(what, Subscription) else Subscription(what)
        self._check(found)
        if found.type not in self._is_old:
            self._is_old[found.type] = self._has_grown(found.type)
        return self._again.parsed(str(found)) if self._is_old[found.type] else found

    def parsed(self, text: str) -> Subscription:
        """The subscription of a text."""
        return Subscription.parse(text, self._types)

    @cached_property
    def _types(self) -> list[type]:
        return [self._catalog.declare(name) for name in self._catalog.types]

    @cached_property
    def _again(self) -> "Terms":
        """The terms of a catalog that knows no class of this process."""
        return Terms(Catalog.parse(self._catalog.text()))

    def _has_grown(self, cls: type) -> bool:
        """Whether an enumeration of a type's family has values by now that its class does not know."""
        scope = self._catalog.vector(cls)
        choices = [each for each in vector(cls) if isinstance(each.type, ChoiceType)]
        return any(known is not None and known.type != each.type for each in choices if (known := scope.get(each.name)))

    def _check(self, subscription: Subscription) -> None:
        for wanted in subscription.types:
            self._catalog.code(wanted)
        scope = self._catalog.vector(subscription.type)
        asked = (*subscription.has, *subscription.lacks, *_named(subscription))
        if lacking := [name for name in asked if scope.get(name) is None]:
            raise LakeError(f"the lake's catalog has no attribute {lacking[0]!r} of {scope.scope}; register its type")


def _named(subscription: Subscription) -> list[str]:
    """The attributes that a predicate reads."""
    where = subscription.where
    return [node.name for node in where.walk() if isinstance(node, AttributeRef)] if where is not None else []
