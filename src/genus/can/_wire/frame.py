"""The 29-bit identifier of every frame: 8 bits of priority, 7 of the sending node, 14 of the event tag.

The priority's bands keep the classes apart: hard real time beats soft, soft beats the middleware's own traffic, that
beats events without deadlines. The node makes identifiers unique, as CAN requires; the event tag says what it is.
A standard (11-bit) frame would beat an extended one with the same leading bits, so these have no place on the bus.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Self

import msgspec

PRIORITY_SHIFT = 21
NODE_SHIFT = 14
PRIORITY_MASK = 0xFF << PRIORITY_SHIFT
NODE_MASK = 0x7F << NODE_SHIFT
ETAG_MASK = 0x3FFF
ID_MASK = (1 << 29) - 1
STANDARD_ID_MASK = (1 << 11) - 1

CLASSIC_BYTES, FD_BYTES = 8, 64
"""The most data bytes of a classic frame and of a CAN FD frame."""

BROKER_NODE = 0x7F
"""The node number of the broker; 0 is that of nobody, which a node has until it is configured."""
UNCONFIGURED_NODE = 0
FIRST_NODE, LAST_NODE = 1, 0x7E


class Priority(IntEnum):
    """Where each class of traffic stands; a smaller number wins the bus."""

    HARD = 0
    SOFT_FIRST = 1
    SOFT_LAST = 250
    SYSTEM = 251
    """Clock synchronisation, claims, reports."""
    PROTOCOL = 253
    """Configuration and binding."""
    NONE = 254
    BULK = 255


class ProtocolTag(IntEnum):
    """Event tags of the middleware itself; all below 128 are reserved. The first five are FAMOUSO's."""

    SSI = 0
    """Broker to all: the configuration stage and the prefix found so far."""
    RSI = 1
    """Unconfigured node: here, with this nibble."""
    GET_ETAG = 2
    SUPPLY_ETAG = 3
    SUPPLY_ETAG_FLAGS = 4
    CLAIM = 5
    """A node's uid under its number, once a second: heartbeat and defence."""
    ANNOUNCE = 6
    """A publisher tells class and contract of a channel."""
    REPORT = 7
    """A publisher tells how many events of a channel it sent, and how many it did not."""
    SYNC = 8
    FOLLOW_UP = 9
    """What the master's clock showed when the last SYNC ended."""
    BROKER = 10
    """The broker's epoch and its catalog's digest, once a second."""
    QUESTION = 11
    ANSWER = 12
    """Segmented answer to a catalog question."""


class Identifier(NamedTuple):
    """The three fields of an identifier.

    >>> Identifier(Priority.SOFT_FIRST, node=5, etag=8208).pack() == 0x0021_6010
    True
    >>> Identifier.unpack(0x0021_6010)
    Identifier(priority=1, node=5, etag=8208)
    """

    priority: int
    node: int
    etag: int

    def pack(self) -> int:
        """The 29 bits; a field that does not fit is a ValueError."""
        if self.priority >> 8 or self.node >> 7 or self.etag >> 14:
            raise ValueError(f"{self} does not fit 8, 7 and 14 bits")
        return self.priority << PRIORITY_SHIFT | self.node << NODE_SHIFT | self.etag

    @classmethod
    def unpack(cls, identifier: int) -> Self:
        """The fields of 29 bits."""
        return cls(identifier >> PRIORITY_SHIFT & 0xFF, identifier >> NODE_SHIFT & 0x7F, identifier & ETAG_MASK)


# The number under which nodes ask for a type before they know its event tag.


def subject_uid(name: str) -> int:
    """The 64-bit number of the type of this name: the first 8 bytes of its BLAKE2b digest, and never 0.

    Every node can compute it without a catalog. Two names of one number are as likely as 2**-64 for each pair.

    >>> f"{subject_uid('Loop'):#018x}"
    '0x95623e3a87c20c39'
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") or 1


# A frame on the bus, as every part of the CAN room passes it on.


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A data frame: identifier and up to 8 bytes, or up to 64 with `fd`.

    >>> Frame(0x0021_6010, b"hi")
    Frame(0x00216010, 6869)
    """

    id: int
    data: bytes = b""
    fd: bool = False
    extended: bool = True

    @property
    def priority(self) -> int:
        """The first field of the identifier."""
        return self.id >> PRIORITY_SHIFT & 0xFF

    @property
    def node(self) -> int:
        """The sender's number."""
        return self.id >> NODE_SHIFT & 0x7F

    @property
    def etag(self) -> int:
        """The event tag."""
        return self.id & ETAG_MASK

    def __repr__(self) -> str:
        shown = f"{self.id:#010x}" if self.extended else f"{self.id:#05x}"
        return f"Frame({shown}, {self.data.hex()}{', fd' if self.fd else ''})"
