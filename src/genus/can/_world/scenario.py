"""`Scenario`: a planned system with event types, how its programs publish, and what goes wrong."""

from typing import Literal, TypeAlias

import msgspec

from genus.can._plan import Plan, System, plan
from genus.can._sim.faults import BlockingErrors, Fault
from genus.can._wire.frame import FIRST_NODE, LAST_NODE
from genus.can._world.releases import Pattern
from genus.can._world.stand_ins import TypedSystem, with_types
from genus.errors import BusError, PlanError

Clocks: TypeAlias = Literal["real", "perfect"]
OBSERVER = "observer"
"""The node that hears what nobody in particular subscribes to."""


class Prepared(msgspec.Struct, frozen=True):
    """A system with event types and its plan; many scenarios can share it."""

    typed: TypedSystem
    plan: Plan

    @classmethod
    def of(cls, system: System) -> "Prepared":
        """Give a system event types and plan it; PlanError if it has no channels."""
        if not system.channels:
            raise PlanError(f"{system.source}: has no channels, so there is nothing to simulate")
        typed = with_types(_with_observer(system))
        return cls(typed, plan(typed.system, with_advice=False))


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen; `simulate` lets it, and the same scenario comes to the same outcome every time.

    `seconds` count from the moment at which programs begin to publish: when clocks are synchronised and channels bound.
    Faults count from power-on.
    """

    prepared: Prepared
    seed: int = 0
    seconds: float = 1.0
    faults: tuple[Fault, ...] = ()
    pattern: Pattern = "periodic"
    clocks: Clocks = "real"
    """Real clocks are off, drift and are synchronised over the bus; perfect ones all show virtual time."""
    masters: tuple[str, ...] = ()
    """The nodes that may lead the clocks; all, if none is named."""
    exact_lengths: bool = True
    broker: bool = False
    """Whether nodes get their numbers, event tags and catalog from a broker, which is station 127."""
    guards: bool = False
    confinement: bool = True
    traced: bool = False

    def __post_init__(self) -> None:
        for name in self.masters:
            if name not in self.prepared.typed.system.nodes:
                raise BusError(f"there is no node {name!r} that could lead the clocks")
        for fault in self.faults:
            if isinstance(fault, BlockingErrors) and fault.every_ns is None and self.clocks == "real":
                raise BusError("blocking: when slots start is known beforehand with perfect clocks only")


def _with_observer(system: System) -> System:
    """The system with a node that hears what nobody in particular subscribes to."""
    if all(channel.subscribers for channel in system.channels):
        return system
    number = next((n for n in range(FIRST_NODE, LAST_NODE + 1) if n not in system.nodes.values()), None)
    if number is None:
        raise PlanError(f"{system.source}: no number is free for a node that observes; name the channels' subscribers")
    name = OBSERVER
    while name in system.nodes:
        name += "_"
    channels = (
        channel if channel.subscribers else msgspec.structs.replace(channel, subscribers=(name,))
        for channel in system.channels
    )
    return msgspec.structs.replace(system, channels=tuple(channels), nodes={**system.nodes, name: number})
