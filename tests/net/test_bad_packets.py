"""Whatever arrives is an event or is counted by reason; it never raises, and nothing else is lost."""

import random
from collections.abc import Callable

import pytest

from genus import Event, Maybe
from genus.bus import Bus
from genus.net._envelope import ENVELOPE, join_payloads
from genus.net._link.control import control_key, encode_text
from genus.net._link.netlink import NetLink
from genus.net._link.payload import encode_payload
from genus.targets.topics import MQTT, ZENOH, Dialect, key_of
from genus.testing._network import MemoryNetwork


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


def run(count: int, dialect: Dialect) -> None:
    network = MemoryNetwork(dialect)
    here = Bus(NetLink(network.transport(), "city", medium="memory", runs=False))
    link = NetLink(network.transport(), "city", medium="memory", runs=False)
    there = Bus(link)
    got: list[Event] = []
    there.collection(Event).subscribe(got.append)
    chance, packets = random.Random(13), good_packets(dialect)
    send: Callable[[], None] = lambda: here.publish(PacketLevel(value=0.0, metres=-1, source="good"))  # noqa: E731
    for number in range(count):
        link.packet(*mutate(chance.choice(packets), chance))
        if number % 1000 == 0:
            send()
            network.deliver()
            link.tick()
        if number % 97 == 0:
            text = encode_text(
                chance.choice(
                    ["PacketGauge", "PacketGauge where", "(" * 3000, "Nothing", "PacketLevel where value > 1"]
                )
            )
            chunks = ["want", "0" * 16, chance.choice(["1" * 16, "x"]), text, chance.choice(["0", "9", "-1", ""])]
            link.token("/".join((control_key("city"), *chunks)), chance.random() < 0.7)
    good = [event for event in got if event.source == "good"]
    assert len(good) == -(-count // 1000)
    counters = there.traffic().link
    assert sum(number for name, number in counters.items() if name.startswith("rejected")) > count // 4
    assert len(counters) < 700
    here.close()
    there.close()


@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=["zenoh", "mqtt"])
def test_mutated_packets_are_counted_and_nothing_else_is_lost(
    dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    run(20_000, dialect)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=["zenoh", "mqtt"])
def test_a_million_mutated_packets(dialect: Dialect, caplog: pytest.LogCaptureFixture) -> None:
    run(1_000_000, dialect)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
