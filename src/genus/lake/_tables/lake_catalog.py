"""The catalog of a lake, one file beside its data, and subscriptions resolved against it.

Types are compared by their codes, so types for which this process has no class are matched as well. The file has the
format that buses and brokers use, and may be shared with them.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from genus.catalog import Catalog, RegistrationResult, TypeEntry
from genus.errors import CatalogConflict, CatalogDamaged, LakeDamaged, LakeError
from genus.filters import AllOf, AttributeRef, Subscription
from genus.filters._possibility import report_never, why_never
from genus.filters._subscription import rebuild
from genus.lake._tables.columns import Shape, check_column_names
from genus.lake._tables.files import FileSystem, local_path
from genus.model import ChoiceType, attributes, name_of, vector

CATALOG_FILE = "catalog.json"


class CatalogFile:
    """The catalog file of a lake: read again when it has changed, and extended by `register` and `adopt`."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = f"{path}/{CATALOG_FILE}"
        self._files = files
        self._text = ""
        self._catalog = Catalog()

    @property
    def text(self) -> str:
        """The present content of the file."""
        content = self._files.read(self.path)
        if content is None:
            raise LakeDamaged(f"{self.path} is missing; a lake cannot be read without its catalog")
        try:
            return content.decode()
        except UnicodeDecodeError as problem:
            raise LakeDamaged(f"{self.path}: not UTF-8 text") from problem

    @property
    def catalog(self) -> Catalog:
        """The present catalog; do not change it, call `register`."""
        text = self.text
        if text != self._text:
            self._catalog, self._text = self._parse(text), text
        return self._catalog

    def _parse(self, text: str) -> Catalog:
        """Parse a catalog and give it the classes that the previous one has."""
        try:
            parsed = Catalog.parse(text)
        except CatalogDamaged as problem:
            raise LakeDamaged(f"{self.path}: {problem}") from problem
        known = (self._catalog.declare(name) for name in self._catalog.types if name in parsed)
        parsed.use_classes(*(cls for cls in known if has_names_of(cls, parsed)))
        return parsed

    def register(self, what: Sequence[type | ModuleType]) -> RegistrationResult:
        """Add types to the file; CatalogConflict, and nothing is changed, if one contradicts the catalog."""
        draft = Catalog() if self._files.read(self.path) is None else Catalog.parse(self.text)
        added = draft.register(*what)
        _check_families(draft)
        if (local := local_path(self.path)) is not None:
            _make_folder(os.path.dirname(local))
            Catalog.update(self.path, *what)
        elif added or self._files.read(self.path) is None:
            self._files.replace(self.path, draft.text().encode())
        self._catalog.use_classes(*(each for each in what if isinstance(each, type)))
        return added

    def adopt(self, source: str | os.PathLike[str]) -> None:
        """Replace the catalog by that of a file which extends it; CatalogConflict if it lacks anything.

        Codes and presence bits are then the same in both.
        """
        given = Catalog.load(Path(source))
        _check_families(given)
        stored = self._files.read(self.path)
        known = Catalog() if stored is None else Catalog.parse(stored.decode())
        if stored is not None and known.extends(given):
            return
        if not given.extends(known):
            raise CatalogConflict(f"{source} lacks types of {self.path}; genus catalog diff shows the differences")
        self._files.replace(self.path, given.text().encode())


def has_names_of(cls: type, catalog: Catalog) -> bool:
    """Whether a class of a catalog's type has its attributes under the names of the catalog."""
    scope = catalog.vector(name_of(cls))
    return all(scope.get(attribute.name) is not None for attribute in attributes(cls))


def _check_families(catalog: Catalog) -> None:
    for family in catalog.families.values():
        check_column_names(family)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as problem:
        raise LakeError(f"cannot create {path}: {problem.strerror or problem}") from problem


# -- types of a subscription -------------------------------------------------------------------------------------------


def matching_types(subscription: Subscription, catalog: Catalog, shapes: Iterable[Shape] = ()) -> dict[str, list[str]]:
    """The names of event types whose events can match, by family; shapes may have types that the catalog lacks.

    >>> from genus import Event, Subscription
    >>> class Loop(Event):
    ...     lane: int
    >>> class Radar(Loop): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Radar)
    >>> matching_types(Subscription(Loop), catalog, [Shape("Loop", "Lidar", str(catalog.code(Loop) * 101), "8")])
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
    """Whether a type satisfies `exact`; a type that is not in the catalog does not."""
    return not subscription.exact or (name in entries and subscription.accepts(catalog.declare(name)))


def family_name(what: type | str, catalog: Catalog) -> str:
    """The name of the family of a type; NotRegistered if the catalog lacks the type, LakeError if it is a kind."""
    name = what if isinstance(what, str) else name_of(what)
    catalog.code(name)
    entry = catalog.entries[name]
    if entry.kind:
        raise LakeError(f"{name} is a kind, which several families may have; name an event type")
    return entry.family or name


class SubscriptionResolver:
    """Resolves subscriptions against a catalog; raises NotRegistered or LakeError for what the catalog lacks."""

    def __init__(self, catalog: Catalog, parse: Callable[[str, list[type]], Subscription] = Subscription.parse) -> None:
        self._catalog = catalog
        self._parse = parse
        self._declaring: dict[type, Catalog | None] = {}

    def resolve(self, what: Subscription | str | type | AllOf[Any]) -> Subscription:
        """The subscription given as such, as text or as a type."""
        if isinstance(what, str):
            return self._parse(what, self._types)
        found = what if isinstance(what, Subscription) else Subscription(what)
        self._check(found)
        if found.type not in self._declaring:
            self._declaring[found.type] = self._find_declaring(found.type)
        catalog = self._declaring[found.type]
        return found if catalog is None else self._rebind(found, catalog)

    def report_never(self, subscription: Subscription, *, strict: bool) -> None:
        """Warn if no event of a type that the catalog has can match, or raise SubscriptionError by `strict`."""
        if why_never(subscription) is None:
            return
        self._check(subscription)  # its own classes first: others of this process may have the same names
        if self._types:  # a type that only the catalog has may have matches
            report_never(subscription, strict=strict)

    @cached_property
    def _types(self) -> list[type]:
        return [self._catalog.declare(name) for name in self._catalog.types]

    def _find_declaring(self, cls: type) -> Catalog | None:
        """The catalog whose class is used instead, because its attributes have other names or its enums more values."""
        if not has_names_of(cls, self._catalog):
            return self._catalog
        return self._declared if self._is_outdated(cls) else None

    def _is_outdated(self, cls: type) -> bool:
        """Whether an enum of the type's family has values in the catalog that the class does not have."""
        scope = self._catalog.vector(cls)
        choices = [each for each in vector(cls) if isinstance(each.type, ChoiceType)]
        return any(known is not None and known.type != each.type for each in choices if (known := scope.get(each.name)))

    def _rebind(self, subscription: Subscription, catalog: Catalog | None = None) -> Subscription:
        """The same subscription, bound to classes that a catalog declares instead of those of this process."""
        declare = (catalog or self._declared).declare
        types = tuple(declare(name_of(cls)) for cls in subscription.types)
        return rebuild(
            AllOf(types),
            exact=subscription.exact,
            has=subscription.has,
            lacks=subscription.lacks,
            where=subscription.where,
        )

    @cached_property
    def _declared(self) -> Catalog:
        """A copy of the catalog that knows no class of this process."""
        return Catalog.parse(self._catalog.text())

    def _check(self, subscription: Subscription) -> None:
        for wanted in subscription.types:
            self._catalog.code(wanted)
        scope = self._catalog.vector(subscription.type)
        asked = (*subscription.has, *subscription.lacks, *_attribute_names(subscription))
        if lacking := [name for name in asked if scope.get(name) is None]:
            own = vector(subscription.type).get(lacking[0])
            there = None if own is None else scope.match(own)
            what = f"it is {there.name!r} there; use that name, or" if there is not None else "to use it"
            raise LakeError(
                f"the lake's catalog has no attribute {lacking[0]!r} of {scope.scope}; {what} register its type"
            )


def _attribute_names(subscription: Subscription) -> list[str]:
    """The attributes that the predicate reads."""
    where = subscription.where
    return [node.name for node in where.walk() if isinstance(node, AttributeRef)] if where is not None else []
