"""Speeds from a lake: the passages of the roadside algorithm, the same in batch and as a stream."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from genus.bus import RecordingWriter
from genus.errors import LakeError
from genus.lake import DerivedTable, Lake
from genus.model._types import micros_of_time
from genus_traffic.accuracy import accuracy_of
from genus_traffic.edges import read_edges, read_truth_file
from genus_traffic.passages.finder import SitePassage, find_passages, to_loop_edge
from genus_traffic.speeds import EDGES, find_in_table, passages_of, read_passages, speeds
from genus_traffic.types import TYPES, Category, Cleared, ConfidentLoop, Edge, Loop

SUMO = Path("/work/shared/data/sumo_road")
LATENESS = timedelta(seconds=20)
FOREVER = 1 << 62
START = datetime(2026, 5, 4, 12, tzinfo=UTC)


def vehicle(site: str, lane: int, at: float, speed: float, category: Category, loop: type[Loop] = Loop) -> list[Edge]:
    """The four events of a car that drives evenly."""
    on, off, lower_on, lower_off = (START + timedelta(seconds=at + metres / speed) for metres in (0.0, 4.6, 5.0, 9.6))
    return [
        loop(lane=lane, time=on, source=site, place=f"{site} road", category=category),
        Cleared(lane=lane, time=off, source=site, place=f"{site} road"),
        Loop(lane=lane, time=lower_on, source=site),
        Cleared(lane=lane, time=lower_off, source=site),
    ]


def recorded(folder: Path, events: Sequence[Edge], files: int, disorder: timedelta) -> list[Path]:
    """Recordings of events that came out of order, none of them late."""
    chance = random.Random(3)
    arrivals = [(_at(event) + chance.randrange(1 + disorder // timedelta(microseconds=1)), event) for event in events]
    arrivals.sort(key=lambda arrival: arrival[0])
    size = -(-len(arrivals) // files)
    paths = []
    for start in range(0, len(arrivals), size):
        paths.append(folder / f"{start:08}.genus")
        with RecordingWriter(paths[-1]) as writer:
            for at_us, event in arrivals[start : start + size]:
                writer.write(event, at_us)
    return paths


def _at(event: Edge) -> int:
    assert event.time is not None
    return micros_of_time(event.time)


def at_once(events: Iterable[Edge]) -> list[SitePassage]:
    """What the algorithm finds in all events, without a lake."""
    lanes: dict[tuple[str, int], list[Edge]] = defaultdict(list)
    for event in events:
        lanes[str(event.source), event.lane].append(event)
    return [
        SitePassage(*lane, found) for lane, edges in lanes.items() for found in find_passages(map(to_loop_edge, edges))
    ]


def in_order(found: Iterable[SitePassage]) -> list[str]:
    return sorted(map(repr, found))


def rows(frame: DataFrame) -> list[SitePassage]:
    return list(read_passages(frame.toArrow()))


def streamed(lake: Lake, paths: Iterable[Path], derived: DerivedTable) -> list[SitePassage]:
    """The passages after one ingest and one step per recording."""
    for path in paths:
        lake.ingest(path)
        derived.update()
    derived.finish()
    return rows(derived.read())


@pytest.mark.slow
def test_batch_and_stream_give_what_the_algorithm_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Over sites and lanes, out of order, with a new generation of sensors half way."""
    events: list[Edge] = []
    for number in range(60):
        kind, loop = (Category.CAR, Category.TRUCK)[number % 2], (Loop, ConfidentLoop)[number > 30]
        events += vehicle(("mill", "harbour")[number % 2], number % 3, number, 5.0 + number % 20, kind, loop)
    del events[17], events[101]  # missed edges
    lake = Lake.create(spark, tmp_path / "lake", *TYPES)
    paths = recorded(tmp_path, events, files=2, disorder=timedelta(seconds=5))
    stream = streamed(lake, paths, DerivedTable(lake, tmp_path / "passages", speeds(LATENESS), *EDGES))
    expected = in_order(at_once(events))
    assert in_order(stream) == expected
    assert in_order(rows(passages_of(lake, LATENESS))) == expected
    assert sum(each.passage.speed is not None for each in stream) == 58
    assert {each.passage.category for each in stream} == {"car", "truck"}


def test_what_waits_is_found_again_with_later_edges() -> None:
    """The step of the walk by itself: rows that wait, in front of later ones, give what all rows at once give."""
    events = [event for number in range(40) for event in vehicle("mill", 0, 1.3 * number, 4.0, Category.CAR)]
    del events[30]
    edges = pa.table(
        {
            "_at_us": [_at(event) for event in events],
            "_type": [type(event).__name__ for event in events],
            "place": [event.place for event in events],
            "category": [
                event.category.value if isinstance(event, Loop) and event.category else None for event in events
            ],
        }
    ).sort_by("_at_us")
    whole = find_in_table(edges, FOREVER)
    assert whole.waiting == []
    for cut in range(0, edges.num_rows, 7):
        limit_us = edges.column("_at_us")[cut].as_py()
        first = find_in_table(edges.slice(0, cut), limit_us)
        rest = pa.concat_tables([edges.take(pa.array(first.waiting, pa.int64())), edges.slice(cut)])
        both = pa.concat_tables([first.results, find_in_table(rest, FOREVER).results])
        assert sorted(map(repr, both.to_pylist())) == sorted(map(repr, whole.results.to_pylist()))


def test_a_frame_without_categories_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Events read as edges have none: ask for leading and trailing ones."""
    lake = Lake.create(spark, tmp_path / "lake", *TYPES)
    lake.ingest(recorded(tmp_path, vehicle("mill", 1, 0, 10.0, Category.CAR), 1, timedelta(0))[0])
    with pytest.raises(LakeError, match="no column category"):
        speeds().all(lake.read(Edge))


@pytest.mark.slow
@pytest.mark.skipif(not SUMO.exists(), reason="needs the simulated road in /work/shared/data/sumo_road")
def test_an_hour_of_a_simulated_road_through_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """56,169 edges in six increments, out of order: stream, batch and the algorithm agree, and are right."""
    events = read_edges(SUMO / "hw_loop_edges.parquet")
    lake = Lake.create(spark, tmp_path / "lake", *TYPES)
    paths = recorded(tmp_path, events, files=6, disorder=timedelta(seconds=15))
    stream = streamed(lake, paths, DerivedTable(lake, tmp_path / "passages", speeds(LATENESS), *EDGES))
    assert in_order(stream) == in_order(rows(passages_of(lake, LATENESS))) == in_order(at_once(events))
    accuracy = accuracy_of(stream, read_truth_file(SUMO / "hw_passages_truth.parquet"), 0)
    assert accuracy.share >= 0.999
    assert accuracy.invented == 0
