"""A stream ingests each file once, and every follower gets every event once, wherever the stream was killed."""

import os
import queue
import signal
import subprocess
import sys
from collections import Counter as Tally
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus import Subscription
from genus.errors import LakeError
from genus.lake import Inboxes, Lake, Progress, RouteEntry, UpdateResult, Windows, lazy_session
from genus.lake._stream.stream import LOOK_AT_ALL_S
from genus.lake._tables.commits import count_rows
from genus.lake._tables.store import Store
from tests.lake.roads import ALL, Counter, Radar, Streetside, traffic, write_recording
from tests.lake.stream_program import POINTS
from tests.lake.test_inboxes import WANTED, delivered, expected


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
        patched.setattr(Inboxes, "_write", lambda *_: 1 / 0)
        with pytest.raises(Exception, match=r"division by zero"):
            stream.run()
    assert lake.read(Streetside).count() == 40
    stream.run()
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected(landed(range(1, 2)))
    assert lake.read(Streetside).count() == 40


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
        patched.setattr(Inboxes, "_write", lambda *_: 1 / 0)
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


def test_broken_files_do_not_stop_a_stream(lake: Lake, tmp_path: Path) -> None:
    """They are dead letters, and the good events around them are ingested."""
    land(tmp_path / "landing", 1)
    (tmp_path / "landing" / "broken.genus").write_bytes(b"no recording at all")
    land(tmp_path / "landing", 2)
    progress = lake.stream(tmp_path / "landing").run()
    assert progress is not None
    assert (progress.events, progress.dead) == (80, 1)
    assert lake.dead_letters().count() == 1


# -- in a thread -------------------------------------------------------------------------------------------------------


def no_session() -> SparkSession:
    raise AssertionError("Spark was started")


@pytest.fixture
def small_lake(tmp_path: Path) -> Lake:
    """A lake whose session must not be started."""
    (tmp_path / "landing").mkdir()
    return Lake.create(lazy_session(no_session), tmp_path / "lake", *ALL)


def test_a_small_stream_needs_no_spark(small_lake: Lake, tmp_path: Path) -> None:
    """Files are ingested and matches delivered in this process; a stream that is started again skips what is known."""
    land(tmp_path / "landing", 1)
    for files in (1, 0):
        stream = small_lake.stream(tmp_path / "landing").route(WANTED).to_inboxes(tmp_path / "inboxes")
        done = stream.run()
        assert (done.files, done.events) == (files, 40 * files)
    parts = Store(tmp_path / "inboxes").state().parts.values()
    assert count_rows(parts) == len(expected(landed(range(1, 2))))


def test_a_started_stream_goes_on_until_it_is_stopped(small_lake: Lake, tmp_path: Path) -> None:
    """It finds files that land meanwhile, and cannot be started twice."""
    seen: queue.SimpleQueue[Progress] = queue.SimpleQueue()
    stream = small_lake.stream(tmp_path / "landing", on_progress=seen.put)
    with stream.start(every=0.01) as running:
        for number in (1, 2):
            land(tmp_path / "landing", number)
            assert seen.get(timeout=60).events == 40
        with pytest.raises(LakeError, match="runs already"):
            stream.run()
        assert running.is_active
        assert not running.join(timeout=0.01)
    assert not running.is_active
    assert running.exception is None
    assert stream.run().files == 0
    assert stream.start(once=True).join(timeout=60), "it ends by itself"


def test_an_error_ends_a_started_stream_and_is_raised_to_those_who_wait(small_lake: Lake, tmp_path: Path) -> None:
    """The next start goes on after the last commit."""

    class Failing:
        def update(self) -> UpdateResult:
            raise LakeError("no room")

    land(tmp_path / "landing", 1)
    running = small_lake.stream(tmp_path / "landing").follow(Failing()).start()
    with pytest.raises(LakeError, match="no room"):
        running.join(timeout=60)
    assert not running.is_active
    assert small_lake.stream(tmp_path / "landing").run().files == 0, "the file was ingested"


def test_a_file_that_is_replaced_is_ingested_and_one_that_has_grown_is_refused(
    small_lake: Lake, tmp_path: Path
) -> None:
    """By content: a file with a new time but known content is not ingested again."""
    land(tmp_path / "landing", 1)
    stream = small_lake.stream(tmp_path / "landing")
    assert stream.run().events == 40
    (landed_file,) = (tmp_path / "landing").glob("*.genus")
    os.utime(landed_file, (1, 1))
    assert stream.run().events == 0
    write_recording(tmp_path / "other.genus", traffic(7)).rename(landed_file)
    assert stream.run().events == 7
    with landed_file.open("ab") as opened:
        opened.write(b"more")
    with pytest.raises(LakeError, match="has grown"):
        stream.run()


def test_a_file_that_vanishes_does_not_end_a_stream(
    small_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the ingest; the others are ingested, and the progress tells it once."""
    land(tmp_path / "landing", 1)
    land(tmp_path / "landing", 2)
    stream = small_lake.stream(tmp_path / "landing")
    listed = stream._new_files()
    (tmp_path / "landing" / "bus-00001.genus").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(stream, "_new_files", lambda: listed)
        done = stream.run()
    assert (done.files, done.events) == (1, 40)
    assert "bus-00001.genus vanished before it was ingested" in (done.problem or "")
    assert stream.run().problem is None


def test_a_stream_looks_at_files_that_it_knows_once_a_minute(small_lake: Lake, tmp_path: Path) -> None:
    """One that is moved to a known name is found at once; one that is written again in place, by that look."""
    landing = tmp_path / "landing"
    for number in (1, 2):
        land(landing, number)
    (landing / "deep").mkdir()
    land(landing / "deep", 3)
    (landing / "notes.txt").write_text("no recording")
    stream = small_lake.stream(landing)
    assert stream.run().files == 3
    assert stream._new_files() == []
    land(landing / "deep", 4)
    write_recording(landing / ".new", traffic(10, first=9000)).rename(landing / "bus-00001.genus")
    other = write_recording(tmp_path / "other.genus", traffic(50, first=8000))
    (landing / "bus-00002.genus").write_bytes(other.read_bytes())
    assert sorted(Path(file.path).name for file in stream._new_files()) == ["bus-00001.genus", "bus-00004.genus"]
    stream._looked_at -= LOOK_AT_ALL_S
    assert len(stream._new_files()) == 3


def test_a_batch_has_a_file(small_lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="at least one file"):
        small_lake.stream(tmp_path / "landing", files_per_batch=0)


def test_a_pattern_has_no_braces(small_lake: Lake, tmp_path: Path) -> None:
    """They would match nothing."""
    with pytest.raises(LakeError, match="braces"):
        small_lake.stream(tmp_path / "landing", pattern="*.{a,b}")


# -- killed ------------------------------------------------------------------------------------------------------------

FILES, EVENTS_EACH = 8, 200


def run_until_killed(folder: Path, point: str, count: int = 1, whom: str = "python", how: str = "here") -> None:
    """Run a stream in another process, which dies at a point of its work, done by Spark jobs or in the process."""
    script = Path(__file__).with_name("stream_program.py")
    command = [sys.executable, str(script), str(folder), point, str(count), whom, how]
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
@pytest.mark.parametrize("how", ["here", "spark"])
def test_killed_with_9_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Killed when the second file is ingested and its matches are written; then run to the end."""
    prepare(spark, tmp_path, 3)
    run_until_killed(tmp_path, "after write", count=2, whom="all", how=how)
    assert Lake(spark, tmp_path / "lake").read(Streetside).count() == 2 * EVENTS_EACH
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_with_9_fifty_times_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Ten streams, killed at five points each: every point in the process, and with Spark jobs alone and with Spark."""
    prepare(spark, tmp_path, FILES)
    ways = (("python", "here"), ("all", "spark"), ("python", "spark"))
    deaths = [(point, whom, how) for whom, how in ways for point in POINTS]
    for number in range(5):
        point, whom, how = deaths[(5 * seed + number) % len(deaths)]
        run_until_killed(tmp_path, point, whom=whom, how=how)
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, FILES)
