"""Windows: counts and exact quantiles compared with a plain implementation; batch and increments agree."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.lake import (
    END_OF_STREAM,
    Pairing,
    Windows,
    pair,
    seconds,
    windows,
)
from genus.lake._analytics.analysis import union_waiting, watermark_of
from genus.lake._analytics.windows import Statistic

from .hits import START, Hit, followed, frame, in_order, increments, micros, sides, traffic

MICRO = timedelta(microseconds=1)
SHAPES = [(20, None), (20, 7), (30, 10)]
SPEEDS = [None, math.nan, 0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -7.5, 33.3, math.inf]
FIGURES: list[Statistic] = ["count", "mean", "min", "max", 0, 0.5, 0.85, 1]


def speed_of(hit: Hit) -> float | None:
    return SPEEDS[hit.position * 7919 % 10007 % len(SPEEDS)]


def with_speeds(spark: SparkSession, hits: Iterable[Hit]) -> DataFrame:
    speeds = F.array(*(F.lit(speed).cast("double") for speed in SPEEDS))
    which = F.col("_position") * 7919 % 10007 % len(SPEEDS)
    return frame(spark, hits).withColumn("speed", F.get(speeds, which.cast("int")))


def windows_by_definition(hits: Sequence[Hit], every: int, slide: int) -> dict[tuple[str | None, int], list[Hit]]:
    """The oracle: every window that begins near an event, and the hits in it."""
    found = defaultdict(list)
    for hit in hits:
        at = micros(hit.at)
        for start in range((at - every) // slide * slide, at + 1, slide):
            if start <= at < start + every:
                found[hit.lane, start].append(hit)
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest values."""
    place = (len(values) - 1) * share
    below, above = values[math.floor(place)], values[math.ceil(place)]
    if below == above:
        return below
    return below * (math.ceil(place) - place) + above * (place - math.floor(place))


def figures_of(hits: Iterable[Hit]) -> dict[str, float | None]:
    given = (speed_of(hit) for hit in hits)
    values = sorted(speed for speed in given if speed is not None and not math.isnan(speed))
    if not values:
        return {"speed_count": 0} | dict.fromkeys([f"speed_{name}" for name in ("mean", "min", "max")])
    total = 0.0
    for value in values:
        total += value
    figures: dict[str, float | None] = {"speed_count": len(values), "speed_mean": total / len(values)}
    return figures | {
        "speed_min": values[0],
        "speed_max": values[-1],
        "speed_p0": values[0],
        "speed_p50": quantile(values, 0.5),
        "speed_p85": quantile(values, 0.85),
        "speed_p100": values[-1],
    }


def shaped(every: int, slide: int | None, lateness: timedelta | None = None) -> Windows:
    step = None if slide is None else slide * MICRO
    return Windows(every=every * MICRO, by=("lane",), values={"speed": FIGURES}, slide=step, lateness=lateness)


def of_all_shapes(results: Callable[[int, int | None], DataFrame]) -> DataFrame:
    """The results of windows of all shapes, in one frame."""
    frames = [results(*shape).withColumn("shape", F.lit(number)) for number, shape in enumerate(SHAPES)]
    return reduce(DataFrame.unionAll, frames)


def test_windows_are_those_of_the_definition(spark: SparkSession) -> None:
    """Each window has the count of its events and the exact figures of their values, to the last digit."""
    hits = traffic(400, seed=2, delay=1)
    events = with_speeds(spark, hits)
    result = of_all_shapes(lambda every, slide: shaped(every, slide).all(events))
    rows = result.withColumn("at", F.unix_micros("start")).toArrow().to_pylist()
    expected = [windows_by_definition(hits, every, slide or every) for every, slide in SHAPES]
    assert len(rows) == sum(map(len, expected))
    for row in rows:
        members = expected[row["shape"]][row["lane"], row["at"]]
        assert row["count"] == len(members)
        assert row["end"] - row["start"] == SHAPES[row["shape"]][0] * MICRO
        figures = figures_of(members)
        assert {name: row[name] for name in figures} == figures


@pytest.mark.slow
def test_batch_and_increments_agree_row_for_row(spark: SparkSession) -> None:
    """Each window is a result once, complete, though its events come in several increments, some of them late.

    Every figure is the same to the last digit, with NULL in the key, NaN, infinity and two zeros in the values.
    """
    hits, lateness = traffic(300, seed=20, delay=40), 30 * MICRO
    cut = list(increments(hits, cuts=1, seed=20))
    events = with_speeds(spark, hits)
    batch = of_all_shapes(lambda every, slide: shaped(every, slide, lateness).all(events))
    streamed = of_all_shapes(
        lambda every, slide: followed(shaped(every, slide, lateness), cut, lambda new: [with_speeds(spark, new)])
    )
    found = in_order(batch)
    assert in_order(streamed) == found
    on_time = [hit for hit in hits if hit.delay <= 30]
    assert len(found) == sum(len(windows_by_definition(on_time, every, slide or every)) for every, slide in SHAPES)
    assert len(on_time) < len(hits)


@pytest.mark.slow
def test_quantiles_are_those_of_spark(spark: SparkSession) -> None:
    """The definition is that of Spark's percentile."""
    events = with_speeds(spark, traffic(300, seed=6, delay=1)).where("not isnan(speed)")
    shares = [0.05, 0.333, 0.5, 0.85]
    figures: list[Statistic] = [*shares]
    ours = windows(events, every=timedelta(days=1), by="lane", values={"speed": figures})
    theirs = events.groupBy("lane").agg(F.percentile("speed", shares).alias("found"))
    names = ["speed_p5", "speed_p33_3", "speed_p50", "speed_p85"]
    assert ours.columns == ["lane", "start", "end", "count", *names]
    both = ours.join(theirs, ours["lane"].eqNullSafe(theirs["lane"])).toArrow().to_pylist()
    assert len(both) == 5
    for row in both:
        assert [row[name] for name in names] == pytest.approx(row["found"], nan_ok=True)


@pytest.mark.slow
def test_windows_over_pairs_follow_the_same_watermark(spark: SparkSession) -> None:
    """Pairs that are settled at a watermark make windows that are settled at it."""
    hits = traffic(300, seed=8, delay=20)
    pairing = Pairing(by=("lane",), within=25 * MICRO, lateness=20 * MICRO)
    speeds = Windows(every=50 * MICRO, by=("lane",), values={"gap": ["count", 0.5]}, time="right_time")
    batch = in_order(speeds.all(with_gaps(pairing.all(*sides(spark, hits)))))
    waiting: tuple[DataFrame | None, DataFrame | None] = (None, None)
    given_out: list[DataFrame] = []
    recorded = 0
    for new in [*increments(hits, cuts=1, seed=1), []]:
        recorded = max([recorded, *(hit.recorded for hit in new)])
        watermark = watermark_of(START + recorded * MICRO, pairing.lateness) if new else END_OF_STREAM
        pairs = pairing.settle(union_waiting(waiting[0], pairing.take(*sides(spark, new))), watermark)
        figures = speeds.settle(union_waiting(waiting[1], speeds.take(with_gaps(pairs.results))), watermark)
        given_out.append(figures.results)
        waiting = pairs.waiting, figures.waiting
    assert in_order(reduce(DataFrame.unionAll, given_out)) == batch
    assert len(batch) > 20


def with_gaps(pairs: DataFrame) -> DataFrame:
    return pairs.withColumn("gap", seconds("elapsed"))


def test_windows_begin_at_whole_multiples_since_1970_in_utc(spark: SparkSession) -> None:
    """Neither the session's time zone nor a time before 1970 moves them."""
    moments = ["1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "2026-03-29T12:00:00Z", "0001-01-01T00:00:00Z"]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        events = spark.createDataFrame([(moment,) for moment in moments], "text string")
        timed = events.select(F.to_timestamp("text").alias("at"))
        result = windows(timed, every=timedelta(days=1), time="at")
        starts = sorted(row[0] for row in result.select(F.unix_micros("start")).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    day = 86_400_000_000
    assert starts[1:3] == [-day, 0]
    assert all(start % day == 0 for start in starts)
    assert len(starts) == 4


@pytest.mark.slow
def test_late_events_are_left_out_unless_kept(spark: SparkSession) -> None:
    """One recorded longer than the lateness after its time is in no window."""
    events = frame(spark, [Hit("a", at, at, True, True, delay) for at, delay in ((0, 5), (1, 6))])

    def count(**options: Any) -> int:
        rows = windows(events, every=timedelta(days=1), **options).collect()
        return sum(row["count"] for row in rows)

    assert count() == 2
    assert count(lateness=5 * MICRO) == 1
    assert count(lateness=5 * MICRO, keep_late=True) == 2


def test_an_event_without_time_counts_when_it_was_recorded(spark: SparkSession) -> None:
    """An event without a time is in the window of its recording."""
    events = frame(spark, [Hit("a", 0, 1, True, True, 25_000_000)]).withColumn("time", F.lit(None).cast("timestamp"))
    (row,) = windows(events, every=timedelta(seconds=10), lateness=timedelta(0)).toArrow().to_pylist()
    assert row["start"] == START + timedelta(seconds=20)


def test_values_keep_their_type_where_that_is_possible(spark: SparkSession) -> None:
    """Extremes are of the column's type, means and quantiles are floats, and an integer counts as one."""
    events = frame(spark, [Hit("a", 0, (1 << 60) + extra, True, True) for extra in (1, 3)])
    statistics: list[Statistic] = ["min", "max", "mean", 0.5]
    (row,) = windows(events, every=timedelta(days=1), values={"_position": statistics}).toArrow().to_pylist()
    assert (row["_position_min"], row["_position_max"]) == ((1 << 60) + 1, (1 << 60) + 3)
    assert (row["_position_mean"], row["_position_p50"]) == (2.0**60, 2.0**60)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"every": timedelta(0)}, "every is .*; it must be above zero"),
    ({"slide": timedelta(hours=1)}, "slide=1:00:00"),
    ({"slide": timedelta(0)}, "slide is .*; it must be above zero"),
    ({"every": "100ns"}, "every is '100ns'; it must be at least a microsecond"),
    ({"values": {"speed": ["median"]}}, r"values\['speed'\]: 'median'"),
    ({"values": {"speed": [85]}}, "quantile from 0 to 1"),
    ({"values": {"speed": [0.5, 0.5]}}, "two columns speed_p50"),
    ({"by": ("count",)}, "two columns count"),
    ({"lateness": -MICRO}, "lateness is .*, which is negative"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_wrong_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    """The option at fault is named."""
    right: dict[str, Any] = {"every": timedelta(minutes=1)}
    with pytest.raises(ValueError, match=message):
        Windows(**(right | wrong))


def test_times_are_spans() -> None:
    """However they are written, the analysis is the same, and so is the text that identifies its results."""
    minute = (60, "1 min", "60 s", timedelta(minutes=1))
    written = [Windows(every=each, slide=each, lateness=each) for each in minute]
    assert len(set(map(repr, written))) == 1
    assert all(each.step == timedelta(minutes=1) for each in written)


def test_wrong_frames_are_refused(spark: SparkSession) -> None:
    """A missing column is named, and one that holds no numbers."""
    events = frame(spark, [Hit("a", 0, 1, True, True)])
    with pytest.raises(LakeError, match="no column speed"):
        windows(events, every=MICRO, values={"speed": [0.5]})
    with pytest.raises(LakeError, match=r"values\['lane'\] is of type string"):
        windows(events, every=MICRO, values={"lane": ["min"]})
    with pytest.raises(LakeError, match="one frame, not 2"):
        Windows(every=MICRO).all(events, events)
    with pytest.raises(LakeError, match="cannot keep late"):
        Windows(every=MICRO, keep_late=True).settle(Windows(every=MICRO).take(events), datetime.now(START.tzinfo))


@pytest.mark.slow
def test_pairs_and_windows_give_speeds(spark: SparkSession) -> None:
    """Two loops five metres apart give the speeds of a lane, minute by minute."""
    hits = [
        Hit("a", second * 1_000_000 + offset, second * 2 + (offset > 0), offset == 0, offset > 0)
        for second in range(0, 120, 2)
        for offset in (0, 200_000 if second < 70 else 250_000)
    ]
    pairs = pair(*sides(spark, hits), by="lane", within=timedelta(seconds=1))
    speeds = pairs.withColumn("speed", 5 / seconds("elapsed"))
    result = windows(speeds, every=timedelta(minutes=1), by="lane", values={"speed": [0.5]}, time="right_time")
    found = sorted((row["start"], row["count"], row["speed_p50"]) for row in result.toArrow().to_pylist())
    first = START - timedelta(seconds=50)
    assert found == [
        (first, 5, 25.0),
        (first + timedelta(minutes=1), 30, 25.0),
        (first + timedelta(minutes=2), 25, 20.0),
    ]
