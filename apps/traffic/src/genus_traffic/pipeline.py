"""The data pipeline: a lake that follows the landing folder; speeds and statistics from it, as a stream and in batch.

Both run the same analyses and must give the same rows; `same_rows` compares them.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from genus import Subscription
from genus.lake import (
    Analysis,
    DerivedTable,
    Lake,
    Windows,
    is_late,
    persist,
    windows,
)
from genus.lake.types import Progress
from genus_traffic.results import Steps
from genus_traffic.run_folder import RunFolder
from genus_traffic.speeds import EDGES, speeds
from genus_traffic.subscribers import STATISTICS, SUBSCRIPTIONS
from genus_traffic.types import TYPES, Roadside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATENESS = timedelta(seconds=60)
"""Events recorded later than this after they happened are not counted."""
MINUTE = timedelta(minutes=1)
BATCHES = 3
"""About so many micro-batches read what has landed."""


class Derivation(NamedTuple):
    """An analysis with the events that it reads; the name is also that of its folder."""

    name: str
    analysis: Analysis
    events: tuple[Subscription, ...]


PASSAGES = Derivation("passages", speeds(LATENESS), EDGES)
COUNTS = Derivation("statistics", Windows(every=MINUTE, by=("source", "category"), lateness=LATENESS), (STATISTICS,))
Tables: TypeAlias = dict[str, "DataFrame"]
"""The results of derivations, by name."""


class StreamResult(NamedTuple):
    """The results of streaming a landing folder into a lake."""

    tables: Tables
    events: int
    dead: int


def make_lake(spark: "SparkSession", folder: Path) -> Lake:
    """Create an empty lake for the events of a city, and start the session if it is not running."""
    spark.range(1).count()
    return Lake.create(spark, folder / "lake", *TYPES)


def fill_lake(
    folder: RunFolder, spark: "SparkSession", steps: Steps, wanted: Sequence[Derivation]
) -> tuple[Lake, StreamResult]:
    """Stream the recordings of a run into a new lake, and update the wanted derivations."""
    with steps.step("starting Spark", "sessions") as step:
        lake, step.amount = make_lake(spark, folder.path), 1
    with steps.step("streaming into the lake", "events") as step:
        streamed = stream_into_lake(lake, folder, step.progress, wanted)
        step.amount = streamed.events
    return lake, streamed


def stream_into_lake(
    lake: Lake, folder: RunFolder, progress: Callable[[float], object], wanted: Sequence[Derivation]
) -> StreamResult:
    """Read the recordings in several micro-batches, and update the wanted derivations with each of them."""
    files = len(list(folder.landing.glob("*.genus")))
    seen: list[Progress] = []

    def on_progress(batch: Progress) -> None:
        seen.append(batch)
        progress(sum(each.files for each in seen) / max(files, 1))

    stream = lake.stream(folder.landing, files_per_batch=-(-files // BATCHES) or 1, on_progress=on_progress)
    for name, analysis, events in wanted:
        stream.derive(folder.path / name, analysis, *events)
    stream.run()
    tables = {each.name: _finish(lake, folder, each) for each in wanted}
    return StreamResult(tables, sum(each.events for each in seen), sum(each.dead for each in seen))


def _finish(lake: Lake, folder: RunFolder, wanted: Derivation) -> "DataFrame":
    """Settle what still waits for later events, and read the whole result."""
    derived = DerivedTable(lake, folder.path / wanted.name, wanted.analysis, *wanted.events)
    derived.finish()
    return derived.read()


def analyse_in_batch(lake: Lake, wanted: Sequence[Derivation]) -> Tables:
    """Run the wanted analyses over the whole lake."""
    return {name: persist(analysis.all(*map(lake.read, events))) for name, analysis, events in wanted}


def same_tables(one: Tables, other: Tables) -> bool:
    """Whether both have the same tables, with the same rows."""
    return one.keys() == other.keys() and all(same_rows(one[name], other[name]) for name in one)


def same_rows(one: "DataFrame", other: "DataFrame") -> bool:
    """Whether two frames have the same rows, equally often, in any order."""
    signed = one.selectExpr("*", "1 AS sign").unionByName(other.select(*one.columns).selectExpr("*", "-1 AS sign"))
    return signed.groupBy(*one.columns).sum("sign").where("`sum(sign)` != 0").isEmpty()


def speeds_by_minute(passages: "DataFrame") -> "DataFrame":
    """The mean speed of every category at every site, minute by minute."""
    measured = passages.where("speed is not null and category is not null")
    return windows(measured, every=MINUTE, by=("source", "category"), values={"speed": ["mean"]}, time="time")


def late_events(lake: Lake) -> int:
    """How many events were recorded too late to be counted."""
    return lake.read(Roadside).where(is_late(LATENESS)).count()


def matches_on_spark(lake: Lake) -> dict[str, int]:
    """How many events of the lake each subscription matches; all subscriptions are routed in one query."""
    matches = {row["subscription"]: row["matches"] for row in lake.route(SUBSCRIPTIONS).counts().collect()}
    return {name: matches.get(number, 0) for number, name in enumerate(SUBSCRIPTIONS)}
