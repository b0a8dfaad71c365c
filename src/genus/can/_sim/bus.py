"""One CAN segment in virtual time: arbitration bit by bit, frame lengths, errors and error frames.

A frame starts when the bus is idle and all callbacks of that instant were made. The bus is free again after the frame's
intermission; at that instant the controllers are called: first the receivers, then the sender, then those that lost
arbitration. A corrupted frame ends at its bad bit and is followed by the error frame: flag 6, echo 0 to 6, delimiter 8,
intermission 3. With `exact_lengths=False` every frame has its maximum length and every error takes the whole frame and
31 bits, as in response-time analysis (Davis et al. 2007); the last 8 of these are the suspension of a sender that is
error passive, in which other stations may begin.

Most frames take a quick path: one sender, no fault hooks, no restrictions. `use_slow_path` selects the other path for
the frames that need more.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappush
from operator import attrgetter

from genus.can._sim.controller import NO_KEY, Controller, FrameHook
from genus.can._sim.errors import (
    AFTER_ACKNOWLEDGEMENT_BITS,
    ErrorConfinement,
    FaultHook,
    FrameDurations,
    FrameOutcome,
    Transmission,
    TransmissionResult,
    bits_until_difference,
    combine_effects,
)
from genus.can._sim.scheduler import NEVER, Callback, Scheduler
from genus.can._sim.trace import BusFrame, Trace
from genus.can._wire.frame import ACTIVE_ERROR_BITS, Frame, Timing, arbitration_key
from genus.errors import BusError

_NOT_BUSY = -1
_MAX_CACHED_IDENTIFIERS = 1 << 16
"""For how many identifiers of a sender the receivers are cached."""
_MAX_CACHED_LENGTHS = 1 << 16
_SENT = FrameOutcome.SENT
_by_key = attrgetter("key")


class Delivery:
    """State: which controllers of a bus receive which frames, and the frames that are delivered late."""

    def __init__(self, controllers: Iterable[Controller]) -> None:
        self._controllers = controllers
        self.late: dict[tuple[int, int], tuple[Frame, list[Controller]]] = {}
        """Frames to deliver after the next one of the same sender and event tag, by these."""

    def clear_caches(self) -> None:
        for controller in self._controllers:
            controller.receivers.clear()

    def find_receivers(self, sender: Controller, frame: Frame) -> tuple[tuple[FrameHook, ...], tuple[int, ...]]:
        """The hooks to call with a frame of this sender, and the numbers of all receivers; cached by identifier."""
        key = frame.id if frame.extended else ~frame.id
        return sender.receivers.get(key) or self._add_to_cache(sender, frame, key)

    def _add_to_cache(
        self, sender: Controller, frame: Frame, key: int
    ) -> tuple[tuple[FrameHook, ...], tuple[int, ...]]:
        if len(sender.receivers) >= _MAX_CACHED_IDENTIFIERS:
            sender.receivers.clear()
        receivers = self._accepting([sender], frame)
        hooks = tuple(each.on_receive for each in receivers if each.on_receive is not None)
        found = sender.receivers[key] = hooks, tuple(each.number for each in receivers)
        return found

    def split_receivers(
        self, senders: list[Controller], frame: Frame, result: TransmissionResult
    ) -> tuple[list[Controller], tuple[int, ...]]:
        """Return the controllers that receive the frame, and the numbers of those that miss it."""
        accepting = self._accepting(senders, frame) if result.is_delivered else []
        receivers = [each for each in accepting if each.number not in result.missed_by]
        return receivers, tuple(each.number for each in accepting if each.number in result.missed_by)

    def deliver(self, sender: Controller, frame: Frame, receivers: list[Controller], now: int, *, late: bool) -> None:
        """Deliver a frame, or keep it if it is late; then deliver the one that was kept before it."""
        key = sender.number, frame.etag
        kept = self.late.pop(key, None)
        if late:
            self.late[key] = frame, receivers
        else:
            _call_receivers(frame, receivers, now)
        if kept is not None:
            _call_receivers(*kept, now)

    def _accepting(self, senders: list[Controller], frame: Frame) -> list[Controller]:
        return [each for each in self._controllers if not each.off and each not in senders and each.accepts(frame)]


def _call_receivers(frame: Frame, receivers: list[Controller], now: int) -> None:
    for each in receivers:
        if each.on_receive is not None and each.bus is not None:
            each.on_receive(frame, now)


class SimBus:
    """State: a medium, the controllers on it, and the frame that is on the wire.

    `fault_hooks` are called with each transmission. `rank` replaces the identifier in arbitration: the smallest number
    wins, the identifier decides between equals. `confinement=False` keeps error counters at 0, so that a station that
    fails stays on the bus. With `allow_lone_sender=False` a frame fails that no other station acknowledges, as on a
    real bus.

    >>> from genus.can._sim.controller import ControllerListener
    >>> class Logger(ControllerListener):
    ...     def receive(self, frame: Frame, now: int) -> None:
    ...         print(now, frame)
    >>> bus = SimBus(Timing(1_000_000))
    >>> one, two, _ = (bus.attach(Controller(n, Logger() if n == 3 else None)) for n in (1, 2, 3))
    >>> one.load(0, Frame(0x200, b"late"))
    >>> two.load(0, Frame(0x100, b"early"))
    >>> bus.run(1_000_000)
    112000 Frame(0x00000100, 6561726c79)
    216000 Frame(0x00000200, 6c617465)
    """

    __slots__ = (
        "_arbitrate_callback", "_arbitration_at", "_confinement", "_cut_off_senders", "_delivery", "_durations",
        "_end_callback", "_ends", "_fault_hooks", "_frame", "_heap", "_last", "_length_of", "_lengths", "_losers",
        "_order", "_ready", "_restricted", "_result", "_senders", "_slow_path", "_start_ns", "_with_errors",
        "allow_lone_sender", "busy_ns", "controllers", "errors", "exact_lengths", "frames", "key", "pending",
        "scheduler", "segment", "timing", "trace",
    )  # fmt: skip

    def __init__(
        self,
        timing: Timing | int = 1_000_000,
        *,
        scheduler: Scheduler | None = None,
        exact_lengths: bool = True,
        fault_hooks: Iterable[FaultHook] = (),
        trace: Trace | None = None,
        rank: Callable[[Frame], int] | None = None,
        confinement: bool = True,
        allow_lone_sender: bool = True,
    ) -> None:
        self.timing = Timing(timing) if isinstance(timing, int) else timing
        self.scheduler = scheduler or Scheduler()
        self.exact_lengths = exact_lengths
        self.trace = trace
        self.allow_lone_sender = allow_lone_sender
        self.frames = self.errors = 0
        """How many frames were sent, and how many transmissions failed."""
        self.busy_ns = 0
        """How long the bus was not idle."""
        self.controllers: dict[Controller, None] = {}
        self.pending: dict[Controller, None] = {}
        """The controllers that have a frame to send."""
        self.key = arbitration_key if rank is None else _ranked_key(rank)
        self.segment = self.scheduler.buses
        """The number of this bus in the simulation, as traces contain it."""
        self._fault_hooks = list(fault_hooks)
        self._restricted: set[Controller] = set()
        self._slow_path = True
        """Whether the next frame takes the slow path."""
        self._confinement = ErrorConfinement(self, on=confinement)
        self._with_errors = self._confinement.with_errors
        self._delivery = Delivery(self.controllers)
        self._durations = FrameDurations(self.timing, exact=exact_lengths)
        self._lengths: dict[Frame, int] = {}
        self._length_of = self._lengths.get
        self._order = self.scheduler.add_bus()
        self._heap, self._last = self.scheduler.heap, self.scheduler.last
        self._arbitrate_callback, self._end_callback = self._arbitrate, self._finish
        self._ready = True
        """Whether the bus is idle and no arbitration is due."""
        self._frame = Frame(0)
        self._senders: list[Controller] = []
        self._cut_off_senders: tuple[int, ...] = ()
        self._losers: Sequence[Controller] = ()
        self._start_ns, self._ends, self._arbitration_at = 0, _NOT_BUSY, 0
        self._result: TransmissionResult | None = None

    @property
    def now(self) -> int:
        return self.scheduler.now

    @property
    def idle(self) -> bool:
        return self._ends == _NOT_BUSY

    def at(self, time_ns: int, callback: Callback) -> None:
        self.scheduler.at(time_ns, callback)

    def run(self, until_ns: int) -> None:
        self.scheduler.run(until_ns)

    # Controllers

    def attach(self, controller: Controller) -> Controller:
        """Attach a controller to the bus, with the frames in its mailboxes; BusError if it is on a bus already."""
        if controller.bus is not None:
            raise BusError(f"station {controller.number} is on a bus already")
        controller.bus = self
        self.controllers[controller] = None
        if controller.guardian is not None:
            self.restrict(controller)
        self.clear_receiver_caches()
        controller.reload()
        self._confinement.add(controller)
        return controller

    def detach(self, controller: Controller) -> Controller:
        """Detach a controller; a frame it is sending is cut off. BusError if it is not on this bus."""
        if controller.bus is not self:
            raise BusError(f"station {controller.number} is not on this bus")
        if controller.on_wire >= 0:
            self._cut_off(controller)
        self._confinement.remove(controller)
        self._restricted.discard(controller)
        self.pending.pop(controller, None)
        self._losers = [loser for loser in self._losers if loser is not controller]
        del self.controllers[controller]
        controller.bus = None
        self.clear_receiver_caches()
        return controller

    def contend(self, controller: Controller, key: int) -> None:
        """Let a controller take part in arbitration with this key, or no longer if it is `NO_KEY`."""
        if key is NO_KEY:
            self.pending.pop(controller, None)
            return
        self.pending[controller] = None
        if self._ready:
            self._ready = False
            self._last.append(self._arbitrate_callback)

    def restrict(self, controller: Controller) -> None:
        """Check at each arbitration whether this controller may send: it has a guardian, or is suspended."""
        self._restricted.add(controller)
        self.use_slow_path()

    def add_fault_hook(self, hook: FaultHook) -> None:
        self._fault_hooks.append(hook)
        self.use_slow_path()

    def use_slow_path(self) -> None:
        """Handle the next frame on the path that checks everything."""
        self._slow_path = True

    def clear_receiver_caches(self) -> None:
        self._delivery.clear_caches()

    def error_counters_changed(self, controller: Controller) -> None:
        self._confinement.counters_changed(controller)

    def _cut_off(self, controller: Controller) -> None:
        """Remove a sender during or at the end of its frame; others that send the same frame continue."""
        controller.on_wire = -1
        if self._ends <= self.now:
            return
        self._cut_off_senders += controller.senders
        self._senders = [sender for sender in self._senders if sender is not controller]
        if not self._senders:
            self._result = TransmissionResult(FrameOutcome.CUT)
            self._heap.remove((self._ends, self._order, self._end_callback))
            heapify(self._heap)
            self._ends = self.now + self.timing.bits_ns(ACTIVE_ERROR_BITS)
            heappush(self._heap, (self._ends, self._order, self._end_callback))

    # Arbitration

    def _arbitrate(self) -> None:
        if self._restricted:
            self._arbitrate_restricted()
            return
        pending = self.pending
        if len(pending) == 1:
            (winner,) = pending
            self._losers = ()
            self._start([winner], winner.key)
        elif pending:
            best = min(pending, key=_by_key).key
            self._losers = [each for each in pending if each.key != best]
            self._start([each for each in pending if each.key == best], best)
        else:
            self._ready = True

    def _arbitrate_restricted(self) -> None:
        """Arbitrate while some controllers have guardians or are suspended: each with the key it may use now."""
        now = self.scheduler.now
        self._restricted = {each for each in self._restricted if each.guardian or each.suspended_until_ns > now}
        keys = {each: each.available_key(now) for each in self.pending}
        self._schedule_arbitration(min((at for _, at in keys.values() if at > now), default=NEVER))
        best = min((key for key, _ in keys.values()), default=NO_KEY)
        if best < NO_KEY:
            self._losers = [each for each, (key, _) in keys.items() if key != best]
            self._start([each for each, (key, _) in keys.items() if key == best], best)
        else:
            self._ready = True

    def _schedule_arbitration(self, at_ns: int) -> None:
        """Arbitrate at a time, unless an arbitration is scheduled before."""
        if at_ns < NEVER and not self.scheduler.now < self._arbitration_at <= at_ns:
            self._arbitration_at = at_ns
            self.scheduler.at(at_ns, self._arbitrate_if_idle)

    def _arbitrate_if_idle(self) -> None:
        if self.idle:
            self._call_admitted()
        if self._ready:
            self._ready = False
            self._last.append(self._arbitrate_callback)

    def _call_admitted(self) -> None:
        """Call stations that were held back on an idle bus and may send now: less time is left for their frames."""
        now = self.scheduler.now
        for each in [each for each in self.pending if each in self._restricted]:
            if each.on_lost is not None and each.available_key(now)[0] < NO_KEY:
                each.on_lost(now)

    # From the start to the end of a frame

    def _start(self, senders: list[Controller], key: int) -> None:
        for sender in senders:
            sender.on_wire = mailbox = sender.keys.index(key)
            sender.replaced = False
        frame = sender.frames[mailbox]
        assert frame is not None
        length = self._length_of(frame) or self._measure(frame)
        self._frame, self._senders, self._result = frame, senders, None
        self._start_ns = now = self.scheduler.now
        if self._slow_path or len(senders) > 1:
            length = self._start_slow_path(length)
        self._ends = ends = now + length
        heappush(self._heap, (ends, self._order, self._end_callback))

    def _measure(self, frame: Frame) -> int:
        if len(self._lengths) >= _MAX_CACHED_LENGTHS:
            self._lengths.clear()
        length = self._lengths[frame] = self._durations.frame_ns(frame)
        return length

    def _start_slow_path(self, length_ns: int) -> int:
        """Count idle bits, inform guardians, determine the result of the transmission; returns how long it takes."""
        recovering = self._confinement.recovering
        self._slow_path = bool(self._fault_hooks or self._restricted or recovering or not self.allow_lone_sender)
        if recovering:
            self._confinement.count_idle_bits(self._start_ns)
        if self._restricted:
            self._inform_guardians()
        self._result = result = self._determine_result(self.timing.bits_in(length_ns))
        if result is None:
            return length_ns
        suspended = any(map(self._confinement.suspends_after_failure, self._senders))
        return self._durations.busy_ns(length_ns, result, suspended=suspended)

    def _inform_guardians(self) -> None:
        for sender in self._senders:
            if sender.guardian is not None:
                sender.guardian.frame_started(self._frame, self._start_ns)

    def _determine_result(self, bits: int) -> TransmissionResult | None:
        """The result by the rules of the bus and by the fault hooks; None for a frame that takes the quick path."""
        several = len(self._senders) > 1
        result = self._find_bus_error(bits) if several or not self.allow_lone_sender else None
        if result is None and self._fault_hooks:
            result = self._call_fault_hooks(bits)
        if result is None and (several or self._delivery.late):
            return TransmissionResult(_SENT)
        return result

    def _find_bus_error(self, bits: int) -> TransmissionResult | None:
        """Return a collision, or a missing acknowledgement."""
        frames = {frame for sender in self._senders if (frame := sender.frames[sender.on_wire]) is not None}
        if len(frames) > 1:
            return TransmissionResult(FrameOutcome.COLLISION, bits_until_difference(frames))
        if not self.allow_lone_sender and all(each.off or each in self._senders for each in self.controllers):
            return TransmissionResult(FrameOutcome.NOT_ACKNOWLEDGED, bits - AFTER_ACKNOWLEDGEMENT_BITS)
        return None

    def _call_fault_hooks(self, bits: int) -> TransmissionResult | None:
        sender = self._senders[0]
        numbers = self._delivery.find_receivers(sender, self._frame)[1]
        attempt = sender.attempts[sender.on_wire]
        transmission = Transmission(self._frame, sender.number, self._start_ns, bits, attempt, numbers)
        return combine_effects(self._fault_hooks, transmission)

    def _finish(self) -> None:
        """A frame or its error frame has ended, with the intermission after it."""
        now = self._ends
        if self._result is not None:
            self._finish_slow_path(self._result, now)
        else:
            frame, sender = self._frame, self._senders[0]
            cached = sender.receivers.get(frame.id if frame.extended else ~frame.id)
            hooks, numbers = cached or self._delivery.find_receivers(sender, frame)
            self.frames += 1
            if self.trace is not None:
                self.trace.record(
                    BusFrame(self._start_ns, now, frame, sender.senders, _SENT, numbers, (), self.segment)
                )
            for on_receive in hooks:
                on_receive(frame, now)
            sender.finish_sent(frame, now)
            if self._with_errors:
                self._confinement.count_good_frame(self._senders, now)
        self.busy_ns += now - self._start_ns
        for loser in self._losers:
            if loser.on_lost is not None and loser.bus is self:
                loser.on_lost(now)
        self._ends = _NOT_BUSY
        if self._slow_path and self._confinement.recovering:
            self._confinement.frame_ended(now)
        if self.pending:
            self._last.append(self._arbitrate_callback)
        else:
            self._ready = True

    def _finish_slow_path(self, result: TransmissionResult, now: int) -> None:
        frame, outcome = self._frame, result.outcome
        receivers, missed = self._delivery.split_receivers(self._senders, frame, result)
        if self.trace is not None:
            senders = (*(each.number for each in self._senders), *self._cut_off_senders)
            numbers = tuple(each.number for each in receivers)
            self.trace.record(BusFrame(self._start_ns, now, frame, senders, outcome, numbers, missed, self.segment))
        self._cut_off_senders = ()
        if result.is_delivered:
            late = outcome is FrameOutcome.LATE
            self._delivery.deliver(self._senders[0], frame, receivers, now, late=late)
        self._finish_senders(outcome, now)

    def _finish_senders(self, outcome: FrameOutcome, now: int) -> None:
        frame, senders = self._frame, self._senders
        if outcome.is_good:
            self.frames += 1
            for sender in senders:
                sender.finish_sent(frame, now)
            self._confinement.count_good_frame(senders, now)
            return
        self.errors += 1
        self._confinement.count_bad_frame(senders, outcome)
        for sender in senders:
            sender.finish_failed(frame, now)
            if sender.bus is self:
                self._confinement.check_sender(sender, now)
        # all stations take part in error signalling: those whose frames came during the corrupted one are called too
        self._losers = [each for each in self.pending if each not in senders]


def _ranked_key(rank: Callable[[Frame], int]) -> Callable[[Frame], int]:
    return lambda frame: rank(frame) << 33 | arbitration_key(frame)
