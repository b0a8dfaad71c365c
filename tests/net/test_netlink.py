"""A bus on any transport: each event once, losses told to both ends, wants, last values, contracts."""

import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from genus import Event, Kind, Maybe, Subscription, this
from genus.bus import Bus, Hard, Keep, NonReal, Soft
from genus.errors import BusError, EventError
from genus.model import Unit
from genus.net._envelope import Origin
from genus.net._link.netlink import NetLink
from genus.net._relay import Arrival, Want
from genus.net._troubles import EventsLost
from genus.targets.topics import MQTT, ZENOH
from genus.testing._network import Faults, MemoryNetwork, MemoryTransport


class Wet(Kind): ...


class Tide(Event, tagged=("place",)):
    level: int


class Flood(Tide, Wet):
    street: Maybe[str] = None


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
    there.collection(Tide).subscribe(got.append, where=this.level > 1)
    for level in range(4):
        here.publish(Tide(level=level))
    here.publish(Flood(level=9, place="Kiel"))
    city.run()
    assert got == [Tide(level=2), Tide(level=3), Flood(level=9, place="Kiel")]
    assert there.traffic().link["received"] == 5


def test_only_packets_of_subscribed_keys_arrive(city: City) -> None:
    here, there = city.bus(), city.bus()
    there.collection(Flood).subscribe(lambda event: None, has="place")
    here.publish(Tide(level=1))
    here.publish(Flood(level=1))
    here.publish(Flood(level=1, place="Kiel"))
    city.run()
    assert there.traffic().link["received"] == 1


def test_a_kind_is_received_after_its_class_is_declared(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[object] = []
    there.collection(Wet).subscribe(got.append)
    city.run()

    class Rain(Event, Wet):
        mm: int

    city.run(1)
    here.publish(Rain(mm=3))
    city.run()
    assert got == [Rain(mm=3)]


def test_overlapping_subscriptions_get_each_event_once_each(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: dict[str, list[Event]] = {"tide": [], "flood": [], "placed": []}
    there.collection(Flood).subscribe(got["flood"].append)
    there.collection(Tide).subscribe(got["placed"].append, has="place")
    there.collection(Tide).subscribe(got["tide"].append)
    sent = [Flood(level=1, place="Kiel"), Flood(level=2), Tide(level=3, place="Bonn")]
    for event in sent:
        here.publish(event)
    city.run()
    assert got == {"tide": sent, "flood": sent[:2], "placed": [sent[0], sent[2]]}


def test_after_the_last_subscription_is_cancelled_nothing_arrives(city: City) -> None:
    here, there = city.bus(), city.bus()
    wide = there.collection(Event).subscribe(lambda event: None)
    narrow = there.collection(Tide).subscribe(lambda event: None)
    wide.cancel()
    here.publish(Tide(level=1))
    city.run()
    narrow.cancel()
    here.publish(Tide(level=2))
    city.run()
    assert there.traffic().link["received"] == 1
    assert [pattern for pattern in transport_of(there).patterns if not pattern.startswith("@genus")] == []


def test_a_batch_is_delivered_event_by_event(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(Tide).subscribe(got.append)
    sent = [Tide(level=level) for level in range(2500)]
    before = transport_of(here).sent
    link_of(here).send_all(sent)
    city.run()
    assert got == sent
    assert transport_of(here).sent - before == 3


def test_the_consumers_of_a_queue_are_told_of_losses() -> None:
    city = City(MemoryNetwork(ZENOH, 1, Faults(lost=0.5)))
    here, there = city.bus(), city.bus()
    told: list[list[EventsLost]] = [[], []]
    taken: list[Tide] = []

    def fail(trouble: EventsLost) -> None:
        raise ValueError("a handler that fails does not keep the others from being told")

    there.collection(Tide, "queue").subscribe(taken.append, on_trouble=told[0].append)
    there.collection(Tide, "queue").subscribe(taken.append, on_trouble=fail)
    there.collection(Tide, "queue").subscribe(taken.append, on_trouble=told[1].append)
    city.run(4)
    for level in range(100):
        here.publish(Tide(level=level))
    city.run(10)
    lost = there.traffic().link["lost"]
    assert lost
    assert [sum(each.count for each in some) for some in told] == [lost, lost]
    for bus in city.buses:
        bus.close()


@pytest.mark.parametrize("seed", range(8))
def test_every_event_is_delivered_once_or_told_as_lost_to_both_ends(seed: int) -> None:
    city = City(MemoryNetwork(ZENOH, seed, Faults(lost=0.1, doubled=0.1, late=0.1)))
    here, there = city.bus(), city.bus()
    got: list[Any] = []
    told: dict[str, list[EventsLost]] = {"here": [], "there": []}
    there.collection(Tide).subscribe(got.append, on_trouble=told["there"].append)
    with here.channel(Tide) as tides:
        tides.announce(told["here"].append)
        tides.publish(Tide(level=-1))
        city.run(4)  # who has just joined cannot know what was sent before
        for level in range(500):
            tides.publish(Tide(level=level))
            if city.network.random.random() < 0.1:
                city.run(0.2)
        city.run(4)
    levels = [event.level for event in got if event.level >= 0]
    assert len(levels) == len(set(levels))
    lost = 500 - len(levels) + (0 if any(event.level == -1 for event in got) else 1)
    assert lost > 0
    assert sum(trouble.count for trouble in told["there"]) == lost
    assert sum(trouble.count for trouble in told["here"]) == lost
    assert there.traffic().link["lost"] == here.traffic().link["lost by receivers"] == lost


def test_wants_of_others_are_known_and_vanish_with_them(city: City) -> None:
    here, there = city.bus(), city.bus()
    changes: list[None] = []
    link_of(here).on_wants(lambda: changes.append(None))
    there.collection(Tide).subscribe(lambda event: None, where=this.level > 1)
    city.run()
    (want,) = link_of(here).wants()
    assert str(want.subscription) == "Tide where level > 1"
    assert link_of(here).wanted_by(Tide(level=2)) == {link_of(there).uid.hex()}
    assert link_of(here).wanted_by(Tide(level=1)) == set()
    assert [one.uid for one in link_of(here).participants()] == [link_of(there).uid.hex()]
    there.close()
    city.run()
    assert link_of(here).wants() == [] == link_of(here).participants()
    assert changes


def test_a_later_subscriber_gets_the_last_value_of_each_source(city: City) -> None:
    here, there = city.bus(), city.bus()
    channel = here.channel(Tide, NonReal(), keep=1)
    channel.announce()
    for source, level in (("a", 1), ("b", 2), ("a", 3)):
        channel.publish(Tide(level=level, source=source))
    city.run()
    got: list[Event] = []
    there.collection(Tide).subscribe(got.append)
    city.run()
    assert sorted(got, key=str) == sorted([Tide(level=2, source="b"), Tide(level=3, source="a")], key=str)
    second: list[Event] = []
    there.collection(Tide).subscribe(second.append, where=this.level > 2)
    assert second == [Tide(level=3, source="a")]
    channel.publish(Tide(level=4, source="a"))
    city.run()
    assert got[-1] == second[-1] == Tide(level=4, source="a")
    assert len(got) == 3


def test_hard_channels_are_refused_with_what_could_be_kept(city: City) -> None:
    bus = city.bus()
    with pytest.raises(BusError, match=r"no calendar.*could keep Soft"):
        bus.channel(Tide, Hard("10ms")).announce()


def test_an_event_that_is_too_large_is_refused_at_publish(city: City) -> None:
    bus = city.bus()
    link_of(bus)._outgoing.largest = 100
    with pytest.raises(EventError, match="at most 100"):
        bus.publish(Flood(level=1, street="x" * 200))


def forward_to(bus: Bus) -> Callable[[Arrival], None]:
    return link_of(bus).forward


def test_bad_packets_are_counted_by_reason_and_nothing_else_is_lost(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: list[Event] = []
    there.collection(Event).subscribe(got.append)
    here.publish(Tide(level=1))
    city.run()
    key = "city/Tide/0"
    good = bytes.fromhex("00" * 8 + "00000001" + "00" + "11" * 8 + "00000001")
    link = link_of(there)
    link.packet(key, b"", b"\x81\xa5level\x01")
    link.packet(key, b"short", b"\x81\xa5level\x01")
    link.packet(key, good[:12] + b"\x09" + good[13:], b"\x81\xa5level\x01")
    link.packet(key, good, b"junk")
    link.packet("city/Tide/1", good, b"\x81\xa5level\x01")
    link.packet("city/Mars", good, b"\x80")
    link.packet("city/Tide", good, b"\x81\xa5level\x01")
    link.packet("other/Tide/0", good, b"\x80")
    link.packet(key, good, b"\x92\x81\xa5level\x01")
    link.packet(key, good, b"\x91" * 100_000)
    rejected = {reason for reason in there.traffic().link if reason.startswith("rejected")}
    assert len(rejected) >= 8
    here.publish(Tide(level=2))
    city.run()
    assert got == [Tide(level=1), Tide(level=2)]


def test_soft_channels_tell_lateness_to_both_ends(city: City) -> None:
    here, there = city.bus(), city.bus()
    told: dict[str, list[Any]] = {"here": [], "there": []}
    got: list[Event] = []
    there.collection(Tide).subscribe(got.append, on_trouble=told["there"].append)
    link_of(here)._participants.clear()
    channel = here.channel(Tide, Soft("1ms", "2ms"))
    link_of(here).measure = lambda: None  # type: ignore[method-assign]
    channel.announce(told["here"].append)
    channel.publish(Tide(level=1))

    time.sleep(0.01)
    city.run(1)
    assert got == []
    assert [trouble.expired for trouble in told["here"]] == [1] == [trouble.expired for trouble in told["there"]]


def test_both_halves_of_a_partition_learn_what_they_lost(city: City) -> None:
    here, there = city.bus(), city.bus()
    got: dict[str, list[Any]] = {"here": [], "there": []}
    here.collection(Tide).subscribe(got["here"].append, where=this.source == "there")
    there.collection(Tide).subscribe(got["there"].append, where=this.source == "here")

    def publish(level: int) -> None:
        here.publish(Tide(level=level, source="here"))
        there.publish(Tide(level=level, source="there"))

    for level in range(300):
        if level in (100, 200):
            transport_of(there).is_cut_off = level == 100
        publish(level)
        city.run(0.1)
    city.run(3)
    for name, bus, other in (("here", here, there), ("there", there, here)):
        assert [event.level for event in got[name]] == [*range(100), *range(200, 300)]
        assert bus.traffic().link["lost"] == 100 == other.traffic().link["lost by receivers"]


def test_a_last_value_that_is_forgotten_is_given_no_more(city: City) -> None:
    here, there = city.bus(), city.bus()
    publisher = link_of(here).announce(Tide, keep=Keep())
    publisher.publish(Tide(level=1, source="a"))
    publisher.publish(Tide(level=2, source="b"))
    publisher.forget(Tide(level=0, source="a"))
    city.run()
    got: list[Event] = []
    there.collection(Tide).subscribe(got.append)
    city.run()
    assert got == [Tide(level=2, source="b")]


def test_who_subscribes_again_gets_the_last_value_again(city: City) -> None:
    here, there = city.bus(), city.bus()
    link_of(here).announce(Tide, keep=Keep()).publish(Tide(level=1, source="a"))
    got: list[Event] = []
    for _ in range(2):
        with there.collection(Tide).subscribe(got.append):
            city.run()
    assert got == [Tide(level=1, source="a")] * 2


def test_gateways_get_what_they_want_once_with_its_origin_and_send_for_others(city: City) -> None:
    here, there, far = city.bus(), city.bus(), city.bus()
    arrived: list[Arrival] = []
    relay = link_of(there).relay(arrived.append)
    relay.want([Want("", "f" * 16, Subscription(Tide, where=this.level > 1), 1)])
    city.run()
    (want,) = link_of(here).wants()
    assert (want.speaker, want.origin, want.hops) == (link_of(there).uid.hex(), "f" * 16, 1)
    for level in range(4):
        here.publish(Tide(level=level))
    city.run()
    assert [arrival.event.level for arrival in arrived] == [2, 3]  # type: ignore[attr-defined]
    assert {arrival.origin.uid for arrival in arrived} == {link_of(here).uid}
    got: list[Event] = []
    far.collection(Flood).subscribe(got.append)
    for _ in range(2):
        link_of(there).forward(Arrival(Flood(level=7), Origin(b"elsewhere"[:8], 5, 1)))
    city.run()
    assert got == [Flood(level=7)]
    relay.close()
    here.publish(Tide(level=9))
    city.run()
    assert len(arrived) == 2
    assert link_of(here).wants()[0].subscription == Subscription(Flood)


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
    there.collection(Tide).subscribe(got.append)
    link_of(here).measure = lambda: None  # type: ignore[method-assign]
    with here.channel(Tide, Soft("20s", "40s")) as tides:
        tides.announce()
        for hours in (0, 1, -2):
            monkeypatch.setattr("time.time_ns", lambda step=hours, now=time.time_ns: now() + step * 3_600_000_000_000)
            tides.publish(Tide(level=hours))
            city.run(1)
    assert got == [Tide(level=0), Tide(level=1), Tide(level=-2)]
    assert "late" not in there.traffic().link


@pytest.mark.parametrize("seed", range(4))
def test_types_that_are_declared_while_events_flow(seed: int) -> None:
    """Half a second after a class is declared, all its events arrive; those of other types are not affected."""
    city = City(MemoryNetwork(ZENOH, seed))
    here, there = city.bus(), city.bus()

    class Alarm(Kind): ...

    got: list[Any] = []
    there.collection(Alarm).subscribe(got.append)
    sent: list[Event] = []
    classes: list[type[Any]] = []
    for number in range(60):
        if number % 10 == 0:
            declare: Any = type(Event)
            classes.append(declare(f"Alarm{seed}x{number}", (Event, Alarm), {"__annotations__": {"n": int}}))
            city.run(0.6)
        event = city.network.random.choice(classes)(n=number)
        here.publish(event)
        sent.append(event)
        city.run(0.1)
    assert got == sent
    assert "lost" not in there.traffic().link
