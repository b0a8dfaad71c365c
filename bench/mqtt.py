"""Packets per second through mosquitto, from one process to another: paho, the bare mqtt5 codec, and the transport.

Publisher, broker and subscriber are processes of their own. A rate is the packets that arrived, over the time from the
first to the last; the best of several turns counts. The bare codec is a loop on a socket without threads or queues: it
joins packets and keeps to the broker's window, and nothing else. paho sends no envelope, which the other two do.

With a session, each packet is acknowledged when its handler has returned. The last row counts typed events of a bus, 25
to a packet.

At QoS 1 the broker's window counts: mosquitto takes 20 packets without an acknowledgement by default, so that each
batch is as small; a broker for such rates has `max_inflight_messages 1000`. Both are measured.
"""

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import mqtt5

from bench.timing import goal, markdown
from genus import Event, open_bus
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import Sending

TOPIC, PAYLOAD, ENVELOPE = "city/Edge/1/Loop", b"p" * 40, b"e" * 25
LAST = b"last"
COUNTS = {"paho": 5_000, "codec": 50_000, "genus": 50_000, "session": 50_000, "batches": 200_000}
NAMES = {
    "codec": "mqtt5 codec",
    "genus": "Genus transport",
    "session": "Genus transport, `session=`",
    "batches": "Genus events, `publish_all` of 25",
}
GOALS = {"genus": 5.0, "session": 2.0}
"""The least rates at QoS 1, as shares of paho's."""
BATCH = 25
TURNS = 3
CASES = {"QoS 0": (0, 20), "QoS 1": (1, 20), "QoS 1, window 1,000": (1, 1000)}
PINGS = 400
IDLE_S = 5.0
QUALITIES = (mqtt5.QoS.AT_MOST_ONCE, mqtt5.QoS.AT_LEAST_ONCE)


class Measured(NamedTuple):
    """What a subscriber saw: packets per second, and the share that arrived."""

    rate: float
    share: float


# -- the bare codec ----------------------------------------------------------------------------------------------------


class Codec:
    """A client that is nothing but the codec and a socket."""

    def __init__(self, port: int, name: str) -> None:
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.stream.sendall(mqtt5.ConnectPacket(name, clean_start=True).write())
        self.window = next(iter(self.read())).receive_max

    def read(self) -> list[Any]:
        """The next packets, at least one."""
        packets: list[Any] = []
        while not packets:
            self._rest += self.stream.recv(1 << 18)
            view, offset = memoryview(self._rest), 0
            try:
                while offset < len(self._rest):
                    packet, length = mqtt5.read(view[offset:])
                    packets.append(packet)
                    offset += length
            except IndexError:
                pass  # the last one is not whole
            self._rest = self._rest[offset:]
        return packets

    def subscribe(self, topic: str, qos: int) -> None:
        self.stream.sendall(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(topic, max_qos=QUALITIES[qos])]).write())
        self.read()

    def acknowledge(self, packets: list[Any]) -> None:
        acks = [mqtt5.PubAckPacket(each.packet_id).write() for each in packets if each.packet_id is not None]
        if acks:
            self.stream.sendall(b"".join(acks))


def _packet(payload: bytes, qos: int, packet_id: int | None) -> bytes:
    return mqtt5.PublishPacket(
        TOPIC, payload, qos=QUALITIES[qos], packet_id=packet_id, correlation_data=ENVELOPE
    ).write()


def codec_publish(port: int, qos: int, payloads: Iterator[bytes]) -> None:
    client = Codec(port, "publisher")
    window, packet_id, in_flight = client.window, 0, 0
    while batch := list(islice(payloads, window - in_flight if qos else 64)):
        parts = []
        for payload in batch:
            packet_id = packet_id % 65_535 + 1
            parts.append(_packet(payload, qos, packet_id if qos else None))
        client.stream.sendall(b"".join(parts))
        if qos:
            in_flight += len(batch) - len(client.read())
    while in_flight:
        in_flight -= len(client.read())
    client.stream.sendall(mqtt5.DisconnectPacket().write())
    client.stream.close()


def codec_subscribe(port: int, qos: int, ready: Callable[[], None], handle: Callable[[bytes], bool]) -> None:
    client = Codec(port, "subscriber")
    client.subscribe(TOPIC, qos)
    ready()
    client.stream.settimeout(IDLE_S)
    is_done = False
    while not is_done:
        packets = client.read()
        for packet in packets:
            if packet.correlation_data:
                is_done = handle(packet.payload)
        client.acknowledge(packets)


def codec_ping(port: int) -> Iterator[float]:
    client = Codec(port, "ping")
    client.subscribe(TOPIC, 0)
    for _ in range(PINGS):
        begin = time.perf_counter()
        client.stream.sendall(_packet(PAYLOAD, 0, None))
        client.read()
        yield time.perf_counter() - begin


# -- the transport -----------------------------------------------------------------------------------------------------


class Handler:
    """A receiver that calls a function with each payload."""

    def __init__(self, handle: Callable[[bytes], object]) -> None:
        self._handle = handle

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self._handle(payload)

    def token(self, key: str, is_present: bool) -> None: ...

    def dropped(self, key: str, count: int, reason: str) -> None:
        sys.exit(f"{count} packets of {key} were dropped: {reason}")

    def connected(self, is_connected: bool) -> None: ...


def _transport(port: int, handle: Callable[[bytes], object], query: str = "") -> MqttTransport:
    transport = MqttTransport(parse_mqtt_address(f"//127.0.0.1:{port}/city{query}"))
    transport.open(Handler(handle))
    return transport


def genus_publish(port: int, qos: int, payloads: Iterator[bytes]) -> None:
    transport = _transport(port, len)
    sender = transport.sender(TOPIC, Sending(reliable=qos > 0))
    for payload in payloads:
        sender.put(payload, ENVELOPE)
    while not transport._connection.is_idle:
        time.sleep(0.01)
    transport.close()


def genus_subscribe(
    port: int, qos: int, ready: Callable[[], None], handle: Callable[[bytes], bool], query: str = ""
) -> None:
    done: list[bool] = []
    transport = _transport(port, lambda payload: done.extend([True] * handle(payload)), query)
    transport.subscribe(TOPIC)
    ready()
    _until(lambda: bool(done))
    transport.close()


def session_subscribe(port: int, qos: int, ready: Callable[[], None], handle: Callable[[bytes], bool]) -> None:
    genus_subscribe(port, qos, ready, handle, "?session=bench&session_expires=1s")


def genus_ping(port: int) -> Iterator[float]:
    import threading

    arrived = threading.Event()
    receiver, sender = _transport(port, lambda _: arrived.set()), _transport(port, len)
    receiver.subscribe(TOPIC)
    sending = sender.sender(TOPIC, Sending())
    for _ in range(PINGS):
        arrived.clear()
        begin = time.perf_counter()
        sending.put(PAYLOAD, ENVELOPE)
        arrived.wait()
        yield time.perf_counter() - begin
    receiver.close()
    sender.close()


# -- paho --------------------------------------------------------------------------------------------------------------


def _paho(port: int) -> Any:
    from paho.mqtt.client import Client, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    _until(client.is_connected)
    return client


def paho_publish(port: int, qos: int, payloads: Iterator[bytes]) -> None:
    client = _paho(port)
    sent = None
    for payload in payloads:
        sent = client.publish(TOPIC, payload, qos)
    assert sent is not None
    sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def paho_subscribe(port: int, qos: int, ready: Callable[[], None], handle: Callable[[bytes], bool]) -> None:
    client = _paho(port)
    done: list[bool] = []
    client.on_message = lambda _, __, message: done.extend([True] * handle(message.payload))
    client.on_subscribe = lambda *_: ready()
    client.subscribe(TOPIC, qos)
    _until(lambda: bool(done))
    client.disconnect()
    client.loop_stop()


def paho_ping(port: int) -> Iterator[float]:
    import threading

    arrived = threading.Event()
    client = _paho(port)
    subscribed = threading.Event()
    client.on_message = lambda *_: arrived.set()
    client.on_subscribe = lambda *_: subscribed.set()
    client.subscribe(TOPIC, 0)
    subscribed.wait()
    for _ in range(PINGS):
        arrived.clear()
        begin = time.perf_counter()
        client.publish(TOPIC, PAYLOAD, 0)
        arrived.wait()
        yield time.perf_counter() - begin
    client.disconnect()
    client.loop_stop()


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.01)


# -- events of a bus ---------------------------------------------------------------------------------------------------


class BenchLoop(Event):
    lane: int
    speed: float
    is_last: bool = False


def _address(port: int, qos: int) -> str:
    return f"mqtt://127.0.0.1:{port}/city?qos={qos}"


def batches_publish(port: int, qos: int, payloads: Iterator[bytes]) -> None:
    with open_bus(_address(port, qos)) as bus:
        while some := list(islice(payloads, BATCH)):
            bus.publish_all([BenchLoop(lane=2, speed=33.5, is_last=each == LAST) for each in some])
        transport = bus.link.transport  # type: ignore[union-attr]
        _until(lambda: transport._connection.is_idle)


def batches_subscribe(port: int, qos: int, ready: Callable[[], None], handle: Callable[[bytes], bool]) -> None:
    done: list[bool] = []
    with open_bus(_address(port, qos)) as bus:
        bus.collection(BenchLoop).subscribe(lambda each: done.extend([True] * handle(LAST if each.is_last else b"")))
        ready()
        _until(lambda: bool(done))


PUBLISH = {
    "paho": paho_publish,
    "codec": codec_publish,
    "genus": genus_publish,
    "session": genus_publish,
    "batches": batches_publish,
}
SUBSCRIBE = {
    "paho": paho_subscribe,
    "codec": codec_subscribe,
    "genus": genus_subscribe,
    "session": session_subscribe,
    "batches": batches_subscribe,
}
PING = {"paho": paho_ping, "codec": codec_ping, "genus": genus_ping}


# -- processes ---------------------------------------------------------------------------------------------------------


def _payloads(count: int) -> Iterator[bytes]:
    for _ in range(count - 1):
        yield PAYLOAD
    yield LAST


def play_publisher(name: str, qos: int, port: int) -> None:
    PUBLISH[name](port, qos, _payloads(COUNTS[name]))


def play_subscriber(name: str, qos: int, port: int) -> None:
    """Prints `ready`, and at the end the rate and the share of packets that arrived."""
    times: list[float] = []
    count = 0

    def handle(payload: bytes) -> bool:
        nonlocal count
        count += 1
        if count == 1 or payload == LAST:
            times.append(time.perf_counter())
        return payload == LAST

    SUBSCRIBE[name](port, qos, lambda: print("ready", flush=True), handle)
    print((count - 1) / (times[-1] - times[0]), count / COUNTS[name])


def play_ping(name: str, _: int, port: int) -> None:
    print(statistics.median(list(PING[name](port))[PINGS // 4 :]))


PARTS = {
    "publish": play_publisher,
    "subscribe": play_subscriber,
    "ping": play_ping,
}


@contextmanager
def mosquitto(window: int = 20) -> Iterator[int]:
    """The port of a broker; a slow subscriber gets all packets."""
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mosquitto.conf"
        limits = f"max_queued_messages 0\nmax_inflight_messages {window}\n"
        file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{limits}")
        broker = subprocess.Popen([program, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until(lambda: _answers(port))
            yield port
        finally:
            broker.terminate()
            broker.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _start(part: str, name: str, qos: int, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.mqtt", part, name, str(qos), str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(name: str, qos: int, port: int) -> Measured:
    """One turn of one contestant."""
    subscriber = _start("subscribe", name, qos, port)
    assert subscriber.stdout is not None
    assert subscriber.stdout.readline() == "ready\n"
    with _start("publish", name, qos, port) as publisher:
        rate, share = map(float, subscriber.communicate(timeout=120)[0].split())
        publisher.wait(120)
    return Measured(rate, share)


def round_trip(name: str, port: int) -> float:
    with _start("ping", name, 0, port) as process:
        return float(process.communicate(timeout=120)[0])


def run() -> str:
    """The table."""
    best: dict[tuple[str, str], float] = {}
    trips = dict.fromkeys(PING, float("inf"))
    with mosquitto(20) as small, mosquitto(1000) as wide:
        ports = {20: small, 1000: wide}
        for _ in range(TURNS):
            for case, (qos, window) in CASES.items():
                for name in COUNTS:
                    turn = measure(name, qos, ports[window])
                    best[name, case] = max(best.get((name, case), 0.0), turn.rate if turn.share == 1 else 0.0)
            for name in trips:
                trips[name] = min(trips[name], round_trip(name, small))
    head = ["client", *(cell for case in CASES for cell in (case, "× paho")), "round trip p50"]
    return markdown(head, [_row(name, best, trips) for name in COUNTS])


def _row(name: str, best: dict[tuple[str, str], float], trips: dict[str, float]) -> list[str]:
    cells = [NAMES.get(name, name)]
    for case in CASES:
        rate = best[name, case]
        ratio = rate / best["paho", case]
        least = GOALS.get(name) if case == "QoS 1" else None
        cells += [f"{rate:,.0f}/s", f"{ratio:.1f}" if least is None else goal(f"{ratio:.1f}", ratio, at_least=least)]
    return [*cells, f"{trips[name] * 1e6:,.0f} µs" if name in trips else ""]


def main(*arguments: str) -> None:
    if arguments:
        part, name, qos, port = arguments
        PARTS[part](name, int(qos), int(port))
    else:
        print(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
