"""What came of a scenario: per channel and for the bus, next to what the plan had promised."""

from collections.abc import Iterator, Mapping

import msgspec

from genus.can._plan import Verdict
from genus.can._plan.system import QosName
from genus.can._world.flow import Flow


class ChannelResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events of one channel; counters by subscriber are by the name of its node."""

    channel: str
    node: str
    qos_class: QosName
    admitted: bool
    published: int
    sent: int
    waiting: int
    """Published, and at the end neither sent nor given up."""
    not_sent: int
    """Hard events that did not go through in their slot."""
    missed: int
    """Soft events that were sent after their deadline, or not yet."""
    expired: int
    refused: int
    """Events that found no room in the node's queue."""
    overran: int
    """Events that went through though they were given up: they were on the wire at that moment."""
    sent_expired: int
    """Events that were sent though they had expired."""
    delivered: Mapping[str, int]
    alarms: Mapping[str, int]
    """Periodic events that did not come, as told to each subscriber."""
    told_lost: Mapping[str, int]
    """Events that were sent and not received, as told to each subscriber."""
    duplicates: int
    """Events that a program got twice."""
    late: int
    """Hard events that a program did not get at their deadline."""
    mean_ns: int
    worst_ns: int
    bound_ns: int | None
    deadline_ns: int | None

    @property
    def lost(self) -> int:
        """Events that were sent and not received, over all subscribers."""
        return sum(self.sent + self.overran - count for count in self.delivered.values())

    @property
    def unnoticed(self) -> int:
        """Events that were sent and not received, and that a subscriber was not told of one by one.

        A hard subscriber whose clock is not good enough is told that instead, and then of no single event.
        """
        told = self.alarms if self.qos_class == "hard" else self.told_lost
        went = self.sent + self.overran
        return sum(max(0, went - count - told.get(name, 0)) for name, count in self.delivered.items())

    def broken(self) -> Iterator[str]:
        """The promises that were not kept, each as a sentence."""
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
        if self.not_sent or any(self.alarms.values()):
            yield f"{self.not_sent} events not sent, {sum(self.alarms.values())} alarms"
        if self.admitted and self.bound_ns is not None and self.worst_ns > self.bound_ns:
            yield f"an event took {self.worst_ns / 1e6:.3f} ms, more than the bound of {self.bound_ns / 1e6:.3f}"


class BandResult(msgspec.Struct, frozen=True):
    """What one class of traffic took of the bus."""

    frames: int
    errors: int
    load: float
    unheard: int
    """Receivers that missed a frame which its sender took for sent."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run."""

    seed: int
    seconds: float
    pattern: str
    admitted: bool
    faults: tuple[str, ...]
    channels: tuple[ChannelResult, ...]
    bands: Mapping[str, BandResult]
    troubles: Mapping[str, int]
    """What programs were told, by kind."""
    dropped: Mapping[str, int]
    """What nodes dropped, by reason."""
    began_ns: int
    """When the programs began to publish, after power-on."""

    def channel(self, name: str) -> ChannelResult:
        """The result of one channel."""
        return next(each for each in self.channels if each.channel == name)

    def of_class(self, qos_class: QosName) -> tuple[ChannelResult, ...]:
        """The results of one class."""
        return tuple(each for each in self.channels if each.qos_class == qos_class)

    @property
    def load(self) -> float:
        """The part of the bus that was used."""
        return sum(band.load for band in self.bands.values())

    @property
    def broken(self) -> tuple[str, ...]:
        """The promises that were not kept."""
        return tuple(f"{each.channel}: {why}" for each in self.channels for why in each.broken())


def result_of(flow: Flow, verdict: Verdict) -> ChannelResult:
    """What became of a channel's events, next to what was promised."""
    channel = flow.channel
    return ChannelResult(
        channel=channel.name,
        node=channel.node,
        qos_class=channel.qos_class,
        admitted=verdict.ok,
        published=flow.published,
        sent=flow.sent,
        waiting=flow.waiting,
        not_sent=flow.not_sent,
        missed=flow.missed,
        expired=flow.expired,
        refused=flow.refused,
        overran=flow.overran,
        sent_expired=flow.sent_expired,
        delivered={name: flow.delivered[name] for name in channel.subscribers},
        alarms={name: flow.alarms[name] for name in channel.subscribers},
        told_lost={name: flow.told_lost[name] for name in channel.subscribers},
        duplicates=flow.duplicates,
        late=flow.late,
        mean_ns=flow.total_ns // flow.sent if flow.sent else 0,
        worst_ns=flow.worst_ns,
        bound_ns=verdict.response_ns,
        deadline_ns=verdict.deadline_ns,
    )
