"""Files of parts, written by tasks: every row once, where it belongs, whatever order and batches it comes in."""

from collections import Counter as Tally
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from genus.lake._tables import part_writer
from genus.lake._tables.files import WrittenContent
from genus.lake._tables.lake_tables import SparkStore
from genus.lake._tables.part_writer import FileReport, PartitionWriter, WritePlan

DAY0 = date(2026, 5, 1)
STORED = pa.schema([("number", pa.int64()), ("pause", pa.int64())])
Row = tuple[int, int]
"""A day, and a number."""


def plan(root: Path, *, upload: bool = False) -> WritePlan:
    return WritePlan(str(root), "_commit=4f21", {"tables/Loop": STORED}, "_day", upload)


def batches(rows: Sequence[Row], size: int) -> list[pa.RecordBatch]:
    columns = {
        "_day": pa.array([DAY0 + timedelta(days=day) for day, _ in rows], pa.date32()),
        "number": pa.array([number for _, number in rows], pa.int64()),
        "pause": pa.array([timedelta(microseconds=number) for _, number in rows], pa.duration("us")),
    }
    made: list[pa.RecordBatch] = pa.table(columns).to_batches(size)
    return made


def written(plan: WritePlan, rows: Sequence[Row], size: int = 10) -> list[FileReport]:
    out = PartitionWriter(plan, 3).run(batches(rows, size))
    return [msgspec.json.decode(batch.column("content")[0].as_py(), type=FileReport) for batch in out]


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=40), size=st.integers(1, 15))
def test_every_row_is_in_a_file_of_its_day(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], size: int
) -> None:
    """Also if days are not in order and more are open than fit; reports say what the files have."""
    root, found = tmp_path_factory.mktemp("store"), Tally[Row]()
    with patch.object(part_writer, "MAX_ROWS", 7), patch.object(part_writer, "ROW_GROUP", 4):
        reports = written(plan(root), rows, size)
    for report in reports:
        path = f"{root}/{report.path}"
        table = pq.read_table(path, partitioning=None)
        assert table.schema.remove_metadata() == STORED
        assert table.column("pause").equals(table.column("number"))
        content = WrittenContent.of(Path(path).read_bytes())
        assert (report.file.rows, report.file.bytes, report.file.checksum) == (table.num_rows, *content[:2])
        assert 0 < table.num_rows <= 7
        day = (date.fromisoformat(report.folder.rpartition("=")[2]) - DAY0).days
        found.update((day, number) for number in table.column("number").to_pylist())
    assert found == Tally(rows)
    assert len(list(root.rglob("*.parquet"))) == len(reports)


def test_another_attempt_never_changes_a_file_that_was_reported(tmp_path: Path) -> None:
    """With the rows in the same order it writes the same files, otherwise others."""
    rows = [(0, number) for number in range(50)]
    first = written(plan(tmp_path), rows)
    before = (tmp_path / first[0].path).read_bytes()
    assert written(plan(tmp_path), rows, size=7) == first
    (other,) = written(plan(tmp_path), rows[::-1])
    assert other.path != first[0].path
    assert (tmp_path / first[0].path).read_bytes() == before


def test_the_driver_gets_the_content_where_tasks_cannot_write(tmp_path: Path) -> None:
    """Then a task writes nothing itself."""
    content, report = PartitionWriter(plan(tmp_path, upload=True), 0).run(batches([(1, 2)], 10))
    decoded = msgspec.json.decode(report.column("content")[0].as_py(), type=FileReport)
    assert content.column("path")[0].as_py() == f"{tmp_path}/{decoded.path}"
    assert decoded.file.bytes == len(content.column("content")[0].as_py())
    assert list(tmp_path.iterdir()) == []


def test_spark_reads_what_its_tasks_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Intervals and times as they were; a file that no task reported, as one of an earlier attempt, is removed."""
    store = SparkStore(spark, tmp_path)
    draft = store.begin("ingest")
    left = tmp_path / "t" / f"_commit={draft.id}" / "part-00000-000-4f21.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    frame = spark.sql(
        "SELECT id, timestamp_micros(id * 1000003) AS at, INTERVAL '0.000001' SECOND * id AS pause FROM range(9)"
    )
    parts = store.write(frame, draft, "t")
    assert not left.exists()
    read = store.frame(parts, StructType([*frame.schema, StructField("_commit", StringType())]), "t").drop("_commit")
    assert sorted(map(str, read.collect())) == sorted(map(str, frame.collect()))
    assert read.dtypes == frame.dtypes
