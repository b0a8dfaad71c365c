"""Kill -9 at every point: nothing is lost, doubled, or different between ledger, Delta tables and readers.

Every operation of a lake is run again and again on a copy, and dies at its first change of a file, its second, and so
on. Then the same operation is run to the end, and the result is compared with that of a run without a death. At every
second point another process ingests a file just before the death.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from genus import Subscription, this
from genus.lake import DerivedTable, Inboxes, Lake, LakeReader, Walk, Windows
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables.commits import count_rows
from genus.lake._tables.store import Store
from tests.lake.bursts import GAP_US, GIVES, bursts
from tests.lake.deaths import Death, dying
from tests.lake.roads import ALL, Counter, Gate, traffic, write_recording
from tests.lake.test_inboxes import WANTED

FILES = {"first": traffic(60), "second": traffic(40, first=100), "new": traffic(30, first=200)}
OTHER = traffic(20, first=300)
STRIDE = int(os.environ.get("GENUS_KILL_STRIDE", "1"))
"""The sweep may leave out points, to be quicker."""
GONE = Subscription(Gate, where=this.open)
SECONDS = Windows(every=timedelta(seconds=10), by=("lane",), lateness=timedelta(seconds=5))
BURSTS = Walk(by=("lane",), function=bursts, gives=GIVES, lateness=timedelta(microseconds=GAP_US))


class Folder:
    """A lake with what follows it, and files to ingest."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path

    def lake(self) -> Lake:
        return Lake(self.spark, self.path / "lake")

    def ingest(self, name: str) -> None:
        self.lake().ingest(self.path / f"{name}.genus")

    def deliver(self) -> None:
        self.lake().route(WANTED).to_inboxes(self.path / "inboxes")

    def compact(self) -> None:
        self.lake().compact()

    def compact_inboxes(self) -> None:
        Inboxes(self.spark, self.path / "inboxes").compact()

    def delete(self) -> None:
        self.lake().delete(GONE)

    def expire(self) -> None:
        self.lake().expire(Gate, timedelta(seconds=30), now=datetime(2026, 5, 1, 6, 2, tzinfo=UTC))

    def mirror(self) -> None:
        self.lake().mirror()

    def clean(self) -> None:
        Inboxes(self.spark, self.path / "inboxes").clean(0)
        self.lake().clean(0)

    def windows(self) -> None:
        DerivedTable(self.lake(), self.path / "windows", SECONDS, Counter).update()

    def walk(self) -> None:
        DerivedTable(self.lake(), self.path / "walk", BURSTS, Counter).update()

    def copy(self, path: Path) -> "Folder":
        return Folder(self.spark, shutil.copytree(self.path, path))

    def answers(self) -> dict[str, Tally[str]]:
        """Everything in the lake by the local reader and by Delta tables, in the inboxes and in derived tables."""
        lake = self.lake()
        lake.mirror()
        reader = LakeReader(self.path / "lake")
        found: dict[str, Tally[str]] = {}
        for family in ("Counter", "Gate"):
            found[family] = _tally(reader.read(family).to_arrow())
            assert _tally(DeltaTable(lake.delta_path(family)).to_pyarrow_table()) == found[family]
            assert count_rows(lake.state().table(family)) == found[family].total()
        for name in ("inboxes", "windows", "walk"):
            store = Store(self.path / name)
            parts = [part for part in store.state().parts.values() if "waiting/" not in part.folder]
            tables = [_tally(pq.read_table(path, partitioning=None)) for path in store.file_paths(parts)]
            found[name] = sum(tables, Tally[str]())
        return found

    def problems(self) -> list[str]:
        stores = [Store(self.path / name) for name in ("lake", "inboxes", "windows", "walk")]
        return [str(each) for store in stores for each in store.check()]


def _tally(rows: pa.Table) -> Tally[str]:
    """The rows, without columns that depend on when they were written or that not all readers show."""
    kept = sorted(set(rows.schema.names) - {"_commit", "_day", "_ingested", "_shape", "_tag", "_code", "angle"})
    return Tally(map(repr, rows.select(kept).to_pylist()))


@pytest.fixture(scope="module")
def frequent_folds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger_module, "FOLD_EVERY", 2)
        patched.setattr(ledger_module, "RADIX", 2)
        yield


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, frequent_folds: None) -> Folder:
    """Two files are ingested and delivered, a third one is ingested; a fourth and a fifth are there."""
    made = Folder(spark, tmp_path_factory.mktemp("template"))
    Lake.create(spark, made.path / "lake", *ALL)
    for name, events in FILES.items():
        write_recording(made.path / f"{name}.genus", events)
        made.ingest(name)
        if name != "new":
            made.deliver()
    write_recording(made.path / "more.genus", traffic(25, first=250))
    write_recording(made.path / "other.genus", OTHER)
    made.windows()
    made.walk()
    made.ingest("more")
    write_recording(made.path / "last.genus", traffic(25, first=400))
    return made


def sweep(template: Folder, run: Callable[[Folder], object], folder: Path, stride: int = 1) -> int:
    """Die at every point of an operation, and compare what is there after another run; returns the number of points."""
    wanted = []
    for other in (False, True):
        control = template.copy(folder / f"control-{other}")
        if other:
            control.ingest("other")
        run(control)
        wanted.append(control.answers())
    at = 1
    while True:
        copy = template.copy(folder / f"{at}")
        has_other = at // stride % 2 == 1
        death = Death(at, partial(copy.ingest, "other") if has_other else None)
        with dying(death):
            run(copy)
        if not death.is_dead:
            return at
        run(copy)
        assert copy.problems() == [], f"at point {at}"
        assert copy.answers() == wanted[has_other], f"at point {at}"
        shutil.rmtree(copy.path)
        at += stride


@pytest.mark.slow
def test_an_ingest_killed_at_any_point_can_be_repeated(template: Folder, tmp_path: Path) -> None:
    """With the Delta tables and the folds of the ledger."""
    assert sweep(template, lambda folder: folder.ingest("last"), tmp_path, stride=7) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ingest",
        "deliver",
        "compact",
        "compact_inboxes",
        "delete",
        "expire",
        "mirror",
        "clean",
        "windows",
        "walk",
    ],
)
def test_killed_at_every_point_nothing_is_lost_or_doubled(name: str, template: Folder, tmp_path: Path) -> None:
    """All operations that change a lake or what follows it."""
    run: Callable[[Folder], Any] = getattr(Folder, name)
    points = sweep(template, (lambda folder: folder.ingest("last")) if name == "ingest" else run, tmp_path, STRIDE)
    print(f"{name}: {points} points, every {STRIDE}. tried")


# -- killed for real ---------------------------------------------------------------------------------------------------

LANDED = 40


def _start(folder: Path) -> "subprocess.Popen[str]":
    script = Path(__file__).with_name("kill_program.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _kill_two_writers(folder: Path, after_s: float) -> int:
    """Start two processes that ingest the same files, and kill both a while after they are ready."""
    writers = [_start(folder), _start(folder)]
    for each in writers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    time.sleep(after_s)
    for each in writers:
        each.send_signal(signal.SIGKILL)
        each.communicate()
    return sum(each.returncode == -signal.SIGKILL for each in writers)


@pytest.mark.slow
def test_two_writers_killed_at_random_times_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Both ingest the same files; what they left is removed at once, because their locks are gone."""
    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    (tmp_path / "landing").mkdir()
    for number in range(LANDED):
        write_recording(tmp_path / "landing" / f"{number:03}.genus", traffic(40, first=100 * number))
    chosen = random.Random(9)
    killed = sum(_kill_two_writers(tmp_path, chosen.uniform(0, 4)) for _ in range(10))
    last = _start(tmp_path)
    last.communicate()
    assert last.returncode == 0
    lake.clean(0)
    assert lake.check() == []
    assert not list((tmp_path / "lake" / "_drafts").iterdir())
    events = [event for number in range(LANDED) for event in traffic(40, first=100 * number)]
    wanted = Tally(event.time for event in events if isinstance(event, Counter))
    reader = LakeReader(tmp_path / "lake").read(Counter).to_arrow()
    delta = DeltaTable(lake.delta_path(Counter)).to_pyarrow_table()
    assert Tally(reader.column("time").to_pylist()) == Tally(delta.column("time").to_pylist()) == wanted
    print(f"{killed} processes killed")
