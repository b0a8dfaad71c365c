"""Hits of induction loops with the columns of `Lake.read`, and analyses over increments of them."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from genus.lake import END_OF_STREAM, Analysis
from genus.lake._analytics.analysis import union_waiting, watermark_of

INSTANT = pa.timestamp("us", tz="UTC")
START = datetime(2026, 3, 29, 0, 59, 50, tzinfo=UTC)  # ten seconds before Berlin's clocks go forward


class Hit(NamedTuple):
    """An event at a loop, on one side of a pair or on both."""

    lane: str | None
    at: int
    position: int
    left: bool
    right: bool
    delay: int = 0

    @property
    def recorded(self) -> int:
        """When it was seen."""
        return self.at + self.delay


EVENTS = pa.schema(
    [
        ("time", INSTANT),
        ("expires", INSTANT),
        ("lane", pa.string()),
        ("_source", pa.int64()),
        ("_position", pa.int64()),
        ("_recorded", INSTANT),
    ]
)


def micros(at: int) -> int:
    """A hit's time since 1970."""
    return int(START.timestamp()) * 1_000_000 + at


def table(given_hits: Iterable[Hit]) -> pa.Table:
    """A table of hits with the columns of `Lake.read`, out of order."""
    rows = [
        {
            "time": micros(hit.at),
            "lane": hit.lane,
            "_source": 7,
            "_position": hit.position,
            "_recorded": micros(hit.recorded),
        }
        for hit in given_hits
    ]
    random.Random(5).shuffle(rows)
    return pa.Table.from_pylist(rows, EVENTS)


def frame(spark: SparkSession, given_hits: Iterable[Hit]) -> DataFrame:
    """The table as a frame of several partitions."""
    return spark.createDataFrame(table(given_hits)).repartition(3)


def sides(spark: SparkSession, given_hits: Sequence[Hit]) -> tuple[DataFrame, DataFrame]:
    """Lefts and rights in a frame each."""
    return frame(spark, [hit for hit in given_hits if hit.left]), frame(spark, [hit for hit in given_hits if hit.right])


def traffic(count: int, seed: int, delay: int) -> list[Hit]:
    """Hits in order of time, recorded with some delay: many at one instant, some without a lane, some on both sides."""
    chance = random.Random(seed)
    moments = sorted(chance.randrange(count * 3) for _ in range(count))
    return [
        Hit(
            chance.choice(["a", "b", "c", "d", None]),
            at,
            position,
            (side := chance.random()) < 0.55,
            side > 0.45,
            chance.randrange(delay),
        )
        for position, at in enumerate(moments)
    ]


def increments(given_hits: Iterable[Hit], cuts: int, seed: int) -> Iterator[list[Hit]]:
    """Hits in order of recording, cut at random positions."""
    ordered = sorted(given_hits, key=lambda hit: hit.recorded)
    places = sorted(random.Random(seed).sample(range(len(ordered)), cuts))
    for start, stop in zip([0, *places], [*places, len(ordered)], strict=True):
        yield ordered[start:stop]


def followed(
    analysis: Analysis, batches: Iterable[list[Hit]], frames: Callable[[list[Hit]], Sequence[DataFrame]]
) -> DataFrame:
    """The results of an analysis over increments and at the end, in one frame."""
    waiting: DataFrame | None = None
    given_out: list[DataFrame] = []
    recorded = 0
    for batch in batches:
        recorded = max([recorded, *(hit.recorded for hit in batch)])
        rows = union_waiting(waiting, analysis.take(*frames(batch)))
        settled = analysis.settle(rows, watermark_of(START + timedelta(microseconds=recorded), analysis.lateness))
        given_out.append(settled.results)
        waiting = settled.waiting
    assert waiting is not None
    given_out.append(analysis.settle(waiting, END_OF_STREAM).results)
    return reduce(DataFrame.unionAll, given_out)


def in_order(rows: DataFrame) -> list[str]:
    """Rows in an order of their own, to compare them."""
    return sorted(map(repr, rows.toArrow().to_pylist()))
