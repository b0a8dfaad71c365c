"""The event tables of a lake on Spark: their columns, their rows as frames, and compaction.

Compaction rewrites the many small files of a day as few large ones.
"""

import os
import time
from collections.abc import Callable, Sequence
from datetime import date

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from genus.lake._jobs import folder_name, job_description
from genus.lake._tables.batches import find_versions, is_cut
from genus.lake._tables.columns import DEAD_SCHEMA, file_schema
from genus.lake._tables.commits import Part, count_files, count_rows
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.names import BATCH, COMMIT, DAY, DEAD, DEAD_LETTERS, POSITION, SOURCE, TYPE, table_folder
from genus.lake._tables.spark_store import SparkStore
from genus.lake._tables.store import commit_of
from genus.model.types import DurationType, Vector
from genus.targets.internal import micros

_VERSION = "_version"
ROWS_PER_FILE = 4_000_000
MAX_TASKS = 200
_PATHS: dict[str, types.DataType] = {COMMIT: types.StringType(), DAY: types.DateType()}


def table_schema(vector: Vector) -> types.StructType:
    """Return the Spark schema of a family's files, with the columns that are in their paths."""
    return spark_schema(file_schema(vector), COMMIT, DAY)


def with_present_names(stored: DataFrame, vector: Vector) -> DataFrame:
    """Rows of files as they are shown: with the present names of attributes, and with durations as intervals."""
    named = stored.withColumnsRenamed({each.first_name: each.name for each in vector if each.first_name != each.name})
    second = F.expr("INTERVAL '0.000001' SECOND")
    durations = {name: second * F.col(name) for name in _durations(vector)}
    return named.withColumns(durations) if durations else named  # Spark Connect refuses none


def with_first_names(shown: DataFrame, vector: Vector) -> DataFrame:
    """Rows as they are in files, the opposite of `with_present_names`."""
    durations = {name: micros(F.col(name)) for name in _durations(vector)}
    stored = shown.withColumns(durations) if durations else shown
    return stored.withColumnsRenamed({each.name: each.first_name for each in vector if each.first_name != each.name})


def _durations(vector: Vector) -> list[str]:
    return [each.name for each in vector if isinstance(each.type, DurationType)]


def spark_schema(files: pa.Schema, *paths: str) -> types.StructType:
    """Return the Spark schema of Parquet files; `paths` names the partition columns in their paths."""
    stored = [types.StructField(field.name, from_arrow_type(field.type)) for field in files]
    return types.StructType([*stored, *(types.StructField(name, _PATHS[name]) for name in paths)])


class LakeTables(LakeFolder):
    """Base of `Lake`: what ingest, queries and followers need of a lake."""

    store: SparkStore

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        super().__init__(SparkStore(spark, path))

    def table(self, family: type | str) -> DataFrame:
        """Return all events of a family with all columns; any type of the family names it."""
        name = family_name(family, self.catalog)
        return self.events(name, self.state().table(name))

    def events(self, family: str, parts: Sequence[Part], after: int = 0) -> DataFrame:
        """The events in some parts of a family's table; of those that are cut by a version, the ones after it."""
        vector, folder = self.catalog.vector(family), table_folder(family)
        cut = [part for part in parts if is_cut(part, after)]
        found = self.store.frame([part for part in parts if not is_cut(part, after)], table_schema(vector), folder)
        if cut:
            later = self.store.frame(cut, table_schema(vector).add(BATCH, "long"), folder).where(F.col(BATCH) > after)
            found = found.unionByName(later.drop(BATCH)) if len(cut) < len(parts) else later.drop(BATCH)
        return with_present_names(found, vector)

    def rows_to_rewrite(self, family: str, vector: Vector, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of some parts with the columns of files, and with the versions that they came with."""
        rows = self.store.frame(parts, table_schema(vector).add(BATCH, "long"), table_folder(family))
        versions = {commit_of(part.folder): part.last for part in parts if part.first == part.last}
        if not versions:
            return rows
        columns = {COMMIT: pa.array(versions.keys(), pa.string()), _VERSION: pa.array(versions.values(), pa.int64())}
        known = F.broadcast(self.spark.createDataFrame(pa.table(columns)))
        batch = F.coalesce(F.col(BATCH), F.col(_VERSION))
        return rows.join(known, COMMIT, "left").withColumn(BATCH, batch).drop(_VERSION)

    def dead_letters(self, *, after: int = 0) -> DataFrame:
        """The dead letters: `reason`, `path`, `_position`, `raw` and more, without those ingested successfully since.

        Args:
            after: A version of the lake; only dead letters of files that were ingested after it. 0 for all.
        """
        state = self.state()
        frame = self.store.frame(state.table(DEAD_LETTERS), spark_schema(DEAD_SCHEMA, COMMIT), DEAD)
        frame = frame.withColumn(COMMIT, F.substring_index(COMMIT, "-", 1))  # without the id of a deletion
        recent = None if not after else {commit.id for commit in self.store.ledger.commits(after, state.version)}
        latest = [
            (source.number, source.commit)
            for source in state.sources.with_dead()
            if recent is None or source.commit in recent
        ]
        if not latest:
            return frame.limit(0)
        current = self.spark.createDataFrame(latest, f"{SOURCE} bigint, {COMMIT} string")
        return frame.join(F.broadcast(current), [SOURCE, COMMIT], "left_semi")


# -- compaction --------------------------------------------------------------------------------------------------------


class CompactionResult(msgspec.Struct, frozen=True):
    """Result of `Lake.compact`."""

    tables: int
    """Tables that were rewritten."""
    files_before: int
    files_after: int
    rows: int
    seconds: float


def compact_tables(lake: LakeTables, progress: Callable[[int, int], object] | None = None) -> CompactionResult:
    """Compact every table in a commit of its own; tables that another writer changes meanwhile are skipped."""
    began = time.monotonic()
    state = lake.state()
    catalog = lake.catalog  # read after the state, so that it has every column of the parts in the state
    tables = [table for table in state.tables if table != DEAD_LETTERS]
    todo = {table: found for table in tables if (found := crowded_parts(state.table(table)))}
    tables_done = before = after = rows = 0
    for number, (table, crowded) in enumerate(todo.items(), 1):
        parts = find_versions(lake.store.ledger, crowded)
        rows_before = lake.rows_to_rewrite(table, catalog.vector(table), parts).drop(COMMIT)
        with job_description(lake.spark, f"compact {table} of {folder_name(lake.path)}"):
            added = lake.store.rewrite(in_order(rows_before, parts), table_folder(table), parts, days=DAY)
        if added != tuple(parts):
            tables_done, rows = tables_done + 1, rows + count_rows(added)
            before, after = before + count_files(parts), after + count_files(added)
        if progress is not None:
            progress(number, len(todo))
    return CompactionResult(tables_done, before, after, rows, time.monotonic() - began)


def crowded_parts(parts: list[Part]) -> list[Part]:
    """Return the parts of days that need one file and have more, or have over twice as many as they need."""
    days: dict[date | None, list[Part]] = {}
    for part in parts:
        days.setdefault(part.day, []).append(part)
    found: list[Part] = []
    for inside in days.values():
        needed = max(1, -(-count_rows(inside) // ROWS_PER_FILE))
        if count_files(inside) > (1 if needed == 1 else 2 * needed):
            found += inside
    return found


def in_order(rows: DataFrame, parts: Sequence[Part]) -> DataFrame:
    """The rows of some parts as they are written: by day, type and time.

    There is one task per day; where days are large, one task per file to be written.
    """
    days: dict[date | None, int] = {}
    for part in parts:
        days[part.day] = days.get(part.day, 0) + part.rows
    if max(days.values()) <= ROWS_PER_FILE:
        spread = rows.repartition(min(len(days), MAX_TASKS), DAY)
    else:
        spread = rows.repartitionByRange(-(-sum(days.values()) // ROWS_PER_FILE), DAY, TYPE, "time")
    return spread.sortWithinPartitions(DAY, TYPE, "time", POSITION)
