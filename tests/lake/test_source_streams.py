"""`spark.readStream.format("genus")` reads every event of a lake once, also when it is started again."""

import shutil
from collections import Counter as Tally
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.lake import Lake, register_data_source
from genus.lake._stream.source import GenusDataSource, LakeStreamReader
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


@pytest.mark.slow
def test_a_stream_of_a_lake_has_the_rows_of_its_commits(session: SparkSession, tmp_path: Path) -> None:
    """All events first, then those of new commits, also if they were compacted with others and cleaned."""
    lake = Lake.create(session, tmp_path / "lake", *ALL)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(50, first=100 * number)))
    seen = run(session, tmp_path / "lake", tmp_path / "checkpoint", type="Counter", maxFilesPerTrigger=1)
    assert [each for each in seen.batches if each] == [times(50), times(50, first=100)]
    lake.ingest(write_recording(tmp_path / "2.genus", traffic(50, first=200)))
    lake.compact()
    lake.clean(0)
    lake.ingest(write_recording(tmp_path / "3.genus", traffic(50, first=300)))
    lake.delete("Counter where lane == 1")
    gone: Tally[object] = Tally(event.time for event in traffic(500) if isinstance(event, Counter) and event.lane == 1)
    second = run(session, tmp_path / "lake", tmp_path / "checkpoint", type="Counter")
    assert second.all == times(50, first=200) + times(50, first=300) - gone
    frame = session.readStream.format("genus").option("type", "Counter").load(str(tmp_path / "lake"))
    assert frame.columns == [name for name in lake.read(Counter).columns if name != "_day"]


def test_offsets_of_an_older_genus_are_taken_where_they_are_whole(spark: SparkSession, tmp_path: Path) -> None:
    """They count files; one that ends within a version is refused."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(50, first=100 * number)))
    state, ingested, reader = lake.state(), lake.history()[0], _reader(tmp_path / "lake")
    files = sum(change.files_added for change in ingested.tables)
    whole = {"after": state.version - 1, "version": state.version, "commit": state.commit, "files": files}
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(whole, limit) == {"version": state.version, "commit": state.commit}
    assert not reader.partitions(whole, reader.latestOffset(whole, limit))
    with pytest.raises(LakeError, match=r"stopped within version 3 .* begin with a new checkpoint"):
        reader.latestOffset({**whole, "files": files - 1}, limit)
    started = {"after": 0, "version": 0, "commit": "", "files": 0}
    assert reader.latestOffset(started, limit) == {"version": state.version, "commit": state.commit}


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
    source = GenusDataSource({"path": str(path), "type": "Counter"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, LakeStreamReader)
    return reader


@pytest.mark.slow
def test_a_stream_of_a_folder_that_is_no_lake_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """Files come into a lake by `Lake.stream`."""
    lake = Lake.create(session, tmp_path / "lake", *ALL)
    (tmp_path / "landing").mkdir()
    with pytest.raises(Exception, match=r"is not a lake; files of a folder come into one by Lake\.stream"):
        run(session, tmp_path / "landing", tmp_path / "checkpoint", type="Counter", catalog=lake.path)


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_limit_is_a_number(tmp_path: Path, spark: SparkSession, text: str) -> None:
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    source = GenusDataSource({"path": lake.path, "type": "Counter", "maxFilesPerTrigger": text})
    with pytest.raises(LakeError, match="above 0"):
        source.streamReader(source.schema())
