"""Rows of the fault table: the fault that is injected, what is expected, and a function that observes it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from genus.can import PreparedSystem, Scenario, simulate
from genus.can._plan.system import System
from genus.can._sim.faults import parse_fault
from genus.can._world.outcome import ChannelResult, Outcome


class Setting(msgspec.Struct, frozen=True, dict=True):
    """The system, the seed and the size of a run; `full` takes as many events as the table states."""

    system: System
    seed: int = 1
    full: bool = False

    @cached_property
    def prepared(self) -> PreparedSystem:
        """The system with types and plan."""
        return PreparedSystem.of(self.system)

    def number(self, node: str) -> int:
        """The number of a node, as faults name stations."""
        return self.system.nodes[node]

    def size(self, quick: float, full: float) -> float:
        """`full` in a full run, `quick` otherwise."""
        return full if self.full else quick

    def scenario(self, *faults: str, prepared: PreparedSystem | None = None, **options: Any) -> Scenario:
        """A scenario of the system with faults given as text."""
        parsed = tuple(map(parse_fault, faults))
        return Scenario(prepared=prepared or self.prepared, seed=self.seed, faults=parsed, **options)

    def simulate(self, *faults: str, prepared: PreparedSystem | None = None, **options: Any) -> Outcome:
        """The outcome of a scenario of the system with faults given as text."""
        return simulate(self.scenario(*faults, prepared=prepared, **options))


class Observation:
    """What was observed, with all that was expected, each true or not; the text says what was not as expected."""

    def __init__(self, figures: str, expected: Mapping[str, bool]) -> None:
        failed = [what for what, is_so in expected.items() if not is_so]
        self.ok = not failed
        self.text = f"{figures}; {NOT_SO}{', '.join(failed)}" if failed else figures


NOT_SO = "not as expected: "
"""What the text of an observation that is not ok has."""


Observe: TypeAlias = Callable[[Setting], Observation]


class Row(msgspec.Struct, frozen=True):
    """One row of the table."""

    number: int
    fault: str
    injected: str
    expected: str
    observe: Observe
    example: str = ""
    """The arguments of `genus can sim` that show it."""


ROWS: dict[int, Row] = {}
"""All rows by number."""
LIVE = (20, 21)
"""Rows between processes, whose figures depend on the machine; all others follow from the seed."""


def row(number: int, fault: str, *, injected: str, expected: str, example: str = "") -> Callable[[Observe], Observe]:
    """Decorate a function that observes a row, and enter the row into the table."""

    def enter(observe: Observe) -> Observe:
        ROWS[number] = Row(number, fault, injected, expected, observe, example)
        return observe

    return enter


def count_alarms(results: tuple[ChannelResult, ...]) -> int:
    """The number of alarms of all subscribers."""
    return sum(sum(result.alarms.values()) for result in results)


def count_misses(results: tuple[ChannelResult, ...]) -> int:
    """The number of hard events that were not sent in their slots, as their publishers were told."""
    return sum(result.not_sent + result.missed for result in results)


def count_unreported(results: tuple[ChannelResult, ...]) -> int:
    """By how many each subscriber of each hard channel got more or fewer events and alarms than were published."""
    return sum(
        abs(result.delivered[name] + result.alarms[name] - result.published)
        for result in results
        for name in result.delivered
    )
