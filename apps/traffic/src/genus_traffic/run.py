"""The application from end to end: traffic, segments, the city's centre, the lake, and how right it all was."""

import os
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from genus.targets import spark as spark_target
from genus_traffic.accuracy import accuracy_of
from genus_traffic.centre.centre import Centre, arrivals, run_centre
from genus_traffic.centre.uplink import Uplink
from genus_traffic.everywhere import answers_in_process, by_subscriber
from genus_traffic.in_time import lanes_with_late_edges, told_in_time
from genus_traffic.passages.finder import Found
from genus_traffic.pipeline import (
    LATENESS,
    Answer,
    answers_on_spark,
    ask_in_batch,
    fill,
    late_events,
    same_rows,
    speeds_by_minute,
)
from genus_traffic.report.page import write_report
from genus_traffic.results import Accuracy, BusPicture, Compiled, Lateness, Minute, Results, Roadside, Site
from genus_traffic.road.scene import Scene
from genus_traffic.road.truth import write_truth
from genus_traffic.segment.listeners import Arrival
from genus_traffic.segment.plan import city_catalog
from genus_traffic.segment.processes import SiteRun, run_segments
from genus_traffic.speeds import found_in
from genus_traffic.steps import Steps
from genus_traffic.subscribers import SUBSCRIPTIONS, compiled, type_rows
from genus_traffic.workplace import Workplace, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Driven(NamedTuple):
    """What happened before anything was analysed."""

    runs: list[SiteRun]
    arriving: list[Arrival]
    centre: Centre


class Analysed(NamedTuple):
    """What the lake made of it."""

    answer: Answer
    events: int
    dead: int
    same: bool
    late: int
    """Events that came too late to count."""
    counts: dict[str, int]


def run(scene: Scene, place: Workplace, spark: "SparkSession", steps: Steps) -> Results:
    """A city from its traffic to the report; everything is left in the workplace."""
    driven = drive(scene, place, steps)
    analysed = analyse(place, spark, steps)
    with steps.step("comparing with the truth", "passages") as step:
        results = conclude(scene, spark, driven, analysed, place)
        step.amount = results.accuracy.complete + results.accuracy.one_sided
    results = msgspec.structs.replace(results, stages=tuple(steps.stages))
    with written(place.folder):
        place.results.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
        write_report(results, place.report)
    return results


def drive(scene: Scene, place: Workplace, steps: Steps) -> Driven:
    """Let traffic flow, sensors speak on their segments, and the city's centre collect and record."""
    segments = "a CAN segment" if len(scene.sites) == 1 else f"{len(scene.sites)} CAN segments"
    with steps.step(f"simulating {segments}", "frames") as step:
        runs = run_segments(scene, step.progress)
        step.amount = sum(each.outcome.frames for each in runs)
    with steps.step("collecting and recording", "events") as step:
        sites = {each.outcome.site: each.outcome.events for each in runs}
        arriving = arrivals(sites, Uplink(), scene.seed)
        published = sum(each.outcome.published for each in runs)
        refits = {each.outcome.site: at_us for each in runs if (at_us := each.outcome.refitted_us) is not None}
        centre = run_centre(scene, arriving, published, refits, place.landing, step.progress)
        step.amount = centre.arrived
    with written(place.truth):
        write_truth([passage for each in runs for passage in each.passages], place.truth)
    return Driven(runs, arriving, centre)


def analyse(place: Workplace, spark: "SparkSession", steps: Steps) -> Analysed:
    """Follow what landed as a stream, ask the same in batch, and compare."""
    lake, streamed = fill(place, spark, steps)
    with steps.step("asking the same in batch", "events") as step:
        batch = ask_in_batch(lake)
        step.progress(0.3)
        same = all(same_rows(*both) for both in zip(batch, streamed.answer, strict=True))
        step.progress(0.7)
        late, counts, step.amount = late_events(lake), answers_on_spark(lake), streamed.events
    return Analysed(batch, streamed.events, streamed.dead, same, late, counts)


def conclude(scene: Scene, spark: "SparkSession", driven: Driven, analysed: Analysed, place: Workplace) -> Results:
    """The results, with what was found held against the truth."""
    catalog = city_catalog()
    minutes = tuple(_minutes(analysed.answer))
    return Results(
        seed=scene.seed,
        start=scene.start,
        minutes=scene.minutes,
        master=spark.conf.get("spark.master") or "",
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}, Spark {spark.version}",
        sites=tuple(_sites(scene, driven.runs)),
        types=type_rows(catalog),
        subscriptions=tuple(_compiled(driven, analysed, place)),
        bus=_picture(driven.runs),
        channels=tuple(row for each in driven.runs for row in each.outcome.channels),
        traffic=minutes,
        accuracy=_accuracy(driven, analysed, sum(minute.count for minute in minutes)),
        refit=driven.centre.refit,
        lateness=Lateness(out_of_order=driven.centre.out_of_order, late=analysed.late),
        roadside=_roadside(driven, analysed),
        stages=(),
        stream_equals_batch=analysed.same,
        event_count=analysed.events,
        dead_letters=analysed.dead,
    )


def _sites(scene: Scene, runs: Iterable[SiteRun]) -> Iterator[Site]:
    """The sites, with the instants at which new sensors really took over."""
    for site, run in zip(scene.sites, runs, strict=True):
        refit_us = run.outcome.refitted_us
        yield Site(name=site.name, place=site.place, kind=site.kind, lanes=site.lanes, refit_us=refit_us)


def _compiled(driven: Driven, analysed: Analysed, place: Workplace) -> Iterator[Compiled]:
    """Every subscription with its answers in all places, of which a CAN segment has the velocity monitor's only."""
    catalog = city_catalog()
    monitored = sum(each.outcome.heard["VelocityMonitor"] for each in driven.runs)
    places = {
        "CAN": {"VelocityMonitor": monitored},
        "bus": driven.centre.answers,
        **answers_in_process([arrival.event for arrival in driven.arriving], place.landing),
        "Spark": analysed.counts,
    }
    for name, answers in by_subscriber(places).items():
        yield compiled(catalog, name, spark_target.compile(SUBSCRIPTIONS[name]).explain(), answers)


def _picture(runs: Iterable[SiteRun]) -> BusPicture:
    """The picture of the segment on which most is to be seen."""
    return max((each.outcome.picture for each in runs), key=lambda picture: len(picture.waits))


def _minutes(answer: Answer) -> Iterator[Minute]:
    rows = speeds_by_minute(answer.passages).toArrow().to_pylist()
    means = {(row["source"], row["category"], row["start"]): row["speed_mean"] for row in rows}
    counts = answer.statistics.orderBy("source", "category", "start").toArrow().to_pylist()
    for row in counts:
        key = row["source"], row["category"], row["start"]
        yield Minute(
            site=row["source"], category=row["category"], start=row["start"], count=row["count"],
            speed_mean=means.get(key),
        )  # fmt: skip


def _roadside(driven: Driven, analysed: Analysed) -> Roadside:
    """Whether the monitors, edge by edge, found what the lake found; where edges came too late it cannot have."""
    late = lanes_with_late_edges(driven.arriving, LATENESS)
    lake: dict[tuple[str, int], set[Found]] = {}
    for site, lane, found in found_in(analysed.answer.passages.toArrow()):
        lake.setdefault((site, lane), set()).add(found)
    beside: dict[tuple[str, int], set[Found]] = {}
    for each in driven.runs:
        for lane, found in each.outcome.found:
            beside.setdefault((each.outcome.site, lane), set()).add(found)
    compared = (beside.keys() | lake.keys()) - late
    alike = sum(beside.get(lane) == lake.get(lane) for lane in compared)
    return Roadside(lanes=len(compared), alike=alike, passages=sum(len(beside.get(lane, ())) for lane in compared))


def _accuracy(driven: Driven, analysed: Analysed, counted: int) -> Accuracy:
    truth = (passage for each in driven.runs for passage in each.passages)
    in_time = told_in_time(truth, driven.arriving, LATENESS)
    return accuracy_of(found_in(analysed.answer.passages.toArrow()), in_time, counted)
