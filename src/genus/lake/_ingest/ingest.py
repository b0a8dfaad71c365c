"""Ingest: read files into a lake in commits of limited size, so that an interrupted ingest continues at the last one.

A file is identified by a hash of its content and ingested once, whatever its name. Events go to the tables of their
families, everything else to the dead letters.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from pyspark.sql import functions as F

from genus.errors import LakeError
from genus.lake._ingest.format import types_of
from genus.lake._ingest.job import InputFile, fingerprint, fingerprint_files, run_ingest
from genus.lake._ingest.sources import FormatChooser, PathLike, Unknown, find_files
from genus.lake._jobs import folder_name, job_description
from genus.lake._tables.columns import DEAD_LETTERS, POSITION, SOURCE
from genus.lake._tables.commits import CommitConflict, CommitDraft, IngestedFile
from genus.lake._tables.files import FileInfo
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.shapes import MAX_SHAPES, new_shapes
from genus.records._mapping import Mapping

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


class FormatOptions(msgspec.Struct, frozen=True):
    """How files are read; see `Lake.ingest`."""

    format: str | None = None
    mapping: Mapping | PathLike | None = None
    dbc: "PathLike | Dbc | None" = None
    unknown: Unknown = "dead"

    def chooser(self) -> FormatChooser:
        """Chooses the format of each file."""
        return FormatChooser(self.format, self.mapping, self.dbc, self.unknown)


def ingest(
    lake: LakeTables,
    sources: PathLike | Iterable[PathLike],
    options: FormatOptions,
    *,
    retry: bool = False,
    progress: ProgressHandler | None = None,
) -> IngestResult:
    """Ingest files; see `Lake.ingest`."""
    choose = prepare(lake, options)
    found = find_files(lake.spark, sources, any_ending=options.format is not None)
    return ingest_files(lake, found, choose, retry=retry, progress=progress)


def prepare(lake: LakeTables, options: FormatOptions) -> FormatChooser:
    """Chooses the format of each file; types of a DBC file are registered, and the mapping is checked."""
    choose = options.chooser()
    if options.dbc is not None:
        lake.register(*choose.types)
    choose.check(types_of(lake.catalog_file.text))
    return choose


def ingest_files(
    lake: LakeTables,
    given: Sequence[FileInfo],
    choose: FormatChooser,
    *,
    retry: bool = False,
    progress: ProgressHandler | None = None,
) -> IngestResult:
    """Ingest files that were found; see `Lake.ingest`."""
    began = time.monotonic()
    wanted = list(_new_files(lake, fingerprint_files(given, choose), retry))
    total, done = sum(each.size for each in wanted), 0
    files = size = events = dead = 0
    for group in _commit_groups(wanted):
        draft = _commit(lake, group, retry)
        events += sum(part.rows for part in draft.added if part.table != DEAD_LETTERS)
        dead += sum(source.dead for source in draft.sources)
        files += len(draft.sources)  # without those that another writer has ingested meanwhile
        size += sum(source.bytes for source in draft.sources)
        done += sum(each.size for each in group)
        if progress is not None:
            progress(done, total)
    seconds = time.monotonic() - began
    return IngestResult(files, len(given) - files, events, dead, size, seconds, lake.version)


def find_sources(lake: LakeTables, sources: PathLike | Iterable[PathLike], options: FormatOptions) -> dict[str, int]:
    """The files of an ingest and their sizes; see `Lake.find_sources`."""
    choose = options.chooser()
    choose.check(types_of(lake.catalog_file.text))
    found = find_files(lake.spark, sources, any_ending=options.format is not None)
    for file in found:
        choose(file.path)
    return {file.path: file.size for file in found}


def _new_files(lake: LakeTables, files: Iterable[InputFile], retry: bool) -> Iterator[InputFile]:
    """The files that were not ingested before, and with `retry` those with dead letters."""
    state = lake.state()
    for each in files:
        known = state.sources.get(each.number)
        if known is None:
            _check_not_grown(each, state.sources.get(state.paths.get(each.path, 0)))
            yield each
        elif retry and known.dead:
            only = _dead_positions(lake, each.number) if known.rows else None
            yield msgspec.structs.replace(each, only=only, known=known)


def _check_not_grown(file: InputFile, before: IngestedFile | None) -> None:
    """Raise LakeError if a file begins with content that was ingested: its events would be in the lake twice."""
    if before is not None and file.size > before.bytes and fingerprint(file.path, before.bytes) == before.number:
        raise LakeError(
            f"{file.path} has grown since its first {before.bytes} bytes were ingested; ingest complete files only, as "
            "`genus record --landing` writes them, and put the rest into a file of its own"
        )


def _dead_positions(lake: LakeTables, source: int) -> frozenset[int]:
    with job_description(lake.spark, f"find the dead letters of a file in {folder_name(lake.path)}"):
        letters = lake.dead_letters().where(F.col(SOURCE) == source).select(POSITION).toArrow()
    return frozenset(letters.column(0).to_pylist())


def _commit_groups(files: Iterable[InputFile]) -> Iterator[list[InputFile]]:
    """The files of each commit."""
    group: list[InputFile] = []
    for each in files:
        if group and (len(group) >= COMMIT_FILES or sum(one.size for one in group) + each.size > COMMIT_BYTES):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _commit(lake: LakeTables, files: Sequence[InputFile], retry: bool) -> CommitDraft:
    """Ingest files in one commit; if another writer has ingested some of them meanwhile, retry with the others."""
    with lake.store.discarding():
        return _commit_once(lake, files, retry)


def _commit_once(lake: LakeTables, files: Sequence[InputFile], retry: bool) -> CommitDraft:
    while True:
        catalog, id = lake.catalog_file.text, lake.store.begin("ingest").id
        lake.store.drafts.begin(id)
        draft = run_ingest(lake.spark, lake.path, catalog, files, id=id)
        try:
            return lake.store.commit(_with_new_shapes(lake, draft, catalog))
        except CommitConflict:
            lake.store.discard(draft)
            files = list(_new_files(lake, files, retry))
            if not files:
                return lake.store.begin("ingest")


def _with_new_shapes(lake: LakeTables, draft: CommitDraft, catalog: str) -> CommitDraft:
    """The draft with those shapes only that are new to the lake, and with the catalog if it has changed."""
    state = lake.state()
    shapes = new_shapes(state.shapes, state.shape_counts, draft.shapes, MAX_SHAPES)
    return msgspec.structs.replace(draft, shapes=shapes, catalog=None if catalog == state.catalog else catalog)
