"""A CAN controller: transmit mailboxes, acceptance filters, error counters. What it does is up to its bus.

Fault confinement follows ISO 11898-1: 8 points for each frame that fails to go out, 1 off for each that goes; error
passive above 127, when it waits 8 bits after each of its frames; off the bus above 255, until it has heard 128 times 11
idle bits. A receiver counts 1 per error, and 1 off per good frame.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Priority
from genus.errors import BusError

# A bus guardian: it stands between a controller and the bus, and lets through only what the station may send.
#
# It knows the station's slots and a budget of frames, and nothing of what the station thinks it does (Broster and Burns
# 2003). So a babbling idiot keeps its own slots and its own budget, and the others keep theirs.


NEVER = 1 << 62


class Guard:
    """State: windows in which frames of priority 0 may start, and a token bucket for all others.

    A window is (start, end) in each cycle. The bucket holds `burst` frames and gets one every `interval_ns`.

    >>> guard = Guard(cycle_ns=1000, windows=[(100, 200)], interval_ns=500, burst=1)
    >>> guard.opens(Frame(7), 150), guard.opens(Frame(7), 201), guard.opens(Frame(254 << 21), 5)
    (150, 1100, 5)
    >>> guard.spend(Frame(254 << 21), 5)
    >>> guard.opens(Frame(254 << 21), 6)
    505
    """

    def __init__(
        self, *, cycle_ns: int = 1, windows: Sequence[tuple[int, int]] = (), interval_ns: int = 0, burst: int = 1
    ) -> None:
        if cycle_ns < 1 or interval_ns < 0 or burst < 1:
            raise BusError(f"a guard with cycle {cycle_ns} ns, interval {interval_ns} ns and burst {burst} is none")
        if any(not 0 <= start < end for start, end in windows):
            raise BusError(f"a guard's windows run from start to end, unlike one of {windows}")
        self._cycle = cycle_ns
        self._windows = tuple(windows)
        self._interval = interval_ns
        self._slack = (burst - 1) * interval_ns
        self._full_at = 0

    def opens(self, frame: Frame, now: int) -> int:
        """The first instant, now or later, at which a frame may start."""
        if frame.id >> PRIORITY_SHIFT == Priority.HARD:
            return min((self._next(window, now) for window in self._windows), default=NEVER)
        return max(now, self._full_at - self._slack)

    def spend(self, frame: Frame, now: int) -> None:
        """A frame starts."""
        if frame.id >> PRIORITY_SHIFT != Priority.HARD:
            self._full_at = max(self._full_at, now) + self._interval

    def _next(self, window: tuple[int, int], now: int) -> int:
        start, end = window
        since = (now - start) % self._cycle
        return now if since <= end - start else now + self._cycle - since


FrameHook: TypeAlias = Callable[[Frame, int], None]
BusHook: TypeAlias = Callable[[int], None]
Filters: TypeAlias = Sequence[tuple[int, int]]
NOTHING = 1 << 128
"""The arbitration key of an empty mailbox: it loses against every frame."""
PASSIVE_ABOVE, OFF_ABOVE = 127, 255
_REC_AFTER_PASSIVE = 119


class ErrorState(StrEnum):
    """How a controller may take part in signalling errors."""

    ACTIVE = "active"
    PASSIVE = "passive"
    OFF = "off"


class Listener:
    """What a controller tells its station, at virtual time in nanoseconds; a station overrides what it wants to know.

    What is not overridden is not called.
    """

    __slots__ = ()

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another station that passed the filters has ended."""

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this station has gone through."""

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this station was corrupted; it is repeated unless its mailbox is loaded anew."""

    def lost(self, now: int) -> None:
        """This station had a frame pending when another's won the bus; that one has ended."""

    def bus_off(self, now: int) -> None:
        """Too many errors: the controller left the bus, its mailboxes are empty."""

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus."""


def arbitration_key(frame: Frame) -> int:
    """The bits with which a frame competes for the bus, as one number; the smallest wins.

    After the 11 leading bits a standard frame has RTR and IDE dominant, an extended one SRR and IDE recessive.

    >>> standard, extended = Frame(0x123, extended=False), Frame(0x123 << 18)
    >>> arbitration_key(standard) < arbitration_key(extended) < arbitration_key(Frame(0x124, extended=False))
    True
    """
    identifier = frame.id
    if frame.extended:
        return (identifier >> 18) << 21 | 0x18_0000 | (identifier & 0x3_FFFF) << 1
    return identifier << 21


class Medium(Protocol):
    """What a controller needs of its bus."""

    pending: "dict[Controller, None]"

    @property
    def key(self) -> Callable[[Frame], int]:
        """The number with which a frame competes in arbitration."""

    def contend(self, controller: "Controller", key: int) -> None:
        """Take part in arbitration with a frame under this key, or with none any more."""

    def forget_hearers(self) -> None:
        """The filters of a controller changed."""


class Controller:
    """State: one station's connection to a bus.

    `load` follows the rules of `machine.Load`. A controller without filters (None) hears everything; one with
    filters hears the extended frames that pass one of them. `number` names the station in traces and faults.
    """

    __slots__ = (
        "attempts", "bus", "ears", "filters", "frames", "guard", "hear", "key", "keys", "number", "off", "on_bus_off",
        "on_bus_on", "on_failed", "on_lost", "on_sent", "on_wire", "rec", "recovery", "replaced", "senders",
        "suspended_ns", "tec",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        listener: Listener | None = None,
        *,
        mailboxes: int = 2,
        filters: Filters | None = None,
        guard: Guard | None = None,
    ) -> None:
        if mailboxes < 1:
            raise BusError(f"a controller with {mailboxes} mailboxes cannot send")
        self.number = number
        self.senders = (number,)
        self.frames: list[Frame | None] = [None] * mailboxes
        self.keys = [NOTHING] * mailboxes
        self.attempts = [0] * mailboxes
        self.key = NOTHING
        """The best of `keys`."""
        self.on_wire = -1
        """The mailbox whose frame is being sent."""
        self.replaced = False
        """Whether that mailbox was loaded since."""
        self.filters = filters
        self.guard = guard
        self.bus: Medium | None = None
        self.ears: dict[int, tuple[tuple[FrameHook, ...], tuple[int, ...]]] = {}
        """Who hears which identifier of this sender; its bus keeps it."""
        self.tec = self.rec = 0
        self.off = False
        self.recovery = 0
        """How many times 11 idle bits are still to be heard before the bus may be used again."""
        self.suspended_ns = 0
        self.listen(listener or Listener())

    def listen(self, listener: Listener) -> None:
        """Call the methods of a listener from now on."""
        self.connect(
            receive=_overridden(listener.receive),
            sent=_overridden(listener.sent),
            failed=_overridden(listener.failed),
            lost=_overridden(listener.lost),
            bus_off=_overridden(listener.bus_off),
            bus_on=_overridden(listener.bus_on),
        )

    def connect(
        self,
        receive: FrameHook | None = None,
        sent: FrameHook | None = None,
        failed: FrameHook | None = None,
        lost: BusHook | None = None,
        bus_off: BusHook | None = None,
        bus_on: BusHook | None = None,
    ) -> None:
        """Call these functions from now on; what they mean is said at `Listener`."""
        self.hear, self.on_sent, self.on_failed = receive, sent, failed
        self.on_lost, self.on_bus_off, self.on_bus_on = lost, bus_off, bus_on
        self._hearing_changed()

    @property
    def state(self) -> ErrorState:
        """Error active, error passive or off the bus."""
        if self.off:
            return ErrorState.OFF
        return ErrorState.PASSIVE if self.is_passive else ErrorState.ACTIVE

    @property
    def is_passive(self) -> bool:
        """Whether so many errors were counted that it may no longer disturb others."""
        return self.tec > PASSIVE_ABOVE or self.rec > PASSIVE_ABOVE

    def accept(self, filters: Filters | None) -> None:
        """Set the acceptance filters: (value, mask) pairs over the 29-bit identifier."""
        self.filters = filters
        self._hearing_changed()

    def passes(self, frame: Frame) -> bool:
        """Whether a frame passes the acceptance filters."""
        if self.filters is None:
            return True
        identifier = frame.id
        return frame.extended and any((identifier ^ value) & mask == 0 for value, mask in self.filters)

    def load(self, mailbox: int, frame: Frame | None) -> None:
        """Put a frame into a mailbox, in place of what was there; None empties it."""
        bus = self.bus
        key = NOTHING if frame is None else arbitration_key(frame) if bus is None else bus.key(frame)
        keys = self.keys
        try:
            keys[mailbox] = key
        except IndexError:
            raise BusError(f"station {self.number} has {len(keys)} mailboxes, and no number {mailbox}") from None
        self.frames[mailbox] = frame
        self.attempts[mailbox] = 0
        if mailbox == self.on_wire:
            self.replaced = True
        if len(keys) > 1:
            key = min(keys)
        self.key = key
        if bus is not None and not self.off:
            bus.contend(self, key)

    def rank_mailboxes(self) -> None:
        """Compute the keys anew: on another bus, arbitration may go by something else."""
        for mailbox, frame in enumerate(self.frames):
            self.load(mailbox, frame)

    def clear(self) -> None:
        """Empty all mailboxes."""
        for mailbox in range(len(self.frames)):
            self.load(mailbox, None)

    def reset(self) -> None:
        """As after power-up: mailboxes empty, nothing counted, everything heard."""
        self.clear()
        self.on_wire = -1
        self.tec = self.rec = self.suspended_ns = 0
        self.off = False
        self.accept(None)

    def best_offer(self, now: int) -> tuple[int, int]:
        """The key it competes with now, if any; and when it has a better one, if later."""
        free_at = max(now, self.suspended_ns)
        if self.guard is None:
            return (self.key, now) if free_at <= now else (NOTHING, free_at)
        opens = self._guarded(free_at)
        best = min((key for key, at in opens if at <= now), default=NOTHING)
        return best, min((at for key, at in opens if key < best), default=now)

    def _guarded(self, free_at: int) -> list[tuple[int, int]]:
        guard = self.guard
        assert guard is not None
        waiting = zip(self.keys, self.frames, strict=True)
        return [(key, guard.opens(frame, free_at)) for key, frame in waiting if frame is not None]

    def went(self, frame: Frame, now: int) -> None:
        """The frame on the wire has gone through."""
        mailbox, self.on_wire = self.on_wire, -1
        if mailbox < 0:
            return  # the station left at this very instant
        if not self.replaced:
            keys = self.keys
            keys[mailbox] = NOTHING
            self.frames[mailbox] = None
            self.key = key = min(keys) if len(keys) > 1 else NOTHING
            if key is NOTHING and self.bus is not None:
                self.bus.pending.pop(self, None)
        if self.on_sent is not None:
            self.on_sent(frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        """The frame on the wire was corrupted."""
        mailbox, self.on_wire = self.on_wire, -1
        if mailbox < 0:
            return  # the station left at this very instant
        if not self.replaced:
            self.attempts[mailbox] += 1
        if self.on_failed is not None:
            self.on_failed(frame, now)

    def heard_good(self) -> None:
        """A frame of another station was good."""
        if self.rec > PASSIVE_ABOVE:
            self.rec = _REC_AFTER_PASSIVE
        elif self.rec:
            self.rec -= 1

    def _hearing_changed(self) -> None:
        bus = getattr(self, "bus", None)
        if bus is not None:
            bus.forget_hearers()


def _overridden(method: Callable[..., None]) -> Callable[..., None] | None:
    """A method, unless it is the one of `Listener` that does nothing."""
    own = getattr(method, "__func__", method)
    return None if own is getattr(Listener, method.__name__, None) else method
