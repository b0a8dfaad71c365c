"""What a simulation tells: the nodes at an instant, and what became of events, beside the promises of the plan.

All is read and nothing is changed, so it can be asked while another thread runs the world.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from genus.bus import Hard, Soft, format_qos
from genus.can._plan.admission import Verdict
from genus.can._plan.system import QOS_NAMES, ChannelSpec, QosName
from genus.can._protocol.clock_model import known_precision
from genus.can._protocol.time_service import TimeService
from genus.can._sim.controller import ErrorState
from genus.can._sim.simulation import Host
from genus.can._wire.frame import BROKER_NODE
from genus.can._world.station import Station
from genus.can._world.tracker import ChannelTracker
from genus.errors import BusError

NodeCondition: TypeAlias = Literal["up", "starting", "not synchronised", "error passive", "bus off", "down", "closed"]
"""How a node is: `starting` while its channels are not bound, `down` between a crash and a restart, `closed` when its
program has closed its bus."""
NodeRole: TypeAlias = Literal["time master", "broker"]
"""What a node does for the others."""

_BY_ERRORS: dict[ErrorState, NodeCondition] = {ErrorState.OFF: "bus off", ErrorState.PASSIVE: "error passive"}


class NodeSubscription(msgspec.Struct, frozen=True):
    """A subscription of a node, and how many events that the node got matched it."""

    text: str
    delivered: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a world, at the instant of the question."""

    name: str
    number: int | None
    """None until it has one."""
    uid: int
    condition: NodeCondition
    roles: tuple[NodeRole, ...] = ()
    offset_ns: int | None = None
    """How far the time of the bus, as the node knows it, is off the true time; None while the node is not up."""
    precision_ns: int | None = None
    """A bound on the error of the bus's time, as the node knows it; None while there is none."""
    heard_ns: int | None = None
    """The virtual time at which a frame of it was last sent."""
    subscriptions: tuple[NodeSubscription, ...] = ()
    filters: tuple[tuple[int, int], ...] = ()
    """Value and mask of the acceptance filters of its controller."""


def state_of(station: Station, now_ns: int, true_ns: int, heard_ns: int | None) -> NodeState:
    """Return the state of a station at a virtual time, which is this true time since 1970."""
    node = station.node if station.has_node else None
    is_up = station.is_up and node is not None
    return NodeState(
        name=station.name,
        number=node.number if node is not None and is_up else station.number,
        uid=node.uid if node is not None else 0,
        condition=_condition(station),
        roles=("time master",) if is_up and _is_master(station) else (),
        offset_ns=station.bus_time(now_ns) - true_ns if is_up else None,
        precision_ns=known_precision(station.precision_ns) if is_up else None,
        heard_ns=heard_ns,
        subscriptions=tuple(NodeSubscription(each.text, each.delivered) for each in station.subscriptions),
        filters=station.filters,
    )


def broker_state(host: Host, uid: int, heard_ns: int | None) -> NodeState:
    condition: NodeCondition = _BY_ERRORS.get(host.controller.state, "up") if host.is_up else "down"
    return NodeState(
        name="broker", number=BROKER_NODE, uid=uid, condition=condition, roles=("broker",), heard_ns=heard_ns
    )


def _condition(station: Station) -> NodeCondition:
    if station.is_closed:
        return "closed"
    if not station.has_node:
        return "starting"
    if not station.is_up:
        return "down"
    by_errors = _BY_ERRORS.get(station.host.controller.state)
    if by_errors is not None:
        return by_errors
    if not station.is_bound_whole:
        return "starting"
    is_synchronised = known_precision(station.precision_ns) is not None and not station.node.is_calendar_stopped
    return "up" if is_synchronised else "not synchronised"


def _is_master(station: Station) -> bool:
    time = station.node.time
    return isinstance(time, TimeService) and time.is_master


class ChannelResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events of one channel; counters per subscriber are by the name of its node."""

    channel: str
    node: str
    qos_class: QosName
    admitted: bool
    published: int
    sent: int
    waiting: int
    """Published, and at the end neither sent nor given up."""
    not_sent: int
    """Hard events that could not be sent in their slot, and others that were dropped with their node's number."""
    expired: int
    replaced: int
    """Hard events that a newer one replaced before their slot came."""
    abandoned: int
    """Events that waited in a node that crashed or was switched off."""
    unknown: int
    """Events of which their node does not know whether they were sent."""
    missed: int
    """Events that were sent after their deadline, or not yet."""
    refused: int
    """Events that found the queue of their node full; they do not count as published."""
    overran: int
    """Events that were sent though they were given up: they were on the wire at that moment."""
    sent_expired: int
    """Events that were sent though they had expired."""
    filtered: int
    """How often an acceptance filter kept an event from a node that does not want it."""
    wanted: Mapping[str, int]
    """Sent events that a subscription of each node matches."""
    delivered: Mapping[str, int]
    alarms: Mapping[str, int]
    """Periodic events that did not come, as reported to each subscriber."""
    told_lost: Mapping[str, int]
    """Events that were sent and not received, as reported to each subscriber."""
    duplicates: int
    """Events that a program got twice."""
    late: int
    """Hard events that a program did not get at their deadline."""
    mean_ns: int
    worst_ns: int
    bound_ns: int | None
    deadline_ns: int | None
    sporadic: bool = False
    """Whether slots of this hard channel may stay empty."""
    event: str = ""
    """The type of its events."""
    qos: str = ""
    """Its quality of service as text, such as `soft:20ms`."""
    jitter_ns: int | None = None
    """The standard deviation of the time between two sent events; None before there are two."""
    coming: Mapping[str, int] = {}
    """Sent events that each subscriber is about to get: hard ones at the end of their slot."""

    @classmethod
    def without_events(cls, channel: ChannelSpec, verdict: Verdict) -> "ChannelResult":
        """Return the result of a planned channel on which nothing was published."""
        counts: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), **{name: {} for name in _COUNTS_PER_SUBSCRIBER}}
        return cls(
            channel=channel.name,
            node=channel.node,
            qos_class=channel.qos_class,
            admitted=verdict.ok,
            bound_ns=verdict.response_ns,
            deadline_ns=verdict.deadline_ns,
            sporadic=channel.sporadic,
            event=channel.event,
            qos=format_qos(channel.qos),
            **counts,
        )

    def for_subscribers(self, names: Sequence[str]) -> "ChannelResult":
        """Return the same with the counts of these subscribers only, be they 0."""
        counts = {field: getattr(self, field) for field in _COUNTS_PER_SUBSCRIBER}
        return msgspec.structs.replace(
            self, **{field: {name: found.get(name, 0) for name in names} for field, found in counts.items()}
        )

    @property
    def accounted(self) -> int:
        """Events by what became of them: always as many as were published."""
        given_up = self.not_sent + self.expired + self.replaced + self.abandoned + self.unknown
        return self.sent + self.waiting + given_up

    @property
    def lost(self) -> int:
        """Events that were sent and not received, over all subscribers."""
        return sum(map(self._undelivered, self.wanted))

    def _undelivered(self, name: str) -> int:
        return max(0, self.wanted[name] - self.delivered.get(name, 0) - self.coming.get(name, 0))

    @property
    def unnoticed(self) -> int:
        """Events that were sent and not received, and of which the subscriber got no problem.

        A hard subscriber whose clock is not precise enough gets `HardStopped`, and no problem per event.
        """
        told = self.alarms if self.qos_class == "hard" and not self.sporadic else self.told_lost
        return sum(max(0, self._undelivered(name) - told.get(name, 0)) for name in self.wanted)

    def broken(self) -> Iterator[str]:
        """Yield the promises that were not kept, each as a sentence."""
        if self.duplicates:
            yield f"{self.duplicates} events were delivered twice"
        if self.sent_expired:
            yield f"{self.sent_expired} events were sent though they had expired"
        if self.qos_class == "hard":
            yield from self._broken_hard()
        elif self.admitted:
            if self.missed or self.expired:
                yield f"{self.missed} deadlines missed, {self.expired} events expired"
            if self.bound_ns is not None and self.worst_ns > self.bound_ns:
                yield f"an event took {self.worst_ns / 1e6:.3f} ms, more than the bound of {self.bound_ns / 1e6:.3f}"

    def _broken_hard(self) -> Iterator[str]:
        if not self.published:
            yield "it never began: its clocks were not synchronised, or it was not bound"
        if self.late:
            yield f"{self.late} events were not delivered at their deadline"
        unsent, told, what = self.not_sent + self.abandoned + self.unknown, self.alarms, "alarms"
        if self.sporadic:
            told, what = self.told_lost, "told as lost"
        if unsent or any(told.values()):
            yield f"{unsent} events not sent, {sum(told.values())} {what}"
        if self.unnoticed:
            yield f"{self.unnoticed} events were sent and not given to a subscriber"
        if self.missed:
            yield f"{self.missed} events were sent after their slot"
        if self.admitted and self.bound_ns is not None and self.worst_ns > self.bound_ns:
            yield f"an event took {self.worst_ns / 1e6:.3f} ms, more than the bound of {self.bound_ns / 1e6:.3f}"


_COUNTS_PER_SUBSCRIBER = ("wanted", "delivered", "alarms", "told_lost", "coming")
_COUNTS = (
    *("published", "sent", "waiting", "not_sent", "expired", "replaced", "abandoned", "unknown", "missed", "refused"),
    *("overran", "sent_expired", "filtered", "duplicates", "late", "mean_ns", "worst_ns"),
)


class BandResult(msgspec.Struct, frozen=True):
    """What one class of traffic took of the bus."""

    frames: int
    errors: int
    load: float
    unheard: int
    """Receivers that missed a frame though its sender regards it as sent."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one simulation."""

    seed: int
    seconds: float
    pattern: str
    admitted: bool
    faults: tuple[str, ...]
    channels: tuple[ChannelResult, ...]
    bands: Mapping[str, BandResult]
    problems: Mapping[str, int]
    """Problems that programs got, by kind."""
    dropped: Mapping[str, int]
    """What nodes dropped, by reason."""
    began_ns: int
    """When the programs began to publish, after power-on."""

    def channel(self, name: str) -> ChannelResult:
        """Return the result of one channel, such as `Loop of sensor`; of a type if only one node published it.

        Raises:
            BusError: There is no such channel, or several.
        """
        found = [each for each in self.channels if each.channel == name]
        found = found or [each for each in self.channels if each.channel.partition(" of ")[0] == name]
        if len(found) != 1:
            known = ", ".join(repr(each.channel) for each in self.channels) or "none"
            raise BusError(f"there is {'more than one' if found else 'no'} channel {name!r}; there are {known}")
        return found[0]

    def of_class(self, qos_class: QosName) -> tuple[ChannelResult, ...]:
        """Return the results of one class."""
        return tuple(each for each in self.channels if each.qos_class == qos_class)

    @property
    def load(self) -> float:
        """The share of time in which the bus was busy."""
        return sum(band.load for band in self.bands.values())

    @property
    def broken(self) -> tuple[str, ...]:
        """The promises that were not kept."""
        return tuple(f"{each.channel}: {why}" for each in self.channels for why in each.broken())


def result_of(tracker: ChannelTracker, verdict: Verdict | None, now: int) -> ChannelResult:
    """Return the counters of a channel at a virtual time, beside what the plan promised, if it is planned."""
    names = dict.fromkeys((*tracker.wanted, *tracker.delivered, *tracker.alarms, *tracker.reported_lost))
    # In this order, while another thread runs the world: an event between the two is never taken for lost.
    wanted, coming = {name: tracker.wanted[name] for name in names}, dict(tracker.coming(now))
    counts: dict[str, Any] = {name: getattr(tracker, name) for name in _COUNTS if name != "mean_ns"}
    return ChannelResult(
        channel=tracker.name,
        node=tracker.node,
        qos_class=_class_of(tracker),
        admitted=verdict is not None and verdict.ok,
        wanted=wanted,
        delivered={name: tracker.delivered[name] for name in names},
        alarms={name: tracker.alarms[name] for name in names},
        told_lost={name: tracker.reported_lost[name] for name in names},
        mean_ns=tracker.total_ns // tracker.sent if tracker.sent else 0,
        bound_ns=None if verdict is None else verdict.response_ns,
        deadline_ns=None if verdict is None else verdict.deadline_ns,
        sporadic=isinstance(tracker.qos, Hard) and tracker.qos.sporadic,
        event=tracker.event,
        qos=format_qos(tracker.qos),
        jitter_ns=round(tracker.intervals.deviation) if tracker.intervals.count else None,
        coming=coming,
        **counts,
    )


def _class_of(tracker: ChannelTracker) -> QosName:
    if tracker.is_hard:
        return "hard"
    return "soft" if isinstance(tracker.qos, Soft) else "none"


MAX_BROKEN = 1000
"""How many broken promises a summary lists."""


class ClassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events of one class over all runs."""

    qos_class: QosName
    channels: int
    published: int
    sent: int
    missed: int
    """Deadlines missed, and hard events that could not be sent."""
    expired: int
    alarms: int
    lost: int
    worst_of_bound: float
    """The longest response time as a share of its bound."""
    runs_broken: int

    @classmethod
    def of(cls, qos_class: QosName, outcomes: Sequence[Outcome]) -> "ClassSummary":
        results = [result for outcome in outcomes for result in outcome.of_class(qos_class)]
        bounded = [result.worst_ns / result.bound_ns for result in results if result.bound_ns]
        return cls(
            qos_class=qos_class,
            channels=len({result.channel for result in results}),
            published=sum(result.published for result in results),
            sent=sum(result.sent for result in results),
            missed=sum(result.missed + result.not_sent for result in results),
            expired=sum(result.expired for result in results),
            alarms=sum(sum(result.alarms.values()) for result in results),
            lost=sum(result.lost for result in results),
            worst_of_bound=max(bounded, default=0.0),
            runs_broken=sum(any(any(r.broken()) for r in outcome.of_class(qos_class)) for outcome in outcomes),
        )


class Summary(msgspec.Struct, frozen=True):
    """The results of several runs of one scenario with different seeds."""

    runs: int
    frames: int
    errors: int
    classes: tuple[ClassSummary, ...]
    broken: tuple[tuple[int, str], ...]
    """Promises that were not kept, each with the seed of its run."""

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Summary":
        """Sum up some outcomes."""
        bands = [band for outcome in outcomes for band in outcome.bands.values()]
        broken = [(outcome.seed, why) for outcome in outcomes for why in outcome.broken]
        return cls(
            len(outcomes),
            sum(band.frames for band in bands),
            sum(band.errors for band in bands),
            tuple(ClassSummary.of(qos_class, outcomes) for qos_class in QOS_NAMES),
            tuple(broken[:MAX_BROKEN]),
        )
