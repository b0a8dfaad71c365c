"""A station of a scenario: a real node on the simulated bus, and the programs that publish and subscribe there."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from genus.can._node.channels import Announcement
from genus.can._node.node import Node
from genus.can._node.troubles import EventMissing, EventsLost, HardResumed, HardStopped, Trouble
from genus.can._plan.calendar import Slot
from genus.can._sim.simulation import Host, Simulation
from genus.can._world.flow import Flow
from genus.can._world.stand_ins import number_of
from genus.errors import QueueFull
from genus.filters import Subscription
from genus.model import Event, name_of

LEAD_NS = 200_000
"""How long before its slot a hard event is written, or a quarter of the period if that is less."""


class Window(msgspec.Struct):
    """State: the time that counts, by the bus's clock; hard slots within it are expected to be used."""

    begin_ns: int = 1 << 62
    end_ns: int = 1 << 62
    is_closed: bool = False
    """Whether programs publish no more."""

    def close(self, bus_now: int) -> None:
        """It is over, perhaps earlier than was planned."""
        self.end_ns = min(self.end_ns, bus_now)
        self.is_closed = True

    def holds(self, start_ns: int, deadline_ns: int) -> bool:
        """Whether a slot lies within."""
        return self.begin_ns <= start_ns and deadline_ns <= self.end_ns


class Station:
    """State: one participant; its node is another one after a restart, its programs go on."""

    def __init__(
        self,
        name: str,
        number: int,
        simulation: Simulation,
        make: Callable[[], Node],
        publishes: Sequence[Flow],
        hears: Sequence[Flow],
        window: Window,
    ) -> None:
        self.name = name
        self.number = number
        self.publishes = publishes
        self.hears = hears
        self.troubles: Counter[str] = Counter()
        self.on_trouble: list[Callable[[Trouble], object]] = []
        """Who else wants to know what programs are told."""
        self._simulation = simulation
        self._make = make
        self._window = window
        self._announcements: dict[Flow, Announcement] = {}
        self._stopped = False
        self._heard_by_class: dict[type[Event], list[Flow]] = {}
        for flow in hears:
            self._heard_by_class.setdefault(flow.cls, []).append(flow)
        self.node: Node

    def boot(self) -> Node:
        """The node, made anew; it starts at this instant of virtual time."""
        self.node = node = self._make()
        self._announcements.clear()
        self._simulation.at(self._simulation.now, lambda: self._start(node))
        return node

    @property
    def host(self) -> Host:
        """Where the node runs."""
        return self._simulation.hosts[self.number]

    @property
    def is_up(self) -> bool:
        """Whether the node runs."""
        return self.host.is_up

    @property
    def is_ready(self) -> bool:
        """Whether its channels are bound, and its clock is good enough for the calendar."""
        bound = all(self.may_publish(flow) for flow in self.publishes)
        heard = all(subscriber.state == "ready" for subscriber in self.node.receiving.subscribers)
        return self.node.number is not None and bound and heard and not self._stopped

    def bus_time(self, now: int) -> int:
        """What the station takes for the bus's time at an instant of virtual time."""
        return self.node.time.global_time(self.host.clock.local(now))

    def instant_of(self, bus_ns: int) -> int:
        """The instant of virtual time at which the station's view of the bus's time is this."""
        return self.host.clock.global_of(self.node.time.local_time(bus_ns))

    def may_publish(self, flow: Flow) -> bool:
        """Whether a channel is bound."""
        announcement = self._announcements.get(flow)
        return announcement is not None and announcement.state == "ready"

    # Programs

    def _start(self, node: Node) -> None:
        if node is self.node and self.is_up:
            self._stopped = False
            self.host.call(node.start)
            self.host.call(self._announce)
            self.host.call(self._subscribe)

    def _announce(self, now: int) -> None:
        for flow in self.publishes:
            told = partial(self._publisher_told, flow)
            self._announcements[flow] = self.node.announce(flow.cls, flow.channel.qos, now, on_trouble=told)

    def _subscribe(self, now: int) -> None:
        for cls in self._heard_by_class:
            self.node.subscribe(Subscription(cls), self._delivered, now, on_trouble=self._subscriber_told)

    def publish_at(self, flow: Flow, instants: Iterator[int], until_ns: int) -> None:
        """Publish a channel's events at these instants of virtual time."""
        at = next(instants, None)
        if at is None or at >= until_ns:
            return

        def release() -> None:
            self.publish(flow)
            self.publish_at(flow, instants, until_ns)

        self._simulation.at(max(at, self._simulation.now), release)

    def publish(self, flow: Flow, due: int | None = None) -> None:
        """Publish a channel's next event, if the channel is bound and the node is up."""
        if self._window.is_closed or not self.is_up or not self.may_publish(flow):
            return
        number, event = flow.next_event()
        flow.was_published(number, self._simulation.now, due)
        try:
            self.host.call(lambda now: self.node.publish(event, now))
        except QueueFull:
            flow.take_back(number)
            flow.refused += 1

    def serve(self, flow: Flow, slot: Slot, start_ns: int) -> None:
        """Write a hard channel's events shortly before its slots, from the one that starts then by the bus's clock."""
        lead = min(LEAD_NS, slot.period_ns // 4)
        deadline = start_ns + slot.length_ns
        if deadline > self._window.end_ns or self._window.is_closed:
            return
        at = self.instant_of(start_ns - lead) if self.is_up else self._simulation.now + slot.period_ns

        def write() -> None:
            if self.is_up and not self._stopped and self._window.holds(start_ns, deadline):
                self.publish(flow, deadline)
            self.serve(flow, slot, start_ns + slot.period_ns)

        self._simulation.at(max(at, self._simulation.now), write)

    # What programs are told

    def _delivered(self, event: Event) -> None:
        number = number_of(event)
        for flow in self._heard_by_class[type(event)]:
            if flow.is_of(number):
                return flow.was_delivered(self.name, number, self.bus_time(self._simulation.now))

    def _publisher_told(self, flow: Flow, trouble: Trouble) -> None:
        self._note(trouble)
        flow.publisher_told(trouble, self._simulation.now)

    def _subscriber_told(self, trouble: Trouble) -> None:
        if isinstance(trouble, EventMissing):
            return self._missing(trouble)
        self._note(trouble)
        if isinstance(trouble, EventsLost):
            for flow in self.hears:
                if name_of(flow.cls) == trouble.channel and flow.channel.number == trouble.node:
                    flow.subscriber_told(self.name, trouble)

    def _missing(self, trouble: EventMissing) -> None:
        deadline = trouble.deadline_ns
        for flow in self.hears:
            mine = name_of(flow.cls) == trouble.channel and flow.alarm_is_mine(deadline)
            if mine and flow.slot is not None and self._window.holds(deadline - flow.slot.length_ns, deadline):
                self._note(trouble)
                flow.subscriber_told(self.name, trouble)

    def _note(self, trouble: Trouble) -> None:
        self.troubles[type(trouble).__name__] += 1
        for tell in self.on_trouble:
            tell(trouble)
        if isinstance(trouble, HardStopped | HardResumed):
            self._stopped = isinstance(trouble, HardStopped)
