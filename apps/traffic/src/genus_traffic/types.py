"""The events of a city's roads.

Loops are in pairs, 5 m apart. Events of the upper loop, which vehicles reach first, carry place and category; those of
the lower loop carry lane and time only. So `has place` selects the upper loops, `lacks place` the lower ones.
"""

from enum import Enum

from genus import Event, Float32, Kind, Maybe, UInt8

DISTANCE_M = 5.0
"""From the front of the upper loop of a pair to the front of the lower one."""


class Category(Enum):
    """What drove over a loop."""

    CAR = "car"
    TRUCK = "truck"
    BUS = "bus"
    MOTORCYCLE = "motorcycle"


class Roadside(Kind):
    """Anything that stands beside a road, or lies in it."""


class Edge(Event, Roadside, tagged=("place",)):
    """A loop noticed an edge of a vehicle. Its event tag says whether it has a place: controllers filter on that."""

    lane: UInt8


class Loop(Edge):
    """The leading edge: a vehicle came onto a loop."""

    category: Maybe[Category] = None


class ConfidentLoop(Loop):
    """The next generation of upper loops: says how sure it is of the category, from 0 to 1."""

    confidence: Maybe[Float32] = None


class Cleared(Edge):
    """The trailing edge: the vehicle left the loop."""


class Occupancy(Event, Roadside):
    """A sensor's heartbeat: which of its lanes are occupied, as bits, lane 0 first."""

    occupied: UInt8
    beat: UInt8


class Setting(Event, Roadside):
    """How a sensor was set up: published when it starts."""

    generation: UInt8
    firmware: str
    sensitivity: Float32


TYPES: tuple[type, ...] = (Roadside, Edge, Loop, ConfidentLoop, Cleared, Occupancy, Setting)
