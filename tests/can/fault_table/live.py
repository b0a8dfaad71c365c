"""Rows 20 and 21: real processes on `udp_multicast`, without arbitration and without flow control.

Run as a module it is the publisher of both rows: `python -m tests.can.fault_table.live ADDRESS RATE COUNT`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from genus import BestEffort, Catalog, Event, UInt32, open_bus
from genus.errors import BusError, GenusError
from tests.can.fault_table.row import Observation, Setting, row

GROUP = "239.74.163.21"
SUBSCRIBER, PUBLISHER = 1, 2
FLOOD = 0
"""The rate of a publisher that does not pause."""
TIMEOUT_S = 20.0
PAUSE_S = 0.5
"""The publisher waits before its final report, so that a receiver that is behind gets it."""
BUSY_S = 0.0005
"""How long a slow receiver takes for each event."""


class Beat(Event):
    """The event that is published."""

    number: UInt32


class ExchangeCounts(msgspec.Struct, frozen=True):
    """How many events one process published and another received."""

    published: int
    delivered: int
    twice: int
    lost: int
    seconds: float
    to_itself: int
    """How many of its own events the publisher, which subscribes too, received."""
    echoes: int

    @property
    def unaccounted(self) -> int:
        """How many events were neither delivered nor counted as lost, or counted too often, or delivered twice."""
        return abs(self.published - self.delivered - self.lost) + self.twice


def _address(folder: Path, port: int, number: int) -> str:
    catalog = folder / "catalog.json"
    return f"can:udp_multicast?channel={GROUP}&port={port}&number={number}&catalog={catalog}&synchronised=no"


def publish(address: str, rate: int, events: int) -> dict[str, float]:
    """Publish events at a rate, receive them too, and return the duration and counts."""
    own = 0

    def count(event: Beat) -> None:
        nonlocal own
        own += 1

    with open_bus(address) as bus:
        channel = bus.channel(Beat, BestEffort())
        bus.collection(Beat).subscribe(count)
        channel.announce()
        began = time.monotonic()
        for number in range(events):
            channel.publish(Beat(number=number))
            ahead = began + (number + 1) / rate - time.monotonic() if rate else 0
            if ahead > 0:
                time.sleep(ahead)
        seconds = time.monotonic() - began
        time.sleep(PAUSE_S)
        return {"seconds": seconds, "own": own, "echoes": bus.traffic().link.get("echoes ignored", 0)}


def exchange(rate: int, count: int, *, busy_s: float = 0.0) -> ExchangeCounts:
    """Let a process publish to this one, whose handler takes `busy_s` for each event; BusError without multicast."""
    with tempfile.TemporaryDirectory() as folder:
        Catalog.update(Path(folder) / "catalog.json", Beat)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return _exchange(Path(folder), port, rate, count, busy_s)


def _exchange(folder: Path, port: int, rate: int, count: int, busy_s: float) -> ExchangeCounts:
    received: list[int] = []

    def handle(event: Beat) -> None:
        received.append(event.number)
        if busy_s:
            ends = time.perf_counter() + busy_s
            while time.perf_counter() < ends:
                pass

    with open_bus(_address(folder, port, SUBSCRIBER)) as bus:
        bus.collection(Beat).subscribe(handle)
        publisher = [sys.executable, "-m", __spec__.name, _address(folder, port, PUBLISHER), str(rate), str(count)]
        printed = json.loads(subprocess.run(publisher, capture_output=True, text=True, check=True).stdout)
        ends = time.monotonic() + TIMEOUT_S
        while len(received) + bus.traffic().link.get("lost: Beat", 0) < count and time.monotonic() < ends:
            time.sleep(0.05)
        lost = bus.traffic().link.get("lost: Beat", 0)
    return ExchangeCounts(
        count,
        len(received),
        len(received) - len(set(received)),
        lost,
        printed["seconds"],
        printed["own"],
        printed["echoes"],
    )


def find_multicast_problem() -> str:
    """Why there is no multicast between processes on this machine; empty if there is."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            Catalog.update(Path(folder) / "catalog.json", Beat)
            open_bus(_address(Path(folder), 43_999, SUBSCRIBER)).close()
    except (BusError, ImportError) as problem:
        return str(problem)
    return ""


@row(
    20,
    "a receiver that is too slow",
    injected="a process publishes 2000, 5000 events/s, then as fast as it can; then to one that takes 0.5 ms for each",
    expected="every event delivered once, or counted and reported as lost",
)
def slow_receiver(setting: Setting) -> Observation:
    """Count events between two processes on udp_multicast."""
    count = int(setting.size(1_000, 20_000))
    results = [exchange(rate, count) for rate in ((2_000, 5_000, FLOOD) if setting.full else (5_000,))]
    slow = exchange(FLOOD, count, busy_s=BUSY_S)
    lines = [f"{each.lost / each.published:.1%} at {each.published / each.seconds:,.0f}/s" for each in results]
    unknown = sum(each.unaccounted for each in (*results, slow))
    text = f"lost {', '.join(lines)}; {slow.lost / count:.1%} by the slow receiver; {unknown} not counted or reported"
    return Observation(text, {"all accounted for": unknown == 0})


@row(
    21,
    "own frames returned by the interface",
    injected="udp_multicast returns every frame to its sender, which subscribes to what it publishes",
    expected="its program gets each event once, not twice",
)
def echoes(setting: Setting) -> Observation:
    """Count events between two processes on udp_multicast."""
    count = int(setting.size(500, 10_000))
    result = exchange(2_000, count)
    text = (
        f"{count:,} events published, {result.echoes:,} frames returned, "
        f"{result.to_itself:,} events delivered to itself"
    )
    expected = {"each once": result.to_itself == count, "echoes": result.echoes >= count}
    return Observation(text, expected | {"all accounted for": not result.unaccounted})


if __name__ == "__main__":
    try:
        print(json.dumps(publish(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
    except GenusError as problem:
        sys.exit(str(problem))
