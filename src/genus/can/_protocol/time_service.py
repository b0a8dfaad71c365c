"""The time service: one node is the master of global time, the others follow, and each knows a bound on its error.

A frame ends at all nodes within a bit time. So the master sends SYNC, reads its clock when the frame has ended, and
sends the reading in FOLLOW_UP; the other nodes read theirs at the same instant, and have a sample of both clocks
(Gergeleit and Streich 1994). A master that fails is replaced by the node with the lowest number, which continues with
the time it had. `docs/wire.md` has the assumptions and what follows from them.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from genus.can._protocol.clock_model import (
    PPB,
    SYNC_PERIOD_NS,
    UNBOUNDED_PRECISION,
    ClockAssumptions,
    ClockSample,
    GlobalClock,
)
from genus.can._wire.frame import (
    ETAG_MASK,
    PRIORITY_SHIFT,
    UNCONFIGURED_NODE,
    Frame,
    Identifier,
    Priority,
    ProtocolEtag,
)
from genus.errors import BusError

SYNC, FOLLOW_UP = int(ProtocolEtag.SYNC), int(ProtocolEtag.FOLLOW_UP)
_LENGTHS = {SYNC: 2, FOLLOW_UP: 8}
_PRIORITY = int(Priority.SYSTEM)
ERA_SHIFT = 56
_LOW_MASK = (1 << ERA_SHIFT) - 1
SILENT_SYNCS = 3
"""A node that sends more SYNC than this in a row without FOLLOW_UP is not a master."""


def sync_frame(node: int, sequence: int, time: int) -> Frame:
    """SYNC: its sequence number, and the leading 8 of the 64 bits of global time.

    >>> sync_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c008, 0711)
    """
    return _frame(ProtocolEtag.SYNC, node, bytes((sequence, era_of(time))))


def follow_up_frame(node: int, sequence: int, time: int) -> Frame:
    """FOLLOW_UP: the sequence number of its SYNC, and the other 56 bits of global time at the end of that SYNC.

    >>> follow_up_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c009, 0722334455667788)
    """
    return _frame(ProtocolEtag.FOLLOW_UP, node, bytes((sequence,)) + (time & _LOW_MASK).to_bytes(7, "big"))


def _frame(etag: ProtocolEtag, node: int, data: bytes) -> Frame:
    return Frame(Identifier(Priority.SYSTEM, node, etag).pack(), data)


def era_of(time: int) -> int:
    """Return the leading 8 of the 64 bits of a time; they change every 834 days."""
    return time >> ERA_SHIFT & 0xFF


def is_well_formed(frame: Frame) -> bool:
    """Return whether a SYNC or FOLLOW_UP has the right length and priority, and a sender with a number."""
    is_genuine = frame.extended and frame.id >> PRIORITY_SHIFT == _PRIORITY and frame.node != UNCONFIGURED_NODE
    return is_genuine and len(frame.data) == _LENGTHS[frame.id & ETAG_MASK]


class _ReceivedSync(msgspec.Struct, frozen=True, gc=False):
    """A SYNC and the local reading at its end; None if it came twice, because FOLLOW_UP does not say which is meant."""

    sequence: int
    era: int
    local: int | None


class MasterCandidate:
    """State: what was received from a node that is the master, or wants to be."""

    def __init__(self) -> None:
        self.last_sync_at = 0
        self.chain: list[ClockSample] = []
        """Its last samples, which are consistent with each other but not with the current time."""
        self._sync: _ReceivedSync | None = None
        self._paired: int | None = None
        self._unpaired = 0

    @property
    def silent(self) -> bool:
        """Whether it sends SYNC without FOLLOW_UP."""
        return self._unpaired > SILENT_SYNCS

    def receive_sync(self, frame: Frame, now: int) -> str | None:
        """Record the end of a SYNC; returns the reason if it is dropped."""
        sequence, era = frame.data
        if sequence == self._paired:
            return "duplicate"
        twice = self._sync is not None and self._sync.sequence == sequence
        self._sync = _ReceivedSync(sequence, era, None if twice else now)
        self._unpaired += not twice
        self.last_sync_at = now
        return "duplicate" if twice else None

    def pair(self, frame: Frame, now: int, timeout_ns: int) -> ClockSample | None:
        """Return the sample of a FOLLOW_UP and its SYNC; None if the last SYNC is not the one it follows."""
        sync, self._sync = self._sync, None
        if sync is None or sync.local is None or sync.sequence != frame.data[0] or now - sync.local > timeout_ns:
            return None
        self._paired, self._unpaired = sync.sequence, 0
        return ClockSample(sync.local, int.from_bytes(bytes((sync.era,)) + frame.data[1:], "big", signed=True))

    def add_to_chain(self, sample: ClockSample, assumptions: ClockAssumptions, timeout_ns: int) -> None:
        """Add a sample to the chain; a sample that is not consistent with the last begins a new chain."""
        if self.chain and not _are_consistent(self.chain[-1], sample, assumptions, timeout_ns):
            self.chain.clear()
        self.chain.append(sample)


def _are_consistent(first: ClockSample, second: ClockSample, assumptions: ClockAssumptions, timeout_ns: int) -> bool:
    span = second.local - first.local
    difference = abs(second.global_ - first.global_ - span)
    return 0 < span <= timeout_ns and difference <= 2 * assumptions.sample_ns + span * assumptions.divergence_ppb // PPB


CONFIRMATIONS = 3
"""This many samples that are consistent with each other are accepted, even if they contradict the current time."""
STAGGER = 100
"""Nodes take over one after the other, by this part of a period: one sends SYNC before the next would."""

# In periods. It is assumed that a node misses at most two pairs of a master in a row; so three are a timeout.
SILENCE = 3
"""After this time without a SYNC, and its stagger, a node becomes the master."""
HOLD_OVER = 4.5
"""For this time after the last good pair a node knows the time: until even the last node has become the master."""
HANDOVER = 5
"""For this time after a change some nodes may still use the former time: HOLD_OVER, less the silence before."""
UNCERTAINTY = 8
"""A node that follows the other of two masters may receive it for SILENCE longer than this node, and then HOLD_OVER."""


class Synchronised(msgspec.Struct, frozen=True):
    """Global time is known, with this precision."""

    precision_ns: int


class SyncLost(msgspec.Struct, frozen=True):
    """No good sample was received for too long: the clock continues, but its error is unknown."""


class MasterChanged(msgspec.Struct, frozen=True):
    """This node is the master now; None if there is none."""

    node: int | None


class ClockStepped(msgspec.Struct, frozen=True):
    """Global time was wrong by more than the assumptions allow; if it was ahead, it runs slower until it is right."""

    by_ns: int


TimeNotice: TypeAlias = Synchronised | SyncLost | MasterChanged | ClockStepped


class _Role(Enum):
    FOLLOWER = "follower"
    CLAIMANT = "claimant"
    """Its first SYNC is queued; the node whose SYNC is sent first becomes the master."""
    MASTER = "master"


_FOLLOWER, _CLAIMANT, _MASTER = _Role  # enum members are slow to look up, and SYNC comes often


class TimeService:
    """Global time at one node, from frames and readings of its local clock; no I/O.

    `send` queues a frame, `notify` gets notices, `node` gives the node's number, None or 0 while it has none. The other
    arguments must be the same at all nodes of a bus: the period of SYNC, and the assumptions about clocks (see
    `ClockAssumptions`). A node that is not `masterable` never becomes the master. Dropped frames are counted by reason
    in `dropped`. BusError if a value makes no sense.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], object],
        notify: Callable[[TimeNotice], object],
        node: Callable[[], int | None],
        period_ns: int = SYNC_PERIOD_NS,
        drift_ppm: int = 100,
        wander_ppm: int = 10,
        granularity_ns: int = 100,
        bit_ns: int = 1_000,
        masterable: bool = True,
    ) -> None:
        if period_ns < STAGGER:
            raise BusError(f"period_ns is {period_ns}, but must be at least {STAGGER}")
        self.assumptions = ClockAssumptions(
            drift_ppm=drift_ppm, wander_ppm=wander_ppm, granularity_ns=granularity_ns, bit_ns=bit_ns
        )
        self.period_ns = period_ns
        self.masterable = masterable
        self.dropped: Counter[str] = Counter()
        self._timeout_ns = SILENCE * period_ns
        self._clock = GlobalClock(self.assumptions, int(HOLD_OVER * period_ns), HANDOVER * period_ns)
        self._send, self._notify, self._node = send, notify, node
        self._role = _FOLLOWER
        self._number = 0
        self._master: int | None = None
        self._candidates: dict[int, MasterCandidate] = {}
        self._sync_at: int | None = None
        self._sequence = 0
        self._waiting: Frame | None = None
        self._sent_at = self._stamp = self._next_at = 0
        self._notified_master: int | None = None
        self._notified_synchronised = False
        self._has_changed = True
        self._timer: int | None = None
        self._timer_node: int | None = None

    @property
    def is_master(self) -> bool:
        return self._role is _MASTER

    @property
    def master(self) -> int | None:
        """The number of the master; None if there is none."""
        return self._master

    def global_time(self, local: int) -> int:
        """Global time at a local reading; it never goes back. Before the first synchronisation it is the local time."""
        return self._clock.at(local)

    def local_time(self, global_: int) -> int:
        """The first local reading at which it is this global time, or later; new samples may shift it a little."""
        return self._clock.when(global_)

    def precision(self, now: int) -> int:
        """Return a bound in nanoseconds: the global times of two nodes differ by at most the sum of their precisions.

        It is `UNBOUNDED_PRECISION` if nothing is known.
        """
        return self._clock.precision(now)

    @property
    def wake_at(self) -> int | None:
        """The local reading at which `wake` is due; it changes with time frames and with the node's number."""
        node = self._node()
        if self._has_changed or node != self._timer_node:
            self._timer, self._timer_node, self._has_changed = self._find_timer(), node, False
        return self._timer

    def _find_timer(self) -> int | None:
        found = _earliest(self._election_at(), self._clock.unknown_until)
        if self._role is not _FOLLOWER:
            found = _earliest(found, self._next_at)
        return _earliest(found, self._clock.lapses_at) if self._notified_synchronised else found

    def listen(self, now: int) -> None:
        """Start, or start again after bus-off, when queued frames were lost: listen before sending."""
        self._waiting = None
        self._become_follower(now)
        self._notify_changes(now)

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another node has ended; frames other than SYNC and FOLLOW_UP are ignored."""
        etag, node = frame.id & ETAG_MASK, frame.node
        if etag not in _LENGTHS:
            return
        problem = self._drop_reason(frame, node, now)
        if problem is None:
            candidate = self._candidates.get(node)
            if candidate is None:
                candidate = self._candidates[node] = MasterCandidate()
            if etag == SYNC:
                problem = self._on_sync(candidate, frame, now)
            else:
                problem = self._on_follow_up(node, candidate, frame, now)
        if problem is not None:
            self.dropped[problem] += 1
        self._notify_changes(now)

    def sent(self, frame: Frame, now: int) -> None:
        if frame != self._waiting:
            return
        self._waiting = None
        self._sent_at = now
        if frame.etag == SYNC and self._role is not _FOLLOWER:
            self._send_follow_up(frame, now)
        elif frame.etag == FOLLOW_UP and self._role is _MASTER:
            self._clock.refresh(self._stamp, now)
        self._notify_changes(now)

    def wake(self, now: int) -> None:
        election_at = self._election_at()
        if election_at is not None and now >= election_at:
            self._become_claimant(now)
        if self._role is not _FOLLOWER and now >= self._next_at:
            self._send_sync(now)
        self._notify_changes(now)

    # -- follower ----------------------------------------------------------------------------------------------------

    def _drop_reason(self, frame: Frame, node: int, now: int) -> str | None:
        if not is_well_formed(frame):
            return "malformed"
        if node == self._node():
            return "own number"
        return None if self._may_lead(node, now) else "not the master"

    def _may_lead(self, node: int, now: int) -> bool:
        """Whether a node may be the master: the present one stays while it sends SYNC; of two, the lower number."""
        if self._master is None or node <= self._master:
            return True
        if self._role is _MASTER:
            return False
        return now - self._candidates[self._master].last_sync_at > self._timeout_ns - self.period_ns // 2

    def _on_sync(self, candidate: MasterCandidate, frame: Frame, now: int) -> str | None:
        problem = candidate.receive_sync(frame, now)
        if not candidate.silent:
            self._sync_at = now
            if self._role is _CLAIMANT:
                self._role = _FOLLOWER
        return problem

    def _on_follow_up(self, node: int, candidate: MasterCandidate, frame: Frame, now: int) -> str | None:
        sample = candidate.pair(frame, now, self._timeout_ns)
        return "unpaired" if sample is None else self._evaluate(node, candidate, sample, now)

    def _evaluate(self, node: int, candidate: MasterCandidate, sample: ClockSample, now: int) -> str | None:
        """Use a sample that is consistent with the current time; another must be confirmed by further samples."""
        changed = node != self._master
        known = self._clock.is_held(now)
        off = self._clock.deviation(sample, changed=changed)
        if known and not off:
            candidate.chain.clear()
            self._follow(node, [sample], now, anew=changed)
            return None
        candidate.add_to_chain(sample, self.assumptions, self._clock.hold_over_ns)
        confirmed = len(candidate.chain) >= CONFIRMATIONS
        if confirmed:
            self._step(node, candidate, off, now)
        self._check_other_times(now)
        return "contradiction" if known and not confirmed else None

    def _step(self, node: int, candidate: MasterCandidate, off: int, now: int) -> None:
        if off:
            self._notify(ClockStepped(off))
        self._follow(node, candidate.chain, now, anew=True)
        candidate.chain.clear()

    def _follow(self, node: int, samples: list[ClockSample], now: int, *, anew: bool) -> None:
        self._clock.adopt(samples, now, anew=anew)
        self._role = _FOLLOWER
        self._master = node

    def _check_other_times(self, now: int) -> None:
        """The time is uncertain while a node with a lower number than the master's sends another time."""
        lower = [each for node, each in self._candidates.items() if self._master is not None and node < self._master]
        if any(each.chain and now - each.chain[-1].local <= self._clock.hold_over_ns for each in lower):
            self._clock.mark_unknown(now + UNCERTAINTY * self.period_ns)

    # -- master ------------------------------------------------------------------------------------------------------

    def _election_at(self) -> int | None:
        """When this node becomes the master without a SYNC: nodes that know the time first, others later."""
        number = self._node()
        if self._role is not _FOLLOWER or not self.masterable or not number or self._sync_at is None:
            return None
        at = self._sync_at + self._timeout_ns + number * self.period_ns // STAGGER
        if self._clock.is_held(at):
            return at
        return at + (self._timeout_ns // 2 if self._clock.started else self._timeout_ns)

    def _become_claimant(self, now: int) -> None:
        self._role = _CLAIMANT
        self._number = self._node() or 0
        self._sent_at = self._next_at = now

    def _send_sync(self, now: int) -> None:
        """Send SYNC once a period, unless the last frame still waits; a master that cannot send for long gives up."""
        if now - self._sent_at > self._timeout_ns or self._number != self._node():
            self._become_follower(now)
            return
        self._next_at = now + self.period_ns
        if self._waiting is None:
            self._sequence = (self._sequence + 1) % 256
            self._transmit(sync_frame(self._number, self._sequence, self._clock.estimate(now)))

    def _send_follow_up(self, sync: Frame, now: int) -> None:
        """Send the time at which a SYNC ended; not if the era changed meanwhile: the next SYNC has the new one."""
        if self._role is _CLAIMANT:
            self._clock.lead(now)
            self._role = _MASTER
            self._master = self._number
        time = self._clock.estimate(now)
        if sync.data[1] == era_of(time):
            self._stamp = now
            self._transmit(follow_up_frame(self._number, self._sequence, time))

    def _transmit(self, frame: Frame) -> None:
        self._waiting = frame
        self._send(frame)

    def _become_follower(self, now: int) -> None:
        if self._role is _MASTER:
            self._master = None
        self._role = _FOLLOWER
        self._sync_at = now

    # -- notices -----------------------------------------------------------------------------------------------------

    def _notify_changes(self, now: int) -> None:
        self._has_changed = True
        self._clock.expire(now)
        precision = self._clock.precision(now)
        synchronised = precision < UNBOUNDED_PRECISION
        if self._role is not _MASTER and not self._clock.is_held(now):
            self._master = None
        if self._master != self._notified_master:
            self._notified_master = self._master
            self._notify(MasterChanged(self._master))
        if synchronised != self._notified_synchronised:
            self._notified_synchronised = synchronised
            self._notify(Synchronised(precision) if synchronised else SyncLost())


def _earliest(one: int | None, other: int | None) -> int | None:
    """Return the earlier of two readings, each of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
