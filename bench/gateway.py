"""Events from a CAN bus to a city on zenoh, through `genus gateway` in a process of its own.

The CAN bus is python-can's `udp_multicast`, a real bus between processes. Sensor and city are in this process, so that
one clock measures the way: the sensor's queue, CAN, the gateway, zenoh, the city's handler. First nobody in the city
asks for anything; then somebody asks for `BenchLoop where lane > 1`, which is two thirds of the events.
"""

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.timing import markdown
from genus import Catalog, Event, Soft, UInt8, UInt32, open_bus
from genus.net import NetLink

EVENTS = 1500
UNASKED = 300
WINDOW = 200
"""Times are those of the best of several windows of so many events: other work on the machine disturbs some."""
PAUSE_S = 0.004
PATIENCE_S = 60
GROUP = "239.74.163.11"
TYPES = """
from genus import Event, UInt8, UInt32

class BenchLoop(Event):
    number: UInt32
    lane: UInt8
"""


class BenchLoop(Event):
    number: UInt32
    lane: UInt8


def free_port(kind: socket.SocketKind) -> int:
    """A port that nobody uses now."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("the gateway does not answer")
        time.sleep(0.005)


def run() -> dict[str, float]:
    """What crossed while nobody asked, and the times of what was asked for, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "types.py").write_text(TYPES)
        Catalog.update(folder / "city.json", BenchLoop)
        city = f"zenoh:bench?port={free_port(socket.SOCK_STREAM)}"
        port, catalog = free_port(socket.SOCK_DGRAM), folder / "city.json"
        road = f"can:udp_multicast?channel={GROUP}&port={port}&catalog={catalog}&synchronised=no"
        sides = f'[[side]]\nname = "road"\naddress = "{road}&number=2"\n[[side]]\nname = "city"\naddress = "{city}"\n'
        (folder / "gateway.toml").write_text(f'types = ["types.py"]\n{sides}')
        command = [sys.executable, "-m", "genus", "gateway", str(folder / "gateway.toml"), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as gateway:
            try:
                assert gateway.stderr is not None
                gateway.stderr.readline()
                times = _measure(f"{road}&number=1", city)
            finally:
                gateway.send_signal(signal.SIGTERM)
                output, _ = gateway.communicate(timeout=PATIENCE_S)
    here, there = json.loads(output)["sides"]
    windows = [sorted(times[start : start + WINDOW]) for start in range(0, len(times), WINDOW)]
    best = min(windows, key=_p99)
    return {
        "crossed while nobody asked": there["crossed"] - len(times),
        "heard by the gateway": here["heard"],
        "crossed": there["crossed"],
        "unwanted": here["unwanted"],
        "lost": EVENTS * 2 // 3 - len(times),
        "p50 ms": best[len(best) // 2],
        "p99 ms": _p99(best),
        "p99 of all windows ms": _p99(sorted(times)),
    }


def _p99(times: list[float]) -> float:
    return times[len(times) * 99 // 100]


def _measure(road: str, city: str) -> list[float]:
    """The time of each event that arrived, in milliseconds."""
    sent: dict[int, float] = {}
    took: list[float] = []

    def arrived(event: BenchLoop) -> None:
        took.append(1000 * (time.perf_counter() - sent[event.number]))

    with open_bus(city) as centre, open_bus(road) as sensor:
        assert isinstance(centre.link, NetLink)
        link = centre.link
        loops = sensor.channel(BenchLoop, Soft(deadline="50ms"))
        loops.announce()
        wait_for(lambda: len(link.participants()) == 1)
        for number in range(UNASKED):
            loops.publish(BenchLoop(number=number, lane=2))
            time.sleep(PAUSE_S / 4)
        centre.subscribe("BenchLoop where lane > 1", arrived)
        time.sleep(1)  # the gateway sets its filters
        for number in range(EVENTS):
            sent[number] = time.perf_counter()
            loops.publish(BenchLoop(number=number, lane=1 + number % 3))
            time.sleep(PAUSE_S)
        wait_for(lambda: len(took) >= EVENTS * 2 // 3)
    return took


def table(found: dict[str, float]) -> str:
    """As a Markdown table."""
    rows = [[name, f"{value:.1f}" if name.endswith("ms") else f"{value:,.0f}"] for name, value in found.items()]
    return markdown(["CAN to zenoh through a gateway", ""], rows)


if __name__ == "__main__":
    print(table(run()))
