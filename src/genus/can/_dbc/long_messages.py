"""Long messages of a database's bus: the J1939 transport protocol and NMEA 2000 fast packets, on every channel.

A log may have several buses, on which the same addresses send different messages, so each channel is reassembled alone.
"""

from collections.abc import Callable, Iterable

from genus.can._dbc.layout import MessageLayout
from genus.can._j1939.fast_packet import FastPackets
from genus.can._j1939.identifier import TRANSFER_CONTROL, TRANSFER_DATA, pgn_of
from genus.can._j1939.name import ClaimedNames
from genus.can._j1939.reassembly import Incomplete, J1939Reassembler, LongMessage
from genus.errors import Reasons

INCOMPLETE = "long message incomplete: "
"""What is before the reason why a message is lost."""


class LongMessages:
    """State: the long messages in progress on each channel, and the controllers that claimed addresses there.

    >>> bus = LongMessages([])
    >>> bus.receive(None, 0x1CEC_FF03, bytes([32, 9, 0, 2, 255, 0xCA, 0xFE, 0]), 0)
    >>> bus.receive(None, 0x1CEB_FF03, b"\\1abcdefg", 50_000)
    >>> bus.receive(None, 0x1CEB_FF03, b"\\2hi\\xff\\xff\\xff\\xff\\xff", 100_000).data
    b'abcdefghi'
    """

    def __init__(
        self, messages: Iterable[MessageLayout], on_incomplete: Callable[[Incomplete], object] | None = None
    ) -> None:
        self.counts = Reasons()
        """How many messages are incomplete, and how many frames belong to none, by reason."""
        self.messages = 0
        """How many messages were put together."""
        self.names: dict[str | None, ClaimedNames] = {}
        """The names of controllers by channel and address."""
        self._on_incomplete = on_incomplete
        self._fast_pgns = frozenset(message.pgn for message in messages if message.fast)
        self._pgns = {TRANSFER_CONTROL, TRANSFER_DATA} | self._fast_pgns
        self._buses: dict[str | None, tuple[J1939Reassembler, FastPackets]] = {}

    @property
    def pgns(self) -> frozenset[int]:
        """The parameter groups whose frames are parts of messages."""
        return frozenset(self._pgns)

    def is_part(self, frame_id: int) -> bool:
        """Return whether frames with an identifier of 29 bits are parts of messages."""
        return pgn_of(frame_id) in self._pgns

    def is_fast(self, frame_id: int) -> bool:
        """Return whether frames with an identifier of 29 bits are fast packets, which are no messages by themselves."""
        return pgn_of(frame_id) in self._fast_pgns

    def receive(
        self, channel: str | None, frame_id: int, data: bytes, now_us: int, mark: object = None
    ) -> LongMessage | None:
        """Take a frame with an identifier of 29 bits; returns the message that it completes, if it does.

        `mark` is given back with messages that are incomplete. Frames that are no parts are ignored.
        """
        pgn = pgn_of(frame_id)
        if pgn not in self._pgns:
            return None
        transport, fast = self._buses.get(channel) or self._open(channel)
        found = (fast if pgn in self._fast_pgns else transport).receive(frame_id, data, now_us, mark)
        self.messages += found is not None
        return found

    def claim(self, channel: str | None, frame_id: int, data: bytes) -> None:
        """Note the name of a controller; frames other than address claims are ignored."""
        if channel not in self.names:
            self.names[channel] = ClaimedNames()
        self.names[channel].receive(frame_id, data)

    def expire(self, now_us: int) -> None:
        """Give up messages of which nothing came for too long."""
        for bus in self._buses.values():
            for each in bus:
                each.expire(now_us)

    def close(self) -> None:
        """Give up all messages in progress."""
        for bus in self._buses.values():
            for each in bus:
                each.close()

    def _open(self, channel: str | None) -> tuple[J1939Reassembler, FastPackets]:
        bus = J1939Reassembler(self._lose), FastPackets(self._fast_pgns, self._lose)
        self._buses[channel] = bus
        return bus

    def _lose(self, incomplete: Incomplete) -> None:
        self.counts[incomplete.reason] += 1
        if self._on_incomplete is not None:
            self._on_incomplete(incomplete)
