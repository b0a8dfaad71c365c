"""Frames of other makers on a live bus, beside python-can and cantools.

*By hand* receives with python-can, decodes with cantools and calls the handler in the same thread; Genus has a thread
for handlers, types, subscriptions and filters. Contestants take turns in one process on `virtual`; the best of several
windows counts.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import cantools.database

import can
from bench.timing import goal, markdown
from genus import open_bus

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


def table() -> str:
    """Both, with times of the one by hand."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Bench.dbc"
        path.write_text(DATABASE)
        return _measure(path)


def _measure(path: Path) -> str:
    contestants = {"Genus": _by_genus, "by hand": _by_hand}
    best = dict.fromkeys(contestants, float("inf"))
    for window in range(WINDOWS):
        for name, run in contestants.items():
            best[name] = min(best[name], run(path, f"bench-{window}"))
    ratio = best["Genus"] / best["by hand"]
    ratios = [goal(f"{ratio:.2f}×", ratio, at_most=1.5, unit="×"), "1.00×"]
    rows = [[name, f"{1e6 * best[name]:.1f} µs", times] for name, times in zip(contestants, ratios, strict=True)]
    return markdown(["a frame on a live bus, sending included", "CPU", "× by hand"], rows)


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
    print(table())
