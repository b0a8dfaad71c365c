"""Events in the form of a lake's table files, for tests without an ingest."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession

from genus import Subscription
from genus.catalog import Catalog
from genus.lake._ingest.format import Columns, Format, TypePlan, Types
from genus.lake._ingest.job import SPLIT_BYTES, IngestWork, InputFile, make_draft, run_ingest
from genus.lake._ingest.writer import Origin, TableWriter
from genus.lake._tables.commits import POSITION, RECORDED, TYPE, CommitDraft, Part, new_shapes
from genus.lake._tables.files import file_info
from genus.lake._tables.lake_catalog import CatalogFile
from genus.lake._tables.lake_tables import table_schema, with_present_names
from genus.lake._tables.part_writer import INSTANT, OWN_SCHEMA, file_schema
from genus.lake._tables.store import Store
from genus.model import Event, name_of, vector
from genus.model._vector import hidden_names
from genus.targets import arrow, spark

COLUMNS_AT_ONCE = 200
"""Conditions per job; about as many as Spark compiles into one loop."""

_FILLERS = {pa.string(): "1", pa.int64(): 0, pa.timestamp("us", tz="UTC"): datetime(2024, 1, 1, tzinfo=UTC)}


def stored_table(events: Sequence[Event]) -> pa.Table:
    """The events of one family, in the columns of its files; `_position` numbers them."""
    batch = arrow.to_batch(events)
    own = {field.name: pa.repeat(pa.scalar(_FILLERS[field.type], field.type), len(events)) for field in OWN_SCHEMA}
    own |= {TYPE: batch[TYPE], POSITION: pa.array(range(len(events)), pa.int64())}
    schema = file_schema(vector(type(events[0])))
    return pa.table([own[f.name] if f.name in own else batch[f.name].cast(f.type) for f in schema], schema=schema)


def stored_frame(session: SparkSession, events: Sequence[Event], folder: Path, rows_per_group: int = 4) -> DataFrame:
    """The events of one family as Spark reads their files, in row groups so small that some are skipped."""
    vector_of_family = vector(type(events[0]))
    path = folder / f"{vector_of_family.scope}.parquet"
    pq.write_table(stored_table(events), path, row_group_size=rows_per_group)
    stored = session.read.schema(table_schema(vector_of_family)).parquet(str(path))
    return with_present_names(stored, vector_of_family)


def by_family(events: Sequence[Event]) -> Iterator[tuple[str, list[int]]]:
    """The positions of the events of each family."""
    positions: dict[str, list[int]] = {}
    for position, event in enumerate(events):
        positions.setdefault(vector(type(event)).scope, []).append(position)
    yield from positions.items()


def answers(session: SparkSession, subscriptions: Sequence[Subscription], events: Sequence[Event]) -> list[list[bool]]:
    """Whether each subscription's condition is true for each event, many conditions per job."""
    table = [[False] * len(events) for _ in subscriptions]
    condition_of = cache(condition_on)
    with patch.object(spark, "_match_type", _remembering(spark._match_type)):
        for family, positions in by_family(events):
            asked = [n for n, one in enumerate(subscriptions) if family in {vector(cls).scope for cls in one.classes()}]
            scope = vector(type(events[positions[0]]))
            hidden = [hidden_names(scope, subscriptions[n].vector) for n in asked]
            conditions = [condition_of(subscriptions[n], names) for n, names in zip(asked, hidden, strict=True)]
            with tempfile.TemporaryDirectory() as folder:
                frame = stored_frame(session, [events[position] for position in positions], Path(folder))
                for n, column in zip(asked, truths(frame, conditions), strict=True):
                    for position, answer in zip(positions, column, strict=True):
                        table[n][position] = answer
    return table


def condition_on(subscription: Subscription, hidden: frozenset[str]) -> Column:
    """The condition of a subscription on the table of a family that hides some attributes from it."""
    return spark.compile(subscription).condition(hidden=hidden)


def _remembering(make: Callable[[list[str]], Column]) -> Callable[[list[str]], Column]:
    """Make each test of types once: making columns takes longer than evaluating them, and most are names of types."""
    match_type = cache(lambda names: make(list(names)))
    return lambda names: match_type(tuple(names))


def truths(frame: DataFrame, conditions: Sequence[Column]) -> Iterator[list[bool]]:
    """Where each condition is true, in the order of the events."""
    for start in range(0, len(conditions), COLUMNS_AT_ONCE):
        part = conditions[start : start + COLUMNS_AT_ONCE]
        found = [condition.alias(f"_{n}") for n, condition in enumerate(part)]
        rows = sorted(frame.select(POSITION, *found).collect(), key=itemgetter(0))
        yield from ([row[n] is True for row in rows] for n in range(1, len(part) + 1))


# -- lakes without Spark -----------------------------------------------------------------------------------------------


def create_lake(path: Path, *what: type | ModuleType) -> Store:
    """Create a lake for event types, as `Lake.create` does."""
    store = Store(path)
    file = CatalogFile(store.files, store.path)
    file.register(what)
    store.commit(msgspec.structs.replace(store.begin("create"), catalog=file.text))
    return store


def add_events(store: Store, events: Sequence[Event], recorded: datetime = datetime(2026, 5, 1, 6, tzinfo=UTC)) -> None:
    """Commit events to a lake in the files that an ingest writes; `_position` numbers them."""
    catalog = CatalogFile(store.files, store.path).catalog
    types, draft = Types(catalog), store.begin("ingest")
    writer = TableWriter(Origin(store.path, draft.id, len(store.state().parts), "memory", 0, draft.at_us))
    for cls in dict.fromkeys(map(type, events)):
        positions = [position for position, event in enumerate(events) if type(event) is cls]
        plan = types.expected(name_of(cls))
        writer.add(Columns(plan.name, _columns([events[n] for n in positions], positions, recorded, plan)), plan)
    report = writer.finish()
    state = store.state()
    folders = {(file.table, file.folder): file for file in report.files}
    assert len(folders) == len(report.files), "a folder has one file"
    parts = [Part(file.table, file.folder, (file.file,), file.shapes) for file in report.files]
    shapes = new_shapes(state.shapes, state.shape_counts, report.shapes)
    store.commit(msgspec.structs.replace(draft, added=tuple(parts), shapes=shapes, newest_us=report.newest_us))


def _columns(events: Sequence[Event], positions: list[int], recorded: datetime, plan: TypePlan) -> pa.RecordBatch:
    batch = arrow.to_batch(events)
    fields = [field for field in plan.schema if batch[field.name].null_count < len(events)]
    columns = [batch[field.name].cast(field.type) for field in fields]
    columns += [pa.array(positions, pa.int64()), pa.repeat(pa.scalar(recorded, INSTANT), len(events))]
    return pa.RecordBatch.from_arrays(columns, [*(field.name for field in fields), POSITION, RECORDED])


def ingest_draft(
    spark: SparkSession, root: Path, catalog: Catalog, path: str, format: Format, split_bytes: int = SPLIT_BYTES
) -> CommitDraft:
    """Read a file by the job of ingest, without a lake."""
    work = IngestWork.begin(str(root), catalog.text())
    given = InputFile(path, file_info(path).size, format)
    return make_draft(work, run_ingest(spark, work, [given], split_bytes))
