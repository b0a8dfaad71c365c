"""How many events a second are read in, per format, on two cores: from files to tables, dead letters and report.

Add a format by adding an `Entry`. The time is that of the whole job of one file: fingerprint, cuts, tasks
that decode, check, sort and write Parquet; the session and its Python workers are started before. The least of a few
runs counts. `python -m bench.ingest recordings` measures the formats that are named.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from bench import can_columns
from bench.timing import markdown
from genus import Event, Maybe
from genus.bus import RecordingWriter
from genus.catalog import Catalog
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.format import Format
from genus.lake._ingest.job import IngestWork, InputFile, fingerprint, make_draft, run_ingest
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.recordings import Recordings
from genus.lake._tables.files import file_info
from genus.model import micros_of_time
from genus.records import Mapping

EVENTS = 1_000_000
RUNS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Loop(Event):
    lane: int
    category: Maybe[Category] = None
    speed: Maybe[float] = None


class Entry(msgspec.Struct, frozen=True):
    """A format in the table: how a file of about so many events is made, and what reads it."""

    name: str
    make: Callable[[Path, int], int]
    """Writes a file, and gives how many things in it are counted: events, lines or frames."""
    format: Callable[[str], Format]
    """Of the file's path."""
    types: Sequence[type] = (Loop,)
    unit: str = "events"


class Rate(msgspec.Struct, frozen=True):
    """What one format came to."""

    name: str
    unit: str
    count: int
    bytes: int
    seconds: float


def loops(count: int) -> Iterator[Loop]:
    """Events of one lane detector after the other, in order of time; every third has no category."""
    for number in range(count):
        yield Loop(
            lane=number % 4,
            category=(None, Category.CAR, Category.TRUCK)[number % 3],
            speed=20 + number % 700 / 10 if number % 2 else None,
            time=START + timedelta(milliseconds=number),
            place=f"A8/km{number % 50}",
        )


def make_recording(path: Path, count: int) -> int:
    """A recording, each event recorded when it happened."""
    with RecordingWriter(path) as writer:
        for event in loops(count):
            assert event.time is not None
            writer.write(event, micros_of_time(event.time))
    return count


def make_json_lines(path: Path, count: int) -> int:
    """Lines as `genus` itself would name things, without a mapping."""
    with path.open("wb") as file:
        for event in loops(count):
            file.write(msgspec.json.encode({"type": "Loop", **_present(event)}) + b"\n")
    return count


def make_cloud_events(path: Path, count: int) -> int:
    """CloudEvents 1.0, one a line."""
    with path.open("wb") as file:
        for number, event in enumerate(loops(count)):
            data = _present(event)
            outer = {"specversion": "1.0", "type": "Loop", "id": str(number), "time": data.pop("time")}
            file.write(msgspec.json.encode({**outer, "data": data}) + b"\n")
    return count


def make_csv(path: Path, count: int) -> int:
    """A table with a column for the type."""
    with path.open("w") as file:
        file.write("type,time,place,lane,category,speed\n")
        for event in loops(count):
            category = event.category.value if event.category else ""
            speed = "" if event.speed is None else event.speed
            file.write(f"Loop,{event.time.isoformat()},{event.place},{event.lane},{category},{speed}\n")  # type: ignore[union-attr]
    return count


def _present(event: Loop) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(event)
    return {name: value for name, value in found.items() if value is not None}


def entries() -> tuple[Entry, ...]:
    """The formats in the table."""
    return (
        Entry("recordings", make_recording, lambda _: Recordings()),
        Entry("JSON lines", make_json_lines, lambda _: JsonLines()),
        Entry("CloudEvents", make_cloud_events, lambda _: JsonLines()),
        Entry("CSV", make_csv, lambda _: Csv(Mapping())),
        Entry("candump", can_columns.write_log, can_columns.car_logs, can_columns.car_types(), unit="frames"),
    )


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """A session with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("genus bench").config("spark.ui.enabled", "false")
    options = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={folder}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def measure(spark: SparkSession, entry: Entry, folder: Path, events: int = EVENTS) -> Rate:
    """The rate of one format; refuses to give one if anything was lost."""
    file = folder / entry.name.replace(" ", "-")
    count = entry.make(file, events)
    catalog = Catalog()
    catalog.register(*entry.types)
    small = folder / "small"
    entry.make(small, 1000)
    ingest(spark, entry, small, catalog.text(), folder)
    seconds = min(ingest(spark, entry, file, catalog.text(), folder) for _ in range(RUNS))
    return Rate(entry.name, entry.unit, count, file.stat().st_size, seconds)


def ingest(spark: SparkSession, entry: Entry, file: Path, catalog_text: str, folder: Path) -> float:
    """Seconds of one job into an empty place."""
    root = folder / "lake"
    shutil.rmtree(root, ignore_errors=True)
    started = time.perf_counter()
    found, work = file_info(str(file)), IngestWork.begin(str(root), catalog_text)
    given = InputFile(found.path, found.size, entry.format(found.path), found.modified_us, fingerprint(found.path))
    draft = make_draft(work, run_ingest(spark, work, [given], split_bytes(file)))
    seconds = time.perf_counter() - started
    (source,) = draft.sources
    assert source.rows > 0, f"{entry.name}: nothing was read"
    assert source.dead == 0, f"{entry.name}: {source.dead} dead letters"
    return seconds


def split_bytes(file: Path) -> int:
    """Four splits, so that two tasks are at work at a time and none waits long for the other."""
    return max(file.stat().st_size // 4, 1)


def run(names: Sequence[str] = ()) -> list[Rate]:
    """The rates of all formats, or of some."""
    folder = Path(tempfile.mkdtemp(prefix="genus-ingest-"))
    try:
        with session(folder) as spark:
            return [measure(spark, entry, folder) for entry in entries() if not names or entry.name in names]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rates: Sequence[Rate]) -> str:
    """One line each."""
    rows = [
        [
            rate.name,
            f"{rate.count:,} {rate.unit}",
            f"{rate.bytes / 1e6:,.0f} MB",
            f"{rate.seconds:.1f} s",
            f"{rate.count / rate.seconds:,.0f} {rate.unit}/s",
        ]
        for rate in rates
    ]
    return markdown(["format", "file", "size", "time", "rate"], rows)


if __name__ == "__main__":
    print(table(run(sys.argv[1:])))
