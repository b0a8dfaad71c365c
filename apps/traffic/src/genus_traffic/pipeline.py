"""The data pipeline: a lake that follows what lands, and speeds and statistics from it, as a stream and in batch.

Both run the same analyses, so both must come to the same rows; `same_rows` looks whether they do.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from genus.lake import DerivedTable, Lake, Progress, Windows, is_late, persist, windows
from genus_traffic.speeds import EDGES, passages_of, speeds
from genus_traffic.steps import Steps
from genus_traffic.subscribers import STATISTICS, SUBSCRIPTIONS
from genus_traffic.types import TYPES, Roadside
from genus_traffic.workplace import Workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATENESS = timedelta(seconds=60)
"""How long after it happened an event may be recorded and still counts."""
MINUTE = timedelta(minutes=1)
SPEEDS = speeds(LATENESS)
COUNTS = Windows(every=MINUTE, by=("source", "category"), lateness=LATENESS)
BATCHES = 3
"""Into about so many micro-batches what has landed is cut."""


class Answer(NamedTuple):
    """What the lake knows of the traffic."""

    passages: "DataFrame"
    statistics: "DataFrame"


class Streamed(NamedTuple):
    """What came of following a landing folder to its end."""

    answer: Answer
    events: int
    dead: int


def make_lake(spark: "SparkSession", folder: Path) -> Lake:
    """An empty lake for the events of a city; a session that starts when it is needed starts now."""
    spark.range(1).count()
    return Lake.create(spark, folder / "lake", *TYPES)


def fill(place: Workplace, spark: "SparkSession", steps: Steps) -> tuple[Lake, Streamed]:
    """A lake of what has landed in a workplace, and what was found on the way in."""
    with steps.step("starting Spark", "sessions") as step:
        lake, step.amount = make_lake(spark, place.folder), 1
    with steps.step("streaming into the lake", "events") as step:
        streamed = follow(lake, place.landing, place.folder, step.progress)
        step.amount = streamed.events
    return lake, streamed


def follow(lake: Lake, landing: Path, folder: Path, progress: Callable[[float], object]) -> Streamed:
    """Read in what has landed in several micro-batches, and keep speeds and statistics up to date with each."""
    files = len(list(landing.glob("*.genus")))
    seen: list[Progress] = []

    def on_progress(batch: Progress) -> None:
        seen.append(batch)
        progress(sum(each.files for each in seen) / max(files, 1))

    passages, statistics = folder / "passages", folder / "statistics"
    stream = lake.stream(landing, files_per_batch=-(-files // BATCHES) or 1, on_progress=on_progress)
    stream.derive(passages, SPEEDS, *EDGES).derive(statistics, COUNTS, STATISTICS).run()
    derived = DerivedTable(lake, passages, SPEEDS, *EDGES), DerivedTable(lake, statistics, COUNTS, STATISTICS)
    for each in derived:
        each.finish()
    answer = Answer(*(each.read() for each in derived))
    return Streamed(answer, sum(each.events for each in seen), sum(each.dead for each in seen))


def ask_in_batch(lake: Lake) -> Answer:
    """The same analyses over everything that is in the lake."""
    return Answer(persist(passages_of(lake, LATENESS)), persist(COUNTS.all(lake.read(STATISTICS))))


def same_rows(one: "DataFrame", other: "DataFrame") -> bool:
    """Whether two frames have the same rows, as often each, in whatever order."""
    other = other.select(*one.columns)
    return one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()


def speeds_by_minute(passages: "DataFrame") -> "DataFrame":
    """The mean speed of every category at every site, minute by minute."""
    measured = passages.where("speed is not null and category is not null")
    return windows(measured, every=MINUTE, by=("source", "category"), values={"speed": ["mean"]}, time="time")


def late_events(lake: Lake) -> int:
    """How many events of all kinds came too late to count."""
    return lake.read(Roadside).where(is_late(LATENESS)).count()


def answers_on_spark(lake: Lake) -> dict[str, int]:
    """How many events of the lake each subscription matches, all of them routed at once."""
    matches = {row["subscription"]: row["matches"] for row in lake.route(SUBSCRIPTIONS).counts().collect()}
    return {name: matches.get(place, 0) for place, name in enumerate(SUBSCRIPTIONS)}
