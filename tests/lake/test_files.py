"""File systems of a lake: the local one and Hadoop's keep the same guarantees."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._tables import files as lake_files
from genus.lake._tables.file_systems import FileSystem, HadoopFileSystem, LocalFileSystem, file_system_for, walk_files
from genus.lake._tables.files import (
    WrittenContent,
    absolute_path,
    arrow_opens,
    file_info,
    local_path,
    open_input,
    spark_path,
    write_file,
)
from tests.lake.view_file_system import mount


class Place:
    """A folder and its file system."""

    def __init__(self, files: FileSystem, path: str, local: Path) -> None:
        self.files, self.path, self.local = files, path, local

    def names(self, inner: str = "") -> list[str]:
        found = self.files.list_folder(f"{self.path}{inner}")
        return [each.name for each in found if not each.name.startswith(".")]


@pytest.fixture(params=["local", "hadoop"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalFileSystem(), str(tmp_path), tmp_path)
    spark: SparkSession = request.getfixturevalue("spark")
    path = mount(spark, f"t{hash(str(tmp_path)) & 0xFFFFFFFF:x}", tmp_path)
    return Place(file_system_for(spark, path), path, tmp_path)


# -- the same on both --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_created_is_read(place: Place) -> None:
    """Every byte is read back; missing folders are created."""
    content = bytes(range(256)) * 20_000  # more than goes to Java at once
    assert place.files.create(f"{place.path}/a b/c/é.bin", content)
    assert place.files.read(f"{place.path}/a b/c/é.bin") == content
    assert (place.local / "a b" / "c" / "é.bin").read_bytes() == content


def test_a_file_is_created_once(place: Place) -> None:
    """The second create returns False and changes nothing; no temporary file is left."""
    path = f"{place.path}/log/1.json"
    assert place.files.create(path, b"first")
    assert not place.files.create(path, b"second")
    assert place.files.read(path) == b"first"
    assert place.names("/log") == ["1.json"]


def test_a_file_may_be_empty(place: Place) -> None:
    assert place.files.create(f"{place.path}/empty", b"")
    assert place.files.read(f"{place.path}/empty") == b""


def test_what_is_not_there_reads_as_none(place: Place) -> None:
    """A folder is not a file either."""
    assert place.files.create(f"{place.path}/folder/file", b"x")
    assert place.files.read(f"{place.path}/nothing/at/all") is None
    assert place.files.read(f"{place.path}/folder/file/below") is None
    assert place.files.read(f"{place.path}/folder") is None


def test_a_replaced_file_holds_the_new_content_only(place: Place) -> None:
    """A shorter content leaves nothing of a longer one, and a missing file is created."""
    path = f"{place.path}/catalog.json"
    place.files.replace(path, b"a long content")
    place.files.replace(path, b"short")
    assert place.files.read(path) == b"short"
    assert place.names() == ["catalog.json"]


def test_a_listing_is_sorted_and_says_what_is_there(place: Place) -> None:
    for name, size in (("b", 3), ("a", 5), ("c/inner", 1)):
        place.files.create(f"{place.path}/{name}", b"x" * size)
    shown = [found for found in place.files.list_folder(place.path) if not found.name.startswith(".")]
    assert [(found.path, found.is_folder) for found in shown] == [
        (f"{place.path}/a", False),
        (f"{place.path}/b", False),
        (f"{place.path}/c", True),
    ]
    assert [found.size for found in shown[:2]] == [5, 3]
    changed = (place.local / "a").stat().st_mtime
    assert shown[0].modified == pytest.approx(changed, abs=0.01)


def test_no_folder_and_a_file_list_nothing(place: Place) -> None:
    place.files.create(f"{place.path}/file", b"x")
    assert place.files.list_folder(f"{place.path}/nothing") == []
    assert place.files.list_folder(f"{place.path}/file") == []


def test_everything_below_a_folder_is_found(place: Place) -> None:
    for name in ("x/1", "x/y/2", "x/y/z/3"):
        place.files.create(f"{place.path}/{name}", b"")
    found = {each.path[len(place.path) :] for each in walk_files(place.files, place.path)}
    assert {path for path in found if "/." not in path} == {"/x/1", "/x/y/2", "/x/y/z/3"}


def test_deleting_takes_files_and_whole_folders(place: Place) -> None:
    """Deleting what does not exist does nothing."""
    for name in ("x/1", "x/y/2", "kept"):
        place.files.create(f"{place.path}/{name}", b"")
    for path in ("x", "x", "nothing/there"):
        place.files.delete(f"{place.path}/{path}")
    assert place.names() == ["kept"]


def test_a_file_in_the_way_of_a_folder_is_an_error_with_the_path(place: Place) -> None:
    place.files.create(f"{place.path}/file", b"x")
    with pytest.raises(LakeError, match=r"cannot write .*/file/below: "):
        place.files.replace(f"{place.path}/file/below", b"y")
    assert place.files.read(f"{place.path}/file") == b"x"


# -- many writers ------------------------------------------------------------------------------------------------------


def _create(path: str, number: int) -> bool:
    return LocalFileSystem().create(path, str(number).encode() * 10_000)


def test_one_of_many_threads_creates_a_file(tmp_path: Path) -> None:
    """The writer whose create returns True is the one whose content is there; listing meanwhile never fails."""
    for attempt in range(20):
        path, together = str(tmp_path / f"{attempt}/log"), threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            tries = [pool.submit(_at_once, together, path, number) for number in range(8)]
            won = [number for number, each in enumerate(tries) if each.result()]
        assert len(won) == 1
        assert Path(path).read_bytes() == str(won[0]).encode() * 10_000
        assert [found.name for found in LocalFileSystem().list_folder(str(tmp_path / str(attempt)))] == ["log"]


def _at_once(together: threading.Barrier, path: str, number: int) -> bool:
    together.wait()
    LocalFileSystem().list_folder(str(Path(path).parent))
    return _create(path, number)


@pytest.mark.slow
def test_one_of_many_processes_creates_a_file(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}") for number in range(100)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        tries = [pool.map(_create, paths, [writer] * len(paths)) for writer in range(2)]
        answers = list(zip(*tries, strict=True))
    assert [sum(each) for each in answers] == [1] * len(paths)
    assert [Path(path).read_bytes()[:1] for path in paths] == [str(each.index(True)).encode() for each in answers]


def test_a_listing_passes_over_files_that_vanish_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary file of another writer may vanish between listing and reading its size."""
    (tmp_path / "kept").touch()
    (tmp_path / "vanishing").touch()
    scandir = os.scandir

    def late(folder: str) -> list[os.DirEntry[str]]:
        entries = list(scandir(folder))
        (tmp_path / "vanishing").unlink()
        return entries

    monkeypatch.setattr("os.scandir", late)
    assert [each.name for each in LocalFileSystem().list_folder(str(tmp_path))] == ["kept"]


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hard links a create cannot be atomic; no temporary file is left."""

    def link(made: str, path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(LakeError, match="Operation not permitted; the file system of a lake must have hard links"):
        LocalFileSystem().create(str(tmp_path / "1.json"), b"x")
    assert list(tmp_path.iterdir()) == []


# -- paths -------------------------------------------------------------------------------------------------------------


def test_paths_say_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a scheme is local, whatever the cluster's default file system is."""
    monkeypatch.chdir(tmp_path)
    assert absolute_path("lake/") == f"{tmp_path}/lake"
    assert absolute_path("hdfs://city/lake/") == "hdfs://city/lake"
    assert local_path("file:/tmp/lake") == "/tmp/lake"
    assert spark_path(absolute_path("lake")) == f"file://{tmp_path}/lake"


def test_a_hadoop_path_is_not_this_machines(spark: SparkSession, tmp_path: Path) -> None:
    path = mount(spark, "elsewhere", tmp_path)
    assert local_path(path) is None
    assert isinstance(file_system_for(spark, path), HadoopFileSystem)
    assert not arrow_opens(path)
    assert arrow_opens(str(tmp_path))


@pytest.mark.parametrize("path", ["nosuchscheme://city/lake", "viewfs://not-mounted/data"])
def test_a_file_system_that_is_not_there_is_named(spark: SparkSession, path: str) -> None:
    with pytest.raises(LakeError, match=f"cannot open {path}: "):
        file_system_for(spark, path)


def test_a_session_of_spark_connect_reaches_mounted_folders_only() -> None:
    """Spark Connect has no JVM in the process; the message says what to do."""
    remote: Any = object()
    with pytest.raises(LakeError, match="with Spark Connect a lake must be in a mounted folder"):
        file_system_for(remote, "hdfs://city/lake")


# -- in tasks ----------------------------------------------------------------------------------------------------------


def test_a_task_writes_a_whole_file_or_none(tmp_path: Path) -> None:
    path = f"{tmp_path}/tables/part.parquet"

    def half(stream: Any) -> None:
        stream.write(b"half")
        raise RuntimeError("the worker goes down")

    with pytest.raises(RuntimeError, match="goes down"):
        write_file(path, half)
    assert LocalFileSystem().list_folder(f"{tmp_path}/tables") == []
    assert write_file(path, lambda stream: stream.write(b"whole")) == WrittenContent.of(b"whole")
    assert file_info(path).size == 5
    with open_input(path) as file:
        assert file.read() == b"whole"


def _put(content: bytes, stream: Any) -> None:
    stream.write(content)


def test_a_task_that_is_tried_again_writes_the_same_file_again(tmp_path: Path) -> None:
    path = f"{tmp_path}/part.parquet"
    for content in (b"once", b"more"):
        write_file(path, partial(_put, content))
    assert Path(path).read_bytes() == b"more"


class _Refusing:
    """A file system that refuses to rename over a file, like HDFS."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, made: str, path: str) -> None:
        if Path(path).exists():
            raise OSError("rename failed")
        self._files.move(made, path)


def test_a_name_that_another_try_took_is_good_if_the_file_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS refuses to rename over a file; one of the same size is from another attempt, another size is an error."""
    real: Callable[[str], tuple[Any, str]] = lake_files._arrow_file_system
    monkeypatch.setattr(lake_files, "_arrow_file_system", lambda path: (_Refusing(real(path)[0]), real(path)[1]))
    path = f"{tmp_path}/part.parquet"
    assert [write_file(path, lambda stream: stream.write(b"same")).bytes for _ in range(2)] == [4, 4]
    with pytest.raises(LakeError, match="rename failed"):
        write_file(path, lambda stream: stream.write(b"other"))
    assert [found.name for found in LocalFileSystem().list_folder(str(tmp_path))] == ["part.parquet"]


def test_sizes_of_what_is_no_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(LakeError, match="there is no such file"):
            file_info(str(path))
