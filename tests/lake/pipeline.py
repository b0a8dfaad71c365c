"""The whole pipeline as a program, the same on one machine and on a cluster; its results are numbers to compare.

`python -m tests.lake.pipeline '{"master": "local[2]", "recordings": "…", "folder": "…"}'`
"""

import os
import sys
from datetime import timedelta
from functools import reduce
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus import Subscription, this
from genus.lake import Inboxes, Lake, _jobs, pair, windows
from genus.lake._jobs import ship
from tests.lake.roads import ALL, Counter, Gate, Radar, Streetside

SUBSCRIPTIONS = {
    "north": [Subscription(Counter, has="place", where=this.speed > 30), Subscription(Gate)],
    "south": [Subscription(Radar, where=this.lane == 2), Subscription(Streetside, lacks="place")],
    **{f"office {number}": [Subscription(Counter, where=this.speed > number)] for number in range(10)},
}


QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives shortly."""


class Given(msgspec.Struct):
    """The arguments of the program."""

    master: str
    folder: str
    recordings: str = ""
    conf: dict[str, str] = {}
    python: str = sys.executable
    ship: bool = False


def main(given: Given) -> None:
    """Run the pipeline and write the numbers to `result.json`."""
    session = cluster_session(given)
    try:
        if given.ship:
            ship(session)
        result = run(session, Path(given.recordings), Path(given.folder))
        (Path(given.folder) / "result.json").write_bytes(msgspec.json.encode(result))
    finally:
        session.stop()


def cluster_session(given: Given) -> SparkSession:
    """A session on the master that is given, whose workers run the Python that is given."""
    os.environ["PYSPARK_PYTHON"] = given.python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(given.master).appName("pipeline")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": f"{given.folder}/local",
        "spark.sql.warehouse.dir": f"{given.folder}/warehouse",
        **given.conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, recordings: Path, folder: Path) -> dict[str, object]:
    """The figures of every step; small plans, too, are sent as files."""
    _jobs.MAX_CONTENT = 0
    lake = Lake.create(spark, folder / "lake", *ALL)
    ingested, again = lake.ingest(recordings), lake.ingest(recordings)
    compacted = lake.compact()
    assert compacted.files_after < compacted.files_before
    route = lake.route(SUBSCRIPTIONS)
    delivered = route.to_inboxes(folder / "inboxes")
    inboxes = Inboxes(spark, folder / "inboxes")
    assert [*lake.check(), *inboxes.check()] == []
    frames = {
        **{f"table {family}": lake.table(family) for family in ("Counter", "Gate")},
        **{f"inbox {family}": inboxes.read(family=family) for family in ("Counter", "Gate")},
        "dead": lake.dead_letters(),
        "pairs": pairs(lake),
        "routed": route.events(Counter),
        "counts": route.counts(),
        "windows": windows(lake.read(Counter), every=timedelta(minutes=1), by="lane", values={"speed": [0.5]}),
    }
    return {
        "files": [ingested.files, ingested.skipped, again.files],
        "events": [ingested.events, ingested.dead],
        "matches": [route.count(), delivered.rows, route.to_inboxes(folder / "inboxes").rows],
        **digests(frames),
    }


def pairs(lake: Lake) -> DataFrame:
    """Radars and the counters that follow them in their lane."""
    left = lake.read(Radar).select("time", "expires", "lane", "speed", "_recorded", "_source", "_position")
    right = lake.read(Counter, exact=True).select("time", "expires", "lane", "_recorded", "_source", "_position")
    return pair(left, right, by="lane", within=timedelta(seconds=10))


def digests(frames: dict[str, DataFrame]) -> dict[str, list[str]]:
    """For each frame, in one job: rows, distinct rows, and the sum of their hashes."""
    hashed = reduce(DataFrame.unionAll, [_hashed(name, frame) for name, frame in frames.items()])
    sums = hashed.groupBy("name").agg(
        F.count("hash"), F.count_distinct("hash"), F.sum(F.col("hash").cast("decimal(38,0)"))
    )
    return {name: [str(value) for value in values] for name, *values in sums.collect()}


def _hashed(name: str, frame: DataFrame) -> DataFrame:
    kept = [F.col(column).cast("string") for column in frame.columns if column not in ("_commit", "_ingested")]
    return frame.select(F.lit(name).alias("name"), F.xxhash64(*kept).alias("hash"))


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Given))
