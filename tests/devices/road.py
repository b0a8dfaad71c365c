"""The types of a road, as small devices have them: narrow numbers, and attributes that may be absent."""

from enum import Enum
from typing import Annotated

import msgspec

from genus import Event, Float32, Kind, Maybe, UInt8, UInt16


class Category(Enum):
    """What drove over a loop."""

    TRUCK = "truck"
    CAR = "car"
    MOTORCYCLE = "motorcycle"


class Roadside(Kind):
    """Anything that stands beside a road."""


class Loop(Event, Roadside, tagged=("place",)):
    """An induction loop saw a vehicle."""

    lane: UInt8
    category: Maybe[Category] = None
    speed: Maybe[Float32] = None


class ConfidentLoop(Loop):
    """A loop that says how sure it is."""

    confidence: Annotated[UInt8, msgspec.Meta(le=100)]


class Lamp(Event, Roadside):
    """A street lamp switched."""

    on: bool
    hours: Maybe[UInt16] = None


SUBSCRIPTIONS = (
    "trucks: Loop has place where category == 'truck' and speed > 30",
    "sure: ConfidentLoop where confidence >= 90 or lane in (1, 2, 7)",
    "near: Roadside where place startswith 'A8' and not place like '%/km_'",
    "exact Lamp where on and hours // 24 > 400",
)
