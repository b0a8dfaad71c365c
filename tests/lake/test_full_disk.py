"""A full disk: one line that says so, nothing is committed, and what was written is removed."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from genus import Event
from genus.errors import GenusError, LakeError
from genus.lake import DerivedTable, Inboxes, Lake, Windows
from genus.lake._tables.store import Drafts, Store
from genus.testing import run_command
from tests.lake.roads import ALL, Counter, traffic, write_recording
from tests.lake.test_inboxes import WANTED

MEGABYTES = 4
SECONDS = Windows(every=timedelta(seconds=1), lateness=timedelta(seconds=5))


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small file system in memory."""
    folder = tmp_path_factory.mktemp("disk")
    options = ["-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
    made = shutil.which("mount") and subprocess.run(["mount", *options], capture_output=True, check=False)
    if not made or made.returncode:
        pytest.skip("a file system of limited size cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def folder(disk: Path) -> Iterator[Path]:
    path = disk / uuid.uuid4().hex
    path.mkdir()
    yield path
    (disk / "filler").unlink(missing_ok=True)
    shutil.rmtree(path)


def _fill(disk: Path) -> None:
    """Leave no space."""
    with (disk / "filler").open("ab") as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    os.write(file.fileno(), bytes(size))
            except OSError:
                continue


class Filler(Event):
    """For a catalog that grows."""

    number: int


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_every_writer_says_in_one_line_that_the_disk_is_full(
    spark: SparkSession, disk: Path, folder: Path, tmp_path: Path
) -> None:
    """Nothing is committed, nothing is left, and with space again the same calls go through."""
    lake = Lake.create(spark, folder / "lake", *ALL)
    for number in range(2):
        lake.ingest(write_recording(tmp_path / f"{number}.genus", traffic(100, first=1000 * number)))
        lake.route(WANTED).to_inboxes(folder / "inboxes")
    derived = DerivedTable(lake, folder / "derived", SECONDS, Counter)
    more = write_recording(tmp_path / "more.genus", traffic(200, first=5000))
    lake.ingest(write_recording(tmp_path / "2.genus", traffic(100, first=3000)))
    work: dict[str, Callable[[], object]] = {
        "ingest": lambda: lake.ingest(more),
        "compact": lake.compact,
        "deliver": lambda: lake.route(WANTED).to_inboxes(folder / "inboxes"),
        "derive": derived.update,
        "delete": lambda: lake.delete("Counter where speed > 10"),
        "catalog": lambda: lake.register(Filler),
    }
    versions = [Store(folder / name).state().version for name in ("lake", "inboxes", "derived")]
    before = _files(folder)
    _fill(disk)
    for name, do in work.items():
        with pytest.raises(GenusError, match=r"(?i)no space left") as raised:
            do()
        assert "\n" not in str(raised.value), name
    done = run_command("lake", "ingest", lake.path, str(more))
    assert done.returncode == 1
    assert "no space left on the disk of" in done.stderr.splitlines()[-1]
    left = {path for path in _files(folder) - before if path.suffix == ".parquet"}
    assert left == set()
    assert [Store(folder / name).state().version for name in ("lake", "inboxes", "derived")] == versions
    (disk / "filler").unlink()
    for do in work.values():
        do()
    assert [*lake.check(), *Inboxes(spark, folder / "inboxes").check(), *derived.check()] == []


# -- files of writers that have ended ----------------------------------------------------------------------------------

HOLDER = """
import sys
from genus.lake._tables.store import Drafts
drafts = Drafts(sys.argv[1])
drafts.begin("4f21")
print("holds", flush=True)
sys.stdin.read()
"""


def test_files_of_a_killed_writer_are_removed_at_once_those_of_a_running_one_are_kept(tmp_path: Path) -> None:
    """The lock of a draft goes with its process."""
    made = Store(tmp_path)
    made.commit(made.begin("create"))
    written = tmp_path / "tables" / "Loop" / "_commit=4f21" / "_day=2026-05-01"
    written.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        assert made.clean(["tables/Loop"], 0) == 0
        assert not Drafts(str(tmp_path)).has_ended("4f21")
    finally:
        holder.kill()
        holder.communicate()
    assert Drafts(str(tmp_path)).has_ended("4f21")
    assert made.clean(["tables/Loop"], 0) == 1
    assert not written.parent.exists()
    assert list((tmp_path / "_drafts").iterdir()) == []


def test_a_writer_that_fails_removes_its_files(tmp_path: Path) -> None:
    """And not those of a commit that was made before the exception came."""
    made = Store(tmp_path)
    for is_committed in (False, True):
        draft = made.begin("ingest")
        folder = tmp_path / "tables" / "Loop" / f"_commit={draft.id}"

        def write(draft: object = draft, folder: Path = folder, is_committed: bool = is_committed) -> None:
            with made.discarding():
                made.drafts.begin(draft.id)  # type: ignore[attr-defined]
                folder.mkdir(parents=True)
                if is_committed:
                    made.ledger.commit(draft)  # type: ignore[arg-type]
                raise LakeError("interrupted")

        with pytest.raises(LakeError, match="interrupted"):
            write()
        assert folder.exists() == is_committed
        assert made.drafts.mine() == set()
