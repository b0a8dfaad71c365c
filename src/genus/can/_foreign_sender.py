"""Events of a database's types as frames: each once, or the last one again every period.

The frames of a cyclic message are sent at times that are a whole number of periods after the first, however long the
bus is busy: they do not drift, and never two of them wait. An event that is published in between is sent at the next of
these times; if several are, the last.

J1939 messages that are longer than a frame are sent to all nodes (BAM): one after the other, at the pace of J1939. A
node may have one broadcast on its way at a time. Messages to one node need its answers (RTS, CTS) and are refused.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from genus.can._dbc import MessageLayout
from genus.can._foreign_receiver import Databases
from genus.can._j1939 import GLOBAL_ADDRESS, J1939Id
from genus.can._j1939_transfer import BROADCAST_PACE_US, J1939Broadcast, J1939Frame, count_packets
from genus.can._node.problems import DeliveryProblem, MaybeSent, ProblemHandler
from genus.can._node.tx_queue import TxQueue
from genus.can._wire.frame import CLASSIC_BYTES, Frame
from genus.errors import BusError, EventError, QueueFull
from genus.model import Event, name_of


class _Waiting(NamedTuple):
    """A message that is to be sent, and what to call when its last frame was sent, or may have been."""

    broadcast: J1939Broadcast
    done: Callable[[int], None]
    unknown: Callable[[], None]


class Broadcasts:
    """State: the long messages that wait, and the frames of the one that is being sent, with their times."""

    def __init__(self, queue: TxQueue) -> None:
        self._queue = queue
        self.waiting: deque[_Waiting] = deque()
        """Messages of which not all frames are queued."""
        self._frames: deque[tuple[int, J1939Frame]] = deque()
        self._free_at = 0
        """When the next message may begin."""

    def __len__(self) -> int:
        return len(self.waiting)

    def check(self, frame: Frame, layout: MessageLayout) -> None:
        if len(frame.data) <= CLASSIC_BYTES or frame.fd:
            return
        destination = J1939Id.unpack(frame.id).destination
        if destination not in (None, GLOBAL_ADDRESS):
            raise EventError(
                f"{layout.type_name}.destination is {destination}, but messages of more than 8 bytes are sent to all "
                "nodes only; publish it with destination=255"
            )

    def add(
        self, frame: Frame, layout: MessageLayout, done: Callable[[int], None], unknown: Callable[[], None], now: int
    ) -> None:
        known = J1939Id.unpack(frame.id)
        self.waiting.append(_Waiting(J1939Broadcast(layout.pgn, frame.data, known.source), done, unknown))
        self._go_on(now)

    @property
    def left_ns(self) -> int:
        """How long those that wait take at the pace of J1939, on a bus that has time for them."""
        begun = len(self._frames)
        packets = sum(count_packets(len(each.broadcast.data)) + 1 for each in list(self.waiting)[bool(begun) :])
        return (begun + packets) * BROADCAST_PACE_US * 1000

    @property
    def wake_at(self) -> int | None:
        if self._frames:
            return self._frames[0][0] * 1000
        return self._free_at if self.waiting else None

    def wake(self, now: int) -> None:
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        while True:
            if not self._frames:
                if not self.waiting or now < self._free_at:
                    return
                self._frames = deque(self.waiting[0].broadcast.frames(now // 1000))
            at, part = self._frames[0]
            if at * 1000 > now:
                return
            self._frames.popleft()
            done, unknown = None, _go_on_without
            if not self._frames:
                _, done, unknown = self.waiting.popleft()
                self._free_at = now + BROADCAST_PACE_US * 1000
            self._queue.add_frame(Frame(part.frame_id, part.data), done, on_unknown=unknown)


def _go_on_without() -> None:
    """A part that was not confirmed is not sent again: receivers would take it for one too many."""


MAX_WAITING = 1024
"""Frames that may wait to be sent."""

MILLISECOND = 1_000_000


class Outgoing(msgspec.Struct, eq=False):
    event: Event
    frame: Frame
    loop_back: bool
    is_sent: bool = False

    @property
    def is_long(self) -> bool:
        return len(self.frame.data) > CLASSIC_BYTES and not self.frame.fd


class CyclicCounts(msgspec.Struct):
    replaced: int = 0
    """Events that a newer one replaced before they were sent."""
    skipped: int = 0
    """Frames that were left out, because the one before still waited or the timer was late."""


class ForeignAnnouncement:
    """A publisher's handle on a message; made by `ForeignSender.announce`."""

    def __init__(
        self, channel: "ForeignChannel", on_problem: ProblemHandler | None, *, is_implicit: bool = False
    ) -> None:
        self.channel = channel
        self.on_problem = on_problem
        self.is_implicit = is_implicit
        """Whether it was made because an event was published without a channel; a program's own one replaces it."""


class ForeignChannel:
    """State: a message that is published, and with a period the event that is sent again and again."""

    def __init__(self, cls: type[Event], layout: MessageLayout, period_ns: int | None) -> None:
        self.cls, self.layout, self.period_ns = cls, layout, period_ns
        self.announcements: list[ForeignAnnouncement] = []
        self.latest: Outgoing | None = None
        self.loaded: Outgoing | None = None
        """The event whose frame was the last to get into the mailbox."""
        self.is_waiting = False
        """Whether its frame is in the queue."""
        self.next_at: int | None = None

    def load(self) -> Frame:
        assert self.latest is not None, "a frame is queued when there is an event"
        self.loaded = self.latest
        return self.latest.frame


class ForeignSender:
    def __init__(
        self,
        databases: Databases,
        queue: TxQueue,
        call: Callable[..., None],
        loop_back: Callable[[Event], None],
        *,
        fd: bool,
        cyclic: bool = True,
    ) -> None:
        self.channels: dict[type, ForeignChannel] = {}
        self.sent: Counter[str] = Counter()
        """Frames by type."""
        self.unknown: Counter[str] = Counter()
        """Frames by type that a driver took and did not confirm."""
        self.cyclic = CyclicCounts()
        self.broadcasts = Broadcasts(queue)
        self._databases, self._queue, self._call, self._loop_back = databases, queue, call, loop_back
        self._fd, self._cyclic = fd, cyclic

    # -- announcing --------------------------------------------------------------------------------------------------

    def announce(
        self,
        cls: type[Event],
        period_ns: int | None = None,
        on_problem: ProblemHandler | None = None,
        *,
        is_implicit: bool = False,
    ) -> ForeignAnnouncement:
        """Prepare to publish a type of a database, every period; without one, as often as the database says.

        BusError if its frames cannot be sent on this bus, or it was announced with another period.
        """
        layout = self._databases.layout_of(cls)
        if layout is None:
            raise BusError(f"{name_of(cls)} is no type of {self._databases}")
        self._check_length(layout)
        for known in [*self.channels[cls].announcements] if cls in self.channels and not is_implicit else ():
            if known.is_implicit:
                self.withdraw(known)
        period_ns = self._period_of(layout) if period_ns is None else period_ns
        channel = self.channels.setdefault(cls, ForeignChannel(cls, layout, period_ns))
        if channel.period_ns != period_ns:
            raise BusError(f"{name_of(cls)} is announced with {_shown(channel.period_ns)}, not {_shown(period_ns)}")
        announcement = ForeignAnnouncement(channel, on_problem, is_implicit=is_implicit)
        channel.announcements.append(announcement)
        return announcement

    def _period_of(self, layout: MessageLayout) -> int | None:
        return layout.cycle_time_ms * MILLISECOND if self._cyclic and layout.cycle_time_ms else None

    def _check_length(self, layout: MessageLayout) -> None:
        if layout.fd and not self._fd:
            raise BusError(
                f"{layout.type_name} is a CAN FD frame, but this bus was opened without data_bitrate; give it one"
            )
        if layout.length > CLASSIC_BYTES and not layout.fd and (layout.fast or not layout.j1939):
            raise BusError(f"{layout.type_name} has {layout.length} bytes, more than a classic frame holds")

    def withdraw(self, announcement: ForeignAnnouncement) -> None:
        """End an announcement; after the last one nothing is sent again. What waits is still sent."""
        channel = announcement.channel
        if announcement in channel.announcements:
            channel.announcements.remove(announcement)
        if not channel.announcements:
            channel.next_at = None
            self.channels.pop(channel.cls, None)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> Frame:
        """Send an event, or send it from now on every period; EventError names the signal that cannot be encoded."""
        channel = self.channels.get(type(event))
        if channel is None:
            raise BusError(f"{type(event).__name__} was not announced; announce its channel first")
        outgoing = Outgoing(event, self._databases.encode(event), loop_back)
        self.broadcasts.check(outgoing.frame, channel.layout)
        if channel.period_ns is None:
            self._check_room(channel)
            done, unknown = partial(self._sent, channel, outgoing), partial(self._unknown, channel, outgoing)
            if outgoing.is_long:
                self.broadcasts.add(outgoing.frame, channel.layout, done, unknown, now)
            else:
                self._queue.add_frame(outgoing.frame, done, on_unknown=unknown)
        else:
            self.cyclic.replaced += channel.latest is not None and not channel.latest.is_sent
            channel.latest = outgoing
            if channel.next_at is None:
                channel.next_at = now + channel.period_ns
                self._queue_cyclic(channel, now)
        return outgoing.frame

    def _check_room(self, channel: ForeignChannel) -> None:
        if self._queue.fixed_waiting + len(self.broadcasts) >= MAX_WAITING:
            problem = QueueFull(f"{MAX_WAITING} frames wait; {channel.layout.type_name} must be published slower")
            problem.queue = self._queue
            raise problem

    def _queue_cyclic(self, channel: ForeignChannel, now: int) -> None:
        channel.is_waiting = True
        done, unknown = partial(self._cyclic_sent, channel), partial(self._cyclic_unknown, channel)
        frame = channel.load()
        if channel.latest is not None and channel.latest.is_long:
            self.broadcasts.add(frame, channel.layout, done, unknown, now)
        else:
            self._queue.add_frame(frame, done, channel.load, unknown)

    def _cyclic_sent(self, channel: ForeignChannel, now: int) -> None:
        channel.is_waiting = False
        assert channel.loaded is not None, "a frame that was sent was loaded"
        self._sent(channel, channel.loaded, now)

    def _sent(self, channel: ForeignChannel, outgoing: Outgoing, now: int) -> None:
        self.sent[channel.layout.type_name] += 1
        if outgoing.loop_back and not outgoing.is_sent:
            self._loop_back(outgoing.event)
        outgoing.is_sent = True

    def _cyclic_unknown(self, channel: ForeignChannel) -> None:
        """A driver did not confirm a cyclic frame: it is sent again in the next cycle."""
        channel.is_waiting = False
        self.unknown[channel.layout.type_name] += 1

    def _unknown(self, channel: ForeignChannel, outgoing: Outgoing) -> None:
        """A driver did not confirm a frame: it is not sent again, as devices would get it twice."""
        self.unknown[channel.layout.type_name] += 1
        if outgoing.loop_back:
            self._loop_back(outgoing.event)
        self._report(channel.announcements, MaybeSent(channel.layout.type_name, outgoing.event))

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        times = (self.broadcasts.wake_at, *(each.next_at for each in self.channels.values()))
        return min((at for at in times if at is not None), default=None)

    def wake(self, now: int) -> None:
        self.broadcasts.wake(now)
        for channel in self.channels.values():
            if channel.next_at is not None and channel.next_at <= now:
                assert channel.period_ns is not None, "only cyclic messages have a timer"
                late = (now - channel.next_at) // channel.period_ns
                channel.next_at += (late + 1) * channel.period_ns
                self.cyclic.skipped += late + channel.is_waiting
                if not channel.is_waiting:
                    self._queue_cyclic(channel, now)

    # -- problems ----------------------------------------------------------------------------------------------------

    def report_to_all(self, problem: DeliveryProblem) -> None:
        self._report((each for channel in self.channels.values() for each in channel.announcements), problem)

    def _report(self, announcements: Iterable[ForeignAnnouncement], problem: DeliveryProblem) -> None:
        for announcement in announcements:
            if announcement.on_problem is not None:
                self._call(announcement.on_problem, problem)


def _shown(period_ns: int | None) -> str:
    return "no period" if period_ns is None else f"a period of {period_ns / MILLISECOND:g} ms"
