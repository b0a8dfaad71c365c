"""Compaction: the small files that many ingests left in a day become few large ones."""

import time
from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame

from genus.catalog import Catalog
from genus.lake._ingest.writer import DEAD_LETTERS, TABLES
from genus.lake._tables.columns import COMMIT, DAY, POSITION, TYPE, table_schema
from genus.lake._tables.ledger import Part, files_in, rows_in
from genus.lake._tables.store import Store

ROWS_PER_FILE = 4_000_000
MOST_TASKS = 200


class Compacted(msgspec.Struct, frozen=True):
    """What came of a compaction."""

    tables: int
    files_before: int
    files_after: int
    rows: int
    seconds: float


def compact(
    store: Store, catalog_now: Callable[[], Catalog], progress: Callable[[int, int], object] | None = None
) -> Compacted:
    """Compact every table, each in one commit; a table that another writer changed meanwhile is left for next time."""
    began = time.monotonic()
    state = store.state()
    catalog = catalog_now()  # after the state: it knows every column of the parts that are in the state
    tables = [table for table in state.tables if table != DEAD_LETTERS]
    todo = {table: crowded for table in tables if (crowded := crowded_days(state.table(table)))}
    before = after = rows = 0
    for number, (table, parts) in enumerate(todo.items(), 1):
        added = _compact(store, catalog, table, parts)
        before, after = before + files_in(parts), after + files_in(added)
        rows += rows_in(added)
        if progress is not None:
            progress(number, len(todo))
    return Compacted(len(todo), before, after, rows, time.monotonic() - began)


def crowded_days(parts: list[Part]) -> list[Part]:
    """The parts of days that have more files than they need."""
    days: dict[str, list[Part]] = {}
    for part in parts:
        days.setdefault(part.folder.rpartition("/")[2], []).append(part)
    return [part for found in days.values() if _is_crowded(found) for part in found]


def _is_crowded(parts: list[Part]) -> bool:
    """One file is enough for most days; one that needs several may have twice as many before it is written anew."""
    files, needed = files_in(parts), max(1, -(-rows_in(parts) // ROWS_PER_FILE))
    return files > (1 if needed == 1 else 2 * needed)


def _compact(store: Store, catalog: Catalog, table: str, parts: list[Part]) -> tuple[Part, ...]:
    folder = f"{TABLES}/{table}"
    rows = store.frame(parts, table_schema(catalog.vector(table)), folder).drop(COMMIT)
    ordered = _spread(rows, parts).sortWithinPartitions(DAY, TYPE, "time", POSITION)
    return store.rewrite(ordered, folder, parts, days=DAY, most=ROWS_PER_FILE)


def _spread(rows: DataFrame, parts: list[Part]) -> DataFrame:
    """Rows over tasks: a day to a task, or, where there are large days, as much to each as a file holds."""
    days: dict[str, int] = {}
    for part in parts:
        day = part.folder.rpartition("/")[2]
        days[day] = days.get(day, 0) + part.rows
    if max(days.values()) <= ROWS_PER_FILE:
        return rows.repartition(min(len(days), MOST_TASKS), DAY)
    return rows.repartitionByRange(-(-sum(days.values()) // ROWS_PER_FILE), DAY, TYPE, "time")
