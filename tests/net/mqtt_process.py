"""Processes on `mqtt:` buses that tests kill: `python -m tests.net.mqtt_process ROLE ADDRESS ...`.

`handle ADDRESS FILE SECONDS` subscribes to numbers and writes each to the file when its handler runs, which takes so
long; `lost N` is written for what it is told. `show ADDRESS COUNT` opens so many buses that subscribe to questions.
Both print `ready`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from genus import Event, Maybe, UInt32, open_bus
from genus.net import EventsLost

ROOT = Path(__file__).parents[2]


class KillNumber(Event):
    number: int


class KillQuestion(Event):
    request: Maybe[UInt32] = None


class KillAnswer(Event):
    request: UInt32 = 0


class Process:
    """Such a process, from outside; it is ready when this returns."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.net.mqtt_process", *map(str, arguments)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()


def handle(address: str, path: str, seconds: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def on_number(event: KillNumber) -> None:
        os.write(file, f"{event.number}\n".encode())
        time.sleep(float(seconds))

    def on_problem(problem: object) -> None:
        if isinstance(problem, EventsLost):
            os.write(file, f"lost {problem.count}\n".encode())

    bus = open_bus(address)
    bus.collection(KillNumber).subscribe(on_number, on_problem=on_problem)
    print("ready", flush=True)
    sys.stdin.read()
    bus.close()


def show(address: str, count: str) -> None:
    buses = [open_bus(address) for _ in range(int(count))]
    for bus in buses:
        bus.collection(KillQuestion).subscribe(lambda event: None)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"handle": handle, "show": show}
    roles[sys.argv[1]](*sys.argv[2:])
