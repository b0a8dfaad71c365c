"""Reading typed events: a subscription becomes a scan that skips files, row groups and columns it does not need.

For SQL there are views, a function that tells whether a type is another, and tables that outlive the session.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from weakref import WeakKeyDictionary

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.selection import ADDED, SelectedTable, select_tables
from genus.lake._tables.commits import COMMIT, DAY, TYPE, Part, Shape, count_bytes, count_files, table_folder
from genus.lake._tables.files import spark_path
from genus.lake._tables.lake_tables import LakeTables, table_schema
from genus.lake._tables.state import LedgerState
from genus.targets import spark as target

MAX_FRAMES = 64
"""Tables, or parts of them, that are kept for the next read."""


def read_events(
    lake: LakeTables, subscription: Subscription, state: LedgerState | None = None, *, subtypes: bool = False
) -> DataFrame:
    """The events of a lake that match, by default of its present state; with `subtypes`, also with their attributes."""
    read = lake.state() if state is None else state
    with lake._reading(read):
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


# -- views and tables for SQL ------------------------------------------------------------------------------------------


IS_A = "is_a"
"""Name of the SQL function; a prefix of views is also put before it."""
FILES = "_files"
"""Ending of the names of permanent tables, one per family; their views have the names of types."""
_IMPLEMENTATION = "spark.sql.catalogImplementation"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"""Settings of a session with Delta."""
_AT_ONCE = 200


def view_names(catalog: Catalog, prefix: str) -> dict[str, str]:
    """Return the view of each type and kind; LakeError if two would have the same."""
    names = {name: prefix + name.replace(".", "_") for name in catalog.types}
    if len({view.lower() for view in names.values()}) < len(names):
        raise LakeError("two types would have the same view, because `.` becomes `_` and Spark ignores case")
    return names


# -- is_a --------------------------------------------------------------------------------------------------------------


def create_is_a(spark: SparkSession, catalog: Catalog, shapes: Iterable[Shape], prefix: str) -> None:
    """Create the temporary function `is_a(type, wanted)`, by the types that the catalog and shapes have."""
    below = _types_below(catalog, list(shapes))
    cases = " ".join(f"WHEN {_text(wanted)} THEN type IN ({_texts(names)})" for wanted, names in below.items())
    unknown = "raise_error(concat('no event type of the lake is called ', wanted))"
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION {quoted(prefix + IS_A)}(type STRING, wanted STRING) RETURNS BOOLEAN "
        f"RETURN if(wanted IS NULL, NULL, CASE wanted {cases} ELSE CAST({unknown} AS BOOLEAN) END)"
    )


def _types_below(catalog: Catalog, shapes: Sequence[Shape]) -> dict[str, list[str]]:
    """Return the types that conform to each type and kind; itself if there are none."""
    codes = {entry.name: entry.code for entry in catalog.entries.values()}
    events = {entry.name: entry.code for entry in catalog.entries.values() if not entry.kind}
    events |= {shape.type: int(shape.code) for shape in shapes}
    return {
        wanted: sorted(name for name, each in events.items() if each % code == 0) or [wanted]
        for wanted, code in codes.items()
    }


# -- tables that outlive the session -----------------------------------------------------------------------------------


def has_delta(spark: SparkSession) -> bool:
    """Whether a session reads Delta tables by name; one that lacks the classes of its settings runs no SQL at all."""
    extensions = (spark.conf.get("spark.sql.extensions", "") or "").split(",")
    return DELTA_EXTENSION in extensions and spark.conf.get("spark.sql.catalog.spark_catalog", "") == DELTA_CATALOG


def create_tables(lake: LakeTables, database: str, *, subtypes: bool, is_mirrored: Callable[[str], bool]) -> list[str]:
    """Create or update the tables and views of a lake in a database of the session's metastore; returns the views.

    `is_mirrored` tells whether a family has a Delta table that follows the lake, which a session with Delta then reads.
    """
    spark = lake.spark
    if spark.conf.get(_IMPLEMENTATION) != "hive":
        raise LakeError(
            "this session keeps no tables: its catalog is in memory; start it with enableHiveSupport(), or use "
            "lake.views() in every session"
        )
    catalog, state = lake.catalog, lake.state()
    views = view_names(catalog, "")
    if refused := [name for name in views if not name.isascii()]:
        raise LakeError(f"a metastore takes names of ASCII letters only, not {refused[0]}; use lake.views()")
    with job_description(spark, f"list the files of {folder_name(lake.path)} in the metastore"):
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
        with_delta = has_delta(spark)
        for family in catalog.families:
            table = f"{quoted(database)}.{_table(family)}"
            if with_delta and is_mirrored(family):
                _drop_other(spark, table, "delta")
                location = _text(spark_path(f"{lake.path}/{table_folder(family)}"))
                spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING DELTA LOCATION {location}")
            else:
                _update_table(lake, table, family, state.table(family))
        for name, view in views.items():
            query = _select_type(lake, database, name, subtypes=subtypes)
            spark.sql(f"CREATE OR REPLACE VIEW {quoted(database)}.{quoted(view)} AS {query}")
    return [f"{database}.{view}" for view in views.values()]


def _drop_other(spark: SparkSession, table: str, provider: str, columns: Sequence[str] | None = None) -> None:
    """Drop an external table, whose files stay, if it has another provider, as with and without Delta, or columns."""
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        is_other = any(row["col_name"] == "Provider" and row["data_type"].lower() != provider for row in rows)
        is_other = is_other or (columns is not None and spark.table(table).columns != columns)
    except AnalysisException:
        return  # there is no such table
    if is_other:
        spark.sql(f"DROP TABLE {table}")


def _update_table(lake: LakeTables, table: str, family: str, parts: Sequence[Part]) -> None:
    """Make an external table have the parts of the lake as its partitions, and no others."""
    schema = table_schema(lake.catalog.vector(family))
    columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
    _drop_other(lake.spark, table, "parquet", schema.names)
    lake.spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING parquet OPTIONS (datetimeRebaseMode 'CORRECTED') "
        f"PARTITIONED BY ({COMMIT}, {DAY}) LOCATION {_text(spark_path(f'{lake.path}/{table_folder(family)}'))}"
    )
    wanted = {_partition(part): f"{lake.path}/{part.folder}" for part in parts}
    present = {row[0] for row in lake.spark.sql(f"SHOW PARTITIONS {table}").collect()}
    _change_partitions(lake.spark, table, "ADD IF NOT EXISTS", " ", {p: wanted[p] for p in wanted if p not in present})
    _change_partitions(lake.spark, table, "DROP IF EXISTS", ", ", dict.fromkeys(present - wanted.keys()))
    lake.spark.catalog.refreshTable(table)


def _change_partitions(
    spark: SparkSession, table: str, change: str, between: str, partitions: Mapping[str, str | None]
) -> None:
    listed = [_partition_clause(*each) for each in partitions.items()]
    for first in range(0, len(listed), _AT_ONCE):
        spark.sql(f"ALTER TABLE {table} {change} {between.join(listed[first : first + _AT_ONCE])}")


def _partition_clause(partition: str, path: str | None) -> str:
    values = ", ".join(f"{name} = {_text(value)}" for name, value in (e.split("=", 1) for e in partition.split("/")))
    return f"PARTITION ({values})" + ("" if path is None else f" LOCATION {_text(spark_path(path))}")


def _partition(part: Part) -> str:
    return part.folder[part.folder.index(f"{COMMIT}=") :]


def _select_type(lake: LakeTables, database: str, name: str, *, subtypes: bool) -> str:
    """Return the rows of a type, with the columns of `Lake.read`; columns that a family does not have are NULL."""
    subscription = rebuild(lake.catalog.declare(name, generated=True))
    tables = select_tables(subscription, lake.catalog, lake.state(), subtypes=subtypes)
    every = list(dict.fromkeys(column for table in tables.values() for column in table.columns))
    return " UNION ALL ".join(
        _select_family(f"{quoted(database)}.{_table(family)}", table, every) for family, table in tables.items()
    )


def _select_family(name: str, table: SelectedTable, columns: Sequence[str]) -> str:
    values = table.expressions(lambda attribute: attribute.first_name)
    shown = [f"{values.get(each, 'NULL')} AS {quoted(each)}" for each in columns]
    is_wanted = f"{TYPE} IN ({_texts(table.types)})" if table.types else "false"
    return f"SELECT {', '.join([*shown, *ADDED])} FROM {name} WHERE {is_wanted}"


def _table(family: str) -> str:
    return quoted(family.replace(".", "_") + FILES)


def quoted(name: str) -> str:
    """A name as SQL has it; without quotes, Spark takes letters of ASCII only."""
    return f"`{name.replace('`', '``')}`"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(map(_text, values))
