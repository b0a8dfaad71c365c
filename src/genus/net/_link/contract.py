"""The contract at `announce`: what a network can keep, by measurement, or the reason why it cannot."""

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from genus.bus._qos import Hard, Keep, QoS, Soft
from genus.errors import BusError
from genus.model import name_of, nanoseconds
from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Abilities, Sending

ROUND_TRIPS = 20
URGENT_US = 10_000
"""A deadline of at most this makes a channel urgent."""


class Measured(msgspec.Struct, frozen=True):
    """Round trips to other participants, and how far their clocks may differ from this one; in microseconds."""

    round_trips_us: Sequence[int]
    clock_bound_us: int

    @property
    def p99_us(self) -> int:
        """The 99th percentile of the round trips: with few, the longest."""
        ordered = sorted(self.round_trips_us)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def sending_of(qos: QoS, reliable: bool, keep: Keep | None) -> Sending:
    """How the packets of a channel are sent."""
    if isinstance(qos, Soft):
        deadline_us = nanoseconds(qos.deadline) // 1000
        expires_s = nanoseconds(qos.expires) / 1e9 if qos.expires is not None else None
        priority = URGENT if deadline_us <= URGENT_US else SOFT
        return Sending(priority, reliable, keep is not None, expires_s)
    bulk = not isinstance(qos, Hard) and qos.priority == 1
    return Sending(BULK if bulk else NORMAL, reliable, keep is not None)


def check_abilities(cls: type, qos: QoS, keep: Keep | None, medium: str, abilities: Abilities) -> None:
    """BusError with the reason if a medium cannot keep a quality of service, whatever its speed."""
    if isinstance(qos, Hard):
        refuse(cls, qos, f"{medium} has no calendar of slots, so it keeps no hard deadline", "Soft(...) and NonReal()")
    if keep is not None and not abilities.keeps:
        why = abilities.why.get("keeps", f"{medium} keeps no last values")
        refuse(cls, qos, why, f"{type(qos).__name__}(...) without keep=True")


def check_measured(cls: type, qos: Soft, measured: Measured, medium: str) -> None:
    """BusError with the reason if a deadline is too short for the round trips or clocks that were measured."""
    deadline_us = nanoseconds(qos.deadline) // 1000
    least_ms = 2 * measured.p99_us / 1000
    if 2 * measured.p99_us > deadline_us:
        took = f"round trips on {medium} take up to {measured.p99_us / 1000:.3g} ms"
        refuse(cls, qos, took, f"Soft(deadline='{_rounded_up(least_ms)}ms')")
    if qos.expires is None:
        return
    room_us = nanoseconds(qos.expires) // 1000 - deadline_us
    if 2 * measured.clock_bound_us > room_us:
        bound_ms = measured.clock_bound_us / 1000
        could = f"expires at least {_rounded_up(2 * bound_ms)} ms after the deadline"
        refuse(cls, qos, f"clocks of participants may differ by {bound_ms:.3g} ms", could)


def refuse(cls: type, qos: QoS, reason: str, could: str) -> NoReturn:
    """Refuse a channel with the reason and what could be kept."""
    raise BusError(f"{name_of(cls)} cannot be announced with {qos}: {reason}; it could keep {could}")


def _rounded_up(milliseconds: float) -> int:
    return int(milliseconds) + 1
