"""Events between two processes: `ipc:`, also with a stopped receiver beside, its transport, and datagrams by hand.

A publisher sends small events to one receiver in another process, which says after each 1,000 how many it has; the
publisher is never more than 6,000 ahead, so that nothing is dropped and both processes are measured. *By hand* is a
Unix datagram socket with msgspec at both ends, which has neither types, subscriptions nor numbers. Contestants take
turns; the best of many windows counts, and the median shows how noisy the machine was.
"""

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from bench.timing import goal, markdown
from genus import Event, open_bus
from genus.net._addresses import parse_ipc_address
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sending

WINDOWS, EVENTS = 15, 20_000
AHEAD, EVERY = 6_000, 1_000
ENVELOPE, PAYLOAD = b"e" * 25, msgspec.msgpack.encode({"lane": 3, "speed": 12.5})


class Reading(Event):
    lane: int
    speed: float


class Received(Event):
    count: int


class ByHand(msgspec.Struct):
    lane: int
    speed: float


class Contestant(Protocol):
    """One way to send events to a receiver in another process."""

    received: int

    def send(self, number: int) -> None:
        """Send one event."""


# -- publishers --------------------------------------------------------------------------------------------------------


class TypedBus:
    """`open_bus` and a class of events."""

    def __init__(self, name: str) -> None:
        self.received = 0
        self.bus = open_bus(f"ipc:{name}")
        self.bus.collection(Received).subscribe(self._note)
        self._publish = self.bus.publish

    def _note(self, event: Received) -> None:
        self.received = event.count

    def send(self, number: int) -> None:
        self._publish(Reading(lane=number & 3, speed=12.5))

    def close(self) -> None:
        self.bus.close()


class BareTransport:
    """The transport of `ipc:`, with bytes that are encoded already."""

    def __init__(self, name: str) -> None:
        self.received = 0
        self._transport = IpcTransport(*parse_ipc_address(name))
        self._transport.open(self)
        self._transport.subscribe("received")
        self._put = self._transport.sender("readings/a", Sending()).put

    def send(self, number: int) -> None:
        self._put(PAYLOAD, ENVELOPE)

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.received = int(payload)

    def token(self, key: str, is_present: bool) -> None: ...

    def dropped(self, key: str, count: int, reason: str) -> None: ...

    def connected(self, is_connected: bool) -> None: ...

    def close(self) -> None:
        self._transport.close()


class Datagrams:
    """A Unix datagram socket and msgspec."""

    def __init__(self, name: str) -> None:
        self.received = 0
        self._socket = datagram_socket(f"{name}-back")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._socket.connect(socket_path(name))
        self._encode = msgspec.msgpack.Encoder().encode

    def send(self, number: int) -> None:
        self._socket.send(self._encode(ByHand(number & 3, 12.5)))
        if number % 100 == 99:
            self._note()

    def _note(self) -> None:
        try:
            while True:
                self.received = int(self._socket.recv(100, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass

    def wait(self) -> None:
        self.received = int(self._socket.recv(100))

    def close(self) -> None:
        self._socket.close()


def socket_path(name: str) -> str:
    return str(Path(os.environ["XDG_RUNTIME_DIR"]) / name)


def datagram_socket(name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(socket_path(name))
    return made


# -- receivers, in processes of their own ------------------------------------------------------------------------------


def receive_typed(name: str) -> None:
    count = 0
    with open_bus(f"ipc:{name}?receive_overflow=block") as bus:

        def handle(_: Reading) -> None:
            nonlocal count
            count += 1
            if not count % EVERY:
                bus.publish(Received(count=count))

        bus.collection(Reading).subscribe(handle)
        wait_for_end()


class BareReceiver(BareTransport):
    """Counts packets."""

    def __init__(self, name: str) -> None:
        self._count = 0
        self._transport = IpcTransport(*parse_ipc_address(f"{name}?receive_overflow=block"))
        self._put = self._transport.sender("received", Sending()).put
        self._transport.open(self)
        self._transport.subscribe("readings/*")

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self._count += 1
        if not self._count % EVERY:
            self._put(b"%d" % self._count, b"")


def receive_bare(name: str) -> None:
    receiver = BareReceiver(name)
    wait_for_end()
    receiver.close()


def receive_datagrams(name: str) -> None:
    bound = datagram_socket(name)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    decode = msgspec.msgpack.Decoder(ByHand).decode
    print("ready", flush=True)
    count = 0
    while packet := bound.recv(1 << 16):
        decode(packet)
        count += 1
        if not count % EVERY:
            bound.sendto(b"%d" % count, socket_path(f"{name}-back"))


def wait_for_end() -> None:
    print("ready", flush=True)
    sys.stdin.read()


RECEIVERS = {"typed": receive_typed, "bare": receive_bare, "datagrams": receive_datagrams}


@contextmanager
def receiver(kind: str, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that receives."""
    command = [sys.executable, "-m", "bench.ipc", kind, name]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


# -- measuring ---------------------------------------------------------------------------------------------------------


def rate(contestant: Contestant) -> float:
    """Events a second, in one window."""
    before = contestant.received
    pause: Callable[[], object] = getattr(contestant, "wait", lambda: time.sleep(0.0001))
    began = time.perf_counter()
    for number in range(EVENTS):
        contestant.send(number)
        if not number % 500:
            while number - (contestant.received - before) > AHEAD:
                pause()
    while contestant.received - before < EVENTS:
        pause()
    return EVENTS / (time.perf_counter() - began)


def run() -> dict[str, list[float]]:
    """Events a second of each contestant, by window."""
    with ExitStack() as stack:
        os.environ["XDG_RUNTIME_DIR"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="genus-ipc-"))
        for kind, name in (("typed", "alone"), ("typed", "beside"), ("bare", "bare"), ("datagrams", "hand")):
            stack.enter_context(receiver(kind, name))
        stopped = stack.enter_context(receiver("typed", "beside"))
        typed, beside, bare, hand = TypedBus("alone"), TypedBus("beside"), BareTransport("bare"), Datagrams("hand")
        for each in (typed, beside, bare, hand):
            stack.callback(each.close)
        stopped.send_signal(signal.SIGSTOP)
        contestants: dict[str, Contestant] = {
            "`ipc:`": typed,
            "`ipc:`, a stopped receiver beside": beside,
            "transport, bytes": bare,
            "datagrams and msgspec by hand": hand,
        }
        found: dict[str, list[float]] = {name: [] for name in contestants}
        for window in range(WINDOWS + 1):
            for name, contestant in contestants.items():
                measured = rate(contestant)
                if window:  # what is made with the first events is made now
                    found[name].append(measured)
        return found


def table(found: dict[str, list[float]]) -> str:
    """Rates, and as shares of the first and of the one by hand."""
    rates = {name: max(windows) for name, windows in found.items()}
    ours, hand = rates["`ipc:`"], rates["datagrams and msgspec by hand"]
    shown = {name: f"{each:,.0f}" for name, each in rates.items()}
    shown["`ipc:`"] = goal(shown["`ipc:`"], ours, at_least=150_000)
    rows = [
        [name, shown[name], f"{statistics.median(found[name]):,.0f}", f"{each / ours:.2f}", f"{each / hand:.2f}"]
        for name, each in rates.items()
    ]
    return markdown(["to one receiver", "events/s", "median", "of `ipc:`", "of by hand"], rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        RECEIVERS[sys.argv[1]](sys.argv[2])
    else:
        print(table(run()))
