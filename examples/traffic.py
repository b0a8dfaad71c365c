"""A road's sensors: the types the demo and the documentation use."""

from enum import Enum
from typing import Annotated

from genus import Event, Kind, Maybe, Unit


class Category(Enum):
    """What drove over a loop."""

    TRUCK = "truck"
    CAR = "car"
    MOTORCYCLE = "motorcycle"


class Roadside(Kind):
    """Anything that stands beside a road."""


class Powered(Kind):
    """Anything that can run out of power."""


class Loop(Event, Roadside):
    """An induction loop saw a vehicle."""

    lane: int
    category: Maybe[Category] = None
    speed: Maybe[Annotated[float, Unit("m/s")]] = None

    @property
    def kmh(self) -> float:
        """The speed in km/h; predicates may use it like an attribute."""
        return self.speed * 3.6  # type: ignore[operator]


class ConfidentLoop(Loop, Powered):
    """The next generation of loops: says how sure it is of the category."""

    confidence: Maybe[float] = None


class Lamp(Event, Roadside, Powered):
    """A street lamp switched."""

    on: bool


class Gate(Event, Roadside):
    """A barrier moved."""

    open: bool
