"""A program whose workers have a Python without Genus, before and after `ship`.

Run with its arguments in JSON: a folder, and the Python of the workers.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from genus import Event, Maybe
from genus.errors import LakeError
from genus.lake import Lake
from genus.lake._jobs import ship
from tests.lake.roads import MORNING, write_recording


class Lamp(Event):
    """A type that is declared in the program itself: no worker can import it."""

    watts: float
    colour: Maybe[str] = None


def main(folder: Path, python: str) -> None:
    """Write the results to `result.json`."""
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        (folder / "result.json").write_text(json.dumps(run(spark, folder)))
    finally:
        spark.stop()


def run(spark: SparkSession, folder: Path) -> dict[str, object]:
    """Ingest without Genus on the workers, then with it."""
    lamps = [Lamp(watts=float(number), time=MORNING) for number in range(50)]
    recording = write_recording(folder / "lamps.genus", list(lamps))
    lake = Lake.create(spark, folder / "lake", Lamp)
    try:
        refused = f"no: {lake.ingest(recording)}"
    except LakeError as problem:
        refused = str(problem)
    before, version = where_found(spark), lake.version
    ship(spark)
    ship(spark)  # again: nothing happens
    events = lake.ingest(recording).events
    watts = sorted(row.watts for row in lake.read(Lamp).collect())
    return {
        "refused": refused,
        "before": before,
        "version": version,
        "after": where_found(spark),
        "events": events,
        "right": watts == [float(number) for number in range(50)],
    }


def where_found(spark: SparkSession) -> list[str]:
    """Where a worker finds some modules."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib.util import find_spec

        found = [getattr(find_spec(name), "origin", None) or "nowhere" for name in ("genus", "tests", "pyarrow")]
        for _ in batches:
            yield pa.record_batch([pa.array(found)], names=["found"])

    return [row.found for row in spark.range(0, 1, 1, 1).mapInArrow(look, "found string").collect()]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Path(given["folder"]), given["python"])
