"""`Lake`: the events of many years in Parquet tables, one per family, and the operations on them."""

import logging
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from genus.errors import LakeError
from genus.filters import Subscription
from genus.filters.types import AllOf, AttributeNames, Predicate, Term
from genus.lake._ingest.format import Unknown
from genus.lake._ingest.frames import append
from genus.lake._ingest.ingest import COMMIT_BYTES, IngestResult, ProgressHandler, find_sources, ingest
from genus.lake._ingest.job import Identity
from genus.lake._ingest.sources import FormatChooser, PathLike
from genus.lake._jobs import check_running
from genus.lake._query.reading import ReadPlan, create_is_a, create_tables, plan_read, quoted, read_events, view_names
from genus.lake._query.removal import (
    RemovalResult,
    RemovalRule,
    delete_dead_letters,
    policy_rules,
    remove_events,
    tables_of,
    time_before,
)
from genus.lake._query.subscription_list import SubscriptionSource
from genus.lake._stream.inboxes import Route
from genus.lake._stream.stream import MAX_AGE, Progress, Stream
from genus.lake._tables.commits import DEAD, DEAD_LETTERS, DELETION, table_folder
from genus.lake._tables.files import open_path
from genus.lake._tables.lake_catalog import CatalogFile, family_name, matching_types
from genus.lake._tables.lake_tables import CompactionResult, LakeTables, SparkStore, compact_tables
from genus.lake._tables.mirror import IcebergTables, Mirror, MirrorResult, remade_without
from genus.lake._tables.store import HOLDS, MIRROR_NOTE, OFF
from genus.model import Event, Span, seconds
from genus.records import Mapping

if TYPE_CHECKING:
    from genus.can.types import Dbc

_LOG = logging.getLogger("genus.lake")


class Lake(LakeTables):
    """A store of typed events: a folder of Parquet tables with a catalog and a ledger of commits.

    Any number of sessions and processes may use a lake at once; nothing is kept in the session.

    Args:
        spark: Your session; see also `local_session`.
        path: A local path, a URL `s3://bucket/folder`, or a URL of any file system that Spark can use.

    Raises:
        LakeError: There is no lake at the path; `Lake.create` makes one.
    """

    def __init__(self, spark: SparkSession, path: PathLike | None = None) -> None:
        if path is None or isinstance(spark, str | os.PathLike):
            raise LakeError("Lake(spark, path) takes your Spark session and a path; local_session() makes a session")
        super().__init__(spark, path)
        self._mirror = Mirror(self.store)
        if self.state().notes.get(MIRROR_NOTE) != OFF:
            self.store.on_commit = lambda commit: self._follow_commits()
            if self._mirror.is_ahead:
                self._follow_commits()

    COMMIT_BYTES: ClassVar[int] = COMMIT_BYTES
    """An ingest commits, and reports progress, after files of at most this many bytes."""

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: PathLike,
        *what: type | ModuleType,
        catalog: PathLike | None = None,
        mirror: bool = True,
    ) -> "Lake":
        """Create a lake for event types.

        Args:
            spark: Your session.
            path: A folder that is not a lake yet.
            what: Classes, or modules whose event types are all registered.
            catalog: A catalog file to begin with, such as that of a bus, so that codes and bits are the same.
            mirror: Whether each commit also extends the Delta tables of the lake; without it, `mirror` does it.

        Raises:
            LakeError: There is a lake at the path already.
            CatalogConflict: A type contradicts the catalog.
        """
        if cls.exists(spark, path):
            SparkStore(spark, path).check_holds("lake")
            raise LakeError(f"{os.fspath(path)} is a lake already; open it with Lake(spark, path)")
        store = SparkStore(spark, path)
        file = CatalogFile(store.files, store.path)
        if catalog is not None:
            file.adopt(catalog)
        file.register(what)
        notes = {HOLDS: "lake"} | ({} if mirror else {MIRROR_NOTE: OFF})
        store.commit(msgspec.structs.replace(store.begin("create"), catalog=file.text, notes=notes))
        return cls(spark, path)

    @staticmethod
    def exists(spark: SparkSession, path: PathLike) -> bool:
        """Return whether there is a lake at a path."""
        return SparkStore.exists(spark, path)

    @classmethod
    def restore_catalog(cls, spark: SparkSession, path: PathLike) -> "Lake":
        """Replace the catalog file of a lake by the catalog in its ledger, and open the lake.

        Types that were registered after the last ingest are lost; register them again.

        Args:
            spark: Your session.
            path: The folder of a lake whose catalog file is missing, damaged or that of another lake.
        """
        store = SparkStore(spark, path)
        if (text := store.state().catalog) is None:
            raise LakeError(
                f"{store.path} is not a lake; create one with Lake.create or `genus lake init LAKE -t TYPES`"
            )
        store.check_holds("lake")
        CatalogFile(store.files, store.path).replace(text)
        return cls(spark, path)

    def __repr__(self) -> str:
        return f"<Lake {self.path}>"

    def adopt_catalog(self, path: PathLike) -> None:
        """Replace the lake's catalog by that of a file, such as the catalog of a bus.

        Raises:
            CatalogConflict: The file lacks a type, code or bit of the lake's catalog; nothing is changed.
        """
        self._catalog_file.adopt(path)

    # -- ingest ------------------------------------------------------------------------------------------------------

    def ingest(
        self,
        sources: PathLike | Iterable[PathLike],
        *,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: "PathLike | Dbc | None" = None,
        unknown: Unknown = "dead",
        time_unit: str | None = None,
        columns: str | None = None,
        identity: Identity = "content",
        retry: bool = False,
        progress: ProgressHandler | None = None,
    ) -> IngestResult:
        """Read events from files into the lake, as Spark jobs.

        A file whose content was ingested before is skipped, whatever its name; `IngestResult.duplicates` names those of
        other names. Input that is not a valid event becomes a dead letter (`dead_letters`). An interrupted ingest has
        committed some files; the same call continues with the others.

        Args:
            sources: Files, folders or patterns.
            format: Name of the format, such as `"jsonl"` or `"csv"`; by default the ending of each file.
            mapping: For JSON, CSV and Parquet of other systems: a mapping or the path of a mapping file.
            dbc: For CAN logs: the DBC, ARXML, KCD or SYM file that describes the frames, or what `load_dbc` made of it,
                such as with `truncated=True`. Its types are registered.
            unknown: What to do with CAN frames that the DBC file does not have: `"dead"` letters, or `"pass"` over.
            time_unit: Of CAN logs, what plain numbers count that are times, such as `"ms"`; else each log shows it,
                and `IngestResult.doubts` says where it does not.
            columns: The columns of CAN logs in their order, such as `"time:ms, id:hex, -, length, data"`.
            identity: `"content"` ingests equal files once. `"path"` ingests every path, size and time of change: choose
                it for sensors whose files may be equal.
            retry: Also try the dead letters of files that were ingested before, after registering types or correcting
                the mapping. A file without any valid event is read again as a whole.
            progress: Called after each commit with the bytes done and the total.

        Raises:
            LakeError: A file cannot be read, has an unknown format or has grown since it was ingested, or the mapping
                names types or attributes that the catalog lacks.
        """
        if isinstance(sources, DataFrame):
            raise LakeError("ingest takes files; a DataFrame is added by lake.append(df, type_or_mapping)")
        choose = FormatChooser(format, mapping, dbc, unknown, time_unit, columns)
        return ingest(self, sources, choose, identity=identity, retry=retry, progress=progress)

    def find_sources(
        self,
        sources: PathLike | Iterable[PathLike],
        *,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: "PathLike | Dbc | None" = None,
        columns: str | None = None,
    ) -> dict[str, int]:
        """Return the files that `ingest` would read with these arguments, and their sizes; raises the same errors."""
        return find_sources(self, sources, FormatChooser(format, mapping, dbc, columns=columns))

    def append(
        self,
        df: DataFrame,
        what: type | str | Mapping,
        *,
        source: str | None = None,
        progress: ProgressHandler | None = None,
    ) -> IngestResult:
        """Append the rows of any frame as events, in one Spark job and one commit.

        Rows that are no valid events become dead letters, as rows of a Parquet file do. NULL means that an event does
        not carry the attribute. A column `_recorded` is the time of recording, otherwise it is the time of the event;
        other columns that a lake adds, such as `_type`, are passed over. Write a stream with
        `df.writeStream.format("genus")`, see `register_data_source`.

        Args:
            df: The frame; not a stream.
            what: The event type of all rows, whose attributes the columns are named like; or a mapping, which says how
                the type of a row is found and which columns are which attributes.
            source: A name for the rows, such as `"orders-2026-05-01"`: a second call with the same name adds nothing,
                so that a job can be repeated. Without it, every call adds its rows.
            progress: Called after the commit with the number of rows, twice.

        Returns:
            The numbers of events and dead letters; `files` is 1, or 0 if nothing was added.

        Raises:
            NotRegistered: The catalog lacks the type.
            MappingError: The mapping names types or attributes that the catalog lacks.
            LakeError: A column is no attribute of the type, one that the type requires is missing, or it is a stream.
        """
        return append(self, df, what, source=source, progress=progress)

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
        subtypes: bool = False,
        version: int | None = None,
        as_of: datetime | None = None,
    ) -> DataFrame:
        """Return the events that match a subscription; a frame without rows if no type conforms.

        The frame has the attributes of the type and the columns that Genus adds; for a kind, which several families may
        have, the attributes that every event has. Attributes that only subtypes have are added by `subtypes`. Type,
        attributes and predicates are tested where files are read.

        Args:
            what: A type, `all_of` types, or a whole subscription, also as text.
            exact: As in `Subscription`, like the other arguments; only where `what` is a type.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate.
            strict: Refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.
            subtypes: Return the attributes of all types whose events can match, NULL where a type does not have one. An
                attribute that families have with different types or units is a column for each of them, such as
                `Loop_speed` for `speed` of the family Loop.
            version: Read the lake as it was after this commit; by default as it is.
            as_of: Read the lake as it was at this time, after the last commit at or before it.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: The catalog lacks an attribute, there is no such version, or its files were removed by `clean`.
            SubscriptionError: With `strict`, the subscription can never match.
        """
        check_running(self.spark)
        asked = self._asked(what, exact=exact, has=has, lacks=lacks, where=where, strict=strict)
        return read_events(self, asked, self._state_of(version, as_of), subtypes=subtypes)

    def explain(self, what: type | AllOf[Any] | Subscription | str) -> ReadPlan:
        """Return what `read` would open and test for a subscription; no events are read."""
        return plan_read(self, self.subscription(what))

    def views(self, prefix: str = "", *, subtypes: bool = False) -> list[str]:
        """Create a temporary view for Spark SQL of every type and kind, and return the names of the views.

        A view is named like its type, with `_` for `.`. It shows the lake at the time of this call. There is also a
        function `is_a(_type, 'Loop')`, which is true for events of a type and of all below it.

        Args:
            prefix: Put before the names of views and of the function.
            subtypes: Views have the attributes of subtypes too, as in `read`.

        Raises:
            LakeError: Two types would have the same view, because Spark ignores case.
        """
        catalog = self.catalog
        names = view_names(catalog, prefix)
        for name, view in names.items():
            self.read(catalog.declare(name), subtypes=subtypes).createOrReplaceTempView(quoted(view))
        create_is_a(self.spark, catalog, self.state().shapes.values(), prefix)
        return list(names.values())

    def register_tables(self, database: str = "default", *, subtypes: bool = False) -> list[str]:
        """Create views of every type and kind that outlive the session, and return their names.

        They are kept by the metastore of the session, with an external table of each family, named like `Loop_files`.
        In a session with Delta they are the Delta tables of the lake, which follow its commits; call it again for new
        types and attributes. In others a table lists the folders of the lake at the time of this call; call it again
        after an ingest or a compaction.

        Args:
            database: A database of the metastore, created if there is none.
            subtypes: Views have the attributes of subtypes too, as in `read`.

        Raises:
            LakeError: The session has no metastore, it cannot have a view of that name, or two types would have the
                same view.
        """
        is_on = self.state().notes.get(MIRROR_NOTE) != OFF
        return create_tables(
            self, database, subtypes=subtypes, is_mirrored=lambda family: is_on and self._mirror.has_table(family)
        )

    def route(self, subscriptions: SubscriptionSource) -> Route:
        """Match very many subscriptions at once; nothing is computed until a method of the result is called.

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
        pattern: str | None = None,
        files_per_batch: int = 100,
        identity: Identity = "content",
        max_age: Span = MAX_AGE,
        on_progress: Callable[[Progress], object] | None = None,
        format: str | None = None,
        mapping: Mapping | PathLike | None = None,
        dbc: "PathLike | Dbc | None" = None,
        unknown: Unknown = "dead",
        time_unit: str | None = None,
        columns: str | None = None,
    ) -> Stream:
        """Return a stream that ingests files as they arrive in a folder; add followers, then call its `run` or `start`.

        Args:
            landing: An existing folder, in which complete files appear, such as `genus record --landing` writes.
            checkpoint: Folder of Spark's checkpoint and of what functions (`Stream.for_each`) have processed; one in
                the lake by default.
            pattern: Which files of the folder and its subfolders are ingested, by name, with `*`, `?`, `[...]` and
                `{a,b}`; by default those with an ending of the format, `*.genus` if none is given. Hidden files, whose
                names begin with `.` or `_`, never are. A file that was listed once is not looked at again.
            files_per_batch: Largest number of files in a batch. If in doubt, leave it: smaller batches cost more,
                larger ones make followers wait longer.
            identity: As in `ingest`.
            max_age: Files older than the newest one by more than this are not read, except at the first start; Spark
                forgets the names of files after it.
            on_progress: Called after every batch.
            format: As in `ingest`, like the other arguments.
            mapping: A mapping or the path of a mapping file.
            dbc: The DBC file of CAN logs, or what `load_dbc` made of it.
            unknown: What to do with CAN frames that the DBC file does not have.
            time_unit: What plain numbers in CAN logs count that are times; where a log does not show it, and nothing is
                said, `Progress.problem` says so.
            columns: The columns of CAN logs in their order.

        Raises:
            LakeError: The landing folder does not exist.
        """
        return Stream(
            self,
            landing,
            FormatChooser(format, mapping, dbc, unknown, time_unit, columns),
            checkpoint=checkpoint,
            pattern=pattern,
            files_per_batch=files_per_batch,
            identity=identity,
            max_age=max_age,
            on_progress=on_progress,
        )

    # -- open tables -------------------------------------------------------------------------------------------------

    def delta_path(self, table: type | str) -> str:
        """Return the path of a family's Delta table, for `deltalake.DeltaTable`, Polars' `scan_delta` and others.

        The table shows the events of `table`, but for two differences: attributes that were renamed have their first
        names, and durations are microseconds. Others can read it only.

        Args:
            table: Any type of the family, or `"dead letters"`; those include dead letters that were ingested since.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: There is no Delta table, because there are no events or commits are not mirrored.
        """
        name = DEAD_LETTERS if table == DEAD_LETTERS else family_name(table, self.catalog)
        if not self._mirror.has_table(name):
            raise LakeError(f"{name} is no Delta table yet; ingest events, or call mirror() or `genus lake mirror`")
        return open_path(f"{self.path}/{table_folder(name)}")

    def mirror(self, *, progress: ProgressHandler | None = None) -> MirrorResult:
        """Complete the Delta tables of the lake, and compare them with the ledger.

        Every commit does the first part already, unless the lake was created with `mirror=False`. Call it for a lake
        without Delta tables, after a warning that a commit was not mirrored, or after a restore from a backup.

        Args:
            progress: Called after each table with the number of tables done and the total.

        Raises:
            LakeError: A table or a log cannot be read or written.
        """
        return self._mirror.complete(progress)

    def iceberg(self, *, progress: ProgressHandler | None = None) -> MirrorResult:
        """Make Iceberg tables of the lake, over the same files, or bring them to the present version.

        Commits do not do this. Each table that has changed gets one snapshot. Needs the extra `iceberg`.

        Args:
            progress: Called after each table with the number of tables done and the total.

        Raises:
            LakeError: The lake is not in a local folder.
        """
        return IcebergTables(self.store).update(progress)

    def iceberg_path(self, table: type | str) -> str:
        """Return the path of the metadata file of a family's Iceberg table, as the last call of `iceberg` has made it.

        For `StaticTable.from_metadata` of pyiceberg and others; it has the columns of `delta_path`, without `_commit`
        and `_day`.

        Args:
            table: Any type of the family, or `"dead letters"`.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: There is no such table; call `iceberg`.
        """
        name = DEAD_LETTERS if table == DEAD_LETTERS else family_name(table, self.catalog)
        return IcebergTables(self.store).metadata_path(name)

    def _follow_commits(self) -> None:
        """Mirror new commits. They are made, so a problem is logged; the next commit or `mirror` tries again."""
        try:
            self._mirror.follow()
        except Exception as problem:
            _LOG.warning("%s: version %d is not mirrored yet: %s", self.path, self.version, problem)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def compact(self, *, progress: ProgressHandler | None = None) -> CompactionResult:
        """Rewrite the many small files of each day as few large ones, sorted by type and time.

        The old files are kept for running queries and earlier versions until `clean` removes them; followers that are
        behind go on with the new ones.

        Args:
            progress: Called after each table with the number of tables done and the total.
        """
        return compact_tables(self, progress)

    def delete(
        self,
        what: Subscription | str | type | AllOf[Any],
        *,
        dry_run: bool = False,
        progress: ProgressHandler | None = None,
    ) -> RemovalResult:
        """Delete the events that match a subscription, such as the data of a person, in one commit.

        The events are those that `read` gives. Events that come in meanwhile stay. Only folders with such events are
        rewritten. Earlier versions have the events until `clean` removes the old files: after `clean(0)`, no file of
        the lake has them. Followers that are behind do not get them any more. Files that were ingested stay known, so
        the events do not come back when a file is ingested again. The ledger does not store the subscription.

        What else may have the data: inboxes (`Inboxes.delete`), derived tables (`DerivedTable.rebuild`), dead letters
        (`delete_dead_letters`), and the files that were ingested.

        Args:
            what: The subscription, also as text; see `read`.
            dry_run: Only count; nothing is changed.
            progress: Called with the number of folders that are rewritten and the total.

        Raises:
            SubscriptionError: No event can match.
        """
        return remove_events(tables_of(self), [self._rule(what)], "delete", dry_run=dry_run, progress=progress)

    def delete_dead_letters(self, text: str, *, dry_run: bool = False) -> int:
        """Delete the dead letters whose raw text or reason contains a text, in one commit; returns their number.

        They are not tried again by `ingest` with `retry`, unless nothing else of their file was an event: such a file
        is read again as a whole.

        Args:
            text: The text to look for.
            dry_run: Only count; nothing is changed.
        """
        return delete_dead_letters(self.store, text, dry_run=dry_run)

    def expire(
        self,
        what: Subscription | str | type | AllOf[Any] | None = None,
        older_than: Span | None = None,
        *,
        now: datetime | None = None,
        dry_run: bool = False,
        progress: ProgressHandler | None = None,
    ) -> RemovalResult:
        """Remove old events in one commit: those that `keep` has limited, or those of a subscription.

        The age of an event is that of its `time`, or of its recording if it has none. Days that are old as a whole are
        dropped without being read. For the rest, see `delete`.

        Args:
            what: A subscription; None for all events.
            older_than: The age, such as `"90 days"`. None, and no `what`: by the stored policy.
            now: The time from which the age is counted; a time at midnight (UTC) expires whole days only.
            dry_run: Only count; nothing is changed.
            progress: Called with the number of folders that are rewritten and the total.

        Raises:
            LakeError: There is no policy, or no age for a subscription.
            SpanError: The age is no length of time above zero.
        """
        if older_than is not None:
            rules = [self._rule(Event if what is None else what, time_before(older_than, now))]
        elif what is not None:
            raise LakeError(f"older_than is required for events of {what}, such as '90 days'")
        elif not self.retention:
            raise LakeError(f"{self.path} keeps all events; set ages (lake.keep, `genus lake keep`) or give older_than")
        else:
            rules = policy_rules(self.retention, self.catalog, self.state().shapes.values(), now)
        return remove_events(tables_of(self), rules, "expire", dry_run=dry_run, progress=progress)

    def _rule(self, what: Subscription | str | type | AllOf[Any], before: datetime | None = None) -> RemovalRule:
        subscription = self.subscription(what, strict=True)
        types = matching_types(subscription, self.catalog, self.state().shapes.values())
        return RemovalRule(subscription, types, before)

    def clean(self, older_than: Span = "7 days") -> int:
        """Remove folders that were replaced that long ago, or that killed writers left; returns their number.

        Versions before that time cannot be read any more. The present version stays as it is, and followers that are
        behind go on with it. Iceberg tables name the folders, so they are made again if there are any; where pyiceberg
        is not installed, they are removed.
        """
        tables, age_s = [*map(table_folder, self.catalog.families), DEAD], seconds(older_than, "older_than")
        with remade_without(self.store, lambda: self.store.leftovers(tables, age_s)):
            removed = self.store.clean(tables, age_s)
        if DELETION in self.state().notes:
            self._mirror.forget_bounds()
        return removed
