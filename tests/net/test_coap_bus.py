"""A program written for `local:` runs on `coap:`: publish, subscribe, and what each gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genus import Event, Maybe, Subscription, UInt8, UInt32, all_of, open_bus, this
from genus.bus import Bus, Hard, Soft
from genus.catalog import Catalog
from genus.errors import BusError, EventError, RequestRefused
from genus.model._plain import is_same
from tests.generators import Generator
from tests.waiting import wait_for

from .coap_network import (
    CoapBlob,
    CoapFastLoop,
    CoapIndoor,
    CoapLamp,
    CoapLoop,
    CoapRoadside,
    Heard,
    client,
    free_port,
    link_of,
    server,
    sums,
)

SUBSCRIPTIONS: dict[str, tuple[Subscription[Any], Callable[[Event], bool]]] = {
    "type": (Subscription(CoapLoop), lambda event: isinstance(event, CoapLoop)),
    "kind": (Subscription(CoapIndoor), lambda event: isinstance(event, CoapLamp)),
    "exact": (Subscription(CoapLoop, exact=True), lambda event: type(event) is CoapLoop),
    "all_of": (Subscription(all_of(CoapLoop, CoapRoadside)), lambda event: isinstance(event, CoapLoop)),
    "has": (Subscription(CoapLoop, has="speed"), lambda e: isinstance(e, CoapLoop) and e.speed is not None),
    "lacks": (Subscription(CoapLoop, lacks="speed"), lambda e: isinstance(e, CoapLoop) and e.speed is None),
    "where": (Subscription(CoapLoop, where=this.lane > 2), lambda e: isinstance(e, CoapLoop) and e.lane > 2),
    "everything": (Subscription(Event), lambda event: True),
}

SENT: list[Event] = [
    *(CoapLoop(lane=lane, speed=10.0 * lane if lane % 2 else None) for lane in range(6)),
    *(CoapFastLoop(lane=lane, limit=30.0) for lane in range(6)),
    *(CoapLamp(watts=float(watts), note="on") for watts in range(3)),
]


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
@pytest.mark.parametrize("receiver", ["client", "server"])
def test_a_subscriber_gets_each_event_that_matches_once_and_in_order(name: str, receiver: str) -> None:
    subscription, matches = SUBSCRIPTIONS[name]
    heard = Heard()
    with server() as (hub, port), client(port) as one, client(port) as other:
        (one if receiver == "client" else hub).subscribe(subscription, heard)
        for event in SENT:
            other.publish(event)
        expected = [event for event in SENT if matches(event)]
        wait_for(lambda: len(heard) >= len(expected))
        assert heard == expected


def test_events_of_the_server_reach_all_clients_and_their_own_bus_once() -> None:
    heard, other_heard, own = Heard(), Heard(), Heard()
    with server() as (hub, port), client(port) as one, client(port) as other:
        one.subscribe(Subscription(CoapLoop), heard)
        other.subscribe(Subscription(CoapRoadside), other_heard)
        hub.subscribe(Subscription(Event), own)
        for lane in range(20):
            hub.publish(CoapLoop(lane=lane))
        wait_for(lambda: len(heard) == 20 and len(other_heard) == 20)
        assert heard.lanes() == other_heard.lanes() == own.lanes() == list(range(20))


def test_a_publisher_gets_its_own_events_from_its_own_bus_only() -> None:
    own, at_server = Heard(), Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(CoapLoop), own)
        hub.subscribe(Subscription(CoapLoop), at_server)
        for lane in range(10):
            one.publish(CoapLoop(lane=lane))
        wait_for(lambda: len(at_server) == 10)
        hub.publish(CoapLoop(lane=99))
        wait_for(lambda: own.lanes()[-1:] == [99])
        assert own.lanes() == [*range(10), 99]


def test_overlapping_subscriptions_of_one_client_get_an_event_once_each() -> None:
    """One session for all observations: an event crosses the network once, whatever matches it."""
    all_heard, loops, lanes = Heard(), Heard(), Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(Event), all_heard)
        one.subscribe(Subscription(CoapLoop), loops)
        one.subscribe(Subscription(CoapRoadside), lanes)
        for lane in range(30):
            hub.publish(CoapLoop(lane=lane))
        wait_for(lambda: len(all_heard) == len(loops) == len(lanes) == 30)
        assert all_heard.lanes() == loops.lanes() == lanes.lanes() == list(range(30))
        assert sums(one, "received") == 30


def test_a_cancelled_subscription_ends_its_observation() -> None:
    heard, kept = Heard(), Heard()
    with server() as (hub, port), client(port) as one:
        listener = one.subscribe(Subscription(CoapLoop), heard)
        one.subscribe(Subscription(CoapLamp), kept)
        assert len(link_of(hub).interests()) == 2
        listener.cancel()
        wait_for(lambda: len(link_of(hub).interests()) == 1)
        hub.publish(CoapLoop(lane=1))
        hub.publish(CoapLamp(watts=1.0))
        wait_for(lambda: len(kept) == 1)
        assert heard == []


def test_handlers_may_publish_and_subscribe() -> None:
    answers = Heard()
    with server() as (hub, port), client(port) as one:

        def answer(event: CoapLoop) -> None:
            one.subscribe(Subscription(CoapIndoor), answers)
            one.publish(CoapLamp(watts=float(event.lane)))

        at_server = Heard()
        one.collection(CoapLoop).subscribe(answer)
        hub.subscribe(Subscription(CoapLamp), at_server)
        hub.publish(CoapLoop(lane=7))
        wait_for(lambda: len(at_server) == 1)
        assert at_server[0].watts == 7.0


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_random_subscriptions_get_what_they_match(seed: int) -> None:
    """All attribute types, kinds, exact, all_of and nested predicates, over the wire."""
    generator = Generator(seed)
    subscriptions, events = generator.subscriptions(12), generator.events(30)
    heard = [Heard() for _ in subscriptions]
    with server() as (_, port), client(port) as one, client(port) as other:
        for subscription, found in zip(subscriptions, heard, strict=True):
            one.subscribe(subscription, found)
        end = Heard()
        one.subscribe(Subscription(CoapLamp), end)
        for event in events:
            other.publish(event)
        other.publish(CoapLamp(watts=1.0))
        wait_for(lambda: len(end) == 1)
        for subscription, found in zip(subscriptions, heard, strict=True):
            expected = [event for event in events if subscription.matches(event)]
            given = [event for event in found if type(event) is not CoapLamp]
            assert len(given) == len(expected)
            assert all(is_same(event, back) for event, back in zip(expected, given, strict=True))


# -- what cannot be kept -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [Hard("10ms"), Soft("10ms")])
def test_promises_that_coap_cannot_keep_are_refused(qos: Any) -> None:
    with server() as (hub, _), pytest.raises(BusError, match=r"cannot be announced with .*coap"):
        hub.channel(CoapLoop, qos).announce()


def test_last_values_by_key_are_refused() -> None:
    with server() as (hub, _), pytest.raises(BusError, match="newest event of a type"):
        hub.channel(CoapLoop, keep=True).announce()


def test_channels_publish_to_observers() -> None:
    heard = Heard()
    with server() as (hub, port), client(port) as one:
        hub.subscribe(Subscription(CoapLoop), heard)
        with one.channel(CoapLoop) as channel:
            channel.publish(CoapLoop(lane=1))
            wait_for(lambda: heard.lanes() == [1])


def test_an_event_that_cannot_be_read_back_is_refused_at_the_call() -> None:
    wrong: Any = "two"
    with server() as (hub, _), pytest.raises(EventError, match=r"CoapLoop\.lane is 'two'"):
        hub.publish(CoapLoop(lane=wrong))


@pytest.mark.parametrize("size", [900, 1500, 5000, 60_000])
def test_large_events_travel_in_blocks(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    down, up = Heard(), Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(CoapBlob), down)
        hub.subscribe(Subscription(CoapBlob), up)
        hub.publish(CoapBlob(data=data))
        hub.publish(CoapBlob(data=b"small"))
        one.publish(CoapBlob(data=data))
        wait_for(lambda: len(down) == 3 and len(up) == 3)
        assert [event.data for event in down[:2]] == [data, b"small"] or sorted(len(e.data) for e in down) == sorted(
            [size, 5, size]
        )
        assert data in [event.data for event in up]


def test_an_event_that_is_too_large_is_refused_at_the_call() -> None:
    with server("largest=1000") as (hub, _), pytest.raises(EventError, match="larger than largest=1000"):
        hub.publish(CoapBlob(data=b"x" * 2000))


# -- addresses, catalogs -----------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(BusError, match="does not answer"):
        client(free_port())


def test_a_place_that_another_has_is_an_error() -> None:
    with server() as (_, port), pytest.raises(BusError, match="cannot listen at"), server(port=port):
        pass


def test_a_catalog_file_gives_the_codes(tmp_path: Path) -> None:
    path = tmp_path / "city.json"
    catalog, _ = Catalog.update(path, CoapLamp, CoapLoop)
    heard = Heard()
    with server(f"catalog={path}") as (hub, port), client(port, f"catalog={path}") as one:
        one.subscribe(Subscription(CoapLoop), heard)
        hub.publish(CoapLoop(lane=3))
        wait_for(lambda: heard.lanes() == [3])
        assert f"code {catalog.code(CoapLoop)}" in link_of(one).explain()
        with pytest.raises(BusError, match="not in the catalog"):
            one.publish(CoapBlob(data=b""))


def test_catalogs_that_contradict_each_other_are_found(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    Catalog.update(mine, CoapLamp)
    Catalog.update(mine, CoapLoop)
    Catalog.update(other, CoapLoop)
    Catalog.update(other, CoapLamp)
    with server(f"catalog={other}") as (_, port), pytest.raises(BusError, match="another catalog"):
        client(port, f"catalog={mine}")


def test_types_that_are_declared_later_are_added_to_the_catalog_of_the_server() -> None:
    heard = Heard()
    with server() as (hub, port), client(port) as one, client(port) as other:
        one.subscribe(Subscription(Event), heard)

        class CoapLateType(Event):
            number: int

        other.publish(CoapLateType(number=5))
        wait_for(lambda: len(heard) == 1)
        assert type(heard[0]) is CoapLateType
        assert hub.traffic().link["received"] == 1


def test_a_closed_bus_sends_what_waits_and_leaves_nothing_behind() -> None:
    import threading

    heard = Heard()
    with server() as (hub, port):
        hub.subscribe(Subscription(CoapLoop), heard)
        with client(port) as one:
            for lane in range(200):
                one.publish(CoapLoop(lane=lane))
        wait_for(lambda: len(heard) == 200)
        assert heard.lanes() == list(range(200))
        with pytest.raises(BusError, match="the bus is closed"):
            one.publish(CoapLoop(lane=1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("genus-coap")]


def test_a_bus_may_be_server_and_client() -> None:
    at_hub, at_edge, at_leaf = Heard(), Heard(), Heard()
    with server() as (hub, port), open_bus(f"coap://127.0.0.1:{port}?listen=127.0.0.1:0&beat=200ms") as edge:
        with client(link_of(edge).port) as leaf:
            hub.subscribe(Subscription(CoapLoop), at_hub)
            edge.subscribe(Subscription(CoapLoop), at_edge)
            leaf.subscribe(Subscription(CoapLoop), at_leaf)
            edge.publish(CoapLoop(lane=1))
            hub.publish(CoapLoop(lane=2))
            leaf.publish(CoapLoop(lane=3))
            wait_for(lambda: len(at_edge) == 3 and len(at_hub) == 2 and len(at_leaf) == 2)
        assert sorted(at_edge.lanes()) == [1, 2, 3]
        assert sorted(at_hub.lanes()) == [1, 2]
        assert sorted(at_leaf.lanes()) == [1, 3]


def test_importing_genus_net_imports_no_coap() -> None:
    import subprocess
    import sys

    code = "import sys, genus, genus.net, genus.targets.coap; print('aiocoap' in sys.modules, 'cbor2' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_many_events_of_many_clients_arrive_once_each() -> None:
    heard = Heard()
    with server() as (hub, port):
        hub.subscribe(Subscription(CoapLoop), heard)
        buses: list[Bus] = [client(port) for _ in range(4)]
        for lane in range(100):
            for number, bus in enumerate(buses):
                bus.publish(CoapLoop(lane=lane * 10 + number))
        wait_for(lambda: len(heard) == 400)
        for number in range(4):
            assert [lane // 10 for lane in heard.lanes() if lane % 10 == number] == list(range(100))
        for bus in buses:
            bus.close()


class CoapMove(Event):
    percent: UInt8
    request: Maybe[UInt32] = None


class CoapMoved(Event):
    percent: UInt8
    request: UInt32 = 0


def test_requests_are_answered_over_coap() -> None:
    with server() as (hub, port), client(port) as one:

        @hub.collection(CoapMove).serve
        def move(event: CoapMove) -> CoapMoved:
            if event.percent > 80:
                raise RequestRefused("the valve is locked")
            return CoapMoved(percent=event.percent)

        moves = one.collection(CoapMove)
        assert moves.request(CoapMove(percent=30), CoapMoved, timeout="5s").percent == 30
        with pytest.raises(RequestRefused, match="the valve is locked"):
            moves.request(CoapMove(percent=90), CoapMoved, timeout="5s")


async def test_inboxes_work_over_coap() -> None:
    with server() as (hub, port), client(port) as one:
        inbox = one.inbox(Subscription(CoapLoop))
        for lane in range(5):
            hub.publish(CoapLoop(lane=lane))
        found = []
        async for event in inbox:
            found.append(event.lane)
            if len(found) == 5:
                break
        assert found == list(range(5))


def test_who_wants_an_event_is_known_at_both_ends() -> None:
    with server() as (hub, port), client(port) as one, client(port) as other:
        one.subscribe(Subscription(CoapLoop, where=this.lane > 2), Heard())
        hub.subscribe(Subscription(CoapLamp), Heard())
        wait_for(lambda: link_of(other).wanted_by(CoapLoop(lane=3)) == {link_of(one).uid.hex()})
        assert link_of(other).wanted_by(CoapLoop(lane=1)) == set()
        wait_for(lambda: link_of(other).wanted_by(CoapLamp(watts=1.0)) == {link_of(hub).uid.hex()})
        assert link_of(hub).wanted_by(CoapLoop(lane=3)) == {link_of(one).uid.hex()}


def test_a_type_that_a_server_learns_from_a_client_is_the_class_that_it_imports_later() -> None:
    """Until then its events are of a class made from the catalog; observations made before go on."""

    def declare(**notes: Any) -> Any:
        return type("CoapImported", (Event,), {"__annotations__": {"level": int, **notes}, "__module__": "elsewhere"})

    heard = Heard()
    at_client = declare()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(at_client, where="level > 2"), heard)
        at_server = declare()
        seen = Heard()
        hub.subscribe(Subscription(at_server), seen)
        for level in (1, 3):
            hub.publish(at_server(level=level))
        wait_for(lambda: [event.level for event in heard] == [3])
        assert type(heard[0]) is at_client
        one.publish(at_client(level=7))
        wait_for(lambda: [event.level for event in seen] == [1, 3, 7])
        assert type(seen[-1]) is at_server
