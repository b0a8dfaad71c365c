"""`SharedCatalog`: the catalog that a server and its clients share, and the readers and writers of its types.

A server's catalog decides: it is a file, or made of the types that are used, and grows with them. Clients read it from
the server (`/types`), so that both have the same codes and numbers, or compare their own file with it. What travels is
the document of a catalog file, in CBOR: of all types, or of one and those above it. It is checked as a file is, and
nothing in it is evaluated; events of types that this process has not declared have classes generated from it.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import lcm
from typing import Any

import cbor2

from genus.bus.internal import UnreadValues
from genus.catalog import Catalog
from genus.errors import BusError, CatalogConflict, CatalogDamaged, GenusError, NotRegistered
from genus.filters import Subscription
from genus.model import Event, Kind, is_generated, is_type, name_of
from genus.net._coap.values import EventReader, EventWriter, Outgoing
from genus.net._coap.wire import Unreadable, read_cbor
from genus.net._envelope import Origin

DIGEST_BYTES = 8
MAX_TYPES = 20_000
"""A catalog to which clients add types, or that a server tells, has no more than these."""
MAX_BYTES = 16 << 20
"""The largest document that is read."""


def write_document(catalog: Catalog, code: int = 0) -> bytes:
    """The document of a catalog: of all types, or of those whose codes divide a code, a type and all above it."""
    document = json.loads(catalog.text())
    document["types"] = [each for each in document["types"] if code % int(each["code"]) == 0]
    names = {each["name"] for each in document["types"]}
    document["families"] = [each for each in document["families"] if each["name"] in names]
    return cbor2.dumps(document)


def read_document(body: bytes) -> Catalog:
    """Return the catalog of a document; CatalogDamaged if it is none."""
    if len(body) > MAX_BYTES:
        raise CatalogDamaged(f"a catalog of more than {MAX_BYTES} bytes")
    try:
        text = json.dumps(read_cbor(body))
    except (TypeError, ValueError, RecursionError):
        raise CatalogDamaged("not the document of a catalog") from None
    return Catalog.parse(text)


class SharedCatalog:
    """State: a catalog, and what was made from it. It may be used by several threads."""

    def __init__(self, catalog: Catalog, *, is_fixed: bool = False) -> None:
        self.is_fixed = is_fixed
        """Whether types must be in the catalog, as it is a file."""
        self.unread = UnreadValues(is_logged=True)
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
            self._current_names()
            if self._digest is None:
                self._digest = sha256(self.catalog.text().encode()).digest()[:DIGEST_BYTES]
            return self._digest

    def _current_names(self) -> dict[int, str]:
        """Return the names of the event types by code, in the order of registration."""
        if self._known != len(self.catalog.types):
            self._known = len(self.catalog.types)
            self._names = {entry.code: entry.name for entry in self.catalog.entries.values() if not entry.kind}
            self._digest = None
        return self._names

    def use_classes(self, classes: Iterable[type]) -> None:
        """Use these classes, and those above them, for the types of their names, though there may be others."""
        with self._lock:
            for cls in (above for one in classes for above in one.__mro__ if is_type(above) and above is not Kind):
                if self._classes.get(name_of(cls)) is not cls:
                    self._classes[name_of(cls)] = cls
                    self._readers.clear()
            self.catalog.use_classes(*self._classes.values())

    def class_of(self, name: str) -> type:
        """Return the class of a type of the catalog: one that is used here, unless it contradicts the catalog."""
        with self._lock:
            own = self._classes.get(name)
            return own if own is not None and own in self.catalog else self.catalog.declare(name)

    # -- types -------------------------------------------------------------------------------------------------------

    def missing(self, types: Iterable[type]) -> list[type]:
        """Return the types that are not in the catalog; BusError for one that contradicts it."""
        found = []
        for cls in types:
            try:
                self.catalog.code(cls)
            except NotRegistered:
                found.append(cls)
            except CatalogConflict as problem:
                raise BusError(f"{name_of(cls)} contradicts the catalog of the CoAP server: {problem}") from problem
        return found

    def use_subscription(self, subscription: Subscription) -> None:
        """Use the classes that a subscription matches; generated ones only if the program subscribes to such."""
        generated = tuple(filter(is_generated, subscription.types))
        self.use_classes(cls for cls in subscription.classes() if not is_generated(cls) or issubclass(cls, generated))

    def register(self, types: Iterable[type]) -> None:
        """Add types to the catalog; BusError if they contradict it, or it is a file that does not have them."""
        if missing := self.missing(types):
            if self.is_fixed:
                names = ", ".join(map(name_of, missing))
                raise BusError(f"{names}: not in the catalog of the address; add the types by `genus catalog register`")
            with self._lock:
                try:
                    self.catalog.register(*sorted(missing, key=name_of))
                except GenusError as problem:
                    raise BusError(f"the catalog of the CoAP server refuses a type: {problem}") from problem
                self._digest = None
                self._writers.clear()
                self._readers.clear()

    def merge(self, body: bytes) -> str | None:
        """Add the types of a document; returns why that cannot be done, None if it is done."""
        try:
            other = read_document(body)
            if len(other.types) + len(self.catalog.types) > MAX_TYPES:
                return f"more than {MAX_TYPES} types"
            self.register([other.declare(name, generated=True) for name in other.types])
        except (GenusError, RecursionError, ValueError) as problem:
            return str(problem).splitlines()[0][:300]
        return None

    def type_of(self, code: int) -> str | None:
        """Return the name of the event type of a code; None if there is none."""
        with self._lock:
            return self._current_names().get(code)

    def codes_below(self, code: int) -> list[int]:
        """Return the codes of the event types that a code divides, in the order of registration."""
        with self._lock:
            return [each for each in self._current_names() if each % code == 0]

    def is_known(self, code: int) -> bool:
        """Return whether a code is that of a type, or of all that several types have in common below them."""
        if self.codes_below(code):
            return True
        above = [entry.code for entry in self.catalog.entries.values() if code % entry.code == 0]
        return bool(above) and lcm(*above) == code

    # -- events ------------------------------------------------------------------------------------------------------

    def writer(self, cls: type[Event]) -> EventWriter:
        """Return what writes events of a class; NotRegistered if the catalog does not have it."""
        found = self._writers.get(cls)
        if found is None:
            with self._lock:
                found = self._writers[cls] = EventWriter(cls, self.catalog)
        return found

    def encode(self, event: Event, origin: Origin) -> Outgoing:
        """An event as it is sent; EventError if it cannot be."""
        writer = self.writer(type(event))
        tag, attributes = writer.write(event)
        expires_at = None if event.expires is None else event.expires.timestamp()
        return Outgoing(event, writer.code, tag, attributes, origin, expires_at, writer)

    def read(self, code: int, attributes: Mapping[Any, Any]) -> Event | Unreadable:
        """The event of a type by its code, from the values of its attributes, or the reason why there is none."""
        try:
            reader = self._readers.get(code) or self._make_reader(code)
        except GenusError as problem:  # a class here contradicts the catalog
            return Unreadable(f"{self.type_of(code)} cannot be declared here: {str(problem).splitlines()[0]}")
        return Unreadable("a code that no event type has") if reader is None else reader.read(attributes)

    def _make_reader(self, code: int) -> EventReader | None:
        with self._lock:
            if (name := self.type_of(code)) is None:
                return None
            made = self._readers[code] = EventReader(self.class_of(name), self.catalog, self.unread)
            return made
