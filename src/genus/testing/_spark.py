"""One small Spark session for all tests of a process, started when it is first asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark.sql import SparkSession

from genus.lake import local_session


@cache
def spark_session(cores: int = 1) -> SparkSession:
    """Return a local Spark session for tests: the same one at every call; it is stopped when the process ends.

    It has no user interface, two partitions by default and its files in a temporary folder. Expressions are
    interpreted unless a test asks for `compiled_expressions`: on little data, compiling takes longer than computing.
    """
    session = local_session(
        f"local[{cores}]",
        memory="1g",
        conf={
            "spark.app.name": "genus tests",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.python.sql.dataFrameDebugging.enabled": "false",  # making columns is faster
            "spark.sql.maxMetadataStringLength": "100000",  # for tests that read plans
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
        },
    )
    _set_compiled(session, False)
    return session


@contextmanager
def compiled_expressions(session: SparkSession) -> Iterator[None]:
    """Let Spark compile expressions within the context, as it does by default outside of tests."""
    before = session.conf.get(_FACTORY)
    _set_compiled(session, True)
    try:
        yield
    finally:
        _set_compiled(session, before == _COMPILED)


_FACTORY, _COMPILED, _INTERPRETED = "spark.sql.codegen.factoryMode", "FALLBACK", "NO_CODEGEN"


def _set_compiled(session: SparkSession, compiled: bool) -> None:
    session.conf.set("spark.sql.codegen.wholeStage", compiled)
    session.conf.set(_FACTORY, _COMPILED if compiled else _INTERPRETED)
