"""CAN frames: their 29-bit identifiers, and their length in bit times.

An identifier has 8 bits of priority, 7 of the sending node, and 14 of the event tag. The bands of priority separate the
traffic classes: hard real time wins over soft, soft over the middleware's own frames, and these over events without
deadlines. The node number makes identifiers unique, as CAN requires; the event tag names the event type. Standard
(11-bit) frames are not used: they would win over extended ones with the same leading bits.

The worst case of a length is computed by formula (Davis et al. 2007), the exact length by counting stuff bits. Stuff
bits are counted by a state machine whose state is the last bit and how often it was repeated (1 to 5). One table per
state maps a byte to the next table and the stuff bits within the byte, so a frame takes one look-up per byte; the
result for the header is cached by identifier. All lengths include the three bits of intermission.
"""

from bisect import bisect_left
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import msgspec

from genus.errors import BusError

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


SHORTEST_ERROR_BITS = 17
"""Error flag 6, delimiter 8, intermission 3: all nodes detected the error at the same bit."""
ACTIVE_ERROR_BITS = 23
"""With 6 more bits for the error flags of nodes that only detected the first flag."""
WORST_ERROR_BITS = 31
"""Error flag 6, its echo 6, delimiter 8, intermission 3, and 8 of suspension if the sender is error passive."""

FD_SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64)
"""The data lengths of a CAN FD frame, by its 4-bit data length code."""

SECOND_NS = 1_000_000_000

_TAIL_BITS = 13
"""CRC delimiter 1, acknowledgement 2, end of frame 7, intermission 3: without stuff bits, at the nominal rate."""


class FdBits(NamedTuple):
    """Bits of a CAN FD frame at the nominal and at the data bit rate."""

    nominal: int
    data: int


def padded_size(size: int) -> int:
    """Return the shortest CAN FD data length that holds `size` bytes; ValueError for more than 64.

    >>> [padded_size(size) for size in (0, 8, 9, 25, 64)]
    [0, 8, 12, 32, 64]
    """
    if not 0 <= size <= FD_BYTES:
        raise ValueError(f"a CAN FD frame carries 0 to 64 bytes, not {size}")
    return FD_SIZES[bisect_left(FD_SIZES, size)]


def worst_case_bits(size: int, *, extended: bool = True) -> int:
    """The most bits of a classic frame with `size` data bytes, including intermission; ValueError for more than 8.

    >>> worst_case_bits(8), worst_case_bits(0, extended=False)
    (160, 55)
    """
    _check_classic_size(size)
    return (80 if extended else 55) + 10 * size


def worst_case_fd_bits(size: int, *, extended: bool = True) -> FdBits:
    """Return the most bits of a CAN FD frame with `size` data bytes, padded to the next valid length.

    >>> worst_case_fd_bits(64), worst_case_fd_bits(8, extended=False)
    (FdBits(nominal=57, data=679), FdBits(nominal=34, data=113))
    """
    padded = padded_size(size)
    fixed = (34 if extended else 33) + (5 if padded > 16 else 0)
    return FdBits(57 if extended else 34, fixed + 10 * padded)


def exact_bits(frame: Frame) -> int:
    """Return the bits of a classic frame, including its stuff bits and intermission; ValueError for a CAN FD frame.

    >>> exact_bits(Frame(0x0021_6010, b"hello")), worst_case_bits(5)
    (110, 130)
    """
    if frame.fd:
        raise ValueError(f"{frame} is a CAN FD frame; use exact_fd_bits")
    return _classic_bits(frame.id, frame.data, frame.extended)


def exact_fd_bits(frame: Frame, *, switched: bool = True) -> FdBits:
    """Return the bits of a CAN FD frame (ISO 11898-1:2015) of an error active sender.

    The CRC field has stuff bits at fixed positions, so its length does not depend on its value and the counts are
    exact. `switched` says that the data part is sent at the data bit rate. The rate changes at the sample points of the
    bits BRS and CRC delimiter; both are counted as nominal, so times are exact up to part of two bits.

    >>> exact_fd_bits(Frame(0x0021_6010, bytes(64), fd=True)), worst_case_fd_bits(64)
    (FdBits(nominal=52, data=651), FdBits(nominal=57, data=679))
    """
    data = frame.data
    size = len(data)
    nominal, stuffed, table = _fd_header(frame.id, size, frame.extended, switched)
    for byte in data:
        table, added = table[byte]
        stuffed += added
    return FdBits(nominal, stuffed + 8 * size + (4 + 17 + 6 if size <= 16 else 4 + 21 + 7))


class Timing(msgspec.Struct, frozen=True):
    """The bit rates of a bus, in bits per second, and the durations of frames at these rates.

    `data_bitrate` is for CAN FD. A bit need not take a whole number of nanoseconds: durations are rounded up once, for
    the whole frame, so a bound is never shorter than the real frame. BusError if a rate is not from 1 to 1,000,000,000,
    or the data would be slower than the rest of the frame.

    >>> bus = Timing(500_000, 2_000_000)
    >>> bus.bit_ns, bus.worst_case_ns(8), bus.worst_case_ns(64, fd=True), bus.error_ns
    (2000, 320000, 453500, 62000)
    >>> bus = Timing(83_333)
    >>> bus.bit_ns, bus.bits_ns(1000), bus.bits_in(12_000_049)
    (12001, 12000049, 1000)
    """

    bitrate: int
    data_bitrate: int | None = None

    def __post_init__(self) -> None:
        _check_bitrate("bitrate", self.bitrate)
        if self.data_bitrate is not None:
            _check_bitrate("data_bitrate", self.data_bitrate)
            if self.data_bitrate < self.bitrate:
                raise BusError(f"data_bitrate is {self.data_bitrate}, below the bitrate of {self.bitrate}")

    @property
    def bit_ns(self) -> int:
        """The duration of a bit, rounded up; `bits_ns` gives that of several."""
        return -(-SECOND_NS // self.bitrate)

    @property
    def data_bit_ns(self) -> int:
        """The duration of a bit in the data part of a CAN FD frame, rounded up."""
        return -(-SECOND_NS // (self.data_bitrate or self.bitrate))

    def bits_ns(self, bits: int) -> int:
        """Return the duration of so many bits at the nominal rate, rounded up."""
        return -(-bits * SECOND_NS // self.bitrate)

    def bits_in(self, span_ns: int) -> int:
        """Return how many whole bits at the nominal rate a time holds; the inverse of `bits_ns`."""
        return span_ns * self.bitrate // SECOND_NS

    @property
    def error_ns(self) -> int:
        """The longest time from an error to the next frame."""
        return self.bits_ns(WORST_ERROR_BITS)

    def worst_case_ns(self, size: int, *, fd: bool = False, extended: bool = True) -> int:
        """Return the longest duration of a frame with `size` data bytes."""
        if not fd:
            return self.bits_ns(worst_case_bits(size, extended=extended))
        return self._fd_ns(worst_case_fd_bits(size, extended=extended))

    def exact_ns(self, frame: Frame) -> int:
        """Return the duration of a frame."""
        if not frame.fd:
            return -(-_classic_bits(frame.id, frame.data, frame.extended) * SECOND_NS // self.bitrate)
        return self._fd_ns(exact_fd_bits(frame, switched=self.data_bitrate is not None))

    def _fd_ns(self, bits: FdBits) -> int:
        data_bitrate = self.data_bitrate or self.bitrate
        scaled = bits.nominal * data_bitrate + bits.data * self.bitrate
        return -(-scaled * SECOND_NS // (self.bitrate * data_bitrate))


def _check_classic_size(size: int) -> None:
    if not 0 <= size <= CLASSIC_BYTES:
        raise ValueError(f"a classic frame carries 0 to 8 bytes, not {size}")


def _check_identifier(identifier: int, extended: bool) -> None:
    width = 29 if extended else 11
    if identifier >> width:
        raise ValueError(f"identifier {identifier:#x} does not fit {width} bits")


def _check_bitrate(name: str, bitrate: int) -> None:
    if not 0 < bitrate <= SECOND_NS:
        raise BusError(
            f"{name} is {bitrate}; write bits per second, such as 83333, 125000, 250000, 500000 or 1000000, or 2000000 "
            "to 8000000 for the data of CAN FD"
        )


_StuffTable = list[tuple[Any, int]]
"""Maps a byte to the next table and the stuff bits before the byte's last bit; Any, as the type is recursive."""


def _next_state(state: tuple[int, int], bit: int) -> tuple[tuple[int, int], int]:
    """Return the state (bit, run) after one more bit, and 1 if a stuff bit is inserted before it."""
    last, run = state
    stuffed = run == 5
    if stuffed:
        last, run = 1 - last, 1
    return ((bit, run + 1) if bit == last else (bit, 1)), int(stuffed)


def _after_byte(state: tuple[int, int], byte: int) -> tuple[tuple[int, int], int]:
    count = 0
    for place in range(7, -1, -1):
        state, stuffed = _next_state(state, byte >> place & 1)
        count += stuffed
    return state, count


def _stuff_tables() -> _StuffTable:
    """Return the table of the state after a single recessive bit; it refers to all others."""
    tables: dict[tuple[int, int], _StuffTable] = {(bit, run): [] for bit in (0, 1) for run in range(1, 6)}
    for state, table in tables.items():
        for byte in range(256):
            following, count = _after_byte(state, byte)
            table.append((tables[following], count))
    return tables[1, 1]


def _crc_table() -> list[int]:
    """CRC-15-CAN (polynomial 0x4599): the change of the register for each value of its upper byte."""
    table = []
    for byte in range(256):
        register = byte << 7
        for _ in range(8):
            register = register << 1 ^ (0x4599 if register & 0x4000 else 0)
            register &= 0x7FFF
        table.append(register)
    return table


_START = _stuff_tables()
_CRC = _crc_table()


def _stuff(bits: int, width: int) -> tuple[_StuffTable, int]:
    """Return the table and the number of stuff bits after the first `width` bits of a frame.

    Alternating bits are put in front to fill whole bytes; the last of them is recessive, as the idle bus is.
    """
    padding = -width % 8
    table, count = _START, 0
    for byte in ((0x55 & (1 << padding) - 1) << width | bits).to_bytes((width + padding) // 8, "big"):
        table, added = table[byte]
        count += added
    return table, count


def _crc15(bits: int, width: int) -> int:
    register = 0
    for byte in bits.to_bytes(-(-width // 8), "big"):
        register = register << 8 & 0x7FFF ^ _CRC[register >> 7 ^ byte]
    return register


@lru_cache(maxsize=1 << 14)
def _classic_header(identifier: int, size: int, extended: bool) -> tuple[int, int, _StuffTable]:
    """Return the CRC, the number of stuff bits and the table after the data length code."""
    _check_identifier(identifier, extended)
    if extended:  # SOF and 11 bits of identifier; SRR and IDE; 18 bits; RTR, r1, r0; DLC
        bits, width = (identifier >> 18 << 20 | 0b11 << 18 | identifier & 0x3FFFF) << 7 | size, 39
    else:  # SOF and identifier; RTR, IDE, r0; DLC
        bits, width = identifier << 7 | size, 19
    table, stuffed = _stuff(bits, width)
    return _crc15(bits, width), stuffed, table


@lru_cache(maxsize=1 << 12)
def _classic_bits(identifier: int, data: bytes, extended: bool) -> int:
    size = len(data)
    _check_classic_size(size)
    register, stuffed, table = _classic_header(identifier, size, extended)
    crc = _CRC
    for byte in data:
        register = register << 8 & 0x7FFF ^ crc[register >> 7 ^ byte]
        table, added = table[byte]
        stuffed += added
    # A 16th bit, the opposite of the last, makes two bytes of the CRC and counts a stuff bit after its last bit.
    for byte in (register << 1 | ~register & 1).to_bytes(2, "big"):
        table, added = table[byte]
        stuffed += added
    return stuffed + (54 if extended else 34) + 8 * size + _TAIL_BITS


@lru_cache(maxsize=1 << 14)
def _fd_header(identifier: int, size: int, extended: bool, switched: bool) -> tuple[int, int, _StuffTable]:
    """Return the nominal bits, the data bits so far with their stuff bits, and the table after the data length code."""
    if size not in FD_SIZES:
        raise ValueError(f"no CAN FD frame has {size} data bytes; padded_size gives the next valid length")
    _check_identifier(identifier, extended)
    if extended:  # SOF and 11 bits of identifier; SRR and IDE; 18 bits; RRS, FDF, reserved, BRS
        bits, width = (identifier >> 18 << 20 | 0b11 << 18 | identifier & 0x3FFFF) << 4 | 0b0100 | switched, 36
    else:  # SOF and identifier; RRS, IDE, FDF, reserved, BRS
        bits, width = identifier << 5 | 0b00100 | switched, 17
    _, nominal = _stuff(bits, width)
    table, stuffed = _stuff(bits << 5 | FD_SIZES.index(size), width + 5)  # ESI, DLC
    return width + nominal + _TAIL_BITS, 5 + stuffed - nominal, table
