"""The ingest job: one task per split reads events, writes tables and reports; the reports become one commit.

Tasks run on Spark. If there is little to read, they run in this process instead, because a Spark job takes
longer to start than they take; they then write one file per family and day together, not one per split.
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Format, Split, Types, types_of
from genus.lake._ingest.writer import Origin, TableWriter, TaskReport, Write, WrittenFile
from genus.lake._jobs import count_words, folder_name, job_description
from genus.lake._tables.columns import POSITION
from genus.lake._tables.commits import CommitDraft, IngestedFile, Part, latest, recorder_of, sum_counts
from genus.lake._tables.files import (
    FileInfo,
    FileSystem,
    WrittenContent,
    arrow_opens,
    content_of,
    open_input,
    write_file,
)
from genus.lake._tables.hadoop import file_system_for
from genus.lake._worker_package import worker_errors

RESULT_SCHEMA = "path string, content binary"
"""Rows that tasks return: files to be written by the driver, then a report, which has no path."""
SPLIT_BYTES = 32 * 1024 * 1024
SMALL_BYTES = 32 * 1024 * 1024
"""Files of at most this size together are read without a Spark job."""
THREADS = 4

_ARROW_SCHEMA = pa.schema([("path", pa.string()), ("content", pa.binary())])
_CHUNK = 1 << 22


class DriverUpload:
    """Files of one split that the driver writes, because pyarrow has no file system for the path of the lake.

    Everything ingested then passes through one process, so this is for small lakes on unusual file systems.
    """

    def __init__(self) -> None:
        self._files: list[tuple[str, bytes]] = []

    def write(self, path: str, write: Callable[[Any], None]) -> WrittenContent:
        """Keep the content of a file."""
        content = content_of(write).to_pybytes()
        self._files.append((path, content))
        return WrittenContent.of(content)

    def rows(self, report: bytes) -> Iterator[pa.RecordBatch]:
        """The files, one per batch, then the report."""
        for path, content in (*self._files, (None, report)):
            columns = [pa.array([path], pa.string()), pa.array([content], pa.binary())]
            yield pa.record_batch(columns, schema=_ARROW_SCHEMA)


def write_uploads(files: FileSystem, rows: Iterable[Any]) -> Iterator[bytes]:
    """Write the files that tasks returned, and yield their reports."""
    for path, content in rows:
        if path is None:
            yield bytes(content)
        else:
            files.replace(path, bytes(content))


class InputFile(msgspec.Struct, frozen=True):
    """A file to ingest."""

    path: str
    size: int
    number: int
    """Fingerprint of its content."""
    format: Format
    modified_us: int = 0
    only: frozenset[int] | None = None
    """Positions to ingest, those of earlier dead letters; None for all."""
    known: IngestedFile | None = None
    """The result of the previous ingest of this file."""


class ReadTask(msgspec.Struct, frozen=True):
    """The work of one Spark task: a split to read."""

    origin: Origin
    split: Split
    format: Format
    only: frozenset[int] | None


def fingerprint(path: str, upto: int | None = None) -> int:
    """A 64-bit hash of a file's content, or of its first `upto` bytes."""
    digest, left = hashlib.blake2b(digest_size=8), float("inf") if upto is None else upto
    try:
        with open_input(path) as file:
            while piece := file.read(int(min(_CHUNK, left))):
                digest.update(piece)
                left -= len(piece)
    except OSError as problem:
        raise LakeError(f"cannot read {path}: {problem.strerror or problem}") from problem
    return int.from_bytes(digest.digest(), "little", signed=True)


def fingerprint_files(files: Sequence[FileInfo], format: Callable[[str], Format]) -> list[InputFile]:
    """The files with fingerprints, which are computed in parallel; of files with equal content only the first."""
    with ThreadPoolExecutor(THREADS) as pool:
        numbers = list(pool.map(fingerprint, (file.path for file in files)))
    found: dict[int, InputFile] = {}
    for file, number in zip(files, numbers, strict=True):
        if number not in found:
            found[number] = InputFile(file.path, file.size, number, format(file.path), file.modified_us)
    return list(found.values())


def run_ingest(
    spark: SparkSession,
    root: str,
    catalog_text: str,
    inputs: Sequence[InputFile],
    split_bytes: int = SPLIT_BYTES,
    small_bytes: int | None = None,
    id: str | None = None,
) -> CommitDraft:
    """Ingest files in one job; returns a draft that names the written files and is not committed yet.

    Args:
        spark: The session.
        root: Path of the lake.
        catalog_text: Its catalog.
        inputs: The files.
        split_bytes: About as much is read by one task.
        small_bytes: Files of at most this size together are read without Spark; by default `SMALL_BYTES`.
        id: The id of the draft; by default a new one.
    """
    commit, at_us = id or uuid.uuid4().hex[:16], time.time_ns() // 1000
    tasks = list(_tasks(root, commit, at_us, inputs, split_bytes))
    limit = SMALL_BYTES if small_bytes is None else small_bytes
    is_small = sum(each.size for each in inputs) <= limit
    reports = (_run_here if is_small else _run_on_spark)(spark, root, catalog_text, tasks)
    return _draft(commit, at_us, inputs, reports)


def _run_here(spark: SparkSession, root: str, catalog_text: str, tasks: Sequence[ReadTask]) -> list[TaskReport]:
    """Run the tasks in this process, one after the other; the rows of all of them are written together."""
    types = types_of(catalog_text)
    write = write_file if arrow_opens(root) else partial(_write_by_driver, file_system_for(spark, root))
    writers = [_read_task(task, types, write) for task in tasks]
    for other in writers[1:]:
        writers[0].take_over(other)
    return [writer.finish() for writer in writers]


def _write_by_driver(files: FileSystem, path: str, write: Callable[[Any], None]) -> WrittenContent:
    content = content_of(write).to_pybytes()
    files.replace(path, content)
    return WrittenContent.of(content)


def _run_on_spark(spark: SparkSession, root: str, catalog_text: str, tasks: Sequence[ReadTask]) -> list[TaskReport]:
    """Run the tasks in a Spark job."""
    upload = not arrow_opens(root)
    work = partial(_run_tasks, tasks, catalog_text, upload)
    frame = spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(work, RESULT_SCHEMA)
    files = len({task.origin.path for task in tasks})
    what = f"ingest {count_words(files, 'file')} into {folder_name(root)}"
    with worker_errors(), job_description(spark, what):
        rows = frame.toLocalIterator() if upload else frame.collect()
        written = write_uploads(file_system_for(spark, root), rows)
        return [msgspec.json.decode(each, type=TaskReport) for each in written]


def _tasks(root: str, commit: str, at_us: int, inputs: Iterable[InputFile], target: int) -> Iterator[ReadTask]:
    number = 0
    for given in inputs:
        for split in given.format.splits(given.path, given.size, target):
            origin = Origin(root, commit, given.number, given.path, number, at_us)
            yield ReadTask(origin, split, given.format, given.only)
            number += 1


def _run_tasks(
    tasks: Sequence[ReadTask], catalog_text: str, upload: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: read the splits whose numbers are in the batches."""
    types = types_of(catalog_text)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            files = DriverUpload()
            writer = _read_task(tasks[number], types, files.write if upload else write_file)
            report = msgspec.json.encode(writer.finish())
            yield from files.rows(report)


def _read_task(task: ReadTask, types: Types, write: Write) -> TableWriter:
    """Read a split; its last rows are not written yet."""
    writer = TableWriter(task.origin, write)
    for chunk in _chunks(task, types):
        if isinstance(chunk, list):
            writer.reject(_select_letters(chunk, task.only))
        else:
            writer.add(_select_events(chunk, task.only), types.expected(chunk.type))
    return writer


def _chunks(task: ReadTask, types: Types) -> Iterator[Chunk]:
    """The chunks of a split; LakeError if the file cannot be read at all."""
    try:
        yield from task.format.read(task.split, types)
    except OSError as problem:
        raise LakeError(f"cannot read {task.split.path}: {problem.strerror or problem}") from problem


def _select_events(chunk: Columns, only: frozenset[int] | None) -> Columns:
    """The events at some positions, or all."""
    if only is None:
        return chunk
    wanted = pc.is_in(chunk.batch.column(POSITION), value_set=pa.array(only, pa.int64()))
    return Columns(chunk.type, chunk.batch.filter(wanted))


def _select_letters(letters: list[DeadLetter], only: frozenset[int] | None) -> list[DeadLetter]:
    return letters if only is None else [letter for letter in letters if letter.position in only]


def _draft(commit: str, at_us: int, inputs: Sequence[InputFile], reports: Sequence[TaskReport]) -> CommitDraft:
    by_source: dict[int, list[TaskReport]] = {}
    for report in reports:
        by_source.setdefault(report.source, []).append(report)
    sources = [
        IngestedFile(
            given.number,
            given.path,
            given.size,
            (given.known.rows if given.known else 0) + sum(report.rows for report in by_source.get(given.number, ())),
            sum(report.dead for report in by_source.get(given.number, ())),
            given.known.commit if given.known else "",
            given.modified_us,
        )
        for given in inputs
    ]
    newest = _newest(inputs, reports, at_us)
    return CommitDraft(
        id=commit,
        kind="ingest",
        at_us=at_us,
        added=group_parts(reports),
        sources=tuple(sources),
        shapes=tuple(dict.fromkeys(shape for report in reports for shape in report.shapes)),
        newest_us=max(newest.values(), default=None),
        newest=newest,
    )


def _newest(inputs: Iterable[InputFile], reports: Iterable[TaskReport], at_us: int) -> dict[str, int]:
    """The latest time of recording by recorder. A time in the future counts as now; else watermarks would be wrong."""
    recorders = {given.number: recorder_of(given.path) for given in inputs}
    known = [(recorders[each.source], each.newest_us) for each in reports if each.newest_us is not None]
    return latest({recorder: min(newest_us, at_us)} for recorder, newest_us in known)


def group_parts(reports: Iterable[TaskReport]) -> tuple[Part, ...]:
    """The parts that tasks wrote, with their files and the rows of each shape."""
    found: dict[str, list[WrittenFile]] = {}
    for file in (file for report in reports for file in report.files):
        found.setdefault(file.folder, []).append(file)
    return tuple(
        Part(files[0].table, folder, tuple(each.file for each in files), sum_counts([each.shapes for each in files]))
        for folder, files in found.items()
    )
