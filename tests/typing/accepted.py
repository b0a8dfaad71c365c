"""Type checkers must accept all of this (test_typing.py asks them)."""

from datetime import datetime, timedelta
from typing import Any, assert_type

from genus import (
    BestEffort,
    Collection,
    Event,
    EventChannel,
    Inbox,
    Int8,
    Kind,
    Listener,
    Maybe,
    Subscription,
    UInt32,
    all_of,
    open_bus,
    this,
)
from genus.filters.types import Predicate, Term


class Roadside(Kind):
    pass


class Loop(Event, Roadside):
    lane: int
    category: Maybe[str] = None
    bay: Int8 = 0

    @property
    def both(self) -> int:
        return self.lane + self.bay


class Camera(Loop):
    plate: str


class Barrier(Event, Roadside, name="city.Barrier", tagged=("place", "open")):
    open: Maybe[bool] = None


loop = Loop(lane=1, place="A8", category="truck")
camera = Camera(lane=2, plate="M-XY 1", bay=3)
lane: int = loop.lane
maybe_time: datetime | None = camera.time

with open_bus("local:") as bus:
    loops: Collection[Loop] = bus.collection(Loop)

    @loops.subscribe(has=("place",), where=this.lane > 1)
    def on_loop(event: Loop) -> None:
        print(event.lane, event.category)

    @loops.subscribe
    def on_any(event: Event) -> None:
        print(event.place)

    async def on_loop_async(event: Loop) -> None:
        print(event.lane)

    loops.subscribe(on_loop_async)
    loops.publish(loop)
    loops.publish(camera)
    on_loop.cancel()
    plate: str = bus.collection(Camera).inbox().get(timeout=1).plate
    both = bus.collection(all_of(Loop, Roadside))
    both.subscribe(on_loop)
    bus.collection(Roadside).subscribe(lambda event: print(event))


async def read() -> int:
    async for event in loops.inbox():
        return event.lane
    return 0


def on_text(event: Any) -> None:
    print(event)


def on_event(event: Event) -> None:
    print(event.place)


def on_camera(event: Camera) -> None:
    print(event.plate)


fast: Subscription[Loop] = Subscription(Loop, where=this.lane > 1)
assert_type(this[Camera.lane] * 2 > this[Loop.bay], Predicate)
assert_type(~this[Loop.category].isin(["truck"]) | this[Loop.both].between(1, 3), Predicate)
assert_type(this["lane"].length(), Term)
named: Subscription[Loop] = Subscription(Loop, where=this[Loop.place].startswith("A8") & this[Loop.time].is_present())
assert_type(Subscription(Loop), Subscription[Loop])
assert_type(Subscription(all_of(Loop, Roadside), has="lane", strict=True), Subscription[Loop])
assert_type(Subscription.parse("Loop where lane > 1"), Subscription[Any])
wide: Subscription[Event] = fast
plain: Subscription = fast
of_text: Subscription[Camera] = Subscription.parse("Camera")

with open_bus("local:") as bus:
    assert_type(bus.subscribe(fast, on_loop), Listener[Loop])
    assert_type(bus.subscribe(fast, lambda event: print(event.lane)), Listener[Loop])
    bus.subscribe(fast, on_loop_async)
    bus.subscribe(fast, print)
    bus.subscribe(Subscription(Camera), on_loop.handler)
    bus.subscribe(fast, on_event)
    bus.subscribe(Subscription(Roadside), on_event)
    bus.subscribe(Subscription(Roadside), lambda event: print(event))
    assert_type(bus.subscribe("Loop where lane > 1", on_camera, strict=True), Listener[Any])
    bus.subscribe("Loop", on_text)
    assert_type(bus.inbox(fast), Inbox[Loop])
    assert_type(bus.inbox(fast, capacity=3).get(timeout=1), Loop)
    assert_type(bus.inbox("Loop"), Inbox[Any])
    assert_type(bus.inbox(Loop), Inbox[Loop])
    assert_type(bus.inbox(Loop).drain(), list[Loop])
    assert_type(bus.inbox(all_of(Loop, Roadside)).get(timeout="1s"), Loop)
    assert_type(bus.subscribe(Loop, on_loop.handler), Listener[Loop])
    assert_type(bus.subscribe(Loop, lambda event: print(event.lane)), Listener[Loop])
    bus.subscribe(Loop, on_loop_async, concurrency=4)
    bus.subscribe(all_of(Loop, Roadside), lambda event: print(event.lane))
    bus.subscribe(Camera, on_loop.handler)
    bus.subscribe(Roadside, on_event)


class Move(Event):
    axis: int
    request: Maybe[UInt32] = None


class Moved(Event):
    axis: int
    request: UInt32 = 0


def answer(event: Move) -> Moved:
    return Moved(axis=event.axis)


async def answer_async(event: Move) -> Moved | None:
    return None if event.axis else Moved(axis=event.axis)


moves = bus.collection(Move)
assert_type(moves.serve(answer), Listener[Move])
assert_type(moves.serve(answer_async, where=this.axis > 1), Listener[Move])
assert_type(moves.serve(lambda event: Moved(axis=event.axis)), Listener[Move])


@moves.serve
def served(event: Move) -> Event:
    return Moved(axis=event.axis)


@moves.serve(has="request")
async def served_async(event: Move) -> Moved:
    return Moved(axis=event.axis)


assert_type(served, Listener[Move])
assert_type(served_async, Listener[Move])
assert_type(moves.request(Move(axis=1), Moved, timeout=1.5), Moved)


async def request() -> int:
    assert_type(await moves.request_async(Move(axis=1), Moved, timeout=timedelta(seconds=2)), Moved)
    return (await moves.request_async(Move(axis=1), Moved, timeout="2s")).axis


assert_type(bus.channel(Loop, BestEffort(), keep=True), EventChannel[Loop])
assert_type(bus.channel(Loop, keep=True, keep_by=("lane", "bay")), EventChannel[Loop])
assert_type(bus.last_values(fast), list[Loop])
assert_type(bus.last_values("Loop"), list[Any])
assert_type(loops.publish_all(Loop(lane=lane) for lane in range(3)), int)
