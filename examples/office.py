"""Event types of an office whose desks, doors and windows have sensor nodes, for `python -m bench.bindings`."""

from typing import Annotated

from genus import Event, Kind, Unit


class Climate(Kind):
    """What the air and the light of a room are like."""


class Presence(Kind):
    """Signs that somebody is there."""


class Opening(Kind):
    """A door or a window moved."""


class Quality(Kind):
    """How good a desk is to work at."""


class Comfort(Kind):
    """How good the office is to work in."""


class Security(Kind):
    """What a guard must know."""


class Temperature(Event, Climate):
    """The temperature of the air."""

    celsius: Annotated[float, Unit("degC")]


class Humidity(Event, Climate):
    """The relative humidity of the air."""

    percent: float


class CarbonDioxide(Event, Climate):
    """How stale the air is."""

    ppm: float


class Brightness(Event, Climate):
    """How bright the desk is."""

    lux: float


class Motion(Event, Presence):
    """Something moved."""


class SeatTaken(Event, Presence):
    """Somebody sits at a desk, or left it."""

    taken: bool


class DoorMoved(Event, Opening):
    """A door was opened or closed."""

    open: bool


class WindowMoved(Event, Opening):
    """A window was opened or closed."""

    open: bool


class AirQuality(Event, Quality):
    """The quality of the air at a desk."""

    percent: int


class LightQuality(Event, Quality):
    """The quality of the light at a desk."""

    percent: int


class AirComfort(Event, Comfort):
    """The quality of the air at most desks."""

    percent: int


class LightComfort(Event, Comfort):
    """The quality of the light at most desks."""

    percent: int


class UnauthorizedAccess(Event, Security):
    """Somebody is there who should not be."""


class WindowLeftOpen(Event, Security):
    """Everybody left, and a window is open."""
