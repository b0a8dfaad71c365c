"""Compaction: rewrite the many small files of a day as few large ones."""

import time
from collections.abc import Callable
from datetime import date

import msgspec
from pyspark.sql import DataFrame

from genus.catalog import Catalog
from genus.lake._jobs import folder_name, job_description
from genus.lake._tables.columns import COMMIT, DAY, DEAD_LETTERS, POSITION, TYPE, table_folder
from genus.lake._tables.commits import Part, count_files, count_rows
from genus.lake._tables.spark_columns import table_schema
from genus.lake._tables.spark_store import SparkStore

ROWS_PER_FILE = 4_000_000
MAX_TASKS = 200


class CompactionResult(msgspec.Struct, frozen=True):
    """Result of `Lake.compact`."""

    tables: int
    """Tables that were rewritten."""
    files_before: int
    files_after: int
    rows: int
    seconds: float


def compact_tables(
    store: SparkStore, read_catalog: Callable[[], Catalog], progress: Callable[[int, int], object] | None = None
) -> CompactionResult:
    """Compact every table in a commit of its own; tables that another writer changes meanwhile are skipped."""
    began = time.monotonic()
    state = store.state()
    catalog = read_catalog()  # read after the state, so that it has every column of the parts in the state
    tables = [table for table in state.tables if table != DEAD_LETTERS]
    todo = {table: crowded for table in tables if (crowded := crowded_parts(state.table(table)))}
    tables_done = before = after = rows = 0
    for number, (table, parts) in enumerate(todo.items(), 1):
        added = _compact(store, catalog, table, parts)
        if added != tuple(parts):
            tables_done, rows = tables_done + 1, rows + count_rows(added)
            before, after = before + count_files(parts), after + count_files(added)
        if progress is not None:
            progress(number, len(todo))
    return CompactionResult(tables_done, before, after, rows, time.monotonic() - began)


def crowded_parts(parts: list[Part]) -> list[Part]:
    """The parts of days that have more files than they need."""
    days: dict[date | None, list[Part]] = {}
    for part in parts:
        days.setdefault(part.day, []).append(part)
    return [part for found in days.values() if _is_crowded(found) for part in found]


def _is_crowded(parts: list[Part]) -> bool:
    """Whether a day should be rewritten: it needs one file and has more, or has over twice as many as it needs."""
    files, needed = count_files(parts), max(1, -(-count_rows(parts) // ROWS_PER_FILE))
    return files > (1 if needed == 1 else 2 * needed)


def _compact(store: SparkStore, catalog: Catalog, table: str, parts: list[Part]) -> tuple[Part, ...]:
    folder = table_folder(table)
    rows = store.frame(parts, table_schema(catalog.vector(table)), folder).drop(COMMIT)
    ordered = _repartition(rows, parts).sortWithinPartitions(DAY, TYPE, "time", POSITION)
    with job_description(store.spark, f"compact {table} of {folder_name(store.path)}"):
        return store.rewrite(ordered, folder, parts, days=DAY, most=ROWS_PER_FILE)


def _repartition(rows: DataFrame, parts: list[Part]) -> DataFrame:
    """One task per day; where days are large, one task per file to be written."""
    days: dict[date | None, int] = {}
    for part in parts:
        days[part.day] = days.get(part.day, 0) + part.rows
    if max(days.values()) <= ROWS_PER_FILE:
        return rows.repartition(min(len(days), MAX_TASKS), DAY)
    return rows.repartitionByRange(-(-sum(days.values()) // ROWS_PER_FILE), DAY, TYPE, "time")
