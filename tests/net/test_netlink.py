"""A bus on any transport: each event once, losses told to both ends, wants, last values, contracts."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import pytest

from genus import Event, Kind, Maybe, Subscription, this
from genus.bus import BestEffort, Bus, Hard, Soft
from genus.bus.types import Keep
from genus.catalog._statement import digest_of
from genus.errors import BusError, EventError, NoReceiver, RequestTimeout
from genus.model import UInt32, Unit
from genus.net._cloudevents import CloudEventWriter
from genus.net._envelope import ENVELOPE, Arrival, Interest, Origin
from genus.net._link.messages import Loss, control_key, encode_message, encode_payload, encode_text
from genus.net._link.netlink import NetLink
from genus.net._transport import EventsLost
from genus.targets.topics import MQTT, ZENOH
from tests.examples import some_of
from tests.net.memory_network import Faults, MemoryNetwork, MemoryTransport
from tests.waiting import pass_time


class SeaWet(Kind): ...


class SeaTide(Event, tagged=("place",)):
    level: int


class SeaFlood(SeaTide, SeaWet):
    street: Maybe[str] = None


class SeaAsk(Event):
    level: int
    request: Maybe[UInt32] = None


class SeaAnswer(Event):
    request: UInt32 = 0


class City:
    """Participants of a network in this process, in virtual time."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.time = 100.0
        self.buses: list[Bus] = []

    def bus(self, **options: Any) -> Bus:
        link = NetLink(self.network.transport(), "city", medium="memory", now=lambda: self.time, runs=False, **options)
        bus = Bus(link)
        self.buses.append(bus)
        return bus

    def run(self, seconds: float = 0.0) -> None:
        """Deliver all, and let time pass."""
        self.network.deliver()
        end = self.time + seconds
        while self.time < end:
            self.time += 0.1
            for bus in self.buses:
                link_of(bus).tick()
            self.network.deliver()


def link_of(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


def transport_of(bus: Bus) -> MemoryTransport:
    transport = link_of(bus).transport
    assert isinstance(transport, MemoryTransport)
    return transport


@pytest.fixture(params=[ZENOH, MQTT], ids=["zenoh", "mqtt"])
def city(request: pytest.FixtureRequest) -> Iterator[City]:
    made = City(MemoryNetwork(request.param))
    yield made
    for bus in made.buses:
        bus.close()


def test_a_subscription_gets_what_it_matches_from_other_participants(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append, where=this.level > 1)
    for level in range(4):
        here.publish(SeaTide(level=level))
    here.publish(SeaFlood(level=9, place="Kiel"))
    city.run()
    assert got == [SeaTide(level=2), SeaTide(level=3), SeaFlood(level=9, place="Kiel")]
    assert there.traffic().link["received"] == 5


def test_only_packets_of_subscribed_keys_arrive(city: City) -> None:
    here, there = city.bus(), city.bus()
    there.collection(SeaFlood).subscribe(lambda event: None, has="place")
    here.publish(SeaTide(level=1))
    here.publish(SeaFlood(level=1))
    here.publish(SeaFlood(level=1, place="Kiel"))
    city.run()
    assert there.traffic().link["received"] == 1


def test_a_kind_is_received_after_its_class_is_declared(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[object] = []
    there.collection(SeaWet).subscribe(got.append)
    city.run()

    class SeaRain(Event, SeaWet):
        mm: int

    city.run(1)
    here.publish(SeaRain(mm=3))
    city.run()
    assert got == [SeaRain(mm=3)]


def test_overlapping_subscriptions_get_each_event_once_each(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: dict[str, list[Event]] = {"tide": [], "flood": [], "placed": []}
    there.collection(SeaFlood).subscribe(got["flood"].append)
    there.collection(SeaTide).subscribe(got["placed"].append, has="place")
    there.collection(SeaTide).subscribe(got["tide"].append)
    sent = [SeaFlood(level=1, place="Kiel"), SeaFlood(level=2), SeaTide(level=3, place="Bonn")]
    for event in sent:
        here.publish(event)
    city.run()
    assert got == {"tide": sent, "flood": sent[:2], "placed": [sent[0], sent[2]]}


def test_after_the_last_subscription_is_cancelled_nothing_arrives(city: City) -> None:
    here, there = city.bus(), city.bus()
    wide = there.collection(Event).subscribe(lambda event: None)
    narrow = there.collection(SeaTide).subscribe(lambda event: None)
    wide.cancel()
    here.publish(SeaTide(level=1))
    city.run()
    narrow.cancel()
    here.publish(SeaTide(level=2))
    city.run()
    assert there.traffic().link["received"] == 1
    assert [pattern for pattern in transport_of(there).patterns if not pattern.startswith("@genus")] == []


def test_a_batch_is_delivered_event_by_event(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    sent = [SeaTide(level=level) for level in range(2500)]
    before = transport_of(here).sent
    link_of(here).send_all(sent)
    city.run()
    assert got == sent
    assert transport_of(here).sent - before == 1 + 3  # one of them states the type


def test_the_consumers_of_a_queue_are_told_of_losses() -> None:
    city = City(MemoryNetwork(ZENOH, 1, Faults(lost=0.5)))
    here, there = city.bus(), city.bus()
    told: list[list[EventsLost]] = [[], []]
    taken: list[SeaTide] = []

    def fail(problem: EventsLost) -> None:
        raise ValueError("a handler that fails does not keep the others from being told")

    there.collection(SeaTide, "queue").subscribe(taken.append, on_problem=told[0].append)
    there.collection(SeaTide, "queue").subscribe(taken.append, on_problem=fail)
    there.collection(SeaTide, "queue").subscribe(taken.append, on_problem=told[1].append)
    city.run(4)
    for level in range(100):
        here.publish(SeaTide(level=level))
    city.run(10)
    lost = there.traffic().link["lost"]
    assert lost
    assert [sum(each.count for each in some) for some in told] == [lost, lost]
    for bus in city.buses:
        bus.close()


@pytest.mark.parametrize("seed", some_of(range(8), 4))
def test_a_queue_gives_each_event_to_one_consumer_of_all_processes_or_tells_that_it_is_lost(seed: int) -> None:
    """While consumers come and go, on the bus of a publisher too; who subscribes as usual gets all."""
    city = City(MemoryNetwork(ZENOH, seed, Faults(lost=0.03, doubled=0.1, late=0.1)))
    chance, taken, told = random.Random(seed), Counter[int](), list[EventsLost]()
    here, away, usual, *others = (city.bus() for _ in range(6))
    got: list[int] = []
    places = [here, *others]
    consumers: dict[Bus, Any] = {}

    def change(bus: Bus) -> None:
        if (consumer := consumers.pop(bus, None)) is not None:
            consumer.cancel()
        else:
            tides = bus.collection(SeaTide, "queue")
            consumers[bus] = tides.subscribe(lambda event: taken.update([event.level]), on_problem=told.append)

    for bus in places:
        change(bus)
    usual.collection(SeaTide).subscribe(lambda event: got.append(event.level))
    city.run(4)
    for level in range(400):
        (here, away)[level % 2].publish(SeaTide(level=level))
        if level % 20 == 19:
            change(chance.choice(places if len(consumers) > 1 else [bus for bus in places if bus not in consumers]))
            city.run(chance.choice([0, 0.1, 3]))
    city.run(12)
    assert set(taken.values()) == {1}
    lost = sum(link.get("lost", 0) for link in (bus.traffic().link for bus in places))
    assert len(taken) + lost == 400
    assert lost >= sum(problem.count for problem in told)
    assert len(taken) > 300
    assert len(got) == len(set(got)) > 300
    for bus in city.buses:
        bus.close()


@pytest.mark.parametrize("seed", range(8))
def test_every_event_is_delivered_once_or_told_as_lost_to_both_ends(seed: int) -> None:
    city = City(MemoryNetwork(ZENOH, seed, Faults(lost=0.1, doubled=0.1, late=0.1)))
    here, there = city.bus(), city.bus()
    got: list[Any] = []
    told: dict[str, list[EventsLost]] = {"here": [], "there": []}
    there.collection(SeaTide).subscribe(got.append, on_problem=told["there"].append)
    with here.channel(SeaTide, on_problem=told["here"].append) as tides:
        tides.publish(SeaTide(level=-1))
        city.run(4)  # who has just joined cannot know what was sent before
        for level in range(500):
            tides.publish(SeaTide(level=level))
            if city.network.random.random() < 0.1:
                city.run(0.2)
        city.run(4)
    levels = [event.level for event in got if event.level >= 0]
    assert len(levels) == len(set(levels))
    lost = 500 - len(levels) + (0 if any(event.level == -1 for event in got) else 1)
    assert lost > 0
    assert sum(problem.count for problem in told["there"]) == lost
    assert sum(problem.count for problem in told["here"]) == lost
    assert there.traffic().link["lost"] == here.traffic().link["lost by receivers"] == lost


def test_who_asks_nobody_is_told_as_soon_as_the_link_knows_it(city: City) -> None:
    here, there = city.bus(), city.bus()
    city.run(0.5)
    assert 0.3 < link_of(here).interest_delay_s < 0.6
    city.run(2)
    assert link_of(here).interest_delay_s < 0.1
    there.collection(SeaAsk).serve(lambda event: None, where=this.level > 5)
    city.run()
    with pytest.raises(NoReceiver, match="does not match what others ask for: SeaAsk where level > 5"):
        here.collection(SeaAsk).request(SeaAsk(level=1), SeaAnswer, timeout="60s")
    with pytest.raises(RequestTimeout):
        here.collection(SeaAsk).request(SeaAsk(level=6), SeaAnswer, timeout="10ms")
    link_of(here).connected(False)
    assert link_of(here).interest_delay_s == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_is_told_to_its_publisher_once_whether_the_drop_or_the_report_comes_first(seed: int) -> None:
    city = City(MemoryNetwork(ZENOH))
    here, chance = city.bus(), random.Random(seed)
    told: list[EventsLost] = []
    link = link_of(here)
    with here.channel(SeaTide, on_problem=told.append) as tides:
        tides.publish(SeaTide(level=1))
        (key,) = link._outgoing.beat()
        lost = control_key("city", "lost", link.uid.hex())
        counts = [chance.randint(1, 9) for _ in range(6)]
        report = [partial(link.packet, lost, b"", encode_message(Loss("r", key, count))) for count in counts]
        drop = [partial(link.dropped, key, 1, "full") for _ in range(sum(counts))]
        for call in chance.sample([*report, *drop], len(report) + len(drop)):
            call()
        link.tick()
        assert sum(problem.count for problem in told) == sum(counts)
    here.close()


def test_wants_of_others_are_known_and_vanish_with_them(city: City) -> None:
    here, there = city.bus(), city.bus()
    changes: list[None] = []
    link_of(here).on_interest(lambda: changes.append(None))
    there.collection(SeaTide).subscribe(lambda event: None, where=this.level > 1)
    city.run()
    (interest,) = link_of(here).interests()
    assert str(interest.subscription) == "SeaTide where level > 1"
    assert link_of(here).wanted_by(SeaTide(level=2)) == {link_of(there).uid.hex()}
    assert link_of(here).wanted_by(SeaTide(level=1)) == set()
    assert [one.uid for one in link_of(here).participants()] == [link_of(there).uid.hex()]
    there.close()
    city.run()
    assert link_of(here).interests() == [] == link_of(here).participants()
    assert changes


def test_a_later_subscriber_gets_the_last_value_of_each_source(city: City) -> None:
    here, there = city.bus(), city.bus()
    channel = here.channel(SeaTide, BestEffort(), keep=True)
    channel.announce()
    for source, level in (("a", 1), ("b", 2), ("a", 3)):
        channel.publish(SeaTide(level=level, source=source))
    city.run()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    city.run()
    assert sorted(got, key=str) == sorted([SeaTide(level=2, source="b"), SeaTide(level=3, source="a")], key=str)
    second: list[Event] = []
    there.collection(SeaTide).subscribe(second.append, where=this.level > 2)
    assert second == [SeaTide(level=3, source="a")]
    channel.publish(SeaTide(level=4, source="a"))
    city.run()
    assert got[-1] == second[-1] == SeaTide(level=4, source="a")
    assert len(got) == 3


def test_hard_channels_are_refused_with_what_could_be_kept(city: City) -> None:
    bus = city.bus()
    with pytest.raises(BusError, match=r"no calendar.*could keep Soft"):
        bus.channel(SeaTide, Hard("10ms")).announce()


def test_an_event_that_is_too_large_is_refused_at_publish(city: City) -> None:
    bus = city.bus()
    link_of(bus)._outgoing.largest = 100
    with pytest.raises(EventError, match="at most 100"):
        bus.publish(SeaFlood(level=1, street="x" * 200))


def forward_to(bus: Bus) -> Callable[[Arrival], None]:
    return link_of(bus).forward


def test_bad_packets_are_counted_by_reason_and_nothing_else_is_lost(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(Event).subscribe(got.append)
    here.publish(SeaTide(level=1))
    city.run()
    key = "city/SeaTide/0"
    good = bytes.fromhex("00" * 8 + "00000001" + "00" + "11" * 8 + "00000001")
    link = link_of(there)
    link.packet(key, b"", b"\x81\xa5level\x01")
    link.packet(key, b"short", b"\x81\xa5level\x01")
    link.packet(key, good[:12] + b"\x09" + good[13:], b"\x81\xa5level\x01")
    link.packet(key, good, b"junk")
    link.packet("city/SeaTide/1", good, b"\x81\xa5level\x01")
    link.packet("city/Mars", good, b"\x80")
    link.packet("city/SeaTide", good, b"\x81\xa5level\x01")
    link.packet("other/SeaTide/0", good, b"\x80")
    link.packet(key, good, b"\x92\x81\xa5level\x01")
    link.packet(key, good, b"\x91" * 100_000)
    rejected = {reason for reason in there.traffic().link if reason.startswith("rejected")}
    assert len(rejected) >= 8
    here.publish(SeaTide(level=2))
    city.run()
    assert got == [SeaTide(level=1), SeaTide(level=2)]


def test_soft_channels_tell_lateness_to_both_ends(city: City, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = city.bus(), city.bus()
    told: dict[str, list[Any]] = {"here": [], "there": []}
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append, on_problem=told["there"].append)
    channel = here.channel(SeaTide, Soft("1ms", "2ms"), on_problem=told["here"].append)
    link_of(here).measure = lambda: None  # type: ignore[method-assign]
    channel.announce()
    channel.publish(SeaTide(level=1))

    pass_time(monkeypatch, 10)
    city.run(1)
    assert got == []
    assert [problem.expired for problem in told["here"]] == [1] == [problem.expired for problem in told["there"]]


def test_both_halves_of_a_partition_learn_what_they_lost(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: dict[str, list[Any]] = {"here": [], "there": []}
    here.collection(SeaTide).subscribe(got["here"].append, where=this.source == "there")
    there.collection(SeaTide).subscribe(got["there"].append, where=this.source == "here")

    def publish(level: int) -> None:
        here.publish(SeaTide(level=level, source="here"))
        there.publish(SeaTide(level=level, source="there"))

    for level in range(300):
        if level in (100, 200):
            transport_of(there).is_cut_off = level == 100
        publish(level)
        city.run(0.1)
    city.run(3)
    for name, bus, other in (("here", here, there), ("there", there, here)):
        assert [event.level for event in got[name]] == [*range(100), *range(200, 300)]
        assert bus.traffic().link["lost"] == 100 == other.traffic().link["lost by receivers"]


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [True, False])
def test_who_was_cut_off_before_the_first_event_learns_of_all_that_it_missed(city: City, goes_on: bool) -> None:
    """It had subscribed before; what was sent before it subscribed is no loss to it."""
    here, there, late = city.bus(), city.bus(), city.bus()
    got: list[Any] = []
    there.collection(SeaTide).subscribe(got.append)
    city.run(5)
    transport_of(there).is_cut_off = True
    for level in range(60):
        here.publish(SeaTide(level=level))
        city.run(0.1)
        if level == 30:
            late.collection(SeaTide).subscribe(got.append)
    transport_of(there).is_cut_off = False
    got.clear()
    link_of(here)._losses.beat_to_all()  # as a link does when a participant appears again
    if goes_on:
        here.publish(SeaTide(level=60))
    city.run(5)
    assert there.traffic().link["lost"] == 60 == here.traffic().link["lost by receivers"]
    assert "lost" not in late.traffic().link
    assert len(got) == 2 * goes_on


def test_a_last_value_that_is_forgotten_is_given_no_more(city: City) -> None:
    here, there = city.bus(), city.bus()
    publisher = link_of(here).announce(SeaTide, keep=Keep())
    publisher.publish(SeaTide(level=1, source="a"))
    publisher.publish(SeaTide(level=2, source="b"))
    publisher.forget(SeaTide(level=0, source="a"))
    city.run()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    city.run()
    assert got == [SeaTide(level=2, source="b")]


def test_who_subscribes_again_gets_the_last_value_again(city: City) -> None:
    here, there = city.bus(), city.bus()
    link_of(here).announce(SeaTide, keep=Keep()).publish(SeaTide(level=1, source="a"))
    got: list[Event] = []
    for _ in range(2):
        with there.collection(SeaTide).subscribe(got.append):
            city.run()
    assert got == [SeaTide(level=1, source="a")] * 2


def test_gateways_get_what_they_want_once_with_its_origin_and_send_for_others(city: City) -> None:
    here, there, far = city.bus(), city.bus(), city.bus()
    arrived: list[Arrival] = []
    relay = link_of(there).relay(arrived.append)
    relay.set_interest([Interest("", "f" * 16, Subscription(SeaTide, where=this.level > 1), 1)])
    city.run()
    (interest,) = link_of(here).interests()
    assert (interest.speaker, interest.origin, interest.hops) == (link_of(there).uid.hex(), "f" * 16, 1)
    for level in range(4):
        here.publish(SeaTide(level=level))
    city.run()
    assert [arrival.event.level for arrival in arrived] == [2, 3]  # type: ignore[attr-defined]
    assert {arrival.origin.uid for arrival in arrived} == {link_of(here).uid}
    got: list[Event] = []
    far.collection(SeaFlood).subscribe(got.append)
    for _ in range(2):
        link_of(there).forward(Arrival(SeaFlood(level=7), Origin(b"elsewhere"[:8], 5, 1)))
    city.run()
    assert got == [SeaFlood(level=7)]
    relay.close()
    here.publish(SeaTide(level=9))
    city.run()
    assert len(arrived) == 2
    assert link_of(here).interests()[0].subscription == Subscription(SeaFlood)


def test_values_are_converted_from_the_units_of_the_sender() -> None:
    network = MemoryNetwork()
    city = City(network)
    old, new = city.bus(), city.bus()

    def declare(unit: str) -> type[Event]:
        class Wind(Event):
            speed: Annotated[float, Unit(unit)]

        return Wind

    sent = declare("km/h")
    old.publish(sent(speed=36.0))  # type: ignore[call-arg]
    kept = declare("m/s")
    got: list[Any] = []
    new.collection(kept).subscribe(got.append)
    city.run()
    old.publish(sent(speed=72.0))  # type: ignore[call-arg]
    city.run()
    assert [event.speed for event in got] == [pytest.approx(20.0)]
    for bus in city.buses:
        bus.close()


def test_a_step_of_the_clock_makes_nothing_late(city: City, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    link_of(here).measure = lambda: None  # type: ignore[method-assign]
    with here.channel(SeaTide, Soft("20s", "40s")) as tides:
        for hours in (0, 1, -2):
            monkeypatch.setattr("time.time_ns", lambda step=hours, now=time.time_ns: now() + step * 3_600_000_000_000)
            tides.publish(SeaTide(level=hours))
            city.run(1)
    assert got == [SeaTide(level=0), SeaTide(level=1), SeaTide(level=-2)]
    assert "late" not in there.traffic().link


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_types_that_are_declared_while_events_flow(seed: int) -> None:
    """Half a second after a class is declared, all its events arrive; those of other types are not affected."""
    city = City(MemoryNetwork(ZENOH, seed))
    here, there = city.bus(), city.bus()

    class SeaAlarm(Kind): ...

    got: list[Any] = []
    there.collection(SeaAlarm).subscribe(got.append)
    sent: list[Event] = []
    classes: list[type[Any]] = []
    for number in range(60):
        if number % 10 == 0:
            declare: Any = type(Event)
            classes.append(declare(f"SeaAlarm{seed}x{number}", (Event, SeaAlarm), {"__annotations__": {"n": int}}))
            city.run(0.6)
        event = city.network.random.choice(classes)(n=number)
        here.publish(event)
        sent.append(event)
        city.run(0.1)
    assert got == sent
    assert "lost" not in there.traffic().link


def test_statements_are_one_for_each_version_of_a_type_and_survive_no_lie(city: City) -> None:
    def declare(unit: str) -> type[Any]:
        class Breeze(Event):
            speed: Annotated[float, Unit(unit)]

        return Breeze

    slow, fast = declare("m/s"), declare("km/h")
    buses = [city.bus() for _ in range(3)]
    for bus, cls in zip(buses, (slow, fast, fast), strict=True):
        bus.publish(cls(speed=36.0))
    keys = [set(transport_of(bus).kept) for bus in buses]
    assert keys[1] == keys[2] != keys[0]
    (key,) = keys[0]
    text = transport_of(buses[0]).kept[key][1]
    listener = city.bus()
    liar = city.network.transport()
    liar.open(link_of(buses[0]))
    root = "@genus/city/types"
    for wrong in (f"{root}/zz/Breeze", f"{root}/{digest_of(b'other')}/Breeze"):
        liar.put(wrong, b"", text)
    for lie in (b"\x80", b"{}", text.replace(b"float64", b"float65"), b"[" * 70_000):
        liar.put(f"{root}/{digest_of(lie)}/Breeze", b"", lie)
    liar.put(f"{root}/{digest_of(text)}/Storm", b"", text)
    liar.close()
    city.run()
    counts = listener.traffic().link
    assert counts["rejected: a statement of a type that is damaged"] == 2
    assert sum(count for name, count in counts.items() if name.startswith("rejected: a statement")) == 6
    metric = declare("m/s")
    got: list[Any] = []
    listener.collection(metric).subscribe(got.append)
    city.run()
    buses[1].publish(fast(speed=72.0))
    city.run()
    assert [event.speed for event in got] == [pytest.approx(20.0)]


def test_what_was_published_while_nobody_subscribed_is_no_loss(city: City) -> None:
    here, there = city.bus(), city.bus()
    told: list[Any] = []
    for narrow in (True, False):
        wide = there.collection(Event).subscribe(lambda event: None)
        kept = there.collection(SeaFlood).subscribe(lambda event: None) if narrow else None
        here.publish(SeaTide(level=1))
        city.run(1)
        wide.cancel()
        for level in range(10):
            here.publish(SeaTide(level=level))
        city.run(4)
        again = there.collection(SeaTide).subscribe(lambda event: None, on_problem=told.append)
        here.publish(SeaTide(level=99))
        city.run(4)
        again.cancel()
        if kept is not None:
            kept.cancel()
    assert told == []
    assert "lost" not in there.traffic().link


@pytest.mark.parametrize("seed", range(4))
def test_losses_are_told_while_subscriptions_become_wide_and_narrow(seed: int) -> None:
    city = City(MemoryNetwork(ZENOH, seed, Faults(lost=0.1)))
    here, there = city.bus(), city.bus()
    got: list[Any] = []
    there.collection(SeaTide).subscribe(got.append)
    here.publish(SeaTide(level=-1))
    city.run(4)
    wide = None
    for level in range(300):
        here.publish(SeaTide(level=level))
        city.run()
        if level % 7 == 0 and wide is None:
            wide = there.collection(Event).subscribe(lambda event: None)
        elif level % 7 == 3 and wide is not None:
            wide.cancel()
            wide = None
    city.run(4)
    missing = 301 - len(got)
    assert missing > 0
    assert there.traffic().link["lost"] == missing


def test_a_batch_is_sent_whole_or_not_at_all(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    own: list[Event] = []
    here.collection(SeaTide).subscribe(own.append)
    with pytest.raises(EventError):
        here.publish_all([SeaTide(level=1), SeaFlood(level="no")])  # type: ignore[arg-type]
    link_of(here)._outgoing.largest = 5_000_000
    with pytest.raises(EventError, match="cannot be sent"):
        here.publish_all([SeaTide(level=1), SeaFlood(level=2, street="x" * 5_000_001)])
    city.run()
    assert got == own == []
    large = [SeaFlood(level=level, street="x" * 100_000) for level in range(60)]
    here.publish_all([SeaTide(level=1), *large, SeaTide(level=2)])
    city.run()
    assert got == own == [SeaTide(level=1), *large, SeaTide(level=2)]


def test_a_subscription_that_the_network_refuses_leaves_nothing(city: City, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = city.bus(), city.bus()
    transport = transport_of(there)

    def refuse(pattern: str, *, kept: bool = False) -> Callable[[], None]:
        raise BusError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(transport, "subscribe", refuse)
        with pytest.raises(BusError, match="refused"):
            there.collection(SeaTide).subscribe(lambda event: None)
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    here.publish(SeaTide(level=1))
    city.run()
    assert got == [SeaTide(level=1)]


@pytest.mark.slow
def test_the_last_losses_of_very_many_keys_are_told(city: City) -> None:
    here, there = city.bus(), city.bus()
    there.collection(SeaTide).subscribe(lambda event: None)
    channel = here.channel(SeaTide, BestEffort(), keep=True)
    channel.announce()
    for source in range(1500):
        channel.publish(SeaTide(level=1, source=str(source)))
    city.run(4)
    city.network.faults = Faults(lost=1.0)
    for source in range(1500):
        channel.publish(SeaTide(level=2, source=str(source)))
    here.close()
    city.buses.remove(here)
    city.run(3)
    assert there.traffic().link["lost"] == 1500


def test_hostile_tokens_and_answers_do_no_harm(city: City) -> None:
    here, there = city.bus(), city.bus()
    link = link_of(there)
    link.token("@genus/city/here/" + "ab" * 8 + "/" + encode_text('{"a":' + "[" * 1400), True)
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    here.publish(SeaTide(level=1))
    city.run()
    assert got == [SeaTide(level=1)]


def test_an_event_with_too_many_hops_is_not_delivered(city: City) -> None:
    there = city.bus()
    got: list[Event] = []
    there.collection(SeaTide).subscribe(got.append)
    for number in (1, 2, 3):
        envelope = ENVELOPE.pack(b"origin__", number, 200, b"origin__", number)
        link_of(there).packet("city/SeaTide/0", envelope, encode_payload(SeaTide(level=number)))
    assert got == []
    assert there.traffic().link["rejected: more than 8 hops"] == 3


def test_cloudevents_are_converted_from_the_units_of_the_sender() -> None:
    city = City(MemoryNetwork())
    writer = CloudEventWriter()
    for encode in (lambda event, origin, key: (None, writer.write_structured(event, origin, key)), writer.write_binary):
        old, new = city.bus(encode_cloud=encode), city.bus()

        def declare(unit: str) -> Any:
            class SeaGust(Event):
                speed: Annotated[float, Unit(unit)]

            return SeaGust

        sent = declare("km/h")
        old.publish(sent(speed=36.0))
        got: list[Any] = []
        new.collection(declare("m/s")).subscribe(got.append)
        city.run()
        old.publish(sent(speed=72.0))
        city.run()
        assert [event.speed for event in got] == [pytest.approx(20.0)]
        old.close()
        new.close()
    city.buses.clear()


def test_of_several_classes_with_one_name_the_one_that_is_subscribed_to_is_meant(city: City) -> None:
    def declare() -> type[Any]:
        class Squid(Event):
            arms: int

        return Squid

    first, second = declare(), declare()
    here, there = city.bus(), city.bus()
    got: dict[str, list[Any]] = {"first": [], "second": []}
    for name, cls in (("first", first), ("second", second), ("first", first)):
        with there.collection(cls).subscribe(got[name].append):
            here.publish(second(arms=8))
            city.run()
    assert [type(event) for event in got["first"]] == [first, first]
    assert [type(event) for event in got["second"]] == [second]


def test_channels_that_are_announced_are_seen_by_others_until_they_are_withdrawn(city: City) -> None:
    here, there = city.bus(), city.bus()
    uid = link_of(here).uid.hex()
    first, second = here.channel(SeaTide, BestEffort(priority=1)), here.channel(SeaTide, BestEffort(priority=1))
    for channel in (first, second):
        channel.announce()
    link_of(there).announced()
    city.run()
    assert link_of(there).announced() == [(uid, "SeaTide", "none:1")]
    assert link_of(here).announced() == []
    first.cancel()
    city.run()
    assert link_of(there).announced() == [(uid, "SeaTide", "none:1")]
    second.cancel()
    city.run()
    assert link_of(there).announced() == []
