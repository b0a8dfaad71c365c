"""Ingest: read files into a lake in commits of limited size, so that an interrupted ingest continues at the last one.

A file is identified by a hash of its content and ingested once, whatever its name. One that is known by path, size and
time is not opened again. Events go to the tables of their families, everything else to the dead letters.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import functions as F

from genus.lake._ingest.format import Format, types_of
from genus.lake._ingest.job import (
    NOTHING_HELD,
    SPLIT_BYTES,
    Held,
    Identity,
    IngestWork,
    InputFile,
    identify_large,
    input_of,
    make_draft,
    run_ingest,
)
from genus.lake._ingest.sources import FormatChooser, PathLike, find_files
from genus.lake._ingest.writer import TaskReport
from genus.lake._jobs import check_workers, folder_name, job_description
from genus.lake._tables.commits import (
    DEAD_LETTERS,
    MAX_SHAPES,
    POSITION,
    SOURCE,
    CommitConflict,
    CommitDraft,
    IngestedFile,
    count_rows,
    new_shapes,
)
from genus.lake._tables.files import FileInfo
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.state import LedgerState

COMMIT_BYTES = 1 << 30
COMMIT_FILES = 500
"""Limits of one commit."""

ProgressHandler: TypeAlias = Callable[[int, int], object]
"""Called with the amount that is done and the total."""


class IngestResult(msgspec.Struct, frozen=True):
    """Result of `Lake.ingest`."""

    files: int
    """Files that were ingested."""
    skipped: int
    """Files that had been ingested before, or whose content occurs twice."""
    events: int
    dead: int
    """Dead letters."""
    bytes: int
    """Size of the ingested files."""
    seconds: float
    version: int
    """Version of the lake afterwards."""
    duplicates: Mapping[str, str] = {}
    """Skipped files that have the content of another file, and the path of that one."""
    doubts: Mapping[str, tuple[str, ...]] = {}
    """Of ingested CAN logs that do not show how they are read, what may be wrong: the unit of times, the columns."""


def ingest(
    lake: LakeTables,
    sources: PathLike | Iterable[PathLike],
    choose: FormatChooser,
    *,
    identity: Identity = "content",
    retry: bool = False,
    progress: ProgressHandler | None = None,
) -> IngestResult:
    """Ingest files; see `Lake.ingest`."""
    began, made = time.monotonic(), list[Committed]()
    prepare(lake, choose)
    given = _named_files(lake, sources, choose)
    state = lake.state()
    wanted = [each for file in given if (each := _input(lake, file, choose(file.path), state, identity, retry))]
    size, done = sum(each.size for each in wanted), 0
    if size > SPLIT_BYTES:
        check_workers(lake.spark)
    for group in _commit_groups(identify_large(lake.spark, wanted)):
        made.append(_commit(lake, group))
        done += sum(each.size for each in group)
        if progress is not None:
            progress(done, size)
    if retry:  # also the dead letters of files of which only the content was known
        numbers, known = {path: number for each in made for path, number in each.numbers.items()}, lake.state().sources
        found = [(file, known.get(numbers[file.path])) for file in wanted if file.path in numbers]
        if again := [_again(lake, file, before) for file, before in found if before is not None and before.dead]:
            made.append(_commit(lake, again))
    ingested = [source for each in made for source in each.sources]
    formats = {each.path: each.format for each in wanted}
    return IngestResult(
        files=len(ingested),
        skipped=len(given) - len(ingested),
        events=sum(each.events for each in made),
        dead=sum(source.dead for source in ingested),
        bytes=sum(source.bytes for source in ingested),
        seconds=time.monotonic() - began,
        version=lake.version,
        duplicates={path: twin for each in made for path, twin in each.duplicates.items()},
        doubts={
            path: doubts for path in (each.path for each in ingested) if (doubts := choose.doubts(formats[path], path))
        },
    )


def prepare(lake: LakeTables, choose: FormatChooser) -> None:
    """Register the types of a DBC file, and raise LakeError if the mapping names what the catalog lacks."""
    if types := choose.types:
        lake.register(*types)
    choose.check(types_of(lake._catalog_file.text))


def find_sources(lake: LakeTables, sources: PathLike | Iterable[PathLike], choose: FormatChooser) -> dict[str, int]:
    choose.check(types_of(lake._catalog_file.text))
    return {file.path: file.size for file in _named_files(lake, sources, choose)}


def _named_files(lake: LakeTables, sources: PathLike | Iterable[PathLike], choose: FormatChooser) -> list[FileInfo]:
    """Return the files of an ingest; LakeError if one has no known format, or its rows have no type."""
    found, types = find_files(lake.spark, sources, choose.format is not None), types_of(lake._catalog_file.text)
    for file in found:
        choose.check_named(file.path, types)
    return found


def _input(
    lake: LakeTables, file: FileInfo, format: Format, state: LedgerState, identity: Identity, retry: bool
) -> InputFile | None:
    """Return a file to ingest; None if it was ingested before, unless its dead letters are to be tried again."""
    given = input_of(file, format, state.sources, identity)
    if not given.is_known:
        return given
    before = state.sources.get(given.number or 0)
    return _again(lake, given, before) if retry and before is not None and before.dead else None


def _again(lake: LakeTables, file: InputFile, known: IngestedFile) -> InputFile:
    """A file whose dead letters are tried again; all of it, if it had no event."""
    only = None
    if known.rows:
        with job_description(lake.spark, f"find the dead letters of a file in {folder_name(lake.path)}"):
            letters = lake.dead_letters().where(F.col(SOURCE) == known.number).select(POSITION).toArrow()
        only = frozenset(letters.column(0).to_pylist())
    return msgspec.structs.replace(file, number=known.number, known=(), before=None, only=only, earlier=known)


def _commit_groups(files: Iterable[InputFile]) -> Iterator[list[InputFile]]:
    group: list[InputFile] = []
    for each in files:
        if group and (len(group) >= COMMIT_FILES or sum(one.size for one in group) + each.size > COMMIT_BYTES):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


# -- commits -----------------------------------------------------------------------------------------------------------


class Committed(NamedTuple):
    """What one commit has brought; without sources, nothing was committed."""

    sources: tuple[IngestedFile, ...]
    events: int
    duplicates: Mapping[str, str]
    """Files that have the content of another file, and the path of that one."""
    numbers: Mapping[str, int]
    """The fingerprints of these files; at the path of another one, there may be another content now."""
    held: Held = NOTHING_HELD
    """What does not count for watermarks yet."""


def _commit(lake: LakeTables, files: Sequence[InputFile]) -> Committed:
    inputs = {each.path: each for each in files}
    with lake.store.discarding():
        work = begin_work(lake)
        return commit_reports(lake, work, run_ingest(lake.spark, work, files), lambda report: inputs[report.path])


def begin_work(lake: LakeTables) -> IngestWork:
    work = IngestWork.begin(lake.path, lake._catalog_file.text)
    lake.store.drafts.begin(work.commit)
    return work


def commit_reports(
    lake: LakeTables,
    work: IngestWork,
    reports: Sequence[TaskReport],
    input_of: Callable[[TaskReport], InputFile],
    *,
    held: Held = NOTHING_HELD,
    changed_ms: int | None = None,
    **noted: Any,
) -> Committed:
    """Commit what tasks have written, each content once; `noted` are further fields of the commit.

    Files changed at `changed_ms` do not count for watermarks, because others may follow, or analyses would take events
    of those for late; what was `held` before counts once no more can follow.

    Tasks write the rows of several files together. So if they wrote those of a content that the lake has, or that
    several files have, the other files are read again. That is rare, because tasks leave out what they know; and so are
    files that a task has left out though the lake does not have them, as it was restored meanwhile.
    """
    duplicates: dict[str, str] = {}
    numbers: dict[str, int] = {}
    while True:
        found = _find_duplicates(lake.state(), reports)
        duplicates |= found
        numbers |= {report.path: report.source for report in reports if report.path in found}
        new = [report for report in reports if report.path not in found]
        written = [each for each in reports if each.path in found and (each.rows or each.dead or each.files)]
        if written or any(report.is_known for report in new):
            lake.store.discard(make_draft(work, ()))
            files = {each.path: msgspec.structs.replace(input_of(each), number=each.source, known=()) for each in new}
            work = begin_work(lake)
            reports = run_ingest(lake.spark, work, list(files.values()))
            continue
        newest, kept = held.after(new, changed_ms, work.at_us)
        if not new and not newest:
            lake.store.discard(make_draft(work, ()))
            return Committed((), 0, duplicates, numbers, _with_skipped(held, kept, duplicates))
        draft = make_draft(work, new, newest)
        draft = msgspec.structs.replace(_with_new_shapes(lake, draft, work.catalog), **noted)
        with suppress(CommitConflict):  # another writer has ingested some of them: they are duplicates now
            made = lake.store.commit(draft)
            events = count_rows(part for part in made.added if part.table != DEAD_LETTERS)
            return Committed(made.sources, events, duplicates, numbers, _with_skipped(held, kept, duplicates))


def _with_skipped(before: Held, now: Held, duplicates: Iterable[str]) -> Held:
    if now.changed_ms is None:
        return now
    earlier = before.skipped if before.changed_ms == now.changed_ms else ()
    return msgspec.structs.replace(now, skipped=(*earlier, *duplicates))


def _find_duplicates(state: LedgerState, reports: Iterable[TaskReport]) -> dict[str, str]:
    """Return the files whose content the lake has, or an earlier file in the list, and the path of that one."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for report in reports:
        known, again = state.sources.get(report.source), report.earlier
        if known is not None and (again is None or known.commit != again.commit):
            found[report.path] = known.path
        elif first.setdefault(report.source, report.path) != report.path:
            found[report.path] = first[report.source]
    return found


def _with_new_shapes(lake: LakeFolder, draft: CommitDraft, catalog: str) -> CommitDraft:
    """Return the draft with those shapes only that are new to the lake, and with the catalog if it has changed."""
    state = lake.state()
    shapes = new_shapes(state.shapes, state.shape_counts, draft.shapes, MAX_SHAPES)
    return msgspec.structs.replace(draft, shapes=shapes, catalog=None if catalog == state.catalog else catalog)
