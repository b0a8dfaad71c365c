"""One small Spark session for all tests of a process, started when it is first asked for."""

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from genus.lake import use_java


@cache
def spark_session(cores: int = 1) -> SparkSession:
    """Return a local Spark session for tests: the same one at every call; it is stopped when the process ends.

    It has no user interface, two partitions by default and its files in a temporary folder. Expressions are
    interpreted unless a test asks for `compiled_expressions`: on little data, compiling takes longer than computing.
    """
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    kept = tempfile.TemporaryDirectory(prefix="genus-spark-", ignore_cleanup_errors=True)
    folder = Path(kept.name)
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("genus tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config(
            "spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}"
        )
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")  # half the time of making columns
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.maxMetadataStringLength", "100000")  # for tests that read plans
        .config("spark.default.parallelism", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    _set_compiled(session, False)
    atexit.register(kept.cleanup)
    atexit.register(session.stop)  # first: what is registered last runs first
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
