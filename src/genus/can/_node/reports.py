"""Reports: publishers send the counters of their channels once a second, so that receivers know what they missed.

Before the first report, and when a node joins, they send the signature of the channel: what its events are. A node
whose controller has too many errors sends empty reports, by which it recovers.
"""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from genus.can._node.channels import TxChannel
from genus.can._node.tx_queue import Context
from genus.can._wire.frame import ETAG_MASK, Frame, Identifier, Priority, ProtocolEtag

REPORT_NS = 1_000_000_000
SOON_NS = 5_000_000
"""Delay of the reports that are sent because a node joined the bus."""
PAUSE_NS = 200_000_000
"""Minimum time between such reports."""
PAUSE_FRAMES = 1
"""How long to wait after an empty report that was sent, in longest frames."""
FIRST_RETRY_FRAMES, LAST_RETRY_FRAMES = 4, 32
"""How long to wait after one that failed; twice as long after each further one, up to the last."""


class Report(msgspec.Struct, frozen=True):
    """The counters of a channel as its publisher reports them; they wrap around.

    >>> Report(8208, True, 70_000, 3, 1).pack().hex()
    'a010011170003001'
    >>> Report.parse(bytes.fromhex("a010011170003001"))
    Report(etag=8208, segmented=True, sent=70000, missed=3, expired=1)
    """

    etag: int
    segmented: bool
    sent: int
    missed: int
    expired: int

    def pack(self) -> bytes:
        """Whether its events are segmented (1 bit), event tag (15), sent (24), deadlines missed (12), expired (12)."""
        counters = (self.sent & 0xFFFFFF) << 24 | (self.missed & 0xFFF) << 12 | self.expired & 0xFFF
        return (self.segmented << 63 | self.etag << 48 | counters).to_bytes(8, "big")

    @classmethod
    def parse(cls, data: bytes) -> "Report | None":
        """Parse a report; None if it is not 8 bytes long."""
        if len(data) != 8:
            return None
        packed = int.from_bytes(data, "big")
        etag, segmented = packed >> 48 & ETAG_MASK, bool(packed >> 63)
        return cls(etag, segmented, packed >> 24 & 0xFFFFFF, packed >> 12 & 0xFFF, packed & 0xFFF)


def _do_nothing() -> None:
    """What follows a signature if nothing is given."""


class Reporter:
    """State: when the channels of a node are reported next."""

    def __init__(self, context: Context, channels: Callable[[], Iterable[TxChannel]]) -> None:
        self._context = context
        self._channels = channels
        self._last = -PAUSE_NS
        self._signs = False
        """Whether the next reports come with signatures."""
        self.wake_at: int | None = None

    def sign(self, channel: TxChannel, on_sent: Callable[[], None] = _do_nothing) -> None:
        """Queue the signature of a channel, one at a time; what is to follow it is called when it was sent."""
        if not channel.signing:
            channel.signing = True
            frame = channel.layout_signature(self._context.queue.number).frame()
            self._context.queue.add_frame(frame, partial(self._signed, channel, on_sent))

    def _signed(self, channel: TxChannel, on_sent: Callable[[], None], now: int) -> None:
        channel.signing = False
        on_sent()

    def report(self, channel: TxChannel, on_sent: Callable[[int], None] | None = None) -> None:
        """Queue a report of a channel; its counters are read when it gets into the mailbox. One at a time."""
        if channel.reporting and on_sent is None:
            return
        channel.reporting = True
        renew = partial(self._frame, channel)
        self._context.queue.add_frame(renew(), partial(self._sent, channel, on_sent), renew)
        if self.wake_at is None:
            self.wake_at, self._context.timers_changed = self._context.now + REPORT_NS, True

    def report_soon(self) -> None:
        """A node joined the bus and does not know the channels yet: sign and report them soon."""
        if self.wake_at is not None and self._context.now - self._last >= PAUSE_NS:
            self._signs = True
            self.wake_at = min(self.wake_at, self._context.now + SOON_NS)

    def wake(self, now: int) -> None:
        """Report all channels, if it is time."""
        if self.wake_at is None or now < self.wake_at:
            return
        ready = [channel for channel in self._channels() if channel.state == "ready"]
        self.wake_at, self._last = now + REPORT_NS if ready else None, now
        signs, self._signs = self._signs, False
        for channel in ready:
            if signs:
                self.sign(channel, partial(self.report, channel))
            else:
                self.report(channel)

    def _sent(self, channel: TxChannel, on_sent: Callable[[int], None] | None, now: int) -> None:
        channel.reporting = False
        if on_sent is not None:
            on_sent(now)

    def _frame(self, channel: TxChannel) -> Frame:
        counts = channel.counts
        missed = counts.missed + counts.failed
        report = Report(channel.etag, channel.segmented, channel.reported, missed, counts.expired)
        return Frame(Identifier(Priority.SYSTEM, self._context.queue.number, ProtocolEtag.REPORT).pack(), report.pack())


class ErrorRecovery:
    """State: sends empty reports with the lowest priority while the controller has too many errors.

    Each frame that is sent lowers the controller's error counter. A node that sends little but hard events would else
    not recover for minutes; so it does on an idle bus before its next slot. Receivers ignore an empty report. There are
    pauses between them, so that a station that is off the bus finds the idle time it needs to come back; one that fails
    is repeated later and later, because the bus may be disturbed for a while.
    """

    def __init__(self, context: Context, is_needed: Callable[[], bool]) -> None:
        self._context = context
        self._is_needed = is_needed
        self._frame: Frame | None = None
        self._retry_frames = FIRST_RETRY_FRAMES
        self.wake_at: int | None = None

    def start(self) -> None:
        """Begin to recover, unless that is under way."""
        if self._frame is None and self.wake_at is None:
            self._send()

    def stop(self) -> None:
        """What was queued is gone."""
        self._frame, self.wake_at = None, None

    def frame_failed(self, frame: Frame) -> None:
        """A frame was corrupted: if it is an empty report, send another one later."""
        if frame is self._frame:
            self._context.queue.remove_frame(frame)
            self._pause(self._retry_frames)
            self._retry_frames = min(2 * self._retry_frames, LAST_RETRY_FRAMES)

    def wake(self, now: int) -> None:
        """The pause is over."""
        if self.wake_at is not None and self.wake_at <= now:
            self.wake_at = None
            self._send()

    def _send(self) -> None:
        if self._is_needed():
            queue = self._context.queue
            self._frame = Frame(Identifier(Priority.BULK, queue.number, ProtocolEtag.REPORT).pack())
            queue.add_frame(self._frame, self._sent)

    def _sent(self, now: int) -> None:
        self._retry_frames = FIRST_RETRY_FRAMES
        self._pause(PAUSE_FRAMES)

    def _pause(self, frames: int) -> None:
        self._frame = None
        if self._is_needed():
            self.wake_at = self._context.now + frames * self._context.queue.level_ns
