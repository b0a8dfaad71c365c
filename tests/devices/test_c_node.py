"""The C node on buses with Python nodes and a broker."""

from collections.abc import Callable
from ctypes import c_int64
from functools import partial

import pytest

from genus import BestEffort, Event, Maybe, Soft, UInt8, UInt16, UInt32
from genus.can import Frame, PreparedSystem, Scenario, parse_system
from genus.can._machine import Load
from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import (
    Announce,
    Claim,
    Objection,
    ObjectionReason,
    QosClass,
    Question,
    QuestionKind,
    Signature,
    parse_message,
    signed_subject,
)
from genus.can._sim.simulation import Simulation
from genus.can._wire.frame import BROKER_NODE, ProtocolEtag, Timing, subject_uid
from genus.can.types import ScenarioRun
from genus.catalog import Catalog
from genus.errors import QueueFull
from genus.filters import Subscription
from tests.devices.c_library import LARGE, node_library
from tests.devices.c_node import CNode, c_stations

MS = 1_000_000
SECOND = 1000 * MS

# -- a device among twenty nodes ---------------------------------------------------------------------------------------

BUS = """
[bus]
bitrate = "1Mbit/s"
gap = "20us"
precision = "5us"
"""
DEVICE_CHANNELS = """
[[channel]]
name = "position"
event = "Position"
node = "device"
class = "hard"
period = "10ms"
omissions = 1
size = 8
subscribers = ["node-1", "node-2"]

[[channel]]
name = "valve"
event = "Valve"
node = "node-3"
class = "hard"
period = "20ms"
omissions = 1
size = 8
subscribers = ["device", "node-4"]

[[channel]]
name = "long"
event = "Long"
node = "device"
class = "hard"
period = "40ms"
omissions = 1
size = 14
subscribers = ["node-5"]

[[channel]]
name = "state"
event = "State"
node = "device"
class = "soft"
period = "8ms"
deadline = "5ms"
expires = "20ms"
size = 8
subscribers = ["node-6", "node-7"]

[[channel]]
name = "journal"
event = "Journal"
node = "device"
class = "none"
period = "50ms"
size = 60
subscribers = ["node-8"]
"""
TALK = """
[[channel]]
name = "talk-{0}"
event = "Talk{0}"
node = "node-{0}"
class = "soft"
period = "20ms"
deadline = "10ms"
size = {1}
subscribers = ["{2}"]
"""


def plant() -> PreparedSystem:
    """A device and twenty other nodes, each of which publishes a soft channel; the device reads some of them."""
    talks = [TALK.format(n, 8 if n % 3 else 24, "device" if n % 2 else f"node-{n - 1}") for n in range(1, 21)]
    return PreparedSystem.of(parse_system(BUS + DEVICE_CHANNELS + "".join(talks)))


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-DGENUS_SLOTS=8", "-DGENUS_CHANNELS=6", "-DGENUS_SUBJECTS=16")])
def test_a_device_joins_twenty_nodes_and_keeps_its_calendar_and_deadlines(options: tuple[str, ...]) -> None:
    """It gets a number and event tags from the broker; hard, soft and segmented events arrive, also those to it."""
    capacities = (*options, "-DGENUS_PUBLISHERS=24", "-DGENUS_TRANSFERS=8", "-DGENUS_SUBJECTS=16")
    with c_stations("device", options=capacities if options else LARGE) as made:
        scenario = Scenario(prepared=plant(), seed=3, duration=1.0, broker=True)
        with ScenarioRun(scenario) as run:
            for _ in run.advance():
                pass
            outcome = run.outcome()
            assert len(run.world.stations) == 21
    device = made["device"]
    assert device.number is not None
    assert device.notices["ready"] == 4
    assert outcome.problems.get("HardStopped", 0) <= outcome.problems.get("HardResumed", 0)
    for channel in outcome.channels:
        assert channel.published > 10, channel.channel
        assert channel.sent == channel.published, channel.channel
        assert channel.missed == channel.expired == channel.not_sent == channel.late == channel.duplicates == 0
        assert set(channel.delivered.values()) == {channel.published}, channel.channel
    own = {each.channel: each for each in outcome.channels if each.node == "device"}
    assert set(own) == {"position", "long", "state", "journal"}
    assert all(each.worst_ns <= (each.bound_ns or 1 << 60) for each in own.values())


# -- small buses -------------------------------------------------------------------------------------------------------


class Level(Event):
    value: UInt8


class Tank(Level):
    volume: UInt32
    note: Maybe[UInt16] = None


class Report(Event):
    number: UInt16
    text: str


class Other(Event):
    value: UInt8


def catalog_of(*types: type[Event]) -> Catalog:
    catalog = Catalog()
    catalog.register(*types)
    return catalog


class SmallBus:
    """A broker, a Python node and a C node, each with its own number from the broker."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        knows: Callable[[int], bool] = lambda etag: True,
        brokers: Catalog | None = None,
        options: tuple[str, ...] = LARGE,
    ) -> None:
        self.simulation = Simulation(Timing(500_000), seed=5, traced=True)
        self.broker_catalog = brokers or catalog
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.device_events: list[Event] = []
        self.simulation.add_host(BROKER_NODE, self._make_broker)
        timing = self.simulation.timing
        self.python = Node(0x99, timing=timing, catalog=catalog, seed=1, on_event=self.events.append)
        self.device = CNode(
            0x11,
            timing=timing,
            catalog=catalog,
            seed=2,
            on_event=self.device_events.append,
            knows=knows,
            options=options,
        )
        self.hosts = [
            self.simulation.add_host(1, lambda: self.python),
            self.simulation.add_host(2, lambda: self.device),
        ]
        self.hosts[0].call(self.python.start)
        self.hosts[1].call(self.device.start)

    def _make_broker(self) -> Broker:
        return Broker(7, self.broker_catalog, self.store, seed=1)

    @property
    def broker(self) -> Broker:
        machine = self.simulation.host(BROKER_NODE).machine
        assert isinstance(machine, Broker)
        return machine

    def run(self, ms: float) -> None:
        self.simulation.run(self.simulation.now + round(ms * MS))

    def messages(self, etag: ProtocolEtag, sender: int | None = None) -> list[object]:
        """The messages of the middleware on the bus with an event tag, in order."""
        assert self.simulation.trace is not None
        frames = [Frame(each.id, bytes.fromhex(each.data.replace(" ", ""))) for each in self.simulation.trace]
        chosen = [frame for frame in frames if frame.etag == etag and sender in (None, frame.node)]
        return [parse_message(frame) for frame in chosen]

    def device_publishes(self, cls: type[Event], qos: Soft | BestEffort) -> None:
        self.hosts[1].call(lambda now: self.device.announce(cls, qos, now))
        self.run(300)

    def publish(self, event: Event) -> None:
        """The Python node publishes an event."""
        self.hosts[0].call(lambda now: self.python.publish(event, now))
        self.run(20)


@pytest.mark.slow
@pytest.mark.parametrize("options", [LARGE, (), ("-DGENUS_WITH_CALENDAR=0",)])
def test_a_device_and_a_python_node_exchange_events_with_numbers_from_the_broker(options: tuple[str, ...]) -> None:
    """Also with default capacities, and without calendar and clock."""
    bus = SmallBus(catalog_of(Level, Tank, Report), options=options)
    bus.run(300)
    assert {bus.python.number, bus.device.number} == {1, 2}
    bus.hosts[0].call(lambda now: bus.python.subscribe(Subscription(Report), now))
    bus.hosts[1].call(lambda now: bus.device.subscribe(Subscription(Level), now))
    bus.hosts[0].call(lambda now: bus.python.announce(Tank, BestEffort(), now))
    bus.device_publishes(Report, BestEffort())
    bus.publish(Tank(value=1, volume=70_000))
    sent = Report(number=3, text="a text that takes several frames of eight bytes")
    bus.hosts[1].call(lambda now: bus.device.publish(sent, now))
    bus.run(50)
    assert bus.device_events == [Tank(value=1, volume=70_000)]
    assert bus.events == [sent]
    assert bus.device.tx_counts(Report).sent == 1


def test_claims_come_once_a_second_and_reports_count_events() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.device_publishes(Level, Soft(deadline="10ms"))
    for number in range(5):
        bus.hosts[1].call(partial(bus.device.publish, Level(value=number)))
        bus.run(5)
    bus.run(5_000)
    claims = [each for each in bus.messages(ProtocolEtag.CLAIM) if isinstance(each, Claim) and each.uid == 0x11]
    assert 5 <= len(claims) <= 9
    assert bus.simulation.trace is not None
    reports = [each for each in bus.simulation.trace if each.id & 0x3FFF == ProtocolEtag.REPORT]
    assert bytes.fromhex(reports[-1].data.replace(" ", ""))[2:5] == (5).to_bytes(3, "big")


def test_the_device_announces_what_its_tables_say() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.device_publishes(Level, Soft(deadline="10ms"))
    etag = bus.broker_catalog.etag("Level")
    assert bus.messages(ProtocolEtag.ANNOUNCE)[-1] == Announce(
        bus.device.number or 0, etag, QosClass.SOFT, segmented=False, size=2, span_us=10_000
    )


def test_a_channel_that_another_node_made_hard_is_refused() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.hosts[0].call(lambda now: bus.python.announce(Level, Soft(deadline="10ms"), now))
    bus.run(100)
    bus.device_publishes(Level, BestEffort())
    assert ("not bound", 0) in [(what, channel) for what, channel, *_ in bus.device.told]
    assert bus.device.tx.channels[Level].state == "refused"


def test_a_subject_that_the_broker_does_not_know_is_told_and_bound_when_the_catalog_grows() -> None:
    small = catalog_of(Level)
    large = Catalog.parse(small.text())
    large.register(Other)
    bus = SmallBus(large, brokers=small)
    bus.run(300)
    bus.device_publishes(Other, BestEffort())
    assert bus.device.notices["not bound"] == 1
    bus.simulation.host(BROKER_NODE).call(lambda now: bus.broker.use(large))
    bus.run(2_500)
    assert bus.device.tx.channels[Other].state == "ready"


def test_a_binding_request_that_nobody_answers_is_repeated_when_a_broker_is_heard() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.simulation.host(BROKER_NODE).crash()
    bus.device_publishes(Level, BestEffort())
    bus.run(1_000)
    assert bus.device.notices["not bound"] == 1
    assert len([each for each in bus.messages(ProtocolEtag.GET_ETAG) if each]) == 4
    bus.simulation.restart(BROKER_NODE)
    bus.run(2_000)
    assert bus.device.tx.channels[Level].state == "ready"


def test_the_broker_objects_to_a_device_with_another_catalog() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.device_publishes(Level, BestEffort())
    etag, number = bus.broker_catalog.etag("Level"), bus.device.number or 0
    stranger = Objection(3, number, etag, ObjectionReason.OTHER_LAYOUT, 0).frame()
    bus.hosts[1].call(lambda now: bus.device.receive(stranger, now))
    bus.hosts[1].call(lambda now: bus.device.receive(stranger, now))
    assert bus.device.notices["wrong catalog"] == 1
    assert bus.device.tx.channels[Level].state == "ready"
    bus.hosts[1].call(
        lambda now: bus.device.receive(Objection(127, number, etag, ObjectionReason.OTHER_TYPE, 0).frame(), now)
    )
    bus.hosts[1].call(lambda now: None)
    assert bus.device.tx.channels[Level].state == "refused"


def test_a_python_node_with_a_grown_catalog_gets_the_layout_of_the_device_and_reads_its_events() -> None:
    old, grown = catalog_of(Level), catalog_of(Level, Tank)
    bus = SmallBus(old)
    bus.simulation.host(BROKER_NODE).call(lambda now: bus.broker.use(grown))
    bus.run(300)
    bus.hosts[0].call(lambda now: bus.python.use(grown, now))
    bus.hosts[0].call(lambda now: bus.python.subscribe(Subscription(Level), now))
    bus.device_publishes(Level, BestEffort())
    bus.run(200)
    for number in range(3):
        bus.hosts[1].call(partial(bus.device.publish, Level(value=number)))
        bus.run(100)
    questions = [each for each in bus.messages(ProtocolEtag.QUESTION) if isinstance(each, Question)]
    assert QuestionKind.LAYOUT in {each.kind for each in questions}, "the digests differ: the family's vector has grown"
    assert bus.events[-1] == Level(value=2)


def test_a_device_does_not_deliver_events_of_a_publisher_with_another_catalog() -> None:
    """What a publisher signs is compared with the classes of the firmware; a grown layout is no conflict."""
    bus = SmallBus(catalog_of(Level, Tank))
    bus.run(300)
    bus.device.know(Level, Tank)
    bus.hosts[1].call(lambda now: bus.device.subscribe(Subscription(Level), now))
    etags = {name: bus.broker_catalog.etag(name) for name in ("Level", "Tank")}
    subjects = {name: signed_subject(subject_uid(name)) for name in ("Level", "Tank", "Other")}

    def deliver(name: str, signs: str) -> int:
        """How many events come through that a node signs as another type."""
        report = Frame(0xFB << 21 | 9 << 14 | ProtocolEtag.REPORT, etags[name].to_bytes(2, "big") + bytes(6))
        before = len(bus.device.delivered)
        for frame in (
            Signature(9, etags[name], subjects[signs], 0x123456).frame(),
            report,
            Frame(254 << 21 | 9 << 14 | etags[name], bytes((len(bus.device.delivered) << 5 & 0xE0, 1, 0, 0, 0, 1))),
        ):
            bus.hosts[1].call(partial(bus.device.receive, frame))
        bus.run(1)
        return len(bus.device.delivered) - before

    assert deliver("Level", "Level") == 1
    assert deliver("Level", "Tank") == 0
    assert deliver("Tank", "Level") == 0
    assert deliver("Tank", "Other") == 0
    assert bus.device.notices["wrong catalog"] == 2
    assert bus.device.dropped()["of a node with another catalog"] == 3
    assert deliver("Tank", "Tank") == 1, "it signed anew"


def test_a_device_that_loses_its_number_gets_another_and_goes_on() -> None:
    bus = SmallBus(catalog_of(Level))
    bus.run(300)
    bus.device_publishes(Level, BestEffort())
    before = bus.device.number or 0
    intruder = Claim(before, 0x10).frame()
    bus.hosts[1].call(lambda now: bus.device.receive(intruder, now))
    assert bus.device.number is None
    assert bus.device.notices["number lost"] == 1
    bus.run(500)
    assert bus.device.number is not None
    assert bus.device.tx.channels[Level].state == "ready"


# -- late classes ------------------------------------------------------------------------------------------------------


def late_bus(known: set[str]) -> SmallBus:
    """A device that was built before Tank was registered, and a Python node that publishes one."""
    catalog = catalog_of(Level, Tank)
    bus = SmallBus(catalog, knows=lambda etag: catalog.type_of(etag) in known)
    bus.run(300)
    bus.hosts[1].call(lambda now: bus.device.subscribe(Subscription(Level), now))
    bus.hosts[0].call(lambda now: bus.python.announce(Tank, BestEffort(), now))
    bus.run(300)
    return bus


def class_questions(bus: SmallBus) -> int:
    found = [each for each in bus.messages(ProtocolEtag.QUESTION) if isinstance(each, Question)]
    return sum(each.kind is QuestionKind.CLASS for each in found)


def test_the_class_of_an_unknown_event_tag_is_asked_once_and_handed_over() -> None:
    known = {"Level"}
    bus = late_bus(known)
    for number in range(20):
        bus.publish(Tank(value=number, volume=1))
    etag = bus.broker_catalog.etag("Tank")
    expected = CatalogIndex(bus.broker_catalog).answer(Question(1, 0, QuestionKind.CLASS, etag))
    assert bus.device.classes == [expected]
    assert class_questions(bus) == 1
    assert bus.device_events == []
    known.add("Tank")  # the program keeps the class
    bus.publish(Tank(value=99, volume=2))
    assert bus.device_events == [Tank(value=99, volume=2)]


def test_a_question_for_a_class_is_repeated_and_then_rests() -> None:
    bus = late_bus({"Level"})
    bus.simulation.host(BROKER_NODE).crash()
    for number in range(60):
        bus.publish(Tank(value=number, volume=1))
        bus.run(30)
    bus.run(500)
    assert class_questions(bus) == 4
    assert bus.device.notices["class unknown"] == 1
    bus.publish(Tank(value=1, volume=1))
    bus.run(200)
    assert class_questions(bus) == 4, "it rests"
    bus.simulation.restart(BROKER_NODE)
    bus.run(1_500)
    bus.publish(Tank(value=2, volume=1))
    bus.run(100)
    assert len(bus.device.classes) == 1, "a broker that starts is asked again"


def test_an_event_tag_that_no_class_has_is_told() -> None:
    bus = late_bus({"Level"})
    tank = bus.broker_catalog
    bus.broker_catalog = catalog_of(Level)
    bus.simulation.host(BROKER_NODE).crash()
    bus.simulation.restart(BROKER_NODE)
    bus.run(500)
    bus.publish(Tank(value=1, volume=1))
    bus.run(100)
    assert ("class unknown", 255, 0, tank.etag("Tank"), 0) in bus.device.told
    assert bus.device.classes == []


# -- capacities --------------------------------------------------------------------------------------------------------


class Tables:
    """Tables of a node for `genus_node_init`, each of which can be made wrong."""

    def __init__(self, uid: int = 1, number: int = 3, bit_ns: int = 1000, period_ns: int = 20 * MS) -> None:
        self.library = node_library(*LARGE)
        self.handle = self.library.station_new(uid, number, 1, bit_ns, period_ns, 100)

    def slot(self, *, channel: int = 0, length: int = 560_000, frames: int = 1) -> "Tables":
        times = (c_int64 * 6)(1 * MS, 10 * MS, length, 191_000, 20_000, 380_000)
        self.library.station_add_slot(self.handle, channel, 3, 8208, times, frames, 1, 0, 0)
        return self

    def channel(self, *, qos: int = QosClass.HARD, largest: int = 8, width: int = 0) -> "Tables":
        self.library.station_add_channel(self.handle, 5, 8208, width, qos, 0, largest, 0, 0, 10 * MS, 0)
        return self

    def block(self, width: int) -> "Tables":
        self.library.station_add_block(self.handle, 8208, 0x3FF0, width)
        return self

    @property
    def are_taken(self) -> bool:
        taken = bool(self.library.station_init(self.handle))
        self.library.station_free(self.handle)
        return taken


def test_tables_that_make_no_sense_are_refused() -> None:
    assert Tables().slot().channel().block(2).are_taken
    assert Tables().channel(qos=QosClass.SOFT, largest=0).are_taken
    assert Tables(number=0).are_taken
    refused = {
        "no uid": Tables(uid=0),
        "the broker's number": Tables(number=127),
        "no bit time": Tables(bit_ns=0),
        "no period of SYNC": Tables(period_ns=0),
        "a hard channel without a slot": Tables().channel(),
        "a hard channel without a largest event": Tables().slot().channel(largest=0),
        "a hard channel that needs more frames": Tables().slot().channel(largest=9),
        "a hard channel that is too long": Tables().slot(frames=20).channel(largest=65),
        "a soft channel with a slot": Tables().slot().channel(qos=QosClass.SOFT),
        "an unknown quality of service": Tables().slot().channel(qos=3),
        "too many presence bits": Tables().block(15),
        "a slot that is longer than its period": Tables().slot(length=11 * MS).channel(),
        "a slot of a channel that is not there": Tables().slot(channel=1).channel(),
    }
    assert {what for what, tables in refused.items() if tables.are_taken} == set()


@pytest.mark.slow
def test_a_full_queue_refuses_events_and_does_not_lose_what_waits() -> None:
    catalog = catalog_of(Level)
    device = CNode(0x11, timing=Timing(500_000), catalog=catalog, number=4, options=("-DGENUS_SLOTS=8",))
    device.start(0)
    device.announce(Level, BestEffort(), 0)
    sent = confirm_all(device, 1_000)
    accepted = 0
    for number in range(20):
        try:
            device.publish(Level(value=number), 2_000)
            accepted += 1
        except QueueFull:
            pass
    assert accepted == 6, "GENUS_EVENTS by default"
    frames = confirm_all(device, 3_000)
    assert [frame.data[1] for frame in frames if frame.etag == catalog.etag("Level")] == list(range(6))
    assert sent


def confirm_all(device: CNode, now: int) -> list[Frame]:
    """Confirm every frame that a node loads, until there is none."""
    sent = []
    while loads := [each.frame for each in device.take() if isinstance(each, Load) and each.frame is not None]:
        device.sent(loads[-1], now)
        sent.append(loads[-1])
    return sent


def test_the_state_of_a_node_with_default_capacities_is_small() -> None:
    assert node_library().station_size() < 5_000
