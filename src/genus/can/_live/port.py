"""`DriverPort`: a machine behind a driver that queues frames; without I/O, so that threads and tests can run it.

A driver's queue is first in, first out: a frame in it can be neither renewed nor stopped, whatever becomes more urgent
meanwhile. So the port gives the driver at most two frames at a time: one hard and one other, of Genus or of a database,
whichever would win on the bus. All else stays in the machine, where priorities are renewed and expired events are
dropped, until the frame before it is confirmed. What the port gets (messages, error frames, the time) are calls; what
it wants done are calls of `Driver`.

A confirmation may be lost. So a frame waits for it several times as long as frames took lately, not counting the time
of frames that outrank it; then its fate is *unknown*, and the next frame is given to the driver, whose confirmation
shows that the driver is alive. Until something shows that, each further frame waits longer, so that a driver which is
cut off gets few frames that would be sent when it is back.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from genus.can._live.interfaces import Confirmation, InterfaceProfile
from genus.can._live.received import EchoFilter, ErrorReport, StampClock
from genus.can._machine import EVENT_TRIGGERED, FOREIGN, MAILBOXES, TIME_TRIGGERED, Accept, Call, Load, Machine
from genus.can._wire.frame import NODE_MASK, Frame, Timing, arbitration_key
from genus.errors import Reasons

R = TypeVar("R")
Filter: TypeAlias = tuple[int, int, bool]
"""Value, mask, and whether it is for 29-bit identifiers."""

CONFIRM_TIMEOUT_NS = 500_000_000
"""A frame that is not confirmed for so long is reported."""
PATIENCE_NS = 20_000_000
"""How long a frame waits for its confirmation at first; in the second half all frames pass, to see what happens."""
LEAST_PATIENCE_NS, GIVE_UP_NS = 5_000_000, 10 * CONFIRM_TIMEOUT_NS
"""The least and the most that it waits."""
PATIENCE_FACTOR = 8
"""It waits so many times as long as the slowest confirmation lately."""
DOUBT_SHIFT = 2
"""It waits four times as long for each frame before it that was not confirmed, until something shows life."""
MAX_VERDICTS = 65_536
"""Identifiers of which is remembered whether they are accepted."""
PROBE_NS = 4 * CONFIRM_TIMEOUT_NS
"""An interface that is not known and returns nothing for so long does not confirm."""
FIRST_RETRY_NS, LAST_RETRY_NS = 1_000_000, 100_000_000
"""After these times a frame that the driver refused is tried again: the first time, and at most."""


_EMPTY = [None for _ in MAILBOXES]


class DriverRefused(Exception):
    """The driver did not take a frame; `args` says why."""


class Driver(Protocol):
    """What a port wants done."""

    def send(self, frame: Frame) -> None:
        """Give a frame to the driver; DriverRefused if it does not take it now."""

    def set_filters(self, filters: tuple[Filter, ...]) -> None:
        """Set the acceptance filters."""

    def call(self, call: Call) -> None:
        """Call a handler of the program."""

    def warn(self, message: str) -> None:
        """Tell the operator something about the interface."""


class _InDriver(msgspec.Struct, eq=False):
    frame: Frame
    since: int
    quiet_since: int
    """When it was given to the driver; later by the time that frames took which outrank it."""
    replaced: bool = False
    """Whether its mailbox was loaded since."""
    has_failed: bool = False
    """Whether an attempt to send it failed, by an error frame."""
    is_overdue: bool = False
    """Whether it waited so long that all frames are let pass."""
    is_reported: bool = False
    """Whether it was reported as not confirmed."""


class DriverPort:
    """State: what waits for the driver, what the driver has, the state of the bus, and the clock of its stamps.

    All times are of the host's clock, in nanoseconds. After every call, what the machine wants was done.
    """

    def __init__(self, machine: Machine, driver: Driver, profile: InterfaceProfile, timing: Timing) -> None:
        self.machine = machine
        self._timing = timing
        self.counts = Reasons()
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
        self._verdicts: dict[int, bool] = {}
        """Whether the machine wants an identifier; those of 11 bits are inverted."""
        self._slowest_ns = 0
        """The slowest confirmation lately, which fades."""
        self._doubts = 0
        """How many frames in a row were not confirmed, without any sign that the driver is alive."""
        self._doubted_since: int | None = None
        """When the first of them was given to the driver."""
        self._is_reported = False
        """Whether it was reported that the driver does not confirm."""
        self._is_watching = False
        """Whether all frames pass, to see by them what became of a frame that is not confirmed."""
        self._is_off = self._is_polled_off = self._is_passive = False
        if self.confirmation is Confirmation.NONE:
            self._warn_of_promises()

    @property
    def is_idle(self) -> bool:
        return self._is_off or (self._waiting == _EMPTY and self._in_driver == _EMPTY)

    # -- inputs --------------------------------------------------------------------------------------------------------

    def call(self, action: Callable[[int], R], now: int) -> R:
        result = action(now)
        self._settle(now)
        return result

    def receive(self, frame: Frame, stamp_s: float, now: int, *, is_rx: bool = True) -> None:
        at = self._stamps.time_of(stamp_s, now)
        if self._is_off and is_rx:
            self._return_to_bus(now)
        mailbox = None if is_rx and self._marks_own else self._find_in_driver(frame)
        if mailbox is not None:
            if self.confirmation is Confirmation.PROBE:
                self.confirmation, self._marks_own = Confirmation.ECHO, not is_rx
            self._confirm(mailbox, at, now)
        elif self._echoes.recognise(frame, now) or (not is_rx and self._is_stray_echo()):
            self.counts["echoes ignored"] += 1
            self._end_doubts()
            return
        else:
            self._receive_from_other(frame, at, now, is_rx)
        self._settle(now)

    def ignore(self, reason: str) -> None:
        self.counts[f"ignored: {reason}"] += 1

    def error(self, report: ErrorReport, now: int) -> None:
        self.counts["error frames"] += 1
        if report.overflow:
            self.counts["receive failed: the controller's buffer overflowed"] += 1
        if report.failed and (entry := self._oldest()) is not None:
            self.counts["attempts failed"] += 1
            entry.has_failed, entry.quiet_since = True, now  # the driver still has it
            self.machine.failed(entry.frame, now)
        if report.lost and not report.failed:
            self.machine.lost(now)
        if report.dropped:
            for mailbox in MAILBOXES:
                self._give_up(mailbox, now, "dropped by the driver", maybe_sent=False)
        if report.passive is not None:
            self._set_passive(report.passive, now)
        if report.bus_off:
            self._leave_bus(now)
        elif report.restarted and self._is_off:
            self._return_to_bus(now)
        self._settle(now)

    def error_without_class(self, now: int) -> None:
        self.counts["error frames"] += 1

    def poll(self, state: str, now: int) -> None:
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
        if self._waiting == _EMPTY and self._in_driver == _EMPTY:
            return self.machine.wake_at
        times = [self.machine.wake_at]
        for mailbox in MAILBOXES:
            entry = self._in_driver[mailbox]
            if entry is not None:
                times.append(self._time_out(entry))
            elif self._waiting[mailbox] is not None and not self._is_off:
                times.append(self._retry_at[mailbox])
        return min((at for at in times if at is not None), default=None)

    def wake(self, now: int) -> None:
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
            for output in self.machine.take():
                if isinstance(output, Call):
                    self._driver.call(output)
                elif isinstance(output, Load):
                    self._load(output)
                else:
                    self._accept(output)
            if self._waiting == _EMPTY or self._is_off:
                return
            if not (self._hand_over(TIME_TRIGGERED, now) or self._hand_over_other(now)):
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
            self._in_driver[mailbox] = _InDriver(frame, now, now, is_reported=self._is_reported)
            self.machine.taken(frame, now)
        else:
            if self._profile.returns_own:
                self._echoes.expect(frame, now)
            self.counts["sent"] += 1
            self.machine.sent(frame, now)
        return True

    def _accept(self, accept: Accept) -> None:
        self._accepted = accept
        self._verdicts.clear()
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
        if self._accepted is None:
            return
        extended = [(value, mask, True) for value, mask in self._accepted.filters]
        standard = [(value, mask, False) for value, mask in self._accepted.standard]
        accepted = (*extended, *standard)
        self._driver.set_filters((*accepted, *self._own) if accepted and not self._is_watching else ())

    def _watch(self) -> None:
        """Let all frames pass while a frame is overdue: one that outranks it explains that, another is a proof."""
        is_needed = any(entry is not None and entry.is_overdue for entry in self._in_driver)
        if is_needed != self._is_watching:
            self._is_watching = is_needed
            self._set_filters()

    def _is_accepted(self, frame: Frame) -> bool:
        """Return whether the machine wants a frame: not all interfaces filter, and some pass only for echoes."""
        key = frame.id if frame.extended else ~frame.id
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._find_verdict(frame)
        return verdict

    def _find_verdict(self, frame: Frame) -> bool:
        accepted, identifier = self._accepted, frame.id
        if accepted is None or not (accepted.filters or accepted.standard):
            return frame.extended
        pairs = accepted.filters if frame.extended else accepted.standard
        return any((identifier ^ value) & mask == 0 for value, mask in pairs)

    # -- what came back ------------------------------------------------------------------------------------------------

    def _find_in_driver(self, frame: Frame) -> int | None:
        for mailbox, entry in enumerate(self._in_driver):
            if entry is not None and entry.frame.id == frame.id and entry.frame == frame:
                return mailbox
        return None

    def _is_stray_echo(self) -> bool:
        """Return whether an own frame came back that nobody waits for: its confirmation came too late."""
        return self._marks_own and not self._profile.marks_local

    def _confirm(self, mailbox: int, at: int, now: int) -> None:
        entry = self._in_driver[mailbox]
        assert entry is not None
        self._in_driver[mailbox] = None
        if self._is_watching:
            self._watch()
        self._end_doubts()
        self._slowest_ns = max(now - entry.since, self._slowest_ns - self._slowest_ns // 64)
        self.counts["sent"] += 1
        self.machine.sent(entry.frame, at)
        self.machine.wake(now)  # what is next is chosen by the present time, not by that of the stamp

    def _receive_from_other(self, frame: Frame, at: int, now: int, is_rx: bool) -> None:
        if is_rx and self._is_watching:
            self._judge_overdue(frame, now)
        verdict = self._verdicts.get(frame.id if frame.extended else ~frame.id)
        if not (self._is_accepted(frame) if verdict is None else verdict):
            return self.ignore("not subscribed to")
        self.counts["received"] += 1
        self.machine.receive(frame, at)
        if self._in_driver != _EMPTY or self._waiting != _EMPTY:
            self.machine.lost(now)
        else:
            self.machine.wake(now)

    def _judge_overdue(self, frame: Frame, now: int) -> None:
        """A frame passed while others are overdue: those that it outranks may wait, the others have left the driver."""
        key = arbitration_key(frame)
        for mailbox, entry in enumerate(self._in_driver):
            if entry is None or not entry.is_overdue:
                continue
            if self._is_passive or key < arbitration_key(
                entry.frame
            ):  # after a passive sender's frame any other may go
                entry.quiet_since = min(now, entry.quiet_since + self._timing.exact_ns(frame))
            else:
                self._give_up(mailbox, now, "never confirmed", maybe_sent=True)
                self._end_doubts()

    # -- what did not come back ----------------------------------------------------------------------------------------

    def _patience(self) -> int:
        """How long a frame waits for its confirmation on a quiet bus; longer if the controller may try and fail."""
        usual = PATIENCE_FACTOR * self._slowest_ns if self._slowest_ns else PATIENCE_NS
        if self._is_passive:
            usual = max(usual, CONFIRM_TIMEOUT_NS)
        return min(max(usual, LEAST_PATIENCE_NS) << DOUBT_SHIFT * min(self._doubts, 8), GIVE_UP_NS)

    def _time_out(self, entry: _InDriver) -> int:
        report_at = (self._doubted_since or entry.since) + CONFIRM_TIMEOUT_NS
        if self.confirmation is Confirmation.PROBE:
            return entry.since + PROBE_NS if entry.is_reported else report_at
        give_up_at = entry.quiet_since + self._patience() // 2
        return give_up_at if entry.is_reported else min(give_up_at, report_at)

    def _check_time_out(self, mailbox: int, now: int) -> None:
        entry = self._in_driver[mailbox]
        if entry is None:
            return
        if now - (self._doubted_since or entry.since) >= CONFIRM_TIMEOUT_NS and not entry.is_reported:
            entry.is_reported = self._is_reported = True
            self.counts["not confirmed in time"] += 1
            self.machine.unconfirmed(entry.frame, now, gone=False)
        if self.confirmation is Confirmation.PROBE:
            if now - entry.since >= PROBE_NS:
                entry.since = now
                if not self._is_passive:
                    self._stop_probing(now)
        elif now - entry.quiet_since >= self._patience() // 2:
            if not entry.is_overdue:
                entry.is_overdue, entry.quiet_since = True, now
                self._watch()
            else:
                self._give_up(mailbox, now, "never confirmed", maybe_sent=True)
                self._doubts += 1
                self._doubted_since = self._doubted_since or entry.since

    def _end_doubts(self) -> None:
        self._doubts, self._doubted_since, self._is_reported = 0, None, False

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

    def _warn_of_promises(self) -> None:
        self.counts["interface does not confirm what was sent"] = 1
        self._driver.warn(
            "this interface does not confirm what was sent: channels with deadlines are refused on it, "
            "others count a frame as sent when the driver took it"
        )

    def _give_up(self, mailbox: int, now: int, reason: str, *, maybe_sent: bool) -> None:
        """The driver has lost a frame, or its confirmation: send it again, unless its machine loads the mailbox."""
        entry, self._in_driver[mailbox] = self._in_driver[mailbox], None
        if entry is None:
            return
        self._watch()
        self._echoes.expect(entry.frame, now)
        self.counts[reason] += 1
        if not entry.replaced:
            self._waiting[mailbox] = entry.frame
        self.machine.unconfirmed(entry.frame, now, gone=True, maybe_sent=maybe_sent)

    def _oldest(self) -> _InDriver | None:
        entries = [entry for entry in self._in_driver if entry is not None]
        return min(entries, key=lambda entry: entry.since, default=None)

    # -- the state of the bus ------------------------------------------------------------------------------------------

    def _set_passive(self, passive: bool, now: int) -> None:
        if passive != self._is_passive:
            self._is_passive = passive
            self.counts["error passive"] += passive
            self.machine.error_passive(now, passive)

    def _leave_bus(self, now: int) -> None:
        """The controller is off the bus: what the driver had is lost, and the mailboxes are empty.

        A frame whose attempts failed was not sent: that is why the controller is off.
        """
        if self._is_off:
            return
        self._is_off = True
        self.counts["bus off"] += 1
        for mailbox, entry in enumerate(self._in_driver):
            if entry is not None:
                self._give_up(mailbox, now, "in the driver at bus off", maybe_sent=not entry.has_failed)
        self._waiting = [None for _ in MAILBOXES]
        self._end_doubts()
        self.machine.bus_off(now)

    def _return_to_bus(self, now: int) -> None:
        self._is_off = self._is_polled_off = False
        self._set_passive(False, now)
        self.machine.bus_on(now)
