"""Lost, doubled and mixed up datagrams, outages and restarts: each event once and in order, or told as lost."""

import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from genus import Bus, Event, Subscription
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net import EventsLost
from genus.net._coap.observing import FRESH_S
from genus.net._coap.upstream import Observation
from tests.net.datagram_proxy import DatagramProxy
from tests.waiting import wait_for

from .coap_network import CoapBlob, CoapLamp, CoapLoop, Heard, client, free_port, link_of, server, sums
from .test_coap_interop import Device, SmallResource

FAULTS: dict[str, dict[str, float]] = {
    "lost": {"lost": 0.2},
    "doubled": {"doubled": 0.4},
    "mixed up": {"mixed": 0.3},
    "all": {"lost": 0.1, "doubled": 0.2, "mixed": 0.2},
}


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_notifications_arrive_once_and_in_order_on_a_bad_way(faults: str, seed: int) -> None:
    heard = Heard()
    with server() as (hub, port), DatagramProxy(port, seed=seed) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapLoop), heard)
        for name, probability in FAULTS[faults].items():
            setattr(proxy, name, probability)
        for lane in range(60):
            hub.publish(CoapLoop(lane=lane))
            with suppress(AssertionError):  # it only sets the pace
                wait_for(lambda lane=lane: len(heard) > lane - 3, seconds=0.05)  # type: ignore[misc]
        wait_for(lambda: len(heard) >= 60)
        proxy.lost = proxy.doubled = proxy.mixed = 0.0
        assert heard.lanes() == list(range(60))
        assert proxy.counts.lost + proxy.counts.doubled + proxy.counts.held > 0


@pytest.mark.parametrize("seed", range(2))
def test_published_events_arrive_once_and_in_order_on_a_bad_way(seed: int) -> None:
    heard = Heard()
    with server() as (hub, port), DatagramProxy(port, seed=seed) as proxy, client(proxy.port) as one:
        hub.subscribe(Subscription(CoapLoop), heard)
        one.publish(CoapLoop(lane=0))
        wait_for(lambda: len(heard) == 1)
        proxy.lost, proxy.doubled, proxy.mixed = 0.15, 0.2, 0.2
        for lane in range(1, 60):
            one.publish(CoapLoop(lane=lane))
            with suppress(AssertionError):  # it only sets the pace
                wait_for(lambda lane=lane: len(heard) > lane - 2, seconds=0.05)  # type: ignore[misc]
        wait_for(lambda: len(heard) >= 60)
        proxy.lost = proxy.doubled = proxy.mixed = 0.0
        assert heard.lanes() == list(range(60))


def test_a_large_event_arrives_on_a_bad_way() -> None:
    heard = Heard()
    with server() as (hub, port), DatagramProxy(port, seed=3) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapBlob), heard)
        proxy.lost, proxy.doubled = 0.1, 0.1
        sent = [CoapBlob(data=bytes((number,)) * 4000) for number in range(5)]
        for event in sent:
            hub.publish(event)
        wait_for(lambda: len(heard) >= 5)
        assert heard == sent


def test_after_an_outage_the_client_gets_what_it_missed() -> None:
    """The server keeps the session: what was not acknowledged is sent when the client is back."""
    heard = Heard()
    with server() as (hub, port), DatagramProxy(port) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapLoop), heard)
        hub.publish(CoapLoop(lane=0))
        wait_for(lambda: len(heard) == 1)
        proxy.is_cut = True
        for lane in range(1, 20):
            hub.publish(CoapLoop(lane=lane))
        wait_for(lambda: not link_of(one).is_connected)
        proxy.is_cut = False
        wait_for(lambda: len(heard) == 20)
        assert heard.lanes() == list(range(20))
        assert sums(one, "lost") == 0


def test_what_a_client_publishes_during_an_outage_is_sent_afterwards() -> None:
    heard = Heard()
    with server() as (hub, port), DatagramProxy(port) as proxy, client(proxy.port) as one:
        hub.subscribe(Subscription(CoapLoop), heard)
        one.publish(CoapLoop(lane=0))
        wait_for(lambda: len(heard) == 1)
        proxy.is_cut = True
        for lane in range(1, 20):
            one.publish(CoapLoop(lane=lane))
        wait_for(lambda: not link_of(one).is_connected)
        proxy.is_cut = False
        wait_for(lambda: len(heard) == 20)
        assert heard.lanes() == list(range(20))


def test_events_that_find_no_room_are_told_as_lost_at_both_ends() -> None:
    heard, at_receiver, at_sender = Heard(), Heard(), Heard()
    with server("capacity=10") as (hub, port), DatagramProxy(port) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapLoop), heard, on_problem=at_receiver)
        channel = hub.channel(CoapLoop, on_problem=at_sender)
        channel.announce()
        channel.publish(CoapLoop(lane=0))
        wait_for(lambda: len(heard) == 1)
        proxy.is_cut = True
        for lane in range(1, 51):
            channel.publish(CoapLoop(lane=lane))
        wait_for(lambda: not link_of(one).is_connected)
        proxy.is_cut = False
        wait_for(lambda: heard.lanes()[-1] == 50)
        assert all(one < other for one, other in pairwise(heard.lanes())), "no old one after a new one"
        wait_for(lambda: bool(at_receiver) and bool(at_sender))
        missing = 51 - len(heard)
        assert _total(at_receiver) == _total(at_sender) == missing > 0
        assert at_receiver[0].sender == link_of(hub).uid.hex()
        assert at_sender[0].receiver == link_of(one).uid.hex()
        channel.cancel()


def _total(problems: list[Any]) -> int:
    assert all(isinstance(each, EventsLost) and each.type == "CoapLoop" for each in problems)
    return sum(each.count for each in problems)


def test_after_a_restart_of_the_server_a_client_is_live_again_by_itself() -> None:
    heard, problems, port = Heard(), Heard(), free_port()
    with server(port=port) as (hub, _):
        one = client(port)
        one.subscribe(Subscription(CoapLoop), heard, on_problem=problems)
        hub.publish(CoapLoop(lane=1))
        wait_for(lambda: heard.lanes() == [1])
    wait_for(lambda: not link_of(one).is_connected)
    with server(port=port) as (hub, _):
        hub.subscribe(Subscription(CoapLamp), problems)  # codes are given in another order than before
        wait_for(lambda: link_of(one).is_connected)
        wait_for(lambda: len(link_of(hub).interests()) == 2)
        hub.publish(CoapLoop(lane=2))
        wait_for(lambda: heard.lanes() == [1, 2])
        one.publish(CoapLamp(watts=4.0))
        wait_for(lambda: CoapLamp(watts=4.0) in problems)
        lost = [each for each in problems if isinstance(each, EventsLost)]
        assert [each.count for each in lost] == [0]
        assert "restarted" in lost[0].reason
        assert one.traffic().link["restarts of the server"] == 1
        one.close()


def test_a_client_that_vanishes_is_forgotten() -> None:
    """Its session waits for a while; then what waits in it is lost, and told."""
    heard, at_sender = Heard(), Heard()
    with server() as (hub, port), DatagramProxy(port) as proxy:
        one = client(proxy.port)
        one.subscribe(Subscription(CoapLoop), heard)
        channel = hub.channel(CoapLoop, on_problem=at_sender)
        channel.announce()
        proxy.is_cut = True
        channel.publish(CoapLoop(lane=1))
        hub_state = link_of(hub).hub
        assert hub_state is not None
        wait_for(lambda: any(session.gone_at is not None for session in hub_state.notifier.sessions))
        for session in hub_state.notifier.sessions:
            session.gone_at = -1000.0
        wait_for(lambda: len(at_sender) == 1)
        assert "did not return" in at_sender[0].reason
        assert len(hub_state.notifier.sessions) == 0
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_both_ways_at_once_on_a_very_bad_way(seed: int) -> None:
    down, up, problems = Heard(), Heard(), Heard()
    with server() as (hub, port), DatagramProxy(port, seed=seed) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapLoop), down, on_problem=problems)
        hub.subscribe(Subscription(CoapLamp), up)
        one.publish(CoapLamp(watts=-1.0))
        wait_for(lambda: len(up) == 1)
        proxy.lost, proxy.doubled, proxy.mixed = 0.15, 0.2, 0.2
        for number in range(100):
            hub.publish(CoapLoop(lane=number))
            one.publish(CoapLamp(watts=float(number)))
            with suppress(AssertionError):  # it only sets the pace
                wait_for(lambda number=number: len(down) > number - 5, seconds=0.02)  # type: ignore[misc]
        wait_for(lambda: len(down) >= 100 and len(up) >= 101)
        assert down.lanes() == list(range(100))
        assert [event.watts for event in up] == [float(number) for number in range(-1, 100)]
        assert not problems


@pytest.mark.parametrize("seed", range(3))
def test_values_of_a_plain_device_never_go_back(seed: int, tmp_path: Path) -> None:
    """Plain Observe promises the newest state only: values may be left out, but none comes after a newer one."""
    Catalog.update(tmp_path / "city.json", CoapLamp)
    lamp = encode_path_segment(Catalog.load(tmp_path / "city.json").code(CoapLamp))
    heard = Heard()
    with (
        Device({lamp: SmallResource({5: 0.0})}) as device,
        DatagramProxy(device.port, seed=seed) as proxy,
        client(proxy.port, f"catalog={tmp_path / 'city.json'}") as one,
    ):
        one.subscribe(Subscription(CoapLamp), heard)
        wait_for(lambda: len(heard) == 1)
        proxy.doubled, proxy.mixed = 0.3, 0.3
        for watts in range(1, 60):
            device.set(lamp, {5: float(watts)})
            with suppress(AssertionError):  # it only sets the pace
                wait_for(lambda watts=watts: heard[-1].watts >= watts - 2, seconds=0.02)  # type: ignore[misc]
        wait_for(lambda: heard[-1].watts == 59.0)
        values = [event.watts for event in heard]
        assert values == sorted(set(values))
        assert len(values) > 5


def test_notifications_of_a_device_are_fresh_by_their_numbers(tmp_path: Path) -> None:
    """RFC 7641, section 3.4: also when the numbers begin again, and after 128 s any number is fresh."""
    Catalog.update(tmp_path / "city.json", CoapLamp)
    with server() as (_, port), client(port) as one:
        device = link_of(one).peers[0].device
        observation = Observation(1, Subscription(CoapLamp))
        fresh = [device._is_fresh(observation, number) for number in (5, 6, 6, 4, 9, 8)]
        assert fresh == [True, True, False, False, True, False]
        observation.sequence = ((1 << 24) - 2, time.monotonic())
        assert [device._is_fresh(observation, number) for number in ((1 << 24) - 1, 3, (1 << 24) - 1)] == [
            True,
            True,
            False,
        ]
        observation.sequence = (100, time.monotonic() - FRESH_S - 1)
        assert device._is_fresh(observation, 50)


def test_a_subscription_that_is_made_while_the_server_is_away_is_registered_when_it_is_back() -> None:
    early, late, port = Heard(), Heard(), free_port()
    with server(port=port):
        one = client(port)
        one.subscribe(Subscription(CoapLamp), early)
    wait_for(lambda: not link_of(one).is_connected)
    one.subscribe(Subscription(CoapLoop), late)
    one.publish(CoapBlob(data=b"waits"))
    at_server = Heard()
    with server(port=port) as (hub, _):
        hub.subscribe(Subscription(CoapBlob), at_server)
        wait_for(lambda: len(link_of(hub).interests()) == 3)
        hub.publish(CoapLoop(lane=5))
        hub.publish(CoapLamp(watts=1.0))
        wait_for(lambda: late.lanes() == [5] and len(early) == 1)
        wait_for(lambda: at_server == [CoapBlob(data=b"waits")])
        one.close()


def test_restarts_while_events_are_published_lose_nothing_that_a_client_sends() -> None:
    """What a server does not take is sent to the next one; one may be taken twice if the answer was lost."""
    port, problems = free_port(), Heard()
    sent = taken = 0
    with server(port=port):
        one = client(port)
        channel = one.channel(CoapLoop, on_problem=problems)
        channel.announce()
    for _ in range(4):
        with server(port=port) as (hub, _):
            for _ in range(50):
                channel.publish(CoapLoop(lane=sent))
                sent += 1
            wait_for(lambda hub=hub: sums(hub, "received") > 5)  # type: ignore[misc]
        taken += sums(hub, "received")
        for _ in range(5):
            channel.publish(CoapLoop(lane=sent))
            sent += 1
    with server(port=port) as (hub, _):
        wait_for(lambda: sums(one, "sent") == sent)
        assert sent <= taken + sums(hub, "received") <= sent + 64
        assert not problems
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_after_many_restarts_on_a_bad_way_all_are_live_again(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Servers with catalogs in other orders, clients on a bad way, small and large events from all sides."""
    random, port = Random(seed), free_port()
    types: list[type] = [CoapLoop, CoapLamp, CoapBlob]
    clients: list[Bus] = []
    heard: list[Heard] = []

    def event(number: int) -> Event:
        large = CoapBlob(data=bytes(random.choice([5, 2000])))
        return random.choice([CoapLoop(lane=number), CoapLamp(watts=float(number)), large])

    with DatagramProxy(port, seed=seed) as proxy:
        for _ in range(4):
            with server(port=port) as (hub, _):
                for cls in random.sample(types, len(types)):
                    hub.channel(cls).announce()
                while len(clients) < 3:
                    clients.append(client(proxy.port))
                    heard.append(Heard())
                    for cls in types:
                        clients[-1].subscribe(Subscription(cls), heard[-1])
                proxy.lost, proxy.doubled, proxy.mixed = 0.1, 0.1, 0.1
                for number in range(80):
                    hub.publish(event(number))
                    random.choice(clients).publish(event(number))
                    with suppress(AssertionError):  # it only sets the pace
                        wait_for(lambda: False, seconds=0.01)
        proxy.lost = proxy.doubled = proxy.mixed = 0.0
        with server(port=port) as (hub, _):
            up = Heard()
            hub.subscribe(Subscription(CoapLamp), up)
            wait_for(lambda: len(link_of(hub).interests()) == 10)
            hub.publish(CoapLoop(lane=4242))
            wait_for(lambda: all(CoapLoop(lane=4242) in each for each in heard))
            for number, bus in enumerate(clients):
                bus.publish(CoapLamp(watts=-1.0 - number))
            wait_for(lambda: {-1.0, -2.0, -3.0} <= {each.watts for each in up})
            assert all(each.count(CoapLoop(lane=4242)) == 1 for each in heard)
            for bus in clients:
                bus.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
