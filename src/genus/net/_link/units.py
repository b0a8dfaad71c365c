"""Units on a network: participants whose classes have other units for an attribute understand each other.

Packets of a class with units carry a digest of them behind the envelope. If it is not that of the class here, values
are converted from the units that were stated for it: under `@genus/REALM/units/DIGEST/TYPE`, kept for those that come
later. Without that statement a packet is rejected, as its values could not be understood. All that have the same units
make the same statement, so that where a broker keeps statements there is one for each type and each choice of units,
however many processes come and go; and last values are understood after their sender is gone.
"""

import threading
import zlib
from collections.abc import Mapping

import msgspec

from genus.bus._attribute_map import UnreadValues, decode_units, units_of
from genus.model import Event, name_of
from genus.net._link.control import control_key
from genus.net._link.payload import PayloadReader
from genus.net._transport import Sending, Transport

DIGEST_BYTES = 4
MOST_STATED = 20_000
"""The largest number of statements that are remembered."""

_encode = msgspec.msgpack.Encoder().encode


def units_digest(units: Mapping[str, str]) -> bytes:
    """The digest of units that packets carry; nothing if there are none.

    >>> units_digest({}), len(units_digest({"speed": "km/h"}))
    (b'', 4)
    """
    if not units:
        return b""
    return zlib.crc32(_encode(sorted(units.items()))).to_bytes(DIGEST_BYTES, "big")


class StatedUnits:
    """State: the units that this participant and others have stated."""

    def __init__(self, transport: Transport, realm: str, unread: UnreadValues) -> None:
        self._transport, self._unread = transport, unread
        self._root = control_key(realm, "units") + "/"
        self._stated: set[type] = set()
        self._others: dict[tuple[bytes, str], dict[str, str]] = {}
        self._readers: dict[tuple[bytes, type], PayloadReader] = {}
        self._lock = threading.Lock()

    @property
    def pattern(self) -> str:
        """The pattern of all statements."""
        return self._root + self._transport.dialect.rest

    def state(self, cls: type) -> None:
        """State the units of a class, once, before its events are sent."""
        with self._lock:
            if cls in self._stated:
                return
            self._stated.add(cls)
        if units := units_of(cls):
            type_ = self._transport.dialect.escape(name_of(cls))
            sender = self._transport.sender(f"{self._root}{units_digest(units).hex()}/{type_}", Sending(keep=True))
            sender.put(_encode(units), b"")

    def on_statement(self, key: str, payload: bytes) -> str | None:
        """Another participant stated units; returns the reason if that cannot be read."""
        digest, _, chunk = key.removeprefix(self._root).partition("/")
        type_ = self._transport.dialect.unescape(chunk)
        units = decode_units(payload)
        if type_ is None or not units or units_digest(units).hex() != digest:
            return "units that cannot be read"
        with self._lock:
            if (units_digest(units), type_) not in self._others:
                self._remember(units_digest(units), type_, units)
        return None

    def _remember(self, digest: bytes, type_: str, units: dict[str, str]) -> None:
        """Of two statements with the same digest, which chance does not make, the first holds."""
        if len(self._others) >= MOST_STATED:
            del self._others[next(iter(self._others))]
            self._readers.clear()
        self._others[digest, type_] = units

    def reader(self, cls: type[Event], digest: bytes) -> PayloadReader | None:
        """What reads the events of a class in units with a digest; None if these have not been stated."""
        with self._lock:
            made = self._readers.get((digest, cls))
            units = self._others.get((digest, name_of(cls)))
            if made is None and units is not None:
                made = self._readers[digest, cls] = PayloadReader(cls, self._unread, units)
            return made
