"""Speeds from a file of loop edges, as a traffic simulator or a road authority writes it: the data pipeline alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from genus.bus import RecordingWriter
from genus.model import micros_of_time
from genus_traffic.accuracy import accuracy_of
from genus_traffic.pipeline import PASSAGES, analyse_in_batch, fill_lake, same_tables
from genus_traffic.results import Accuracy, Stage, Steps
from genus_traffic.road.truth import Passage
from genus_traffic.run_folder import RunFolder, writing
from genus_traffic.speeds import read_passages
from genus_traffic.types import Edge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LEAST_EDGES = 12, 2_000
"""At most so many recordings, of at least so many edges each."""


class EdgeFileResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured in a file of edges."""

    edges: int
    pairs: int
    """Pairs of loops."""
    speeds: int
    one_sided: int
    """Hits of one loop only, and passages that are too uncertain to measure."""
    stream_equals_batch: bool
    accuracy: Accuracy | None
    """None without a truth to compare with."""
    stages: tuple[Stage, ...]


def measure(
    edges: Sequence[Edge], truth: Sequence[Passage] | None, folder: RunFolder, spark: "SparkSession", steps: Steps
) -> EdgeFileResult:
    """Measure the speeds of all vehicles, as a stream and in batch, and compare them with the truth if it is known."""
    with steps.step("recording", "events") as step:
        record_edges(edges, folder.landing, step.progress)
        step.amount = len(edges)
    lake, streamed = fill_lake(folder, spark, steps, [PASSAGES])
    with steps.step("repeating it in batch", "events") as step:
        tables = analyse_in_batch(lake, [PASSAGES])
        same, step.amount = same_tables(tables, streamed.tables), streamed.events
    found = list(read_passages(tables[PASSAGES.name].toArrow()))
    speeds = sum(each.passage.speed is not None for each in found)
    return EdgeFileResult(
        edges=len(edges),
        pairs=len({edge.source for edge in edges}),
        speeds=speeds,
        one_sided=len(found) - speeds,
        stream_equals_batch=same,
        accuracy=None if truth is None else accuracy_of(found, truth, 0),
        stages=tuple(steps.stages),
    )


def record_edges(edges: Sequence[Edge], landing: Path, progress: Callable[[float], object]) -> None:
    """Write edges as recordings, in order of time, each recorded when it happened."""
    size = max(-(-len(edges) // FILES), LEAST_EDGES)
    with writing(landing):
        landing.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, len(edges), size)):
            with RecordingWriter(landing / f"edges-{number:03}.genus") as writer:
                for edge in edges[start : start + size]:
                    assert edge.time is not None, "edges that were read from a file have a time"
                    writer.write(edge, micros_of_time(edge.time))
            progress(min((start + size) / len(edges), 1.0))
