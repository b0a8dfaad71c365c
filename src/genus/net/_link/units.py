"""Units on a network: participants whose classes have other units for an attribute understand each other.

Packets of a class with units carry a digest of them behind the envelope. If it is not that of the class here, values
are converted from the units that the sender has stated: under `@genus/REALM/units/UID/TYPE`, kept for those that come
later. Without that statement a packet is rejected, as its values could not be understood.
"""

import threading
import zlib
from collections.abc import Mapping

import msgspec

from genus.bus._attribute_map import UnreadValues, decode_units
from genus.model import Event, attributes, name_of
from genus.net._link.control import control_key, is_uid
from genus.net._link.payload import PayloadReader
from genus.net._transport import Sending, Transport

DIGEST_BYTES = 4
MOST_STATED = 20_000
"""The largest number of statements that are remembered."""

_encode = msgspec.msgpack.Encoder().encode


def units_of(cls: type) -> dict[str, str]:
    """The units of the attributes of a class."""
    return {attribute.name: attribute.unit for attribute in attributes(cls) if attribute.unit is not None}


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

    def __init__(self, transport: Transport, realm: str, uid: str, unread: UnreadValues) -> None:
        self._transport, self._realm, self._uid, self._unread = transport, realm, uid, unread
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
            sender = self._transport.sender(f"{self._root}{self._uid}/{type_}", Sending(keep=True))
            sender.put(_encode(units), b"")

    def on_statement(self, key: str, payload: bytes) -> str | None:
        """Another participant stated units; returns the reason if that cannot be read."""
        uid, _, chunk = key.removeprefix(self._root).partition("/")
        type_ = self._transport.dialect.unescape(chunk)
        units = decode_units(payload)
        if not is_uid(uid) or type_ is None or units is None:
            return "units that cannot be read"
        with self._lock:
            if len(self._others) >= MOST_STATED:
                del self._others[next(iter(self._others))]
            self._others[bytes.fromhex(uid), type_] = units
            self._readers.clear()
        return None

    def reader(self, sender: bytes, cls: type[Event], digest: bytes) -> PayloadReader | None:
        """What reads the events of a class from a sender with other units; None if it has not stated them."""
        with self._lock:
            made = self._readers.get((sender, cls))
            units = self._others.get((sender, name_of(cls)))
            if made is None and units is not None and units_digest(units) == digest:
                made = self._readers[sender, cls] = PayloadReader(cls, self._unread, units)
            return made
