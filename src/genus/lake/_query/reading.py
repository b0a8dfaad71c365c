"""Reading typed events: a subscription becomes a scan that skips files, row groups and columns it does not need."""

from collections.abc import Iterable, Sequence
from functools import reduce
from weakref import WeakKeyDictionary

import msgspec
from pyspark.sql import DataFrame

from genus.catalog import Catalog
from genus.filters import Subscription
from genus.lake._query.selection import ADDED, SelectedTable, select_tables
from genus.lake._tables.commits import Part, count_bytes, count_files
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.state import LedgerState
from genus.targets import spark as target

MAX_FRAMES = 64
"""Tables, or parts of them, that are kept for the next read."""


def read_events(
    lake: LakeTables, subscription: Subscription, state: LedgerState | None = None, *, subtypes: bool = False
) -> DataFrame:
    """The events of a lake that match, by default of its present state; with `subtypes`, also with their attributes."""
    read = lake.state() if state is None else state
    with lake.reading(read):
        return read_parts(lake, subscription, read.parts.values(), subtypes=subtypes)


def read_parts(
    lake: LakeTables, subscription: Subscription, parts: Iterable[Part], *, subtypes: bool = False, after: int = 0
) -> DataFrame:
    """Return the events in some parts of a lake that match, and that came after a version; none if no type conforms."""
    frames = []
    tables = select_tables(subscription, lake.catalog, lake.state(), subtypes=subtypes, parts=parts)
    for family, table in tables.items():
        events = lake.events(family, table.parts, after) if after else _known_events(lake, family, table.parts)
        frames.append(select_matches(events, subscription, table))
    return reduce(_union, frames)


_KNOWN: WeakKeyDictionary[LakeTables, tuple[Catalog, dict[tuple[str, ...], DataFrame]]] = WeakKeyDictionary()
"""State: frames of each lake that were read last, and the catalog that they were made with."""


def _known_events(lake: LakeTables, family: str, parts: Sequence[Part]) -> DataFrame:
    """Return the events in some parts of a family's table, whose files are checked at every call.

    Spark lists the files of a table, and Python its columns, at every new frame; reading one of them with many
    subscriptions would mostly do that.
    """
    catalog, key = lake.catalog, (family, *(part.folder for part in parts))
    of, frames = _KNOWN.get(lake, (None, {}))
    if of is not catalog or len(frames) >= MAX_FRAMES:
        _, frames = _KNOWN[lake] = catalog, {}
    if key in frames:
        lake.store.file_paths(parts)
    else:
        frames[key] = lake.events(family, parts)
    return frames[key]


def select_matches(events: DataFrame, subscription: Subscription, table: SelectedTable) -> DataFrame:
    """Return the events of a family's table, given with all columns, that match: the columns of the result."""
    values = table.expressions(lambda attribute: attribute.name) | {name: name for name in ADDED}
    # every column gets a name of its own, or frames of one table could not be joined with each other
    named = [f"{value} AS `{column}`" for column, value in values.items()]
    return target.compile(subscription).filter(events, table.types).selectExpr(*named)


def _union(first: DataFrame, second: DataFrame) -> DataFrame:
    """The rows of both; an attribute that one lacks is NULL there, and the columns that Genus adds remain the last."""
    joined = first.unionByName(second, allowMissingColumns=True)
    return joined.select(*(name for name in joined.columns if name not in ADDED), *ADDED)


# -- explanation -------------------------------------------------------------------------------------------------------


class TableScan(msgspec.Struct, frozen=True):
    """The part of a `ReadPlan` about one family's table."""

    family: str
    types: tuple[str, ...]
    """Types whose events can match."""
    days: int
    """Days that the table has."""
    days_read: int
    """Days whose events can match."""


class ReadPlan(msgspec.Struct, frozen=True):
    """What `Lake.read` would read and test; made by `Lake.explain` without reading events."""

    tests: str
    """The tests of the subscription, and whether Parquet files or Spark evaluates each."""
    tables: tuple[TableScan, ...]
    files: int
    """Files that are opened at most."""
    bytes: int
    """Their size."""
    lake_files: int
    """All files of the lake."""
    lake_bytes: int


def plan_read(lake: LakeTables, subscription: Subscription) -> ReadPlan:
    """Return what reading a subscription would open and test; needs no running session."""
    state = lake.state()
    tables = {
        family: table for family, table in select_tables(subscription, lake.catalog, state).items() if table.types
    }
    opened, every = [part for table in tables.values() for part in table.parts], state.parts.values()
    scans = [
        TableScan(family, table.types, _count_days(state.table(family)), _count_days(table.parts))
        for family, table in tables.items()
    ]
    return ReadPlan(
        target.compile(subscription).explain(),
        tuple(scans),
        *(count_files(opened), count_bytes(opened)),
        *(count_files(every), count_bytes(every)),
    )


def _count_days(parts: Iterable[Part]) -> int:
    return len({part.day for part in parts})
