"""`DriverPort`: a machine behind a driver that queues frames; without I/O, so that threads and tests can run it.

A driver's queue is first in, first out: a frame in it can be neither renewed nor stopped, whatever becomes more urgent
meanwhile. So the port gives the driver at most two frames at a time: one hard and one other, of Genus or of a database,
whichever would win on the bus. All else stays in the machine, where priorities are renewed and expired events are
dropped, until the frame before it is confirmed. What the port gets (messages, error frames, the time) are calls; what
it wants done are calls of `Driver`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from genus.can._live.echoes import EchoFilter
from genus.can._live.error_frames import ErrorReport
from genus.can._live.interfaces import Confirmation, InterfaceProfile
from genus.can._live.stamps import StampClock
from genus.can._machine import EVENT_TRIGGERED, FOREIGN, MAILBOXES, TIME_TRIGGERED, Accept, Call, Load, Machine
from genus.can._wire.frame import NODE_MASK, Frame, arbitration_key

R = TypeVar("R")
Filter: TypeAlias = tuple[int, int, bool]
"""Value, mask, and whether it is for 29-bit identifiers."""

CONFIRM_TIMEOUT_NS = 500_000_000
"""A frame that is not confirmed for so long is reported."""
GIVE_UP_NS = 10 * CONFIRM_TIMEOUT_NS
"""A frame that is not confirmed for so long is gone, unless the controller has errors on the bus."""
PROBE_NS = 4 * CONFIRM_TIMEOUT_NS
"""An interface that is not known and returns nothing for so long does not confirm."""
FIRST_RETRY_NS, LAST_RETRY_NS = 1_000_000, 100_000_000
"""After these times a frame that the driver refused is tried again: the first time, and at most."""


class DriverRefused(Exception):
    """The driver did not take a frame; `args` says why."""


class Driver(Protocol):
    """What a port wants done."""

    def send(self, frame: Frame) -> None:
        """Give a frame to the driver; DriverRefused if it does not take it now."""

    def set_filters(self, filters: tuple[Filter, ...]) -> None:
        """Set the acceptance filters."""

    def flush(self) -> bool:
        """Empty the driver's queue; returns False if it cannot be emptied."""

    def call(self, call: Call) -> None:
        """Call a handler of the program."""

    def warn(self, message: str) -> None:
        """Tell the operator something about the interface."""


class _InDriver(msgspec.Struct, eq=False):
    """State: a frame that the driver has."""

    frame: Frame
    since: int
    replaced: bool = False
    """Whether its mailbox was loaded since."""
    reported: bool = False
    """Whether it was reported as not confirmed."""


class DriverPort:
    """State: what waits for the driver, what the driver has, the state of the bus, and the clock of its stamps.

    All times are of the host's clock, in nanoseconds. After every call, what the machine wants was done.
    """

    def __init__(self, machine: Machine, driver: Driver, profile: InterfaceProfile) -> None:
        self.machine = machine
        self.counts: Counter[str] = Counter()
        """Frames sent, received and ignored, and failures by reason."""
        self.confirmation = profile.confirmation
        self._profile = profile
        self._marks_own = profile.marks_own and profile.confirmation is not Confirmation.PROBE
        """Whether an echo has `is_rx` False; what is not known is learned from the first one."""
        self._driver = driver
        self._stamps = StampClock()
        self._echoes = EchoFilter()
        self._waiting: list[Frame | None] = [None for _ in MAILBOXES]
        self._in_driver: list[_InDriver | None] = [None for _ in MAILBOXES]
        self._retry_at: list[int | None] = [None for _ in MAILBOXES]
        self._retry_ns = FIRST_RETRY_NS
        self._accepted: Accept | None = None
        self._own: dict[Filter, None] = {}
        """Filters by which echoes pass."""
        self._is_watching = False
        """Whether all frames pass, to see by them what became of a frame that is not confirmed."""
        self._is_off = self._is_polled_off = self._is_passive = False
        if self.confirmation is Confirmation.NONE:
            self._warn_of_promises()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and the driver has nothing, or nothing can be sent."""
        return self._is_off or all(each is None for each in (*self._waiting, *self._in_driver))

    # -- inputs --------------------------------------------------------------------------------------------------------

    def call(self, action: Callable[[int], R], now: int) -> R:
        """Call a function of the machine with the time."""
        result = action(now)
        self._settle(now)
        return result

    def receive(self, frame: Frame, stamp_s: float, now: int, *, is_rx: bool = True) -> None:
        """A message was read: a frame of another node, or the echo of an own one."""
        at = self._stamps.time_of(stamp_s, now)
        if self._is_off and is_rx:
            self._return_to_bus(now)
        mailbox = None if is_rx and self._marks_own else self._find_in_driver(frame)
        if mailbox is not None:
            if self.confirmation is Confirmation.PROBE:
                self.confirmation, self._marks_own = Confirmation.ECHO, not is_rx
            self._confirm(mailbox, at, now)
        elif self._echoes.recognise(frame, now) or self._is_stray_echo(is_rx):
            self.counts["echoes ignored"] += 1
            return
        else:
            self._receive_from_other(frame, at, now, is_rx)
        self._settle(now)

    def ignore(self, reason: str) -> None:
        """A message was read that is of no use here."""
        self.counts[f"ignored: {reason}"] += 1

    def error(self, report: ErrorReport, now: int) -> None:
        """An error frame was read."""
        self.counts["error frames"] += 1
        if report.overflow:
            self.counts["receive failed: the controller's buffer overflowed"] += 1
        if report.failed and (mailbox := self._oldest()) is not None:
            self.counts["attempts failed"] += 1
            self._attempt_failed(mailbox, now)
        if report.lost and not report.failed:
            self.machine.lost(now)
        if report.dropped:
            self._give_up_all(now, "dropped by the driver")
        if report.passive is not None:
            self._set_passive(report.passive, now)
        if report.bus_off:
            self._leave_bus(now)
        elif report.restarted and self._is_off:
            self._return_to_bus(now)
        self._settle(now)

    def error_without_class(self, now: int) -> None:
        """An error frame was read that does not say what happened."""
        self.counts["error frames"] += 1

    def poll(self, state: str, now: int) -> None:
        """The state of the interface was read: `active`, `passive` or `error`."""
        if state == "error" and not self._is_off:
            self._is_polled_off = True
            self._leave_bus(now)
        elif state != "error" and self._is_off and self._is_polled_off:
            self._return_to_bus(now)
        if self._profile.polled_passive and state != "error":
            self._set_passive(state == "passive", now)
        self._settle(now)

    @property
    def wake_at(self) -> int | None:
        """When to call `wake`; None if no timer is set."""
        times = [self.machine.wake_at]
        for mailbox in MAILBOXES:
            entry = self._in_driver[mailbox]
            if entry is not None:
                last = PROBE_NS if self.confirmation is Confirmation.PROBE else GIVE_UP_NS
                times.append(entry.since + (last if entry.reported else CONFIRM_TIMEOUT_NS))
            elif self._waiting[mailbox] is not None and not self._is_off:
                times.append(self._retry_at[mailbox])
        return min((at for at in times if at is not None), default=None)

    def wake(self, now: int) -> None:
        """The time `wake_at` has come."""
        at = self.machine.wake_at
        if at is not None and at <= now:
            self.machine.wake(now)
        for mailbox in MAILBOXES:
            self._check_time_out(mailbox, now)
            retry_at = self._retry_at[mailbox]
            if retry_at is not None and retry_at <= now:
                self.machine.lost(now)  # it has waited, so its priority is renewed
        self._settle(now)

    # -- what the machine wants ----------------------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """Do what the machine wants, give the driver what it may have, until nothing is left to do."""
        while True:
            while outputs := self.machine.take():
                for output in outputs:
                    if isinstance(output, Load):
                        self._load(output)
                    elif isinstance(output, Call):
                        self._driver.call(output)
                    else:
                        self._accept(output)
            if self._is_off or not (self._hand_over(TIME_TRIGGERED, now) or self._hand_over_other(now)):
                return

    def _load(self, load: Load) -> None:
        self._waiting[load.mailbox] = load.frame
        entry = self._in_driver[load.mailbox]
        if entry is not None:
            entry.replaced = True

    def _hand_over_other(self, now: int) -> bool:
        """Give the driver the frame that would win of those without a slot, if it has none of them."""
        others, waiting, has = (EVENT_TRIGGERED, FOREIGN), self._waiting, self._in_driver
        if (waiting[EVENT_TRIGGERED] or waiting[FOREIGN]) is None:
            return False
        if any(has[mailbox] is not None for mailbox in others):
            return False
        frames = [(arbitration_key(frame), mailbox) for mailbox in others if (frame := waiting[mailbox])]
        return any(self._hand_over(mailbox, now) for _, mailbox in sorted(frames))

    def _hand_over(self, mailbox: int, now: int) -> bool:
        """Give the driver the frame that waits in a mailbox, if it may have it; returns whether it took one."""
        frame, retry_at = self._waiting[mailbox], self._retry_at[mailbox]
        if frame is None or self._in_driver[mailbox] is not None or (retry_at is not None and now < retry_at):
            return False
        confirmed_by_echo = self.confirmation in (Confirmation.ECHO, Confirmation.PROBE)
        if confirmed_by_echo:
            self._let_echo_pass(frame)
        try:
            self._driver.send(frame)
        except DriverRefused as problem:
            self.counts[f"send failed: {problem}"] += 1
            self._retry_at[mailbox] = now + self._retry_ns
            self._retry_ns = min(2 * self._retry_ns, LAST_RETRY_NS)
            return False
        self._retry_at[mailbox], self._retry_ns = None, FIRST_RETRY_NS
        self._waiting[mailbox] = None
        if confirmed_by_echo:
            self._in_driver[mailbox] = _InDriver(frame, now)
            self.machine.taken(frame, now)
        else:
            if self._profile.returns_own:
                self._echoes.expect(frame, now)
            self.counts["sent"] += 1
            self.machine.sent(frame, now)
        return True

    def _accept(self, accept: Accept) -> None:
        self._accepted = accept
        self._set_filters()

    def _let_echo_pass(self, frame: Frame) -> None:
        """Add the node's own number to the filters, as filters apply to echoes too."""
        if self._accepted is None or self._is_accepted(frame):
            return
        own = (frame.id & NODE_MASK, NODE_MASK, True) if frame.extended else (frame.id, 0x7FF, False)
        if own not in self._own:
            self._own[own] = None
            self._set_filters()

    def _set_filters(self) -> None:
        assert self._accepted is not None, "filters are set when the machine says what it accepts"
        extended = [(value, mask, True) for value, mask in self._accepted.filters]
        standard = [(value, mask, False) for value, mask in self._accepted.standard]
        accepted = (*extended, *standard)
        self._driver.set_filters((*accepted, *self._own) if accepted and not self._is_watching else ())

    def _watch(self) -> None:
        """Let all frames pass while a frame is reported as not confirmed: one that loses against it is a proof."""
        is_needed = any(entry is not None and entry.reported for entry in self._in_driver)
        if is_needed != self._is_watching:
            self._is_watching = is_needed
            if self._accepted is not None:
                self._set_filters()

    def _is_accepted(self, frame: Frame) -> bool:
        """Whether the machine wants a frame, which may have passed a filter that is there for echoes."""
        accepted, identifier = self._accepted, frame.id
        if accepted is None or not (accepted.filters or accepted.standard):
            return True
        pairs = accepted.filters if frame.extended else accepted.standard
        return any((identifier ^ value) & mask == 0 for value, mask in pairs)

    # -- what came back ------------------------------------------------------------------------------------------------

    def _find_in_driver(self, frame: Frame) -> int | None:
        """The mailbox whose frame in the driver equals a received one."""
        for mailbox, entry in enumerate(self._in_driver):
            if entry is not None and entry.frame.id == frame.id and entry.frame == frame:
                return mailbox
        return None

    def _is_stray_echo(self, is_rx: bool) -> bool:
        """Whether an own frame came back that nobody waits for: its confirmation came too late."""
        return not is_rx and self._marks_own and not self._profile.marks_local

    def _confirm(self, mailbox: int, at: int, now: int) -> None:
        entry = self._in_driver[mailbox]
        assert entry is not None
        self._in_driver[mailbox] = None
        self._watch()
        self.counts["sent"] += 1
        self.machine.sent(entry.frame, at)
        self.machine.wake(now)  # what is next is chosen by the present time, not by that of the stamp

    def _receive_from_other(self, frame: Frame, at: int, now: int, is_rx: bool) -> None:
        passes_all = self._is_watching
        if is_rx and passes_all:
            self._give_up_losers(frame, now)
        if not frame.extended and not (self._accepted and self._accepted.standard):
            return self.ignore("not a 29-bit data frame")
        if (self._own or passes_all) and not self._is_accepted(frame):
            return self.ignore("for echoes only")
        self.counts["received"] += 1
        self.machine.receive(frame, at)
        if any(each is not None for each in (*self._in_driver, *self._waiting)):
            self.machine.lost(now)
        else:
            self.machine.wake(now)

    def _give_up_losers(self, frame: Frame, now: int) -> None:
        """Give up the frames that are not confirmed and would have won against one that was received."""
        for mailbox, entry in enumerate(self._in_driver):
            if entry is not None and entry.reported and arbitration_key(frame) > arbitration_key(entry.frame):
                self._give_up(mailbox, now, "never confirmed")

    # -- what did not come back ----------------------------------------------------------------------------------------

    def _check_time_out(self, mailbox: int, now: int) -> None:
        entry = self._in_driver[mailbox]
        if entry is None or now - entry.since < CONFIRM_TIMEOUT_NS:
            return
        if self.confirmation is Confirmation.PROBE and now - entry.since >= PROBE_NS and not self._is_passive:
            self._stop_probing(now)
        elif not entry.reported:
            entry.reported = True
            self._watch()
            self.counts["not confirmed in time"] += 1
            self.machine.unconfirmed(entry.frame, now, gone=False)
        elif now - entry.since >= GIVE_UP_NS:
            if self._is_passive:
                entry.since = now  # the controller tries and fails: the frame is still there
            else:
                self._give_up(mailbox, now, "never confirmed")

    def _stop_probing(self, now: int) -> None:
        """No echo came: the interface does not confirm; what it took counts as sent."""
        self.confirmation = Confirmation.NONE
        self._warn_of_promises()
        for mailbox, entry in enumerate(self._in_driver):
            self._in_driver[mailbox] = None
            if entry is not None:
                self._echoes.expect(entry.frame, now)
                self.counts["sent"] += 1
                self.machine.sent(entry.frame, now)
        self._watch()

    def _warn_of_promises(self) -> None:
        self.counts["interface does not confirm what was sent"] = 1
        self._driver.warn(
            "this interface does not confirm what was sent: channels with deadlines are refused on it, "
            "others count a frame as sent when the driver took it"
        )

    def _give_up_all(self, now: int, reason: str) -> None:
        for mailbox in MAILBOXES:
            if self._in_driver[mailbox] is not None:
                self._give_up(mailbox, now, reason)

    def _give_up(self, mailbox: int, now: int, reason: str) -> None:
        """The driver has lost a frame, or its confirmation: send it again, unless its mailbox was loaded since."""
        entry, self._in_driver[mailbox] = self._in_driver[mailbox], None
        assert entry is not None
        self._watch()
        self._driver.flush()
        self._echoes.expect(entry.frame, now)
        self.counts[reason] += 1
        if not entry.replaced:
            self._waiting[mailbox] = entry.frame
        self.machine.unconfirmed(entry.frame, now, gone=True)

    def _oldest(self) -> int | None:
        """The mailbox whose frame was given to the driver first."""
        entries = [(entry.since, mailbox) for mailbox, entry in enumerate(self._in_driver) if entry is not None]
        return min(entries)[1] if entries else None

    def _attempt_failed(self, mailbox: int, now: int) -> None:
        entry = self._in_driver[mailbox]
        assert entry is not None
        self.machine.failed(entry.frame, now)

    # -- the state of the bus ------------------------------------------------------------------------------------------

    def _set_passive(self, passive: bool, now: int) -> None:
        if passive != self._is_passive:
            self._is_passive = passive
            self.counts["error passive"] += passive
            self.machine.error_passive(now, passive)

    def _leave_bus(self, now: int) -> None:
        """The controller is off the bus: what the driver had is lost, and the mailboxes are empty."""
        if self._is_off:
            return
        self._is_off = True
        self.counts["bus off"] += 1
        for entry in self._in_driver:
            if entry is not None:
                self._echoes.expect(entry.frame, now)
        self._in_driver, self._waiting = [None for _ in MAILBOXES], [None for _ in MAILBOXES]
        self._watch()
        self.machine.bus_off(now)

    def _return_to_bus(self, now: int) -> None:
        self._is_off = self._is_polled_off = False
        self._set_passive(False, now)
        self.machine.bus_on(now)
