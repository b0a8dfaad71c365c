"""The time of a bus, with long idle stretches shortened: frames take microseconds, with much time between them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Self

import msgspec

from genus_traffic.report.markup import short
from genus_traffic.report.scale import Scale
from genus_traffic.results import BusPicture

_VISIBLE = 0.003
"""If a frame takes this part of the picture, it can be seen, and nothing is shortened."""
_MOST_IDLE = 20
_LEAST_IDLE = 12
"""Frames that would fit in: a shorter stretch is not shortened."""
_IDLE_PART, _ALL_IDLE_PART = 0.035, 0.4
"""Of the width: what an idle stretch is shortened to, and what all of them may take together."""
_LABEL_PART = 0.08
"""Of the width: what the label of an instant takes."""
_MARGIN = 0.02
"""Of all busy time: what is left before and after a busy stretch."""


class Stretch(msgspec.Struct, frozen=True):
    """From an instant to another, and where it is drawn: parts of the width."""

    start_us: float
    end_us: float
    left: float
    right: float
    idle: bool

    @property
    def scale(self) -> Scale:
        """Its own time."""
        return Scale(self.start_us, self.end_us)


class BusAxis(msgspec.Struct, frozen=True):
    """Stretches one after the other, which together are the width of the picture."""

    stretches: tuple[Stretch, ...]

    @classmethod
    def of(cls, bus: BusPicture) -> Self:
        """One on which the frames of a picture can be seen."""
        idle = _idle(bus) if _too_thin(bus) else []
        return cls(tuple(_placed(bus.length_us or 1.0, idle)))

    @property
    def length_us(self) -> float:
        """How long the picture is."""
        return self.stretches[-1].end_us

    def part(self, at_us: float) -> float:
        """Where an instant is drawn, as a part of the width; what lies outside is at the nearer end."""
        for stretch in self.stretches:
            if at_us <= stretch.end_us:
                along = min(max(stretch.scale.part(at_us), 0.0), 1.0)
                return stretch.left + along * (stretch.right - stretch.left)
        return 1.0

    def percent(self, at_us: float) -> str:
        """The same as a length."""
        return f"{short(100 * self.part(at_us))}%"

    def width(self, start_us: float, end_us: float) -> str:
        """What is drawn between two instants, as a length."""
        return f"{short(100 * (self.part(end_us) - self.part(start_us)))}%"

    def ticks(self, wanted: int) -> list[float]:
        """Round instants in the busy stretches, all of them the same time apart."""
        step = sum(stretch.end_us - stretch.start_us for stretch in self.busy) / wanted
        return [at for stretch in self.busy for at in stretch.scale.ticks_apart(step)]

    def landmarks(self) -> list[float]:
        """Where something begins after it was idle, or round instants, as far as there is room for their labels."""
        kept: list[float] = []
        for at in [stretch.start_us for stretch in self.busy] if len(self.stretches) > 1 else self.ticks(6):
            if not kept or self.part(at) - self.part(kept[-1]) >= _LABEL_PART:
                kept.append(at)
        return kept

    @property
    def busy(self) -> list[Stretch]:
        """The stretches in which something happens."""
        return [stretch for stretch in self.stretches if not stretch.idle]


def _too_thin(bus: BusPicture) -> bool:
    return bool(bus.frames) and _frame_us(bus) < _VISIBLE * bus.length_us


def _frame_us(bus: BusPicture) -> float:
    return median(frame.end_us - frame.start_us for frame in bus.frames)


def _idle(bus: BusPicture) -> list[tuple[float, float]]:
    """The longest stretches in which nothing is on the wire, reserved or waiting, in order."""
    gaps = list(_gaps(_busy(bus), bus.length_us))
    long = [gap for gap in gaps if gap[1] - gap[0] > _LEAST_IDLE * _frame_us(bus)]
    longest = sorted(long, key=lambda gap: gap[0] - gap[1])[:_MOST_IDLE]
    margin = _MARGIN * (bus.length_us - sum(end - start for start, end in longest))
    return sorted(_narrowed(gap, margin, bus.length_us) for gap in longest)


def _narrowed(gap: tuple[float, float], margin: float, length_us: float) -> tuple[float, float]:
    """Without a margin beside what is busy; the ends of the picture need none."""
    start, end = gap
    margin = min(margin, (end - start) / 4)
    return start + margin if start else start, end - margin if end < length_us else end


def _busy(bus: BusPicture) -> list[tuple[float, float]]:
    spans = [(frame.start_us, frame.end_us) for frame in bus.frames]
    spans += [(slot.start_us, slot.deadline_us) for slot in bus.slots]
    spans += [(wait.published_us, wait.delivered_us or wait.deadline_us) for wait in bus.waits]
    return sorted(spans)


def _gaps(spans: Iterable[tuple[float, float]], length_us: float) -> Iterator[tuple[float, float]]:
    free = 0.0
    for start, end in spans:
        if start > free:
            yield free, min(start, length_us)
        free = max(free, end)
    if free < length_us:
        yield free, length_us


def _placed(length_us: float, idle: Sequence[tuple[float, float]]) -> Iterator[Stretch]:
    """Idle stretches get their small part of the width each, busy ones share the rest."""
    cuts = sorted({0.0, length_us, *(at for gap in idle for at in gap)})
    busy_us = length_us - sum(end - start for start, end in idle)
    each = min(_IDLE_PART, _ALL_IDLE_PART / max(len(idle), 1))
    room, left = 1 - each * len(idle), 0.0
    for start, end in pairwise(cuts):
        is_idle = (start, end) in idle
        right = left + (each if is_idle else room * (end - start) / busy_us)
        yield Stretch(start, end, left, right, is_idle)
        left = right
