"""The Spark jobs that Genus starts: their descriptions for Spark's page, their errors in plain words, their workers.

Workers need Python with what PySpark asks for (numpy, pandas, pyarrow). Genus and msgspec are either installed there or
shipped by the session. Event classes need not be shipped: tasks get the types as the text of the catalog.

A plan is sent within the task if it is small, and otherwise as a file that every worker gets once. The arrays of an
object are written one after the other, outside of the pickled object (pickle protocol 5), so that workers map the file
into memory: all workers of a machine share it, and it is loaded in no time.
"""

import hashlib
import mmap
import pickle
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from genus.errors import LakeDamaged, LakeError
from genus.lake._exit import temporary_folder

DESCRIPTION = "spark.job.description"
MAX_LENGTH = 200
"""A longer description is cut."""
_CONNECT_TASKS = 8
"""The number of tasks for a session of Spark Connect, which does not say how many it runs at once."""
_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in an archive, so that equal packages give equal archives."""
_CHECKED: WeakSet[SparkSession] = WeakSet()
"""The sessions whose workers were checked."""


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts within a block, and name the causes of their errors (`job_errors`).

    In a session of Spark Connect, which has no descriptions, the text is a tag of the operations, which its page shows.
    """
    shown = text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
    with ExitStack() as undo, job_errors():
        if is_connect(spark):
            tag = shown.replace(",", ";")  # tags have no commas
            if tag not in spark.getTags():
                undo.callback(spark.removeTag, tag)
            spark.addTag(tag)
        else:
            check_running(spark)
            context: Any = spark.sparkContext
            undo.callback(context.setLocalProperty, DESCRIPTION, context.getLocalProperty(DESCRIPTION))
            context.setLocalProperty(DESCRIPTION, shown)
        yield


@contextmanager
def job_errors() -> Iterator[None]:
    """Turn errors of jobs into one line: LakeDamaged of a file that Spark cannot read, advice about workers."""
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        text = str(problem)
        if found := re.search(
            r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(.+?)\. ", text
        ):
            raise LakeDamaged(
                f"{found[1]} cannot be read; see `genus lake check`, restore it from a backup"
            ) from problem
        if found := re.search(r"genus\.errors\.(LakeError|LakeDamaged): (.+)", text):
            raise (LakeDamaged if found[1] == "LakeDamaged" else LakeError)(found[2]) from problem
        if advice := _worker_advice(text):
            raise LakeError(f"the workers cannot run Genus: {advice}") from problem
        raise


def _worker_advice(text: str) -> str:
    """What is wrong with the workers, and what to do, by the text of Spark's error; empty if nothing is known."""
    if found := re.search(r"No module named '(\w+)", text):
        is_shipped = found[1] in ("genus", "msgspec")
        ship = "call genus.lake.ship(spark) first, or install it there"
        other = "install it there, genus.lake.ship sends Genus and msgspec only"
        return f"their Python does not have {found[1]}; {ship if is_shipped else other}"
    if "PYTHON_VERSION_MISMATCH" in text:
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"their Python is not the {own} of this process; set PYSPARK_PYTHON to such a Python on every machine"
    if found := re.search(r'Cannot run program "([^"]+)"', text):
        return f"they have no program {found[1]}; set PYSPARK_PYTHON to the path of Python on every machine"
    return ""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, without a Spark context in this process."""
    return type(getattr(spark, "session", spark)).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at once, as far as it is known."""
    if is_connect(spark):
        return _CONNECT_TASKS
    check_running(spark)
    return max(int(spark.sparkContext.defaultParallelism), 1)


def check_running(spark: SparkSession) -> None:
    """Raise LakeError if a session was stopped; Spark would raise a NullPointerException of Java."""
    if not is_connect(spark) and getattr(spark.sparkContext, "_jsc", None) is None:
        raise LakeError("the Spark session was stopped; start another one, and open the lake again with it")


def folder_name(path: str) -> str:
    """Return the last part of a path, by which a description names a lake or inboxes.

    >>> folder_name("s3a://city/events/")
    'events'
    """
    return path.rstrip("/").rpartition("/")[2]


def count_words(number: int, thing: str) -> str:
    """Return a number of things in words.

    >>> count_words(1, "file"), count_words(3, "file")
    ('1 file', '3 files')
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


# -- workers -----------------------------------------------------------------------------------------------------------


def ship(spark: SparkSession) -> str:
    """Send this version of Genus, and msgspec, to all workers of a session, including workers that join later.

    They take precedence over versions that are installed there. Call it once, before the first ingest. Workers need
    the Python version and the kind of machine of this process; PySpark itself asks for pyarrow, numpy and pandas there.

    Returns:
        The path of a zip archive, which exists until this process ends.
    """
    path = package_archive()
    spark.addArtifacts(path, pyfile=True)
    compiled = package_archive("msgspec")  # has a library, which Python loads from a folder only
    spark.addArtifacts(f"{compiled}#msgspec", archive=True)
    return path


@cache
def _folder() -> Path:
    """A folder for what workers get; those that join later get it, too."""
    return temporary_folder()


@cache
def package_archive(name: str = "genus") -> str:
    """Write an installed package to a zip file that is removed when this process ends; that of Genus is importable."""
    path = _folder() / f"{name}.zip"
    package = Path(str(import_module(name).__file__)).parent
    inside = "genus/" if name == "genus" else ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.writestr(zipfile.ZipInfo(f"{inside}{file.relative_to(package)}", _FILE_TIME), file.read_bytes())
    return str(path)


def check_workers(spark: SparkSession) -> None:
    """Raise LakeError, with the cause, if the workers of a session cannot run Genus; asked once by a small job."""
    session = getattr(spark, "session", spark)
    if session in _CHECKED:
        return
    with job_description(spark, "check that the workers can run Genus"):
        spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").collect()
    _CHECKED.add(session)


def _pass_on(batches: Iterable[Any]) -> Iterator[Any]:
    """In a task: this function can only be loaded where Genus is."""
    yield from batches


# -- objects that are sent to workers ----------------------------------------------------------------------------------


MAX_CONTENT = 1 << 20
"""Larger objects are sent as files."""
_ALIGNMENT = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Sent(Generic[T]):
    """An object that tasks load; each worker process does so once."""

    name: str
    content: bytes | None = field(compare=False)
    """The object; None if it is sent as a file."""

    def load(self) -> T:
        loaded: T = _load(self)
        return loaded


@lru_cache(maxsize=8)
def _load(sent: Sent[Any]) -> Any:
    if sent.content is not None:
        return read_object(sent.content)
    with open(SparkFiles.get(sent.name), "rb") as file:
        return read_object(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def send(spark: SparkSession, given: T) -> Sent[T]:
    """Make an object available to tasks of a session."""
    content = write_object(given)
    name = f"genus-plan-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    if len(content) <= MAX_CONTENT:
        return Sent(name, content)
    path = _folder() / name
    path.write_bytes(content)
    spark.addArtifacts(str(path), file=True)
    return Sent(name, None)


def write_object(given: object) -> bytes:
    """Return an object as bytes: the number and sizes of its pieces, the pickled object, then its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(given, protocol=5, buffer_callback=buffers.append))]
    pieces += [buffer.raw() for buffer in buffers]
    head = memoryview(np.array([len(pieces), *map(len, pieces)], "<i8").tobytes())
    return b"".join(part for piece in (head, *pieces) for part in (piece, b"\0" * (-len(piece) % _ALIGNMENT)))


def read_object(content: bytes | mmap.mmap) -> Any:
    view = memoryview(content)
    (count,) = np.frombuffer(view, "<i8", 1).tolist()
    sizes = np.frombuffer(view, "<i8", count + 1).tolist()[1:]
    at, pieces = 8 * (count + 1), []
    at += -at % _ALIGNMENT
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size + -size % _ALIGNMENT
    return pickle.loads(pieces[0], buffers=pieces[1:])
