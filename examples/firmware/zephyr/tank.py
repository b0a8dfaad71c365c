"""Event types of a tank with a pump, for the firmware of the pump."""

from enum import Enum

from genus import Event, Float32, Maybe, UInt8


class Fault(Enum):
    """What is wrong with a sensor."""

    NONE = "none"
    DIRTY = "dirty"
    BROKEN = "broken"


class Level(Event):
    """How full a tank is, in percent."""

    tank: UInt8
    percent: Float32


class SonarLevel(Level):
    """Measured by sonar: says what is wrong, if something is."""

    fault: Maybe[Fault] = None


class Stop(Event):
    """Someone pressed the button."""

    tank: UInt8


class Pumping(Event):
    """A pump started or stopped."""

    tank: UInt8
    on: bool
