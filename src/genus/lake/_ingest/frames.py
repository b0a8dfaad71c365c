"""Appends the rows of any frame or stream of Spark to a lake.

A task gets the Arrow batches of its partition, makes events of the rows as an ingest of Parquet files does, writes them
to tables and reports. The driver makes one commit of the reports. `append` is such a job; `FrameWriter` and
`StreamWriter` are the sinks of `df.write.format("genus")` and `df.writeStream.format("genus")`.

Rows that are appended belong to a source that the ledger notes: a frame by its key, a batch of a stream by the id of
the query and its number. So what is repeated adds nothing.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from genus.errors import LakeError
from genus.lake._ingest.format import Types, types_of
from genus.lake._ingest.ingest import IngestResult, ProgressHandler, _with_new_shapes
from genus.lake._ingest.job import IngestWork, gather_reports, make_draft
from genus.lake._ingest.tabular import TableReader, flatten_structs
from genus.lake._ingest.writer import Origin, TableWriter, TaskReport, Write
from genus.lake._jobs import folder_name, job_description
from genus.lake._tables.commits import COMMIT, DAY, OWN_COLUMNS, RECORDED, CommitConflict, CommitDraft, hash_of
from genus.lake._tables.file_systems import direct_file_system
from genus.lake._tables.files import write_file
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.mirror import Mirror
from genus.lake._tables.part_writer import RESULT_SCHEMA, DriverUpload
from genus.lake._tables.store import MIRROR_NOTE, OFF, Store
from genus.model import name_of
from genus.records import Mapping
from genus.records.internal import MappedField, TypeNaming

ROWS_PER_PARTITION = 1 << 40
"""The position of a row is its number in its partition, after as many for each partition before."""
_ROWS_AT_ONCE = 65_536
_PARTITIONS = 1 << 20
"""Numbers of partitions are below it."""
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark sets for the tasks of a stream."""
_OWN = (*OWN_COLUMNS, DAY, COMMIT)
_LOG = logging.getLogger("genus.lake")


class FramePlan(msgspec.Struct, frozen=True):
    work: IngestWork
    mapping: Mapping

    @classmethod
    def of(cls, lake: LakeFolder, what: type | str | Mapping, columns: Sequence[str]) -> "FramePlan":
        """Return the plan for a frame with some columns; NotRegistered or LakeError if they cannot be such events."""
        work = IngestWork.begin(lake.path, lake._catalog_file.text)
        types = types_of(work.catalog)
        mapping = what if isinstance(what, Mapping) else _mapping_for(lake, what, columns, types)
        mapping.check(types)
        stated = MappedField((RECORDED,), "") if RECORDED in columns else None
        own = tuple((name,) for name in _OWN if name in columns and name != RECORDED)  # they are passed over
        replaced = {"ignore": (*mapping.ignore, *own), "recorded": mapping.recorded or stated}
        return cls(work, msgspec.structs.replace(mapping, **replaced))


def _mapping_for(lake: LakeFolder, what: type | str, columns: Sequence[str], types: Types) -> Mapping:
    family_name(what, lake.catalog)  # raises if it is no event type of the catalog
    plan = types.expected(what if isinstance(what, str) else name_of(what))
    names = {attribute.name: {attribute.name, *attribute.former} for attribute in plan.attributes}
    known = {*_OWN, *(name for each in names.values() for name in each)}
    if unknown := [name for name in columns if name not in known]:
        raise LakeError(
            f"column {unknown[0]!r}: {plan.name} has no such attribute; it has {', '.join(names)}; rename or drop the "
            "column, or give a Mapping"
        )
    if missing := [name for name in plan.required if names[name].isdisjoint(columns)]:
        raise LakeError(f"there is no column {missing[0]!r}, which every {plan.name} must have")
    return Mapping(name=plan.name, naming=TypeNaming(fixed=plan.name))


def source_path(key: str | None) -> str:
    """The name of the source with a key, which dead letters show; of a new one without. Its hash is its number."""
    return f"append:{os.urandom(8).hex() if key is None else key}"


# -- tasks -------------------------------------------------------------------------------------------------------------


def write_rows(
    plan: FramePlan, source: str, batches: Iterable[pa.RecordBatch], write: Write = write_file
) -> TaskReport:
    """In a task: write the rows of a partition.

    An attempt has file names of its own, because a frame may give other rows when it is computed again. The files of
    one that fails are removed.
    """
    work, task = plan.work, TaskContext.get()
    partition, attempt = (0, 0) if task is None else (task.partitionId(), task.attemptNumber())
    number = partition + attempt * _PARTITIONS
    writer = TableWriter(Origin(work.root, work.commit, hash_of(source), source, number, work.at_us), write)
    types, position = types_of(work.catalog), partition * ROWS_PER_PARTITION
    reader = TableReader(plan.mapping, types, work.at_us, as_text=False)
    try:
        for batch in _joined(batches):
            for chunk in reader.read(flatten_structs(batch), np.arange(position, position + batch.num_rows)):
                writer.take(chunk, types)
            position += batch.num_rows
        return writer.finish()
    except BaseException:
        if (files := direct_file_system(work.root)) is not None:
            for each in writer.report.files:
                with suppress(OSError, LakeError):
                    files.delete(f"{work.root}/{each.folder}/{each.file.name}")
        raise


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Larger batches than Spark's, so that the columns of each type are converted less often."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _ROWS_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _write_partition(plan: FramePlan, source: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    files = DriverUpload()
    report = write_rows(plan, source, batches, files.write if plan.work.upload else write_file)
    yield from files.rows(msgspec.json.encode(report))


# -- commits -----------------------------------------------------------------------------------------------------------


def append(
    lake: LakeTables,
    frame: DataFrame,
    what: type | str | Mapping,
    *,
    source: str | None = None,
    progress: ProgressHandler | None = None,
) -> IngestResult:
    began = time.monotonic()
    if not isinstance(frame, DataFrame):
        raise LakeError(f"{type(frame).__name__} is no DataFrame; make one by spark.createDataFrame, or ingest files")
    if frame.isStreaming:
        raise LakeError("the frame is a stream; write it with df.writeStream.format('genus').start(lake.path)")
    plan, path, reports = FramePlan.of(lake, what, frame.columns), source_path(source), list[TaskReport]()
    if lake.state().sources.get(hash_of(path)) is None:
        written = frame.mapInArrow(partial(_write_partition, plan, path), RESULT_SCHEMA)
        with (
            lake.store.discarding(),
            job_description(lake.spark, f"append {plan.mapping.name} to {folder_name(lake.path)}"),
        ):
            lake.store.drafts.begin(plan.work.commit)
            reports = gather_reports(lake.spark, plan.work, written)
    is_added = commit_rows(lake, plan.work, reports)
    events, dead = (sum(each.rows for each in reports), sum(each.dead for each in reports)) if is_added else (0, 0)
    if progress is not None:
        progress(events + dead, events + dead)
    return IngestResult(int(is_added), int(not is_added), events, dead, 0, time.monotonic() - began, lake.version)


def commit_rows(lake: LakeFolder, work: IngestWork, reports: Sequence[TaskReport]) -> bool:
    """Commit what tasks have written; False, and nothing is changed, without rows or if the source is known."""
    draft = make_draft(work, reports)
    if draft.added and lake.state().sources.get(draft.sources[0].number) is None:
        _remove_strays(lake.store, draft)
        with suppress(CommitConflict):  # another process has appended the same meanwhile
            lake.store.commit(_with_new_shapes(lake, draft, lake._catalog_file.text))
            return True
    for source in draft.sources:
        discard_rows(lake.store, work, source.number)
    lake.store.drafts.end(work.commit)  # a frame without partitions has no source
    return False


def _remove_strays(store: Store, draft: CommitDraft) -> None:
    """Remove files of attempts that ended without a report: one may have written all rows that it got, and no more."""
    for part in draft.added:
        named, folder = {file.name for file in part.files}, f"{store.path}/{part.folder}"
        for found in store.files.list_folder(folder):
            if found.name not in named:
                store.files.delete(f"{folder}/{found.name}")


def discard_rows(store: Store, work: IngestWork, source: int) -> None:
    """Remove the files of a draft, unless it was committed: Spark may repeat a commit, and abort one that was made."""
    known = store.state().sources.get(source)
    if known is None or known.commit != work.commit:
        store.discard(make_draft(work, ()))


# -- sinks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    commit: str
    at_us: int
    report: TaskReport


Messages = list[WriterCommitMessage | None]


class _LakeWriter:
    """Writes the rows of a frame, or of a batch of a stream, to a lake in one commit.

    `source` is the name of the source of a frame; a batch of a stream has its own.
    """

    def __init__(self, plan: FramePlan, source: str | None = None) -> None:
        self._plan, self._source = plan, source

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        work = self._plan.work
        return Written(work.commit, work.at_us, write_rows(self._plan, self._source or _batch_source(), iterator))

    def commit(self, messages: Messages, batchId: int = 0) -> None:  # noqa: N803 - Spark's name
        """Commit what the tasks have written, unless that was committed before."""
        work, reports = self._gathered(messages)
        lake = LakeFolder(Store(work.root))
        if commit_rows(lake, work, reports) and lake.state().notes.get(MIRROR_NOTE) != OFF:
            try:
                Mirror(lake.store).follow()
            except Exception as problem:  # the commit is made; the next one that is mirrored completes the tables
                _LOG.warning("%s: version %d is not mirrored yet: %s", lake.path, lake.version, problem)

    def abort(self, messages: Messages, batchId: int = 0) -> None:  # noqa: N803 - Spark's name
        work, reports = self._gathered(messages)
        discard_rows(Store(work.root), work, reports[0].source if reports else 0)

    def _gathered(self, messages: Messages) -> tuple[IngestWork, list[TaskReport]]:
        """Return the work of the tasks, and their reports; the writer that commits has a plan of its own."""
        found = [each for each in messages if isinstance(each, Written)]
        made = {"commit": found[0].commit, "at_us": found[0].at_us} if found else {}
        return msgspec.structs.replace(self._plan.work, **made), [each.report for each in found]


class FrameWriter(_LakeWriter, DataSourceArrowWriter):
    """Writes a frame to a lake; Spark makes one writer."""


class StreamWriter(_LakeWriter, DataSourceStreamArrowWriter):
    """Writes a batch of a stream to a lake; Spark makes a writer for each batch and for each commit."""


def _batch_source() -> str:
    """In a task of a stream: the name of the source that the rows of the batch belong to."""
    task = TaskContext.get()
    query, batch = (None if task is None else task.getLocalProperty(name) for name in (_QUERY, _BATCH))
    if query is None or batch is None:
        raise LakeError("Spark does not say which query this is; append each batch with foreachBatch and Lake.append")
    return source_path(f"{query}/{batch}")
