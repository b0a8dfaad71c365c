"""Many runs at a glance."""

from collections.abc import Sequence

import msgspec

from genus.can._plan.system import QOS_NAMES, QosName
from genus.can._world.outcome import Outcome

MOST_BROKEN = 1000
"""So many broken promises are listed."""


class ClassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events of one class over all runs."""

    qos_class: QosName
    channels: int
    published: int
    sent: int
    missed: int
    """Deadlines missed, and hard events that did not go through."""
    expired: int
    alarms: int
    lost: int
    worst_of_bound: float
    """The longest response, as a part of what the plan allows."""
    runs_broken: int

    @classmethod
    def of(cls, qos_class: QosName, outcomes: Sequence[Outcome]) -> "ClassSummary":
        """That of one class."""
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
    """What came of several runs of one scenario with different seeds."""

    runs: int
    frames: int
    errors: int
    classes: tuple[ClassSummary, ...]
    broken: tuple[tuple[int, str], ...]
    """Promises that were not kept, each with the seed of its run."""

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Summary":
        """That of some outcomes."""
        bands = [band for outcome in outcomes for band in outcome.bands.values()]
        broken = [(outcome.seed, why) for outcome in outcomes for why in outcome.broken]
        return cls(
            len(outcomes),
            sum(band.frames for band in bands),
            sum(band.errors for band in bands),
            tuple(ClassSummary.of(qos_class, outcomes) for qos_class in QOS_NAMES),
            tuple(broken[:MOST_BROKEN]),
        )
