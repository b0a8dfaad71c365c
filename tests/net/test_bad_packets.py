"""Whatever arrives is an event or is counted by reason; it never raises, and nothing else is lost."""

import random
from collections import Counter, deque
from typing import NamedTuple

import pytest

from genus import Event, Maybe
from genus.bus import Bus
from genus.net import EventsLost
from genus.net._envelope import ENVELOPE, NUMBERS, join_payloads
from genus.net._link.incoming import MAX_PARTICIPANTS
from genus.net._link.messages import Beat, control_key, decode_message, encode_message, encode_payload, encode_text
from genus.net._link.netlink import NetLink
from genus.net._link.numbers import MAX_RUNS
from genus.net._mqtt.address import MqttOptions
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import EchoingTransport, SealedTransport, SharingTransport, Transport, WindowedTransport
from genus.targets.topics import MQTT, ZENOH, Dialect, key_of
from tests.net.memory_network import Faults, MemoryNetwork


class PacketGauge(Event, tagged=("place",)):
    value: float
    note: Maybe[str] = None
    raw: Maybe[bytes] = None


class PacketLevel(PacketGauge):
    metres: int


EVENTS = (
    PacketGauge(value=1.5),
    PacketGauge(value=2.5, place="Kiel", note="ok"),
    PacketLevel(value=3.0, metres=4, raw=b"\x00\xff"),
)
CONTROL = ("beat", "lost", "late", "ping", "pong", "last", "want")


def good_packets(dialect: Dialect) -> list[tuple[str, bytes, bytes]]:
    """Packets as they are sent: single events, batches, last values, control."""
    found = []
    for number, event in enumerate(EVENTS * 3, 1):
        key = key_of(event, dialect, "city")
        envelope = ENVELOPE.pack(b"origin__", number, 1, b"sender__", number)
        payload = encode_payload(event)
        found += [
            (key, envelope, payload),
            (key, envelope, join_payloads([payload] * 3)),
            (control_key("city", "last", key.partition("/")[2], "=a"), envelope, payload),
        ]
    return found + [(control_key("city", what), b"", bytes(range(40))) for what in CONTROL]


def mutate(packet: tuple[str, bytes, bytes], chance: random.Random) -> tuple[str, bytes, bytes]:
    """A packet with some bytes of its parts changed, cut, doubled or added."""
    key, envelope, payload = packet
    which = chance.randrange(4)
    if which == 0:
        chunks = key.split("/")
        chunks[chance.randrange(len(chunks))] = chance.choice(
            ["", "0", "1", "@genus", "PacketLevel", "=", "~", "\ud800", "x" * 99]
        )
        return "/".join(chunks), envelope, payload
    if which == 1:
        return key, _mutate_bytes(envelope, chance), payload
    if which == 2:
        return key, envelope, _mutate_bytes(payload, chance)
    return key, _mutate_bytes(envelope, chance), _mutate_bytes(payload, chance)


def _mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[place : place + 1] = chance.randbytes(1)
            case 1:
                del changed[place:]
            case 2:
                changed[place:place] = changed[:place]
            case _:
                changed[place:place] = chance.choice([b"\x91" * 2000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"{" * 500])
    return bytes(changed)


class Tap:
    """A stranger on the network: it hears all packets, and remembers the last ones."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.heard: deque[tuple[str, bytes, bytes]] = deque(maxlen=40)
        transport = network.transport()
        transport.open(self)
        for pattern in (f"city/{network.dialect.rest}", f"@genus/city/{network.dialect.rest}"):
            transport.subscribe(pattern)

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.heard.append((key, envelope, payload))

    def token(self, key: str, is_present: bool) -> None: ...

    def dropped(self, key: str, count: int, reason: str) -> None: ...

    def connected(self, is_connected: bool) -> None: ...


def forge(packet: tuple[str, bytes, bytes], chance: random.Random) -> tuple[str, bytes, bytes]:
    """A packet as it was heard, or with other numbers: its own sender's, near to its newest or anywhere."""
    key, envelope, payload = packet
    if len(envelope) < ENVELOPE.size:
        beat = decode_message(Beat, payload)
        if beat is None:
            return packet
        numbers = {
            each: (before, (newest + distance(chance)) % NUMBERS) for each, (before, newest) in beat.numbers.items()
        }
        return key, envelope, encode_message(Beat(beat.sender, numbers))
    origin, number, hops, sender, sent = ENVELOPE.unpack_from(envelope)
    number = (number + distance(chance)) % NUMBERS
    hops, sent = chance.choice([(hops, number), (hops, sent), (1, sent), (1, number)])
    return key, ENVELOPE.pack(origin, number, hops, sender, sent) + envelope[ENVELOPE.size :], payload


def distance(chance: random.Random) -> int:
    """Zero, a little, a lot, 2^30 and more."""
    return chance.choice(
        [0, 1, 2, chance.randint(-50, 50), chance.randint(-70_000, 70_000), 2**30, chance.getrandbits(32)]
    )


class Figures(NamedTuple):
    """What became of the good events, and of what else was delivered."""

    published: int
    delivered: int
    doubled: int
    told: int
    other: int


def run(count: int, dialect: Dialect, key: bytes | None = None, lost: float = 0.0) -> Figures:
    """Send so many bad packets to a participant while another one publishes."""
    time, network = [100.0], MemoryNetwork(dialect, faults=Faults(lost=lost))
    told: list[EventsLost] = []
    got: Counter[Event] = Counter()

    def open_link() -> NetLink:
        transport: Transport = network.transport()
        if key is not None:
            transport = SealedTransport(transport, "city", key)
        return NetLink(transport, "city", medium="memory", now=lambda: time[0], runs=False)

    links = open_link(), open_link()
    here, there = map(Bus, links)
    receiver = network.transports[1].receiver
    assert receiver is not None
    tap = Tap(network)
    there.collection(Event).subscribe(lambda event: got.update([event]), on_problem=told.append)
    chance, packets = random.Random(13), good_packets(dialect)
    sent: list[Event] = []

    def pass_time() -> None:
        for link in links:
            link.tick()
        network.deliver()
        time[0] += 0.1

    for number in range(count):
        if number % 20 == 0:
            sent.append(PacketLevel(value=0.0, metres=number, source="good"))
            here.publish(sent[-1])
            network.deliver()
        if number % 500 == 0:
            pass_time()
        heard = chance.choice(tap.heard)
        kind = chance.randrange(4)
        receiver.packet(*(forge(heard, chance) if kind else mutate(chance.choice([heard, *packets]), chance)))
        if number % 97 == 0:
            text = encode_text(
                chance.choice(
                    ["PacketGauge", "PacketGauge where", "(" * 3000, "Nothing", "PacketLevel where value > 1"]
                )
            )
            chunks = ["want", "0" * 16, chance.choice(["1" * 16, "x"]), text, chance.choice(["0", "9", "-1", ""])]
            receiver.token("/".join((control_key("city"), *chunks)), chance.random() < 0.7)
    for _ in range(40):
        pass_time()
    counters = there.traffic().link
    assert len(counters) < 700
    assert sum(number for name, number in counters.items() if name.startswith("rejected")) > count // 10
    for known in links[1]._incoming:
        assert len(known.numbers) <= MAX_PARTICIPANTS
        assert all(len(numbers._runs) <= MAX_RUNS for numbers in known.numbers.values())
    here.close()
    there.close()
    delivered = sum(event in got for event in sent)
    doubled = sum(got[event] - 1 for event in sent if event in got)
    return Figures(len(sent), delivered, doubled, sum(each.count for each in told), got.total() - delivered - doubled)


def check(count: int, dialect: Dialect) -> None:
    """Who has no key loses nothing; who has one gets nothing else, and knows exactly what was lost."""
    open_to_all = run(count, dialect)
    assert open_to_all.delivered == open_to_all.published
    sealed = run(count, dialect, key=b"0123456789abcdef", lost=0.05)
    assert sealed.published == sealed.delivered + sealed.told
    assert (sealed.doubled, sealed.other, sealed.told > 0) == (0, 0, True)
    print(open_to_all, sealed)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=["zenoh", "mqtt"])
def test_mutated_and_replayed_packets_are_counted_and_nothing_else_is_lost(
    dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    check(10_000, dialect)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=["zenoh", "mqtt"])
def test_a_million_mutated_packets(dialect: Dialect, caplog: pytest.LogCaptureFixture) -> None:
    check(1_000_000, dialect)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("what", [EchoingTransport, SharingTransport, WindowedTransport])
def test_a_sealed_transport_offers_what_the_one_within_does(what: type) -> None:
    for transport in (MqttTransport(MqttOptions("localhost", 1883)), MemoryNetwork(MQTT).transport()):
        assert isinstance(SealedTransport(transport, "city", b"k" * 16), what) == isinstance(transport, what)
