"""The catalog that a server and its clients share, and the resources of a server.

`SharedCatalog`: the catalog that a server and its clients share, and the readers and writers of its types.

A server's catalog decides: it is a file, or made of the types that are used, and grows with them. Clients read it from
the server (`/types`), so that both have the same codes and numbers, or compare their own file with it. What travels is
the document of a catalog file, in CBOR: of all types, or of one and those above it. It is checked as a file is, and
nothing in it is evaluated; events of types that this process has not declared have classes generated from it.

`Resources`: what can be read at a server: the latest event of each type, their links and names, and their types.
"""

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from math import lcm
from typing import Any

import cbor2
from aiocoap import Message, error
from aiocoap.numbers import codes

from genus.bus.internal import UnreadValues
from genus.catalog import Catalog
from genus.codes import encode_path_segment, parse_path_segment
from genus.errors import BusError, CatalogConflict, CatalogDamaged, GenusError, NotRegistered
from genus.filters import Subscription
from genus.model import Event, Kind, is_generated, is_type, name_of
from genus.net._coap.endpoint import add_own_option
from genus.net._coap.values import (
    CBOR,
    LINK_FORMAT,
    EventReader,
    EventWriter,
    Outgoing,
    Unreadable,
    join_pairs,
    read_cbor,
)
from genus.net._envelope import Origin
from genus.targets.coap import QueryFilter, read_query
from genus.targets.internal import has_path

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


MAX_AGE_S = 0xFFFF_FFFF
"""The largest Max-Age that there is."""


class Refused(error.ConstructionRenderableError):  # type: ignore[misc]
    """A request that is answered with an error and its reason, one of few; `detail` is said instead if it is given."""

    def __init__(self, code: Any, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.code, self.reason, self.detail = code, reason, detail


def respond(payload: bytes = b"", format: int | None = CBOR, *, own: bytes | None = None, **parts: Any) -> Any:
    """Return a response of aiocoap; `parts` are its code and options by name."""
    parts = {name: value for name, value in parts.items() if value is not None}
    message = Message(**{"code": codes.CONTENT, "payload": payload, **parts})
    message.opt.content_format = format
    if own is not None:
        add_own_option(message, own)
    return message


def age_until(expires_at: float, now: float) -> int:
    """Return the Max-Age of a value that expires at a time.

    >>> age_until(62.5, 2.0), age_until(1.0, 2.0), age_until(1e12, 2.0)
    (60, 0, 4294967295)
    """
    return min(max(0, int(expires_at - now)), MAX_AGE_S)


class Resources:
    """State: the latest event of each type of a server, by code; requests that are wrong raise `Refused`."""

    def __init__(self, shared: SharedCatalog) -> None:
        self.announced: dict[int, None] = {}
        """Codes that have resources, though no value yet."""
        self._shared = shared
        self._latest: dict[int, Outgoing] = {}

    def put(self, outgoing: Outgoing) -> None:
        self._latest[outgoing.code] = outgoing

    def present_below(self, code: int) -> list[int]:
        """Return the codes of the types that have resources, of those that a code divides."""
        return [each for each in self._shared.codes_below(code) if each in self._latest or each in self.announced]

    # -- values ------------------------------------------------------------------------------------------------------

    def ask(self, code: int, query: Sequence[str], accept: int | None) -> QueryFilter:
        if not self._shared.is_known(code):
            raise Refused(codes.NOT_FOUND, "the code is that of no type in the catalog")
        asked = read_query(code, query, self._shared.catalog)
        if isinstance(asked, str):
            raise Refused(codes.BAD_REQUEST, "a query that cannot be read", asked)
        vector = self._shared.catalog.vector(asked.asked)
        if (asked.has | asked.lacks) >> len(vector):
            detail = f"presence bits outside the {len(vector)} attributes of {vector.scope}"
            raise Refused(codes.BAD_REQUEST, "presence bits of attributes that a type does not have", detail)
        if accept not in (None, CBOR):
            raise Refused(codes.NOT_ACCEPTABLE, "a format other than CBOR (60)")
        return asked

    def read(self, asked: QueryFilter) -> tuple[bytes, int | None]:
        """Return the values that pass a test as a body, and for how long they are valid."""
        now = time.time()
        self._latest = {
            code: one for code, one in self._latest.items() if one.expires_at is None or one.expires_at > now
        }
        found = [one for one in self._latest.values() if asked.accepts(one.code, one.tag, one.event)]
        expiries = [one.expires_at for one in found if one.expires_at is not None]
        return self.body(asked, found), age_until(min(expiries), now) if expiries else None

    def body(self, asked: QueryFilter, events: Sequence[Outgoing]) -> bytes:
        """The map of one event if the resource is that of its type alone, else pairs."""
        is_one = len(events) == 1 and events[0].code == asked.code
        if is_one and self._shared.codes_below(asked.code) == [asked.code]:
            return events[0].attributes
        return join_pairs([(one.code, one.attributes) for one in events])

    # -- links, names and types --------------------------------------------------------------------------------------

    def discover(self, query: Sequence[str]) -> Any:
        """Return the resources that there are, as links; `is` lists those whose code a code divides."""
        present = [code for code in self.present_below(1) if has_path(code)]
        found = _select([(code, self._shared.type_of(code) or "") for code in present], query)
        return respond(",".join(f"</{encode_path_segment(code)}>" for code, _ in found).encode(), LINK_FORMAT)

    def look_up(self, query: Sequence[str], base: str) -> Any:
        """Return all types and kinds of the catalog with their names and resources."""
        entries = [(each.code, each.name) for each in self._shared.catalog.entries.values() if has_path(each.code)]
        found = _select(entries, query)
        links = [f'<{base}/{encode_path_segment(code)}>;rt="{name}";ct={CBOR};obs' for code, name in found]
        return respond(",".join(links).encode(), LINK_FORMAT)

    def read_types(self, query: Sequence[str]) -> Any:
        """Return the document of the catalog; `rt=NAME` or `is=CODE` asks for one type and all above it."""
        if not query:
            return respond(write_document(self._shared.catalog), etag=self._shared.digest)
        known = [(entry.code, entry.name) for entry in self._shared.catalog.entries.values()]
        name, _, value = query[0].partition("=")
        asked = {"rt": value, "is": parse_path_segment(value)}.get(name)
        found = [code for code, type_ in known if asked in (code, type_)]
        if len(query) > 1 or name not in ("rt", "is"):
            raise Refused(codes.BAD_REQUEST, "a query for types that is neither rt=NAME nor is=CODE")
        if not found:
            raise Refused(codes.NOT_FOUND, "no type of the catalog has this name or code")
        return respond(write_document(self._shared.catalog, found[0]))


def _select(entries: list[tuple[int, str]], query: Sequence[str]) -> list[tuple[int, str]]:
    """Return those of some resources, by code and name, that a query asks for (RFC 6690, section 4.1)."""
    for part in query:
        name, _, value = part.partition("=")
        if name == "is":
            code = parse_path_segment(value)
            if code is None:
                raise Refused(codes.BAD_REQUEST, "a query is= without a code in base64url")
            entries = [each for each in entries if each[0] % code == 0]
        else:
            entries = [each for each in entries if _has_attribute(each, name, value)]
    return entries


def _has_attribute(entry: tuple[int, str], name: str, value: str) -> bool:
    """Return whether a link has an attribute with a value, or with one that begins so."""
    code, type_ = entry
    have = {"rt": type_, "ct": str(CBOR), "href": f"/{encode_path_segment(code)}"}.get(name)
    if have is None:
        return False
    return have.startswith(value[:-1]) if value.endswith("*") else have == value
