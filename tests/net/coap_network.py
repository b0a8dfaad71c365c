"""Servers and clients of CoAP at 127.0.0.1, and types for them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from genus import Bus, Event, Kind, Maybe, open_bus
from genus.net.types import CoapLink

QUICK = "beat=200ms&ack_timeout=50ms"
"""Times for tests: a lost datagram is repeated soon."""


class CoapRoadside(Kind): ...


class CoapIndoor(Kind): ...


class Vehicle(Enum):
    CAR = "car"
    TRUCK = "truck"


class CoapLoop(Event, CoapRoadside):
    lane: int
    speed: Maybe[float] = None
    vehicle: Maybe[Vehicle] = None


class CoapFastLoop(CoapLoop):
    limit: Maybe[float] = None


class CoapLamp(Event, CoapIndoor):
    watts: float
    note: Maybe[str] = None


class CoapBlob(Event):
    data: bytes


def link_of(bus: Bus) -> CoapLink:
    assert isinstance(bus.link, CoapLink)
    return bus.link


@contextmanager
def server(options: str = "", port: int = 0, **parts: Any) -> Iterator[tuple[Bus, int]]:
    """A bus that listens, and its port."""
    with open_bus(f"coap:?listen=127.0.0.1:{port}&{QUICK}&{options}".rstrip("&"), **parts) as bus:
        yield bus, link_of(bus).port


def client(port: int, options: str = "") -> Bus:
    """A bus that is a client of a server."""
    return open_bus(f"coap://127.0.0.1:{port}?{QUICK}&{options}".rstrip("&"))


def free_port() -> int:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind(("::", 0))
        return int(sock.getsockname()[1])


class Heard(list[Any]):
    """Collects what a handler was called with."""

    def __call__(self, event: Any) -> None:
        self.append(event)

    def lanes(self) -> list[int]:
        return [event.lane for event in self]


def sums(bus: Bus, *names: str) -> int:
    """The sum of the counters whose names begin so."""
    return sum(count for name, count in bus.traffic().link.items() if name.startswith(names))
