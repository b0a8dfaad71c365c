"""J1939: identifiers, the names of controllers, and messages of 9 to 1,785 bytes that come in packets. Sans I/O.

The parameter group number (PGN) has 18 bits. If the second byte of it, the PDU format, is below 240 (PDU1), the byte
after it is the destination and no part of the number; otherwise (PDU2) it belongs to the number, and all nodes are
meant.

With a 64-bit NAME controllers claim addresses (SAE J1939-81).

Messages are reassembled from the packets of the transport protocol (SAE J1939-21). A sender announces a message with
its size, its number of packets and its parameter group, and sends packets of seven bytes with sequence numbers from 1:
to all nodes (BAM), or to one (RTS), which says with CTS how many packets from which number it wants next, may ask for
packets again, and acknowledges the end. The reassembler is a listener that takes part in nothing: it needs
announcements and packets only, and uses the other frames to know that a message goes on or ended.

Sessions are told apart by source and destination, so any number of them may be interleaved. A packet counts where its
number says, whenever it comes, so one that is repeated does no harm, and one that is lost is made up for by its
repetition; if the repetition has other data, it belongs to a message whose announcement was lost, and both are given
up. A message is given when its last missing packet has come, and then never again. What ends without all packets is
counted by reason. Time is an input: the times of frames, in microseconds.

Two messages can be taken for one only if the end of the first, the announcement of the second and the beginning of the
second are lost, between the same nodes and within the time-out: nothing in the frames shows it.

NMEA 2000 has packets of its own (fast packets).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
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
        for value, (name, bits) in zip(self, NAME_FIELDS, strict=True):
            if value >> bits:
                raise ValueError(f"{name} is {value}, but has {bits} bits")
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


RTS, CTS, END, BAM, ABORT = 16, 17, 19, 32, 255
"""The first byte of control frames."""
PACKET_BYTES = 7
MAX_LENGTH = 255 * PACKET_BYTES
"""The most bytes of a message: the sequence number has 8 bits."""
BROADCAST_GAP_US = 750_000
"""The longest time between frames of a message to all nodes (T1)."""
ANSWER_GAP_US = 1_250_000
"""The longest time between frames of a message to one node, or of its answers (T2, T3)."""
MAX_SESSIONS = 4096
"""The most messages in progress; the oldest is given up for another, so that no input takes all memory."""

REPLACED = "replaced by a new message"
TIMED_OUT = "timed out"
LOST = "packets lost"
DIFFERENT = "packet repeated with other data"
NOT_FINISHED = "not finished"
TOO_MANY = "too many messages at once"
BAD_ANNOUNCEMENT = "announcement that is not valid"
STRAY = "packet of no announced message"
BAD_PACKET = "packet that is not valid"

ABORT_REASONS = {
    1: "already in a session",
    2: "out of resources",
    3: "timed out",
    4: "CTS during a transfer",
    5: "too many repetitions",
    6: "unexpected packet",
    7: "bad sequence number",
    8: "sequence number twice",
    9: "larger than 1785 bytes",
}
"""What the second byte of an abort means."""


class LongMessage(NamedTuple):
    """A message that was reassembled: the identifier that a frame with all its data would have, and the data."""

    frame_id: int
    data: bytes
    destination: int | None
    """The node it was sent to, `GLOBAL_ADDRESS` for all; of a fast packet that of its identifier."""


class Incomplete(NamedTuple):
    """A message that was announced and did not arrive, or a frame that belongs to none."""

    reason: str
    mark: object
    """The mark of the first frame that the reassembler got of it."""


@dataclass(slots=True)
class _Session:
    """State: the packets of one message that were received."""

    frame_id: int
    size: int
    packets: int
    mark: object
    last_us: int
    found: dict[int, bytes] = field(default_factory=dict)
    is_given: bool = False

    def data(self) -> bytes:
        return b"".join(self.found[number] for number in sorted(self.found))


class _Sessions:
    """State: the messages in progress on one bus, as a listener knows them.

    `counts` has how many messages and frames were lost, by reason; `on_incomplete` is called with each.
    """

    def __init__(self, on_incomplete: Callable[[Incomplete], object] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.messages = 0
        """How many messages were given."""
        self._on_incomplete = on_incomplete
        self._sessions: dict[tuple[int, int], _Session] = {}

    @property
    def open_sessions(self) -> int:
        return sum(not session.is_given for session in self._sessions.values())

    def expire(self, now_us: int) -> None:
        """Give up messages of which nothing came for too long; without it, this is noticed at their next frame."""
        for key in [key for key, session in self._sessions.items() if self._is_late(key, session, now_us)]:
            self._end(key, TIMED_OUT)

    def close(self) -> None:
        for key in list(self._sessions):
            self._end(key, NOT_FINISHED)

    def _is_late(self, key: tuple[int, int], session: _Session, now_us: int) -> bool:
        return now_us - session.last_us > BROADCAST_GAP_US

    def _open(self, key: tuple[int, int], session: _Session) -> _Session:
        if (former := self._sessions.get(key)) is not None:
            self._end(key, TIMED_OUT if self._is_late(key, former, session.last_us) else REPLACED)
        elif len(self._sessions) >= MAX_SESSIONS:
            self._end(next(iter(self._sessions)), TOO_MANY)
        self._sessions[key] = session
        return session

    def _find(self, key: tuple[int, int], now_us: int) -> _Session | None:
        session = self._sessions.get(key)
        if session is not None and self._is_late(key, session, now_us):
            self._end(key, TIMED_OUT)
            return None
        return session

    def _end(self, key: tuple[int, int], reason: str) -> None:
        """Forget a session; its message is lost unless it was given."""
        session = self._sessions.pop(key, None)
        if session is not None and not session.is_given:
            self._lose(reason, session.mark)

    def _lose(self, reason: str, mark: object) -> None:
        self.counts[reason] += 1
        if self._on_incomplete is not None:
            self._on_incomplete(Incomplete(reason, mark))


class J1939Reassembler(_Sessions):
    """State: the messages of the transport protocol; sessions are found by source and destination.

    >>> bus = J1939Reassembler()
    >>> bus.receive(0x1CEC_FF03, bytes([32, 10, 0, 2, 255, 0xCA, 0xFE, 0]), 0)
    >>> bus.receive(0x1CEB_FF03, b"\\1abcdefg", 50_000)
    >>> message = bus.receive(0x1CEB_FF03, b"\\2hij\\xff\\xff\\xff\\xff", 100_000)
    >>> f"{message.frame_id:08X}", message.data
    ('1CFECA03', b'abcdefghij')
    """

    def receive(self, frame_id: int, data: bytes, now_us: int, mark: object = None) -> LongMessage | None:
        """Take a frame with an identifier of 29 bits; returns the message that it completes, if it does.

        Frames that do not belong to the transport protocol are ignored. `mark` is given back in `Incomplete`.
        """
        pgn, destination = pgn_of(frame_id), destination_of(frame_id)
        if destination is None or pgn not in (TRANSFER_CONTROL, TRANSFER_DATA):
            return None
        if pgn == TRANSFER_DATA:
            return self._packet((frame_id & 0xFF, destination), data, now_us, mark)
        self._control(frame_id, destination, data, now_us, mark)
        return None

    def _is_late(self, key: tuple[int, int], session: _Session, now_us: int) -> bool:
        return now_us - session.last_us > (BROADCAST_GAP_US if key[1] == GLOBAL_ADDRESS else ANSWER_GAP_US)

    def _control(self, frame_id: int, destination: int, data: bytes, now_us: int, mark: object) -> None:
        source, kind = frame_id & 0xFF, data[0] if data else None
        if kind in (RTS, BAM):
            announced = _read_announcement(frame_id, destination, data)
            if announced is None:
                self._lose(BAD_ANNOUNCEMENT, mark)
            else:
                self._open((source, destination), _Session(*announced, mark, now_us))
        elif kind == CTS:
            self._refresh((destination, source), data, now_us)
        elif kind == END:
            self._end((destination, source), LOST)
        elif kind == ABORT:
            self._abort((source, destination), data)
        else:
            self._lose(BAD_ANNOUNCEMENT, mark)

    def _packet(self, key: tuple[int, int], data: bytes, now_us: int, mark: object) -> LongMessage | None:
        session = self._find(key, now_us)
        if session is None:
            self._lose(STRAY, mark)
            return None
        session.last_us = max(session.last_us, now_us)
        number = data[0] if data else 0
        needed = min(PACKET_BYTES, session.size - PACKET_BYTES * (number - 1))
        if not 1 <= number <= session.packets or len(data) <= needed:
            self._lose(BAD_PACKET, mark)
            return None
        if session.is_given:
            return None  # the receiver asked for it again, though all packets were seen here
        packet = bytes(data[1 : needed + 1])
        if session.found.setdefault(number, packet) != packet:
            self._end(key, DIFFERENT)  # of another message, whose announcement was lost
            return None
        if len(session.found) == session.packets:
            return self._give(key, session)
        if key[1] == GLOBAL_ADDRESS and number == session.packets:
            self._end(key, LOST)  # nobody can ask for packets of a broadcast again
        return None

    def _give(self, key: tuple[int, int], session: _Session) -> LongMessage:
        self.messages += 1
        session.is_given = True
        given = LongMessage(session.frame_id, session.data(), key[1])
        session.found.clear()
        if key[1] == GLOBAL_ADDRESS:
            del self._sessions[key]
        return given

    def _refresh(self, key: tuple[int, int], data: bytes, now_us: int) -> None:
        """Note that the receiver wants more packets: the message goes on, unless it is another one."""
        session = self._sessions.get(key)
        if session is None or self._is_late(key, session, now_us):
            return
        if len(data) >= 8 and int.from_bytes(data[5:8], "little") != pgn_of(session.frame_id):
            self._end(key, LOST)
        else:
            session.last_us = max(session.last_us, now_us)

    def _abort(self, key: tuple[int, int], data: bytes) -> None:
        """End the message of a parameter group between two nodes; either of them may abort it."""
        pgn = int.from_bytes(data[5:8], "little") if len(data) >= 8 else None
        code = data[1] if len(data) > 1 else 0
        reason = f"aborted: {ABORT_REASONS.get(code, f'reason {code}')}"
        for each in (key, key[::-1]):
            session = self._sessions.get(each)
            if session is not None and pgn in (None, pgn_of(session.frame_id)):
                self._end(each, reason)
                return


def _read_announcement(frame_id: int, destination: int, data: bytes) -> tuple[int, int, int] | None:
    """Return the identifier, size and number of packets that a frame announces; None if it is not valid.

    Messages of up to 8 bytes need no transport, but some nodes send them so.
    """
    if len(data) < 8 or (data[0] == BAM) is not (destination == GLOBAL_ADDRESS):
        return None
    size, packets, pgn = int.from_bytes(data[1:3], "little"), data[3], int.from_bytes(data[5:8], "little")
    if not 1 <= size <= MAX_LENGTH or packets != -(-size // PACKET_BYTES) or pgn >> 18:
        return None
    target = destination if is_pdu1(pgn) else None
    pgn = pgn & ~0xFF if is_pdu1(pgn) else pgn
    return J1939Id(frame_id >> PRIORITY_SHIFT & 7, pgn, frame_id & 0xFF, target).pack(), size, packets


# -- fast packets of NMEA 2000 -----------------------------------------------------------------------------------------

FIRST_BYTES, OTHER_BYTES = 6, 7
MAX_FAST = FIRST_BYTES + 31 * OTHER_BYTES
"""The most bytes of a message: the number of a frame has 5 bits."""


class FastPackets(_Sessions):
    """State: the messages of parameter groups that are sent in fast packets.

    The first byte of each frame has a sequence counter in its upper three bits, the same for all frames of a message,
    and the number of the frame in its lower five. The first frame says the size of the message and has six bytes of it,
    the others have seven. Sessions are found by identifier without priority, and counter.

    >>> bus = FastPackets({129029})
    >>> bus.receive(0x0DF8_0523, bytes([0x40, 9]) + b"abcdef", 0)
    >>> bus.receive(0x0DF8_0523, bytes([0x41]) + b"ghi", 1_000).data
    b'abcdefghi'
    """

    def __init__(self, pgns: Collection[int], on_incomplete: Callable[[Incomplete], object] | None = None) -> None:
        super().__init__(on_incomplete)
        self._pgns = frozenset(pgns)

    def receive(self, frame_id: int, data: bytes, now_us: int, mark: object = None) -> LongMessage | None:
        if pgn_of(frame_id) not in self._pgns:
            return None
        if not data:
            self._lose(BAD_PACKET, mark)
            return None
        key, number = (without_priority(frame_id), data[0] >> 5), data[0] & 0x1F
        if number == 0:
            return self._begin(key, frame_id, data, now_us, mark)
        session = self._find(key, now_us)
        if session is None:
            self._lose(STRAY, mark)
            return None
        needed = min(OTHER_BYTES, session.size - FIRST_BYTES - OTHER_BYTES * (number - 1))
        if number >= session.packets or len(data) <= needed:
            self._lose(BAD_PACKET, mark)
            return None
        return self._take(key, session, number, bytes(data[1 : needed + 1]), now_us)

    def _begin(self, key: tuple[int, int], frame_id: int, data: bytes, now_us: int, mark: object) -> LongMessage | None:
        size = data[1] if len(data) > 1 else 0
        if not 1 <= size <= MAX_FAST or len(data) < 2 + min(size, FIRST_BYTES):
            self._lose(BAD_ANNOUNCEMENT, mark)
            return None
        frames = 1 + -(-max(size - FIRST_BYTES, 0) // OTHER_BYTES)
        session = self._open(key, _Session(frame_id, size, frames, mark, now_us))
        return self._take(key, session, 0, bytes(data[2 : 2 + min(size, FIRST_BYTES)]), now_us)

    def _take(
        self, key: tuple[int, int], session: _Session, number: int, part: bytes, now_us: int
    ) -> LongMessage | None:
        session.last_us = max(session.last_us, now_us)
        if session.found.setdefault(number, part) != part:
            self._end(key, DIFFERENT)
            return None
        if len(session.found) < session.packets:
            return None
        del self._sessions[key]
        self.messages += 1
        return LongMessage(session.frame_id, session.data(), destination_of(session.frame_id))
