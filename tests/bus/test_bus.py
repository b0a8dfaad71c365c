"""Publishing and subscribing within a process."""

import asyncio
import contextlib
import functools
import logging
import os
import re
import threading
from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import MagicMock, Mock, create_autospec

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genus import Event, Kind, Listener, Maybe, Subscription, UInt32, all_of, open_bus, this
from genus.bus import BestEffort, Hard, Inbox, Soft, format_qos, register_link, shown_address
from genus.bus._queue import Closed, EventQueue
from genus.bus.types import Counters
from genus.can import World
from genus.errors import BusError, EventError, QueueFull, SpanError, SubscriptionError
from tests.examples import examples


class Roadside(Kind):
    pass


class Powered(Kind):
    pass


class Loop(Event, Roadside):
    lane: int
    speed: Maybe[float] = None


class Camera(Loop, Powered):
    plate: Maybe[str] = None


class Lamp(Event, Powered):
    on: bool


class Asked(Event):
    request: Maybe[UInt32] = None


class Told(Event):
    request: UInt32 = 0


class Post(Event, Roadside):
    """Pure: it adds nothing to its kind."""


def test_a_type_delivers_its_subtypes_and_exact_does_not() -> None:
    with open_bus() as bus:
        every: list[Loop] = []
        direct: list[Loop] = []
        loops = bus.collection(Loop)
        loops.subscribe(every.append)
        loops.subscribe(direct.append, exact=True)
        loops.publish(Loop(lane=1))
        loops.publish(Camera(lane=2))
    assert [event.lane for event in every] == [1, 2]
    assert [event.lane for event in direct] == [1]


def test_an_exact_subscription_to_a_kind_gets_its_pure_classes_only() -> None:
    with open_bus() as bus:
        found: list[Any] = []
        bus.collection(Roadside).subscribe(found.append, exact=True)
        bus.publish(Post())
        bus.publish(Loop(lane=1))
    assert found == [Post()]


def test_an_event_is_delivered_once_per_subscription_however_many_supertypes_match() -> None:
    with open_bus() as bus:
        found: list[Any] = []
        listener = bus.collection(Powered).subscribe(found.append)
        bus.collection(Camera).publish(Camera(lane=1))
        assert found == [Camera(lane=1)]
        assert listener.counters.delivered == 1


def test_all_of_matches_classes_that_conform_to_every_type() -> None:
    with open_bus() as bus:
        found: list[Any] = []
        bus.collection(all_of(Roadside, Powered)).subscribe(found.append)
        for event in (Loop(lane=1), Lamp(on=True), Camera(lane=2)):
            bus.publish(event)
    assert found == [Camera(lane=2)]


@examples(60)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.booleans()),
            st.tuples(st.just("subscribe"), st.sampled_from([None, 1, 2])),
            st.tuples(st.just("cancel"), st.integers(0, 9)),
            st.tuples(st.just("publish"), st.sampled_from([Loop, Camera]), st.integers(1, 2), st.integers(0, 9)),
        ),
        max_size=30,
    )
)
def test_publish_is_one_function_whenever_it_was_taken(steps: list[tuple[Any, ...]]) -> None:
    """And takes every change of subscriptions into account from the next event on."""
    with open_bus() as bus:
        loops, found, expected = bus.collection(Loop), Counter[int](), Counter[int]()
        taken: list[Any] = [loops.publish]
        listeners: dict[int, tuple[Any, int | None]] = {}
        for number, (what, *step) in enumerate(steps):
            if what == "take":
                taken.append(bus.publish if step[0] else loops.publish)
            elif what == "subscribe":
                handler = partial(lambda key, event: found.update([key]), number)
                where = None if step[0] is None else this.lane == step[0]
                listeners[number] = loops.subscribe(handler, where=where), step[0]
            elif what == "cancel" and listeners:
                listeners.pop(list(listeners)[step[0] % len(listeners)])[0].cancel()
            elif what == "publish":
                cls, lane, which = step
                taken[which % len(taken)](cls(lane=lane))
                expected.update(key for key, (_, wanted) in listeners.items() if wanted in (None, lane))
        assert found == expected
        assert {key: one.counters.delivered for key, (one, _) in listeners.items()} == {k: found[k] for k in listeners}
        assert {each.__func__ for each in taken} <= {loops.publish.__func__, bus.publish.__func__}  # type: ignore[attr-defined]


def test_a_type_declared_after_the_subscription_is_delivered_too() -> None:
    with open_bus() as bus:
        found: list[Any] = []
        bus.collection(Loop).subscribe(found.append)
        bus.publish(Loop(lane=1))

        class Radar(Loop):
            pass

        bus.publish(Radar(lane=2))
    assert [type(event).__name__ for event in found] == ["Loop", "Radar"]


@pytest.mark.parametrize("others", [0, 1, 7, 8, 20, 40])
@pytest.mark.parametrize("where", ["lane == 3", "lane in (3, 4)", "lane > 2", "lane >= 3", "lane < 4", "lane <= 3"])
def test_few_or_many_subscriptions_to_one_value_are_served_alike(where: str, others: int) -> None:
    """Whether by `if`, hash table or sorted list, each gets what it asked for, and the counters agree."""
    with open_bus() as bus:
        loops = bus.collection(Loop)
        hits = [0] * others

        def counter(number: int) -> Any:
            def count(_: Loop) -> None:
                hits[number] += 1

            return count

        plain = [loops.subscribe(counter(number), where=where) for number in range(others)]
        wanted: list[Any] = []
        special = loops.subscribe(wanted.append, has="speed", where=where + " and speed > 1.0")
        loops.publish(Loop(lane=3, speed=2.0))
        loops.publish(Loop(lane=3, speed=0.5))
        loops.publish(Loop(lane=3))
        loops.publish(Loop(lane=100 if "<" in where else -100, speed=9.0))
        assert wanted == [Loop(lane=3, speed=2.0)]
        assert special.counters.delivered == 1
        assert hits == [3] * others
        assert all(listener.counters.delivered == 3 for listener in plain)


def test_counters_survive_new_subscriptions_and_count_per_channel() -> None:
    with open_bus() as bus:
        loops = bus.collection(Loop)
        listener = loops.subscribe(lambda _: None, where=this.lane == 1)
        for lane in (1, 2, 1):
            loops.publish(Loop(lane=lane))
        loops.subscribe(lambda _: None)
        loops.publish(Loop(lane=1))
        loops.publish(Camera(lane=1))
        traffic = bus.traffic()
    assert traffic.published == {"Loop": 4, "Camera": 1}
    assert traffic.subscriptions["Loop where lane == 1"].delivered == 4
    assert listener.counters.delivered == 4


class TestHandlersThatRaise:
    @pytest.mark.parametrize("listeners", [3, 30])
    @pytest.mark.parametrize("where", [None, this.lane == 1, this.lane > 0])
    def test_one_that_raises_is_reported_and_stops_nobody(self, listeners: int, where: Any) -> None:
        reports: list[tuple[Listener[Any], Event, Exception]] = []
        found: list[int] = []

        def handler(number: int) -> Any:
            def handle(_: Loop) -> None:
                if number % 3 == 1:
                    raise ValueError(number)
                found.append(number)

            return handle

        with open_bus(on_error=lambda *report: reports.append(report)) as bus:
            loops = bus.collection(Loop)
            made = [loops.subscribe(handler(number), where=where) for number in range(listeners)]
            loops.publish(Loop(lane=1))
            failing = [number for number in range(listeners) if number % 3 == 1]
            assert sorted(found) == [number for number in range(listeners) if number % 3 != 1]
            assert sorted(int(str(problem)) for _, _, problem in reports) == failing
            assert [made.index(listener) for listener, _, _ in reports] == [
                int(str(problem)) for *_, problem in reports
            ]
            assert [number for number, one in enumerate(made) if one.counters.failed] == failing

    def test_without_on_error_it_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with open_bus() as bus, caplog.at_level(logging.ERROR, "genus.bus"):
            bus.collection(Loop).subscribe(lambda event: 1 / 0)
            bus.publish(Loop(lane=1))
        assert "Loop" in caplog.text
        assert "ZeroDivisionError" in caplog.text

    async def test_an_async_one_too(self) -> None:
        reports: list[Any] = []
        async with open_bus(on_error=lambda *report: reports.append(report)) as bus:

            async def fail(event: Loop) -> None:
                raise ValueError(event.lane)

            listener = bus.collection(Loop).subscribe(fail)
            bus.publish(Loop(lane=1))
            bus.publish(Loop(lane=2))
            await bus.wait_idle_async()
            await asyncio.sleep(0)
            assert [str(problem) for *_, problem in reports] == ["1", "2"]
            assert listener.counters.failed == 2


class TestRefusals:
    def test_a_collection_publishes_only_its_type(self) -> None:
        with open_bus() as bus:
            with pytest.raises(EventError, match="cannot publish a Lamp: it is no Loop"):
                bus.collection(Loop).publish(Lamp(on=True))  # type: ignore[arg-type]
            with pytest.raises(EventError, match="cannot publish a str"):
                bus.collection(Event).publish("no event")  # type: ignore[arg-type]
            a_class = r"cannot publish Lamp itself, which is a class \(create an event: Lamp\(\.\.\.\)\)"
            with pytest.raises(EventError, match=a_class):
                bus.publish(Lamp)  # type: ignore[arg-type]
            with pytest.raises(EventError, match=a_class):
                bus.collection(Lamp).publish_all([Lamp(on=True), Lamp])  # type: ignore[list-item]
            with bus.channel(Lamp) as lamps, pytest.raises(BusError, match=a_class):
                lamps.publish(Lamp)  # type: ignore[arg-type]

    def test_the_event_has_no_name_before_the_first_event_and_after_it(self) -> None:
        with open_bus() as bus:
            loops = bus.collection(Loop)
            for _ in range(3):
                for publish in (bus.publish, loops.publish):
                    with pytest.raises(TypeError):
                        publish(event=Loop(lane=1))  # type: ignore[call-arg]
                    with pytest.raises(TypeError):
                        publish(e=Loop(lane=1))  # type: ignore[call-arg]
                    publish(Loop(lane=1))
            assert bus.published() == {"Loop": 6}

    def test_an_attribute_outside_the_vector_is_refused_at_the_call(self) -> None:
        with (
            open_bus() as bus,
            pytest.raises(SubscriptionError, match=r"no attribute 'weight'; its attributes are "),
        ):
            bus.collection(Loop).subscribe(print, has="weight")

    def test_a_closed_bus_says_so(self) -> None:
        bus = open_bus()
        loops = bus.collection(Loop)
        publish = loops.publish
        loops.publish(Loop(lane=1))
        bus.close()
        bus.close()
        for call in (publish, loops.publish):
            with pytest.raises(BusError, match="closed"):
                call(Loop(lane=1))
        with pytest.raises(BusError, match="closed"):
            bus.collection(Loop)
        with pytest.raises(BusError, match="closed"):
            loops.subscribe(print)

    def test_a_value_of_the_wrong_type_is_named_when_a_predicate_meets_it(self) -> None:
        with open_bus() as bus:
            bus.collection(Loop).subscribe(print, where=this.speed > 3)
            with pytest.raises(EventError, match=r"Loop\.speed is 'fast', but must be float64"):
                bus.publish(Loop(lane=1, speed="fast"))  # type: ignore[arg-type]

    def test_check_refuses_wrong_values_before_anyone_sees_them(self) -> None:
        with open_bus(check=True) as bus:
            found: list[Any] = []
            bus.collection(Loop).subscribe(found.append)
            with pytest.raises(EventError, match=r"Loop.lane is 1.5, but must be int64"):
                bus.publish(Loop(lane=1.5))  # type: ignore[arg-type]
            bus.publish(Loop(lane=1))
        assert found == [Loop(lane=1)]

    @pytest.mark.parametrize(
        ("address", "why"),
        [
            ("", "known are"),
            ("local", "did you mean 'local:'"),
            ("ipc", "did you mean 'ipc:'"),
            ("pigeon:", "known are"),
            ("local:x", "takes no name"),
            ("local:?x=1", "takes no options"),
        ],
    )
    def test_an_unknown_address(self, address: str, why: str) -> None:
        with pytest.raises(BusError, match=re.escape(why)):
            open_bus(address)


class TestCancelling:
    def test_by_listener_by_handler_and_all_at_once(self) -> None:
        with open_bus() as bus:
            loops = bus.collection(Loop)
            found: list[Any] = []
            one = loops.subscribe(found.append)
            two = loops.subscribe(found.append, where=this.lane == 1)
            loops.cancel(one)
            loops.publish(Loop(lane=1))
            assert len(found) == 1
            loops.cancel(two.handler)
            loops.publish(Loop(lane=1))
            assert len(found) == 1
            loops.subscribe(found.append)
            loops.subscribe(found.append)
            loops.cancel()
            loops.publish(Loop(lane=1))
            assert len(found) == 1

    def test_a_handler_may_cancel_itself_and_subscribe_others(self) -> None:
        with open_bus() as bus:
            loops = bus.collection(Loop)
            found: list[str] = []

            def once(_: Loop) -> None:
                found.append("once")
                listener.cancel()
                loops.subscribe(lambda _: found.append("next"))

            listener = loops.subscribe(once)
            loops.publish(Loop(lane=1))
            loops.publish(Loop(lane=2))
        assert found == ["once", "next"]

    def test_a_listener_is_a_context_manager_and_still_callable(self) -> None:
        with open_bus() as bus:
            found: list[Any] = []
            with bus.collection(Loop).subscribe(found.append) as listener:
                bus.publish(Loop(lane=1))
                listener(Loop(lane=7))
            bus.publish(Loop(lane=2))
        assert [event.lane for event in found] == [1, 7]


class TestInboxes:
    def test_get_waits_and_times_out(self) -> None:
        with open_bus() as bus:
            inbox = bus.collection(Loop).inbox(where=this.lane > 1)
            bus.publish(Loop(lane=1))
            bus.publish(Loop(lane=2))
            assert inbox.get(timeout=0).lane == 2
            with pytest.raises(TimeoutError):
                inbox.get(timeout=0)
            threading.Timer(0.05, bus.publish, [Loop(lane=3)]).start()
            assert inbox.get(timeout=60).lane == 3

    def test_cancelled_it_gives_what_is_left_and_then_ends(self) -> None:
        with open_bus() as bus:
            inbox = bus.collection(Loop).inbox()
            bus.publish(Loop(lane=1))
            inbox.cancel()
            bus.publish(Loop(lane=2))
            assert [event.lane for event in inbox] == [1]
            with pytest.raises(BusError, match="cancelled"):
                inbox.get()

    @pytest.mark.parametrize(
        ("full", "kept", "dropped"), [("drop_oldest", [2, 3], 1), ("drop_newest", [1, 2], 1), ("raise", [1, 2], 1)]
    )
    def test_a_full_one_follows_its_policy_and_counts(
        self, full: Any, kept: list[int], dropped: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        with open_bus() as bus:
            others: list[Any] = []
            inbox = bus.collection(Loop).inbox(capacity=2, overflow=full)
            bus.collection(Loop).subscribe(others.append)
            for lane in (1, 2):
                bus.publish(Loop(lane=lane))
            if full == "raise":
                with pytest.raises(QueueFull, match=r"holds 2 events already \(capacity=2, overflow='raise'\)"):
                    bus.publish(Loop(lane=3))
            else:
                bus.publish(Loop(lane=3))
                assert not caplog.records, "somebody chose to drop"
            assert inbox.counters.dropped == dropped
            assert inbox.counters.waiting == 2
            inbox.cancel()
            assert [event.lane for event in inbox] == kept
            assert len(others) == 3, "the others got it all the same"

    def test_one_that_drops_though_nobody_chose_it_says_so_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with open_bus() as bus:
            inbox = bus.inbox(Loop, capacity=1)
            for lane in range(5):
                bus.publish(Loop(lane=lane))
            assert inbox.counters.dropped == 4
        (message,) = caplog.messages
        assert "the queue of 'Loop' is full (capacity=1)" in message

    def test_block_makes_the_publisher_wait(self) -> None:
        with open_bus() as bus:
            inbox = bus.collection(Loop).inbox(capacity=1, overflow="block")
            bus.publish(Loop(lane=1))
            waiting = threading.Thread(target=bus.publish, args=[Loop(lane=2)])
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
            assert inbox.get().lane == 1
            waiting.join(60)
            assert not waiting.is_alive()
            assert inbox.get(timeout=0).lane == 2

    def test_closing_the_bus_frees_a_waiting_publisher_and_a_waiting_reader(self) -> None:
        bus = open_bus()
        full = bus.collection(Loop).inbox(capacity=1, overflow="block")
        bus.publish(Loop(lane=1))
        told: list[str] = []

        def publish() -> None:
            try:
                bus.publish(Loop(lane=2))
            except (QueueFull, BusError) as problem:  # BusError if the bus was closed before this thread got so far
                told.append(str(problem))

        publisher = threading.Thread(target=publish)
        empty = bus.collection(Lamp).inbox()
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.extend(empty))
        publisher.start()
        reader.start()
        bus.close()
        publisher.join(60)
        reader.join(60)
        assert not publisher.is_alive()
        assert not reader.is_alive()
        assert len(told) == 1
        assert "closed" in told[0]
        counted = full.counters
        assert counted.delivered - counted.dropped == counted.waiting == 1

    @pytest.mark.parametrize(("capacity", "full"), [(0, "block"), (5, "explode")])
    def test_impossible_options_are_refused(self, capacity: int, full: Any) -> None:
        with open_bus() as bus, pytest.raises(BusError):
            bus.collection(Loop).inbox(capacity=capacity, overflow=full)


class TestEventLoops:
    async def test_async_for_over_inboxes(self) -> None:
        async with open_bus() as bus:
            loops = bus.collection(Loop)
            inbox = loops.inbox(where=this.lane == 2)
            found: list[int] = []

            async def read() -> None:
                async for event in loops.inbox():
                    found.append(event.lane)
                    if len(found) == 3:
                        return

            def publish_all() -> None:
                for lane in (1, 2, 3):
                    loops.publish(Loop(lane=lane))

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            threading.Thread(target=publish_all).start()
            await asyncio.wait_for(reading, 5)
            assert found == [1, 2, 3]
            inbox.cancel()
            assert [event.lane async for event in inbox] == [2]

    async def test_async_handlers_run_in_order_and_are_drained(self) -> None:
        found: list[int] = []
        async with open_bus() as bus:

            @bus.collection(Loop).subscribe(where=this.lane != 2)
            async def handle(event: Loop) -> None:
                await asyncio.sleep(0)
                found.append(event.lane)

            for lane in (1, 2, 3):
                bus.publish(Loop(lane=lane))
        assert found == [1, 3]

    async def test_a_full_blocking_queue_does_not_deadlock_its_own_loop(self) -> None:
        async with open_bus() as bus:

            async def handle(_: Loop) -> None:
                await asyncio.sleep(0)

            bus.collection(Loop).subscribe(handle, capacity=1, overflow="block")
            await asyncio.sleep(0)
            bus.publish(Loop(lane=1))
            with pytest.raises(QueueFull, match="would wait for itself"):
                bus.publish(Loop(lane=2))

    def test_an_async_handler_needs_a_loop(self) -> None:
        async def handle(_: Loop) -> None: ...

        with open_bus() as bus, pytest.raises(BusError, match="running event loop"):
            bus.collection(Loop).subscribe(handle)


class TestFlavours:
    def test_a_set_delivers_equal_events_once_while_it_remembers(self) -> None:
        with open_bus() as bus:
            found: list[Any] = []
            loops = bus.collection(Loop, "set", dedup_window=2)
            loops.subscribe(found.append)
            for lane in (1, 1, 2, 1, 3, 4, 1):
                loops.publish(Loop(lane=lane))
        assert [event.lane for event in found] == [1, 2, 3, 4, 1]

    def test_a_queue_gives_each_event_to_one_consumer_in_turn(self) -> None:
        with open_bus() as bus:
            jobs = bus.collection(Loop, "queue")
            one: list[Any] = []
            two: list[Any] = []
            first = jobs.subscribe(one.append)
            second = jobs.subscribe(two.append, where=this.lane < 5)
            for lane in (1, 2, 3, 4, 9):
                jobs.publish(Loop(lane=lane))
            assert sorted(event.lane for event in one + two) == [1, 2, 3, 4, 9]
            assert Loop(lane=9) in one
            assert abs(len(one) - len(two)) <= 1
            assert (first.counters.delivered, second.counters.delivered) == (len(one), len(two))
            first.cancel()
            jobs.publish(Loop(lane=4))
            assert two[-1] == Loop(lane=4)

    def test_a_bag_beside_a_queue_gets_everything(self) -> None:
        with open_bus() as bus:
            everything: list[Any] = []
            bus.collection(Loop).subscribe(everything.append)
            bus.collection(Loop, "queue").subscribe(lambda _: None)
            bus.collection(Loop, "queue").publish(Loop(lane=1))
        assert len(everything) == 1

    def test_asking_twice_gives_the_same_collection(self) -> None:
        with open_bus() as bus:
            assert bus.collection(Loop) is bus.collection(Loop)
            assert bus.collection(Loop) is not bus.collection(Loop, "set")
            with pytest.raises(BusError, match="none of bag, set, queue"):
                bus.collection(Loop, "heap")  # type: ignore[call-overload]


def test_many_threads_publish_and_subscribe_without_losing_anything() -> None:
    """Handlers come and go while four threads publish: one that stays gets every event exactly once."""
    with open_bus() as bus:
        loops = bus.collection(Loop)
        seen: list[int] = []
        loops.subscribe(lambda event: seen.append(event.lane))
        stop = threading.Event()

        def publish(start: int) -> None:
            for lane in range(start, start + 500):
                loops.publish(Loop(lane=lane))

        def churn() -> None:
            while not stop.is_set():
                loops.subscribe(lambda _: None, where=this.lane > 3).cancel()

        churning = threading.Thread(target=churn)
        churning.start()
        publishers = [threading.Thread(target=publish, args=[start]) for start in range(0, 2000, 500)]
        for thread in publishers:
            thread.start()
        for thread in publishers:
            thread.join()
        stop.set()
        churning.join()
    assert sorted(seen) == list(range(2000))


class TestEventLoopsThatEnd:
    """An event for a coroutine function is handled, or dropped, counted and reported; never left waiting for ever."""

    @examples(40)
    @given(
        before=st.integers(0, 6),
        turns=st.integers(0, 6),
        after=st.integers(0, 3),
        ending=st.sampled_from(["run", "close", "cancel"]),
        concurrency=st.integers(1, 3),
    )
    @example(before=4, turns=3, after=2, ending="run", concurrency=2)
    @example(before=4, turns=3, after=2, ending="close", concurrency=2)
    @example(before=4, turns=3, after=2, ending="cancel", concurrency=1)
    @example(before=4, turns=0, after=0, ending="run", concurrency=1)
    def test_all_events_are_accounted_for(
        self, before: int, turns: int, after: int, ending: str, concurrency: int
    ) -> None:
        handled, reported = list[int](), list[int]()

        async def handle(event: Loop) -> None:
            await asyncio.sleep(0)
            handled.append(event.lane)

        def report(_: object, event: Any, problem: Exception) -> None:
            assert "event loop" in str(problem)
            reported.append(event.lane)

        async def run(bus: Any) -> Listener[Loop]:
            listener = bus.subscribe(Loop, handle, concurrency=concurrency)
            for lane in range(before):
                bus.publish(Loop(lane=lane))
            for _ in range(turns):
                await asyncio.sleep(0)
            return listener  # type: ignore[no-any-return]

        with open_bus(on_error=report) as bus:
            loop = asyncio.new_event_loop()
            try:
                listener = asyncio.run(run(bus)) if ending == "run" else loop.run_until_complete(run(bus))
                if ending == "cancel":
                    listener.cancel()
                    while not listener.is_idle:  # type: ignore[attr-defined]
                        loop.run_until_complete(asyncio.sleep(0))
            finally:
                for task in asyncio.all_tasks(loop):
                    task.get_coro().close()
                loop.close()
            for lane in range(before, before + after):
                bus.publish(Loop(lane=lane))
        counted = listener.counters
        assert counted.waiting == 0
        assert counted.delivered - counted.dropped - counted.failed == len(handled)
        assert len(reported) == counted.dropped + counted.failed
        assert sorted(handled + reported) == list(range(before if ending == "cancel" else before + after))
        assert concurrency > 1 or handled == sorted(handled)

    def test_a_publisher_that_waits_for_room_is_told(self) -> None:
        async def handle(event: Loop) -> None:
            await asyncio.sleep(3600)

        async def subscribe(bus: Any) -> Listener[Loop]:
            listener: Listener[Loop] = bus.subscribe(Loop, handle, capacity=1, overflow="block")
            bus.publish(Loop(lane=0))
            for _ in range(3):
                await asyncio.sleep(0)
            bus.publish(Loop(lane=1))
            waiting = asyncio.to_thread(bus.publish, Loop(lane=2))
            told = asyncio.create_task(waiting)
            await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                if task not in (told, asyncio.current_task()):
                    task.cancel()
            with contextlib.suppress(QueueFull):  # if the thread waited before the tasks ended
                await told
            return listener

        reported: list[int] = []
        with open_bus(on_error=lambda _, event, __: reported.append(event.lane)) as bus:  # type: ignore[attr-defined]
            listener = asyncio.run(subscribe(bus))
        assert listener.counters == Counters(delivered=3, failed=1, dropped=2, waiting=0)
        assert sorted(reported) in ([0, 1], [0, 1, 2])


async def test_a_coroutine_function_handles_as_many_events_at_a_time_as_it_may() -> None:
    now, most, done = 0, 0, list[int]()

    async def handle(event: Loop) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == expected:
            gate.set()
        await gate.wait()
        now -= 1
        done.append(event.lane)

    for concurrency, expected in ((1, 1), (3, 3), (50, 10)):
        gate, most = asyncio.Event(), 0
        done.clear()
        async with open_bus() as bus:
            bus.subscribe(Loop, handle, concurrency=concurrency)
            for lane in range(10):
                bus.publish(Loop(lane=lane))
        assert most == expected
        assert sorted(done) == list(range(10))
        assert concurrency > 1 or done == list(range(10))
    with open_bus() as bus, pytest.raises(BusError, match="concurrency=2 needs a coroutine function"):
        bus.subscribe(Loop, print, concurrency=2)


@pytest.mark.parametrize("count", [0, -1, "3", 2.5, 1.0, True, np.array([1, 2])])
async def test_a_number_of_events_is_an_integer_of_at_least_1(count: Any) -> None:
    async def handle(_: Loop) -> None: ...

    async def answer(_: Asked) -> Told:
        return Told()

    with open_bus() as bus:
        loops, asked = bus.collection(Loop), bus.collection(Asked)
        for call in (
            lambda: loops.inbox(capacity=count),
            lambda: bus.inbox(Loop, capacity=count),
            lambda: loops.subscribe(handle, capacity=count),
            lambda: loops.subscribe(print, capacity=count),
            lambda: loops.subscribe(handle, concurrency=count),
            lambda: bus.subscribe(Loop, print, concurrency=count),
            lambda: asked.serve(answer, concurrency=count),
            lambda: bus.collection(Loop, "set", dedup_window=count),
        ):
            with pytest.raises(
                BusError, match=r"(capacity|concurrency|dedup_window) is .*; it must be an integer of at"
            ):
                call()
        assert bus.listeners() == []
        loops.inbox(capacity=np.int64(1))  # type: ignore[arg-type]


class Callable1:
    def method(self, event: Event) -> None: ...
    def none(self) -> None: ...
    def __call__(self, event: Event) -> None: ...


class Callable2:
    def __call__(self, event: Event, more: int) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        print, [].append, set().add, len, dict, Callable1(), Callable1().method, Mock(), MagicMock(), lambda e: e,
        lambda e, more=1: e, lambda *events: events, lambda e, *, key=1: e, lambda **names: names, lambda: None,
        lambda e, more: e, lambda e, *, key: e, partial(lambda key, e: e, 1), partial(lambda e, key: e, key=1),
        partial(lambda e: e, 1), Callable2(), Callable1().none, Callable1.method, create_autospec(lambda e: e),
        functools.lru_cache(lambda e: e), functools.lru_cache(lambda: 1),
    ],
)  # fmt: skip
def test_a_handler_that_cannot_take_one_event_is_refused_where_it_is_written(handler: Any) -> None:
    """What calling it with one argument says is what subscribing says."""
    with open_bus() as bus:
        try:
            handler(Event())
        except TypeError as problem:
            is_refused = "argument" in str(problem)
        else:
            is_refused = False
        for subscribe in (bus.collection(Loop).subscribe, bus.collection(Asked).serve, partial(bus.subscribe, Loop)):
            if is_refused:
                with pytest.raises(BusError, match="is not a handler: it is called with one event"):
                    subscribe(handler)
            else:
                subscribe(handler)


def test_a_handler_that_is_none_is_refused_with_advice() -> None:
    async def handle(event: Loop) -> None: ...

    with open_bus() as bus:
        with pytest.raises(BusError, match=r"pass the function itself, without calling it"):
            bus.subscribe(Loop, handle(Loop(lane=1)))  # type: ignore[call-overload]
        for subscribe in (bus.collection(Loop).subscribe, bus.collection(Asked).serve, partial(bus.subscribe, Loop)):
            with pytest.raises(BusError, match=r"None is not a handler.*without calling it"):
                subscribe(None)  # type: ignore[call-overload]
        for wrong in (3, this.lane, this.lane > 1):
            with pytest.raises(BusError, match="is not a handler"):
                bus.subscribe(Loop, wrong)  # type: ignore[call-overload]
        for given in (print, 3, None, Loop(lane=1), int):
            with pytest.raises(
                BusError, match=r"cannot be subscribed to; give a type, all_of\(\.\.\.\), a Subscription"
            ):
                bus.inbox(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("wanted", [Loop, all_of(Loop, Roadside), Subscription(Loop)])
def test_a_bus_subscribes_to_a_type_or_a_subscription(wanted: Any) -> None:
    with open_bus() as bus:
        inbox, found = bus.inbox(wanted), list[Any]()
        listener = bus.subscribe(wanted, found.append)
        for event in (Loop(lane=1), Lamp(on=True), Camera(lane=2)):
            bus.publish(event)
        assert inbox.drain() == found == [Loop(lane=1), Camera(lane=2)]
        assert inbox.drain() == []
        assert listener.counters.delivered == 2
        assert bus.last_values(wanted) == []


@pytest.mark.parametrize("address", ["local:", "ipc:closing", "sim:closing?name=a"])
@pytest.mark.parametrize("end", ["bus", "inbox"])
def test_what_waits_can_be_taken_after_the_end_on_every_link(address: str, end: str) -> None:
    """Then `get` says that there is no more, `drain` is empty, and iterations end."""
    world = World("closing", catalog=[Loop]) if address.startswith("sim:") else None
    with contextlib.ExitStack() as stack:
        if world is not None:
            stack.enter_context(world)
        bus = stack.enter_context(open_bus(f"{address}-{os.getpid()}" if address.startswith("ipc:") else address))
        inboxes = [bus.inbox(Loop) for _ in range(4)]
        for lane in range(3):
            bus.publish(Loop(lane=lane))
        if world is not None:
            world.run("1s")
        for closed in [bus.close] if end == "bus" else [inbox.cancel for inbox in inboxes]:
            closed()
        assert_ended(inboxes)
    _taken, drained, iterated, _awaited = inboxes
    assert [each.counters.waiting for each in inboxes] == [0, 0, 0, 0]
    assert [each.counters.delivered for each in inboxes] == [3, 3, 3, 3]
    assert [drained.drain(), list(iterated)] == [[], []]


def assert_ended(inboxes: list[Inbox[Loop]]) -> None:
    taken, drained, iterated, awaited = inboxes
    assert [taken.get(timeout=timeout).lane for timeout in (0, None, "1s")] == [0, 1, 2]
    assert [event.lane for event in drained.drain()] == [event.lane for event in iterated] == [0, 1, 2]
    assert [asyncio.run(awaited.get_async(timeout)).lane for timeout in (0, None, "1s")] == [0, 1, 2]
    for timeout in (0, None, "1s"):
        with pytest.raises(BusError, match="cancelled and empty"):
            taken.get(timeout)
        with pytest.raises(BusError, match="cancelled and empty"):
            asyncio.run(awaited.get_async(timeout))


async def test_waiting_for_an_event_ends_in_time() -> None:
    async with open_bus() as bus:
        inbox = bus.inbox(Loop)
        for timeout in (0, "1ms", timedelta(milliseconds=1), 0.001):
            with pytest.raises(TimeoutError, match="no event for 'Loop' within 0"):
                await inbox.get_async(timeout)
        bus.publish(Loop(lane=1))
        assert (await inbox.get_async(0)).lane == 1
        waiting = asyncio.create_task(inbox.get_async("60s"))
        await asyncio.sleep(0)
        bus.publish(Loop(lane=2))
        assert (await waiting).lane == 2


NO_SPANS = ["soon", -1, float("nan"), True, None, b"1s", "1 parsec", [1]]


@pytest.mark.parametrize("given", NO_SPANS)
@pytest.mark.parametrize(
    "call",
    [
        lambda bus, span: bus.sleep(span),
        lambda bus, span: bus.every(span, print),
        lambda bus, span: bus.every("1s", print, tolerance=span),
        lambda bus, span: bus.inbox(Loop).get(timeout="none" if span is None else span),
        lambda bus, span: bus.collection(Asked).request(Asked(), Told, timeout=span),
        lambda bus, span: Hard(span),
        lambda bus, span: Soft(span),
        lambda bus, span: BestEffort(period="none" if span is None else span),
        lambda bus, span: bus.channel(Loop, f"soft:{span}"),
    ],
)
def test_what_is_no_span_is_one_error_everywhere(call: Any, given: Any) -> None:
    with open_bus() as bus:
        bus.collection(Asked).serve(lambda event: None)
        with pytest.raises(SpanError):
            call(bus, given)


@pytest.mark.parametrize("span", [0.01, "10ms", "0.01s", timedelta(milliseconds=10)])
def test_a_span_means_the_same_everywhere(span: Any) -> None:
    with open_bus() as bus:
        bus.sleep(span)
        bus.every(span, print, offset=span, tolerance=span).cancel()
        bus.collection(Asked).serve(lambda event: Told())
        assert type(bus.collection(Asked).request(Asked(), Told, timeout=span)) is Told
        with pytest.raises(TimeoutError, match=r"within 0.01 s"):
            bus.inbox(Loop).get(timeout=span)
    written = [format_qos(qos) for qos in (Hard(span), Soft(span, expires=span), BestEffort(period=span))]
    assert written == ["hard:10ms", "soft:10ms:10ms", "none:10ms"]


@pytest.mark.parametrize("time", ["now", 1.5, None, timedelta(seconds=1), datetime(2026, 1, 1)])
def test_what_is_no_point_of_time_is_refused(time: Any) -> None:
    with open_bus() as bus, pytest.raises(BusError, match="time zone"):
        bus.call_at(time, print)


def test_a_publisher_that_waits_in_virtual_time_is_told_of_the_end_of_the_queue() -> None:
    told: list[str] = []
    with World("waiting", catalog=[Loop]) as world:
        bus = open_bus("sim:waiting?name=a")
        inbox = bus.collection(Loop).inbox(capacity=1, overflow="block")

        def publish() -> None:
            for lane in range(3):
                try:
                    bus.publish(Loop(lane=lane))
                except QueueFull as problem:
                    told.append(str(problem))

        program = world.start(publish)
        world.run("1s")
        assert not program.is_done
        inbox.cancel()
        world.run("1s")
        assert program.is_done
    assert told == ["the queue of 'Loop' was closed while an event waited for room; the event is lost"]
    assert inbox.counters == Counters(delivered=2, failed=0, dropped=1, waiting=1)


class TestWhatABusTellsOthers:
    """Parts of Genus and programs that are about a bus, such as its page."""

    def test_functions_are_called_at_its_end_unless_they_ended_before(self) -> None:
        """One call for each time that a function was given, in the order they were given, and before the bus ends."""
        called: list[Any] = []
        bus = open_bus()
        assert not bus.is_closed
        bus.at_close(lambda: called.append(bus.is_closed))
        first, second = (bus.at_close(partial(called.append, "twice")) for _ in range(2))
        bus.at_close(partial(called.append, "last"))
        first()
        first()
        bus.close()
        bus.close()
        assert called == [True, "twice", "last"]
        second()
        with pytest.raises(BusError, match="the bus is closed"):
            bus.at_close(bus.close)

    def test_a_function_that_was_given_twice_is_ended_once(self) -> None:
        called: list[str] = []
        function = partial(called.append, "called")
        with open_bus() as bus:
            end, _ = bus.at_close(function), bus.at_close(function)
            end()
        assert called == ["called"]

    def test_it_publishes_events_of_any_type(self) -> None:
        with open_bus() as bus:
            loops: list[Any] = []
            bus.subscribe(Loop, loops.append)
            bus.publish(Loop(lane=1))
            bus.publish(Lamp(on=True))
            assert loops == [Loop(lane=1)]
            assert bus.published() == {name(Loop): 1, name(Lamp): 1}
            with pytest.raises(EventError):
                bus.publish("an event")  # type: ignore[arg-type]

    def test_it_lists_the_channels_that_are_announced(self) -> None:
        with open_bus() as bus:
            channel, other = bus.channel(Loop), bus.channel(Lamp)
            assert bus.channels() == []
            assert not channel.is_announced
            with channel:
                assert channel.is_announced
                assert bus.channels() == [channel]
                with other:
                    assert set(bus.channels()) == {channel, other}
            assert bus.channels() == []

    def test_a_channel_is_of_an_event_type(self) -> None:
        with open_bus() as bus:
            with pytest.raises(
                BusError, match="<class 'int'> is neither an event type nor a kind, so it has no channel"
            ):
                bus.channel(int)
            with pytest.raises(BusError, match="Roadside is a kind, which has no events of its own"):
                bus.channel(Roadside).announce()

    def test_it_tells_which_last_values_are_forgotten(self) -> None:
        told: list[Any] = []
        with open_bus() as bus:
            end, other = bus.on_forgotten(told.append), bus.on_forgotten(lambda event: told.append(event.on))  # type: ignore[attr-defined]
            with bus.channel(Lamp, keep=True, keep_by="on") as channel:
                assert (bus.kept_by(Loop), bus.kept_by(Lamp)) == (None, channel.keep)
                channel.publish(Lamp(on=True))
                channel.publish(Lamp(on=False))
                channel.forget(on=True)
                assert told == [Lamp(on=True), True]
                end()
                end()
                channel.forget()
                assert told[2:] == [False]
                other()

    def test_the_subscriptions_with_most_events_are_told_with_their_texts(self) -> None:
        """Of the others, the counters: there may be very many."""
        with open_bus() as bus:
            for lane in range(3):
                for _ in range(2):
                    bus.collection(Loop).subscribe(print_nothing, where=this.lane > lane)
            for lane in (1, 2, 2, 3):
                bus.publish(Loop(lane=lane))
            counted: Any = bus.traffic().subscriptions
            largest, others = counted.largest(2)
            assert {text: counters.delivered for text, counters in largest.items()} == {"Loop where lane > 0": 8}
            assert [counters.delivered for counters in others] == [3, 3, 1, 1]
            assert len(counted) == 3
            assert counted["Loop where lane > 1"].delivered == 6
            assert "Loop where lane > 2" in repr(counted)

    def test_a_listener_shows_what_it_listens_to(self) -> None:
        with open_bus() as bus:
            listener = bus.collection(Loop).subscribe(print_nothing, where=this.lane > 1)
            bus.publish(Loop(lane=2))
            assert repr(listener).startswith("<Listener of 'Loop where lane > 1', Counters(")
            assert listener in bus.listeners()


def print_nothing(event: Event) -> None: ...


def name(cls: type) -> str:
    return cls.__name__


def test_a_scheme_of_addresses_is_an_identifier() -> None:
    with pytest.raises(BusError, match="'my-link' cannot be the scheme of an address; use letters, digits and _"):
        register_link("my-link", lambda rest: None)
    given: list[str] = []
    register_link("test_scheme", given.append)
    with open_bus("test_scheme:a:b?c") as bus:
        assert bus.link is None
    assert given == ["a:b?c"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("socketcan:vcan0", r"write can:socketcan\?channel=vcan0; known are "),
        ("locl", "'locl' is not an address of a bus: did you mean 'local:'"),
        ("local:here", "local: takes no name, but was given 'here'"),
        ("local:?a=1", r"local: takes no options, but was given '\?a=1'"),
        ("nowhere://ann:secret@host", "'nowhere://ann:...@host' is not an address"),
    ],
)
def test_an_address_that_is_none_is_answered_with_what_to_write(address: str, message: str) -> None:
    with pytest.raises(BusError, match=message):
        open_bus(address)


def test_an_address_is_shown_without_its_password() -> None:
    assert shown_address("mqtt://ann:se:cr@et@broker/city?x=a:b@c") == "mqtt://ann:...@broker/city?x=a:b@c"
    assert shown_address("mqtt://ann@broker/a:b@c") == "mqtt://ann@broker/a:b@c"


def test_a_queue_that_is_closed_takes_nothing_more() -> None:
    queue: EventQueue[int] = EventQueue("numbers", 2, "raise")
    assert queue.put(1)
    assert queue.put(2)
    with pytest.raises(
        QueueFull, match=r"the queue of 'numbers' holds 2 events already \(capacity=2, overflow='raise'"
    ):
        queue.put(3)
    assert queue.dropped == 1
    queue.close()
    assert not queue.put(4)
    assert queue.dropped == 2
    assert [queue.get(), queue.get(0)] == [1, 2]
    with pytest.raises(Closed):
        queue.get()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError("x" * 300), f"ValueError: {'x' * 188}"),
        (Unspeakable(), "Unspeakable"),
    ],
)
def test_a_listener_has_the_last_error_of_its_handler_as_text(problem: Exception, text: str) -> None:
    def fail(event: Event) -> None:
        raise problem

    with open_bus(on_error=lambda *_: None) as bus:
        listener = bus.subscribe(Loop, fail)
        assert listener.last_error == ""
        bus.publish(Loop(lane=1))
        assert (listener.last_error, listener.counters.failed) == (text, 1)


def test_what_waits_for_a_handler_is_reported_when_its_event_loop_ends() -> None:
    """At once, not with the next event or the end of the bus."""

    async def handle(event: Loop) -> None:
        await asyncio.sleep(3600)

    async def run(bus: Any) -> Any:
        listener = bus.subscribe(Loop, handle)
        for lane in range(3):
            bus.publish(Loop(lane=lane))
        await asyncio.sleep(0)
        return listener

    reported: list[str] = []
    with open_bus(on_error=lambda _, __, problem: reported.append(str(problem))) as bus:
        listener = asyncio.run(run(bus))
        assert listener.counters == Counters(delivered=3, failed=1, dropped=2, waiting=0)
        assert len(reported) == 3
