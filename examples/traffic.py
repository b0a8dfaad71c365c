"""Event types of a road's sensors, which the documentation and the command line's examples use."""

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
    def kmh(self) -> float | None:
        """The speed in km/h, if there is one; predicates may use it like an attribute."""
        return None if self.speed is None else self.speed * 3.6


class ConfidentLoop(Loop, Powered):
    """The next generation of loops: says how sure it is of the category."""

    confidence: Maybe[float] = None


class Lamp(Event, Roadside, Powered):
    """A street lamp switched."""

    on: bool


class Gate(Event, Roadside):
    """A barrier moved."""

    open: bool
