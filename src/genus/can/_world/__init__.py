"""Plan, nodes and simulator put together: a whole system under faults, and what becomes of its promises."""

from genus.can._world.outcome import BandResult, ChannelResult, Outcome
from genus.can._world.releases import PATTERNS, Pattern
from genus.can._world.run import Run, simulate
from genus.can._world.scenario import Clocks, Prepared, Scenario

__all__ = [
    "PATTERNS",
    "BandResult",
    "ChannelResult",
    "Clocks",
    "Outcome",
    "Pattern",
    "Prepared",
    "Run",
    "Scenario",
    "simulate",
]
