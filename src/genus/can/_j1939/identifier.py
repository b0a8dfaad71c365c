"""The fields of 29-bit J1939 identifiers, and the 64-bit NAME with which controllers claim addresses (SAE J1939-81).

The parameter group number (PGN) has 18 bits. If the second byte of it, the PDU format, is below 240 (PDU1), the byte
after it is the destination and no part of the number; otherwise (PDU2) it belongs to the number, and all nodes are
meant.
"""

from collections.abc import Iterator, Mapping
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
        """Return the identifier; ValueError if a field does not fit. PDU1 without a destination is for all nodes."""
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
    return pgn >> 8 & 0xFF < FIRST_PDU2


def pgn_of(frame_id: int) -> int:
    """Return the parameter group number in a 29-bit identifier.

    >>> pgn_of(0x18EA_FF21), pgn_of(0x18FE_CA00)
    (59904, 65226)
    """
    pgn = frame_id >> 8 & _PGN_MASK
    return pgn & ~0xFF if is_pdu1(pgn) else pgn


def destination_of(frame_id: int) -> int | None:
    return frame_id >> 8 & 0xFF if is_pdu1(frame_id >> 8 & _PGN_MASK) else None


def without_priority(frame_id: int) -> int:
    return frame_id & ((1 << PRIORITY_SHIFT) - 1) & ID_MASK


# -- names of controllers ----------------------------------------------------------------------------------------------

NAME_FIELDS = (
    ("identity_number", 21),
    ("manufacturer_code", 11),
    ("ecu_instance", 3),
    ("function_instance", 5),
    ("function", 8),
    ("reserved", 1),
    ("vehicle_system", 7),
    ("vehicle_system_instance", 4),
    ("industry_group", 3),
    ("arbitrary_address_capable", 1),
)
"""The fields of a NAME and their numbers of bits, from the lowest; a frame has the lowest byte first."""


class J1939Name(NamedTuple):
    """The fields of a controller's NAME.

    >>> name = J1939Name.unpack(0x8000_8200_0B21_2345)
    >>> name.manufacturer_code, name.function, name.arbitrary_address_capable, f"{name.pack():#x}"
    (89, 130, 1, '0x800082000b212345')
    """

    identity_number: int = 0
    manufacturer_code: int = 0
    ecu_instance: int = 0
    function_instance: int = 0
    function: int = 0
    reserved: int = 0
    vehicle_system: int = 0
    vehicle_system_instance: int = 0
    industry_group: int = 0
    arbitrary_address_capable: int = 0

    @classmethod
    def unpack(cls, number: int) -> "J1939Name":
        """Return the fields of a NAME as an integer of 64 bits."""
        values = []
        for _, bits in NAME_FIELDS:
            values.append(number & (1 << bits) - 1)
            number >>= bits
        return cls(*values)

    def pack(self) -> int:
        """Return the NAME as an integer of 64 bits; ValueError if a field does not fit."""
        number, shift = 0, 0
        for value, (field, bits) in zip(self, NAME_FIELDS, strict=True):
            if value >> bits:
                raise ValueError(f"{field} is {value}, but has {bits} bits")
            number |= value << shift
            shift += bits
        return number


class ClaimedNames(Mapping[int, J1939Name]):
    """State: the controllers of one bus, by the addresses that they claimed last.

    >>> names = ClaimedNames()
    >>> names.receive(0x18EE_FF0B, (0x8000_8200_0B21_2345).to_bytes(8, "little"))
    >>> names[11].identity_number
    74565
    """

    def __init__(self) -> None:
        self._names: dict[int, J1939Name] = {}

    def receive(self, frame_id: int, data: bytes) -> None:
        """Take a frame with an identifier of 29 bits; all but address claims are ignored."""
        if pgn_of(frame_id) != ADDRESS_CLAIMED or len(data) < 8:
            return
        address, name = frame_id & 0xFF, J1939Name.unpack(int.from_bytes(data[:8], "little"))
        for former in [each for each, known in self._names.items() if known == name]:
            del self._names[former]  # it has moved, or cannot claim an address
        if address != NULL_ADDRESS:
            self._names[address] = self._winner(address, name)

    def _winner(self, address: int, name: J1939Name) -> J1939Name:
        """Of two that claim one address, the smaller NAME has it."""
        known = self._names.get(address)
        return name if known is None or name.pack() <= known.pack() else known

    def __getitem__(self, address: int) -> J1939Name:
        return self._names[address]

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
