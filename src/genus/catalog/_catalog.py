"""`Catalog`: the codes, vectors and event tags that a system agrees on; they never change once given."""

import os
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType, ModuleType
from typing import Any, Self

import msgspec

from genus.catalog._declare import ClassCache, collect_types, describe_clash, order_classes
from genus.catalog._file import Damage, format_catalog, lock_file, parse_catalog, read_text, real_path, replace_text
from genus.catalog._records import (
    ROOT,
    Finding,
    NumberAllocator,
    RegistrationResult,
    TypeEntry,
    TypeTable,
    presence_reader,
    without_names,
)
from genus.catalog._registration import Registration, compare_catalogs, extends
from genus.codes.types import Block
from genus.errors import CatalogConflict, CatalogDamaged, CatalogUnavailable, HierarchyError, NotRegistered
from genus.model import Event, Span, attributes, name_of, seconds
from genus.model.types import Vector

LOCK_TIMEOUT = "10s"
"""The longest wait for another process that writes the same file."""

Path = str | os.PathLike[str]


class Catalog:
    """The types a system agrees on, with their codes, vectors and event tags; it only grows.

    A new catalog has `Event` only. Types are registered as classes or whole modules. Methods that take a type take the
    class or its name, and raise NotRegistered if it is not in the catalog and CatalogConflict if the class contradicts
    its entry. A catalog may be used by several threads.

    >>> from genus import Event, Kind, Maybe
    >>> class Roadside(Kind): ...
    >>> class Loop(Event, Roadside):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> catalog = Catalog()
    >>> catalog.register(Loop).types
    ('Roadside', 'Loop')
    >>> catalog.code(Loop), catalog.subsumes(Roadside, Loop)
    (12, True)
    >>> catalog.shape(Loop(lane=2, place="A8"))
    ('Loop', 36)
    >>> catalog.vector(Loop).names_of(36)
    ('place', 'lane')
    """

    def __init__(self) -> None:
        self._table = TypeTable({}, {})
        self._numbers = NumberAllocator()
        self._begin()
        self.register(Event)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._classes: dict[str, type] = {}
        self._used: set[type] = set()
        self._readers: dict[type, Callable[[Any], int]] = {}
        self._etag_readers: dict[type, Callable[[Any], int]] = {}
        self._vectors: dict[str, Vector] = {}
        self._owners: dict[int, str] | None = None
        self._entries: Mapping[str, TypeEntry] | None = None
        self._declarations, self._generated = ClassCache(), ClassCache(find=False)

    @classmethod
    def _of(cls, table: TypeTable, numbers: NumberAllocator) -> Self:
        made = cls.__new__(cls)
        made._table, made._numbers = table, numbers
        made._begin()
        return made

    # -- growing -----------------------------------------------------------------------------------------------------

    def register(self, *what: type | ModuleType) -> RegistrationResult:
        """Register classes and all types above them, or the types of modules, and return what was new.

        Classes that are registered already add nothing. Raises CatalogConflict, and changes nothing, if a class
        contradicts the catalog, and DeclarationError for anything that is neither class nor module. Types of one call
        are registered with those first that have most types below them.
        """
        with self._lock:
            classes = order_classes(collect_types(what), self._classes)
            registration = self._try_registration(classes)
            registration.raise_problems()
            new = [registration.table.types[name] for name in registration.result.types]
            try:
                self._numbers.allocate(new, registration.table)
            except HierarchyError as problem:
                raise CatalogConflict(str(problem)) from problem
            self._table = registration.table
            self._vectors, self._owners, self._entries, self._generated = {}, None, None, ClassCache(find=False)
            self._classes |= {name_of(cls): cls for cls in classes}
            return registration.result

    def give_etags(self, *types: type | str) -> tuple[str, ...]:
        """Give event tags to types that have none, and to the types above them; return which got some.

        A CAN bus asks for the types that it carries; others need no event tags. Registering gives them while there are
        plenty. Kinds have none and are ignored. Event tags never change once given. For a catalog that programs share
        use `Catalog.update_etags`. Raises EtagsExhausted, and gives none, if there are too few left.

        >>> from genus import Event
        >>> class Tank(Event): ...
        >>> catalog = Catalog()
        >>> added = catalog.register(Tank)
        >>> catalog.has_etag(Tank), catalog.give_etags(Tank)
        (True, ())
        """
        with self._lock:
            given = self._numbers.give_etags([self._name(each) for each in types], self._table)
            self._owners = self._entries = None
            return given

    def deprecate(self, name: type | str, note: str | None = None, *, attribute: str | None = None) -> None:
        """Mark a type, or an attribute of its family, as deprecated, with a note that says what to use instead.

        Numbers and bits stay, and events and subscriptions work as before; but no new type can be derived from the
        type, and no further type can declare the attribute. `check` names the classes that still use it.

        Raises CatalogConflict for `Event` and its attributes, and if it is deprecated already with another note, and
        NotRegistered for an attribute that the family does not have.
        """
        with self._lock:
            known = self._table.types[self._name(name)]
            if attribute is not None:
                self._deprecate_attribute(known.name, attribute, note or "")
                return
            if known.name == ROOT:
                raise CatalogConflict(f"{ROOT} cannot be deprecated: every type derives from it")
            _check_note(known.name, known.deprecated, note or "")
            self._numbers.codes.deprecate(known.name)
            self._table.put(msgspec.structs.replace(known, deprecated=note or ""))
            self._entries = None

    def _deprecate_attribute(self, name: str, attribute: str, note: str) -> None:
        family = self._table.types[name].family or ROOT
        known = self._vector(family).get(attribute)
        if known is None:
            raise NotRegistered(self._vector(family).describe_unknown(attribute))
        if attribute in self._table.vectors[ROOT]:
            raise CatalogConflict(f"{attribute} cannot be deprecated: every event may carry it")
        _check_note(f"{family}.{attribute}", known.deprecated, note)
        self._table.put_attribute(
            family, msgspec.structs.replace(self._table.vectors[family][attribute], deprecated=note)
        )
        self._vectors = {}

    def check(self, *what: type | ModuleType) -> list[Finding]:
        """Return what registering would add or refuse, and what the catalog has beyond the classes; changes nothing.

        The statuses of the findings are "refused", "added", "kept" and, for a class that is deprecated or declares a
        deprecated attribute, "deprecated". No findings means that everything is registered.
        """
        with self._lock:
            classes = order_classes(collect_types(what), self._classes)
            registration = self._try_registration(classes)
            new = [registration.table.types[name] for name in registration.result.types]
            if new and not registration.problems:
                try:
                    self._numbers.copy().allocate(new, registration.table)
                except HierarchyError as problem:
                    registration.refuse(new[0].name, f"and the types with it cannot be numbered: {problem}")
            old = [found for cls in classes for found in registration.deprecated(cls)]
            return registration.problems or [*registration.result.findings(), *registration.kept, *old]

    def diff(self, other: "Catalog") -> list[Finding]:
        """Return what another catalog added to this one, deprecated or lacks, and where the two contradict each other.

        The statuses of the findings are "added", "deprecated", "missing" and "conflict".
        """
        return list(compare_catalogs(self, other))

    def extends(self, other: "Catalog") -> bool:
        """Return whether this catalog has everything that another has, unchanged and in the same order."""
        return extends(self, other)

    def _try_registration(self, classes: list[type]) -> Registration:
        registration = Registration(self._table)
        seen = ChainMap({}, self._classes)
        for cls in classes:
            known = seen.setdefault(name_of(cls), cls)
            if known is not cls and (problem := describe_clash(known, cls)):
                registration.refuse(name_of(cls), problem)
            elif self._classes.get(name_of(cls)) is not cls:
                registration.add_class(cls)
        return registration

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def types(self) -> tuple[str, ...]:
        """The names of all types and kinds, deprecated ones included, in the order they were registered."""
        return tuple(self._table.types)

    @property
    def deprecated(self) -> Mapping[str, str]:
        """The deprecated types and attributes (`family.attribute`), each with its note."""
        types = {declared.name: declared.deprecated for declared in self._table.types.values()}
        attributes = {
            f"{family}.{each.name}": each.deprecated
            for family, vector in self._table.vectors.items()
            for each in vector.values()
        }
        return {name: note for name, note in (types | attributes).items() if note is not None}

    @property
    def entries(self) -> Mapping[str, TypeEntry]:
        """The entry of each type, by name, in the order of registration."""
        entries = self._entries
        if entries is None:
            with self._lock:
                entries = self._entries = self._make_entries()
        return entries

    def _make_entries(self) -> Mapping[str, TypeEntry]:
        codes, blocks = self._numbers.codes.codes, self._numbers.blocks()
        return MappingProxyType(
            {
                d.name: TypeEntry(
                    d.name,
                    d.parents,
                    d.kind,
                    d.family,
                    d.attributes,
                    codes[d.name],
                    blocks.get(d.name, ()),
                    d.deprecated,
                )
                for d in self._table.types.values()
            }
        )

    @property
    def families(self) -> Mapping[str, Vector]:
        """The vector of every family, by name; that of `Event` has the attributes every event may carry."""
        return MappingProxyType({family: self._vector(family) for family in self._table.vectors})

    def __contains__(self, type_: type | str) -> bool:
        try:
            self._name(type_)
        except (NotRegistered, CatalogConflict):
            return False
        return True

    def __repr__(self) -> str:
        return f"<Catalog of {len(self._table.types)} types in {len(self._table.families())} families>"

    def code(self, type_: type | str) -> int:
        """Return a type's prime product."""
        return self._numbers.codes.codes[self._name(type_)]

    def subsumes(self, above: type | str, below: type | str) -> bool:
        """Return whether the first type is the second or above it, so that its subscribers get events of the second."""
        return self.code(below) % self.code(above) == 0

    def has_etag(self, type_: type | str) -> bool:
        """Return whether a type has an event tag by now; a kind never has one."""
        return self._name(type_) in self._numbers.etags

    @property
    def etag_blocks(self) -> int:
        """How many blocks of event tags were given so far; more if another type got some, or a type more room."""
        return len(self._numbers.etags.grants)

    def etag(self, type_: type | str) -> int:
        """Return a type's event tag, the first if it has several; NotRegistered if it has none, as kinds never have."""
        name = self._name(type_)
        if self._table.types[name].kind:
            raise NotRegistered(f"{name} is a kind and has no event tag of its own; ask for its filters")
        self._check_tagged(name)
        return self._numbers.etags.etag(name)

    def _check_tagged(self, name: str) -> None:
        if name not in self._numbers.etags and not self._table.types[name].kind:
            raise NotRegistered(
                f"{name} has no event tag yet, which only types on a CAN bus need; give it one by "
                f"Catalog.update_etags(file, {name!r}) or `genus catalog etags FILE {name}`"
            )

    def own_etags(self, type_: type | str) -> Block:
        """Return the event tags of exactly this type, without subtypes: one for each set of tagged attributes."""
        self.etag(type_)
        return self._numbers.etags.own_etags(self._name(type_))

    def type_of(self, etag: int) -> str | None:
        """Return the name of the type that has an event tag; None if no type has it.

        >>> from genus import Event
        >>> class Tank(Event): ...
        >>> catalog = Catalog()
        >>> added = catalog.register(Tank)
        >>> catalog.type_of(catalog.etag(Tank)), catalog.type_of(5)
        ('Tank', None)
        """
        owners = self._owners
        if owners is None:
            with self._lock:
                owners = self._owners = self._numbers.owners()
        return owners.get(etag)

    def etag_of(self, event: Event) -> int:
        """Return the event tag of an event on CAN: its type's, with the presence bits of its tagged attributes."""
        reader = self._etag_readers.get(type(event))
        return (reader or self._etag_reader(type(event)))(event)

    def tagged_attributes(self, type_: type | str) -> tuple[str, ...]:
        """Return the tagged attributes of a type's family, the one with the highest bit first; kinds have none."""
        return self._table.tagged_attributes(self._name(type_))

    def filters(self, type_: type | str) -> tuple[Block, ...]:
        """Return the fewest blocks of event tags that accept every event of a type or kind, by those given so far.

        Raises NotRegistered for a type that has no event tag yet.
        """
        name = self._name(type_)
        self._check_tagged(name)
        return self._numbers.filters(name, self._table)

    def vector(self, type_: type | str) -> Vector:
        """Return the vector of a type's family; `Event` and kinds have that of `Event`."""
        return self._vector(self._table.types[self._name(type_)].family or ROOT)

    def tag(self, event: Event) -> int:
        """Return the presence bits of an event over its family's vector."""
        reader = self._readers.get(type(event))
        return (reader or self._reader(type(event)))(event)

    def shape(self, event: Event) -> tuple[str, int]:
        """Return type name and presence bits of an event: equal for all events with the same type and attributes."""
        return name_of(type(event)), self.tag(event)

    def _vector(self, family: str) -> Vector:
        if family not in self._vectors:
            self._vectors[family] = self._table.vector(family)
        return self._vectors[family]

    def _reader(self, cls: type) -> Callable[[Any], int]:
        agreed = self.vector(cls)
        own = agreed.pair(attributes(cls))
        bits = {own[each.name].name: bit for bit, each in enumerate(agreed) if each.name in own}
        reader = presence_reader(bits)
        self._readers[cls] = reader
        return reader

    def _etag_reader(self, cls: type) -> Callable[[Any], int]:
        own = self.vector(cls).pair(attributes(cls))
        bits = {own[name].name: bit for bit, name in enumerate(reversed(self.tagged_attributes(cls)))}
        reader = presence_reader(bits, self.etag(cls))
        self._etag_readers[cls] = reader
        return reader

    def _name(self, type_: type | str) -> str:
        """Return the name of a registered type; a class must agree with its entry."""
        if isinstance(type_, str):
            if type_ not in self._table.types:
                raise NotRegistered(f"{type_!r} is not in the catalog; register its class")
            return type_
        name = name_of(collect_types([type_])[0])
        if self._classes.get(name) is not type_:
            self._check_class(type_)
        return name

    def use_classes(self, *classes: type) -> None:
        """Use these classes for the types of their names, instead of others; those that do not fit are ignored.

        They may have former names of attributes, or later ones than the catalog.
        """
        for cls in classes:
            with suppress(NotRegistered, CatalogConflict):
                self._name(cls)
                self._used.add(cls)

    def _check_class(self, cls: type) -> None:
        """Accept a class that adds at most names to the catalog: one that was read from a file has no classes yet."""
        classes = order_classes([cls], self._classes)
        registration = self._try_registration(classes)
        registration.raise_problems()
        name = name_of(cls)
        for found in without_names(registration.result).findings():
            subject = found.subject if name in self._table.types else name
            raise NotRegistered(f"{subject} is not in the catalog; register {name}")
        self._classes |= {name_of(each): each for each in classes}

    # -- declaring ---------------------------------------------------------------------------------------------------

    def declare(self, name: str, *, generated: bool = False) -> type[Any]:
        """Return the class of a type by name, for types this process did not import; the same class every time.

        It is the class of this process with that name and those parents, if it fits the entry and has the same names of
        attributes, else one generated from the entry. A generated class has no methods, properties or defaults; an
        enumeration becomes an Enum, and an opaque attribute holds plain lists, dicts, texts and numbers. Raises
        NotRegistered for an unknown name. With `generated`, the class is always a generated one, and so are those above
        it: it has all that the catalog has, also if the class of this process is older.

        >>> from genus import Event, Maybe
        >>> def elsewhere():
        ...     class Tide(Event, tagged=("place",)):
        ...         level: Maybe[float] = None
        ...     return Tide
        >>> catalog = Catalog()
        >>> added = catalog.register(elsewhere())
        >>> Tide = Catalog._parse("memory", catalog.text()).declare("Tide")
        >>> Tide(level=2.5)
        Tide(level=2.5)
        """
        with self._lock:
            classes = self._generated if generated else self._declarations
            return classes.declare(self._name(name), self._table, self._classes, self._used)

    # -- keeping -----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the text of a catalog file: JSON, one line per type and attribute, the same for the same catalog."""
        return format_catalog(self.entries.values(), self.families.values(), self._table.tagged)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a catalog from a file.

        Raises CatalogUnavailable if the file cannot be read, and CatalogDamaged, with the line, if it is no catalog.
        """
        text = read_text(real_path(path))
        if text is None:
            raise CatalogUnavailable(f"{path}: there is no such file")
        return cls._parse(path, text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a catalog from the text of a catalog file; CatalogDamaged says what is wrong and where.

        >>> Catalog.parse(Catalog().text())
        <Catalog of 1 types in 0 families>
        """
        return cls._parse("the text", text)

    @classmethod
    def _parse(cls, path: Path, text: str) -> Self:
        try:
            return cls._of(*parse_catalog(text))
        except Damage as problem:
            raise CatalogDamaged(f"{path}: {problem}") from None

    def save(self, path: Path, *, timeout: Span = LOCK_TIMEOUT) -> None:
        """Write the catalog to a file, atomically.

        Raises CatalogConflict if the file has entries that this catalog does not, and CatalogUnavailable if it cannot
        be written or another process holds its lock for longer than `timeout`.
        """
        real = real_path(path)
        with lock_file(real, seconds(timeout, "timeout")):
            stored = read_text(real)
            if stored is not None and not self.extends(self._parse(path, stored)):
                raise CatalogConflict(
                    f"{path} has types or attributes that this catalog does not have; "
                    "nothing was written: use Catalog.update to add to the file"
                )
            self._write(real, stored)

    @classmethod
    def update(
        cls, path: Path, *what: type | ModuleType, timeout: Span = LOCK_TIMEOUT
    ) -> tuple[Self, RegistrationResult]:
        """Register types in a catalog file under its lock, and return the catalog and what was new.

        The file is created if it does not exist. If everything is registered already, it is only read, without a lock.
        Raises the errors of `register`, `load` and `save`.
        """
        text = read_text(real_path(path))
        if text is not None:
            found = cls._parse(path, text)
            if not (added := found.register(*what)):
                return found, added
        with cls.editing(path, timeout=timeout) as catalog:
            added = catalog.register(*what)
        return catalog, added

    @classmethod
    def update_etags(cls, path: Path, *types: type | str, timeout: Span = LOCK_TIMEOUT) -> tuple[Self, tuple[str, ...]]:
        """Give event tags to types in a catalog file under its lock; return the catalog and which types got some.

        If all have event tags already, the file is only read, without a lock. Raises the errors of `give_etags`, `load`
        and `save`.
        """
        found = cls.load(path)
        if all(found._table.types[name].kind or name in found._numbers.etags for name in map(found._name, types)):
            return found, ()
        with cls.editing(path, timeout=timeout) as catalog:
            given = catalog.give_etags(*types)
        return catalog, given

    @classmethod
    @contextmanager
    def editing(cls, path: Path, *, timeout: Span = LOCK_TIMEOUT) -> Iterator[Self]:
        """Change the catalog of a file in a `with` block: it is locked before the block and written after it.

        Nothing is written if the block raises an error. Raises the errors of `load` and `save`.
        """
        real = real_path(path)
        with lock_file(real, seconds(timeout, "timeout")):
            stored = read_text(real)
            catalog = cls() if stored is None else cls._parse(path, stored)
            yield catalog
            catalog._write(real, stored)

    def _write(self, path: str, stored: str | None) -> None:
        if (text := self.text()) != stored:
            replace_text(path, text)


def _check_note(subject: str, known: str | None, note: str) -> None:
    """Raise CatalogConflict if something is deprecated already with another note."""
    if known is not None and note != known:
        raise CatalogConflict(f"{subject} is deprecated already, with the note {known!r}")
