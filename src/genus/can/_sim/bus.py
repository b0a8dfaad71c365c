"""One CAN segment in virtual time: arbitration bit by bit, frame lengths, errors and their signalling.

A frame starts when the bus is idle and everything due at that instant was done. The bus is free again after the frame's
intermission, and that is when everybody is told: first the receivers, then the sender, then those who lost the
arbitration. A corrupted frame ends at its bad bit; the error frame follows: flag 6, echo 0 to 6, delimiter 8,
intermission 3. With `exact_lengths=False` every frame is as long as it can be and every error takes the whole frame and
31 bits, as response-time analysis has it (Davis et al. 2007); there an error passive sender does not wait any longer.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappush
from operator import attrgetter

from genus.can._sim.controller import NEVER, NOTHING, Controller, FrameHook, arbitration_key
from genus.can._sim.error_confinement import Confinement
from genus.can._sim.fault_hooks import (
    AFTER_ACKNOWLEDGEMENT_BITS,
    Durations,
    Judge,
    Outcome,
    Ruling,
    Transmission,
    bits_until_difference,
    rule,
)
from genus.can._sim.scheduler import Callback, Scheduler
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame
from genus.can._wire.length import ACTIVE_ERROR_BITS, Timing
from genus.errors import BusError

# Who hears a frame: by filters, less those who miss it, and sometimes later than it was sent.


_KEPT = 1 << 16
"""For how many identifiers of a sender it is remembered who hears them."""


class Audience:
    """State: the controllers of a bus, who of them hears what, and frames that are held back."""

    def __init__(self, controllers: Iterable[Controller]) -> None:
        self._controllers = controllers
        self.late: dict[tuple[int, int], tuple[Frame, list[Controller]]] = {}
        """Frames that come after the next one of their sender and event tag."""

    def forget(self) -> None:
        """Somebody came, went or changed filters."""
        for controller in self._controllers:
            controller.ears.clear()

    def of(self, sender: Controller, frame: Frame) -> tuple[tuple[FrameHook, ...], tuple[int, ...]]:
        """Whom to call with a frame of this sender, and the numbers of all who hear it; kept for the next time."""
        key = frame.id if frame.extended else ~frame.id
        return sender.ears.get(key) or self._find(sender, frame, key)

    def _find(self, sender: Controller, frame: Frame, key: int) -> tuple[tuple[FrameHook, ...], tuple[int, ...]]:
        if len(sender.ears) >= _KEPT:
            sender.ears.clear()
        listening = self._listening([sender], frame)
        hooks = tuple(each.hear for each in listening if each.hear is not None)
        found = sender.ears[key] = hooks, tuple(each.number for each in listening)
        return found

    def split(
        self, senders: list[Controller], frame: Frame, ruling: Ruling
    ) -> tuple[list[Controller], tuple[int, ...]]:
        """Who hears the frame, and the numbers of those who miss it."""
        ears = self._listening(senders, frame) if ruling.is_delivered else []
        heard = [each for each in ears if each.number not in ruling.deaf]
        return heard, tuple(each.number for each in ears if each.number in ruling.deaf)

    def deliver(self, sender: Controller, frame: Frame, heard: list[Controller], now: int, *, late: bool) -> None:
        """Hand a frame over, or hold it back; then the one that was held back before it."""
        key = sender.number, frame.etag
        held = self.late.pop(key, None)
        if late:
            self.late[key] = frame, heard
        else:
            _hand_over(frame, heard, now)
        if held is not None:
            _hand_over(*held, now)

    def _listening(self, senders: list[Controller], frame: Frame) -> list[Controller]:
        return [each for each in self._controllers if not each.off and each not in senders and each.passes(frame)]


def _hand_over(frame: Frame, ears: list[Controller], now: int) -> None:
    for each in ears:
        if each.hear is not None and each.bus is not None:
            each.hear(frame, now)


_NOT_BUSY = -1
_by_key = attrgetter("key")


class SimBus:
    """State: a medium, the controllers on it, and the frame that is on the wire.

    `rank` replaces the identifier in arbitration: the smallest number wins, the identifier decides between equals.
    `confinement=False` keeps error counters at 0, so that a station may fail for ever and stay on the bus.
    `lone_acknowledged=False` lets a frame fail that no other station is there to acknowledge, as real ones do.

    >>> from genus.can._sim.controller import Listener
    >>> class Logger(Listener):
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
        "_arbitration", "_asks_at", "_audience", "_began", "_bit_ns", "_careful", "_confinement", "_durations", "_end",
        "_ends", "_frame", "_heap", "_held", "_judges", "_last", "_length_of", "_losers", "_order", "_parted", "_ready",
        "_ruling", "_senders", "_troubled", "busy_ns", "controllers", "errors", "exact_lengths", "frames", "key",
        "lone_acknowledged", "pending", "scheduler", "segment", "timing", "trace",
    )  # fmt: skip

    def __init__(
        self,
        timing: Timing | int = 1_000_000,
        *,
        scheduler: Scheduler | None = None,
        exact_lengths: bool = True,
        judges: Iterable[Judge] = (),
        trace: Trace | None = None,
        rank: Callable[[Frame], int] | None = None,
        confinement: bool = True,
        lone_acknowledged: bool = True,
    ) -> None:
        self.timing = Timing(timing) if isinstance(timing, int) else timing
        self.scheduler = scheduler or Scheduler()
        self.exact_lengths = exact_lengths
        self.trace = trace
        self.lone_acknowledged = lone_acknowledged
        self.frames = self.errors = 0
        """How many frames went through, and how many did not."""
        self.busy_ns = 0
        """How long the bus was not idle."""
        self.controllers: dict[Controller, None] = {}
        self.pending: dict[Controller, None] = {}
        """The controllers that have a frame to send."""
        self.key = arbitration_key if rank is None else _ranked(rank)
        self.segment = self.scheduler.media
        """Which bus of the simulation this is, as traces number them."""
        self._judges = list(judges)
        self._held: set[Controller] = set()
        self._careful = True
        """Whether there may be more to a frame than its length."""
        self._confinement = Confinement(self, on=confinement)
        self._troubled = self._confinement.troubled
        self._audience = Audience(self.controllers)
        self._durations = Durations(self.timing, exact=exact_lengths)
        self._length_of = self._durations.known.get
        self._bit_ns = self.timing.bit_ns
        self._order = self.scheduler.join()
        self._heap, self._last = self.scheduler.heap, self.scheduler.last
        self._arbitration, self._end = self._arbitrate, self._finish
        self._ready = True
        """Whether the bus is idle and no arbitration is due."""
        self._frame = Frame(0)
        self._senders: list[Controller] = []
        self._parted: tuple[int, ...] = ()
        self._losers: Sequence[Controller] = ()
        self._began, self._ends, self._asks_at = 0, _NOT_BUSY, 0
        self._ruling: Ruling | None = None

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""
        return self.scheduler.now

    @property
    def idle(self) -> bool:
        """Whether nothing is on the wire."""
        return self._ends == _NOT_BUSY

    def at(self, time_ns: int, callback: Callback) -> None:
        """Call back at a time that is not past."""
        self.scheduler.at(time_ns, callback)

    def run(self, until_ns: int) -> None:
        """Let time pass up to and including an instant."""
        self.scheduler.run(until_ns)

    # Who is on the bus

    def attach(self, controller: Controller) -> Controller:
        """Put a controller on the bus, with what is in its mailboxes."""
        if controller.bus is not None:
            raise BusError(f"station {controller.number} is on a bus already")
        controller.bus = self
        self.controllers[controller] = None
        if controller.guard is not None:
            self.hold(controller)
        self.forget_hearers()
        controller.rank_mailboxes()
        self._confinement.join(controller)
        return controller

    def detach(self, controller: Controller) -> Controller:
        """Take a controller off the bus; a frame it is sending is cut off."""
        if controller.bus is not self:
            raise BusError(f"station {controller.number} is not on this bus")
        if controller.on_wire >= 0:
            self._part(controller)
        self._confinement.leave(controller)
        self._held.discard(controller)
        self.pending.pop(controller, None)
        self._losers = [loser for loser in self._losers if loser is not controller]
        del self.controllers[controller]
        controller.bus = None
        self.forget_hearers()
        return controller

    def contend(self, controller: Controller, key: int) -> None:
        """A controller has a frame to send, under this key, or none any more."""
        if key is NOTHING:
            self.pending.pop(controller, None)
            return
        self.pending[controller] = None
        if self._ready:
            self._ready = False
            self._last.append(self._arbitration)

    def hold(self, controller: Controller) -> None:
        """A controller may have to wait though it has a frame: because of its guard, or after errors."""
        self._held.add(controller)
        self.take_care()

    def judge_by(self, judge: Judge) -> None:
        """Ask somebody about every frame from now on."""
        self._judges.append(judge)
        self.take_care()

    def take_care(self) -> None:
        """There may be more to the next frame than its length."""
        self._careful = True

    def forget_hearers(self) -> None:
        """Somebody's filters changed."""
        self._audience.forget()

    def _part(self, controller: Controller) -> None:
        """A sender leaves in the middle of its frame, or at its end; others that send the same go on."""
        controller.on_wire = -1
        if self._ends <= self.now:
            return
        self._parted += controller.senders
        self._senders = [sender for sender in self._senders if sender is not controller]
        if not self._senders:
            self._ruling = Ruling(Outcome.CUT)
            self._heap.remove((self._ends, self._order, self._end))
            heapify(self._heap)
            self._ends = self.now + ACTIVE_ERROR_BITS * self._bit_ns
            heappush(self._heap, (self._ends, self._order, self._end))

    # Arbitration

    def _arbitrate(self) -> None:
        if self._held:
            self._arbitrate_with_care()
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

    def _arbitrate_with_care(self) -> None:
        """Some are guarded, or wait after an error: each competes with what it may send now."""
        now = self.scheduler.now
        self._held = {each for each in self._held if each.guard is not None or each.suspended_ns > now}
        offers = {each: each.best_offer(now) for each in self.pending}
        self._ask_again(min((at for _, at in offers.values() if at > now), default=NEVER))
        best = min((key for key, _ in offers.values()), default=NOTHING)
        if best < NOTHING:
            self._losers = [each for each, (key, _) in offers.items() if key != best]
            self._start([each for each, (key, _) in offers.items() if key == best], best)
        else:
            self._ready = True

    def _ask_again(self, at_ns: int) -> None:
        """Arbitrate then, unless it is arranged to do so by then."""
        if at_ns < NEVER and not self.scheduler.now < self._asks_at <= at_ns:
            self._asks_at = at_ns
            self.scheduler.at(at_ns, self._ask)

    def _ask(self) -> None:
        """Arbitrate at this instant, if the bus is idle."""
        if self._ready:
            self._ready = False
            self._last.append(self._arbitration)

    # From the start to the end of a frame

    def _start(self, senders: list[Controller], key: int) -> None:
        for sender in senders:
            sender.on_wire = mailbox = sender.keys.index(key)
            sender.replaced = False
        frame = sender.frames[mailbox]
        assert frame is not None
        length = self._length_of(frame) or self._durations.of(frame)
        self._frame, self._senders, self._ruling = frame, senders, None
        self._began = now = self.scheduler.now
        if self._careful or len(senders) > 1:
            length = self._start_with_care(length)
        self._ends = ends = now + length
        heappush(self._heap, (ends, self._order, self._end))

    def _start_with_care(self, length_ns: int) -> int:
        """Count idle time, spend budgets, see what befalls the frame; how long it takes then."""
        self._careful = bool(self._judges or self._held or self._confinement.recovering or not self.lone_acknowledged)
        if self._confinement.recovering:
            self._confinement.bus_is_busy(self._began)
        if self._held:
            self._spend()
        self._ruling = ruling = self._rule(length_ns // self._bit_ns)
        return length_ns if ruling is None else self._durations.with_ruling(length_ns, ruling)

    def _spend(self) -> None:
        for sender in self._senders:
            if sender.guard is not None:
                sender.guard.spend(self._frame, self._began)

    def _rule(self, bits: int) -> Ruling | None:
        """What befalls a frame, by the rules of the bus and by its judges; None if it simply is sent."""
        several = len(self._senders) > 1
        ruling = self._mishap(bits) if several or not self.lone_acknowledged else None
        if ruling is None and self._judges:
            ruling = self._ask_judges(bits)
        if ruling is None and (several or self._audience.late):
            return Ruling(Outcome.SENT)
        return ruling

    def _mishap(self, bits: int) -> Ruling | None:
        frames = {frame for sender in self._senders if (frame := sender.frames[sender.on_wire]) is not None}
        if len(frames) > 1:
            return Ruling(Outcome.COLLISION, bits_until_difference(frames))
        if not self.lone_acknowledged and all(each.off or each in self._senders for each in self.controllers):
            return Ruling(Outcome.UNHEARD, bits - AFTER_ACKNOWLEDGEMENT_BITS)
        return None

    def _ask_judges(self, bits: int) -> Ruling | None:
        sender = self._senders[0]
        numbers = self._audience.of(sender, self._frame)[1]
        attempt = sender.attempts[sender.on_wire]
        return rule(self._judges, Transmission(self._frame, sender.number, self._began, bits, attempt, numbers))

    def _finish(self) -> None:
        """A frame, or its error frame, has ended, and the intermission too."""
        now = self._ends
        if self._ruling is not None:
            self._finish_with_care(now)
        else:
            frame, sender = self._frame, self._senders[0]
            ears, numbers = self._audience.of(sender, frame)
            self.frames += 1
            if self.trace is not None:
                self.trace.record(self._began, now, frame, sender.senders, Outcome.SENT, numbers, (), self.segment)
            for hear in ears:
                hear(frame, now)
            sender.went(frame, now)
            if self._troubled:
                self._confinement.frame_was_good(self._senders, now)
        self.busy_ns += now - self._began
        for loser in self._losers:
            if loser.on_lost is not None and loser.bus is self:
                loser.on_lost(now)
        self._ends = _NOT_BUSY
        if self._careful and self._confinement.recovering:
            self._confinement.frame_ended(now)
        if self.pending:
            self._last.append(self._arbitration)
        else:
            self._ready = True

    def _finish_with_care(self, now: int) -> None:
        ruling = self._ruling or Ruling(Outcome.SENT)
        heard, missed = self._audience.split(self._senders, self._frame, ruling)
        if self.trace is not None:
            senders = (*(each.number for each in self._senders), *self._parted)
            numbers = tuple(each.number for each in heard)
            self.trace.record(self._began, now, self._frame, senders, ruling.outcome, numbers, missed, self.segment)
        self._parted = ()
        if ruling.is_delivered:
            late = ruling.outcome is Outcome.LATE
            self._audience.deliver(self._senders[0], self._frame, heard, now, late=late)
        self._tell_senders(ruling.outcome, now)

    def _tell_senders(self, outcome: Outcome, now: int) -> None:
        frame, senders = self._frame, self._senders
        if outcome.is_good:
            self.frames += 1
            for sender in senders:
                sender.went(frame, now)
            self._confinement.frame_was_good(senders, now)
            return
        self.errors += 1
        self._confinement.frame_was_bad(senders, outcome)
        for sender in senders:
            sender.failed(frame, now)
            if sender.bus is self:
                self._confinement.judge_sender(sender, now)


def _ranked(rank: Callable[[Frame], int]) -> Callable[[Frame], int]:
    return lambda frame: rank(frame) << 33 | arbitration_key(frame)
