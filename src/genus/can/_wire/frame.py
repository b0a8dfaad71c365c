"""CAN frames and their 29-bit identifiers: 8 bits of priority, 7 of the sending node, 14 of the event tag.

The bands of priority separate the traffic classes: hard real time wins over soft, soft over the middleware's own
frames, and these over events without deadlines. The node number makes identifiers unique, as CAN requires; the event
tag names the event type. Standard (11-bit) frames are not used: they would win over extended ones with the same
leading bits.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Self

import msgspec

PRIORITY_SHIFT = 21
NODE_SHIFT = 14
NODE_MASK = 0x7F << NODE_SHIFT
ETAG_MASK = 0x3FFF
ID_MASK = (1 << 29) - 1
STANDARD_ID_MASK = (1 << 11) - 1

CLASSIC_BYTES, FD_BYTES = 8, 64
"""The most data bytes of a classic frame and of a CAN FD frame."""

RESERVED_ETAGS = 128
"""The first event tags are the middleware's own."""

UNCONFIGURED_NODE = 0
"""The node number of nodes that have none yet."""
FIRST_NODE, LAST_NODE = 1, 0x7E
BROKER_NODE = 0x7F


class Priority(IntEnum):
    """The priority of each traffic class; the frame with the smaller number wins the bus."""

    HARD = 0
    SOFT_FIRST = 1
    SOFT_LAST = 250
    SYSTEM = 251
    """Clock synchronisation, claims, reports."""
    PROTOCOL = 253
    """Configuration and binding."""
    NONE = 254
    BULK = 255


class ProtocolEtag(IntEnum):
    """Event tags of the middleware's own frames; all below 128 are reserved. The first five are FAMOUSO's."""

    SSI = 0
    """From the broker: the configuration stage and the uid prefix found so far."""
    RSI = 1
    """From a node without a number: one nibble of its uid."""
    GET_ETAG = 2
    SUPPLY_ETAG = 3
    SUPPLY_ETAG_FLAGS = 4
    CLAIM = 5
    """The uid of the node that has a number, once a second: heartbeat, and defence of the number."""
    ANNOUNCE = 6
    """From a publisher: QoS class and contract of an event channel."""
    REPORT = 7
    """From a publisher: how many events of a channel it has sent and how many it has not."""
    SYNC = 8
    FOLLOW_UP = 9
    """The reading of the master's clock at the end of the last SYNC."""
    BROKER = 10
    """The broker's epoch and the digest of its catalog, once a second."""
    QUESTION = 11
    ANSWER = 12
    """The segmented answer to a catalog question."""
    SIGNATURE = 13
    """From a publisher: digests of the type and the layout of its events."""
    OBJECTION = 14
    """The events of a publisher contradict the sender's catalog."""


class Identifier(NamedTuple):
    """The three fields of a 29-bit identifier.

    >>> Identifier(Priority.SOFT_FIRST, node=5, etag=8208).pack() == 0x0021_6010
    True
    >>> Identifier.unpack(0x0021_6010)
    Identifier(priority=1, node=5, etag=8208)
    """

    priority: int
    node: int
    etag: int

    def pack(self) -> int:
        """Return the identifier as an integer of 29 bits; ValueError if a field does not fit."""
        if self.priority >> 8 or self.node >> 7 or self.etag >> 14:
            raise ValueError(f"{self} does not fit 8, 7 and 14 bits")
        return self.priority << PRIORITY_SHIFT | self.node << NODE_SHIFT | self.etag

    @classmethod
    def unpack(cls, identifier: int) -> Self:
        """Return the fields of an identifier of 29 bits."""
        return cls(identifier >> PRIORITY_SHIFT & 0xFF, identifier >> NODE_SHIFT & 0x7F, identifier & ETAG_MASK)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A data frame: an identifier and up to 8 data bytes, or up to 64 with `fd`.

    >>> Frame(0x0021_6010, b"hi")
    Frame(0x00216010, 6869)
    """

    id: int
    data: bytes = b""
    fd: bool = False
    """Whether it is a CAN FD frame."""
    extended: bool = True
    """Whether the identifier has 29 bits; otherwise it has 11."""

    @property
    def priority(self) -> int:
        """The priority in the identifier."""
        return self.id >> PRIORITY_SHIFT & 0xFF

    @property
    def node(self) -> int:
        """The sender's node number in the identifier."""
        return self.id >> NODE_SHIFT & 0x7F

    @property
    def etag(self) -> int:
        """The event tag in the identifier."""
        return self.id & ETAG_MASK

    def __repr__(self) -> str:
        shown = f"{self.id:#010x}" if self.extended else f"{self.id:#05x}"
        return f"Frame({shown}, {self.data.hex()}{', fd' if self.fd else ''})"


def arbitration_key(frame: Frame) -> int:
    """Return the bits with which a frame competes for the bus, as one number; the smallest wins.

    After the 11 leading bits a standard frame has RTR and IDE dominant, an extended one SRR and IDE recessive.

    >>> standard, extended = Frame(0x123, extended=False), Frame(0x123 << 18)
    >>> arbitration_key(standard) < arbitration_key(extended) < arbitration_key(Frame(0x124, extended=False))
    True
    """
    identifier = frame.id
    if frame.extended:
        return (identifier >> 18) << 21 | 0x18_0000 | (identifier & 0x3_FFFF) << 1
    return identifier << 21


def subject_uid(name: str) -> int:
    """Return the 64-bit number under which nodes ask for the event tag of a type: from its name, never 0.

    It is the first 8 bytes of the name's BLAKE2b digest, so every node can compute it without a catalog. Two names have
    the same number with a probability of 2**-64 for each pair.

    >>> f"{subject_uid('Loop'):#018x}"
    '0x95623e3a87c20c39'
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") or 1


# -- fault confinement (ISO 11898-1) -----------------------------------------------------------------------------------

TEC_PER_FAILURE = 8
WARNING_FROM = 96
"""From here on controllers raise a warning."""
PASSIVE_ABOVE = 127
"""Above, a controller is error passive: it signals errors with recessive bits, and waits after each of its frames."""
OFF_ABOVE = 255
"""Above, a controller is off the bus."""
SUSPENSION_BITS = 8
"""How long an error passive controller waits after a frame of its own before it sends another one."""
