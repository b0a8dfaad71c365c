"""The fault table: what is injected, what must hold then, and a function that lets it happen and looks."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from genus.can import PreparedSystem, Scenario, simulate
from genus.can._plan import System
from genus.can._sim.fault_text import parse_fault
from genus.can._world.outcome import ChannelResult, Outcome


class Setting(msgspec.Struct, frozen=True, dict=True):
    """Under what circumstances a row is looked at; `full` takes as many events as the table asks for."""

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
        """One of two sizes."""
        return full if self.full else quick

    def scenario(self, *faults: str, prepared: PreparedSystem | None = None, **options: Any) -> Scenario:
        """A scenario of the system with faults given as text."""
        parsed = tuple(map(parse_fault, faults))
        return Scenario(prepared=prepared or self.prepared, seed=self.seed, faults=parsed, **options)

    def simulate(self, *faults: str, prepared: PreparedSystem | None = None, **options: Any) -> Outcome:
        """What comes of such a scenario."""
        return simulate(self.scenario(*faults, prepared=prepared, **options))


class Observation(msgspec.Struct, frozen=True):
    """What was seen, and whether that is as it must be."""

    text: str
    ok: bool


Observe: TypeAlias = Callable[[Setting], Observation]


class Row(msgspec.Struct, frozen=True):
    """One row of the table."""

    number: int
    fault: str
    injected: str
    expected: str
    observe: Observe
    example: str = ""
    """The arguments of a `genus can sim` that shows it."""


ROWS: dict[int, Row] = {}
"""All rows by number."""


def row(number: int, fault: str, *, injected: str, expected: str, example: str = "") -> Callable[[Observe], Observe]:
    """Enter a function as a row of the table."""

    def enter(observe: Observe) -> Observe:
        ROWS[number] = Row(number, fault, injected, expected, observe, example)
        return observe

    return enter


def alarms(results: tuple[ChannelResult, ...]) -> int:
    """The alarms of all subscribers."""
    return sum(sum(result.alarms.values()) for result in results)


def told_once(results: tuple[ChannelResult, ...]) -> bool:
    """Whether each subscriber of each hard channel got or missed every event, and was told of those it missed."""
    return all(
        result.delivered[name] + result.alarms[name] == result.published
        for result in results
        for name in result.delivered
    )
