"""Filters: what an event has (attributes present or absent) and says (a predicate), as Python or as text."""

from enum import Enum

from genus import Event, Maybe, Subscription, this


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Loop(Event):
    lane: int
    category: Maybe[Category] = None
    speed: Maybe[float] = None  # metres per second; a sensor may not know it

    @property
    def kmh(self) -> float | None:
        return None if self.speed is None else self.speed * 3.6


EVENTS = [
    Loop(lane=1, category=Category.TRUCK, speed=20.0, place="A8/km31"),
    Loop(lane=2, category=Category.CAR, speed=40.0, place="A8/km31"),
    Loop(lane=2, speed=35.0),
    Loop(lane=3),
]

SUBSCRIPTIONS = [
    Subscription(Loop, has=("place", "category")),  # carries both; more does no harm
    Subscription(Loop, lacks="speed"),
    Subscription(Loop, where=this.lane.isin([2, 3])),
    Subscription(Loop, where=(this.category == Category.TRUCK) | (this.kmh > 120)),  # a property
    Subscription.parse("Loop has place where kmh between 60 and 100 and category = 'truck'", [Loop]),
    Subscription.parse("Loop where not speed > 30", [Loop]),  # unknown is not false: an absent speed does not match
]


def main() -> None:
    for subscription in SUBSCRIPTIONS:
        print(f"{subscription!s:75}", [EVENTS.index(event) for event in EVENTS if subscription.matches(event)])


if __name__ == "__main__":
    main()
