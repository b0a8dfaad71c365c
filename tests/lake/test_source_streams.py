"""`spark.readStream.format("genus")` reads every event of a lake or a folder once, also when it is started again."""

import shutil
from collections import Counter as Tally
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.lake import Lake, register_data_source
from genus.lake._stream.source import FileSet, LakeStreamReader, StreamingDataSource
from tests.lake.roads import ALL, Counter, traffic, write_recording

Times = Tally[object]


class Sink:
    """Collects the times of the events of each batch."""

    def __init__(self) -> None:
        self.batches: list[Times] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches.append(Tally(frame.select("time").toArrow().column(0).to_pylist()))

    @property
    def all(self) -> Times:
        return sum(self.batches, Tally())


def run(spark: SparkSession, path: Path, checkpoint: Path, **options: object) -> Sink:
    """Read what is available now, going on where the last query with the same checkpoint ended."""
    sink, source = Sink(), spark.readStream.format("genus")
    for name, text in options.items():
        source = source.option(name, str(text))
    writer = source.load(str(path)).writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sink


def times(count: int, first: int = 0) -> Times:
    return Tally(event.time for event in traffic(count, first=first) if isinstance(event, Counter))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register_data_source(spark)
    return spark


def test_a_stream_of_a_lake_has_the_rows_of_its_commits(session: SparkSession, tmp_path: Path) -> None:
    """All events first, then those of new commits; a compaction is no news."""
    lake = Lake.create(session, tmp_path / "lake", *ALL)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(50, first=100 * number)))
    seen = run(session, tmp_path / "lake", tmp_path / "checkpoint", type="Counter", maxFilesPerTrigger=1)
    assert seen.all == times(50) + times(50, first=100)
    assert len(seen.batches) > 1
    lake.compact()
    lake.ingest(write_recording(tmp_path / "2.genus", traffic(50, first=200)))
    second = run(session, tmp_path / "lake", tmp_path / "checkpoint", type="Counter")
    assert second.all == times(50, first=200)
    frame = session.readStream.format("genus").option("type", "Counter").load(str(tmp_path / "lake"))
    assert frame.columns == [name for name in lake.read(Counter).columns if name != "_day"]


def test_a_stream_of_a_restored_lake_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The version that was read is another commit now."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(20)))
    reader = _reader(tmp_path / "lake")
    read = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "backup", tmp_path / "lake")
    Lake(spark, tmp_path / "lake").ingest(write_recording(tmp_path / "b.genus", traffic(30)))
    with pytest.raises(LakeError, match="restored from a backup"):
        _reader(tmp_path / "lake").latestOffset(read, reader.getDefaultReadLimit())


def _reader(path: Path) -> LakeStreamReader:
    source = StreamingDataSource({"path": str(path), "type": "Counter"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, LakeStreamReader)
    return reader


def test_a_stream_of_a_folder_reads_each_file_once(session: SparkSession, tmp_path: Path) -> None:
    """In whatever order they land, with limited batches, and none again after a restart."""
    lake = Lake.create(session, tmp_path / "lake", *ALL)
    landing = tmp_path / "landing"
    (landing / "north").mkdir(parents=True)
    options = {"type": "Counter", "catalog": lake.path, "pattern": "*.genus", "maxFilesPerTrigger": 2}
    for name, first in (("bus-07", 0), ("north/bus-01", 100), ("noon", 200)):
        write_recording(landing / f"{name}.genus", traffic(50, first=first))
    write_recording(landing / ".hidden.genus", traffic(50, first=900))
    seen = run(session, landing, tmp_path / "checkpoint", **options)
    assert seen.all == times(50) + times(50, first=100) + times(50, first=200)
    assert len(seen.batches) == 2
    write_recording(landing / "bus-06.genus", traffic(50, first=300))
    second = run(session, landing, tmp_path / "checkpoint", **options)
    assert second.all == times(50, first=300)


NAMES = st.from_regex(r"(a/)?[bc]?-?[0-9]{0,2}(\\.g)?", fullmatch=True).filter(lambda name: name.strip("/"))


@given(st.sets(NAMES), st.sets(NAMES))
def test_an_offset_says_which_files_were_read(one: set[str], other: set[str]) -> None:
    """Ranges of numbers stand for the names, exactly."""
    both = FileSet.parse(FileSet(one | other).format())
    assert set(both - FileSet()) == one | other
    assert set(both - FileSet.parse(FileSet(one).format())) == other - one
    assert all(name in both for name in one)


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_limit_is_a_number(tmp_path: Path, spark: SparkSession, text: str) -> None:
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    source = StreamingDataSource({"path": lake.path, "type": "Counter", "maxFilesPerTrigger": text})
    with pytest.raises(LakeError, match="above 0"):
        source.streamReader(source.schema())
