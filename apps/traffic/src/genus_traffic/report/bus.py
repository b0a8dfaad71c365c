"""The CAN bus in the report: a time axis that shortens idle stretches, the rows of the timeline, sums of channels.

Frames take microseconds with much time between them. Where they would be too thin to be seen, the longest idle
stretches are drawn at a small fixed width, and the busy ones share what is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median
from typing import Self

import msgspec

from genus_traffic.results import BusPicture, ChannelRow, FrameSpan, SlotSpan, Wait

CLASSES = {"hard": "hard real time", "soft": "soft real time", "none": "no real time", "system": "middleware"}
"""The classes of frames, in the order in which they are shown."""
CORRUPTED = " (corrupted)"
"""How the channel name of a frame ends that was disturbed on the wire."""
_MOST_ROWS = 18
_VISIBLE_PART = 0.003
"""If a frame takes this part of the width, it is visible, and nothing is shortened."""
_MOST_IDLE = 20
_LEAST_IDLE_FRAMES = 12
"""Idle stretches that are shorter than so many frames are not shortened."""
_IDLE_PART, _ALL_IDLE_PART = 0.035, 0.4
"""Of the width: what a shortened stretch takes, and what all of them may take together."""
_MARGIN_PART = 0.02
"""Of all busy time: what is kept before and after a busy stretch."""
_LABEL_PART = 0.08
"""Of the width: what the label of an instant takes."""


class Stretch(msgspec.Struct, frozen=True):
    """A span of time and where it is drawn, as parts of the width."""

    start_us: float
    end_us: float
    left: float
    right: float
    idle: bool


class BusAxis(msgspec.Struct, frozen=True):
    """Stretches one after the other, which together are the width of the timeline."""

    stretches: tuple[Stretch, ...]

    @classmethod
    def of(cls, bus: BusPicture) -> Self:
        """An axis on which the frames of a picture are visible."""
        frame_us = median(frame.end_us - frame.start_us for frame in bus.frames) if bus.frames else bus.length_us
        idle = _idle_spans(bus, frame_us) if frame_us < _VISIBLE_PART * bus.length_us else []
        return cls(tuple(_place(bus.length_us or 1.0, idle)))

    def part(self, at_us: float) -> float:
        """Where an instant is drawn, from 0 to 1; what lies outside is at the nearer end."""
        for each in self.stretches:
            if at_us <= each.end_us:
                along = max(at_us - each.start_us, 0) / (each.end_us - each.start_us)
                return each.left + along * (each.right - each.left)
        return 1.0

    def percent(self, at_us: float) -> str:
        """The same as a length in SVG."""
        return f"{100 * self.part(at_us):.2f}%"

    def width(self, start_us: float, end_us: float) -> str:
        """What lies between two instants, as a length in SVG."""
        return f"{100 * (self.part(end_us) - self.part(start_us)):.2f}%"

    @property
    def length_us(self) -> float:
        """The length of the picture."""
        return self.stretches[-1].end_us

    @property
    def busy(self) -> list[Stretch]:
        """The stretches that are not shortened."""
        return [stretch for stretch in self.stretches if not stretch.idle]

    def ticks(self, wanted: int) -> list[float]:
        """About so many round instants in the busy stretches, at equal distances."""
        step = _round_step(sum(stretch.end_us - stretch.start_us for stretch in self.busy) / wanted)
        ends = [(ceil(each.start_us / step), floor(each.end_us / step)) for each in self.busy]
        return [n * step for first, last in ends for n in range(first, last + 1)]

    def landmarks(self) -> list[float]:
        """The starts of busy stretches, or round instants if nothing is shortened, as far as their labels fit."""
        kept: list[float] = []
        for at_us in [stretch.start_us for stretch in self.busy] if len(self.stretches) > 1 else self.ticks(6):
            if not kept or self.part(at_us) - self.part(kept[-1]) >= _LABEL_PART:
                kept.append(at_us)
        return kept


def _round_step(rough: float) -> float:
    """The next of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _idle_spans(bus: BusPicture, frame_us: float) -> list[tuple[float, float]]:
    """The longest spans in which nothing is sent, reserved or waiting, in order, without a margin at busy sides."""
    long = [gap for gap in _gaps(bus) if gap[1] - gap[0] > _LEAST_IDLE_FRAMES * frame_us]
    longest = sorted(long, key=lambda gap: gap[0] - gap[1])[:_MOST_IDLE]
    most = _MARGIN_PART * (bus.length_us - sum(end - start for start, end in longest))
    spans = []
    for start, end in sorted(longest):
        margin = min(most, (end - start) / 4)
        spans.append((start + margin if start else start, end - margin if end < bus.length_us else end))
    return spans


def _gaps(bus: BusPicture) -> Iterator[tuple[float, float]]:
    spans = [(frame.start_us, frame.end_us) for frame in bus.frames]
    spans += [(slot.start_us, slot.deadline_us) for slot in bus.slots]
    spans += [(wait.published_us, wait.delivered_us or wait.deadline_us) for wait in bus.waits]
    free = 0.0
    for start, end in [*sorted(spans), (bus.length_us, bus.length_us)]:
        if start > free:
            yield free, min(start, bus.length_us)
        free = max(free, end)


def _place(length_us: float, idle: Sequence[tuple[float, float]]) -> Iterator[Stretch]:
    cuts = sorted({0.0, length_us, *(at for gap in idle for at in gap)})
    each = min(_IDLE_PART, _ALL_IDLE_PART / max(len(idle), 1))
    busy_part = (1 - each * len(idle)) / (length_us - sum(end - start for start, end in idle))
    left = 0.0
    for start, end in pairwise(cuts):
        is_idle = (start, end) in idle
        right = left + (each if is_idle else busy_part * (end - start))
        yield Stretch(start, end, left, right, is_idle)
        left = right


class TimelineRow(msgspec.Struct, frozen=True):
    """A row of the timeline: what happened on a channel, or in a whole class."""

    name: str
    qos: str
    slots: tuple[SlotSpan, ...] = ()
    waits: tuple[Wait, ...] = ()
    frames: tuple[FrameSpan, ...] = ()


def timeline_rows(bus: BusPicture) -> list[TimelineRow]:
    """A row per channel, by class; a row per class if there are too many; all frames together in the last one."""
    rows = [_row(name, qos, [name], bus) for qos, names in _channels(bus).items() for name in names]
    if len(rows) > _MOST_ROWS:
        rows = [_row(CLASSES.get(qos, qos), qos, names, bus) for qos, names in _channels(bus).items() if names]
    return [*rows, TimelineRow("all frames", "", frames=bus.frames)]


def _channels(bus: BusPicture) -> dict[str, list[str]]:
    """The names of the channels by class; the middleware's own frames count as one channel."""
    named = {_channel(frame): frame.qos for frame in bus.frames}
    named |= {wait.channel: "soft" for wait in bus.waits} | {slot.channel: "hard" for slot in bus.slots}
    classes = dict.fromkeys([*CLASSES, *named.values()])
    return {qos: sorted(name for name in named if named[name] == qos) for qos in classes}


def _row(title: str, qos: str, names: Sequence[str], bus: BusPicture) -> TimelineRow:
    return TimelineRow(
        title,
        qos,
        tuple(slot for slot in bus.slots if slot.channel in names),
        tuple(wait for wait in bus.waits if wait.channel in names),
        tuple(frame for frame in bus.frames if _channel(frame) in names),
    )


def _channel(frame: FrameSpan) -> str:
    return CLASSES["system"] if frame.qos == "system" else frame.channel.removesuffix(CORRUPTED)


def is_late(wait: Wait) -> bool:
    """Whether an event was not delivered by its deadline."""
    return wait.delivered_us is None or wait.delivered_us > wait.deadline_us


def is_corrupted(frame: FrameSpan) -> bool:
    """Whether a frame was disturbed on the wire."""
    return frame.channel.endswith(CORRUPTED)


def sum_channels(rows: Iterable[ChannelRow]) -> list[ChannelRow]:
    """Channels of one name and class, summed over the sites; the longest delay is that of the slowest site."""
    grouped: dict[tuple[str, str], list[ChannelRow]] = {}
    for row in rows:
        grouped.setdefault((row.channel, row.qos), []).append(row)
    order = list(CLASSES)
    summed = (_sum(group) for group in grouped.values())
    return sorted(summed, key=lambda row: order.index(row.qos) if row.qos in order else len(order))


def _sum(group: Sequence[ChannelRow]) -> ChannelRow:
    slowest = max(group, key=lambda row: row.worst_us / row.bound_us if row.bound_us else row.worst_us / 1e12)
    sums = {name: sum(getattr(row, name) for row in group) for name in ("published", "delivered", "filtered", "missed")}
    return msgspec.structs.replace(slowest, site="all", **sums)
