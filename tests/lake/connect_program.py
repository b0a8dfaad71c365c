"""The operations of a lake in one program, the same in a session of Spark Connect and in a classic one.

`python -m tests.lake.connect_program FOLDER` runs it with Spark Connect; the results are in `result.json`.
"""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import msgspec
from pyspark.sql import DataFrame, SparkSession

from genus import Subscription, this
from genus.lake import (
    Analysis,
    DerivedTable,
    Inboxes,
    Lake,
    Pairing,
    Walk,
    Windows,
    _jobs,
    read_results,
    register_data_source,
    ship,
)
from genus.lake._jobs import is_connect
from tests.lake.bursts import GIVES, bursts
from tests.lake.pipeline import SUBSCRIPTIONS, digests
from tests.lake.roads import ALL, MORNING, Counter, Gate, Radar, traffic, write_recording

SECOND = timedelta(seconds=1)
HALF = timedelta(seconds=150)
HADOOP, STREAM = "a path of Hadoop", "stream"
Steps = Iterator[tuple[str, Callable[[], object]]]


def main(folder: Path) -> None:
    """Run all steps with Spark Connect and write what they found."""
    builder = SparkSession.builder.remote("local[1]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        assert is_connect(session)
        results = run(session, folder) | {HADOOP: _result(lambda: Lake(session, "hdfs://city/lake"))}
        (folder / "result.json").write_bytes(msgspec.json.encode(results))
    finally:
        session.stop()


def run(spark: SparkSession, folder: Path) -> dict[str, object]:
    """The result of every step, or the exception that it raised."""
    return {name: _result(step) for name, step in steps(spark, folder)}


def _result(step: Callable[[], object]) -> object:
    try:
        return step()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def steps(spark: SparkSession, folder: Path) -> Steps:
    """What is tried, by name; later steps use what earlier ones made."""
    (folder / "landing").mkdir()
    events = traffic(300)
    write_recording(folder / "a.genus", events[:100])
    write_recording(folder / "b.genus", events[100:200])
    (folder / "bad.jsonl").write_text('{"_type": "Counter", "lane": "no"}\n{"_type": "Nobody"}\n')
    yield "ship", lambda: Path(ship(spark)).name
    lake = Lake.create(spark, folder / "lake", *ALL)
    yield "ingest here", lambda: lake.ingest(folder / "a.genus").events
    yield "ingest more", lambda: lake.ingest(folder / "b.genus").events
    yield "ingest dead letters", lambda: lake.ingest(folder / "bad.jsonl").dead
    yield "dead letters", lambda: digests({"dead": lake.dead_letters().drop("path")})
    yield from _query_steps(lake)
    yield from _route_steps(lake, folder)
    yield from _stream_steps(lake, folder)
    yield from _derive_steps(lake, folder)
    yield from _source_steps(spark, folder)
    yield from _keeping_steps(lake, folder)


def _query_steps(lake: Lake) -> Steps:
    yield "read", lambda: digests({"all": lake.read(Counter), "table": lake.table("Counter")})
    yield "where", lambda: lake.read(Counter, where=this.speed > 30).count()
    yield "several families", lambda: lake.read("Streetside").count()
    yield "subtypes", lambda: lake.read(Counter, subtypes=True).where("angle is not null").count()
    yield "first version", lambda: lake.read(Counter, version=2).count()
    yield "explain", lambda: lake.explain(Counter).tests
    yield "views", lambda: sorted(lake.views("v_"))
    yield "sql", lambda: lake.spark.sql("select count(*) from v_Counter where v_is_a(_type, 'Radar')").collect()[0][0]
    yield "register tables", lambda: lake.register_tables()
    yield "history", lambda: [entry.kind for entry in lake.history()]


def _route_steps(lake: Lake, folder: Path) -> Steps:
    route = lake.route(SUBSCRIPTIONS)
    yield "count", route.count
    yield "counts", lambda: sorted(tuple(row) for row in route.counts().collect())
    yield "frame", lambda: digests({"matches": route.frame()})
    yield "events", lambda: digests({"matches": route.events(Counter)})
    yield "large plan", lambda: _count_by_file(lake)
    yield "by table", lambda: lake.route(_subscription_table(lake.spark)).count()
    yield "deliver", lambda: route.to_inboxes(folder / "inboxes").rows
    yield "deliver again", lambda: route.to_inboxes(folder / "inboxes").rows
    inboxes = Inboxes(lake.spark, folder / "inboxes")
    yield "inboxes", lambda: digests({family: inboxes.read(family=family) for family in ("Counter", "Gate")})
    yield "inbox", lambda: inboxes.read("north").count()
    yield "subscribers", lambda: sorted(tuple(row) for row in inboxes.subscribers().collect())


def _count_by_file(lake: Lake) -> int:
    """The plan is sent as a file."""
    with patch.object(_jobs, "MAX_CONTENT", 0):
        return lake.route(SUBSCRIPTIONS).frame().count()


def _subscription_table(spark: SparkSession) -> DataFrame:
    rows = [("ann", "Counter where speed > 30"), ("ben", "Gate")]
    return spark.createDataFrame(rows, "subscriber string, subscription string")


def _stream_steps(lake: Lake, folder: Path) -> Steps:
    seen: list[int] = []
    stream = lake.stream(folder / "landing").for_each(Gate, lambda frame, version: seen.append(frame.count()), "gates")
    stream.route(SUBSCRIPTIONS).to_inboxes(folder / "inboxes")
    write_recording(folder / "landing" / "c.genus", traffic(100, first=200))
    yield STREAM, lambda: [stream.run().events, stream.run().events, *seen]
    yield "ingest what landed", lambda: lake.ingest(folder / "landing") and None
    yield "catch up", lambda: stream.catch_up() and None
    yield "delivered", lambda: Inboxes(lake.spark, folder / "inboxes").read().count()
    yield "compact inboxes", lambda: Inboxes(lake.spark, folder / "inboxes").compact() > 0


def _derive_steps(lake: Lake, folder: Path) -> Steps:
    analyses: dict[str, tuple[Analysis, int]] = {
        "windows": (Windows(every=30 * SECOND, by=("lane",), values={"speed": ("mean", 0.5)}, lateness=SECOND), 1),
        "pairs": (Pairing(by=("lane",), within=20 * SECOND, lateness=SECOND), 2),
        "walk": (Walk(by=("lane",), function=bursts, gives=GIVES, lateness=SECOND), 1),
    }
    for name, (analysis, frames) in analyses.items():
        yield from _derived_steps(DerivedTable(lake, folder / name, analysis, *[Counter, Radar][:frames]), name)


def _without_times(results: DataFrame) -> DataFrame:
    """The results without the times of ingest, which differ from run to run."""
    return results.drop(*[name for name in results.columns if name.endswith("_ingested")])


def _derived_steps(table: DerivedTable, name: str) -> Steps:
    yield f"update {name}", lambda: table.update().rows
    yield f"finish {name}", lambda: table.finish().rows
    yield name, lambda: digests({name: _without_times(read_results(table.lake.spark, table.path))})
    yield f"rebuild {name}", lambda: table.rebuild().rows


def _source_steps(spark: SparkSession, folder: Path) -> Steps:
    yield "register source", lambda: register_data_source(spark)
    source = spark.read.format("genus").option("catalog", f"{folder}/lake").option("type", "Counter")
    yield "source", lambda: digests({"source": source.load(f"{folder}/*.genus").drop("_source")})


def _keeping_steps(lake: Lake, folder: Path) -> Steps:
    yield "compact", lambda: lake.compact().files_after
    yield "dry run", lambda: lake.delete(Subscription(Counter, where=this.lane == 3), dry_run=True).rows
    yield "delete", lambda: lake.delete(Subscription(Counter, where=this.lane == 3)).rows
    yield "delete of inboxes", lambda: Inboxes(lake.spark, folder / "inboxes").delete("Counter where lane = 3").rows
    yield "expire", lambda: lake.expire("Gate", 1, now=MORNING + timedelta(days=1) + HALF).rows
    yield "left", lambda: digests({family: lake.table(family) for family in ("Counter", "Gate")})
    yield "check", lambda: [str(problem) for problem in lake.check()]
    yield "clean", lambda: lake.clean(0) > 0
    yield "mirror", lambda: lake.mirror().version


if __name__ == "__main__":
    main(Path(sys.argv[1]))
