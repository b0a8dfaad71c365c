"""Last values: who subscribes later gets the newest event of each key, once, and never an older one after a newer."""

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from genus import BestEffort, Event, EventChannel, Kind, Maybe, Subscription, open_bus, this
from genus.bus import Bus, Capabilities, Link, Publisher
from genus.bus.types import Delivery, Keep, ProblemHandler, QoS
from genus.can import World
from genus.errors import BusError, EventError, QueueFull


class Plant(Kind): ...


class State(Event, Plant):
    number: int
    valve: Maybe[str] = None


class PumpState(State):
    speed: Maybe[float] = None


class Parts(Event):
    names: list[str]
    number: int = 0


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus("local:") as opened:
        yield opened


def keeping(bus: Bus, type: type[Any] = State, **options: Any) -> EventChannel[Any]:
    channel = bus.channel(type, BestEffort(), keep=True, **options)
    channel.announce()
    return channel


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_late_subscriber_gets_the_newest_event_of_each_source_at_once(bus: Bus) -> None:
    states = keeping(bus)
    for number, source in enumerate(["a", "b", "a", None, "b"]):
        states.publish(State(number=number, source=source))
    seen: list[State] = []
    listener = bus.collection(State).subscribe(seen.append)
    assert [(event.source, event.number) for event in seen] == [("a", 2), (None, 3), ("b", 4)]
    assert listener.counters.delivered == 3
    states.publish(State(number=5, source="a"))
    assert (seen[-1].number, len(seen), listener.counters.delivered) == (5, 4, 4)


def test_the_key_may_be_one_attribute_or_several(bus: Bus) -> None:
    by_valve = keeping(bus, keep_by="valve")
    by_both = keeping(bus, PumpState, keep_by=("source", "valve"))
    for number in range(4):
        by_valve.publish(State(number=number, valve="v", source=str(number)))
        by_both.publish(PumpState(number=number, valve="v", source=str(number % 2)))
    assert [event.number for event in bus.last_values(Subscription(State, exact=True))] == [3]
    assert [event.number for event in bus.last_values(Subscription(PumpState))] == [2, 3]


def test_the_source_that_the_bus_fills_in_is_the_key() -> None:
    with open_bus("local:", source="gate-7", stamp=True) as bus:
        states = keeping(bus)
        states.publish(State(number=1))
        states.publish(State(number=2, source="other"))
        states.publish(State(number=3))
        kept = bus.last_values(Subscription(State))
        assert [(event.source, event.number, event.time is None) for event in kept] == [
            ("other", 2, False),
            ("gate-7", 3, False),
        ]


def test_a_subscriber_gets_those_that_match(bus: Bus) -> None:
    states, pumps = keeping(bus), keeping(bus, PumpState)
    states.publish(State(number=1, source="a"))
    states.publish(State(number=2, source="b", valve="v"))
    pumps.publish(PumpState(number=3, source="a", speed=0.5))

    def numbers(subscription: Subscription[Any]) -> list[int]:
        seen: list[int] = []
        bus.subscribe(subscription, lambda event: seen.append(event.number)).cancel()
        assert [event.number for event in bus.last_values(subscription)] == seen
        return seen

    assert numbers(Subscription(State)) == [1, 2, 3]
    assert numbers(Subscription(State, exact=True)) == [1, 2]
    assert numbers(Subscription(Plant)) == [1, 2, 3]
    assert numbers(Subscription(PumpState)) == [3]
    assert numbers(Subscription(State, has="valve")) == [2]
    assert numbers(Subscription(State, where=this.number > 1)) == [2, 3]
    assert numbers(Subscription(Event, lacks="source")) == []
    assert numbers(Subscription(Parts)) == []


def test_events_of_other_channels_are_not_kept(bus: Bus) -> None:
    keeping(bus).publish(State(number=1, source="a"))
    bus.publish(State(number=2, source="a"))
    with bus.channel(State) as plain:
        plain.publish(State(number=3, source="a"))
    assert [event.number for event in bus.last_values(Subscription(State))] == [1]


def test_values_are_kept_when_the_channel_is_withdrawn_until_they_are_forgotten(bus: Bus) -> None:
    states = keeping(bus)
    for source in "abc":
        states.publish(State(number=1, source=source))
    states.cancel()
    assert len(bus.last_values(Subscription(State))) == 3
    states.announce()
    assert states.forget(source="b") == 1
    assert [event.source for event in bus.last_values(Subscription(State))] == ["a", "c"]
    assert states.forget(source="b") == 0
    assert states.forget() == 2
    assert not bus.last_values(Subscription(State))
    states.publish(State(number=2, source="b"))
    assert [event.number for event in bus.last_values(Subscription(State))] == [2]


def test_an_event_that_cannot_be_published_is_not_kept() -> None:
    with open_bus("local:", check=True) as bus:
        states = keeping(bus)
        states.publish(State(number=1, source="a"))
        with pytest.raises(EventError, match="number"):
            states.publish(State(number="two", source="a"))  # type: ignore[arg-type]
        assert [event.number for event in bus.last_values(Subscription(State))] == [1]


def test_an_event_that_one_full_queue_refused_is_kept(bus: Bus) -> None:
    states = keeping(bus)
    bus.collection(State).inbox(capacity=1, overflow="raise")
    states.publish(State(number=1))
    with pytest.raises(QueueFull):
        states.publish(State(number=2))
    assert [event.number for event in bus.last_values(Subscription(State))] == [2]


def test_the_same_object_may_be_published_again(bus: Bus) -> None:
    states, event = keeping(bus), State(number=1)
    states.publish(event)
    inbox = bus.collection(State).inbox()
    states.publish(event)
    states.publish(event)
    assert [inbox.get(timeout=0) for _ in range(3)] == [event] * 3


def test_an_object_that_is_kept_while_it_is_published_may_be_published_again(bus: Bus) -> None:
    states, event = keeping(bus), State(number=1)
    seen: list[State] = []

    def subscribe_once(_: State) -> None:
        if not seen:
            bus.collection(State).subscribe(seen.append)

    bus.collection(State).subscribe(subscribe_once)
    states.publish(event)
    assert seen == [event]
    states.publish(event)
    assert seen == [event, event]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 2}, "keep=2: write keep=True"),
        ({"keep": 1}, "keep=1: write keep=True"),
        ({"keep": None}, "keep=None: write keep=True"),
        ({"keep_by": "valve"}, "needs keep=True"),
    ],
)
def test_a_channel_keeps_one_event_or_none(bus: Bus, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BusError, match=message):
        bus.channel(State, **options)


@pytest.mark.parametrize(
    ("type", "by", "message"),
    [
        (State, "vlave", "no attribute of State; it has time, source"),
        (State, "speed", "no attribute of State"),
        (State, (), "one attribute or several"),
        (State, ("valve", "valve"), "each once"),
        (Parts, "names", "opaque"),
    ],
)
def test_a_key_is_made_of_attributes_of_the_type(bus: Bus, type: type, by: Any, message: str) -> None:
    with pytest.raises(BusError, match=message):
        keeping(bus, type, keep_by=by)


def test_a_type_is_kept_by_one_key(bus: Bus) -> None:
    keeping(bus)
    keeping(bus)
    with pytest.raises(BusError, match="kept by source on this bus already, not by valve"):
        keeping(bus, keep_by="valve")


def test_a_value_that_is_no_key_is_refused(bus: Bus) -> None:
    with pytest.raises(EventError, match="which is not a key"):
        keeping(bus, keep_by="valve").publish(State(number=1, valve=[]))  # type: ignore[arg-type]
    assert not bus.last_values(Subscription(State))


def test_forgetting_needs_a_channel_that_keeps_and_names_of_its_key(bus: Bus) -> None:
    with pytest.raises(BusError, match="was not announced"):
        bus.channel(State, keep=True).forget()
    with bus.channel(State) as plain, pytest.raises(BusError, match="keeps no last values; give it keep=True"):
        plain.forget()
    with pytest.raises(BusError, match="it cannot forget by valve"):
        keeping(bus).forget(valve="v")


def test_a_medium_without_last_values_refuses_the_channel() -> None:
    with World("keepless", catalog=[State]), open_bus("sim:keepless?name=a") as station:
        with pytest.raises(BusError, match="a CAN bus keeps no last values"):
            keeping(station)
        with pytest.raises(BusError, match="no attribute"):
            keeping(station, keep_by="nothing")


# -- how they arrive ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", ["block", "drop_oldest", "drop_newest", "raise"])
def test_an_inbox_takes_all_kept_events_whatever_its_capacity(bus: Bus, full: Any) -> None:
    states = keeping(bus)
    for number in range(20):
        states.publish(State(number=number, source=str(number)))
    inbox = bus.collection(State).inbox(capacity=3, overflow=full)
    assert [inbox.get(timeout=0).number for _ in range(20)] == list(range(20))
    assert inbox.counters.dropped == 0
    for number in range(3):
        states.publish(State(number=number))
    if full != "block":
        with pytest.raises(QueueFull) if full == "raise" else pytest.MonkeyPatch.context():
            states.publish(State(number=3))
        assert inbox.counters.dropped == 1


async def test_an_async_handler_gets_them_first() -> None:
    async with open_bus("local:") as bus:
        states, seen = keeping(bus), []
        for number in range(3):
            states.publish(State(number=number, source=str(number)))

        async def handle(event: State) -> None:
            await asyncio.sleep(0)
            seen.append(event.number)

        bus.collection(State).subscribe(handle, capacity=1, overflow="block")
        await bus.wait_idle_async()
        states.publish(State(number=3))
        await bus.wait_idle_async()
        assert seen == [0, 1, 2, 3]


def test_a_set_does_not_deliver_a_kept_event_again_that_is_published_anew(bus: Bus) -> None:
    states = keeping(bus)
    states.publish(State(number=1))
    seen: list[int] = []
    listener = bus.collection(State, "set").subscribe(lambda event: seen.append(event.number))
    states.publish(State(number=1))
    states.publish(State(number=2))
    assert (seen, listener.counters.delivered) == ([1, 2], 2)


def test_each_kept_event_goes_to_one_consumer_of_a_group_when_it_is_first_joined(bus: Bus) -> None:
    states = keeping(bus)
    for number in range(4):
        states.publish(State(number=number, source=str(number)))
    queue = bus.collection(State, "queue")
    first = queue.inbox(capacity=1, overflow="block")
    second = queue.inbox()
    assert [first.get(timeout=0).number for _ in range(4)] == [0, 1, 2, 3]
    for number in (4, 5):
        states.publish(State(number=number))
    assert sorted([first.get(timeout=0).number, second.get(timeout=0).number]) == [4, 5]
    assert first.counters.delivered == 5


def test_a_consumer_may_join_others_to_its_group_while_it_gets_kept_events(bus: Bus) -> None:
    states, queue = keeping(bus), bus.collection(State, "queue")
    states.publish(State(number=1))
    others: list[Any] = []
    queue.subscribe(lambda event: others.append(queue.inbox()))
    assert len(others) == 1
    states.publish(State(number=2))
    assert len(others) == 2 or others[0].counters.waiting == 1


def test_publishers_wait_for_a_subscriber_that_is_far_behind(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.bus._last_values.MAX_BACKLOG", 5)
    states = keeping(bus)
    states.publish(State(number=0))
    is_handling, may_go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def handle(event: State) -> None:
        seen.append(event.number)
        is_handling.set()
        assert may_go_on.wait(60)

    published: list[int] = []

    def publish() -> None:
        assert is_handling.wait(60)
        for number in range(1, 50):
            states.publish(State(number=number))
            published.append(number)
            if number == 5:
                may_go_on.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    listener = bus.collection(State).subscribe(handle)
    publisher.join(60)
    assert seen == list(range(50))
    assert listener.counters.delivered == 50
    assert published == list(range(1, 50))


def test_errors_of_a_handler_are_reported_as_always() -> None:
    reported: list[tuple[Event, Exception]] = []
    with open_bus("local:", on_error=lambda _, event, problem: reported.append((event, problem))) as bus:
        states = keeping(bus)
        for number in range(3):
            states.publish(State(number=number, source=str(number)))
        seen: list[int] = []

        def handle(event: State) -> None:
            seen.append(event.number)
            if event.number == 1:
                raise ValueError("no")

        listener = bus.collection(State).subscribe(handle)
        assert seen == [0, 1, 2]
        assert [(event.number, str(problem)) for event, problem in reported] == [(1, "no")]  # type: ignore[attr-defined]
        assert (listener.counters.delivered, listener.counters.failed) == (3, 1)


def test_a_handler_may_publish_subscribe_and_cancel_while_it_catches_up(bus: Bus) -> None:
    states, seen = keeping(bus), []
    for number in range(3):
        states.publish(State(number=number, source=str(number)))
    inner: list[int] = []

    def handle(event: State) -> None:
        seen.append((event.source, event.number))
        if event.number == 0:
            states.publish(State(number=10, source="2"))  # newer than the kept one, which comes first
            bus.collection(State).subscribe(lambda event: inner.append(event.number)).cancel()

    bus.collection(State).subscribe(handle)
    assert seen == [("0", 0), ("1", 1), ("2", 2), ("2", 10)]
    assert inner == [0, 1, 10]

    once: list[int] = []

    def handle_once(event: State) -> None:
        once.append(event.number)
        bus.collection(State).cancel(handle_once)

    bus.collection(State).subscribe(handle_once)
    assert len(once) == 1


def test_a_listener_that_caught_up_costs_nothing_more(bus: Bus) -> None:
    states, handler = keeping(bus), print
    states.publish(State(number=1))
    listener = bus.collection(State).subscribe(lambda _: handler)
    assert listener.deliver is listener.handler


# -- interleavings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_random_steps_agree_with_a_simple_model(seed: int) -> None:
    """Publishing, subscribing, cancelling and forgetting in any order, against a dictionary of newest events."""
    rng = random.Random(seed)
    with open_bus("local:") as bus:
        channels = {cls: keeping(bus, cls) for cls in (State, PumpState)}
        newest: dict[tuple[type, str], State] = {}
        live: list[tuple[Subscription[Any], Any, list[Event], list[Event]]] = []
        for number in range(150):
            step = rng.random()
            cls, source = rng.choice([State, PumpState]), rng.choice("abc")
            if step < 0.6:
                event = cls(number=number, source=source, valve=rng.choice([None, "v"]))
                channels[cls].publish(event)
                newest.pop((cls, source), None)
                newest[cls, source] = event
                for subscription, _, _, expected in live:
                    expected += [event] * subscription.matches(event)
            elif step < 0.8:
                subscription = Subscription(cls, has=rng.choice([(), "valve"]), where=rng.choice([None, "number > 40"]))
                seen: list[Event] = []
                listener = bus.subscribe(subscription, seen.append)
                kept = [event for cls in channels for (of, _), event in newest.items() if of is cls]
                live.append((subscription, listener, seen, [event for event in kept if subscription.matches(event)]))
            elif step < 0.9 and live:
                _, listener, seen, expected = live.pop(rng.randrange(len(live)))
                listener.cancel()
                assert seen == expected
            else:
                channels[cls].forget(source=source)
                newest.pop((cls, source), None)
        for _, listener, seen, expected in live:
            assert seen == expected
            assert listener.counters.delivered == len(expected)


def test_threads_that_subscribe_get_each_event_once_and_in_order() -> None:
    """Each thread publishes a key of its own; subscribers come at any time and see no gap after their first event."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        _publish_and_subscribe()
    finally:
        sys.setswitchinterval(before)


def _publish_and_subscribe() -> None:
    events = 600
    with open_bus("local:") as bus:
        states = keeping(bus)
        done: list[bool] = []

        def publish(source: str) -> None:
            for number in range(events):
                states.publish(State(number=number, source=source))
            done.append(True)

        publishers = [threading.Thread(target=publish, args=(source,)) for source in "abc"]
        for thread in publishers:
            thread.start()
        logs: list[tuple[Any, list[State]]] = []
        while len(done) < 3 and len(logs) < 150:
            seen: list[State] = []
            logs.append((bus.collection(State).subscribe(seen.append), seen))
            inbox = bus.collection(State).inbox(capacity=10_000, where=this.number >= 0)
            logs.append((inbox, inbox.queue._items))  # type: ignore[arg-type]
        for thread in publishers:
            thread.join(60)
            assert not thread.is_alive()
        for listener, seen in logs:
            for source in "abc":
                numbers = [event.number for event in list(seen) if event.source == source]
                assert numbers == list(range(numbers[0] if numbers else events, events)), (source, numbers[:20])
                assert numbers, "the last event of each key is kept, so every subscriber has it"
            assert listener.counters.delivered == len(seen)


# -- links -------------------------------------------------------------------------------------------------------------


class KeepingMemory(Link):
    """A link with last values of others, which a test puts in."""

    capabilities = Capabilities(last_values=True)

    def __init__(self, refuses: bool = False) -> None:
        self.known: dict[object, Event] = {}
        self.announced: list[tuple[type, Keep | None]] = []
        self.forgotten: list[Event] = []
        self.forgotten_keys: list[tuple[object, ...]] = []
        self.on_listen: Callable[[], None] = lambda: None
        self.refuses = refuses
        self.withdrawn = 0

    def open(self, deliver: Delivery) -> None:
        self.deliver = deliver

    def send(self, event: Event) -> None: ...

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {}

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        self.on_listen()
        return lambda: None

    def last_values(self, subscription: Subscription) -> list[Event]:
        return [event for event in list(self.known.values()) if subscription.matches(event)]

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        self.announced.append((cls, keep))
        return MemoryPublisher(self)

    def arrive(self, event: Event) -> None:
        self.known[type(event), event.source] = event
        self.deliver(event)


class MemoryPublisher(Publisher):
    def __init__(self, link: KeepingMemory) -> None:
        self.link = link

    def publish(self, event: Any) -> None:
        if self.link.refuses:
            raise BusError("not now")
        self.link.deliver.for_class(type(event))(event)

    def forget(self, event: Any) -> None:
        self.link.forgotten.append(event)

    def forget_key(self, values: Sequence[object]) -> None:
        self.link.forgotten_keys.append(tuple(values))

    def withdraw(self) -> None:
        self.link.withdrawn += 1


def test_kept_events_of_a_link_come_once_whether_they_arrive_before_or_while_subscribing() -> None:
    link = KeepingMemory()
    with Bus(link) as bus:
        link.arrive(State(number=1, source="early"))
        link.on_listen = lambda: link.arrive(State(number=2, source="meanwhile"))
        seen: list[State] = []
        listener = bus.collection(State).subscribe(seen.append)
        assert [event.number for event in seen] == [2, 1]
        assert listener.counters.delivered == 2
        link.deliver(seen[1])  # its delivery was slower than the subscriber
        assert [event.number for event in seen] == [2, 1]
        assert listener.counters.delivered == 2
        link.arrive(State(number=3, source="early"))
        assert [event.number for event in seen] == [2, 1, 3]


def test_an_older_event_that_arrives_while_subscribing_comes_before_the_newest() -> None:
    link = KeepingMemory()
    with Bus(link) as bus:

        def arrive() -> None:
            link.arrive(State(number=1, source="a"))
            link.known[State, "a"] = State(number=2, source="a")  # known, not yet delivered

        link.on_listen = arrive
        inbox = bus.collection(State).inbox()
        link.deliver(link.known[State, "a"])
        assert [inbox.get(timeout=0).number for _ in range(2)] == [1, 2]
        assert inbox.counters.waiting == 0


def test_threads_that_subscribe_while_a_link_receives_get_each_event_once_and_in_order() -> None:
    before, link, events = sys.getswitchinterval(), KeepingMemory(), 600
    sys.setswitchinterval(1e-5)
    try:
        with Bus(link) as bus:

            def receive() -> None:
                for number in range(events):
                    for source in "ab":
                        link.arrive(State(number=number, source=source))

            receiver = threading.Thread(target=receive)
            receiver.start()
            logs: list[tuple[Any, list[State]]] = []
            while receiver.is_alive() and len(logs) < 200:
                seen: list[State] = []
                logs.append((bus.collection(State).subscribe(seen.append), seen))
            receiver.join(60)
            for listener, seen in logs:
                for source in "ab":
                    numbers = [event.number for event in seen if event.source == source]
                    assert numbers == list(range(numbers[0], events))
                assert listener.counters.delivered == len(seen)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_channel_on_a_link_keeps_what_the_link_could_publish(refuses: bool) -> None:
    link = KeepingMemory(refuses)
    with Bus(link, source="here") as bus:
        states = keeping(bus, keep_by=("source", "valve"))
        assert link.announced == [(State, Keep(("source", "valve")))]
        if refuses:
            with pytest.raises(BusError, match="not now"):
                states.publish(State(number=1))
        else:
            states.publish(State(number=1))
        kept = bus.last_values(Subscription(State))
        assert [(event.number, event.source) for event in kept] == ([] if refuses else [(1, "here")])
        states.forget()
        assert link.forgotten == kept
        assert states.forget(valve=5, source="elsewhere") == 0
        assert link.forgotten_keys == [("elsewhere", 5)]


def test_a_second_key_of_a_type_is_refused_on_a_link_too() -> None:
    link = KeepingMemory()
    with Bus(link) as bus:
        keeping(bus)
        with pytest.raises(BusError, match="kept by source"):
            keeping(bus, keep_by="valve")
        assert link.withdrawn == 1


def test_a_link_that_refuses_to_listen_leaves_no_listener_behind() -> None:
    link = KeepingMemory()

    def fail() -> None:
        raise BusError("denied")

    with Bus(link) as bus:
        link.on_listen = fail
        seen: list[Event] = []
        with pytest.raises(BusError, match="denied"):
            bus.collection(State).subscribe(seen.append)
        link.deliver(State(number=1))
        assert not seen


def test_of_an_own_and_another_event_of_one_key_a_subscriber_gets_the_newest() -> None:
    """The other one, which the link knows, unless the own one is on its way now."""
    link = KeepingMemory()
    with Bus(link) as bus:
        states = keeping(bus)
        states.publish(State(number=1, source="shared"))
        states.publish(State(number=2, source="own"))
        link.arrive(State(number=3, source="shared"))
        link.arrive(State(number=4, source="other"))
        link.known[Parts, "plain"] = Parts(names=[], source="plain")
        kept = bus.last_values(Event)
        assert [(type(event), event.source) for event in kept] == [
            (State, "own"), (State, "shared"), (State, "other"), (Parts, "plain"),
        ]  # fmt: skip
        assert [event.number for event in bus.last_values(State)] == [2, 3, 4]
        during: list[list[int]] = []
        bus.collection(State).subscribe(lambda _: during.append([e.number for e in bus.last_values(State)]))
        during.clear()
        states.publish(State(number=5, source="shared"))
        assert during == [[2, 5, 4]]


def test_a_channel_on_a_link_that_is_withdrawn_leaves_the_medium() -> None:
    link = KeepingMemory()
    with Bus(link) as bus:
        states = keeping(bus)
        states.publish(State(number=1, source="a"))
        states.cancel()
        assert link.withdrawn == 1
        assert [event.number for event in bus.last_values(State)] == [1]


def test_an_event_that_could_not_be_published_leaves_the_one_before() -> None:
    link = KeepingMemory()
    with Bus(link) as bus:
        states = keeping(bus)
        states.publish(State(number=1, source="a"))
        link.refuses = True
        with pytest.raises(BusError, match="not now"):
            states.publish(State(number=2, source="a"))
        assert [event.number for event in bus.last_values(State)] == [1]
