"""Slots of the static calendar: what a node does when one begins and ends.

A publisher's slot takes the latest event from a message buffer at the latest ready time, and sends it with the highest
priority in at most `omissions + 1` attempts. A subscriber's slot keeps what is received and delivers it exactly at the
deadline, so that the application sees no jitter; if nothing was received, that is an alarm, unless the slot is for
sporadic events. An unused slot takes no bandwidth: other frames use the bus.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, Protocol

from genus.can._plan.calendar import Slot
from genus.can._wire.frame import NODE_SHIFT, Frame


def occurrence_at(slot: Slot, instant: int) -> int | None:
    """Return the start of the occurrence of a slot that an instant lies in; half the gap before it is part of it."""
    early = slot.gap_ns // 2
    passed = (instant - slot.offset_ns + early) % slot.period_ns
    return instant + early - passed if passed <= slot.length_ns + early else None


class BusTime(Protocol):
    """The bus's time as a node knows it."""

    def global_time(self, local: int) -> int: ...
    def local_time(self, global_: int) -> int: ...
    def precision(self, now: int) -> int:
        """Return a bound on the error of `global_time`; very large while there is none."""


class OwnTime:
    """The node's clock is the bus's time: a single node, or clocks that are synchronised by other means."""

    def global_time(self, local: int) -> int:
        return local

    def local_time(self, global_: int) -> int:
        return global_

    def precision(self, now: int) -> int:
        return 0


class SlotUser(Protocol):
    """The sender or receiver of a slot."""

    slot: Slot

    def begin(self, start: int, now: int) -> int | None:
        """The latest ready time has come; return how long after it to call `close`, if at all."""

    def close(self) -> None:
        """A frame that has not started by now would not end within the slot."""

    def abandon(self) -> int | None:
        """Use the slot no more; return how long after now to call `settle`, if at all."""

    def end(self, start: int) -> int | None:
        """The deadline has come; return how long after now to call `settle`, if at all."""

    def settle(self) -> None:
        """What was on the wire when the slot was over has ended."""


class SlotDispatcher:
    """State: when the slots that a node uses begin, close and end next, in the bus's time; ends come first.

    It stops while the clock's precision is worse than half the gap of the narrowest slot.
    """

    def __init__(self, time: BusTime, on_stop: Callable[[int, int], None], on_resume: Callable[[int], None]) -> None:
        self.time = time
        self._on_stop = on_stop
        self._on_resume = on_resume
        self._order = count()
        self._agenda: list[tuple[int, _Step, int, SlotUser, int]] = []
        self._users: dict[SlotUser, None] = {}
        self.running = False
        self._has_reported_stop = False
        self.allowed_ns = 0
        """The worst precision with which slots do not overlap."""

    @property
    def is_stopped(self) -> bool:
        """Whether there are slots, and they are not used."""
        return bool(self._users) and not self.running

    def _set_users(self, users: "dict[SlotUser, None]") -> None:
        self._users = users
        self.allowed_ns = min((each.slot.gap_ns for each in users), default=0) // 2

    def join(self, user: SlotUser, now: int) -> None:
        self._set_users({**self._users, user: None})
        if self.running:
            self._schedule(user, self.time.global_time(now))
        else:
            self._has_reported_stop = False
            self.watch(now)

    def leave(self, user: SlotUser) -> None:
        self._set_users({each: None for each in self._users if each is not user})
        self._agenda = sorted(entry for entry in self._agenda if entry[3] is not user)

    def watch(self, now: int) -> None:
        """Start or stop, depending on the clock's precision."""
        if not self._users:
            return
        precision = self.time.precision(now)
        if precision <= self.allowed_ns:
            if not self.running:
                self._start(now, precision)
        elif self.running or not self._has_reported_stop:
            self.running, self._has_reported_stop, self._agenda = False, True, []
            for user in list(self._users):
                self._settle_later(user, user.abandon(), now)
            self._on_stop(precision, self.allowed_ns)

    def _start(self, now: int, precision: int) -> None:
        self.running = True
        for user in self._users:
            self._schedule(user, self.time.global_time(now))
        if self._has_reported_stop:
            self._on_resume(precision)
        self._has_reported_stop = False

    def _schedule(self, user: SlotUser, after: int) -> None:
        start = user.slot.next_start(after).start_ns
        self._add(start, _Step.BEGIN, user, start)

    def _add(self, at: int, step: "_Step", user: SlotUser, start: int) -> None:
        heappush(self._agenda, (at, step, next(self._order), user, start))

    @property
    def wake_at(self) -> int | None:
        """When the next slot begins or ends, by the node's own clock."""
        return self.time.local_time(self._agenda[0][0]) if self._agenda else None

    def wake(self, now: int) -> None:
        agenda = self._agenda
        if not agenda or self.time.local_time(agenda[0][0]) > now:
            return
        self.watch(now)
        while self._agenda and self.time.local_time(self._agenda[0][0]) <= now:
            _, step, _, user, start = heappop(self._agenda)
            if step is _Step.BEGIN:
                self._add(start + user.slot.length_ns, _Step.END, user, start)
                self._begin(user, start, now)
            elif step is _Step.CLOSE:
                user.close()
            elif step is _Step.SETTLE:
                user.settle()
            else:
                self._schedule(user, max(start + 1, self.time.global_time(now) - user.slot.period_ns))
                self._settle_later(user, user.end(start), now)

    def _begin(self, user: SlotUser, start: int, now: int) -> None:
        """Begin a slot, unless this node woke up too late to use it."""
        if self.time.global_time(now) > start + user.slot.wait_ns:
            self._settle_later(user, user.abandon(), now)
        elif (closes_after := user.begin(start, now)) is not None:
            self._add(start + closes_after, _Step.CLOSE, user, start)

    def _settle_later(self, user: SlotUser, after: int | None, now: int) -> None:
        if after is not None:
            self._add(self.time.global_time(now) + after, _Step.SETTLE, user, 0)


class _Step(IntEnum):
    """What happens to a slot; at one instant in this order."""

    END = 0
    CLOSE = 1
    SETTLE = 2
    BEGIN = 3


class ErrorState:
    """State: whether the controller is error passive (or has raised its warning), and whether it is off the bus.

    A controller that is error passive is suspended for 8 bits after each of its frames, in which another station may
    begin one, so an event could be too late for a slot that is not planned for that. By the policy `stop` a node
    therefore promises nothing from the warning of its controller on, which comes several failures before; if a slot
    allows more failures than that, it is longer. Events are still sent, as long as a frame that starts can end within
    the slot.
    """

    __slots__ = ("is_off", "is_passive")

    def __init__(self) -> None:
        self.is_passive = False
        self.is_off = False

    def allows(self, slot: Slot) -> bool:
        """Whether an event in a slot that starts now is promised: the slot has time for all failures it allows."""
        return not self.is_off and (not self.is_passive or slot.error_passive != "stop")


class SlotSender:
    """State: a publisher's message buffer, and the attempts to send the event that was in it when the slot began."""

    def __init__(
        self,
        slot: Slot,
        load: Callable[[Frame | None], None],
        render: Callable[[bytes], Sequence[bytes]],
        on_sent: Callable[[Any, int | None], None],
        on_failed: Callable[[Any, int], None],
        *,
        commit: Callable[[], None] = lambda: None,
        on_unknown: Callable[[Any], None] = lambda event: None,
        time: BusTime | None = None,
        granularity_ns: int = 0,
        fd: bool = False,
        errors: ErrorState | None = None,
    ) -> None:
        """`commit` is called when the number of an event is used: it was sent, or a driver has it after its slot.

        `granularity_ns` is how late a driver may report that a frame was sent.
        """
        self.slot = slot
        self.number = 0
        self._load = load
        self._render = render
        self._on_sent = on_sent
        self._on_failed, self._on_unknown = on_failed, on_unknown
        self._commit = commit
        self._time, self._granularity_ns = time or OwnTime(), granularity_ns
        self._start = 0
        self._fd = fd
        self._errors = errors or ErrorState()
        self._buffer: _Buffered | None = None
        self._event: Any = None
        self._frames: list[Frame] = []
        self._attempts = 0
        self._closed = self._overdue = self._stopped = False
        self._in_driver: Frame | None = None
        """The frame of the event in progress that a driver has."""
        self._pending: _Pending | None = None
        """The event that a driver still had when its slot was over."""

    def write(self, event: Any, etag: int, payload: bytes, now: int) -> bool:
        """Put an event into the buffer; returns whether it replaces one that was not sent yet.

        That one has failed instead if it is sporadic, or if no slot came for it in a period.
        """
        before, self._buffer = self._buffer, _Buffered(event, etag, payload, now)
        if before is None:
            return False
        slot = self.slot
        if slot.sporadic or self._stopped or now - before.at > slot.period_ns - slot.gap_ns:
            self._on_failed(before.event, 0)
            return False
        return True

    def begin(self, start: int, now: int) -> int | None:
        """Send the event in the buffer; the slot closes if the node has too many errors to promise that it is in time.

        The event has failed if it is older than a period, so that it was for an earlier slot, or if the node is off
        the bus.
        """
        self.settle()
        written, self._buffer, self._stopped = self._buffer, None, False
        if written is None:
            return None
        if self._errors.is_off or now - written.at > self.slot.period_ns:
            self._on_failed(written.event, 0)
            return None
        self._event = written.event
        identifier = self.number << NODE_SHIFT | written.etag
        self._frames = [Frame(identifier, piece, self._fd) for piece in reversed(self._render(written.payload))]
        self._attempts, self._closed, self._overdue, self._start = 0, False, False, start
        self._load(self._frames[-1])
        return None if self._errors.allows(self.slot) else self.slot.closes_ns

    def close(self) -> None:
        """Start no further attempt; one that is on the wire is in time."""
        if self._frames:
            self._closed = True
            self._load(None)

    def sent(self, frame: Frame, now: int) -> bool:
        """A frame was sent; if it is of this slot, go on with the next one, or report the event as sent.

        If the slot was over before, it is reported with the deadline that it missed.
        """
        if pending := self._take_pending(frame):
            self._report_sent(pending.event, pending.start, now)
            return True
        if not self._frames or frame is not self._frames[-1]:
            return False
        self._frames.pop()
        self._attempts, self._in_driver = 0, None
        if self._frames:
            if not self._closed:
                self._load(self._frames[-1])
        else:
            event, self._event = self._event, None
            self._commit()
            self._report_sent(event, self._start, now)
        return True

    def _report_sent(self, event: Any, start: int, now: int) -> None:
        """Report an event as sent in its slot, or after its deadline, or neither if the driver's times do not tell."""
        deadline = start + self.slot.length_ns
        after = self._time.global_time(now) - deadline
        if 0 < after <= self._granularity_ns:
            self._on_unknown(event)
        else:
            self._on_sent(event, deadline if after > 0 else None)

    def taken(self, frame: Frame) -> bool:
        """Note that a driver took a frame; return whether it is of this slot."""
        if not self._frames or frame is not self._frames[-1]:
            return False
        self._in_driver = frame
        return True

    def lost_sight(self, frame: Frame) -> bool:
        """A driver did not confirm a frame, which may have been sent; returns whether it is of this slot."""
        pending = self._take_pending(frame)
        if pending is None:
            if self._in_driver is not frame:
                return False
            self._give_up()
            pending = self._take_pending(frame)  # of an event with more frames nothing is unknown: it is incomplete
        if pending is not None:
            self._on_unknown(pending.event)
        return True

    def _take_pending(self, frame: Frame) -> "_Pending | None":
        """Return the event that a driver had after its slot, if this is its frame."""
        pending = self._pending
        if pending is None or pending.frame is not frame:
            return None
        self._pending = None
        return pending

    def dropped(self, frame: Frame) -> bool:
        """A driver says that it did not send a frame; returns whether it is of this slot."""
        if pending := self._take_pending(frame):
            self._on_failed(pending.event, pending.attempts)
            return True
        if self._in_driver is frame:
            self._in_driver = None
        return self.failed(frame)

    def failed(self, frame: Frame) -> bool:
        """Count a failed attempt: the controller retries, unless that was the last one the slot has room for."""
        if not self._frames or frame is not self._frames[-1]:
            return False
        self._attempts += 1
        if self._closed or self._attempts > self.slot.omissions:
            self._give_up()
        return True

    def abandon(self) -> int | None:
        """Send neither the event in progress, unless it is on the wire, nor the one in the buffer."""
        self._stopped = True
        if self._buffer is not None:
            event, self._buffer = self._buffer.event, None
            self._on_failed(event, 0)
        return self.end(0)

    def end(self, start: int) -> int | None:
        """The slot is over: start no further attempt. One that is on the wire ends before `settle`."""
        if not self._frames:
            return None
        self._overdue = True
        self.close()
        return self.slot.length_ns

    def settle(self) -> None:
        """An event whose slot is over, and that was not sent meanwhile, has failed, unless a driver has its frame."""
        if self._frames and self._overdue:
            self._give_up()

    def leave(self) -> None:
        """Use the slot no more: what becomes of an event that is on the wire, or that a driver has, is not known."""
        self.abandon()
        self._in_driver = self._frames[-1] if self._frames else None
        self.settle()
        if self._pending is not None:
            self.lost_sight(self._pending.frame)

    def _give_up(self) -> None:
        event, frames = self._event, self._frames
        has_last, self._in_driver = self._in_driver is frames[0], None
        self._event, self._frames = None, []
        if not self._closed:  # else the mailbox may have the frame of another slot
            self._load(None)
        if has_last:
            if self._pending is not None:
                self._on_unknown(self._pending.event)
            self._pending = _Pending(frames[0], event, self._attempts, self._start)
            self._commit()
        else:
            self._on_failed(event, self._attempts)


class _Pending(NamedTuple):
    """An event whose last frame a driver has, though its slot is over."""

    frame: Frame
    event: Any
    attempts: int
    start: int
    """When its slot began."""


class _Buffered(NamedTuple):
    event: Any
    etag: int
    payload: bytes
    at: int


class SlotReceiver:
    """State: the event that a subscriber's slot has received, until it is delivered at the deadline."""

    def __init__(self, slot: Slot, deliver: Callable[[Any], None], miss: Callable[[int], None]) -> None:
        self.slot = slot
        self._deliver = deliver
        self._miss = miss
        self._event: Any = None
        self._occurrence: int | None = None

    def put(self, event: Any, occurrence: int) -> bool:
        """Keep an event until the deadline; False if it is a duplicate: this occurrence of the slot has one."""
        if self._occurrence == occurrence:
            return False
        self._event, self._occurrence = event, occurrence
        return True

    def begin(self, start: int, now: int) -> None:
        """Do nothing: an event may have come before this node woke up."""

    def close(self) -> None:
        """Do nothing: what has started is received."""

    def abandon(self) -> None:
        """Do nothing: what was received in time is still delivered."""

    def settle(self) -> None:
        """Do nothing: a receiver never asks for it."""

    def end(self, start: int) -> None:
        """Deliver at the deadline; an event of an earlier occurrence is dropped. A sporadic slot may be empty."""
        event = self._event if self._occurrence == start else None
        self._event = None
        if event is not None:
            self._deliver(event)
        elif not self.slot.sporadic:
            self._miss(start + self.slot.length_ns)
