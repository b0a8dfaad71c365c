"""The ingest Spark job: one task per split reads events, writes tables and reports; the reports become one commit."""

import hashlib
import io
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
from genus.lake._ingest.writer import Origin, TableWriter, TaskReport
from genus.lake._tables.columns import POSITION
from genus.lake._tables.files import FileSystem, arrow_opens, file_size, file_system_for, open_input, write_file
from genus.lake._tables.ledger import CommitDraft, IngestedFile, Part
from genus.lake._worker_package import worker_errors

RESULT_SCHEMA = "path string, content binary"
"""Rows that tasks return: files to be written by the driver, then a report, which has no path."""
SPLIT_BYTES = 32 * 1024 * 1024

_ARROW_SCHEMA = pa.schema([("path", pa.string()), ("content", pa.binary())])
_CHUNK = 1 << 22


class DriverUpload:
    """Files of one split that the driver writes, because pyarrow has no file system for the path of the lake.

    Everything ingested then passes through one process, so this is for small lakes on unusual file systems.
    """

    def __init__(self) -> None:
        self._files: list[tuple[str, bytes]] = []

    def write(self, path: str, write: Callable[[Any], None]) -> int:
        """Keep the content of a file; returns its size."""
        stream = io.BytesIO()
        write(stream)
        self._files.append((path, stream.getvalue()))
        return len(self._files[-1][1])

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


def fingerprint_files(paths: Sequence[str], format: Callable[[str], Format]) -> list[InputFile]:
    """The files with fingerprints, which are computed in parallel; of files with equal content only the first."""
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(fingerprint, paths))
    found = {
        number: InputFile(path, file_size(path), number, format(path))
        for path, number in reversed(list(zip(paths, numbers, strict=True)))
    }
    return list(reversed(found.values()))


def run_ingest(
    spark: SparkSession, root: str, catalog_text: str, inputs: Sequence[InputFile], split_bytes: int = SPLIT_BYTES
) -> CommitDraft:
    """Ingest files in one Spark job; returns a draft that names the written files and is not committed yet."""
    commit, at_us = uuid.uuid4().hex[:16], time.time_ns() // 1000
    tasks = list(_tasks(root, commit, at_us, inputs, split_bytes))
    upload = not arrow_opens(root)
    work = partial(_run_tasks, tasks, catalog_text, upload)
    frame = spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(work, RESULT_SCHEMA)
    with worker_errors():
        rows = frame.toLocalIterator() if upload else frame.collect()
        written = write_uploads(file_system_for(spark, root), rows)
        reports = [msgspec.json.decode(each, type=TaskReport) for each in written]
    return _draft(commit, at_us, inputs, reports)


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
            task, files = tasks[number], DriverUpload()
            writer = TableWriter(task.origin, files.write if upload else write_file)
            for chunk in _chunks(task, types):
                if isinstance(chunk, list):
                    writer.reject(_select_letters(chunk, task.only))
                else:
                    writer.add(_select_events(chunk, task.only), types.expected(chunk.type))
            report = msgspec.json.encode(writer.finish())
            yield from files.rows(report)


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
        )
        for given in inputs
    ]
    return CommitDraft(
        id=commit,
        kind="ingest",
        at_us=at_us,
        added=group_parts(reports),
        sources=tuple(sources),
        shapes=tuple(dict.fromkeys(shape for report in reports for shape in report.shapes)),
        newest_us=_newest(reports, at_us),
    )


def _newest(reports: Iterable[TaskReport], at_us: int) -> int | None:
    """The latest time of recording. Future timestamps are clamped to now; otherwise the watermark would be wrong."""
    return max((min(report.newest_us, at_us) for report in reports if report.newest_us is not None), default=None)


def group_parts(reports: Iterable[TaskReport]) -> tuple[Part, ...]:
    """The parts that tasks wrote, with the totals of their files."""
    found: dict[str, Part] = {}
    for file in (file for report in reports for file in report.files):
        known = found.get(file.folder) or Part(file.table, file.folder, 0, 0, 0)
        found[file.folder] = Part(
            file.table, file.folder, known.files + 1, known.rows + file.rows, known.bytes + file.bytes
        )
    return tuple(found.values())
