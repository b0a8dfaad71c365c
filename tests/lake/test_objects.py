"""Lakes in an object store: conditional puts let many writers work at once, as in a local folder."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import deltalake
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from genus import Event, Subscription, this
from genus.errors import LakeError
from genus.lake import Lake, LakeReader
from genus.lake._ingest.format import changed_us
from genus.lake._tables.commits import CommitConflict
from genus.lake._tables.file_systems import ObjectFileSystem, walk_files
from genus.lake._tables.files import list_files
from genus.lake._tables.ledger import Ledger
from tests.examples import examples
from tests.lake import test_ledger
from tests.lake.object_server import ENVIRONMENT, object_server
from tests.lake.roads import ALL, Counter, Gate, traffic, write_recording

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("obstore", "moto", "flask_cors")),
    reason="a store with the protocol of S3 needs obstore, moto, flask and flask-cors",
)
_numbers = count()


class ObjectHorn(Event):
    volume: int


class ObjectBell(Event):
    pitch: int


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_server("city"):
        yield "s3://city"


@pytest.fixture
def spark(spark: SparkSession, bucket: str, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session, whose workers get the environment that leads to the server."""
    for name in ENVIRONMENT:
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return spark


@pytest.fixture
def path(bucket: str) -> str:
    """An empty folder."""
    return f"{bucket}/place {next(_numbers)}"


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    return [write_recording(tmp_path / f"{n}.genus", traffic(60, first=60 * n)) for n in range(6)]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_objects_are_created_once_replaced_listed_and_deleted(path: str) -> None:
    files = ObjectFileSystem(path)
    assert files.create(f"{path}/_log/1 é%.json", b"one")
    assert not files.create(f"{path}/_log/1 é%.json", b"other")
    assert files.read(f"{path}/_log/1 é%.json") == b"one"
    files.replace(f"{path}/head", b"")
    assert files.read(f"{path}/head") == b""
    assert [(each.name, each.size, each.is_folder) for each in files.list_folder(path)] == [
        ("_log", 0, True),
        ("head", 0, False),
    ]
    assert [each.name for each in walk_files(files, path)] == ["1 é%.json", "head"]
    files.delete(f"{path}/_log")
    files.delete(f"{path}/nothing")
    assert [each.name for each in files.list_folder(path)] == ["head"]
    assert files.read(f"{path}/_log/1 é%.json") is None
    assert files.list_folder(f"{path}/nothing") == []


def test_an_object_is_swapped_if_it_has_the_known_content(path: str) -> None:
    files = ObjectFileSystem(path)
    assert files.swap(f"{path}/a", None, b"1")
    assert not files.swap(f"{path}/a", None, b"2")
    assert files.swap(f"{path}/a", b"1", b"2")
    assert not files.swap(f"{path}/a", b"1", b"3")
    assert files.read(f"{path}/a") == b"2"


def test_what_cannot_be_opened_is_said(bucket: str) -> None:
    with pytest.raises(LakeError, match="s3:// names no bucket"):
        ObjectFileSystem("s3://")
    with pytest.raises(LakeError, match="is not in s3://city/"):
        ObjectFileSystem(bucket).read("s3://town/x")
    with pytest.raises(LakeError, match="cannot write s3://nowhere/x: "):
        ObjectFileSystem("s3://nowhere").create("s3://nowhere/x", b"")
    with pytest.raises(LakeError, match="is not a lake"):
        LakeReader(f"{bucket}/none")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(LakeError, match=r"s3://elsewhere needs obstore: pip install .*\[objects\]"):
        LakeReader("s3://elsewhere/lake")


def _create(path: str, number: int) -> bool:
    return ObjectFileSystem(path).create(path, str(number).encode())


@pytest.mark.slow
def test_one_of_many_processes_creates_an_object(path: str) -> None:
    paths = [f"{path}/{number}" for number in range(20)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        tries = [pool.map(_create, paths, [writer] * len(paths)) for writer in range(2)]
        answers = list(zip(*tries, strict=True))
    assert [sum(each) for each in answers] == [1] * len(paths)
    files = ObjectFileSystem(path)
    assert [files.read(each) for each in paths] == [str(each.index(True)).encode() for each in answers]


# -- ledgers -----------------------------------------------------------------------------------------------------------


class MortalObjects(ObjectFileSystem):
    """Objects of a process that is killed just before or after it creates one."""

    def __init__(self, path: str, kill: str) -> None:
        super().__init__(path)
        self._kill = kill

    def create(self, path: str, content: bytes) -> bool:
        self._die("before")
        won = super().create(path, content)
        self._die("after")
        return won

    def _die(self, when: str) -> None:
        if self._kill == when:
            raise test_ledger.Killed


class ObjectWriters(test_ledger.Writers):
    """The same processes with a ledger in an object store."""

    @cached_property
    def _path(self) -> str:
        return f"s3://city/writers {next(_numbers)}"

    def open(self, kill: str = "") -> Ledger:
        """A ledger of another process."""
        return Ledger(MortalObjects(self._path, kill), self._path)


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_any_writers_and_kills_add_up_to_the_fold_of_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.lake._tables.ledger.FOLD_EVERY", 3)
    ObjectWriters.TestCase.settings = settings(examples(3), stateful_step_count=12)
    ObjectWriters.TestCase("runTest").debug()


@pytest.mark.slow
def test_writers_at_the_same_time_each_get_their_place(path: str) -> None:
    def write(who: int) -> int:
        ledger, won = Ledger(ObjectFileSystem(path), path), 0
        for number in range(4):
            ledger.commit(test_ledger._ingest(f"own-{who}-{number}", 1000 * who + number))
            try:
                ledger.commit(test_ledger._ingest(f"shared-{who}-{number}", -number - 1))
                won += 1
            except CommitConflict:
                pass
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(write, range(4)))
    state = Ledger(ObjectFileSystem(path), path).state()
    assert won == 4
    assert state.version == len(state.parts) == 4 * 4 + 4


# -- lakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lake_has_what_a_local_one_has(
    spark: SparkSession, path: str, recordings: list[Path], tmp_path: Path
) -> None:
    """Ingest, the reader without Spark, routes, the Delta table, check and clean."""
    lakes = [Lake.create(spark, where, *ALL) for where in (path, tmp_path / "lake")]
    for lake in lakes:
        assert lake.ingest(recordings[:3]).events == 180
        assert lake.ingest(recordings).events == 180
    far, near = (LakeReader(lake.path) for lake in lakes)
    asked = [Subscription(Counter), Subscription(Counter, has="place", where=this.speed > 30), Subscription(Gate)]
    for subscription in asked:
        tables = [reader.read(subscription).to_arrow().drop(["_ingested"]) for reader in (far, near)]
        order = [("_source", "ascending"), ("_position", "ascending")]
        assert tables[0].sort_by(order) == tables[1].sort_by(order)
        assert tables[0].num_rows > 0
    assert far.read(Counter, version=2).count() == near.read(Counter, version=2).count() > 0
    routes = [lake.route(asked) for lake in lakes]
    assert routes[0].count() == routes[1].count() > 0
    columns = ["subscription", "_source", "_position"]
    rows = [sorted(map(tuple, route.frame().select(*columns).collect())) for route in routes]
    assert rows[0] == rows[1]
    delta = deltalake.DeltaTable(lakes[0].delta_path(Counter), storage_options={"AWS_ALLOW_HTTP": "true"})
    assert delta.to_pyarrow_table().num_rows == far.read(Counter).count()
    assert list(lakes[0].check()) == list(far.check()) == []
    assert lakes[0].clean(0) == 0


@pytest.mark.slow
def test_a_missing_and_a_changed_file_are_found(spark: SparkSession, path: str, recordings: list[Path]) -> None:
    lake = Lake.create(spark, path, *ALL)
    lake.ingest(recordings[0])
    files = ObjectFileSystem(path)
    first, second = (each.path for each in walk_files(files, f"{path}/tables") if each.name.endswith(".parquet"))
    files.delete(first)
    content = files.read(second)
    assert content is not None
    files.replace(second, bytes([content[0] ^ 1]) + content[1:])
    assert sorted(problem.path for problem in lake.check()) == [first, second]


@pytest.mark.slow
def test_two_writers_ingest_at_once(spark: SparkSession, path: str, recordings: list[Path]) -> None:
    """Each file is ingested by one of them."""
    Lake.create(spark, path, *ALL)
    given = [recordings[:4], recordings[2:]]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda files: [Lake(spark, path).ingest(file) for file in files], given))
    assert sum(each.events for result in results for each in result) == 360
    assert LakeReader(path).read(Event).count() == 360
    assert Lake(spark, path).check() == []


def test_two_writers_register_at_once(spark: SparkSession, path: str) -> None:
    Lake.create(spark, path, *ALL)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda cls: Lake(spark, path).register(cls), [ObjectHorn, ObjectBell]))
    assert {"ObjectHorn", "ObjectBell", "Counter"} <= set(LakeReader(path).types)


def test_what_was_written_by_a_writer_at_work_is_not_cleaned(spark: SparkSession, path: str) -> None:
    """A folder in no commit is removed when its newest file is old."""
    lake = Lake.create(spark, path, *ALL)
    ObjectFileSystem(path).create(f"{path}/tables/Counter/_commit=4f21/_day=2026-05-01/part.parquet", b"x")
    assert lake.clean(0) == 0


def test_files_are_ingested_from_the_store(spark: SparkSession, path: str, recordings: list[Path]) -> None:
    files = ObjectFileSystem(path)
    for recording in recordings[:2]:
        files.replace(f"{path}/landing/{recording.name}", recording.read_bytes())
    assert list_files(f"{path}/landing") == [f"{path}/landing/0.genus", f"{path}/landing/1.genus"]
    assert changed_us(f"{path}/landing/0.genus".replace("s3://", "s3a://")) > 0, "as Hadoop writes it"
    lake = Lake.create(spark, f"{path}/lake", *ALL)
    assert lake.ingest(f"{path}/landing").events == 120
    assert lake.ingest(f"{path}/landing").events == 0
    with pytest.raises(LakeError, match=r"cannot open s3a://"):
        lake.stream(f"{path}/landing").run()


def test_spark_without_its_package_is_told_what_it_lacks(
    spark: SparkSession, path: str, recordings: list[Path]
) -> None:
    """Spark's own readers and writers of Parquet open s3a://, which needs hadoop-aws."""
    lake = Lake.create(spark, path, *ALL)
    lake.ingest(recordings[0])
    with pytest.raises(LakeError, match=r"cannot open s3a://; start it with the package .*hadoop-aws"):
        lake.read(Counter)
    delivered = lake.route([Subscription(Counter)]).to_inboxes(f"{path}/inboxes")
    assert delivered.rows > 0, "tasks open s3:// themselves"
