"""CoAP by names and by codes: datagrams and bytes for discovery and for four values, and requests per second.

Datagrams are counted on a proxy between a client and a server at 127.0.0.1, acknowledgements included; blocks have 64
bytes, as on networks of small devices. The server by names is aiocoap's own, with 15 resources of the IPSO Application
Framework: once with their paths alone, and once with the attribute `rt` that says what each is, as that framework has
it. The server by codes is a bus of Genus with 15 types; its paths say what each is.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import aiocoap
import cbor2
from aiocoap import resource

from bench.timing import markdown
from genus import Event, Kind, open_bus
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net.types import CoapLink
from tests.net.datagram_proxy import DatagramProxy

BLOCK_EXPONENT = 2
"""Blocks of 64 bytes."""
NAMES = (
    *("dev/mfg", "dev/mdl", "dev/ser", "dev/n", "dev/bat", "sen/temp", "sen/hum", "sen/lux"),
    *("pwr/0/w", "pwr/0/kwh", "pwr/0/rel", "lt/0/on", "lt/0/dim", "loc/sem", "loc/gps"),
)
FOUR = ("pwr/0/w", "pwr/0/kwh", "pwr/0/rel", "dev/bat")
REQUESTS = 1500


class Device(Kind): ...


class Power(Kind): ...


class Sensor(Kind): ...


class Light(Kind): ...


class Place(Kind): ...


KINDS = {"dev": Device, "sen": Sensor, "pwr": Power, "lt": Light, "loc": Place}
TYPES: dict[str, type[Event]] = {
    name: type(
        "Ipso" + "".join(part.title() for part in name.split("/")),
        (Event, KINDS[name.split("/")[0]], *((Power,) if name == "dev/bat" else ())),
        {"__annotations__": {"value": float}, "__module__": __name__},
    )
    for name in NAMES
}


class Cost(NamedTuple):
    """What an exchange took."""

    datagrams: int
    bytes: int


class Named(resource.Resource):  # type: ignore[misc]
    """A value of a device by names."""

    def __init__(self, value: float, type_: str | None) -> None:
        super().__init__()
        self.payload = cbor2.dumps({5: value}, canonical=True)
        if type_ is not None:
            self.rt = type_

    async def render_get(self, request: Any) -> Any:
        return aiocoap.Message(payload=self.payload, content_format=60)


def free_port() -> int:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind(("::", 0))
        return int(sock.getsockname()[1])


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def named_server(with_types: bool) -> Iterator[int]:
    """A server of aiocoap with resources by names."""
    port = free_port()

    async def start() -> Any:
        site = resource.Site()
        listing = resource.WKCResource(site.get_resources_as_linkheader, impl_info=None)
        listing.get_link_description = lambda: None
        site.add_resource([".well-known", "core"], listing)
        for number, name in enumerate(NAMES):
            type_ = f"ipso.{name.replace('/', '.')}" if with_types else None
            site.add_resource(name.split("/"), Named(float(number), type_))
        return await aiocoap.Context.create_server_context(site, bind=("127.0.0.1", port), transports=["udp6"])

    with loop_in_thread() as loop:
        context = asyncio.run_coroutine_threadsafe(start(), loop).result()
        yield port
        asyncio.run_coroutine_threadsafe(context.shutdown(), loop).result()


@contextmanager
def coded_server() -> Iterator[tuple[int, Catalog]]:
    """A bus with resources by codes."""
    with open_bus("coap:?listen=127.0.0.1:0") as bus:
        for number, cls in enumerate(TYPES.values()):
            bus.publish(cls(value=float(number)))  # type: ignore[call-arg]
        link = bus.link
        assert isinstance(link, CoapLink)
        assert link.hub is not None
        time.sleep(0.1)
        yield link.port, link.hub.shared.catalog


def measure(port: int, paths: list[str]) -> Cost:
    """The datagrams of GETs, one after the other, in small blocks."""

    async def ask(through: int) -> None:
        context = await aiocoap.Context.create_client_context(transports=["udp6"])
        for path in paths:
            message = aiocoap.Message(code=aiocoap.GET)
            message.remote = aiocoap.message.UndecidedRemote("coap", f"127.0.0.1:{through}")
            where, _, query = path.partition("?")
            message.opt.uri_path = tuple(where.split("/"))
            message.opt.uri_query = tuple(filter(None, query.split("&")))
            message.opt.block2 = (0, False, BLOCK_EXPONENT)
            response = await context.request(message).response
            assert response.code.is_successful(), response
        await context.shutdown()

    with DatagramProxy(port) as proxy:
        asyncio.run(ask(proxy.port))
        return Cost(proxy.counts.datagrams, proxy.counts.bytes)


def rate_of(get: Callable[[int, str], None], port: int, path: str) -> float:
    began = time.perf_counter()
    get(port, path)
    return REQUESTS / (time.perf_counter() - began)


def by_aiocoap(port: int, path: str) -> None:
    async def ask() -> None:
        context = await aiocoap.Context.create_client_context(transports=["udp6"])
        for _ in range(REQUESTS):
            message = aiocoap.Message(code=aiocoap.GET)
            message.remote = aiocoap.message.UndecidedRemote("coap", f"127.0.0.1:{port}")
            message.opt.uri_path = tuple(path.split("/"))
            assert (await context.request(message).response).code.is_successful()
        await context.shutdown()

    asyncio.run(ask())


def by_socket(port: int, path: str) -> None:
    """A client that is nothing but bytes and a socket."""
    options = b"".join(
        bytes((((11 if number == 0 else 0) << 4) | len(part),)) + part.encode()
        for number, part in enumerate(path.split("/"))
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        sock.settimeout(5)
        for number in range(REQUESTS):
            mid = number.to_bytes(2, "big")
            sock.send(b"\x42\x01" + mid + mid + options)
            assert sock.recv(2048)[1] == 0x45


def run() -> str:
    """The tables."""
    with coded_server() as (port, catalog):
        everything = measure(port, [".well-known/core"])
        below = measure(port, [f".well-known/core?is={encode_path_segment(catalog.code(Power))}"])
        singly = measure(port, [encode_path_segment(catalog.code(TYPES[name])) for name in FOUR])
        together = measure(port, [encode_path_segment(catalog.code(Power))])
        path = encode_path_segment(catalog.code(TYPES["sen/temp"]))
        rates = {
            "genus, aiocoap's client": rate_of(by_aiocoap, port, path),
            "genus, a bare socket": rate_of(by_socket, port, path),
        }
    with named_server(with_types=False) as port:
        bare = measure(port, [".well-known/core"])
        named = measure(port, list(FOUR))
        rates["aiocoap's own server and client"] = rate_of(by_aiocoap, port, "sen/temp")
        rates["aiocoap's own server, a bare socket"] = rate_of(by_socket, port, "sen/temp")
    with named_server(with_types=True) as port:
        typed = measure(port, [".well-known/core"])
    discovery = markdown(
        ["discovery of 15 resources", "datagrams", "bytes", "of the first"],
        [
            [what, str(cost.datagrams), str(cost.bytes), f"{cost.datagrams / typed.datagrams:.2f}"]
            for what, cost in {
                "by names, with types (`rt`)": typed,
                "by names alone": bare,
                "by codes": everything,
                "by codes, below one type": below,
            }.items()
        ],
    )
    values = markdown(
        ["four values", "datagrams", "bytes"],
        [
            [what, str(cost.datagrams), str(cost.bytes)]
            for what, cost in {
                "by names, one by one": named,
                "by codes, one by one": singly,
                "by a super-resource": together,
            }.items()
        ],
    )
    speeds = markdown(["GET, one at a time", "per second"], [[name, f"{rate:,.0f}"] for name, rate in rates.items()])
    return "\n\n".join([discovery, values, speeds])


if __name__ == "__main__":
    print(run())
