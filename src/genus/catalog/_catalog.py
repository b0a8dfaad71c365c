"""`Catalog`: codes, vector bits and event tags that are agreed, and never change once given."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType, ModuleType
from typing import Any, Self

import msgspec

import genus.catalog._file as store
from genus.catalog._declare import Declarations, clash, in_order, types_of
from genus.catalog._diff import differences, extends
from genus.catalog._file import Damage, parse, spell
from genus.catalog._numbers import Numbers, tag_reader
from genus.catalog._records import ROOT, Finding, Ledger, Registered, TypeEntry
from genus.catalog._registration import Draft
from genus.codes._etags import Block
from genus.errors import CatalogConflict, CatalogDamaged, CatalogUnavailable, HierarchyError, NotRegistered
from genus.model import Event, Vector, attributes, name_of

LOCK_SECONDS = 10.0
"""How long to wait for another process that writes the same file."""

Path = str | os.PathLike[str]


class Catalog:
    """The types a system agrees on, with the numbers given to them; it only grows.

    It begins with `Event`. Types are registered as classes or whole modules, and asked for as classes or by name.

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
        self._ledger = Ledger({}, {})
        self._numbers = Numbers()
        self._begin()
        self.register(Event)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._classes: dict[str, type] = {}
        self._readers: dict[type, Callable[[Any], int]] = {}
        self._etag_readers: dict[type, Callable[[Any], int]] = {}
        self._vectors: dict[str, Vector] = {}
        self._owners: dict[int, str] | None = None
        self._declarations = Declarations()

    @classmethod
    def _of(cls, ledger: Ledger, numbers: Numbers) -> Self:
        made = cls.__new__(cls)
        made._ledger, made._numbers = ledger, numbers
        made._begin()
        return made

    # -- growing -----------------------------------------------------------------------------------------------------

    def register(self, *what: type | ModuleType) -> Registered:
        """Add classes and everything above them, or the types of modules, and say what was new.

        Raises CatalogConflict, and changes nothing, if any of it contradicts what is there. Classes that are there
        already add nothing. Types of one call are entered with those first that have most below them.
        """
        with self._lock:
            classes = in_order(types_of(what))
            draft = self._draft(classes)
            draft.settle()
            new = [draft.ledger.types[name] for name in draft.registered.types]
            try:
                self._numbers.give(new, draft.ledger)
            except HierarchyError as problem:
                raise CatalogConflict(str(problem)) from problem
            self._ledger = draft.ledger
            self._vectors, self._owners = {}, None
            self._classes |= {name_of(cls): cls for cls in classes}
            return draft.registered

    def deprecate(self, name: type | str, note: str | None = None) -> None:
        """Mark a type as not to be used any more: its numbers stay, and nothing new can be derived from it."""
        with self._lock:
            known = self._ledger.types[self._name(name)]
            if known.name == ROOT:
                raise CatalogConflict(f"{ROOT} cannot be deprecated: every type derives from it")
            if known.deprecated is not None and (note or "") != known.deprecated:
                raise CatalogConflict(f"{known.name} is deprecated already, with the note {known.deprecated!r}")
            self._numbers.codes.deprecate(known.name)
            self._ledger.put(msgspec.structs.replace(known, deprecated=note or ""))

    def check(self, *what: type | ModuleType) -> list[Finding]:
        """What registering would add, why it would be refused, and what the catalog has beyond the classes.

        Changes nothing. Statuses are "refused", "added" and "kept"; nothing at all means everything is registered.
        """
        with self._lock:
            draft = self._draft(in_order(types_of(what)))
            new = [draft.ledger.types[name] for name in draft.registered.types]
            if new and not draft.problems:
                try:
                    self._numbers.copy().give(new, draft.ledger)
                except HierarchyError as problem:
                    draft.refuse(new[0].name, f"and types with it find no numbers: {problem}")
            return draft.problems or [*draft.registered.findings(), *draft.kept]

    def diff(self, other: "Catalog") -> list[Finding]:
        """What another catalog added to this one, deprecated or lacks, and where the two contradict each other."""
        return list(differences(self, other))

    def extends(self, other: "Catalog") -> bool:
        """Whether this holds all that another does, unchanged and in the same order."""
        return extends(self, other)

    def _draft(self, classes: list[type]) -> Draft:
        draft = Draft(self._ledger)
        seen = dict(self._classes)
        for cls in classes:
            known = seen.setdefault(name_of(cls), cls)
            if known is not cls and (problem := clash(known, cls)):
                draft.refuse(name_of(cls), problem)
            elif self._classes.get(name_of(cls)) is not cls:
                draft.admit(cls)
        return draft

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def types(self) -> tuple[str, ...]:
        """The names of all types and kinds, deprecated ones included, in the order they were registered."""
        return tuple(self._ledger.types)

    @property
    def deprecated(self) -> Mapping[str, str]:
        """The deprecated types, each with its note."""
        types = self._ledger.types.values()
        return {declared.name: declared.deprecated for declared in types if declared.deprecated is not None}

    @property
    def entries(self) -> Mapping[str, TypeEntry]:
        """Everything known about each type."""
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
                for d in self._ledger.types.values()
            }
        )

    @property
    def families(self) -> Mapping[str, Vector]:
        """The vector of every family; that of `Event` is the context every event may carry."""
        return MappingProxyType({family: self._vector(family) for family in self._ledger.vectors})

    def __contains__(self, type_: type | str) -> bool:
        try:
            self._name(type_)
        except (NotRegistered, CatalogConflict):
            return False
        return True

    def __repr__(self) -> str:
        return f"<Catalog of {len(self._ledger.types)} types in {len(self._ledger.families())} families>"

    def code(self, type_: type | str) -> int:
        """A type's prime product."""
        return self._numbers.codes.codes[self._name(type_)]

    def subsumes(self, above: type | str, below: type | str) -> bool:
        """Whether events of the second type are delivered to subscribers of the first."""
        return self.code(below) % self.code(above) == 0

    def etag(self, type_: type | str) -> int:
        """A type's event tag; a kind has none."""
        name = self._name(type_)
        if self._ledger.types[name].kind:
            raise NotRegistered(f"{name} is a kind and has no event tag of its own; ask for its filters")
        return self._numbers.tags.etag(name)

    def own_tags(self, type_: type | str) -> Block:
        """The event tags of exactly this type, none below it: one, or one for each set of tagged attributes."""
        self.etag(type_)
        return self._numbers.tags.own_tags(self._name(type_))

    def type_of(self, etag: int) -> str | None:
        """The type of an event with this tag on the bus; None if no type has it.

        >>> from genus.testing import Sampler
        >>> catalog = Catalog()
        >>> added = catalog.register(Sampler)
        >>> catalog.type_of(catalog.etag(Sampler)), catalog.type_of(5)
        ('Sampler', None)
        """
        owners = self._owners
        if owners is None:
            with self._lock:
                owners = self._owners = self._numbers.owners()
        return owners.get(etag)

    def etag_of(self, event: Event) -> int:
        """The tag of an event on the bus: its type's, with the bits of the tagged attributes it carries."""
        reader = self._etag_readers.get(type(event))
        return (reader or self._etag_reader(type(event)))(event)

    def tagged(self, type_: type | str) -> tuple[str, ...]:
        """The attributes whose presence the event tags of a type's family tell, the first by the highest bit."""
        return self._ledger.tagged_of(self._name(type_))

    def filters(self, type_: type | str) -> tuple[Block, ...]:
        """The fewest blocks of event tags that accept every event of a type or of a kind, as known by now."""
        return self._numbers.filters(self._name(type_), self._ledger)

    def vector(self, type_: type | str) -> Vector:
        """The vector of a type's family; `Event` and kinds have the context alone."""
        return self._vector(self._ledger.types[self._name(type_)].family or ROOT)

    def tag(self, event: Event) -> int:
        """The bits of the attributes an event carries, over its family's vector."""
        reader = self._readers.get(type(event))
        return (reader or self._reader(type(event)))(event)

    def shape(self, event: Event) -> tuple[str, int]:
        """What all events with the same type and the same attributes have in common."""
        return name_of(type(event)), self.tag(event)

    def _vector(self, family: str) -> Vector:
        if family not in self._vectors:
            self._vectors[family] = self._ledger.vector(family)
        return self._vectors[family]

    def _reader(self, cls: type) -> Callable[[Any], int]:
        bits = {attribute.name: bit for bit, attribute in enumerate(self.vector(cls))}
        reader = tag_reader({attribute.name: bits[attribute.name] for attribute in attributes(cls)})
        self._readers[cls] = reader
        return reader

    def _etag_reader(self, cls: type) -> Callable[[Any], int]:
        bits = {name: bit for bit, name in enumerate(reversed(self.tagged(cls)))}
        reader = tag_reader(bits, self.etag(cls))
        self._etag_readers[cls] = reader
        return reader

    def _name(self, type_: type | str) -> str:
        """The name of a known type; of a class that is what the catalog says it is."""
        if isinstance(type_, str):
            if type_ not in self._ledger.types:
                raise NotRegistered(f"{type_!r} is not in the catalog; register its class")
            return type_
        name = name_of(types_of([type_])[0])
        if self._classes.get(name) is not type_:
            self._recognize(type_)
        return name

    def recognise(self, *classes: type) -> None:
        """Take these classes, as far as they fit, for the types of their names, before others of the same name."""
        for cls in classes:
            with suppress(NotRegistered, CatalogConflict):
                self._name(cls)

    def _recognize(self, cls: type) -> None:
        """Accept a class that adds nothing to the catalog, as one that was read from a file does not know classes."""
        classes = in_order([cls])
        draft = self._draft(classes)
        draft.settle()
        for found in draft.registered.findings():
            raise NotRegistered(f"{found.subject} is not in the catalog; register {name_of(cls)}")
        self._classes |= {name_of(each): each for each in classes}

    # -- declaring ---------------------------------------------------------------------------------------------------

    def declare(self, name: str) -> type[Any]:
        """The class of a type, for events of types this process did not import; the same class every time.

        It is the class that this process has under the name and the same classes above it, if it fits the entry, else
        one made from the entry. What the catalog does not know such a class does not have: methods, properties and
        defaults. An enumeration becomes an Enum; an opaque attribute holds plain lists, dicts, texts and numbers.

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
            return self._declarations.declare(self._name(name), self._ledger, self._classes)

    # -- keeping -----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The file form: JSON, one line per type and per attribute, the same for the same catalog."""
        return spell(self.entries.values(), self.families.values(), self._ledger.tagged)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The catalog in a file; CatalogDamaged says what is wrong with it and where, and leaves it as it is."""
        text = store.read_text(store.real_path(path))
        if text is None:
            raise CatalogUnavailable(f"{path}: there is no such file")
        return cls._parse(path, text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The catalog of a text in the file form; CatalogDamaged says what is wrong with it and where.

        >>> Catalog.parse(Catalog().text())
        <Catalog of 1 types in 0 families>
        """
        return cls._parse("the text", text)

    @classmethod
    def _parse(cls, path: Path, text: str) -> Self:
        try:
            return cls._of(*parse(text))
        except Damage as problem:
            raise CatalogDamaged(f"{path}: {problem}") from None

    def save(self, path: Path, *, timeout: float = LOCK_SECONDS) -> None:
        """Write the file form in one step; refused if the file there holds what this catalog does not."""
        real = store.real_path(path)
        with store.locked(real, timeout):
            stored = store.read_text(real)
            if stored is not None and not self.extends(self._parse(path, stored)):
                raise CatalogConflict(
                    f"{path} holds types or attributes that this catalog does not; "
                    "nothing was written: use Catalog.update to add to the file"
                )
            self._write(real, stored)

    @classmethod
    def update(cls, path: Path, *what: type | ModuleType, timeout: float = LOCK_SECONDS) -> tuple[Self, Registered]:
        """Register with the catalog in a file, which begins empty, while no other process can; give both back.

        When everything is registered already, the file is only read, without a lock.
        """
        text = store.read_text(store.real_path(path))
        if text is not None:
            found = cls._parse(path, text)
            if not (added := found.register(*what)):
                return found, added
        with cls.editing(path, timeout=timeout) as catalog:
            added = catalog.register(*what)
        return catalog, added

    @classmethod
    @contextmanager
    def editing(cls, path: Path, *, timeout: float = LOCK_SECONDS) -> Iterator[Self]:
        """Hold the lock of a file, change its catalog in the block, and have it written at the end of the block."""
        real = store.real_path(path)
        with store.locked(real, timeout):
            stored = store.read_text(real)
            catalog = cls() if stored is None else cls._parse(path, stored)
            yield catalog
            catalog._write(real, stored)

    def _write(self, path: str, stored: str | None) -> None:
        if (text := self.text()) != stored:
            store.replace_text(path, text)
