"""Plan, nodes and simulator put together: a whole system under faults, and what becomes of its promises."""

from genus.can.scenario.outcome import BandResult, ChannelResult, Outcome
from genus.can.scenario.releases import PATTERNS, Pattern
from genus.can.scenario.run import Run, simulate
from genus.can.scenario.scenario import Clocks, Prepared, Scenario

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
