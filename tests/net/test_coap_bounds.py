"""What clients and servers keep is bounded, whatever others send; and what they send wrongly ends."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiocoap
import cbor2
import pytest

from genus import Event, Kind, Maybe, Subscription, open_bus
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net._coap import inbox, notifier
from genus.net._coap import server as coap_server
from genus.net._coap.inbox import Observer, Sessions
from genus.net._coap.values import ObservationMark, write_mark
from genus.targets.coap import compile, parse_mask
from tests.waiting import wait_for

from .coap_network import CoapBlob, CoapLoop, Heard, client, link_of, server, sums
from .test_coap_bad_input import BLOCK2, CON, GET, OBSERVE, PUT, Raw, datagram, raw_client, segment, uint
from .test_coap_interop import Device, SmallResource


@pytest.fixture
def raw_server() -> Iterator[tuple[Any, Raw]]:
    with server() as (hub, port), raw_client(port) as raw:
        hub.channel(CoapLoop).announce()
        yield hub, raw


def answers(raw: Raw, token: bytes) -> Iterator[bytes]:
    """The messages with a token, each acknowledged if it must be."""
    while True:
        message = raw.sock.recv(65_536)
        if message[4 : 4 + (message[0] & 15)] == token:
            yield message
            if message[0] >> 4 & 3 == CON:
                raw.send(bytes((0x60, 0)) + message[2:4])


def test_observers_of_wants_are_bounded(raw_server: tuple[Any, Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    _, raw = raw_server
    monkeypatch.setattr("genus.net._coap.notifier.MAX_INTERESTS_OBSERVERS", 3)
    found = [raw.ask(GET, [segment("w"), (OBSERVE, b"")])[0] for _ in range(5)]
    assert found == ["2.05"] * 3 + ["5.03"] * 2


def test_changes_of_wants_do_not_wait_for_an_observer_one_by_one(raw_server: tuple[Any, Raw]) -> None:
    hub, raw = raw_server
    raw.send(datagram(GET, [segment("w"), (OBSERVE, b"")], token=b"ww", mid=9))
    got = answers(raw, b"ww")
    assert next(got)[1] == 69
    for _ in range(50):
        hub.subscribe(Subscription(CoapLoop), Heard()).cancel()
    manager: Any = link_of(hub)._endpoint.manager
    wait_for(lambda: bool(manager._backlogs))
    assert sum(len(each) for each in manager._backlogs.values()) <= 1
    assert next(got)[1] == 69, "one for all that has changed"


def test_bodies_in_blocks_are_bounded(raw_server: tuple[Any, Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    hub, raw = raw_server
    monkeypatch.setattr(coap_server, "MAX_KEPT", 10)
    kept = link_of(hub)._endpoint.context.serversite._kept
    for number in range(100):
        query = (15, f"x={number}".encode())
        asked = [(15, b"ct=60")] * number
        assert raw.ask(GET, [segment("rd-lookup"), segment("res"), *asked, (BLOCK2, uint(0))])[0] == "2.05"
        assert raw.ask(PUT, [segment("DA"), query, (27, uint(0x0E))], b"x" * 1024)[0] == "2.31"
        assert sum(len(each._items) for each in kept) <= 12
    assert sums(hub, "bodies in blocks that were forgotten") > 5


def test_a_known_client_may_observe_more_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MAX_SESSIONS", 1)
    made = Sessions(10)

    def attach(uid: bytes, number: int) -> object:
        mark = ObservationMark(uid, number)
        return made.attach(mark, Observer(None, lambda answer: None, "remote", mark))  # type: ignore[arg-type]

    assert attach(b"12345678", 1) is not None
    assert attach(b"another1", 1) is None
    assert attach(b"12345678", 2) is not None


def test_plain_clients_leave_nothing_behind(raw_server: tuple[Any, Raw]) -> None:
    hub, _ = raw_server
    heard = Heard()
    hub.subscribe(Subscription(CoapLoop), heard)
    for lane in range(30):
        with raw_client(link_of(hub).port) as one:
            for _ in range(2):
                assert one.ask(PUT, [segment("DA")], cbor2.dumps({5: lane}))[0] == "2.04"
    wait_for(lambda: heard.lanes() == [lane for lane in range(30) for _ in range(2)])
    assert link_of(hub).hub._plain_numbers == 60  # type: ignore[union-attr]


class Endless(SmallResource):
    """A device whose value has a next block for ever: an empty one, or one of another value."""

    asked = 0

    def __init__(self, is_empty: bool) -> None:
        super().__init__(None)
        self.is_empty = is_empty

    async def needs_blockwise_assembly(self, request: Any) -> bool:
        return False

    async def render_get(self, request: Any) -> Any:
        block = request.opt.block2
        number = 0 if block is None else block.block_number
        self.asked += 1
        await asyncio.sleep(0)
        payload = b"" if number and self.is_empty else b"\x58" * 16
        etag = bytes((number,)) if not self.is_empty else None
        made = aiocoap.Message(payload=payload, content_format=60, etag=etag)
        made.opt.block2 = (number, True, 0)
        return made


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_device_whose_blocks_never_end_is_given_up(tmp_path: Path, is_empty: bool) -> None:
    catalog = tmp_path / "city.json"
    Catalog.update(catalog, CoapLoop)
    path = encode_path_segment(Catalog.load(catalog).code(CoapLoop))
    endless = Endless(is_empty)
    with Device({path: endless}) as device, client(device.port, f"catalog={catalog}") as one:
        one.subscribe(Subscription(CoapLoop), Heard())
        wait_for(lambda: sums(one, "rejected: a notification whose blocks could not be fetched") == 1)
        assert endless.asked < 5


def test_a_large_notification_survives_the_end_of_another_observation_of_it() -> None:
    heard = Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(CoapBlob), heard)
        for number in range(20):
            other = one.subscribe(Subscription(CoapBlob), Heard())
            hub.publish(CoapBlob(data=bytes((number,)) * 5000))
            other.cancel()
        wait_for(lambda: len(heard) == 20)
        assert [event.data[0] for event in heard] == list(range(20))


def _wide(count: int) -> Any:
    names = [f"a{number:04}" for number in range(count)]
    maybe: Any = Maybe
    meta: Any = type(Event)
    parts = {"__annotations__": dict.fromkeys(names, maybe[int]), "__module__": __name__, **dict.fromkeys(names)}
    return meta("CoapWide", (Event,), parts)


def test_masks_that_no_option_holds_are_left_to_the_receiver() -> None:
    catalog = Catalog()
    cls = _wide(1020)
    catalog.register(cls)
    last = 1012 - len(catalog.vector(cls)) + 1020
    near = compile(Subscription(cls, has=f"a{last - 1:04}"), catalog)
    far = compile(Subscription(cls, has=f"a{last:04}"), catalog)
    assert [len(part) for part in near.query] == [255]
    assert parse_mask(near.query[0].removeprefix("h=")) == near.has
    assert (near.residual, far.query) == (None, ())
    assert str(far.residual) == f"CoapWide has a{last:04}"


@pytest.mark.parametrize("own", [True, False])
def test_a_client_that_vanishes_while_nothing_happens_is_found(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Without events there are no acknowledgements that it could fail to send."""
    for name in ("TICK_S", "PROBE_S", "PLAIN_PROBE_S"):
        monkeypatch.setattr(notifier, name, 0.1)
    monkeypatch.setattr(inbox, "LINGER_S", 0.1)
    with server() as (hub, port), client(port) as one:
        heard = Heard()
        one.subscribe(Subscription(CoapLoop), heard)
        known = link_of(hub).hub.notifier.sessions  # type: ignore[union-attr]
        with raw_client(port) as raw:
            epoch = link_of(hub).hub.epoch[:4]  # type: ignore[union-attr]
            mark = [(65_052, write_mark(ObservationMark(b"12345678", 1, epoch)))] if own else []
            assert raw.ask(GET, [segment("DA"), (OBSERVE, b""), *mark])[0] == "2.05"
        wait_for(lambda: len(known) == 1, "the socket is closed")
        assert known.find(link_of(one).uid) is not None
        hub.publish(CoapLoop(lane=1))
        wait_for(lambda: heard.lanes() == [1])
        assert sums(hub, "silent clients that were asked") > 0


@pytest.mark.slow
def test_a_type_whose_code_fits_no_path_is_found_above() -> None:
    """Two hundred kinds at once: discovery goes on, and its events come and go at the resource of all events."""
    meta: Any = type(Event)
    kind: Any = type(Kind)
    kinds = [kind(f"CoapKind{number}", (Kind,), {"__module__": __name__}) for number in range(230)]
    cls = meta("CoapMany", (Event, *kinds), {"__module__": __name__})
    at_client, at_server = Heard(), Heard()
    with ExitStack() as stack:  # with the times of the defaults: so many types take a busy machine a while
        hub = stack.enter_context(open_bus("coap:?listen=127.0.0.1:0&largest=500000"))
        port = link_of(hub).port
        one, raw = stack.enter_context(open_bus(f"coap://127.0.0.1:{port}")), stack.enter_context(raw_client(port))
        one.subscribe(Subscription(cls), at_client)
        wait_for(lambda: len(link_of(hub).interests()) == 1, "the client does not observe")
        hub.subscribe(Subscription(cls), at_server)
        hub.publish(CoapLoop(lane=1))
        hub.publish(cls())
        wait_for(lambda: at_client == [cls()])
        one.publish(cls())
        wait_for(lambda: at_server == [cls(), cls()])
        assert raw.ask(GET, [segment(".well-known"), segment("core")])[0] == "2.05"
        assert raw.ask(GET, [segment("rd-lookup"), segment("res")])[0] == "2.05"
