"""Placing the slots of a calendar: first fit with several orders and starting points, until all slots fit.

Placing periodic slots without overlap is NP-hard in general. First fit in the order of periods succeeds if periods are
harmonic and slots have equal lengths; otherwise other orders can help, and a slot that did not fit is placed first in
the next attempt. Slots are spread over their period if possible, because soft events have to wait for hard slots that
follow each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import gcd, lcm

import msgspec

from genus.can._plan.calendar import Calendar, Slot
from genus.can._plan.system import System
from genus.errors import PlanError
from genus.model.internal import format_nanoseconds

MAX_OCCURRENCES = 4096
"""The most occurrences of all slots in a cycle; a longer calendar is refused."""


class Placement(msgspec.Struct, frozen=True):
    """A calendar, and in `left` the channels whose slots did not fit."""

    calendar: Calendar
    left: tuple[str, ...] = ()


def placements(system: System) -> Iterator[Placement]:
    """Different placements of the slots of a system, the most promising first; at least one."""
    slots = [Slot.of(channel, system.bus, system.foreign) for channel in system.hard]
    _check_cycle([slot for slot in slots if slot.length_ns <= slot.period_ns], system)
    seen = set()
    for placement in _attempts(slots):
        offsets = tuple((slot.channel, slot.offset_ns) for slot in placement.calendar.slots)
        if offsets not in seen:
            seen.add(offsets)
            yield placement


def first_fit(slot: Slot, placed: Sequence[Slot], start_ns: int = 0) -> int | None:
    """Return the first offset from `start_ns` on, modulo the period, at which a slot overlaps none of those placed."""
    if slot.length_ns > slot.period_ns:
        return None
    offset, last = start_ns, start_ns + slot.period_ns
    while offset < last:
        moved = offset
        for other in placed:
            common = gcd(slot.period_ns, other.period_ns)
            if slot.length_ns + other.length_ns > common:
                return None
            since = (moved - other.offset_ns) % common
            if since < other.length_ns:
                moved += other.length_ns - since
            elif since + slot.length_ns > common:
                moved += common - since + other.length_ns
        if moved == offset:
            return offset % slot.period_ns
        offset = moved
    return None


def _attempts(slots: Sequence[Slot]) -> Iterator[Placement]:
    by_period = sorted(slots, key=lambda slot: (slot.period_ns, -slot.length_ns))
    yield _place(by_period, dict(_spread_offsets(by_period)))
    for order in _orders(by_period):
        yield _place(order)
    yield from _retry_failed_first(by_period)


def _orders(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    yield list(slots)
    yield sorted(slots, key=lambda slot: -slot.length_ns)
    yield sorted(slots, key=lambda slot: -slot.length_ns / slot.period_ns)


def _retry_failed_first(slots: Sequence[Slot]) -> Iterator[Placement]:
    """Attempts in which the slots that did not fit before are placed first; at most one for each slot."""
    order = list(slots)
    for _ in slots:
        placement = _place(order)
        yield placement
        if not placement.left:
            return
        order.sort(key=lambda slot: slot.channel not in placement.left)


def _spread_offsets(slots: Sequence[Slot]) -> Iterator[tuple[str, int]]:
    """Yield where to begin the search: slots of one period in equal steps, those of longer periods between them."""
    for number, (period, group) in enumerate(groupby(slots, key=lambda slot: slot.period_ns)):
        members = list(group)
        shift = 1 if number else 0
        for position, slot in enumerate(members):
            yield slot.channel, period * (2 * position + shift) // (2 * len(members))


def _place(order: Iterable[Slot], starts: dict[str, int] | None = None) -> Placement:
    placed: list[Slot] = []
    left: list[str] = []
    for slot in order:
        offset = first_fit(slot, placed, (starts or {}).get(slot.channel, 0))
        if offset is None:
            left.append(slot.channel)
        else:
            placed.append(msgspec.structs.replace(slot, offset_ns=offset))
    return Placement(Calendar.of(placed), tuple(left))


def _check_cycle(slots: Sequence[Slot], system: System) -> None:
    if not slots:
        return
    cycle = lcm(*(slot.period_ns for slot in slots))
    often = sum(cycle // slot.period_ns for slot in slots)
    if often > MAX_OCCURRENCES:
        advice = ", ".join(f"{name} {period}" for name, period in _harmonic(slots))
        raise PlanError(
            f"{system.source}: the calendar repeats only after {cycle / 1e9:g} s, with {often} occurrences of slots; "
            f"choose periods that divide each other, such as {advice}"
        )


def _harmonic(slots: Sequence[Slot]) -> Iterator[tuple[str, str]]:
    """Periods that divide each other: the shortest one doubled as often as it fits each period."""
    base = min(slot.period_ns for slot in slots)
    for slot in slots:
        harmonic = base << (slot.period_ns // base).bit_length() - 1
        if harmonic != slot.period_ns:
            yield slot.channel, f"{format_nanoseconds(harmonic)} (now {format_nanoseconds(slot.period_ns)})"
