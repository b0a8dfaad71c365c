"""Gateways in simulated networks: every wanted event arrives once, and nothing else crosses."""

import random
from collections.abc import Sequence
from itertools import count

import pytest

from genus import Event, Subscription, UInt8, this
from genus.net._envelope import Arrival, Interest, Origin
from genus.net._gateway.machine import GatewayMachine
from genus.net._gateway.rules import RateLimit, Scope, SideRules, parse_rate
from genus.net._gateway.standby import SILENT_S, TAKEOVER_S
from tests.net.network_model import (
    CanSegment,
    Clock,
    ModelGateway,
    Network,
    Publisher,
    Subscriber,
)


class Probe(Event):
    lane: UInt8


class FastProbe(Probe):
    speed: UInt8 = 0


class Beacon(Event):
    lane: UInt8


SUBSCRIPTIONS = (
    Subscription(Probe),
    Subscription(FastProbe),
    Subscription(Beacon),
    Subscription(Probe, where=this.lane > 3),
    Subscription(Beacon, where=this.lane == 2),
    Subscription(FastProbe, where=this.speed > 1),
    Subscription(Event),
)
Links = Sequence[tuple[int, ...]]
SETTLE = 3.0


def some_event(choice: random.Random) -> Event:
    lane = choice.randrange(8)
    return choice.choice([Probe(lane=lane), FastProbe(lane=lane, speed=choice.randrange(4)), Beacon(lane=lane)])


class City:
    """State: networks and gateways of a shape, with subscribers and publishers at random."""

    def __init__(self, seed: int, links: Links, doubled: str = "") -> None:
        self.clock = Clock(seed)
        self.random = random.Random(seed)
        self.networks = [Network(self.clock, f"net{number}") for number in range(1 + max(map(max, links)))]
        self.gateways: list[ModelGateway] = []
        for number, link in enumerate(links):
            for uid in ("g", "h") if doubled else ("g",):
                name = f"pair{number}" if doubled == "named" else ""
                attached = [self.networks[one] for one in link]
                self.gateways.append(ModelGateway(self.clock, f"{uid}{number}", *attached, name=name))
        self.publishers = [Publisher(network, f"p{network.name}") for network in self.networks]
        self.subscribers: list[Subscriber] = []
        self._uids = count()

    def subscribe(self, number: int) -> None:
        for _ in range(number):
            asked = self.random.sample(SUBSCRIPTIONS, self.random.randint(1, 3))
            network = self.random.choice(self.networks)
            self.subscribers.append(Subscriber(network, f"s{next(self._uids)}", *asked))

    def forwards(self) -> int:
        return sum(len(network.forwarded) for network in self.networks)


def check_exactly_once(city: City, events: int) -> int:
    """Publish at random, and compare what every subscriber got with what it wants; returns the copies dropped."""
    for one in city.subscribers:
        one.got.clear()
    published = []
    for _ in range(events):
        publisher = city.random.choice(city.publishers)
        published.append(publisher.publish(some_event(city.random)))
        city.clock.run(0.002)
    city.clock.run(SETTLE)
    for one in city.subscribers:
        wanted = {
            (arrival.origin.uid, type(arrival.event).__name__, arrival.origin.number)
            for arrival in published
            if one.matches(arrival.event)
        }
        assert set(one.got) == wanted
    return sum(times - 1 for one in city.subscribers for times in one.got.values())


def check_nothing_unwanted(city: City) -> None:
    """On every network to which an event was sent, or behind it, somebody wants it."""
    for network in city.networks:
        for _, arrival in network.forwarded:
            assert any(one.matches(arrival.event) for one in city.subscribers)
    assert all(counts.unwanted == 0 for gateway in city.gateways for counts in gateway.machine.counts)


LINE = [(0, 1), (1, 2), (2, 3), (3, 4)]
RING = [(0, 1), (1, 2), (2, 0)]
STAR = [(0, 1, 2, 3)]
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
GRID = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("links", [LINE, STAR, TREE])
def test_on_a_tree_of_networks_every_wanted_event_crosses_once(links: Links, seed: int) -> None:
    city = City(seed, links)
    city.subscribe(4)
    city.clock.run(SETTLE)
    assert check_exactly_once(city, 60) == 0
    check_nothing_unwanted(city)
    assert all(counts.duplicates == 0 for gateway in city.gateways for counts in gateway.machine.counts)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("links", [RING, GRID])
def test_in_a_ring_every_wanted_event_arrives_and_copies_are_recognised(links: Links, seed: int) -> None:
    city = City(seed, links)
    city.subscribe(3)
    city.clock.run(SETTLE)
    check_exactly_once(city, 60)
    check_nothing_unwanted(city)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("links", [LINE, RING, TREE])
def test_doubled_gateways_with_a_name_forward_once(links: Links, seed: int) -> None:
    city = City(seed, links, doubled="named")
    city.subscribe(3)
    city.clock.run(SETTLE)
    copies = check_exactly_once(city, 40)
    assert copies == 0 or links is RING
    check_nothing_unwanted(city)
    assert [gateway.machine.is_active for gateway in city.gateways] == [True, False] * len(links)
    assert all(gateway.machine.held == 0 for gateway in city.gateways)


@pytest.mark.parametrize("seed", range(3))
def test_doubled_gateways_without_a_name_send_copies_that_are_recognised(seed: int) -> None:
    city = City(seed, LINE, doubled="unnamed")
    city.subscribe(3)
    city.clock.run(SETTLE)
    check_exactly_once(city, 40)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("links", "doubled"), [(LINE, ""), (RING, ""), (GRID, ""), (RING, "named"), (LINE, "unnamed")])
def test_when_the_last_subscriber_has_left_no_want_is_left_and_nothing_crosses(
    links: Links, doubled: str, seed: int
) -> None:
    """Gateways in a ring do not keep a want alive that they only have from each other."""
    city = City(seed, links, doubled)
    city.subscribe(4)
    city.clock.run(SETTLE)
    for one in city.subscribers:
        one.cancel()
        city.clock.run(city.random.choice([0.0, 0.001, 0.01]))
    city.clock.run(SETTLE)
    assert not any(side.interests for gateway in city.gateways for side in gateway.sides)
    before = city.forwards()
    for publisher in city.publishers:
        publisher.publish(Probe(lane=1))
    city.clock.run(SETTLE)
    assert city.forwards() == before


@pytest.mark.parametrize("seed", range(3))
def test_interest_that_changes_is_followed(seed: int) -> None:
    city = City(seed, GRID)
    for _ in range(3):
        city.subscribe(2)
        city.clock.run(SETTLE)
        check_exactly_once(city, 20)
        city.subscribers.pop(0).cancel()
        city.clock.run(SETTLE)
        check_exactly_once(city, 20)


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_without_one_gateway_goes_the_other_way(seed: int) -> None:
    city = City(seed, RING)
    city.subscribe(3)
    city.clock.run(SETTLE)
    city.gateways.pop(seed % 3).kill()
    city.clock.run(SETTLE)
    check_exactly_once(city, 30)


def test_interest_reaches_eight_gateways_far() -> None:
    city = City(1, [(number, number + 1) for number in range(10)])
    city.subscribers.append(Subscriber(city.networks[0], "s0", Subscription(Probe)))
    city.clock.run(SETTLE)
    far = [bool(gateway.sides[1].interests) for gateway in city.gateways]
    assert far == [True] * 8 + [False] * 2
    city.publishers[8].publish(Probe(lane=1))
    city.publishers[9].publish(Probe(lane=1))
    city.clock.run(SETTLE)
    assert [uid for uid, _, _ in city.subscribers[0].got] == [b"pnet8---"]


@pytest.mark.parametrize("seed", range(20))
def test_an_active_gateway_that_is_killed_loses_nothing(seed: int) -> None:
    """Events are published before, while and after it dies: the standby forwards what it did not see cross."""
    city = City(seed, [(0, 1), (1, 2)], doubled="named")
    city.subscribers = [
        Subscriber(city.networks[0], "s0", Subscription(Probe)),
        Subscriber(city.networks[2], "s1", Subscription(Event)),
    ]
    city.clock.run(SETTLE)
    killed = city.gateways[0 if seed % 2 else 2]
    city.clock.at(city.clock.now + city.random.uniform(0.0, 0.1), killed.kill)
    assert check_exactly_once(city, 60) <= 60  # copies were dropped by origin


@pytest.mark.parametrize("seed", range(20))
def test_events_of_a_can_bus_survive_the_active_gateway(seed: int) -> None:
    """They have no numbers on the bus: the standby continues those of the active gateway."""
    clock, choice = Clock(seed), random.Random(seed)
    road, city = CanSegment(clock, "road"), Network(clock, "city")
    first = ModelGateway(clock, "g0", road, city, name="pair")
    clock.run(choice.uniform(0.0, 2.0))
    second = ModelGateway(clock, "g1", road, city, name="pair")
    subscriber = Subscriber(city, "s0", Subscription(Probe))
    clock.run(SETTLE)
    dies_at = clock.now + choice.uniform(0.0, 0.1)
    clock.at(dies_at, first.kill)
    for number in range(60):
        road.publish(choice.randrange(3), Probe(lane=number))
        road.publish(7, Beacon(lane=number))
        clock.run(0.002)
    clock.run(SETTLE)
    assert second.machine.is_active
    lanes = sorted(arrival.event.lane for _, arrival in city.forwarded)  # type: ignore[attr-defined]
    assert set(lanes) == set(range(60))
    assert len(subscriber.got) == 60, "an event that both gateways forwarded has one number"
    assert second.machine.counts[0].unwanted == 0


def test_a_standby_does_not_hand_up_what_the_active_gateway_sent_on_can() -> None:
    clock = Clock(1)
    road, city = CanSegment(clock, "road"), Network(clock, "city")
    gateways = [ModelGateway(clock, uid, road, city, name="pair") for uid in ("g0", "g1")]
    Subscriber(city, "s0", Subscription(Event))
    for gateway in gateways:
        gateway.machine.interest_changed(0, [want_of_configuration(gateway)], clock.now)
        gateway.tick()
    clock.run(SETTLE)
    publisher = Publisher(city, "p0")
    for lane in range(10):
        publisher.publish(Beacon(lane=lane))
        clock.run(0.01)
    assert [len(road.forwarded), len(city.forwarded)] == [10, 0]
    assert gateways[1].machine.held == 0
    assert gateways[1].machine.counts[0].duplicates == 10


def want_of_configuration(gateway: ModelGateway) -> Interest:
    return Interest("", f"{gateway.machine.uid}.road", Subscription(Beacon), 0)


def test_gateways_that_do_not_see_each_other_on_one_side_are_both_active() -> None:
    clock = Clock(2)
    one, two = Network(clock, "one"), Network(clock, "two")
    gateways = [ModelGateway(clock, uid, one, two, name="pair") for uid in ("g0", "g1")]
    clock.run(SETTLE)
    assert [gateway.machine.is_active for gateway in gateways] == [True, False]
    second = gateways[1].machine
    second.token(1, "g0", False, clock.now)
    assert not second.is_active, "what is on its way may still come"
    second.tick(clock.now + TAKEOVER_S)
    assert second.is_active
    second.token(1, "g0", True, clock.now + 1)
    assert not second.is_active
    second.connected(1, False, clock.now + 1)
    second.token(1, "g0", False, clock.now + 1)
    second.tick(clock.now + 2)
    assert not second.is_active, "a side that is down for itself says nothing of the other gateway"


def seen_token() -> GatewayMachine:
    """A machine of two networks and a CAN bus that sees the tokens of a gateway with a lower uid."""
    rules = [SideRules(name, hears_gateways=True) for name in ("one", "two")]
    machine = GatewayMachine("g1", [*rules, SideRules("can", tells_tokens=False)], is_doubled=True, now=0.0)
    for side in (0, 1):
        machine.token(side, "g0", True, 0.1)
    return machine


def test_a_token_alone_does_not_silence_a_gateway() -> None:
    """Anybody may show a token; only gateways may say that they work."""
    machine = seen_token()
    for tenth in range(2, 50):
        machine.tick(tenth / 10)
        assert machine.is_active is (tenth / 10 >= SILENT_S), "a gateway that is new waits for those that may be slow"
    machine.heard_gateway(0, "g0", 5.0)
    assert machine.is_active, "it must work on all networks"
    machine.heard_gateway(1, "g0", 5.0)
    assert not machine.is_active
    machine.heard_gateway(1, "gg", 5.0)
    assert not machine.is_active


def test_a_gateway_that_is_silent_is_gone_whatever_its_tokens_say() -> None:
    machine = seen_token()
    for tenth in range(10, 80):
        if tenth < 40:
            for side in (0, 1):
                machine.heard_gateway(side, "g0", tenth / 10)
        machine.tick(tenth / 10)
        assert machine.is_active is (tenth / 10 > 3.9 + SILENT_S)


def test_who_has_slept_does_not_take_the_others_for_silent() -> None:
    machine = seen_token()
    for side in (0, 1):
        machine.heard_gateway(side, "g0", 1.0)
    machine.tick(1.5)
    machine.tick(60.0)
    assert not machine.is_active
    machine.tick(60.9)
    assert not machine.is_active
    for tenth in range(610, 640):
        machine.tick(tenth / 10)
    assert machine.is_active


@pytest.mark.parametrize("seed", range(10))
def test_two_active_gateways_of_a_can_bus_number_its_events_alike(seed: int) -> None:
    """They lost sight of each other on the city's side: copies of their events are recognised."""
    clock, choice = Clock(seed), random.Random(seed)
    road, city = CanSegment(clock, "road"), Network(clock, "city")
    gateways = [ModelGateway(clock, uid, road, city, name="pair") for uid in ("g0", "g1")]
    subscriber = Subscriber(city, "s0", Subscription(Event))
    clock.run(SETTLE)
    for number in range(60):
        if number == 30:
            gateways[1].machine.token(1, "g0", False, clock.now)
            gateways[1].tick()
        road.publish(choice.randrange(2), Probe(lane=number))
        clock.run(0.003)
    clock.run(SETTLE)
    assert [gateway.machine.is_active for gateway in gateways] == [True, True]
    assert len(subscriber.got) == 60
    assert len(city.forwarded) > 65


# -- scope, rate, kept -------------------------------------------------------------------------------------------------


def test_only_types_that_are_exported_and_imported_cross_and_only_they_are_asked_for() -> None:
    clock = Clock(3)
    road, city = Network(clock, "road"), Network(clock, "city")
    rules = {
        "road": SideRules("road", Scope(export=(Probe,))),
        "city": SideRules("city", Scope(imports=(FastProbe, Beacon))),
    }
    gateway = ModelGateway(clock, "g0", road, city, rules=rules)
    subscriber = Subscriber(city, "s0", Subscription(Event), Subscription(Beacon))
    publisher = Publisher(road, "p0")
    clock.run(SETTLE)
    assert [str(interest.subscription) for interest in gateway.sides[0].interests] == ["FastProbe"]
    assert gateway.machine.refused_interests(1) == 1
    for event in (Probe(lane=1), FastProbe(lane=1), Beacon(lane=1)):
        publisher.publish(event)
    clock.run(SETTLE)
    assert [type(arrival.event) for _, arrival in city.forwarded] == [FastProbe]
    assert len(subscriber.got) == 1


@pytest.mark.parametrize("rate", ["2/s", "2/s newest"])
def test_a_rate_limit_drops_what_is_too_much_or_keeps_the_newest(rate: str) -> None:
    clock = Clock(4)
    road, city = Network(clock, "road"), Network(clock, "city")
    rules = {"city": SideRules("city", limits={Probe: parse_rate(rate)})}
    gateway = ModelGateway(clock, "g0", road, city, rules=rules)
    Subscriber(city, "s0", Subscription(Event))
    publisher = Publisher(road, "p0")
    clock.run(SETTLE)
    for lane in range(10):
        publisher.publish(FastProbe(lane=lane))
        publisher.publish(Beacon(lane=lane))
        clock.run(0.125)
    clock.run(SETTLE)
    crossed = [arrival.event for _, arrival in city.forwarded]
    assert len([event for event in crossed if isinstance(event, Beacon)]) == 10
    got = [event.lane for event in crossed if isinstance(event, Probe)]
    counts = gateway.machine.counts[1]
    assert counts.limited == 10 - len(got)
    assert counts.wanted == counts.crossed + counts.limited
    assert got == sorted(set(got))
    assert got[:2] == [0, 1]
    assert (got[-1] == 9) is rate.endswith("newest")


def test_a_kept_event_crosses_to_a_side_that_wants_it_later() -> None:
    clock = Clock(5)
    networks = [Network(clock, name) for name in ("one", "two", "three")]
    ModelGateway(clock, "g0", *networks)
    first = Subscriber(networks[1], "s1", Subscription(Probe))
    clock.run(SETTLE)
    publisher = Publisher(networks[0], "p0")
    for lane in (1, 2):
        networks[0].send(publisher, Arrival(Probe(lane=lane), Origin(b"p0------", lane), kept="gate"))
        clock.run(SETTLE)
    late = Subscriber(networks[2], "s2", Subscription(Probe))
    clock.run(SETTLE)
    assert [len(first.got), len(late.got)] == [2, 1]
    assert [arrival.event for _, arrival in networks[2].forwarded] == [Probe(lane=2)]
    late.cancel()
    Subscriber(networks[2], "s3", Subscription(Probe))
    clock.run(SETTLE)
    assert len(networks[2].forwarded) == 1, "the network keeps it itself now"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_sweep_of_shapes_and_deaths(seed: int) -> None:
    """The tests above with more seeds."""
    for links in (LINE, RING, TREE, GRID):
        test_in_a_ring_every_wanted_event_arrives_and_copies_are_recognised(links, seed)
    for links, doubled in ((RING, "named"), (GRID, "named"), (GRID, "unnamed")):
        test_when_the_last_subscriber_has_left_no_want_is_left_and_nothing_crosses(links, doubled, seed)
    test_an_active_gateway_that_is_killed_loses_nothing(seed)
    test_events_of_a_can_bus_survive_the_active_gateway(seed)
    test_two_active_gateways_of_a_can_bus_number_its_events_alike(seed)
    test_a_ring_without_one_gateway_goes_the_other_way(seed)


def kept_probe(number: int, *, lane: int = 1, is_forgotten: bool = False) -> Arrival:
    return Arrival(Probe(lane=lane, source="s"), Origin(b"road----", number), "s", is_forgotten)


def wanting(*sides: int, rate: str = "") -> GatewayMachine:
    """A machine of three sides, some of which want probes."""
    limits: dict[type, RateLimit] = {Probe: parse_rate(rate)} if rate else {}
    machine = GatewayMachine("g", [SideRules(f"net{side}", limits=limits) for side in range(3)], hold_s=0.0)
    for side in sides:
        assert machine.interest_changed(side, [Interest("x", "x", Subscription(Probe))], 0.0) == []
    return machine


def test_what_is_forgotten_is_told_where_it_was_sent_and_not_passed_later() -> None:
    machine = wanting(1)
    assert [one.target for one in machine.arrived(0, kept_probe(1), 0.0)] == [1]
    (forward,) = machine.arrived(0, kept_probe(2, is_forgotten=True), 0.0)
    assert (forward.target, forward.arrival.is_forgotten, forward.arrival.origin.hops) == (1, True, 1)
    assert machine.arrived(0, kept_probe(1), 0.0) == [], "a copy that took longer"
    assert machine.interest_changed(2, [Interest("y", "y", Subscription(Probe))], 0.0) == []


def test_a_value_that_waits_for_a_rate_limit_is_not_sent_after_it_is_forgotten() -> None:
    machine = wanting(1, rate="1/s newest")
    assert len(machine.arrived(0, kept_probe(1), 0.0)) == 1
    assert machine.arrived(0, kept_probe(2), 0.0) == []
    assert [one.arrival.is_forgotten for one in machine.arrived(0, kept_probe(3, is_forgotten=True), 0.1)] == [True]
    assert machine.tick(5.0) == []


def test_a_kept_event_is_not_passed_once_newer_ones_cannot_arrive() -> None:
    machine = wanting(1)
    assert len(machine.arrived(0, kept_probe(1), 0.0)) == 1
    machine.interest_changed(1, [], 1.0)
    machine.tick(10.0)
    assert machine.wanted_on(0) == []
    assert machine.interest_changed(1, [Interest("x", "x", Subscription(Probe))], 11.0) == []
    assert len(machine.arrived(0, kept_probe(1), 12.0)) == 1, "the link gives what is still kept"
