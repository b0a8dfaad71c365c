"""What a bus offers its links and gateways: delivery of one class, and the subscriptions that there are."""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from genus import Event, Subscription, open_bus, this
from genus.bus import Bus, Link
from genus.bus.types import Delivery
from genus.errors import QueueFull


class Loop(Event):
    lane: int


class Truck(Loop):
    axles: int = 2


class Plain(Link):
    """A link that keeps its delivery."""

    deliver: Delivery

    def open(self, deliver: Delivery) -> None:
        self.deliver = deliver

    def send(self, event: Event) -> None: ...

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {}


def note(log: list[int], event: Loop) -> None:
    log.append(event.lane)


def test_a_delivery_of_one_class_stays_valid_when_subscriptions_change() -> None:
    link = Plain()
    with Bus(link) as bus:
        deliver = link.deliver.for_class(Loop)
        deliver(Loop(lane=0))
        logs: list[list[int]] = []
        for number in range(100):
            logs.append([])
            bus.collection(Loop).subscribe(partial(note, logs[-1]), where=this.lane >= number)
            for lane in (number, number):
                deliver(Loop(lane=lane))
            if number % 3 == 0:
                for _ in range(200):  # until code is generated
                    deliver(Loop(lane=number))
        assert [log[0] for log in logs] == list(range(100))
        assert len(logs[0]) == 200 + 34 * 200
        assert bus.traffic().published == {"Loop": 201 + 34 * 200}
        link.deliver(Truck(lane=99))
        assert all(log[-1] == 99 for log in logs)


def test_a_delivery_logs_errors_and_raises_none(caplog: pytest.LogCaptureFixture) -> None:
    link = Plain()
    with Bus(link) as bus:
        inbox = bus.collection(Loop).inbox(capacity=1, overflow="raise")
        for deliver in (link.deliver, link.deliver.for_class(Loop)):
            deliver(Loop(lane=1))
        with caplog.at_level(logging.ERROR, "genus.bus"):
            link.deliver.for_class(Loop)(Loop(lane=2))
        assert "was not delivered: Loop(lane=2)" in caplog.text
        assert isinstance(caplog.records[-1].exc_info[1], QueueFull)  # type: ignore[index]
        assert inbox.counters.waiting == 1


@pytest.mark.parametrize("flavour", ["bag", "set", "queue"])
def test_closing_frees_a_link_that_waits_for_room(flavour: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Threaded(Plain):
        """A link that delivers in a thread, and closes when that has ended."""

        def receive(self, *events: Event) -> None:
            self.thread = threading.Thread(target=lambda: deque(map(self.deliver, events)), daemon=True)
            self.thread.start()

        def close(self) -> None:
            self.thread.join(60)
            assert not self.thread.is_alive()

    link, is_waiting = Threaded(), threading.Event()

    def is_deserted() -> bool:
        is_waiting.set()
        return False

    bus = Bus(link)
    inbox = bus.collection(Loop, flavour).inbox(capacity=1, overflow="block")
    inbox.queue.is_deserted = is_deserted
    link.receive(Loop(lane=1), Loop(lane=2), Loop(lane=3))
    assert is_waiting.wait(60)
    bus.close()
    assert (inbox.counters.dropped, inbox.drain()) == (1, [Loop(lane=1)])
    assert [record.args for record in caplog.records] == [(Loop(lane=2),)]


def test_a_closed_bus_drops_what_its_link_delivers() -> None:
    link, seen = Plain(), list[Event]()
    bus = Bus(link)
    bus.collection(Loop).subscribe(seen.append)
    deliver = link.deliver.for_class(Loop)
    deliver(Loop(lane=1))
    bus.close()
    for late in (deliver, link.deliver, link.deliver.for_class(Loop)):
        late(Loop(lane=2))
    link.deliver.for_class(Truck)(Truck(lane=2))
    assert [event.lane for event in seen] == [1]  # type: ignore[attr-defined]
    assert bus.traffic().published == {"Loop": 1, "Truck": 0}


def test_a_bus_lists_its_subscriptions_and_tells_of_changes() -> None:
    changes: list[list[str]] = []
    with open_bus("local:") as bus:
        first = bus.collection(Loop).subscribe(print, where=this.lane > 1)
        end = bus.on_subscriptions(lambda: changes.append(sorted(map(str, bus.subscriptions()))))
        consumer = bus.collection(Loop, "queue").inbox(where=this.lane == 7)
        assert bus.subscriptions() == [
            Subscription(Loop, where=this.lane > 1),
            Subscription(Loop, where=this.lane == 7),
        ]
        first.cancel()
        bus.collection(Truck).inbox()
        consumer.cancel()
        assert changes == [
            ["Loop where lane == 7", "Loop where lane > 1"],
            ["Loop where lane == 7"],
            ["Loop where lane == 7", "Truck"],
            ["Truck"],
        ]
        end()
        end()
        bus.collection(Loop).inbox()
        assert len(changes) == 4


def test_a_function_that_fails_on_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    with open_bus("local:") as bus:
        bus.on_subscriptions(fail)
        bus.on_subscriptions(lambda: told.append(1))
        with caplog.at_level(logging.ERROR, "genus.bus"):
            bus.collection(Loop).inbox()
    assert told == [1]
    assert "a callback of on_subscriptions failed" in caplog.text


def test_subscriptions_of_many_threads_are_all_told() -> None:
    with open_bus("local:") as bus:
        most: list[int] = []
        bus.on_subscriptions(lambda: most.append(len(bus.subscriptions())))

        def subscribe() -> None:
            listeners: list[Any] = [bus.collection(Loop).subscribe(print) for _ in range(20)]
            for listener in listeners[1:]:
                listener.cancel()

        threads = [threading.Thread(target=subscribe) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(bus.subscriptions()) == 4
        assert len(most) == 4 * 39
