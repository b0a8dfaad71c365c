"""Speeds from a file of loop edges, such as a traffic simulator or a road authority writes: the pipeline by itself."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from genus.bus import RecordingWriter
from genus.model import micros_of_time
from genus_traffic.accuracy import accuracy_of
from genus_traffic.pipeline import ask_in_batch, fill, same_rows
from genus_traffic.results import Accuracy, Stage
from genus_traffic.road.detections import Passage
from genus_traffic.speeds import found_in
from genus_traffic.steps import Steps
from genus_traffic.types import Edge
from genus_traffic.workplace import Workplace, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LEAST_EDGES = 12, 2_000
"""So many files at most, and so many edges in each at least."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a file of edges."""

    edges: int
    pairs: int
    """Pairs of loops."""
    speeds: int
    one_sided: int
    """Hits of one loop, and passages too doubtful to measure."""
    stream_equals_batch: bool
    accuracy: Accuracy | None
    """None without a truth to compare with."""
    stages: tuple[Stage, ...]


def measure(
    edges: Sequence[Edge], truth: Sequence[Passage] | None, place: Workplace, spark: "SparkSession", steps: Steps
) -> Measured:
    """Find the speeds of all vehicles, as a stream and in batch, and hold them against the truth if there is one."""
    with steps.step("recording", "events") as step:
        record_edges(edges, place.landing, step.progress)
        step.amount = len(edges)
    lake, streamed = fill(place, spark, steps)
    with steps.step("asking the same in batch", "events") as step:
        passages = ask_in_batch(lake).passages
        same, step.amount = same_rows(passages, streamed.answer.passages), streamed.events
    found = list(found_in(passages.toArrow()))
    speeds = sum(each.found.speed is not None for each in found)
    return Measured(
        edges=len(edges),
        pairs=len({edge.source for edge in edges}),
        speeds=speeds,
        one_sided=len(found) - speeds,
        stream_equals_batch=same,
        accuracy=None if truth is None else accuracy_of(found, truth, 0),
        stages=tuple(steps.stages),
    )


def record_edges(edges: Sequence[Edge], landing: Path, progress: Callable[[float], object]) -> None:
    """Write edges as recordings, each when it happened, in the order in which a recorder would have seen them."""
    size = max(-(-len(edges) // FILES), LEAST_EDGES)
    with written(landing):
        landing.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, len(edges), size)):
            with RecordingWriter(landing / f"edges-{number:03}.genus") as writer:
                for edge in edges[start : start + size]:
                    assert edge.time is not None, "edges that were read from a file have a time"
                    writer.write(edge, micros_of_time(edge.time))
            progress(min((start + size) / len(edges), 1.0))
