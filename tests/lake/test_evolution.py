"""A lake whose attribute was renamed: files of all times are one column, under the name that its catalog has now."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus import Event, Maybe, Renamed, Subscription, Unit, this
from genus.bus import RecordingWriter
from genus.errors import LakeError, SubscriptionError
from genus.lake import Inboxes, Lake, register_data_source

START = datetime(2026, 5, 1, tzinfo=UTC)


def old_types() -> Any:
    class Loop(Event, name="Mast"):
        __qualname__ = "Loop"  # the same class at another time
        lane: int
        speed: Maybe[Annotated[float, Unit("km/h")]] = None
        label: str

    return Loop


def new_types() -> Any:
    class Loop(Event, name="Mast"):
        __qualname__ = "Loop"
        lane: int
        velocity: Maybe[Annotated[float, Unit("km/h"), Renamed("speed")]] = None
        title: Annotated[str, Renamed("label")]

    return Loop


OLD, NEW = old_types(), new_types()
SPEEDS = [None, *map(float, range(0, 100, 10))]


def events(cls: Any, first: int) -> list[Event]:
    names = ("speed", "label") if cls is OLD else ("velocity", "title")
    return [
        cls(time=START + timedelta(hours=first + n), lane=first + n, **{names[0]: speed, names[1]: f"t{first + n}"})
        for n, speed in enumerate(SPEEDS)
    ]


def write(path: Path, found: Sequence[Event]) -> Path:
    with RecordingWriter(path) as recording:
        for at_us, event in enumerate(found):
            recording.write(event, at_us)
    return path


def rows(frame: DataFrame) -> set[tuple[int, float | None, str]]:
    return {(row["lane"], row["velocity"], row["title"]) for row in frame.select("lane", "velocity", "title").collect()}


def expected(*firsts: int, above: float | None = None) -> set[tuple[int, float | None, str]]:
    every = {(first + n, speed, f"t{first + n}") for first in firsts for n, speed in enumerate(SPEEDS)}
    return {row for row in every if above is None or (row[1] is not None and row[1] > above)}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Events before the rename, then the rename, then events of both classes and of other systems."""
    folder = tmp_path_factory.mktemp("renamed")
    made = Lake.create(spark, folder / "lake", OLD)
    made.ingest(write(folder / "before.genus", events(OLD, 0)))
    made.route([("ann", Subscription(OLD, where=this.speed > 50))]).to_inboxes(folder / "inboxes")
    result = made.register(NEW)
    assert dict(result.renamed) == {"Mast.velocity": ("speed",), "Mast.title": ("label",)}
    made.ingest([write(folder / "after.genus", events(NEW, 100)), write(folder / "late.genus", events(OLD, 200))])
    lines = [{"type": "Mast", "lane": 300, "speed": 60.0, "label": "t300"}]
    lines += [{"type": "Mast", "lane": 301, "velocity": 70.0, "title": "t301"}]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "a.csv").write_text("type,lane,speed,label\nMast,302,80.0,t302\n")
    assert [made.ingest(folder / name).dead for name in ("a.jsonl", "a.csv")] == [0, 0]  # files that can be compacted
    return made


OTHERS: set[tuple[int, float | None, str]] = {(300, 60.0, "t300"), (301, 70.0, "t301"), (302, 80.0, "t302")}


@pytest.mark.slow
def test_files_of_all_times_are_one_column(lake: Lake) -> None:
    frame = lake.read(NEW)
    assert [name for name in frame.columns if not name.startswith("_")][5:] == ["lane", "velocity", "title"]
    assert rows(frame) == expected(0, 100, 200) | OTHERS
    assert rows(lake.table("Mast")) == rows(frame)


@pytest.mark.slow
@pytest.mark.parametrize("what", [Subscription(NEW, where=this.velocity > 50), "Mast where velocity > 50"])
def test_predicates_on_the_new_name_find_old_rows_where_files_are_read(lake: Lake, what: Any) -> None:
    frame = lake.read(what)
    assert rows(frame) == expected(0, 100, 200, above=50.0) | OTHERS
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(speed,50.0)" in plan
    assert "IsNotNull(speed)" in plan
    assert rows(lake.read(NEW, lacks="velocity")) == {row for row in expected(0, 100, 200) if row[1] is None}


def test_views_have_the_new_name(lake: Lake) -> None:
    lake.views("renamed_")
    found = lake.spark.sql("select lane from renamed_Mast where velocity = 90 and title like 't1%'").collect()
    assert {row["lane"] for row in found} == {10, 110}


def test_an_older_class_reads_the_columns_of_the_catalog(lake: Lake) -> None:
    assert rows(lake.read(OLD)) == rows(lake.read(NEW))
    assert rows(lake.read(OLD, exact=True)) == rows(lake.read(NEW))
    with pytest.raises(LakeError, match="no attribute 'speed' of Mast; it is 'velocity' there; use that name"):
        lake.read(OLD, where=this.speed > 50)


def test_a_former_name_in_a_text_is_told_the_present_one(lake: Lake) -> None:
    with pytest.raises(SubscriptionError, match="'speed'; it was renamed to 'velocity'"):
        lake.route({"ann": "Mast where speed > 50"})._plan()


def test_inboxes_have_matches_of_all_times(lake: Lake, tmp_path: Path) -> None:
    inboxes = Path(lake.path).parent / "inboxes"
    lake.route([("ann", Subscription(NEW, where=this.velocity > 50))]).to_inboxes(inboxes)
    found = Inboxes(lake.spark, inboxes)
    assert rows(found.read("ann")) == expected(0, 100, 200, above=50.0) | OTHERS
    found.compact()
    assert rows(found.read("ann")) == expected(0, 100, 200, above=50.0) | OTHERS


@pytest.mark.slow
def test_compaction_keeps_every_row(lake: Lake) -> None:
    before = rows(lake.read(NEW))
    assert lake.compact().files_after
    assert rows(lake.read(NEW)) == before
    assert rows(lake.read(NEW, where=this.velocity > 50)) == expected(0, 100, 200, above=50.0) | OTHERS


@pytest.mark.slow
def test_files_outside_a_lake_are_read_by_their_former_names(lake: Lake) -> None:
    register_data_source(lake.spark)
    reader = lake.spark.read.format("genus").option("catalog", lake.path).option("type", "Mast")
    assert rows(reader.load(str(Path(lake.path).parent / "before.genus"))) == expected(0)


def test_a_lake_with_an_older_catalog_keeps_its_names(spark: SparkSession, tmp_path: Path) -> None:
    made = Lake.create(spark, tmp_path / "lake", OLD)
    made.ingest(write(tmp_path / "a.genus", events(OLD, 0)))
    assert {row["speed"] for row in made.read(NEW).select("speed").collect()} == set(SPEEDS)
    with pytest.raises(LakeError, match="no attribute 'velocity' of Mast; it is 'speed' there"):
        made.read(NEW, where=this.velocity > 50)
    assert made.ingest(write(tmp_path / "b.genus", events(NEW, 100))).dead == len(SPEEDS)  # said, not lost
    made.register(NEW)
    made.ingest(tmp_path / "b.genus", retry=True)
    assert rows(made.read(NEW)) == expected(0, 100)
