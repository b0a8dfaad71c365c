"""The static calendar of the hard slots: when each comes, how long it is, and what its parts are for.

A slot starts at the latest ready time, when the event is put into the mailbox with the bus's highest priority. It first
waits for a frame that is on the wire, be that corrupted in its last bit: `wait_ns`. Then it has room for every frame to
fail `omissions` times. The gap at the end keeps it from the next slot where clocks differ. Its end is the deadline, and
the instant at which the event is delivered:

    |<- wait = C_low + E ->|<- each frame: (o + 1) C + o E ->|<- gap ->|

Two slots of periods T and T' never meet if they do not within the greatest common divisor of T and T'; so slots can be
compared in pairs, however long the cycle is.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from math import gcd, lcm
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from genus.can._plan.system import Bus, Channel
from genus.can._wire.frame import ETAG_MASK, FIRST_NODE, LAST_NODE
from genus.errors import PlanError

_FORMAT = "genus calendar 1"


class Occurrence(NamedTuple):
    """One coming of a slot, by the bus's clock."""

    start_ns: int
    deadline_ns: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The slot of one hard channel; `offset_ns` is its first start after the bus's time 0.

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
    """The bus time of an event when nothing fails."""

    @classmethod
    def of(cls, channel: Channel, bus: Bus, offset_ns: int = 0) -> Self:
        """The slot that a channel needs on a bus, whatever else is sent there."""
        wait_ns = bus.longest_frame_ns + bus.error_ns
        attempts = sum((channel.omissions + 1) * time + channel.omissions * bus.error_ns for time in channel.times)
        return cls(
            channel=channel.name,
            event=channel.event,
            node=channel.node,
            number=channel.number,
            etag=channel.etag,
            offset_ns=offset_ns,
            period_ns=channel.period_ns,
            length_ns=wait_ns + attempts + bus.gap_ns,
            wait_ns=wait_ns,
            gap_ns=bus.gap_ns,
            frames=channel.frames,
            omissions=channel.omissions,
            used_ns=channel.event_ns,
        )

    @property
    def latest_start_ns(self) -> int:
        """The offset at which its first frame is on the wire at the latest."""
        return self.offset_ns + self.wait_ns

    @property
    def attempts_ns(self) -> int:
        """The bus time its frames take at most, with all the failures it allows."""
        return self.length_ns - self.wait_ns - self.gap_ns

    @property
    def deadline_ns(self) -> int:
        """The offset of its end, when the event is delivered."""
        return self.offset_ns + self.length_ns

    def next_start(self, after_ns: int) -> Occurrence:
        """The first coming that starts at or after an instant of the bus's clock."""
        start = self.offset_ns - (self.offset_ns - after_ns) // self.period_ns * self.period_ns
        return Occurrence(start, start + self.length_ns)

    def next_deadline(self, after_ns: int) -> Occurrence:
        """The first coming whose deadline is at or after an instant of the bus's clock."""
        return self.next_start(after_ns - self.length_ns)

    def meets(self, other: "Slot") -> bool:
        """Whether two slots overlap at any time."""
        common = gcd(self.period_ns, other.period_ns)
        apart = (other.offset_ns - self.offset_ns) % common
        return apart < self.length_ns or apart + other.length_ns > common


class Calendar(msgspec.Struct, frozen=True, dict=True):
    """Slots that never meet, by offset; the whole repeats every `cycle_ns`."""

    slots: tuple[Slot, ...] = ()

    @classmethod
    def of(cls, slots: Iterable[Slot]) -> Self:
        """A calendar of slots; PlanError if two of them meet or one lies outside its period."""
        calendar = cls(tuple(sorted(slots, key=lambda slot: (slot.offset_ns, slot.channel))))
        calendar._check()
        return calendar

    @property
    def cycle_ns(self) -> int:
        """After how long all slots come as before; 0 if there are none."""
        return lcm(*(slot.period_ns for slot in self.slots)) if self.slots else 0

    @cached_property
    def _by_channel(self) -> dict[str, Slot]:
        return {slot.channel: slot for slot in self.slots}

    def slot(self, channel: str) -> Slot:
        """The slot of a channel."""
        found = self._by_channel.get(channel)
        if found is None:
            raise PlanError(f"the calendar has no slot for {channel!r}; plan one with `genus can plan`")
        return found

    def occurrences(self, channel: str, after_ns: int) -> Iterator[Occurrence]:
        """The comings of a channel's slot that start at or after an instant, without end; each costs the same."""
        slot = self.slot(channel)
        start, deadline = slot.next_start(after_ns)
        while True:
            yield Occurrence(start, deadline)
            start, deadline = start + slot.period_ns, deadline + slot.period_ns

    def in_cycle(self) -> list[tuple[int, Slot]]:
        """All starts within one cycle, in order."""
        starts = (
            (start, slot) for slot in self.slots for start in range(slot.offset_ns, self.cycle_ns, slot.period_ns)
        )
        return sorted(starts, key=lambda each: each[0])

    def text(self) -> str:
        """The calendar as JSON, one line per slot: what nodes are given."""
        lines = ",\n".join(f"  {msgspec.json.encode(slot).decode()}" for slot in self.slots)
        return f'{{"format": "{_FORMAT}", "slots": [\n{lines}\n]}}\n'

    @classmethod
    def parse(cls, text: str | bytes, source: str = "calendar") -> Self:
        """The calendar of a text; PlanError says why it holds none."""
        try:
            found = msgspec.json.decode(text, type=_File)
            if found.format != _FORMAT:
                raise PlanError(f"has the format {found.format!r}, not {_FORMAT!r}")
            return cls.of(found.slots)
        except (msgspec.MsgspecError, UnicodeError, PlanError) as problem:
            raise PlanError(f"{source}: {problem}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The calendar in a file."""
        try:
            return cls.parse(Path(path).read_bytes(), str(path))
        except OSError as problem:
            raise PlanError(f"{path}: {problem.strerror}") from problem

    def save(self, path: str | Path) -> None:
        """Write the text to a file."""
        try:
            Path(path).write_text(self.text(), "utf-8")
        except OSError as problem:
            raise PlanError(f"{path}: {problem.strerror}") from problem

    def _check(self) -> None:
        if len({slot.channel for slot in self.slots}) < len(self.slots):
            raise PlanError("two slots are for one channel")
        for position, slot in enumerate(self.slots):
            _check_slot(slot)
            for other in self.slots[:position]:
                if slot.meets(other):
                    raise PlanError(f"the slots of {other.channel!r} and {slot.channel!r} meet")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    slots: list[Slot]


def _check_slot(slot: Slot) -> None:
    parts = {
        "period_ns": 0 < slot.length_ns <= slot.period_ns,
        "offset_ns": 0 <= slot.offset_ns < slot.period_ns,
        "wait_ns": slot.wait_ns >= 0 and slot.gap_ns >= 0 and slot.attempts_ns > 0,
        "used_ns": 0 < slot.used_ns <= slot.attempts_ns,
        "frames": slot.frames > 0,
        "omissions": slot.omissions >= 0,
        "number": FIRST_NODE <= slot.number <= LAST_NODE,
        "etag": 0 <= slot.etag <= ETAG_MASK,
    }
    for name, right in parts.items():
        if not right:
            raise PlanError(f"the slot of {slot.channel!r} cannot have {name} {getattr(slot, name)}")
