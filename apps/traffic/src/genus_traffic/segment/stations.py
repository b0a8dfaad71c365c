"""The nodes of a segment on the simulated bus: each with a crystal of its own, and the gateway with the time of day."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from genus.can._node.node import Node
from genus.can._plan import Slot
from genus.can._sim.clock import Clock, crystal
from genus.can._sim.simulation import Simulation
from genus.can._world.stage import uid_of
from genus_traffic.segment.plan import GATEWAY, NUMBERS, POSTS, PRECISION_NS, SYNC_PERIOD_NS, TIMING, city_catalog

TIME_OF_DAY_ERROR_NS = 200
"""The gateway has a receiver of satellite time, which is as good as that."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Timeline:
    """Virtual time, in nanoseconds from when the segment is switched on, and true time, in microseconds since 1970.

    >>> timeline = Timeline(1_000_000)
    >>> timeline.virtual_ns(1_000_250), timeline.true_us(250_499)
    (250000, 1000250)
    """

    def __init__(self, origin_us: int) -> None:
        self.origin_us = origin_us

    def virtual_ns(self, true_us: int) -> int:
        """The instant of virtual time at an instant of true time."""
        return (true_us - self.origin_us) * 1000

    def true_us(self, virtual_ns: int) -> int:
        """The instant of true time at an instant of virtual time."""
        return self.origin_us + (virtual_ns + 500) // 1000


class Station:
    """State: a real node on the simulated bus; a sensor of the next generation has the `post` of the one before it."""

    def __init__(self, name: str, simulation: Simulation, timeline: Timeline, slots: tuple[Slot, ...]) -> None:
        self.name = name
        self.number = NUMBERS[name]
        self.simulation = simulation
        self.node = Node(
            uid_of(self.number),
            name=POSTS.get(name, name),
            timing=TIMING,
            catalog=city_catalog(),
            number=self.number,
            slots=slots,
            masterable=name == GATEWAY,
            sync_period_ns=SYNC_PERIOD_NS,
            seed=simulation.seed << 7 | self.number,
        )
        clock = _clock(name, simulation.random(f"clock of {name}"), timeline.origin_us * 1000)
        self.host = simulation.add_host(self.number, lambda: self.node, clock=clock)
        self._filters: tuple[tuple[int, int], ...] = ()
        self.call(self.node.start)

    def call(self, function: Callable[[int], object]) -> None:
        """Let a program of this station do something, by the station's clock."""
        self.host.call(function)

    @property
    def bus_now(self) -> int:
        """What the station takes for the bus's time, which is the time of day, in nanoseconds since 1970."""
        return self.bus_time(self.simulation.now)

    def bus_time(self, now: int) -> int:
        """The same at an instant of virtual time, as far as the station can tell today."""
        return self.node.time.global_time(self.host.clock.local(now))

    @property
    def time(self) -> datetime:
        """The time of day as the station knows it."""
        return EPOCH + timedelta(microseconds=(self.bus_now + 500) // 1000)

    def instant_of(self, bus_ns: int) -> int:
        """The instant of virtual time at which the station's view of the bus's time is this."""
        return self.host.clock.global_of(self.node.time.local_time(bus_ns))

    @property
    def is_synchronised(self) -> bool:
        """Whether its clock is good enough for the calendar."""
        return self.node.time.precision(self.host.now) <= PRECISION_NS

    @property
    def filters(self) -> tuple[tuple[int, int], ...]:
        """The acceptance filters of its controller, those of the middleware itself included; the last ones it had."""
        if self.host.is_up:
            self._filters = tuple((value, mask) for value, mask in self.host.controller.filters or ())
        return self._filters

    def leave(self) -> None:
        """Leave the bus for good."""
        self._filters = self.filters
        self.host.crash()


def _clock(name: str, random: Random, origin_ns: int) -> Clock:
    if name == GATEWAY:
        return Clock(origin_ns + random.randint(-TIME_OF_DAY_ERROR_NS, TIME_OF_DAY_ERROR_NS))
    return crystal(random, random.getrandbits(62))
