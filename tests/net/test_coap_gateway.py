"""Gateways with a side on CoAP: devices and clients of CoAP on one side, any bus on the other."""

from pathlib import Path

import pytest

from genus import Event, Subscription, open_bus, this
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net import Gateway, GatewaySide, Origin
from genus.net.types import Arrival, RelayLink
from tests.waiting import wait_for

from .coap_network import CoapLamp, CoapLoop, CoapRoadside, Heard, client, link_of, server, sums
from .test_coap_interop import Device, SmallResource


def test_a_link_of_coap_is_one_for_gateways() -> None:
    with server() as (hub, port), client(port) as one:
        assert isinstance(hub.link, RelayLink)
        assert isinstance(one.link, RelayLink)


def test_a_gateway_carries_what_is_wanted_from_coap_to_a_bus() -> None:
    """Clients of a server on one side, a bus of this process on the other."""
    heard, back = Heard(), Heard()
    with (
        open_bus("local:") as inner,
        server() as (hub, port),
        client(port) as one,
        Gateway(GatewaySide(bus=inner, name="inner"), GatewaySide(bus=hub, name="coap")) as gateway,
    ):
        inner.subscribe(Subscription(CoapLoop, where=this.lane > 1), heard)
        one.subscribe(Subscription(CoapLamp), back)
        wait_for(lambda: len(link_of(hub).interests()) == 1)
        gateway.settle()
        for lane in range(4):
            one.publish(CoapLoop(lane=lane))
        inner.publish(CoapLamp(watts=5.0))
        inner.publish(CoapLoop(lane=9))  # nobody on CoAP wants it
        wait_for(lambda: sorted(heard.lanes()) == [2, 3, 9] and len(back) == 1)
        status = {side.name: side for side in gateway.status().sides}
        assert status["inner"].crossed == 2
        assert status["coap"].crossed == 1


def test_a_gateway_is_a_client_of_a_server() -> None:
    """What others want of the server is known to the gateway, and crosses to them once."""
    heard, at_hub, inside = Heard(), Heard(), Heard()
    with (
        open_bus("local:") as inner,
        server() as (hub, port),
        client(port) as side,
        client(port) as other,
        Gateway(GatewaySide(bus=inner, name="inner"), GatewaySide(bus=side, name="coap")) as gateway,
    ):
        inner.subscribe(Subscription(CoapLamp), inside)
        other.subscribe(Subscription(CoapRoadside), heard)
        hub.subscribe(Subscription(CoapLoop, where=this.lane == 2), at_hub)
        wait_for(lambda: len(link_of(side).interests()) >= 2)
        wait_for(lambda: any("CoapLamp" in str(interest.subscription) for interest in link_of(hub).interests()))
        gateway.settle()
        inner.publish(CoapLoop(lane=1))
        inner.publish(CoapLoop(lane=2))
        inner.publish(CoapLoop(lane=3))
        wait_for(lambda: len(heard) >= 3)
        assert heard.lanes() == [1, 2, 3]
        wait_for(lambda: at_hub.lanes() == [2])
        hub.publish(CoapLamp(watts=1.0))
        other.publish(CoapLamp(watts=2.0))
        wait_for(lambda: len(inside) == 2)
        assert sorted(event.watts for event in inside) == [1.0, 2.0]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "city.json"
    Catalog.update(path, CoapLoop, CoapLamp)
    return path


def test_a_plain_device_is_read_through_a_gateway(catalog: Path) -> None:
    """A device with paths that are codes, read by clients of a server that knows nothing of the device."""
    loop = encode_path_segment(Catalog.load(catalog).code(CoapLoop))
    heard, unwanted = Heard(), Heard()
    with (
        Device({loop: SmallResource({5: 1})}) as device,
        server() as (hub, port),
        client(port) as one,
        client(device.port, f"catalog={catalog}") as side,
        Gateway(GatewaySide(bus=hub, name="hub"), GatewaySide(bus=side, name="devices")),
    ):
        one.subscribe(Subscription(CoapLoop, where=this.lane > 1), heard)
        one.subscribe(Subscription(CoapLamp), unwanted)
        wait_for(lambda: sums(side, "received") >= 1)
        for lane in (2, 3, 4):
            device.set(loop, {5: lane})
            wait_for(lambda lane=lane: heard.lanes()[-1:] == [lane])  # type: ignore[misc]
        assert heard.lanes() == [2, 3, 4]


def test_a_plain_device_takes_what_the_gateway_wants_for_it(catalog: Path) -> None:
    lamp = encode_path_segment(Catalog.load(catalog).code(CoapLamp))
    resource = SmallResource({5: 0.0})
    with (
        Device({lamp: resource}) as device,
        open_bus("local:") as inner,
        client(device.port, f"catalog={catalog}") as side,
        Gateway(GatewaySide(bus=inner, name="inner"), GatewaySide(bus=side, name="devices", interest=["CoapLamp"])),
    ):
        inner.publish(CoapLamp(watts=40.0))
        wait_for(lambda: resource.value == {5: 40.0})
        inner.publish(CoapLoop(lane=1))
        inner.publish(CoapLamp(watts=41.0))
        wait_for(lambda: resource.value == {5: 41.0})
        wait_for(lambda: sums(side, "sent") == 2)


def test_an_event_that_goes_in_circles_comes_once() -> None:
    """Two gateways between the same two networks: an event crosses, and does not come back."""
    heard, own = Heard(), Heard()
    with (
        open_bus("local:") as inner,
        server() as (hub, port),
        client(port) as first,
        client(port) as second,
        Gateway(GatewaySide(bus=inner, name="inner"), GatewaySide(bus=first, name="coap")) as one,
        Gateway(GatewaySide(bus=inner, name="inner"), GatewaySide(bus=second, name="coap")) as other,
    ):
        hub.subscribe(Subscription(CoapLoop), heard)
        inner.subscribe(Subscription(Event), own)
        wait_for(lambda: all(len(link_of(side).interests()) >= 1 for side in (first, second)))
        one.settle()
        other.settle()
        inner.publish(CoapLoop(lane=1))
        wait_for(lambda: len(heard) >= 1)
        hub.publish(CoapLoop(lane=2))
        wait_for(lambda: len(own) >= 2)
        inner.publish(CoapLoop(lane=3))
        wait_for(lambda: 3 in heard.lanes())
        assert heard.lanes() == [1, 2, 3]
        assert own.lanes() == [1, 2, 3]


def test_what_a_gateway_loses_is_told_at_both_ends() -> None:
    """Observers of the server find a gap, and the publisher on the server's bus is told."""
    heard, at_receiver, at_sender = Heard(), Heard(), Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(CoapLoop), heard, on_problem=at_receiver)
        channel = hub.channel(CoapLoop, on_problem=at_sender)
        channel.announce()
        link_of(hub).lose(Arrival(CoapLoop(lane=1), Origin(b"elsewher", 1)))
        link_of(hub).report_loss(Arrival(CoapLoop(lane=2), Origin(link_of(hub).uid, 1)))
        channel.publish(CoapLoop(lane=3))
        wait_for(lambda: heard.lanes() == [3] and len(at_receiver) == len(at_sender) == 1)
        assert at_receiver[0].count == at_sender[0].count == 1
        channel.cancel()
