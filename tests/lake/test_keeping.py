"""Deletion and expiry remove exactly the events that they should, also for followers that are behind."""

import json
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from genus import Event, Kind, Maybe, Subscription, this
from genus.cli._lake import lake as commands
from genus.errors import LakeDamaged, LakeError, NotRegistered, SpanError, SubscriptionError
from genus.lake import DerivedTable, Inboxes, Lake, LakeReader, Windows
from genus.lake._query import removal
from genus.lake._query.removal import policy_rules
from genus.lake._tables.commits import Part
from genus.lake._tables.lake_tables import SparkStore, with_first_names
from tests.lake.roads import write_recording

SECRET = "Ann Withheld"
START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Doorway(Kind): ...


class DoorVisit(Event, Doorway):
    person: Maybe[str] = None
    door: int
    stay: Maybe[timedelta] = None


class NightVisit(DoorVisit):
    lamp: Maybe[bool] = None


class DoorParcel(Event, Doorway):
    receiver: str


class DoorBell(Event):
    rings: int


TYPES = (Doorway, DoorVisit, NightVisit, DoorParcel)


def visits(count: int, person: str = "Bob", first: int = 0, day: int = 0) -> list[Event]:
    """Events of one day: visits of a person, some at night, and parcels for somebody else."""
    return [
        _event(number, person, START + day * DAY + timedelta(minutes=number)) for number in range(first, first + count)
    ]


def _event(number: int, person: str, time: datetime) -> Event:
    match number % 4:
        case 0:
            return DoorParcel(receiver=f"flat {number}", time=time)
        case 1:
            return NightVisit(person=person, door=number, lamp=number % 3 == 0, time=time)
        case 2:
            return DoorVisit(door=number, time=time, stay=timedelta(seconds=number))
    return DoorVisit(person=person, door=number, time=time)


OF_ANN = Subscription(DoorVisit, where=this.person == SECRET)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.create(spark, tmp_path / "lake", *TYPES)


@pytest.fixture
def put(lake: Lake, tmp_path: Path) -> Callable[[list[Event]], list[Event]]:
    """Ingest events from a file of their own."""
    numbers = iter(range(1000))

    def ingest(events: list[Event]) -> list[Event]:
        lake.ingest(write_recording(tmp_path / f"{next(numbers)}.genus", events))
        return events

    return ingest


def contents(lake: Lake) -> Tally[Any]:
    """The events of a lake, by what tells them apart."""
    rows = [row for name in ("DoorVisit", "DoorParcel") for row in lake.table(name).toArrow().to_pylist()]
    return Tally((row["_type"], row.get("person"), row.get("door"), row.get("stay"), row["time"]) for row in rows)


def expected(events: Iterable[Event]) -> Tally[Any]:
    return Tally(
        (type(e).__name__, *(getattr(e, name, None) for name in ("person", "door", "stay")), e.time) for e in events
    )


def without(events: Iterable[Event], *wanted: Subscription) -> list[Event]:
    return [event for event in events if not any(each.matches(event) for each in wanted)]


def files_with(folder: Path, secret: str) -> list[Path]:
    """The files that have a text, as such or in a column of a table."""
    found = []
    for path in filter(Path.is_file, folder.rglob("*")):
        plain = secret.encode() in path.read_bytes()
        if plain or (path.suffix == ".parquet" and secret in str(pq.read_table(path, partitioning=None).to_pydict())):
            found.append(path)
    return found


def counted_shapes(lake: Lake, part: Part) -> dict[int, int]:
    tables = [pq.read_table(path, columns=["_shape"], partitioning=None) for path in lake.store.file_paths([part])]
    return dict(Tally(pa.concat_tables(tables).column(0).to_pylist()))


Put = Callable[[list[Event]], list[Event]]


def test_a_deletion_removes_what_matches_and_leaves_no_copy(lake: Lake, put: Put, tmp_path: Path) -> None:
    """The rest stays as it is; after `clean(0)` no file has the deleted values; only folders with matches change."""
    events = [*put(visits(40)), *put(visits(12, SECRET, day=1)), *put(visits(20, day=2))]
    before = lake.state()
    assert files_with(tmp_path / "lake", SECRET)
    counted = lake.delete(OF_ANN, dry_run=True)
    assert (counted.rows, counted.rewritten, counted.dropped, counted.version) == (6, 1, 0, before.version)
    done = lake.delete(OF_ANN)
    assert (done.rows, done.rewritten, done.dropped, done.version) == (6, 1, 0, before.version + 1)
    assert contents(lake) == expected(without(events, OF_ANN))
    kept = set(before.parts) & set(lake.state().parts)
    assert len(kept) == len(before.parts) - 1
    assert all(counted_shapes(lake, part) == part.shapes for part in lake.state().table("DoorVisit"))
    assert lake.clean(0) == 1
    assert not files_with(tmp_path / "lake", SECRET)
    assert contents(lake) == expected(without(events, OF_ANN))
    assert not lake.check()
    assert LakeReader(lake.path).read("DoorVisit").count() == len(without(events, OF_ANN, Subscription(DoorParcel)))
    assert lake.delete(OF_ANN).rows == 0
    assert lake.version == done.version  # nothing to do, no commit


@pytest.mark.slow
def test_a_deletion_leaves_nothing_in_iceberg_tables(lake: Lake, put: Put) -> None:
    """Their metadata have bounds of all files that they ever had; `clean` makes them again, and they can be read."""

    def bounds() -> list[bytes]:
        table = StaticTable.from_metadata(lake.iceberg_path(DoorVisit))
        manifests = [each for snapshot in table.snapshots() for each in snapshot.manifests(table.io)]
        entries = [each for one in manifests for each in one.fetch_manifest_entry(table.io, discard_deleted=False)]
        return [value for each in entries for value in (each.data_file.lower_bounds or {}).values()]

    put(visits(12, SECRET))
    lake.iceberg()
    assert SECRET.encode() in bounds()
    lake.delete(OF_ANN)
    lake.iceberg()
    assert SECRET.encode() in bounds()
    lake.clean(0)
    assert SECRET.encode() not in bounds()
    assert StaticTable.from_metadata(lake.iceberg_path(DoorVisit)).scan().to_arrow().num_rows == 3
    path = lake.iceberg_path(DoorVisit)
    lake.clean(0)
    assert lake.iceberg_path(DoorVisit) == path  # nothing was removed


def test_deleted_events_do_not_come_back(lake: Lake, put: Put, tmp_path: Path) -> None:
    """A file whose events were deleted stays known."""
    events = put(visits(8, SECRET))
    lake.delete("DoorVisit")
    assert lake.ingest(tmp_path / "0.genus").skipped == 1
    assert contents(lake) == expected(without(events, Subscription(DoorVisit)))


def test_folders_are_dropped_or_passed_over_without_being_read(
    lake: Lake, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What type and attributes decide is known by the rows of each shape; no event is read."""
    put(visits(8))
    put([DoorParcel(receiver="a", time=START)])
    counted: list[Part] = []

    def count(self: removal._Attempt, parts: list[Part]) -> dict[str, dict[int, int]]:
        counted.extend(parts)
        return {}

    monkeypatch.setattr(removal._Attempt, "_count", count)
    done = lake.delete(Subscription(DoorParcel, has="receiver"))
    assert (done.rows, done.dropped, done.rewritten, done.folders) == (3, 2, 0, 3)
    assert not counted
    assert lake.delete("DoorVisit lacks time").rows == 0
    assert lake.delete("DoorVisit where time > @2026-06-01T00:00:00Z").rows == 0
    assert not counted


@pytest.mark.slow
def test_one_deletion_over_all_families_of_a_kind(lake: Lake, put: Put) -> None:
    """A subscription to a kind is one commit."""
    events = put(visits(12))
    late = Subscription(Doorway, where=this.time >= START + timedelta(minutes=6))
    version = lake.version
    assert lake.delete(late).rows == 6
    assert lake.version == version + 1
    assert contents(lake) == expected(without(events, late))


@pytest.mark.slow
@pytest.mark.parametrize("compact", [pytest.param(False, marks=pytest.mark.slow), True])
def test_followers_that_are_behind_do_not_get_deleted_events(
    lake: Lake, put: Put, tmp_path: Path, compact: bool
) -> None:
    """Also where the events were compacted before the deletion, and where a second deletion follows."""
    route = lake.route({"desk": [Subscription(Doorway)]})
    events = put(visits(8))
    route.to_inboxes(tmp_path / "inboxes")
    events += [*put(visits(8, SECRET, first=8)), *put(visits(8, first=16))]
    if compact:
        lake.compact()
    lake.delete(OF_ANN)
    eighteenth = Subscription(Doorway, where=this.time == START + timedelta(minutes=18))
    lake.delete(eighteenth)
    assert route.to_inboxes(tmp_path / "inboxes").rows == 11
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    assert Tally(row.time for row in inboxes.read().collect()) == Tally(
        event.time.replace(tzinfo=None) for event in without(events, OF_ANN, eighteenth) if event.time
    )
    assert contents(lake) == expected(without(events, OF_ANN, eighteenth))
    lake.clean(0)
    assert not files_with(tmp_path / "lake", SECRET)
    assert route.to_inboxes(tmp_path / "inboxes").rows == 0


@pytest.mark.slow
def test_a_deletion_in_inboxes_leaves_no_copy(lake: Lake, put: Put, tmp_path: Path) -> None:
    """Deliveries of matching events are removed, whoever got them; others stay."""
    put([*visits(16), *visits(8, SECRET, first=16)])
    route = lake.route({"desk": [Subscription(Doorway)], "night": [Subscription(NightVisit)]})
    route.to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    assert inboxes.delete(OF_ANN, dry_run=True).rows == 6
    lake.delete(OF_ANN)
    assert inboxes.delete(OF_ANN).rows == 6
    assert inboxes.read(family="DoorVisit").where("person = 'Bob'").count() == 8 + 4
    assert inboxes.read("desk").count() == 20
    assert inboxes.clean(0) == 1
    assert not files_with(tmp_path / "inboxes", SECRET)
    assert not inboxes.check()
    inboxes.expire("DoorParcel", "1 day", now=START + 2 * DAY)
    assert inboxes.read("desk").count() == 14


@pytest.mark.slow
def test_a_delivery_during_a_deletion_is_done_again(
    lake: Lake, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that has read events before they were deleted does not bring them into inboxes afterwards."""
    put(visits(8))
    route = lake.route({"desk": [Subscription(DoorVisit)]})
    route.to_inboxes(tmp_path / "inboxes")
    put([*visits(4, SECRET, first=8), *visits(4, first=12)])
    inboxes, draft = Inboxes(lake.spark, tmp_path / "inboxes"), Inboxes._draft

    def slow(self: Inboxes, *given: Any) -> Any:
        made = draft(self, *given)
        monkeypatch.undo()
        lake.delete(OF_ANN)
        inboxes.delete("DoorVisit where door == 7")
        return made

    monkeypatch.setattr(Inboxes, "_draft", slow)
    assert inboxes._deliver(route).rows == 1 + 3
    assert not inboxes.read(family="DoorVisit").where(f"person = '{SECRET}'").count()


@pytest.mark.slow
def test_a_compaction_during_a_deletion_is_taken_into_account(
    lake: Lake, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is tried again; events that were ingested meanwhile stay, also such as match."""
    events = [*put(visits(8, SECRET)), *put(visits(8, first=8))]
    rewrite, more = removal._Attempt._rewrite, visits(4, SECRET, first=16)

    def slow(self: removal._Attempt, *given: Any) -> Any:
        made = list(rewrite(self, *given))
        monkeypatch.undo()
        lake.compact()
        return made

    monkeypatch.setattr(removal._Attempt, "_rewrite", slow)
    assert lake.delete(OF_ANN).rows == 4
    put(more)
    assert contents(lake) == expected([*without(events, OF_ANN), *more])
    assert not lake.check()
    assert {entry.kind for entry in lake.history(3)} == {"ingest", "delete", "compact"}


@pytest.mark.slow
def test_nothing_is_changed_if_the_rows_left_are_not_as_many_as_they_should_be(
    lake: Lake, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rewritten files are removed again; a damaged file is not copied either."""
    events, files = put(visits(8, SECRET)), sum(len(part.files) for part in lake.state().parts.values())
    with monkeypatch.context() as patch:
        patch.setattr(removal, "with_first_names", lambda rows, vector: with_first_names(lake.table(DoorVisit), vector))
        with pytest.raises(LakeError, match="6 rows instead of 2 are left; nothing was changed"):
            lake.delete(OF_ANN)
    assert contents(lake) == expected(events)
    assert len(list(Path(lake.path).rglob("*.parquet"))) == files
    (part,) = lake.state().table("DoorVisit")
    path = Path(lake.store.file_paths([part])[0])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ARROW:schema", b"ARROW:schemA"))  # nothing that Spark reads
    with pytest.raises(LakeDamaged, match="restore it from a backup"):
        lake.delete(OF_ANN)
    path.write_bytes(content)
    assert contents(lake) == expected(events)


@pytest.mark.slow
def test_a_derived_table_is_rebuilt_without_deleted_events(lake: Lake, put: Put, tmp_path: Path) -> None:
    """Results and waiting rows are computed again from the events that are left; the old files go with `clean`."""
    put([*visits(8), *visits(8, SECRET, first=8)])
    analysis = Windows(every=timedelta(minutes=4), by=("person",), lateness=timedelta(minutes=1))
    table = DerivedTable(lake, tmp_path / "hours", analysis, DoorVisit)
    table.finish()
    assert files_with(tmp_path / "hours", SECRET)
    lake.delete(OF_ANN)
    table.rebuild()
    table.finish()
    assert Tally(table.read().collect()) == Tally(analysis.all(lake.read(DoorVisit)).collect())
    table.clean(0)
    assert not files_with(tmp_path / "hours", SECRET)


@pytest.mark.slow
def test_dead_letters_are_deleted_by_a_text(lake: Lake, tmp_path: Path) -> None:
    """Those that contain it go, others stay, and the numbers of dead letters of the sources are right."""
    lines = [f'{{"type": "DoorVisit", "person": "{name}"}}' for name in (SECRET, "Bob", "Cleo")]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"type": "DoorVisit", "door": 1}']) + "\n")
    (tmp_path / "b.jsonl").write_text(f"{lines[0]}\n")
    lake.ingest([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert lake.delete_dead_letters(SECRET, dry_run=True) == 2
    assert lake.delete_dead_letters(SECRET) == 2
    assert lake.delete_dead_letters("Cleo") == 1
    assert lake.delete_dead_letters("Cleo") == 0
    assert [row["raw"] for row in lake.dead_letters().toArrow().to_pylist()] == [lines[1]]
    assert {each.table: each.rows for each in lake.stats()}["dead letters"] == 1
    lake.clean(0)
    assert not files_with(tmp_path / "lake", SECRET)
    assert lake.ingest([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], retry=True).dead == 1
    assert [row["raw"] for row in lake.dead_letters().toArrow().to_pylist()] == [lines[1]]
    with pytest.raises(LakeError, match="empty text"):
        lake.delete_dead_letters("")


# -- expiry ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whole_days_expire_without_being_read_and_the_rest_exactly(lake: Lake, put: Put) -> None:
    """An event expires by its time, or by its recording if it has none."""
    timeless: list[Event] = [DoorVisit(door=99)]  # recorded in May
    events = [*put(visits(8)), *put(visits(8, day=1)), *put(visits(8, day=2)), *put(timeless)]
    done = lake.expire(older_than="2 days", now=START + 3 * DAY)
    assert (done.rows, done.dropped, done.rewritten) == (8, 2, 0)
    done = lake.expire(older_than=timedelta(days=2), now=START + 3 * DAY + timedelta(minutes=4))
    assert (done.rows, done.dropped, done.rewritten) == (4, 0, 2)
    assert contents(lake) == expected(events[12:])
    assert lake.expire("NightVisit", 1.5, now=START + 6 * DAY).rows == 3
    assert lake.expire("DoorVisit lacks time", 1, now=START + 365 * DAY).rows == 1
    assert [entry.kind for entry in lake.history(2)] == ["expire", "expire"]


@pytest.mark.slow
def test_a_policy_keeps_each_type_as_long_as_its_nearest_entry_says(lake: Lake, put: Put) -> None:
    """The policy is stored in the ledger, for a nightly `lake.expire()`."""
    events = put(visits(16))
    with pytest.raises(LakeError, match="keeps all events"):
        lake.expire()
    lake.keep({"Event": 10 * 86_400, DoorVisit: "20 days", "NightVisit": "1 year"})
    assert Lake(lake.spark, lake.path).retention == {
        "Event": timedelta(days=10),
        "DoorVisit": timedelta(days=20),
        "NightVisit": timedelta(days=365),
    }
    assert lake.expire(now=START + 5 * DAY).rows == 0
    assert lake.expire(now=START + 12 * DAY).rows == 4
    assert contents(lake) == expected(without(events, Subscription(DoorParcel)))
    assert lake.expire(now=START + 40 * DAY).rows == 8
    assert contents(lake) == expected(event for event in events if isinstance(event, NightVisit))
    lake.keep({})
    assert lake.retention == {}


def test_of_entries_that_are_equally_near_the_shortest_counts(lake: Lake) -> None:
    policy = {"Doorway": timedelta(days=3), "Event": timedelta(days=9), "DoorVisit": timedelta(days=9)}
    rules = policy_rules(policy, lake.catalog, (), START)
    found = {str(rule.subscription): (dict(rule.types), START - rule.before) for rule in rules if rule.before}
    assert found["Doorway"] == ({"DoorParcel": ["DoorParcel"]}, timedelta(days=3))
    assert found["DoorVisit"] == ({"DoorVisit": ["DoorVisit", "NightVisit"]}, timedelta(days=9))


def test_wrong_requests_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="older_than"):
        lake.expire("DoorVisit")
    with pytest.raises(SpanError, match="older_than is 'soon'; write seconds as a number"):
        lake.expire(older_than="soon")
    with pytest.raises(SpanError, match="older_than is 0; it must be above zero"):
        lake.expire(older_than=0)
    with pytest.raises(SpanError, match="the age of DoorVisit is '90 m', and 'm' is no unit"):
        lake.keep({DoorVisit: "90 m"})
    with pytest.raises(SpanError, match="older_than is nan"):
        lake.clean(float("nan"))
    with pytest.raises(LakeError, match="negative"):
        lake.history(-1)
    for wrong in ("1", True):
        with pytest.raises(LakeError, match="not the number of a version"):
            lake.read("DoorVisit", version=wrong)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match="time zone"):
        lake.expire(older_than=1, now=datetime(2026, 1, 1))
    with pytest.raises(NotRegistered):
        lake.keep({"Nothing": 3})
    with pytest.raises(SubscriptionError):
        lake.delete("DoorVisit where door > 3 and door < 2")
    assert lake.version == 1


# -- history and commands ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_history_says_what_each_commit_changed(lake: Lake, put: Put) -> None:
    """Newest first; also for commits that remove what was added long before."""
    put(visits(8))
    put(visits(4, SECRET, first=8))
    lake.compact()
    lake.delete(OF_ANN)
    deleted, *compacted, second, first, created = lake.history()
    assert [entry.version for entry in lake.history()] == [6, 5, 4, 3, 2, 1]
    assert (deleted.kind, deleted.rows_added, deleted.rows_removed) == ("delete", 7, 9)
    assert {(each.kind, each.rows_added, each.rows_removed) for each in compacted} == {
        ("compact", 9, 9),
        ("compact", 3, 3),
    }
    assert (second.kind, second.sources, second.rows_added, second.rows_removed) == ("ingest", 1, 4, 0)
    assert {change.table: change.rows_added for change in first.tables} == {"DoorParcel": 2, "DoorVisit": 6}
    assert (created.kind, created.tables) == ("create", ())
    assert lake.history(1) == [deleted]
    assert deleted.at > first.at


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments))


def answer(*arguments: str) -> Any:
    """The JSON document of a command that must succeed."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_commands_delete_expire_and_tell(lake: Lake, put: Put, tmp_path: Path) -> None:
    put([*visits(8), *visits(8, SECRET, first=8)])
    lake.route({"desk": [Subscription(DoorVisit)]}).to_inboxes(tmp_path / "inboxes")
    text = f"DoorVisit where person == '{SECRET}'"
    assert "say --yes" in run("delete", lake.path, text).output
    assert f"{lake.path}: 4 events to remove" in run("delete", lake.path, text, "--dry-run").output
    done = answer("delete", lake.path, text, "--inboxes", str(tmp_path / "inboxes"), "--clean", "--yes")
    assert [each["rows"] for each in done["removed"].values()] == [4, 4]
    assert done["cleaned"] == 2
    assert not [*files_with(tmp_path / "lake", SECRET), *files_with(tmp_path / "inboxes", SECRET)]
    assert run("keep", lake.path).output == "all events are kept\n"
    assert run("keep", lake.path, "DoorParcel=1h", "Event=30d").output == "DoorParcel: 1h\nEvent: 30d\n"
    assert run("keep", lake.path, "DoorParcel").exit_code == 2
    assert "12 events removed, 2 dropped and 0 rewritten of 2 folders" in run("expire", lake.path, "--yes").output
    assert answer("keep", lake.path, "--everything") == {}
    assert [each["kind"] for each in answer("history", lake.path, "--limit", "3")] == ["keep", "expire", "keep"]
    assert "delete" in run("history", lake.path).output


@pytest.mark.slow
def test_a_deletion_in_inboxes_begins_if_all_are_of_the_lake(lake: Lake, put: Put, tmp_path: Path) -> None:
    """Inboxes of another lake are refused before anything is deleted."""
    put(visits(8))
    other = Lake.create(lake.spark, tmp_path / "other", *TYPES)
    other.ingest(write_recording(tmp_path / "other.genus", visits(4)))
    for each in (lake, other):
        each.route({"desk": "DoorVisit"}).to_inboxes(tmp_path / f"inboxes of {Path(each.path).name}")
    mine, foreign = str(tmp_path / "inboxes of lake"), str(tmp_path / "inboxes of other")
    done = run("delete", lake.path, "DoorVisit", "--inboxes", mine, "--inboxes", foreign, "--yes")
    assert isinstance(done.exception, LakeError)
    assert "is of another lake" in str(done.exception)
    assert lake.read("DoorVisit").count() == Inboxes(lake.spark, mine).read().count() == 6
    assert Inboxes(lake.spark, foreign).read().count() == 3


def test_inboxes_have_nothing_of_a_type_that_came_later(lake: Lake, put: Put, tmp_path: Path) -> None:
    put(visits(8))
    lake.route({"desk": "DoorVisit"}).to_inboxes(tmp_path / "inboxes")
    lake.register(DoorBell)
    put([DoorBell(rings=2, time=START)])
    done = answer("delete", lake.path, "DoorBell", "--inboxes", str(tmp_path / "inboxes"), "--clean", "--yes")
    assert [each["rows"] for each in done["removed"].values()] == [1, 0]
    assert done["cleaned"] == 1


# -- everything together -----------------------------------------------------------------------------------------------


class _Model:
    """A lake with inboxes, and what they should have: a list of events, each with whether it was delivered."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.lake = Lake.create(spark, folder / "lake", *TYPES)
        self._folder = folder
        self._route = self.lake.route({"desk": [Subscription(DoorVisit)], "night": [Subscription(NightVisit)]})
        self._files, self._boxes = 0, False
        self.events: list[Event] = []
        self._waiting: list[Event] = []
        self.delivered: list[tuple[str, Event]] = []

    def ingest(self, number: int) -> None:
        self._files += 1
        events = visits(4, f"person {number}", first=4 * self._files, day=number)
        self.lake.ingest(write_recording(self._folder / f"{self._files}.genus", events))
        self.events += events
        self._waiting += events

    def compact(self, number: int) -> None:
        self.lake.compact()

    def delete(self, number: int) -> None:
        wanted = Subscription(Doorway, where=this.time >= START + number * DAY + timedelta(minutes=4 * number + 2))
        self._remove(wanted.matches, self.lake.delete(wanted).rows)

    def delete_person(self, number: int) -> None:
        wanted = Subscription(DoorVisit, where=this.person == f"person {number}")
        self._remove(wanted.matches, self.lake.delete(wanted).rows)
        if self._boxes:
            count = len(self.delivered)
            self.delivered = [(name, event) for name, event in self.delivered if not wanted.matches(event)]
            assert self.inboxes.delete(wanted).rows == count - len(self.delivered)

    def expire(self, number: int) -> None:
        now = START + number * DAY + timedelta(minutes=5)
        done = self.lake.expire("DoorVisit", "1 day", now=now)
        wanted = Subscription(DoorVisit, where=this.time < now - DAY)
        self._remove(wanted.matches, done.rows)

    def _remove(self, gone: Callable[[Any], bool], rows: int) -> None:
        assert rows == sum(map(gone, self.events))
        self.events = [event for event in self.events if not gone(event)]
        self._waiting = [event for event in self._waiting if not gone(event)]

    def deliver(self, number: int) -> None:
        self._route.to_inboxes(self._path)
        self._boxes = True
        self.delivered += [("desk", event) for event in self._waiting if isinstance(event, DoorVisit)]
        self.delivered += [("night", event) for event in self._waiting if isinstance(event, NightVisit)]
        self._waiting = []

    def clean(self, number: int) -> None:
        self.lake.clean(0)

    @property
    def _path(self) -> Path:
        return self._folder / "inboxes"

    @property
    def inboxes(self) -> Inboxes:
        return Inboxes(self.lake.spark, self._path)

    def check(self) -> None:
        """Compare the files of the present versions with the model."""
        assert Tally(_rows(self.lake.store)) == Tally(("", event.time) for event in self.events)
        parts = self.lake.state().parts.values()
        assert all(part.shapes is None or sum(part.shapes.values()) == part.rows for part in parts)
        if self._boxes:
            assert Tally(_rows(self.inboxes._store)) == Tally((name, event.time) for name, event in self.delivered)


def _rows(store: SparkStore) -> Iterator[tuple[str, datetime]]:
    for path in store.file_paths(store.state().parts.values()):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            yield row.get("subscriber", ""), row["time"]


STEPS = ("ingest", "ingest", "compact", "delete", "delete_person", "expire", "deliver", "clean")


@pytest.mark.slow
@settings(max_examples=5)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=4, max_size=9))
def test_any_sequence_of_operations_keeps_exactly_the_right_events(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """After each step, lake and inboxes have what a list of events has after the same step."""
    model = _Model(spark, tmp_path_factory.mktemp("steps"))
    for name, number in [("ingest", 0), ("deliver", 0), ("ingest", 1), *steps, ("deliver", 0)]:
        getattr(model, name)(number)
        model.check()
    assert contents(model.lake) == expected(model.events)
    assert not model.lake.check()
