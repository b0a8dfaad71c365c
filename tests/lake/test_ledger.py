"""The ledger: commits are ordered, a store changes atomically, and damage is noticed."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from genus.errors import LakeDamaged, LakeError
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables import ledger_folder
from genus.lake._tables.commits import (
    START,
    CommitConflict,
    CommitDraft,
    Cursor,
    IngestedFile,
    Part,
    Shape,
    SourceCounts,
    StoredFile,
    checksum,
    count_rows,
)
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.files import FileInfo
from genus.lake._tables.ledger import FOLD_EVERY, Ledger
from genus.lake._tables.sources import Sources
from genus.lake._tables.state import LedgerState
from tests.examples import examples


class Killed(BaseException):
    """Ends the simulated process."""


class MemoryFiles:
    """Files in memory that many ledgers share; a writer may be killed just before or after it creates one."""

    def __init__(self, content: dict[str, bytes], kill: str = "") -> None:
        self.content = content
        self.kill = kill
        self.asked: Counter[str] = Counter()

    def read(self, path: str) -> bytes | None:
        self.asked["read"] += 1
        return self.content.get(path)

    def create(self, path: str, content: bytes) -> bool:
        self._die("before")
        won = self.content.setdefault(path, content) is content
        self._die("after")
        return won

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        self.content[path] = content

    def list_folder(self, folder: str) -> list[FileInfo]:
        self.asked["list_folder"] += 1
        return [FileInfo(path, len(found), False, 0.0) for path, found in sorted(self.content.items())]

    def delete(self, path: str) -> None:
        self.content.pop(path, None)

    def _die(self, when: str) -> None:
        if self.kill == when:
            raise Killed


def _part(id: str, number: int = 0, rows: int = 1) -> Part:
    return Part("Loop", f"tables/Loop/_commit={id}/{number}", (StoredFile("part.parquet", rows, rows * 10, "4f21"),))


def _ingest(id: str, *sources: int, builds_on: str = "") -> CommitDraft:
    read = tuple(IngestedFile(number, f"/in/{number}", 100, 1, 0, builds_on) for number in sources)
    return CommitDraft(id=id, kind="ingest", at_us=0, added=(_part(id),), sources=read)


def _ledger(path: Path) -> Ledger:
    return Ledger(LocalFileSystem(), str(path))


# -- against a model ---------------------------------------------------------------------------------------------------


PATHS = [f"/in/{number}" for number in range(3)]


class Model:
    """A model of the state of a store, without files."""

    def __init__(self) -> None:
        self.version = 0
        self.cursor = START
        self.parts: dict[str, Part] = {}
        self.sources: dict[int, IngestedFile] = {}
        self.paths: dict[str, int] = {}
        self.shapes: set[Shape] = set()
        self.notes: dict[str, str] = {}
        self.newest: int | None = None

    def refuses(self, draft: CommitDraft) -> bool:
        return (
            any(self._commit_of(source.number) != source.commit for source in draft.sources)
            or any(folder not in self.parts for folder in draft.removed)
            or draft.after not in (None, self.cursor)
        )

    def _commit_of(self, number: int) -> str:
        known = self.sources.get(number)
        return known.commit if known else ""

    def take(self, draft: CommitDraft) -> None:
        self.version += 1
        for folder in draft.removed:
            del self.parts[folder]
        numbered = (msgspec.structs.replace(part, first=self.version, last=self.version) for part in draft.added)
        self.parts.update((part.folder, part) for part in numbered)
        self.sources |= {each.number: msgspec.structs.replace(each, commit=draft.id) for each in draft.sources}
        self.paths |= {each.path: each.number for each in draft.sources}
        self.shapes.update(draft.shapes)
        self.notes.update(draft.notes)
        self.cursor = draft.upto if draft.upto is not None else self.cursor
        if draft.newest_us is not None:
            self.newest = max(draft.newest_us, self.newest or draft.newest_us)

    def equals(self, state: LedgerState) -> bool:
        return (
            (self.version, self.cursor, self.parts, self.sources, self.notes, self.newest)
            == (state.version, state.cursor, dict(state.parts), dict(state.sources), state.notes, state.newest_us)
        ) and self.shapes == set(state.shapes.values()) and self._finds_same(state.sources)  # fmt: skip

    def _finds_same(self, sources: Sources) -> bool:
        known = self.sources.values()
        paths = {path: found.number for path in PATHS if (found := sources.of_path(path))}
        sizes = {size: {each.number for each in known if each.bytes == size} for size in range(3)}
        sums = SourceCounts(len(known), sum(each.bytes for each in known), sum(each.dead for each in known))
        return (
            (paths, sums, {each.number for each in known if each.dead})
            == (self.paths, sources.counts, {each.number for each in sources.with_dead()})
        ) and sizes == {size: set(sources.same_size(size) or ()) for size in range(3)}  # fmt: skip


class Writers(RuleBasedStateMachine):
    """Several processes write to one store; each bases its drafts on the state it saw last, and any may be killed."""

    numbers = st.integers(0, 2)

    @initialize()
    def begin(self) -> None:
        self.content: dict[str, bytes] = {}
        self.model = Model()
        self.made = 0
        self.ledgers = [self.open() for _ in range(3)]
        self.seen = [LedgerState()] * 3

    def open(self, kill: str = "") -> Ledger:
        """A ledger of another process, which may be killed before or after it creates a file."""
        return Ledger(MemoryFiles(self.content, kill), "/lake")

    @rule(who=numbers)
    def look(self, who: int) -> None:
        self.seen[who] = self.ledgers[who].state()
        assert self.model.equals(self.seen[who])

    @rule(who=numbers)
    def restart(self, who: int) -> None:
        self.ledgers[who] = self.open()

    @rule(who=numbers, sources=st.sets(st.integers(0, 6), max_size=2), shape=st.integers(0, 3))
    def ingest(self, who: int, sources: set[int], shape: int) -> None:
        """Draft an ingest of known sources, based on the commit that this writer knows."""
        known = self.seen[who].sources
        read = [
            IngestedFile(each, PATHS[each % 3], each % 2, 1, shape, known[each].commit if each in known else "")
            for each in sources
        ]
        shapes = (Shape("Loop", "Loop", "6", f"{shape:x}"),)
        self._commit(who, self._draft(sources=tuple(read), shapes=shapes, newest_us=shape * 10))

    @rule(who=numbers)
    def compact(self, who: int) -> None:
        self._commit(who, self._draft(removed=tuple(self.seen[who].parts)))

    @rule(who=numbers, steps=st.integers(1, 3))
    def follow(self, who: int, steps: int) -> None:
        cursor = self.seen[who].cursor
        upto = Cursor(cursor.version + steps, str(who))
        self._commit(who, self._draft(after=cursor, upto=upto, notes={"by": str(who)}))

    @rule(who=numbers, when=st.sampled_from(["before", "after"]))
    def kill(self, who: int, when: str) -> None:
        """Kill a writer after its files are written, just before or after the commit."""
        draft = self._draft()
        dying = self.open(when)
        with pytest.raises(Killed):
            dying.commit(draft)
        if when == "after":
            self.model.take(draft)
        self.restart(who)

    def _draft(self, **what: object) -> CommitDraft:
        self.made += 1
        id = f"{self.made:x}"
        return CommitDraft(id=id, kind="ingest", at_us=0, added=(_part(id),), **what)  # type: ignore[arg-type]

    def _commit(self, who: int, draft: CommitDraft) -> None:
        if self.model.refuses(draft):
            with pytest.raises(CommitConflict):
                self.ledgers[who].commit(draft)
            return
        made = self.ledgers[who].commit(draft)
        self.model.take(draft)
        assert made.version == self.model.version

    @invariant()
    def a_new_reader_sees_the_fold_of_all_commits(self) -> None:
        assert self.model.equals(self.open().state())

    @invariant()
    def all_commits_can_be_read(self) -> None:
        reader = self.open()
        assert [commit.version for commit in reader.commits(0, self.model.version)] == [
            *range(1, self.model.version + 1)
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "table_from"), [(2, 1000), (2, 1), (3, 2), (FOLD_EVERY, 1000)])
def test_any_writers_and_kills_add_up_to_the_fold_of_commits(
    every: int, table_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with frequent and with rare folds, with folds of folds, and with sources in tables."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", every)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    monkeypatch.setattr(ledger_module, "MAX_IN_MEMORY", table_from)
    monkeypatch.setattr(ledger_folder, "TABLE_FROM", table_from)
    Writers.TestCase.settings = settings(examples(60), stateful_step_count=30)
    Writers.TestCase("runTest").debug()


def test_writers_at_the_same_time_each_get_their_place(tmp_path: Path) -> None:
    """Eight threads with a ledger each: every commit exists once, and of conflicting ones one."""

    def write(who: int) -> int:
        ledger, won = _ledger(tmp_path), 0
        for number in range(12):
            ledger.commit(_ingest(f"own-{who}-{number}", 1000 * who + number))
            try:
                ledger.commit(_ingest(f"shared-{who}-{number}", -number - 1))
                won += 1
            except CommitConflict:
                pass
        return won

    with ThreadPoolExecutor(8) as pool:
        won = sum(pool.map(write, range(8)))
    state = _ledger(tmp_path).state()
    assert won == 12
    assert state.version == len(state.parts) == 8 * 12 + 12
    assert len(state.sources) == 8 * 12 + 12


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_source_is_read_in_once(tmp_path: Path) -> None:
    """It may be ingested again only by a writer that knows its last commit."""
    ledger = _ledger(tmp_path)
    ledger.commit(_ingest("a", 1))
    with pytest.raises(CommitConflict, match="/in/1 was ingested by another process"):
        ledger.commit(_ingest("b", 2, 1))
    ledger.commit(_ingest("c", 1, builds_on="a"))
    with pytest.raises(CommitConflict):
        ledger.commit(_ingest("d", 1, builds_on="a"))
    assert {number: source.commit for number, source in ledger.state().sources.items()} == {1: "c"}


def test_parts_are_replaced_once(tmp_path: Path) -> None:
    """Of two compactions of the same parts, one is committed."""
    ledger, gone = _ledger(tmp_path), (_part("a").folder,)
    ledger.commit(_ingest("a", 1))
    ledger.commit(CommitDraft(id="b", kind="compact", at_us=0, added=(_part("b", rows=7),), removed=gone))
    with pytest.raises(CommitConflict, match="_commit=a/0 was removed by another process"):
        ledger.commit(CommitDraft(id="c", kind="compact", at_us=0, added=(_part("c"),), removed=gone))
    assert count_rows(ledger.state().table("Loop")) == 7
    assert ledger.state().tables == ["Loop"]


def test_versions_are_followed_once(tmp_path: Path) -> None:
    """Of two followers at the same version, one is committed."""
    ledger = _ledger(tmp_path)
    ledger.commit(CommitDraft(id="a", kind="deliver", at_us=0, after=START, upto=Cursor(5, "e")))
    with pytest.raises(CommitConflict, match="version 0 was processed by another process"):
        ledger.commit(CommitDraft(id="b", kind="deliver", at_us=0, after=START, upto=Cursor(7, "f")))
    assert ledger.state().cursor == Cursor(5, "e")


def test_a_commit_that_the_file_system_made_unknowingly_counts_once() -> None:
    """A retry inside an object store's client may find the file that its first attempt created."""

    class Forgetful(MemoryFiles):
        def create(self, path: str, content: bytes) -> bool:
            super().create(path, content)
            return False

    ledger = Ledger(Forgetful({}), "/lake")
    assert ledger.commit(_ingest("a", 1)).version == 1
    assert ledger.state().version == 1


# -- damage ------------------------------------------------------------------------------------------------------------


def _filled(path: Path, commits: int) -> list[Path]:
    ledger = _ledger(path)
    for number in range(commits):
        ledger.commit(_ingest(f"{number}", number))
    return sorted(file for file in (path / "_log").iterdir() if file.name != "head.json")


def test_a_missing_commit_is_noticed(tmp_path: Path) -> None:
    files = _filled(tmp_path, 4)
    files[1].unlink()
    with pytest.raises(LakeDamaged, match="commit 2 is missing, but 4 exists"):
        _ledger(tmp_path).state()
    with pytest.raises(LakeDamaged, match=r"000000000002\.json is missing"):
        _ledger(tmp_path).commits(0, 4)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content.replace(b'"version":2', b'"version":3'),
        lambda content: content.replace(b'"id":"1"', b'"id":1'),
        lambda content: content.replace(b'"ingest"', b'"guess"'),
        lambda content: content.replace(b"/in/1", b"/in/\xff"),
    ],
    ids=["cut short", "empty", "of another version", "of another type", "of no kind", "not text"],
)
def test_a_damaged_commit_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = _filled(tmp_path, 3)[1]
    spoiled = damage(file.read_bytes())
    assert spoiled != file.read_bytes()
    file.write_bytes(spoiled)
    with pytest.raises(LakeDamaged, match=r"_log/000000000002\.json: "):
        _ledger(tmp_path).state()


def _edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a commit and seal it again, as somebody who knows the format might."""
    commit = json.loads(file.read_text())["commit"]
    change(commit)
    text = json.dumps(commit, separators=(",", ":"))
    file.write_text(f'{{"seal":"{checksum(text.encode())}","commit":{text}}}')


def test_a_commit_that_was_edited_and_sealed_again_does_not_fit_the_next(tmp_path: Path) -> None:
    """Each commit names the seal of the one before; the head names that of the last."""
    files = _filled(tmp_path, 3)
    _edit(files[1], lambda commit: commit.update(at_us=7))
    with pytest.raises(LakeDamaged, match=r"000000000003\.json was not made after commit 2"):
        _ledger(tmp_path).state()
    files = _filled(tmp_path / "other", 3)
    _edit(files[2], lambda commit: commit.update(at_us=7))
    with pytest.raises(LakeDamaged, match=r"000000000003\.json is another commit than the one that was made"):
        _ledger(tmp_path / "other").state()


def test_the_last_commit_is_missed(tmp_path: Path) -> None:
    files = _filled(tmp_path, 3)
    files[-1].unlink()
    with pytest.raises(LakeDamaged, match=r"000000000003\.json is missing; it was the last commit"):
        _ledger(tmp_path).state()


def test_the_last_commits_are_missed_without_the_head(tmp_path: Path) -> None:
    """A fold has the newest commits only if these are there, too: no cleaning removes them."""
    files = _filled(tmp_path, FOLD_EVERY + 2)
    for file in files[-3:]:
        file.unlink()
    (tmp_path / "_log" / "head.json").unlink()
    with pytest.raises(LakeDamaged, match=rf"{FOLD_EVERY:012}\.json is missing, and all commits after it"):
        _ledger(tmp_path).state()


def test_nothing_is_committed_after_a_commit_that_is_gone(tmp_path: Path) -> None:
    """A process that has read versions which a restore took away does not leave a gap in the ledger."""
    files = _filled(tmp_path, 2)
    ledger = _ledger(tmp_path)
    assert ledger.state().version == 2
    files[1].unlink()
    with pytest.raises(LakeDamaged, match="was removed or replaced since it was read"):
        ledger.commit(_ingest("late", 99))


def test_a_ledger_that_was_restored_while_in_use_is_noticed(tmp_path: Path) -> None:
    files = _filled(tmp_path, 3)
    reader = _ledger(tmp_path)
    assert reader.state().version == 3
    for file in files[1:]:
        file.unlink()
    (tmp_path / "_log" / "head.json").unlink()
    writer = _ledger(tmp_path)
    for number in range(10, 13):
        writer.commit(_ingest(f"other-{number}", number))
    with pytest.raises(LakeDamaged, match="changed, or restored from a backup while it was in use"):
        reader.state()


@pytest.mark.parametrize("damage", ["{", "", '{"seal":"00","commit":{}}'])
def test_a_damaged_fold_is_passed_over_while_the_commits_are_there(tmp_path: Path, damage: str) -> None:
    _filled(tmp_path, FOLD_EVERY + 1)
    whole = _ledger(tmp_path).state()
    (fold,) = (tmp_path / "_log").glob("*.fold.json")
    fold.write_text(damage)
    assert _ledger(tmp_path).state() == whole
    assert [path for path, _ in _ledger(tmp_path).problems()] == [str(fold)]


def test_fields_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    """Unknown fields of a newer Genus are ignored."""
    file = _filled(tmp_path, 1)[0]
    (tmp_path / "_log" / "head.json").unlink()
    _edit(file, lambda commit: commit.update(later=[1, 2]))
    assert _ledger(tmp_path).state().version == 1


# -- many commits ------------------------------------------------------------------------------------------------------


def test_commits_are_folded_and_folds_are_folded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small folds go when the next large one is made."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 2)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    _filled(tmp_path, 16)
    folds = [tuple(map(int, file.name[:-10].split("-"))) for file in sorted((tmp_path / "_log").glob("*.fold.json"))]
    assert folds == [(1, 8), (1, 16), (9, 12), (9, 16), (13, 14), (13, 16), (15, 16)]


def test_opening_reads_folds_and_what_came_after(tmp_path: Path) -> None:
    """The result is the same as from reading every commit."""
    _filled(tmp_path, 2 * FOLD_EVERY + 3)
    content = {str(file): file.read_bytes() for file in (tmp_path / "_log").iterdir()}
    files = MemoryFiles(content)
    state = Ledger(files, str(tmp_path)).state()
    assert files.asked == {"list_folder": 1, "read": 1 + 2 + 3 + 1}  # the head, two folds, three commits, and no more
    without = {path: found for path, found in content.items() if not path.endswith(".fold.json")}
    assert state == Ledger(MemoryFiles(without), str(tmp_path)).state()
    assert len(state.sources) == state.version == 2 * FOLD_EVERY + 3


def test_every_version_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 3)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    ledger, states = _ledger(tmp_path), []
    for number in range(20):
        ledger.commit(_ingest(f"{number}", number))
        states.append(ledger.state())
    assert [_ledger(tmp_path).state_at(version) for version in range(1, 21)] == states
    for version in (0, 21, -1):
        with pytest.raises(LakeError, match=f"there is no version {version}"):
            ledger.state_at(version)


def test_folded_commits_can_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state stays; what needs the commits themselves is told."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 3)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    _filled(tmp_path, 20)
    ledger = _ledger(tmp_path)
    before = ledger.state()
    assert ledger.forget(before_us=0) == 0
    assert ledger.forget(before_us=1) == 15
    assert ledger.forget(before_us=1) == 0
    assert _ledger(tmp_path).state() == before
    with pytest.raises(LakeError, match="version 3 is too old"):
        ledger.commits(2, 20)
    with pytest.raises(LakeError, match="version 4 is too old"):
        _ledger(tmp_path).state_at(4)
    assert [commit.version for commit in _ledger(tmp_path).history()] == [20, 19, 18, 17, 16]
    _ledger(tmp_path).commit(_ingest("later", 77))
    assert _ledger(tmp_path).state().version == 21


HOUR_US = 3_600_000_000


def _at(number: int, at_us: int) -> CommitDraft:
    return CommitDraft(id=f"{number}", kind="ingest", at_us=at_us)


@given(st.lists(st.integers(0, 10), min_size=1, max_size=30), st.integers(0, 11))
@examples(60)
def test_a_time_means_the_last_commit_at_or_before_it(hours: list[int], asked: int) -> None:
    """Also where clocks were ahead."""
    ledger = Ledger(MemoryFiles({}), "/lake")
    for number, hour in enumerate(hours):
        ledger.commit(_at(number, hour * HOUR_US))
    expected = [version for version, hour in enumerate(hours, 1) if hour <= asked]
    if expected:
        assert ledger.version_at(asked * HOUR_US) == expected[-1]
    else:
        with pytest.raises(LakeError, match="there is no version at that time"):
            ledger.version_at(asked * HOUR_US)


def test_a_clock_that_is_a_little_behind_does_not_set_times_back(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    times = [ledger.commit(_at(number, at_us)).at_us for number, at_us in enumerate([HOUR_US, HOUR_US - 1, HOUR_US])]
    assert times == [HOUR_US] * 3


def test_a_clock_that_was_ahead_once_does_not_keep_commits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 2)
    ledger = _ledger(tmp_path)
    for number, hour in enumerate([1, 99, 2, 3, 4, 5, 6, 7]):
        ledger.commit(_at(number, hour * HOUR_US))
    assert ledger.forget(before_us=3 * HOUR_US) == 3
    assert _ledger(tmp_path).state() == ledger.state()


def test_looking_again_lists_nothing(tmp_path: Path) -> None:
    """A long-running stream has many commits: the next one is looked up by name."""
    files = MemoryFiles({})
    ledger, other = Ledger(files, "/lake"), Ledger(MemoryFiles(files.content), "/lake")
    ledger.commit(_ingest("a", 1))
    assert ledger.state().version == 1
    files.asked.clear()
    other.commit(_ingest("b", 2))
    assert [ledger.state().version, ledger.state().version] == [2, 2]
    assert files.asked == {"read": 3}


def test_who_was_away_for_long_reads_folds_instead_of_every_commit() -> None:
    files = MemoryFiles({})
    ledger, other = Ledger(files, "/lake"), Ledger(MemoryFiles(files.content), "/lake")
    ledger.commit(_ingest("a", -1))
    for number in range(5 * FOLD_EVERY):
        other.commit(_ingest(f"{number}", number))
    files.asked.clear()
    assert ledger.state() == other.state()
    assert files.asked["read"] <= FOLD_EVERY + 3
    assert files.asked["list_folder"] == 1


def test_a_store_exists_once_it_has_a_commit(tmp_path: Path) -> None:
    """Files that a killed `create` left are not a store."""
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / ".000000000001.json.4f21").write_bytes(b"{")
    ledger = _ledger(tmp_path)
    assert not ledger.exists
    assert ledger.state() == LedgerState()
    ledger.commit(_ingest("a", 1))
    assert ledger.exists


class CountedFiles(MemoryFiles):
    """Counts operations and bytes."""

    def read(self, path: str) -> bytes | None:
        found = super().read(path)
        self.asked["bytes read"] += len(found or b"")
        return found

    def create(self, path: str, content: bytes) -> bool:
        self.asked["create"] += 1
        self.asked["bytes written"] += len(content)
        return super().create(path, content)

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        self.asked["replace"] += 1
        super().replace(path, content, durable)

    def delete(self, path: str) -> None:
        self.asked["delete"] += 1
        super().delete(path)


@pytest.mark.parametrize("blocks", [5, pytest.param(39, marks=pytest.mark.slow)])
def test_a_commit_costs_the_same_however_many_there_are(blocks: int) -> None:
    """Operations and bytes of 512 commits, folds included, at the beginning and after many."""
    files = CountedFiles({})
    ledger, costs = Ledger(files, "/lake"), []
    for number in range(blocks * 512):
        if number in (512, (blocks - 1) * 512):
            files.asked.clear()
        ledger.commit(_ingest(f"{number:08}", 10**9 + number))
        if number + 1 in (2 * 512, blocks * 512):
            costs.append(dict(files.asked))
    early, late = costs
    for what in ("read", "create", "replace", "list_folder"):
        assert late.get(what, 0) <= early.get(what, 0), what
    assert late["delete"] <= early["delete"] + 8
    for what in ("bytes read", "bytes written"):
        assert late[what] < 1.05 * early[what], what
    files.asked.clear()
    assert Ledger(files, "/lake").state() == ledger.state()
    assert files.asked["read"] < 4 + 2 * 8 + FOLD_EVERY
