"""Derived tables: updated step by step, they have the results of the analysis over all events."""

import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType

from genus import Event, Maybe, Subscription, UInt8, this
from genus.errors import LakeError
from genus.lake import DerivedTable, Lake, Pairing, Walk, Windows, read_results
from genus.lake._stream import derived as derived_module
from genus.lake._tables.store import Store
from tests.lake.bursts import GIVES, bursts
from tests.lake.roads import ALL, Counter, Radar, Streetside, traffic, write_recording
from tests.lake.test_jobs import descriptions

SECOND = timedelta(seconds=1)
MINUTES = Windows(every=timedelta(minutes=1), by=("lane",), values={"speed": ("count", "mean", 0.85)}, lateness=SECOND)
PAIRS = Pairing(by=("lane",), within=timedelta(seconds=30), choose="last", lateness=SECOND)
BURSTS = Walk(by=("lane",), function=bursts, gives=GIVES, lateness=SECOND)
SLOW, FAST = Subscription(Counter, where=this.speed < 40), Subscription(Counter, where=this.speed >= 40)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.create(spark, tmp_path / "lake", *ALL)


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.toArrow().to_pylist())


class Meter(Event):
    lane: UInt8
    pause: Maybe[timedelta] = None


@pytest.mark.slow
@pytest.mark.parametrize(
    "small_rows",
    [derived_module.SMALL_ROWS, pytest.param(0, marks=pytest.mark.slow)],
    ids=["in one task", "by shuffles"],
)
def test_step_by_step_is_the_same_as_at_once(
    lake: Lake, tmp_path: Path, small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Analyses over two ingests, each in a new object as after a restart, equal the batch, row for row."""
    monkeypatch.setattr(derived_module, "SMALL_ROWS", small_rows)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(100, first=100 * number)))
        DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter).update()
        DerivedTable(lake, tmp_path / "pairs", PAIRS, SLOW, FAST).update()
        DerivedTable(lake, tmp_path / "bursts", BURSTS, SLOW, FAST).update()
    minutes = DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter)
    at_once = MINUTES.all(lake.read(Counter))
    assert 0 < minutes.read().count() < at_once.count(), "what is not over yet still waits"
    pairs = DerivedTable(lake, tmp_path / "pairs", PAIRS, SLOW, FAST)
    walked = DerivedTable(lake, tmp_path / "bursts", BURSTS, SLOW, FAST)
    minutes.finish()
    pairs.finish()
    walked.finish()
    assert rows(minutes.read()) == rows(at_once)
    assert rows(read_results(lake.spark, pairs.path)) == rows(PAIRS.all(lake.read(SLOW), lake.read(FAST)))
    assert rows(walked.read()) == rows(BURSTS.all(lake.read(SLOW), lake.read(FAST)))
    assert [*minutes.check(), *pairs.check(), *walked.check()] == []
    assert pairs.update().rows == 0


def test_a_step_is_one_job(lake: Lake, tmp_path: Path) -> None:
    """Results and waiting rows of few events are written by one job of one or two tasks; reading starts none."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(100)))
    steps = [
        DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter),
        DerivedTable(lake, tmp_path / "pairs", PAIRS, SLOW, FAST),
        DerivedTable(lake, tmp_path / "bursts", BURSTS, Counter),
    ]
    for step in steps:
        before = max(descriptions(lake.spark), default=-1)
        assert step.update().waiting
        step.read()
        new = [text for number, text in descriptions(lake.spark).items() if number > before]
        assert new == [f"derive {Path(step.path).name} from lake"]


@pytest.mark.slow
def test_durations_are_intervals(lake: Lake, tmp_path: Path) -> None:
    """In results and in rows that wait; also if the notes of the table do not say its columns."""
    lake.register(Meter)
    meters: list[Event] = [Meter(time=event.time, lane=1, pause=n * SECOND) for n, event in enumerate(traffic(20))]
    following = DerivedTable(lake, tmp_path / "pairs", PAIRS, Meter, Meter)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", meters[10 * number : 10 * number + 10]))
        following.update()
    following.finish()
    at_once = PAIRS.all(lake.read(Meter), lake.read(Meter))
    found = following.read()
    assert rows(found) == rows(at_once)
    assert dict(found.dtypes) == dict(at_once.dtypes)
    store = Store(following.path)
    store.commit(msgspec.structs.replace(store.begin("derive"), notes={"columns": ""}))
    assert following.read().schema == found.schema


@pytest.mark.slow
def test_columns_of_different_types_get_one_that_holds_both(lake: Lake, tmp_path: Path) -> None:
    """A column that two families have with different types gets one that holds both, as in batch."""
    lake.register(Meter)
    meters = [Meter(time=event.time, lane=1) for event in traffic(20)]
    lake.ingest(write_recording(tmp_path / "a.genus", [*traffic(20), *meters]))
    walked = DerivedTable(lake, tmp_path / "bursts", BURSTS, Counter, Meter)
    walked.finish()
    assert rows(walked.read()) == rows(BURSTS.all(lake.read(Counter), lake.read(Meter)))
    assert walked.read().schema["lane"].dataType == LongType()


@pytest.mark.slow
def test_events_brought_in_after_their_time_was_settled_are_counted(lake: Lake, tmp_path: Path) -> None:
    """An old recording that comes late does not change results; the table counts the events it left out."""
    lake.ingest(write_recording(tmp_path / "young.genus", traffic(60, first=600)))
    derived = DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter)
    derived.update()
    lake.ingest(write_recording(tmp_path / "old.genus", traffic(60)))
    problem = derived.update().problem
    late = sum(isinstance(event, Counter) for event in traffic(60))
    assert derived.overtaken == late
    assert f"{derived.path}: {late} events are left out, because they came after their time was settled" in str(problem)
    assert "did not land in order" in str(problem)
    derived.finish()
    kept = MINUTES.all(lake.read(Counter, where=this.time >= traffic(1, first=600)[0].time))  # type: ignore[operator]
    assert rows(derived.read()) == rows(kept)


@pytest.mark.slow
def test_a_stream_says_that_events_without_a_time_settled_that_of_others(lake: Lake, tmp_path: Path) -> None:
    """They count by the time of change of their file, which is after all later events of a replayed landing."""
    landing = tmp_path / "landing"
    landing.mkdir()
    lines = ['{"type": "Meter", "lane": 1}\n', '{"type": "Meter", "lane": 1, "time": "2026-05-04T12:00:00Z"}\n' * 3]
    for number, text in enumerate(lines):
        (landing / f"{number}.jsonl").write_text(text)
        os.utime(landing / f"{number}.jsonl", (1_790_000_000 + number,) * 2)
    lake.register(Meter)
    counting = Windows(every="1 min", by=("lane",), lateness="1s")
    stream = lake.stream(landing, files_per_batch=1, pattern="*.jsonl").derive(tmp_path / "table", counting, Meter)
    done = stream.run()
    assert (done.events, done.late) == (4, 3)
    assert "3 events are left out" in str(done.problem)
    assert "events without a time of their own (1 so far)" in str(done.problem)


@pytest.mark.slow
def test_a_table_says_what_it_waits_for(lake: Lake, tmp_path: Path) -> None:
    """With a long lateness it stays empty: how many rows wait, until when results are final, and who is behind."""
    late = Windows(every=timedelta(minutes=1), by=("lane",), lateness=timedelta(hours=2))
    derived = DerivedTable(lake, tmp_path / "late", late, Counter)
    assert derived.explain().splitlines()[0] == "no results are final yet"
    events = {"slow": traffic(60), "fast": traffic(70)}
    for name, recorded in events.items():
        lake.ingest(write_recording(tmp_path / f"{name}-1.genus", recorded))
    assert "the lake has versions that are not processed yet" in derived.explain()
    done = derived.update()
    counters = sum(isinstance(event, Counter) for recorded in events.values() for event in recorded)
    assert (done.rows, done.waiting) == (0, counters)
    assert done.waits_for == derived.explain().splitlines()[0]
    assert "are final; " in done.waits_for
    assert f"waiting rows: {counters}, because {tmp_path}/slow has recorded up to 2026-" in done.waits_for
    assert f"of 2 recorders, {tmp_path}/slow has recorded up to 2026-" in derived.explain()
    assert derived.finish().waits_for == ""
    assert derived.explain().startswith("all results are final, because the table was finished\n")


@pytest.mark.slow
def test_finishing_returns_what_both_of_its_steps_did(lake: Lake, tmp_path: Path) -> None:
    """New events, results that became final by them, and those that waited; a second call has nothing to do."""
    derived = DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter)
    assert derived.finish() == derived.update() == derived.finish(), "there are no events yet"
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(60, first=600)))
    derived = DerivedTable(lake, tmp_path / "others", MINUTES, Counter)
    done = derived.finish()
    assert (done.upto, done.events, done.rows) == (lake.version, 60, derived.read().count())
    again = derived.finish()
    assert (again.upto, again.events, again.rows, again.late) == (lake.version, 0, 0, 0)


@pytest.mark.slow
def test_another_analysis_needs_another_folder(lake: Lake, tmp_path: Path) -> None:
    """Results of two analyses, or of other events, are never mixed."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(60)))
    DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter).update()
    with pytest.raises(LakeError, match="another analysis"):
        DerivedTable(lake, tmp_path / "minutes", Windows(every=SECOND, lateness=SECOND), Counter)
    with pytest.raises(LakeError, match="another subscription"):
        DerivedTable(lake, tmp_path / "minutes", MINUTES, Radar)
    with pytest.raises(LakeError, match="of one"):
        DerivedTable(lake, tmp_path / "kinds", MINUTES, Streetside).update()


def test_an_analysis_of_a_stream_needs_a_lateness(lake: Lake, tmp_path: Path) -> None:
    """Without a lateness nothing would ever be settled."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(10)))
    with pytest.raises(LakeError, match="lateness"):
        DerivedTable(lake, tmp_path / "minutes", Windows(every=SECOND), Counter).update()
