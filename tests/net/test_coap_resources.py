"""Resources as any client of CoAP sees them: values, super-resources, delegation, discovery, and what they cost."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import aiocoap
import cbor2
import pytest

from genus import Event, Maybe, Subscription, open_bus
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from tests.net.datagram_proxy import DatagramProxy
from tests.waiting import wait_for

from .coap_network import CoapFastLoop, CoapLamp, CoapLoop, CoapRoadside, Heard, client, free_port, server
from .test_coap_bad_input import GET, POST, PUT, URI_QUERY, Raw, raw_client, segment, uint
from .test_coap_interop import Device, SmallResource

BLOCK2, OBSERVE = 23, 6


class CoapValve(Event, CoapRoadside):
    number: Maybe[int] = None


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "city.json"
    Catalog.update(path, CoapLoop, CoapFastLoop, CoapLamp, CoapValve)
    return path


def path(catalog: Path, cls: type) -> str:
    return encode_path_segment(Catalog.load(catalog).code(cls))


def test_a_super_resource_has_the_values_of_all_below(catalog: Path) -> None:
    codes = {cls: Catalog.load(catalog).code(cls) for cls in (CoapLoop, CoapFastLoop, CoapLamp)}
    with server(f"catalog={catalog}") as (hub, port), raw_client(port) as raw:
        for event in (CoapLoop(lane=1), CoapFastLoop(lane=2), CoapLamp(watts=3.0), CoapLoop(lane=4)):
            hub.publish(event)
        everything = cbor2.loads(raw.ask(GET, [segment(path(catalog, Event))])[1])
        assert dict(everything) == {
            codes[CoapLoop]: {5: 4},
            codes[CoapFastLoop]: {5: 2},
            codes[CoapLamp]: {5: 3.0},
        }
        assert raw.ask(GET, [segment(path(catalog, CoapFastLoop))]) == ("2.05", cbor2.dumps({5: 2}))
        exact = raw.ask(GET, [segment(path(catalog, CoapLoop)), (URI_QUERY, b"x")])[1]
        assert cbor2.loads(exact) == [[codes[CoapLoop], {5: 4}]]
        assert raw.ask(GET, [segment(path(catalog, CoapValve))]) == ("2.05", b"\x80"), "there is no value yet"


def test_a_put_to_a_kind_is_delegated_to_the_resources_below(catalog: Path) -> None:
    """Attributes that all events have go to every type below that has a resource and needs no more."""
    heard = Heard()
    with server(f"catalog={catalog}") as (hub, port), raw_client(port) as raw:
        hub.subscribe(Subscription(CoapRoadside), heard)
        for cls in (CoapValve, CoapLoop):
            hub.channel(cls).announce()
        roadside = [segment(path(catalog, CoapRoadside))]
        assert raw.ask(PUT, roadside, cbor2.dumps({2: "A8"}))[0] == "2.04"
        wait_for(lambda: heard == [CoapValve(place="A8")], "a loop needs its lane")
        assert raw.ask(PUT, roadside, cbor2.dumps({77: 1, 2: 5}))[0] == "4.00"


def test_pairs_are_published_all_or_none(catalog: Path) -> None:
    heard = Heard()
    loop, lamp = (Catalog.load(catalog).code(cls) for cls in (CoapLoop, CoapLamp))
    with server(f"catalog={catalog}") as (hub, port), raw_client(port) as raw:
        hub.subscribe(Subscription(Event), heard)
        root = [segment(path(catalog, Event))]
        assert raw.ask(POST, root, cbor2.dumps([[loop, {5: 1}], [lamp, {5: "dark"}]]))[0] == "4.00"
        assert raw.ask(POST, root, cbor2.dumps([[loop, {5: 1}], [lamp, {5: 2.0}]]))[0] == "2.04"
        wait_for(lambda: heard == [CoapLoop(lane=1), CoapLamp(watts=2.0)])


def test_discovery_lists_what_a_code_divides(catalog: Path) -> None:
    well_known = [segment(".well-known"), segment("core")]
    with server(f"catalog={catalog}") as (hub, port), raw_client(port) as raw:
        for event in (CoapLoop(lane=1), CoapFastLoop(lane=2), CoapLamp(watts=3.0)):
            hub.publish(event)

        def listed(query: str) -> set[str]:
            found = raw.ask(GET, [*well_known, (URI_QUERY, query.encode())])[1].decode()
            return set(filter(None, found.split(",")))

        loop, fast, lamp = (f"</{path(catalog, cls)}>" for cls in (CoapLoop, CoapFastLoop, CoapLamp))
        assert listed(f"is={path(catalog, Event)}") == {loop, fast, lamp}
        assert listed(f"is={path(catalog, CoapRoadside)}") == {loop, fast}
        assert listed(f"is={path(catalog, CoapFastLoop)}") == {fast}
        assert listed("rt=CoapLamp") == {lamp}
        assert listed("rt=Coap*") == {loop, fast, lamp}
        assert listed("ct=60") == {loop, fast, lamp}
        assert listed("title=x") == set()


def small(raw: Raw, options: list[tuple[int, bytes]]) -> bytes:
    """A body in blocks of 64 bytes."""
    found, number = b"", 0
    while True:
        code, part = raw.ask(GET, [*options, (BLOCK2, uint(number << 4 | 2))])
        assert code == "2.05"
        found += part
        if len(part) < 64:
            return found
        number += 1


def test_codes_need_few_datagrams(catalog: Path) -> None:
    """Four values by one request; the links of a branch in one block."""
    with server(f"catalog={catalog}") as (hub, port), DatagramProxy(port) as proxy, raw_client(proxy.port) as raw:
        events = (CoapLoop(lane=1), CoapFastLoop(lane=2), CoapLamp(watts=3.0), CoapValve(number=4))
        for event in events:
            hub.publish(event)

        def cost(*requests: list[tuple[int, bytes]]) -> int:
            before = proxy.counts.datagrams
            for options in requests:
                small(raw, options)
            return proxy.counts.datagrams - before

        singly = cost(*([segment(path(catalog, type(event))), (URI_QUERY, b"x")] for event in events))
        together = cost([segment(path(catalog, Event))])
        assert (singly, together) == (8, 2)
        assert cost([segment(".well-known"), segment("core"), (URI_QUERY, b"is=Aw")]) == 2


def test_an_observer_by_hand_gets_growing_numbers_and_resets_an_end(catalog: Path) -> None:
    with server(f"catalog={catalog}") as (hub, port), raw_client(port) as raw:
        hub.publish(CoapLamp(watts=0.0))
        code, first = raw.ask(GET, [segment(path(catalog, CoapLamp)), (OBSERVE, b"")])
        assert (code, cbor2.loads(first)) == ("2.05", {5: 0.0})
        numbers = []
        for watts in range(1, 6):
            hub.publish(CoapLamp(watts=float(watts)))
            notification = aiocoap.Message.decode(raw.sock.recv(1000))
            assert notification.mtype is aiocoap.CON
            numbers.append(notification.opt.observe)
            assert cbor2.loads(notification.payload) == {5: float(watts)}
            raw.send(b"\x60\x00" + notification.mid.to_bytes(2, "big"))
        assert numbers == sorted(set(numbers))
        hub.publish(CoapLamp(watts=9.0))
        notification = raw.sock.recv(1000)
        raw.send(b"\x70\x00" + notification[2:4])
        wait_for(lambda: not hub.link.interests())  # type: ignore[union-attr]


def test_a_device_that_restarts_is_observed_again(catalog: Path) -> None:
    """Nothing was heard for Max-Age: the observation is made anew, and a value that differs is an event."""
    heard, lamp, port = Heard(), path(catalog, CoapLamp), free_port()
    with Device({lamp: ShortLived({5: 1.0})}, port) as device:
        one = client(port, f"catalog={catalog}")
        one.subscribe(Subscription(CoapLamp), heard)
        device.set(lamp, {5: 2.0})
        wait_for(lambda: len(heard) == 2)
    with Device({lamp: ShortLived({5: 3.0})}, port) as device:
        wait_for(lambda: CoapLamp(watts=3.0) in heard)
        device.set(lamp, {5: 4.0})
        wait_for(lambda: CoapLamp(watts=4.0) in heard)
        assert [event.watts for event in heard] == [1.0, 2.0, 3.0, 4.0]
        one.close()


class ShortLived(SmallResource):
    """A value that is valid for a second."""

    async def render_get(self, request: object) -> object:
        message = await super().render_get(request)
        message.opt.max_age = 1
        return message


def test_genus_gateway_takes_a_side_on_coap(tmp_path: Path, catalog: Path) -> None:
    """The command, with a file: a device on one side, a server for clients on the other."""
    types = Path(__file__).parent / "coap_network.py"
    port, lamp = free_port(), path(catalog, CoapLamp)
    heard = Heard()
    with Device({lamp: SmallResource({5: 1.0})}) as device:
        (tmp_path / "gateway.toml").write_text(
            f"""
types = ["{types}"]

[[side]]
name = "devices"
address = "coap://127.0.0.1:{device.port}?catalog={catalog}&beat=200ms"

[[side]]
name = "clients"
address = "coap:?listen=127.0.0.1:{port}&catalog={catalog}"
"""
        )
        command = [sys.executable, "-m", "genus", "gateway", "--json", "--for", "60s", str(tmp_path / "gateway.toml")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            with open_bus(f"coap://127.0.0.1:{port}?catalog={catalog}&beat=200ms&ack_timeout=50ms") as bus:
                bus.subscribe(Subscription(CoapLamp), heard)
                wait_for(lambda: CoapLamp(watts=1.0) in heard)
                device.set(lamp, {5: 2.0})
                wait_for(lambda: CoapLamp(watts=2.0) in heard)
        finally:
            process.send_signal(signal.SIGINT)
            output, problems = process.communicate(timeout=30)
        assert process.returncode == 0, problems.decode()
        sides = {side["name"]: side for side in json.loads(output)["sides"]}
        assert sides["clients"]["crossed"] >= 2
