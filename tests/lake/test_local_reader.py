"""Small questions without Spark: the same answers, by the ledger, Parquet statistics and the arrow target."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from math import nan
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from genus import Event, Kind, Maybe, Renamed, Subscription, UInt8, all_of, this
from genus.errors import LakeDamaged, LakeError, NotRegistered
from genus.lake import Lake, LakeReader
from genus.lake._query import scan
from genus.lake._query.selection import ABSENT, EVERY, FALSE, TRUE, UNKNOWN, Values, outcomes
from genus.lake._tables import part_writer
from genus.lake._tables.commits import POSITION
from genus.lake.types import LocalEvents
from tests.lake.roads import ALL, MORNING, Counter, Gate, Radar, Streetside, traffic, write_recording
from tests.lake.stored import add_events, create_lake


class Heated(Kind): ...


class Mode(Enum):
    SLOW = "slow"
    FAST = "fast"


class Kiln(Event, Heated):
    level: Maybe[int] = None
    heat: Maybe[float] = None
    mode: Maybe[Mode] = None
    held: Maybe[timedelta] = None
    label: Maybe[str] = None
    ok: Maybe[bool] = None
    small: Maybe[UInt8] = None


class TunnelKiln(Kiln):
    belt: Maybe[float] = None


class Furnace(Event, Heated):
    level: Maybe[int] = None


TYPES = (Heated, Kiln, TunnelKiln, Furnace)
LIMITS = (-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1)
FLOATS = (nan, -0.0, 0.0, 1.5, float("inf"), float("-inf"), 5e-324)
DAYS = [datetime(2026, 5, day, hour, tzinfo=UTC) for day in (1, 2, 3) for hour in (0, 23)]

kilns = st.builds(
    lambda cls, **values: cls(**values),
    st.sampled_from([Kiln, TunnelKiln]),
    time=st.none() | st.sampled_from(DAYS),
    place=st.none() | st.sampled_from(["", "north", "süd"]),
    level=st.none() | st.sampled_from(LIMITS),
    heat=st.none() | st.sampled_from(FLOATS),
    mode=st.none() | st.sampled_from(Mode),
    held=st.none() | st.sampled_from([timedelta(0), timedelta(seconds=-1), timedelta(days=3)]),
    label=st.none() | st.sampled_from(["a", "b", "é", ""]),
    ok=st.none() | st.booleans(),
    small=st.none() | st.sampled_from([0, 200, 255]),
)
furnaces = st.builds(Furnace, time=st.none() | st.sampled_from(DAYS), level=st.none() | st.sampled_from(LIMITS))

PREDICATES = [
    "level == -9223372036854775808", "not level < 7", "level > 7.5", "level in (0, 7)", "level != 0",
    "heat == 0.0", "not heat > 1.0", "heat in (0.0, 1.5)", "mode == 'fast'", "mode != 'fast'", "held > 0s",
    "label == 'é'", "label like 'a%' or ok == true", "not ok", "small >= 200", "level is present",
    "not heat is present",
    "time >= @2026-05-02T00:00:00Z", "@2026-05-02T00:00:00Z > time", "not time < @2026-05-02T00:00:00Z",
    "time in (@2026-05-01T00:00:00Z, @2026-05-03T23:00:00Z)", "time == @2026-05-01T00:00:00Z or level == 0",
    "heat + 1.0 > 2.0 and level // 2 == 3", "belt > 1.0 or place == 'süd'",
]  # fmt: skip
TEXTS = [
    "Kiln", "exact Kiln", "TunnelKiln has place", "Kiln has time lacks level", "Heated", "Heated lacks time",
    "Heated & Kiln", "Heated where time >= @2026-05-02T00:00:00Z", "Event", "Kiln lacks heat where level >= 0",
    *(f"Kiln where {predicate}" for predicate in PREDICATES),
]  # fmt: skip


def positions(found: LocalEvents) -> list[int]:
    return sorted(found.select([POSITION]).to_arrow().column(POSITION).to_pylist())


# -- the same answers --------------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(kilns | furnaces, max_size=20), min_size=1, max_size=3))
def test_it_gives_what_matches(tmp_path_factory: pytest.TempPathFactory, commits: list[list[Event]]) -> None:
    """Rows and counts, over several commits, days and families, in row groups so small that some are skipped."""
    with patch.object(part_writer, "ROW_GROUP", 3):
        store = create_lake(tmp_path_factory.mktemp("lakes") / "lake", *TYPES)
        for events in commits:
            add_events(store, events)
    lake = LakeReader(store.path)
    for text in TEXTS:
        asked = Subscription.parse(text, (*TYPES, Event))
        found = lake.read(asked)
        right = sorted(n for events in commits for n, event in enumerate(events) if asked.matches(event))
        assert positions(found) == right, text
        assert found.count() == len(right), text


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Kiln", "Heated", "Furnace where level > 0", "TunnelKiln has time", "Heated & Kiln"])
def test_columns_order_types_and_values_are_those_of_spark(spark: SparkSession, tmp_path: Path, text: str) -> None:
    held = [timedelta(microseconds=-1), None, timedelta(days=400)]
    events: list[Event] = [
        cls(time=at, level=level, heat=1.5, mode=Mode.FAST, held=each, small=200)
        for cls in (Kiln, TunnelKiln)
        for at in (DAYS[0], None, DAYS[3])
        for level, each in zip((2**63 - 1, None, -(2**63)), held, strict=True)
    ]
    store = create_lake(tmp_path / "lake", *TYPES)
    add_events(store, [*events, Furnace(level=3), Furnace(time=DAYS[5], level=-3)])
    for subtypes in (False, True):
        there = Lake(spark, store.path).read(text, subtypes=subtypes).toArrow()
        here = LakeReader(store.path).read(text, subtypes=subtypes).to_arrow()
        assert here.schema.names == there.schema.names
        assert [str(each) for each in here.schema.types] == [str(each) for each in there.schema.types]
        assert sorted(map(repr, here.to_pylist())) == sorted(map(repr, there.cast(here.schema).to_pylist()))


class Counted(Kind): ...


class Numbered(Event, Counted):
    source: Maybe[UInt8] = None  # type: ignore[assignment]


def test_a_source_that_is_a_number_is_shown_with_the_attributes_of_subtypes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As by Spark; without subtypes the column is that of every event, a text, which these events do not have."""
    store = create_lake(tmp_path / "lake", Counted, Numbered)
    add_events(store, [Numbered(source=11)])
    for subtypes, source in ((False, None), (True, 11)):
        there = Lake(spark, store.path).read(Counted, subtypes=subtypes).select("source").toArrow().to_pylist()
        here = LakeReader(store.path).read(Counted, subtypes=subtypes, columns=["source"]).to_arrow().to_pylist()
        assert here == there == [{"source": source}]


def old_and_new() -> tuple[Any, Any]:
    """A type before and after an attribute was renamed and another one added."""

    class Old(Event, name="Crane"):
        __qualname__ = "Crane"
        load: Maybe[float] = None

    class New(Event, name="Crane"):
        __qualname__ = "Crane"
        weight: Annotated[Maybe[float], Renamed("load")] = None
        wind: Maybe[float] = None

    return Old, New


def test_old_files_have_present_names_and_null_for_new_attributes(tmp_path: Path) -> None:
    old, new = old_and_new()
    store = create_lake(tmp_path / "lake", old)
    add_events(store, [old(load=1.0), old(load=9.0), old()])
    LakeReader(store.path).register(new)
    add_events(store, [new(weight=7.0, wind=3.0), new(wind=1.0)])
    lake = LakeReader(store.path)
    found = lake.read("Crane where weight > 5.0", columns=["weight", "wind"]).to_arrow()
    assert found.to_pylist() == [{"weight": 9.0, "wind": None}, {"weight": 7.0, "wind": 3.0}]
    assert lake.read("Crane has wind").count() == lake.read("Crane has wind").to_arrow().num_rows == 2
    assert lake.read("Crane lacks wind where weight < 5.0").count() == 1
    assert lake.read("Crane", columns=["wind"], version=2).to_arrow().column("wind").null_count == 3


@pytest.mark.slow
def test_a_recording_ingested_by_spark_and_compacted_is_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    for number in range(3):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(200, first=200 * number)))
    fast = Subscription(Counter, where=this.speed > 40)
    before = LakeReader(lake.path).read(fast)
    right = before.count()
    assert right == lake.read(fast).count() == before.to_arrow().num_rows > 100
    lake.compact()
    after = LakeReader(lake.path)
    assert after.read(fast).count() == after.read(fast).to_arrow().num_rows == right
    assert after.read(fast, version=2).count() < right
    assert before.to_arrow().num_rows == right  # at its version


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> LakeReader:
    store = create_lake(tmp_path / "lake", *ALL)
    for day in range(4):
        add_events(store, traffic(100, first=100 * day, start=MORNING + timedelta(days=day)))
    return LakeReader(store.path)


def test_types_and_attributes_are_counted_without_opening_a_file(lake: LakeReader) -> None:
    with patch.object(scan, "open_file", side_effect=AssertionError):
        assert lake.read(Streetside).count() == 400
        assert lake.read(Radar).count() == 80
        assert lake.read(Counter, has="speed", lacks="place").count() > 0
        assert lake.read(Counter, exact=True).count() == 240
        assert lake.read(Counter, where=this.time >= MORNING + timedelta(days=1, hours=-6)).count() == 240


def test_only_files_that_can_match_are_opened(lake: LakeReader) -> None:
    """Days and types are skipped by the ledger, row groups by their statistics."""
    one_day = lake.read(Counter, where=(this.time >= MORNING + timedelta(days=3)) & (this.speed > 10)).explain()
    assert (one_day.files, one_day.lake_files) == (1, 8)
    too_fast = lake.read(Counter, where=this.speed > 1000).explain()
    assert (too_fast.files, too_fast.row_groups_read) == (4, 0)
    text = str(lake.read("Counter has place where speed > 30").explain())
    assert "contents: speed > 30.0" in text
    assert "opened: 4 files of 8" in text


def test_results_for_other_tools(lake: LakeReader) -> None:
    found = lake.read(Radar, where=this.speed > 30, columns=["speed", "_type", "_day"])
    assert found.columns == found.schema.names == ["speed", "_type", "_day"]
    assert found.schema.field("_day").type == pa.date32()
    table = found.to_arrow()
    assert set(table.column("_day").to_pylist()) == {date(2026, 5, day) for day in (1, 2, 3, 4)}
    assert found.to_pandas()["speed"].min() > 30
    assert found.to_duckdb().filter("speed > 60").fetchall() == [
        row for row in zip(*(column.to_pylist() for column in table.columns), strict=True) if row[0] > 60
    ]
    assert sum(batch.num_rows for batch in found.batches()) == table.num_rows == found.count()


def test_polars_frames(lake: LakeReader) -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    assert lake.read(Radar).to_polars().height == 80


def test_figures_and_checks_need_no_spark(lake: LakeReader) -> None:
    assert [(each.table, each.rows) for each in lake.stats()] == [("Counter", 320), ("Gate", 80)]
    assert lake.check() == []
    assert set(lake.types) == {"Event", "Streetside", "Counter", "Radar", "Gate"}
    assert repr(lake).startswith("<LakeReader")
    assert repr(lake.read(Gate)).startswith("<LocalEvents Gate of")


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_versions_and_times(spark: SparkSession, lake: LakeReader) -> None:
    """Both engines read the lake as it was after a commit, or at a time."""
    times = [datetime.fromtimestamp(lake.store.ledger.commits(n - 1, n)[0].at_us / 1e6, UTC) for n in (1, 2, 3, 4, 5)]
    assert times == sorted(times)
    slow = Lake(spark, lake.path)
    for version, expected in ((1, 0), (2, 80), (3, 160), (5, 320)):
        assert lake.read(Counter, version=version).count() == expected
        assert slow.read(Counter, version=version).count() == expected
    later = times[2] + timedelta(microseconds=1)
    assert lake.read(Counter, as_of=later).version == slow._state_of(as_of=later).version
    assert slow.read(Counter, as_of=times[-1] + timedelta(days=1)).count() == 320
    assert lake.read(Counter, as_of=times[-1] + timedelta(days=1)).count() == 320


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"version": 99}, "there is no version 99; the last one is 5"),
        ({"version": 0}, "there is no version 0"),
        ({"as_of": datetime(2001, 1, 1, tzinfo=UTC)}, "no version at that time; the first commit was made later"),
        ({"as_of": datetime(2001, 1, 1)}, "no time zone"),
        ({"version": 1, "as_of": MORNING}, "give one of them"),
    ],
)
def test_versions_that_do_not_exist_are_refused(lake: LakeReader, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(LakeError, match=message):
        lake.read(Counter, **asked)


@pytest.mark.slow
def test_a_version_whose_files_were_cleaned_is_refused(spark: SparkSession, lake: LakeReader) -> None:
    here = Lake(spark, lake.path)
    add_events(lake.store, traffic(50, first=7))
    here.compact()
    old = lake.read(Counter, version=2)
    here.clean(0)
    for read in (old.to_arrow, lambda: here.read(Counter, version=2)):
        with pytest.raises(LakeError, match="version 2 cannot be read any more") as caught:
            read()
        assert not isinstance(caught.value, LakeDamaged)
    assert lake.read(Counter).to_arrow().num_rows == here.read(Counter).count()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_wrong_questions_are_refused(lake: LakeReader, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no column 'sped'"):
        lake.read(Counter, columns=["sped"])
    with pytest.raises(LakeError, match="what= is a whole subscription"):
        lake.read("Counter", has="speed")
    with pytest.raises(NotRegistered):
        lake.read(Kiln)
    with pytest.raises(LakeError, match="is not a lake"):
        LakeReader(tmp_path)
    with pytest.raises(LakeError, match="neither a local folder"):
        LakeReader("s3a://city/lake")
    assert lake.read(all_of(Radar, Streetside)).count() == 80
    assert lake.read(Gate, where=this.open == True).count() == 40  # noqa: E712


def test_missing_and_damaged_files_are_noticed(lake: LakeReader) -> None:
    first, second, *_ = lake.store.file_paths(lake.state().table("Counter"))
    content = bytearray(Path(second).read_bytes())
    groups = pq.read_metadata(second).row_group(0)
    (lane,) = [each for n in range(groups.num_columns) if (each := groups.column(n)).path_in_schema == "lane"]
    content[(lane.dictionary_page_offset or lane.data_page_offset) + lane.total_compressed_size - 2] ^= 0x10
    Path(second).write_bytes(content)
    with pytest.raises(LakeDamaged, match=r"cannot be read|another content"):
        lake.read(Counter).to_arrow()
    Path(first).unlink()
    with pytest.raises(LakeDamaged, match="restore it from a backup"):
        lake.read(Counter).to_arrow()


# -- lean --------------------------------------------------------------------------------------------------------------

HEAVY = ("pyspark", "py4j", "pandas", "polars", "duckdb")


@pytest.mark.parametrize("text", ["Counter", "Counter has speed where speed > 30 and time >= @2026-05-02T00:00:00Z"])
def test_neither_the_command_nor_the_reader_imports_what_it_does_not_need(lake: LakeReader, text: str) -> None:
    count = lake.read(text).count()
    program = f"""
import sys
from click.testing import CliRunner
import genus.lake
from genus.cli import genus as command
done = CliRunner().invoke(command, ["lake", "read", {lake.path!r}, {text!r}, "--count"])
assert (done.exit_code, done.output) == (0, "{count}\\n"), done.output
genus.lake.LakeReader({lake.path!r}).read({text!r}).to_arrow()
found = [name for name in {HEAVY!r} if name in sys.modules]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_counting_by_the_ledger_does_not_import_pyarrow(lake: LakeReader) -> None:
    program = f"""
import sys
from genus.lake import LakeReader
assert LakeReader({lake.path!r}).read("Counter has speed").count() > 0
assert "pyarrow" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_names_that_need_spark_say_which_extra_is_missing(lake: LakeReader) -> None:
    program = f"""
import sys
sys.modules["pyspark"] = None
import genus.lake
assert genus.lake.LakeReader({lake.path!r}).read("Gate").count() == 80
try:
    genus.lake.Lake
except ImportError as problem:
    assert str(problem).startswith("genus.lake.Lake needs pyspark: pip install "), problem
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# -- zones -------------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(PREDICATES),
    st.lists(st.none() | st.sampled_from(LIMITS), min_size=1),
    st.lists(st.none() | st.sampled_from(FLOATS), min_size=1),
)
def test_outcomes_of_a_zone_contain_those_of_its_rows(
    text: str, levels: list[int | None], heats: list[float | None]
) -> None:
    where = Subscription.parse(f"Kiln where {text}", TYPES).where
    assert where is not None
    events = [Kiln(level=level, heat=heat) for level in levels for heat in heats]
    known = {"level": _bounds(levels), "heat": _bounds(heats)}
    possible = outcomes(where, known)
    for event in events:
        is_true = Subscription(Kiln, where=where).matches(event)
        is_false = Subscription(Kiln, where=~where).matches(event)
        assert possible & (TRUE if is_true else FALSE if is_false else UNKNOWN), event


def _bounds(values: list[Any]) -> Values:
    """What the statistics of a file say of some values; they have no bounds that are not numbers."""
    there = [value for value in values if value is not None]
    numbers = [value for value in there if value == value]
    if not there:
        return Values() if len(values) == 0 else ABSENT
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    return Values(low, high, True, None in values)


def test_nothing_is_excluded_where_nothing_is_known() -> None:
    where = Subscription.parse("Kiln where level > 3 and heat < 2.0", TYPES).where
    assert outcomes(where, {}) == EVERY
