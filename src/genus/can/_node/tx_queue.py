"""The event-triggered transmit queue of a node: everything that is not sent by the calendar.

Soft events go earliest deadline first: the event with the least slack is in the mailbox, under a priority that encodes
its slack. The priority is computed again whenever another frame won the bus, hard frames of the same node included, so
an event is promoted against the events of all other nodes as its deadline approaches. Everything else goes by its fixed
identifier, after all soft events.

A driver may have a queue of its own, in which a frame can neither be renewed nor stopped. Then an event is not given to
it so late that it would probably expire there: `DriverTimes` knows how long such frames took.

`Context` has the queue with what else the parts of a node share: the time of the present input, and its outputs.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple, Protocol

import msgspec

from genus.can._machine import EVENT_TRIGGERED, TIME_TRIGGERED, Accept, Call, Load, Output
from genus.can._wire.frame import NODE_SHIFT, PRIORITY_SHIFT, Frame, Priority, Timing, arbitration_key

_SOFT_FIRST = int(Priority.SOFT_FIRST)
LEVELS = Priority.SOFT_LAST - Priority.SOFT_FIRST + 1


def soft_priority(slack_ns: int, level_ns: int) -> int:
    """Return the priority of a soft frame that must start within `slack_ns`; one level per longest frame.

    >>> soft_priority(-1, 160_000), soft_priority(320_000, 160_000), soft_priority(10**9, 160_000)
    (1, 3, 250)
    """
    level = slack_ns // level_ns
    return _SOFT_FIRST + (0 if level < 0 else level if level < LEVELS else LEVELS - 1)


class DriverTimes:
    """State: how long soft frames were in the driver lately, by priority: the longest time, which fades slowly.

    >>> times = DriverTimes(level_ns=270_000)
    >>> times.add(1, 800_000)
    >>> times.add(60, 4_000_000)
    >>> times.margin(1), times.margin(3), times.margin(200)
    (1600000, 1600000, 8000000)
    """

    def __init__(self, level_ns: int) -> None:
        self._least = 2 * level_ns
        """A frame waits for the one on the wire, and takes its own time."""
        self._longest = [0] * (Priority.SOFT_LAST.bit_length() + 1)

    def add(self, priority: int, took_ns: int) -> None:
        """A frame of this priority was in the driver for so long until it was sent; counts if it is soft."""
        if priority > Priority.SOFT_LAST:
            return
        band = priority.bit_length()
        faded = self._longest[band]
        self._longest[band] = max(took_ns, faded - faded // 64)

    def margin(self, priority: int) -> int:
        """How long a frame of this priority may take: twice as long as one of the same or a more urgent band did."""
        return max(self._least, 2 * max(self._longest[: priority.bit_length() + 1]))


class EventSource(Protocol):
    """The channel of an event: it numbers its events in the order in which they are sent, one after the other."""

    etag: int
    """The event tag of the channel, without the bits of tagged attributes."""
    started: "OutgoingEvent | None"
    """The event of which some frames are sent and some are not."""

    def frame_sizes(self, size: int) -> Sequence[int]: ...
    def render(self, payload: bytes) -> Sequence[bytes]: ...
    def commit(self) -> None: ...


def _do_nothing() -> None: ...


def _ignore_time(now: int) -> None: ...


class OutgoingEvent(msgspec.Struct, eq=False):
    """State: an event in the queue, by its deadline if it has one, else by a fixed priority."""

    channel: EventSource
    etag: int
    payload: bytes
    sizes: Sequence[int]
    """The data lengths of its frames."""
    on_sent: Callable[[int], None]
    on_dropped: Callable[[], None] = _do_nothing
    fd: bool = False
    priority: int = Priority.NONE
    on_sent_expired: Callable[[int], None] = _ignore_time
    """Called if it was sent after it had expired: it was on the wire, or in a driver that could not stop it."""
    on_unknown: Callable[[], None] = _do_nothing
    """Called if a driver did not confirm it: it is not known whether it was sent."""
    deadline: int = 0
    expires: int | None = None
    most_lead: int = 0
    """The most time before it expires at which it is too late to give it to a driver."""
    on_missed: Callable[[], None] = _do_nothing
    on_expired: Callable[[], None] = _do_nothing
    pieces: Sequence[bytes] = ()
    """The data of its frames, rendered when the first of them gets into the mailbox."""
    position: int = 0
    start_by: int = 0
    missed: bool = False
    is_expired: bool = False
    """Whether it expired with its last frame in the mailbox, which may be on the wire: it is told when that is over."""
    is_unknown: bool = False
    """Whether a driver did not confirm a frame of it, which may have been sent."""
    done: bool = False

    def renumber(self) -> None:
        """Render its frames again, if none is sent: another event of its channel had its number."""
        if not self.position:
            self.pieces = self.channel.render(self.payload)


class _Taken(NamedTuple):
    frame: Frame
    owner: "OutgoingEvent | OutgoingFrame"
    at: int


class OutgoingFrame:
    """State: a frame of a protocol or a database in the queue; `renew` makes it when it gets into the mailbox.

    If it is not known whether it was sent, `on_unknown` is called; without that, it is sent again.
    """

    __slots__ = ("frame", "on_sent", "on_unknown", "renew")

    def __init__(
        self,
        frame: Frame,
        on_sent: Callable[[int], None] | None,
        renew: Callable[[], Frame] | None = None,
        on_unknown: Callable[[], None] | None = None,
    ) -> None:
        self.frame = frame
        self.on_sent = on_sent
        self.renew = renew
        self.on_unknown = on_unknown


class TxQueue:
    """State: the event-triggered frames of one node; `update` chooses the most urgent one for the mailbox."""

    def __init__(self, frame_ns: Sequence[int], level_ns: int) -> None:
        self.frame_ns = frame_ns
        """The longest duration of an event frame, by its data bytes."""
        self.level_ns = level_ns
        """The longest duration of an event frame."""
        self._settle_ns = level_ns + level_ns // 16
        """After this time by any clock a frame has ended that was on the wire."""
        self._order = count()
        self._soft: list[tuple[int, int, OutgoingEvent]] = []
        self._timers: list[tuple[int, int, OutgoingEvent]] = []
        """A heap of deadlines and expiries."""
        self.wake_at: int | None = None
        """The first of them."""
        self._fixed: list[tuple[int, int, OutgoingEvent | OutgoingFrame]] = []
        self.loaded: Frame | None = None
        """The frame that is to be in the mailbox."""
        self._owner: OutgoingEvent | OutgoingFrame | None = None
        self._replaced: list[tuple[Frame, OutgoingEvent | OutgoingFrame]] = []
        """Frames that were replaced in the mailbox, one of which may be on the wire."""
        self._taken: _Taken | None = None
        """The frame that a driver has taken."""
        self._driver_times: DriverTimes | None = None
        """None while there is no driver that takes frames."""
        self.changed = False
        """Whether another frame may be the most urgent: call `update`."""
        self.number = 0
        """The node's number, in the identifier of every event."""
        self.soft_waiting = 0
        """How many soft events wait."""

    @property
    def fixed_waiting(self) -> int:
        return len(self._fixed)

    # -- adding and removing -----------------------------------------------------------------------------------------

    def add_frame(
        self,
        frame: Frame,
        on_sent: Callable[[int], None] | None = None,
        renew: Callable[[], Frame] | None = None,
        on_unknown: Callable[[], None] | None = None,
    ) -> None:
        """Queue a frame by its own identifier, as frames compete on the bus."""
        outgoing = OutgoingFrame(frame, on_sent, renew, on_unknown)
        heappush(self._fixed, (arbitration_key(frame), next(self._order), outgoing))
        self.changed = True

    def add_fixed(self, event: OutgoingEvent) -> None:
        identifier = event.priority << PRIORITY_SHIFT | self.number << NODE_SHIFT | event.channel.etag
        heappush(self._fixed, (arbitration_key(Frame(identifier)), next(self._order), event))
        self.changed = True

    def add_soft(self, event: OutgoingEvent) -> None:
        order = next(self._order)
        self._rank(event)
        self._add_timer(event.deadline, order, event)
        if event.expires is not None:
            self._add_timer(event.expires, order, event)
        self.soft_waiting += 1
        self.changed = True

    def remove_frame(self, frame: Frame) -> None:
        self._fixed = [entry for entry in self._fixed if getattr(entry[2], "frame", None) is not frame]
        heapify(self._fixed)
        self.changed = True

    def clear(self) -> None:
        """Drop everything, the frame in the mailbox too."""
        entries = (*self._soft, *self._timers, *self._fixed)
        waiting = {entry[2]: None for entry in entries if isinstance(entry[2], OutgoingEvent)}
        self._soft, self._timers, self._fixed, self.soft_waiting = [], [], [], 0
        in_driver = None if self._taken is None else self._taken.owner
        self.mailbox_emptied()
        for event in waiting:
            if not event.done:
                event.done, event.channel.started = True, None
                if event is in_driver or event.is_expired:
                    event.on_unknown()
                else:
                    event.on_dropped()
        self._drop_timers()

    # -- what the controller did -------------------------------------------------------------------------------------

    def mailbox_emptied(self) -> None:
        """The controller lost what was in the mailbox; `resume` loads it again."""
        self._release_taken()
        self.loaded, self._owner, self._replaced = None, None, []

    def resume(self) -> None:
        self.changed = True

    def frame_taken(self, frame: Frame, now: int) -> None:
        """A driver took the loaded frame: it is neither renewed nor stopped any more."""
        if frame is self.loaded and self._owner is not None:
            self._taken = _Taken(frame, self._owner, now)
            self._driver_times = self._driver_times or DriverTimes(self.level_ns)

    def frame_gone(self, frame: Frame, now: int, *, maybe_sent: bool) -> None:
        """The driver has not confirmed a frame and has it no longer.

        A frame of an event that may have been sent is not sent again: receivers would get it twice.
        """
        taken = self._taken
        if taken is None or taken.frame is not frame:
            return
        self._release_taken()
        self.changed = True
        owner = taken.owner
        if maybe_sent and isinstance(owner, OutgoingEvent):
            owner.is_unknown = True
            self._advance(owner, now, was_taken=False)
        elif maybe_sent and isinstance(owner, OutgoingFrame) and owner.on_unknown is not None:
            self._remove(owner)
            owner.on_unknown()

    def _release_taken(self) -> None:
        """The driver has lost the frame; an event that would have expired there by now expires at the next `wake`."""
        taken, self._taken = self._taken, None
        owner = None if taken is None else taken.owner
        if isinstance(owner, OutgoingEvent) and owner.expires is not None and not owner.done:
            self._add_timer(owner.expires, next(self._order), owner)

    def frame_sent(self, frame: Frame, now: int) -> None:
        taken, self._taken = self._taken, None
        was_taken = taken is not None and taken.frame is frame
        owner: OutgoingEvent | OutgoingFrame | None
        if frame is self.loaded:
            owner, self.loaded, self._owner = self._owner, None, None
        elif taken is not None and was_taken:
            owner = taken.owner
        else:
            owner = next((owner for old, owner in self._replaced if old is frame), None)
        if taken is not None and was_taken and self._driver_times is not None:
            self._driver_times.add(frame.priority, now - taken.at)
        self._replaced.clear()
        self.changed = True
        if isinstance(owner, OutgoingEvent):
            self._advance(owner, now, was_taken=was_taken)
        elif owner is not None:
            self._remove(owner)
            if owner.on_sent is not None:
                owner.on_sent(now)

    def frame_deferred(self) -> None:
        """Another frame had the bus (of another node, or our hard one), or ours failed: less time is left."""
        if self._replaced:
            self._replaced.clear()
        if self._soft:
            self.changed = True

    # -- time --------------------------------------------------------------------------------------------------------

    def _add_timer(self, at: int, order: int, event: OutgoingEvent) -> None:
        heappush(self._timers, (at, order, event))
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at

    def _drop_timers(self) -> None:
        """Drop the timers of events that are done, up to the first that is not."""
        timers = self._timers
        while timers and timers[0][2].done:
            heappop(timers)
        self.wake_at = timers[0][0] if timers else None

    def wake(self, now: int) -> None:
        """Report deadlines that passed and drop events that expired."""
        timers = self._timers
        while timers and (timers[0][2].done or timers[0][0] <= now):
            at, _, event = heappop(timers)
            if not event.done:
                if at >= event.deadline:
                    self._miss(event)
                if event.expires is not None and event.expires <= at and not self._is_in_driver(event):
                    self._expire(event, now)
        self._drop_timers()

    def update(self, now: int) -> bool:
        """Choose the most urgent frame; returns whether it is another one, which is to be `loaded`."""
        if not self.changed:
            return False
        self.changed = False
        owner: OutgoingEvent | OutgoingFrame | None = self._most_urgent(now)
        if owner is None and self._fixed:
            owner = self._fixed[0][2]
        if isinstance(owner, OutgoingEvent):
            owner = owner.channel.started or owner
            frame: Frame | None = self._event_frame(owner, now)
        elif owner is None or owner is self._owner:
            frame = None if owner is None else self.loaded
        else:
            frame = owner.frame = owner.frame if owner.renew is None else owner.renew()
        if frame is self.loaded and owner is self._owner:
            return False
        if self.loaded is not None and self._owner is not None and not self._is_taken(self.loaded):
            self._replaced.append((self.loaded, self._owner))
        self.loaded, self._owner = frame, owner
        return True

    def _most_urgent(self, now: int) -> OutgoingEvent | None:
        """Return the soft event that must start first; expired events are dropped."""
        soft = self._soft
        while soft:
            start_by, _, event = soft[0]
            if event.done or event.is_expired or start_by != event.start_by:
                heappop(soft)
                continue
            event = event.channel.started or event
            if event.expires is None or not self._is_too_late(event, event.expires - now, now):
                return event
            self._expire(event, now)
        return None

    def _is_too_late(self, event: OutgoingEvent, left: int, now: int) -> bool:
        """Return whether an event that has so much time left has expired, or would probably expire in the driver."""
        if self._is_in_driver(event):
            return False
        if left <= 0:
            return True
        if self._driver_times is None or left > event.most_lead:
            return False
        return left < self._driver_times.margin(soft_priority(event.start_by - now, self.level_ns))

    def _is_taken(self, frame: Frame) -> bool:
        return self._taken is not None and self._taken.frame is frame

    def _is_in_driver(self, event: OutgoingEvent) -> bool:
        return self._taken is not None and self._taken.owner is event

    def _event_frame(self, event: OutgoingEvent, now: int) -> Frame:
        """Return the next frame of an event under its present priority."""
        if event.position == 0 and event is not self._owner:
            event.pieces = event.channel.render(event.payload)
        priority = event.priority
        if event.deadline:
            priority = soft_priority(event.start_by - now, self.level_ns)
        identifier = priority << PRIORITY_SHIFT | self.number << NODE_SHIFT | event.etag
        loaded, piece = self.loaded, event.pieces[event.position]
        if event is self._owner and loaded is not None and loaded.id == identifier and loaded.data is piece:
            return loaded
        return Frame(identifier, piece, event.fd)

    # -- what becomes of an event ------------------------------------------------------------------------------------

    def _advance(self, event: OutgoingEvent, now: int, *, was_taken: bool) -> None:
        """One more frame of an event was sent."""
        event.position += 1
        if event.position < len(event.pieces):
            if not event.done:
                event.channel.started = event
                if event.deadline:
                    self._rank(event)
            return
        channel, loaded = event.channel, self._owner
        channel.commit()
        if loaded is not event and isinstance(loaded, OutgoingEvent) and loaded.channel is channel:
            loaded.renumber()
        if event.is_unknown:
            if not event.done:
                self._finish(event)
                event.on_unknown()
            return
        if event.deadline and now > event.deadline:
            self._miss(event)
        if event.done:
            return
        self._finish(event)
        if event.is_expired or (was_taken and event.expires is not None and now > event.expires):
            event.on_sent_expired(now)
        else:
            event.on_sent(now)

    def _rank(self, event: OutgoingEvent) -> None:
        """Queue a soft event by when the rest of it must start; after each frame less is left to send."""
        start_by = event.deadline
        for size in event.sizes[event.position :]:
            start_by -= self.frame_ns[size]
        event.start_by = start_by
        heappush(self._soft, (event.start_by, next(self._order), event))

    def _miss(self, event: OutgoingEvent) -> None:
        if not event.missed:
            event.missed = True
            event.on_missed()

    def _expire(self, event: OutgoingEvent, now: int) -> None:
        """Send no more of an event; it is told at once, unless its last frame may be on the wire."""
        self.changed = True
        if event.is_expired or not self._may_be_on_wire(event):
            self._finish(event)
            event.on_expired()
            return
        event.is_expired, event.expires = True, now + self._settle_ns
        if event.channel.started is event:
            event.channel.started = None
        self._add_timer(event.expires, next(self._order), event)

    def _may_be_on_wire(self, event: OutgoingEvent) -> bool:
        """Return whether the last frame of an event is in the mailbox, or was lately; a driver says what it has."""
        if self._driver_times is not None or event.position + 1 != len(event.pieces):
            return False
        return event is self._owner or any(owner is event for _, owner in self._replaced)

    def _finish(self, event: OutgoingEvent) -> None:
        event.done = True
        if event.channel.started is event:
            event.channel.started = None
        if event.deadline:
            self.soft_waiting -= 1
            if self._timers and self._timers[0][2] is event:
                self._drop_timers()
        else:
            self._remove(event)

    def _remove(self, item: OutgoingEvent | OutgoingFrame) -> None:
        if self._fixed and self._fixed[0][2] is item:
            heappop(self._fixed)
        else:
            self._fixed = [entry for entry in self._fixed if entry[2] is not item]
            heapify(self._fixed)


# -- what the parts of a node share ------------------------------------------------------------------------------------


class Context:
    """State: the reading of the node's clock, which `Node` sets once per input, and the outputs of that input."""

    def __init__(self, timing: Timing) -> None:
        self.now = 0
        self.timers_changed = True
        """Whether a timer may be another one than when the driver asked last; events change the queue's timer alone."""
        self.fd = timing.data_bitrate is not None
        frame_ns = [timing.worst_case_ns(size, fd=self.fd) for size in range(65 if self.fd else 9)]
        self.queue = TxQueue(frame_ns, frame_ns[-1])
        self._outputs: list[Output] = []

    def take(self) -> list[Output]:
        """Load the most urgent frame, and hand over all outputs."""
        queue = self.queue
        if queue.changed and queue.update(self.now):
            self._outputs.append(Load(EVENT_TRIGGERED, queue.loaded))
        outputs, self._outputs = self._outputs, []
        return outputs

    def load_hard(self, frame: Frame | None) -> None:
        self._outputs.append(Load(TIME_TRIGGERED, frame))

    def call(self, handler: Callable[..., object], *arguments: Any) -> None:
        self._outputs.append(Call(handler, arguments))

    def accept(self, filters: tuple[tuple[int, int], ...]) -> None:
        self._outputs.append(Accept(filters))

    def clear(self) -> None:
        """Drop everything that waits to be sent."""
        self.queue.clear()
        self._outputs += [Load(EVENT_TRIGGERED, None), Load(TIME_TRIGGERED, None)]
