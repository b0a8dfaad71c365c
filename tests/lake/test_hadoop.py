"""A lake on a file system that only Hadoop can open gives the same answers as a local one."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from genus import Subscription, this
from genus.lake import Inboxes, Lake
from genus.lake._tables.files import arrow_opens, local_path
from tests.lake.roads import ALL, Counter, Gate, Radar, traffic, write_recording
from tests.lake.view_file_system import mount

WANTED = [
    Subscription(Counter, has="place", where=this.speed > 30),
    Subscription(Radar),
    Subscription(Gate, lacks="place"),
]


def rows(frame: DataFrame) -> list[Any]:
    """All rows, without the columns that differ between lakes."""
    kept = [name for name in frame.columns if name not in ("_commit", "_ingested")]
    return sorted((tuple(row) for row in frame.select(*kept).collect()), key=repr)


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    """Two files, of which the second is damaged in the middle."""
    first = write_recording(tmp_path / "first.genus", traffic(400))
    second = write_recording(tmp_path / "second.genus", traffic(200, first=400))
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 0xFF
    second.write_bytes(content)
    return [first, second]


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> str:
    (tmp_path / "far").mkdir()
    return mount(spark, f"city{tmp_path.name.replace('_', '-')}", tmp_path / "far")


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path, elsewhere: str) -> tuple[Lake, Lake]:
    return Lake.create(spark, tmp_path / "near", *ALL), Lake.create(spark, f"{elsewhere}/lake", *ALL)


def test_tasks_cannot_open_it(elsewhere: str) -> None:
    """Otherwise these tests would show nothing."""
    assert local_path(elsewhere) is None
    assert not arrow_opens(elsewhere)


@pytest.mark.slow
def test_the_whole_pipeline_gives_the_same_answers(
    lakes: tuple[Lake, Lake], recordings: list[Path], elsewhere: str, tmp_path: Path
) -> None:
    """Ingest, dead letters, reads, routes, inboxes, compaction and the check."""
    near, far = lakes
    for lake in lakes:
        for recording in recordings:
            lake.ingest(recording)
        assert lake.ingest(recordings).skipped == 2
    assert rows(far.dead_letters()) == rows(near.dead_letters())
    assert far.dead_letters().count() > 0
    for wanted in WANTED:
        assert rows(far.read(wanted)) == rows(near.read(wanted)) != []
    assert far.route(WANTED).count() == near.route(WANTED).count()
    assert rows(far.route(WANTED).frame()) == rows(near.route(WANTED).frame())

    far.route(WANTED).to_inboxes(f"{elsewhere}/inboxes")
    near.route(WANTED).to_inboxes(tmp_path / "inboxes")
    delivered = rows(Inboxes(far.spark, f"{elsewhere}/inboxes").read())
    assert delivered == rows(Inboxes(near.spark, tmp_path / "inboxes").read()) != []

    before = rows(far.table("Counter"))
    compacted = far.compact()
    assert compacted.files_after < compacted.files_before
    assert rows(far.table("Counter")) == before
    assert far.clean(older_than=0) > 0
    assert rows(far.table("Counter")) == before
    assert [far.check(), near.check()] == [[], []]
    assert Inboxes(far.spark, f"{elsewhere}/inboxes").check() == []
    assert far.route(WANTED).to_inboxes(f"{elsewhere}/inboxes").rows == 0


@pytest.mark.slow
def test_a_lake_elsewhere_is_opened_again(
    spark: SparkSession, lakes: tuple[Lake, Lake], recordings: list[Path]
) -> None:
    """All state is in its files; a type that is registered later adds columns."""
    _, far = lakes
    far.ingest(recordings)
    again = Lake(spark, far.path)
    assert (again.version, rows(again.table("Gate"))) == (far.version, rows(far.table("Gate")))
    assert again.check() == []


@pytest.mark.slow
def test_missing_files_elsewhere_are_found(lakes: tuple[Lake, Lake], recordings: list[Path], tmp_path: Path) -> None:
    _, far = lakes
    far.ingest(recordings[0])
    for file in (tmp_path / "far").rglob("tables/Gate/**/*.parquet"):
        file.unlink()
    (problem,) = far.check()
    assert "tables/Gate" in problem.path
    assert "is missing" in problem.text


@pytest.mark.slow
def test_a_local_lake_is_found_where_the_clusters_default_is_elsewhere(
    spark: SparkSession, tmp_path: Path, recordings: list[Path], elsewhere: str
) -> None:
    """A path without a scheme is local, for Genus and for the paths it gives to Spark."""
    configuration = getattr(spark, "_jsc").hadoopConfiguration()  # noqa: B009 - not part of the typed session
    usual = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", elsewhere.removesuffix("/data"))
    try:
        lake = Lake.create(spark, tmp_path / "lake", *ALL)
        for recording in recordings:
            lake.ingest(recording)
        assert lake.compact().rows > 0
        lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
        assert Inboxes(spark, tmp_path / "inboxes").read().count() == lake.route(WANTED).count() > 0
        assert [*lake.check(), *Inboxes(spark, tmp_path / "inboxes").check()] == []
    finally:
        configuration.set("fs.defaultFS", usual)
    assert list((tmp_path / "far").iterdir()) == []


@pytest.mark.slow
def test_it_is_mirrored_as_a_local_one(lakes: tuple[Lake, Lake], recordings: list[Path], tmp_path: Path) -> None:
    """Delta logs are written through Hadoop, with the statistics that local files have."""
    for lake in lakes:
        lake.ingest(recordings)
    logs = [tmp_path / "near", next((tmp_path / "far").rglob("lake"))]
    near, far = (DeltaTable(log / "tables/Gate") for log in logs)
    assert far.to_pyarrow_table().num_rows == near.to_pyarrow_table().num_rows > 0
    assert lakes[1].mirror().entries == 0
    bounds = [pa.table(each.get_add_actions(flatten=True)).select(["min.time", "max.time"]) for each in (near, far)]
    assert bounds[0].to_pylist() == bounds[1].to_pylist()
