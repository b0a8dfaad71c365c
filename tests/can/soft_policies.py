"""Soft real time by four policies on the same releases: how many frames miss their deadlines.

Every station has one channel and a queue. A late frame is still sent, until it expires at the end of its period and is
dropped. The policies are

* `edf`: earliest deadline first; the bus arbitrates by the exact deadlines, which no real bus can;
* `quantised`: the priority is the time left, in frame lengths, renewed whenever another frame won arbitration;
* `unpromoted`: the same, computed once, when the frame is loaded;
* `deadline-monotonic`: fixed priorities, the channel with the shortest deadline first.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal, TypeAlias, get_args

import msgspec

from genus.can._node.tx_queue import soft_priority
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener
from genus.can._sim.simulation import FrameSource, periodic, poisson, sporadic
from genus.can._sim.trace import TrafficClass
from genus.can._wire.frame import Frame, Identifier, Priority, Timing
from genus.errors import BusError

Policy: TypeAlias = Literal["edf", "quantised", "unpromoted", "deadline-monotonic"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

CHANNELS = 20
SHORTEST_NS, MAX_NS = 2_000_000, 100_000_000
DEADLINE_SHARE = 0.6
LEAST_GAP_SHARE = 0.5
HARD_PERIOD_NS, NONE_MEAN_NS = 5_000_000, 3_200_000
"""At 1 Mbit/s and 160 bits a frame, 3.2 % and 5 % of the bus."""
_FIRST_TAG = 200


class SoftChannel(msgspec.Struct, frozen=True):
    """A soft channel: the mean period of its releases and its relative deadline."""

    number: int
    period_ns: int
    deadline_ns: int
    rank: int
    """The position among all channels by deadline; 0 has the shortest."""

    @property
    def etag(self) -> int:
        """Its event tag."""
        return _FIRST_TAG + self.number


class DeadlineMisses(msgspec.Struct, frozen=True):
    """The counts of frames under one policy."""

    released: int
    late: int
    expired: int

    @property
    def percent(self) -> float:
        """The percentage of frames that were late or expired."""
        return 100 * (self.late + self.expired) / self.released if self.released else 0.0


def soft_misses(load: float, seed: int = 0, seconds: float = 5.0) -> Mapping[Policy, DeadlineMisses]:
    """The deadline misses of 20 soft channels with this load, under each policy, with the same releases.

    Periods are 2 to 100 ms, distributed evenly on a logarithmic scale and then scaled to give the load; gaps are at
    least half a period, deadlines 0.6 of one. Frames have their maximum length. Hard frames take 3.2 % of the bus and
    frames without deadlines another 5 %.
    """
    timing = Timing(1_000_000)
    channels = soft_channels(load, Random(f"channels/{seed}"), timing.worst_case_ns(8))
    return {policy: _run(policy, channels, timing, seed, seconds) for policy in POLICIES}


def soft_channels(load: float, random: Random, frame_ns: int) -> list[SoftChannel]:
    """Channels that together take this share of the bus."""
    periods = _scale_periods([SHORTEST_NS * (MAX_NS / SHORTEST_NS) ** random.random() for _ in range(CHANNELS)],
                         load, frame_ns)  # fmt: skip
    order = sorted(range(CHANNELS), key=periods.__getitem__)
    return [
        SoftChannel(number + 1, period, round(DEADLINE_SHARE * period), order.index(number))
        for number, period in enumerate(periods)
    ]


def _scale_periods(periods: list[float], load: float, frame_ns: int) -> list[int]:
    """Scale all periods, within their bounds, until they give the load."""
    if not CHANNELS * frame_ns / MAX_NS <= load <= CHANNELS * frame_ns / SHORTEST_NS:
        raise BusError(f"{CHANNELS} channels with periods of 2 to 100 ms cannot give a load of {load}")
    for _ in range(1000):
        factor = sum(frame_ns / period for period in periods) / load
        if abs(factor - 1) < 1e-6:
            break
        periods = [min(max(period * factor, SHORTEST_NS), MAX_NS) for period in periods]
    return [round(period) for period in periods]


def _run(policy: Policy, channels: list[SoftChannel], timing: Timing, seed: int, seconds: float) -> DeadlineMisses:
    deadlines: dict[int, int] = {}
    bus = SimBus(timing, exact_lengths=False, rank=_deadline_rank(deadlines) if policy == "edf" else None)
    stations = [
        SoftStation(bus, channel, policy, deadlines, Random(f"releases/{seed}/{channel.number}"))
        for channel in channels
    ]
    FrameSource(bus, 100, Frame(Identifier(Priority.HARD, 100, 150).pack(), bytes(8)), periodic(HARD_PERIOD_NS))
    none = Frame(Identifier(Priority.NONE, 101, 151).pack(), bytes(8))
    FrameSource(bus, 101, none, poisson(NONE_MEAN_NS, Random(f"none/{seed}")))
    bus.run(round(seconds * 1_000_000_000))
    return DeadlineMisses(
        sum(station.released for station in stations),
        sum(station.late for station in stations),
        sum(station.expired for station in stations),
    )


def _deadline_rank(deadlines: Mapping[int, int]) -> Callable[[Frame], int]:
    """The rank of a frame on an ideal bus: hard frames first, then soft ones by their deadlines, then the rest."""
    ranks = {TrafficClass.HARD: 0, TrafficClass.SYSTEM: 1 << 62, TrafficClass.NONE: 1 << 62}
    soft = TrafficClass.SOFT
    return lambda frame: deadlines[frame.etag] if (kind := TrafficClass.of(frame.id)) is soft else ranks[kind]


class SoftStation(ControllerListener):
    """State: a station with one soft channel, which sends by a policy and enters its deadlines for an ideal bus."""

    def __init__(
        self, bus: SimBus, channel: SoftChannel, policy: Policy, deadlines: dict[int, int], random: Random
    ) -> None:
        self._channel = channel
        self._policy = policy
        self._deadlines = deadlines
        self._scheduler = bus.scheduler
        self._frame_ns = bus.timing.worst_case_ns(8)
        self._gaps: Iterator[int] = sporadic(round(LEAST_GAP_SHARE * channel.period_ns), channel.period_ns, random)
        self._queue: deque[int] = deque()
        """The release times of the frames in the queue."""
        self._priority = 0
        self.released = self.late = self.expired = 0
        self.controller = bus.attach(Controller(channel.number, self, mailboxes=1, filters=()))
        bus.at(random.randrange(channel.period_ns), self._release)

    def _release(self) -> None:
        now = self._scheduler.now
        self._scheduler.at(now + next(self._gaps), self._release)
        self._scheduler.at(now + self._channel.period_ns, self._expire)
        self.released += 1
        self._queue.append(now)
        if len(self._queue) == 1:
            self._load(now)

    def _expire(self) -> None:
        """Drop the oldest frame if it has expired and is not on the wire."""
        now = self._scheduler.now
        if self._queue and self._queue[0] + self._channel.period_ns <= now and self.controller.on_wire < 0:
            self._queue.popleft()
            self.expired += 1
            self._load(now)

    def _load(self, now: int) -> None:
        """Load the oldest frame with its present priority."""
        if not self._queue:
            self.controller.load(0, None)
            return
        deadline = self._queue[0] + self._channel.deadline_ns
        self._deadlines[self._channel.etag] = deadline
        self._priority = priority = self._priority_of(deadline - now - self._frame_ns)
        self.controller.load(0, Frame(Identifier(priority, self._channel.number, self._channel.etag).pack(), bytes(8)))

    def _priority_of(self, slack_ns: int) -> int:
        if self._policy == "deadline-monotonic":
            return Priority.SOFT_FIRST + self._channel.rank
        return soft_priority(slack_ns, self._frame_ns)

    def lost(self, now: int) -> None:
        """Load the frame with a higher priority, if the policy promotes and less time is left."""
        if self._policy == "quantised" and self._queue:
            slack_ns = self._queue[0] + self._channel.deadline_ns - now - self._frame_ns
            if self._priority_of(slack_ns) != self._priority:
                self._load(now)

    def sent(self, frame: Frame, now: int) -> None:
        """Count the frame and load the next one."""
        self.late += now > self._queue.popleft() + self._channel.deadline_ns
        if self._queue:
            self._load(now)
