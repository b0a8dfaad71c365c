"""Walks: a user's function goes through the events of each key, in batch and on a stream."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake import Walk, WalkResult
from genus.lake._analytics import analysis
from genus.lake._analytics.windows import KEPT, STATE, WAITING, walk_rows

from .bursts import GAP_US, GIVES, bursts
from .hits import Hit, followed, frame, in_order, increments, traffic

TAKES = pa.schema([("lane", pa.string()), ("_at_us", pa.int64()), ("_position", pa.int64())])
FOREVER = 1 << 62
MICRO = timedelta(microseconds=1)

Row = tuple[str, int, int]
"""Lane, time and number."""


def bursts_by_definition(rows: Iterable[Row]) -> set[tuple[str, int, int]]:
    """The oracle: a hit begins a burst if its lane has none shortly before it."""
    order = sorted(rows, key=lambda row: (row[0], row[1], row[2]))
    found: list[list[Any]] = []
    for before, row in zip([None, *order], order, strict=False):
        if before is None or before[0] != row[0] or row[1] - before[1] > GAP_US:
            found.append([row[0], row[2], 0])
        found[-1][2] += 1
    return {(lane, first, hits) for lane, first, hits in found}


def walked(rows: Iterable[Row], limit_us: int, batch: int) -> tuple[list[tuple[str, int, int]], list[Row]]:
    """Results, and the rows that wait."""
    table = pa.Table.from_pylist([dict(zip(TAKES.names, row, strict=True)) for row in sorted(rows)], TAKES)
    walk = Walk(by=("lane",), function=bursts, gives=GIVES)
    made = walk_rows(walk, walk._output(TAKES), limit_us, table.to_batches(batch))
    out = [row for each in made for row in each.to_pylist()]
    results = [(row["lane"], row["first"], row["hits"]) for row in out if row[STATE] != WAITING]
    kept = [(row["lane"], row[f"{KEPT}_at_us"], row[f"{KEPT}_position"]) for row in out if row[STATE] == WAITING]
    return results, kept


@st.composite
def some_rows(draw: st.DrawFn) -> list[Row]:
    drawn = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 90)), max_size=40))
    return [(lane, at, number) for number, (lane, at) in enumerate(drawn)]


@given(rows=some_rows(), batch=st.integers(1, 20), block=st.integers(1, 12))
def test_results_do_not_depend_on_how_rows_come_in_blocks(rows: list[Row], batch: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "BLOCK_ROWS", block)
        results, kept = walked(rows, FOREVER, batch)
    assert set(results) == bursts_by_definition(rows)
    assert len(results) == len(set(results))
    assert not kept


@given(rows=some_rows(), limits=st.lists(st.integers(0, 95), max_size=5), block=st.integers(1, 30))
def test_increments_give_what_one_batch_gives(rows: list[Row], limits: list[int], block: int) -> None:
    waiting: list[Row] = []
    given_out: list[tuple[str, int, int]] = []
    seen = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "BLOCK_ROWS", block)
        for limit in [*sorted(limits), FOREVER]:
            new = [row for row in rows if seen <= row[1] < limit + 5]
            seen = max(seen, limit + 5)
            results, waiting = walked([*waiting, *new], limit, 7)
            given_out += results
    assert not waiting
    assert sorted(given_out) == sorted(bursts_by_definition(rows))


def test_few_rows_are_held_from_block_to_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only waiting rows are kept between blocks, not the history of a key."""
    sizes: list[int] = []
    monkeypatch.setattr(analysis, "BLOCK_ROWS", 100)
    table = pa.Table.from_pylist([{"lane": "a", "_at_us": at * 50, "_position": at} for at in range(5000)], TAKES)
    walk = Walk(by=("lane",), function=partial(_watched, sizes), gives=GIVES)
    found = list(walk_rows(walk, walk._output(TAKES), FOREVER, table.to_batches(50)))
    assert sum(batch.num_rows for batch in found) == 5000
    assert max(sizes) <= 150


def _watched(sizes: list[int], rows: pa.Table, limit_us: int) -> WalkResult:
    sizes.append(rows.num_rows)
    return bursts(rows, limit_us)


@pytest.mark.slow
def test_batch_and_increments_agree_row_for_row_on_spark(spark: SparkSession) -> None:
    """Cut by time of recording, with late events, a stream has the results of the batch."""
    given_hits = traffic(600, seed=9, delay=40)
    analysis = Walk(by=("lane",), function=bursts, gives=GIVES, lateness=30 * MICRO)
    whole = analysis.all(frame(spark, given_hits))
    batches = increments(given_hits, cuts=2, seed=1)
    assert in_order(followed(analysis, batches, lambda new: [frame(spark, new)])) == in_order(whole)
    batch = whole.toArrow().to_pylist()
    on_time = [(hit.lane, hit.at, hit.position) for hit in given_hits if hit.lane is not None and hit.delay <= 30]
    assert {(row["lane"], row["first"], row["hits"]) for row in batch} == bursts_by_definition(on_time)
    assert len(batch) > 50


def test_it_is_known_by_the_name_of_its_function() -> None:
    """A derived table is identified by it: the same in every process, whatever the function's address."""
    analysis = Walk(by=("lane",), function=bursts, gives=GIVES, lateness=MICRO)
    assert repr(analysis) == (
        f"Walk(by=('lane',), function={bursts.__module__}.bursts, gives=(first: int64, hits: int64), columns=(), "
        "lateness=datetime.timedelta(microseconds=1), keep_late=False)"
    )


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(LakeError, match="give a function of a module"):
        Walk(by=("lane",), function=lambda rows, limit: WalkResult(rows, ()), gives=GIVES)


def test_a_walk_without_a_key_is_refused() -> None:
    with pytest.raises(LakeError, match="by= names no column"):
        Walk(by=(), function=bursts, gives=GIVES)


def test_columns_that_the_frame_lacks_are_named(spark: SparkSession) -> None:
    analysis = Walk(by=("lane",), function=bursts, gives=GIVES, columns=("sped",))
    with pytest.raises(LakeError, match="no column sped"):
        analysis.all(frame(spark, [Hit("a", 0, 1, True, False)]))


def test_nan_is_no_key(spark: SparkSession) -> None:
    """NaN is no key, as NULL is none; such events are left out."""
    events = frame(spark, [Hit("NaN", 0, 1, True, False), Hit("1", 5, 2, True, False)])
    numbered = events.withColumn("lane", events["lane"].cast("double"))
    found = Walk(by=("lane",), function=bursts, gives=GIVES).all(numbered).collect()
    assert [(row.lane, row.first, row.hits) for row in found] == [(1.0, 2, 1)]


def _other_columns(rows: pa.Table, limit_us: int) -> WalkResult:
    return WalkResult(pa.table({"wrong": [1]}), ())


def test_results_of_other_columns_than_promised_are_refused() -> None:
    table = pa.Table.from_pylist([{"lane": "a", "_at_us": 1, "_position": 1}], TAKES)
    walk = Walk(by=("lane",), function=_other_columns, gives=GIVES)
    with pytest.raises(LakeError, match="returned the columns wrong, not first, hits"):
        list(walk_rows(walk, walk._output(TAKES), FOREVER, table.to_batches()))
