"""Reading typed events: a subscription becomes a scan that skips files, row groups and columns it does not need."""

from collections.abc import Iterable
from datetime import datetime
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.lake._tables.columns import DAY, OWN_SCHEMA
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import Part, count_files
from genus.model import Event, TimeType, attributes, is_event_type
from genus.targets import spark as target


def read_events(lake: LakeTables, subscription: Subscription) -> DataFrame:
    """The events of a lake that match."""
    return read_parts(lake, subscription, lake.state().parts.values())


def read_parts(lake: LakeTables, subscription: Subscription, parts: Iterable[Part]) -> DataFrame:
    """The events in some parts of a lake that match."""
    families = matching_types(subscription, lake.catalog, lake.state().shapes.values())
    columns = result_columns(subscription)
    wanted = parts_within_days(parts, subscription)
    tables = {family: [part for part in wanted if part.table == family] for family in families}
    frames = [
        select_matches(lake.events(family, found), subscription, families[family]).select(*columns)
        for family, found in tables.items()
    ]
    return reduce(DataFrame.unionByName, frames) if frames else lake.events("Event", []).select(*columns)


def select_matches(events: DataFrame, subscription: Subscription, types: Iterable[str]) -> DataFrame:
    """The events of a family's table that match, with all columns; `types` are the types that can match."""
    matching = target.compile(subscription).filter(events, types)
    for condition in _day_conditions(subscription):
        matching = matching.where(condition)
    return matching


def result_columns(subscription: Subscription) -> list[str]:
    """The attributes of the subscribed type, then the columns that Genus adds."""
    cls = subscription.type
    own = attributes(cls) if is_event_type(cls) else attributes(Event)
    return [*(attribute.name for attribute in own), *OWN_SCHEMA.names, DAY]


# -- days --------------------------------------------------------------------------------------------------------------


def _day_conditions(subscription: Subscription) -> list[Column]:
    """Conditions on the day, which is in the paths of files, that follow from a predicate on `time`."""
    first, last = day_bounds(subscription)
    return [F.col(DAY) >= _date(first)] * (first is not None) + [F.col(DAY) <= _date(last)] * (last is not None)


def day_bounds(subscription: Subscription) -> tuple[str | None, str | None]:
    """The first and the last day, in ISO form, whose events can match; None for no bound.

    >>> from genus import Event, Subscription
    >>> day_bounds(Subscription.parse("Event where time > @2026-05-01T06:00:00Z", [Event]))
    ('2026-05-01', None)
    """
    firsts, lasts = [], []
    for part in conjuncts(subscription.where):
        match part:
            case x.Compare(op, x.AttributeRef("time", TimeType()), x.Literal(datetime() as constant)):
                day = constant.date().isoformat()
                firsts += [day] if op in (">", ">=", "==") else []
                lasts += [day] if op in ("<", "<=", "==") else []
    return max(firsts, default=None), min(lasts, default=None)


def parts_within_days(parts: Iterable[Part], subscription: Subscription) -> list[Part]:
    """The parts whose day can match."""
    first, last = day_bounds(subscription)
    return [part for part in parts if (first or "") <= _day_of(part) <= (last or "9999-12-31")]


def _day_of(part: Part) -> str:
    return part.folder.rpartition(f"{DAY}=")[2]


def _date(day: str | None) -> Column:
    return F.lit(day).cast("date")


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
