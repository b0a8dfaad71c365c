"""The application from end to end: traffic, CAN segments, centre, lake, and the comparison with the truth."""

import os
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from genus.targets import spark as spark_target
from genus_traffic.accuracy import accuracy_of, lanes_with_late_edges, without_late_edges
from genus_traffic.centre.centre import CentreResult, merge_arrivals, run_centre
from genus_traffic.centre.uplink import Uplink
from genus_traffic.passages.finder import MeasuredPassage
from genus_traffic.pipeline import (
    COUNTS,
    LATENESS,
    PASSAGES,
    Tables,
    analyse_in_batch,
    fill_lake,
    late_events,
    matches_on_spark,
    same_tables,
    speeds_by_minute,
)
from genus_traffic.report.page import write_report
from genus_traffic.results import (
    Accuracy,
    BusPicture,
    CompiledSubscription,
    Lateness,
    Minute,
    Results,
    Roadside,
    Site,
    Steps,
)
from genus_traffic.road.scene import Scene
from genus_traffic.road.truth import write_truth
from genus_traffic.run_folder import RunFolder, writing
from genus_traffic.segment.listeners import Arrival
from genus_traffic.segment.plan import city_catalog
from genus_traffic.segment.processes import SiteRun, run_segments
from genus_traffic.speeds import read_passages
from genus_traffic.subscribers import SUBSCRIPTIONS, by_subscriber, compile_for_targets, matches_by_target, type_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SimulatedCity(NamedTuple):
    """The run of the segments and of the centre."""

    runs: list[SiteRun]
    arriving: list[Arrival]
    centre: CentreResult


class AnalysedCity(NamedTuple):
    """The results of the lake."""

    tables: Tables
    events: int
    dead: int
    same: bool
    late: int
    """Events that were recorded too late to be counted."""
    matches: dict[str, int]
    """How many events each subscription matches."""


def run(scene: Scene, folder: RunFolder, spark: "SparkSession", steps: Steps) -> Results:
    """Run a city from its traffic to the report; all outputs are written to the folder.

    Raises:
        FolderRefused: The folder cannot be written.
        SegmentsFailed: A process that simulated a segment was killed.
    """
    with writing(folder.city):
        folder.city.write_bytes(msgspec.json.format(msgspec.json.encode(scene)))
    simulated = simulate(scene, folder, steps)
    analysed = analyse(folder, spark, steps)
    with steps.step("comparing with the truth", "passages") as step:
        results = gather_results(scene, spark, simulated, analysed, folder)
        step.amount = results.accuracy.complete + results.accuracy.one_sided
    results = msgspec.structs.replace(results, stages=tuple(steps.stages))
    with writing(folder.path):
        folder.results.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
        write_report(results, folder.report)
    return results


def simulate(scene: Scene, folder: RunFolder, steps: Steps) -> SimulatedCity:
    """Simulate the traffic and the segments; collect and record their events at the city's centre."""
    segments = "a CAN segment" if len(scene.sites) == 1 else f"{len(scene.sites)} CAN segments"
    with steps.step(f"simulating {segments}", "frames") as step:
        runs = run_segments(scene, step.progress)
        step.amount = sum(each.outcome.frames for each in runs)
    with steps.step("collecting and recording", "events") as step:
        sites = {each.outcome.site: each.outcome.events for each in runs}
        arriving = merge_arrivals(sites, Uplink(), scene.seed)
        published = sum(each.outcome.published for each in runs)
        refits = {each.outcome.site: at_us for each in runs if (at_us := each.outcome.refitted_us) is not None}
        centre = run_centre(scene, arriving, published, refits, folder.landing, step.progress)
        step.amount = centre.arrived
    with writing(folder.truth):
        write_truth([passage for each in runs for passage in each.passages], folder.truth)
    return SimulatedCity(runs, arriving, centre)


def analyse(folder: RunFolder, spark: "SparkSession", steps: Steps) -> AnalysedCity:
    """Stream the recordings into a lake, run the same analyses in batch, and compare."""
    lake, streamed = fill_lake(folder, spark, steps, [PASSAGES, COUNTS])
    with steps.step("repeating it in batch", "events") as step:
        batch = analyse_in_batch(lake, [PASSAGES, COUNTS])
        step.progress(0.3)
        same = same_tables(batch, streamed.tables)
        step.progress(0.7)
        late, matches, step.amount = late_events(lake), matches_on_spark(lake), streamed.events
    return AnalysedCity(batch, streamed.events, streamed.dead, same, late, matches)


def gather_results(
    scene: Scene, spark: "SparkSession", simulated: SimulatedCity, analysed: AnalysedCity, folder: RunFolder
) -> Results:
    """Compare the analyses with the truth, and put all results together."""
    catalog = city_catalog()
    minutes = tuple(_minutes(analysed.tables))
    return Results(
        seed=scene.seed,
        start=scene.start,
        minutes=scene.minutes,
        master=spark.conf.get("spark.master") or "",
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}, Spark {spark.version}",
        sites=tuple(_sites(scene, simulated.runs)),
        types=type_rows(catalog),
        subscriptions=tuple(_compile(simulated, analysed, folder)),
        bus=_picture(simulated.runs),
        channels=tuple(row for each in simulated.runs for row in each.outcome.channels),
        traffic=minutes,
        accuracy=_accuracy(simulated, analysed, sum(minute.count for minute in minutes)),
        refit=simulated.centre.refit,
        lateness=Lateness(out_of_order=simulated.centre.out_of_order, late=analysed.late),
        roadside=_roadside(simulated, analysed),
        stages=(),
        stream_equals_batch=analysed.same,
        event_count=analysed.events,
        dead_letters=analysed.dead,
    )


def _sites(scene: Scene, runs: Iterable[SiteRun]) -> Iterator[Site]:
    """The sites, with the instants at which new sensors took over."""
    for site, run in zip(scene.sites, runs, strict=True):
        refit_us = run.outcome.refitted_us
        yield Site(name=site.name, place=site.place, kind=site.kind, lanes=site.lanes, refit_us=refit_us)


def _compile(simulated: SimulatedCity, analysed: AnalysedCity, folder: RunFolder) -> Iterator[CompiledSubscription]:
    """Every subscription with its matches on all targets; on CAN, only the velocity monitor's subscription runs."""
    catalog = city_catalog()
    monitored = sum(each.outcome.received["VelocityMonitor"] for each in simulated.runs)
    targets = {
        "CAN": {"VelocityMonitor": monitored},
        "bus": simulated.centre.matches,
        **matches_by_target([arrival.event for arrival in simulated.arriving], folder.landing),
        "Spark": analysed.matches,
    }
    for name, matches in by_subscriber(targets).items():
        yield compile_for_targets(catalog, name, spark_target.compile(SUBSCRIPTIONS[name]).explain(), matches)


def _picture(runs: Iterable[SiteRun]) -> BusPicture:
    """The picture of the segment with the most soft events in it."""
    return max((each.outcome.picture for each in runs), key=lambda picture: len(picture.waits))


def _minutes(tables: Tables) -> Iterator[Minute]:
    rows = speeds_by_minute(tables[PASSAGES.name]).toArrow().to_pylist()
    means = {(row["source"], row["category"], row["start"]): row["speed_mean"] for row in rows}
    counts = tables[COUNTS.name].orderBy("source", "category", "start").toArrow().to_pylist()
    for row in counts:
        key = row["source"], row["category"], row["start"]
        yield Minute(
            site=row["source"], category=row["category"], start=row["start"], count=row["count"],
            speed_mean=means.get(key),
        )  # fmt: skip


def _roadside(simulated: SimulatedCity, analysed: AnalysedCity) -> Roadside:
    """Compare the passages of the roadside monitors with those of the lake, in lanes without late edges."""
    late = lanes_with_late_edges(simulated.arriving, LATENESS)
    lake: dict[tuple[str, int], set[MeasuredPassage]] = {}
    for site, lane, found in read_passages(analysed.tables[PASSAGES.name].toArrow()):
        lake.setdefault((site, lane), set()).add(found)
    roadside: dict[tuple[str, int], set[MeasuredPassage]] = {}
    for each in simulated.runs:
        for lane, found in each.outcome.found:
            roadside.setdefault((each.outcome.site, lane), set()).add(found)
    compared = (roadside.keys() | lake.keys()) - late
    alike = sum(roadside.get(lane) == lake.get(lane) for lane in compared)
    return Roadside(lanes=len(compared), alike=alike, passages=sum(len(roadside.get(lane, ())) for lane in compared))


def _accuracy(simulated: SimulatedCity, analysed: AnalysedCity, counted: int) -> Accuracy:
    truth = (passage for each in simulated.runs for passage in each.passages)
    in_time = without_late_edges(truth, simulated.arriving, LATENESS)
    return accuracy_of(read_passages(analysed.tables[PASSAGES.name].toArrow()), in_time, counted)
