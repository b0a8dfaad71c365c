"""Queues whose consumers are in several processes: the shared subscriptions of MQTT."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.waiting import pass_time, wait_for

pytest.importorskip("mqtt5", reason="mqtt5 comes with genus[mqtt]")

from genus import Event, Kind, Soft, Subscription, open_bus, this
from genus.bus import Bus
from genus.errors import BusError
from genus.net._link.netlink import NetLink, Unlimited
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import EventsLate
from genus.testing import MqttBroker

PATIENCE_S = 30.0
NOT_TAKEN = "rejected: an event of a queue that no consumer here took"


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


def numbers_taken(bus: Bus, **options: Any) -> list[int]:
    """The numbers of the tasks that a consumer on a bus takes."""
    taken: list[int] = []
    bus.collection(Task, "queue").subscribe(lambda task: taken.append(task.number), **options)
    return taken


def test_each_event_of_a_keep_channel_goes_to_one_consumer(broker: MqttBroker, stack: ExitStack) -> None:
    """Those that are published from now on, not what the broker keeps; also many of one key."""
    publisher, left, right = opened(stack, broker, "keep", 3)
    channel = publisher.channel(Task, keep=True)
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

    def one_arrives() -> bool:
        publisher.publish(Scrub(number=2))
        return inbox.counters.delivered >= 2

    wait_for(one_arrives)
    assert inbox.get(timeout=0) == Scrub(number=2)


def test_consumers_that_ask_differently_are_of_different_groups(broker: MqttBroker, stack: ExitStack) -> None:
    """Each event goes to one of those that ask the same, however they say it."""
    publisher, high, low, low_too = opened(stack, broker, "asked", 4)
    above = numbers_taken(high, where=this.number >= 50)
    below = [numbers_taken(low, where=this.number < 50), numbers_taken(low_too, where="number < 50")]
    for number in range(100):
        publisher.publish(Task(number=number))
    wait_for(lambda: len(above) + sum(map(len, below)) >= 100)
    assert above == list(range(50, 100))
    assert sorted(below[0] + below[1]) == list(range(50))
    assert all(below)
    assert high.traffic().subscriptions["Task where number >= 50"].delivered == 50
    counted = [bus.traffic().subscriptions["Task where number < 50"].delivered for bus in (low, low_too)]
    assert counted == list(map(len, below))
    assert not [name for bus in (high, low, low_too) for name in bus.traffic().link if name.startswith("rejected")]


def test_a_consumer_that_asks_differently_is_refused_within_a_process(broker: MqttBroker, stack: ExitStack) -> None:
    (bus,) = opened(stack, broker, "refused", 1)
    first = bus.collection(Task, "queue").inbox(where=this.number >= 50)
    with pytest.raises(BusError, match=r"ask the same: .*'Task where number >= 50'.*'Task where number < 50'"):
        bus.collection(Task, "queue").inbox(where=this.number < 50)
    second = bus.collection(Task, "queue").inbox(where="number >= 50")
    for number in range(48, 52):
        bus.publish(Task(number=number))
    assert sorted(inbox.get(timeout=PATIENCE_S).number for inbox in (first, second)) == [50, 51]
    for inbox in (first, second):
        inbox.cancel()
    other = bus.collection(Task, "queue").inbox(where=this.number < 50)
    bus.publish(Task(number=1))
    assert other.get(timeout=PATIENCE_S).number == 1


@pytest.mark.parametrize("is_closed", [False, True], ids=["cancelled", "closed"])
def test_no_event_is_lost_when_a_consumer_leaves(broker: MqttBroker, stack: ExitStack, is_closed: bool) -> None:
    """It takes what the broker gave to its process; the others get the rest."""
    publisher, staying, leaving = opened(stack, broker, f"leaving-{is_closed}", 3)
    stays: list[int] = numbers_taken(staying)
    leaves: list[int] = []
    listener = leaving.collection(Task, "queue").subscribe(lambda task: leaves.append(task.number))
    leave = threading.Thread(target=leaving.close if is_closed else listener.cancel)
    sent, last = 0, None

    def has_room() -> bool:
        """Whether so few are on their way that no broker holds any back."""
        return len(stays) + len(leaves) > sent - 15

    while last is None or sent < last:
        publisher.publish(Task(number=sent))
        sent += 1
        if sent == 200:
            leave.start()
        if sent > 200 and last is None and not leave.is_alive():
            last = sent + 100
        wait_for(has_room)
    wait_for(lambda: len(stays) + len(leaves) >= sent)
    assert sorted(stays + leaves) == list(range(sent))
    assert leaves
    assert set(range(sent - 100, sent)) <= set(stays)


def test_what_comes_for_a_consumer_that_left_is_counted(broker: MqttBroker, stack: ExitStack) -> None:
    """A handler that cancels its own subscription cannot wait for what comes behind."""
    publisher, bus, witness = opened(stack, broker, "left", 3)
    all_tasks = witness.collection(Task).inbox()
    taken: list[int] = []
    are_sent = threading.Event()

    def handle(task: Task) -> None:
        taken.append(task.number)
        assert are_sent.wait(PATIENCE_S)
        listener.cancel()

    listener = bus.collection(Task, "queue").subscribe(handle)
    for number in range(30):
        publisher.publish(Task(number=number))
    publisher.publish_all(Task(number=number) for number in range(30, 50))
    wait_for(lambda: all_tasks.counters.delivered == 50)
    are_sent.set()
    wait_for(lambda: bus.traffic().link.get(NOT_TAKEN, 0) >= 49)
    assert (taken, bus.traffic().link[NOT_TAKEN]) == ([0], 49)


def test_consumers_are_told_of_late_events(
    broker: MqttBroker, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each consumer that gave a handler of problems is, as long as it is there."""
    (publisher,) = opened(stack, broker, "late", 1)
    channel = stack.enter_context(publisher.channel(Task, Soft("1ms", "60s")))
    channel.announce()  # nobody is there to measure round trips with
    (bus,) = opened(stack, broker, "late", 1)
    told: dict[str, list[EventsLate]] = {"first": [], "second": [], "gone": []}
    is_late = threading.Event()
    queue = bus.collection(Task, "queue")
    for name in ("first", "second"):
        queue.subscribe(lambda task: is_late.wait(PATIENCE_S), on_problem=told[name].append)
    queue.subscribe(print, on_problem=told["gone"].append).cancel()
    for number in range(3):
        channel.publish(Task(number=number))
    pass_time(monkeypatch, 10)  # the deadline of those that wait behind the first
    is_late.set()
    wait_for(lambda: all(sum(each.count for each in told[name]) >= 2 for name in ("first", "second")))
    assert {each.type for each in told["first"]} == {"Task"}
    assert not told["gone"]
    wait_for(lambda: bus.traffic().subscriptions["Task"].delivered == 3)


def test_a_consumer_that_has_no_grant_is_refused(broker: MqttBroker, stack: ExitStack) -> None:
    class Narrow(Unlimited):
        def check_subscribe(self, subscription: Subscription) -> None:
            if subscription.where is None:
                raise BusError("ann may not subscribe to all tasks")

    options = parse_mqtt_address(f"//127.0.0.1:{broker.port}/granted", tls=False)
    link = NetLink(MqttTransport(options), "granted", medium="mqtt", permit=Narrow())
    bus = stack.enter_context(Bus(link))
    with pytest.raises(BusError, match="ann may not subscribe to all tasks"):
        bus.collection(Task, "queue").inbox()
    assert not bus.traffic().subscriptions
    allowed = bus.collection(Task, "queue").inbox(where=this.number > 1)
    for number in range(4):
        bus.publish(Task(number=number))
    assert [allowed.get(timeout=PATIENCE_S).number for _ in range(2)] == [2, 3]


def test_a_kept_session_goes_on_with_its_queues(broker: MqttBroker, stack: ExitStack) -> None:
    """In whatever order the next process joins them."""
    (publisher,) = opened(stack, broker, "session", 1)
    where = f"mqtt://127.0.0.1:{broker.port}/session?session=worker&session_expires=60s"
    with open_bus(where) as earlier:
        earlier.collection(Task, "queue").inbox()
        earlier.collection(Sweep, "queue").inbox()
    for number in range(10):
        publisher.publish(Task(number=number))
        publisher.publish(Sweep(number=number))
    later = stack.enter_context(open_bus(where))
    sweeps = later.collection(Sweep, "queue").inbox()
    tasks = later.collection(Task, "queue").inbox()
    assert [tasks.get(timeout=PATIENCE_S).number for _ in range(10)] == list(range(10))
    assert [sweeps.get(timeout=PATIENCE_S).number for _ in range(10)] == list(range(10))


def test_consumers_that_come_and_go_leave_no_gap(broker: MqttBroker, stack: ExitStack) -> None:
    """One joins while the last leaves: whoever is there gets the next event."""
    publisher, bus = opened(stack, broker, "gap", 2)
    queue = bus.collection(Task, "queue")
    inbox = queue.inbox()
    for number in range(30):
        leave = threading.Thread(target=inbox.cancel)
        leave.start()
        inbox = queue.inbox()
        leave.join()
        publisher.publish(Task(number=number))
        assert inbox.get(timeout=PATIENCE_S).number == number
