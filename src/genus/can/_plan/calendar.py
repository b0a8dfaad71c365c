"""The static calendar of hard slots: when each slot begins, how long it is, and its parts.

A slot starts at the latest ready time, when the event is put into the mailbox with the highest priority of the bus. In
`wait_ns` a frame that is on the wire ends, even if it is corrupted in its last bit. Then there is time for every frame
to fail `omissions` times. The gap at the end separates it from the next slot if clocks differ. Its end is the deadline,
and the time at which the event is delivered:

    |<- wait = C_low + E ->|<- each frame: (o + 1) C + o E ->|<- gap ->|

A sender that is error passive is suspended for 8 bits after each of its frames, in which another station may begin one.
`suspensions` says how often that can happen in a slot; each time takes C_low + E more (`others_ns`). Frames of other
makers that win over the slot's are counted there too, each with as many failures: as often as they can come from the
latest ready time until the last frame ends, which is the critical instant of fixed priorities.

Two slots of periods T and T' never overlap if they do not within the greatest common divisor of T and T'; so slots can
be compared in pairs, however long the cycle is.

Placing periodic slots without overlap is NP-hard in general. First fit in the order of periods succeeds if periods are
harmonic and slots have equal lengths; otherwise other orders can help, and a slot that did not fit is placed first in
the next attempt. Slots are spread over their period if possible, because soft events have to wait for hard slots that
follow each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from math import gcd, lcm
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import msgspec

from genus.can._plan.system import BusSpec, ChannelSpec, ErrorPassivePolicy, ForeignFrame, System
from genus.can._protocol.clock_model import SYNC_PERIOD_NS
from genus.can._wire.frame import ETAG_MASK, FIRST_NODE, LAST_NODE, PASSIVE_ABOVE, TEC_PER_FAILURE, WARNING_FROM
from genus.errors import PlanError
from genus.model.internal import format_nanoseconds

_FORMAT = "genus calendar 1"


class Occurrence(NamedTuple):
    """One occurrence of a slot, in the time of the bus."""

    start_ns: int
    deadline_ns: int


def suspensions(omissions: int, frames: int, policy: ErrorPassivePolicy) -> int:
    """How often the sender of a slot can be suspended in it, so that another station sends a frame before it goes on.

    It is suspended if it is error passive after one of its frames, but the last: the one that is on the wire when the
    slot starts, failures, and frames before the last. With the policy `plan` it may be so from the start. Otherwise
    this counts on a sender that begins below the warning limit: it takes several failures until it is error passive.

    >>> [suspensions(omissions, 1, "stop") for omissions in range(6)]
    [0, 0, 0, 0, 1, 2]
    >>> [suspensions(omissions, 2, "plan") for omissions in range(3)]
    [2, 4, 6]
    """
    if policy == "plan":
        return (omissions + 1) * frames
    found, errors = 0, WARNING_FROM - 1 + TEC_PER_FAILURE
    for frame in range(1, frames + 1):
        for _ in range(omissions):
            errors += TEC_PER_FAILURE
            found += errors > PASSIVE_ABOVE
        found += errors > PASSIVE_ABOVE and frame < frames
        errors -= 1
    return found


def most_errors(omissions: int, frames: int) -> int:
    """The transmit error counter that a sender below the warning limit can reach in a slot, if all fails that may."""
    return WARNING_FROM - 1 + TEC_PER_FAILURE * (omissions * frames + 1) - (frames - 1)


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slot of one hard channel; `offset_ns` is its first start after time 0 of the bus.

    >>> slot = Slot(channel="c", event="c", node="n", number=1, etag=128, offset_ns=1_000, period_ns=10_000,
    ...             length_ns=562, wait_ns=191, gap_ns=20, frames=1, omissions=1, used_ns=160)
    >>> slot.next_start(1_001), slot.next_deadline(1_001)
    (Occurrence(start_ns=11000, deadline_ns=11562), Occurrence(start_ns=1000, deadline_ns=1562))
    """

    channel: str
    event: str
    node: str
    number: int
    etag: int
    offset_ns: int
    period_ns: int
    length_ns: int
    wait_ns: int
    gap_ns: int
    frames: int
    omissions: int
    used_ns: int
    """The bus time of an event if no frame fails."""
    others_ns: int = 0
    """Time for frames that other stations send between its own: while its sender is suspended, or because they win."""
    error_passive: ErrorPassivePolicy = "stop"
    """Whether its promise stops before its sender is error passive, or the slot is long enough for one that is."""
    sporadic: bool = False
    """Whether it may stay empty."""

    @classmethod
    def of(
        cls, channel: ChannelSpec, bus: BusSpec, foreign: Sequence[ForeignFrame] = (), *, offset_ns: int = 0
    ) -> Self:
        """The slot that a channel needs on a bus; of other traffic it depends on foreign frames that win over it."""
        blocked_ns = bus.longest_frame_ns + bus.error_ns
        attempts = sum((channel.omissions + 1) * time + channel.omissions * bus.error_ns for time in channel.times)
        suspended = suspensions(channel.omissions, channel.frames, bus.error_passive)
        at_start = 1 if bus.error_passive == "plan" else 0
        wait_ns, others_ns = (1 + at_start) * blocked_ns, (suspended - at_start) * blocked_ns
        others_ns += _winning_ns(channel, bus, foreign, wait_ns + attempts + others_ns)
        return cls(
            channel=channel.name,
            event=channel.event,
            node=channel.node,
            number=channel.number,
            etag=channel.etag,
            offset_ns=offset_ns,
            period_ns=channel.period_ns,
            length_ns=wait_ns + attempts + others_ns + bus.gap_ns,
            wait_ns=wait_ns,
            gap_ns=bus.gap_ns,
            frames=channel.frames,
            omissions=channel.omissions,
            used_ns=channel.event_ns,
            others_ns=others_ns,
            error_passive=bus.error_passive,
            sporadic=channel.sporadic,
        )

    @property
    def attempts_ns(self) -> int:
        """The most time from its latest start to the end of its last frame, with all the failures it allows."""
        return self.length_ns - self.wait_ns - self.gap_ns

    @property
    def closes_ns(self) -> int:
        """From its start to the last instant at which a frame can start that ends within it, before the gap."""
        return self.length_ns - self.gap_ns - (self.used_ns if self.frames == 1 else self.wait_ns)

    @property
    def busy_ns(self) -> int:
        """The most bus time of its own frames, with all the failures it allows."""
        return self.attempts_ns - self.others_ns

    @property
    def deadline_ns(self) -> int:
        """The offset of its end, when the event is delivered."""
        return self.offset_ns + self.length_ns

    def next_start(self, after_ns: int) -> Occurrence:
        """Return the first occurrence that starts at or after a time of the bus."""
        start = self.offset_ns - (self.offset_ns - after_ns) // self.period_ns * self.period_ns
        return Occurrence(start, start + self.length_ns)

    def next_deadline(self, after_ns: int) -> Occurrence:
        """Return the first occurrence whose deadline is at or after a time of the bus."""
        return self.next_start(after_ns - self.length_ns)

    def overlaps(self, other: "Slot") -> bool:
        """Return whether two slots overlap at any time."""
        common = gcd(self.period_ns, other.period_ns)
        apart = (other.offset_ns - self.offset_ns) % common
        return apart < self.length_ns or apart + other.length_ns > common


def _winning_ns(channel: ChannelSpec, bus: BusSpec, foreign: Sequence[ForeignFrame], alone_ns: int) -> int:
    """The bus time of the foreign frames that win over a channel in its slot; if they never end, more than a period."""
    winners = [
        (
            frame.jitter_ns,
            frame.period_ns,
            (channel.omissions + 1) * frame.time_ns(bus) + channel.omissions * bus.error_ns,
        )
        for frame in foreign
        if frame.period_ns is not None and frame.rank < channel.id
    ]
    taken_ns = 0
    while alone_ns + taken_ns <= channel.period_ns:
        window_ns = alone_ns + taken_ns
        longer = sum(((window_ns + jitter) // period + 1) * time for jitter, period, time in winners)
        if longer == taken_ns:
            break
        taken_ns = longer
    return taken_ns


class Calendar(msgspec.Struct, frozen=True, dict=True):
    """Slots that never overlap, ordered by offset; they repeat every `cycle_ns`."""

    slots: tuple[Slot, ...] = ()
    sync_period_ns: int = SYNC_PERIOD_NS
    """How often the clocks of the nodes are synchronised."""

    @classmethod
    def of(cls, slots: Iterable[Slot], sync_period_ns: int = SYNC_PERIOD_NS) -> Self:
        """Return a calendar of slots; PlanError if two of them overlap or one does not fit its period."""
        calendar = cls(tuple(sorted(slots, key=lambda slot: (slot.offset_ns, slot.channel))), sync_period_ns)
        calendar._check()
        return calendar

    @property
    def cycle_ns(self) -> int:
        """The least common multiple of the periods; 0 without slots."""
        return lcm(*(slot.period_ns for slot in self.slots)) if self.slots else 0

    @cached_property
    def _by_channel(self) -> dict[str, Slot]:
        return {slot.channel: slot for slot in self.slots}

    def slot(self, channel: str) -> Slot:
        """Return the slot of a channel; PlanError if there is none."""
        found = self._by_channel.get(channel)
        if found is None:
            raise PlanError(f"the calendar has no slot for {channel!r}; plan one with `genus can plan`")
        return found

    def starts_in_cycle(self) -> list[tuple[int, Slot]]:
        """Return the start and slot of all occurrences within one cycle, in order."""
        starts = (
            (start, slot) for slot in self.slots for start in range(slot.offset_ns, self.cycle_ns, slot.period_ns)
        )
        return sorted(starts, key=lambda each: each[0])

    def text(self) -> str:
        """Return the calendar as JSON, one line per slot, as nodes read it."""
        lines = ",\n".join(f"  {msgspec.json.encode(slot).decode()}" for slot in self.slots)
        sync = "" if self.sync_period_ns == SYNC_PERIOD_NS else f'"sync_period_ns": {self.sync_period_ns}, '
        return f'{{"format": "{_FORMAT}", {sync}"slots": [\n{lines}\n]}}\n'

    @classmethod
    def parse(cls, text: str | bytes, source: str = "calendar") -> Self:
        """Return the calendar of a JSON text; PlanError if it is none."""
        try:
            found = msgspec.json.decode(text, type=_CalendarFile)
            if found.format != _FORMAT:
                raise PlanError(f"has the format {found.format!r}, not {_FORMAT!r}")
            return cls.of(found.slots, found.sync_period_ns)
        except (msgspec.MsgspecError, UnicodeError, PlanError) as problem:
            raise PlanError(f"{source}: {problem}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the calendar in a file; PlanError if it cannot be read or holds none."""
        try:
            return cls.parse(Path(path).read_bytes(), str(path))
        except OSError as problem:
            raise PlanError(f"{path}: {problem.strerror}") from problem

    def lines(self, width: int = 60) -> Iterator[tuple[str, str]]:
        """Yield the name of each hard channel with a line of `width` characters for one cycle; see `legend`.

        >>> from genus.can import BusSpec, ChannelSpec, Timing
        >>> bus = BusSpec(timing=Timing(1_000_000))
        >>> described = {"event": "c", "node": "n", "number": 1, "etag": 128, "qos_class": "hard", "size": 8}
        >>> channel = ChannelSpec(name="c", period_ns=2_000_000, **described).on_bus(bus)
        >>> list(Calendar.of([Slot.of(channel, bus)]).lines(20))
        [('c', '░██▏················')]
        """
        for slot in self.slots:
            yield slot.channel, _line(slot, self.cycle_ns, width)

    @property
    def legend(self) -> str:
        """The meaning of the characters in `lines`."""
        return f"{_WAIT} may wait, {_ATTEMPTS} sends and repeats, {_GAP} deadline"

    def save(self, path: str | Path) -> None:
        """Write the calendar to a file; PlanError if that fails."""
        try:
            Path(path).write_text(self.text(), "utf-8")
        except OSError as problem:
            raise PlanError(f"{path}: {problem.strerror}") from problem

    def _check(self) -> None:
        if len({slot.channel for slot in self.slots}) < len(self.slots):
            raise PlanError("a channel has two slots")
        for position, slot in enumerate(self.slots):
            _check_slot(slot)
            for other in self.slots[:position]:
                if slot.overlaps(other):
                    raise PlanError(f"the slots of {other.channel!r} and {slot.channel!r} overlap")


_FREE, _WAIT, _ATTEMPTS, _GAP = "·", "░", "█", "▏"


def _line(slot: Slot, cycle_ns: int, width: int) -> str:
    cells = [_FREE] * width
    for start in range(slot.offset_ns, cycle_ns, slot.period_ns):
        first, sending, end = (
            at * width // cycle_ns for at in (start, start + slot.wait_ns, start + slot.length_ns - slot.gap_ns)
        )
        cells[end % width] = _GAP
        for cell in range(first, max(sending, first + 1)):
            cells[cell % width] = _WAIT
        for cell in range(sending, max(end, sending + 1)):
            cells[cell % width] = _ATTEMPTS
    return "".join(cells)


class _CalendarFile(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    slots: list[Slot]
    sync_period_ns: Annotated[int, msgspec.Meta(ge=100)] = SYNC_PERIOD_NS


def _check_slot(slot: Slot) -> None:
    parts = {
        "period_ns": 0 < slot.length_ns <= slot.period_ns,
        "offset_ns": 0 <= slot.offset_ns < slot.period_ns,
        "wait_ns": slot.wait_ns >= 0 and slot.gap_ns >= 0 and slot.attempts_ns > 0,
        "used_ns": 0 < slot.used_ns <= slot.attempts_ns,
        "others_ns": 0 <= slot.others_ns < slot.attempts_ns,
        "frames": slot.frames > 0,
        "omissions": slot.omissions >= 0,
        "number": FIRST_NODE <= slot.number <= LAST_NODE,
        "etag": 0 <= slot.etag <= ETAG_MASK,
    }
    for name, is_valid in parts.items():
        if not is_valid:
            raise PlanError(f"the slot of {slot.channel!r} cannot have {name} {getattr(slot, name)}")


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
