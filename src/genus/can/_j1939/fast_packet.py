"""Messages of up to 223 bytes, reassembled from the fast packets of NMEA 2000.

The first byte of each frame has a sequence counter in its upper three bits, the same for all frames of a message, and
the number of the frame in its lower five. The first frame says the size of the message and has six bytes of it, the
others have seven. Nothing in a frame tells that it is one: the receiver has to know which parameter groups are sent so.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from genus.can._j1939.identifier import destination_of, pgn_of, without_priority
from genus.can._j1939.reassembly import (
    BAD_ANNOUNCEMENT,
    BAD_PACKET,
    BROADCAST_GAP_US,
    DIFFERENT,
    MAX_SESSIONS,
    NOT_FINISHED,
    REPLACED,
    STRAY,
    TIMED_OUT,
    TOO_MANY,
    Incomplete,
    LongMessage,
)

FIRST_BYTES, OTHER_BYTES = 6, 7
MAX_FAST = FIRST_BYTES + 31 * OTHER_BYTES
"""The most bytes of a message: the number of a frame has 5 bits."""


@dataclass(slots=True)
class _Session:
    """State: the frames of one message."""

    frame_id: int
    size: int
    mark: object
    last_us: int
    found: dict[int, bytes] = field(default_factory=dict)

    @property
    def frames(self) -> int:
        return 1 + -(-max(self.size - FIRST_BYTES, 0) // OTHER_BYTES)

    def needs(self, number: int) -> int:
        """Return the bytes of the message that a frame must have."""
        return min(OTHER_BYTES, self.size - FIRST_BYTES - OTHER_BYTES * (number - 1))


class FastPackets:
    """State: the messages in progress on one bus, of the parameter groups that are sent in fast packets.

    >>> bus = FastPackets({129029})
    >>> bus.receive(0x0DF8_0523, bytes([0x40, 9]) + b"abcdef", 0)
    >>> bus.receive(0x0DF8_0523, bytes([0x41]) + b"ghi", 1_000).data
    b'abcdefghi'
    """

    def __init__(self, pgns: Collection[int], on_incomplete: Callable[[Incomplete], object] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        """What was lost, by reason, as that of a `J1939Reassembler`."""
        self.messages = 0
        self._pgns = frozenset(pgns)
        self._on_incomplete = on_incomplete
        self._sessions: dict[tuple[int, int], _Session] = {}
        """By identifier without priority, and sequence counter."""

    def is_part(self, frame_id: int) -> bool:
        """Return whether frames with an identifier of 29 bits are fast packets."""
        return pgn_of(frame_id) in self._pgns

    def receive(self, frame_id: int, data: bytes, now_us: int, mark: object = None) -> LongMessage | None:
        """Take a frame with an identifier of 29 bits; returns the message that it completes, if it does."""
        if not self.is_part(frame_id):
            return None
        if not data:
            self._lose(BAD_PACKET, mark)
            return None
        key, number = (without_priority(frame_id), data[0] >> 5), data[0] & 0x1F
        if number == 0:
            return self._begin(key, frame_id, data, now_us, mark)
        session = self._sessions.get(key)
        if session is not None and now_us - session.last_us > BROADCAST_GAP_US:
            self._end(key, TIMED_OUT)
            session = None
        if session is None or number >= session.frames or len(data) <= session.needs(number):
            self._lose(STRAY if session is None else BAD_PACKET, mark)
            return None
        return self._take(key, session, number, bytes(data[1 : session.needs(number) + 1]), now_us)

    def expire(self, now_us: int) -> None:
        """Give up messages of which nothing came for too long."""
        for key in [key for key, each in self._sessions.items() if now_us - each.last_us > BROADCAST_GAP_US]:
            self._end(key, TIMED_OUT)

    def close(self) -> None:
        """Give up all messages in progress: no more frames will come."""
        for key in list(self._sessions):
            self._end(key, NOT_FINISHED)

    def _begin(self, key: tuple[int, int], frame_id: int, data: bytes, now_us: int, mark: object) -> LongMessage | None:
        size = data[1] if len(data) > 1 else 0
        if not 1 <= size <= MAX_FAST or len(data) < 2 + min(size, FIRST_BYTES):
            self._lose(BAD_ANNOUNCEMENT, mark)
            return None
        if (former := self._sessions.get(key)) is not None:
            self._end(key, TIMED_OUT if now_us - former.last_us > BROADCAST_GAP_US else REPLACED)
        elif len(self._sessions) >= MAX_SESSIONS:
            self._end(next(iter(self._sessions)), TOO_MANY)
        session = self._sessions[key] = _Session(frame_id, size, mark, now_us)
        return self._take(key, session, 0, bytes(data[2 : 2 + min(size, FIRST_BYTES)]), now_us)

    def _take(
        self, key: tuple[int, int], session: _Session, number: int, part: bytes, now_us: int
    ) -> LongMessage | None:
        session.last_us = max(session.last_us, now_us)
        if session.found.setdefault(number, part) != part:
            self._end(key, DIFFERENT)
            return None
        if len(session.found) < session.frames:
            return None
        del self._sessions[key]
        self.messages += 1
        data = b"".join(session.found[each] for each in range(session.frames))
        return LongMessage(session.frame_id, data, destination_of(session.frame_id))

    def _end(self, key: tuple[int, int], reason: str) -> None:
        self._lose(reason, self._sessions.pop(key).mark)

    def _lose(self, reason: str, mark: object) -> None:
        self.counts[reason] += 1
        if self._on_incomplete is not None:
            self._on_incomplete(Incomplete(reason, mark))
