"""A lake as a source: its ledger in tables, its followers, and its events when they are asked for. Without Spark."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genus import Event, Maybe, Subscription, this
from genus.errors import LakeError
from genus.lake._tables.commits import Cursor
from genus.lake._tables.store import Store
from genus.model import name_of
from genus.studio._history import History, StoredSource
from genus.studio._lake_source import LAST_COMMITS, LakeSource
from genus.studio._plot import PlotSeries
from genus.studio._source import AskedSource
from genus.studio.types import LakeCommitRow, LakeFollowerRow, LakeTableRow, SourceRow
from tests.lake.stored import add_events, create_lake

pytest.importorskip("pyarrow")
DAY = datetime(2026, 5, 1, tzinfo=UTC)


class Ferry(Event):
    deck: int
    name: Maybe[str] = None


class FastFerry(Ferry):
    speed: Maybe[float] = None


class Crane(Event):
    load: float


class Hands:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "harbour"


@pytest.fixture
def store(path: Path) -> Store:
    made = create_lake(path, Ferry, FastFerry, Crane)
    add_events(made, [Ferry(deck=deck, time=DAY + timedelta(hours=deck)) for deck in range(30)], DAY)
    add_events(made, [FastFerry(deck=1, speed=40.0, time=DAY), Crane(load=2.5, time=DAY)], DAY)
    return made


class Seen:
    """A source that is looked at by the test, and its rows."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.source = LakeSource(path, name="l", threaded=False, **options)
        self.source.look()

    def rows(self, table: str) -> Mapping[str, Any]:
        self.source.look()
        return self.source.rows((table,))[table]

    def row(self) -> SourceRow:
        found = self.rows("sources")["l"]
        assert isinstance(found, SourceRow)
        return found

    def followers(self) -> dict[str, LakeFollowerRow]:
        return {row.name: row for row in self.rows("lake_followers").values()}


def deliver(lake: Store, path: Path, holds: str = "inboxes", **notes: str) -> Store:
    """Make the store of a follower that has processed the present version."""
    follower = Store(path)
    follower.claim(lake, holds, **notes)
    state = follower.state()
    follower.commit(msgspec.structs.replace(follower.begin("deliver"), after=state.cursor, upto=lake.state().now))
    return follower


def test_tables_and_commits_are_those_of_the_ledger(path: Path, store: Store) -> None:
    seen = Seen(path)
    assert isinstance(seen.source, AskedSource)
    ferries = seen.rows("lake_tables")["l|Ferry"]
    assert isinstance(ferries, LakeTableRow)
    assert (ferries.events, ferries.types) == (31, ("FastFerry", "Ferry"))
    assert (ferries.first_ms, ferries.last_ms) == (
        DAY.timestamp() * 1000,
        (DAY + timedelta(hours=29)).timestamp() * 1000,
    )
    assert ferries.files == 3
    assert ferries.bytes > 0
    assert set(seen.rows("lake_tables")) == {"l|Ferry", "l|Crane"}
    commits = list(seen.rows("lake_commits").values())
    assert all(isinstance(commit, LakeCommitRow) for commit in commits)
    assert [(commit.version, commit.what, commit.events) for commit in commits] == [
        (3, "ingest", 2),
        (2, "ingest", 30),
        (1, "create", 0),
    ]
    assert commits[0].note == "Crane: 1 row; Ferry: 1 row"
    row = seen.row()
    assert (row.kind, row.state, row.note, row.events, row.lost, row.has_events) == ("lake", "live", "", 32, 0, True)
    assert row.time_ms == commits[0].at_ms
    assert seen.source.counts() == {"Ferry": 30, "FastFerry": 1, "Crane": 1}


def test_a_day_is_plotted_and_its_events_are_asked_for(path: Path, store: Store) -> None:
    """The last one that has events, else those of the range; also events without a time, and of types below."""
    add_events(store, [Ferry(deck=99)], DAY + timedelta(days=1, hours=7))
    seen, asked = Seen(path), PlotSeries("Ferry.deck by name", (Ferry,), "deck", None, "name")
    assert isinstance(seen.source, StoredSource)

    def plotted(*span_ms: float | None) -> Any:
        return History().ask(seen.source, [asked], span_ms, 1000, 30.0)["series"][asked.text]["lines"][""]  # type: ignore[arg-type]

    day_ms = DAY.timestamp() * 1000
    assert plotted(None, None)[1] == [24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 99.0]
    assert sorted(plotted(day_ms, day_ms + 1000)[1]) == [0.0, 1.0, 1.0], "with the next point"
    rows, total = seen.source.events_between(
        Subscription(Ferry, where=this.deck > 2), day_ms, day_ms + 4 * 3_600_000, 1
    )
    assert ([row["deck"] for row in rows], total) == ([3], 2)


def test_the_first_and_last_events_are_shown_with_their_times(path: Path, store: Store) -> None:
    seen = Seen(path)

    def shown() -> tuple[float, float]:
        row = seen.rows("lake_tables")["l|Crane"]
        return row.first_ms / 1000 - DAY.timestamp(), row.last_ms / 1000 - DAY.timestamp()

    assert shown() == (0.0, 0.0)
    add_events(store, [Crane(load=1.0, time=DAY + timedelta(seconds=90.25))], DAY)
    assert shown() == (0.0, 90.25)
    add_events(store, [Crane(load=1.0, time=DAY - timedelta(days=3, seconds=5))], DAY)
    add_events(store, [Crane(load=1.0)], DAY + timedelta(hours=7))
    assert shown() == (-3 * 86400 - 5, 7 * 3600), "an event without a time has the one of its recording"


@pytest.mark.parametrize("why", ["mixed", "too many", "damaged"])
def test_where_the_times_are_not_known_whole_days_are_shown(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "mixed":  # the footer does not say when those without a time were recorded
        add_events(store, [Crane(load=1.0), Crane(load=1.0, time=DAY + timedelta(hours=3))], DAY)
    elif why == "too many":
        monkeypatch.setattr("genus.lake._local.MAX_FILES", 0)
    else:
        (file,) = [path / part.folder / part.files[0].name for part in store.state().table("Crane")]
        file.write_bytes(b"no parquet")
    row = Seen(path).rows("lake_tables")["l|Crane"]
    assert (row.first_ms, row.last_ms) == (DAY.timestamp() * 1000, (DAY + timedelta(days=1)).timestamp() * 1000)
    assert Seen(path).row().state == "live"


def test_footers_are_read_once(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from genus.lake._query import scan

    read: list[str] = []
    whole = scan.read_footer

    def count(file: scan.DataFile) -> scan.Footer:
        read.append(file.path)
        return whole(file)

    monkeypatch.setattr(scan, "read_footer", count)
    seen = Seen(path)
    files = sum(len(part.files) for part in store.state().parts.values())
    assert len(read) == files
    add_events(store, [Crane(load=1.0, time=DAY)], DAY)
    seen.source.look()
    assert len(read) == len(set(read)) == files + 1


def test_new_commits_come_and_old_ones_go(path: Path, store: Store) -> None:
    clock = Hands()
    seen = Seen(path, clock=clock)
    seen.row()
    for count in range(LAST_COMMITS):
        add_events(store, [Crane(load=float(count), time=DAY)], DAY)
        if count % 7 == 0:
            seen.source.look()
    clock.now += 10
    assert seen.row().events == 132
    assert seen.row().rate == 10.0
    commits = seen.rows("lake_commits")
    assert [row.version for row in commits.values()] == list(range(103, 3, -1))


def test_without_a_new_commit_little_is_read(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(path)
    for what in ("stats", "type_counts", "history"):
        monkeypatch.setattr(f"genus.lake.LakeReader.{what}", lambda *_: pytest.fail("nothing has changed"))
    seen.source.look()
    assert seen.row().state == "live"


def test_rows_read_nothing(path: Path, store: Store) -> None:
    seen = Seen(path)
    shutil.rmtree(path)
    assert seen.source.rows(("lake_tables",))["lake_tables"]["l|Ferry"] is not None
    row = seen.source.rows(("sources",))["sources"]["l"]
    assert isinstance(row, SourceRow)
    assert row.state == "live"


def test_followers_are_found_in_the_folder_beside_it_and_elsewhere(path: Path, store: Store, tmp_path: Path) -> None:
    deliver(store, path / "_streams" / "landing-1a2b" / "keep", "function", subscription="Ferry")
    deliver(store, tmp_path / "inboxes")
    deliver(store, tmp_path / "far" / "away" / "minutes", "derived", analysis="Windows(5 min)", subscription="Ferry")
    create_lake(tmp_path / "other", Crane)
    deliver(Store(tmp_path / "other"), tmp_path / "others-inboxes")
    (tmp_path / "not a store[").mkdir()
    (tmp_path / "not a store[" / "_log").mkdir()
    add_events(store, [Crane(load=1.0, time=DAY)], DAY)
    seen = Seen(path, followers=[tmp_path / "far" / "away" / "minutes", tmp_path / "nothing"])
    found = seen.followers()
    assert {(row.name, row.kind, row.version, row.behind) for row in found.values()} == {
        ("_streams/landing-1a2b/keep", "stream", 3, 1),
        ("inboxes", "inbox", 3, 1),
        ("far/away/minutes", "derived", 3, 1),
    }
    assert found["far/away/minutes"].note == "Windows(5 min) of Ferry"
    deliver(store, tmp_path / "inboxes")
    assert (seen.followers()["inboxes"].version, seen.followers()["inboxes"].behind) == (4, 0)


def test_a_follower_of_a_lake_that_was_restored_says_so(path: Path, store: Store, tmp_path: Path) -> None:
    follower = Store(tmp_path / "inboxes")
    follower.claim(store, "inboxes")
    draft = follower.begin("deliver")
    follower.commit(msgspec.structs.replace(draft, after=Cursor(), upto=Cursor(3, "another commit")))
    assert "before the lake was restored" in Seen(path).followers()["inboxes"].note


def test_recorders_are_shown_with_their_newest_event(path: Path, store: Store) -> None:
    newest = {"/landing/bridge": round(DAY.timestamp() * 1e6)}
    store.commit(msgspec.structs.replace(store.begin("ingest"), newest=newest))
    row = Seen(path).followers()["/landing/bridge"]
    assert (row.kind, row.version) == ("stream", None)
    assert row.note == "ingested up to events recorded at 2026-05-01 00:00:00 UTC"


def test_events_are_found_when_they_are_asked_for(path: Path, store: Store) -> None:
    seen = Seen(path)
    found = seen.source.ask(Subscription(Ferry, where=this.deck >= 28), 10)
    assert found == [
        {"time": DAY + timedelta(hours=28), "deck": 28, "type": "Ferry"},
        {"time": DAY + timedelta(hours=29), "deck": 29, "type": "Ferry"},
    ]
    assert len(seen.source.ask(Subscription(Ferry), 5)) == 5
    assert [row["type"] for row in seen.source.ask(Subscription(Crane), 5)] == ["Crane"]
    (fast,) = seen.source.ask(Subscription(FastFerry), 5)
    assert fast["speed"] == 40.0
    assert "name" not in fast, "what is absent is left out"
    assert seen.source.ask(Subscription(Ferry, where=this.deck > 100), 5) == []
    assert seen.source.ask(Subscription(Event), 0) == []


def test_types_come_from_the_catalog(path: Path) -> None:
    def elsewhere() -> type[Event]:
        class Pilot(Event):
            grade: int

        return Pilot

    create_lake(path, elsewhere())
    seen = Seen(path)
    types = {name_of(cls): cls for cls in seen.source.types()}
    assert set(types) == {"Event", "Pilot"}
    assert seen.source.ask(Subscription(types["Pilot"]), 3) == []
    pilots = [types["Pilot"](grade=grade) for grade in range(3)]
    add_events(Store(path), pilots, DAY)
    assert [
        row["grade"] for row in seen.source.ask(Subscription.parse("Pilot where grade > 0", types.values()), 3)
    ] == [
        1,
        2,
    ]


def test_a_lake_that_is_removed_fails_and_goes_on_when_it_is_back(path: Path, store: Store, tmp_path: Path) -> None:
    seen = Seen(path)
    path.rename(tmp_path / "away")
    assert seen.row().state == "failed"
    assert "removed or replaced" in seen.row().note or "not a lake" in seen.row().note
    assert seen.rows("lake_tables"), "what was known stays"
    with pytest.raises(LakeError, match="not a lake"):
        seen.source.ask(Subscription(Ferry), 3)
    (tmp_path / "away").rename(path)
    assert (seen.row().state, seen.row().note) == ("live", "")


def test_another_lake_in_its_place_is_shown_from_then_on(path: Path, store: Store) -> None:
    seen = Seen(path)
    shutil.rmtree(path)
    other = create_lake(path, Crane)
    for _ in range(4):
        add_events(other, [Crane(load=1.0, time=DAY)], DAY)
    seen.source.look()
    assert seen.row().state == "live"
    assert set(seen.rows("lake_tables")) == {"l|Crane"}
    assert [row.version for row in seen.rows("lake_commits").values()] == [5, 4, 3, 2, 1]


def test_a_damaged_lake_fails_with_the_reason(path: Path, store: Store) -> None:
    seen = Seen(path)
    commit = max((path / "_log").glob("0*[0-9].json"))
    content = commit.read_bytes()
    commit.write_bytes(content.replace(b"ingest", b"digest"))
    assert seen.row().state == "failed"
    assert "restore it from a backup" in seen.row().note
    commit.write_bytes(content)
    assert seen.row().state == "live"
    catalog = (path / "catalog.json").read_text()
    (path / "catalog.json").write_text("{}")
    assert seen.row().state == "failed"
    (path / "catalog.json").write_text(catalog)
    assert seen.row().state == "live"


def test_what_is_no_lake_is_refused_or_says_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no folder"):
        LakeSource(tmp_path / "nothing", name="l")
    with pytest.raises(LakeError, match="without Spark"):
        LakeSource("hdfs://city/lake", name="l")
    (tmp_path / "empty").mkdir()
    assert "not a lake" in Seen(tmp_path / "empty").row().note


def test_a_lake_without_events(path: Path) -> None:
    create_lake(path, Ferry)
    seen = Seen(path)
    assert seen.rows("lake_tables") == {}
    assert (seen.row().events, seen.row().state) == (0, "live")
    assert seen.source.counts() == {}


def test_a_thread_looks(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    looked = threading.Event()
    look = LakeSource.look

    def looking(self: LakeSource) -> None:
        look(self)
        looked.set()

    monkeypatch.setattr(LakeSource, "look", looking)
    source = LakeSource(path, name="l")
    assert looked.wait(20)
    source.close()
    row = source.rows(("sources",))["sources"]["l"]
    assert isinstance(row, SourceRow)
    assert row.events == 32


def test_two_lakes_of_one_name_are_told_apart(path: Path, store: Store, tmp_path: Path) -> None:
    """Studio gives the second one another name, when it may have been read already."""
    shutil.copytree(path, tmp_path / "elsewhere" / path.name)
    first, second = LakeSource(path, name="l", threaded=False), LakeSource(path, name="l", threaded=False)
    second.look()
    second.name = "l (2)"
    assert "lake_tables" not in second.rows(["lake_tables"]), "rows of its old name would be those of the other"
    for each in (first, second):
        each.look()
    tables = [each.rows(["lake_tables", "lake_commits"]) for each in (first, second)]
    for table in ("lake_tables", "lake_commits"):
        assert not tables[0][table].keys() & tables[1][table].keys()
        assert len(tables[0][table]) == len(tables[1][table])
