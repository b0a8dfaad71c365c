"""Fault confinement (ISO 11898-1): error counters of the controllers on a bus, suspension, bus-off and recovery."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from genus.can._sim.controller import Controller
from genus.can._sim.fault_hooks import FrameOutcome
from genus.can._wire.confinement import OFF_ABOVE, PASSIVE_ABOVE, SUSPENSION_BITS, TEC_PER_FAILURE
from genus.can._wire.length import Timing

RECOVERY_SEQUENCES, RECOVERY_SEQUENCE_BITS = 128, 11
"""A controller is back on the bus after so many sequences of so many recessive bits."""


class ConfinedBus(Protocol):
    """What fault confinement needs of its bus."""

    timing: Timing
    controllers: dict[Controller, None]

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""

    @property
    def idle(self) -> bool:
        """Whether no frame is being sent."""

    def at(self, time_ns: int, callback: Callable[[], object]) -> None:
        """Schedule a callback."""

    def contend(self, controller: Controller, key: int) -> None:
        """Let a controller take part in arbitration."""

    def restrict(self, controller: Controller) -> None:
        """Check at each arbitration whether this controller may send."""

    def use_slow_path(self) -> None:
        """Handle the next frame on the path that checks everything."""

    def clear_receiver_caches(self) -> None:
        """Determine anew which controllers receive which frames."""


class ErrorConfinement:
    """State: which controllers of a bus have counted errors, and which are off the bus and recover.

    Switched off, no errors are counted: a station may fail forever and stays on the bus.
    """

    def __init__(self, bus: ConfinedBus, *, on: bool) -> None:
        self._bus = bus
        self._on = on
        self._sequence_ns = bus.timing.bits_ns(RECOVERY_SEQUENCE_BITS)
        self._suspension_ns = bus.timing.bits_ns(SUSPENSION_BITS)
        self._idle_since = 0
        self.with_errors: dict[Controller, None] = {}
        """Controllers whose counters are not 0."""
        self.recovering: list[Controller] = []
        """Controllers that are off the bus."""

    def add(self, controller: Controller) -> None:
        """Add a controller that was attached to the bus, with its counters."""
        self.counters_changed(controller)
        if controller.off:
            self._start_recovery(controller)

    def remove(self, controller: Controller) -> None:
        """Remove a controller that was detached from the bus."""
        self.with_errors.pop(controller, None)
        self.recovering = [each for each in self.recovering if each is not controller]

    def counters_changed(self, controller: Controller) -> None:
        """Note the counters of a controller; it says so at this instant if they reached or left the warning limit."""
        if controller.tec or controller.rec:
            self.with_errors[controller] = None
        else:
            self.with_errors.pop(controller, None)
        if controller.has_warning is not controller.warned:
            self._bus.at(self._bus.now, partial(self._report, controller))

    def _report(self, controller: Controller) -> None:
        if controller.has_warning is not controller.warned and controller.bus is not None:
            controller.warned = controller.has_warning
            if controller.on_error_passive is not None:
                controller.on_error_passive(self._bus.now, controller.warned)

    def suspends_after_failure(self, sender: Controller) -> bool:
        """Return whether a sender will be error passive if the frame that it sends now fails."""
        return self._on and (sender.is_passive or sender.tec + TEC_PER_FAILURE > PASSIVE_ABOVE)

    def count_good_frame(self, senders: list[Controller], now: int) -> None:
        """Lower the counters of all controllers after a good frame."""
        for controller in list(self.with_errors):
            if controller in senders:
                self._suspend(controller, now)
                controller.tec = max(controller.tec - 1, 0)
            else:
                controller.count_good_frame()

    def count_bad_frame(self, senders: list[Controller], outcome: FrameOutcome) -> None:
        """Raise the counters of all controllers; a station alone on the bus stops counting when it is error passive."""
        if not self._on:
            return
        for controller in self._bus.controllers:
            if controller in senders:
                if outcome is not FrameOutcome.NOT_ACKNOWLEDGED or controller.tec <= PASSIVE_ABOVE:
                    controller.tec += TEC_PER_FAILURE
            elif not controller.off and outcome is not FrameOutcome.DUPLICATE:
                controller.rec = min(controller.rec + 1, PASSIVE_ABOVE + 1)

    def check_sender(self, sender: Controller, now: int) -> None:
        """After a failure: suspend a sender that is error passive, switch off one with too many errors."""
        if sender.tec > OFF_ABOVE:
            self._switch_off(sender, now)
        else:
            self._suspend(sender, now)

    def _suspend(self, sender: Controller, now: int) -> None:
        if sender.is_passive:
            sender.suspended_until_ns = now + self._suspension_ns
            self._bus.restrict(sender)

    def _switch_off(self, sender: Controller, now: int) -> None:
        sender.clear()
        sender.off = True
        self._bus.clear_receiver_caches()
        self._start_recovery(sender)
        if sender.on_bus_off is not None:
            sender.on_bus_off(now)

    # Recovery: each frame ends with a sequence of 11 recessive bits, and an idle bus consists of them

    def _start_recovery(self, controller: Controller) -> None:
        """Count one sequence more on a busy bus: the end of the frame with which it went off does not count."""
        if self._bus.idle:
            self.count_idle_bits(self._bus.now)
        controller.recovery = RECOVERY_SEQUENCES + (not self._bus.idle)
        self.recovering.append(controller)
        self._bus.use_slow_path()
        if self._bus.idle:
            self._start_idle(self._bus.now)

    def count_idle_bits(self, now: int) -> None:
        """Count the sequences of idle bits until now, when a frame starts or the recovery is checked."""
        passed = (now - self._idle_since) // self._sequence_ns
        for controller in self.recovering:
            controller.recovery -= passed
        self._idle_since += passed * self._sequence_ns

    def frame_ended(self, now: int) -> None:
        """Count the sequence at the end of a frame or error frame."""
        for controller in self.recovering:
            controller.recovery -= 1
        self._end_recoveries(now)
        self._start_idle(now)

    def _start_idle(self, now: int) -> None:
        self._idle_since = now
        self._schedule_check()

    def _schedule_check(self) -> None:
        """Check when the first controller has recovered if the bus stays idle."""
        if self.recovering:
            least = min(controller.recovery for controller in self.recovering)
            self._bus.at(self._idle_since + least * self._sequence_ns, self._check_recovery)

    def _check_recovery(self) -> None:
        if self._bus.idle:
            self.count_idle_bits(self._bus.now)
            self._end_recoveries(self._bus.now)
            self._schedule_check()

    def _end_recoveries(self, now: int) -> None:
        recovered = [controller for controller in self.recovering if controller.recovery <= 0]
        self.recovering = [controller for controller in self.recovering if controller.recovery > 0]
        for controller in recovered:
            self._switch_on(controller, now)

    def _switch_on(self, controller: Controller, now: int) -> None:
        controller.tec = controller.rec = 0
        controller.off = False
        self._bus.clear_receiver_caches()
        self._bus.contend(controller, controller.key)
        if controller.on_bus_on is not None:
            controller.on_bus_on(now)
