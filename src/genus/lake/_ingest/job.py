"""The ingest job: Spark tasks identify files, read their events, write tables and report; reports become one commit.

A task gets some files. It computes the fingerprint of each, leaves out those whose content the lake has, and writes the
rows of the others together, one file per family and day. A file larger than `SPLIT_BYTES` is read by several tasks;
its fingerprint is computed by a job before, because all of them write it into their rows.
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.lake._ingest.format import Chunk, Columns, Format, Split, Types, types_of
from genus.lake._ingest.writer import Origin, TableWriter, TaskReport
from genus.lake._jobs import count_words, folder_name, job_description, parallelism
from genus.lake._tables.commits import (
    POSITION,
    CommitDraft,
    IngestedFile,
    Part,
    hash_of,
    latest,
    recorder_of,
    sum_counts,
)
from genus.lake._tables.file_systems import file_system_for
from genus.lake._tables.files import FileInfo, arrow_opens, open_input, write_file
from genus.lake._tables.part_writer import RESULT_SCHEMA, DriverUpload, FileReport, write_uploads
from genus.lake._tables.sources import Sources

SPLIT_BYTES = 32 * 1024 * 1024
MIN_TASK_BYTES = 256 * 1024
"""Files of at most this size together are read by one task."""

T = TypeVar("T")

_CHUNK = 1 << 22
_PER_TASK = 1 << 20
"""Numbers of the files of one task, which name what it writes."""

Identity: TypeAlias = Literal["content", "path"]
"""How files are told apart: equal content is ingested once, or every path, size and time of change is."""


class InputFile(msgspec.Struct, frozen=True):
    """A file to ingest, or a split of one."""

    path: str
    size: int
    format: Format
    modified_us: int = 0
    number: int | None = None
    """Fingerprint of its content; None if a task has to compute it."""
    known: tuple[int, ...] = ()
    """Fingerprints of files of this size that the lake has."""
    before: tuple[int, int] | None = None
    """Size and fingerprint of what was ingested from this path before."""
    only: frozenset[int] | None = None
    """Positions to ingest, those of earlier dead letters; None for all."""
    earlier: IngestedFile | None = None
    """The result of the previous ingest of this file."""
    split: Split | None = None
    """What a task reads of it; None for all."""

    @property
    def is_known(self) -> bool:
        """Whether the lake is known to have it, without a look at its content."""
        return self.number is not None and self.number in self.known


class Held(msgspec.Struct, frozen=True):
    """The times of recording of files that do not count for watermarks yet, because others of their time of change may
    follow: Spark orders files by their times of change only, to a millisecond."""

    changed_ms: int | None = None
    """The time of change of which files may follow; None if none do."""
    newest: Mapping[str, int] = {}
    """The latest time of recording of the files that are held, by recorder."""
    skipped: tuple[str, ...] = ()
    """Files of that time of change that were skipped as duplicates."""

    def after(
        self, reports: Iterable["TaskReport"], changed_ms: int | None, at_us: int
    ) -> tuple[dict[str, int], "Held"]:
        """Return the times of recording that count after further files, and what is held then."""
        given = list(reports)
        new = [report for report in given if report.modified_us // 1000 == changed_ms]
        before = self.newest if changed_ms is not None and self.changed_ms == changed_ms else {}
        counted = _newest([report for report in given if report.modified_us // 1000 != changed_ms], at_us)
        released = {} if before else self.newest
        return latest([released, counted]), Held(changed_ms, latest([before, _newest(new, at_us)]))


NOTHING_HELD = Held()


class IngestWork(msgspec.Struct, frozen=True):
    """What all tasks of an ingest have in common."""

    root: str
    commit: str
    at_us: int
    catalog: str
    upload: bool
    """Whether the driver writes the files."""

    @classmethod
    def begin(cls, root: str, catalog: str) -> "IngestWork":
        return cls(root, uuid.uuid4().hex[:16], time.time_ns() // 1000, catalog, not arrow_opens(root))


# -- identity ----------------------------------------------------------------------------------------------------------


def fingerprint(path: str, upto: int | None = None) -> int:
    """A 64-bit hash of a file's content, or of its first `upto` bytes."""
    digest, left = hashlib.blake2b(digest_size=8), float("inf") if upto is None else upto
    with open_input(path) as file:
        while piece := file.read(int(min(_CHUNK, left))):
            digest.update(piece)
            left -= len(piece)
    return int.from_bytes(digest.digest(), "little", signed=True)


def input_of(file: FileInfo, format: Format, sources: Sources, identity: Identity) -> InputFile:
    """Return a file to ingest, with what a lake knows of it; the content of one that is known is not read again."""
    number = hash_of(f"{file.path}\0{file.size}\0{file.modified_us}") if identity == "path" else None
    before = sources.of_path(file.path) if number is None else sources.get(number)
    given = InputFile(file.path, file.size, format, file.modified_us, number)
    if before is not None and (before.bytes, before.modified_us) == (file.size, file.modified_us):
        return msgspec.structs.replace(given, number=before.number, known=(before.number,))
    if number is not None:
        return given
    earlier = None if before is None else (before.bytes, before.number)
    return msgspec.structs.replace(given, before=earlier, known=sources.same_size(file.size) or ())


def _identify(file: InputFile) -> int:
    """Return the fingerprint of a file; LakeError if it begins with content that was ingested from the same path."""
    if file.number is not None:
        return file.number
    size, number = file.before or (file.size, 0)
    if file.size > size and fingerprint(file.path, size) == number:
        raise LakeError(
            f"{file.path} has grown since its first {size} bytes were ingested; ingest complete files only, "
            "as `genus record --landing` writes them, and put the rest into a file of its own"
        )
    return fingerprint(file.path)


def identify_large(spark: SparkSession, files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files, those that several tasks will read with their fingerprints, which a job computes."""
    large = [each for each in files if each.size > SPLIT_BYTES and each.number is None]
    if not large:
        return list(files)
    frame = _task_frame(spark, large, _identify_one, "at long, number long")
    with job_description(spark, f"compute the fingerprints of {count_words(len(large), 'file')}"):
        numbers = {large[at].path: number for at, number in frame.collect()}
    return [msgspec.structs.replace(each, number=numbers.get(each.path, each.number)) for each in files]


def _identify_one(at: int, file: InputFile) -> Iterator[pa.RecordBatch]:
    with _readable(file.path):
        yield pa.record_batch([pa.array([at]), pa.array([_identify(file)], pa.int64())], ["at", "number"])


# -- tasks -------------------------------------------------------------------------------------------------------------


def read_files(work: IngestWork, task: int, inputs: Iterable[InputFile]) -> Iterator[pa.RecordBatch]:
    """In a task: read files, write their rows together, and return a report of each file."""
    types, files = types_of(work.catalog), DriverUpload()
    writers: list[TableWriter] = []
    seen: set[int] = set()
    for place, file in enumerate(inputs):
        with _readable(file.path):
            number = _identify(file)
            origin = Origin(work.root, work.commit, number, file.path, task * _PER_TASK + place, work.at_us)
            writer = TableWriter(origin, files.write if work.upload else write_file)
            report = writer.report
            report.bytes, report.modified_us, report.earlier = file.size, file.modified_us, file.earlier
            report.is_known = number in file.known or (file.split is None and number in seen)
            if not report.is_known:
                _read(file, types, writer)
        seen.add(number)
        if (first := next((each for each in writers if not each.report.is_known), None)) is not None:
            first.take_over(writer)
        writers.append(writer)
    yield from files.rows(*[msgspec.json.encode(writer.finish()) for writer in writers])


def _read(file: InputFile, types: Types, writer: TableWriter) -> None:
    """Read a file or a split; its last rows are not written yet."""
    for split in [file.split] if file.split else file.format.splits(file.path, file.size, max(file.size, 1)):
        for chunk in file.format.read(split, types):
            writer.take(chunk if file.only is None else _select(chunk, file.only), types)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LakeError(f"cannot read {path}: {problem.strerror or problem}") from problem


def _select(chunk: Chunk, positions: frozenset[int]) -> Chunk:
    if isinstance(chunk, list):
        return [letter for letter in chunk if letter.position in positions]
    wanted = pc.is_in(chunk.batch.column(POSITION), value_set=pa.array(positions, pa.int64()))
    return Columns(chunk.type, chunk.batch.filter(wanted))


# -- the driver --------------------------------------------------------------------------------------------------------


def run_ingest(
    spark: SparkSession, work: IngestWork, inputs: Sequence[InputFile], split_bytes: int = SPLIT_BYTES
) -> list[TaskReport]:
    """Read files in one job; about `split_bytes` are read by one task. Returns a report of each file or split."""
    tasks = _pack(list(_cut(inputs, split_bytes)), parallelism(spark), split_bytes)
    if not tasks:
        return []
    frame = _task_frame(spark, tasks, partial(read_files, work), RESULT_SCHEMA)
    with job_description(spark, f"ingest {count_words(len(inputs), 'file')} into {folder_name(work.root)}"):
        return gather_reports(spark, work, frame)


def gather_reports(spark: SparkSession, work: IngestWork, frame: DataFrame) -> list[TaskReport]:
    """Run a job whose rows are those of `read_files`; writes the files that tasks returned."""
    rows = frame.toLocalIterator() if work.upload else frame.collect()
    written = write_uploads(file_system_for(spark, work.root), rows)
    return [msgspec.json.decode(each, type=TaskReport) for each in written]


def _cut(inputs: Iterable[InputFile], target: int) -> Iterator[tuple[InputFile, int]]:
    """Files as a whole, large ones in splits, with about as many bytes as are read of them.

    Files of equal size follow each other, as equal files have.
    """
    for file in sorted(inputs, key=lambda each: each.size):
        splits = file.format.splits(file.path, file.size, target) if file.size > target else []
        if len(splits) > 1:
            yield from ((msgspec.structs.replace(file, split=each), file.size // len(splits)) for each in splits)
        else:
            yield file, file.size


def _pack(inputs: Sequence[tuple[InputFile, int]], parallel: int, max_bytes: int) -> list[list[InputFile]]:
    """Return the files of each task: as many tasks as run at once, or more if they would read over `max_bytes`."""
    target = min(max(sum(size for _, size in inputs) // parallel, MIN_TASK_BYTES), max_bytes)
    tasks: list[list[InputFile]] = []
    room = 0
    for file, size in inputs:
        if room <= 0 or size > 2 * room:
            tasks.append([])
            room = target
        tasks[-1].append(file)
        room -= size
    return tasks


def _task_frame(
    spark: SparkSession, items: Sequence[T], function: Callable[[int, T], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the rows that a function gives for each item and its number, in a task of its own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from function(number, items[number])

    return spark.range(0, len(items), 1, len(items)).mapInArrow(run, schema)


def make_draft(work: IngestWork, reports: Sequence[TaskReport], newest: Mapping[str, int] | None = None) -> CommitDraft:
    """Return a draft that names the files that tasks wrote.

    `newest` are the times of recording that count for watermarks; None for those of all files.
    """
    by_source: dict[int, list[TaskReport]] = {}
    for report in reports:
        by_source.setdefault(report.source, []).append(report)
    all_newest = _newest(reports, work.at_us)
    return CommitDraft(
        id=work.commit,
        kind="ingest",
        at_us=work.at_us,
        added=group_parts(reports),
        sources=tuple(map(_ingested, by_source.values())),
        shapes=tuple(dict.fromkeys(shape for report in reports for shape in report.shapes)),
        newest_us=max(all_newest.values(), default=None),
        newest=all_newest if newest is None else newest,
    )


def _ingested(reports: Sequence[TaskReport]) -> IngestedFile:
    first, rows, dead = reports[0], sum(report.rows for report in reports), sum(report.dead for report in reports)
    before, commit = (first.earlier.rows, first.earlier.commit) if first.earlier else (0, "")
    return IngestedFile(first.source, first.path, first.bytes, before + rows, dead, commit, first.modified_us)


def _newest(reports: Iterable[TaskReport], at_us: int) -> dict[str, int]:
    """The latest time of recording by recorder. A time in the future counts as now; else watermarks would be wrong."""
    known = [(recorder_of(each.path), each.newest_us) for each in reports if each.newest_us is not None]
    return latest({recorder: min(newest_us, at_us)} for recorder, newest_us in known)


def group_parts(reports: Iterable[TaskReport]) -> tuple[Part, ...]:
    """Return the parts that tasks wrote, with their files and the rows of each shape."""
    found: dict[str, list[FileReport]] = {}
    for file in (file for report in reports for file in report.files):
        found.setdefault(file.folder, []).append(file)
    return tuple(
        Part(files[0].table, folder, tuple(each.file for each in files), sum_counts([each.shapes for each in files]))
        for folder, files in found.items()
    )
