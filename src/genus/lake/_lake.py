"""`Lake`: the events of many years in Parquet tables, one per family, and what is asked of them."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus.catalog import Catalog, RegistrationResult
from genus.errors import LakeError
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.lake._compaction import Compacted, compact
from genus.lake._increments import missing
from genus.lake._ingest import job
from genus.lake._ingest.format import types_of
from genus.lake._ingest.sources import Chooser, PathLike, Unknown, find_files
from genus.lake._ingest.writer import DEAD, DEAD_LETTERS, DEAD_SCHEMA, MOST_SHAPES, TABLES
from genus.lake._reading import read
from genus.lake._tables.columns import COMMIT, DAY, POSITION, SOURCE, collisions, few_enough, spark_schema, table_schema
from genus.lake._tables.lake_catalog import Agreed, Terms, family_of
from genus.lake._tables.ledger import Commit, Draft, Overtaken, Part, Source, State
from genus.lake._tables.store import Problem, Store, is_store

if TYPE_CHECKING:
    from genus.lake._ingest.mapping import Mapping
    from genus.lake._routing import Route
    from genus.lake._stream import Stream

WAVE_BYTES = 1 << 30
WAVE_FILES = 500
"""So much is read in with one commit: what is interrupted goes on from the last one."""

Progress = Callable[[int, int], object]
"""Told how many bytes were read in, and of how many."""


class Ingested(msgspec.Struct, frozen=True):
    """What came of an ingest."""

    files: int
    skipped: int
    """Files that were read in before, whatever they were called."""
    events: int
    dead: int
    bytes: int
    seconds: float
    version: int


class TableStats(msgspec.Struct, frozen=True):
    """One table in numbers."""

    table: str
    rows: int
    files: int
    bytes: int
    days: int
    types: int
    shapes: int


class Lake:
    """Events at rest, typed: opened with the user's session and a path of any file system that Spark reaches.

    `Lake.create` makes a new one. Nothing is kept in the session: any number of sessions may use a lake at once.
    """

    def __init__(self, spark: SparkSession, path: PathLike) -> None:
        self.spark = spark
        self._store = Store(spark, path)
        self.path = self._store.path
        if not self._store.ledger.exists:
            raise LakeError(f"{self.path} is no lake; make one with Lake.create or `genus lake init`")
        self._agreed = Agreed(self._store.files, self.path)

    @classmethod
    def create(cls, spark: SparkSession, path: PathLike, *what: type | ModuleType) -> "Lake":
        """Make a lake for the types of classes and modules; refused if there is one at the path already."""
        if is_store(spark, path):
            raise LakeError(f"{os.fspath(path)} is a lake already; open it with Lake(spark, path)")
        store = Store(spark, path)
        Agreed(store.files, store.path).register(what)
        store.commit(store.begin("create"))
        return cls(spark, path)

    def __repr__(self) -> str:
        return f"<Lake {self.path}>"

    # -- types -------------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The catalog beside the data, as it is by now; register types with `register`."""
        return self._agreed.catalog

    @property
    def catalog_path(self) -> str:
        """Where the catalog is; a bus or a broker may be given the same file."""
        return self._agreed.path

    def register(self, *what: type | ModuleType) -> RegistrationResult:
        """Add types to the catalog; tables grow columns by it, and files written before keep being read."""
        return self._agreed.register(what)

    @property
    def version(self) -> int:
        """How many commits there have been."""
        return self._store.state().version

    def state(self) -> State:
        """What the lake holds by now: parts, sources and shapes."""
        return self._store.state()

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits of some versions, the first excluded."""
        return self._store.ledger.commits(after, upto)

    def check_there(self, parts: Iterable[Part]) -> None:
        """Refuse to go on where parts that do not count any more were cleaned away."""
        for part in parts:
            if not self._store.files.listing(f"{self.path}/{part.folder}"):
                raise missing(part)

    # -- in ----------------------------------------------------------------------------------------------------------

    def ingest(
        self,
        sources: PathLike | Iterable[PathLike],
        *,
        format: str | None = None,
        mapping: "Mapping | PathLike | None" = None,
        dbc: PathLike | None = None,
        unknown: Unknown = "dead",
        retry: bool = False,
        progress: Progress | None = None,
    ) -> Ingested:
        """Read in files, folders or patterns of files; what was read in before is skipped, by its content.

        The format is known by a file's ending unless it is given. What is no event goes to the dead letters; with
        `retry`, those of files that were read in before are tried again: types may have been registered since, or the
        mapping mended; a file of which nothing was read well is read anew. Of a CAN log, frames that the DBC file says
        nothing about are dead letters too, unless `unknown` lets them pass.
        """
        began = time.monotonic()
        formats = Chooser(format, mapping, dbc, unknown)
        if dbc is not None:
            self.register(*formats.types)
        formats.check(types_of(self._agreed.text))
        paths = find_files(self.spark, sources, any_ending=format is not None)
        wanted = list(self._unread(job.inputs_of(paths, formats), retry))
        total, done = sum(each.size for each in wanted), 0
        events = dead = 0
        for wave in _waves(wanted):
            draft = self._ingest(wave, retry)
            events += sum(part.rows for part in draft.added if part.table != DEAD_LETTERS)
            dead += sum(source.dead for source in draft.sources)
            done += sum(each.size for each in wave)
            if progress is not None:
                progress(done, total)
        seconds = time.monotonic() - began
        return Ingested(len(wanted), len(paths) - len(wanted), events, dead, total, seconds, self.version)

    def check_sources(
        self,
        paths: Iterable[str],
        *,
        format: str | None = None,
        mapping: "Mapping | PathLike | None" = None,
        dbc: PathLike | None = None,
    ) -> None:
        """Refuse files that no format reads, and a mapping that does not fit, before anything is begun."""
        formats = Chooser(format, mapping, dbc)
        formats.check(types_of(self._agreed.text))
        for path in paths:
            formats(path)

    def _unread(self, given: Iterable[job.Input], retry: bool) -> Iterator[job.Input]:
        state = self._store.state()
        by_path = {source.path: source for source in state.sources.values()}
        for each in given:
            known = state.sources.get(each.number)
            if known is None:
                _refuse_grown(each, by_path.get(each.path))
                yield each
            elif retry and known.dead:
                only = self._dead_positions(each.number) if known.rows else None
                yield msgspec.structs.replace(each, only=only, known=known)

    def _dead_positions(self, source: int) -> frozenset[int]:
        letters = self.dead_letters().where(F.col(SOURCE) == source).select(POSITION).toArrow()
        return frozenset(letters.column(0).to_pylist())

    def _ingest(self, wave: Sequence[job.Input], retry: bool) -> Draft:
        """One commit; begun again with what is left if another writer read in some of it meanwhile."""
        while True:
            draft = job.run(self.spark, self.path, self._agreed.text, wave)
            try:
                return self._store.commit(self._with_shapes(draft))
            except Overtaken:
                self._store.discard(draft)
                wave = list(self._unread(wave, retry))
                if not wave:
                    return self._store.begin("ingest")

    def _with_shapes(self, draft: Draft) -> Draft:
        """The draft with the shapes that are new to the lake."""
        known = list(self._store.state().shapes.values())
        new = few_enough(known, draft.shapes, MOST_SHAPES)
        if clash := collisions([*known, *new]):
            raise LakeError(f"two shapes have one number, {clash[0]}; rename one of the types")
        return msgspec.structs.replace(draft, shapes=new)

    # -- out ---------------------------------------------------------------------------------------------------------

    def table(self, family: type | str) -> DataFrame:
        """All events of a family, which any type of it names, with all columns."""
        name = family_of(family, self.catalog)
        return self.events(name, self._store.state().table(name))

    def events(self, family: str, parts: Sequence[Part]) -> DataFrame:
        """The events in some parts of a family's table."""
        return self._store.frame(parts, table_schema(self.catalog.vector(family)), f"{TABLES}/{family}")

    def read(
        self,
        what: type | AllOf[Any] | Subscription | str,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
    ) -> DataFrame:
        """The events that match a subscription, given as such, as its text or by its parts.

        The frame has the columns of the type and those of Genus' own; of a kind, which several families may have,
        those that every event has. Types, presence and predicates are tested where the files are read.
        """
        if not isinstance(what, Subscription | str):
            subscription = self.subscription(Subscription(what, exact=exact, has=has, lacks=lacks, where=where))
        elif exact or has or lacks or where is not None:
            raise LakeError("a whole subscription is given already; put has, lacks, exact and where into it")
        else:
            subscription = self.subscription(what)
        return read(self, subscription)

    def subscription(self, what: Subscription | str | type | AllOf[Any]) -> Subscription:
        """A subscription whose types this lake knows; a text may name types that this process has no class for."""
        return Terms(self.catalog)(what)

    def views(self, prefix: str = "") -> list[str]:
        """Make a view of every type and kind for Spark SQL, under its name (`.` becomes `_`); returns the names.

        A view shows the version of the lake that it was made of; make them again to see what came in since.
        """
        catalog = self.catalog
        names = {name: prefix + name.replace(".", "_") for name in catalog.types}
        if len({view.lower() for view in names.values()}) < len(names):
            raise LakeError("two types would have one view, for `.` becomes `_` and Spark does not see case")
        for name, view in names.items():
            self.read(catalog.declare(name)).createOrReplaceTempView(view)
        return list(names.values())

    def dead_letters(self) -> DataFrame:
        """What was no event: reason, path, position and raw text, without what was read well since."""
        state = self._store.state()
        frame = self._store.frame(state.table(DEAD_LETTERS), spark_schema(DEAD_SCHEMA, COMMIT), DEAD)
        latest = [(number, source.commit) for number, source in state.sources.items() if source.dead]
        if not latest:
            return frame.limit(0)
        current = self.spark.createDataFrame(latest, f"{SOURCE} bigint, {COMMIT} string")
        return frame.join(F.broadcast(current), [SOURCE, COMMIT], "left_semi")

    def route(self, subscriptions: Any) -> "Route":
        """Match very many subscriptions at once; see `genus.lake._routing`."""
        from genus.lake._routing import Route

        return Route(self, subscriptions)

    def stream(self, landing: PathLike, **options: Any) -> "Stream":
        """Follow a folder that recordings land in; see `genus.lake._stream`."""
        from genus.lake._stream import Stream

        return Stream(self, landing, **options)

    # -- keeping -----------------------------------------------------------------------------------------------------

    def compact(self, *, progress: Progress | None = None) -> Compacted:
        """Write the many small files of each day anew as few large ones, sorted by type and time."""
        return compact(self._store, lambda: self.catalog, progress)

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that no version needs any more, or that a killed writer left; returns how many."""
        tables = [*(f"{TABLES}/{family}" for family in self.catalog.families), DEAD]
        return self._store.clean(tables, older_than_s)

    def check(self) -> list[Problem]:
        """What is wrong with the lake's files; nothing if all is well. A damaged catalog or ledger is an error."""
        self._agreed.catalog  # noqa: B018 - it raises what is wrong with it
        return self._store.check()

    def stats(self) -> list[TableStats]:
        """The tables in numbers, dead letters included; nothing is read but the ledger."""
        state = self._store.state()
        return [_stats(name, state) for name in state.tables if name != DEAD_LETTERS or open_letters(state)]


def _refuse_grown(given: job.Input, before: Source | None) -> None:
    """A file that was read in before it was whole: reading it again would double what it held then."""
    if before is not None and given.size > before.bytes and job.fingerprint(given.path, before.bytes) == before.number:
        raise LakeError(
            f"{given.path} has grown since its first {before.bytes} bytes were read in; let whole files be written, as "
            "`genus record --landing` does, and read the rest from a file of its own"
        )


def _waves(inputs: Iterable[job.Input]) -> Iterator[list[job.Input]]:
    wave: list[job.Input] = []
    for each in inputs:
        if wave and (len(wave) >= WAVE_FILES or sum(one.size for one in wave) + each.size > WAVE_BYTES):
            yield wave
            wave = []
        wave.append(each)
    if wave:
        yield wave


def open_letters(state: State) -> int:
    """The dead letters that nothing good has come of since."""
    return sum(source.dead for source in state.sources.values())


def _stats(table: str, state: State) -> TableStats:
    parts = state.table(table)
    shapes = [shape for shape in state.shapes.values() if shape.family == table]
    return TableStats(
        table,
        open_letters(state) if table == DEAD_LETTERS else sum(part.rows for part in parts),
        sum(part.files for part in parts),
        sum(part.bytes for part in parts),
        len({part.folder.rpartition("/")[2] for part in parts if f"/{DAY}=" in part.folder}),
        len({shape.type for shape in shapes}),
        len(shapes),
    )
