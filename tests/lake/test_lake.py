"""A lake stores events by family, each once, and reads them as DataFrames; types may be added."""

import gc
import shutil
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from io import StringIO
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus import Event, Maybe, Subscription, all_of, this
from genus.bus import read_recording
from genus.errors import LakeDamaged, LakeError, NotRegistered, SubscriptionError, SubscriptionWarning
from genus.lake import Lake, LakeReader
from genus.lake._ingest import ingest as ingest_module
from genus.lake._ingest import job
from genus.lake._tables import store
from genus.lake._tables.commits import CommitConflict, Part, Shape, StoredFile, checksum
from genus.model import name_of, subtypes
from tests.lake.roads import ALL, MORNING, Category, Counter, Gate, Radar, Streetside, traffic, write_recording


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.create(spark, tmp_path / "lake", *ALL)


@pytest.fixture(scope="module")
def full(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with 600 events of two days in two commits; tests only read it."""
    folder = tmp_path_factory.mktemp("full")
    lake = Lake.create(spark, folder / "lake", *ALL)
    lake.ingest(write_recording(folder / "first.genus", EVENTS[:300]))
    lake.ingest(write_recording(folder / "second.genus", EVENTS[300:]))
    return lake


EVENTS = [*traffic(300), *traffic(300, first=300, start=MORNING + timedelta(days=1))]


def times(frame: DataFrame) -> list[Any]:
    return sorted(frame.select("time").toArrow().column(0).to_pylist())


def matching(subscription: Subscription, events: Iterable[Event] = EVENTS) -> list[Any]:
    return sorted(event.time for event in events if subscription.matches(event))


def plan_of(frame: DataFrame) -> str:
    with redirect_stdout(StringIO()) as printed:
        frame.explain("formatted")
    return printed.getvalue()


# -- in ----------------------------------------------------------------------------------------------------------------


def test_the_same_file_twice_adds_nothing(lake: Lake, tmp_path: Path) -> None:
    """A file is known by its content: neither a second time nor a copy under another name adds events."""
    file = write_recording(tmp_path / "a.genus", traffic(50))
    assert lake.ingest(file).events == 50
    again = lake.ingest([file, shutil.copy(file, tmp_path / "b.genus")])
    assert (again.events, again.files, again.skipped) == (0, 0, 2)
    assert lake.read(Streetside).count() == 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", [29, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(29))])
def test_any_mixture_of_new_known_and_equal_files_brings_each_content_once(
    lake: Lake, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an ingest or a stream, whole or in splits, in any number of tasks: events, files and counts add up."""

    class Unknown(Event): ...

    random, known = Random(seed), set[int]()
    contents = [traffic(random.choice([1, 5, 60]) if number else 0, first=1000 * number) for number in range(12)]
    dead = [random.randrange(3) if number % 3 else 0 for number in range(12)]
    for number, events in enumerate(contents):
        write_recording(tmp_path / f"{number}.genus", [*events, *[Unknown(source=f"{number}")] * dead[number]])
    for turn in range(4):
        landing = tmp_path / "landing" if turn % 2 else tmp_path / f"turn-{turn}"
        landing.mkdir(exist_ok=True)
        chosen = random.choices(range(12), k=random.randint(1, 8))
        for place, number in enumerate(chosen):
            shutil.copy(tmp_path / f"{number}.genus", landing / f"{turn}-{random.randrange(99)}-{place}.genus")
        new = set(chosen) - known
        expected = len(new), len(chosen) - len(new), sum(len(contents[each]) for each in new)
        with monkeypatch.context() as patched:
            patched.setattr(job, "MIN_TASK_BYTES", random.choice([1, 4000, 1 << 18]))
            if turn % 2:
                done: Any = lake.stream(landing, files_per_batch=random.randint(1, 9)).run()
            else:
                split = random.choice([500, 1 << 25])
                patched.setattr(job, "SPLIT_BYTES", split)
                patched.setattr(ingest_module, "run_ingest", partial(job.run_ingest, split_bytes=split))
                done = lake.ingest(landing)
        assert (done.files, done.skipped, done.events) == expected
        assert done.dead == sum(dead[each] for each in new)
        known |= new
    happened = [event.time for each in known for event in contents[each]]
    found = [LakeReader(lake.path).read(cls).to_arrow().column("time").to_pylist() for cls in (Counter, Gate)]
    assert sorted(chain(*found)) == sorted(filter(None, happened))
    assert sum(source.rows for source in map(lake.state().sources.get, lake.state().sources) if source) == len(happened)
    assert lake.check() == []


def test_folders_and_patterns_stand_for_their_files(lake: Lake, tmp_path: Path) -> None:
    """A folder means all files below it but the hidden ones; a pattern what it matches."""
    (tmp_path / "land" / "deep").mkdir(parents=True)
    write_recording(tmp_path / "land" / "a.genus", traffic(10))
    write_recording(tmp_path / "land" / "deep" / "b.genus", traffic(10, first=100))
    write_recording(tmp_path / "land" / ".hidden.genus", traffic(10, first=200))
    assert lake.ingest(f"{tmp_path}/land/*.genus").events == 10
    assert lake.ingest(tmp_path / "land").events == 10
    with pytest.raises(LakeError, match="no such file"):
        lake.ingest(tmp_path / "land" / "nothing*.genus")
    (tmp_path / "bare.csv").write_text("lane\n1\n")
    with pytest.raises(LakeError, match=r"no column 'type', but lane\. Give a mapping"):
        lake.ingest(tmp_path / "bare.csv")


def test_what_is_interrupted_before_its_commit_was_never_there(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a killed ingest are in no commit: they are not read, and clean removes them when its process is gone."""
    file = write_recording(tmp_path / "a.genus", traffic(40))

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lake.store.ledger, "commit", killed)
        patched.setattr(lake.store, "_discard", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.ingest(file)
        assert lake.clean(older_than=0) == 0, "another writer might be at work there"
    assert lake.read(Streetside).count() == 0
    assert lake.ingest(file).events == 40
    assert lake.read(Streetside).count() == 40
    monkeypatch.setattr(store, "MAX_WRITE_S", -5)
    assert lake.clean(older_than=0) == 2  # one folder of each family
    assert lake.read(Streetside).count() == 40


@pytest.mark.slow
def test_two_writers_of_one_file_add_it_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """The second writer finds a source committed by the first, and ingests only the others."""
    shared = write_recording(tmp_path / "shared.genus", traffic(60))
    own = [write_recording(tmp_path / f"{n}.genus", traffic(20, first=1000 * n)) for n in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        others = [Lake(spark, lake.path) for _ in own]
        done = list(pool.map(lambda pair: pair[0].ingest([shared, pair[1]]), zip(others, own, strict=True)))
    assert lake.read(Streetside).count() == 100
    assert not lake.check()
    assert sum(each.events for each in done) == 100
    assert sorted((each.files, each.skipped) for each in done) == [(1, 1), (2, 0)]


def test_a_writer_that_comes_second_counts_nothing_of_the_first(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer commits the same file after this one has read it and before this one commits."""
    file = write_recording(tmp_path / "a.genus", traffic(40))
    other, commit = Lake(spark, lake.path), lake.store.commit

    def after_the_other(draft: Any) -> Any:
        assert other.ingest(file).skipped in (0, 1)
        return commit(draft)

    monkeypatch.setattr(lake.store, "commit", after_the_other)
    done = lake.ingest(file)
    assert (done.files, done.skipped, done.events, done.bytes, done.version) == (0, 1, 0, 0, lake.version)


@pytest.mark.slow
def test_a_compaction_that_comes_second_counts_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer has replaced the parts meanwhile."""
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(40, first=100 * number)))

    def conflict(_: object) -> None:
        raise CommitConflict("compacted by another writer")

    with monkeypatch.context() as patched:
        patched.setattr(lake.store, "commit", conflict)
        done = lake.compact()
    assert (done.tables, done.files_before, done.files_after, done.rows) == (0, 0, 0, 0)
    assert lake.compact().rows == 80


@pytest.mark.slow
def test_dead_letters_say_why_and_are_tried_again_when_types_are_known(lake: Lake, tmp_path: Path) -> None:
    """Events of an unknown type are dead letters; after registering it, a retry ingests them and nothing else."""

    class Stranger(Counter):
        colour: Maybe[str] = None

    file = write_recording(tmp_path / "a.genus", [*traffic(10), Stranger(lane=9, time=MORNING, colour="red")])
    first = lake.ingest(file)
    assert (first.events, first.dead) == (10, 1)
    (letter,) = lake.dead_letters().collect()
    assert "Stranger" in letter["reason"]
    assert letter["path"] == str(file)
    assert letter["raw"]
    lake.register(Stranger)
    second = lake.ingest(file, retry=True)
    assert (second.events, second.dead) == (1, 0)
    assert lake.read(Streetside).count() == 11
    assert lake.dead_letters().count() == 0
    assert lake.read(Stranger, where=this.colour == "red").first()["lane"] == 9  # type: ignore[index]
    assert lake.ingest(file, retry=True).files == 0


@pytest.mark.slow
def test_old_files_are_read_after_the_vector_grew(spark: SparkSession, tmp_path: Path) -> None:
    """A new attribute is a new column, absent from what was written before."""

    def version(new: bool) -> Any:
        if not new:

            class Tide(Event):
                level: float

            return Tide

        class Tide(Event):  # type: ignore[no-redef]
            level: float
            salt: Maybe[float] = None

        return Tide

    old, young = version(False), version(True)
    lake = Lake.create(spark, tmp_path / "lake", old)
    lake.ingest(write_recording(tmp_path / "old.genus", [old(level=1.0, time=MORNING)]))
    lake.register(young)
    lake.ingest(write_recording(tmp_path / "new.genus", [young(level=2.0, salt=0.3, time=MORNING)]))
    rows = {row["level"]: row["salt"] for row in lake.read(young).collect()}
    assert rows == {1.0: None, 2.0: 0.3}
    assert lake.read(young, has="salt").count() == 1
    assert lake.read(young, lacks="salt").count() == 1
    lake.compact()
    assert {row["level"]: row["salt"] for row in lake.read(young).collect()} == rows


# -- out ---------------------------------------------------------------------------------------------------------------


SUBSCRIPTIONS = (
    Subscription(Counter),
    Subscription(Counter, exact=True),
    Subscription(Radar),
    Subscription(Streetside),
    Subscription(Event),
    Subscription(Streetside, exact=True),
    Subscription(all_of(Counter, Streetside), has="place"),
    Subscription(Counter, has=("place", "category"), where=this.category == Category.TRUCK),
    Subscription(Counter, lacks="speed"),
    Subscription(Counter, where=~(this.speed > 30)),
    Subscription(Counter, where=(this.speed / 2 > 10) | (this.lane == 2)),
    Subscription(Streetside, where=this.time >= MORNING + timedelta(days=1, minutes=2)),
    Subscription(Gate, where=this.open),
)


def test_reading_gives_what_the_bus_would_have_delivered(full: Lake) -> None:
    """The result equals `Subscription.matches`, for subscriptions and for their texts; all are read in one job."""
    frames = [
        full.read(form).select(F.lit(number).alias("number"), "time")
        for number, wanted in enumerate(SUBSCRIPTIONS)
        for form in (wanted, str(wanted))
    ]
    found: dict[int, list[Any]] = {number: [] for number in range(len(SUBSCRIPTIONS))}
    for row in reduce(DataFrame.unionAll, frames).toArrow().to_pylist():
        found[row["number"]].append(row["time"])
    for number, wanted in enumerate(SUBSCRIPTIONS):
        assert sorted(found[number]) == sorted(2 * matching(wanted)), wanted


def test_rows_hold_what_events_held(full: Lake) -> None:
    """Every attribute is read back; ids are unique."""
    rows = full.read(Counter).orderBy("time").collect()
    expected = [event for event in EVENTS if isinstance(event, Counter)]
    found = [(r["_type"], r["lane"], r["category"], r["speed"], r["place"], r["time"].astimezone(UTC)) for r in rows]
    assert found == [
        (type(e).__name__, e.lane, e.category and e.category.value, e.speed, e.place, e.time) for e in expected
    ]
    assert len({(row["_source"], row["_position"]) for row in rows}) == len(rows)
    assert {row["_recorded"] - row["time"] for row in rows} == {timedelta(milliseconds=5)}
    assert {int(row["_code"]) % full.catalog.code(Counter) for row in rows} == {0}


def test_positions_lead_back_to_the_recording(full: Lake) -> None:
    """An event id is the number of its source and the position there."""
    (source,) = [each for each in full.state().sources.values() if each.path.endswith("first.genus")]
    rows = full.read(Event).where(f"_source = {source.number}").orderBy("_position").collect()
    recorded = [each.event for each in read_recording(source.path, ALL)]
    assert [row["_type"] for row in rows] == [type(event).__name__ for event in recorded]


def test_type_presence_and_predicates_are_tested_in_the_files(full: Lake) -> None:
    """The plan pushes filters down to row groups, opens only days that can match, and reads only the needed columns."""
    day = MORNING + timedelta(days=1)
    frame = full.read(Radar, has="place", where=(this.speed > 30) & (this.time >= day)).select("lane", "speed")
    plan = plan_of(frame)
    for pushed in ("EqualTo(_type,Radar)", "IsNotNull(place)", "GreaterThan(speed,30.0)", "GreaterThanOrEqual(time"):
        assert pushed in plan.partition("PushedFilters")[2]
    opened = {path.rpartition("_day=")[2][:10] for path in frame.inputFiles()}
    assert opened
    assert min(opened) >= day.date().isoformat()
    assert "angle" not in plan.partition("ReadSchema")[2]


def test_types_unknown_here_but_coded_under_a_known_one_match(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Types are matched by code: a type that the catalog lacks is a Counter if Counter's code divides its code."""
    lake.ingest(write_recording(tmp_path / "a.genus", [Counter(lane=1, time=MORNING)]))
    code = str(lake.catalog.code(Counter) * 7919)
    (part,) = lake.state().table("Counter")
    file = next((Path(lake.path) / part.folder).glob("*.parquet"))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file).read()
    renamed = {"_type": "Lidar", "_code": code}
    for name, value in renamed.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([value]))
    folder = "tables/Counter/_commit=elsewhere/_day=2026-05-01"
    (Path(lake.path) / folder).mkdir(parents=True)
    pq.write_table(table, Path(lake.path) / folder / "part-0.parquet")
    content = (Path(lake.path) / folder / "part-0.parquet").read_bytes()
    draft = msgspec.structs.replace(
        lake.store.begin("ingest"),
        added=(Part("Counter", folder, (StoredFile("part-0.parquet", 1, len(content), checksum(content)),)),),
        shapes=(Shape("Counter", "Lidar", code, "21"),),
    )
    lake.store.commit(draft)
    assert sorted(row["_type"] for row in lake.read(Counter).collect()) == ["Counter", "Lidar"]
    assert lake.read(Radar).count() == 0
    assert lake.read(Counter, exact=True).count() == 1


def test_views_answer_sql(full: Lake) -> None:
    """Every type and kind is a view under its name."""
    assert set(full.views()) >= {"Counter", "Radar", "Gate", "Streetside", "Event"}
    (row,) = full.spark.sql("SELECT count(*) AS n FROM Radar WHERE speed > 60").collect()
    assert row["n"] == len(matching(Subscription(Radar, where=this.speed > 60)))


@pytest.mark.slow
def test_dead_letters_can_be_limited_to_those_after_a_version(lake: Lake, tmp_path: Path) -> None:
    """Those of files that were ingested later."""
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_text("no event\n" * number)
    lake.ingest(tmp_path / "1.jsonl")
    version = lake.version
    assert lake.dead_letters(after=version).count() == 0
    lake.ingest(tmp_path / "2.jsonl")
    assert lake.dead_letters(after=version).count() == 2
    assert lake.dead_letters().count() == 3


def test_sources_are_found_with_their_sizes_before_an_ingest(lake: Lake, tmp_path: Path) -> None:
    """Files of unknown endings are skipped in folders, and refused where they are named."""
    (tmp_path / "in").mkdir()
    recording = write_recording(tmp_path / "in" / "a.genus", traffic(5))
    (tmp_path / "in" / "notes.txt").write_text("notes")
    assert lake.find_sources(tmp_path / "in") == {str(recording): recording.stat().st_size}
    with pytest.raises(LakeError, match="unknown ending 'txt'"):
        lake.find_sources(tmp_path / "in" / "notes.txt")


def test_what_a_lake_does_not_know_is_refused_with_advice(full: Lake) -> None:
    """Unknown types and attributes are refused, and arguments beside a whole subscription."""

    class Elsewhere(Event): ...

    with pytest.raises(NotRegistered, match="Elsewhere"):
        full.read(Elsewhere)
    with pytest.raises(LakeError, match="whole subscription"):
        full.read("Counter", has="place")
    with pytest.raises(LakeError, match="is not a lake"):
        Lake(full.spark, f"{full.path}/nothing")
    with pytest.raises(LakeError, match="is a lake already"):
        Lake.create(full.spark, full.path, Counter)
    with pytest.raises(LakeError, match="pattern"):
        Lake.create(full.spark, f"{full.path}[1]", Counter)


def test_explain_counts_the_files_and_days_that_can_match(full: Lake) -> None:
    """A predicate on time leaves one of two days; nothing is read."""
    plan = full.explain(Subscription(Counter, where=this.time >= MORNING + timedelta(days=1)))
    (scan,) = plan.tables
    assert (scan.family, scan.types, scan.days, scan.days_read) == ("Counter", ("Counter", "Radar"), 2, 1)
    stats = {each.table: each for each in full.stats()}
    assert 0 < plan.files < stats["Counter"].files
    assert plan.lake_files == sum(each.files for each in stats.values())
    assert 0 < plan.bytes < plan.lake_bytes
    assert "time" in plan.tests
    assert full.explain("Streetside").files == plan.lake_files


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_compaction_leaves_few_files_and_the_same_events(lake: Lake, tmp_path: Path) -> None:
    """Five small ingests become one file per family and day with the same rows; then nothing is left to compact."""
    for number in range(5):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(20, first=100 * number)))
    before = {(row["_source"], row["_position"], row["lane"]) for row in lake.read(Counter).collect()}
    done = lake.compact()
    assert (done.files_before, done.files_after, done.rows) == (10, 2, 100)
    assert {(row["_source"], row["_position"], row["lane"]) for row in lake.read(Counter).collect()} == before
    assert "GreaterThan(time" in plan_of(lake.read(Counter, where=this.time > MORNING))
    assert lake.compact().tables == 0
    assert not lake.check()
    assert lake.clean() == 0, "what stopped counting is kept for a while, for followers and running reads"
    assert lake.clean(older_than=0) == 10
    assert lake.read(Counter).count() == len(before)


@pytest.mark.slow
def test_compaction_writes_times_that_files_can_be_searched_by(lake: Lake, tmp_path: Path) -> None:
    """The session's setting for timestamps is restored."""
    import pyarrow.parquet as pq

    before = lake.spark.conf.get("spark.sql.parquet.outputTimestampType")
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(20, first=100 * number)))
    lake.compact()
    (part,) = lake.state().table("Counter")
    file = next((Path(lake.path) / part.folder).glob("*.parquet"))
    assert pq.ParquetFile(file).schema.column(0).physical_type == "INT64"
    assert lake.spark.conf.get("spark.sql.parquet.outputTimestampType") == before


def test_check_finds_what_is_missing(lake: Lake, tmp_path: Path) -> None:
    """The error names a deleted file, a missing catalog or a missing commit."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(20)))
    (part,) = lake.state().table("Gate")
    next((Path(lake.path) / part.folder).glob("*.parquet")).unlink()
    (problem,) = lake.check()
    assert "Gate" in str(problem)
    (Path(lake.path) / "_log" / f"{1:012}.json").unlink()
    with pytest.raises(LakeDamaged, match="commit 1 is missing"):
        Lake(lake.spark, lake.path).check()


def test_stats_come_from_the_ledger(full: Lake) -> None:
    """Rows, days, types and shapes per table."""
    stats = {each.table: each for each in full.stats()}
    assert stats["Counter"].rows + stats["Gate"].rows == len(EVENTS)
    assert (stats["Counter"].days, stats["Counter"].types) == (2, 2)


def test_midnight_is_a_new_day(lake: Lake, tmp_path: Path) -> None:
    """The day of an event is that of its time in UTC, not in the session's time zone."""
    night = datetime(2026, 5, 1, 23, 59, 59, tzinfo=UTC)
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(2, first=0, start=night)))
    days = {str(row["_day"]) for row in lake.read(Event).collect()}
    assert days == {"2026-05-01", "2026-05-02"}


def test_a_read_that_can_never_match_warns_once_or_is_refused(lake: Lake, tmp_path: Path) -> None:
    """At the line that reads; the subscription that the lake makes of it does not warn again."""
    never = (this.speed > 50) & (this.speed < 30)
    ways: list[tuple[Any, dict[str, Any]]] = [
        (Counter, {"where": never}),
        ("Counter where speed > 50 and speed < 30", {}),
    ]
    for what, parts in ways:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert lake.read(what, **parts).count() == 0
        assert [(each.category, each.filename) for each in found] == [(SubscriptionWarning, __file__)]
        with pytest.raises(SubscriptionError, match="no value of 'speed'"):
            lake.read(what, strict=True, **parts)


def test_types_that_only_the_lake_knows_count_as_declared(spark: SparkSession, tmp_path: Path) -> None:
    """A type below has the attribute in the lake's catalog, but no class of it is left in this process."""

    class Boat(Event):
        pass

    class Barge(Boat):
        pass

    class Tug(Boat):
        power: Maybe[int] = None

    def register_pusher() -> None:
        class Pusher(Barge):
            power: Maybe[int] = None

        Lake.create(spark, tmp_path / "other", Boat, Barge, Tug, Pusher)

    register_pusher()
    gc.collect()
    assert [name_of(cls) for cls in subtypes(Barge)] == ["Barge"]
    with pytest.warns(SubscriptionWarning, match="no Barge declared so far has the attribute 'power'"):
        Subscription(Barge, where=this.power > 3)
    assert Lake(spark, tmp_path / "other").read(Barge, where=this.power > 3).count() == 0, "no warning"
