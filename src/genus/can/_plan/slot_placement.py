"""Where the slots go: first fit, from several starting points, until all find room.

To place periodic slots without overlap is hard in general. First fit in order of period finds room whenever periods are
harmonic and slots alike; other orders help where they are not, and a slot that found no room is placed first next time.
Slots are spread over their period if they can be, because soft events wait for hard ones that come in a row.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import gcd, lcm

import msgspec

from genus.can._plan.calendar import Calendar, Slot
from genus.can._plan.system import System, spell_span
from genus.errors import PlanError

MOST_OCCURRENCES = 4096
"""How often all slots of a cycle may come; more is refused, as nobody wants to check such a calendar."""


class Placement(msgspec.Struct, frozen=True):
    """A calendar, and the channels whose slots found no room in it."""

    calendar: Calendar
    left: tuple[str, ...] = ()


def placements(system: System) -> Iterator[Placement]:
    """Different ways to place the slots of a system, the most promising first; at least one."""
    slots = [Slot.of(channel, system.bus) for channel in system.hard]
    _refuse_long_cycle([slot for slot in slots if slot.length_ns <= slot.period_ns], system)
    seen = set()
    for placement in _attempts(slots):
        offsets = tuple((slot.channel, slot.offset_ns) for slot in placement.calendar.slots)
        if offsets not in seen:
            seen.add(offsets)
            yield placement


def build(system: System) -> Calendar:
    """A calendar with a slot for every hard channel; PlanError names those that find no room."""
    best = min(placements(system), key=lambda placement: len(placement.left))
    if best.left:
        raise PlanError(f"{system.source}: no room for the slots of {', '.join(best.left)}")
    return best.calendar


def first_fit(slot: Slot, placed: Sequence[Slot], start_ns: int = 0) -> int | None:
    """The first offset from `start_ns` on, round the period, at which a slot meets none of those placed."""
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
    yield _place(by_period, dict(_spread(by_period)))
    for order in _orders(by_period):
        yield _place(order)
    yield from _insisting(by_period)


def _orders(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    yield list(slots)
    yield sorted(slots, key=lambda slot: -slot.length_ns)
    yield sorted(slots, key=lambda slot: -slot.length_ns / slot.period_ns)


def _insisting(slots: Sequence[Slot]) -> Iterator[Placement]:
    """Place those first that found no room, once for each slot at most."""
    order = list(slots)
    for _ in slots:
        placement = _place(order)
        yield placement
        if not placement.left:
            return
        order.sort(key=lambda slot: slot.channel not in placement.left)


def _spread(slots: Sequence[Slot]) -> Iterator[tuple[str, int]]:
    """Where to begin to look: slots of one period in equal steps, those of longer periods between them."""
    for position, (period, group) in enumerate(groupby(slots, key=lambda slot: slot.period_ns)):
        members = list(group)
        shift = 1 if position else 0
        for place, slot in enumerate(members):
            yield slot.channel, period * (2 * place + shift) // (2 * len(members))


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


def _refuse_long_cycle(slots: Sequence[Slot], system: System) -> None:
    if not slots:
        return
    cycle = lcm(*(slot.period_ns for slot in slots))
    often = sum(cycle // slot.period_ns for slot in slots)
    if often > MOST_OCCURRENCES:
        advice = ", ".join(f"{name} {period}" for name, period in _harmonic(slots))
        raise PlanError(
            f"{system.source}: the hard slots come as before only after {cycle / 1e9:g} s, when there were {often}; "
            f"choose periods that divide each other, such as {advice}"
        )


def _harmonic(slots: Sequence[Slot]) -> Iterator[tuple[str, str]]:
    """Periods that divide each other: each the shortest one doubled as often as it fits."""
    base = min(slot.period_ns for slot in slots)
    for slot in slots:
        harmonic = base << (slot.period_ns // base).bit_length() - 1
        if harmonic != slot.period_ns:
            yield slot.channel, f"{spell_span(harmonic)} (now {spell_span(slot.period_ns)})"
