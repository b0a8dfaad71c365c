"""The Spark jobs that Genus starts: their descriptions for Spark's page, and their errors in plain words."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from genus.errors import LakeDamaged, LakeError

DESCRIPTION = "spark.job.description"
MAX_LENGTH = 200
"""A longer description is cut."""


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts within a block, and name the causes of their errors (`job_errors`).

    In a session of Spark Connect, which has no descriptions, the text is a tag of the operations, which its page shows.
    """
    with job_errors(), _tag(spark, text) if is_connect(spark) else _description(spark, text):
        yield


@contextmanager
def job_errors() -> Iterator[None]:
    """Turn errors of jobs into one line: LakeDamaged of a file that Spark cannot read, advice about workers."""
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        text = str(problem)
        if found := _UNREADABLE.search(text):
            raise LakeDamaged(
                f"{found[1]} cannot be read; see `genus lake check`, restore it from a backup"
            ) from problem
        if found := re.search(r"genus\.errors\.(LakeError|LakeDamaged): (.+)", text):
            raise (LakeDamaged if found[1] == "LakeDamaged" else LakeError)(found[2]) from problem
        if advice := next((advice(found) for pattern, advice in _CAUSES if (found := re.search(pattern, text))), None):
            raise LakeError(f"the workers cannot run Genus: {advice}") from problem
        raise


def _missing_module(found: re.Match[str]) -> str:
    if found[1] in ("genus", "msgspec"):
        return f"their Python does not have {found[1]}; call genus.lake.ship(spark) first, or install it there"
    return f"their Python does not have {found[1]}; install it there, genus.lake.ship sends Genus and msgspec only"


def _other_python(found: re.Match[str]) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"their Python is not the {version} of this process; set PYSPARK_PYTHON to such a Python on every machine"


_CAUSES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"No module named '(\w+)", _missing_module),
    (r"PYTHON_VERSION_MISMATCH", _other_python),
    (
        r'Cannot run program "([^"]+)"',
        lambda found: f"they have no program {found[1]}; set PYSPARK_PYTHON to the path of Python on every machine",
    ),
)
"""Causes by the text of Spark's error, and what to do."""
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(.+?)\. ")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, without a Spark context in this process."""
    return type(getattr(spark, "session", spark)).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that a session runs at once, as far as it is known."""
    if is_connect(spark):
        return _CONNECT_TASKS
    check_running(spark)
    return max(int(spark.sparkContext.defaultParallelism), 1)


_CONNECT_TASKS = 8
"""The number of tasks for a session of Spark Connect, which does not say how many it runs at once."""


def check_running(spark: SparkSession) -> None:
    """Raise LakeError if a session was stopped; Spark would raise a NullPointerException of Java."""
    if not is_connect(spark) and getattr(spark.sparkContext, "_jsc", None) is None:
        raise LakeError("the Spark session was stopped; start another one, and open the lake again with it")


@contextmanager
def _description(spark: SparkSession, text: str) -> Iterator[None]:
    check_running(spark)
    context: Any = spark.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, _shorten(text))
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)


@contextmanager
def _tag(spark: SparkSession, text: str) -> Iterator[None]:
    """A tag has no commas, and is removed only if this block added it."""
    tag = _shorten(text).replace(",", ";")
    is_new = tag not in spark.getTags()
    spark.addTag(tag)
    try:
        yield
    finally:
        if is_new:
            spark.removeTag(tag)


def folder_name(path: str) -> str:
    """The last part of a path, by which a description names a lake or inboxes.

    >>> folder_name("s3a://city/events/")
    'events'
    """
    return path.rstrip("/").rpartition("/")[2]


def count_words(number: int, thing: str) -> str:
    """A number of things in words.

    >>> count_words(1, "file"), count_words(3, "file")
    ('1 file', '3 files')
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
