"""Catalog questions, answered on the bus."""

import json
import zlib
from enum import Enum
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated

import pytest

from genus import Event, Float32, Int16, Kind, Maybe, UInt8, Unit
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._protocol.catalog_queries import ANSWER_ID, MAX_PER_NODE, CatalogClient, CatalogIndex
from genus.can._protocol.messages import Heartbeat, Question, QuestionKind, subject_head
from genus.can._protocol.notices import (
    ANSWER_INTERVAL,
    ANSWER_RETRY,
    ANSWER_TIMEOUT,
    CatalogReceived,
    Notice,
    RequestUnanswered,
)
from genus.can._sim.errors import FaultEffect, MissedBy, Transmission
from genus.can._wire.frame import Frame, subject_uid
from genus.can._wire.segments import Reassembler, split_payload
from genus.catalog import Catalog
from genus.codes import parse_code

from .stations import MS, Station, System


class Category(Enum):
    CAR = "car, or van"
    TRUCK = "Lkw"


class Roadside(Kind): ...


class Loop(Event, Roadside, tagged=("place", "speed")):
    lane: int
    speed: Maybe[Annotated[float, Unit("km/h")]] = None


class Camera(Loop):
    category: Maybe[Category] = None


LOOP, CAMERA, UNKNOWN = map(subject_uid, ("Loop", "Camera", "Unknown"))


def city() -> Catalog:
    catalog = Catalog()
    catalog.register(Loop, Camera)
    return catalog


def asking(catalog: Catalog | None = None) -> tuple[System, Station]:
    system = System()
    system.broker(catalog=catalog or city())
    station = system.station(0x10)
    system.run(60)
    return system, station


def answer_to(kind: QuestionKind, argument: int) -> bytes:
    return CatalogIndex(city()).answer(Question(5, 7, kind, argument))


def test_the_answer_for_a_vector_has_type_family_attributes_and_tagged_ones() -> None:
    name, family, rows, tagged = json.loads(answer_to(QuestionKind.VECTOR, subject_head(LOOP)))
    assert (name, family, tagged) == ("Loop", "Loop", ["place", "speed"])
    assert [row[0] for row in rows] == [each.name for each in city().vector("Loop")]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["lane"] == ["int64", "required", None]
    assert by_name["speed"] == ["float64", "optional", "km/h"]
    assert by_name["category"] == [{"enum": ["car, or van", "Lkw"]}, "absent", None]
    assert answer_to(QuestionKind.VECTOR, subject_head(UNKNOWN)) == b""


def test_an_event_tag_has_a_type_whatever_its_presence_bits() -> None:
    etag = city().etag("Loop")
    found = [answer_to(QuestionKind.TYPE, asked) for asked in (etag, etag | 3, city().etag("Camera"), 200)]
    assert found == [b"Loop", b"Loop", b"Camera", b""]


class Pressure(Event, tagged=("place",)):
    value: int
    note: Maybe[str] = None


class Alarm(Pressure):
    note: str


def class_of(catalog: Catalog, etag: int) -> bytes:
    return CatalogIndex(catalog).answer(Question(5, 7, QuestionKind.CLASS, etag))


def bits_of(data: bytes, count: int) -> list[bool]:
    return [bool(data[i // 8] >> 7 - i % 8 & 1) for i in range(count)]


@pytest.mark.parametrize("name", ["Pressure", "Alarm"])
def test_a_class_is_described_for_small_devices(name: str) -> None:
    catalog = Catalog()
    catalog.register(Pressure, Alarm)
    answer = class_of(catalog, catalog.etag(name) | 1)
    code, rest = parse_code(answer, 2) or (0, 0)
    vector = catalog.vector(name)
    assert int.from_bytes(answer[:2], "big") == catalog.etag(name), "its own, without presence bits"
    assert code == catalog.code(name)
    assert int.from_bytes(answer[rest : rest + 2], "big") == len(vector) == 7
    required, declared = answer[rest + 2 : rest + 3], answer[rest + 3 :]
    assert len(declared) == 1
    named = {each.name for each, bit in zip(vector, bits_of(required, 7), strict=True) if bit}
    assert named == ({"value"} if name == "Pressure" else {"value", "note"})
    assert all(bits_of(declared, 7))


def test_there_is_no_class_for_an_event_tag_of_none() -> None:
    assert [class_of(city(), etag) for etag in (200, 0, (1 << 48) - 1)] == [b"", b"", b""]


def test_the_page_has_the_bytes_of_class_answers() -> None:
    class Loop(Event):
        lane: UInt8
        category: Maybe[Category] = None
        speed: Maybe[Float32] = None

    class Radar(Loop):
        speed: Float32
        angle: Int16

    catalog, page = Catalog(), (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
    catalog.register(Loop, Radar)
    for name in ("Loop", "Radar"):
        etag = catalog.etag(name)
        row = f"| `{name}`, event tag {etag}, code {catalog.code(name)} | `{class_of(catalog, etag).hex(' ')}` |"
        assert row in page


def answers_on(system: System) -> list[bytes]:
    """The answers that a station on the bus hears from now on."""
    whole, answers = Reassembler(1_000_000_000), list[bytes]()
    sink = system.station(0xFFFF_0001)
    receive = sink.receive

    def listen(frame: Frame, now: int) -> None:
        receive(frame, now)
        if frame.id == ANSWER_ID and (payload := whole.receive(frame, now)):
            answers.append(payload)

    sink.receive = listen  # type: ignore[method-assign]
    system.hosts[-1].restart(sink)
    return answers


def test_the_broker_answers_a_question_for_a_class_on_the_bus() -> None:
    system, station = asking()
    answers = answers_on(system)
    question = Question(station.node or 0, 9, QuestionKind.CLASS, city().etag("Camera")).frame()
    system.hosts[1].call(lambda now: station.queue.send(question))
    system.run(100)
    assert answers == [bytes((station.node or 0, 9, QuestionKind.CLASS)) + class_of(city(), city().etag("Camera"))]


def test_a_node_can_have_the_whole_catalog() -> None:
    system, station = asking()
    station.questions.ask_catalog(system.bus.now)
    system.hosts[1].call(lambda now: None)
    system.run(400)
    (answer,) = station.notices_of(CatalogReceived)
    assert answer.catalog.text() == city().text()


def test_one_answer_gives_the_catalog_to_all_nodes_that_wait() -> None:
    system = System()
    host = system.broker(catalog=city())
    stations = [system.station(0x10 + number) for number in range(20)]
    for station in stations[:19]:
        station.questions.ask_catalog(0)
    system.run(1_500)
    assert [len(station.notices_of(CatalogReceived)) for station in stations] == [1] * 19 + [0]
    assert host.machine._answers._transfer <= 3  # type: ignore[attr-defined]


def test_many_nodes_ask_and_each_gets_its_own_answers() -> None:
    system = System()
    system.broker(catalog=city())
    stations = [system.station(0x10 + number) for number in range(8)]
    system.run(1_000)
    answers = answers_on(system)
    for host, station in zip(system.hosts[1:9], stations, strict=True):
        for number, kind in enumerate((QuestionKind.TYPE, QuestionKind.VECTOR)):
            question = Question(station.node or 0, number, kind, subject_head(LOOP) * number).frame()
            station.queue.send(question)
            host.call(lambda now: None)
    system.run(1_500)
    vector = answer_to(QuestionKind.VECTOR, subject_head(LOOP))
    expected = [(station.node, body) for station in stations for body in (b"\x00\x02", b"\x01\x01" + vector)]
    assert sorted((answer[0], answer[1:]) for answer in answers) == sorted(expected)


def test_an_answer_that_was_not_received_whole_is_asked_for_again() -> None:
    system, station = asking()
    random, missed = Random(1), list[int]()

    def judge(seen: Transmission) -> FaultEffect | None:
        if seen.frame.id == ANSWER_ID and len(missed) < 3 and random.random() < 0.1:
            missed.append(seen.start_ns)
            return MissedBy(tuple(each for each in seen.receivers if each == 1))
        return None

    system.bus.add_fault_hook(judge)
    station.questions.ask_catalog(system.bus.now)
    system.hosts[1].call(lambda now: None)
    system.run(5_000)
    assert missed
    assert len(station.notices_of(CatalogReceived)) == 1


def test_a_question_without_a_broker_is_repeated_three_times_and_given_up() -> None:
    system = System()
    host = system.broker(catalog=city())
    station = system.station(0x10)
    system.run(60)
    host.crash()
    asked = system.bus.now
    station.questions.ask_catalog(asked)
    system.hosts[1].call(lambda now: None)
    system.run(4 * ANSWER_RETRY / MS + 1)
    assert station.notices[-1] == (asked + 4 * ANSWER_RETRY, RequestUnanswered("catalog", 0))
    assert station.questions.wake_at is None


def test_the_same_question_twice_is_one() -> None:
    lone = Lone()
    lone.questions.ask_catalog(0)
    lone.questions.ask_catalog(0)
    assert lone.queue == [Question(9, 0, QuestionKind.CATALOG, 0).frame()]
    lone.receive(bytes((9, 0, QuestionKind.CATALOG)) + WHOLE)
    lone.questions.ask_catalog(0)
    assert lone.queue[1:] == [Question(9, 1, QuestionKind.CATALOG, 0).frame()]


# -- on its own --------------------------------------------------------------------------------------------------------


class Lone:
    """A component without a bus, under number 9."""

    def __init__(self) -> None:
        self.queue: list[Frame] = []
        self.notices: list[Notice] = []
        self.questions = CatalogClient(send=self.queue.append, withdraw=lambda frame: None, notify=self.notices.append)
        self.questions.join(9, 0)
        self.transfer = 0

    def receive(self, payload: bytes, now: int = 0) -> list[Notice]:
        self.transfer += 1
        for data in split_payload(payload, self.transfer):
            self.questions.receive(Frame(ANSWER_ID, data), now)
        return self.notices


WHOLE = zlib.compress(city().text().encode())


def test_answers_to_others_and_to_other_questions_are_ignored() -> None:
    lone = Lone()
    lone.questions.ask_catalog(0)
    assert lone.receive(bytes((8, 0, QuestionKind.CATALOG)) + WHOLE) == []
    assert lone.receive(bytes((9, 0, QuestionKind.VECTOR)) + WHOLE) == []
    assert lone.receive(bytes((9,))) == []
    assert len(lone.receive(bytes((9, 0, QuestionKind.CATALOG)) + WHOLE)) == 1


@pytest.mark.parametrize("body", [b"", b"text", *map(zlib.compress, (b"{}", b"\xff", bytes(1 << 26)))])
def test_an_answer_that_cannot_be_read_is_as_good_as_none(body: bytes) -> None:
    lone = Lone()
    lone.questions.ask_catalog(0)
    assert lone.receive(bytes((9, 0, QuestionKind.CATALOG)) + body) == []
    assert lone.questions.wake_at is not None


def test_answers_to_others_are_waited_for_but_not_for_ever() -> None:
    lone = Lone()
    lone.questions.ask_catalog(0)
    now = 0
    while now < ANSWER_TIMEOUT:
        now += ANSWER_RETRY // 2
        lone.receive(bytes((8, 0, QuestionKind.TYPE)) + b"something else", now)
        assert len(lone.queue) == 1
    assert lone.questions.wake_at == ANSWER_TIMEOUT
    lone.questions.wake(ANSWER_TIMEOUT)
    assert len(lone.queue) == 2


def test_questions_wait_for_a_number() -> None:
    lone = Lone()
    lone.questions.leave()
    lone.questions.ask_catalog(0)
    assert lone.queue == []
    assert lone.questions.wake_at is None
    lone.questions.join(10, 7)
    assert lone.queue == [Question(10, 0, QuestionKind.CATALOG, 0).frame()]


def test_only_the_broker_answers() -> None:
    lone = Lone()
    lone.questions.ask_catalog(0)
    for data in split_payload(bytes((9, 0, QuestionKind.CATALOG)) + WHOLE, 1):
        lone.questions.receive(Frame(ANSWER_ID & ~(1 << 14), data), 0)
        lone.questions.receive(Frame(ANSWER_ID, data, fd=True), 0)
    assert lone.notices == []


# -- the broker's side -------------------------------------------------------------------------------------------------


def test_answers_are_paced_and_one_at_a_time() -> None:
    system, station = asking()
    times: list[int] = []

    def judge(seen: Transmission) -> FaultEffect | None:
        if seen.frame.id == ANSWER_ID:
            times.append(seen.start_ns)
        return None

    system.bus.add_fault_hook(judge)
    station.questions.ask_catalog(system.bus.now)
    question = Question(station.node or 0, 9, QuestionKind.VECTOR, subject_head(LOOP)).frame()
    system.hosts[1].call(lambda now: station.queue.send(question))
    system.run(600)
    assert len(station.notices_of(CatalogReceived)) == 1
    assert len(times) > 20
    assert min(after - before for before, after in pairwise(times)) >= ANSWER_INTERVAL


def test_a_node_that_asks_too_much_is_dropped_not_others() -> None:
    broker = Broker(1, city(), MemoryStore())
    broker.wake(0)
    for number in range(50):
        broker.receive(Question(5, number, QuestionKind.TYPE, 9).frame(), 0)
    broker.receive(Question(6, 0, QuestionKind.VECTOR, subject_head(LOOP)).frame(), 0)
    assert broker.counts["question too many"] == 50 - MAX_PER_NODE - 1  # one is being answered
    assert broker.counts["question"] == MAX_PER_NODE + 2


def test_other_frames_of_the_broker_go_before_its_answers() -> None:
    assert Heartbeat(1, 1).frame().id < ANSWER_ID
    assert all(Question(node, 0, QuestionKind.TYPE, 0).frame().id < ANSWER_ID for node in (1, 126))
