"""Reading typed events: a subscription becomes a scan that skips files, row groups and columns it does not need."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from genus.filters import Subscription
from genus.lake._query.days import is_within, matching_days
from genus.lake._query.result_columns import ADDED, attribute_columns, family_of, result_columns, subtype_columns
from genus.lake._tables.columns import DAY
from genus.lake._tables.commits import Part, count_files
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.state import LedgerState
from genus.model._vector import hidden_names
from genus.targets import spark as target
from genus.targets._intervals import Interval

MAX_SPANS = 16
"""Days in more intervals than this are tested by the first and the last."""


def read_events(
    lake: LakeTables, subscription: Subscription, state: LedgerState | None = None, *, subtypes: bool = False
) -> DataFrame:
    """The events of a lake that match, by default of its present state; with `subtypes`, also with their attributes."""
    read = lake.state() if state is None else state
    with lake.reading(read):
        return read_parts(lake, subscription, read.parts.values(), subtypes=subtypes)


def read_parts(
    lake: LakeTables, subscription: Subscription, parts: Iterable[Part], *, subtypes: bool = False
) -> DataFrame:
    """The events in some parts of a lake that match; none if no type conforms."""
    catalog = lake.catalog
    families = matching_types(subscription, catalog, lake.state().shapes.values())
    if not families:
        return lake.events(family_of(subscription, catalog), []).select(*result_columns(subscription))
    columns = subtype_columns(families, catalog) if subtypes else {}
    own = {name: name for name in attribute_columns(subscription)}
    wanted = parts_within_days(parts, subscription)
    tables = {family: [part for part in wanted if part.table == family] for family in families}
    frames = []
    for family, found in tables.items():
        vector = catalog.vector(family)
        matching = select_matches(lake.events(family, found), subscription, families[family])
        hidden = frozenset() if subtypes else hidden_names(vector, subscription.vector)
        frames.append(_select(matching, columns.get(family, own), hidden))
    return reduce(_union, frames)


def _select(events: DataFrame, columns: Mapping[str, str], hidden: Collection[str]) -> DataFrame:
    """The attributes under the names of their columns, NULL for those that are hidden, then what Genus adds."""
    return events.select(*(visible_column(name, hidden).alias(column) for name, column in columns.items()), *ADDED)


def visible_column(name: str, hidden: Collection[str]) -> Column:
    """The column of a name; of an attribute that the family has with another type than is meant, NULL."""
    return F.lit(None).cast("string").alias(name) if name in hidden else F.col(name)


def _union(first: DataFrame, second: DataFrame) -> DataFrame:
    """The rows of both; an attribute that one lacks is NULL there, and the columns that Genus adds remain the last."""
    joined = first.unionByName(second, allowMissingColumns=True)
    return joined.select(*(name for name in joined.columns if name not in ADDED), *ADDED)


def select_matches(events: DataFrame, subscription: Subscription, types: Iterable[str]) -> DataFrame:
    """The events of a family's table that match, with all columns; `types` are the types that can match."""
    matching = target.compile(subscription).filter(events, types)
    days = matching_days(subscription)
    return matching if days is None else matching.where(_day_condition(days))


# -- days --------------------------------------------------------------------------------------------------------------


def parts_within_days(parts: Iterable[Part], subscription: Subscription) -> list[Part]:
    """The parts whose day can match."""
    days = matching_days(subscription)
    return [part for part in parts if is_within(_day_of(part), days)]


def _day_of(part: Part) -> int:
    """The ordinal of the day of a part; 0 if there is none, as for dead letters."""
    return 0 if part.day is None else part.day.toordinal()


def _day_condition(days: Sequence[Interval]) -> Column:
    """A test of the day, which Spark applies to the paths of files."""
    spans = days if len(days) <= MAX_SPANS else [(days[0][0], days[-1][1])]
    tests = [F.col(DAY).between(*map(_date, span)) for span in spans]
    return reduce(Column.__or__, tests, F.lit(False)) if len(tests) != 1 else tests[0]


def _date(day: int) -> Column:
    return F.lit(date.fromordinal(day).isoformat()).cast("date")


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
    """What reading a subscription would open and test; needs no running session."""
    state = lake.state()
    families = matching_types(subscription, lake.catalog, state.shapes.values())
    opened = parts_within_days((part for part in state.parts.values() if part.table in families), subscription)
    tables = [
        TableScan(family, tuple(types), _count_days(state.table(family)), _count_days(opened, family))
        for family, types in families.items()
    ]
    return ReadPlan(
        target.compile(subscription).explain(),
        tuple(tables),
        count_files(opened),
        sum(part.bytes for part in opened),
        count_files(state.parts.values()),
        sum(part.bytes for part in state.parts.values()),
    )


def _count_days(parts: Iterable[Part], family: str | None = None) -> int:
    return len({_day_of(part) for part in parts if family in (None, part.table)})
