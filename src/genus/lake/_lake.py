"""`Lake`: the events of many years in Parquet tables, one per family, and the operations on them."""

import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, ClassVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.filters._subscription import rebuild
from genus.lake._ingest.ingest import COMMIT_BYTES, FormatOptions, IngestResult, ProgressHandler, find_sources, ingest
from genus.lake._ingest.sources import PathLike, Unknown
from genus.lake._query.reading import ReadPlan, plan_read, read_events
from genus.lake._query.subscription_list import SubscriptionSource
from genus.lake._stream.route import Route
from genus.lake._stream.stream import Progress, Stream
from genus.lake._tables.columns import DAY, DEAD, DEAD_LETTERS, TABLES
from genus.lake._tables.compaction import CompactionResult, compact_tables
from genus.lake._tables.lake_catalog import CatalogFile, SubscriptionResolver
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import LedgerState, count_files, count_rows
from genus.lake._tables.store import Store, StoreProblem
from genus.records import Mapping


class TableStats(msgspec.Struct, frozen=True):
    """Figures of one table, from `Lake.stats`."""

    table: str
    """Name of the family, or `dead letters`."""
    rows: int
    files: int
    bytes: int
    days: int
    types: int
    shapes: int


class Lake(LakeTables):
    """A store of typed events: a folder of Parquet tables with a catalog and a ledger of commits.

    Any number of sessions and processes may use a lake at once; nothing is kept in the session.

    Args:
        spark: Your session; see also `local_session`.
        path: A local path, or a URL of any file system that Spark can use.

    Raises:
        LakeError: There is no lake at the path; `Lake.create` makes one.
    """

    COMMIT_BYTES: ClassVar[int] = COMMIT_BYTES
    """An ingest commits, and reports progress, after files of at most this many bytes."""

    @classmethod
    def create(
        cls, spark: SparkSession, path: PathLike, *what: type | ModuleType, catalog: PathLike | None = None
    ) -> "Lake":
        """Create a lake for event types.

        Args:
            spark: Your session.
            path: A folder that is not a lake yet.
            what: Classes, or modules whose event types are all registered.
            catalog: A catalog file to begin with, such as that of a bus, so that codes and bits are the same.

        Raises:
            LakeError: There is a lake at the path already.
            CatalogConflict: A type contradicts the catalog.
        """
        if cls.exists(spark, path):
            raise LakeError(f"{os.fspath(path)} is a lake already; open it with Lake(spark, path)")
        store = Store(spark, path)
        file = CatalogFile(store.files, store.path)
        if catalog is not None:
            file.adopt(catalog)
        file.register(what)
        store.commit(store.begin("create"))
        return cls(spark, path)

    @staticmethod
    def exists(spark: SparkSession, path: PathLike) -> bool:
        """Whether there is a lake at a path."""
        return Store.exists(spark, path)

    def __repr__(self) -> str:
        return f"<Lake {self.path}>"

    def adopt_catalog(self, path: PathLike) -> None:
        """Replace the lake's catalog by that of a file, such as the catalog of a bus.

        Raises:
            CatalogConflict: The file lacks a type, code or bit of the lake's catalog; nothing is changed.
        """
        self.catalog_file.adopt(path)

    # -- ingest ------------------------------------------------------------------------------------------------------

    def ingest(
        self,
        sources: PathLike | Iterable[PathLike],
        *,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: PathLike | None = None,
        unknown: Unknown = "dead",
        retry: bool = False,
        progress: ProgressHandler | None = None,
    ) -> IngestResult:
        """Read events from files into the lake.

        A file whose content was ingested before is skipped, whatever its name. Input that is not a valid event becomes
        a dead letter (`dead_letters`). An interrupted ingest has committed some files; the same call continues with the
        others.

        Args:
            sources: Files, folders or patterns.
            format: Name of the format, such as `"jsonl"` or `"csv"`; by default the ending of each file.
            mapping: For JSON, CSV and Parquet of other systems: a mapping or the path of a mapping file.
            dbc: For CAN logs: the DBC file that describes the frames. Its types are registered.
            unknown: What to do with CAN frames that the DBC file does not have: `"dead"` letters, or `"pass"` over.
            retry: Also try the dead letters of files that were ingested before, after registering types or correcting
                the mapping. A file without any valid event is read again as a whole.
            progress: Called after each commit with the bytes done and the total.

        Raises:
            LakeError: A file cannot be read, has an unknown format or has grown since it was ingested, or the mapping
                names types or attributes that the catalog lacks.
        """
        options = FormatOptions(format, mapping, dbc, unknown)
        return ingest(self, sources, options, retry=retry, progress=progress)

    def find_sources(
        self,
        sources: PathLike | Iterable[PathLike],
        *,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: PathLike | None = None,
    ) -> dict[str, int]:
        """The files that `ingest` would read with these arguments, and their sizes; raises the same errors."""
        return find_sources(self, sources, FormatOptions(format, mapping, dbc))

    # -- queries -----------------------------------------------------------------------------------------------------

    def read(
        self,
        what: type | AllOf[Any] | Subscription | str,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        strict: bool = False,
    ) -> DataFrame:
        """The events that match a subscription.

        The frame has the attributes of the type and the columns that Genus adds; for a kind, which several families may
        have, the attributes that every event has. Type, attributes and predicates are tested where files are read.

        Args:
            what: A type, `all_of` types, or a whole subscription, also as text.
            exact: As in `Subscription`, like the other arguments; only where `what` is a type.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate.
            strict: Refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: The catalog lacks an attribute.
            SubscriptionError: With `strict`, the subscription can never match.
        """
        if not isinstance(what, Subscription | str):
            asked = rebuild(what, exact=exact, has=has, lacks=lacks, where=where)
            SubscriptionResolver(self.catalog).report_never(asked, strict=strict)
            return read_events(self, self.subscription(asked))
        if exact or has or lacks or where is not None:
            raise LakeError("what= is a whole subscription; write exact, has, lacks and where into it")
        return read_events(self, self.subscription(what, strict=strict))

    def explain(self, what: type | AllOf[Any] | Subscription | str) -> ReadPlan:
        """What `read` would open and test for a subscription; no events are read."""
        return plan_read(self, self.subscription(what))

    def views(self, prefix: str = "") -> list[str]:
        """Create a temporary view for Spark SQL of every type and kind, and return the names of the views.

        A view is named like its type, with `_` for `.`. It shows the lake at the time of this call.

        Args:
            prefix: Put before the names.

        Raises:
            LakeError: Two types would have the same view, because Spark ignores case.
        """
        catalog = self.catalog
        names = {name: prefix + name.replace(".", "_") for name in catalog.types}
        if len({view.lower() for view in names.values()}) < len(names):
            raise LakeError("two types would have the same view, because `.` becomes `_` and Spark ignores case")
        for name, view in names.items():
            self.read(catalog.declare(name)).createOrReplaceTempView(view)
        return list(names.values())

    def route(self, subscriptions: SubscriptionSource) -> Route:
        """Match very many subscriptions at once.

        Args:
            subscriptions: A list of `RouteEntry`, of (subscriber, subscription) or of subscriptions; a mapping from
                subscribers to one or several subscriptions; the path of a text file with lines like
                `ann: Loop where speed > 30`; a DataFrame with columns subscriber and subscription; or a function that
                returns any of these. Subscriptions may be given as text.
        """
        return Route(self, subscriptions)

    def stream(
        self,
        landing: PathLike,
        *,
        checkpoint: PathLike | None = None,
        pattern: str = "*.genus",
        files_per_batch: int = 100,
        on_progress: Callable[[Progress], object] | None = None,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: PathLike | None = None,
        unknown: Unknown = "dead",
    ) -> Stream:
        """A stream that ingests files as they arrive in a folder; add followers, then call its `run` or `start`.

        Args:
            landing: An existing folder, in which complete files appear, such as `genus record --landing` writes.
            checkpoint: Folder for Spark's record of the files it has seen; by default in the lake.
            pattern: Which files of the folder are ingested.
            files_per_batch: Largest number of files in a batch.
            on_progress: Called after every batch.
            format: As in `ingest`, like the other arguments.
            mapping: A mapping or the path of a mapping file.
            dbc: The DBC file of CAN logs.
            unknown: What to do with CAN frames that the DBC file does not have.

        Raises:
            LakeError: The landing folder does not exist.
        """
        return Stream(
            self,
            landing,
            FormatOptions(format, mapping, dbc, unknown),
            checkpoint=checkpoint,
            pattern=pattern,
            files_per_batch=files_per_batch,
            on_progress=on_progress,
        )

    # -- maintenance -------------------------------------------------------------------------------------------------

    def compact(self, *, progress: ProgressHandler | None = None) -> CompactionResult:
        """Rewrite the many small files of each day as few large ones, sorted by type and time.

        The old files are kept for running queries and followers until `clean` removes them.

        Args:
            progress: Called after each table with the number of tables done and the total.
        """
        return compact_tables(self.store, lambda: self.catalog, progress)

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that compaction replaced that long ago, or that killed writers left; returns their number.

        Followers that have not processed a removed folder cannot continue.
        """
        tables = [*(f"{TABLES}/{family}" for family in self.catalog.families), DEAD]
        return self.store.clean(tables, older_than_s)

    def check(self) -> list[StoreProblem]:
        """Compare the files with the ledger; an empty list if they agree. LakeDamaged if either is damaged."""
        self.catalog  # noqa: B018 - raises if it is damaged
        return self.store.check()

    def stats(self) -> list[TableStats]:
        """Figures of each table, dead letters included; only the ledger is read."""
        state = self.state()
        return [_stats(name, state) for name in state.tables if name != DEAD_LETTERS or _count_dead(state)]


def _count_dead(state: LedgerState) -> int:
    """The dead letters, without those that were ingested successfully since."""
    return sum(source.dead for source in state.sources.values())


def _stats(table: str, state: LedgerState) -> TableStats:
    parts = state.table(table)
    shapes = [shape for shape in state.shapes.values() if shape.family == table]
    return TableStats(
        table,
        _count_dead(state) if table == DEAD_LETTERS else count_rows(parts),
        count_files(parts),
        sum(part.bytes for part in parts),
        len({part.folder.rpartition("/")[2] for part in parts if f"/{DAY}=" in part.folder}),
        len({shape.type for shape in shapes}),
        len(shapes),
    )
