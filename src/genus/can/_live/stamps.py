"""`StampClock`: maps the time stamps of an interface to the host's clock.

A stamp is made by the kernel or by the controller when a frame has ended; the host reads it later, at a time that
varies. Interfaces count from 1970, from their start, or from that of the computer, and their clocks drift. The
difference between reading and stamp is the difference of the clocks plus the delay of reading; its minimum is the best
estimate of the former (as in NTP's clock filter). The minimum rises slowly, so that a clock that drifts is followed.
"""

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
