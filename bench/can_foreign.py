"""Frames of other makers on a live bus: how many become events, and what that costs beside python-can and cantools.

A device in another process sends frames of a database over `udp_multicast` at a given rate, one in ten too short for
its message. Every frame must be an event or counted with its reason. *By hand* receives with python-can, decodes with
cantools and calls the handler in the same thread; Genus has a thread for handlers, types, subscriptions and filters.
Contestants take turns in one process on `virtual`; the best of several windows counts.
"""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cantools.database

import can
from bench.timing import markdown
from genus import open_bus

GROUP = "239.74.163.12"
RATES, SECONDS = (1_000, 5_000, 8_000), 4
WINDOWS, FRAMES = 5, 5_000

DATABASE = """VERSION ""
NS_ :
BS_:
BU_: Ecu Dash

BO_ 256 Drive: 8 Ecu
 SG_ speed : 0|16@1+ (0.01,0) [0|0] "km/h" Dash
 SG_ torque : 23|16@0- (0.5,-100) [0|0] "Nm" Dash
 SG_ gear : 32|4@1- (1,0) [0|0] "" Dash
 SG_ mode : 36|4@1+ (1,0) [0|0] "" Dash

VAL_ 256 mode 0 "off" 1 "eco" 2 "sport" ;
"""

SENDER = f"""
import sys, time
import can
port, frames, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with can.Bus(interface="udp_multicast", channel="{GROUP}", port=port, hop_limit=0) as bus:
    begin = time.monotonic()
    for number in range(frames):
        left = begin + number / rate - time.monotonic()
        if left > 0.001:
            time.sleep(left)
        data = number.to_bytes(4, "little") + bytes(4)
        bus.send(can.Message(arbitration_id=256, data=data[: 8 if number % 10 else 3], is_extended_id=False))
    print(time.monotonic() - begin)
"""


def main() -> str:
    """Both tables as text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Bench.dbc"
        path.write_text(DATABASE)
        return "\n\n".join([_between_processes(path), _beside_cantools(path)])


def _between_processes(path: Path) -> str:
    head = ["frames sent", "frames/s", "events", "too short, counted", "lost by the socket, counted", "missing"]
    return markdown(head, [_send(path, rate) for rate in RATES])


def _send(path: Path, rate: int) -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    events, frames = 0, rate * SECONDS

    def handle(event: object) -> None:
        nonlocal events
        events += 1

    with open_bus(f"can:udp_multicast?channel={GROUP}&port={port}&hop_limit=0&database={path}") as bus:
        bus.subscribe("Drive", handle)
        arguments = [sys.executable, "-c", SENDER, str(port), str(frames), str(rate)]
        took = float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
        short = _settle(bus, lambda: events)
        lost = sum(times for what, times in bus.traffic().link.items() if what.startswith("lost"))
    missing = frames - events - short - lost
    return [f"{frames:,}", f"{frames / took:,.0f}", f"{events:,}", f"{short:,}", f"{lost:,}", f"{missing:,}"]


def _settle(bus: Any, events: Any) -> int:
    """Wait until nothing more comes; returns how many frames were counted as too short."""
    seen = -1
    while seen != (seen := events() + _too_short(bus)):
        time.sleep(0.5)
    return _too_short(bus)


def _too_short(bus: Any) -> int:
    return sum(times for reason, times in bus.traffic().link.items() if "too short" in reason)


def _beside_cantools(path: Path) -> str:
    contestants = {"Genus": _by_genus, "python-can and cantools by hand": _by_hand}
    best = dict.fromkeys(contestants, float("inf"))
    for window in range(WINDOWS):
        for name, run in contestants.items():
            best[name] = min(best[name], run(path, f"bench-{window}"))
    rows = [[name, f"{1e6 * best[name]:.1f}", f"{best[name] / best['Genus']:.2f}"] for name in contestants]
    return markdown(["received by", "µs of CPU per frame, sending included", "times Genus"], rows)


def _message(number: int) -> can.Message:
    return can.Message(arbitration_id=256, data=number.to_bytes(8, "little"), is_extended_id=False)


def _by_genus(path: Path, channel: str) -> float:
    events = 0

    def handle(event: object) -> None:
        nonlocal events
        events += 1

    address = f"can:virtual?channel={channel}&database={path}"
    with can.Bus(interface="virtual", channel=channel) as device, open_bus(address) as bus:
        bus.subscribe("Drive", handle)
        begin = time.process_time()
        for number in range(FRAMES):
            device.send(_message(number))
        while events < FRAMES:
            time.sleep(0.001)
        return (time.process_time() - begin) / FRAMES


def _by_hand(path: Path, channel: str) -> float:
    database: Any = cantools.database.load_file(path)
    events = 0
    with can.Bus(interface="virtual", channel=channel) as device, can.Bus(interface="virtual", channel=channel) as bus:
        begin = time.process_time()
        for number in range(FRAMES):
            device.send(_message(number))
        while events < FRAMES:
            message = bus.recv(1)
            assert message is not None
            database.decode_message(message.arbitration_id, message.data)
            events += 1
        return (time.process_time() - begin) / FRAMES


if __name__ == "__main__":
    print(main())
