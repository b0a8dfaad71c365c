"""The fields of 29-bit J1939 identifiers: priority, parameter group, destination and source.

The parameter group number (PGN) has 18 bits. If the second byte of it, the PDU format, is below 240 (PDU1), the byte
after it is the destination and no part of the number; otherwise (PDU2) it belongs to the number, and all nodes are
meant.
"""

from typing import NamedTuple

from genus.can._wire.frame import ID_MASK

GLOBAL_ADDRESS = 255
"""The destination that means all nodes."""
NULL_ADDRESS = 254
"""The source of nodes without an address; in databases often that of messages which any node may send."""
FIRST_PDU2 = 240
PRIORITY_SHIFT = 26
_PGN_MASK = 0x3FFFF

REQUEST = 59904
"""The parameter group of requests for another one."""
ADDRESS_CLAIMED = 60928
TRANSFER_CONTROL = 60416
"""The parameter group TP.CM: announcements, flow control, ends and aborts of long messages."""
TRANSFER_DATA = 60160
"""The parameter group TP.DT: the packets of long messages."""


class J1939Id(NamedTuple):
    """The fields of a J1939 identifier; `destination` is None for parameter groups that have none (PDU2).

    >>> J1939Id.unpack(0x0C00_000B)
    J1939Id(priority=3, pgn=0, source=11, destination=0)
    >>> J1939Id.unpack(0x0CF0_0421)
    J1939Id(priority=3, pgn=61444, source=33, destination=None)
    >>> f"{J1939Id(6, 65226, 3).pack():08X}"
    '18FECA03'
    """

    priority: int
    pgn: int
    source: int
    destination: int | None = None

    @classmethod
    def unpack(cls, frame_id: int) -> "J1939Id":
        """Return the fields of an identifier of 29 bits."""
        pgn = pgn_of(frame_id)
        return cls(frame_id >> PRIORITY_SHIFT & 7, pgn, frame_id & 0xFF, destination_of(frame_id))

    def pack(self) -> int:
        """The identifier as an integer; ValueError if a field does not fit. PDU1 without a destination is for all."""
        has_destination = is_pdu1(self.pgn)
        if not has_destination and self.destination is not None:
            raise ValueError(f"parameter group {self.pgn} has no destination")
        destination = GLOBAL_ADDRESS if self.destination is None else self.destination
        fits = self.priority >> 3 == 0 and self.pgn >> 18 == 0 and self.source >> 8 == 0 and destination >> 8 == 0
        if not fits or (has_destination and self.pgn & 0xFF):
            raise ValueError(f"{self} does not fit an identifier")
        low = destination if has_destination else 0
        return self.priority << PRIORITY_SHIFT | (self.pgn | low) << 8 | self.source


def is_pdu1(pgn: int) -> bool:
    """Return whether frames of a parameter group name their destination."""
    return pgn >> 8 & 0xFF < FIRST_PDU2


def pgn_of(frame_id: int) -> int:
    """Return the parameter group number in a 29-bit identifier.

    >>> pgn_of(0x18EA_FF21), pgn_of(0x18FE_CA00)
    (59904, 65226)
    """
    pgn = frame_id >> 8 & _PGN_MASK
    return pgn & ~0xFF if is_pdu1(pgn) else pgn


def destination_of(frame_id: int) -> int | None:
    """Return the destination in a 29-bit identifier; None if its parameter group has none."""
    return frame_id >> 8 & 0xFF if is_pdu1(frame_id >> 8 & _PGN_MASK) else None


def without_priority(frame_id: int) -> int:
    """Return an identifier without its priority, which says nothing about its meaning."""
    return frame_id & ((1 << PRIORITY_SHIFT) - 1) & ID_MASK
