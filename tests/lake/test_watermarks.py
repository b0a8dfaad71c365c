"""A watermark by recorder: an event that is on time by its own recorder is never overtaken by another's files."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus.errors import SpanError
from genus.lake import DerivedTable, Lake, Windows
from genus.lake._stream.delivery import slowest_recorder
from genus.lake._tables.commits import Commit, fold, recorder_of
from genus.lake._tables.state import LedgerState
from tests.lake.roads import ALL, Counter, traffic, write_recording

LATENESS_US = 5
IDLE_US = 1_000_000
MINUTES = Windows(every=timedelta(minutes=1), by=("lane",), lateness=timedelta(seconds=1))

Recorded = list[tuple[int, int]]
"""Events of a file: the time of recording, and the event's own time."""


@st.composite
def landings(draw: st.DrawFn) -> list[tuple[str, Recorded]]:
    """Files of two or three recorders, each recorder's in order, first one of each, then in any interleaving."""
    files: dict[str, list[Recorded]] = {}
    for recorder in draw(st.sampled_from([("a", "b"), ("a", "b", "c")])):
        delays = st.integers(0, LATENESS_US)
        steps = draw(
            st.lists(st.lists(st.tuples(st.integers(0, 40), delays), min_size=1, max_size=4), min_size=1, max_size=6)
        )
        at, files[recorder] = 0, []
        for step in steps:
            file = []
            for gap, delay in step:
                at += gap
                file.append((at, at - delay))
            files[recorder].append(file)
    first = [(recorder, found[0]) for recorder, found in files.items()]
    order = draw(st.permutations([name for name, found in files.items() for _ in found[1:]]))
    rest = {name: iter(found[1:]) for name, found in files.items()}
    return first + [(name, next(rest[name])) for name in order]


def commit(version: int, recorder: str, file: Recorded) -> Commit:
    newest = max(at for at, _ in file)
    return Commit(id=str(version), kind="ingest", at_us=0, version=version, newest_us=newest, newest={recorder: newest})


@given(landings())
def test_no_event_that_is_on_time_is_overtaken(landed: list[tuple[str, Recorded]]) -> None:
    """However the files of recorders interleave; the state is the same if commits were folded."""
    state, watermark = LedgerState(), -(10**9)
    known = len({recorder for recorder, _ in landed})
    commits = [commit(number, *each) for number, each in enumerate(landed, 1)]
    for number, ((_, file), made) in enumerate(zip(landed, commits, strict=True), 1):
        state = state.after(made, "")
        if number < known:
            continue
        if number > known:
            assert all(time >= watermark for _, time in file)
        slowest = slowest_recorder(state.newest, IDLE_US)
        assert slowest is not None
        watermark = max(watermark, state.newest[slowest] - LATENESS_US)
    assert LedgerState().after(fold(commits), "").newest == state.newest


def test_a_silent_recorder_is_not_waited_for() -> None:
    """One that is behind the newest by more than `idle` does not hold the watermark back."""
    newest = {"a": 5_000, "b": 4_500, "c": 100}
    assert slowest_recorder(newest, 1_000) == "b"
    assert slowest_recorder(newest, 400) == "a"
    assert slowest_recorder(newest, 10_000) == "c"
    assert slowest_recorder({}, 1) is None


@pytest.mark.parametrize(
    ("path", "recorder"),
    [
        ("/landing/bridge-000000000017.genus", "/landing/bridge"),
        ("/landing/bridge-east-000000000017.genus", "/landing/bridge-east"),
        ("s3a://city/landing/a-1.jsonl.gz", "s3a://city/landing/a"),
        ("/landing/site 1/monday.csv", "/landing/site 1"),
        ("/landing/-17.genus", "/landing"),
        ("/landing/17.genus", "/landing"),
    ],
)
def test_a_recorder_is_known_by_folder_and_name(path: str, recorder: str) -> None:
    """Numbered files are of the recorder with their name; others are of one recorder in their folder."""
    assert recorder_of(path) == recorder


@pytest.mark.slow
def test_results_wait_for_the_slower_of_two_recorders(spark: SparkSession, tmp_path: Path) -> None:
    """The files of one land long before those of the other; the results are those of the batch, and none is missing."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    derived = DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter, idle=timedelta(hours=1))
    for number, (name, first) in enumerate((("fast", 0), ("slow", 1), ("fast", 300), ("slow", 301))):
        events = traffic(250, first=first)[::2]
        lake.ingest(write_recording(tmp_path / f"{name}-{first:03}.genus", events))
        if number:  # from then on, the lake knows both
            derived.update()
    assert derived.overtaken == 0
    derived.finish()
    batch = MINUTES.all(lake.read(Counter))
    assert sorted(map(str, derived.read().collect())) == sorted(map(str, batch.collect()))


def test_an_idle_time_is_not_negative(spark: SparkSession, tmp_path: Path) -> None:
    """It is how far a recorder may be behind."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    with pytest.raises(SpanError, match=r"idle is .*, which is negative"):
        DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter, idle=timedelta(seconds=-1))
