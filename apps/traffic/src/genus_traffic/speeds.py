"""The speeds of vehicles as an analysis of a lake: the passages of each lane of each site, in batch and as a stream.

It runs the algorithm of the roadside monitors (`genus_traffic.passages.finder`) over the edges of each lane.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from genus.filters import Subscription
from genus.model import Span
from genus_traffic.passages.finder import MeasuredPassage, PassageFinder, SitePassage
from genus_traffic.passages.hits import LoopEdge
from genus_traffic.types import Cleared, Loop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from genus.lake import Lake, Walk, WalkResult

EDGES = (Subscription(Loop, has=("lane", "time")), Subscription(Cleared, has=("lane", "time")))
"""Leading and trailing edges of both loops: two subscriptions, as `Edge` itself has no category."""

SITE, LANE = KEY = ("source", "lane")
INSTANTS = ("time", "cleared", "lower_time", "lower_cleared")
FIGURES = ("speed", "speed_leaving", "length")
TYPE, PLACE, CATEGORY = "_type", "place", "category"
_AT_US = "_at_us"
_INSTANT = pa.timestamp("us", tz="UTC")

PASSAGES = pa.schema(
    [
        *(pa.field(name, _INSTANT) for name in INSTANTS),
        *(pa.field(name, pa.float64()) for name in FIGURES),
        pa.field(CATEGORY, pa.string()),
    ]
)
"""The columns of passages beside the key: the fields of `MeasuredPassage`, in their order."""


def speeds(lateness: Span | None = None, *, keep_late: bool = False) -> "Walk":
    """The analysis of the events of `EDGES`; on a stream it needs a lateness.

    Its results have `source` and `lane`; the instants at which a vehicle came onto the upper loop (`time`), left it
    (`cleared`), came onto the lower one and left that (`lower_time`, `lower_cleared`); then `speed`, `speed_leaving`,
    `length` and `category`. Unknown values are NULL: one-sided hits have no speed.
    """
    from genus.lake import Walk

    return Walk(
        by=KEY,
        function=find_in_table,
        gives=PASSAGES,
        columns=(TYPE, PLACE, CATEGORY),
        lateness=lateness,
        keep_late=keep_late,
    )


def passages_of(lake: "Lake", lateness: Span | None = None) -> "DataFrame":
    """The passages in all events of a lake."""
    return speeds(lateness).all(*(lake.read(each) for each in EDGES))


def find_in_table(edges: pa.Table, limit_us: int) -> "WalkResult":
    """Find the passages in the edges of a lane, which are complete up to an instant; the other edges wait."""
    from genus.lake import WalkResult

    finder = PassageFinder()
    finder.load(_edges(edges))
    found = finder.advance(limit_us)
    return WalkResult(_table(found), sorted(edge.row for edge in finder.waiting))


def read_passages(passages: pa.Table) -> Iterator[SitePassage]:
    """Read the passages from an Arrow table with the columns of the analysis."""
    instants = [passages.column(name).cast(pa.int64()) for name in INSTANTS]
    columns = [*instants, *map(passages.column, (*FIGURES, CATEGORY))]
    found = zip(*(column.to_pylist() for column in columns), strict=True)
    sites, lanes = (passages.column(name).to_pylist() for name in KEY)
    return map(SitePassage, sites, lanes, map(MeasuredPassage._make, found))


def _edges(rows: pa.Table) -> Iterator[LoopEdge]:
    uppers = rows.column(PLACE).is_valid()
    leading = pc.not_equal(rows.column(TYPE), Cleared.__name__)
    columns = rows.column(_AT_US), uppers, leading, rows.column(CATEGORY)
    return map(LoopEdge, *(column.to_pylist() for column in columns), range(rows.num_rows))


def _table(found: list[MeasuredPassage]) -> pa.Table:
    columns = zip(*found, strict=True) if found else [()] * len(PASSAGES)
    arrays = [_column(values, field.type) for values, field in zip(columns, PASSAGES, strict=True)]
    return pa.table(arrays, schema=PASSAGES)


def _column(values: tuple[object, ...], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if kind == _INSTANT else pa.array(values, kind)
