"""Processes on an `ipc:` bus that are slow, stopped, killed, or start at the same moment."""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._addresses import parse_ipc_address
from genus.net._ipc.connections import ipc_folder
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sender, Sending
from tests.net.ipc_process import Process
from tests.net.recording_receiver import RecordingReceiver
from tests.waiting import wait_for

Start = Callable[..., Process]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def make(bus: str = "test", pattern: str = "a/**", seconds: float = 0.0) -> Process:
        started.append(Process(bus, pattern, seconds))
        return started[-1]

    yield make
    for process in started:
        process.popen.send_signal(signal.SIGCONT)
        process.end()


@pytest.fixture
def opened() -> Iterator[Callable[..., tuple[IpcTransport, RecordingReceiver]]]:
    made: list[IpcTransport] = []

    def make(options: str = "") -> tuple[IpcTransport, RecordingReceiver]:
        transport, receiver = IpcTransport(*parse_ipc_address(f"test?{options}")), RecordingReceiver()
        made.append(transport)
        transport.open(receiver)
        return transport, receiver

    yield make
    for transport in made:
        transport.close()


Opened = Callable[..., tuple[IpcTransport, RecordingReceiver]]


def publish(sender: Sender, numbers: range, size: int = 40) -> None:
    for number in numbers:
        sender.put(number.to_bytes(8) + bytes(size - 8), b"e" * 25)


def test_a_slow_receiver_and_a_stopped_one_cost_a_quick_one_nothing(start: Start, opened: Opened) -> None:
    """The quick one gets all, in a fraction of the time that the slow one takes for its packets."""
    transport, told = opened()
    slow, stopped, quick = start(seconds=0.2), start(), start("test?receive_overflow=block")
    for process in (slow, stopped, quick):
        process.wait_until_ready()
    stopped.popen.send_signal(signal.SIGSTOP)
    sender = transport.sender("a/b", Sending())
    for first in range(0, 30_000, 5_000):
        publish(sender, range(first, first + 5_000), 400)
        wait_for(lambda end=first + 5_000: quick.ask()[0] == end)  # type: ignore[misc]
    assert quick.ask() == (30_000, 0, 29_999)
    assert slow.ask()[0] < 3_000
    told.wait(lambda: told.losses["a/b"] > 2 * (30_000 - 2 * 10_000 - 6_000))
    stopped.popen.send_signal(signal.SIGCONT)
    wait_for(lambda: stopped.ask()[2] == 29_999)  # it has the newest
    assert stopped.ask()[0] >= 10_000
    assert told.reasons == {"the queue for a receiver is full", "the mailbox of a receiver is full"}


def test_every_packet_arrives_at_a_stopped_receiver_or_is_told(start: Start, opened: Opened) -> None:
    transport, told = opened()
    stopped = start("test?receive_overflow=block").wait_until_ready()
    stopped.popen.send_signal(signal.SIGSTOP)
    publish(transport.sender("a/b", Sending()), range(50_000))
    told.wait(lambda: told.losses["a/b"] > 0)
    stopped.popen.send_signal(signal.SIGCONT)
    wait_for(lambda: stopped.ask()[0] + told.losses["a/b"] == 50_000)
    count, missing, last = stopped.ask()
    assert (missing, last) == (50_000 - count, 49_999)


def test_opening_subscribing_and_closing_do_not_wait_for_a_stopped_process(start: Start, opened: Opened) -> None:
    stopped = start().wait_until_ready()
    transport, _ = opened()
    stopped.popen.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    for number in range(100):
        transport.subscribe(f"b/{number}")
    other, got = opened()
    for number in range(100):
        other.subscribe(f"b/{number}")
    transport.sender("b/7", Sending()).put(b"1", b"")
    got.wait_for(1)
    for number in range(1000):
        transport.sender("a/b", Sending()).put(bytes(10_000) + b"%d" % number, b"")
    transport.close()
    assert time.monotonic() - started < 10  # each of them would have waited for two seconds


def test_a_receiver_that_is_killed_in_the_middle_is_forgotten(start: Start, opened: Opened) -> None:
    transport, got = opened("overflow=block&capacity=100")
    transport.watch("here/**")
    killed, other = start("test?receive_overflow=block", seconds=0.001), start("test?receive_overflow=block")
    for process in (killed, other):
        process.wait_until_ready()
    got.wait(lambda: len(got.tokens) == 2)
    sender = transport.sender("a/b", Sending())
    publish(sender, range(3_000), 4_000)
    killed.end()
    publish(sender, range(3_000, 6_000), 4_000)
    wait_for(lambda: other.ask() == (6_000, 0, 5_999))
    got.wait(lambda: len(got.tokens) == 1)
    wait_for(lambda: len(os.listdir(ipc_folder("test"))) == 2)


def test_sockets_of_dead_processes_are_removed(opened: Opened) -> None:
    first, _ = opened()
    for name in ("1-dead", "2-dead"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(ipc_folder("test") / name))
    (ipc_folder("test") / "notes.txt").write_text("no socket")
    second, got = opened()
    second.subscribe("a")
    first.sender("a", Sending()).put(b"1", b"")
    got.wait_for(1)
    assert {path.suffix for path in ipc_folder("test").iterdir() if not path.is_socket()} == {".txt"}
    assert sum(path.is_socket() for path in ipc_folder("test").iterdir()) == 2


def test_twenty_processes_that_open_at_the_same_moment_find_each_other(start: Start, opened: Opened) -> None:
    """One connection for each pair: a packet of each reaches each other one once, and tokens of all are seen."""
    transport, got = opened()
    transport.subscribe("counted/*")
    transport.watch("here/**")
    swarm = start("swarm", "test", 20)
    got.wait(lambda: len(got.tokens) == 20)
    publish(transport.sender("a/b", Sending()), range(10))
    got.wait_for(200)
    assert Counter(key for key, _, _ in got.packets) == {f"counted/{token[5:]}": 10 for token in got.tokens}
    late, seen = opened()
    late.watch("here/**")
    assert seen.tokens == got.tokens
    for token in list(seen.tokens)[:10]:
        os.kill(int(token.partition("/")[2].partition("-")[0]), signal.SIGKILL)
    seen.wait(lambda: len(seen.tokens) == 10)
    publish(late.sender("a/c", Sending()), range(10))
    got.wait_for(300)
    swarm.popen.communicate()
    got.wait(lambda: not got.tokens)


def test_a_child_process_does_not_use_its_parents_connections(start: Start, opened: Opened) -> None:
    """It can neither publish nor disturb the parent when it closes; it may open the bus itself."""
    transport, _ = opened()
    sender = transport.sender("a/b", Sending())
    receiver = start().wait_until_ready()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        answer = b"?"
        try:
            sender.put((7).to_bytes(8), b"")
        except BusError:
            transport.close()
            own = IpcTransport("test")
            own.open(RecordingReceiver())
            own.sender("a/b", Sending()).put((0).to_bytes(8), b"")
            own.close()
            answer = b"closed"
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"closed"
    os.close(reading)
    os.close(writing)
    wait_for(lambda: receiver.ask() == (1, 0, 0))
    sender.put((1).to_bytes(8), b"")
    wait_for(lambda: receiver.ask() == (2, 0, 1))
