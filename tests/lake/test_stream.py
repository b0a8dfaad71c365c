"""A stream ingests each file once, and every follower gets every event once, wherever the stream was killed."""

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
from genus.lake import Inboxes, Lake, Progress, RouteEntry, Windows
from tests.lake.roads import ALL, Counter, Radar, Roadside, traffic, write_recording
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
    wanted.write_text("city: Roadside\n")
    stream = lake.stream(tmp_path / "landing").route(wanted).to_inboxes(tmp_path / "inboxes")
    land(tmp_path / "landing", 1)
    stream.run()
    lake.register(Laser)
    wanted.write_text("city: Roadside\ntoll: Laser\n")
    laser = Laser(lane=1, power=2.0, time=traffic(1)[0].time)
    write_recording(tmp_path / "landing" / "laser.genus", [laser])
    stream.run()
    found = delivered(Inboxes(lake.spark, tmp_path / "inboxes"))
    city, toll = RouteEntry("city", Subscription(Roadside)), RouteEntry("toll", Subscription(Laser))
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
    assert lake.read(Roadside).count() == 40
    stream.run()
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected(landed(range(1, 2)))
    assert lake.read(Roadside).count() == 40


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
    assert (repaired.files, repaired.events) == (1, 0), "the events were ingested before the failure"
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


# -- killed ------------------------------------------------------------------------------------------------------------

FILES, EVENTS_EACH = 8, 200


def run_until_killed(folder: Path, point: str, count: int = 1, whom: str = "all") -> None:
    """Run a stream in another process, which dies at a point of its work."""
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
    assert Tally(lake.read(Roadside).select("time").toArrow().column(0).to_pylist()) == Tally(e.time for e in events)
    assert delivered(Inboxes(spark, folder / "inboxes")) == expected(events)
    assert not lake.check()


def prepare(spark: SparkSession, folder: Path, files: int) -> None:
    Lake.create(spark, folder / "lake", *ALL)
    for number in range(files):
        land(folder / "landing", number, EVENTS_EACH)


@pytest.mark.slow
def test_killed_with_9_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path) -> None:
    """Killed when the second file is ingested and some of its matches are written; then run to the end."""
    prepare(spark, tmp_path, 3)
    run_until_killed(tmp_path, "after write", count=3)
    assert Lake(spark, tmp_path / "lake").read(Roadside).count() == 2 * EVENTS_EACH
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_with_9_fifty_times_nothing_is_lost_or_doubled(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Ten streams, killed at five points each, every point alone and with Spark."""
    prepare(spark, tmp_path, FILES)
    deaths = [(point, whom) for whom in ("all", "python") for point in POINTS]
    for number in range(5):
        point, whom = deaths[(5 * seed + number) % len(deaths)]
        run_until_killed(tmp_path, point, whom=whom)
    run_to_the_end(spark, tmp_path)
    check_exactly_once(spark, tmp_path, FILES)
