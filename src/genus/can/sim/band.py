"""The classes of traffic by priority, as faults, counters and pictures name them."""

from enum import StrEnum

from genus.can.wire.identifier import PRIORITY_SHIFT, Priority


class Band(StrEnum):
    """A range of priorities.

    >>> Band.of(0), Band.of(0x0021_6010), Band.of(253 << 21), Band.of(255 << 21)
    (<Band.HARD: 'hard'>, <Band.SOFT: 'soft'>, <Band.SYSTEM: 'system'>, <Band.NONE: 'none'>)
    """

    HARD = "hard"
    SOFT = "soft"
    SYSTEM = "system"
    """The middleware's own: clock, claims, configuration, binding."""
    NONE = "none"

    @classmethod
    def of(cls, identifier: int) -> "Band":
        """The band of a 29-bit identifier."""
        return _BANDS[identifier >> PRIORITY_SHIFT & 0xFF]


def _band(priority: int) -> Band:
    if priority < Priority.SOFT_FIRST:
        return Band.HARD
    if priority <= Priority.SOFT_LAST:
        return Band.SOFT
    return Band.NONE if priority >= Priority.NONE else Band.SYSTEM


_BANDS = tuple(map(_band, range(256)))
