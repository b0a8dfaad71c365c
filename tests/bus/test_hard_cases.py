"""What is likely to go wrong in a bus: queues under contention, handlers under way, hostile bytes, wrong values."""

import asyncio
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from genus import Event, Float32, Maybe, Subscription, open_bus, this
from genus.bus import RecordingWriter, read_recording
from genus.bus._blocks import HEADER
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.bus._frames import FORMAT
from genus.bus._queue import EventQueue
from genus.errors import BusError, EventError, QueueFull
from genus.targets import python
from genus.targets.index import SubscriptionIndex


class Tick(Event):
    number: int
    weight: Maybe[Float32] = None
    notes: Maybe[list[Any]] = None


class Touchy(Event):
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise KeyError("negative")


class TestQueuesUnderContention:
    def test_many_publishers_that_wait_and_many_readers_lose_nothing_and_do_not_hang(self) -> None:
        with open_bus() as bus:
            inbox = bus.collection(Tick).inbox(capacity=1, overflow="block")
            found: list[int] = []

            def publish() -> None:
                for number in range(200):
                    bus.publish(Tick(number=number))

            def read() -> None:
                for _ in range(200):
                    found.append(inbox.get(timeout=120).number)

            publishers = [threading.Thread(target=publish) for _ in range(3)]
            readers = [threading.Thread(target=read) for _ in range(3)]
            for thread in (*publishers, *readers):
                thread.start()
            for thread in (*publishers, *readers):
                thread.join(120)
                assert not thread.is_alive()
        assert sorted(found) == sorted(list(range(200)) * 3)

    async def test_a_reader_that_is_cancelled_passes_its_wake_up_on(self) -> None:
        mailbox: EventQueue[int] = EventQueue("test", 10, "block")
        first, second = (asyncio.create_task(mailbox.get_async()) for _ in range(2))
        await asyncio.sleep(0)
        mailbox.put(7)
        first.cancel()
        assert await asyncio.wait_for(second, 5) == 7

    async def test_a_loop_that_would_wait_for_itself_is_told_so_before_its_worker_ever_ran(self) -> None:
        async with open_bus() as bus:

            async def handle(_: Tick) -> None: ...

            bus.collection(Tick).subscribe(handle, capacity=1, overflow="block")
            bus.publish(Tick(number=1))
            with pytest.raises(QueueFull, match="wait for itself"):
                bus.publish(Tick(number=2))


class TestAsyncHandlers:
    async def test_drain_waits_for_the_handler_under_way(self) -> None:
        done: list[int] = []
        async with open_bus() as bus:

            async def slow(event: Tick) -> None:
                await asyncio.sleep(0.01)
                done.append(event.number)

            bus.collection(Tick).subscribe(slow)
            for number in range(3):
                bus.publish(Tick(number=number))
        assert done == [0, 1, 2]

    @pytest.mark.parametrize("flavour", ["bag", "set", "queue"])
    @pytest.mark.parametrize("concurrency", [1, 2])
    async def test_what_a_cancelled_handler_has_queued_is_waited_for(self, flavour: Any, concurrency: int) -> None:
        done: list[int] = []

        async def handle(event: Tick) -> None:
            await asyncio.sleep(0)
            done.append(event.number)

        async with open_bus() as bus:
            for first in (0, 3, 6):
                with bus.collection(Tick, flavour).subscribe(handle, concurrency=concurrency):
                    for number in range(first, first + 3):
                        bus.publish(Tick(number=number))
                if first == 0:
                    await bus.wait_idle_async()
                    assert sorted(done) == [0, 1, 2]
        assert sorted(done) == list(range(9))

    async def test_one_that_is_cancelled_from_within_is_reported_and_goes_on(self) -> None:
        reports: list[Any] = []
        done: list[int] = []
        async with open_bus(on_error=lambda *report: reports.append(report)) as bus:

            async def handle(event: Tick) -> None:
                if event.number == 0:
                    raise asyncio.CancelledError
                done.append(event.number)

            listener = bus.collection(Tick).subscribe(handle)
            for number in range(3):
                bus.publish(Tick(number=number))
            await bus.wait_idle_async()
            assert listener.counters.failed == 1
        assert done == [1, 2]
        assert "cancelled from within" in str(reports[0][2])

    async def test_a_closed_bus_leaves_no_task_behind(self) -> None:
        bus = open_bus()
        loops = bus.collection(Tick)
        bus.close()

        async def handle(_: Tick) -> None: ...

        before = len(asyncio.all_tasks())
        with pytest.raises(BusError):
            loops.subscribe(handle)
        assert len(asyncio.all_tasks()) == before

    async def test_the_tasks_of_a_handler_end_with_the_bus(self) -> None:
        before, handled = len(asyncio.all_tasks()), list[int]()

        async def handle(event: Tick) -> None:
            await asyncio.sleep(0)
            handled.append(event.number)

        bus = open_bus()
        bus.subscribe(Tick, handle, concurrency=4)
        for number in range(20):
            bus.publish(Tick(number=number))
        await asyncio.sleep(0)
        bus.close()  # what waits is still handled
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0)
        assert sorted(handled) == list(range(20))


class TestFlavours:
    def test_a_queue_goes_to_the_next_who_has_room(self) -> None:
        with open_bus() as bus:
            jobs = bus.collection(Tick, "queue")
            first, second = (jobs.inbox(capacity=1, overflow="raise") for _ in range(2))
            for number in range(2):
                jobs.publish(Tick(number=number))
            with pytest.raises(QueueFull):
                jobs.publish(Tick(number=2))
            second.get(timeout=0)
            jobs.publish(Tick(number=3))
            assert second.get(timeout=0).number == 3
            kept = [one.counters.delivered - one.counters.dropped - one.counters.waiting for one in (first, second)]
            assert kept == [0, 2]  # taken: who is offered an event without room for it, counts it as dropped

    def test_cancelled_consumers_of_a_queue_stay_away_while_others_publish(self) -> None:
        with open_bus() as bus:
            jobs = bus.collection(Tick, "queue")
            after: list[str] = []
            stop = threading.Event()

            def churn() -> None:
                while not stop.is_set():
                    jobs.subscribe(lambda _: None).cancel()

            def publish() -> None:
                for number in range(2000):
                    jobs.publish(Tick(number=number))

            stayed = jobs.subscribe(lambda _: after.append("stayed"))
            threads = [threading.Thread(target=publish) for _ in range(2)]
            churning = threading.Thread(target=churn)
            for thread in (*threads, churning):
                thread.start()
            for thread in threads:
                thread.join()
            stop.set()
            churning.join()
            after.clear()
            for number in range(50):
                jobs.publish(Tick(number=number))
            assert len(after) == 50
            assert list(jobs.listeners) == [stayed]

    def test_a_queue_on_a_closed_bus_is_refused(self) -> None:
        bus = open_bus()
        jobs = bus.collection(Tick, "queue")
        bus.close()
        with pytest.raises(BusError, match="closed"):
            jobs.subscribe(print)

    def test_a_set_goes_by_equality_counts_what_it_gave_and_may_be_offered_again_what_was_refused(self) -> None:
        with open_bus() as bus:
            ticks = bus.collection(Tick, "set")
            inbox = ticks.inbox(capacity=1, overflow="raise")
            ticks.publish(Tick(number=1, weight=0.0))
            ticks.publish(Tick(number=1, weight=-0.0))
            assert inbox.counters.delivered == 1
            with pytest.raises(QueueFull):
                ticks.publish(Tick(number=2))
            inbox.get(timeout=0)
            ticks.publish(Tick(number=2))
            assert inbox.get(timeout=0).number == 2
            ticks.publish(Tick(number=3, notes=[1]))
            ticks.publish(Tick(number=3, notes=[1]))
            assert inbox.get(timeout=0).number == 3
            with pytest.raises(TimeoutError):
                inbox.get(timeout=0)

    def test_a_set_is_safe_under_threads(self) -> None:
        with open_bus() as bus:
            ticks = bus.collection(Tick, "set", dedup_window=50)
            listener = ticks.subscribe(lambda _: None)

            def publish() -> None:
                for number in range(3000):
                    ticks.publish(Tick(number=number % 70))

            threads = [threading.Thread(target=publish) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert listener.counters.failed == 0


class TestErrors:
    def test_a_handlers_own_full_queue_is_the_handlers_error(self) -> None:
        reports: list[Any] = []
        with open_bus(on_error=lambda *report: reports.append(report)) as bus, open_bus() as other:
            other.collection(Tick).inbox(capacity=1, overflow="raise")
            other.publish(Tick(number=0))
            listener = bus.collection(Tick).subscribe(other.publish)
            bus.publish(Tick(number=1))
            assert listener.counters.failed == 1
        assert isinstance(reports[0][2], QueueFull)

    def test_an_on_error_that_raises_stops_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        def complain(*_: object) -> None:
            raise RuntimeError("no ink")

        found: list[Any] = []
        with open_bus(on_error=complain) as bus:
            bus.collection(Tick).subscribe(lambda _: 1 / 0)
            bus.collection(Tick).subscribe(found.append)
            bus.publish(Tick(number=1))
        assert len(found) == 1
        assert "no ink" in caplog.text

    def test_what_cannot_be_called_is_no_handler(self) -> None:
        with open_bus() as bus, pytest.raises(BusError, match="5 is not a handler"):
            bus.collection(Tick).subscribe(5)  # type: ignore[call-overload]

    @pytest.mark.parametrize(
        ("where", "values", "name"),
        [
            (this.weight > 1, {"weight": "heavy"}, "weight"),
            (this.time > this.deadline, {"time": datetime(2026, 1, 1), "deadline": datetime(2026, 1, 2)}, "time"),
            (this.number + 1 > 3, {"number": "many"}, "number"),
            (this.place.startswith("A"), {"place": 8}, "place"),
        ],
    )
    def test_wrong_values_are_named_whoever_meets_them(self, where: Any, values: dict[str, Any], name: str) -> None:
        event = Tick(**{"number": 1, **values})
        asked = Subscription(Tick, where=where)
        with open_bus() as bus:
            bus.subscribe(asked, print)
            for ask in (asked.matches, python.compile(asked), SubscriptionIndex([asked]).match, bus.publish):
                with pytest.raises(EventError, match=rf"Tick\.{name} is "):
                    ask(event)

    @pytest.mark.parametrize("value", [pd.NA, np.array([1, 2]), pd.Series([1, 2])], ids=["NA", "array", "series"])
    @pytest.mark.parametrize("flavour", ["bag", "queue"])
    def test_a_comparison_without_a_truth_costs_nobody_else_the_event(self, value: Any, flavour: Any) -> None:
        with open_bus() as bus:
            picky = bus.collection(Tick, flavour).inbox(where=this.number < 3)
            wanted = (Tick, Subscription(Tick, has="number"), Subscription(Tick, where="weight is absent"))
            boxes = [bus.inbox(asked) for asked in wanted]
            for _ in range(2):  # the second without making code first
                with pytest.raises(EventError, match=r"Tick\.number is "):
                    bus.publish(Tick(number=value))
            assert [len(box.drain()) for box in (picky, *boxes)] == [0, 2, 2, 2]
            with pytest.raises(EventError, match=r"Tick\.number is "):
                python.compile(picky.subscription)(Tick(number=value))

    @pytest.mark.slow
    def test_many_cancellations_are_quick(self) -> None:
        """Not timed: with a quadratic rule this would take minutes."""
        with open_bus() as bus:
            ticks = bus.collection(Tick)
            made = [ticks.subscribe(lambda _: None) for _ in range(10_000)]
            ticks.publish(Tick(number=1))
            for listener in made:
                listener.cancel()
            assert not ticks.listeners


class TestHostileBytes:
    def packets(self) -> list[bytes]:
        nested = b"\x91" * 50_000 + b"\x01"
        return [
            b"",
            b"\x93",
            b"\x93\xa4Tick\x00\x82\xa6number\x01\xa5notes" + nested,
            b"\x93\xa6Touchy\x00\x81\xa6number\xff",
            b"\x93\xa4Tick\x00\x81\xa6number\xa3one",
            b"\x93\xa4Tick\x00\xc0",
            b"\x93\x01\x00\x80",
        ]

    def test_each_is_rejected_with_a_reason(self) -> None:
        decoder = EventDecoder([Tick, Touchy])
        for packet in self.packets():
            found = decoder.decode(packet)
            assert isinstance(found, Rejected)
            assert found.reason

    def test_good_events_after_them_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "hostile.genus"
        hostile = b"".join(map(FORMAT.frame, self.packets()[2:6]))
        path.write_bytes(FORMAT.header + hostile + FORMAT.frame(encode_event(Tick(number=5), 0)))
        assert list(read_recording(path, [Tick, Touchy])) == [Recorded(0, Tick(number=5))]

    def test_a_damaged_header_costs_only_itself(self, tmp_path: Path) -> None:
        path = tmp_path / "ticks.genus"
        with RecordingWriter(path) as writer:
            writer.write(Tick(number=5), 0)
        path.write_bytes(b"G" + path.read_bytes()[1:])
        recording = read_recording(path, [Tick])
        assert [one.event for one in recording] == [Tick(number=5)]
        assert recording.damage == [f"{path}: damaged at byte 0: {len(HEADER)} bytes skipped, 0 events lost"]

    def test_an_event_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with RecordingWriter(tmp_path / "ticks.genus") as writer, pytest.raises(EventError, match=r"Tick\.number is"):
            writer.write(Tick(number=2**70), 0)
