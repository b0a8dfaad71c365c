"""`genus lake read`: the events that match a subscription, and how they are found."""

import operator
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genus.cli._completion import complete_lake_types
from genus.cli._format import counted, sized
from genus.cli._lake_rows import Asked, give, takes_rows
from genus.cli._lake_session import lake_and, on_spark
from genus.filters import AttributeRef, Compare, Literal, Predicate, Subscription, conjuncts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake._lake import Lake
    from genus.lake._tables.ledger import Part

_COMPARED: dict[str, Callable[[date, date], bool]] = {
    "<": operator.le,
    "<=": operator.le,
    ">": operator.ge,
    ">=": operator.ge,
    "==": operator.eq,
}
"""How the day of an event compares where its time does: a day is not before another only because an instant is."""


@click.command()
@lake_and("SUBSCRIPTION", complete_lake_types)
@takes_rows
@click.option("--explain", is_flag=True, help="Say what would be read and tested where; nothing is read.")
@click.option("--plan", is_flag=True, help="Show Spark's own plan; nothing is read.")
@on_spark
def read(
    given: tuple[str, str],
    limit: int | None,
    columns: str | None,
    only_count: bool,
    out: Path | None,
    as_json: bool,
    explain: bool,
    plan: bool,
    spark: "SparkSession",
) -> None:
    """Show the events that match a subscription.

    Types are known by the lake's catalog; no code that declares them is needed.

    \b
    genus lake read city "Loop has place where speed > 30"
    genus lake read city "Roadside where time >= @2026-05-01T00:00:00Z" --out may.parquet
    """
    from genus.lake._lake import Lake

    asked = Asked(limit, columns, only_count, out, as_json)
    lake = Lake(spark, given[0])
    subscription = lake.subscription(given[1])
    if explain:
        click.echo(explained(lake, subscription))
    if plan:
        lake.read(subscription).explain(mode="formatted")
    if not explain and not plan:
        give(lake.read(subscription), asked)


def explained(lake: "Lake", subscription: Subscription) -> str:
    """What a read opens, tests on files and tests on rows, in plain words; no session is needed."""
    from genus.lake._tables.lake_catalog import type_names
    from genus.targets import spark as target

    state = lake.state()
    families = type_names(subscription, lake.catalog, state.shapes.values())
    parts = [part for part in state.parts.values() if part.table in families]
    lines = [
        f"  {family}: {_files(state.table(family), subscription)}; types {', '.join(types)}"
        for family, types in families.items()
    ]
    opened = [part for part in parts if _may_match(part, subscription)]
    total = f"opened at most: {_amount(opened)} of the lake's {_amount(state.parts.values())}"
    return "\n".join([target.compile(subscription).explain(), "tables:", *(lines or ["  none"]), total])


def _files(parts: Iterable["Part"], subscription: Subscription) -> str:
    days = {day for part in parts if (day := _day(part))}
    opened = {day for part in parts if (day := _day(part)) and _may_match(part, subscription)}
    return f"{len(opened):,} of {counted(len(days), 'day')}"


def _amount(parts: Iterable["Part"]) -> str:
    found = list(parts)
    return f"{counted(sum(part.files for part in found), 'file')}, {sized(sum(part.bytes for part in found))}"


def _may_match(part: "Part", subscription: Subscription) -> bool:
    """Whether the day of a part leaves room for a predicate on `time`."""
    day = _day(part)
    return day is None or all(_day_allows(day, each) for each in conjuncts(subscription.where))


def _day(part: "Part") -> date | None:
    from genus.lake._tables.columns import DAY

    text = part.folder.partition(f"/{DAY}=")[2]
    return date.fromisoformat(text) if text[:4].isdigit() else None


def _day_allows(day: date, predicate: Predicate) -> bool:
    match predicate:
        case Compare(op, AttributeRef("time"), Literal(constant)) if op in _COMPARED:
            instant: Any = constant
            return _COMPARED[op](day, instant.date())
    return True
