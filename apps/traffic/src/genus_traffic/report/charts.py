"""What the script of the page draws: vehicles and speeds over time, errors of speeds, events, the bus, types, filters.

The page holds it as JSON for its script, and as tables for readers without one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

import msgspec

from genus.studio.types import FrameSpan as DrawnFrame
from genus.studio.types import SlotSpan as DrawnSlot
from genus.studio.types import TypeRow as DrawnType
from genus_traffic.report.formats import Clock, count_of, micros_of
from genus_traffic.report.type_tree import drawn_types
from genus_traffic.results import Accuracy, BusPicture, ChannelRow, FrameSpan, Minute, Received, Results, Wait
from genus_traffic.types import Category

CLASSES = {"hard": "hard real time", "soft": "soft real time", "none": "no real time", "system": "middleware"}
"""The classes of frames, in the order in which they are shown."""
CORRUPTED = " (corrupted)"
"""How the channel name of a frame ends that was disturbed on the wire."""
_PRIORITY_SHIFT = 21
"""The priority is the first 8 of the 29 bits of an identifier."""


class BusTimeline(msgspec.Struct, frozen=True):
    """A span of a bus as the timeline of Studio draws it; microseconds count from its start."""

    start_us: float
    end_us: float
    load: float
    frames: tuple[DrawnFrame, ...]
    slots: tuple[DrawnSlot, ...]
    waits: tuple[tuple[float, float | None, float, str], ...]
    """When soft events were published and delivered, their deadlines, and their channels."""


def bus_timeline(bus: BusPicture) -> BusTimeline:
    """A picture of a bus as the timeline draws it."""
    busy = sum(frame.end_us - frame.start_us for frame in bus.frames)
    return BusTimeline(
        start_us=0.0,
        end_us=bus.length_us,
        load=busy / bus.length_us if bus.length_us else 0.0,
        frames=tuple(map(_drawn_frame, bus.frames)),
        slots=tuple(DrawnSlot(slot.start_us, slot.deadline_us, slot.channel) for slot in bus.slots),
        waits=tuple((wait.published_us, wait.delivered_us, wait.deadline_us, wait.channel) for wait in bus.waits),
    )


def _drawn_frame(frame: FrameSpan) -> DrawnFrame:
    return DrawnFrame(
        start_us=frame.start_us,
        end_us=frame.end_us,
        node=frame.node,
        channel=frame.channel.removesuffix(CORRUPTED),
        kind=frame.qos,
        identifier=frame.identifier,
        ok=not is_corrupted(frame),
        priority=frame.identifier >> _PRIORITY_SHIFT & 0xFF,
    )


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


# -- charts ------------------------------------------------------------------------------------------------------------


KMH = 3.6
"""Kilometres per hour in a metre per second."""
_MAX_COLUMNS, _FEW_COLUMNS = 60, 20
_MANY_SITES = 24
"""From so many sites on, each has few columns: a page should not grow without bounds."""


class Series(msgspec.Struct, frozen=True):
    """One category of vehicles: per column how many passed, and their mean speed in km/h."""

    name: str
    counts: tuple[int, ...]
    speeds: tuple[float | None, ...]


class Panel(msgspec.Struct, frozen=True):
    """The traffic of a site, or of all, over time; `starts_s` are what a clock on the wall shows, as seconds."""

    title: str
    about: str
    starts_s: tuple[int, ...]
    width_s: int
    series: tuple[Series, ...]

    @property
    def heads(self) -> list[str]:
        """The heads of its table."""
        return ["From", *(head for each in self.series for head in (each.name, f"{each.name} km/h"))]

    @property
    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows of its table: the start of a column, and its figures."""
        for n, start_s in enumerate(self.starts_s):
            figures = ((each.counts[n], each.speeds[n]) for each in self.series)
            yield start_s, [text for count, kmh in figures for text in (f"{count:,}", "–" if kmh is None else str(kmh))]


class ErrorBar(msgspec.Struct, frozen=True):
    """How many speeds were wrong by so much: measured minus true speed in m/s."""

    start: float
    end: float
    passages: int
    is_right: bool


class ReceivedRow(msgspec.Struct, frozen=True):
    """Events of a site, or of all, per span of time, by generation of the sensors."""

    name: str
    about: str
    old: tuple[int, ...]
    new: tuple[int, ...]
    replaced_s: int | None = None


class ReceivedChart(msgspec.Struct, frozen=True):
    """What the collector received: a row per site, and all together in the last one."""

    starts_s: tuple[int, ...]
    width_s: float
    asked_s: int | None
    rows: tuple[ReceivedRow, ...]

    @property
    def cells(self) -> Iterator[tuple[int, list[str]]]:
        """The rows of its table: the start of a span, and old plus new events of every row."""
        for n, start_s in enumerate(self.starts_s):
            figures = ((row.old[n], row.new[n]) for row in self.rows)
            yield start_s, [f"{old} + {new}" if new else str(old) for old, new in figures]


class ChartData(msgspec.Struct, frozen=True):
    """Everything that the script of the page draws."""

    traffic: tuple[Panel, ...]
    """The whole city first; empty if no vehicle was counted."""
    errors: tuple[ErrorBar, ...]
    """Without the empty bars at both ends."""
    tolerance: float
    received: ReceivedChart
    bus: BusTimeline
    types: dict[str, DrawnType]
    filters: tuple[tuple[tuple[int, int], ...], ...]
    """The acceptance filters of every subscription."""


def chart_data(results: Results) -> ChartData:
    """The data of all charts of a run."""
    return ChartData(
        traffic=tuple(_traffic(results)),
        errors=error_bars(results.accuracy),
        tolerance=results.accuracy.tolerance,
        received=_received(results),
        bus=bus_timeline(results.bus),
        types=drawn_types(results.types),
        filters=tuple(compiled.filters for compiled in results.subscriptions),
    )


class Columns:
    """Equal spans of time, each a minute or several, and at most so many."""

    def __init__(self, clock: Clock, most: int) -> None:
        minutes = max(ceil((clock.end_us - clock.start_us) / 60e6), 1)
        self.width_us = 60_000_000 * ceil(minutes / most)
        self.number = ceil(minutes * 60e6 / self.width_us)
        self._clock = clock

    def column(self, minute: Minute) -> int:
        """The column of a minute; the first and the last take what lies beyond them."""
        return min(max((micros_of(minute.start) - self._clock.start_us) // self.width_us, 0), self.number - 1)

    def panel(self, title: str, about: str, minutes: Iterable[Minute], categories: Sequence[str]) -> Panel:
        """The panel of some minutes, with a series for every category."""
        cells: dict[str, list[list[Minute]]] = {name: [[] for _ in range(self.number)] for name in categories}
        for minute in minutes:
            cells[minute.category][self.column(minute)].append(minute)
        series = tuple(_series(name, row) for name, row in cells.items())
        passed = count_of(sum(sum(each.counts) for each in series), "vehicle")
        first = self._clock.wall_s(self._clock.start_us)
        starts = tuple(first + n * self.width_us // 1_000_000 for n in range(self.number))
        return Panel(title, f"{about}{passed}", starts, self.width_us // 1_000_000, series)


def _series(name: str, cells: Sequence[Sequence[Minute]]) -> Series:
    counts = tuple(sum(minute.count for minute in cell) for cell in cells)
    return Series(name, counts, tuple(map(mean_kmh, cells)))


def mean_kmh(minutes: Iterable[Minute]) -> float | None:
    """The mean speed of some minutes, weighted by their vehicles; None if none was measured."""
    weighed = [(max(minute.count, 1), minute.speed_mean) for minute in minutes if minute.speed_mean is not None]
    weight = sum(count for count, _ in weighed)
    return round(KMH * sum(count * speed for count, speed in weighed) / weight, 1) if weight else None


def _traffic(results: Results) -> Iterator[Panel]:
    """The city, then every site, also one that saw nothing."""
    if not any(minute.count for minute in results.traffic):
        return
    clock, many, categories = Clock(results), len(results.sites) > _MANY_SITES, _categories(results.traffic)
    yield Columns(clock, _MAX_COLUMNS).panel("All sites", "", results.traffic, categories)
    columns = Columns(clock, _FEW_COLUMNS if many else _MAX_COLUMNS)
    kinds = {site.name: f"{site.kind}, " for site in results.sites}
    minutes: dict[str, list[Minute]] = {name: [] for name in kinds}
    for minute in results.traffic:
        minutes.setdefault(minute.site, []).append(minute)
    for site, seen in minutes.items():
        yield columns.panel(site, kinds.get(site, ""), seen, categories)


def _categories(minutes: Iterable[Minute]) -> list[str]:
    """The categories that were seen: the known ones in their order, then others by name."""
    seen, known = {minute.category for minute in minutes}, [category.value for category in Category]
    return [*(name for name in known if name in seen), *sorted(seen - set(known))]


def error_bars(accuracy: Accuracy) -> tuple[ErrorBar, ...]:
    """The histogram of errors from its first to its last bar that is not empty."""
    filled = [n for n, (_, _, passages) in enumerate(accuracy.errors) if passages]
    bars = accuracy.errors[filled[0] : filled[-1] + 1] if filled else ()
    most = accuracy.tolerance - 1e-9
    return tuple(ErrorBar(start, end, number, start < most and end > -most) for start, end, number in bars)


def worst_sites(by_site: Mapping[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """Sites with their complete and right passages, the lowest share of right ones first."""
    return sorted(by_site.items(), key=lambda item: item[1][1] / item[1][0] if item[1][0] else 2.0)


def _received(results: Results) -> ReceivedChart:
    refit, clock = results.refit, Clock(results)
    starts = [span.start_us for span in refit.received]
    first, end = min(starts, default=0), max([clock.end_us, *(start + 1 for start in starts)] if starts else [0])
    grid = range(first, end, refit.span_us)
    replaced = {site.name: site.refit_us for site in results.sites}
    rows = []
    for name in dict.fromkeys([*replaced, *(span.site for span in refit.received)]):
        spans = [span for span in refit.received if span.site == name]
        at_us = replaced.get(name)
        rows.append(_row(name, spans, grid, None if at_us is None else clock.wall_s(at_us)))
    rows.append(_row("StatisticsCollector", refit.received, grid, None))
    asked_s = None if refit.asked_us is None else clock.wall_s(refit.asked_us)
    return ReceivedChart(tuple(map(clock.wall_s, grid)), refit.span_us / 1e6, asked_s, tuple(rows))


def _row(name: str, spans: Iterable[Received], grid: range, replaced_s: int | None) -> ReceivedRow:
    old, new = [0] * len(grid), [0] * len(grid)
    for span in spans:
        column = (span.start_us - grid.start) // grid.step
        old[column] += span.old
        new[column] += span.new
    about = f"{sum(old):,} of the first generation, {sum(new):,} with confidence"
    return ReceivedRow(name, about, tuple(old), tuple(new), replaced_s)
