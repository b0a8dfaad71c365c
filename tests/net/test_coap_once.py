"""Events that may come on several ways, and what is told of those that are lost: each event is one, at all that ask."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription, open_bus, this
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net import EventsLost
from genus.net._addresses import CoapOptions
from genus.net._coap import datagrams
from genus.net._coap.datagrams import RecentRequests, Tuning
from tests.examples import examples
from tests.net.datagram_proxy import DatagramProxy
from tests.waiting import wait_for

from .coap_network import CoapFastLoop, CoapLamp, CoapLoop, Heard, client, link_of, server, sums
from .test_coap_bad_input import GET, OBSERVE, PUT, datagram, raw_client, segment
from .test_coap_interop import Device, SmallResource, code_of


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "city.json"
    Catalog.update(path, CoapLoop, CoapFastLoop, CoapLamp)
    return path


def test_an_event_that_comes_from_two_servers_is_one() -> None:
    heard = Heard()
    with server() as (_, first), server() as (_, second):
        both = f"coap://127.0.0.1:{first},127.0.0.1:{second}"
        with open_bus(both) as sender, open_bus(both) as receiver:
            receiver.subscribe(Subscription(CoapLoop), heard)
            for lane in range(20):
                sender.publish(CoapLoop(lane=lane))
            wait_for(lambda: sums(receiver, "received") == 40)
            wait_for(lambda: sums(receiver, "duplicates") == 20)
            wait_for(lambda: len(heard) == 20)
            assert sorted(heard.lanes()) == list(range(20))


class Filtering(SmallResource):
    """A resource that tests `w=lane > 2`, and no other query."""

    async def render_get(self, request: Any) -> Any:
        if "w=lane > 2" in request.opt.uri_query:
            request.opt.uri_query = ()
        return await super().render_get(request)


@pytest.mark.parametrize("others", [CoapLoop, Event, "same", "where"])
def test_a_value_that_two_observations_of_a_device_have_is_one_event(catalog: Path, others: Any) -> None:
    """The resource is observed directly, and by itself as there is none for all events; or with a query."""
    first, second, path = Heard(), Heard(), encode_path_segment(code_of(catalog, CoapLoop))
    asked = Subscription(CoapLoop, where=this.lane > 2) if others == "where" else Subscription(CoapLoop)
    other = Subscription(others) if isinstance(others, type) else asked
    with Device({path: Filtering({5: 3})}) as device, client(device.port, f"catalog={catalog}") as one:
        one.subscribe(Subscription(CoapLoop), first)
        wait_for(lambda: first.lanes() == [3])
        one.subscribe(other, second)
        for number, lane in enumerate((4, 5, 5, 6), 2):
            device.set(path, {5: lane})
            wait_for(lambda number=number: len(first) == number)  # type: ignore[misc]
        wait_for(lambda: sums(one, "also from another observation") >= 4)
        assert first.lanes() == [3, 4, 5, 5, 6]
        assert second.lanes() == [4, 5, 5, 6]


def test_an_observation_goes_on_when_another_of_the_same_resource_ends(catalog: Path) -> None:
    heard, path = Heard(), encode_path_segment(code_of(catalog, CoapLoop))
    with Device({path: SmallResource({5: 1})}) as device, client(device.port, f"catalog={catalog}") as one:
        before = one.subscribe(Subscription(CoapLoop), Heard())
        one.subscribe(Subscription(Event), heard)
        before.cancel()
        wait_for(lambda: len(link_of(one).peers[0].observations) == 1)
        device.set(path, {5: 2})
        wait_for(lambda: 2 in heard.lanes())
        assert heard.lanes().count(2) == 1


def test_values_of_a_device_that_grow_when_they_are_written_do_no_harm(catalog: Path) -> None:
    """Shared values (CBOR's tags 28 and 29): 100 bytes that would be 2^60 bytes."""
    heard, path = Heard(), encode_path_segment(code_of(catalog, CoapLoop))
    bomb: Any = []
    for _ in range(60):
        bomb = [bomb, bomb]
    with Device({path: SmallResource({5: 1})}) as device, client(device.port, f"catalog={catalog}") as one:
        one.subscribe(Subscription(CoapLoop), heard)
        wait_for(lambda: len(heard) == 1)
        device.resources[path].value = None
        device.set(path, Shared({5: 2, 99: bomb}))
        wait_for(lambda: heard.lanes() == [1, 2])


class Shared:
    """A value that is written with references to what it has twice."""

    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def _write_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cbor2.dumps

    def dumps(value: Any, **options: Any) -> bytes:
        if isinstance(value, Shared):
            return plain(value.value, value_sharing=True)
        return plain(value, **options)

    monkeypatch.setattr("cbor2.dumps", dumps)


def test_a_gap_is_told_to_all_that_observe() -> None:
    """The numbers of a session do not say which types are missing."""
    heard, at_lamps, at_loops = Heard(), Heard(), Heard()
    with server("capacity=5") as (hub, port), DatagramProxy(port) as proxy, client(proxy.port) as one:
        one.subscribe(Subscription(CoapLamp), heard, on_problem=at_lamps)
        one.subscribe(Subscription(CoapLoop), heard, on_problem=at_loops)
        hub.publish(CoapLoop(lane=0))
        wait_for(lambda: len(heard) == 1)
        proxy.is_cut = True
        for watts in range(20):
            hub.publish(CoapLamp(watts=float(watts)))
        for lane in range(1, 11):
            hub.publish(CoapLoop(lane=lane))
        wait_for(lambda: not link_of(one).is_connected)
        proxy.is_cut = False
        wait_for(lambda: bool(at_lamps) and bool(at_loops))
        told: list[EventsLost] = [at_lamps[0], at_loops[0]]
        assert [each.type for each in told] == ["CoapLamp", "CoapLoop"]
        assert [each.count for each in told] == [0, 0]
        assert all("of any observed type" in each.reason for each in told)


def test_an_event_of_a_type_that_is_refused_does_not_take_others_with_it(catalog: Path, tmp_path: Path) -> None:
    """They waited together while the server was away, and its next catalog has one of the types only."""
    only = tmp_path / "loops.json"
    Catalog.update(only, CoapLoop)
    heard, lost = Heard(), Heard()
    with contextlib.ExitStack() as stack:
        with server() as (_, port):
            one = stack.enter_context(client(port))
            channel = one.channel(CoapLamp, on_problem=lost)
            channel.announce()
            one.publish(CoapLoop(lane=0))
            wait_for(lambda: sums(one, "sent") == 1)
        one.publish(CoapLoop(lane=1))
        channel.publish(CoapLamp(watts=1.0))
        one.publish(CoapLoop(lane=2))
        other, _ = stack.enter_context(server(f"catalog={only}", port))
        other.subscribe(Subscription(CoapLoop), heard)
        wait_for(lambda: heard.lanes()[-2:] == [1, 2])
        wait_for(lambda: sum(each.count for each in lost) == 1)
        channel.cancel()


def test_a_max_age_is_never_too_long() -> None:
    with server() as (hub, port), raw_client(port) as raw:
        hub.publish(CoapLoop(lane=1, expires=datetime(9999, 1, 1, tzinfo=UTC)))
        wait_for(lambda: raw.ask(GET, [segment("DA")])[1] != b"\x80")
        raw.send(datagram(GET, [segment("DA")]))
        assert b"\x24\xff\xff\xff\xff" in raw.sock.recv(100), "Max-Age has four bytes"


# -- repeated requests -------------------------------------------------------------------------------------------------

REQUESTS = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 1), st.booleans(), st.integers(0, 200))


@examples(300)
@given(st.lists(REQUESTS, max_size=40))
def test_a_copy_is_recognised_for_as_long_as_the_rfc_asks_and_nothing_else_is(
    requests: list[tuple[str, int, int, bool, int]],
) -> None:
    """Confirmable requests for 247 s and others for 145 s, by sender, number and content, in bounded memory."""
    recent, now = RecentRequests(Tuning(CoapOptions())), 0.0
    known: dict[tuple[str, int], tuple[int, float]] = {}
    for sender, number, content, is_confirmable, later in requests:
        now += later
        before, until = known.get((sender, number), (None, 0.0))
        is_copy = before == content and now < until
        assert (recent.find(f"{sender} {number}", content, now) is not None) == is_copy
        if not is_copy:
            recent.add(f"{sender} {number}", content, is_confirmable, now)
            known[sender, number] = content, now + (247 if is_confirmable else 145)
    assert len(recent) <= len(known)


def test_the_number_of_remembered_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "MAX_RECENT", 100)
    recent = RecentRequests(Tuning(CoapOptions()))
    for number in range(1000):
        recent.add(str(number), 1, True, number / 100)
    assert len(recent) == 100
    assert [number for number in range(1000) if recent.find(str(number), 1, 10.0)] == list(range(900, 1000))
    recent.add("0", 1, True, 1000.0)
    assert len(recent) == 1, "what cannot be repeated any more is forgotten"


def test_longer_times_of_the_address_are_kept() -> None:
    recent = RecentRequests(Tuning(CoapOptions(ack_timeout_s=10.0)))
    recent.add("a", 1, True, 0.0)
    assert recent.find("a", 1, 314.0) is not None
    assert recent.find("a", 1, 316.0) is None, "10 s * (2^3 - 1) * 1.5 + 2 * 100 s + 10 s"


def test_a_request_that_is_sent_again_is_one_event_and_gets_the_same_answer() -> None:
    heard = Heard()
    with server() as (hub, port), raw_client(port) as raw:
        hub.subscribe(Subscription(CoapLoop), heard)
        manager: Any = link_of(hub)._endpoint.manager

        def put_at(now: float, lane: int) -> bytes:
            manager.now = lambda: now
            raw.send(datagram(PUT, [segment("DA")], cbor2.dumps({5: lane}), mid=7))
            return raw.sock.recv(100)

        first = put_at(1000.0, 1)
        assert put_at(1246.0, 1) == first
        put_at(1246.0, 2)
        wait_for(lambda: heard.lanes() == [1, 2], "a number that is used again too early, for another request")
        assert put_at(1400.0, 2) == first
        put_at(1494.0, 2)
        wait_for(lambda: heard.lanes() == [1, 2, 2])
        assert sums(hub, "repeated requests") == 2


def test_a_notification_with_the_number_of_a_request_is_not_its_answer() -> None:
    """Each side numbers its own messages, so that both may use a number."""
    with server() as (hub, port), raw_client(port) as raw:
        hub.channel(CoapLoop).announce()
        put = datagram(PUT, [segment("DA")], cbor2.dumps({5: 1}), mid=7)
        raw.send(put)
        answer = raw.sock.recv(100)
        raw.send(datagram(GET, [segment("DA"), (OBSERVE, b"")], token=b"o", mid=8))
        raw.sock.recv(100)
        manager: Any = link_of(hub)._endpoint.manager
        manager.message_id = 7
        hub.publish(CoapLoop(lane=2))
        assert raw.sock.recv(100)[2:4] == b"\x00\x07"
        raw.send(bytes((0x60, 0, 0, 7)))
        raw.send(put)
        assert raw.sock.recv(100) == answer
