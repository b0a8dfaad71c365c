"""Made-up results of a run, good or bad, with as many sites and minutes as a test of the report wants."""

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from genus import Catalog
from genus_traffic.results import (
    Accuracy,
    BusPicture,
    ChannelRow,
    CompiledSubscription,
    FrameSpan,
    Lateness,
    Minute,
    Received,
    Refit,
    Results,
    Roadside,
    Site,
    SlotSpan,
    Stage,
    Trap,
    Wait,
)
from genus_traffic.subscribers import SUBSCRIPTIONS, compile_for_targets, type_rows
from genus_traffic.types import TYPES

START = datetime(2026, 5, 4, 7, 30, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
KINDS = ("motorway", "street", "signals", "ring")
STREETS = ("A8 Ost", "Hafenstraße", "Marktplatz", "Ring Nord", "Südbrücke", "Tunnel West", "Am Wehr", "Schulweg")
SHARES = {"car": (0.8, 1.0), "truck": (0.1, 0.8), "bus": (0.04, 0.75), "motorcycle": (0.06, 1.1)}
SPAN_US = 20_000_000
NODES = ("upper", "lower", "monitor")


def made_results(sites: int = 8, minutes: int = 15, seed: int = 7) -> Results:
    """A run in which all went well."""
    random, made = Random(seed), _sites(sites, minutes)
    traffic = tuple(minute for site in made for minute in _minutes(site, minutes, random))
    counted = sum(minute.count for minute in traffic)
    received = tuple(span for site in made for span in _received(site, minutes, random))
    delivered = sum(span.old + span.new for span in received)
    return Results(
        seed=seed,
        start=START,
        minutes=minutes,
        master="local[2]",
        machine="2 cores, Python 3.11, Spark 4.1",
        sites=made,
        types=type_rows(_catalog()),
        subscriptions=_subscriptions(counted),
        bus=_bus(made[0].name, random),
        channels=tuple(row for site in made for row in _channels(site, minutes)),
        traffic=traffic,
        accuracy=_accuracy(made, counted),
        refit=Refit(
            span_us=SPAN_US,
            received=received,
            published=delivered,
            delivered=delivered,
            asked_us=START_US + round(minutes * 48e6),
            confident=delivered // 5,
            longest_pause_s={site.name: random.uniform(2, 14) for site in made},
        ),
        lateness=Lateness(out_of_order=counted // 9, late=counted // 700),
        stages=_stages(counted, sites),
        roadside=Roadside(lanes=4, alike=4, passages=100),
        stream_equals_batch=True,
        event_count=counted * 4,
        dead_letters=0,
    )


def bad_results() -> Results:
    """A run in which everything went wrong that a report can show."""
    good = made_results(sites=3, minutes=6)
    change = msgspec.structs.replace
    accuracy = good.accuracy
    wrong = accuracy.complete // 5
    late = Wait(published_us=9_000, delivered_us=21_000, deadline_us=15_000, channel="Loop of upper")
    never = Wait(published_us=30_000, delivered_us=None, deadline_us=36_000, channel="Loop of lower")
    return change(
        good,
        subscriptions=tuple(change(each, answers={**each.answers, "Spark": 1}) for each in good.subscriptions),
        bus=change(good.bus, waits=(late, never)),
        channels=tuple(change(row, missed=17, worst_us=2 * (row.bound_us or 1)) for row in good.channels),
        accuracy=change(
            accuracy, right=accuracy.complete - wrong, wrong=wrong, invented=23, counted=accuracy.to_count - 5,
            errors=(*accuracy.errors, (3.0, 3.25, wrong)),
        ),
        refit=change(good.refit, delivered=good.refit.published - 41, asked_us=None, confident=0),
        roadside=Roadside(lanes=4, alike=3, passages=100),
        stream_equals_batch=False,
        dead_letters=12,
    )  # fmt: skip


def empty_results() -> Results:
    """A run without sites, vehicles, types or anything else."""
    return Results(
        seed=0, start=START, minutes=0, master="", machine="", sites=(), types=(), subscriptions=(), channels=(),
        bus=BusPicture(site="", from_us=0, length_us=0, frames=(), slots=(), waits=()), traffic=(),
        accuracy=Accuracy(
            complete=0, right=0, wrong=0, unmeasured=0, one_sided=0, invented=0, tolerance=1.0, errors=(), by_site={},
            traps=(), counted=0, to_count=0,
        ),
        refit=Refit(
            span_us=SPAN_US, received=(), published=0, delivered=0, asked_us=None, confident=0, longest_pause_s={}
        ),
        lateness=Lateness(out_of_order=0, late=0), stages=(),
        roadside=Roadside(lanes=0, alike=0, passages=0), stream_equals_batch=True, event_count=0, dead_letters=0,
    )  # fmt: skip


def _sites(number: int, minutes: int) -> tuple[Site, ...]:
    half, step = minutes * 30e6, minutes * 18e6 / max(number, 1)
    return tuple(
        Site(
            name=STREETS[n] if n < len(STREETS) else f"{STREETS[n % len(STREETS)]} {n // len(STREETS) + 1}",
            place=f"city/{n:02}",
            kind=KINDS[n % len(KINDS)],
            lanes=(3, 2, 2, 4)[n % 4],
            refit_us=START_US + round(half + n * step),
        )
        for n in range(number)
    )


def _minutes(site: Site, minutes: int, random: Random) -> list[Minute]:
    """A wave of congestion runs through: more vehicles, and slower ones."""
    base = 33.0 if site.kind == "motorway" else 14.0
    rows = []
    for n in range(minutes):
        jam = 0.55 if n % 15 in (6, 7, 8) else 1.0
        for category, (part, pace) in SHARES.items():
            count = max(0, round(random.gauss(14 * site.lanes * part / jam, 1.5)))
            speed = base * pace * jam * random.uniform(0.94, 1.06) if count else None
            start = START + timedelta(minutes=n)
            rows.append(Minute(site=site.name, category=category, start=start, count=count, speed_mean=speed))
    return rows


def _received(site: Site, minutes: int, random: Random) -> list[Received]:
    spans = []
    for start_us in range(START_US, START_US + minutes * 60_000_000, SPAN_US):
        count, new = max(1, round(random.gauss(5 * site.lanes, 2))), start_us >= (site.refit_us or 0)
        old, fresh = (0, count) if new else (count, 0)
        spans.append(Received(site=site.name, start_us=start_us, old=old, new=fresh))
    return spans


def _catalog() -> Catalog:
    catalog = Catalog()
    catalog.register(*TYPES)
    return catalog


def _subscriptions(counted: int) -> tuple[CompiledSubscription, ...]:
    catalog, targets = _catalog(), ("CAN", "bus", "python", "arrow", "index", "replay", "Spark")
    return tuple(
        compile_for_targets(
            catalog, name, f"spark: {text}\n  type: type in (Loop), on files", dict.fromkeys(targets, counted + n)
        )
        for n, (name, text) in enumerate(SUBSCRIPTIONS.items())
    )


def _bus(site: str, random: Random) -> BusPicture:
    """60 ms: two hard channels every 10 ms, soft events in bursts, clocks and a setting in between."""
    slots, frames, waits = [], [], []
    for n in range(6):
        for offset, node in ((1_000, "upper"), (2_200, "lower")):
            start = n * 10_000 + offset
            slots.append(SlotSpan(start_us=start, deadline_us=start + 900, channel=f"Occupancy of {node}"))
            frames.append(_frame(start + 160, 270, f"Occupancy of {node}", node, "hard"))
    for n in range(11):
        at, node, what = 4_300 + 4_900 * n, ("upper", "lower")[n % 2], ("Loop", "Cleared")[n % 3 == 0]
        sent = at + random.uniform(60, 900)
        frames.append(_frame(sent, 310, f"{what} of {node}", node, "soft"))
        waits.append(
            Wait(published_us=at, delivered_us=sent + 330, deadline_us=at + 5_000, channel=f"{what} of {node}")
        )
    frames += [_frame(8_000 + 25_000 * n, 200, "SYNC", "monitor", "system") for n in range(3)]
    frames += [_frame(33_500 + 700 * n, 310, "Setting of upper", "upper", "none") for n in range(4)]
    frames.append(_frame(47_500, 120, "Loop of lower (corrupted)", "lower", "soft"))
    ordered = sorted(frames, key=lambda frame: frame.start_us)
    return BusPicture(
        site=site,
        from_us=START_US + 451_220_000,
        length_us=60_000,
        frames=tuple(ordered),
        slots=tuple(slots),
        waits=tuple(waits),
    )


def _frame(start: float, length: float, channel: str, node: str, qos: str) -> FrameSpan:
    priority = {"hard": 0, "soft": 20, "system": 253, "none": 255}[qos]
    identifier = priority << 21 | NODES.index(node) + 1 << 14 | 0x1200
    return FrameSpan(start_us=start, end_us=start + length, channel=channel, node=node, qos=qos, identifier=identifier)


def _channels(site: Site, minutes: int) -> list[ChannelRow]:
    beats, edges = minutes * 6_000, minutes * 14 * site.lanes
    rows = []
    for node in ("upper", "lower"):
        rows += [
            _channel(site, f"Occupancy of {node}", "hard", (beats, beats, beats * 2, 0), (880.0, 900.0)),
            _channel(site, f"Loop of {node}", "soft", (edges, edges * 2, edges, 0), (2_100.0, 5_000.0)),
            _channel(site, f"Cleared of {node}", "soft", (edges, edges * 2, edges, 0), (2_900.0, 5_000.0)),
            _channel(site, f"Setting of {node}", "none", (2, 2, 4, 0), (48_000.0, None)),
        ]
    return rows


def _channel(
    site: Site, name: str, qos: str, numbers: tuple[int, int, int, int], way_us: tuple[float, float | None]
) -> ChannelRow:
    published, delivered, filtered, missed = numbers
    return ChannelRow(
        site=site.name,
        channel=name,
        qos=qos,
        published=published,
        delivered=delivered,
        filtered=filtered,
        missed=missed,
        worst_us=way_us[0],
        bound_us=way_us[1],
    )


def _accuracy(sites: tuple[Site, ...], counted: int) -> Accuracy:
    wrong, unmeasured, one_sided = counted // 900, counted // 1_200, counted // 40
    complete = counted - one_sided
    shape = [round(complete * part) for part in (0.002, 0.01, 0.06, 0.22, 0.4, 0.22, 0.07, 0.012, 0.003)]
    errors = tuple((-1.125 + 0.25 * n, -0.875 + 0.25 * n, number) for n, number in enumerate(shape))
    each = complete // max(len(sites), 1)
    return Accuracy(
        complete=complete,
        right=complete - wrong - unmeasured,
        wrong=wrong,
        unmeasured=unmeasured,
        one_sided=one_sided,
        invented=0,
        tolerance=1.0,
        errors=errors,
        by_site={site.name: (each, each - n % 4) for n, site in enumerate(sites)},
        traps=(
            Trap(name="standing", met=212, right=210),
            Trap(name="two between", met=91, right=91),
            Trap(name="lane change", met=17, right=17),
            Trap(name="missed", met=44, right=44),
            Trap(name="simultaneous", met=302, right=302),
        ),
        counted=counted,
        to_count=counted,
    )


def _stages(counted: int, sites: int) -> tuple[Stage, ...]:
    return (
        Stage(name="traffic made up", seconds=1.4, amount=counted, what="vehicles"),
        Stage(name="CAN segments simulated", seconds=21.7, amount=counted * 30, what="frames"),
        Stage(name="city's bus", seconds=4.2, amount=counted * 4, what="events"),
        Stage(name="recordings taken into the lake", seconds=9.8, amount=counted * 4, what="events"),
        Stage(name="speeds in batch", seconds=6.1, amount=counted, what="passages"),
        Stage(name="speeds as a stream", seconds=14.9, amount=counted, what="passages"),
        Stage(name="checked against the truth", seconds=0.03, amount=sites, what="sites"),
    )
