"""The catalog of a lake, one file beside its data, and subscriptions resolved against it.

Types are compared by their codes, so types for which this process has no class are matched as well. The file has the
format that buses and brokers use, and may be shared with them.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from genus.catalog import Catalog
from genus.catalog.types import RegistrationResult, TypeEntry
from genus.errors import CatalogConflict, CatalogDamaged, LakeDamaged, LakeError, SubscriptionError
from genus.filters import Subscription
from genus.filters.internal import rebuild, report_never, why_never
from genus.filters.types import AllOf, AttributeRef
from genus.lake._tables.commits import Shape, check_column_names
from genus.lake._tables.file_systems import FileSystem, ObjectFileSystem
from genus.lake._tables.files import file_error, local_path
from genus.model import attributes, name_of, pure_kind, vector
from genus.model.types import ChoiceType

CATALOG_FILE = "catalog.json"
_WORDS = re.compile(r"[^\W\d][\w.]*")


class CatalogFile:
    """The catalog file of a lake: read again when it has changed, and extended by `register` and `adopt`."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = f"{path}/{CATALOG_FILE}"
        self._files = files
        self._text = ""
        self._catalog = Catalog()
        self._registered: tuple[str | None, frozenset[type | ModuleType]] = None, frozenset()
        """The content of the file after the last registration, and the classes that were registered."""

    @property
    def text(self) -> str:
        if (text := self._read()) is None:
            raise LakeDamaged(f"{self.path} is missing; restore it, or call `genus lake check --restore-catalog`")
        return text

    def _read(self) -> str | None:
        content = self._files.read(self.path)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError as problem:
            raise LakeDamaged(f"{self.path}: not UTF-8 text") from problem

    @property
    def catalog(self) -> Catalog:
        """The present catalog; do not change it, call `register`."""
        text = self.text
        if text != self._text:
            self._catalog, self._text = self._parse(text), text
        return self._catalog

    def check_same(self, committed: str | None) -> None:
        """Raise LakeDamaged if the file is not the catalog that events were committed with, or an extension of it."""
        text = self.text
        if committed is None or text == committed or self._parse(text).extends(Catalog.parse(committed)):
            return
        raise LakeDamaged(
            f"{self.path} is not the catalog of this lake: types, codes or bits of the events in it are missing or "
            "others; put the right file back, or call Lake.restore_catalog or `genus lake check --restore-catalog`"
        )

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
        """Add types to the file; CatalogConflict, and nothing is changed, if one contradicts the catalog.

        Registering the same classes again, while the file stays as it is, costs a read of the file.
        """
        text = self._read()
        if text is not None and text == self._registered[0] and self._registered[1].issuperset(what):
            return RegistrationResult()
        while True:
            draft = Catalog() if text is None else Catalog.parse(text)
            added = draft.register(*what)
            _check_families(draft)
            if (text is not None and not added) or self._write(text, draft, what):
                break
            text = self._read()
        classes = [each for each in what if isinstance(each, type)]
        self._catalog.use_classes(*classes)
        self._registered = self.text, frozenset(classes)
        return added

    def _write(self, before: str | None, draft: Catalog, what: Sequence[type | ModuleType]) -> bool:
        """Add types to the file, of which `draft` is what it would be; False if another writer has changed it."""
        content = draft.text().encode()
        if isinstance(self._files, ObjectFileSystem):
            return self._files.swap(self.path, None if before is None else before.encode(), content)
        if (local := local_path(self.path)) is None:
            self._files.replace(self.path, content)
            return True
        try:
            os.makedirs(os.path.dirname(local), exist_ok=True)
        except OSError as problem:
            raise file_error("create", os.path.dirname(local), problem) from problem
        Catalog.update(self.path, *what)
        return True

    def replace(self, text: str) -> None:
        self._files.replace(self.path, text.encode())

    def adopt(self, source: str | os.PathLike[str]) -> None:
        """Replace the catalog by that of a file which extends it; CatalogConflict if it lacks anything.

        Codes and presence bits are then the same in both.
        """
        given = Catalog.load(Path(source))
        _check_families(given)
        stored = self._read()
        known = Catalog() if stored is None else Catalog.parse(stored)
        if stored is not None and known.extends(given):
            return
        if not given.extends(known):
            raise CatalogConflict(f"{source} lacks types of {self.path}; genus catalog diff shows the differences")
        self.replace(given.text())


def has_names_of(cls: type, catalog: Catalog) -> bool:
    """Return whether a class of a catalog's type has its attributes under the names of the catalog."""
    scope = catalog.vector(name_of(cls))
    return all(scope.get(attribute.name) is not None for attribute in attributes(cls))


def _check_families(catalog: Catalog) -> None:
    for family in catalog.families.values():
        check_column_names(family)


# -- types of a subscription -------------------------------------------------------------------------------------------


def matching_types(subscription: Subscription, catalog: Catalog, shapes: Iterable[Shape] = ()) -> dict[str, list[str]]:
    """Return the names of event types whose events can match, by family; shapes may have types that the catalog lacks.

    >>> from genus import Event, Subscription
    >>> class Loop(Event):
    ...     lane: int
    >>> class Radar(Loop): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Radar)
    >>> matching_types(Subscription(Loop), catalog, [Shape("Loop", "Lidar", str(catalog.code(Loop) * 101), "8")])
    {'Loop': ['Lidar', 'Loop', 'Radar']}
    """
    wanted = [name_of(each) for each in subscription.types]
    codes = [catalog.code(each) for each in subscription.types]
    if subscription.exact:  # to a pure class: to its kind, which others may have
        wanted = [exact_name(name, catalog) for name in wanted]
        codes = [catalog.code(name) for name in wanted]
    types = [(each.family or each.name, each.name, each.code) for each in catalog.entries.values() if not each.kind]
    types += [(shape.family, shape.type, int(shape.code)) for shape in shapes]
    found: dict[str, set[str]] = {}
    for family, name, code in types:
        if any(code % each for each in codes):
            continue
        if not subscription.exact or (name in catalog and exact_name(name, catalog) == wanted[0]):
            found.setdefault(family, set()).add(name)
    return {family: sorted(names) for family, names in sorted(found.items())}


def exact_name(name: str, catalog: Catalog) -> str:
    """Return the name that exact subscriptions compare: of a pure class, that of its kind."""
    kind = pure_kind(catalog.declare(name)) if name in catalog else None
    return name if kind is None else name_of(kind)


def attribute_names(name: str, entries: Mapping[str, TypeEntry]) -> Iterator[str]:
    """Yield the attributes that events of a type may carry, inherited ones included; none for a kind."""
    line: str | None = name
    while line is not None and not entries[line].kind:
        yield from entries[line].attributes
        line = next(iter(entries[line].parents), None)


def family_name(what: type | str, catalog: Catalog) -> str:
    """The name of the family of a type; NotRegistered if the catalog lacks the type, LakeError if it is a kind."""
    name = what if isinstance(what, str) else name_of(what)
    catalog.code(name)
    entry = catalog.entries[name]
    if entry.kind:
        raise LakeError(f"{name} is a kind, which several families may have; name an event type")
    return entry.family or name


class SubscriptionResolver:
    """Resolves subscriptions against a catalog; raises NotRegistered or LakeError for what the catalog lacks.

    A subscription means what the catalog says. Classes of this process are used where they have all that the catalog
    has; instead of one that is older, or has other names, a class is generated from the catalog.

    With `declares_subtypes`, all types of the catalog are declared for a text, as targets ask for subtypes. Without,
    only those that it needs, for who asks the catalog for subtypes: most texts name one type.
    """

    def __init__(
        self,
        catalog: Catalog,
        parse: Callable[[str, Iterable[type]], Subscription] = Subscription.parse,
        *,
        declares_subtypes: bool = True,
    ) -> None:
        self._catalog = catalog
        self._parse = parse
        self._declares_subtypes = declares_subtypes
        self._is_outdated: Callable[[type], bool] = cache(partial(_is_outdated, catalog))
        self._hidden_names: Callable[[type], set[str]] = cache(partial(_hidden_names, catalog))

    def resolve(self, what: Subscription | str | type | AllOf[Any]) -> Subscription:
        if isinstance(what, str):
            return self._resolve_text(what)
        found = what if isinstance(what, Subscription) else Subscription(what)
        self._check(found)
        return self._rebind(found) if any(map(self._is_outdated, found.types)) else found

    def report_never(self, subscription: Subscription, *, strict: bool) -> None:
        """Warn if no event of a type that the catalog has can match, or raise SubscriptionError by `strict`."""
        if why_never(subscription) is None:
            return
        self._check(subscription)  # its own classes first: others of this process may have the same names
        if self._own:  # a type that only the catalog has may have matches
            report_never(subscription, strict=strict)

    @cached_property
    def _own(self) -> dict[str, type]:
        """The class of each type: that of this process, if it fits. All are declared, as targets ask for subtypes."""
        return {name: self._catalog.declare(name) for name in self._catalog.types}

    @cached_property
    def _generated(self) -> dict[str, type]:
        return {name: self._catalog.declare(name, generated=True) for name in self._catalog.types}

    def _resolve_text(self, text: str) -> Subscription:
        """Return the subscription of a text; only a class of this process may have properties that the text names."""
        words = set(_WORDS.findall(text))
        if not self._declares_subtypes and (only := self._only_type(words)) is not None:
            return self._parse(text, [only])
        named = [name for name in words if name in self._own]
        own = [self._own[name] for name in named]
        if not any(self._is_outdated(cls) or not words.isdisjoint(self._hidden_names(cls)) for cls in own):
            return self._parse(text, own or self._own.values())
        try:
            return self._parse(text, [self._generated[name] for name in named])
        except SubscriptionError:
            with suppress(SubscriptionError):
                return self._rebind(self._parse(text, own))
            raise

    def _only_type(self, words: set[str]) -> type | None:
        """Return the class of the only type that a text names, if its meaning needs no other class to be declared.

        That is so if the class has all that the catalog has, and the text names no other attributes of the family.
        """
        named = [word for word in words if word in self._catalog]
        if len(named) != 1:
            return None
        cls = self._catalog.declare(named[0])
        others = {each.name for each in self._catalog.vector(named[0])}.difference(
            each.name for each in attributes(cls)
        )
        return cls if words.isdisjoint(others) and not self._is_outdated(cls) else None

    def _rebind(self, asked: Subscription) -> Subscription:
        types: AllOf[Any] = AllOf(tuple(self._generated[name_of(cls)] for cls in asked.types))
        return rebuild(types, exact=asked.exact, has=asked.has, lacks=asked.lacks, where=asked.where)

    def _check(self, subscription: Subscription) -> None:
        for wanted in subscription.types:
            self._catalog.code(wanted)
        scope = self._catalog.vector(subscription.type)
        nodes = [] if subscription.where is None else subscription.where.walk()
        read = [node.name for node in nodes if isinstance(node, AttributeRef)]
        asked = (*subscription.has, *subscription.lacks, *read)
        if lacking := [name for name in asked if scope.get(name) is None]:
            own = vector(subscription.type).get(lacking[0])
            there = None if own is None else scope.match(own)
            what = f"it is {there.name!r} there; use that name, or" if there is not None else "to use it"
            raise LakeError(
                f"the lake's catalog has no attribute {lacking[0]!r} of {scope.scope}; {what} register its type"
            )


def _hidden_names(catalog: Catalog, cls: type) -> set[str]:
    """Return the attributes that the family of a type has in a catalog and not in this process."""
    return {each.name for each in catalog.vector(name_of(cls))}.difference(each.name for each in vector(cls))


def _is_outdated(catalog: Catalog, cls: type) -> bool:
    """Return whether a class lacks attributes, their names, or values of enums that its type has in a catalog."""
    own, scope = {each.name for each in attributes(cls)}, catalog.vector(name_of(cls))
    choices = [each for each in vector(cls) if isinstance(each.type, ChoiceType)]
    return not (
        has_names_of(cls, catalog)
        and own.issuperset(attribute_names(name_of(cls), catalog.entries))
        and all(there.type == each.type for each in choices if (there := scope.get(each.name)) is not None)
    )
