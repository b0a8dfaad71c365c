"""What goes wrong with a frame, how long that takes, and what controllers do about it.

Fault hooks decide the result of each transmission. Fault confinement (ISO 11898-1) has the error counters of the
controllers on a bus, suspension, bus-off and recovery.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import Protocol, TypeAlias

import msgspec

from genus.can._sim.controller import Controller
from genus.can._wire.frame import (
    ACTIVE_ERROR_BITS,
    FD_SIZES,
    OFF_ABOVE,
    PASSIVE_ABOVE,
    SHORTEST_ERROR_BITS,
    SUSPENSION_BITS,
    TEC_PER_FAILURE,
    Frame,
    Timing,
    padded_size,
)

INTERMISSION_BITS = 3
AFTER_ACKNOWLEDGEMENT_BITS = 11
"""Bits of a frame after its acknowledgement slot: delimiter 1, end of frame 7, intermission 3."""


class Transmission(msgspec.Struct, frozen=True, gc=False):
    """A frame that has just won arbitration, as fault hooks get it."""

    frame: Frame
    sender: int
    """The number of the station, which is not always the node number in the identifier."""
    start_ns: int
    bits: int
    """The length of the frame with its intermission, in bit times."""
    attempt: int
    """How often this frame has failed since it was loaded."""
    receivers: tuple[int, ...]
    """The stations whose filters accept the frame."""

    def end_ns(self, timing: Timing) -> int:
        return self.start_ns + timing.bits_ns(self.bits)


class Corrupt(msgspec.Struct, frozen=True, gc=False):
    """An error after this many bits: the frame is cut off, no station receives it, its sender retries."""

    bit: int
    echo: int = 6
    """Bits of error flag added by nodes that detected only the first flag: 0 to 6."""


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit, after the receivers accepted the frame: its sender sends it again."""


class MissedBy(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit but one, at some stations only: these miss the frame, its sender does not notice."""

    stations: tuple[int, ...]


class Late(msgspec.Struct, frozen=True, gc=False):
    """Receivers get the frame after the next one of the same sender and event tag."""


class FrameOutcome(StrEnum):
    """How a transmission ended; traces contain these texts."""

    SENT = "sent"
    ERROR = "error"
    """Corrupted on the way."""
    COLLISION = "collision"
    """Two stations sent different frames with the same identifier."""
    NOT_ACKNOWLEDGED = "unheard"
    """No other station was on the bus to acknowledge the frame."""
    CUT = "cut"
    """The sender crashed or was detached from the bus while sending."""
    DUPLICATE = "duplicate"
    """Received, and sent again."""
    LATE = "late"
    """Sent, and received after the next frame of the same sender and event tag."""

    @property
    def is_good(self) -> bool:
        """Whether the frame counts as sent at its sender."""
        return self is FrameOutcome.SENT or self is FrameOutcome.LATE


class TransmissionResult(msgspec.Struct, frozen=True):
    """The combined effect of all hooks on one transmission."""

    outcome: FrameOutcome
    bit: int = 0
    echo: int = 6
    missed_by: frozenset[int] = frozenset()

    @property
    def is_delivered(self) -> bool:
        return self.outcome.is_good or self.outcome is FrameOutcome.DUPLICATE


FaultEffect: TypeAlias = Corrupt | Duplicate | MissedBy | Late
FaultHook: TypeAlias = Callable[[Transmission], FaultEffect | None]


def combine_effects(hooks: list[FaultHook], transmission: Transmission) -> TransmissionResult | None:
    """Call all hooks, each of which may use its random generator, and combine their effects; the worst one counts.

    >>> frame = Transmission(Frame(1), 1, 0, 80, 0, (2, 3))
    >>> combine_effects([lambda _: MissedBy((2,)), lambda _: MissedBy((3,)), lambda _: None], frame).missed_by == {2, 3}
    True
    >>> combine_effects([lambda _: Late(), lambda _: Corrupt(20)], frame).outcome
    <FrameOutcome.ERROR: 'error'>
    """
    effects: list[FaultEffect] | None = None
    for hook in hooks:
        effect = hook(transmission)
        if effect is not None:
            effects = [effect] if effects is None else [*effects, effect]
    return None if effects is None else _combine(effects)


def _combine(effects: list[FaultEffect]) -> TransmissionResult:
    errors = [effect for effect in effects if isinstance(effect, Corrupt)]
    if errors:
        first = min(errors, key=lambda error: error.bit)
        return TransmissionResult(FrameOutcome.ERROR, first.bit, first.echo)
    kinds = {type(effect) for effect in effects}
    missed_by = frozenset(station for effect in effects if isinstance(effect, MissedBy) for station in effect.stations)
    late = FrameOutcome.LATE if Late in kinds else FrameOutcome.SENT
    return TransmissionResult(FrameOutcome.DUPLICATE if Duplicate in kinds else late, missed_by=missed_by)


class FrameDurations:
    """How long the frames of a bus take.

    >>> exact, worst = FrameDurations(Timing(500_000), exact=True), FrameDurations(Timing(500_000), exact=False)
    >>> frame = Frame(0x0021_6010, b"hello")
    >>> exact.frame_ns(frame), worst.frame_ns(frame)
    (220000, 260000)
    >>> error = TransmissionResult(FrameOutcome.ERROR, bit=40, echo=6)
    >>> exact.busy_ns(220_000, error), worst.busy_ns(260_000, error)
    (126000, 322000)
    """

    def __init__(self, timing: Timing, *, exact: bool) -> None:
        self.timing = timing
        self.exact = exact
        self.frame_ns: Callable[[Frame], int] = timing.exact_ns if exact else self._longest_ns
        """How long a frame takes with its intermission, in nanoseconds."""

    def _longest_ns(self, frame: Frame) -> int:
        return self.timing.worst_case_ns(len(frame.data), fd=frame.fd, extended=frame.extended)

    def busy_ns(self, frame_ns: int, result: TransmissionResult, *, suspended: bool = False) -> int:
        """Return how long the bus is busy with a frame of this length that ends with this result.

        The longest error includes the suspension of its sender; if the sender is `suspended` the bus is free then.
        """
        if result.outcome.is_good:
            return frame_ns
        if not self.exact:
            return frame_ns + (self.timing.bits_ns(ACTIVE_ERROR_BITS) if suspended else self.timing.error_ns)
        whole = frame_ns - self.timing.bits_ns(INTERMISSION_BITS)
        cut = whole if result.outcome is FrameOutcome.DUPLICATE else min(whole, self.timing.bits_ns(result.bit))
        return cut + self.timing.bits_ns(SHORTEST_ERROR_BITS + result.echo)


def bits_until_difference(frames: Iterable[Frame]) -> int:
    """How many bits, without stuff bits, frames of one identifier have up to and including the first that differs.

    >>> bits_until_difference([Frame(5, b"abc"), Frame(5, b"abd")])
    61
    """
    given = list(frames)
    before = 33 if given[0].extended else 14
    columns = zip(*map(_bits_after_identifier, given), strict=False)
    return before + sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns)) + 1


def _bits_after_identifier(frame: Frame) -> str:
    code = FD_SIZES.index(padded_size(len(frame.data)))
    return f"{frame.fd:b}0{code:04b}" + "".join(f"{byte:08b}" for byte in frame.data)


RECOVERY_SEQUENCES, RECOVERY_SEQUENCE_BITS = 128, 11
"""A controller is back on the bus after so many sequences of so many recessive bits."""


class ConfinedBus(Protocol):
    """What fault confinement needs of its bus."""

    timing: Timing
    controllers: dict[Controller, None]

    @property
    def now(self) -> int: ...
    @property
    def idle(self) -> bool: ...
    def at(self, time_ns: int, callback: Callable[[], object]) -> None: ...
    def contend(self, controller: Controller, key: int) -> None: ...
    def restrict(self, controller: Controller) -> None: ...
    def use_slow_path(self) -> None: ...
    def clear_receiver_caches(self) -> None: ...


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
