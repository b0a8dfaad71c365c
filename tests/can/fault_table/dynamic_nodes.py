"""Nodes that join and leave a bus with a broker: their numbers, and the notices they got."""

from collections import Counter
from collections.abc import Callable
from random import Random

from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._protocol.notices import Configured, NodeIdConflict
from genus.can._sim.simulation import Simulation
from genus.can._wire.frame import BROKER_NODE, Timing
from genus.catalog import Catalog

SYNC_PERIOD_NS = 20_000_000
"""At 1 Mbit/s; in proportion longer on slower buses."""
FIRST_STATION = 200
"""The number of the first station, above all node numbers, so that the two cannot be confused."""


class DynamicNodes:
    """State: nodes in a simulation that have a catalog and get their numbers from a broker, and their notices."""

    def __init__(self, simulation: Simulation, catalog: Catalog, *, synchronised: bool = True) -> None:
        self.simulation = simulation
        self.catalog = catalog
        self.nodes: dict[int, Node] = {}
        """By station."""
        self.configured_at: dict[int, int] = {}
        self.conflicts: list[tuple[int, int, NodeIdConflict]] = []
        """Time, station and notice."""
        self.duplicates = 0
        """How often a node got a number that another node had."""
        self._synchronised = synchronised
        self._seeds: Counter[int] = Counter()

    def add(self, uid: int, at_ns: int | None = None) -> int:
        """Add a node that is switched on at a time, now by default; returns its station."""
        station = FIRST_STATION + len(self.nodes)
        self.nodes[station] = self._make(station, uid)
        self.simulation.at(self.simulation.now if at_ns is None else at_ns, lambda: self._switch_on(station))
        return station

    def replace(self, station: int, uid: int) -> None:
        """Replace the node of a station by another one."""
        self.nodes[station] = self._make(station, uid)
        host = self.simulation.host(station)
        host.restart(self.nodes[station])
        host.call(self.nodes[station].start)

    def crash(self, station: int) -> None:
        """Crash a station."""
        self.simulation.host(station).crash()

    @property
    def numbers(self) -> dict[int, int]:
        """The numbers of the stations that are up and have one."""
        return {
            station: node.number
            for station, node in self.nodes.items()
            if node.number is not None and station in self.simulation.hosts and self.simulation.hosts[station].is_up
        }

    @property
    def are_unique(self) -> bool:
        """Whether no two stations have the same number."""
        numbers = self.numbers
        return len(set(numbers.values())) == len(numbers)

    def _make(self, station: int, uid: int) -> Node:
        self._seeds[station] += 1
        return Node(
            uid,
            timing=self.simulation.timing,
            catalog=self.catalog,
            synchronised=self._synchronised,
            sync_period_ns=SYNC_PERIOD_NS * 1_000_000 // self.simulation.timing.bitrate,
            seed=self.simulation.seed << 16 | station << 8 | self._seeds[station],
            on_notice=lambda notice: self._record_notice(station, notice),
        )

    def _switch_on(self, station: int) -> None:
        host = self.simulation.add_host(station, lambda: self.nodes[station])
        host.call(self.nodes[station].start)

    def _record_notice(self, station: int, notice: object) -> None:
        now = self.simulation.now
        if isinstance(notice, Configured):
            self.configured_at[station] = now
            self.duplicates += sum(number == notice.node for other, number in self.numbers.items() if other != station)
        elif isinstance(notice, NodeIdConflict):
            self.conflicts.append((now, station, notice))


def nodes_with_broker(bitrate: int, seed: int, *, synchronised: bool = True) -> DynamicNodes:
    """A bus with a broker and no other nodes."""
    simulation, catalog = Simulation(Timing(bitrate), seed=seed), Catalog()
    simulation.add_host(BROKER_NODE, broker_maker(1, catalog, MemoryStore(), simulation))
    return DynamicNodes(simulation, catalog, synchronised=synchronised)


def broker_maker(
    uid: int, catalog: Catalog, store: MemoryStore, simulation: Simulation, *, standby: bool = False
) -> Callable[[], Broker]:
    """A function that makes the broker with a uid, for `Simulation.add_host`."""
    return lambda: Broker(uid, catalog, store, standby=standby, seed=simulation.seed << 8 | uid)


def make_uids(count: int, seed: int) -> list[int]:
    """Random uids, all different."""
    random = Random(f"uids {seed}")
    return random.sample(range(1, 1 << 63), count)
