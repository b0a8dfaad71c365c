"""The envelope of a packet: where its event was first published, and who sent it here; 25 bytes.

| bytes | |
|---|---|
| 8 | uid of the origin: the bus on which the event was published |
| 4 | number of the event among those of its origin and key |
| 1 | hops: the gateways that it crossed |
| 8 | uid of the sender: the origin, or the last gateway |
| 4 | number of the packet among those of its sender and key |

Both numbers are needed: a gateway that forwards only what is wanted leaves gaps in the numbers of the origin, which are
no losses. A packet on a soft channel has 20 bytes more: the time of publishing (microseconds since 1970), and deadline
and expiry (microseconds after it, 0: none). One of a class with units ends with a digest of 4 bytes of them.
"""

import base64
import binascii
import os
import struct
from collections.abc import Mapping, Sequence

import msgspec

ENVELOPE = struct.Struct(">8sIB8sI")
SOFT_TIMES = struct.Struct(">qIQ")
MAX_HOPS = 8
NUMBERS = 1 << 32


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where an event was first published: the uid of the bus, the event's number there, and the gateways crossed."""

    uid: bytes
    number: int
    hops: int = 0


def new_uid() -> bytes:
    """Return a uid for a participant: random, so that one that restarts is another one."""
    return os.urandom(8)


def join_payloads(payloads: Sequence[bytes]) -> bytes:
    """One payload of the payloads of events that have followed each other: an array of msgpack."""
    count = len(payloads)
    if count < 16:
        head = bytes((0x90 | count,))
    else:
        head = b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
    return b"".join((head, *payloads))


# -- CloudEvents in binary mode ----------------------------------------------------------------------------------------

ATTRIBUTES = b"CE\x00"
"""The first bytes of an envelope that has the attributes of a CloudEvent; MQTT has them as user properties."""
OWN = "genusenvelope"
"""The attribute of a CloudEvent that has the envelope of its packet."""

_encode_attributes = msgspec.msgpack.Encoder().encode
_decode_attributes = msgspec.msgpack.Decoder(dict[str, str]).decode


def join_attributes(attributes: Mapping[str, str], envelope: bytes = b"") -> bytes:
    """An envelope that has the attributes of a CloudEvent, and the envelope of its packet as one of them."""
    own = {OWN: base64.b64encode(envelope).decode()} if envelope else {}
    return ATTRIBUTES + _encode_attributes({**attributes, **own})


def attributes_in(envelope: bytes) -> dict[str, str]:
    """Return the attributes that `join_attributes` has put into an envelope, that of its packet among them."""
    return _decode_attributes(envelope[len(ATTRIBUTES) :])


def split_attributes(envelope: bytes) -> tuple[dict[str, str], bytes] | None:
    """Return the attributes of a CloudEvent, and the envelope of its packet if it has one; None if they cannot be read.

    >>> split_attributes(join_attributes({"type": "Loop"}, b"x" * 25))
    ({'type': 'Loop'}, b'xxxxxxxxxxxxxxxxxxxxxxxxx')
    """
    try:
        attributes = attributes_in(envelope)
        return attributes, base64.b64decode(attributes.pop(OWN, ""), validate=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, ValueError):
        return None
