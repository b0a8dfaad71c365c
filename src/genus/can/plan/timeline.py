"""The cycle of a calendar as lines of text: one line per hard channel."""

from collections.abc import Iterator

from genus.can.plan.calendar import Calendar, Slot

FREE, WAIT, ATTEMPTS, GAP = "·", "░", "█", "▏"


def timeline(calendar: Calendar, width: int = 60) -> Iterator[tuple[str, str]]:
    """Each channel with its line: waiting for the bus, attempts to send, and where the deadline is.

    >>> from genus.can.plan.system import Bus, Channel
    >>> from genus.can.wire.length import Timing
    >>> bus = Bus(timing=Timing(1_000_000))
    >>> described = {"event": "c", "node": "n", "number": 1, "etag": 128, "qos_class": "hard", "size": 8}
    >>> channel = Channel(name="c", period_ns=2_000_000, **described).on(bus)
    >>> list(timeline(Calendar.of([Slot.of(channel, bus)]), 20))
    [('c', '░██▏················')]
    """
    for slot in calendar.slots:
        yield slot.channel, _line(slot, calendar.cycle_ns, width)


def _line(slot: Slot, cycle_ns: int, width: int) -> str:
    cells = [FREE] * width
    for start in range(slot.offset_ns, cycle_ns, slot.period_ns):
        first, sending, end = (
            at * width // cycle_ns for at in (start, start + slot.wait_ns, start + slot.length_ns - slot.gap_ns)
        )
        cells[end % width] = GAP
        for cell in range(first, max(sending, first + 1)):
            cells[cell % width] = WAIT
        for cell in range(sending, max(end, sending + 1)):
            cells[cell % width] = ATTEMPTS
    return "".join(cells)
