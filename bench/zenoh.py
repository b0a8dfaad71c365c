"""Events over zenoh, between two processes on the loopback interface, against programs written by hand.

Each contestant sends the same event with four attributes as fast as it can; all block when zenoh's queue is full, so
that nothing is lost. The rate is from the first publish to the last call of the receiver's handler; beside it, the CPU
time per event at both ends, zenoh's threads included, which other programs on the machine disturb less. By hand, the
handler is zenoh's callback, which does less than a bus: it has one key, one handler and no numbers. zenoh calls it in a
thread of the subscriber; called within zenoh's own thread (`indirect=False`), it is slower.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bench.timing import goal, markdown
from genus import Event, UInt8, open_bus
from genus.bus import Bus

COUNT = 60_000
BATCH = 30
WARM = 2_000
ROUNDS = 5
PATIENCE_S = 60


class Loop(Event):
    lane: UInt8
    speed: float
    category: str


class Row(msgspec.Struct):
    """The same event by hand."""

    place: str
    lane: int
    speed: float
    category: str


ROW = Row("A8/km31", 2, 27.5, "truck")
EVENT = Loop(place="A8/km31", lane=2, speed=27.5, category="truck")
PAYLOAD = msgspec.msgpack.encode(ROW)
KEY = "bench/Loop"
_encode = msgspec.msgpack.Encoder().encode

Done: TypeAlias = tuple[float, float]


class Arrivals:
    """State: how many events arrived; gives the time of the last one, and the CPU time, in µs, for each of them."""

    def __init__(self, count: int) -> None:
        self.count, self._seen, self._cpu = count, 0, 0.0
        self.done: SimpleQueue[tuple[float, float]] = SimpleQueue()

    def add(self) -> None:
        self._seen += 1
        if self._seen == WARM:
            self._cpu = time.process_time()
        elif self._seen == WARM + self.count:
            self.done.put((time.monotonic(), (time.process_time() - self._cpu) / self.count * 1e6))

    def wait(self) -> tuple[float, float]:
        return self.done.get(timeout=PATIENCE_S)


def send(put: Callable[[], object], times: int, events: int) -> None:
    """Call `put` so many times, first to warm up; tells the time of the first, and the CPU time for each event."""
    for _ in range(WARM // events + 1):
        put()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(times // events):
        put()
    print(began, (time.process_time() - cpu) / times * 1e6, flush=True)
    sys.stdin.readline()


# -- by hand -----------------------------------------------------------------------------------------------------------


def open_session(port: int, listens: bool) -> Any:
    import zenoh

    config = zenoh.Config()
    ends = {"listen/endpoints" if listens else "connect/endpoints": [f"tcp/127.0.0.1:{port}"]}
    if not listens:
        ends["listen/endpoints"] = []
    for name, value in {"scouting/multicast/enabled": False, "transport/shared_memory/enabled": False, **ends}.items():
        config.insert_json5(name, json.dumps(value))
    return zenoh.open(config)


def declare_publisher(session: Any, key: str) -> Any:
    import zenoh

    publisher = session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
    while not publisher.matching_status.matching:
        time.sleep(0.01)
    return publisher


IN_ZENOHS_THREAD = "raw, called in zenoh's thread"
ENCODERS: dict[str, Callable[[], bytes]] = {
    "raw": lambda: PAYLOAD,
    IN_ZENOHS_THREAD: lambda: PAYLOAD,
    "JSON by hand": lambda: json.dumps(msgspec.structs.asdict(ROW)).encode(),
    "msgspec by hand": lambda: _encode(ROW),
}
DECODERS: dict[str, Callable[[bytes], object]] = {
    "raw": bytes,
    IN_ZENOHS_THREAD: bytes,
    "JSON by hand": lambda payload: Row(**json.loads(payload)),
    "msgspec by hand": msgspec.msgpack.Decoder(Row).decode,
}


def send_by_hand(case: str, port: int, count: int) -> None:
    encode = ENCODERS[case]
    with open_session(port, listens=False) as session:
        put = declare_publisher(session, KEY).put
        send(lambda: put(encode()), count, 1)


def receive_by_hand(case: str, port: int, arrivals: Arrivals) -> Done:
    from zenoh.handlers import Callback

    decode = DECODERS[case]

    def handle(sample: Any) -> None:
        decode(sample.payload.to_bytes())
        arrivals.add()

    with open_session(port, listens=True) as session:
        subscriber = session.declare_subscriber(KEY, Callback(handle, indirect=case != IN_ZENOHS_THREAD))
        print("ready", flush=True)
        done = arrivals.wait()
        subscriber.undeclare()
        return done


# -- the transport alone -----------------------------------------------------------------------------------------------


class Counting:
    """A receiver that counts packets."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._add = arrivals.add

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self._add()

    def token(self, key: str, is_present: bool) -> None: ...

    def dropped(self, key: str, count: int, reason: str) -> None: ...

    def connected(self, is_connected: bool) -> None: ...


def send_packets(case: str, port: int, count: int) -> None:
    from genus.net import Sending
    from genus.net._addresses import parse_zenoh_address
    from genus.net._zenoh_transport import ZenohTransport

    reliable = case.endswith("reliable")
    transport = ZenohTransport(parse_zenoh_address(f"bench?port={port}&overflow=block"))
    transport.open(Counting(Arrivals(1)))
    sender = transport.sender(KEY, Sending(reliable=reliable))
    time.sleep(0.5)  # the subscription is known, and recovers
    payload, envelope = msgspec.msgpack.encode(ROW), b"e" * 25
    send(lambda: sender.put(payload, envelope), count, 1)
    transport.close()


def receive_packets(case: str, port: int, arrivals: Arrivals) -> Done:
    from genus.net._addresses import parse_zenoh_address
    from genus.net._zenoh_transport import ZenohTransport

    transport = ZenohTransport(parse_zenoh_address(f"bench?port={port}"))
    transport.open(Counting(arrivals))
    transport.subscribe(KEY)
    print("ready", flush=True)
    done = arrivals.wait()
    transport.close()
    return done


# -- a bus -------------------------------------------------------------------------------------------------------------


def address(port: int) -> str:
    return f"zenoh:bench?port={port}&overflow=block"


def wait_for_wants(bus: Bus) -> None:
    while not bus.link.interests():  # type: ignore[union-attr]
        time.sleep(0.01)


def send_events(case: str, port: int, count: int) -> None:
    with open_bus(address(port)) as bus:
        loops = bus.collection(Loop)
        wait_for_wants(bus)
        if case.startswith("batches"):
            many = [EVENT] * BATCH
            send(lambda: loops.publish_all(many), count, BATCH)
        else:
            send(lambda: loops.publish(EVENT), count, 1)


def receive_events(case: str, port: int, arrivals: Arrivals) -> Done:
    with open_bus(address(port)) as bus:
        bus.collection(Loop).subscribe(lambda event: arrivals.add())
        print("ready", flush=True)
        return arrivals.wait()


# -- taking turns ------------------------------------------------------------------------------------------------------

RATES: dict[str, tuple[Callable[[str, int, int], None], Callable[[str, int, Arrivals], Done]]] = {
    "raw": (send_by_hand, receive_by_hand),
    IN_ZENOHS_THREAD: (send_by_hand, receive_by_hand),
    "JSON by hand": (send_by_hand, receive_by_hand),
    "msgspec by hand": (send_by_hand, receive_by_hand),
    "packets with envelope": (send_packets, receive_packets),
    "packets with envelope, reliable": (send_packets, receive_packets),
    "typed": (send_events, receive_events),
    f"batches of {BATCH}": (send_events, receive_events),
}

GOALS = {("typed", "raw"): 0.5, ("typed", "msgspec by hand"): 0.8, (f"batches of {BATCH}", "raw"): 2.0}
"""The least rates, as shares of others."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(role: str, case: str, port: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.zenoh", role, case, str(port), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


class Rate(NamedTuple):
    """Events per second, and microseconds of CPU time for each at the sender and at the receiver."""

    rate: float
    sender_us: float
    receiver_us: float


def measure_rate(case: str) -> Rate:
    """Run a receiver and a sender."""
    count = COUNT * 5 if case.startswith("batches") else COUNT
    port = free_port()
    with start("receive", case, port, count) as receiver:
        assert answer(receiver) == ["ready"]
        with start("send", case, port, count) as sender:
            began, sender_us = map(float, answer(sender))
            ended, receiver_us = map(float, answer(receiver))
            return Rate(count / (ended - began), sender_us, receiver_us)


def answer(process: "subprocess.Popen[str]") -> list[str]:
    """The next line that a process prints, in words."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def table(rounds: int = ROUNDS) -> str:
    """The best rates of some rounds."""
    rates = dict.fromkeys(RATES, Rate(0.0, 1e9, 1e9))
    for _ in range(rounds):
        for case, best in rates.items():
            now = measure_rate(case)
            rates[case] = Rate(max(best[0], now[0]), min(best[1], now[1]), min(best[2], now[2]))
    rows = []
    for case, each in rates.items():
        cells = []
        for other in ("raw", "msgspec by hand"):
            ratio = each.rate / rates[other].rate
            least = GOALS.get((case, other))
            cells.append(f"{ratio:.2f}" if least is None else goal(f"{ratio:.2f}", ratio, at_least=least))
        rows.append([case, f"{each.rate:,.0f}", *cells, f"{each.sender_us:.1f} µs", f"{each.receiver_us:.1f} µs"])
    return markdown(["sent as", "events/s", "× raw", "× msgspec by hand", "CPU, sender", "CPU, receiver"], rows)


def play(role: str, case: str, port: str, count: str) -> None:
    """Be a sender or a receiver of its own."""
    sending, receiving = RATES[case]
    if role == "send":
        sending(case, int(port), int(count))
    else:
        print(*receiving(case, int(port), Arrivals(int(count))), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        play(*sys.argv[1:])
    else:
        print(table())
