"""Fault confinement (ISO 11898-1): the error counters of the controllers on a bus, who waits, who is off it."""

from collections.abc import Callable
from typing import Protocol

from genus.can._sim.controller import OFF_ABOVE, PASSIVE_ABOVE, Controller
from genus.can._sim.fault_hooks import Outcome
from genus.can._wire.length import Timing

FAILED_TO_SEND = 8
SUSPENSION_BITS = 8
RECOVERIES, RECESSIVE_BITS = 128, 11


class ConfinedBus(Protocol):
    """What fault confinement needs of its bus."""

    timing: Timing
    exact_lengths: bool
    controllers: dict[Controller, None]

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""

    @property
    def idle(self) -> bool:
        """Whether no frame is being sent."""

    def at(self, time_ns: int, callback: Callable[[], object]) -> None:
        """Call back at a time."""

    def contend(self, controller: Controller, key: int) -> None:
        """Let a controller take part in arbitration."""

    def hold(self, controller: Controller) -> None:
        """A controller may have to wait though it has a frame."""

    def take_care(self) -> None:
        """The next frame needs more than the quick path."""

    def forget_hearers(self) -> None:
        """A controller left the bus or came back."""


class Confinement:
    """State: which controllers of a bus have errors counted, and which are off and wait to come back.

    Switched off, nothing is counted: a station may fail for ever and stay on the bus.
    """

    def __init__(self, bus: ConfinedBus, *, on: bool) -> None:
        self._bus = bus
        self._on = on
        self._eleven_ns = RECESSIVE_BITS * bus.timing.bit_ns
        self._suspension_ns = SUSPENSION_BITS * bus.timing.bit_ns if bus.exact_lengths else 0
        self._quiet_since = 0
        self.troubled: dict[Controller, None] = {}
        """Those whose counters are not 0."""
        self.recovering: list[Controller] = []
        """Those off the bus."""

    def join(self, controller: Controller) -> None:
        """A controller comes to the bus, with the counters it has."""
        if controller.tec or controller.rec:
            self.troubled[controller] = None
        if controller.off:
            self._await(controller)

    def leave(self, controller: Controller) -> None:
        """A controller leaves the bus."""
        self.troubled.pop(controller, None)
        self.recovering = [each for each in self.recovering if each is not controller]

    def frame_was_good(self, senders: list[Controller], now: int) -> None:
        """Everybody counts down."""
        for controller in list(self.troubled):
            if controller in senders:
                self._suspend(controller, now)
                controller.tec = max(controller.tec - 1, 0)
            else:
                controller.heard_good()
            if not controller.tec and not controller.rec:
                self.troubled.pop(controller, None)

    def frame_was_bad(self, senders: list[Controller], outcome: Outcome) -> None:
        """Everybody counts up; a station alone on the bus stops counting when it is error passive."""
        if not self._on:
            return
        for controller in self._bus.controllers:
            if controller in senders:
                if outcome is not Outcome.UNHEARD or controller.tec <= PASSIVE_ABOVE:
                    controller.tec += FAILED_TO_SEND
            elif not controller.off and outcome is not Outcome.DUPLICATE:
                controller.rec = min(controller.rec + 1, PASSIVE_ABOVE + 1)
            self.troubled[controller] = None

    def judge_sender(self, sender: Controller, now: int) -> None:
        """After a failure: a sender with many errors waits, one with too many goes off the bus."""
        if sender.tec > OFF_ABOVE:
            self._switch_off(sender, now)
        else:
            self._suspend(sender, now)

    def _suspend(self, sender: Controller, now: int) -> None:
        if sender.is_passive and self._suspension_ns:
            sender.suspended_ns = now + self._suspension_ns
            self._bus.hold(sender)

    def _switch_off(self, sender: Controller, now: int) -> None:
        sender.clear()
        sender.off = True
        self._bus.forget_hearers()
        self._await(sender)
        if sender.on_bus_off is not None:
            sender.on_bus_off(now)

    def _await(self, controller: Controller) -> None:
        """The end of the frame at which it went off does not count, hence one more."""
        if self._bus.idle:
            self.bus_is_busy(self._bus.now)
        controller.recovery = RECOVERIES + (not self._bus.idle)
        self.recovering.append(controller)
        self._bus.take_care()
        if self._bus.idle:
            self.bus_is_idle(self._bus.now)

    # Recovery: 128 times 11 recessive bits, which each frame ends with and an idle bus is full of

    def bus_is_busy(self, now: int) -> None:
        """A frame starts: count the idle bits before it."""
        passed = (now - self._quiet_since) // self._eleven_ns
        for controller in self.recovering:
            controller.recovery -= passed
        self._quiet_since += passed * self._eleven_ns

    def frame_ended(self, now: int) -> None:
        """The end of a frame, or of an error frame, has 11 recessive bits."""
        for controller in self.recovering:
            controller.recovery -= 1
        self._return_to_bus(now)
        self.bus_is_idle(now)

    def bus_is_idle(self, now: int) -> None:
        """Idle bits count from here on."""
        self._quiet_since = now
        self._arrange_to_look()

    def _arrange_to_look(self) -> None:
        """When the first would have heard enough, if the bus stays idle."""
        if self.recovering:
            least = min(controller.recovery for controller in self.recovering)
            self._bus.at(self._quiet_since + least * self._eleven_ns, self._look)

    def _look(self) -> None:
        if self._bus.idle:
            self.bus_is_busy(self._bus.now)
            self._return_to_bus(self._bus.now)
            self._arrange_to_look()

    def _return_to_bus(self, now: int) -> None:
        back = [controller for controller in self.recovering if controller.recovery <= 0]
        self.recovering = [controller for controller in self.recovering if controller.recovery > 0]
        for controller in back:
            self._switch_on(controller, now)

    def _switch_on(self, controller: Controller, now: int) -> None:
        controller.tec = controller.rec = 0
        controller.off = False
        self.troubled.pop(controller, None)
        self._bus.forget_hearers()
        self._bus.contend(controller, controller.key)
        if controller.on_bus_on is not None:
            controller.on_bus_on(now)
