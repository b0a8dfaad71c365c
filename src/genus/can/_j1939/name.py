"""The 64-bit NAME with which a controller claims its address (SAE J1939-81).

When a controller joins, it sends its NAME from the address that it wants; of two with one address, that with the
smaller NAME keeps it. So whoever listens knows which controller has which address.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from genus.can._j1939.identifier import ADDRESS_CLAIMED, NULL_ADDRESS, pgn_of

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
