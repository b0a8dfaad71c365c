"""Error frames as Linux gives them to programs: classes in the identifier, details in the data.

The numbers are those of `linux/can/error.h`. SocketCAN and drivers of the same family report a change of the
controller's state this way, and errors on the bus if the driver is set to report them (`berr-reporting on`).
"""

import msgspec

TX_TIMEOUT = 0x001
LOST_ARBITRATION = 0x002
CONTROLLER = 0x004
PROTOCOL = 0x008
NO_ACKNOWLEDGEMENT = 0x020
BUS_OFF = 0x040
BUS_ERROR = 0x080
RESTARTED = 0x100
"""Classes of errors: bits of the identifier."""
RX_OVERFLOW, TX_OVERFLOW, RX_WARNING, TX_WARNING, RX_PASSIVE, TX_PASSIVE, ACTIVE = (1 << bit for bit in range(7))
"""What changed in the controller: bits of data byte 1."""
PROTOCOL_ON_TRANSMISSION = 0x80
"""The error was in a frame that this controller sent: a bit of data byte 2."""


class ErrorReport(msgspec.Struct, frozen=True):
    """What an error frame says.

    >>> parse_error(BUS_OFF, bytes(8))
    ErrorReport(bus_off=True, restarted=False, passive=None, failed=False, lost=False, dropped=False, overflow=False)
    """

    bus_off: bool
    restarted: bool
    passive: bool | None
    """Whether the controller became error passive, or is near it (a warning): True; or active: False; else None."""
    failed: bool
    """A frame of this controller was corrupted, or not acknowledged."""
    lost: bool
    """A frame of this controller lost arbitration."""
    dropped: bool
    """The driver gave up a frame: it was not sent in the time the system allows."""
    overflow: bool
    """Received frames were lost in the controller."""


def parse_error(identifier: int, data: bytes) -> ErrorReport:
    """Read an error frame; missing data bytes count as 0, unknown classes are ignored."""
    padded = data.ljust(8, b"\0")
    controller = padded[1] if identifier & CONTROLLER else 0
    on_transmission = identifier & (PROTOCOL | BUS_ERROR) and padded[2] & PROTOCOL_ON_TRANSMISSION
    return ErrorReport(
        bus_off=bool(identifier & BUS_OFF),
        restarted=bool(identifier & RESTARTED),
        passive=True if controller & _WITH_ERRORS else False if controller & ACTIVE else None,
        failed=bool(identifier & NO_ACKNOWLEDGEMENT or on_transmission),
        lost=bool(identifier & LOST_ARBITRATION),
        dropped=bool(identifier & TX_TIMEOUT),
        overflow=bool(controller & RX_OVERFLOW),
    )


_WITH_ERRORS = RX_WARNING | TX_WARNING | RX_PASSIVE | TX_PASSIVE
"""States in which slots that are planned for an error active controller are not promised: a counter is above 95.

The warning of the receive counter is one of them: Linux reports the higher of both states when it changes, so while
receive errors keep the state at the warning, transmit errors that reach it are not reported.
"""
