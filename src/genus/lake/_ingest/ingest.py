"""Ingest: read files into a lake in commits of limited size, so that an interrupted ingest continues at the last one.

A file is identified by a hash of its content and ingested once, whatever its name. One that is known by path, size and
time is not opened again. Events go to the tables of their families, everything else to the dead letters.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import functions as F

from genus.lake._ingest.format import Format, types_of
from genus.lake._ingest.job import (
    SPLIT_BYTES,
    Identity,
    IngestWork,
    InputFile,
    identify_large,
    input_of,
    make_draft,
    run_ingest,
)
from genus.lake._ingest.sources import FormatChooser, PathLike, Unknown, find_files
from genus.lake._ingest.writer import TaskReport
from genus.lake._jobs import folder_name, job_description
from genus.lake._tables.commits import CommitConflict, CommitDraft, IngestedFile
from genus.lake._tables.files import FileInfo
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.names import DEAD_LETTERS, POSITION, SOURCE
from genus.lake._tables.shapes import MAX_SHAPES, new_shapes
from genus.lake._tables.state import LedgerState
from genus.lake._worker_package import check_workers
from genus.records import Mapping as FieldMapping

if TYPE_CHECKING:
    from genus.can._dbc import Dbc

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


class FormatOptions(msgspec.Struct, frozen=True):
    """How files are read; see `Lake.ingest`."""

    format: str | None = None
    mapping: FieldMapping | PathLike | None = None
    dbc: "PathLike | Dbc | None" = None
    unknown: Unknown = "dead"

    def chooser(self) -> FormatChooser:
        return FormatChooser(self.format, self.mapping, self.dbc, self.unknown)


def ingest(
    lake: LakeTables,
    sources: PathLike | Iterable[PathLike],
    options: FormatOptions,
    *,
    identity: Identity = "content",
    retry: bool = False,
    progress: ProgressHandler | None = None,
) -> IngestResult:
    """Ingest files; see `Lake.ingest`."""
    began, total = time.monotonic(), Totals()
    choose = prepare(lake, options)
    given = find_files(lake.spark, sources, any_ending=options.format is not None)
    choose.check_named((file.path for file in given), types_of(lake.catalog_file.text))
    state = lake.state()
    wanted = [each for file in given if (each := _input(lake, file, choose(file.path), state, identity, retry))]
    size, done = sum(each.size for each in wanted), 0
    if size > SPLIT_BYTES:
        check_workers(lake.spark)
    for group in _commit_groups(identify_large(lake.spark, wanted)):
        total.add(_commit(lake, group))
        done += sum(each.size for each in group)
        if progress is not None:
            progress(done, size)
    if retry and (again := list(_known_with_dead_letters(lake, wanted, total.numbers))):
        total.add(_commit(lake, again))
    seconds = time.monotonic() - began
    counts = total.files, len(given) - total.files, total.events, total.dead, total.bytes
    return IngestResult(*counts, seconds, lake.version, total.duplicates)


def prepare(lake: LakeTables, options: FormatOptions) -> FormatChooser:
    """Chooses the format of each file; types of a DBC file are registered, and the mapping is checked."""
    choose = options.chooser()
    if options.dbc is not None:
        lake.register(*choose.types)
    choose.check(types_of(lake.catalog_file.text))
    return choose


def find_sources(lake: LakeTables, sources: PathLike | Iterable[PathLike], options: FormatOptions) -> dict[str, int]:
    """The files of an ingest and their sizes; see `Lake.find_sources`."""
    choose = options.chooser()
    choose.check(types_of(lake.catalog_file.text))
    found = find_files(lake.spark, sources, any_ending=options.format is not None)
    for file in found:
        choose(file.path)
    choose.check_named((file.path for file in found), types_of(lake.catalog_file.text))
    return {file.path: file.size for file in found}


def _input(
    lake: LakeTables, file: FileInfo, format: Format, state: LedgerState, identity: Identity, retry: bool
) -> InputFile | None:
    """A file to ingest; None if it was ingested before, unless its dead letters are to be tried again."""
    given = input_of(file, format, state.sources, identity)
    if not given.is_known:
        return given
    before = state.sources.get(given.number or 0)
    return _again(lake, given, before) if retry and before is not None and before.dead else None


def _again(lake: LakeTables, file: InputFile, known: IngestedFile) -> InputFile:
    """A file whose dead letters are tried again; all of it, if it had no event."""
    only = _dead_positions(lake, known.number) if known.rows else None
    return msgspec.structs.replace(file, number=known.number, known=(), before=None, only=only, earlier=known)


def _known_with_dead_letters(
    lake: LakeTables, files: Iterable[InputFile], numbers: Mapping[str, int]
) -> Iterator[InputFile]:
    """The files of which only the content was known, and had dead letters."""
    state = lake.state()
    for file in files:
        known = state.sources.get(numbers[file.path]) if file.path in numbers else None
        if known is not None and known.dead:
            yield _again(lake, file, known)


def _dead_positions(lake: LakeTables, source: int) -> frozenset[int]:
    with job_description(lake.spark, f"find the dead letters of a file in {folder_name(lake.path)}"):
        letters = lake.dead_letters().where(F.col(SOURCE) == source).select(POSITION).toArrow()
    return frozenset(letters.column(0).to_pylist())


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

    draft: CommitDraft
    duplicates: Mapping[str, str]
    """Files that have the content of another file, and the path of that one."""
    numbers: Mapping[str, int]
    """The fingerprints of these files; at the path of another one, there may be another content now."""


class Totals:
    """State: what several commits have brought."""

    def __init__(self) -> None:
        self.files = self.events = self.dead = self.bytes = 0
        self.duplicates: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def add(self, made: Committed) -> None:
        self.files += len(made.draft.sources)
        self.events += sum(part.rows for part in made.draft.added if part.table != DEAD_LETTERS)
        self.dead += sum(source.dead for source in made.draft.sources)
        self.bytes += sum(source.bytes for source in made.draft.sources)
        self.duplicates |= made.duplicates
        self.numbers |= made.numbers


def _commit(lake: LakeTables, files: Sequence[InputFile]) -> Committed:
    inputs = {each.path: each for each in files}
    with lake.store.discarding():
        work = begin_work(lake)
        reports = run_ingest(lake.spark, work, files)
        earlier = {each.number: each.earlier for each in files if each.number is not None and each.earlier is not None}
        return commit_reports(lake, work, reports, lambda report: inputs[report.path], earlier)


def begin_work(lake: LakeTables) -> IngestWork:
    work = IngestWork.begin(lake.path, lake.catalog_file.text)
    lake.store.drafts.begin(work.commit)
    return work


def commit_reports(
    lake: LakeTables,
    work: IngestWork,
    reports: Sequence[TaskReport],
    input_of: Callable[[TaskReport], InputFile],
    earlier: Mapping[int, IngestedFile] | None = None,
    *,
    is_cut: bool = False,
    **noted: Any,
) -> Committed:
    """Commit what tasks have written, each content once; `noted` are further fields of the commit.

    `earlier` has the results of earlier ingests of sources that are tried again. If the list of files `is_cut`, others
    with the same time of change as the newest may follow.

    Tasks write the rows of several files together. So if they wrote those of a content that the lake has, or that
    several files have, the other files are read again. That is rare, because tasks leave out what they know; and so are
    files that a task has left out though the lake does not have them, as it was restored meanwhile.
    """
    duplicates: dict[str, str] = {}
    numbers: dict[str, int] = {}
    while True:
        found = _find_duplicates(lake.state(), reports, earlier or {})
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
        if not new:
            lake.store.discard(make_draft(work, ()))
            return Committed(lake.store.begin("ingest"), duplicates, numbers)
        draft = make_draft(work, new, earlier, is_cut=is_cut)
        draft = msgspec.structs.replace(_with_new_shapes(lake, draft, work.catalog), **noted)
        try:
            return Committed(lake.store.commit(draft), duplicates, numbers)
        except CommitConflict:  # another writer has ingested some of them: they are duplicates now
            continue


def _find_duplicates(
    state: LedgerState, reports: Iterable[TaskReport], again: Mapping[int, IngestedFile]
) -> dict[str, str]:
    """The files whose content the lake has, or an earlier file in the list, and the path of that one."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for report in reports:
        known, earlier = state.sources.get(report.source), again.get(report.source)
        if known is not None and (earlier is None or known.commit != earlier.commit):
            found[report.path] = known.path
        elif first.setdefault(report.source, report.path) != report.path:
            found[report.path] = first[report.source]
    return found


def _with_new_shapes(lake: LakeFolder, draft: CommitDraft, catalog: str) -> CommitDraft:
    """The draft with those shapes only that are new to the lake, and with the catalog if it has changed."""
    state = lake.state()
    shapes = new_shapes(state.shapes, state.shape_counts, draft.shapes, MAX_SHAPES)
    return msgspec.structs.replace(draft, shapes=shapes, catalog=None if catalog == state.catalog else catalog)
