"""`World`: a simulated CAN bus of this process that programs join by `open_bus("sim:NAME?name=NODE")`.

The programs, their buses, channels, collections and inboxes are those of a live bus; time is virtual, clocks drift, and
faults are injected from a seed. The world moves time, and knows what became of every event.
"""

import asyncio
import math
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from genus.bus.internal import datetime_of
from genus.can._node.node import Node
from genus.can._plan.admission import Plan
from genus.can._plan.admission import plan as make_plan
from genus.can._plan.system import System
from genus.can._plan.system_file import load_system
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import BrokerTables, MemoryStore
from genus.can._protocol.clock_model import SYNC_PERIOD_NS
from genus.can._sim.fault_text import node_names
from genus.can._sim.faults import Fault, SlotStarts, parse_fault
from genus.can._sim.scheduler import SimClock, crystal_clock
from genus.can._sim.simulation import Host, Simulation
from genus.can._sim.trace import Passage, Trace, TrafficClass
from genus.can._wire.frame import BROKER_NODE, ETAG_MASK, FIRST_NODE, LAST_NODE, ProtocolEtag, Timing
from genus.can._world.observation import Observation
from genus.can._world.outcome import BandResult, ChannelResult, NodeState, Outcome, broker_state, result_of, state_of
from genus.can._world.programs import FOREVER, NodeDown, ProgramRunner, VirtualEventLoop
from genus.can._world.station import HandlerQueue, Station, guardian_of
from genus.can._world.tracker import ChannelTracker, EventRecord
from genus.catalog import Catalog
from genus.errors import BusError, did_you_mean
from genus.model import Event, Span, nanoseconds

T = TypeVar("T")

Clocks: TypeAlias = Literal["real", "perfect"]
"""The clocks of a world: off, drifting and synchronised over the bus, or all showing virtual time."""

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_WAIT_NS = 3_600_000_000_000
"""How much virtual time a call without a timeout waits for, outside of programs that the world started."""
REFERENCE_ERROR_NS = 200
"""How far a reference clock may be off: that of a receiver of satellite time."""
BROKER_UID = 1
CLOSING_STEP_NS, CLOSING_STEPS = 10_000_000, 100
"""A station that is closed is switched off as soon as its last reports are sent, or after a second."""


def uid_of(number: int) -> int:
    return number << 32 | 0x47454E


class Program:
    """A program that `World.start` runs.

    `is_done` says whether it has ended, `result` what it returned, and `starts` how often it was started.
    """

    def __init__(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self.is_done = False
        self.result: Any = None
        self.starts = 0
        self._function, self._arguments = function, arguments

    def run(self) -> None:
        """Run it to its end, or until its node goes down."""
        self.starts += 1
        self.is_done = False
        try:
            self.result = self._function(*self._arguments)
        except NodeDown:
            return  # it starts again when its node restarts
        except BaseException:
            self.is_done = True
            raise
        self.is_done = True


class World:
    """A simulated CAN bus with stations, in virtual time; use it in a `with` block.

    Programs join as nodes by `open_bus("sim:NAME?name=NODE")`, where NAME is the world's and NODE a node of the plan or
    any other name. Further options of the address: `number` (a node number), `slots` (use the hard slots of another
    node of the plan, as its replacement), `banks` (acceptance filters of the controller), `catalog` (a catalog file of
    its own). Whenever a program waits (for an event of an inbox, for a channel to be bound, in `bus.sleep`), virtual
    time passes.

    Args:
        name: The name of the world in addresses.
        plan: A plan, a system or the path of a system file: it gives bit rate, node numbers and hard slots.
        catalog: A catalog, the path of its file, or event types to be registered.
        bitrate: Bits per second; a plan has its own.
        data_bitrate: Bits per second of the data of CAN FD frames; None for classic CAN.
        seed: Seeds all random choices.
        faults: What is injected, as text (`"errors p=0.1"`, `"crash node=sensor at=2s restart=3s"`; `genus can sim
            --help` lists them) or from `parse_fault`. A fault that names a node waits until that has joined.
        start: When virtual time begins.
        clocks: `real`: each node's clock is off and drifts, and they are synchronised over the bus. `perfect`: all
            nodes have virtual time.
        masters: Names of the nodes that may lead the synchronisation; by default any.
        reference: Names of the nodes whose clocks show the true time.
        broker: Nodes get numbers, event tags and catalog from a broker.
        guards: A bus guardian is in front of every planned node.
        exact_lengths: False makes every frame as long as bit stuffing can make it.
        confinement: False keeps nodes with errors on the bus.
        trace: Whether frames are kept, and what became of single events; False saves memory. A number keeps at most so
            many of the last frames, and of the last events of each channel: a world that runs for long does not grow.

    Raises:
        BusError: A fault cannot be parsed, or another world has the name.

    >>> from genus import Event, Soft, UInt8, open_bus
    >>> class Loop(Event):
    ...     lane: UInt8
    >>> with World("road", catalog=[Loop]) as world:
    ...     sensor, logger = open_bus("sim:road?name=sensor"), open_bus("sim:road?name=logger")
    ...     inbox = logger.collection(Loop).inbox()
    ...     with sensor.channel(Loop, Soft(deadline="10ms")) as loops:
    ...         loops.publish(Loop(lane=2))
    ...     inbox.get(timeout="1s")
    Loop(lane=2)
    """

    def __init__(
        self,
        name: str = "world",
        *,
        plan: Plan | System | str | PathLike[str] | None = None,
        catalog: Catalog | str | PathLike[str] | Iterable[type[Event]] = (),
        bitrate: int = 1_000_000,
        data_bitrate: int | None = None,
        seed: int = 0,
        faults: Iterable[Fault | str] = (),
        start: datetime = START,
        clocks: Clocks = "real",
        masters: Iterable[str] = (),
        reference: Iterable[str] = (),
        broker: bool = False,
        guards: bool = False,
        exact_lengths: bool = True,
        confinement: bool = True,
        trace: bool | int = True,
    ) -> None:
        _check_arguments(clocks, seed, bitrate, start, trace)
        if name in _WORLDS:
            raise BusError(f"there is a world {name!r} in this process already; close it, or choose another name")
        self.name = name
        self.plan = _plan_of(plan)
        self.catalog = _catalog_of(catalog)
        self.seed = seed
        self.stations: dict[str, Station] = {}
        self.start_ns = round(start.replace(microsecond=0).timestamp()) * 1_000_000_000 + start.microsecond * 1000
        """When virtual time begins, in nanoseconds since 1970."""
        self._clocks = clocks
        self._masters, self._reference = tuple(masters), frozenset(reference)
        self._has_broker = broker
        self._has_guards = guards
        self._is_closed = False
        self._pending_faults: list[Fault | str] = [faults] if isinstance(faults, str) else list(faults)
        timing = self.plan.system.bus.timing if self.plan is not None else Timing(bitrate, data_bitrate)
        self.simulation = Simulation(
            timing, seed=seed, slots=self._slot_starts(), exact_lengths=exact_lengths, confinement=confinement
        )
        title = self.plan.system.source if self.plan is not None else name
        self.observation = Observation(
            self.simulation, self.stations, self.plan, self.catalog, title, most_frames=None if trace is True else trace
        )
        self._runner = ProgramRunner(self.simulation.scheduler)
        self.simulation.on_restart = self._restart_program
        self.store = self._make_store()
        if broker:
            self.simulation.add_host(BROKER_NODE, self._make_broker, run_handler=self._run_handler)
        for fault in self._pending_faults:
            if isinstance(fault, str):  # its nodes may join later, but what is wrong with it is said now
                parse_fault(fault, {**dict.fromkeys(node_names(fault), FIRST_NODE), **self._numbers()})
        _WORLDS[name] = self

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """End all programs that wait in the world, and close their buses; its name can be used again."""
        self._runner.close()
        self._is_closed = True
        for station in self.stations.values():
            station.abandon()
        _WORLDS.pop(self.name, None)
        known = set(self._numbers())
        pending, self._pending_faults = self._pending_faults, []
        for fault in [each for each in pending if isinstance(each, str) and node_names(each) - known]:
            warnings.warn(f"the fault {fault} was never injected: no such node joined the world", stacklevel=2)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time since power-on, in nanoseconds."""
        return self.simulation.now

    @property
    def time(self) -> datetime:
        """The true time in the world: `start` plus virtual time."""
        return datetime_of(self.time_ns)

    @property
    def time_ns(self) -> int:
        """The true time in the world, in nanoseconds since 1970."""
        return self.start_ns + self.now_ns

    def run(self, span: Span | None = None, *, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass: for a span (`"2s"`), or until a condition holds, for at most a span.

        Returns whether the condition holds; False without one. What a program, a timer or a function of `at` raises is
        raised here. A handler that raises is reported as on any bus: to `on_error` of `open_bus`, else to the log.
        """
        if span is None and until is None:
            raise BusError("run needs a span of time, or a condition (until=...)")
        self._inject_pending()
        length = MAX_WAIT_NS if span is None else nanoseconds(span, "span")
        return self._runner.run(self.now_ns + length, until)

    def run_ns(self, span_ns: int) -> None:
        """Let so many nanoseconds of virtual time pass."""
        self._inject_pending()
        self._runner.run(self.now_ns + span_ns)

    def run_async(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, as `asyncio.run` does, in virtual time: sleeps, timeouts and async handlers wait for it."""
        self._inject_pending()

        def run(seconds: float | None, condition: Callable[[], bool]) -> None:
            length = MAX_WAIT_NS if seconds is None else max(1, math.ceil(seconds * 1e9))
            self._runner.run(self.now_ns + length, condition)

        with asyncio.Runner(loop_factory=lambda: VirtualEventLoop(lambda: self.now_ns / 1e9, run)) as runner:
            return runner.run(main)

    def start(self, function: Callable[..., object], *arguments: object) -> Program:
        """Run a program in the world, beside others: a function that may block (`inbox.get()`, `bus.sleep()`).

        It begins with the next `run`. If a node that it opened crashes, the program ends where it waits, and starts
        again when the node restarts; its handlers end too. When the world is closed, programs that wait end.
        """
        program = Program(function, arguments)
        self._start_program(program)
        return program

    def _start_program(self, program: Program) -> None:
        self.at_ns(self.now_ns, lambda: self._runner.run_program(program, program.run))

    def at(self, when: datetime | Span, function: Callable[[], object]) -> None:
        """Call a function at a time of the world, or at a span after power-on."""
        if isinstance(when, datetime):
            since_start = (when - datetime_of(self.start_ns)) // timedelta(microseconds=1) * 1000
        else:
            since_start = nanoseconds(when, "when")
        self.at_ns(since_start, function)

    def at_ns(self, time_ns: int, callback: Callable[[], object]) -> None:
        """Call a function at a virtual time in nanoseconds since power-on."""
        self._check_open()
        self.simulation.at(time_ns, callback)

    def _wait_for(self, condition: Callable[[], bool], timeout: Span | None) -> bool:
        """Block a program in virtual time until a condition holds, for at most a span; returns whether it holds."""
        self._inject_pending()
        longest = FOREVER - self.now_ns if self._runner.is_inside else MAX_WAIT_NS
        return self._runner.run(self.now_ns + (longest if timeout is None else nanoseconds(timeout)), condition)

    @property
    def is_ready(self) -> bool:
        """Whether all stations that are up have their channels bound, and clocks precise enough for the calendar."""
        up = [station for station in self.stations.values() if station.is_up and not station.is_closed]
        return all(station.is_ready for station in up)

    # -- faults ------------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault | str) -> None:
        """Inject a fault, as text or as a `Fault`; its times count from power-on."""
        self._check_open()
        try:
            self.simulation.inject(parse_fault(fault, self._numbers()) if isinstance(fault, str) else fault)
        except BusError as problem:
            raise BusError(f"the fault {str(fault)!r}: {problem}") from problem

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusError(f"the world {self.name!r} is closed")

    def _inject_pending(self) -> None:
        """Inject the faults of the constructor when time begins to pass; those that name a node when it has joined."""
        if self._pending_faults:
            known = set(self._numbers())
            pending = self._pending_faults
            self._pending_faults = []
            for fault in pending:
                if isinstance(fault, str) and node_names(fault) - known:
                    self._pending_faults.append(fault)
                else:
                    self.inject(fault)

    def _numbers(self) -> dict[str, int]:
        planned = self.plan.system.nodes if self.plan is not None else {}
        return {**planned, **{station.name: station.number for station in self.stations.values()}}

    # -- results -----------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """All frames that were on the bus, the last ones, or none, as `trace` of the constructor says."""
        return self.observation.bus

    def start_measuring(self) -> None:
        """Count the load of the bus, and problems, from now on."""
        self.observation.bus.restart_counting(self.now_ns)
        self.observation.problems.clear()
        self.observation.first_problems.clear()

    def count_alarms(self, begin_ns: int, end_ns: int) -> None:
        """Count missing hard events only for slots that lie in this span of the bus's time."""
        self.observation.window.begin_ns, self.observation.window.end_ns = begin_ns, end_ns

    def bus_load(self) -> dict[str, BandResult]:
        """Frames, errors and load of each traffic class since `start_measuring`, or since power-on."""
        measured_ns = self.now_ns - self.observation.bus.begin_ns
        return {str(kind): self._class_load(kind, measured_ns) for kind in TrafficClass}

    @property
    def busy_ns(self) -> int:
        """How long the bus was busy since `start_measuring`, or since power-on."""
        return sum(band.busy_ns for band in self.observation.bus.bands.values())

    def outcome(self) -> Outcome:
        """Return what became of the events of every channel, beside what the plan promised; and the load of the bus."""
        dropped = Counter[str]()
        for station in self.stations.values():
            if station.has_node:
                dropped += station.node.counts().dropped
        begin_ns = self.observation.bus.begin_ns
        return Outcome(
            seed=self.seed,
            seconds=(self.now_ns - begin_ns) / 1e9,
            pattern="",
            admitted=self.plan is not None and self.plan.ok,
            faults=tuple(map(str, self.simulation.injected)),
            channels=self.channels(),
            bands=self.bus_load(),
            problems=dict(self.observation.problems),
            dropped=dict(dropped),
            began_ns=begin_ns,
        )

    def channels(self) -> tuple[ChannelResult, ...]:
        """Return what became of the events of every channel up to now: a part of the outcome that is quick to get."""
        now = self.now_ns
        return tuple(result_of(tracker, self._verdict(tracker), now) for tracker in self._ordered_trackers())

    def nodes(self) -> list[NodeState]:
        """The nodes, in the order in which they joined, and the broker: how each is, its clock and what it wants."""
        now, heard = self.now_ns, self.observation.bus.heard
        true = self.start_ns + now
        found = [state_of(each, now, true, heard.get(each.number)) for each in list(self.stations.values())]
        broker = self.simulation.hosts.get(BROKER_NODE)
        return found if broker is None else [*found, broker_state(broker, BROKER_UID, heard.get(BROKER_NODE))]

    def watch(self, handler: Callable[[str, Event, int], object]) -> Callable[[], None]:
        """Call a function with each event that a program publishes from now on; returns a function that ends it.

        It gets the name of the node, the event, and the true time in nanoseconds since 1970, in the thread that
        publishes. No node joins the bus for it, and it works while another thread runs the world.
        """

        def watcher(node: str, event: Event, now_ns: int) -> None:
            handler(node, event, self.start_ns + now_ns)

        def end() -> None:
            kept = (each for each in self.observation.watchers if each is not watcher)
            self.observation.watchers = tuple(kept)

        self.observation.watchers = (*self.observation.watchers, watcher)
        return end

    def events(self, start_ns: int | None = None, end_ns: int | None = None) -> list[EventRecord]:
        """Every event of soft and other channels, in the order of publishing; needs `trace`.

        With a span of virtual time, only those that were under way in it: published before its end, and not sent or
        given up before its start. That takes no longer after a long run than after a short one.
        """
        start = -1 if start_ns is None else start_ns
        end = FOREVER if end_ns is None else end_ns
        records = [record for tracker in self.observation.trackers for record in tracker.records_within(start, end)]
        return sorted(records, key=lambda record: record.published_ns)

    def channel_name(self, passage: Passage) -> str:
        """Return the channel that a frame belongs to, or the message of the middleware that it is."""
        channel = self.observation.bus.channel_of(passage.id)
        if channel is not None:
            return channel.tracker.name
        etag = passage.id & ETAG_MASK
        return ProtocolEtag(etag).name.replace("_", " ") if etag in list(ProtocolEtag) else f"event tag {etag}"

    def slot_spans(self, start_ns: int, end_ns: int, node: str | None = None) -> Iterator[tuple[int, int, str]]:
        """Start, end and channel of the hard slots in a span of virtual time, as a node knows them (default: any)."""
        if self.plan is None:
            return
        station = self.stations[node] if node is not None else self.any_station
        for slot in self.plan.calendar.slots:
            found = slot.next_start(station.bus_time(start_ns))
            first = station.find_virtual_time(found.start_ns, start_ns)
            while first < end_ns:
                yield first, station.find_virtual_time(found.deadline_ns, first), slot.channel
                found = slot.next_start(found.start_ns + 1)
                first = station.find_virtual_time(found.start_ns, first)

    def draw(self, path: str | PathLike[str], begin_ns: int, end_ns: int) -> None:
        """Draw a span of virtual time as a picture (PNG, SVG or PDF): frames by node, slots and errors.

        Needs `trace` and matplotlib (the extra `plot`).
        """
        from genus.can._pictures import draw_timeline

        draw_timeline(
            self.trace,
            Path(path),
            slots=list(self.slot_spans(begin_ns, end_ns)),
            start_ns=begin_ns,
            end_ns=end_ns,
            names={number: name for name, number in self._numbers().items()},
            etag_names={self.catalog.etag(name): name for name in self.catalog.types if self.catalog.has_etag(name)},
            title=f"{self.observation.bus.header.title}, seed {self.seed}",
        )

    @property
    def any_station(self) -> Station:
        """The first station that is up; the first of all if none is."""
        stations = list(self.stations.values())
        return next((each for each in stations if each.is_up), stations[0])

    def _class_load(self, kind: TrafficClass, measured_ns: int) -> BandResult:
        observer = self.observation.bus
        band = observer.bands[kind]
        load = band.busy_ns / measured_ns if measured_ns else 0.0
        return BandResult(band.frames, band.errors, load, band.missed)

    def _ordered_trackers(self) -> list[ChannelTracker]:
        """Return the channels on which programs published: those of the plan in its order, then the others."""
        planned = [channel.name for channel in self.plan.system.channels] if self.plan is not None else []
        order = {name: place for place, name in enumerate(planned)}
        return sorted(self.observation.trackers, key=lambda tracker: order.get(tracker.name, len(order)))

    def _verdict(self, tracker: ChannelTracker) -> Any:
        if self.plan is None or all(channel.name != tracker.name for channel in self.plan.system.channels):
            return None
        return self.plan.verdict(tracker.name)

    # -- stations ----------------------------------------------------------------------------------------------------

    def _join(self, options: dict[str, str]) -> Station:
        """Return the station of an address's options; BusError says what is wrong with them."""
        known_options = ("name", "number", "slots", "banks", "catalog")
        if unknown := set(options) - {*known_options}:
            hint = did_you_mean(min(unknown), known_options)
            raise BusError(f"sim:{self.name}: {min(unknown)} is no option; {hint}known are {', '.join(known_options)}")
        name = options.get("name", "") or f"node-{len(self.stations) + 1}"
        known = self.stations.get(name)
        if known is not None and not known.is_closed:
            raise BusError(f"sim:{self.name}: there is a node {name!r} already; give each program a name of its own")
        if known is not None and known.is_up:  # its last frames are on their way
            self._wait_for(lambda: not known.is_up, CLOSING_STEPS * CLOSING_STEP_NS / 1e9)
        if known is not None:
            self._switch_off(known)
        number = self._number(name, options.get("number"), known)
        banks = options.get("banks")
        if banks is not None and not (banks.isdigit() and int(banks)):
            raise BusError(f"sim:{self.name}: banks is {banks!r}; a controller has one filter or more")
        station = Station(
            self,
            self.observation,
            HandlerQueue(self.simulation.scheduler, self._runner),
            name,
            number,
            slots_of=options.get("slots", name),
            banks=None if banks is None else int(banks),
        )
        station.catalog = None if "catalog" not in options else Catalog.load(options["catalog"])
        station.program = self._runner.program
        self.stations[name] = station
        self.observation.listeners_changed()
        return station

    def _number(self, name: str, given: str | None, known: Station | None) -> int:
        """Return the given number; else that of the plan, the one a node had before under this name, or a free one."""
        planned = self.plan.system.nodes if self.plan is not None else {}
        if given is not None:
            return self._check_number(given)
        taken = {*planned.values(), *(station.number for station in self.stations.values())}
        free = (n for n in range(FIRST_NODE, LAST_NODE + 1) if n not in taken)
        number = planned.get(name, known.number if known is not None else next(free, None))
        if number is None or number in self.simulation.hosts:
            raise BusError(f"sim:{self.name}: no node number is free for {name!r}")
        return number

    def _check_number(self, given: str) -> int:
        if not given.isdigit() or not FIRST_NODE <= int(given) <= LAST_NODE:
            raise BusError(f"sim:{self.name}: number is {given!r}; it is {FIRST_NODE} to {LAST_NODE}")
        if int(given) in self.simulation.hosts:
            whose = next((repr(name) for name, number in self._numbers().items() if number == int(given)), "the broker")
            raise BusError(f"sim:{self.name}: number {given} is that of {whose}")
        return int(given)

    def _add_host(self, station: Station) -> Host:
        """Put a station on the bus."""
        guardian = guardian_of(self.plan, station) if self._has_guards and self.plan is not None else None
        return self.simulation.add_host(
            station.number,
            station.boot,
            clock=self._clock(station),
            guardian=guardian,
            run_handler=station.handlers.add,
        )

    def _make_node(self, station: Station) -> Node:
        """Return the node of a station."""
        bus = self.plan.system.bus if self.plan is not None else None
        return Node(
            uid_of(station.number),
            name=station.slots_of,
            timing=self.simulation.timing,
            catalog=station.catalog or (None if self._has_broker else self.catalog),
            number=None if self._has_broker else station.number,
            slots=self.plan.calendar.slots if self.plan is not None else (),
            masterable=not self._masters or station.name in self._masters,
            synchronised=self._clocks == "real",
            sync_period_ns=SYNC_PERIOD_NS if bus is None else bus.sync_period_ns,
            banks=station.banks,
            seed=self.seed << 7 | station.number,
        )

    def _remove(self, station: Station, steps: int = CLOSING_STEPS) -> None:
        """Switch a station off when all its frames are sent."""

        def check() -> None:
            if self.stations.get(station.name) is station and station.is_up:
                if steps and station.node.has_frames:
                    self._remove(station, steps - 1)
                else:
                    self._switch_off(station)

        self.at_ns(self.now_ns + CLOSING_STEP_NS, check)

    def _station_crashed(self, station: Station) -> None:
        """A station went down: its program and its handlers end."""
        station.handlers.clear()
        self.observation.station_left(station)
        self._runner.abort(station.handlers, NodeDown(f"node {station.name!r} is down"))
        if station.program is not None and not station.is_closed:
            self._runner.abort(station.program, NodeDown(f"node {station.name!r} is down"))

    def _down_error(self, station: Station) -> BaseException:
        """Return what is raised if a station is used while it is down: in its own program, what ends that."""
        text = f"node {station.name!r} is down"
        own = [each for each in (station.program, station.handlers) if each is not None]
        return NodeDown(text) if self._runner.program in own else BusError(text)

    def _restart_program(self, number: int) -> bool:
        """Start the program of a station again, if it has one."""
        station = next((each for each in self.stations.values() if each.number == number), None)
        if station is None or not isinstance(station.program, Program):
            return False
        for each in [each for each in self.stations.values() if each.program is station.program]:
            each.abandon()
            self._switch_off(each)
        self._start_program(station.program)
        return True

    def _switch_off(self, station: Station) -> None:
        station.last_filters = station.filters
        station.host.crash()
        self.simulation.hosts.pop(station.number, None)

    def _clock(self, station: Station) -> SimClock:
        if self._clocks == "perfect":
            return SimClock(self.start_ns)
        random = self.simulation.random(f"clock {station.number}")
        if station.name in self._reference:
            return SimClock(self.start_ns + random.randint(-REFERENCE_ERROR_NS, REFERENCE_ERROR_NS))
        return crystal_clock(random, f"{self.seed}/{station.number}", start_ns=self.start_ns)

    def _run_handler(self, call: Callable[[], object]) -> None:
        """Handlers run as callbacks of their own, at this instant, so that they may block."""
        self.simulation.at(self.now_ns, call)

    # -- setup -------------------------------------------------------------------------------------------------------

    def _slot_starts(self) -> SlotStarts | None:
        if self.plan is None:
            return None
        starts = tuple(start for start, _ in self.plan.calendar.starts_in_cycle())
        return SlotStarts(self.plan.calendar.cycle_ns, starts) if starts else None

    def _make_broker(self) -> Broker:
        return Broker(
            BROKER_UID, self.catalog, self.store, fd=self.simulation.timing.data_bitrate is not None, seed=self.seed
        )

    def _make_store(self) -> MemoryStore:
        """Return where the broker keeps its tables; it begins with the numbers that the plan gives to nodes."""
        store = MemoryStore()
        tables = BrokerTables(store)
        for number in self.plan.system.nodes.values() if self.plan is not None else ():
            tables.assign(uid_of(number), number)
        tables.begin_epoch()
        tables.save()
        return store


_WORLDS: dict[str, World] = {}


def open_station(rest: str) -> Station:
    """Return the link of an address `sim:WORLD?name=NODE`."""
    name, _, query = rest.partition("?")
    if name not in _WORLDS:
        known = f"known are {', '.join(map(repr, _WORLDS))}" if _WORLDS else f"make one: genus.can.World({name!r}, ...)"
        raise BusError(f"sim:{rest}: there is no world {name!r} in this process; {known}")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise BusError(f"sim:{rest}: write options as name=value, joined by &") from None
    return _WORLDS[name]._join(options)


def _check_arguments(clocks: str, seed: int, bitrate: int, start: datetime, trace: bool | int) -> None:
    if not isinstance(trace, int) or trace < 0:
        raise BusError(f"trace is {trace!r}; it is True, False, or how many frames are kept")
    if clocks not in ("real", "perfect"):
        raise BusError(f"clocks is {clocks!r}; it is 'real' or 'perfect'")
    if not isinstance(seed, int) or not isinstance(bitrate, int):
        raise BusError(f"seed and bitrate are whole numbers, not {seed!r} and {bitrate!r}")
    if start.tzinfo is None:
        raise BusError(f"start has no time zone; write for example datetime({start.year}, 1, 1, tzinfo=UTC)")


def _plan_of(given: Plan | System | str | PathLike[str] | None) -> Plan | None:
    if given is None or isinstance(given, Plan):
        return given
    system = given if isinstance(given, System) else load_system(Path(given))
    return make_plan(system, with_advice=False)


def _catalog_of(given: Catalog | str | PathLike[str] | Iterable[type[Event]]) -> Catalog:
    if isinstance(given, Catalog):
        return given
    if isinstance(given, str | PathLike):
        return Catalog.load(given)
    catalog = Catalog()
    catalog.register(*([given] if isinstance(given, type) else given))
    return catalog
