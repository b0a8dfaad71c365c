"""`genus lake read`: the events that match a subscription, and how they are found."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from genus.cli._completion import complete_lake_types
from genus.cli._format import counted, sized
from genus.cli._lake_rows import Asked, give, takes_rows
from genus.cli._lake_session import lake_and, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake import ReadPlan


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
    from genus.lake import Lake

    asked = Asked(limit, columns, only_count, out, as_json)
    lake = Lake(spark, given[0])
    subscription = lake.subscription(given[1])
    if explain:
        click.echo(describe_read(lake.explain(subscription)))
    if plan:
        lake.read(subscription).explain(mode="formatted")
    if not explain and not plan:
        give(lake.read(subscription), asked)


def describe_read(plan: "ReadPlan") -> str:
    """The plan of a read as text: tests, tables, and the files that are opened at most."""
    lines = [
        f"  {scan.family}: {scan.days_read:,} of {counted(scan.days, 'day')}; types {', '.join(scan.types)}"
        for scan in plan.tables
    ]
    opened, every = _amount(plan.files, plan.bytes), _amount(plan.lake_files, plan.lake_bytes)
    total = f"opened at most: {opened} of the lake's {every}"
    return "\n".join([plan.tests, "tables:", *(lines or ["  none"]), total])


def _amount(files: int, size: int) -> str:
    return f"{counted(files, 'file')}, {sized(size)}"
