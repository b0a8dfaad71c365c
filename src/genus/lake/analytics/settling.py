"""What every analysis has in common: it takes events in, and settles what a watermark allows."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake.columns import twins_in

_FEW_PARTITIONS = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


class Settled(NamedTuple):
    """What an increment gives."""

    results: DataFrame
    """Rows that are final."""
    waiting: DataFrame
    """Rows to be handed to the next increment, with the columns that `take` gives."""
    shared: DataFrame
    """What both are computed from: `keep` it to use both and do the work once."""


class Analysis(Protocol):
    """An analysis that runs in batch and over increments, with equal results.

    Cut events, ordered by when they were recorded, into any increments; let each settle at the watermark it has come to
    (`watermark_of`), and at last at `END`. The results taken together are those of `all` over all events, row for row.
    """

    @property
    def lateness(self) -> timedelta | None:
        """How long after its time an event may be recorded and still counts."""

    def take(self, *events: DataFrame) -> DataFrame:
        """The rows the analysis works on, of events as a lake gives them; late ones are left out."""

    def settle(self, rows: DataFrame, watermark: datetime) -> Settled:
        """What is final now that no event before the watermark is still to come, and what still waits."""

    def all(self, *events: DataFrame) -> DataFrame:
        """The results over all events there are."""


def keep(frame: DataFrame) -> DataFrame:
    """Persist a frame, in as few partitions as it needs.

    Unless it is told that it may, Spark keeps what comes from a shuffle in 200, however little it is, and each of them
    costs a task, and Python's start of one.
    """
    settings = frame.sparkSession.conf
    before = settings.get(_FEW_PARTITIONS, "false")
    settings.set(_FEW_PARTITIONS, "true")
    try:
        return frame.persist()
    finally:
        settings.set(_FEW_PARTITIONS, before or "false")


def together(waiting: DataFrame | None, rows: DataFrame) -> DataFrame:
    """The rows of an increment and those that wait since the last, which may lack attributes added in between."""
    return rows if waiting is None else rows.unionByName(waiting, allowMissingColumns=True)


def demand(frame: DataFrame, names: Iterable[str]) -> None:
    """Refuse a frame without some columns."""
    if missing := [name for name in names if name not in frame.columns]:
        raise LakeError(f"the frame has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")


def distinct(names: Sequence[str], hint: str) -> None:
    """Refuse columns of a result that Spark could not tell apart."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if clash := ", ".join(doubled) or twins_in(names):
        raise LakeError(f"the result would have two columns {clash}; {hint}")


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """Column names as they may be given: one, or several."""
    return (names,) if isinstance(names, str) else tuple(names)
