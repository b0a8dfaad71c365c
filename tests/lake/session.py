"""One Spark session for all tests of a run: small, quick to start, and started when it is first asked for."""

import atexit
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@cache
def local_session() -> SparkSession:
    """The session; it is stopped, and its folder removed, when the run ends."""
    kept = tempfile.TemporaryDirectory(prefix="genus-spark-", ignore_cleanup_errors=True)
    folder = Path(kept.name)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("genus tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config(
            "spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}"
        )
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")  # half the time of making columns
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.maxMetadataStringLength", "100000")  # for tests that read plans
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(kept.cleanup)
    atexit.register(session.stop)  # first: what is registered last runs first
    return session
