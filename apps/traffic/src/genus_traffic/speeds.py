"""The speeds of vehicles as an analysis of a lake: the passages of each lane of each site, in batch and as a stream.

It walks over the edges of a lane with the algorithm that runs beside the road (`genus_traffic.passages.finder`).
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from genus.filters import Subscription
from genus_traffic.passages.finder import Found, FoundAt, PassageFinder
from genus_traffic.passages.hits import LoopEdge
from genus_traffic.types import Cleared, Loop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from genus.lake import Lake, Walk, WalkResult

EDGES = (Subscription(Loop, has=("lane", "time")), Subscription(Cleared, has=("lane", "time")))
"""The leading and the trailing edges of both loops; two of them, for a frame of edges as such has no category."""

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
"""The columns of passages beside the key: the fields of `Found`, in their order."""


def speeds(lateness: timedelta | None = None, *, keep_late: bool = False) -> "Walk":
    """The analysis of the events of `EDGES`; on a stream it needs a lateness.

    Its results have `source` and `lane`; the instants at which a vehicle came onto the upper loop (`time`), left it
    (`cleared`), came onto the lower one and left that (`lower_time`, `lower_cleared`); then `speed`, `speed_leaving`,
    `length` and `category`. What is not known is NULL: one-sided hits have no speed.
    """
    from genus.lake import Walk

    return Walk(
        by=KEY,
        function=passages_in,
        gives=PASSAGES,
        columns=(TYPE, PLACE, CATEGORY),
        lateness=lateness,
        keep_late=keep_late,
    )


def passages_of(lake: "Lake", lateness: timedelta | None = None) -> "DataFrame":
    """The passages in all events of a lake."""
    return speeds(lateness).all(*(lake.read(each) for each in EDGES))


def passages_in(edges: pa.Table, limit_us: int) -> "WalkResult":
    """The passages in the edges of a lane, of which all before an instant are known, and which edges wait."""
    from genus.lake import WalkResult

    finder = PassageFinder()
    finder.load(_edges(edges))
    found = finder.advance(limit_us)
    return WalkResult(_table(found), sorted(edge.row for edge in finder.waiting))


def found_in(passages: pa.Table) -> Iterator[FoundAt]:
    """The rows of an Arrow table with the columns of the analysis as what they say."""
    instants = [passages.column(name).cast(pa.int64()) for name in INSTANTS]
    columns = [*instants, *map(passages.column, (*FIGURES, CATEGORY))]
    found = zip(*(column.to_pylist() for column in columns), strict=True)
    sites, lanes = (passages.column(name).to_pylist() for name in KEY)
    return map(FoundAt, sites, lanes, map(Found._make, found))


def _edges(rows: pa.Table) -> Iterator[LoopEdge]:
    uppers = rows.column(PLACE).is_valid()
    leading = pc.not_equal(rows.column(TYPE), Cleared.__name__)
    columns = rows.column(_AT_US), uppers, leading, rows.column(CATEGORY)
    return map(LoopEdge, *(column.to_pylist() for column in columns), range(rows.num_rows))


def _table(found: list[Found]) -> pa.Table:
    columns = zip(*found, strict=True) if found else [()] * len(PASSAGES)
    arrays = [_column(values, field.type) for values, field in zip(columns, PASSAGES, strict=True)]
    return pa.table(arrays, schema=PASSAGES)


def _column(values: tuple[object, ...], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if kind == _INSTANT else pa.array(values, kind)
