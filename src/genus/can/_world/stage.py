"""A scenario set up: a simulated bus, a real node with its programs for each of the system's, and what measures."""

from collections.abc import Iterator

from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import BrokerTables, MemoryStore
from genus.can._sim.clock import Clock, crystal
from genus.can._sim.faults import SlotStarts
from genus.can._sim.simulation import Simulation
from genus.can._sim.trace import Header
from genus.can._wire.frame import BROKER_NODE
from genus.can._world.flow import Flow
from genus.can._world.guarding import guard_of
from genus.can._world.meter import FLOW_MASK, BusTime, Meter
from genus.can._world.scenario import Scenario
from genus.can._world.station import Station, Window

BROKER_UID = 1


def uid_of(number: int) -> int:
    """The uid of the node that has a number in the system file."""
    return number << 32 | 0x47454E


class Stage:
    """State: everything that takes part in a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.system = scenario.prepared.typed.system
        self.calendar = scenario.prepared.plan.calendar
        self.window = Window()
        self.flows = {flow.channel.name: flow for flow in self._make_flows()}
        self.simulation = self._make_simulation()
        self.stations = {name: self._station(name, number) for name, number in self.system.nodes.items()}
        self.meter = self._make_meter()
        self.store = self._make_store()
        for station in self.stations.values():
            self._add(station)
        if scenario.broker:
            self.simulation.add_host(BROKER_NODE, self._make_broker)

    @property
    def reference(self) -> Station:
        """The first node that is up, by whose view of the bus's time the calendar is told."""
        return next((each for each in self.stations.values() if each.is_up), next(iter(self.stations.values())))

    def _make_flows(self) -> Iterator[Flow]:
        stand_ins = self.scenario.prepared.typed.stand_ins
        placed = {slot.channel: slot for slot in self.calendar.slots}
        for channel in self.system.channels:
            alike = [other.name for other in self.system.channels if other.event == channel.event]
            slot = placed.get(channel.name)
            yield Flow(channel, stand_ins[channel.event], slot, alike.index(channel.name), len(alike))

    def _make_simulation(self) -> Simulation:
        starts = tuple(start for start, _ in self.calendar.starts_in_cycle())
        return Simulation(
            self.system.bus.timing,
            seed=self.scenario.seed,
            faults=self.scenario.faults,
            slots=SlotStarts(self.calendar.cycle_ns, starts) if starts else None,
            exact_lengths=self.scenario.exact_lengths,
            confinement=self.scenario.confinement,
        )

    def _station(self, name: str, number: int) -> Station:
        publishes = [flow for flow in self.flows.values() if flow.channel.node == name and flow.can_be_announced]
        hears = [flow for flow in self.flows.values() if name in flow.channel.subscribers]
        return Station(
            name, number, self.simulation, lambda: self._make_node(name, number), publishes, hears, self.window
        )

    def _make_node(self, name: str, number: int) -> Node:
        dynamic = self.scenario.broker
        return Node(
            uid_of(number),
            name=name,
            timing=self.system.bus.timing,
            catalog=None if dynamic else self.scenario.prepared.typed.catalog,
            number=None if dynamic else number,
            slots=self.calendar.slots,
            masterable=not self.scenario.masters or name in self.scenario.masters,
            synchronised=self.scenario.clocks == "real",
            sync_period_ns=self.system.bus.sync_period_ns,
            seed=self.scenario.seed << 7 | number,
        )

    def _make_broker(self) -> Broker:
        catalog = self.scenario.prepared.typed.catalog
        return Broker(BROKER_UID, catalog, self.store, fd=self.system.bus.fd, seed=self.scenario.seed)

    def _make_store(self) -> MemoryStore:
        """Where the broker keeps its tables; it begins with the numbers that the system file gives to nodes."""
        store = MemoryStore()
        tables = BrokerTables(store)
        for number in self.system.nodes.values():
            tables.assign(uid_of(number), number)
        tables.begin_epoch()
        tables.save()
        return store

    def _make_meter(self) -> Meter:
        timing, scenario = self.system.bus.timing, self.scenario
        header = Header(
            bitrate=timing.bitrate, data_bitrate=timing.data_bitrate, exact_lengths=scenario.exact_lengths,
            seed=scenario.seed, title=self.system.source,
        )  # fmt: skip
        meter = Meter(dict(self._by_identifier()), header, keeps=scenario.traced)
        self.simulation.trace = self.simulation.bus.trace = self.simulation.away.trace = meter
        return meter

    def _by_identifier(self) -> Iterator[tuple[int, tuple[Flow, BusTime]]]:
        for flow in self.flows.values():
            yield flow.channel.id & FLOW_MASK, (flow, self.stations[flow.channel.node].bus_time)

    def _add(self, station: Station) -> None:
        guard = guard_of(self.scenario.prepared.plan, station) if self.scenario.guards else None
        self.simulation.add_host(station.number, station.boot, clock=self._clock(station.number), guard=guard)

    def _clock(self, number: int) -> Clock:
        if self.scenario.clocks == "perfect":
            return Clock()
        return crystal(self.simulation.random(f"clock {number}"), f"{self.scenario.seed}/{number}")
