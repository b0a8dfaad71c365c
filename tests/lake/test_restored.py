"""Backups, moves and copies: a follower continues only with the lake that it has followed."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeDamaged, LakeError
from genus.lake import DerivedTable, Inboxes, Lake, Windows
from tests.lake.roads import ALL, Counter, traffic, write_recording
from tests.lake.test_inboxes import WANTED, delivered, expected

SECONDS = Windows(every=timedelta(seconds=10), lateness=timedelta(seconds=5))


def _ingest(lake: Lake, folder: Path, first: int) -> None:
    lake.ingest(write_recording(folder / f"{first}.genus", traffic(20, first=first)))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake at version 2."""
    made = Lake.create(spark, tmp_path / "lake", *ALL)
    _ingest(made, tmp_path, 0)
    return made


def _restore(lake: Lake, backup: Path) -> Lake:
    """Put a backup in the place of a lake."""
    shutil.rmtree(lake.path)
    return Lake(lake.spark, shutil.copytree(backup, lake.path))


@pytest.mark.slow
def test_after_a_restore_followers_say_so_and_inboxes_can_be_rewound(lake: Lake, tmp_path: Path) -> None:
    """The new versions have the numbers of the lost ones, but their commits are others."""
    seen: list[int] = []

    def note(events: DataFrame, version: int) -> None:
        seen.append(version)

    (tmp_path / "landing").mkdir()
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    backup = Path(shutil.copytree(lake.path, tmp_path / "backup"))
    for first in (100, 200):
        _ingest(lake, tmp_path, first)
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    DerivedTable(lake, tmp_path / "derived", SECONDS, Counter).update()
    lake.stream(tmp_path / "landing", checkpoint=tmp_path / "stream").for_each(Counter, note).run()
    restored = _restore(lake, backup)
    for first in (300, 400):
        _ingest(restored, tmp_path, first)
    assert restored.version == 4
    with pytest.raises(LakeError, match=r"inboxes has processed version 4 of .*restored from a backup or replaced"):
        restored.route(WANTED).to_inboxes(tmp_path / "inboxes")
    with pytest.raises(LakeError, match=r"derived has processed version 4 of .*rebuild"):
        DerivedTable(restored, tmp_path / "derived", SECONDS, Counter).update()
    stream = restored.stream(tmp_path / "landing", checkpoint=tmp_path / "stream").for_each(Counter, note)
    with pytest.raises(LakeError, match="note has processed version 4 of"):
        stream.run()
    assert seen == [4]
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    assert inboxes.rewind(restored) == 2
    assert inboxes.rewind(restored) == 2, "there is nothing more to rewind"
    restored.route(WANTED).to_inboxes(tmp_path / "inboxes")
    events = [each for first in (0, 300, 400) for each in traffic(20, first=first)]
    assert delivered(inboxes) == expected(events)


@pytest.mark.slow
def test_after_a_restore_a_stream_ingests_what_the_lake_has_lost(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though Spark's checkpoint says that the files were read."""
    (tmp_path / "landing").mkdir()
    backup = Path(shutil.copytree(lake.path, tmp_path / "backup"))
    for first in (100, 200):
        write_recording(tmp_path / "landing" / f"{first}.genus", traffic(20, first=first))
        assert lake.stream(tmp_path / "landing", checkpoint=tmp_path / "stream").run().events == 20
    restored = _restore(lake, backup)
    assert restored.stream(tmp_path / "landing", checkpoint=tmp_path / "stream").run().events == 40
    assert "are looked at again" in caplog.text
    assert restored.stream(tmp_path / "landing", checkpoint=tmp_path / "stream").run().files == 0


@pytest.mark.slow
def test_inboxes_that_were_compacted_since_cannot_be_rewound(lake: Lake, tmp_path: Path) -> None:
    """Deliveries of both histories are in one file then."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    backup = Path(shutil.copytree(lake.path, tmp_path / "backup"))
    _ingest(lake, tmp_path, 100)
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    inboxes.compact()
    assert inboxes.rewind(lake) == lake.version, "there is nothing to rewind"
    with pytest.raises(LakeError, match="compact"):
        inboxes.rewind(_restore(lake, backup))


@pytest.mark.slow
def test_a_lake_that_was_made_again_is_another_one_and_a_moved_one_is_not(lake: Lake, tmp_path: Path) -> None:
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    moved = Lake(lake.spark, shutil.move(lake.path, tmp_path / "moved"))
    _ingest(moved, tmp_path, 100)
    moved.route(WANTED).to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    assert delivered(inboxes) == expected([*traffic(20), *traffic(20, first=100)])
    again = Lake.create(lake.spark, tmp_path / "lake", *ALL)
    _ingest(again, tmp_path, 200)
    with pytest.raises(LakeError, match="is of another lake, which was at"):
        again.route(WANTED).to_inboxes(tmp_path / "inboxes")
    with pytest.raises(LakeError, match="is of another lake"):
        inboxes.rewind(again)


def test_a_copy_that_went_another_way_is_noticed(lake: Lake, tmp_path: Path) -> None:
    copy = Lake(lake.spark, shutil.copytree(lake.path, tmp_path / "copy"))
    _ingest(lake, tmp_path, 100)
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    _ingest(copy, tmp_path, 200)
    with pytest.raises(LakeError, match="has processed version 3"):
        copy.route(WANTED).to_inboxes(tmp_path / "inboxes")


def test_the_catalog_of_another_lake_is_refused_and_restored(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Codes and presence bits of the events are those of their own catalog."""
    right = Path(lake.catalog_path).read_text()
    other = Lake.create(spark, tmp_path / "other", Counter)
    shutil.copy(other.catalog_path, lake.catalog_path)
    with pytest.raises(LakeDamaged, match=r"catalog\.json is not the catalog of this lake.*--restore-catalog"):
        Lake(spark, lake.path)
    restored = Lake.restore_catalog(spark, lake.path)
    assert Path(lake.catalog_path).read_text() == right
    assert restored.read(Counter).count() == 16
