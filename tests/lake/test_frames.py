"""Any frame or stream of Spark can be appended to a lake: by `Lake.append`, and by the sink `genus`."""

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from genus.errors import LakeError, MappingError, NotRegistered
from genus.lake import Lake, LakeReader, register_data_source
from genus.lake._ingest.frames import (
    ROWS_PER_PARTITION,
    FramePlan,
    FrameWriter,
    Messages,
    StreamWriter,
    Written,
    source_path,
)
from genus.lake._stream.source import GenusDataSource
from genus.lake._tables.store import Store
from genus.records import Mapping, read_mapping
from tests.lake.roads import ALL, MORNING, Counter, Gate, Radar, traffic, write_recording
from tests.lake.stored import create_lake

MAPPING = """
[type]
field = "kind"
[types]
c = "Counter"
r = "Radar"
[attributes]
n = "lane"
kmh = { to = "speed", scale = 0.1 }
at = { to = "time", format = "s" }
"""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    register_data_source(spark)
    return Lake.create(spark, tmp_path / "lake", *ALL)


def counters(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    """Counters, one a second, some without a speed, in two partitions."""
    number = F.col("id")
    return (
        spark.range(first, first + count, 1, 2)
        .withColumn("lane", number % 4)
        .withColumn("speed", F.when(number % 3 == 0, number.cast("double")))
        .withColumn("time", F.timestamp_seconds(F.lit(int(MORNING.timestamp())) + number))
        .drop("id")
    )


def rows(frame: DataFrame, *without: str) -> list[Any]:
    dropped = {"_source", "_position", "_ingested", "_commit", "path", *without}
    return sorted(
        (tuple(row) for row in frame.select(*(n for n in frame.columns if n not in dropped)).collect()), key=repr
    )


def files_of(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.path).glob("tables/*/_commit=*")}


# -- append ------------------------------------------------------------------------------------------------------------


def test_columns_are_attributes_and_null_is_absent(spark: SparkSession, lake: Lake) -> None:
    result = lake.append(counters(spark, 100), Counter)
    assert (result.files, result.events, result.dead, result.version) == (1, 100, 0, 2)
    found = lake.read(Counter).collect()
    assert {(row.time, row.lane, row.speed) for row in found} == {
        ((MORNING + timedelta(seconds=n)).replace(tzinfo=None), n % 4, None if n % 3 else float(n)) for n in range(100)
    }
    assert all(row._recorded == row.time for row in found)
    assert lake.read("Counter has speed").count() == LakeReader(lake.path).read("Counter has speed").count() == 34
    assert len({row._position for row in found}) == 100
    assert {row._position // ROWS_PER_PARTITION for row in found} == {0, 1}
    assert lake.check() == []


@pytest.mark.slow
def test_rows_and_dead_letters_are_those_of_a_parquet_file(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """One implementation: the same mapping gives the same events, and the same reasons for the others."""
    (tmp_path / "mapping.toml").write_text(MAPPING)
    mapping = read_mapping(tmp_path / "mapping.toml")
    kinds = ["c", "r", "x", None, "c", "c", "r"]
    table = pa.table(
        {
            "kind": kinds,
            "n": pa.array([1, 2, 3, 4, None, 6, 7], pa.int32()),
            "kmh": pa.array([Decimal(n) for n in range(7)], pa.decimal128(10, 2)),
            "at": [1777600000.5 + n for n in range(7)],
            "category": ["car", None, "car", "car", "car", "boat", "truck"],
        }
    )
    pq.write_table(table, tmp_path / "given.parquet")
    other = Lake.create(spark, tmp_path / "other", *ALL)
    ingested = other.ingest(tmp_path / "given.parquet", mapping=mapping)
    appended = lake.append(spark.read.parquet(str(tmp_path / "given.parquet")), mapping)
    assert (appended.events, appended.dead) == (ingested.events, ingested.dead) == (3, 4)
    assert rows(lake.read(Counter)) == rows(other.read(Counter))
    assert rows(lake.dead_letters()) == rows(other.dead_letters())


def test_a_frame_with_a_key_is_appended_once(spark: SparkSession, lake: Lake) -> None:
    frame = counters(spark, 10)
    assert lake.append(frame, "Counter", source="monday").events == 10
    again = lake.append(frame, "Counter", source="monday")
    assert (again.files, again.skipped, again.events, again.version) == (0, 1, 0, 2)
    lake.append(frame, Counter)
    lake.append(frame, Counter)
    assert lake.read(Counter).count() == 30
    assert len({row._source for row in lake.read(Counter).collect()}) == 3
    assert lake.append(counters(spark, 0), Counter, source="nothing").version == 4


@pytest.mark.slow
def test_a_lake_is_appended_to_another(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Times of recording are kept; by a mapping, types are too."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(200)))
    other = Lake.create(spark, tmp_path / "other", *ALL)
    other.append(lake.read("exact Radar"), Radar)
    assert rows(other.read(Radar)) == rows(lake.read(Radar)) != []
    (tmp_path / "copy.toml").write_text('[type]\nfield = "_type"\n')
    done: list[tuple[int, int]] = []
    other.append(lake.read("exact Counter"), read_mapping(tmp_path / "copy.toml"), progress=lambda *at: done.append(at))
    assert rows(other.read(Counter)) == rows(lake.read(Counter))
    assert done == [(120, 120)]


def test_what_cannot_be_appended_is_refused(spark: SparkSession, lake: Lake) -> None:
    frame = counters(spark, 3)
    with pytest.raises(LakeError, match=r"column 'weight': Counter has no such attribute; it has time, .*speed"):
        lake.append(frame.withColumn("weight", F.lit(1)), Counter)
    with pytest.raises(LakeError, match="there is no column 'lane', which every Counter must have"):
        lake.append(frame.drop("lane"), Counter)
    with pytest.raises(LakeError, match="Streetside is a kind"):
        lake.append(frame, "Streetside")
    with pytest.raises(NotRegistered):
        lake.append(frame, "Ship")
    with pytest.raises(MappingError):
        lake.append(frame, Mapping(constants=(("weight", 1),)))
    with pytest.raises(LakeError, match="list is no DataFrame"):
        lake.append([], Counter)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match="the frame is a stream"):
        lake.append(spark.readStream.format("rate").load(), Counter)
    assert lake.version == 1


def test_a_failed_append_leaves_nothing(spark: SparkSession, lake: Lake) -> None:
    lane = F.col("lane")
    broken = counters(spark, 100).withColumn("lane", F.when(lane < 3, lane).otherwise(F.raise_error(F.lit("broken"))))
    with pytest.raises(PySparkException, match="broken"):
        lake.append(broken, Counter)
    assert lake.version == 1
    assert files_of(lake) == set()


# -- without Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return create_lake(tmp_path / "stored", *ALL)


def gates(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"open": [n % 2 == 0 for n in range(count)], "time": [MORNING] * count})


def plan_of(store: Store) -> FramePlan:
    return FramePlan.of(LakeReader(store.path), Gate, ["open", "time"])


def test_a_task_that_fails_removes_its_files(store: Store) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield gates(5)
        raise OSError("the end")

    writer = FrameWriter(plan_of(store), source_path(None))
    with (
        patch("genus.lake._ingest.frames._ROWS_AT_ONCE", 1),
        patch("genus.lake._ingest.writer.ROWS_PER_FILE", 1),
        pytest.raises(OSError, match="the end"),
    ):
        writer.write(batches())
    assert list(Path(store.path).glob("tables/**/*.parquet")) == []


def test_files_of_an_attempt_without_a_report_are_removed_before_the_commit(store: Store) -> None:
    """A task whose input ends early writes what it got, before Spark ends it and runs it again."""
    writer = FrameWriter(plan_of(store), source_path(None))
    with patch("genus.lake._ingest.frames._PARTITIONS", 1), patch("genus.lake._ingest.frames.TaskContext") as task:
        task.get.return_value.partitionId.return_value = 0
        messages: Messages = []
        for task.get.return_value.attemptNumber.return_value, rows in ((0, 2), (1, 5)):
            messages.append(writer.write(iter([gates(rows)])))
    writer.commit(messages[1:])
    assert LakeReader(store.path).read(Gate).count() == 5
    assert list(store.check()) == []


def written(store: Store, key: str) -> Written:
    """What a task of a stream returns for a batch."""
    with patch("genus.lake._ingest.frames._batch_source", lambda: source_path(key)):
        return StreamWriter(plan_of(store)).write(iter([gates(7)]))


def test_a_batch_is_committed_once(store: Store) -> None:
    """A query that is killed after a commit repeats the batch; one that is killed before leaves files only."""
    lost = written(store, "query/0")
    first, second = written(store, "query/0"), written(store, "query/0")
    StreamWriter(plan_of(store)).commit([first], 0)
    StreamWriter(plan_of(store)).commit([first], 0)
    StreamWriter(plan_of(store)).commit([second], 0)
    StreamWriter(plan_of(store)).commit([], 1)
    lake = LakeReader(store.path)
    assert (lake.read(Gate).count(), lake.read(Gate).to_arrow().num_rows, lake.version) == (7, 7, 2)
    left = {path.name for path in Path(store.path).glob("tables/*/_commit=*")}
    assert left == {f"_commit={first.commit}", f"_commit={lost.commit}"}
    assert lake.check() == []


def test_abort_removes_files_that_are_not_committed(store: Store) -> None:
    done, failed = written(store, "query/0"), written(store, "query/1")
    writer = StreamWriter(plan_of(store))
    writer.commit([done], 0)
    writer.abort([done], 0)  # as Spark does if the process ends between the commit and its answer
    writer.abort([None, failed], 1)
    writer.abort([None], 2)
    assert {path.name for path in Path(store.path).glob("tables/*/_commit=*")} == {f"_commit={done.commit}"}
    assert LakeReader(store.path).read(Gate).to_arrow().num_rows == 7


# -- sinks -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_frame_is_written_by_the_sink(spark: SparkSession, lake: Lake) -> None:
    writer = counters(spark, 50).write.format("genus").mode("append").option("type", "Counter")
    writer.option("source", "monday").save(lake.path)
    writer.option("source", "monday").save(lake.path)
    assert (lake.read(Counter).count(), lake.version) == (50, 2)
    assert DeltaTable(lake.delta_path(Counter)).to_pyarrow_dataset().count_rows() == 50
    assert lake.check() == []
    read = spark.read.format("genus").option("subscription", "Counter where speed > 30").load(lake.path)
    expected = lake.read("Counter where speed > 30")
    assert read.columns == [name for name in expected.columns if name != "_day"]
    assert rows(read) == rows(expected, "_day") != []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give option 'type', an event type, or 'mapping'"),
        ({"type": "Counter", "mode": "x"}, "unknown option 'mode'; the options are checkpointLocation, mapping"),
        ({"type": "Gate"}, "column 'lane': Gate has no such attribute"),
        ({"type": "Counter", "path": "/nowhere"}, "is not a lake"),
    ],
    ids=["nothing", "misspelt", "another type", "no lake"],
)
def test_wrong_options_are_named(store: Store, options: dict[str, str], message: str) -> None:
    with pytest.raises(LakeError, match=re.escape(message)):
        GenusDataSource({"path": store.path, **options}).writer(StructType().add("lane", "long"), False)


@pytest.mark.slow
def test_a_lake_is_not_overwritten(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(PySparkException, match="a lake is not overwritten"):
        counters(spark, 1).write.format("genus").mode("overwrite").option("type", "Counter").save(lake.path)


@pytest.mark.slow
def test_a_stream_is_written_exactly_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A batch whose end the checkpoint does not have is repeated, and adds nothing."""
    landing = tmp_path / "landing"

    def run() -> None:
        frames = spark.readStream.schema("lane bigint, speed double, time timestamp")
        stream = frames.option("maxFilesPerTrigger", 1).parquet(str(landing))
        sink = stream.writeStream.format("genus").option("type", "Counter")
        query = sink.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start(lake.path)
        query.awaitTermination()

    for first in (0, 40):
        counters(spark, 40, first).coalesce(1).write.mode("append").parquet(str(landing))
    run()
    assert (lake.read(Counter).count(), lake.version) == (80, 3)
    os.unlink(tmp_path / "check" / "commits" / "1")
    for file in (tmp_path / "check" / "commits").glob(".1.crc"):
        file.unlink()
    counters(spark, 40, 80).coalesce(1).write.mode("append").parquet(str(landing))
    run()
    assert (lake.read(Counter).count(), lake.version) == (120, 4)
    assert len({(row._source, row._position) for row in lake.read(Counter).collect()}) == 120
    assert lake.check() == []


def test_a_stream_has_no_key(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().select(F.col("value").alias("lane"))
    sink = stream.writeStream.format("genus").option("type", "Counter").option("source", "x")
    query = sink.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start(lake.path)
    with pytest.raises(PySparkException, match="option 'source' is for frames"):
        query.awaitTermination()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_version_of_a_lake_is_read(spark: SparkSession, lake: Lake) -> None:
    lake.append(counters(spark, 10), Counter)
    lake.append(counters(spark, 10, 10), Counter)
    reader = spark.read.format("genus").option("type", "Counter")
    assert reader.option("version", "2").load(lake.path).count() == 10
    assert reader.option("version", "3").load(lake.path).count() == 20
    for text, message in (("0", "give a number above 0"), ("9", "there is no version 9")):
        with pytest.raises(PySparkException, match=message):
            reader.option("version", text).load(lake.path).count()
    with pytest.raises(PySparkException, match="the dead letters of a lake"):
        spark.read.format("genus").option("dead", "true").load(lake.path).count()
