"""Rows 20 and 21: real processes on `udp_multicast`, where there is no arbitration and nobody waits for a receiver.

ScenarioRun as a module it is the publisher of both rows: `python -m tests.can.fault_table.live ADDRESS RATE COUNT`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from genus import Catalog, Event, NonReal, UInt32, open_bus
from genus.errors import BusError, GenusError
from tests.can.fault_table.row import Observation, Setting, row

GROUP = "239.74.163.21"
SUBSCRIBER, PUBLISHER = 1, 2
FLOOD = 0
"""As fast as it can."""
PATIENCE_S = 20.0
PAUSE_S = 0.5
"""The publisher waits before its final report, so that a receiver that is behind gets it."""
BUSY_S = 0.0005
"""A receiver that is too slow takes so long for each event."""


class Beat(Event):
    """What is published."""

    number: UInt32


class Received(msgspec.Struct, frozen=True):
    """What one process published and another received."""

    published: int
    delivered: int
    twice: int
    lost: int
    seconds: float
    to_itself: int
    """Events that the publisher, which subscribes too, got of its own."""
    echoes: int

    @property
    def is_accounted_for(self) -> bool:
        """Whether every event was delivered once or counted as lost."""
        return self.delivered + self.lost == self.published and not self.twice


def _address(folder: Path, port: int, number: int) -> str:
    catalog = folder / "catalog.json"
    return f"can:udp_multicast?channel={GROUP}&port={port}&number={number}&catalog={catalog}&synchronised=no"


def publish(address: str, rate: int, count: int) -> dict[str, float]:
    """Publish so many events at a rate, hear them too, and say how it went."""
    own = 0

    def hear(event: Beat) -> None:
        nonlocal own
        own += 1

    with open_bus(address) as bus:
        channel = bus.channel(Beat, NonReal())
        bus.collection(Beat).subscribe(hear)
        channel.announce()
        began = time.monotonic()
        for number in range(count):
            channel.publish(Beat(number=number))
            ahead = began + (number + 1) / rate - time.monotonic() if rate else 0
            if ahead > 0:
                time.sleep(ahead)
        seconds = time.monotonic() - began
        time.sleep(PAUSE_S)
        return {"seconds": seconds, "own": own, "echoes": bus.traffic().link.get("echoes ignored", 0)}


def exchange(rate: int, count: int, *, busy_s: float = 0.0) -> Received:
    """Let a process publish to this one, whose program takes `busy_s` for each event; BusError without multicast."""
    with tempfile.TemporaryDirectory() as folder:
        Catalog.update(Path(folder) / "catalog.json", Beat)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return _exchange(Path(folder), port, rate, count, busy_s)


def _exchange(folder: Path, port: int, rate: int, count: int, busy_s: float) -> Received:
    seen: list[int] = []

    def take(event: Beat) -> None:
        seen.append(event.number)
        if busy_s:
            ends = time.perf_counter() + busy_s
            while time.perf_counter() < ends:
                pass

    with open_bus(_address(folder, port, SUBSCRIBER)) as bus:
        bus.collection(Beat).subscribe(take)
        publisher = [sys.executable, "-m", __spec__.name, _address(folder, port, PUBLISHER), str(rate), str(count)]
        said = json.loads(subprocess.run(publisher, capture_output=True, text=True, check=True).stdout)
        ends = time.monotonic() + PATIENCE_S
        while len(seen) + bus.traffic().link.get("lost: Beat", 0) < count and time.monotonic() < ends:
            time.sleep(0.05)
        lost = bus.traffic().link.get("lost: Beat", 0)
    return Received(count, len(seen), len(seen) - len(set(seen)), lost, said["seconds"], said["own"], said["echoes"])


def is_possible() -> str:
    """Why there is no multicast between processes here; empty if there is."""
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
    expected="every event delivered once, or counted and told as lost",
)
def slow_receiver(setting: Setting) -> Observation:
    """Between two processes on udp_multicast."""
    count = int(setting.size(1_000, 20_000))
    results = [exchange(rate, count) for rate in ((2_000, 5_000, FLOOD) if setting.full else (5_000,))]
    slow = exchange(FLOOD, count, busy_s=BUSY_S)
    lines = [f"{each.lost / each.published:.1%} at {each.published / each.seconds:,.0f}/s" for each in results]
    text = f"lost {', '.join(lines)}; {slow.lost / count:.1%} by the slow receiver; all counted and told"
    right = all(each.is_accounted_for for each in (*results, slow))
    return Observation(text if right else text.replace("all counted", "not all counted"), right)


@row(
    21,
    "own frames that come back",
    injected="udp_multicast hands every frame back to its sender, which subscribes to what it publishes",
    expected="its program gets each event once, not twice",
)
def echoes(setting: Setting) -> Observation:
    """Between two processes on udp_multicast."""
    count = int(setting.size(500, 10_000))
    result = exchange(2_000, count)
    text = f"{count:,} events published, {result.echoes:,} frames came back, {result.to_itself:,} events to itself"
    return Observation(text, result.to_itself == count and result.echoes >= count and result.is_accounted_for)


if __name__ == "__main__":
    try:
        print(json.dumps(publish(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
    except GenusError as problem:
        sys.exit(str(problem))
