"""The ingest job: splits become tasks, tasks write tables and report, the reports become one commit."""

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
from genus.lake._ingest.writer import Origin, Report, TableWriter
from genus.lake._tables.columns import POSITION
from genus.lake._tables.files import Files, files_of, open_input, opens_in_tasks, size_of, write_file
from genus.lake._tables.ledger import Draft, Part, Source
from genus.lake._worker_package import explained

# Files of tasks that cannot reach a lake themselves: their bytes go to the driver, which writes them.
#
# pyarrow knows fewer file systems than Hadoop. Everything read in then passes through one process, file after file, so
# this is for small lakes on unusual file systems.


SCHEMA = "path string, content binary"
"""What tasks give back: a report, which has no path, after the files that are carried."""

_ARROW = pa.schema([("path", pa.string()), ("content", pa.binary())])


class Carrier:
    """State: the files of one split, until they are handed over."""

    def __init__(self) -> None:
        self._files: list[tuple[str, bytes]] = []

    def write(self, path: str, write: Callable[[Any], None]) -> int:
        """Keep a file instead of writing it; returns its size."""
        stream = io.BytesIO()
        write(stream)
        self._files.append((path, stream.getvalue()))
        return len(self._files[-1][1])

    def rows(self, report: bytes) -> Iterator[pa.RecordBatch]:
        """The files, one a batch, and the report after them."""
        for path, content in (*self._files, (None, report)):
            yield pa.record_batch([pa.array([path], pa.string()), pa.array([content], pa.binary())], schema=_ARROW)


def unload(files: Files, rows: Iterable[Any]) -> Iterator[bytes]:
    """Write what tasks have carried, and give their reports."""
    for path, content in rows:
        if path is None:
            yield bytes(content)
        else:
            files.replace(path, bytes(content))


SPLIT_BYTES = 32 * 1024 * 1024
_PIECE = 1 << 22


class Input(msgspec.Struct, frozen=True):
    """A file to be read in: its content's number, its format, and the rows to take if not all."""

    path: str
    size: int
    number: int
    format: Format
    only: frozenset[int] | None = None
    """Positions to read again, for what was a dead letter the last time."""
    known: Source | None = None
    """What came of it when it was read before."""


class Task(msgspec.Struct, frozen=True):
    """What one task reads, and as part of what."""

    origin: Origin
    split: Split
    format: Format
    only: frozenset[int] | None


def fingerprint(path: str, upto: int | None = None) -> int:
    """The number of a file's content, or of so many bytes of it."""
    digest, left = hashlib.blake2b(digest_size=8), float("inf") if upto is None else upto
    try:
        with open_input(path) as file:
            while piece := file.read(int(min(_PIECE, left))):
                digest.update(piece)
                left -= len(piece)
    except OSError as problem:
        raise LakeError(f"cannot read {path}: {problem.strerror or problem}") from problem
    return int.from_bytes(digest.digest(), "little", signed=True)


def inputs_of(paths: Sequence[str], format: Callable[[str], Format]) -> list[Input]:
    """Files with their fingerprints, which are taken side by side; one of several with the same content."""
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(fingerprint, paths))
    found = {
        number: Input(path, size_of(path), number, format(path))
        for path, number in reversed(list(zip(paths, numbers, strict=True)))
    }
    return list(reversed(found.values()))


def run(
    spark: SparkSession, root: str, catalog_text: str, inputs: Sequence[Input], split_bytes: int = SPLIT_BYTES
) -> Draft:
    """Read files in; the draft names what was written, and is still to be committed."""
    commit, at_us = uuid.uuid4().hex[:16], time.time_ns() // 1000
    tasks = list(_tasks(root, commit, at_us, inputs, split_bytes))
    carried = not opens_in_tasks(root)
    work = partial(_work, tasks, catalog_text, carried)
    frame = spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(work, SCHEMA)
    with explained():
        rows = frame.toLocalIterator() if carried else frame.collect()
        reports = [msgspec.json.decode(each, type=Report) for each in unload(files_of(spark, root), rows)]
    return _draft(commit, at_us, inputs, reports)


def _tasks(root: str, commit: str, at_us: int, inputs: Iterable[Input], target: int) -> Iterator[Task]:
    number = 0
    for given in inputs:
        for split in given.format.splits(given.path, given.size, target):
            origin = Origin(root, commit, given.number, given.path, number, at_us)
            yield Task(origin, split, given.format, given.only)
            number += 1


def _work(
    tasks: Sequence[Task], catalog_text: str, carried: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: read the splits that it was given the numbers of."""
    types = types_of(catalog_text)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            task, carrier = tasks[number], Carrier()
            writer = TableWriter(task.origin, carrier.write if carried else write_file)
            for chunk in _chunks(task, types):
                if isinstance(chunk, list):
                    writer.reject(_again_letters(chunk, task.only))
                else:
                    writer.add(_again(chunk, task.only), types.expected(chunk.type))
            report = msgspec.json.encode(writer.finish())
            yield from carrier.rows(report)


def _chunks(task: Task, types: Types) -> Iterator[Chunk]:
    """What a split holds; a file that cannot be read at all is an error, for nobody knows what is in it."""
    try:
        yield from task.format.read(task.split, types)
    except OSError as problem:
        raise LakeError(f"cannot read {task.split.path}: {problem.strerror or problem}") from problem


def _again(chunk: Columns, only: frozenset[int] | None) -> Columns:
    if only is None:
        return chunk
    wanted = pc.is_in(chunk.batch.column(POSITION), value_set=pa.array(only, pa.int64()))
    return Columns(chunk.type, chunk.batch.filter(wanted))


def _again_letters(letters: list[DeadLetter], only: frozenset[int] | None) -> list[DeadLetter]:
    return letters if only is None else [letter for letter in letters if letter.position in only]


def _draft(commit: str, at_us: int, inputs: Sequence[Input], reports: Sequence[Report]) -> Draft:
    by_source: dict[int, list[Report]] = {}
    for report in reports:
        by_source.setdefault(report.source, []).append(report)
    sources = [
        Source(
            given.number,
            given.path,
            given.size,
            (given.known.rows if given.known else 0) + sum(report.rows for report in by_source.get(given.number, ())),
            sum(report.dead for report in by_source.get(given.number, ())),
            given.known.commit if given.known else "",
        )
        for given in inputs
    ]
    return Draft(
        id=commit,
        kind="ingest",
        at_us=at_us,
        added=parts_of(reports),
        sources=tuple(sources),
        shapes=tuple(dict.fromkeys(shape for report in reports for shape in report.shapes)),
        newest_us=_newest(reports, at_us),
    )


def _newest(reports: Iterable[Report], at_us: int) -> int | None:
    """When the newest event was recorded; one that is still to be is not believed, or time would stand still."""
    return max((min(report.newest_us, at_us) for report in reports if report.newest_us is not None), default=None)


def parts_of(reports: Iterable[Report]) -> tuple[Part, ...]:
    """The folders that files were written to, each with what is in it."""
    found: dict[str, Part] = {}
    for file in (file for report in reports for file in report.files):
        known = found.get(file.folder) or Part(file.table, file.folder, 0, 0, 0)
        found[file.folder] = Part(
            file.table, file.folder, known.files + 1, known.rows + file.rows, known.bytes + file.bytes
        )
    return tuple(found.values())
