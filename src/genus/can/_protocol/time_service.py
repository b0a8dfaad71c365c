"""The time service: one node leads, the others follow, and each knows how far off it may be. No I/O.

A frame ends at all nodes at once, within a bit time. So the master sends SYNC, notes what its clock shows when that
has gone through, and tells it in FOLLOW_UP; the others noted theirs and have a sample of both clocks (Gergeleit and
Streich 1994). A master that fails is replaced by the living node with the lowest number, which goes on with the time
it had. `docs/can-time.md` says what is assumed and what follows from it.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from genus.can._protocol.clock_model import PPB, UNBOUNDED, Assumptions, GlobalClock, Sample
from genus.can._wire.frame import UNCONFIGURED_NODE, Frame, Identifier, Priority, ProtocolEtag
from genus.errors import BusError

# SYNC and FOLLOW_UP: their bytes, and how the ones heard of a node are paired to samples of two clocks.


SYNC_LENGTH, FOLLOW_UP_LENGTH = 2, 8
ERA_SHIFT = 56
_LOW_MASK = (1 << ERA_SHIFT) - 1
SILENT_SYNCS = 3
"""A node that sends SYNC without FOLLOW_UP so often does not lead."""


def sync_frame(node: int, sequence: int, time: int) -> Frame:
    """SYNC: its number, and the leading 8 of the 64 bits of global time.

    >>> sync_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c008, 0711)
    """
    return _frame(ProtocolEtag.SYNC, node, bytes((sequence, era_of(time))))


def follow_up_frame(node: int, sequence: int, time: int) -> Frame:
    """FOLLOW_UP: the number of its SYNC, and the other 56 bits of global time when that had ended.

    >>> follow_up_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c009, 0722334455667788)
    """
    return _frame(ProtocolEtag.FOLLOW_UP, node, bytes((sequence,)) + (time & _LOW_MASK).to_bytes(7, "big"))


def _frame(tag: ProtocolEtag, node: int, data: bytes) -> Frame:
    return Frame(Identifier(Priority.SYSTEM, node, tag).pack(), data)


def era_of(time: int) -> int:
    """The leading 8 of 64 bits; they change every 834 days."""
    return time >> ERA_SHIFT & 0xFF


def well_formed(frame: Frame) -> bool:
    """Whether a frame of one of the two tags has the length, the priority and the kind of sender it must have."""
    length = SYNC_LENGTH if frame.etag == ProtocolEtag.SYNC else FOLLOW_UP_LENGTH
    genuine = frame.extended and frame.priority == Priority.SYSTEM and frame.node != UNCONFIGURED_NODE
    return genuine and len(frame.data) == length


class _Sync(msgspec.Struct, frozen=True):
    """A SYNC that was heard at a local reading; None if it came twice, for nobody knows which one is meant."""

    sequence: int
    era: int
    local: int | None


class Leader:
    """What was heard of a node that leads, or would like to."""

    def __init__(self) -> None:
        self.heard_at = 0
        self.chain: list[Sample] = []
        """Its last samples, which fit each other but not what else is known."""
        self._sync: _Sync | None = None
        self._paired: int | None = None
        self._unpaired = 0

    @property
    def silent(self) -> bool:
        """Whether it tells no time, though it says that it would."""
        return self._unpaired > SILENT_SYNCS

    def hear_sync(self, frame: Frame, now: int) -> str | None:
        """Note when a SYNC ended; returns what is wrong with it."""
        sequence, era = frame.data
        if sequence == self._paired:
            return "duplicate"
        twice = self._sync is not None and self._sync.sequence == sequence
        self._sync = _Sync(sequence, era, None if twice else now)
        self._unpaired += not twice
        self.heard_at = now
        return "duplicate" if twice else None

    def pair(self, frame: Frame, now: int, patience_ns: int) -> Sample | None:
        """The sample that a FOLLOW_UP makes of the SYNC before it, if that is the one it follows."""
        sync, self._sync = self._sync, None
        if sync is None or sync.local is None or sync.sequence != frame.data[0] or now - sync.local > patience_ns:
            return None
        self._paired, self._unpaired = sync.sequence, 0
        return Sample(sync.local, int.from_bytes(bytes((sync.era,)) + frame.data[1:], "big", signed=True))

    def link(self, sample: Sample, assumptions: Assumptions, patience_ns: int) -> None:
        """Add a sample to the chain; one that does not fit the last begins another."""
        if self.chain and not _fit(self.chain[-1], sample, assumptions, patience_ns):
            self.chain.clear()
        self.chain.append(sample)


def _fit(first: Sample, second: Sample, assumptions: Assumptions, patience_ns: int) -> bool:
    span = second.local - first.local
    parted = abs(second.global_ - first.global_ - span)
    return 0 < span <= patience_ns and parted <= 2 * assumptions.sample_ns + span * assumptions.apart_ppb // PPB


__all__ = ["UNBOUNDED", "ClockStepped", "MasterChanged", "Notice", "SyncLost", "Synchronised", "TimeService"]

CONFIRMATIONS = 3
"""So many samples that fit each other are believed, though they do not fit what was known."""
STAGGER = 100
"""A node waits longer than the one before it by this part of a period, so that one takes over and the others hear."""

# In periods. A node misses at most two pairs of a leader in a row: that is why three of them are silence.
SILENCE = 3
"""After this, and its stagger, a node that hears nobody leads."""
HOLD_OVER = 4.5
"""For so long after the last good pair a node knows the time: until a new master, with the last number, has spoken."""
HANDOVER = 5
"""For so long after a change some may still go by the former time: HOLD_OVER, but for the time it was silent before."""
DOUBT = 8
"""Whoever follows the other of two masters may hear it for SILENCE longer than this node, and then has HOLD_OVER."""


class Synchronised(msgspec.Struct, frozen=True):
    """Global time is known, to this precision."""

    precision_ns: int


class SyncLost(msgspec.Struct, frozen=True):
    """Nothing was heard of global time for too long: the clock runs on, but nobody knows how wrong."""


class MasterChanged(msgspec.Struct, frozen=True):
    """This node leads now, be it the own one; None if none does."""

    node: int | None


class ClockStepped(msgspec.Struct, frozen=True):
    """Global time was found wrong by more than clocks can part; if it was ahead, it runs slower until it is right."""

    by_ns: int


Notice: TypeAlias = Synchronised | SyncLost | MasterChanged | ClockStepped


class _Role(Enum):
    FOLLOWER = "follower"
    CLAIMANT = "claimant"
    """Has a SYNC on its way; the first to be heard leads."""
    MASTER = "master"


class TimeService:
    """Global time at one node: tell it frames and readings of the local clock, ask it for time and precision.

    `node` gives the own number, None or 0 while there is none. All nodes of a bus have the same `period_ns` and
    assume the same of clocks. Frames that are passed over are counted by reason in `dropped`.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], object],
        tell: Callable[[Notice], object],
        node: Callable[[], int | None],
        period_ns: int = 20_000_000,
        drift_ppm: int = 100,
        wander_ppm: int = 10,
        granularity_ns: int = 100,
        bit_ns: int = 1_000,
        masterable: bool = True,
    ) -> None:
        if period_ns < STAGGER:
            raise BusError(f"period_ns is {period_ns}, but must be at least {STAGGER}")
        self.assumptions = Assumptions(
            drift_ppm=drift_ppm, wander_ppm=wander_ppm, granularity_ns=granularity_ns, bit_ns=bit_ns
        )
        self.period_ns = period_ns
        self.masterable = masterable
        self.dropped: Counter[str] = Counter()
        self._patience_ns = SILENCE * period_ns
        self._clock = GlobalClock(self.assumptions, int(HOLD_OVER * period_ns), HANDOVER * period_ns)
        self._send, self._tell, self._node = send, tell, node
        self._role = _Role.FOLLOWER
        self._number = 0
        self._master: int | None = None
        self._leaders: dict[int, Leader] = {}
        self._heard_at: int | None = None
        self._sequence = 0
        self._waiting: Frame | None = None
        self._went_at = self._stamp = self._next_at = 0
        self._told_master: int | None = None
        self._told_synchronised = False

    @property
    def is_master(self) -> bool:
        """Whether this node leads."""
        return self._role is _Role.MASTER

    @property
    def master(self) -> int | None:
        """The node that leads."""
        return self._master

    def global_time(self, local: int) -> int:
        """Global time at a local reading; never goes back. Before the first synchronisation it is the local time."""
        return self._clock.at(local)

    def local_time(self, global_: int) -> int:
        """The first local reading at which it is this global time, or later. Later samples may shift it a little."""
        return self._clock.when(global_)

    def precision(self, now: int) -> int:
        """A bound in nanoseconds: the global times of two nodes differ by at most the sum of their precisions.

        UNBOUNDED if nothing is known.
        """
        return self._clock.precision(now)

    @property
    def wake_at(self) -> int | None:
        """When the service wants to be woken."""
        found = _earlier(self._election_at(), self._clock.unknown_until)
        if self._role is not _Role.FOLLOWER:
            found = _earlier(found, self._next_at)
        return _earlier(found, self._clock.lapses_at) if self._told_synchronised else found

    def listen(self, now: int) -> None:
        """Begin, or begin again after the bus was lost and with it the frames that waited: hear first, then speak."""
        self._waiting = None
        self._stand_down(now)
        self._tell_changes(now)

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another node has ended; only the two of the time service matter."""
        if frame.etag not in (ProtocolEtag.SYNC, ProtocolEtag.FOLLOW_UP):
            return
        problem = self._refusal(frame, now)
        if problem is None:
            hear = self._hear_sync if frame.etag == ProtocolEtag.SYNC else self._hear_follow_up
            problem = hear(frame, now)
        if problem is not None:
            self.dropped[problem] += 1
        self._tell_changes(now)

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this node has gone through."""
        if frame != self._waiting:
            return
        self._waiting = None
        self._went_at = now
        if frame.etag == ProtocolEtag.SYNC and self._role is not _Role.FOLLOWER:
            self._follow_up(frame, now)
        elif frame.etag == ProtocolEtag.FOLLOW_UP and self._role is _Role.MASTER:
            self._clock.refresh(self._stamp, now)
        self._tell_changes(now)

    def wake(self, now: int) -> None:
        """The time asked for has come."""
        election_at = self._election_at()
        if election_at is not None and now >= election_at:
            self._claim(now)
        if self._role is not _Role.FOLLOWER and now >= self._next_at:
            self._lead(now)
        self._tell_changes(now)

    # Following

    def _refusal(self, frame: Frame, now: int) -> str | None:
        if not well_formed(frame):
            return "malformed"
        if frame.node == self._node():
            return "own number"
        return None if self._may_lead(frame.node, now) else "not the master"

    def _may_lead(self, node: int, now: int) -> bool:
        """The master stays while it is heard; of two, the one with the lower number."""
        if self._master is None or node <= self._master:
            return True
        if self._role is _Role.MASTER:
            return False
        return now - self._leaders[self._master].heard_at > self._patience_ns - self.period_ns // 2

    def _hear_sync(self, frame: Frame, now: int) -> str | None:
        leader = self._leaders.setdefault(frame.node, Leader())
        problem = leader.hear_sync(frame, now)
        if not leader.silent:
            self._heard_at = now
            if self._role is _Role.CLAIMANT:
                self._role = _Role.FOLLOWER
        return problem

    def _hear_follow_up(self, frame: Frame, now: int) -> str | None:
        leader = self._leaders.setdefault(frame.node, Leader())
        sample = leader.pair(frame, now, self._patience_ns)
        return "unpaired" if sample is None else self._judge(frame.node, leader, sample, now)

    def _judge(self, node: int, leader: Leader, sample: Sample, now: int) -> str | None:
        """Go by a sample that fits what is known; one that does not has to be confirmed by others."""
        changed = node != self._master
        known = self._clock.holds(now)
        off = self._clock.contradiction(sample, changed=changed)
        if known and not off:
            leader.chain.clear()
            self._follow(node, [sample], now, anew=changed)
            return None
        leader.link(sample, self.assumptions, self._clock.hold_over_ns)
        confirmed = len(leader.chain) >= CONFIRMATIONS
        if confirmed:
            self._step(node, leader, off, now)
        self._doubt(now)
        return "contradiction" if known and not confirmed else None

    def _step(self, node: int, leader: Leader, off: int, now: int) -> None:
        if off:
            self._tell(ClockStepped(off))
        self._follow(node, leader.chain, now, anew=True)
        leader.chain.clear()

    def _follow(self, node: int, samples: list[Sample], now: int, *, anew: bool) -> None:
        self._clock.adopt(samples, now, anew=anew)
        self._role = _Role.FOLLOWER
        self._master = node

    def _doubt(self, now: int) -> None:
        """While one with a lower number than the master's tells another time, nobody knows."""
        lower = [leader for node, leader in self._leaders.items() if self._master is not None and node < self._master]
        if any(leader.chain and now - leader.chain[-1].local <= self._clock.hold_over_ns for leader in lower):
            self._clock.doubt(now + DOUBT * self.period_ns)

    # Leading

    def _election_at(self) -> int | None:
        """When this node will lead if it hears nobody: first those who know the time, last those who never did."""
        number = self._node()
        if self._role is not _Role.FOLLOWER or not self.masterable or not number or self._heard_at is None:
            return None
        at = self._heard_at + self._patience_ns + number * self.period_ns // STAGGER
        if self._clock.holds(at):
            return at
        return at + (self._patience_ns // 2 if self._clock.started else self._patience_ns)

    def _claim(self, now: int) -> None:
        self._role = _Role.CLAIMANT
        self._number = self._node() or 0
        self._went_at = self._next_at = now

    def _lead(self, now: int) -> None:
        """Send SYNC once a period, unless the last frame still waits; who is not heard for long does not lead."""
        if now - self._went_at > self._patience_ns or self._number != self._node():
            self._stand_down(now)
            return
        self._next_at = now + self.period_ns
        if self._waiting is None:
            self._sequence = (self._sequence + 1) % 256
            self._transmit(sync_frame(self._number, self._sequence, self._clock.estimate(now)))

    def _follow_up(self, sync: Frame, now: int) -> None:
        """A SYNC has gone through: say when. In the moment in which the era changes, the next one has to do."""
        if self._role is _Role.CLAIMANT:
            self._clock.lead(now)
            self._role = _Role.MASTER
            self._master = self._number
        time = self._clock.estimate(now)
        if sync.data[1] == era_of(time):
            self._stamp = now
            self._transmit(follow_up_frame(self._number, self._sequence, time))

    def _transmit(self, frame: Frame) -> None:
        self._waiting = frame
        self._send(frame)

    def _stand_down(self, now: int) -> None:
        if self._role is _Role.MASTER:
            self._master = None
        self._role = _Role.FOLLOWER
        self._heard_at = now

    # Telling

    def _tell_changes(self, now: int) -> None:
        self._clock.expire(now)
        precision = self._clock.precision(now)
        synchronised = precision < UNBOUNDED
        if self._role is not _Role.MASTER and not self._clock.holds(now):
            self._master = None
        if self._master != self._told_master:
            self._told_master = self._master
            self._tell(MasterChanged(self._master))
        if synchronised != self._told_synchronised:
            self._told_synchronised = synchronised
            self._tell(Synchronised(precision) if synchronised else SyncLost())


def _earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two readings, either of which may be none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
