"""Events in Arrow tables: what `analysis` computes with columns of Spark, for few events in this process."""

from collections.abc import Iterable
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._analytics.analysis import EXPIRES, TIME, span_micros, watermark_micros
from genus.lake._analytics.pair_kernel import Marks, Rows
from genus.lake._tables.columns import RECORDED
from genus.model import Span


def late_rows(events: pa.Table, lateness: Span | None) -> Marks:
    """A mask of the late events; as `is_late`."""
    recorded = as_micros(events.column(RECORDED))
    late: Marks = recorded > as_micros(_or_recorded(events, EXPIRES))
    return late if lateness is None else late | (recorded - event_micros(events) > span_micros(lateness))


def overtaken_rows(events: pa.Table, watermark: datetime | None) -> Marks:
    """A mask of the events before a watermark, if there is one; as `is_overtaken`."""
    if watermark is None:
        return np.zeros(events.num_rows, np.bool_)
    overtaken: Marks = event_micros(events) < watermark_micros(watermark)
    return overtaken


def drop_late_rows(events: pa.Table, lateness: Span | None, keep_late: bool) -> pa.Table:
    """The events without late ones, or all if `keep_late` is set; as `drop_late`."""
    return events if keep_late else select_rows(events, ~late_rows(events, lateness))


def event_times(events: pa.Table) -> pa.ChunkedArray:
    """The time of each event, or its time of recording if it has none; as `event_time`."""
    return _or_recorded(events, TIME)


def event_micros(events: pa.Table) -> Rows:
    """The time of each event in microseconds since 1970."""
    return as_micros(event_times(events))


def as_micros(times: pa.ChunkedArray) -> Rows:
    """Times, all of them known, in microseconds since 1970."""
    micros: Rows = times.cast(pa.int64()).to_numpy()
    return micros


def select_rows(rows: pa.Table, chosen: Marks) -> pa.Table:
    """The rows where a mask is true."""
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def drop_null_rows(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """The rows that have a value in each of some columns."""
    for name in names:
        if rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
    return rows


def key_array(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a key: NaN becomes NULL, -0.0 becomes 0.0; as `key_column`."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), same_zeros(column))


def same_zeros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of floating-point numbers in which -0.0 becomes 0.0, and every NaN the same."""
    positive = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), positive)


def sort_rows(rows: pa.Table, order: pa.Table) -> pa.Table:
    """The rows in the order of the columns of another table, which has as many rows."""
    keys = [(name, "ascending") for name in order.column_names]
    return rows.combine_chunks().take(pc.sort_indices(order, sort_keys=keys))


def _or_recorded(events: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.coalesce(events.column(name), events.column(RECORDED))
