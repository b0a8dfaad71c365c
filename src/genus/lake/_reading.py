"""Reading typed events: a subscription becomes a scan that passes over files, row groups and columns it needs not."""

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.lake._tables.columns import DAY, OWN
from genus.lake._tables.lake_catalog import type_names
from genus.lake._tables.ledger import Part
from genus.model import Event, TimeType, attributes, is_event_type
from genus.targets import spark as target

if TYPE_CHECKING:
    from genus.lake._lake import Lake


def read(lake: "Lake", subscription: Subscription) -> DataFrame:
    """The events of a lake that match."""
    return read_parts(lake, subscription, lake.state().parts.values())


def read_parts(lake: "Lake", subscription: Subscription, parts: Iterable[Part]) -> DataFrame:
    """The events in some parts of a lake that match."""
    families = type_names(subscription, lake.catalog, lake.state().shapes.values())
    columns = columns_of(subscription)
    wanted = within_days(parts, subscription)
    tables = {family: [part for part in wanted if part.table == family] for family in families}
    frames = [
        select(lake.events(family, found), subscription, families[family]).select(*columns)
        for family, found in tables.items()
    ]
    return reduce(DataFrame.unionByName, frames) if frames else lake.events("Event", []).select(*columns)


def select(events: DataFrame, subscription: Subscription, types: Iterable[str]) -> DataFrame:
    """The events of a family's table that match, with all columns; days that cannot match are not opened."""
    matching = target.compile(subscription).filter(events, types)
    for day in days_of(subscription):
        matching = matching.where(day)
    return matching


def columns_of(subscription: Subscription) -> list[str]:
    """The attributes of the subscribed type, then Genus' own columns."""
    cls = subscription.type
    own = attributes(cls) if is_event_type(cls) else attributes(Event)
    return [*(attribute.name for attribute in own), *OWN.names, DAY]


def days_of(subscription: Subscription) -> list[Column]:
    """What a predicate on `time` says about the day, which is in the paths of files."""
    first, last = day_bounds(subscription)
    return [F.col(DAY) >= _date(first)] * (first is not None) + [F.col(DAY) <= _date(last)] * (last is not None)


def day_bounds(subscription: Subscription) -> tuple[str | None, str | None]:
    """The first and the last day, in ISO form, of which events can match; None for no bound.

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


def within_days(parts: Iterable[Part], subscription: Subscription) -> list[Part]:
    """The parts whose day can match: Spark need not hear of the others."""
    first, last = day_bounds(subscription)
    return [part for part in parts if (first or "") <= _day_of(part) <= (last or "9999-12-31")]


def _day_of(part: Part) -> str:
    return part.folder.rpartition(f"{DAY}=")[2]


def _date(day: str | None) -> Column:
    return F.lit(day).cast("date")
