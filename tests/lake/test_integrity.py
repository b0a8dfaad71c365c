"""Damage: whatever happens to one file of a store, readers answer right or raise an error that names the file."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus.errors import LakeDamaged, LakeError
from genus.lake import DerivedTable, Inboxes, Lake, LakeReader, Windows
from genus.lake._tables import files as files_module
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables.commits import CommitDraft, IngestedFile, Part, StoredFile
from genus.lake._tables.files import put_content
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store, _compare
from genus.testing import run_command
from tests.examples import examples
from tests.lake.roads import ALL, Counter, traffic, write_recording
from tests.lake.test_inboxes import WANTED
from tests.lake.test_ledger import MemoryFiles

# -- the ledger --------------------------------------------------------------------------------------------------------

COMMITS = 21


def _commit(ledger: Ledger, name: str, number: int) -> None:
    id = f"{name}{number}"
    removed = tuple(ledger.state().parts)[:1] if number % 4 == 3 else ()
    part = Part("Loop", f"tables/Loop/_commit={id}", (StoredFile("a.parquet", number, 10, "00"),))
    source = IngestedFile(number, f"/in/{number}", 100, 1, 0)
    ledger.commit(
        CommitDraft(id=id, kind="ingest", at_us=number, added=(part,), removed=removed, sources=(source,), catalog=id)
    )


@cache
def _ledgers(forget: bool) -> tuple[dict[str, bytes], dict[str, bytes], list[LedgerState]]:
    """The files of a ledger, those of a copy that went another way after eight commits, and all states."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger_module, "FOLD_EVERY", 3)
        patched.setattr(ledger_module, "RADIX", 2)
        files, other = MemoryFiles({}), MemoryFiles({})
        ledger, states = Ledger(files, "/lake"), []
        for number in range(1, COMMITS + 1):
            _commit(ledger, "a", number)
            states.append(ledger.state())
            if number == 8:
                other.content = dict(files.content)
        copy = Ledger(other, "/lake")
        for number in range(9, COMMITS + 1):
            _commit(copy, "b", number)
        if forget:
            assert ledger.forget(8) == 7
        return files.content, other.content, states


def _flip(content: bytes, at: int) -> bytes:
    damaged = bytearray(content)
    damaged[at // 8 % len(damaged)] ^= 1 << at % 8
    return bytes(damaged)


DAMAGE: dict[str, Callable[[bytes, bytes | None, int], bytes | None]] = {
    "removed": lambda content, other, at: None,
    "emptied": lambda content, other, at: b"",
    "cut": lambda content, other, at: content[: at % len(content)],
    "flipped": lambda content, other, at: _flip(content, at),
    "of a copy": lambda content, other, at: other,
}


@pytest.mark.slow
@pytest.mark.parametrize("forget", [False, True], ids=["all commits", "old commits forgotten"])
@given(which=st.integers(0, 100), how=st.sampled_from(sorted(DAMAGE)), at=st.integers(0, 100_000))
@examples(400)
def test_one_damaged_file_of_a_ledger_is_harmless_or_named(forget: bool, which: int, how: str, at: int) -> None:
    """For every file, however it is damaged, the state of every version is the right one or an error."""
    content, other, states = _ledgers(forget)
    path = sorted(content)[which % len(content)]
    damaged = dict(content)
    spoiled = DAMAGE[how](content[path], other.get(path), at)
    if spoiled is None:
        del damaged[path]
    else:
        damaged[path] = spoiled
    for version in range(1, COMMITS + 1):
        _check_right_or_named(Ledger(MemoryFiles(damaged), "/lake"), states, version, path)
    if damaged != content and spoiled is not None:
        found = {problem for problem, _ in Ledger(MemoryFiles(damaged), "/lake").problems()}
        assert path in found or how == "of a copy"


def _check_right_or_named(ledger: Ledger, states: list[LedgerState], version: int, path: str) -> None:
    """Ask for the present state, that of a version, a commit and all commits."""
    wanted = [state.commit for state in states]
    assert _answer(ledger.state) in (states[-1], DAMAGED)
    assert _answer(lambda: ledger.state_at(version)) in (states[version - 1], DAMAGED, *_forgotten(version))
    commits = _answer(lambda: [each.id for each in ledger.commits(version - 1, version)])
    assert commits in (wanted[version - 1 : version], DAMAGED, *_forgotten(version))
    history = _answer(lambda: [each.id for each in ledger.history()])
    assert history == DAMAGED or list(reversed(wanted))[: len(history)] == history


DAMAGED, FORGOTTEN = "LakeDamaged", "too old"


def _forgotten(version: int) -> list[str]:
    return [FORGOTTEN] if version <= 8 else []


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except LakeDamaged as problem:
        return DAMAGED if "/lake/_log/0000" in str(problem) else problem
    except LakeError as problem:
        return FORGOTTEN if "is too old" in str(problem) else problem


# -- files of tables ---------------------------------------------------------------------------------------------------

SECONDS = Windows(every=timedelta(seconds=10), lateness=timedelta(seconds=5))


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three files in each table, inboxes and a derived table that have processed two of them."""
    folder = tmp_path_factory.mktemp("filled")
    lake = Lake.create(spark, folder / "lake", *ALL)
    for number in range(3):
        lake.ingest(write_recording(folder / f"{number}.genus", traffic(400, first=1000 * number)))
        if number == 1:
            lake.route(WANTED).to_inboxes(folder / "inboxes")
            DerivedTable(lake, folder / "derived", SECONDS, Counter).update()
    (folder / "landing").mkdir()
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "copy"))


def _files(folder: Path, name: str, table: str) -> list[Path]:
    store = Store(folder / name)
    return [Path(path) for path in store.file_paths(store.state().table(table))]


def _newest(folder: Path) -> Path:
    return _files(folder, "lake", "Counter")[-1]


def _uses(spark: SparkSession, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What reads the newest file of a lake."""
    lake = Lake(spark, folder / "lake")
    stream = lake.stream(folder / "landing").route(WANTED).to_inboxes(folder / "inboxes")
    yield "read", lambda: lake.read(Counter).toArrow()
    yield "table", lambda: lake.table(Counter).count()
    yield "local", lambda: LakeReader(folder / "lake").read(Counter).to_arrow()
    yield "route", lambda: lake.route(WANTED).frame().count()
    yield "deliver", lambda: lake.route(WANTED).to_inboxes(folder / "inboxes")
    yield "derive", lambda: DerivedTable(lake, folder / "derived", SECONDS, Counter).update()
    yield "compact", lambda: lake.compact()
    yield "delete", lambda: lake.delete("Counter where speed > 10")
    yield "stream", lambda: stream.run()


def _versions(folder: Path) -> list[int]:
    return [Store(folder / name).state().version for name in ("lake", "inboxes", "derived")]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["removed", "cut", "flipped", "replaced"])
def test_whoever_needs_a_damaged_file_says_so_and_commits_nothing(
    spark: SparkSession, folder: Path, damage: str
) -> None:
    """One of three files: never fewer rows, never a commit of fewer rows."""
    before, file = _versions(folder), _newest(folder)
    content = file.read_bytes()
    match damage:
        case "removed":
            file.unlink()
        case "cut":
            file.write_bytes(content[:-1])
        case "flipped":
            file.write_bytes(_flip(content, 8 * (len(content) // 2)))
        case "replaced":
            shutil.copy(_files(folder, "lake", "Counter")[0], file)
    for name, use in _uses(spark, folder):
        with pytest.raises(LakeDamaged, match=file.name) as raised:
            use()
        assert str(raised.value).endswith("restore it from a backup"), name
    assert _versions(folder) == before
    (found,) = Lake(spark, folder / "lake").check()
    assert found.path == str(file)


@pytest.mark.slow
def test_a_stray_file_changes_no_answer_and_is_named(spark: SparkSession, folder: Path) -> None:
    """Readers take the files that the ledger names, not those of a folder."""
    lake, file = Lake(spark, folder / "lake"), _newest(folder)
    stray = file.with_name("part-00007-000.parquet")
    shutil.copy(file, stray)
    assert lake.read(Counter).count() == LakeReader(folder / "lake").read(Counter).count() == 960
    assert [str(problem) for problem in lake.check()] == [f"{stray}: is in no commit and is not read; remove it"]


@pytest.mark.parametrize(
    ("name", "table", "use"),
    [
        ("inboxes", "Counter", lambda lake, folder: Inboxes(lake.spark, folder / "inboxes").read("city").count()),
        ("inboxes", "Counter", lambda lake, folder: Inboxes(lake.spark, folder / "inboxes").subscribers().count()),
        ("derived", "results", lambda lake, folder: DerivedTable(lake, folder / "derived", SECONDS, Counter).read()),
        ("derived", "waiting", lambda lake, folder: DerivedTable(lake, folder / "derived", SECONDS, Counter).update()),
    ],
    ids=["inbox", "subscribers", "results", "waiting rows"],
)
def test_files_of_inboxes_and_derived_tables_are_checked_too(
    spark: SparkSession, folder: Path, name: str, table: str, use: Callable[[Lake, Path], object]
) -> None:
    lake, file = Lake(spark, folder / "lake"), _files(folder, name, table)[0]
    content = file.read_bytes()
    file.write_bytes(_flip(content, 8 * (len(content) // 2)))
    with pytest.raises(LakeDamaged, match=file.name):
        use(lake, folder)
    checked = (
        Inboxes(spark, folder / name) if name == "inboxes" else DerivedTable(lake, folder / name, SECONDS, Counter)
    )
    assert [problem.path for problem in checked.check()] == [str(file)]


FLIPS = 300


@pytest.mark.slow
def test_every_flipped_bit_is_noticed_or_harmless(folder: Path) -> None:
    """By pyarrow in the pages, by the store in what it has no checksum for; `check` finds every one."""
    store = Store(folder / "lake")
    part = store.state().table("Counter")[-1]
    (path,) = (Path(each) for each in store.file_paths([part]))
    content, chosen = path.read_bytes(), random.Random(14)
    right = pq.read_table(path, partitioning=None)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for number in range(FLIPS):
        within = (0, footer) if number % 3 else (footer, len(content))
        path.write_bytes(_flip(content, 8 * chosen.randrange(*within) + chosen.randrange(8)))
        _compare.cache_clear()
        with pytest.raises(LakeDamaged, match=path.name):
            store.file_paths([part])
        assert [problem.path for problem in store.check()] == [str(path)]
        if number % 3:
            assert _read(path) in (None, right)


def _read(path: Path) -> pa.Table | None:
    """A table of a file, without what a store compares; None if it is damaged."""
    try:
        return pq.read_table(path, partitioning=None, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        return None


def test_spark_notices_a_flipped_bit_in_a_page_of_a_large_file(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file the store compares the footer only; the command shows Spark's exception as one line."""
    monkeypatch.setattr("genus.lake._tables.store._SMALL", 0)
    file = _newest(folder)
    content = file.read_bytes()
    column = pq.read_metadata(file).row_group(0).column(0)
    page_end = column.data_page_offset + column.total_compressed_size // 2
    file.write_bytes(_flip(content, 8 * page_end))
    lake = Lake(spark, folder / "lake")
    with pytest.raises(Exception, match=r"(?i)checksum|crc|parquet"):
        lake.read(Counter).toArrow()
    with pytest.raises(LakeDamaged, match=f"{file.name} cannot be read"):
        lake.route(WANTED).to_inboxes(folder / "more inboxes")
    with pytest.raises(LakeDamaged, match=f"{file.name} cannot be read"):
        DerivedTable(lake, folder / "more", Windows(every="1 min", by=("lane",), lateness="1s"), Counter).update()
    file.write_bytes(_flip(content, 8 * (len(content) - 100)))
    with pytest.raises(LakeDamaged, match="has another footer than was committed"):
        lake.read(Counter)


def test_a_damaged_file_is_one_line_on_the_command_line(folder: Path) -> None:
    file = _newest(folder)
    file.write_bytes(_flip(file.read_bytes(), 4000))
    for command in (["read", str(folder / "lake"), "Counter"], ["compact", str(folder / "lake")]):
        done = run_command("lake", *command)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"genus: {file} has another content than was committed")


# -- what is on disk before a commit -----------------------------------------------------------------------------------


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tasks write it."""
    flushed: list[tuple[str, bool]] = []
    path = tmp_path / "part.parquet"
    monkeypatch.setattr(files_module, "sync", lambda made: flushed.append((Path(made).read_text(), path.exists())))
    put_content(str(path), pa.py_buffer(b"rows"))
    assert (flushed, path.read_text()) == ([("rows", False)], "rows")


@pytest.mark.slow
def test_names_of_files_are_flushed_before_the_commit_that_names_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders above each file, then the commit and its name; tasks have flushed the contents."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    flushed: list[str] = []
    fsync, link = os.fsync, os.link

    def note_flush(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def note_link(made: str, path: str) -> None:
        if path.startswith(f"{tmp_path}/lake/_log/0") and "fold" not in path:
            assert made in flushed, "the content of the commit"
            _check_flushed(flushed, path, made)
        link(made, path)

    def _check_flushed(flushed: list[str], path: str, made: str) -> None:
        commit = json.loads(Path(made).read_bytes())["commit"]
        for part in commit.get("added", ()):
            inner = Path(f"{tmp_path}/lake/{part['folder']}")
            assert {str(inner), str(inner.parent), str(inner.parent.parent)} <= set(flushed)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(os, "link", note_link)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(50, first=100 * number)))
    assert lake.compact().tables == 2


@pytest.mark.parametrize("name", ["seal", "commit", "last"])
def test_a_name_in_a_commit_file_that_was_changed_is_noticed(name: str) -> None:
    """Also that of a value which is null in most files."""
    content, _, _ = _ledgers(False)
    path = min(each for each in content if each.endswith("000000000001.json"))
    at = content[path].rindex(f'"{name}":'.encode()) + 1
    for bit in range(8 * len(name)):
        damaged = content | {path: _flip(content[path], 8 * at + bit)}
        assert path in {problem for problem, _ in Ledger(MemoryFiles(damaged), "/lake").problems()}
