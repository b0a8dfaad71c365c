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

import os
import struct

import msgspec

ENVELOPE = struct.Struct(">8sIB8sI")
SOFT_TIMES = struct.Struct(">qIQ")
MOST_HOPS = 8
NUMBERS = 1 << 32


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where an event was first published: the uid of the bus, the event's number there, and the gateways crossed."""

    uid: bytes
    number: int
    hops: int = 0


def new_uid() -> bytes:
    """A uid for a participant: random, so that one that restarts is another one."""
    return os.urandom(8)
