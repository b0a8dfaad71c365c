"""Sending and receiving long messages as a node of the bus: the active sides of the J1939 transport protocol.

`J1939Broadcast` sends a message to all nodes at a steady pace (BAM). `J1939Transfer` sends one to one node: it
announces it (RTS), sends the packets that the receiver asks for (CTS), and ends with its acknowledgement.
`J1939Receiver` is the other end: it asks for packets in windows, asks again for those that were lost, and acknowledges.
All are state machines without I/O: they take frames and times in microseconds, and return the frames to send.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from genus.can import _j1939
from genus.can._j1939 import (
    ABORT,
    ABORT_REASONS,
    ANSWER_GAP_US,
    BAM,
    BROADCAST_GAP_US,
    CTS,
    END,
    GLOBAL_ADDRESS,
    MAX_LENGTH,
    PACKET_BYTES,
    RTS,
    TRANSFER_CONTROL,
    TRANSFER_DATA,
    J1939Id,
    LongMessage,
    destination_of,
    is_pdu1,
    pgn_of,
)

BROADCAST_PACE_US = 50_000
"""The time between packets of a broadcast; J1939 allows 10 to 200 ms."""
WINDOW = 16
"""The packets that a receiver asks for at once, unless said otherwise."""
MAX_REPETITIONS = 2
"""How often a packet is asked for again before the transfer is aborted."""
PRIORITY = 7
"""The usual priority of the transport protocol."""
_FILL = b"\xff"
_SHORTEST = 9
_TIMED_OUT, _TOO_OFTEN = 3, 5


class J1939Frame(NamedTuple):
    """A frame to send: an identifier of 29 bits and up to eight bytes."""

    frame_id: int
    data: bytes


def count_packets(size: int) -> int:
    return -(-size // PACKET_BYTES)


def _check(pgn: int, data: bytes) -> None:
    if not _SHORTEST <= len(data) <= MAX_LENGTH:
        raise ValueError(f"{len(data)} bytes: the transport protocol takes {_SHORTEST} to {MAX_LENGTH}")
    if pgn >> 18 or (is_pdu1(pgn) and pgn & 0xFF):
        raise ValueError(f"{pgn} is no parameter group number")


def _packet(data: bytes, number: int) -> bytes:
    part = data[PACKET_BYTES * (number - 1) : PACKET_BYTES * number]
    return bytes([number]) + part.ljust(PACKET_BYTES, _FILL)


class J1939Broadcast:
    """State: a message on its way to all nodes; iterating gives its frames and when to send each.

    >>> [(at, frame.data.hex()) for at, frame in J1939Broadcast(65226, b"abcdefghij", source=3).frames(0)]
    [(0, '200a0002ffcafe00'), (50000, '0161626364656667'), (100000, '0268696affffffff')]
    """

    def __init__(self, pgn: int, data: bytes, source: int, *, priority: int = PRIORITY) -> None:
        """ValueError if the message has fewer than 9 or more than 1,785 bytes."""
        _check(pgn, data)
        self.pgn, self.data = pgn, data
        self._control = J1939Id(priority, TRANSFER_CONTROL, source, GLOBAL_ADDRESS).pack()
        self._packets = J1939Id(priority, TRANSFER_DATA, source, GLOBAL_ADDRESS).pack()

    def frames(self, now_us: int, pace_us: int = BROADCAST_PACE_US) -> Iterator[tuple[int, J1939Frame]]:
        """Yield the frames, each with the time at which to send it."""
        count = count_packets(len(self.data))
        head = bytes([BAM]) + len(self.data).to_bytes(2, "little") + bytes([count, 255])
        yield now_us, J1939Frame(self._control, head + self.pgn.to_bytes(3, "little"))
        for number in range(1, count + 1):
            yield now_us + number * pace_us, J1939Frame(self._packets, _packet(self.data, number))


@dataclass(slots=True)
class J1939Transfer:
    """State: a message on its way to one node. `is_done` when it was acknowledged, `failure` if it was given up."""

    pgn: int
    data: bytes
    source: int
    destination: int
    priority: int = PRIORITY
    window: int = 255
    """The most packets that the receiver may ask for at once."""
    is_done: bool = False
    failure: str | None = None
    wakes_us: int | None = None
    """When `wake` is to be called, unless a frame comes before."""

    def __post_init__(self) -> None:
        _check(self.pgn, self.data)

    def start(self, now_us: int) -> list[J1939Frame]:
        """Return the announcement."""
        self.wakes_us = now_us + ANSWER_GAP_US
        return [self._control(RTS, len(self.data).to_bytes(2, "little") + bytes([self._count, self.window]))]

    def receive(self, frame_id: int, data: bytes, now_us: int) -> list[J1939Frame]:
        """Take a frame of the bus; returns the packets that the receiver asks for."""
        is_answer = pgn_of(frame_id) == TRANSFER_CONTROL and frame_id & 0xFF == self.destination
        if not is_answer or destination_of(frame_id) != self.source or len(data) < 8 or not self.is_open:
            return []
        if int.from_bytes(data[5:8], "little") != self.pgn:
            return []
        match data[0]:
            case _j1939.CTS:
                return self._send(data[1], data[2], now_us)
            case _j1939.END:
                self.is_done, self.wakes_us = True, None
            case _j1939.ABORT:
                self._fail(f"aborted: {ABORT_REASONS.get(data[1], f'reason {data[1]}')}")
        return []

    def wake(self, now_us: int) -> list[J1939Frame]:
        """Give up if the receiver did not answer in time; returns the abort."""
        if self.wakes_us is None or now_us < self.wakes_us or not self.is_open:
            return []
        self._fail("timed out")
        return [self._control(ABORT, bytes([_TIMED_OUT, 255, 255]))]

    @property
    def is_open(self) -> bool:
        """Whether the transfer goes on."""
        return not self.is_done and self.failure is None

    @property
    def _count(self) -> int:
        return count_packets(len(self.data))

    def _send(self, count: int, first: int, now_us: int) -> list[J1939Frame]:
        self.wakes_us = now_us + ANSWER_GAP_US
        last = min(first + count - 1, self._count)
        packets = J1939Id(self.priority, TRANSFER_DATA, self.source, self.destination).pack()
        return [J1939Frame(packets, _packet(self.data, number)) for number in range(max(first, 1), last + 1)]

    def _control(self, kind: int, middle: bytes) -> J1939Frame:
        head = (bytes([kind]) + middle).ljust(5, _FILL)
        frame_id = J1939Id(self.priority, TRANSFER_CONTROL, self.source, self.destination).pack()
        return J1939Frame(frame_id, head + self.pgn.to_bytes(3, "little"))

    def _fail(self, why: str) -> None:
        self.failure, self.wakes_us = why, None


@dataclass(slots=True)
class _Incoming:
    pgn: int
    size: int
    packets: int
    window: int
    priority: int
    wakes_us: int
    asked: tuple[int, int] = (0, 0)
    """The first and the last packet of the present window."""
    found: dict[int, bytes] = field(default_factory=dict)
    repetitions: int = 0

    @property
    def missing(self) -> int | None:
        return next((number for number in range(1, self.packets + 1) if number not in self.found), None)


class J1939Receiver:
    """State: the messages that are being sent to one node, which answers.

    `receive` and `wake` return the frames to send; messages that are complete are in `messages`, until they are taken.
    """

    def __init__(self, address: int, *, window: int = WINDOW) -> None:
        self.address, self.window = address, window
        self.messages: list[LongMessage] = []
        self._incoming: dict[int, _Incoming] = {}
        """By source."""

    @property
    def wakes_us(self) -> int | None:
        """When `wake` is to be called; None if nothing is waited for."""
        return min((each.wakes_us for each in self._incoming.values()), default=None)

    def receive(self, frame_id: int, data: bytes, now_us: int) -> list[J1939Frame]:
        """Take a frame of the bus; returns the frames with which to answer."""
        if destination_of(frame_id) != self.address:
            return []
        source, pgn = frame_id & 0xFF, pgn_of(frame_id)
        if pgn == TRANSFER_DATA:
            return self._take(source, data, now_us)
        if pgn == TRANSFER_CONTROL and len(data) >= 8:
            if data[0] == RTS:
                return self._begin(source, frame_id >> 26 & 7, data, now_us)
            if data[0] == ABORT:
                self._incoming.pop(source, None)
        return []

    def wake(self, now_us: int) -> list[J1939Frame]:
        """Ask again for packets that did not come in time, or abort if that was done too often."""
        late = [source for source, each in self._incoming.items() if each.wakes_us <= now_us]
        return [frame for source in late for frame in self._ask_again(source, now_us)]

    def _begin(self, source: int, priority: int, data: bytes, now_us: int) -> list[J1939Frame]:
        size, packets, pgn = int.from_bytes(data[1:3], "little"), data[3], int.from_bytes(data[5:8], "little")
        if not 1 <= size <= MAX_LENGTH or packets != count_packets(size):
            return []
        window = min(self.window, data[4] or self.window)
        self._incoming[source] = incoming = _Incoming(pgn, size, packets, window, priority, now_us)
        return [self._ask(source, incoming, 1, now_us)]

    def _take(self, source: int, data: bytes, now_us: int) -> list[J1939Frame]:
        incoming = self._incoming.get(source)
        if incoming is None or len(data) < PACKET_BYTES + 1 or not 1 <= data[0] <= incoming.packets:
            return []
        incoming.found[data[0]] = data[1 : PACKET_BYTES + 1]
        incoming.wakes_us = now_us + BROADCAST_GAP_US
        if (missing := incoming.missing) is None:
            return [self._finish(source, incoming)]
        if data[0] < incoming.asked[1]:
            return []
        if missing <= incoming.asked[1]:
            return self._ask_again(source, now_us)
        incoming.repetitions = 0
        return [self._ask(source, incoming, missing, now_us)]

    def _ask(self, source: int, incoming: _Incoming, first: int, now_us: int) -> J1939Frame:
        """Ask for the packets from the first that is missing up to the next one that is there, or a window."""
        last = first
        while last - first + 1 < incoming.window and last < incoming.packets and last + 1 not in incoming.found:
            last += 1
        incoming.asked, incoming.wakes_us = (first, last), now_us + ANSWER_GAP_US
        return self._control(source, incoming, CTS, bytes([last - first + 1, first]))

    def _ask_again(self, source: int, now_us: int) -> list[J1939Frame]:
        incoming = self._incoming[source]
        incoming.repetitions += 1
        if incoming.repetitions > MAX_REPETITIONS:
            del self._incoming[source]
            return [self._control(source, incoming, ABORT, bytes([_TOO_OFTEN]))]
        return [self._ask(source, incoming, incoming.missing or 1, now_us)]

    def _finish(self, source: int, incoming: _Incoming) -> J1939Frame:
        del self._incoming[source]
        data = b"".join(incoming.found[number] for number in range(1, incoming.packets + 1))[: incoming.size]
        target = self.address if is_pdu1(incoming.pgn) else None
        frame_id = J1939Id(incoming.priority, incoming.pgn, source, target).pack()
        self.messages.append(LongMessage(frame_id, data, self.address))
        return self._control(source, incoming, END, incoming.size.to_bytes(2, "little") + bytes([incoming.packets]))

    def _control(self, source: int, incoming: _Incoming, kind: int, middle: bytes) -> J1939Frame:
        head = (bytes([kind]) + middle).ljust(5, _FILL)
        frame_id = J1939Id(PRIORITY, TRANSFER_CONTROL, self.address, source).pack()
        return J1939Frame(frame_id, head + incoming.pgn.to_bytes(3, "little"))
