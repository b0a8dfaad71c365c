"""`Agreement`: the catalog that a server and its clients share, and the readers and writers of its types.

A server's catalog decides: it is a file, or made of the types that are used, and grows with them. Clients read it from
the server (`/c`), so that both have the same codes and numbers, or compare their own file with it.
"""

import threading
from collections.abc import Iterable
from hashlib import sha256
from math import lcm

from genus.bus._attribute_map import UnreadValues
from genus.catalog import Catalog
from genus.errors import BusError, CatalogConflict, GenusError, NotRegistered
from genus.model import Event, Kind, is_type, name_of
from genus.net._coap.values import EventReader, EventWriter

DIGEST_BYTES = 8
MOST_TYPES = 20_000
"""A catalog to which clients add types has no more than these."""


class Agreement:
    """State: a catalog, and what was made from it. It may be used by several threads."""

    def __init__(self, catalog: Catalog, *, is_fixed: bool = False) -> None:
        self.is_fixed = is_fixed
        """Whether types must be in the catalog, as it is a file."""
        self.unread = UnreadValues()
        self._lock = threading.RLock()
        self._classes: dict[str, type] = {}
        self._use(catalog)

    def _use(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._digest: bytes | None = None
        self._names: dict[int, str] = {}
        self._writers: dict[type, EventWriter] = {}
        self._readers: dict[int, EventReader] = {}
        self._known = -1

    def replace(self, catalog: Catalog) -> None:
        """Use another catalog from now on."""
        with self._lock:
            self._use(catalog)
            self.use_classes(self._classes.values())

    @property
    def digest(self) -> bytes:
        """What tells two catalogs apart, in 8 bytes."""
        with self._lock:
            if self._digest is None or self._has_grown():
                self._digest = sha256(self.catalog.text().encode()).digest()[:DIGEST_BYTES]
            return self._digest

    def _has_grown(self) -> bool:
        before, self._known = self._known, len(self.catalog.types)
        if before != self._known:
            self._names = {entry.code: entry.name for entry in self.catalog.entries.values() if not entry.kind}
            self._digest = None
        return before != self._known

    def use_classes(self, classes: Iterable[type]) -> None:
        """Use these classes, and those above them, for the types of their names, though there may be others."""
        with self._lock:
            for cls in (above for one in classes for above in one.__mro__ if is_type(above) and above is not Kind):
                if self._classes.get(name_of(cls)) is not cls:
                    self._classes[name_of(cls)] = cls
                    self._readers.clear()
            self.catalog.use_classes(*self._classes.values())

    def class_of(self, name: str) -> type:
        """The class of a type of the catalog: one that is used here, unless it contradicts the catalog."""
        with self._lock:
            own = self._classes.get(name)
            return own if own is not None and self._fits(own) else self.catalog.declare(name)

    def _fits(self, cls: type) -> bool:
        """Whether the catalog has a class; another one of its name may be in the catalog."""
        try:
            return self.catalog.code(cls) > 0
        except (CatalogConflict, NotRegistered):
            return False

    # -- types -------------------------------------------------------------------------------------------------------

    def missing(self, types: Iterable[type]) -> list[type]:
        """The types that are not in the catalog; BusError for one that contradicts it."""
        found = []
        for cls in types:
            try:
                self.catalog.code(cls)
            except NotRegistered:
                found.append(cls)
            except CatalogConflict as problem:
                raise BusError(f"{name_of(cls)} contradicts the catalog of the CoAP server: {problem}") from problem
        return found

    def register(self, types: Iterable[type]) -> None:
        """Add types to the catalog; BusError if they contradict it, or it is a file that does not have them."""
        missing = self.missing(types)
        if not missing:
            return
        if self.is_fixed:
            names = ", ".join(map(name_of, missing))
            raise BusError(f"{names}: not in the catalog of the address; add the types by `genus catalog register`")
        with self._lock:
            try:
                self.catalog.register(*sorted(missing, key=name_of))
            except GenusError as problem:
                raise BusError(f"the catalog of the CoAP server refuses a type: {problem}") from problem
            self._has_grown()
            self._digest = None
            self._writers.clear()
            self._readers.clear()

    def merge(self, text: str) -> str | None:
        """Add the types of the text of a catalog; returns why that cannot be done, None if it is done."""
        try:
            other = Catalog.parse(text)
            if len(other.types) + len(self.catalog.types) > MOST_TYPES:
                return f"more than {MOST_TYPES} types"
            self.register([other.declare(name) for name in other.types])
        except (GenusError, RecursionError, ValueError) as problem:
            return str(problem).splitlines()[0][:300]
        return None

    def type_of(self, code: int) -> str | None:
        """The name of the event type of a code; None if there is none."""
        with self._lock:
            self._has_grown()
            return self._names.get(code)

    def codes_below(self, code: int) -> list[int]:
        """The codes of the event types that a code divides, in the order of registration."""
        with self._lock:
            self._has_grown()
            return [each for each in self._names if each % code == 0]

    def is_known(self, code: int) -> bool:
        """Whether a code is that of a type, or of all that several types have in common below them."""
        if self.codes_below(code):
            return True
        above = [entry.code for entry in self.catalog.entries.values() if code % entry.code == 0]
        return bool(above) and lcm(*above) == code

    # -- events ------------------------------------------------------------------------------------------------------

    def writer(self, cls: type[Event]) -> EventWriter:
        """What writes events of a class; NotRegistered if the catalog does not have it."""
        found = self._writers.get(cls)
        if found is None:
            with self._lock:
                found = self._writers[cls] = EventWriter(cls, self.catalog)
        return found

    def reader(self, code: int) -> EventReader | None:
        """What reads events of a code; None if no event type has it."""
        found = self._readers.get(code)
        if found is None and (name := self.type_of(code)) is not None:
            with self._lock:
                found = self._readers[code] = EventReader(self.class_of(name), self.catalog, self.unread)
        return found
