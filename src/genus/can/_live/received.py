"""What a driver returns besides frames of others: time stamps, echoes of own frames, and error frames.

**Stamps.** A stamp is made by the kernel or by the controller when a frame has ended; the host reads it later, at a
time that varies. Interfaces count from 1970, from their start, or from that of the computer, and their clocks drift.
The difference between reading and stamp is the difference of the clocks plus the delay of reading; its minimum is the
best estimate of the former (as in NTP's clock filter). The minimum rises slowly, so that a clock that drifts is
followed.

**Error frames** are as Linux gives them to programs: classes in the identifier, details in the data. The numbers are
those of `linux/can/error.h`. SocketCAN and drivers of the same family report a change of the controller's state this
way, and errors on the bus if the driver is set to report them (`berr-reporting on`).
"""

from collections import deque

import msgspec

from genus.can._wire.frame import Frame

# -- stamps ------------------------------------------------------------------------------------------------------------

MAX_AGE_NS = 100_000_000
"""A stamp that seems older is not believed: the interface's clock was set, or wrapped around."""
DRIFT = 5_000
"""The minimum rises by a part in so many: 200 ppm, more than two crystals differ."""

_LAST_STAMP_S = 1e11
"""The year 5138: what is later, and what is no number, is no stamp."""


class StampClock:
    """State: the offset from an interface's stamps to the host's clock, and the last time that was given.

    Times given never go back, are never later than the reading, and never older than `MAX_AGE_NS`.

    >>> clock = StampClock()
    >>> clock.time_of(10.0, 1_000_000_000)
    1000000000
    >>> clock.time_of(10.5, 1_500_300_000)
    1500100060
    """

    def __init__(self) -> None:
        self._offset: int | None = None
        self._read_at = 0
        self._last = 0

    def time_of(self, stamp_s: float, now: int) -> int:
        """When a frame ended, by the host's clock, if it is read now; a stamp of 0 is none."""
        if not 0 < abs(stamp_s) < _LAST_STAMP_S:
            self._last = now
            return now
        stamp = round(stamp_s * 1e9)
        seen, offset, last = now - stamp, self._offset, self._last
        if offset is not None and now > self._read_at:
            offset += (now - self._read_at) // DRIFT
        if offset is None or seen < offset or seen - offset > MAX_AGE_NS:
            offset = seen
        self._offset, self._read_at = offset, now
        found = stamp + offset  # not later than now
        if found < last:
            found = last if last < now else now
        self._last = found
        return found


# -- echoes ------------------------------------------------------------------------------------------------------------

ECHO_TIMEOUT_NS = 1_000_000_000
"""A frame that is received later than this after an equal one was sent is not its echo."""


class EchoFilter:
    """State: recognises own frames that an interface returns, each once, within a second after sending.

    If another node sends a frame with our number and our data, one more copy arrives than was sent: that one is not
    recognised as an echo.

    >>> echoes, frame = EchoFilter(), Frame(0x21_6010, b"hi")
    >>> echoes.expect(frame, 0)
    >>> echoes.recognise(frame, 5), echoes.recognise(frame, 6)
    (True, False)
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, tuple[int, bytes]]] = deque()
        self._expected: dict[tuple[int, bytes], int] = {}
        self._returned: dict[tuple[int, bytes], int] = {}

    def expect(self, frame: Frame, now: int) -> None:
        self._drop_old(now)
        key = _key(frame)
        self._sent.append((now, key))
        self._expected[key] = self._expected.get(key, 0) + 1

    def recognise(self, frame: Frame, now: int) -> bool:
        if not self._sent:
            return False
        self._drop_old(now)
        key = _key(frame)
        if not self._expected.get(key):
            return False
        _decrement(self._expected, key)
        self._returned[key] = self._returned.get(key, 0) + 1
        return True

    def _drop_old(self, now: int) -> None:
        while self._sent and now - self._sent[0][0] > ECHO_TIMEOUT_NS:
            _, key = self._sent.popleft()
            _decrement(self._returned if key in self._returned else self._expected, key)


def _key(frame: Frame) -> tuple[int, bytes]:
    return frame.id if frame.extended else ~frame.id, frame.data


def _decrement(counts: dict[tuple[int, bytes], int], key: tuple[int, bytes]) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


# -- error frames ------------------------------------------------------------------------------------------------------

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
