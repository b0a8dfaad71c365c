"""The files that a lake has ingested: known for long, in bounded memory."""

import json
import os
from pathlib import Path

import pytest

from genus.errors import LakeDamaged
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables import ledger_folder
from genus.lake._tables.commits import CommitDraft, IngestedFile, SourceCounts, SourceTableInfo, checksum
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.lake_folder import backup
from genus.lake._tables.ledger import FOLD_EVERY, Ledger
from genus.lake._tables.sources import KEPT_DAYS, MAX_SAME_SIZE, Sources, SourceTable, make_table
from genus.lake._tables.store import Store

PER_COMMIT = 20
DAY_US = 86_400_000_000


def _source(number: int, dead: int = 0) -> IngestedFile:
    return IngestedFile(number, f"/in/{number:06}", number % 7, 1, dead, "", number)


def _ledger(path: Path) -> Ledger:
    return Ledger(LocalFileSystem(), str(path))


def _fill(ledger: Ledger, first: int, commits: int, days: int = 0) -> None:
    for commit in range(first, first + commits):
        numbers = range(commit * PER_COMMIT, (commit + 1) * PER_COMMIT)
        sources = tuple(_source(number, dead=int(number % 50 == 0)) for number in numbers)
        at_us = commit * days * DAY_US
        ledger.commit(CommitDraft(id=f"{commit:04x}", kind="ingest", at_us=at_us, sources=sources))


def _tables(path: Path) -> list[Path]:
    return sorted((path / "_log").glob("*.sources"))


def test_old_sources_leave_memory_and_stay_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the process that has ingested them."""
    monkeypatch.setattr(ledger_module, "MAX_IN_MEMORY", 2000)
    ledger, count = _ledger(tmp_path), 5 * FOLD_EVERY * PER_COMMIT
    _fill(ledger, 0, 5 * FOLD_EVERY)
    opened = _ledger(tmp_path).state().sources
    assert opened.in_memory == 0
    assert ledger.state().sources.in_memory <= 2000 + PER_COMMIT
    assert opened == ledger.state().sources
    assert opened.counts == SourceCounts(count, sum(n % 7 for n in range(count)), count // 50)
    assert opened.get(17) == IngestedFile(17, "/in/000017", 3, 1, 0, "0000", 17)
    assert opened.of_path("/in/004321") == opened[4321]
    assert opened.get(count) is None
    assert sorted(opened.same_size(3) or ()) == [number for number in range(count) if number % 7 == 3]
    assert len(list(opened.with_dead())) == count // 50


def test_too_many_sources_of_one_size_are_not_listed() -> None:
    many = {number: IngestedFile(number, "", 5, 1, 0) for number in range(MAX_SAME_SIZE + 1)}
    assert Sources().changed(many).same_size(5) is None
    assert Sources().changed(many).same_size(6) == ()


def test_sources_are_forgotten_after_long_unless_they_have_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 4)
    monkeypatch.setattr(ledger_folder, "TABLE_FROM", 1)
    _fill(_ledger(tmp_path), 0, 32, days=20)  # 640 days
    sources = _ledger(tmp_path).state().sources
    first = 31 - KEPT_DAYS // 20
    known = [n for n in range(32 * PER_COMMIT) if n >= first * PER_COMMIT or n % 50 == 0]
    assert sorted(sources) == known
    assert sources.counts == SourceCounts(len(known), sum(n % 7 for n in known), sum(n % 50 == 0 for n in known))


def test_a_table_that_was_changed_or_removed_is_noticed(tmp_path: Path) -> None:
    _fill(_ledger(tmp_path), 0, FOLD_EVERY)
    (table,) = _tables(tmp_path)
    content = table.read_bytes()
    table.write_bytes(content.replace(b"/in/000017", b"/in/000018"))
    assert len(_ledger(tmp_path).state().sources) == FOLD_EVERY * PER_COMMIT, "counting does not read it"
    with pytest.raises(LakeDamaged, match="its checksum differs"):
        _ledger(tmp_path).state().sources.get(17)
    assert [path for path, _ in _ledger(tmp_path).problems()]
    for damage in (table.unlink, lambda: table.write_bytes(b"")):
        damage()
        found = _ledger(tmp_path).state().sources  # the commits are there
        assert found.get(17) == IngestedFile(17, "/in/000017", 3, 1, 0, "0000", 17)
        assert [path for path, _ in _ledger(tmp_path).problems()]
    table.write_bytes(content)
    assert not list(_ledger(tmp_path).problems())


def test_tables_of_merged_folds_are_cleaned_and_backups_have_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 4)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    monkeypatch.setattr(ledger_folder, "TABLE_FROM", 1)
    _fill(_ledger(tmp_path / "lake"), 0, 32)
    for table in _tables(tmp_path / "lake"):
        os.utime(table, (0, 0))
    Store(tmp_path / "lake").clean([], 86_400)
    folds = [path.name[:25] for path in sorted((tmp_path / "lake" / "_log").glob("*.fold.json"))]
    assert [path.name[:25] for path in _tables(tmp_path / "lake")] == folds
    _ledger(tmp_path / "lake").forget(1)
    backup(tmp_path / "lake", tmp_path / "copy")
    assert _ledger(tmp_path / "copy").state() == _ledger(tmp_path / "lake").state()
    assert not list(_ledger(tmp_path / "copy").problems())


def test_folds_of_an_older_genus_get_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have all sources in JSON, and no sums."""
    with monkeypatch.context() as patch:
        patch.setattr(ledger_folder, "TABLE_FROM", 1 << 60)
        _fill(_ledger(tmp_path), 0, FOLD_EVERY)
    (fold,) = (tmp_path / "_log").glob("*.fold.json")
    envelope = json.loads(fold.read_text())
    del envelope["commit"]["counts"]
    text = json.dumps(envelope["commit"], separators=(",", ":"))
    envelope["seal"] = checksum((text + envelope["last"]).encode())
    fold.write_text(json.dumps(envelope, separators=(",", ":")))
    before = _ledger(tmp_path).state().sources
    assert before.in_memory == len(before) == FOLD_EVERY * PER_COMMIT
    _fill(_ledger(tmp_path), FOLD_EVERY, FOLD_EVERY)
    after = _ledger(tmp_path).state().sources
    assert after.in_memory == 0
    assert {number: after[number] for number in before} == before
    assert after.counts.sources == 2 * FOLD_EVERY * PER_COMMIT == len(dict(after))
    assert len(_tables(tmp_path)) == 2


def test_a_table_has_the_last_of_several_sources(tmp_path: Path) -> None:
    """Of one number, and of one path."""
    old, new = IngestedFile(1, "/a", 5, 1, 2, "x"), IngestedFile(1, "/a", 5, 3, 0, "y")
    content, counts, _ = make_table([([old, IngestedFile(2, "/a", 6, 1, 0, "x")], 0), ([new], 0)], 0)
    assert counts == SourceCounts(2, 11, 0)
    path = tmp_path / "table"
    path.write_bytes(content)
    table = SourceTable(LocalFileSystem(), str(path), SourceTableInfo("table", checksum(content), counts))
    assert (table.get(1), table.of_path("/a")) == (new, new)
