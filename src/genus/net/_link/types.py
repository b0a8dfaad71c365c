"""Types on a network: participants state their types, so that others can read events of types that they do not have.

A statement (`genus.catalog._statement`) is sent once, before the first event of a class, under
`@genus/REALM/types/DIGEST/TYPE`, and kept for those that come later. All that declare a type alike make the same
statement, so that where a broker keeps statements there is one for each version of a type, however many processes come
and go; and last values are understood after their sender is gone. What a statement says is taken in while a program
runs: a type that the program does not have gets a generated class.

Packets of a class with units or renamed attributes carry a digest of these, its terms, behind the envelope. If it is
not that of the class here, names and values are converted from the terms of the statement that has this digest. Until
it has come, packets wait. Without one, a packet is rejected if the class here has units, as its values could not be
understood.
"""

import threading
import zlib
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from genus.bus.internal import UnreadValues
from genus.catalog.internal import StatedClasses, Statement, digest_of, read_statement, state_type, statement_of
from genus.errors import CatalogConflict, CatalogDamaged, DeclarationError
from genus.model import Event, name_of
from genus.net._link.messages import PayloadReader, control_key, send_once
from genus.net._transport import Sending, Transport

DIGEST_BYTES = 4
MAX_STATED = 20_000
"""The largest number of statements that are remembered."""
MAX_CONFLICTS = 200
"""The largest number of refused statements that later subscriptions are told of."""

_encode = msgspec.msgpack.Encoder().encode


def terms_digest(statement: Statement) -> bytes:
    """Return the digest that packets of a type carry; nothing if it has neither units nor renamed attributes.

    >>> class Lamp(Event):
    ...     on: bool
    >>> terms_digest(statement_of(Lamp))
    b''
    """
    terms = statement.terms()
    return zlib.crc32(_encode(terms)).to_bytes(DIGEST_BYTES, "big") if terms else b""


class Conflict(msgspec.Struct, frozen=True):
    """A statement that contradicts this program, or one before it: its type, the types above it, and what is wrong."""

    type: str
    types: frozenset[str]
    text: str

    @property
    def reason(self) -> str:
        return f"what is stated about {self.type} contradicts this program: {self.text}"


class StatedTypes:
    """State: what this participant and others have stated about types."""

    def __init__(self, transport: Transport, realm: str, unread: UnreadValues) -> None:
        self._transport, self._unread = transport, unread
        self._root = control_key(realm, "types") + "/"
        self._digests: dict[type, bytes] = {}
        """The digest of the terms of each class here."""
        self._stated: set[type] = set()
        self._known: dict[str, None] = {}
        """The digests of statements that need not be read again."""
        self._units: dict[tuple[bytes, str], dict[str, str]] = {}
        self._readers: dict[tuple[bytes, type], PayloadReader] = {}
        self.classes = StatedClasses()
        self._conflicts: list[Conflict] = []
        self._unstated: deque[type] = deque()
        self._lock = threading.Lock()

    @property
    def pattern(self) -> str:
        return self._root + self._transport.dialect.rest

    def is_statement(self, key: str) -> bool:
        """Return whether a packet with a key states a type."""
        return key.startswith(self._root)

    def digest(self, cls: type) -> bytes:
        """Return the digest of the terms of a class here."""
        digest = self._digests.get(cls)
        if digest is None:
            digest = b""
            with suppress(CatalogConflict):  # it cannot be stated
                statement = statement_of(cls)
                digest = terms_digest(statement)
                self._remember_units(statement)
            self._digests[cls] = digest
        return digest

    def state(self, cls: type) -> None:
        """State a class, once, before its events are sent."""
        with self._lock:
            if cls in self._stated or cls is Event:
                return
            self._stated.add(cls)
        if (text := state_type(cls)) is not None:
            digest, chunk = digest_of(text), self._transport.dialect.escape(name_of(cls))
            self._remember(digest)
            send_once(self._transport, f"{self._root}{digest}/{chunk}", text, Sending(keep=True))

    def state_later(self, types: Iterable[type]) -> None:
        """State types with the next call of `state_waiting`."""
        self._unstated.extend(types)

    def state_waiting(self) -> None:
        while self._unstated:
            self.state(self._unstated.popleft())

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
            conflict = Conflict(statement.name, frozenset(statement.table.types), str(problem))
            if len(self._conflicts) < MAX_CONFLICTS:
                self._conflicts.append(conflict)
            return conflict
        return statement

    def conflicts_about(self, types: Iterable[type]) -> list[Conflict]:
        names = {name_of(cls) for cls in types}
        return [each for each in list(self._conflicts) if names & each.types]

    def _remember(self, digest: str) -> None:
        if len(self._known) >= MAX_STATED:
            del self._known[next(iter(self._known))]
        self._known[digest] = None

    def _remember_units(self, statement: Statement) -> None:
        """Of two statements with the same digest, which chance does not make, the first holds."""
        if not (digest := terms_digest(statement)):
            return
        with self._lock:
            if len(self._units) >= MAX_STATED:
                del self._units[next(iter(self._units))]
                self._readers.clear()
            self._units.setdefault((digest, statement.name), statement.units())

    def reader(self, cls: type[Event], digest: bytes) -> PayloadReader | None:
        """Return what reads the events of a class in terms with a digest; None if these have not been stated."""
        with self._lock:
            made = self._readers.get((digest, cls))
            units = self._units.get((digest, name_of(cls)))
            if made is None and units is not None:
                made = self._readers[digest, cls] = PayloadReader(cls, self._unread, units)
            return made
