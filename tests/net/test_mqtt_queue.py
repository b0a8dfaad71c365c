"""Queues whose consumers are in several processes: the shared subscriptions of MQTT."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("mqtt5", reason="mqtt5 comes with genus[mqtt]")

from genus import Event, Kind, open_bus
from genus.bus import Bus
from genus.testing import MqttBroker

PATIENCE_S = 30.0


class Task(Event):
    number: int


class Chore(Kind): ...


class Sweep(Event, Chore):
    number: int


@pytest.fixture(scope="module")
def broker() -> Iterator[MqttBroker]:
    with MqttBroker() as made:
        yield made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def opened(stack: ExitStack, broker: MqttBroker, realm: str, count: int) -> list[Bus]:
    where = f"mqtt://127.0.0.1:{broker.port}/{realm}"
    return [stack.enter_context(open_bus(where)) for _ in range(count)]


def wait_for(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.005)


def numbers_taken(bus: Bus, **options: Any) -> list[int]:
    """The numbers of the tasks that a consumer on a bus takes."""
    taken: list[int] = []
    bus.collection(Task, "queue").subscribe(lambda task: taken.append(task.number), **options)
    return taken


def test_each_event_of_a_keep_channel_goes_to_one_consumer(broker: MqttBroker, stack: ExitStack) -> None:
    """Those that are published from now on, not what the broker keeps; also many of one key."""
    publisher, left, right = opened(stack, broker, "keep", 3)
    channel = publisher.channel(Task, keep=1)
    channel.announce()
    channel.publish(Task(number=-1, source="before"))
    witness = right.collection(Task).inbox()
    assert witness.get(timeout=PATIENCE_S).number == -1, "the broker has it"
    taken = {bus: numbers_taken(bus) for bus in (left, right)}
    for number in range(40):
        channel.publish(Task(number=number, source=f"s{number % 3}"))
    channel.forget(source="s1")
    publisher.publish(Task(number=40))
    wait_for(lambda: sum(map(len, taken.values())) >= 41)
    assert sorted([*taken[left], *taken[right]]) == list(range(41))
    assert all(taken.values())
    assert not [name for bus in taken for name in bus.traffic().link if name.startswith("rejected")]


def test_a_queue_of_a_kind_gets_events_of_classes_that_are_declared_later(broker: MqttBroker, stack: ExitStack) -> None:
    publisher, consumer = opened(stack, broker, "later", 2)
    inbox = consumer.collection(Chore, "queue").inbox()
    publisher.publish(Sweep(number=1))
    assert inbox.get(timeout=PATIENCE_S) == Sweep(number=1)

    class Scrub(Event, Chore):
        number: int

    give_up = time.monotonic() + PATIENCE_S
    while inbox.counters.delivered < 2 and time.monotonic() < give_up:
        publisher.publish(Scrub(number=2))
        time.sleep(0.05)
    assert inbox.get(timeout=0) == Scrub(number=2)
