"""Every family of a lake is a Delta table over the same files, which other engines read; the ledger decides."""

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from genus import Event, Float32, Int8, Maybe
from genus.catalog import Catalog
from genus.cli._lake import lake as lake_command
from genus.errors import LakeError, NotRegistered
from genus.lake import Lake
from genus.lake._tables import delta_log
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables.commits import DEAD_LETTERS, POSITION, SOURCE, Commit, Part, StoredFile, checksum, table_folder
from genus.lake._tables.delta_log import file_statistics
from genus.lake._tables.file_systems import FileSystem, LocalFileSystem
from genus.lake._tables.mirror import NOTE_FILE, IcebergTables, Mirror
from genus.lake._tables.part_writer import file_schema
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store
from tests.examples import examples, some_of
from tests.lake.roads import ALL, MORNING, Counter, Gate, traffic, write_recording

FAMILIES = ("Weighbridge", "Ünit")


class Weighbridge(Event):
    weight: int
    remark: Maybe[str] = None
    took: Maybe[timedelta] = None
    load: Maybe[float] = None


class AxleWeighbridge(Weighbridge):
    axles: Maybe[int] = None


class Unit(Event, name="Ünit"):
    flag: Maybe[bool] = None


class Killed(BaseException):
    """Ends the simulated process."""


class DyingFiles(LocalFileSystem):
    """Local files of a process that is killed before or after it has written a number of files of the mirror."""

    def __init__(self, writes: int, after: bool) -> None:
        self.left, self.after = writes, after

    def create(self, path: str, content: bytes) -> bool:
        return bool(self._write(path, lambda: LocalFileSystem.create(self, path, content)))

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        self._write(path, lambda: LocalFileSystem.replace(self, path, content, durable))

    def _write(self, path: str, write: Callable[[], Any]) -> Any:
        self.left -= "/_log/" not in path
        if self.left < 0 and not self.after:
            raise Killed
        done = write()
        if self.left < 0:
            raise Killed
        return done


class PlainLake:
    """The store of a lake that is filled without Spark; `rows` has the weights and flags of each version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store(path)
        self.catalog = Catalog()
        self.catalog.register(Weighbridge, Unit)
        self.next = 0
        path.mkdir(parents=True, exist_ok=True)
        self.commit("create")

    def mirror(self, files: FileSystem | None = None) -> Mirror:
        """A mirror of a new process."""
        return Mirror(Store(self.path, files))

    def register(self) -> None:
        self.catalog.register(AxleWeighbridge)

    def ingest(self, *tables: str, rows: int = 3) -> Commit:
        draft = self.store.begin("ingest")
        return self.commit("ingest", [self._part(table, draft.id, rows) for table in tables], id=draft.id)

    def compact(self, table: str) -> None:
        """Replace all parts of a table by one with the same rows."""
        parts = self.store.state().table(table)
        draft = self.store.begin("compact")
        if parts:
            whole = pa.concat_tables([self._read(part) for part in parts], promote_options="default")
            numbered = whole.append_column("_batch", pa.array(range(whole.num_rows), pa.int64()))
            added = self._write(table, draft.id, numbered)
            self.commit("compact", [added], [part.folder for part in parts], draft.id)

    def delete(self, table: str) -> None:
        """Remove the oldest part of a table, and every second row of the next."""
        parts = self.store.state().table(table)[:2]
        draft = self.store.begin("delete")
        kept = [self._write(table, draft.id, self._read(part).slice(0, 1)) for part in parts[1:]]
        if parts:
            self.commit("delete", kept, [part.folder for part in parts], draft.id)

    def commit(
        self, kind: Any, added: Sequence[Part] = (), removed: Iterable[str] = (), id: str | None = None
    ) -> Commit:
        draft, text = self.store.begin(kind), self.catalog.text()
        catalog = None if text == self.store.state().catalog else text
        draft = msgspec.structs.replace(draft, added=tuple(added), removed=tuple(removed), catalog=catalog)
        return self.store.commit(draft if id is None else msgspec.structs.replace(draft, id=id))

    def _part(self, table: str, id: str, rows: int) -> Part:
        schema = file_schema(self.catalog.families[table])
        numbers = range(self.next, self.next + rows)
        self.next += rows
        columns = [pa.array([_value(field, number) for number in numbers], field.type) for field in schema]
        return self._write(table, id, pa.table(columns, schema=schema))

    def _write(self, table: str, id: str, rows: pa.Table) -> Part:
        folder = f"{table_folder(table)}/_commit={id}/_day=2026-05-01"
        file = self.path / folder / "part 0.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(rows, file)
        content = file.read_bytes()
        return Part(table, folder, (StoredFile(file.name, rows.num_rows, len(content), checksum(content)),))

    def _read(self, part: Part) -> pa.Table:
        files = [pq.read_table(self.path / part.folder / file.name, partitioning=None) for file in part.files]
        rows = pa.concat_tables(files)
        return rows.select([name for name in rows.column_names if name != "_batch"])  # which others do not see

    def rows(self, table: str, state: LedgerState) -> list[dict[str, Any]]:
        """The rows of a table by the ledger, with all columns of its vector then."""
        schema = file_schema(Catalog.parse(state.catalog or "").families[table])
        found = [self._read(part) for part in state.table(table)]
        return by_position(pa.concat_tables([schema.empty_table(), *found], promote_options="default"))

    def delta(self, table: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.path / table_folder(table), version=version)

    def check(self, least: int = 1) -> None:
        """Every version of every Delta table shows what the ledger had at the version that it names."""
        lake = self.store.state().lake
        for table in FAMILIES:
            if not (self.path / table_folder(table) / "_delta_log").exists():
                assert not self.store.state().table(table)
                continue
            versions: list[int] = []
            for number in range(self.delta(table).version() + 1):
                delta = self.delta(table, number)
                versions.append(delta.transaction_version(lake) or 0)
                assert delta_rows(delta) == self.rows(table, self.store.ledger.state_at(versions[-1]))
            assert versions == sorted(set(versions)), "each version of the ledger once, in order"
            assert delta_rows(delta) == self.rows(table, self.store.state())
            assert len(versions) >= least


def _value(field: pa.Field, number: int) -> Any:
    if field.nullable and number % 3 == 0:
        return None
    if field.type == pa.bool_():
        return number % 2 == 0
    if field.type == pa.string():
        return f"text {number}"
    if field.type == pa.float64():
        return float("nan") if number % 2 else number / 7
    return MORNING + timedelta(seconds=number) if pa.types.is_timestamp(field.type) else number


def by_position(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as they can be compared: sorted, and NaN as text."""
    order = [(SOURCE, "ascending"), (POSITION, "ascending")]
    named = rows.select(sorted(rows.column_names)).sort_by(order).to_pylist()
    return [{name: str(value) if isinstance(value, float) else value for name, value in row.items()} for row in named]


def delta_rows(delta: DeltaTable) -> list[dict[str, Any]]:
    return by_position(delta.to_pyarrow_table().drop_columns(["_commit", "_day"]))


def log_of(path: Path) -> list[list[dict[str, Any]]]:
    """The actions of each entry of a log."""
    files = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def actions(entry: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in entry if kind in action]


@pytest.fixture
def plain(tmp_path: Path) -> PlainLake:
    return PlainLake(tmp_path / "lake")


# -- laws --------------------------------------------------------------------------------------------------------------


STEPS = st.one_of(
    st.sampled_from(["ingest", "ingest both", "compact", "delete", "register", "mirror", "reopen", "lose the note"]),
    st.tuples(st.integers(0, 6), st.booleans()),
)


@examples(40)
@given(st.lists(STEPS, max_size=14))
@example(steps=["ingest", (1, False), "delete", "reopen"])  # the first to mirror dies, and all is deleted
def test_every_version_of_a_table_shows_what_the_ledger_had(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Whatever is committed, however far the mirror lags, and wherever processes that mirror are killed."""
    plain = PlainLake(tmp_path_factory.mktemp("mirror") / "lake")
    mirror = plain.mirror()
    for step in steps:
        match step:
            case "ingest" | "ingest both":
                plain.ingest(*FAMILIES[: 1 + (step == "ingest both")])
            case "compact":
                plain.compact("Weighbridge")
            case "delete":
                plain.delete("Weighbridge")
            case "register":
                plain.register()
            case "mirror":
                mirror.follow()
            case "reopen":
                mirror = plain.mirror()
            case "lose the note":
                (plain.path / NOTE_FILE).unlink(missing_ok=True)
            case (writes, after):
                with suppress(Killed):
                    plain.mirror(DyingFiles(writes, after)).follow()
    mirror.follow()
    plain.check()
    assert plain.mirror().complete().entries == 0
    assert mirror.follow().entries == 0


def test_two_processes_mirror_each_commit_once(plain: PlainLake) -> None:
    first, second = plain.mirror(), plain.mirror()
    for _ in range(5):
        plain.ingest(*FAMILIES)
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda each: each.follow(), (first, second)))
        assert sum(each.entries for each in done) == 2
    plain.check(5)


def test_a_process_that_is_behind_takes_nothing_back(plain: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the ledger before a commit that another process has made and mirrored since."""
    plain.ingest(*FAMILIES)
    behind, store = plain.mirror(), Store(plain.path)
    plain.ingest(*FAMILIES)
    states = [store.state()]
    plain.compact("Weighbridge")
    plain.mirror().follow()
    monkeypatch.setattr(behind._store, "state", lambda: states.pop() if states else store.state())
    assert behind.follow().entries == 0
    plain.ingest(*FAMILIES)
    assert behind.follow().entries == 2
    plain.check(2)


def test_what_others_wrote_is_taken_back(plain: PlainLake) -> None:
    """Only entries of Genus are in the ledger, whoever gets past the protocol of the table."""
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    log = plain.path / "tables/Weighbridge/_delta_log"
    (add,) = actions(log_of(log.parent)[0], "add")
    (log / f"{1:020}.json").write_text(json.dumps({"remove": {"path": add["path"], "dataChange": True}}))
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    assert delta_rows(plain.delta("Weighbridge")) == plain.rows("Weighbridge", plain.store.state())


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after it"])
@pytest.mark.parametrize("writes", range(4))
def test_a_mirror_that_is_killed_is_completed_by_the_next_commit(plain: PlainLake, writes: int, after: bool) -> None:
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    plain.ingest(*FAMILIES)
    with suppress(Killed):
        plain.mirror(DyingFiles(writes, after)).follow()
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    plain.check(3)


# -- checkpoints, and ledgers that have lost commits -------------------------------------------------------------------


@pytest.mark.slow
def test_tables_are_opened_from_checkpoints(plain: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint has all files with their statistics, so older entries are not needed."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 4)
    mirror = plain.mirror()
    for number in range(11):
        plain.ingest(*FAMILIES)
        if number == 5:
            plain.compact("Weighbridge")
        if number == 8:
            plain.register()
        mirror.follow()
    log = plain.path / "tables/Weighbridge/_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 11
    assert len(list(log.glob("*.checkpoint.parquet"))) == 3
    plain.check(11)
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    for version in range(11):
        (log / f"{version:020}.json").unlink()
    assert delta_rows(plain.delta("Weighbridge")) == plain.rows("Weighbridge", plain.store.state())
    assert "axles" in pl.scan_delta(log.parent).collect_schema()
    adds = plain.delta("Weighbridge").get_add_actions(flatten=True)
    assert pa.table(adds).column("num_records").to_pylist().count(3) >= 5
    assert plain.mirror().complete().entries == 0


def test_paths_that_delta_rs_cannot_open_are_mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As file systems that it cannot open: it reads a copy of the log, and its checkpoints are copied back."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    strange = PlainLake(tmp_path / "50%20x")
    for _ in range(5):
        strange.ingest(*FAMILIES)
        strange.mirror().follow()
    assert len(list(strange.path.rglob("*.checkpoint.parquet"))) == 4
    assert (done := strange.mirror().complete()).entries == done.repaired == 0
    strange.path.rename(tmp_path / "plain")
    strange.path = tmp_path / "plain"
    strange.store = Store(strange.path)
    strange.check(5)


def test_a_table_is_compared_with_the_state_where_commits_were_removed(
    plain: PlainLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of commits that were folded and removed only the result is known; it becomes one entry."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 2)
    plain.ingest("Weighbridge")
    plain.mirror().follow()
    for _ in range(4):
        plain.ingest(*FAMILIES)
    plain.compact("Weighbridge")
    for _ in range(4):
        plain.ingest(*FAMILIES)
    assert plain.store.ledger.forget(2**62) > 3
    plain.mirror().follow()
    assert plain.delta("Weighbridge").version() == 1
    assert plain.delta("Weighbridge").transaction_version(plain.store.state().lake) == plain.store.state().version
    for table in FAMILIES:
        assert delta_rows(plain.delta(table)) == plain.rows(table, plain.store.state())


@pytest.mark.parametrize("with_note", [False, True])
def test_after_a_restore_of_the_ledger_tables_show_the_restored_state(plain: PlainLake, with_note: bool) -> None:
    """The mirror had commits that the restored ledger does not have; other commits have got their numbers."""
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    saved = plain.path.parent / "saved"
    shutil.copytree(plain.path / "_log", saved / "_log")
    shutil.copy(plain.path / NOTE_FILE, saved)
    plain.ingest("Weighbridge")
    plain.ingest("Weighbridge")
    plain.mirror().follow()
    shutil.rmtree(plain.path / "_log")
    shutil.copytree(saved / "_log", plain.path / "_log")
    if with_note:
        shutil.copy(saved / NOTE_FILE, plain.path)
    plain.store = Store(plain.path)
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    for table in FAMILIES:
        assert delta_rows(plain.delta(table)) == plain.rows(table, plain.store.state())


def test_a_log_that_was_removed_is_made_again(plain: PlainLake) -> None:
    for _ in range(3):
        plain.ingest(*FAMILIES)
    mirror = plain.mirror()
    mirror.follow()
    shutil.rmtree(plain.path / "tables/Weighbridge/_delta_log")
    assert plain.mirror().complete().tables == 1
    plain.check()


def _remove(log: Path, *names: str) -> None:
    """Remove files of a log, and all checkpoints."""
    for file in (*log.glob("*.parquet"), *(log / name for name in names)):
        file.unlink()


def _cut_first(log: Path) -> None:
    _remove(log)
    (log / f"{0:020}.json").write_text("{")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "checkpoints removed": _remove,
    "checkpoint cut": lambda log: sorted(log.glob("*.parquet"))[-1].write_bytes(b"PAR1"),
    "checkpoint of others": lambda log: pq.write_table(pa.table({"n": [1]}), sorted(log.glob("*.parquet"))[-1]),
    "checkpoints and an entry removed": lambda log: _remove(log, f"{4:020}.json", "_last_checkpoint"),
    "first entry cut, checkpoints removed": _cut_first,
    "entry of the checkpoint removed": lambda log: (log / f"{6:020}.json").unlink(),
    "last entry cut": lambda log: (log / f"{7:020}.json").write_text('{"txn'),
}


@pytest.mark.parametrize("by_commit", [False, True], ids=["by mirror", "by a commit"])
@pytest.mark.parametrize("damage", some_of(DAMAGES, 4))
def test_a_damaged_log_is_made_again(
    plain: PlainLake, monkeypatch: pytest.MonkeyPatch, damage: str, by_commit: bool
) -> None:
    """From its entries if they are there, else from the ledger, and others can read the table."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    mirror = plain.mirror()
    for _ in range(8):
        plain.ingest(*FAMILIES)
        mirror.follow()
    DAMAGES[damage](plain.path / "tables/Weighbridge/_delta_log")
    if by_commit:
        plain.ingest(*FAMILIES)
    done = plain.mirror().follow() if by_commit else plain.mirror().complete()
    assert done.repaired == 1
    for _ in range(2):
        assert delta_rows(plain.delta("Weighbridge")) == plain.rows("Weighbridge", plain.store.state())
        assert (again := plain.mirror().complete()).repaired == again.entries == 0
        plain.ingest(*FAMILIES)
        plain.mirror().follow()
    plain.mirror().forget_bounds()


def test_a_ledger_that_was_restored_alone_is_noticed_when_the_lake_is_opened(plain: PlainLake) -> None:
    plain.ingest(*FAMILIES)
    shutil.copytree(plain.path / "_log", plain.path.parent / "saved")
    plain.mirror().follow()
    plain.ingest("Weighbridge")
    assert not plain.mirror().is_ahead
    plain.mirror().follow()
    assert not plain.mirror().is_ahead
    shutil.rmtree(plain.path / "_log")
    shutil.copytree(plain.path.parent / "saved", plain.path / "_log")
    plain.store = Store(plain.path)
    assert plain.mirror().is_ahead
    plain.mirror().follow()
    assert not plain.mirror().is_ahead
    assert delta_rows(plain.delta("Weighbridge")) == plain.rows("Weighbridge", plain.store.state())


# -- what entries say --------------------------------------------------------------------------------------------------


def test_a_compaction_changes_no_data_and_a_deletion_does(plain: PlainLake) -> None:
    """So that readers of changes pass over compactions."""
    plain.ingest("Weighbridge")
    plain.ingest("Weighbridge")
    plain.compact("Weighbridge")
    plain.ingest("Weighbridge")
    plain.delete("Weighbridge")
    mirror = plain.mirror()
    mirror.follow()
    plain.ingest("Weighbridge")
    plain.compact("Weighbridge")
    plain.delete("Weighbridge")
    mirror.follow()
    entries = log_of(plain.path / "tables/Weighbridge")
    kinds = [actions(entry, "commitInfo")[0]["operation"] for entry in entries]
    assert kinds[-3:] == ["WRITE", "OPTIMIZE", "DELETE"]
    *_, compaction, deletion = entries
    changes = [{each["dataChange"] for kind in ("add", "remove") for each in actions(entry, kind)} for entry in entries]
    assert changes[-2:] == [{False}, {True}]
    assert actions(compaction, "remove")
    assert actions(deletion, "remove")


def test_statistics_are_bounds_of_integers_times_and_short_texts(tmp_path: Path) -> None:
    """Not of numbers that may be NaN, and not of long texts; NULLs are counted in all columns."""
    table = pa.table(
        {
            "lane": pa.array([3, None, -1, 7], pa.int16()),
            "time": pa.array([MORNING, None, MORNING + timedelta(microseconds=1), MORNING], pa.timestamp("us", "UTC")),
            "place": ["b", "a", None, "ü"],
            "long": ["x" * 100, None, "a", "b"],
            "speed": [1.0, float("nan"), None, 2.0],
            "none": pa.nulls(4, pa.int64()),
            "strange": [1, 2, 3, 4],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    wanted = table.drop_columns(["strange"]).schema
    text = file_statistics(LocalFileSystem(), str(tmp_path / "a.parquet"), 4, wanted)
    assert json.loads(text) == {
        "numRecords": 4,
        "minValues": {"lane": -1, "time": "2026-05-01T06:00:00.000000Z", "place": "a"},
        "maxValues": {"lane": 7, "time": "2026-05-01T06:00:00.000001Z", "place": "ü"},
        "nullCount": {"lane": 1, "time": 1, "place": 1, "long": 1, "speed": 1, "none": 4},
    }
    gone = file_statistics(LocalFileSystem(), str(tmp_path / "b.parquet"), 4, wanted)
    assert json.loads(gone)["numRecords"] == 4


def test_times_of_all_years_have_bounds(plain: PlainLake) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    path = plain.path / "a.parquet"
    table = pa.table({"time": pa.array([first, last], pa.timestamp("us", "UTC"))})
    pq.write_table(table, path)
    found = json.loads(file_statistics(LocalFileSystem(), str(path), 2, table.schema))
    assert found["minValues"] == {"time": "0001-01-01T00:00:00.000000Z"}
    assert found["maxValues"] == {"time": "9999-12-31T23:59:59.999999Z"}


def test_readers_skip_files_by_statistics(plain: PlainLake) -> None:
    """A question about a time opens the one file that can have it."""
    for _ in range(6):
        plain.ingest("Weighbridge")
    plain.mirror().follow()
    wanted = MORNING + timedelta(seconds=10)
    dataset = plain.delta("Weighbridge").to_pyarrow_dataset()
    asked = pc.field("time") == pa.scalar(wanted, pa.timestamp("us", "UTC"))
    assert len(list(dataset.get_fragments(asked))) == 1
    assert len(list(dataset.get_fragments())) == 6
    assert dataset.to_table(filter=asked).column("weight").to_pylist() == [10]


def test_others_cannot_write_a_table(plain: PlainLake) -> None:
    """Files that others add would be in no commit, and those that they remove would be missing."""
    plain.ingest("Weighbridge")
    plain.mirror().follow()
    plain.compact("Weighbridge")
    plain.mirror().follow()
    delta = plain.delta("Weighbridge")
    with pytest.raises(Exception, match="genusLedger"):
        deltalake.write_deltalake(delta, delta.to_pyarrow_table(), mode="append")
    with pytest.raises(Exception, match="genusLedger"):
        delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    plain.check()


def test_checkpoints_of_others_and_files_of_killed_writers_do_no_harm(plain: PlainLake) -> None:
    mirror = plain.mirror()
    for _ in range(3):
        plain.ingest(*FAMILIES)
        mirror.follow()
    (plain.path / "tables/Weighbridge/_delta_log" / f".{3:020}.json.4f21").write_text("{")
    plain.delta("Weighbridge").create_checkpoint()
    plain.compact("Weighbridge")
    plain.ingest(*FAMILIES)
    plain.mirror().follow()
    plain.check(4)


# -- a lake on Spark ---------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.create(spark, tmp_path / "lake", *ALL, Weighbridge, Unit)


def spark_rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows = lake.table(table).toArrow()
    took = [number for number, field in enumerate(rows.schema) if pa.types.is_duration(field.type)]
    for number in took:
        micros = rows.column(number).cast(pa.int64())
        rows = rows.set_column(number, rows.schema.field(number).name, micros)
    return by_position(rows)


def test_delta_rs_and_polars_read_the_events_of_a_lake(lake: Lake, tmp_path: Path) -> None:
    """With NULLs, durations, umlauts, several days and files that Spark has compacted."""
    scales = [Weighbridge(weight=n, took=timedelta(seconds=n) if n % 2 else None, time=MORNING) for n in range(5)]
    units: list[Event] = [Unit(flag=True, time=MORNING), Unit(time=MORNING)]
    lake.ingest(write_recording(tmp_path / "a.genus", [*traffic(200), *scales, *units]))
    lake.ingest(write_recording(tmp_path / "b.genus", traffic(50, first=900, start=MORNING + timedelta(days=2))))
    for _ in range(2):
        for family in ("Counter", "Gate", "Weighbridge", "Ünit"):
            path = lake.delta_path(family)
            expected = spark_rows(lake, family)
            assert by_position(DeltaTable(path).to_pyarrow_table()) == expected
            assert by_position(pl.scan_delta(path).collect().to_arrow().cast(_schema(path))) == expected
        lake.compact()
    assert pl.scan_delta(lake.delta_path(Gate), version=0).collect().height == 40
    seen = pl.scan_delta(lake.delta_path(Counter)).filter(pl.col("time") < MORNING + timedelta(seconds=10))
    assert seen.collect().height == 8


def _schema(path: str) -> pa.Schema:
    return DeltaTable(path).to_pyarrow_table().schema


def test_new_attributes_are_new_columns(lake: Lake, tmp_path: Path) -> None:
    """Also in tables that get no events with the commit that brings the catalog."""
    lake.ingest(write_recording(tmp_path / "a.genus", [Weighbridge(weight=1, time=MORNING)]))
    lake.register(AxleWeighbridge)
    lake.ingest(write_recording(tmp_path / "b.genus", [*traffic(10)]))
    path = lake.delta_path(AxleWeighbridge)
    assert "axles" in pl.scan_delta(path).collect_schema()
    lake.ingest(write_recording(tmp_path / "c.genus", [AxleWeighbridge(weight=2, axles=3, time=MORNING)]))
    assert pl.scan_delta(path).sort("weight").collect()["axles"].to_list() == [None, 3]
    assert "axles" not in pl.scan_delta(path, version=0).collect_schema()


def test_dead_letters_are_a_table(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"type": "Gate", "open": true}\nbroken\n')
    lake.ingest(tmp_path / "a.jsonl")
    letters = pl.scan_delta(lake.delta_path(DEAD_LETTERS)).collect()
    assert letters["raw"].to_list() == ["broken"]


def test_a_path_is_given_only_for_tables_that_are_there(lake: Lake) -> None:
    with pytest.raises(LakeError, match="no Delta table yet"):
        lake.delta_path(Gate)
    with pytest.raises(NotRegistered):
        lake.delta_path("Elsewhere")


def test_a_commit_is_made_though_it_cannot_be_mirrored(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The problem is logged, and the next commit completes the mirror."""
    blocked = Path(lake.path) / "tables/Gate/_delta_log"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING, "genus.lake"):
        lake.ingest(write_recording(tmp_path / "a.genus", traffic(50)))
    assert "version 2 is not mirrored yet" in caplog.text
    assert lake.table(Gate).count() == 10
    blocked.unlink()
    lake.ingest(write_recording(tmp_path / "b.genus", traffic(50, first=100)))
    assert DeltaTable(lake.delta_path(Gate)).version() == 1
    assert DeltaTable(lake.delta_path(Counter)).version() == 1


def test_a_lake_without_mirror_is_mirrored_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(spark, tmp_path / "lake", *ALL, mirror=False)
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(50)))
    lake.ingest(write_recording(tmp_path / "b.genus", traffic(50, first=100)))
    assert not list((tmp_path / "lake").rglob("_delta_log"))
    done = Lake(spark, lake.path).mirror()
    assert (done.tables, done.entries, done.version) == (2, 2, 3)
    assert DeltaTable(lake.delta_path(Gate)).to_pyarrow_table().num_rows == 20
    Lake(spark, lake.path).ingest(write_recording(tmp_path / "c.genus", traffic(50, first=200)))
    assert DeltaTable(lake.delta_path(Gate)).to_pyarrow_table().num_rows == 20


def test_the_command_completes_the_mirror(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(spark, tmp_path / "lake", *ALL, mirror=False)
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(50)))
    done = CliRunner().invoke(lake_command, ["mirror", lake.path])
    assert done.exit_code == 0, done.output
    assert "2 tables extended" in done.output
    assert "version 2" in done.output
    again = CliRunner().invoke(lake_command, ["mirror", lake.path, "--json"])
    assert json.loads(again.output)["delta"]["entries"] == 0


# -- Iceberg -----------------------------------------------------------------------------------------------------------


class SmallNumbers(Event):
    """One attribute of each stored type."""

    tiny: Int8 = 0
    big: Maybe[int] = None
    single: Float32 = 0.0
    raw: Maybe[bytes] = None


def iceberg_rows(path: str) -> list[dict[str, Any]]:
    return by_position(StaticTable.from_metadata(path).scan().to_arrow().drop_columns(["_batch"]))


@pytest.mark.slow
def test_iceberg_tables_show_each_state_that_they_were_brought_to(plain: PlainLake) -> None:
    """Files are added and removed, columns are added, and the snapshot names the version of the ledger."""
    steps: list[Callable[[], object]] = [
        lambda: plain.ingest(*FAMILIES),
        lambda: plain.ingest(*FAMILIES),
        lambda: plain.compact("Weighbridge"),
        plain.register,
        lambda: plain.ingest("Weighbridge"),
        lambda: plain.delete("Weighbridge"),
    ]
    for step in steps:
        step()
        state = plain.store.state()
        IcebergTables(Store(plain.path)).update()
        for table in FAMILIES:
            path = IcebergTables(plain.store).metadata_path(table)
            assert iceberg_rows(path) == plain.rows(table, state)
    snapshot = StaticTable.from_metadata(IcebergTables(plain.store).metadata_path("Weighbridge")).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["genus.version"] == str(plain.store.state().version)
    assert IcebergTables(plain.store).update().entries == 0


def test_a_lake_that_was_moved_gets_new_iceberg_tables(plain: PlainLake, tmp_path: Path) -> None:
    """Iceberg has absolute paths."""
    plain.ingest(*FAMILIES)
    IcebergTables(plain.store).update()
    moved = Store(shutil.move(plain.path, tmp_path / "moved"))
    assert IcebergTables(moved).update().tables == 2
    path = IcebergTables(moved).metadata_path("Ünit")
    assert str(tmp_path / "moved") in path
    assert len(iceberg_rows(path)) == 3


def test_asking_for_iceberg_tables_changes_nothing(plain: PlainLake, tmp_path: Path) -> None:
    """A link to the lake finds the same tables; those of a lake that was copied are left to `update`."""

    def files(root: Path) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (root / "_iceberg").rglob("*") if path.is_file()}

    plain.ingest(*FAMILIES)
    with pytest.raises(LakeError, match="no Iceberg table"):
        IcebergTables(plain.store).metadata_path("Ünit")
    assert not (plain.path / "_iceberg").exists()
    IcebergTables(plain.store).update()
    before, found = files(plain.path), IcebergTables(plain.store).metadata_path("Ünit")
    (tmp_path / "link").symlink_to(plain.path)
    linked = IcebergTables(Store(tmp_path / "link"))
    assert linked.metadata_path("Ünit") == found
    assert linked.update().entries == 0
    assert files(plain.path) == before
    shutil.copytree(plain.path, tmp_path / "copied")
    copied, there = IcebergTables(Store(tmp_path / "copied")), files(tmp_path / "copied")
    with pytest.raises(LakeError, match="at another place"):
        copied.metadata_path("Ünit")
    assert files(tmp_path / "copied") == there
    assert copied.update().tables == 2


@pytest.mark.parametrize("name", ["50%20x", "x#1"])
def test_paths_in_which_pyiceberg_finds_no_files_are_refused(name: str, tmp_path: Path) -> None:
    lake = PlainLake(tmp_path / name)
    lake.ingest(*FAMILIES)
    with pytest.raises(LakeError, match="move the lake"):
        IcebergTables(lake.store).update()
    assert not (lake.path / "_iceberg").exists()


def test_bounds_are_forgotten_where_no_part_of_a_table_is_left(
    plain: PlainLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a ledger does not have tables whose parts were removed before a fold."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 4)
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 1)
    for table in FAMILIES:
        plain.ingest(table)
        plain.mirror().follow()
    plain.delete("Weighbridge")
    for _ in range(2):
        plain.ingest("Ünit")
    plain.mirror().follow()
    assert "Weighbridge" not in Store(plain.path).state().tables
    plain.mirror().forget_bounds()
    logs = {table: plain.path / table_folder(table) / "_delta_log" for table in FAMILIES}
    has_bounds = {table: r"minValues\":{\"" in (log / f"{0:020}.json").read_text() for table, log in logs.items()}
    assert has_bounds == {"Weighbridge": False, "Ünit": True}
    plain.delete("Ünit")  # which is not mirrored yet
    plain.mirror().forget_bounds()
    checkpoints = [pq.read_table(file, columns=["add"]) for log in logs.values() for file in log.glob("*.parquet")]
    named = {add["path"] for table in checkpoints for add in table.column("add").drop_null().to_pylist()}
    assert len(named) == sum(len(part.files) for part in plain.store.state().parts.values())
    assert plain.mirror().complete().entries == 0


@pytest.mark.slow
def test_iceberg_tables_have_all_types_of_attributes(spark: SparkSession, tmp_path: Path) -> None:
    """Also those that Iceberg stores as wider ones, in files of ingests and of compactions."""
    lake = Lake.create(spark, tmp_path / "lake", SmallNumbers)
    with pytest.raises(LakeError, match="no Iceberg table"):
        lake.iceberg_path(SmallNumbers)
    for number in range(2):
        event = SmallNumbers(tiny=number, big=2**60, single=0.5, raw=b"x", time=MORNING)
        lake.ingest(write_recording(tmp_path / f"{number}.genus", [event]))
        lake.iceberg()
    lake.compact()
    done = CliRunner().invoke(lake_command, ["mirror", lake.path, "--iceberg"])
    assert "Iceberg: 1 new snapshot, version 4" in done.output
    found = StaticTable.from_metadata(lake.iceberg_path(SmallNumbers)).scan(row_filter="tiny > 0").to_arrow()
    assert found.select(["tiny", "big", "single", "raw"]).to_pylist() == [
        {"tiny": 1, "big": 2**60, "single": 0.5, "raw": b"x"}
    ]
