"""Packets of MQTT: what is written and read by hand agrees with the codec, and bad bytes never raise."""

import random
from itertools import pairwise

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.net._envelope import ATTRIBUTES
from genus.net._mqtt.machine import ClientMachine
from genus.net._mqtt.session import Session
from genus.net._mqtt.wire import Decoder, PublishForm, length_bytes
from tests.examples import examples

TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="+#\0"), min_size=1, max_size=20)
PACKETS = 4
"""The packets of a stream that is mutated."""
REASON = mqtt5.PubAckReasonCode.NOT_AUTHORIZED


def publish(topic: str, envelope: bytes, payload: bytes, packet_id: int = 0, expiry_s: int | None = None) -> bytes:
    head, tail = PublishForm(topic, qos=int(packet_id > 0), expiry_s=expiry_s).parts(payload, envelope)
    return head if tail is None else head + packet_id.to_bytes(2, "big") + tail


def stream() -> list[bytes]:
    """Packets that a server sends, in many forms."""
    return [
        mqtt5.ConnAckPacket(assigned_client_id="ä", reason_str="ok").write(),
        publish("city/Loop", b"e" * 25, b"payload", 7),
        publish("city/Loop", b"e" * 25, b"payload"),
        publish("city/Loop", b"", b"", 8),
        publish("city/Loop", b"e" * 45, b"p" * 300, 9, expiry_s=3),
        publish("city/Loop", b"e" * 25, b"p" * 300, 10),
        publish("city/Loop", b"e" * 25, b"p" * 20_000),
        mqtt5.PubAckPacket(3).write(),
        mqtt5.PubAckPacket(4, reason_code=REASON).write(),
        mqtt5.PubAckPacket(5, reason_code=REASON, reason_str="no", user_properties=[("a", "b")]).write(),
        mqtt5.PublishPacket("x", b"y", user_properties=[("k", "v")], content_type="c", response_topic="r").write(),
        mqtt5.SubAckPacket(3, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED], reason_str="no").write(),
        mqtt5.UnsubAckPacket(3, [mqtt5.UnsubAckReasonCode.SUCCESS]).write(),
        mqtt5.PingRespPacket().write(),
        mqtt5.DisconnectPacket(reason_str="bye", server_reference="other").write(),
    ]


ENVELOPES = st.binary(max_size=200).filter(lambda envelope: not envelope.startswith(ATTRIBUTES))
"""Those of Genus; others hold the attributes of a CloudEvent, and become user properties."""


@given(
    topic=TOPICS,
    size=st.integers(0, 300) | st.integers(16_000, 17_000),
    envelope=ENVELOPES,
    packet_id=st.integers(0, 65_535),
    expiry_s=st.none() | st.integers(1, 2**32 - 1),
)
@examples(200)
def test_a_publish_is_written_as_the_codec_writes_it(
    topic: str, size: int, envelope: bytes, packet_id: int, expiry_s: int | None
) -> None:
    payload = b"p" * size
    written = mqtt5.PublishPacket(
        topic,
        payload,
        qos=mqtt5.QoS(int(packet_id > 0)),
        packet_id=packet_id or None,
        message_expiry_interval=expiry_s,
        correlation_data=envelope or None,
    ).write()
    assert publish(topic, envelope, payload, packet_id, expiry_s) == written


@given(
    topics=st.lists(TOPICS, min_size=1, max_size=3),
    picks=st.lists(st.tuples(st.integers(0, 2), ENVELOPES, st.binary(max_size=300), st.integers(0, 9))),
)
@examples(200)
def test_messages_are_read_as_they_were_written(topics: list[str], picks: list[tuple[int, bytes, bytes, int]]) -> None:
    messages = [(topics[which % len(topics)], envelope, payload, number) for which, envelope, payload, number in picks]
    decoder = Decoder(1 << 20)
    assert decoder.feed(b"".join(publish(*message) for message in messages)) == messages
    assert decoder.problem is None


@given(st.lists(st.integers(0, 21_500), max_size=30))
@examples(300)
def test_any_split_of_the_stream_into_reads_gives_the_same(cuts: list[int]) -> None:
    data = b"".join(stream())
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    machine = ClientMachine(Session("test"))
    machine.opened(0)
    messages = []
    for begin, end in pairwise(places):
        messages += machine.receive(data[begin:end], 0)
    whole = ClientMachine(Session("test"))
    whole.opened(0)
    assert messages == whole.receive(data, 0)
    assert machine.take() == whole.take()
    assert machine.counts == whole.counts


def test_one_byte_at_a_time_gives_the_same() -> None:
    data = b"".join(stream())
    whole, bytewise = Decoder(1 << 20), Decoder(1 << 20)
    assert len(whole.feed(data)) == len(stream())
    assert sum(len(bytewise.feed(data[at : at + 1])) for at in range(len(data))) == len(stream())


def mutate(chance: random.Random, packets: list[bytes]) -> bytes:
    data = bytearray(b"".join(chance.choices(packets, k=PACKETS)))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at : at + chance.randint(1, 5)]
            case _:
                data[at:at] = chance.randbytes(chance.randint(1, 5))
        if not data:
            break
    return bytes(data)


def survive_mutations(count: int, seed: int) -> None:
    """Whatever arrives, a machine only counts it, and ends the connection with the right reason."""
    chance = random.Random(seed)
    packets = [packet for packet in stream() if len(packet) < 1000]
    connack = mqtt5.ConnAckPacket().write()
    bad = 0
    for _ in range(count // PACKETS):
        machine = ClientMachine(Session("test"))
        machine.opened(0)
        machine.receive(connack, 0)
        machine.receive(mutate(chance, packets), 0)
        bad += sum(number for name, number in machine.counts.items() if name.startswith("bad_packets"))
    assert bad > count // PACKETS // 4


def test_mutated_bytes_never_raise(capfd: pytest.CaptureFixture[str]) -> None:
    survive_mutations(20_000, 0)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_mutated_bytes_never_raise(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    survive_mutations(100_000, seed)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x30\x05\x00\x03a\xffb", "text is not UTF-8"),
        (b"\x30\x04\x00\x01+\x00", "invalid topic"),
        (b"\x32\x06\x00\x01a\x00\x00\x00", "packet id 0"),
        (b"\x34\x06\x00\x01a\x00\x01\x00", "QoS 2 or a topic alias, not asked for"),
        (b"\x30\x07\x00\x01a\x03\x23\x00\x01", "QoS 2 or a topic alias, not asked for"),
        (b"\x30\x05\x00\x01a\x01\x7f", "unknown property"),
        (b"\x30\xff\xff\xff\xff\x7f", "length of more than four bytes"),
        (b"\x30" + length_bytes(2 << 20), "packet too large"),
        (b"\x00\x00", "invalid packet"),
    ],
)
def test_a_bad_packet_has_a_reason_and_what_came_before_is_kept(data: bytes, why: str) -> None:
    decoder = Decoder(1 << 20)
    good = publish("a", b"e" * 25, b"payload")
    assert decoder.feed(good + data + good) == [("a", b"e" * 25, b"payload", 0)]
    assert decoder.problem is not None
    assert decoder.problem.why == why
    assert decoder.feed(good) == []
