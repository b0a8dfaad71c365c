"""libcoap's client reads our server, and our client reads libcoap's server and a bare server of aiocoap."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiocoap
import cbor2
import pytest
from aiocoap import resource

from genus import Event, Subscription, open_bus, this
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from tests.programs import needs
from tests.waiting import wait_for

from .coap_network import (
    CoapFastLoop,
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

CLIENT, SERVER = shutil.which("coap-client-notls"), shutil.which("coap-server-notls")
needs_libcoap = needs("coap-client-notls")
"""The package has the server, too."""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "city.json"
    Catalog.update(path, CoapLoop, CoapFastLoop, CoapLamp)
    return path


def code_of(catalog: Path, cls: type) -> int:
    return Catalog.load(catalog).code(cls)


def ask(port: int, path: str, *options: str, data: Path | None = None) -> bytes:
    """What libcoap's client prints."""
    assert CLIENT is not None
    given = [] if data is None else ["-f", str(data)]
    command = [CLIENT, *options, *given, f"coap://127.0.0.1:{port}/{path}"]
    return subprocess.run(command, capture_output=True, timeout=20, check=True).stdout


# -- libcoap's client, our server --------------------------------------------------------------------------------------


@needs_libcoap
def test_libcoap_reads_a_value_and_a_super_resource(catalog: Path, tmp_path: Path) -> None:
    loop, fast, lamp = (code_of(catalog, cls) for cls in (CoapLoop, CoapFastLoop, CoapLamp))
    with server(f"catalog={catalog}") as (hub, port):
        hub.publish(CoapLoop(lane=3, speed=12.5))
        hub.publish(CoapFastLoop(lane=4))
        hub.publish(CoapLamp(watts=60.0))
        assert cbor2.loads(ask(port, encode_path_segment(lamp)).rstrip(b"\n")) == {5: 60.0}
        assert cbor2.loads(ask(port, encode_path_segment(loop)).rstrip(b"\n")) == [
            [loop, {5: 3, 6: 12.5}],
            [fast, {5: 4}],
        ]
        found = cbor2.loads(ask(port, f"{encode_path_segment(loop)}?h=40").rstrip(b"\n"))
        assert found == [[loop, {5: 3, 6: 12.5}]]
        assert cbor2.loads(ask(port, f"{encode_path_segment(loop)}?w=lane%20>%203").rstrip(b"\n")) == [[fast, {5: 4}]]


@needs_libcoap
def test_libcoap_discovers_what_a_code_divides(catalog: Path) -> None:
    loop, fast, lamp = (encode_path_segment(code_of(catalog, cls)) for cls in (CoapLoop, CoapFastLoop, CoapLamp))
    with server(f"catalog={catalog}") as (hub, port):
        for event in (CoapLoop(lane=1), CoapFastLoop(lane=2), CoapLamp(watts=1.0)):
            hub.publish(event)
        everything = ask(port, ".well-known/core").decode().strip()
        assert set(everything.split(",")) == {f"</{path}>" for path in (loop, fast, lamp)}
        below = ask(port, f".well-known/core?is={loop}").decode().strip()
        assert set(below.split(",")) == {f"</{loop}>", f"</{fast}>"}
        kind = encode_path_segment(code_of(catalog, CoapRoadside))
        names = ask(port, "rd-lookup/res?rt=CoapRoadside").decode()
        assert f'/{kind}>;rt="CoapRoadside"' in names


@needs_libcoap
def test_libcoap_observes(catalog: Path) -> None:
    assert CLIENT is not None
    lamp = encode_path_segment(code_of(catalog, CoapLamp))
    with server(f"catalog={catalog}") as (hub, port):
        hub.publish(CoapLamp(watts=0.0))
        process = subprocess.Popen(
            [CLIENT, "-s", "1", f"coap://127.0.0.1:{port}/{lamp}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: len(link_of(hub).interests()) == 1)
        for watts in range(1, 6):
            hub.publish(CoapLamp(watts=float(watts)))
        output, _ = process.communicate(timeout=20)
        decoder = cbor2.CBORDecoder(BytesIO(output.rstrip(b"\n")))
        values = [decoder.decode() for _ in range(6)]
        assert values == [{5: float(watts)} for watts in range(6)]
        wait_for(lambda: len(link_of(hub).interests()) == 0, "it has ended its observation")


@needs_libcoap
def test_libcoap_puts_events(catalog: Path, tmp_path: Path) -> None:
    heard, body = Heard(), tmp_path / "body"
    loop, fast = code_of(catalog, CoapLoop), code_of(catalog, CoapFastLoop)
    with server(f"catalog={catalog}") as (_, port), client(port) as one:
        one.subscribe(Subscription(CoapLoop), heard)
        body.write_bytes(cbor2.dumps({5: 7}))
        ask(port, encode_path_segment(loop), "-m", "put", "-t", "60", data=body)
        body.write_bytes(cbor2.dumps([[loop, {5: 8}], [fast, {5: 9, 8: 30.0}]]))
        ask(port, encode_path_segment(code_of(catalog, CoapRoadside)), "-m", "post", "-t", "60", data=body)
        wait_for(lambda: len(heard) == 3)
        assert heard == [CoapLoop(lane=7), CoapLoop(lane=8), CoapFastLoop(lane=9, limit=30.0)]


@needs_libcoap
def test_max_age_is_the_time_until_an_event_expires(catalog: Path) -> None:
    lamp = encode_path_segment(code_of(catalog, CoapLamp))
    with server(f"catalog={catalog}") as (hub, port):
        hub.publish(CoapLamp(watts=1.0, expires=datetime.now(UTC) + timedelta(seconds=1000)))
        assert CLIENT is not None
        command = [CLIENT, "-v", "7", f"coap://127.0.0.1:{port}/{lamp}"]
        shown = subprocess.run(command, capture_output=True, timeout=20, check=True)
        text = (shown.stdout + shown.stderr).decode(errors="replace")
        assert "Max-Age:99" in text
        hub.publish(CoapLamp(watts=1.0, expires=datetime.now(UTC) - timedelta(seconds=1)))
        wait_for(lambda: ask(port, lamp).rstrip(b"\n") == b"\x80")


# -- our client, libcoap's server --------------------------------------------------------------------------------------


@contextmanager
def libcoap_server() -> Iterator[int]:
    """A server that has the resources that are put there."""
    assert SERVER is not None
    port = free_port()
    process = subprocess.Popen(
        [SERVER, "-A", "127.0.0.1", "-p", str(port), "-d", "20"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


@needs_libcoap
@needs_libcoap
def test_our_client_reads_and_observes_libcoaps_server(catalog: Path, tmp_path: Path) -> None:
    """Its resources have no super-resource, so those below a type are discovered and observed one by one."""
    heard, body = Heard(), tmp_path / "body"
    fast, loop = encode_path_segment(code_of(catalog, CoapFastLoop)), encode_path_segment(code_of(catalog, CoapLoop))
    body.write_bytes(cbor2.dumps({5: 1}))
    with libcoap_server() as port:
        wait_for(lambda: bool(_try_ask(port, ".well-known/core")))
        for path in (fast, loop):
            ask(port, path, "-m", "put", "-t", "60", data=body)
        with client(port, f"catalog={catalog}") as one:
            one.subscribe(Subscription(CoapRoadside), heard)
            wait_for(lambda: len(heard) == 2)
            assert {type(event) for event in heard} == {CoapLoop, CoapFastLoop}
            for lane in range(2, 6):
                body.write_bytes(cbor2.dumps({5: lane}))
                ask(port, fast, "-m", "put", "-t", "60", data=body)
                wait_for(lambda lane=lane: heard[-1] == CoapFastLoop(lane=lane))  # type: ignore[misc]
            assert sums(one, "super-resources that a device lacks") == 1


def _try_ask(port: int, path: str) -> bytes:
    try:
        return ask(port, path)
    except subprocess.SubprocessError:
        return b""


@needs_libcoap
@needs_libcoap
def test_our_client_puts_to_libcoaps_server(catalog: Path) -> None:
    with libcoap_server() as port:
        wait_for(lambda: bool(_try_ask(port, ".well-known/core")))
        with client(port, f"catalog={catalog}") as one:
            one.publish(CoapLamp(watts=75.0))
            wait_for(lambda: sums(one, "sent") == 1)
        lamp = encode_path_segment(code_of(catalog, CoapLamp))
        assert cbor2.loads(ask(port, lamp).rstrip(b"\n")) == {5: 75.0}


# -- our client, a small device ----------------------------------------------------------------------------------------


class SmallResource(resource.ObservableResource):  # type: ignore[misc]
    """A value of a device that knows nothing of queries: it answers 4.00 to them."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    async def render_get(self, request: Any) -> Any:
        if request.opt.uri_query:
            return aiocoap.Message(code=aiocoap.BAD_REQUEST)
        return aiocoap.Message(payload=cbor2.dumps(self.value), content_format=60)

    async def render_put(self, request: Any) -> Any:
        self.value = cbor2.loads(request.payload)
        self.updated_state()
        return aiocoap.Message(code=aiocoap.CHANGED)


class Unobservable(SmallResource):
    """A value that can only be read."""

    async def add_observation(self, request: Any, serverobservation: Any) -> None:
        return


class Device:
    """A bare server of aiocoap in a thread: a small device with paths that are codes."""

    def __init__(self, resources: dict[str, SmallResource], port: int = 0) -> None:
        self.resources, self.port = resources, port or free_port()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> "Device":
        self._thread.start()
        self._context = asyncio.run_coroutine_threadsafe(self._open(), self.loop).result(5)
        return self

    async def _open(self) -> Any:
        site = resource.Site()
        site.add_resource([".well-known", "core"], resource.WKCResource(site.get_resources_as_linkheader))
        for path, one in self.resources.items():
            site.add_resource([path], one)
        return await aiocoap.Context.create_server_context(site, bind=("127.0.0.1", self.port), transports=["udp6"])

    def set(self, path: str, value: Any) -> None:
        def change() -> None:
            self.resources[path].value = value
            self.resources[path].updated_state()

        self.loop.call_soon_threadsafe(change)

    async def _close(self) -> None:
        await self._context.shutdown()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


def test_a_small_server_tests_the_type_and_the_receiver_the_rest(catalog: Path) -> None:
    """It answers 4.00 to queries; that is seen in the counters and in what explain says."""
    heard, loop = Heard(), encode_path_segment(code_of(catalog, CoapLoop))
    with Device({loop: SmallResource({5: 1})}) as device, client(device.port, f"catalog={catalog}") as one:
        one.subscribe(Subscription(CoapLoop, where=this.lane > 2), heard)
        for lane in range(1, 6):
            device.set(loop, {5: lane})
            wait_for(lambda lane=lane: sums(one, "received") == lane + 1)  # type: ignore[misc]
        wait_for(lambda: heard.lanes() == [3, 4, 5])
        assert one.traffic().link["observations whose `where` is tested here"] == 1
        assert one.traffic().link["observations whose attributes are tested here"] == 1
        assert "residual: CoapLoop where lane > 2" in link_of(one).explain()


def test_a_resource_that_cannot_be_observed_is_polled(catalog: Path) -> None:
    heard, lamp = Heard(), encode_path_segment(code_of(catalog, CoapLamp))
    device = Device({lamp: Unobservable({5: 1.0})})
    with device, client(device.port, f"catalog={catalog}&poll=50ms") as one:
        one.subscribe(Subscription(CoapLamp), heard)
        wait_for(lambda: len(heard) == 1)
        device.set(lamp, {5: 2.0})
        wait_for(lambda: len(heard) == 2)
        assert [event.watts for event in heard] == [1.0, 2.0]
        wait_for(lambda: sums(one, "unchanged") > 2)
        assert len(heard) == 2


def test_a_device_says_nonsense(catalog: Path) -> None:
    heard, lamp = Heard(), encode_path_segment(code_of(catalog, CoapLamp))
    with Device({lamp: SmallResource({5: 1.0})}) as device, client(device.port, f"catalog={catalog}") as one:
        one.subscribe(Subscription(CoapLamp), heard)
        wait_for(lambda: len(heard) == 1)
        for number, value in enumerate(("text", {5: "x"}, {"watts": 1.0}, [[1, {}]], {6: "no watts"}, 7), 1):
            device.set(lamp, value)
            wait_for(lambda number=number: sums(one, "rejected: ") == number, str(value))  # type: ignore[misc]
        device.set(lamp, {5: 9.0})
        wait_for(lambda: heard[-1] == CoapLamp(watts=9.0))


def test_a_device_without_a_catalog_needs_a_file(catalog: Path) -> None:
    from genus.errors import BusError

    with Device({"DA": SmallResource({})}) as device, pytest.raises(BusError, match="give catalog=FILE"):
        client(device.port)


def test_several_devices_are_one_bus(catalog: Path) -> None:
    heard, lamp = Heard(), encode_path_segment(code_of(catalog, CoapLamp))
    with (
        Device({lamp: SmallResource({5: 1.0})}) as first,
        Device({lamp: SmallResource({5: 2.0})}) as second,
        open_bus(f"coap://127.0.0.1:{first.port},127.0.0.1:{second.port}?catalog={catalog}&beat=200ms") as bus,
    ):
        bus.subscribe(Subscription(Event), heard)
        wait_for(lambda: len(heard) == 2)
        second.set(lamp, {5: 3.0})
        wait_for(lambda: len(heard) == 3)
        assert sorted(event.watts for event in heard) == [1.0, 2.0, 3.0]
