"""Events over zenoh, between two processes on the loopback interface, against programs written by hand.

Each contestant sends the same event with four attributes as fast as it can; all block when zenoh's queue is full, so
that nothing is lost. The rate is what the receiver's handler sees. By hand, the handler is zenoh's callback, which does
less than a bus: it has one key, one handler, no numbers, and blocks zenoh's own thread.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from statistics import median
from typing import Any

import msgspec

from bench.timing import markdown
from genus import Event, UInt8, open_bus
from genus.bus import Bus

COUNT = 60_000
BATCH = 30
WARM = 2_000
TRIPS = 2_000
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
KEY, BACK = "bench/Loop", "bench/back"

Handler = Callable[[], None]


class Arrivals:
    """State: how many events arrived, and when the measuring began and ended."""

    def __init__(self, count: int) -> None:
        self.count, self._seen, self._began = count, 0, 0.0
        self.rate: SimpleQueue[float] = SimpleQueue()

    def add(self) -> None:
        self._seen += 1
        if self._seen == WARM:
            self._began = time.perf_counter()
        elif self._seen == WARM + self.count:
            self.rate.put(self.count / (time.perf_counter() - self._began))


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


ENCODERS: dict[str, Callable[[], bytes]] = {
    "raw": lambda payload=msgspec.msgpack.encode(ROW): payload,  # type: ignore[misc]
    "JSON by hand": lambda: json.dumps(msgspec.structs.asdict(ROW)).encode(),
    "msgspec by hand": lambda encode=msgspec.msgpack.Encoder().encode: encode(ROW),  # type: ignore[misc]
}
DECODERS: dict[str, Callable[[bytes], object]] = {
    "raw": bytes,
    "JSON by hand": lambda payload: Row(**json.loads(payload)),
    "msgspec by hand": msgspec.msgpack.Decoder(Row).decode,
}


def send_by_hand(case: str, port: int, count: int) -> None:
    encode = ENCODERS[case]
    with open_session(port, listens=False) as session:
        put = declare_publisher(session, KEY).put
        for _ in range(count):
            put(encode())
        sys.stdin.readline()


def receive_by_hand(case: str, port: int, arrivals: Arrivals) -> float:
    decode = DECODERS[case]

    def handle(sample: Any) -> None:
        decode(sample.payload.to_bytes())
        arrivals.add()

    with open_session(port, listens=True) as session:
        subscriber = session.declare_subscriber(KEY, handle)
        print("ready", flush=True)
        rate = arrivals.rate.get(timeout=PATIENCE_S)
        subscriber.undeclare()
        return rate


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
    from genus.net._zenoh import ZenohTransport
    from genus.net._zenoh_address import parse_zenoh_address

    reliable = case.endswith("reliable")
    transport = ZenohTransport(parse_zenoh_address(f"bench?port={port}&full=block"))
    transport.open(Counting(Arrivals(1)))
    sender = transport.sender(KEY, Sending(reliable=reliable))
    time.sleep(0.5)  # the subscription is known, and recovers
    payload, envelope = msgspec.msgpack.encode(ROW), b"e" * 25
    for _ in range(count):
        sender.put(payload, envelope)
    sys.stdin.readline()
    transport.close()


def receive_packets(case: str, port: int, arrivals: Arrivals) -> float:
    from genus.net._zenoh import ZenohTransport
    from genus.net._zenoh_address import parse_zenoh_address

    transport = ZenohTransport(parse_zenoh_address(f"bench?port={port}"))
    transport.open(Counting(arrivals))
    transport.subscribe(KEY)
    print("ready", flush=True)
    rate = arrivals.rate.get(timeout=PATIENCE_S)
    transport.close()
    return rate


# -- a bus -------------------------------------------------------------------------------------------------------------


def address(port: int) -> str:
    return f"zenoh:bench?port={port}&full=block"


def wait_for_wants(bus: Bus) -> None:
    while not bus.link.wants():  # type: ignore[union-attr]
        time.sleep(0.01)


def send_events(case: str, port: int, count: int) -> None:
    with open_bus(address(port)) as bus:
        loops = bus.collection(Loop)
        wait_for_wants(bus)
        if case.startswith("batches"):
            many = [EVENT] * BATCH
            for _ in range(count // BATCH + 1):
                loops.publish_all(many)
        else:
            for _ in range(count):
                loops.publish(EVENT)
        sys.stdin.readline()


def receive_events(case: str, port: int, arrivals: Arrivals) -> float:
    with open_bus(address(port)) as bus:
        bus.collection(Loop).subscribe(lambda event: arrivals.add())
        print("ready", flush=True)
        return arrivals.rate.get(timeout=PATIENCE_S)


# -- round trips -------------------------------------------------------------------------------------------------------


def trips(send: Handler, answers: "SimpleQueue[object]") -> float:
    """The median of the times until an answer comes, in microseconds."""
    times = []
    for _ in range(TRIPS):
        began = time.perf_counter()
        send()
        answers.get(timeout=PATIENCE_S)
        times.append(time.perf_counter() - began)
    return median(times[TRIPS // 10 :]) * 1e6


def ask_by_hand(case: str, port: int, _: int) -> None:
    answers: SimpleQueue[object] = SimpleQueue()
    payload = msgspec.msgpack.encode(ROW)
    with open_session(port, listens=False) as session:
        subscriber = session.declare_subscriber(BACK, lambda sample: answers.put(sample.payload.to_bytes()))
        put = declare_publisher(session, KEY).put
        time.sleep(0.3)
        print(trips(lambda: put(payload), answers), flush=True)
        subscriber.undeclare()


def answer_by_hand(case: str, port: int, arrivals: Arrivals) -> float:
    with open_session(port, listens=True) as session:
        asked: SimpleQueue[Any] = SimpleQueue()
        subscriber = session.declare_subscriber(KEY, asked.put)
        print("ready", flush=True)
        put = declare_publisher(session, BACK).put
        for _ in range(TRIPS):
            put(asked.get(timeout=PATIENCE_S).payload.to_bytes())
        sys.stdin.readline()
        subscriber.undeclare()
    return 0.0


class Answer(Event):
    lane: UInt8


def ask_events(case: str, port: int, _: int) -> None:
    answers: SimpleQueue[object] = SimpleQueue()
    with open_bus(address(port)) as bus:
        bus.collection(Answer).subscribe(answers.put)
        loops = bus.collection(Loop)
        wait_for_wants(bus)
        time.sleep(0.5)
        print(trips(lambda: loops.publish(EVENT), answers), flush=True)


def answer_events(case: str, port: int, arrivals: Arrivals) -> float:
    with open_bus(address(port)) as bus:
        answers = bus.collection(Answer)
        bus.collection(Loop).subscribe(lambda event: answers.publish(Answer(lane=event.lane)))
        print("ready", flush=True)
        sys.stdin.readline()
    return 0.0


# -- taking turns ------------------------------------------------------------------------------------------------------

RATES: dict[str, tuple[Callable[[str, int, int], None], Callable[[str, int, Arrivals], float]]] = {
    "raw": (send_by_hand, receive_by_hand),
    "JSON by hand": (send_by_hand, receive_by_hand),
    "msgspec by hand": (send_by_hand, receive_by_hand),
    "packets with envelope": (send_packets, receive_packets),
    "packets with envelope, reliable": (send_packets, receive_packets),
    "typed": (send_events, receive_events),
    f"batches of {BATCH}": (send_events, receive_events),
}
ROUND_TRIPS = {"raw": (ask_by_hand, answer_by_hand), "typed": (ask_events, answer_events)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(role: str, case: str, port: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.zenoh", role, case, str(port), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def pair(kind: str, case: str, count: int) -> float:
    """Run a sender and a receiver; returns what the receiver (a rate) or the sender (a round trip) measured."""
    port = free_port()
    with start(f"{kind}-receive", case, port, count) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline().strip() == "ready"
        with start(f"{kind}-send", case, port, count) as sender:
            measuring = receiver if kind == "rate" else sender
            assert measuring.stdout is not None
            return float(measuring.stdout.readline())


def run(rounds: int = ROUNDS) -> tuple[dict[str, float], dict[str, float]]:
    """Events per second, and microseconds of round trips: the best of some rounds."""
    rates, times = dict.fromkeys(RATES, 0.0), dict.fromkeys(ROUND_TRIPS, float("inf"))
    for _ in range(rounds):
        for case in RATES:
            count = COUNT * 5 if case.startswith("batches") else COUNT
            rates[case] = max(rates[case], pair("rate", case, count))
        for case in ROUND_TRIPS:
            times[case] = min(times[case], pair("trip", case, 0))
    return rates, times


def table(found: tuple[dict[str, float], dict[str, float]]) -> str:
    """Both tables."""
    rates, times = found
    by = ("raw", "msgspec by hand", "JSON by hand")
    rows = [[case, f"{rate:,.0f}", *(f"{rate / rates[other]:.2f}" for other in by)] for case, rate in rates.items()]
    trips_ = [[case, f"{us:,.0f} µs", f"{us / times['raw']:.2f}"] for case, us in times.items()]
    return "\n\n".join(
        [
            markdown(["sent as", "events/s", *(f"× {other}" for other in by)], rows),
            markdown(["round trip", "median", "× raw"], trips_),
        ]
    )


def main(role: str, case: str, port: str, count: str) -> None:
    """A sender or a receiver of its own."""
    kind, _, side = role.partition("-")
    send, receive = (RATES if kind == "rate" else ROUND_TRIPS)[case]
    if side == "send":
        send(case, int(port), WARM + int(count))
    else:
        rate = receive(case, int(port), Arrivals(int(count)))
        print(rate, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        print(table(run()))
