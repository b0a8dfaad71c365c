"""Damaged messages by the million: none raises, each is an event or is counted."""

import json
import random
from collections.abc import Iterator

import pytest

from genus import Event, Maybe
from genus.net import CloudEventReader, CloudEventWriter, Origin
from genus.net.types import CloudEvent
from genus.records import ForeignTopics, read_mapping
from genus.records.types import Rejected

MESSAGES = 1_000_000


class Probe(Event):
    temperature: Maybe[float] = None
    humidity: Maybe[float] = None
    count: Maybe[int] = None


MAPPING = """
zone = "Europe/Berlin"
absent = ["NA", -999]
ignore = "rest"
[topics]
"z/{source}" = "Probe"
"t/{source}/SENSOR" = [{ type = "Probe", at = "A" }, { type = "Probe", at = "B" }]
"s/{node}/{source}" = { type = "Probe", pairs = "metrics" }
"l/{source}" = { type = "Probe", at = "list[]" }
"n/{source}" = { type = "Probe", payload = "number", to = "count" }
[attributes]
Time = "time"
T = "temperature"
"metrics.H" = "humidity"
"""
PAYLOADS = {
    "z/a": {"T": 21.5, "count": 3},
    "t/a/SENSOR": {"Time": "2026-11-15T12:00:00", "A": {"T": 1}, "B": {"T": "NA"}},
    "s/a/b": {"metrics": [{"name": "H", "value": 1.5}, {"name": "X", "value": None}]},
    "l/a": {"list": [{"count": 1}, {"T": "NaN"}], "Time": "2026-11-15T12:00:00Z"},
    "n/a": 17,
}


def damaged(texts: list[bytes], count: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Texts with some bytes replaced, removed or repeated, and the number of the text."""
    draw = random.Random(seed)
    for _ in range(count):
        number = draw.randrange(len(texts))
        content = bytearray(texts[number])
        for _ in range(draw.randrange(3)):
            place = draw.randrange(len(content) + 1)
            content[place : place + draw.randrange(3)] = draw.choice(
                [b'"', b"{", b"]", b":", b"9", b"\xff", b"null", b""]
            )
        yield number, bytes(content)


def sweep_topics(count: int) -> tuple[int, int]:
    topics = ForeignTopics(read_mapping(MAPPING), [Probe])
    names, texts = list(PAYLOADS), [json.dumps(payload).encode() for payload in PAYLOADS.values()]
    events = rejected = 0
    for number, payload in damaged(texts, count, seed=7):
        for found in topics.read(names[number], payload):
            events += isinstance(found, Probe)
            rejected += isinstance(found, Rejected)
    assert sum(topics.counters.values()) == rejected
    assert topics.examples.keys() == topics.counters.keys()
    return events, rejected


def sweep_cloudevents(count: int, seed: int = 7) -> tuple[int, int]:
    writer, reader = CloudEventWriter(), CloudEventReader([Probe])
    probes = [Probe(), Probe(source="/a", temperature=1.5), Probe(place="é", count=7, humidity=float("nan"))]
    texts = [writer.write_structured(probe, Origin(bytes(8), 7)) for probe in probes]
    found = [reader.read_structured(payload) for _, payload in damaged(texts, count, seed)]
    return sum(isinstance(each, CloudEvent) for each in found), sum(isinstance(each, Rejected) for each in found)


def test_undamaged_messages_are_events() -> None:
    topics = ForeignTopics(read_mapping(MAPPING), [Probe])
    for name, payload in PAYLOADS.items():
        assert all(isinstance(each, Probe) for each in topics.read(name, json.dumps(payload).encode()))


def test_damaged_messages_are_events_or_counted() -> None:
    events, rejected = sweep_topics(2000)
    assert events > 100
    assert rejected > 100


def test_damaged_cloudevents_are_events_or_rejected() -> None:
    events, rejected = sweep_cloudevents(2000)
    assert events + rejected == 2000
    assert min(events, rejected) > 100


@pytest.mark.slow
def test_a_million_damaged_messages() -> None:
    events, rejected = sweep_topics(MESSAGES)
    assert events + rejected >= MESSAGES


@pytest.mark.slow
def test_a_million_damaged_cloudevents() -> None:
    for seed in range(10):
        events, rejected = sweep_cloudevents(MESSAGES // 10, seed)
        assert events + rejected == MESSAGES // 10
