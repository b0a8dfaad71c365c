"""A store without Spark: leftover folders, disks that cannot be written, and backups."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from genus.cli import genus
from genus.errors import LakeDamaged, LakeError
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables.commits import Commit, Part, StoredFile, checksum
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.lake_folder import copy_store
from genus.lake._tables.ledger import FOLD_EVERY
from genus.lake._tables.store import Store

YEAR_NS = 365 * 86_400 * 10**9


def _add(store: Store, *removed: str, content: bytes = b"rows") -> str:
    """Commit one file in place of some folders; returns its folder."""
    draft = store.begin("ingest")
    folder = f"tables/Loop/_commit={draft.id}/_day=2026-05-01"
    path = Path(store.path) / folder / "part.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    part = Part("Loop", folder, (StoredFile("part.parquet", 1, len(content), checksum(content)),))
    store.commit(msgspec.structs.replace(draft, added=(part,), removed=removed))
    return folder


def test_a_clock_that_was_ahead_does_not_keep_removed_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was removed at a later time than now was removed before the commits that followed."""
    store, real = Store(tmp_path), time.time_ns
    first = _add(store)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + YEAR_NS)
        second = _add(store, first)
    third = _add(store, second)
    assert store.leftovers(["tables/Loop"], 3600) == []
    assert sorted(store.leftovers(["tables/Loop"], 0)) == sorted([f"{store.path}/{first}", f"{store.path}/{second}"])
    assert store.clean(["tables/Loop"], 0) == 2
    assert [*store.state().parts] == [third]


def test_leftovers_are_looked_for_in_as_many_commits_as_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    history = store.ledger.history
    read: list[int] = []

    def noted() -> Iterator[Commit]:
        for commit in history():
            read.append(commit.version)
            yield commit

    monkeypatch.setattr(store.ledger, "history", noted)
    folders = [_add(store) for _ in range(5)]
    assert store.leftovers(["tables/Loop"], 0) == []
    assert read == []
    _add(store, folders[0])
    assert store.leftovers(["tables/Loop"], 0) == [f"{store.path}/{folders[0]}"]
    assert read == [6, 5]


def test_a_disk_that_cannot_be_written_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file can be made nor one that is not there removed."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    for write in (LocalFileSystem().create, LocalFileSystem().replace):
        with pytest.raises(LakeError, match=r"cannot write .*: Read-only file system"):
            write(f"{tmp_path}/file", b"")


# -- backups -----------------------------------------------------------------------------------------------------------


def _content(store: Store) -> dict[str, bytes]:
    """The data files that a state names, with their contents; the footers are checked."""
    return {path[len(store.path) :]: Path(path).read_bytes() for path in store.file_paths(store.state().parts.values())}


def test_a_backup_is_the_store_of_its_version_and_grows(tmp_path: Path) -> None:
    store, target = Store(tmp_path / "lake"), tmp_path / "copy"
    folders = [_add(store, content=b"%d" % number) for number in range(FOLD_EVERY + 3)]
    Path(store.path, "catalog.json").write_text("{}")
    done = copy_store(store, str(target))
    assert (done.version, done.files, done.copied) == (FOLD_EVERY + 3, FOLD_EVERY + 3, FOLD_EVERY + 3)
    assert (Store(target).state(), _content(Store(target))) == (store.state(), _content(store))
    assert (target / "catalog.json").read_text() == "{}"
    _add(store, *folders[:5])
    done = copy_store(store, str(target))
    assert (done.version, done.copied) == (FOLD_EVERY + 4, 1)
    assert (Store(target).state(), _content(Store(target))) == (store.state(), _content(store))
    assert copy_store(store, str(target)).copied == 0
    assert list(Store(target).check()) == []
    _add(Store(target))


def test_a_backup_of_a_store_that_is_written_meanwhile_opens(tmp_path: Path) -> None:
    """Commits and compactions that are made while files are copied are not in the copy."""
    store = Store(tmp_path / "lake")
    folders = [_add(store, content=b"%d" % number) for number in range(4)]
    before = store.state()
    writer = Store(store.path)

    def write(done: int, total: int) -> None:
        _add(writer, folders.pop(), content=b"later")

    assert copy_store(store, str(tmp_path / "copy"), write).version == 4
    copied = Store(tmp_path / "copy")
    assert copied.state() == before
    assert sorted(_content(copied).values()) == [b"0", b"1", b"2", b"3"]
    assert copy_store(store, str(tmp_path / "copy")).version == 8
    assert Store(tmp_path / "copy").state() == store.state()


@pytest.mark.parametrize("writes", range(0, 30, 2))
def test_an_interrupted_backup_is_at_the_version_before_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The same call completes it."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 4)
    store, target = Store(tmp_path / "lake"), str(tmp_path / "copy")
    folders = [_add(store, content=b"%d" % number) for number in range(3)]
    copy_store(store, target)
    versions = {3: store.state()}
    for number in range(7):
        _add(store, *folders[number : number + 1], content=b"later %d" % number)
    versions[10] = store.state()
    with monkeypatch.context() as patch:
        left = iter(range(writes))
        real = LocalFileSystem.replace

        def replace(*given: Any, **options: Any) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(*given, **options)

        patch.setattr(LocalFileSystem, "replace", replace)
        with suppress(KeyboardInterrupt):
            copy_store(store, target)
    with suppress(LakeDamaged):
        found = Store(target)
        assert found.state() == versions[found.state().version]
        _content(found)
    copy_store(store, target)
    assert Store(target).state() == versions[10]


def test_a_backup_goes_into_a_folder_of_its_own(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "lake"), Store(tmp_path / "other")
    _add(store)
    _add(other)
    with pytest.raises(LakeError, match="is not an earlier backup of this store"):
        copy_store(store, other.path)
    copy_store(store, str(tmp_path / "copy"))
    _add(Store(tmp_path / "copy"))
    _add(store)
    with pytest.raises(LakeError, match="is not an earlier backup of this store"):
        copy_store(store, str(tmp_path / "copy"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").touch()
    with pytest.raises(LakeError, match=r"has 'letter\.txt', which is of no backup"):
        copy_store(store, str(tmp_path / "home"))
    with pytest.raises(LakeError, match="are in each other"):
        copy_store(store, f"{store.path}/copy")
    with pytest.raises(LakeError, match="has no ledger"):
        copy_store(Store(tmp_path / "nothing"), str(tmp_path / "new"))


def test_a_damaged_file_is_not_copied(tmp_path: Path) -> None:
    store = Store(tmp_path / "lake")
    folder = _add(store)
    Path(store.path, folder, "part.parquet").write_bytes(b"swor")
    with pytest.raises(LakeDamaged, match="has another content than was committed"):
        copy_store(store, str(tmp_path / "copy"))
    Path(store.path, folder, "part.parquet").unlink()
    with pytest.raises(LakeError, match="is missing; if `clean` removed it just now"):
        copy_store(store, str(tmp_path / "copy"))


def test_a_plain_copy_of_a_store_that_was_written_meanwhile_says_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path / "lake")
    _add(store)
    shutil.copytree(store.path, tmp_path / "copy")
    _add(store)
    shutil.copy(Path(store.path, "_log", "head.json"), tmp_path / "copy" / "_log")
    with pytest.raises(LakeDamaged, match=r"If this is a copy .* remove .*head\.json: commits after 1 are not"):
        Store(tmp_path / "copy").state()
    (tmp_path / "copy" / "_log" / "head.json").unlink()
    assert Store(tmp_path / "copy").state().version == 1


def test_the_command_makes_a_backup(tmp_path: Path) -> None:
    store = Store(tmp_path / "lake")
    _add(store)
    done = CliRunner().invoke(genus, ["lake", "backup", store.path, str(tmp_path / "copy")])
    assert done.output.startswith(f"{tmp_path}/copy has version 1: 1 file of 1 copied, 4 bytes")
    assert Store(tmp_path / "copy").state() == store.state()
