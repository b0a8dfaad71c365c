"""What messages of Genus say besides the values: bodies with several events, and the option with their origins.

A body is a map of attributes, the event of one type, or an array of pairs `[code, attributes]`. The option is an array
in CBOR, which plain clients and servers ignore:

| in | array |
|---|---|
| an observation | `[uid, epoch, number of the observation, session, last number received, origin, hops]` |
| events that are put | `[uid, epoch, [uid, number, hops], ...]`: the sender, and the origin of each event |
| a notification | `[session, number of the first event, [uid, number, hops], ...]` |
| other requests | `[uid]` |

The epoch is that of the server which the client means: another one may have other codes, and refuses (4.12). An origin
has a fourth part, a number for its key, if the event is kept on its network.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from zlib import crc32

import cbor2
import msgspec

from genus.model import Event
from genus.net._envelope import MAX_HOPS, NUMBERS, Origin
from genus.net._link import dedup
from genus.net._relay import Arrival

CBOR = 60
LINK_FORMAT = 40
UID_BYTES = 8
EPOCH_BYTES = 4
"""The bytes of a server's epoch that requests name."""
_END = os.urandom(8)
_END_CBOR = b"\x48" + _END


class Unreadable(msgspec.Struct, frozen=True):
    """Why bytes cannot be read."""

    reason: str


class KeyedOrigin(Origin, frozen=True, gc=False):
    """The origin of an event that is kept elsewhere under a key, whose number counts those of the key."""

    key: int = 0


def origin_of(arrival: Arrival) -> Origin:
    """Return the origin of an event of another network, with what its number counts."""
    origin = arrival.origin
    if arrival.kept is None:
        return origin
    return KeyedOrigin(origin.uid, origin.number, origin.hops, crc32(arrival.kept.encode()))


def line_of(event: Event, origin: Origin) -> str:
    """Return what the number of an origin counts, as gateways and other networks do."""
    kept = str(origin.key) if isinstance(origin, KeyedOrigin) else None
    return dedup.line_of(Arrival(event, origin, kept))


class ObservationMark(msgspec.Struct, frozen=True):
    """Who observes, and what it has received: the option of an observation."""

    uid: bytes
    number: int
    epoch: bytes = b""
    session: bytes = b""
    last: int = 0
    origin: bytes = b""
    hops: int = 0


class Put(msgspec.Struct, frozen=True):
    """Who puts events, to which server, and the origins of the events."""

    sender: bytes
    epoch: bytes
    origins: tuple[Origin, ...]


class Notified(msgspec.Struct, frozen=True):
    """The session of a notification, the number of its first event, and the origins of its events."""

    session: bytes
    first: int
    origins: tuple[Origin, ...] = ()


def read_cbor(data: bytes) -> Any:
    """Return the one item of CBOR in some bytes, or `Unreadable`; bytes behind it are refused."""
    try:
        found = cbor2.loads(b"\x82" + data + _END_CBOR)
    except Exception:  # of cbor2, and of what it makes of tags
        return Unreadable("a body that is no CBOR")
    return found[0] if found[1] == _END else Unreadable("a body that is no CBOR")


def write_cbor(value: Any) -> bytes:
    """Return a value as CBOR in its shortest form."""
    return cbor2.dumps(value, canonical=True)


def etag_of(body: bytes) -> bytes:
    """Return what tells the blocks of one large body from those of another."""
    return sha256(body).digest()[:4]


# -- bodies ------------------------------------------------------------------------------------------------------------


def join_pairs(pairs: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the body with the codes and encoded attributes of some events.

    >>> join_pairs([(6, b"\\xa0")]).hex()
    '818206a0'
    """
    parts = [_array_head(len(pairs))]
    for code, attributes in pairs:
        parts += (b"\x82", write_cbor(code), attributes)
    return b"".join(parts)


def _array_head(count: int) -> bytes:
    if count < 24:
        return bytes((0x80 | count,))
    return b"\x98" + bytes((count,)) if count < 256 else b"\x99" + count.to_bytes(2, "big")


def read_body(code: int, body: bytes) -> list[tuple[int, dict[Any, Any]]] | dict[Any, Any] | Unreadable:
    """Return the pairs of a body, or the attributes alone; codes must be those below the path's."""
    found = read_cbor(body)
    if isinstance(found, Unreadable | dict):
        return found
    if not isinstance(found, list):
        return Unreadable("a body that is neither a map nor an array")
    pairs: list[tuple[int, dict[Any, Any]]] = []
    for pair in found:
        match pair:
            case [int(one), dict(attributes)] if not isinstance(one, bool) and one > 0:
                if one % code:
                    return Unreadable("a code that is not below that of the path")
                pairs.append((one, attributes))
            case _:
                return Unreadable("no pair of code and attributes")
    return pairs


# -- the option --------------------------------------------------------------------------------------------------------


def write_mark(mark: ObservationMark) -> bytes:
    """Return the option of an observation."""
    return write_cbor([mark.uid, mark.epoch, mark.number, mark.session, mark.last, mark.origin, mark.hops])


def read_mark(data: bytes) -> ObservationMark | None:
    """Return the option of an observation; None if it is none."""
    match read_cbor(data):
        case [bytes(uid), bytes(epoch), int(number), bytes(session), int(last), bytes(origin), int(hops)]:
            sizes = len(uid) == UID_BYTES and len(origin) in (0, UID_BYTES) and len(session) in (0, 4)
            if sizes and 0 <= number < NUMBERS and 0 <= last < 1 << 62 and 0 <= hops <= MAX_HOPS:
                return ObservationMark(uid, number, epoch, session, last, origin, hops)
    return None


def read_uid(data: bytes) -> bytes | None:
    """Return the uid in the option of any request; None if there is none."""
    found = read_cbor(data)
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, bytes) and len(first) == UID_BYTES else None


def write_put(put: Put) -> bytes:
    """Return the option of events that are put."""
    return write_cbor([put.sender, put.epoch, *map(_parts, put.origins)])


def read_put(data: bytes) -> Put | None:
    """Return the option of events that are put; None if it is malformed."""
    match read_cbor(data):
        case [bytes(sender), bytes(epoch), *rest] if len(sender) == UID_BYTES:
            origins = _origins(rest)
            return None if origins is None else Put(sender, epoch, origins)
    return None


def write_notified(notified: Notified) -> bytes:
    """Return the option of a notification."""
    return write_cbor([notified.session, notified.first, *map(_parts, notified.origins)])


def read_notified(data: bytes) -> Notified | None:
    """Return the option of a notification; None if it is malformed."""
    match read_cbor(data):
        case [bytes(session), int(first), *rest] if len(session) == 4 and 0 <= first < 1 << 62:
            origins = _origins(rest)
            return None if origins is None else Notified(session, first, origins)
    return None


def _parts(origin: Origin) -> list[Any]:
    key = [origin.key] if isinstance(origin, KeyedOrigin) else []
    return [origin.uid, origin.number, origin.hops, *key]


def _origins(items: Sequence[Any]) -> tuple[Origin, ...] | None:
    found = tuple(one for item in items if (one := _origin(item)) is not None)
    return found if len(found) == len(items) else None


def _origin(item: Any) -> Origin | None:
    match item:
        case [bytes(uid), int(number), int(hops), *key] if len(uid) == UID_BYTES and len(key) <= 1:
            if 0 <= number < NUMBERS and 0 <= hops <= 255:
                if not key:
                    return Origin(uid, number, hops)
                return KeyedOrigin(uid, number, hops, key[0]) if type(key[0]) is int and 0 <= key[0] < 1 << 32 else None
    return None
