"""What a node sends when something happens, as opposed to when the calendar says so.

Soft events go earliest deadline first: the one with the least time left is in the mailbox, under a priority that says
how little that is. It is computed anew whenever another frame won the bus, so an event is promoted as its deadline
comes nearer, against the events of all other nodes. Everything else goes by its fixed identifier, behind all soft
events.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from genus.can._wire.frame import NODE_SHIFT, PRIORITY_SHIFT, Frame, Priority

LEVELS = Priority.SOFT_LAST - Priority.SOFT_FIRST + 1


def soft_priority(slack_ns: int, level_ns: int) -> int:
    """The priority of a soft frame that must start within `slack_ns`; one level per longest frame.

    >>> soft_priority(-1, 160_000), soft_priority(320_000, 160_000), soft_priority(10**9, 160_000)
    (1, 3, 250)
    """
    level = slack_ns // level_ns
    return Priority.SOFT_FIRST + (0 if level < 0 else level if level < LEVELS else LEVELS - 1)


class Lane(Protocol):
    """A channel's way onto the bus: its events are numbered in the order they are sent, one after the other."""

    etag: int
    """The event tag of the channel, without the bits of tagged attributes."""
    started: "Parcel | None"
    """The event of which some frames were sent and some were not."""

    def render(self, payload: bytes) -> Sequence[bytes]:
        """The data of the frames of the event that is next."""

    def commit(self) -> None:
        """It was sent."""


class Parcel:
    """State: an event on its way, by its deadline if it has one, else by a fixed priority."""

    __slots__ = (
        *("lane", "etag", "payload", "pieces", "position", "fd", "start_by", "missed", "done"),
        *("priority", "deadline", "expires", "on_sent", "on_missed", "on_expired", "on_dropped"),
    )

    def __init__(self, lane: Lane, etag: int, payload: bytes, on_sent: Callable[[int], None], *, fd: bool) -> None:
        self.lane = lane
        self.etag = etag
        self.payload = payload
        self.on_sent = on_sent
        self.fd = fd
        self.pieces: Sequence[bytes] = lane.render(payload)
        self.position = 0
        self.start_by = 0
        self.missed = False
        self.done = False
        self.priority: int = Priority.NONE
        self.deadline = 0
        self.expires: int | None = None
        self.on_missed: Callable[[], None] = _nothing
        self.on_expired: Callable[[], None] = _nothing
        self.on_dropped: Callable[[], None] = _nothing


def _is_over(parcel: Parcel, now: int) -> bool:
    return parcel.expires is not None and parcel.expires <= now


def _nothing() -> None:
    """What an event without a deadline does when it passes."""


class Letter:
    """State: a frame of fixed priority on its way; `renew` makes it anew whenever it gets into the mailbox."""

    __slots__ = ("frame", "on_sent", "renew")

    def __init__(
        self, frame: Frame, on_sent: Callable[[int], None] | None, renew: Callable[[], Frame] | None = None
    ) -> None:
        self.frame = frame
        self.on_sent = on_sent
        self.renew = renew


class Outbox:
    """State: the event-triggered frames of one node, of which the most urgent is in the mailbox."""

    def __init__(self, load: Callable[[Frame | None], None], frame_ns: Callable[[int], int], level_ns: int) -> None:
        self._load = load
        self._frame_ns = frame_ns
        self._level_ns = level_ns
        self._order = count()
        self._soft: list[tuple[int, int, Parcel]] = []
        self._timers: list[tuple[int, int, Parcel]] = []
        self._fixed: list[tuple[int, int, Parcel | Letter]] = []
        self._loaded: Frame | None = None
        self._owner: Parcel | Letter | None = None
        self._replaced: list[tuple[Frame, Parcel | Letter]] = []
        self.number = 0
        """The node's number, in the identifier of every event."""
        self.soft_waiting = 0
        """How many soft events wait."""

    @property
    def fixed_waiting(self) -> int:
        """How many frames and events of fixed priority wait."""
        return len(self._fixed)

    def post(
        self,
        frame: Frame,
        now: int,
        on_sent: Callable[[int], None] | None = None,
        renew: Callable[[], Frame] | None = None,
    ) -> None:
        """Send a frame by its own identifier, in turn."""
        heappush(self._fixed, (frame.id, next(self._order), Letter(frame, on_sent, renew)))
        self._choose(now)

    def post_fixed(self, parcel: Parcel, now: int) -> None:
        """Send an event by its fixed priority."""
        identifier = parcel.priority << PRIORITY_SHIFT | self.number << NODE_SHIFT | parcel.lane.etag
        heappush(self._fixed, (identifier, next(self._order), parcel))
        self._choose(now)

    def post_soft(self, parcel: Parcel, now: int) -> None:
        """Send an event by its deadline."""
        order = next(self._order)
        self._rank(parcel)
        heappush(self._timers, (parcel.deadline, order, parcel))
        if parcel.expires is not None:
            heappush(self._timers, (parcel.expires, order, parcel))
        self.soft_waiting += 1
        self._choose(now)

    def withdraw(self, frame: Frame, now: int) -> None:
        """Send a frame of fixed priority no more, if it still waits."""
        self._fixed = [entry for entry in self._fixed if getattr(entry[2], "frame", None) is not frame]
        heapify(self._fixed)
        self._choose(now)

    def clear(self) -> None:
        """Forget everything that waits, in the mailbox too."""
        waiting = {entry[2]: None for entry in (*self._soft, *self._fixed) if isinstance(entry[2], Parcel)}
        self._soft, self._timers, self._fixed, self.soft_waiting = [], [], [], 0
        self.emptied()
        for parcel in waiting:
            if not parcel.done:
                parcel.done, parcel.lane.started = True, None
                parcel.on_dropped()

    def emptied(self) -> None:
        """The controller lost what was in the mailbox; `resume` loads it again."""
        self._loaded, self._owner, self._replaced = None, None, []

    def resume(self, now: int) -> None:
        """Give the controller the most urgent frame, by now's priorities."""
        self._choose(now)

    def sent(self, frame: Frame, now: int) -> None:
        """A frame went through: go on with the next."""
        if frame is self._loaded:
            owner, self._loaded, self._owner = self._owner, None, None
        else:
            owner = next((owner for old, owner in self._replaced if old is frame), None)
        self._replaced.clear()
        if isinstance(owner, Parcel):
            self._advance(owner, now)
        elif owner is not None:
            self._remove(owner)
            if owner.on_sent is not None:
                owner.on_sent(now)
        self._choose(now)

    def promote(self, now: int) -> None:
        """Another frame won the bus, or ours failed: nothing of ours is on the wire, and less time is left."""
        if self._replaced:
            self._replaced.clear()
        if self._soft:
            self._choose(now)

    @property
    def wake_at(self) -> int | None:
        """When the next deadline or end of validity is."""
        timers = self._timers
        while timers and timers[0][2].done:
            heappop(timers)
        return timers[0][0] if timers else None

    def wake(self, now: int) -> None:
        """Report deadlines that passed, and drop what is no longer valid."""
        timers = self._timers
        while timers and (timers[0][2].done or timers[0][0] <= now):
            at, _, parcel = heappop(timers)
            if not parcel.done:
                self._lapse(parcel, at, now)

    def _lapse(self, parcel: Parcel, at: int, now: int) -> None:
        if at >= parcel.deadline:
            self._miss(parcel)
        if _is_over(parcel, at):
            self._expire(parcel)
            self._choose(now)

    def _miss(self, parcel: Parcel) -> None:
        if not parcel.missed:
            parcel.missed = True
            parcel.on_missed()

    def _expire(self, parcel: Parcel) -> None:
        self._retire(parcel)
        parcel.on_expired()

    def _advance(self, parcel: Parcel, now: int) -> None:
        parcel.position += 1
        if parcel.position < len(parcel.pieces):
            if not parcel.done:
                parcel.lane.started = parcel
                if parcel.deadline:
                    self._rank(parcel)
            return
        parcel.lane.commit()
        if not parcel.done:
            if parcel.deadline and now > parcel.deadline:
                self._miss(parcel)
            self._retire(parcel)
            parcel.on_sent(now)

    def _retire(self, parcel: Parcel) -> None:
        parcel.done = True
        if parcel.lane.started is parcel:
            parcel.lane.started = None
        if parcel.deadline:
            self.soft_waiting -= 1
        else:
            self._remove(parcel)

    def _remove(self, item: Parcel | Letter) -> None:
        if self._fixed and self._fixed[0][2] is item:
            heappop(self._fixed)
        else:
            self._fixed = [entry for entry in self._fixed if entry[2] is not item]
            heapify(self._fixed)

    def _choose(self, now: int) -> None:
        """Put the most urgent frame into the mailbox, unless it is there."""
        urgent = self._most_urgent(now)
        if urgent is not None:
            self._choose_event(urgent, now)
        elif self._fixed:
            first = self._fixed[0][2]
            if isinstance(first, Letter):
                self._choose_letter(first)
            else:
                self._choose_event(first, now)
        elif self._loaded is not None:
            self._replace(None, None)

    def _most_urgent(self, now: int) -> Parcel | None:
        """The soft event that must start first; what is no longer valid is never sent, however late the hour."""
        soft = self._soft
        while soft:
            start_by, _, parcel = soft[0]
            parcel = parcel.lane.started or parcel if not parcel.done else parcel
            if not parcel.done and _is_over(parcel, now):
                self._expire(parcel)
            elif soft[0][2].done or start_by != soft[0][2].start_by:
                heappop(soft)
            else:
                return parcel
        return None

    def _choose_event(self, parcel: Parcel, now: int) -> None:
        parcel = parcel.lane.started or parcel
        if parcel.position == 0 and parcel is not self._owner:
            parcel.pieces = parcel.lane.render(parcel.payload)
        priority = parcel.priority
        if parcel.deadline:
            priority = soft_priority(parcel.start_by - now, self._level_ns)
        identifier = priority << PRIORITY_SHIFT | self.number << NODE_SHIFT | parcel.etag
        loaded, piece = self._loaded, parcel.pieces[parcel.position]
        if parcel is not self._owner or loaded is None or loaded.id != identifier or loaded.data is not piece:
            self._replace(Frame(identifier, piece, parcel.fd), parcel)

    def _choose_letter(self, letter: Letter) -> None:
        if letter is not self._owner:
            if letter.renew is not None:
                letter.frame = letter.renew()
            self._replace(letter.frame, letter)

    def _rank(self, parcel: Parcel) -> None:
        """Queue a soft event by when its rest must start: anew after each of its frames, as less is left to send."""
        rest = sum(self._frame_ns(len(piece)) for piece in parcel.pieces[parcel.position :])
        parcel.start_by = parcel.deadline - rest
        heappush(self._soft, (parcel.start_by, next(self._order), parcel))

    def _replace(self, frame: Frame | None, owner: Parcel | Letter | None) -> None:
        if self._loaded is not None and self._owner is not None:
            self._replaced.append((self._loaded, self._owner))
        self._loaded, self._owner = frame, owner
        self._load(frame)
