"""Type checkers must accept all of this (test_typing.py asks them)."""

from datetime import datetime

from genus import Collection, Event, Int8, Kind, Maybe, all_of, open_bus, this


class Roadside(Kind):
    pass


class Loop(Event, Roadside):
    lane: int
    category: Maybe[str] = None
    bay: Int8 = 0


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
