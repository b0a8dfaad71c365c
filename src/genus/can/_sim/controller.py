"""A CAN controller with mailboxes, acceptance filters and error counters, and a bus guardian in front of it.

The bus drives its controllers. Fault confinement follows ISO 11898-1: the transmit error counter (TEC) goes up by 8 for
each frame that fails and down by 1 for each that is sent. Above 127 the controller is error passive and waits 8 bits
after each of its frames; above 255 it is off the bus until it has counted 128 sequences of 11 idle bits. The receive
error counter (REC) goes up by 1 per error and down by 1 per good frame. At 96 the controller raises a warning, with
which it calls `error_passive`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from genus.can._sim.scheduler import NEVER
from genus.can._wire.frame import PASSIVE_ABOVE, PRIORITY_SHIFT, WARNING_FROM, Frame, Priority, arbitration_key
from genus.errors import BusError

FrameHook: TypeAlias = Callable[[Frame, int], None]
BusHook: TypeAlias = Callable[[int], None]
StateHook: TypeAlias = Callable[[int, bool], None]
Filters: TypeAlias = Sequence[tuple[int, int]]
NO_KEY = 1 << 128
"""The arbitration key of an empty mailbox: it loses against every frame."""
_REC_AFTER_PASSIVE = 119


class BusGuardian:
    """State: when a station may send: windows for frames of priority 0, and a token bucket for all others.

    It knows the station's slots and a budget of frames, and nothing about the state of the station's program (Broster
    and Burns 2003), so a babbling idiot cannot use more than its own slots and its own budget.

    A window is (start, end) in each cycle. The bucket holds `burst` frames and gets one every `interval_ns`.

    >>> guardian = BusGuardian(cycle_ns=1000, windows=[(100, 200)], interval_ns=500, burst=1)
    >>> hard, other = Frame(7), Frame(254 << 21)
    >>> [guardian.earliest_start(*each) for each in ((hard, 150), (hard, 201), (other, 5))]
    [150, 1100, 5]
    >>> guardian.frame_started(other, 5)
    >>> guardian.earliest_start(other, 6)
    505
    """

    def __init__(
        self, *, cycle_ns: int = 1, windows: Sequence[tuple[int, int]] = (), interval_ns: int = 0, burst: int = 1
    ) -> None:
        if cycle_ns < 1 or interval_ns < 0 or burst < 1:
            given = f"cycle {cycle_ns} ns, interval {interval_ns} ns and burst {burst}"
            raise BusError(f"a bus guardian has {given}; cycle and burst must be positive, interval 0 or more")
        if any(not 0 <= start < end for start, end in windows):
            raise BusError(f"a bus guardian has windows {windows}; each must be (start, end) with 0 <= start < end")
        self._cycle = cycle_ns
        self._windows = tuple(windows)
        self._interval = interval_ns
        self._slack = (burst - 1) * interval_ns
        self._full_at = 0

    def earliest_start(self, frame: Frame, now: int) -> int:
        """Return the first instant, now or later, at which a frame may start; NEVER if it may not."""
        if frame.id >> PRIORITY_SHIFT == Priority.HARD:
            return min((self._next_start(window, now) for window in self._windows), default=NEVER)
        return max(now, self._full_at - self._slack)

    def frame_started(self, frame: Frame, now: int) -> None:
        """Take a token for a frame that starts, unless it is in a window."""
        if frame.id >> PRIORITY_SHIFT != Priority.HARD:
            self._full_at = max(self._full_at, now) + self._interval

    def _next_start(self, window: tuple[int, int], now: int) -> int:
        start, end = window
        since = (now - start) % self._cycle
        return now if since <= end - start else now + self._cycle - since


class ErrorState(StrEnum):
    ACTIVE = "active"
    PASSIVE = "passive"
    OFF = "off"


class ControllerListener:
    """Callbacks of a controller, with virtual time in nanoseconds; a station overrides those it needs.

    Methods that are not overridden are not called.
    """

    __slots__ = ()

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another station that passed the filters has ended."""

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this station was sent."""

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this station was corrupted; it is repeated unless its mailbox is loaded again."""

    def lost(self, now: int) -> None:
        """A frame that won arbitration against one of this station has ended, or an error frame while one waits; or a
        frame that was held back on an idle bus, by a guardian or a suspension, may start now."""

    def error_passive(self, now: int, passive: bool) -> None:
        """An error counter reached the warning limit, so that the controller may soon be error passive; or all are
        below it again."""

    def bus_off(self, now: int) -> None:
        """The controller went off the bus after too many errors; its mailboxes are empty."""

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus."""


class ControllerBus(Protocol):
    """What a controller needs of its bus."""

    pending: "dict[Controller, None]"

    @property
    def key(self) -> Callable[[Frame], int]: ...
    def contend(self, controller: "Controller", key: int) -> None: ...
    def clear_receiver_caches(self) -> None: ...
    def error_counters_changed(self, controller: "Controller") -> None: ...


class Controller:
    """State: one station's connection to a bus.

    `load` follows the rules of `_machine.Load`. A controller without filters (None) receives everything; one with
    filters receives the extended frames that pass one of them. `number` names the station in traces and faults.
    """

    __slots__ = (
        "_rec", "_tec", "attempts", "bus", "filters", "frames", "guardian", "key", "keys", "number", "off",
        "on_bus_off", "on_bus_on", "on_error_passive", "on_failed", "on_lost", "on_receive", "on_sent", "on_wire",
        "receivers", "recovery", "replaced", "senders", "suspended_until_ns", "warned",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        listener: ControllerListener | None = None,
        *,
        mailboxes: int = 2,
        filters: Filters | None = None,
        guardian: BusGuardian | None = None,
    ) -> None:
        if mailboxes < 1:
            raise BusError(f"a controller with {mailboxes} mailboxes cannot send")
        self.number = number
        self.senders = (number,)
        """Its number as the trace takes the senders of a frame."""
        self.frames: list[Frame | None] = [None] * mailboxes
        self.keys = [NO_KEY] * mailboxes
        self.attempts = [0] * mailboxes
        self.key = NO_KEY
        """The smallest of `keys`."""
        self.on_wire = -1
        """The mailbox whose frame is being sent."""
        self.replaced = False
        """Whether that mailbox was loaded since."""
        self.filters = filters
        self.guardian = guardian
        self.bus: ControllerBus | None = None
        self.receivers: dict[int, tuple[tuple[FrameHook, ...], tuple[int, ...]]] = {}
        """A cache of its bus: which controllers receive which identifiers of this sender."""
        self._tec = self._rec = 0
        self.warned = False
        """What it called `on_error_passive` with last."""
        self.off = False
        self.recovery = 0
        """How many sequences of 11 idle bits are left until the controller is back on the bus."""
        self.suspended_until_ns = 0
        self.listen(listener or ControllerListener())

    def listen(self, listener: ControllerListener) -> None:
        self.connect(
            receive=_overridden(listener.receive),
            sent=_overridden(listener.sent),
            failed=_overridden(listener.failed),
            lost=_overridden(listener.lost),
            error_passive=_overridden(listener.error_passive),
            bus_off=_overridden(listener.bus_off),
            bus_on=_overridden(listener.bus_on),
        )

    def connect(
        self,
        receive: FrameHook | None = None,
        sent: FrameHook | None = None,
        failed: FrameHook | None = None,
        lost: BusHook | None = None,
        error_passive: StateHook | None = None,
        bus_off: BusHook | None = None,
        bus_on: BusHook | None = None,
    ) -> None:
        """Call these functions from now on; `ControllerListener` describes them."""
        self.on_receive, self.on_sent, self.on_failed = receive, sent, failed
        self.on_lost, self.on_error_passive = lost, error_passive
        self.on_bus_off, self.on_bus_on = bus_off, bus_on
        self._clear_receiver_caches()

    @property
    def tec(self) -> int:
        return self._tec

    @tec.setter
    def tec(self, value: int) -> None:
        self._tec = value
        if self.bus is not None:
            self.bus.error_counters_changed(self)

    @property
    def rec(self) -> int:
        return self._rec

    @rec.setter
    def rec(self, value: int) -> None:
        self._rec = value
        if self.bus is not None:
            self.bus.error_counters_changed(self)

    @property
    def state(self) -> ErrorState:
        if self.off:
            return ErrorState.OFF
        return ErrorState.PASSIVE if self.is_passive else ErrorState.ACTIVE

    @property
    def is_passive(self) -> bool:
        """Whether an error counter is above the limit of the error active state."""
        return self._tec > PASSIVE_ABOVE or self._rec > PASSIVE_ABOVE

    @property
    def has_warning(self) -> bool:
        """Whether the transmit error counter has reached the warning limit."""
        return self._tec >= WARNING_FROM

    def set_filters(self, filters: Filters | None) -> None:
        """Set the acceptance filters: (value, mask) pairs over the 29-bit identifier; None accepts everything."""
        self.filters = filters
        self._clear_receiver_caches()

    def accepts(self, frame: Frame) -> bool:
        if self.filters is None:
            return True
        identifier = frame.id
        return frame.extended and any((identifier ^ value) & mask == 0 for value, mask in self.filters)

    def load(self, mailbox: int, frame: Frame | None) -> None:
        """Put a frame into a mailbox, in place of what was there; None empties it. BusError without such a mailbox."""
        bus = self.bus
        key = NO_KEY if frame is None else arbitration_key(frame) if bus is None else bus.key(frame)
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

    def reload(self) -> None:
        """Load all frames again: another bus may compute other arbitration keys."""
        for mailbox, frame in enumerate(self.frames):
            self.load(mailbox, frame)

    def clear(self) -> None:
        for mailbox in range(len(self.frames)):
            self.load(mailbox, None)

    def reset(self) -> None:
        """Return to the state after power-on: mailboxes empty, counters 0, no filters."""
        self.clear()
        self.on_wire = -1
        self._tec = self._rec = self.suspended_until_ns = 0
        self.off = self.warned = False
        self.set_filters(None)

    def available_key(self, now: int) -> tuple[int, int]:
        """The key of the best frame that may start now (or `NO_KEY`), and when a better one may, if later than now."""
        free_at = max(now, self.suspended_until_ns)
        if self.guardian is None:
            return (self.key, now) if free_at <= now else (NO_KEY, free_at)
        starts = self._guarded_starts(self.guardian, free_at)
        best = min((key for key, at in starts if at <= now), default=NO_KEY)
        return best, min((at for key, at in starts if key < best), default=now)

    def _guarded_starts(self, guardian: BusGuardian, free_at: int) -> list[tuple[int, int]]:
        loaded = zip(self.keys, self.frames, strict=True)
        return [(key, guardian.earliest_start(frame, free_at)) for key, frame in loaded if frame is not None]

    def finish_sent(self, frame: Frame, now: int) -> None:
        """The frame on the wire was sent: empty its mailbox, unless it was loaded since, and call `on_sent`."""
        mailbox, self.on_wire = self.on_wire, -1
        if mailbox < 0:
            return  # the station left the bus at this instant
        if not self.replaced:
            keys = self.keys
            keys[mailbox] = NO_KEY
            self.frames[mailbox] = None
            self.key = key = min(keys) if len(keys) > 1 else NO_KEY
            if key is NO_KEY and self.bus is not None:
                self.bus.pending.pop(self, None)
        if self.on_sent is not None:
            self.on_sent(frame, now)

    def finish_failed(self, frame: Frame, now: int) -> None:
        """The frame on the wire was corrupted: count the attempt and call `on_failed`."""
        mailbox, self.on_wire = self.on_wire, -1
        if mailbox < 0:
            return  # the station left the bus at this instant
        if not self.replaced:
            self.attempts[mailbox] += 1
        if self.on_failed is not None:
            self.on_failed(frame, now)

    def count_good_frame(self) -> None:
        """Lower the receive error counter after a good frame of another station."""
        if self.rec > PASSIVE_ABOVE:
            self.rec = _REC_AFTER_PASSIVE
        elif self.rec:
            self.rec -= 1

    def _clear_receiver_caches(self) -> None:
        if self.bus is not None:
            self.bus.clear_receiver_caches()


def _overridden(method: Callable[..., None]) -> Callable[..., None] | None:
    """Return the method, or None if it is the empty one of `ControllerListener`."""
    own = getattr(method, "__func__", method)
    return None if own is getattr(ControllerListener, method.__name__, None) else method
