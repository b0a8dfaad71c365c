"""Jobs that Genus starts are described in plain words, and only those."""

import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake import DerivedTable, Lake, Windows
from genus.lake._jobs import DESCRIPTION, MAX_LENGTH, is_connect, job_description
from tests.lake.roads import ALL, Counter, traffic, write_recording


def described(spark: SparkSession) -> str | None:
    return spark.sparkContext.getLocalProperty(DESCRIPTION)


def test_the_previous_description_is_restored(spark: SparkSession) -> None:
    """Also that there was none, inside another, and after an error."""
    assert described(spark) is None
    with job_description(spark, "outer"):
        with job_description(spark, "inner"):
            assert described(spark) == "inner"
        assert described(spark) == "outer"
        with pytest.raises(KeyError), job_description(spark, "fails"):
            raise KeyError
        assert described(spark) == "outer"
    assert described(spark) is None


def test_a_description_is_of_one_thread(spark: SparkSession) -> None:
    seen: list[str | None] = []
    with job_description(spark, "mine"):
        other = threading.Thread(target=lambda: seen.append(described(spark)))
        other.start()
        other.join()
    assert seen != ["mine"]


def test_a_long_description_is_cut(spark: SparkSession) -> None:
    with job_description(spark, "x" * 1000):
        assert len(described(spark) or "") == MAX_LENGTH


class Remote:
    """What a session of Spark Connect has."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.tags: set[str] = set()

    def getTags(self) -> set[str]:  # noqa: N802
        return set(self.tags)

    def addTag(self, tag: str) -> None:  # noqa: N802
        assert "," not in tag
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        self.tags.discard(tag)


def test_operations_of_spark_connect_are_tagged() -> None:
    """A tag that the program has itself stays."""
    remote: Any = Remote()
    remote.addTag("mine")
    for text in ("read a, b", "mine"):
        with job_description(remote, text):
            assert text.replace(",", ";") in remote.getTags()
    assert remote.getTags() == {"mine"}
    assert is_connect(remote)
    assert is_connect(SimpleNamespace(session=remote))  # type: ignore[arg-type]


def test_a_session_that_was_stopped_is_named() -> None:
    stopped: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(LakeError, match="the Spark session was stopped"), job_description(stopped, "read"):
        pass


@pytest.mark.slow
def test_every_operation_describes_its_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """By the listing of Spark's own status store; afterwards the thread has no description."""
    lake = Lake.create(spark, tmp_path / "city", *ALL)
    before = max(descriptions(spark), default=-1)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(30, first=100 * number)))
    minutes = Windows(every=timedelta(minutes=1), by=("lane",), lateness=timedelta(seconds=1))
    DerivedTable(lake, tmp_path / "minutes", minutes, Counter).update()
    route = lake.route({"ann": "Counter where lane > 1"})
    route.count()
    route.to_inboxes(tmp_path / "post")
    lake.compact()
    assert described(spark) is None
    found = {text for number, text in descriptions(spark).items() if number > before}
    assert found == {
        "ingest 1 file into city",
        "derive minutes from city",
        "count the matches of a route in city",
        "deliver the matches in city to post",
        "compact Counter of city",
        "compact Gate of city",
    }


def descriptions(spark: SparkSession) -> dict[int, str | None]:
    """The descriptions of the last jobs, by their numbers."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusStore().jobsList(None)
    listed = [jobs.apply(number) for number in range(jobs.size())]
    found = ((each.jobId(), each.description()) for each in listed)
    return {number: text.get() if text.isDefined() else None for number, text in found}
