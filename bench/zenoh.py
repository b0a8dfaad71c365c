"""Events over zenoh, between two processes on the loopback interface, against programs written by hand.

Each contestant sends the same event with four attributes as fast as it can; all block when zenoh's queue is full, so
that nothing is lost. The rate is from the first publish to the last call of the receiver's handler; beside it, the CPU
time per event at both ends, zenoh's threads included, which other programs on the machine disturb less. By hand, the
handler is zenoh's callback, which does less than a bus: it has one key, one handler and no numbers. zenoh calls it in a
thread of the subscriber; called within zenoh's own thread (`indirect=False`), it is slower.

`python -m bench.zenoh --only rates` makes one of the tables: rates, trips, subscriptions, order, handlers.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate
from queue import SimpleQueue
from statistics import median
from typing import Any, NamedTuple, TypeAlias

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
PAYLOAD = msgspec.msgpack.encode(ROW)
KEY, BACK = "bench/Loop", "bench/back"
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


# -- round trips -------------------------------------------------------------------------------------------------------


def trips(ask: Callable[[], object], answers: "SimpleQueue[object]") -> float:
    """The median of the times until an answer comes, in microseconds."""
    times = []
    for _ in range(TRIPS):
        began = time.perf_counter()
        ask()
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


def answer_by_hand(case: str, port: int, arrivals: Arrivals) -> Done:
    with open_session(port, listens=True) as session:
        asked: SimpleQueue[Any] = SimpleQueue()
        subscriber = session.declare_subscriber(KEY, asked.put)
        print("ready", flush=True)
        put = declare_publisher(session, BACK).put
        for _ in range(TRIPS):
            put(asked.get(timeout=PATIENCE_S).payload.to_bytes())
        sys.stdin.readline()
        subscriber.undeclare()
    return 0.0, 0.0


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


def answer_events(case: str, port: int, arrivals: Arrivals) -> Done:
    with open_bus(address(port)) as bus:
        answers = bus.collection(Answer)
        bus.collection(Loop).subscribe(lambda event: answers.publish(Answer(lane=event.lane)))
        print("ready", flush=True)
        sys.stdin.readline()
    return 0.0, 0.0


# -- subscriptions -----------------------------------------------------------------------------------------------------

SUBSCRIPTIONS = 300


def look_on(case: str, port: int, _: int) -> None:
    """Take part, so that all that subscribers say has somebody who hears it."""
    with open_bus(address(port)):
        print("ready", flush=True)
        sys.stdin.readline()


def measure_subscriptions() -> dict[str, float]:
    """Seconds for so many subscriptions while another process takes part."""
    types = [type(f"Type{number}", (Event,), {"__annotations__": {"lane": int}}) for number in range(SUBSCRIPTIONS)]
    port = free_port()
    found = {}
    with start("look-on", "", port, 0) as other:
        assert answer(other) == ["ready"]
        for what in ("types", "predicates"):
            with open_bus(address(port)) as bus:
                while not bus.link.participants():  # type: ignore[union-attr]
                    time.sleep(0.01)
                began = time.perf_counter()
                for number, cls in enumerate(types):
                    if what == "types":
                        bus.collection(cls).subscribe(lambda event: None)
                    else:
                        bus.collection(Loop).subscribe(lambda event: None, where=f"speed > {number}")
                found[what] = time.perf_counter() - began
    return found


# -- order -------------------------------------------------------------------------------------------------------------

ORDERED = 20_000


class First(Event):
    number: int


class Second(Event):
    number: int


class Third(Event):
    number: int


KINDS = (First, Second, Third)


def send_in_turn(case: str, port: int, count: int) -> None:
    """Publish events of three types, or raw bytes under three keys, by one thread."""
    if case == "typed":
        with open_bus(address(port)) as bus:
            while len(bus.link.interests()) < len(KINDS):  # type: ignore[union-attr]
                time.sleep(0.01)
            print("ready", flush=True)
            for number in range(count):
                bus.publish(KINDS[number % 3](number=number))
            sys.stdin.readline()
        return
    with open_session(port, listens=False) as session:
        puts = [declare_publisher(session, f"{KEY}/{each}").put for each in range(3)]
        print("ready", flush=True)
        for number in range(count):
            puts[number % 3](b"%d" % number)
        sys.stdin.readline()


def measure_order(case: str) -> int:
    """How many events arrive after one that was published later, of those of one thread."""
    from zenoh.handlers import Callback

    port, got = free_port(), list[int]()
    with ExitStack() as stack:
        if case == "typed":
            bus = stack.enter_context(open_bus(address(port)))
            for cls in KINDS:
                bus.collection(cls).subscribe(lambda event: got.append(event.number))  # type: ignore[attr-defined]
        else:
            session = stack.enter_context(open_session(port, listens=True))
            for each in range(3):
                handle: Any = Callback(
                    lambda sample: got.append(int(sample.payload.to_bytes())), indirect=case == "raw"
                )
                session.declare_subscriber(f"{KEY}/{each}", handle)
        sender = stack.enter_context(start("order-send", case, port, ORDERED))
        assert answer(sender) == ["ready"]
        give_up = time.monotonic() + PATIENCE_S
        while len(got) < ORDERED and time.monotonic() < give_up:
            time.sleep(0.01)
        sender.communicate("")
    newest = list(accumulate(got, max))
    return sum(number < before for number, before in zip(got[1:], newest[:-1], strict=True)) + ORDERED - len(got)


# -- handlers ----------------------------------------------------------------------------------------------------------


def handler_of(case: str, bus: Bus) -> Callable[[Any], object]:
    """A handler that does something beside counting."""
    answers = bus.collection(Answer)
    blocks = iter([5.0])
    return {
        "counts": lambda event: None,
        "sleeps 1 ms": lambda event: time.sleep(0.001),
        "publishes": lambda event: answers.publish(Answer(lane=1)),
        "subscribes": lambda event: bus.collection(First).subscribe(lambda event: None).cancel(),
        "blocks once for 5 s": lambda event: time.sleep(next(blocks, 0)),
    }[case]


HANDLERS = ("counts", "sleeps 1 ms", "publishes", "subscribes", "blocks once for 5 s")
HANDLED = 5_000


def send_slowly(case: str, port: int, count: int) -> None:
    """Publish so many events at 10,000/s, without waiting for anybody; another subscriber counts them."""
    with open_bus(f"zenoh:bench?port={port}") as bus, open_bus(f"zenoh:bench?port={port}") as other:
        got: list[float] = []
        other.collection(Loop).subscribe(lambda event: got.append(time.monotonic()))
        while len({interest.speaker for interest in bus.link.interests()}) < 2:  # type: ignore[union-attr]
            time.sleep(0.01)
        time.sleep(0.5)
        began = time.monotonic()
        for number in range(count):
            while time.monotonic() < began + number / 10_000:
                pass
            bus.publish(EVENT)
        while len(got) < count and time.monotonic() < began + PATIENCE_S:
            time.sleep(0.01)
        print(len(got), got[-1] - began, flush=True)
        sys.stdin.readline()


class Handled(NamedTuple):
    """What became of events: handled, told as lost, seconds until all were; and seconds until a bus beside had all."""

    handled: int
    lost: int
    seconds: float
    others: int
    others_s: float


def measure_handler(case: str) -> Handled:
    port = free_port()
    seen, lost = [0], [0]
    with open_bus(f"zenoh:bench?port={port}") as bus:
        handle = handler_of(case, bus)

        def count(event: Loop) -> None:
            handle(event)
            seen[0] += 1

        def lose(trouble: Any) -> None:
            lost[0] += trouble.count

        bus.collection(Loop).subscribe(count, on_problem=lose)
        with start("handler-send", case, port, HANDLED) as sender:
            began = time.monotonic()
            others, others_s = map(float, answer(sender))
            while seen[0] + lost[0] < HANDLED and time.monotonic() < began + PATIENCE_S:
                time.sleep(0.01)
            return Handled(seen[0], lost[0], time.monotonic() - began, int(others), others_s)


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
ROUND_TRIPS = {"raw": (ask_by_hand, answer_by_hand), "typed": (ask_events, answer_events)}


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
    with start("rate-receive", case, port, count) as receiver:
        assert answer(receiver) == ["ready"]
        with start("rate-send", case, port, count) as sender:
            began, sender_us = map(float, answer(sender))
            ended, receiver_us = map(float, answer(receiver))
            return Rate(count / (ended - began), sender_us, receiver_us)


def measure_trip(case: str) -> float:
    """Run one that answers and one that asks; the median of its round trips."""
    port = free_port()
    with start("trip-receive", case, port, 0) as answerer:
        assert answer(answerer) == ["ready"]
        with start("trip-send", case, port, 0) as asker:
            return float(answer(asker)[0])


def answer(process: "subprocess.Popen[str]") -> list[str]:
    """The next line that a process prints, in words."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def rates_table(rounds: int) -> str:
    """The best rates of some rounds."""
    rates = dict.fromkeys(RATES, Rate(0.0, 1e9, 1e9))
    for _ in range(rounds):
        for case, best in rates.items():
            now = measure_rate(case)
            rates[case] = Rate(max(best[0], now[0]), min(best[1], now[1]), min(best[2], now[2]))
    rows = [
        [
            case,
            f"{each.rate:,.0f}",
            f"{each.rate / rates['msgspec by hand'].rate:.2f}",
            f"{each.sender_us:.1f} µs",
            f"{each.receiver_us:.1f} µs",
        ]
        for case, each in rates.items()
    ]
    return markdown(["sent as", "events/s", "× msgspec by hand", "CPU, sender", "CPU, receiver"], rows)


def trips_table(rounds: int) -> str:
    """The best medians of some rounds."""
    times = {case: min(measure_trip(case) for _ in range(rounds)) for case in ROUND_TRIPS}
    rows = [[case, f"{us:,.0f} µs", f"{us / times['raw']:.2f}"] for case, us in times.items()]
    return markdown(["round trip", "median", "× raw"], rows)


def subscriptions_table(rounds: int) -> str:
    """The least times of some rounds."""
    found = [measure_subscriptions() for _ in range(rounds)]
    rows = [[f"{SUBSCRIPTIONS} {what}", f"{min(each[what] for each in found):.2f} s"] for what in found[0]]
    return markdown(["subscriptions", "time"], rows)


def order_table(rounds: int) -> str:
    """The worst of some rounds."""
    cases = ("raw", IN_ZENOHS_THREAD, "typed")
    rows = [[case, f"{max(measure_order(case) for _ in range(rounds)):,}"] for case in cases]
    return markdown(["three keys, one thread", f"out of order, of {ORDERED:,}"], rows)


def handlers_table(rounds: int) -> str:
    """One round, as it takes seconds."""
    rows = []
    for case in HANDLERS:
        found = measure_handler(case)
        beside = f"{found.others:,} in {found.others_s:.1f} s"
        rows.append([case, f"{found.handled:,}", f"{found.lost:,}", f"{found.seconds:.1f} s", beside])
    return markdown(["a handler that", "handled", "told lost", "until all were", "another bus had"], rows)


TABLES: dict[str, Callable[[int], str]] = {
    "rates": rates_table,
    "trips": trips_table,
    "subscriptions": subscriptions_table,
    "order": order_table,
    "handlers": handlers_table,
}


def tables(rounds: int = ROUNDS, only: str | None = None) -> dict[str, str]:
    """All tables, or one of them."""
    return {name: make(rounds) for name, make in TABLES.items() if only in (None, name)}


SENDERS = {"look-on": look_on, "order-send": send_in_turn, "handler-send": send_slowly}


def play(role: str, case: str, port: str, count: str) -> None:
    """Be a sender or a receiver of its own."""
    if role in SENDERS:
        SENDERS[role](case, int(port), int(count))
        return
    kind, _, side = role.partition("-")
    sending, receiving = (RATES if kind == "rate" else ROUND_TRIPS)[case]
    if side == "send":
        sending(case, int(port), int(count))
    else:
        done = receiving(case, int(port), Arrivals(int(count)))
        if kind == "rate":
            print(*done, flush=True)


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description="Events over zenoh.")
    arguments.add_argument("--only", choices=list(TABLES), help="one of the tables")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    given = arguments.parse_args()
    print(*tables(given.rounds, given.only).values(), sep="\n\n")


if __name__ == "__main__":
    if len(sys.argv) == 5 and not sys.argv[1].startswith("-"):
        play(*sys.argv[1:])
    else:
        main()
