"""Last values on any network: which are one value, and who still has one that was replaced or forgotten."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from genus import BestEffort, Event, Subscription
from genus.bus import Bus, Soft
from genus.net._envelope import Arrival, Interest, Origin
from genus.targets.topics import MQTT, ZENOH
from tests.net.memory_network import MemoryNetwork
from tests.net.test_netlink import City, SeaTide, forward_to, link_of
from tests.waiting import pass_time


class Lock(Event):
    a: str = ""
    b: str = ""
    n: int = 0


@pytest.fixture(params=[ZENOH, MQTT], ids=["zenoh", "mqtt"])
def town(request: pytest.FixtureRequest) -> Iterator[City]:
    made = City(MemoryNetwork(request.param))
    yield made
    for bus in made.buses:
        bus.close()


def late_values(city: City, bus: Bus, cls: type[Event] = Lock) -> list[Event]:
    """What a subscriber gets that comes now."""
    got: list[Event] = []
    city.run()
    bus.collection(cls).subscribe(got.append)
    city.run()
    return sorted(got, key=str)


def test_different_values_of_the_key_are_different_last_values(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, BestEffort(), keep=True, keep_by=("a", "b"))
    locks.announce()
    sent = [Lock(a=a, b=b) for a, b in (("1,2", "3"), ("1", "2,3"), ("1\\", "2"), ("1", "\\,2"), ("", ""), ("\\-", ""))]
    for event in sent:
        locks.publish(event)
    assert late_values(town, there) == sorted(sent, key=str)


def test_no_source_and_an_empty_source_are_different(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    sent = [Lock(n=1), Lock(n=2, source=""), Lock(n=3, source="\\-"), Lock(n=4, source="-")]
    for event in sent:
        locks.publish(event)
    assert late_values(town, there) == sorted(sent, key=str)


def test_a_value_with_other_tagged_attributes_replaces_the_one_before(town: City) -> None:
    here, there, third = town.bus(), town.bus(), town.bus()
    tides = here.channel(SeaTide, BestEffort(), keep=True)
    tides.announce()
    assert late_values(town, third, SeaTide) == []
    tides.publish(SeaTide(level=1, place="Kiel", source="s"))
    town.run()
    tides.publish(SeaTide(level=2, source="s"))
    assert late_values(town, there, SeaTide) == [SeaTide(level=2, source="s")]
    assert third.last_values(Subscription(SeaTide)) == [SeaTide(level=2, source="s")]
    tides.publish(SeaTide(level=3, place="Kiel", source="s"))
    town.run(3)
    assert third.last_values(Subscription(SeaTide)) == [SeaTide(level=3, place="Kiel", source="s")]
    assert "lost" not in third.traffic().link


def test_a_gateway_replaces_a_value_with_other_tagged_attributes(town: City) -> None:
    here, there = town.bus(), town.bus()
    forward_to(here)(Arrival(SeaTide(level=1, place="Kiel", source="s"), Origin(b"elsewher", 1, 1), "s"))
    forward_to(here)(Arrival(SeaTide(level=2, source="s"), Origin(b"elsewher", 1, 1), "s"))
    assert late_values(town, there, SeaTide) == [SeaTide(level=2, source="s")]
    assert here.last_values(Subscription(SeaTide)) == [SeaTide(level=2, source="s")]


def test_a_gateway_that_comes_later_gets_nothing_that_was_forgotten(town: City) -> None:
    here = town.bus()
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    for source in ("s", "t"):
        locks.publish(Lock(n=1, source=source))
    assert locks.forget(source="s") == 1
    arrived: list[Arrival] = []
    link_of(here).relay(arrived.append).set_interest([Interest("", "f" * 16, Subscription(Lock), 1)])
    assert [arrival.event for arrival in arrived] == [Lock(n=1, source="t")]


def test_a_gateway_that_wants_again_gets_nothing_that_was_forgotten_meanwhile(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    for source in ("s", "t"):
        locks.publish(Lock(n=1, source=source))
    arrived: list[Arrival] = []
    relay = link_of(there).relay(arrived.append)
    interests = [Interest("", "f" * 16, Subscription(Lock), 1)]
    relay.set_interest(interests)
    town.run()
    assert len(arrived) == 2
    relay.set_interest([])
    locks.forget(source="s")
    town.run()
    relay.set_interest(interests)
    town.run()
    assert [arrival.event for arrival in arrived[2:]] == [Lock(n=1, source="t")]


def test_a_packet_that_was_on_its_way_at_cancel_is_not_kept(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    listener = there.collection(Lock).subscribe(lambda event: None)
    town.run()
    locks.publish(Lock(n=1, source="s"))
    locks.publish(Lock(n=1, source="t"))
    listener.cancel()
    town.run()
    assert there.last_values(Subscription(Lock)) == []
    locks.forget(source="s")
    assert late_values(town, there) == [Lock(n=1, source="t")]


def test_what_a_gateway_forwarded_is_kept_for_its_own_bus_whoever_unsubscribes(town: City) -> None:
    here = town.bus()
    forward_to(here)(Arrival(Lock(n=1, source="s"), Origin(b"elsewher", 1, 1), "s"))
    here.collection(Lock).subscribe(lambda event: None).cancel()
    assert late_values(town, here) == [Lock(n=1, source="s")]


def test_gateways_are_told_what_is_forgotten(town: City) -> None:
    far = City(MemoryNetwork(town.network.dialect))
    here, there, beyond, last = town.bus(), town.bus(), far.bus(), far.bus()

    def cross(arrival: Arrival) -> None:
        forward_to(beyond)(replace(arrival, origin=replace(arrival.origin, hops=1)))

    link_of(there).relay(cross).set_interest([Interest("", "f" * 16, Subscription(Event), 1)])
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    tides = here.channel(SeaTide, BestEffort(), keep=True)
    tides.announce()
    for source in ("s", "t"):
        locks.publish(Lock(n=1, source=source))
    tides.publish(SeaTide(level=1, place="Kiel"))
    town.run()
    locks.forget(source="s")
    tides.publish(SeaTide(level=2))
    town.run()
    assert late_values(far, last, Event) == [Lock(n=1, source="t"), SeaTide(level=2)]
    assert beyond.last_values(Subscription(Event)) == [Lock(n=1, source="t"), SeaTide(level=2)]


def test_a_gateway_on_the_bus_of_the_publisher_is_told_what_is_forgotten(town: City) -> None:
    here = town.bus()
    arrived: list[Arrival] = []
    link_of(here).relay(arrived.append).set_interest([Interest("", "f" * 16, Subscription(Lock), 1)])
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    locks.publish(Lock(n=1, source="s"))
    locks.forget(source="s")
    assert [arrival.is_forgotten for arrival in arrived] == [False, True]
    assert arrived[1].origin.number == arrived[0].origin.number + 1


def test_last_values_that_were_overtaken_are_counted_as_superseded(town: City) -> None:
    here, there = town.bus(), town.bus()
    got: list[Event] = []
    there.collection(Lock).subscribe(got.append)
    town.run()
    locks = here.channel(Lock, BestEffort(), keep=True)
    locks.announce()
    for n in range(3):
        locks.publish(Lock(n=n))
    packets = list(town.network.way)[-3:]  # after the statements of the type and the channel
    town.network.way.clear()
    for packet in (packets[1], packets[0], packets[0], packets[2]):
        packet()
    assert got == [Lock(n=1), Lock(n=2)]
    link = there.traffic().link
    assert (link["superseded"], link["duplicates"]) == (1, 1)


def test_a_last_value_is_not_late_for_who_comes_later(town: City, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = town.bus(), town.bus()
    link_of(here).measure = lambda: None  # type: ignore[method-assign]
    told: list[Any] = []
    locks = here.channel(Lock, Soft("1ms", "2ms"), keep=True, on_problem=told.append)
    locks.announce()
    locks.publish(Lock(n=1))
    pass_time(monkeypatch, 10)
    got: list[Event] = []
    there.collection(Lock).subscribe(got.append, on_problem=told.append)
    for packet in list(town.network.way):
        town.network.add(packet)  # zenoh asks several times
    town.run(1)
    assert got == [Lock(n=1)]
    assert told == []
    locks.publish(Lock(n=2))
    pass_time(monkeypatch, 10)
    for packet in list(town.network.way):
        town.network.add(packet)
    town.run(1)
    assert got == [Lock(n=1)]
    assert [problem.expired for problem in told] == [1, 1]
    assert there.traffic().link["late"] == 1


def test_whole_keys_are_forgotten_whoever_published_them(town: City) -> None:
    here, there, third = town.bus(), town.bus(), town.bus()
    third.collection(SeaTide).subscribe(lambda event: None)
    town.run()
    tides = here.channel(SeaTide, BestEffort(), keep=True)
    tides.announce()
    for source in ("s", "t"):
        tides.publish(SeaTide(level=1, place="Kiel", source=source))
    town.run()
    others = there.channel(SeaTide, BestEffort(), keep=True)
    others.announce()
    assert others.forget(source="s") == 0
    town.run()
    assert third.last_values(Subscription(SeaTide)) == [SeaTide(level=1, place="Kiel", source="t")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_publishers_of_a_key_a_late_subscriber_ends_with_the_newer_value(town: City, order: list[int]) -> None:
    buses, there = [town.bus(), town.bus()], town.bus()
    times = [datetime(2026, 1, 1, second=second, tzinfo=UTC) for second in (1, 2)]
    for n in order:
        locks = buses[n].channel(Lock, BestEffort(), keep=True)
        locks.announce()
        locks.publish(Lock(n=n, source="s", time=times[n]))
        tides = buses[n].channel(SeaTide, BestEffort(), keep=True)
        tides.announce()
        tides.publish(SeaTide(level=n, place="Kiel" if n else None, time=times[n]))
    for cls, attribute in ((Lock, "n"), (SeaTide, "level")):
        got: list[Event] = []
        there.collection(cls).subscribe(got.append)
        town.run()
        assert getattr(got[-1], attribute) == 1
        assert there.last_values(Subscription(cls)) == got[-1:]


def test_a_publisher_with_a_clock_that_is_behind_is_heard(town: City) -> None:
    here, there, third = town.bus(), town.bus(), town.bus()
    got: list[Any] = []
    third.collection(Lock).subscribe(got.append)
    town.run(5)
    for n, bus in enumerate((here, there)):
        locks = bus.channel(Lock, BestEffort(), keep=True)
        locks.announce()
        locks.publish(Lock(n=n, source="s", time=datetime(2026 - n, 1, 1, tzinfo=UTC)))
        town.run()
    assert [event.n for event in got] == [0, 1]


def test_a_bus_knows_one_last_value_of_a_key_that_others_publish_too(town: City) -> None:
    here, there = town.bus(), town.bus()
    channels = [bus.channel(SeaTide, BestEffort(), keep=True) for bus in (here, there)]
    for channel in channels:
        channel.announce()
    here.collection(SeaTide).subscribe(lambda event: None)
    town.run()
    expected = [SeaTide(level=1), SeaTide(level=2, place="Kiel"), SeaTide(level=3)]
    for channel, event in zip([*channels, channels[0]], expected, strict=True):
        channel.publish(event)
        town.run()
        assert here.last_values(Subscription(SeaTide)) == [event]
        again: list[Event] = []
        here.collection(SeaTide).subscribe(again.append)
        assert again == [event]


def test_a_packet_that_was_on_its_way_at_cancel_does_not_replace_what_was_published_here(town: City) -> None:
    here, there = town.bus(), town.bus()
    channels = [bus.channel(Lock, BestEffort(), keep=True) for bus in (here, there)]
    for channel in channels:
        channel.announce()
    channels[0].publish(Lock(n=1))
    listener = here.collection(Lock).subscribe(lambda event: None)
    town.run()
    channels[1].publish(Lock(n=2))
    listener.cancel()
    town.run()
    arrived: list[Arrival] = []
    link_of(here).relay(arrived.append).set_interest([Interest("", "f" * 16, Subscription(Lock), 1)])
    assert [arrival.event for arrival in arrived] == [Lock(n=1)]
    town.run()
    assert [arrival.event for arrival in arrived] == [Lock(n=1), Lock(n=2)]
