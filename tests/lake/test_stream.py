"""A stream ingests each file once, and every follower gets every event once, wherever the stream was killed."""

import os
import queue
import shutil
import signal
import subprocess
import sys
from collections import Counter as Tally
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from genus import Subscription
from genus.errors import LakeError
from genus.lake import (
    DerivedTable,
    Inboxes,
    Lake,
    RouteEntry,
    Windows,
)
from genus.lake._ingest.ingest import begin_work, commit_reports
from genus.lake._ingest.job import InputFile, run_ingest
from genus.lake._ingest.recordings import Recordings
from genus.lake._stream.delivery import Delivery
from genus.lake.types import Progress, Stream, UpdateResult
from tests.lake.roads import ALL, Counter, Radar, Streetside, traffic, write_recording
from tests.lake.stream_program import POINTS
from tests.lake.test_inboxes import WANTED, delivered, expected
from tests.lake.test_jobs import descriptions


def land(folder: Path, number: int, count: int = 40) -> None:
    """Write a recording and move it into the folder atomically."""
    folder.mkdir(exist_ok=True)
    made = write_recording(folder / f".{number}.part", traffic(count, first=1000 * number))
    made.rename(folder / f"bus-{number:05}.genus")


def landed(numbers: range, count: int = 40) -> list:  # type: ignore[type-arg]
    return [event for number in numbers for event in traffic(count, first=1000 * number)]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    (tmp_path / "landing").mkdir()
    return Lake.create(spark, tmp_path / "lake", *ALL)


@pytest.mark.slow
def test_what_lands_is_read_in_and_delivered(lake: Lake, tmp_path: Path) -> None:
    """Inboxes, functions and derived tables get the same events; a second run finds nothing new."""
    seen: list[Progress] = []
    calls: Tally[int] = Tally()

    def count(frame: DataFrame, version: int) -> None:
        calls[version] += frame.count()

    counting = Windows(every=timedelta(minutes=1), by=("lane",), lateness=timedelta(seconds=1))
    for numbers in (range(3), range(3, 5)):
        for number in numbers:
            land(tmp_path / "landing", number)
        stream = lake.stream(tmp_path / "landing", files_per_batch=2, on_progress=seen.append)
        stream = stream.route(WANTED).to_inboxes(tmp_path / "inboxes").for_each(Radar, count)
        stream.derive(tmp_path / "minutes", counting, Counter).run()
    events = landed(range(5))
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected(events)
    assert sum(calls.values()) == sum(isinstance(event, Radar) for event in events)
    assert [progress.files for progress in seen] == [2, 1, 2]
    assert sum(progress.events for progress in seen) == len(events)
    assert all(progress.lag_seconds and progress.rate > 0 for progress in seen)


@pytest.mark.slow
def test_new_subscriptions_and_new_types_take_effect_on_the_way(lake: Lake, tmp_path: Path) -> None:
    """A subscription file is read again when it changed; a type that is registered later is delivered from then on."""

    class Laser(Counter):
        power: float

    wanted = tmp_path / "wanted.txt"
    wanted.write_text("city: Streetside\n")
    stream = lake.stream(tmp_path / "landing").route(wanted).to_inboxes(tmp_path / "inboxes")
    land(tmp_path / "landing", 1)
    stream.run()
    lake.register(Laser)
    wanted.write_text("city: Streetside\ntoll: Laser\n")
    laser = Laser(lane=1, power=2.0, time=traffic(1)[0].time)
    write_recording(tmp_path / "landing" / "laser.genus", [laser])
    stream.run()
    found = delivered(Inboxes(lake.spark, tmp_path / "inboxes"))
    city, toll = RouteEntry("city", Subscription(Streetside)), RouteEntry("toll", Subscription(Laser))
    assert found == expected(landed(range(1, 2)), [city]) + expected([laser], [city, toll])


def test_a_batch_that_failed_half_way_is_done_again_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that were committed before a follower failed are not ingested again, and the follower gets them later."""
    land(tmp_path / "landing", 1)
    stream = lake.stream(tmp_path / "landing").route(WANTED).to_inboxes(tmp_path / "inboxes")
    with monkeypatch.context() as patched:
        patched.setattr(Delivery, "write", lambda *_: 1 / 0)
        with pytest.raises(Exception, match=r"division by zero"):
            stream.run()
    assert lake.read(Streetside).count() == 40
    stream.run()
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected(landed(range(1, 2)))
    assert lake.read(Streetside).count() == 40


@pytest.mark.slow
def test_a_run_returns_what_it_did_itself(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches of the run and the update after them; zeros if there was nothing to do, also after a failure."""
    stream = lake.stream(tmp_path / "landing", files_per_batch=1).route(WANTED).to_inboxes(tmp_path / "inboxes")
    idle = stream.run()
    assert (idle.batch, idle.files, idle.events, idle.delivered, idle.version) == (-1, 0, 0, 0, lake.version)
    for number in (1, 2):
        land(tmp_path / "landing", number)
    first = stream.run()
    wanted = expected(landed(range(1, 3)))
    assert (first.batch, first.files, first.events, first.delivered) == (1, 2, 80, len(wanted))
    assert first.version == lake.version
    assert stream.progress is not None
    assert (stream.progress.files, stream.progress.events) == (1, 40), "the last batch"
    measured = {metric.name: metric.values[""] for metric in stream.metrics()}
    assert (measured["stream_files_total"], measured["stream_events_total"]) == (2, 80), "of all batches"
    assert measured["stream_delivered_total"] == len(wanted)
    assert measured["stream_version"] == lake.version
    assert measured["stream_lag_seconds"] == stream.progress.lag_seconds
    again = stream.run()
    assert (again.batch, again.files, again.events, again.delivered) == (-1, 0, 0, 0)
    assert stream.progress is None
    land(tmp_path / "landing", 3)
    with monkeypatch.context() as patched:
        patched.setattr(Delivery, "write", lambda *_: 1 / 0)
        with pytest.raises(Exception, match=r"division by zero"):
            stream.run()
    assert stream.progress is None
    repaired = stream.run()
    assert (repaired.files, repaired.events) == (0, 0), "the file was ingested before the failure"
    assert repaired.delivered == len(expected(landed(range(3, 4))))
    lake.ingest(write_recording(tmp_path / "beside.genus", traffic(40, first=9000)))
    beside = stream.run()
    assert (beside.files, beside.events, beside.delivered) == (0, 0, len(expected(traffic(40, first=9000))))


def test_a_landing_folder_must_be_there(lake: Lake, tmp_path: Path) -> None:
    """A stream of a misspelled folder would wait forever."""
    with pytest.raises(LakeError, match="is not a folder"):
        lake.stream(tmp_path / "missing")


@pytest.mark.slow
def test_broken_files_do_not_stop_a_stream(lake: Lake, tmp_path: Path) -> None:
    """They are dead letters, and the good events around them are ingested."""
    land(tmp_path / "landing", 1)
    (tmp_path / "landing" / "broken.genus").write_bytes(b"no recording at all")
    land(tmp_path / "landing", 2)
    progress = lake.stream(tmp_path / "landing").run()
    assert progress is not None
    assert (progress.events, progress.dead) == (80, 1)
    assert lake.dead_letters().count() == 1


# -- as a query of Spark -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_streams_of_folders_with_the_same_names_run_at_once(lake: Lake, tmp_path: Path) -> None:
    """The names of queries differ; one checkpoint has one query, also if another object is made for it."""
    land(tmp_path / "landing", 1)
    (tmp_path / "other" / "landing").mkdir(parents=True)
    land(tmp_path / "other" / "landing", 2)
    other = Lake.create(lake.spark, tmp_path / "other" / "lake", *ALL)
    queries = [each.stream(Path(each.path).parent / "landing").start(trigger="10ms") for each in (lake, other)]
    try:
        with pytest.raises(LakeError, match="runs already"):
            Lake(lake.spark, lake.path).stream(tmp_path / "landing").start()
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert len({query.name for query in queries}) == 2
    assert [each.read(ALL[0]).count() for each in (lake, other)] == [40, 40]


def test_a_landing_folder_that_spark_takes_for_a_pattern_is_refused(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "day[1]").mkdir()
    with pytest.raises(LakeError, match="takes '\\[' in a path for a pattern"):
        lake.stream(tmp_path / "day[1]")


def test_a_stream_is_a_query_of_spark(lake: Lake, tmp_path: Path) -> None:
    """Found by its name among the session's queries, with figures in its progress; it cannot be started twice."""
    seen: queue.SimpleQueue[Progress] = queue.SimpleQueue()
    stream = lake.stream(tmp_path / "landing", on_progress=seen.put).route(WANTED).to_inboxes(tmp_path / "inboxes")
    query = stream.start(trigger="10ms")
    try:
        assert isinstance(query, StreamingQuery)
        assert [each.name for each in lake.spark.streams.active] == ["genus landing to lake"]
        for number in (1, 2):
            land(tmp_path / "landing", number)
            assert seen.get(timeout=60).events == 40
        with pytest.raises(LakeError, match="runs already"):
            stream.run()
        assert not stream.join(timeout=0.01)
        query.processAllAvailable()
        figures = [each["observedMetrics"]["genus"] for each in query.recentProgress if each["observedMetrics"]]
        assert [(each["files"], each["events"], each["dead"]) for each in figures] == [(1, 40, 0)] * 2
    finally:
        query.stop()
    assert stream.join()
    assert lake.spark.streams.active == []
    made = [commit for commit in lake.store.ledger.history() if commit.kind == "ingest"]
    assert [(commit.query, commit.batch) for commit in made] == [(query.id, 1), (query.id, 0)]
    assert stream.run().files == 0


def test_work_of_any_size_is_done_by_spark_jobs(lake: Lake, tmp_path: Path) -> None:
    """A file of few events is read, and its matches delivered, in tasks of two jobs."""
    land(tmp_path / "landing", 1, count=3)
    stream = lake.stream(tmp_path / "landing").route(WANTED).to_inboxes(tmp_path / "inboxes")
    before = max(descriptions(lake.spark), default=-1)
    stream.run()
    made = [text for number, text in descriptions(lake.spark).items() if number > before]
    assert sorted(filter(None, made)) == ["deliver the matches in lake to inboxes", "genus landing to lake: batch 0"]


@pytest.mark.slow
def test_an_error_ends_a_stream_and_is_raised_to_those_who_wait(lake: Lake, tmp_path: Path) -> None:
    """Spark's own way tells it too; the next start goes on after the last commit."""

    class Failing:
        def update(self) -> UpdateResult:
            raise LakeError("no room")

    land(tmp_path / "landing", 1)
    stream = lake.stream(tmp_path / "landing").follow(Failing())
    query = stream.start()
    with pytest.raises(LakeError, match="no room"):
        stream.join(timeout=60)
    with pytest.raises(StreamingQueryException, match="no room"):
        query.awaitTermination()
    assert lake.stream(tmp_path / "landing").run().files == 0, "the file was ingested"


@pytest.mark.slow
def test_equal_files_are_ingested_once_and_named(lake: Lake, tmp_path: Path) -> None:
    """In one batch, in two, and by path if that is wanted; files without events are no reason to read again."""
    land(tmp_path / "landing", 1)
    first = tmp_path / "landing" / "bus-00001.genus"
    shutil.copy(first, tmp_path / "landing" / "twin.genus")
    done = lake.stream(tmp_path / "landing").run()
    assert (done.files, done.skipped, done.events) == (1, 1, 40)
    assert "has the content of" in (done.problem or "")
    shutil.copy(first, tmp_path / "landing" / "third.genus")
    land(tmp_path / "landing", 2)
    done = lake.stream(tmp_path / "landing").run()
    assert (done.files, done.skipped, done.events) == (1, 1, 40)
    assert f"third.genus was skipped, it has the content of {tmp_path / 'landing'}" in (done.problem or "")
    again = lake.stream(tmp_path / "landing", checkpoint=tmp_path / "new").run()
    assert (again.files, again.skipped, again.events, again.version) == (0, 4, 0, done.version), "a new checkpoint"
    every = lake.stream(tmp_path / "landing", identity="path", checkpoint=tmp_path / "other").run()
    assert (every.files, every.skipped, every.events) == (4, 0, 160)


@pytest.mark.slow
def test_files_of_the_same_time_of_change_are_not_late_in_any_order(lake: Lake, tmp_path: Path) -> None:
    """Spark orders files by their times alone; batches that end between such files hold the watermark back."""
    for number in range(5):
        land(tmp_path / "landing", number)
    for file in (tmp_path / "landing").iterdir():
        os.utime(file, (1_790_000_000, 1_790_000_000))
    counting = Windows(every="1 min", by=("lane",), lateness="1s")
    done = lake.stream(tmp_path / "landing", files_per_batch=2).derive(tmp_path / "minutes", counting, Counter).run()
    assert (done.batch, done.late) == (2, 0)
    derived = DerivedTable(lake, tmp_path / "minutes", counting, Counter)
    derived.finish()
    assert Tally(derived.read().collect()) == Tally(counting.all(lake.read(Counter)).collect())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "per_batch"),
    [((1, 2, 3), 1), ((1, 2, 3, 4), 2), ((1, 2, 2, 2, 3), 1), ((1, 1, 1, 1), 2)],
    ids=["one each", "the last batch is full", "some of one time", "all of one time"],
)
def test_batches_of_any_size_fill_a_derived_table(
    lake: Lake, tmp_path: Path, changed: tuple[int, ...], per_batch: int
) -> None:
    """Though all batches may be full, results are final up to the last file; a file of known content is of no harm."""
    landing = tmp_path / "landing"
    for number, at in enumerate(changed):
        land(landing, number)
        os.utime(landing / f"bus-{number:05}.genus", (1_790_000_000 + at, 1_790_000_000 + at))
    shutil.copyfile(landing / "bus-00000.genus", landing / "bus-00099.genus")
    os.utime(landing / "bus-00099.genus", (1_790_000_000 + changed[-1],) * 2)
    shutil.copyfile(landing / "bus-00000.genus", landing / "other.txt")  # Spark does not take it
    os.utime(landing / "other.txt", (1_790_000_000 + changed[-1],) * 2)
    counting = Windows(every="1 s", by=("lane",), lateness="1s")
    done = lake.stream(landing, files_per_batch=per_batch).derive(tmp_path / "table", counting, Counter).run()
    derived, at_once = DerivedTable(lake, tmp_path / "table", counting, Counter), counting.all(lake.read(Counter))
    assert (done.files, done.skipped, done.late, derived.version) == (len(changed), 1, 0, lake.version)
    [newest] = lake.state().newest.values()
    assert newest == lake.state().newest_us
    text = derived.explain()
    assert text.startswith("results before ")
    assert "no events" not in text
    assert "not processed" not in text
    assert 0 < done.delivered < at_once.count()
    derived.finish()
    assert Tally(derived.read().collect()) == Tally(at_once.collect())


@pytest.mark.slow
def test_a_table_says_that_files_of_the_same_time_follow(lake: Lake, tmp_path: Path) -> None:
    """What is held back is in the checkpoint: a stream that was stopped between the files goes on with it."""
    landing, seen = tmp_path / "landing", list[str]()
    for number in range(2):
        land(landing, number)
        os.utime(landing / f"bus-{number:05}.genus", (1_790_000_000, 1_790_000_000))
    counting = Windows(every="1 s", by=("lane",), lateness="1s")

    def stop(progress: Progress) -> None:
        seen.append(DerivedTable(lake, tmp_path / "table", counting, Counter).explain())
        if len(seen) == 1:
            assert "same time of change" in progress.waits_for
            raise KeyError("stopped")

    def stream() -> Stream:
        given = lake.stream(landing, files_per_batch=1, on_progress=stop)
        return given.derive(tmp_path / "table", counting, Counter)

    with pytest.raises(KeyError):
        stream().run()
    assert "same time of change" in seen[0]
    stream().run()
    assert seen[-1].startswith("results before ")
    assert max(lake.state().newest.values()) == lake.state().newest_us


def test_what_a_task_takes_for_known_is_read_if_the_lake_does_not_have_it(lake: Lake, tmp_path: Path) -> None:
    """A task may know of a lake that was restored since."""
    path = str(write_recording(tmp_path / "a.genus", traffic(5)))
    stale = InputFile(path, os.path.getsize(path), Recordings(), number=7, known=(7,))
    work = begin_work(lake)
    reports = run_ingest(lake.spark, work, [stale])
    assert [(report.is_known, report.rows) for report in reports] == [(True, 0)]
    made = commit_reports(lake, work, reports, lambda report: stale)
    assert [(source.number, source.rows) for source in made.sources] == [(7, 5)]
    assert not lake.check()


def test_a_file_that_has_grown_is_refused(lake: Lake, tmp_path: Path) -> None:
    """A file is known by its path, size and time, or by its content."""
    land(tmp_path / "landing", 1)
    (file,) = (tmp_path / "landing").glob("*.genus")
    assert lake.stream(tmp_path / "landing").run().events == 40
    assert lake.ingest(file).skipped == 1
    os.utime(file, (1, 1))
    assert lake.ingest(file).skipped == 1
    write_recording(tmp_path / "other.genus", traffic(7)).rename(file)
    assert lake.ingest(file).events == 7
    with file.open("ab") as opened:
        opened.write(b"more")
    with pytest.raises(LakeError, match="has grown"):
        lake.ingest(file)


@pytest.mark.slow
def test_the_pattern_follows_the_format(lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Endings in capitals, too; a folder in which nothing is read is warned of."""
    (tmp_path / "landing" / "a.LOG").write_text("(1436509052.249713) vcan0 001#00\n")
    assert lake.stream(tmp_path / "landing").run().files == 0
    assert "a.LOG, none of which is read" in caplog.text
    database = tmp_path / "one.dbc"
    database.write_text('VERSION ""\nBU_: A\nBO_ 1 One: 1 A\n SG_ s : 0|8@1+ (1,0) [0|255] "" A\n')
    assert lake.stream(tmp_path / "landing", dbc=database).run().events == 1
    (tmp_path / "landing" / "b.log").write_bytes(b"\0\1\2")
    assert lake.stream(tmp_path / "landing", dbc=database).run().dead == 1, "a file that is no log is a dead letter"


@pytest.mark.slow
def test_files_older_than_the_newest_by_max_age_are_warned_of(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark passes over them, once it has a checkpoint; `ingest` reads them."""
    land(tmp_path / "landing", 1)
    assert lake.stream(tmp_path / "landing").run().files == 1
    old = write_recording(tmp_path / "landing" / "old.genus", traffic(7))
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert lake.stream(tmp_path / "landing").run().files == 0
    assert "such as old.genus, that are not read because they are older than max_age" in caplog.text
    assert lake.ingest(tmp_path / "landing").events == 7


def test_wrong_arguments_are_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="at least one file"):
        lake.stream(tmp_path / "landing", files_per_batch=0)
    with pytest.raises(LakeError, match="for_each takes the events first"):
        lake.stream(tmp_path / "landing").for_each(print, Counter)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match=r"lake\.append"):
        lake.ingest(lake.spark.range(1))  # type: ignore[arg-type]
    with pytest.raises(LakeError, match="takes your Spark session and a path"):
        Lake(tmp_path / "lake")  # type: ignore[arg-type]


# -- killed ------------------------------------------------------------------------------------------------------------

FILES, EVENTS_EACH = 8, 200


def run_until_killed(folder: Path, point: str, count: int = 1, whom: str = "python") -> None:
    """Run a stream in another process, which dies at a point of its work, alone or with Spark."""
    script = Path(__file__).with_name("stream_program.py")
    command = [sys.executable, str(script), str(folder), point, str(count), whom]
    with (folder / "stream.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        ended = process.wait(timeout=240)
    finally:
        process.kill()
    assert ended == -signal.SIGKILL, (folder / "stream.log").read_text()[-2000:]


def run_to_the_end(spark: SparkSession, folder: Path) -> None:
    stream = Lake(spark, folder / "lake").stream(folder / "landing", files_per_batch=4)
    stream.route(WANTED).to_inboxes(folder / "inboxes").run()


def check_exactly_once(spark: SparkSession, folder: Path, files: int) -> None:
    events = landed(range(files), EVENTS_EACH)
    lake = Lake(spark, folder / "lake")
    assert Tally(lake.read(Streetside).select("time").toArrow().column(0).to_pylist()) == Tally(e.time for e in events)
    assert delivered(Inboxes(spark, folder / "inboxes")) == expected(events)
    assert not lake.check()


def prepare(spark: SparkSession, folder: Path, files: int) -> None:
    Lake.create(spark, folder / "lake", *ALL)
    for number in range(files):
        land(folder / "landing", number, EVENTS_EACH)


@pytest.mark.slow
def test_killed_with_9_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path) -> None:
    """Killed when the second file is ingested and its matches are written; then run to the end."""
    prepare(spark, tmp_path, 3)
    run_until_killed(tmp_path, "after write", count=2, whom="all")
    assert Lake(spark, tmp_path / "lake").read(Streetside).count() == 2 * EVENTS_EACH
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_with_9_fifty_times_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Ten streams, killed at five points each: at every point, alone and with Spark."""
    prepare(spark, tmp_path, FILES)
    deaths = [(point, whom) for whom in ("python", "all") for point in POINTS]
    for number in range(5):
        point, whom = deaths[(5 * seed + number) % len(deaths)]
        run_until_killed(tmp_path, point, whom=whom)
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, FILES)
