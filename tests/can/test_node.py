"""Nodes on a simulated bus: binding, the three classes of channels, and what their handlers are told."""

import pytest

from genus import BestEffort, Catalog, Event, Hard, Maybe, Soft, Subscription, UInt8, this
from genus.bus._link import QoS
from genus.can._node.node import Node
from genus.can._node.problems import DeliveryProblem, EventMissing
from genus.can._plan.calendar import Slot
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._protocol.messages import Claim
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Timing
from genus.errors import BusError, EventError

TIMING = Timing(1_000_000)
MS = 1_000_000


class Loop(Event, tagged=("place",)):
    lane: UInt8
    speed: Maybe[UInt8] = None


class Radar(Loop):
    angle: Maybe[UInt8] = None


class Note(Event):
    text: str


SLOT = Slot(
    channel="loops", event="Loop", node="sensor", number=1, etag=8192, offset_ns=2 * MS, period_ns=10 * MS,
    length_ns=562_000, wait_ns=191_000, gap_ns=20_000, frames=1, omissions=1, used_ns=160_000,
)  # fmt: skip


def catalog() -> Catalog:
    made = Catalog()
    made.register(Loop, Radar, Note)
    return made


class City:
    """A simulated bus with nodes on it."""

    def __init__(self) -> None:
        self.bus = SimBus(TIMING)
        self.catalog = catalog()
        self.hosts: list[Host] = []
        self.store = MemoryStore()

    def host(self, machine: Node | Broker) -> Host:
        number = len(self.hosts) + 1
        host = Host(machine, self.bus.attach(Controller(number)), self.bus)
        self.hosts.append(host)
        return host

    def node(
        self, name: str = "", *, number: int | None = None, slots: tuple[Slot, ...] = (), synchronised: bool = True
    ) -> "Seat":
        known = self.catalog if number is not None else None
        uid = 1000 + len(self.hosts)
        seat = Seat(self.bus)
        seat.node = node = Node(
            uid, name=name, timing=TIMING, catalog=known, number=number, slots=slots, synchronised=synchronised,
            on_event=seat.take,
        )  # fmt: skip
        seat.host = self.host(node)
        seat.host.call(node.start)
        return seat

    def broker(self) -> Host:
        return self.host(Broker(1, self.catalog, self.store))

    def run(self, milliseconds: int) -> None:
        self.bus.run(self.bus.now + milliseconds * MS)


class Seat:
    """A program on a node: the events and troubles it got."""

    node: Node
    host: Host

    def __init__(self, bus: SimBus) -> None:
        self.events: list[tuple[int, Event]] = []
        self.troubles: list[DeliveryProblem] = []
        self._bus = bus
        self._subscriptions: list[Subscription] = []

    def announce(self, cls: type[Event], qos: QoS, *carries: str) -> None:
        """Announce, and wait for the report after which a channel is ready."""
        self.host.call(lambda now: self.node.announce(cls, qos, now, on_problem=self.troubles.append, carries=carries))
        self._bus.run(self._bus.now + MS)

    def publish(self, event: Event) -> None:
        self.host.call(lambda now: self.node.publish(event, now))

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)
        self.host.call(lambda now: self.node.subscribe(subscription, now, on_problem=self.troubles.append))

    def take(self, event: Event) -> None:
        """As a bus does: what the node receives goes to the subscriptions that match."""
        self.events += [(self.host.now, event) for each in self._subscriptions if each.matches(event)]

    @property
    def received(self) -> list[Event]:
        return [event for _, event in self.events]


@pytest.fixture
def city() -> City:
    return City()


@pytest.mark.parametrize("qos", [BestEffort(), BestEffort(priority=1), Soft(deadline="20ms", expires="100ms")])
def test_an_event_reaches_those_whose_subscription_matches(city: City, qos: QoS) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop, where=this.lane > 1))
    sensor.announce(Loop, qos)
    sensor.publish(Loop(lane=1))
    sensor.publish(Loop(lane=2, speed=80))
    city.run(5)
    assert logger.received == [Loop(lane=2, speed=80)]
    assert sensor.troubles == []


def test_subscribing_to_a_type_brings_its_subtypes(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop))
    sensor.announce(Radar, BestEffort())
    sensor.publish(Radar(lane=3, angle=9))
    city.run(5)
    assert logger.received == [Radar(lane=3, angle=9)]


def test_a_controller_turns_away_what_nobody_asked_for(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop, has="place"))
    sensor.announce(Loop, BestEffort())
    sensor.publish(Loop(lane=1))
    city.run(5)
    assert logger.node.counts().received["Loop"] == 0


def test_long_events_are_segmented_and_come_whole(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Note))
    sensor.announce(Note, Soft(deadline="20ms"))
    sensor.publish(Note(text="a text that does not fit into eight bytes"))
    city.run(10)
    assert logger.received == [Note(text="a text that does not fit into eight bytes")]


def test_an_event_that_does_not_fit_its_channel_is_refused_at_the_call(city: City) -> None:
    sensor = city.node(number=1)
    sensor.announce(Loop, BestEffort())
    with pytest.raises(EventError, match="takes 12 bytes"):
        sensor.publish(Loop(lane=1, speed=80, place="A8/km31"))
    assert sensor.node.counts().sent["Loop"].published == 0


def test_announced_context_attributes_are_carried(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop, has="place"))
    sensor.announce(Loop, BestEffort(), "place")
    city.run(1)
    sensor.publish(Loop(lane=1, speed=80, place="A8/km31"))
    city.run(5)
    assert logger.received == [Loop(lane=1, speed=80, place="A8/km31")]


def test_who_publishes_also_hears(city: City) -> None:
    sensor = city.node(number=1)
    city.node(number=2)
    sensor.subscribe(Subscription(Loop))
    sensor.announce(Loop, BestEffort())
    sensor.publish(Loop(lane=1))
    city.run(5)
    assert sensor.received == [Loop(lane=1)]


def test_a_hard_event_is_delivered_exactly_at_its_deadline(city: City) -> None:
    sensor = city.node("sensor", number=1, slots=(SLOT,), synchronised=False)
    logger = city.node("logger", number=2, slots=(SLOT,), synchronised=False)
    logger.subscribe(Subscription(Loop))
    sensor.subscribe(Subscription(Loop))
    sensor.announce(Loop, Hard(period="10ms", omissions=1))
    for period in range(3):
        sensor.publish(Loop(lane=period))
        city.run(10)
    deadlines = [2_562_000, 12_562_000, 22_562_000]
    assert [at for at, _ in logger.events] == [at for at, _ in sensor.events] == deadlines
    assert logger.troubles == sensor.troubles == []


def test_every_subscriber_is_told_of_a_hard_event_that_did_not_come(city: City) -> None:
    sensor = city.node("sensor", number=1, slots=(SLOT,), synchronised=False)
    loggers = [city.node(f"logger{n}", number=2 + n, slots=(SLOT,), synchronised=False) for n in range(2)]
    for logger in loggers:
        logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, Hard(period="10ms", omissions=1))
    city.run(10)
    for logger in loggers:
        assert logger.troubles == [EventMissing("Loop", 2_562_000)]


def test_clocks_are_synchronised_before_hard_channels_start(city: City) -> None:
    sensor = city.node("sensor", number=1, slots=(SLOT,))
    logger = city.node("logger", number=2, slots=(SLOT,))
    logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, Hard(period="10ms", omissions=1))
    for period in range(60):
        sensor.publish(Loop(lane=period))
        city.run(10)
    told = [type(trouble).__name__ for trouble in sensor.troubles]
    assert [kind for kind in told if kind != "NotSent"] == ["HardStopped", "HardResumed"]
    assert len(logger.events) > 20
    assert len(logger.events) + told.count("NotSent") == 60
    assert not any(isinstance(trouble, EventMissing) for trouble in logger.troubles)


def test_a_hard_channel_without_a_slot_is_refused_with_the_reason(city: City) -> None:
    sensor = city.node("sensor", number=1, slots=(SLOT,), synchronised=False)
    with pytest.raises(BusError, match="no slot for Radar"):
        sensor.announce(Radar, Hard(period="10ms"))
    with pytest.raises(BusError, match="not every 20000000 ns"):
        sensor.announce(Loop, Hard(period="20ms"))
    with pytest.raises(BusError, match="3 omissions"):
        sensor.announce(Loop, Hard(period="10ms", omissions=3))


def test_a_node_gets_number_catalog_and_tag_from_the_broker(city: City) -> None:
    city.broker()
    sensor, logger = city.node(), city.node()
    logger.subscribe(Subscription(Loop, where=this.lane > 1))
    sensor.announce(Loop, Soft(deadline="20ms"))
    city.run(400)
    assert sorted(seat.node.number or 0 for seat in (sensor, logger)) == [1, 2]
    sensor.publish(Loop(lane=2))
    city.run(5)
    assert logger.received == [Loop(lane=2)]


def test_a_node_that_loses_its_number_goes_on_under_another(city: City) -> None:
    city.broker()
    sensor, logger = city.node(), city.node()
    logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, Soft(deadline="20ms"))
    city.run(400)
    number = sensor.node.number
    assert number is not None
    logger.host.call(lambda now: sensor.node.receive(Claim(number, 1).frame(), now))
    sensor.host.call(lambda now: None)
    assert sensor.node.number is None
    with pytest.raises(BusError, match=f"lost its number {number} to the node with uid 0{{15}}1, and no broker"):
        sensor.publish(Loop(lane=1))
    city.run(2000)
    sensor.publish(Loop(lane=2))
    city.run(10)
    assert logger.received == [Loop(lane=2)]


def test_a_channel_has_the_class_of_its_first_publisher(city: City) -> None:
    city.broker()
    first, second = city.node(), city.node()
    first.announce(Loop, Soft(deadline="20ms"))
    city.run(400)
    second.announce(Loop, BestEffort())
    city.run(100)
    assert [type(trouble).__name__ for trouble in second.troubles] == ["BindingFailed"]
    with pytest.raises(BusError, match="SOFT"):
        second.publish(Loop(lane=1))


def test_an_announcement_of_a_type_outside_the_catalog_is_refused(city: City) -> None:
    class Stranger(Event):
        value: UInt8

    city.broker()
    sensor = city.node()
    city.run(300)
    with pytest.raises(LookupError, match="Stranger"):
        sensor.announce(Stranger, BestEffort())


def test_lost_events_are_counted_and_told(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, BestEffort())
    for lane in range(20):
        sensor.publish(Loop(lane=lane))
    city.run(1)
    cut = len(logger.events)
    city.bus.detach(logger.host.controller)
    city.run(1)
    city.bus.attach(logger.host.controller)
    city.run(1500)
    counts = logger.node.counts()
    assert 0 < cut < 20
    assert counts.lost["Loop"] + counts.received["Loop"] == 20
    assert sum(trouble.count for trouble in logger.troubles if hasattr(trouble, "count")) == counts.lost["Loop"]


def test_who_joins_late_waits_to_hear_whether_events_are_segmented(city: City) -> None:
    sensor = city.node(number=1)
    sensor.announce(Loop, BestEffort(), "place")
    city.run(300)
    late = city.node(number=2)
    late.subscribe(Subscription(Loop))
    for lane in range(100):
        sensor.publish(Loop(lane=lane, place="A8"))
        city.run(2)
    lanes = [event.lane for event in late.received if isinstance(event, Loop)]
    assert lanes == list(range(lanes[0], 100))
    assert lanes[0] < 20
    assert late.node.counts().lost["Loop"] == 0


def test_subtypes_are_received_whole_through_a_broker(city: City) -> None:
    city.broker()
    sensor = city.node()
    sensor.announce(Radar, Soft(deadline="20ms"), "place")
    city.run(1500)
    late = city.node()
    late.subscribe(Subscription(Event))
    city.run(400)
    for lane in range(50):
        sensor.publish(Radar(lane=lane, place="A8"))
        city.run(5)
    assert [event.lane for event in late.received if isinstance(event, Radar)] == list(range(50))
    assert late.node.counts().lost["Radar"] == 0


def test_what_the_filters_turn_away_is_not_lost(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop, has="place"))
    sensor.announce(Loop, BestEffort(), "place")
    for lane in range(20):
        sensor.publish(Loop(lane=lane, place="A8" if lane % 3 else None))
        city.run(5)
    city.run(2000)
    assert len(logger.received) == 13
    assert logger.node.counts().lost["Loop"] == 0
    assert logger.troubles == []


def test_a_publisher_that_begins_anew_has_lost_nothing(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop))
    for _ in range(3):
        made = sensor.node.announce(Loop, BestEffort(), city.bus.now)
        sensor.host.call(lambda now: None)
        city.run(2)
        for lane in range(5):
            sensor.publish(Loop(lane=lane))
        sensor.host.call(lambda now, made=made: sensor.node.withdraw(made, now))  # type: ignore[misc]
        city.run(1200)
    assert len(logger.received) == 15
    assert logger.node.counts().lost["Loop"] == 0


def test_withdrawing_twice_does_not_close_the_channel_that_was_opened_since(city: City) -> None:
    city.broker()
    sensor = city.node()
    city.run(300)
    first = sensor.node.announce(Loop, BestEffort(), city.bus.now)
    sensor.host.call(lambda now: None)
    city.run(100)
    sensor.host.call(lambda now: sensor.node.withdraw(first, now))
    sensor.announce(Loop, BestEffort())
    sensor.host.call(lambda now: sensor.node.withdraw(first, now))
    city.run(200)
    sensor.publish(Loop(lane=1))


def test_running_channels_go_on_without_a_broker(city: City) -> None:
    broker = city.broker()
    sensor, logger = city.node(), city.node()
    logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, Soft(deadline="20ms"))
    city.run(400)
    broker.crash()
    sensor.subscribe(Subscription(Loop))
    city.run(3000)
    sensor.publish(Loop(lane=4))
    city.run(10)
    assert logger.received == sensor.received == [Loop(lane=4)]


def test_a_node_without_a_catalog_asks_until_it_has_one(city: City) -> None:
    broker = city.broker()
    logger = city.node()
    logger.subscribe(Subscription(Loop))
    while logger.node.number is None:
        city.bus.run(city.bus.now + 100_000)
    broker.crash()
    city.run(5000)
    assert logger.node.catalog is None
    broker.restart(Broker(1, city.catalog, city.store))
    city.run(2000)
    assert logger.node.catalog is not None


def test_a_broker_with_another_catalog_changes_nothing_that_runs(city: City) -> None:
    broker = city.broker()
    sensor, logger = city.node(), city.node()
    logger.subscribe(Subscription(Loop))
    sensor.announce(Loop, Soft(deadline="20ms"))
    city.run(400)
    other = Catalog()
    other.register(Note)
    broker.restart(Broker(1, other, MemoryStore()))
    city.run(3000)
    assert logger.node.catalog is not None
    assert "Loop" in logger.node.catalog
    assert [type(trouble).__name__ for trouble in sensor.troubles] == ["BindingFailed"]


def test_publishers_are_told_when_another_node_takes_their_number(city: City) -> None:
    sensor = city.node(number=1)
    city.node(number=2)
    sensor.announce(Loop, Soft(deadline="20ms"))
    sensor.node.publish(Loop(lane=1), city.bus.now)
    sensor.host.call(lambda now: sensor.node.receive(Claim(1, 1).frame(), now))
    assert [type(trouble).__name__ for trouble in sensor.troubles] == ["NodeIdLost", "NotSent"]


def test_the_last_report_follows_the_last_event(city: City) -> None:
    sensor, logger = city.node(number=1), city.node(number=2)
    logger.subscribe(Subscription(Loop))
    announced = sensor.node.announce(Loop, BestEffort(), 0)
    sensor.host.call(lambda now: None)
    city.run(2)
    for lane in range(9):
        sensor.publish(Loop(lane=lane))
    sensor.host.call(lambda now: sensor.node.withdraw(announced, now))
    city.bus.run(city.bus.now + 500_000)
    city.bus.detach(logger.host.controller)
    city.bus.run(city.bus.now + 300_000)
    city.bus.attach(logger.host.controller)
    city.run(20)
    counts = logger.node.counts()
    assert counts.lost["Loop"] > 0
    assert counts.received["Loop"] + counts.lost["Loop"] == 9


def test_a_node_that_is_restarted_has_lost_nothing(city: City) -> None:
    city.broker()
    sensor, logger = city.node(), city.node()
    logger.subscribe(Subscription(Loop))
    for _ in range(3):
        sensor.announce(Loop, Soft(deadline="20ms"))
        city.run(600)
        sensor.publish(Loop(lane=1))
        city.run(50)
        node = Node(sensor.node.uid, timing=TIMING)
        sensor.host.restart(node)
        sensor.node = node
        sensor.host.call(node.start)
        city.run(600)
    assert len(logger.received) == 3
    assert logger.node.counts().lost["Loop"] == 0
    assert logger.troubles == []
