"""Descriptions of the Spark jobs that Genus starts, in plain words, for Spark's page and for listeners."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"
MAX_LENGTH = 200
"""A longer description is cut."""


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts within a block; afterwards the previous description is back.

    In a session of Spark Connect, which has no descriptions, the text is a tag of the operations, which its page shows.
    """
    with _tag(spark, text) if is_connect(spark) else _description(spark, text):
        yield


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, without a Spark context in this process."""
    return type(getattr(spark, "session", spark)).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _description(spark: SparkSession, text: str) -> Iterator[None]:
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
