"""Two processes: the same program, with the address of a bus between processes. No server is needed."""

import os
import subprocess
import sys

from genus import Event, open_bus


class Ping(Event):
    number: int


class Pong(Event):
    number: int
    process: int


def answer(address: str) -> None:
    """The other process: answers every ping, until one with the number 0."""
    with open_bus(address) as bus:
        pings = bus.collection(Ping).inbox()
        bus.publish(Pong(number=-1, process=os.getpid()))  # says that it is there
        for ping in pings:
            if ping.number == 0:
                break
            bus.publish(Pong(number=ping.number, process=os.getpid()))


def main() -> None:
    address = f"ipc:example-{os.getpid()}"
    with open_bus(address) as bus:
        pongs = bus.collection(Pong).inbox()
        other = subprocess.Popen([sys.executable, __file__, address])
        assert pongs.get(timeout=30).process == other.pid != os.getpid()
        for number in (1, 2, 3):
            bus.publish(Ping(number=number))
            print("answer", pongs.get(timeout=30).number, "from another process")
        bus.publish(Ping(number=0))
        other.wait(timeout=30)


if __name__ == "__main__":
    answer(sys.argv[1]) if len(sys.argv) > 1 else main()
