"""A session with a Hive metastore, in a process of its own: registers the tables of a lake, or only reads them.

python -m tests.lake.metastore_program FOLDER register|read
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from genus.lake import Lake
from tests.lake.roads import ALL, traffic, write_recording


def session(folder: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    derby = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.driver.extraJavaOptions", f"-XX:+UseSerialGC -Dderby.system.home={folder}")
        .config("spark.hadoop.javax.jdo.option.ConnectionURL", derby)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .enableHiveSupport()
        .getOrCreate()
    )


def register(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Two ingests, each registered; then a compaction, so that partitions are dropped too."""
    lake = Lake.create(spark, folder / "lake", *ALL)
    lake.ingest(write_recording(folder / "a.genus", traffic(50)))
    views = lake.register_tables("city")
    lake.ingest(write_recording(folder / "b.genus", traffic(50, first=100)))
    lake.register_tables("city")
    between = spark.table("city.Streetside").count()
    lake.compact()
    lake.register_tables("city", subtypes=True)
    return {"views": views, "between": between}


def read(spark: SparkSession) -> dict[str, Any]:
    """What a session finds that does not know the lake."""
    return {
        "tables": sorted(table.name for table in spark.catalog.listTables("city")),
        "counts": {name: spark.table(f"city.{name}").count() for name in ("Streetside", "Counter", "Radar", "Gate")},
        "angles": spark.sql("SELECT count(angle) AS n FROM city.Counter WHERE speed > 1").collect()[0]["n"],
    }


if __name__ == "__main__":
    where, what = sys.argv[1:]
    started = session(where)
    found = register(started, Path(where)) if what == "register" else read(started)
    started.stop()
    print(json.dumps(found))
