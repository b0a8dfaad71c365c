"""Gateways between real networks: `ipc:` and zenoh, in one process and in several."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genus import BestEffort, Event, Subscription, UInt32, open_bus, this
from genus.bus import Bus, Hard
from genus.can import World
from genus.net import Gateway, GatewaySide, NetLink, Sender, Sending
from genus.net._envelope import MAX_HOPS
from genus.net._link.messages import control_key, encode_text
from genus.net._transport import BULK
from genus.testing import MqttBroker
from tests.net.memory_network import MemoryNetwork, MemoryTransport
from tests.net.zenoh_network import free_port, router
from tests.waiting import wait_for

TYPES = """
from genus import Event, Maybe

class NetLoop(Event, tagged=("place",)):
    number: int

class NetFast(NetLoop):
    speed: Maybe[float] = None

class NetMove(Event):
    net_axis: int
    request: Maybe[int] = None
"""
namespace: dict[str, Any] = {"__name__": "net_loop_types"}
exec(TYPES, namespace)  # the types of the other processes, declared by the same text
NetLoop, NetFast, NetMove = namespace["NetLoop"], namespace["NetFast"], namespace["NetMove"]


class NetMoved(Event):
    net_axis: int = 0
    request: UInt32 = 0


MEDIA = ["ipc", "zenoh", "mqtt", "mixed"]
FEW_MEDIA = ["mixed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ipc", "zenoh", "mqtt"))]


@pytest.fixture
def addresses(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Three networks that do not hear each other."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if request.param in ("zenoh", "mixed"):
        pytest.importorskip("zenoh")
    if request.param in ("mqtt", "mixed"):
        pytest.importorskip("mqtt5")
    with MqttBroker() if request.param in ("mqtt", "mixed") else nullcontext() as broker:
        ipc = [f"ipc:net{number}" for number in range(3)]
        zenoh = [f"zenoh:net{number}?port={free_port()}" for number in range(3)]
        mqtt = [f"mqtt://127.0.0.1:{broker.port if broker else 0}/net{number}" for number in range(3)]
        yield {"ipc": ipc, "zenoh": zenoh, "mqtt": mqtt, "mixed": [ipc[0], zenoh[1], mqtt[2]]}[request.param]


class Collected:
    """State: what a subscriber got, by number."""

    def __init__(self, bus: Bus, subscription: Subscription) -> None:
        self.got: Counter[int] = Counter()
        self.subscription = subscription
        self.listener = bus.subscribe(subscription, self._note)

    def _note(self, event: Any) -> None:
        self.got[event.number] += 1

    def has(self, numbers: set[int]) -> bool:
        return set(self.got) == numbers


def wanted_on(bus: Bus) -> int:
    assert isinstance(bus.link, NetLink)
    return len(bus.link.interests())


def one_stands_by(bus: Bus) -> bool:
    """Whether one gateway watches what crosses to the network of a bus, in wants that are not to be repeated."""
    assert isinstance(bus.link, NetLink)
    return [interest.hops for interest in bus.link.interests()].count(MAX_HOPS) == 1


@pytest.mark.slow
@pytest.mark.parametrize("addresses", MEDIA, indirect=True)
def test_a_ring_of_networks_delivers_once_and_nothing_unwanted(addresses: list[str]) -> None:
    choice = random.Random(1)
    with ExitStack() as stack:
        buses = [stack.enter_context(open_bus(address)) for address in addresses]
        for one, other in ((0, 1), (1, 2), (2, 0)):
            sides = [stack.enter_context(open_bus(addresses[number])) for number in (one, other)]
            stack.enter_context(Gateway(*sides))
        asked = (Subscription(NetLoop), Subscription(NetFast, where=this.speed > 5), Subscription(NetLoop, has="place"))
        collected = [Collected(bus, subscription) for bus, subscription in zip(buses, asked, strict=True)]
        wait_for(lambda: all(wanted_on(bus) >= 3 for bus in buses), "interest did not get round")
        published: list[Any] = []
        for number in range(60):
            made = {"number": number, "place": choice.choice([None, "Kiel"])}
            event = NetFast(speed=choice.uniform(0, 10), **made) if number % 2 else NetLoop(**made)
            published.append(event)
            buses[number % 3].publish(event)
        for each in collected:
            wanted = {event.number for event in published if each.subscription.matches(event)}
            wait_for(partial(each.has, wanted))
        time.sleep(0.2)
        assert max(times for each in collected for times in each.got.values()) == 1
        for each in collected:
            each.listener.cancel()
        wait_for(lambda: all(wanted_on(bus) == 0 for bus in buses), "wants stayed after the last subscriber left")


@pytest.mark.parametrize("addresses", MEDIA, indirect=True)
def test_a_gateway_of_a_line_counts_what_crosses_and_lets_nothing_else_pass(addresses: list[str]) -> None:
    with (
        open_bus(addresses[0]) as road,
        open_bus(addresses[0]) as near,
        open_bus(addresses[1]) as far,
        open_bus(addresses[1]) as city,
        Gateway(GatewaySide(bus=near, name="road"), GatewaySide(bus=far, name="city")) as gateway,
    ):
        collected = Collected(city, Subscription(NetLoop, where=this.number >= 50))
        wait_for(lambda: wanted_on(road) == 1)
        for number in range(100):
            road.publish(NetLoop(number=number))
        wait_for(lambda: len(collected.got) == 50)
        here, there = gateway.status().sides
        assert (here.heard, here.unwanted, here.duplicates) == (50, 0, 0)
        assert (there.wanted, there.crossed, there.lost) == (50, 50, 0)
        collected.listener.cancel()
        wait_for(lambda: wanted_on(road) == 0)
        road.publish(NetLoop(number=99))
        later = Collected(city, Subscription(NetLoop, where=this.number >= 100))
        wait_for(lambda: wanted_on(road) == 1)
        road.publish(NetLoop(number=100))
        wait_for(lambda: later.has({100}))
        assert gateway.status().sides[0].heard == 51


@pytest.mark.parametrize("addresses", MEDIA, indirect=True)
def test_last_values_reach_who_subscribes_later_beyond_a_gateway(addresses: list[str]) -> None:
    with (
        open_bus(addresses[0]) as road,
        open_bus(addresses[0]) as near,
        open_bus(addresses[1]) as far,
        open_bus(addresses[1]) as city,
        Gateway(near, far),
    ):
        loops = road.channel(NetLoop, keep=True)
        loops.announce()
        for number in range(4):
            loops.publish(NetLoop(number=number, source=f"loop-{number % 2}"))
        first = Collected(city, Subscription(NetLoop))
        wait_for(lambda: set(first.got) == {2, 3})
        with open_bus(addresses[1]) as other:
            late = Collected(other, Subscription(NetLoop))
            wait_for(lambda: set(late.got) == {2, 3})
        assert max(first.got.values()) == 1
        loops.forget(source="loop-0")
        wait_for(lambda: [event.number for event in city.last_values(Subscription(NetLoop))] == [3])
        with open_bus(addresses[1]) as other:
            late = Collected(other, Subscription(NetLoop))
            wait_for(lambda: 3 in late.got)
            assert set(late.got) == {3}


@pytest.mark.parametrize("addresses", MEDIA, indirect=True)
def test_requests_are_answered_beyond_a_gateway(addresses: list[str]) -> None:
    with (
        open_bus(addresses[0]) as road,
        open_bus(addresses[0]) as near,
        open_bus(addresses[1]) as far,
        open_bus(addresses[1]) as city,
        Gateway(near, far),
    ):
        road.collection(NetMove).serve(lambda move: NetMoved(net_axis=move.net_axis + 1))
        wait_for(lambda: wanted_on(city) >= 1)
        moves = city.collection(NetMove)
        replies = [moves.request(NetMove(net_axis=net_axis), NetMoved, timeout="30s") for net_axis in range(3)]
        assert [reply.net_axis for reply in replies] == [1, 2, 3]


def test_types_are_forwarded_with_the_quality_of_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a type whose quality the medium cannot keep is counted as lost."""
    network = MemoryNetwork()
    city, far = memory_bus(network), memory_bus(network)
    city.subscribe(Subscription(NetLoop), lambda event: None)
    network.deliver()
    assert isinstance(far.link, NetLink)
    used: list[tuple[str, int]] = []
    made = far.link.transport.sender

    def sender(key: str, sending: Sending) -> Sender:
        if not key.startswith("@genus/"):
            used.append((key, sending.priority))
        return made(key, sending)

    monkeypatch.setattr(far.link.transport, "sender", sender)
    side = GatewaySide(bus=far, quality={NetFast: Hard(period="10ms"), NetLoop: BestEffort(priority=1)})
    with open_bus() as road, Gateway(road, side) as gateway:
        gateway.settle()
        road.publish(NetLoop(number=1))
        for number in (2, 3):
            road.publish(NetFast(number=number))
        assert used == [("city/NetLoop/0", BULK)]
        assert (gateway.status().sides[1].crossed, gateway.status().sides[1].lost) == (1, 2)
    for bus in (city, far):
        bus.close()


def test_tokens_that_are_none_are_ignored() -> None:
    near, far = memory_bus(MemoryNetwork()), memory_bus(MemoryNetwork())
    link = near.link
    assert isinstance(link, NetLink)
    with Gateway(near, far, name="pair") as gateway:
        wait_for(lambda: gateway.is_active)
        for text in ("", "[]", '["pair"]', "null", "[" * 500, '["pair", 3, {}]', '["pair", "0", {"a": "b"}]'):
            link.token(control_key("city", "gate", "00" * 8, encode_text(text)), True)
        link.token(control_key("city", "gate", "00" * 8, "?" * 5000), True)
        gateway.settle()
        assert gateway.is_active
    for bus in (near, far):
        bus.close()


@pytest.mark.parametrize("addresses", ["mixed"], indirect=True)
def test_a_forged_token_does_not_stop_the_gateway_of_a_can_bus(addresses: list[str]) -> None:
    """Nor does one that names a node of the bus as that of a gateway."""
    for number, address in enumerate(addresses):
        with (
            World(f"gw-forged{number}", catalog=[NetLoop]) as world,
            open_bus(address) as near,
            open_bus(address) as city,
        ):
            sensor, road = (open_bus(f"sim:gw-forged{number}?name={name}") for name in ("sensor", "gateway"))
            loops = sensor.channel(NetLoop, BestEffort())
            loops.announce()
            world.run("1s")
            collected = Collected(city, Subscription(NetLoop))
            assert sensor.link is not None
            forge_tokens(city, near, {"road": sensor.link.node_number})
            with Gateway(GatewaySide(bus=road, name="road"), near, name="pair") as gateway:
                wait_for(partial(wanted_on, near))
                world.run("5s")
                assert gateway.is_active
                for each in range(10):
                    loops.publish(NetLoop(number=each))
                    world.run("0.1s")
                wait_for(partial(collected.has, set(range(10))))


def forge_tokens(forger: Bus, victim: Bus, nodes: dict[str, int | None]) -> None:
    """Show tokens of gateways that are none, with a lower uid and a higher one, until they are seen."""
    assert isinstance(forger.link, NetLink)
    assert isinstance(victim.link, NetLink)
    seen: list[str] = []
    victim.link.watch("gate", lambda uid, text, is_present: seen.append(text))
    for uid in ("0" * 16, "f" * 16):
        forger.link.show("gate", json.dumps(["pair", uid, nodes]))
    wait_for(lambda: len(seen) == 2)


def test_a_gateway_has_metrics() -> None:
    with open_bus() as road, open_bus() as city:
        sides = GatewaySide(bus=road, name="road"), GatewaySide(bus=city, name="city")
        with Gateway(*sides) as gateway:
            city.subscribe(Subscription(NetLoop), lambda event: None)
            gateway.settle()
            road.publish(NetLoop(number=1))
            found = {metric.name: dict(metric.values) for metric in gateway.metrics()}
        assert found["gateway_crossed_total"] == {"road": 0, "city": 1}
        assert found["gateway_active"] == {"": 1.0}
        assert found["gateway_connected"] == {"road": 1.0, "city": 1.0}


# -- a side that is not connected --------------------------------------------------------------------------------------


def memory_bus(network: MemoryNetwork) -> Bus:
    return Bus(NetLink(network.transport(), "city", medium="memory", runs=False))


def test_while_a_side_is_not_connected_events_wait_on_disk_in_order(tmp_path: Path) -> None:
    """They survive the gateway, and are sent when the connection is made again."""
    network = MemoryNetwork()
    city, far = memory_bus(network), memory_bus(network)
    collected: list[int] = []
    city.subscribe(Subscription(NetLoop), lambda event: collected.append(event.number))
    network.deliver()
    assert isinstance(far.link, NetLink)
    with open_bus() as road:
        gateway = Gateway(road, GatewaySide(bus=far, name="city", spool=tmp_path / "spool"))
        gateway.settle()
        road.publish(NetLoop(number=0))
        far.link.connected(False)
        for number in range(1, 300):
            road.publish(NetLoop(number=number))
        status = gateway.status().sides[1]
        assert (status.is_connected, status.crossed, status.spooled, status.waiting) == (False, 1, 299, 299)
        gateway.close()
    far.close()
    far = memory_bus(network)
    assert isinstance(far.link, NetLink)
    network.deliver()
    far.link.connected(False)
    with open_bus() as road:
        gateway = Gateway(road, GatewaySide(bus=far, name="city", spool=tmp_path / "spool"))
        gateway.settle()
        road.publish(NetLoop(number=300))
        assert gateway.status().sides[1].waiting == 300
        far.link.connected(True)
        wait_for(lambda: gateway.status().sides[1].waiting == 0)
        road.publish(NetLoop(number=301))
        wait_for(lambda: gateway.status().sides[1].crossed == 301)
        network.deliver()
        assert collected == list(range(302))
        assert gateway.status().sides[1].lost == 0
        gateway.close()
    for bus in (city, far):
        bus.close()


def test_what_was_wanted_when_the_connection_was_lost_is_spooled(tmp_path: Path) -> None:
    """Tokens go with the connection, and on some networks before it is told to be lost."""
    network = MemoryNetwork()
    city, far = memory_bus(network), memory_bus(network)
    collected: list[int] = []
    listener = city.subscribe(Subscription(NetLoop), lambda event: collected.append(event.number))
    network.deliver()
    link = far.link
    assert isinstance(link, NetLink)
    assert isinstance(city.link, NetLink)
    assert isinstance(city.link.transport, MemoryTransport)
    tokens = [token for token in city.link.transport.tokens if "/want/" in token]
    with open_bus() as road, Gateway(road, GatewaySide(bus=far, name="city", spool=tmp_path)) as gateway:
        gateway.settle()
        for token in tokens:
            link.token(token, False)
        link.connected(False)
        gateway._clock = lambda: time.monotonic() + 1  # longer than interest lingers
        gateway.settle()
        for number in range(10):
            road.publish(NetLoop(number=number))
        assert gateway.status().sides[1].waiting == 10
        link.connected(True)
        for token in tokens:
            link.token(token, True)
        gateway.settle()
        wait_for(lambda: gateway.status().sides[1].waiting == 0)
        network.deliver()
        assert collected == list(range(10))
        listener.cancel()
        network.deliver()
        wait_for(lambda: gateway.status().sides[1].asked == 0, "a want that is gone is not believed for ever")
        road.publish(NetLoop(number=10))
        assert gateway.status().sides[0].heard == 10
    for bus in (city, far):
        bus.close()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, 14])
def test_a_router_that_is_killed_costs_no_event(tmp_path: Path, seconds: float) -> None:
    """The spool has what is published meanwhile, and zenoh's recovery what was on its way."""
    pytest.importorskip("zenoh")
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    address = f"zenoh:city?connect={endpoint}&scouting=off&reliable=1"
    collected: list[int] = []
    with ExitStack() as stack:
        killed = stack.enter_context(router(endpoint))
        road, far, city = (stack.enter_context(open_bus(each)) for each in ("local:", address, address))
        city.subscribe(Subscription(NetLoop), lambda event: collected.append(event.number))
        wait_for(lambda: wanted_on(far) == 1)
        side = GatewaySide(bus=far, name="city", spool=tmp_path)
        gateway = stack.enter_context(Gateway(road, side))
        gateway.settle()
        published = publish_for(road, 0, 1)
        killed.kill()
        published = publish_for(road, published, seconds)
        assert gateway.status().sides[1].spooled > 100
        stack.enter_context(router(endpoint))
        published = publish_for(road, published, 2)
        wait_for(lambda: len(collected) >= published)
        assert collected == list(range(published))
        assert gateway.status().sides[1].lost == 0


def publish_for(bus: Bus, first: int, seconds: float) -> int:
    """Publish for some time, numbers from `first` on; returns the next one."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        bus.publish(NetLoop(number=first))
        first += 1
        time.sleep(0.005)
    return first


def test_a_full_spool_counts_what_it_drops(tmp_path: Path) -> None:
    network = MemoryNetwork()
    city, far = memory_bus(network), memory_bus(network)
    collected: list[int] = []
    city.subscribe(Subscription(NetLoop), lambda event: collected.append(event.number))
    network.deliver()
    assert isinstance(far.link, NetLink)
    with (
        open_bus() as road,
        Gateway(road, GatewaySide(bus=far, name="city", spool=tmp_path, spool_size=32_000)) as gateway,
    ):
        gateway.settle()
        far.link.connected(False)
        for number in range(2000):
            road.publish(NetLoop(number=number))
        far.link.connected(True)
        wait_for(lambda: gateway.status().sides[1].waiting == 0)
        network.deliver()
        side = gateway.status().sides[1]
        assert collected == list(range(2000 - len(collected), 2000))
        assert side.lost == 2000 - len(collected)
        assert side.wanted == side.crossed + side.lost == 2000
    for bus in (city, far):
        bus.close()
