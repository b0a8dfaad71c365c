"""Types on a network: participants state their types, so that others can read events of types that they do not have.

A statement (`genus.catalog._statement`) is sent once, before the first event of a class, under
`@genus/REALM/types/DIGEST/TYPE`, and kept for those that come later. All that declare a type alike make the same
statement, so that where a broker keeps statements there is one for each version of a type, however many processes come
and go; and last values are understood after their sender is gone. What a statement says is taken in while a program
runs: a type that the program does not have gets a generated class.

Packets of a class with units carry a digest of them behind the envelope. If it is not that of the class here, values
are converted from the units of the statement that has this digest. Without one a packet is rejected, as its values
could not be understood.
"""

import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from genus.bus._attribute_map import UnreadValues
from genus.catalog._statement import (
    StatedClasses,
    Statement,
    digest_of,
    encode_statement,
    is_stand_in,
    read_statement,
    statement_of,
)
from genus.errors import CatalogConflict, CatalogDamaged, DeclarationError
from genus.model import Event, name_of
from genus.net._link.control import control_key
from genus.net._link.payload import PayloadReader
from genus.net._transport import Sending, Transport

DIGEST_BYTES = 4
MOST_STATED = 20_000
"""The largest number of statements that are remembered."""
HOLD_S = 1.0
"""How long packets of an unknown type wait for its statement."""
MOST_HELD, MOST_HELD_BYTES = 1000, 8 << 20
"""The most packets that wait, and their size; beyond, all are delivered with what is known."""

_encode = msgspec.msgpack.Encoder().encode


def units_digest(units: Mapping[str, str]) -> bytes:
    """The digest of units that packets carry; nothing if there are none.

    >>> units_digest({}), len(units_digest({"speed": "km/h"}))
    (b'', 4)
    """
    if not units:
        return b""
    return zlib.crc32(_encode(sorted(units.items()))).to_bytes(DIGEST_BYTES, "big")


class Conflict(msgspec.Struct, frozen=True):
    """A statement that contradicts this program, or one before it: its type, the types above it, and what is wrong."""

    type: str
    types: frozenset[str]
    text: str


class StatedTypes:
    """State: what this participant and others have stated about types."""

    def __init__(self, transport: Transport, realm: str, unread: UnreadValues) -> None:
        self._transport, self._unread = transport, unread
        self._root = control_key(realm, "types") + "/"
        self._stated: dict[type, bytes] = {}
        """The digest of the units of each class that was stated here."""
        self._known: dict[str, None] = {}
        """The digests of statements that need not be read again."""
        self._units: dict[tuple[bytes, str], dict[str, str]] = {}
        self._readers: dict[tuple[bytes, type], PayloadReader] = {}
        self.classes = StatedClasses()
        self._lock = threading.Lock()

    @property
    def pattern(self) -> str:
        """The pattern of all statements."""
        return self._root + self._transport.dialect.rest

    def is_statement(self, key: str) -> bool:
        """Whether a packet with a key states a type."""
        return key.startswith(self._root)

    def state(self, cls: type) -> bytes:
        """State a class, once, before its events are sent; returns the digest of its units."""
        with self._lock:
            known = self._stated.get(cls)
            if known is not None:
                return known
            statement = statement_of(cls)
            digest = self._stated[cls] = units_digest(statement.units())
            self._units.setdefault((digest, statement.name), statement.units())
            text = None if is_stand_in(cls) or cls is Event else encode_statement(statement)
        if text is not None:
            self._send(statement.name, text)
        return digest

    def _send(self, type_: str, text: bytes) -> None:
        digest, chunk = digest_of(text), self._transport.dialect.escape(type_)
        self._remember(digest)
        self._transport.sender(f"{self._root}{digest}/{chunk}", Sending(keep=True)).put(text, b"")

    def take(self, key: str, text: bytes) -> Statement | Conflict | str | None:
        """Take in what another participant stated: returns it, if it is new; or why it is refused or cannot be read."""
        digest, _, chunk = key.removeprefix(self._root).partition("/")
        if digest in self._known:
            return None
        if digest_of(text) != digest:
            return "a statement of a type that is damaged"
        self._remember(digest)
        try:
            statement = read_statement(text)
        except CatalogDamaged as problem:
            return str(problem)
        if self._transport.dialect.unescape(chunk) != statement.name:
            return "a statement of another type than its key says"
        self._remember_units(statement)
        self._readers.clear()
        try:
            self.classes.take(statement)
        except (CatalogConflict, DeclarationError) as problem:
            return Conflict(statement.name, frozenset(statement.table.types), str(problem))
        return statement

    def _remember(self, digest: str) -> None:
        if len(self._known) >= MOST_STATED:
            del self._known[next(iter(self._known))]
        self._known[digest] = None

    def _remember_units(self, statement: Statement) -> None:
        """Of two statements with the same digest, which chance does not make, the first holds."""
        if not (units := statement.units()):
            return
        with self._lock:
            if len(self._units) >= MOST_STATED:
                del self._units[next(iter(self._units))]
                self._readers.clear()
            self._units.setdefault((units_digest(units), statement.name), units)

    def reader(self, cls: type[Event], digest: bytes) -> PayloadReader | None:
        """What reads the events of a class in units with a digest; None if these have not been stated."""
        with self._lock:
            made = self._readers.get((digest, cls))
            units = self._units.get((digest, name_of(cls)))
            if made is None and units is not None:
                made = self._readers[digest, cls] = PayloadReader(cls, self._unread, units)
            return made


HeldKey: TypeAlias = tuple[Any, str]
"""What reads the packets of some keys, and one of these keys."""


class HeldPackets:
    """State: what came for keys of unknown types, in its order, until their types are known or it has waited enough.

    The lock is held while a key is released, so that what comes meanwhile is read after it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._waiting: dict[HeldKey, list[tuple[Callable[[Any], None], int]]] = {}
        self._since: dict[HeldKey, float] = {}
        self._count = self._bytes = 0

    def __contains__(self, key: "HeldKey") -> bool:
        return key in self._waiting

    def add(self, key: "HeldKey", read: Callable[[Any], None], size: int, now: float) -> None:
        """Call a function later with what reads the packets of a key."""
        self._since.setdefault(key, now)
        self._waiting.setdefault(key, []).append((read, size))
        self._count, self._bytes = self._count + 1, self._bytes + size

    @property
    def is_full(self) -> bool:
        """Whether no more should wait."""
        return self._count > MOST_HELD or self._bytes > MOST_HELD_BYTES

    def find(self, before: float | None = None) -> "list[HeldKey]":
        """The keys with packets that wait, or those that have done so since before a time."""
        with self.lock:
            return [key for key, since in self._since.items() if before is None or since <= before]

    def waiting(self, key: "HeldKey") -> list[Callable[[Any], None]]:
        """What waits for a key."""
        return [read for read, _ in self._waiting.get(key, ())]

    def remove(self, key: "HeldKey") -> None:
        """Nothing waits for a key any more."""
        sizes = [size for _, size in self._waiting.pop(key, ())]
        self._count, self._bytes = self._count - len(sizes), self._bytes - sum(sizes)
        self._since.pop(key, None)
