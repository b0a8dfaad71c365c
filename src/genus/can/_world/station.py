"""A node in the simulator as the link of a bus: `open_bus("sim:WORLD?name=NODE")`."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Protocol, TypeVar

from genus.bus.internal import WaitFor
from genus.bus.types import Delivery, ProblemHandler
from genus.can._node.link import BINDING_S, CLOSED, Listening, NodeLink, NodePublisher, log_refusal
from genus.can._node.node import Node
from genus.can._node.problems import DeliveryProblem
from genus.can._plan.admission import Plan
from genus.can._plan.system import ChannelSpec
from genus.can._protocol.clock_model import known_precision
from genus.can._sim.controller import BusGuardian
from genus.can._sim.scheduler import NEVER, Scheduler
from genus.can._sim.simulation import Host
from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Priority
from genus.can._world.programs import ProgramRunner
from genus.catalog import Catalog
from genus.errors import BusError, QueueFull
from genus.filters import Subscription
from genus.model import Event
from genus.targets.python import PythonFilter

R = TypeVar("R")


class StationWorld(Protocol):
    """What a station needs of its world."""

    @property
    def now_ns(self) -> int: ...
    def at_ns(self, time_ns: int, callback: Callable[[], object]) -> None: ...
    def _wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool: ...
    def _make_node(self, station: "Station") -> Node: ...
    def _add_host(self, station: "Station") -> Host: ...
    def _remove(self, station: "Station") -> None: ...
    def _station_crashed(self, station: "Station") -> None: ...
    def _down_error(self, station: "Station") -> BaseException:
        """Return what is raised if a station is used while it is down."""


class StationObserver(Protocol):
    """What a station reports for the outcome of a simulation."""

    def event_published(self, station: "Station", event: Event, etag: int, payload: bytes, *, replaces: bool) -> None:
        """A program published an event, which `replaces` a hard one that waited for its slot."""

    def event_refused(self, station: "Station", event: Event) -> None: ...
    def event_received(self, station: "Station", event: Event, identifier: int | None) -> None:
        """A node got an event of a class that it has a subscription for; None: its own."""

    def listeners_changed(self) -> None: ...
    def publisher_informed(self, station: "Station", cls: type, problem: DeliveryProblem) -> None: ...
    def subscriber_informed(self, station: "Station", problem: DeliveryProblem) -> None: ...


class Station(NodeLink):
    """State: one node in the simulator. After a restart its node is another one; its program goes on."""

    host: Host
    _deliver: Delivery

    def __init__(
        self,
        world: StationWorld,
        observer: StationObserver,
        handlers: "HandlerQueue",
        name: str,
        number: int,
        *,
        slots_of: str,
        banks: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self.number = number
        self.slots_of = slots_of
        """The node whose slots of the calendar it uses: itself, unless it replaces another one."""
        self.banks = banks
        self.last_filters: tuple[tuple[int, int], ...] = ()
        self.catalog: Catalog | None = None
        """A catalog of its own, if it does not have the world's or the broker's."""
        self.program: object = None
        """The program that opened it, if `World.start` runs that."""
        self._world = world
        self._observer = observer
        self._deliveries: dict[type, Callable[[Event], None]] = {}
        self._listened: dict[object, ListenedSubscription] = {}
        self._started: Node | None = None
        self.handlers = handlers
        self.at_restart: list[Callable[[], object]] = []
        """Timers that were due while the station was down."""

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self, deliver: Delivery) -> None:
        self._deliver = deliver
        self.host = self._world._add_host(self)
        self.host.on_crash = lambda: self._world._station_crashed(self)
        self._start(self.node)

    def boot(self) -> Node:
        """Return the node, made again; it starts at this instant of virtual time."""
        self._node = node = self._world._make_node(self)
        node.rx.observer = self._receive
        self._world.at_ns(self._world.now_ns, lambda: self._start(node))
        return node

    def _start(self, node: Node) -> None:
        if node is self._node and node is not self._started and self.is_up:
            self._started = node
            self.run(node, StationDriver(self, self._world), self._clock or StationClock(self, self._world))
            due, self.at_restart = self.at_restart, []
            for call in due:
                call()

    def close(self) -> None:
        """Send final reports and leave the bus; a station that is down just stays down."""
        if self.is_up:
            super().close()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Close the bus of the program without a word on the wire: its node is down, or the world is closed."""
        self._driver = None

    @property
    def has_node(self) -> bool:
        return self._node is not None

    @property
    def is_closed(self) -> bool:
        return self._driver is None and self._started is not None

    @property
    def is_up(self) -> bool:
        return self._node is not None and self.host.is_up

    @property
    def is_ready(self) -> bool:
        """Whether its channels are bound, and its clock is precise enough for the calendar."""
        return self.is_bound_whole and not self.node.is_calendar_stopped

    @property
    def is_bound_whole(self) -> bool:
        """Whether it has a number, and all that it announced and subscribed to is bound."""
        if not self.is_up or self._driver is None:
            return False
        bound = all(each.announcement.state == "ready" for each in list(self._publishers))
        received = all(each.interest.state == "ready" for each in list(self._interests))
        return self.node.number is not None and bound and received

    def may_publish(self, cls: type) -> bool:
        channel = self.node.tx.channels.get(cls) if self.is_up else None
        return channel is not None and channel.state == "ready"

    # -- time --------------------------------------------------------------------------------------------------------

    def bus_time(self, now_ns: int) -> int:
        """Return the bus's time at a virtual time, as the station knows it now."""
        return self.node.time.global_time(self.host.clock.local_time(now_ns))

    def virtual_time(self, bus_ns: int) -> int:
        """Return the virtual time at which the station takes it for that time of the bus."""
        return self.host.clock.virtual_time(self.node.time.local_time(bus_ns))

    def find_virtual_time(self, bus_ns: int, near_ns: int) -> int:
        """Return `virtual_time` to a nanosecond or two, from a guess; for other threads, as it changes nothing."""
        found = near_ns
        for _ in range(64):  # one or two are enough unless the clock is slowed down
            missing = bus_ns - self.bus_time(found)
            if not missing:
                break
            found += missing
        return found

    @property
    def precision_ns(self) -> int:
        return self.node.time.precision(self.host.now)

    @property
    def filters(self) -> tuple[tuple[int, int], ...]:
        """The acceptance filters of its controller; the last ones it had, once it is off."""
        if self.is_up:
            self.last_filters = tuple((value, mask) for value, mask in self.host.controller.filters or ())
        return self.last_filters

    # -- what programs do --------------------------------------------------------------------------------------------

    def publisher_handler(self, cls: type, on_problem: ProblemHandler | None) -> ProblemHandler:
        """Return what gets the problems of a publisher, and observes them."""

        def handle(problem: DeliveryProblem) -> None:
            self._observer.publisher_informed(self, cls, problem)
            (on_problem or log_refusal)(problem)

        return handle

    def publish(self, event: Event, *, loop_back: bool = True) -> None:
        """Publish an event, and observe what becomes of it; blocks while a node that restarted binds its channels."""
        if self._node is None or not self.host.is_up:
            raise self._world._down_error(self)
        channel = self._node.tx.channels.get(type(event))
        if channel is not None and channel.state == "binding":
            self.driver.wait_for(lambda: channel.state != "binding", BINDING_S)
        if self._driver is None:
            raise BusError(CLOSED)
        if not self.host.is_up:
            raise self._world._down_error(self)
        try:
            self.host.call(partial(self._publish, self._node, event, loop_back))
        except QueueFull:
            self._observer.event_refused(self, event)
            raise

    def _publish(self, node: Node, event: Event, loop_back: bool, now: int) -> None:
        channel = node.tx.channels.get(type(event))
        before = 0 if channel is None else channel.counts.replaced
        etag, payload = node.publish(event, now, loop_back=loop_back)
        replaces = channel is not None and channel.counts.replaced > before
        self._observer.event_published(self, event, etag, payload, replaces=replaces)

    def withdraw(self, publisher: NodePublisher) -> None:
        if self.is_up:
            super().withdraw(publisher)
        else:
            self._publishers.pop(publisher, None)

    def unlisten(self, listening: Listening) -> None:
        if self.is_up:
            super().unlisten(listening)
        else:
            self._interests.pop(listening, None)

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Receive what a subscription matches, and observe what comes and what does not."""

        def handle(problem: DeliveryProblem) -> None:
            self._observer.subscriber_informed(self, problem)
            (on_problem or log_refusal)(problem)

        end = super().listen(subscription, handle)
        self._listened[handle] = ListenedSubscription(subscription)
        self._observer.listeners_changed()

        def unlisten() -> None:
            self._listened.pop(handle, None)
            self._observer.listeners_changed()
            end()

        return unlisten

    @property
    def subscriptions(self) -> "list[ListenedSubscription]":
        return list(self._listened.values())

    def _receive(self, event: Event, identifier: int | None) -> None:
        self._observer.event_received(self, event, identifier)
        cls = type(event)
        deliver = self._deliveries.get(cls)
        if deliver is None:
            deliver = self._deliveries[cls] = self._deliver.for_class(cls)
        deliver(event)


class ListenedSubscription:
    """State: a subscription of a station, and how many events matched it there."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.delivered = 0
        is_conditional = bool(subscription.has or subscription.lacks or subscription.where is not None)
        self.test = PythonFilter(subscription) if is_conditional else None
        """What decides; None if all events of the classes that it accepts match."""

    @cached_property
    def text(self) -> str:
        return str(self.subscription)


class HandlerQueue:
    """State: the handlers that a station is to call: one after the other, as on a live bus.

    Each is a callback of its own in the simulation, so that it may wait; the next one waits for it.
    """

    def __init__(self, scheduler: Scheduler, runner: ProgramRunner) -> None:
        self._scheduler = scheduler
        self._run_program = runner.run_program
        self._calls: deque[Callable[[], object]] = deque()
        self._is_busy = False
        self._postponed = 0

    def add(self, call: Callable[[], object]) -> None:
        """Call a handler at this instant, or when those before it have returned."""
        self._calls.append(call)
        self._scheduler.at(self._scheduler.now, self._run_next)

    def clear(self) -> None:
        """Call none of those that wait: the node is down."""
        self._calls.clear()

    def _run_next(self) -> None:
        if self._is_busy:
            self._postponed += 1
            return
        if not self._calls:
            return
        self._is_busy = True
        try:
            self._run_program(self, self._calls.popleft())  # so that it ends with its node
        finally:
            self._is_busy = False
            postponed, self._postponed = self._postponed, 0
            for _ in range(postponed):
                self._scheduler.at(self._scheduler.now, self._run_next)


class StationDriver:
    """Runs the node of a station in virtual time."""

    def __init__(self, station: Station, world: StationWorld) -> None:
        self._station = station
        self._world = world

    def call(self, action: Callable[[int], R]) -> R:
        if not self._station.is_up:
            raise self._world._down_error(self._station)
        return self._station.host.call(action)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        return self._world._wait_for(condition, timeout)

    def counters(self) -> Mapping[str, int]:
        """Return nothing: the simulated bus counts frames for all stations; see `World.outcome`."""
        return {}

    def close(self) -> None:
        self._world._remove(self._station)


class StationClock:
    """The bus's time as a station knows it, in virtual time."""

    def __init__(self, station: Station, world: StationWorld) -> None:
        self._station = station
        self._world = world
        self._is_closed = False
        self.wait_for: WaitFor | None = world._wait_for

    def time_ns(self) -> int:
        return self._station.bus_time(self._world.now_ns)

    def precision_ns(self) -> int | None:
        """Return a bound on the error of `time_ns`; None while there is none, or the station is down."""
        return known_precision(self._station.precision_ns) if self._station.is_up else None

    def sleep(self, seconds: float) -> None:
        self._world._wait_for(lambda: False, seconds)

    def call_at(self, time_ns: int, function: Callable[[], object]) -> "StationTimer":
        """Call a function when the station takes it for that time; if it is down then, when it restarts."""
        timer = StationTimer()

        def call() -> None:
            if timer.is_cancelled or self._is_closed:
                return
            if self._station.is_up:
                function()
            else:
                self._station.at_restart.append(call)

        self._world.at_ns(max(self._station.virtual_time(time_ns), self._world.now_ns), call)
        return timer

    def close(self) -> None:
        self._is_closed = True


class StationTimer:
    """State: a call in virtual time."""

    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


OWN_FRAMES_PER_SECOND = 100
"""What the middleware of a node sends at most: as master two frames every 20 ms of synchronisation."""
HEADROOM = 2
"""A station may send this many times what its channels need: retransmissions, and reports."""


class BusTimeGuardian(BusGuardian):
    """State: a bus guardian whose windows are by the time of the bus, as its station knows it."""

    def __init__(
        self, station: Station, cycle_ns: int, windows: list[tuple[int, int]], interval_ns: int, burst: int
    ) -> None:
        super().__init__(cycle_ns=cycle_ns, windows=windows, interval_ns=interval_ns, burst=burst)
        self._station = station

    def earliest_start(self, frame: Frame, now: int) -> int:
        if frame.id >> PRIORITY_SHIFT != Priority.HARD:
            return super().earliest_start(frame, now)
        start = super().earliest_start(frame, self._station.bus_time(now))
        return start if start >= NEVER else max(now, self._station.virtual_time(start))


def guardian_of(plan: Plan, station: Station) -> BusGuardian:
    """The bus guardian of a station: its own slots for hard frames, and a budget of twice what its channels take."""
    own = [channel for channel in plan.system.channels if channel.node == station.name]
    others = [channel for channel in own if channel.qos_class != "hard"]
    per_second = OWN_FRAMES_PER_SECOND + sum(channel.frames * 1_000_000_000 / channel.period_ns for channel in others)
    return BusTimeGuardian(
        station,
        plan.calendar.cycle_ns or 1,
        _windows(plan, station.name),
        round(1_000_000_000 / (HEADROOM * per_second)),
        _burst(own),
    )


def _windows(plan: Plan, node: str) -> list[tuple[int, int]]:
    """Return windows from the start of a slot to the last instant at which its last attempt may start."""
    return [
        (start - slot.gap_ns // 2 if start else 0, start + slot.length_ns - slot.gap_ns // 2 - slot.used_ns)
        for start, slot in plan.calendar.starts_in_cycle()
        if slot.node == node
    ]


def _burst(channels: list[ChannelSpec]) -> int:
    """Return how many frames may come at once: all events, and all signatures, announcements and reports."""
    return 8 + HEADROOM * sum(channel.frames + 3 for channel in channels)
