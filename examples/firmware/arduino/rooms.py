"""Event types of the rooms of a building, for the firmware of a valve controller."""

from typing import Annotated

from msgspec import Meta

from genus import Event, Int16, Maybe, UInt8

Percent = Annotated[UInt8, Meta(le=100)]
"""0 to 100: with `-t` the firmware refuses events with more."""


class Measured(Event):
    """A sensor in a room measured something."""

    room: UInt8


class Temperature(Measured):
    """The temperature of a room, in tenths of a degree Celsius."""

    tenths: Int16


class RadioTemperature(Temperature):
    """The next generation, without wires: also says how full its battery is."""

    battery: Maybe[Percent] = None


class Humidity(Measured):
    """The humidity of a room, in percent."""

    percent: Percent


class Window(Event):
    """A window was opened or closed."""

    room: UInt8
    open: bool


class Valve(Event):
    """The valve of a radiator moved."""

    room: UInt8
    opening: Percent
