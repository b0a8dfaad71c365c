"""Type checkers must refuse each line marked `refused`, and no other (test_typing.py asks them)."""

from datetime import UTC, datetime

from genus import Event, Kind, Maybe, Subscription, all_of, open_bus, this


class Roadside(Kind):
    pass


class Loop(Event, Roadside):
    lane: int
    category: Maybe[str] = None


class Camera(Loop):
    plate: str


class Lamp(Event):
    on: bool


def on_camera(event: Camera) -> None:
    print(event.plate)


def on_number(event: int) -> None:
    print(event)


def number_of(event: Loop) -> int:
    return event.lane


async def on_lamp(event: Lamp) -> None:
    print(event.on)


bus = open_bus("local:")
loops = bus.collection(Loop)
loops.subscribe(on_camera)  # refused
loops.subscribe(on_number)  # refused
loops.subscribe(on_lamp)  # refused
loops.subscribe(has="lane")(on_camera)  # refused
loops.publish(Lamp(on=True))  # refused
loops.publish("event")  # refused
print(loops.get().plate)  # refused
Loop(lane="one")  # refused
Loop(category="car")  # refused
Loop(lane=1, weight=2)  # refused
Loop(datetime.now(UTC), lane=1)  # refused
Event(None, "gate-7")  # refused
loops.get().lane = 3  # refused
loops.inbox(overflow="explode")  # refused
bus.collection(Loop, "heap")  # refused
bus.subscribe(Subscription(Loop), on_lamp)  # refused
bus.subscribe(Subscription(Loop), on_camera)  # refused
bus.subscribe(Subscription(Loop), on_number)  # refused
bus.subscribe(Subscription(all_of(Loop, Roadside)), on_lamp)  # refused
bus.subscribe("Loop where lane > 1")  # refused
print(bus.inbox(Subscription(Loop)).get().plate)  # refused
lamps: Subscription[Lamp] = Subscription(Loop)  # refused
cameras: Subscription[Camera] = Subscription(Loop)  # refused
Subscription(Loop, strict="yes")  # refused
bus.channel(Loop, keep=2)  # refused
bus.channel(Loop, keep=True, keep_by=1)  # refused
lamps_kept: list[Lamp] = bus.last_values(Subscription(Loop))  # refused
loops.publish_all([Lamp(on=True)])  # refused
loops.serve(on_camera)  # refused
loops.serve(number_of)  # refused
loops.subscribe(where=this[Loop.lan] > 1)  # refused
Subscription(Loop, where=this[Loop.plate].startswith("A"))  # refused
Subscription(Loop, where=this.lane.startswith(3))  # refused
Subscription(Loop, where=this.category.lower() == "car")  # refused
Subscription(Loop, where=this.lane.isin(1, 2))  # refused
Subscription(Loop, where=this.lane.isin(1))  # refused
Subscription(Loop, where=len(this.category) > 3)  # refused
Subscription(Loop, where=this.lane**2 > 3)  # refused
Subscription(Loop, where=this.lane > 1 & this.category)  # refused
Subscription(Loop, where=this.category[0] == "c")  # refused
Subscription(Loop, where=this.lane > None)  # refused
Subscription(Loop, where=this.lane > [1, 2])  # refused
Subscription(Loop, where=lambda event: event.lane > 1)  # refused
Subscription(Loop, where=this.category.is_present)  # refused
this.lane = 3  # refused
loops.request(Lamp(on=True), Lamp)  # refused
loops.request(Loop(lane=1), Roadside)  # refused
loops.request(Loop(lane=1))  # refused
print(loops.request(Loop(lane=1), Lamp).lane)  # refused
bus.subscribe(Loop, on_lamp)  # refused
bus.subscribe(Loop, on_camera)  # refused
bus.subscribe(all_of(Loop, Roadside), on_number)  # refused
bus.subscribe(Loop, lambda event: event.sped)  # refused
print(bus.inbox(Loop).get().plate)  # refused
print(bus.inbox(Loop).drain()[0].plate)  # refused
bus.every(b"1s", print)  # refused
