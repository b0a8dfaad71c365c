"""Routes and inboxes: the matches of very many subscriptions in a lake, and those delivered to each subscriber.

There is one table per family, not one folder per subscriber, for any number of subscribers. Every delivery is sorted by
subscriber, so that reading one inbox opens few files and few row groups. A delivery and the version of the lake that it
processed are one commit, so that every match is delivered once, even if a delivery is killed and started again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.removal import (
    EventTables,
    ProgressHandler,
    RemovalResult,
    RemovalRule,
    remove_events,
    time_before,
)
from genus.lake._query.route_job import MATCHES, RouteJob
from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry, SubscriptionList, SubscriptionSource
from genus.lake._stream.delivery import (
    Delivery,
    Increment,
    UpdateResult,
    earlier_matches,
    earlier_wanted,
    next_increment,
)
from genus.lake._tables.commits import (
    COMMIT,
    COMMON_COLUMNS,
    DELETION,
    EVENT_ID,
    START,
    SUBSCRIBER,
    SUBSCRIPTION,
    CommitConflict,
    CommitDraft,
    Part,
    count_files,
    count_rows,
)
from genus.lake._tables.lake_catalog import SubscriptionResolver, family_name, matching_types
from genus.lake._tables.lake_tables import LakeTables, SparkStore, spark_schema, with_first_names, with_present_names
from genus.lake._tables.part_writer import file_schema
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import StoreProblem
from genus.model import Span, seconds
from genus.model.types import Vector

INBOXES, BACKFILLED = "inboxes", "backfilled"
"""The folder of the tables, and the note with the keys of the entries that have got earlier events."""
EVENTS_PER_FILE, MAX_FILES = 1_000_000, 64
_ADDRESS = [StructField(SUBSCRIBER, StringType()), StructField(SUBSCRIPTION, StringType())]


class Route:
    """Many subscriptions and the events of a lake that match them; made by `Lake.route`.

    Nothing is computed until a method is called. A file or a function with the subscriptions is read at every call.
    """

    def __init__(self, lake: LakeTables, subscriptions: SubscriptionSource) -> None:
        self.lake = lake
        self._list = SubscriptionList(subscriptions, lake)
        self._planned: Delivery | None = None
        self._asking: tuple[Sequence[RouteEntry], dict[str, RouteEntry]] = (), {}

    def subscriptions(self) -> list[RouteEntry]:
        """Return the present subscriptions; the position in this list is a subscription's number.

        Those of a file, a table or a function that are not valid are left out, and `problem` names them. LakeError if
        the list cannot be read or none is valid; if there was a valid one before, that is returned instead.
        """
        return self._list.read()

    @property
    def problem(self) -> str | None:
        """Which subscriptions are not used, and why; or why the previous list is used. None if all are used."""
        return self._list.problem

    def _plan(self) -> RoutePlan:
        """Return the present plan; made again when the lake has new shapes or the subscriptions have changed."""
        return self._delivery(self.lake.state()).job.plan

    def _delivery(self, state: LedgerState) -> Delivery:
        """Return the present plan with its jobs."""
        entries, known = self.subscriptions(), self._planned
        if known is None or known.shapes != len(state.shapes) or known.entries is not entries:
            job = RouteJob(self.lake, plan_routes(entries, state.shapes, self.lake.catalog))
            self._planned = known = Delivery(job, entries, len(state.shapes))
        return known

    def _asking_for_earlier(self) -> dict[str, RouteEntry]:
        """Return the present subscriptions that ask for earlier events, by the keys that inboxes note."""
        entries = self.subscriptions()
        if self._asking[0] is not entries:
            self._asking = entries, earlier_wanted(entries)
        return self._asking[1]

    def frame(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return all matches: subscriber, number of the subscription, and the columns that all families have.

        Args:
            columns: Only these of the columns that all families have; fewer are faster.
        """
        names = list(COMMON_COLUMNS if columns is None else columns)
        if unknown := [name for name in names if name not in COMMON_COLUMNS]:
            raise LakeError(f"not every family has a column {unknown[0]!r}; `events` gives the matches of one family")
        return self._over_families(lambda job, family, parts: job.matches(family, parts, names))

    def events(self, what: type | str, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the matches in one family: subscriber, number of the subscription, and columns of the events.

        Args:
            what: Any type of the family, as a class or by name.
            columns: The columns of events to return; all by default, fewer are faster.
        """
        state, family = self.lake.state(), family_name(what, self.lake.catalog)
        return self._delivery(state).job.matches(family, state.table(family), columns)

    def count(self) -> int:
        """Return the number of matches; matches that type and attributes decide are counted without computing them."""
        state = self.lake.state()
        job = self._delivery(state).job
        with job_description(self.lake.spark, f"count the matches of a route in {folder_name(self.lake.path)}"):
            return sum(job.count(family, state.table(family)) for family in job.plan.families)

    def counts(self) -> DataFrame:
        """Count the matches of each subscription: `subscription`, `matches`; those without matches have no row."""
        every = self._over_families(RouteJob.counts)
        return every.groupBy(SUBSCRIPTION).agg(F.sum(MATCHES).alias(MATCHES))

    def _over_families(self, query: Callable[[RouteJob, str, Sequence[Part]], DataFrame]) -> DataFrame:
        """Return the union of a query over all families, for one version of the lake."""
        state = self.lake.state()
        job = self._delivery(state).job
        answers = [query(job, family, state.table(family)) for family in job.plan.families or ("Event",)]
        return reduce(DataFrame.unionByName, answers)

    def to_inboxes(self, path: str | os.PathLike[str]) -> UpdateResult:
        """Deliver matches to the inboxes at a path: of all events the first time, later of new events only.

        The inboxes are created if there are none. A delivery is one commit, so every match is delivered once.
        LakeError if the inboxes belong to another lake.
        """
        return Inboxes._at(self.lake, path)._deliver(self)

    def explain(self) -> str:
        """Say how the subscriptions are matched; no events are read."""
        return self._plan().explain()


class Inboxes:
    """The inboxes at a path, to which `Route.to_inboxes` and streams deliver.

    Args:
        spark: Your session.
        path: The path that was given to `to_inboxes`.

    Raises:
        LakeError: There are no inboxes at the path.
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self._store = SparkStore(spark, path)
        self.path = self._store.path
        self._lake: LakeTables | None = None
        if not self._store.ledger.exists:
            raise LakeError(
                f"{self.path} has no inboxes; create them with lake.route(...).to_inboxes(path) or "
                "`genus lake route LAKE SUBSCRIPTIONS --to INBOXES`"
            )
        self._store.check_holds("inboxes")

    @classmethod
    def _at(cls, lake: LakeTables, path: str | os.PathLike[str]) -> "Inboxes":
        """Open the inboxes of a lake at a path, or create them; LakeError if they belong to another lake."""
        SparkStore(lake.spark, path).claim(lake.store, holds="inboxes")
        return cls(lake.spark, path)

    @classmethod
    def of(cls, lake: LakeTables, path: str | os.PathLike[str]) -> "Inboxes":
        """Open the inboxes of a lake at a path; types that the lake got since the last delivery are known too.

        Args:
            lake: The `Lake` that the inboxes belong to.
            path: The path that was given to `to_inboxes`.

        Raises:
            LakeError: There are no inboxes at the path, or they belong to another lake.
        """
        found = cls(lake.spark, path)
        found._store.claim(lake.store, holds="inboxes")
        found._lake = lake
        return found

    @property
    def version(self) -> int:
        """The version of the lake that was delivered last."""
        return self._store.state().cursor.version

    # -- delivery ----------------------------------------------------------------------------------------------------

    def _deliver(self, route: Route) -> UpdateResult:
        """Deliver the matches of events that came into the lake since the last delivery.

        Subscriptions that are new and ask for it (`RouteEntry.since`) also get events that were there before.
        """
        with self._store.discarding():
            delivered = self._deliver_new(route)
            return msgspec.structs.replace(delivered, rows=delivered.rows + self._backfill(route))

    def rewind(self, lake: LakeTables) -> int:
        """Take back deliveries of versions that the lake does not have, after it was restored from a backup.

        It goes back to the last delivery that the lake's history has; the next delivery continues from there.

        Args:
            lake: The `Lake` that the inboxes belong to.

        Returns:
            The version of the lake that was delivered last now.

        Raises:
            LakeError: The inboxes belong to another lake, or were compacted after such a version.
        """
        self._store.claim(lake.store, holds="inboxes")
        state = self._store.state()
        if lake.store.ledger.has(state.cursor):
            return state.cursor.version
        self._store.commit(self._rewinding(lake, state))
        return self.version

    def _rewinding(self, lake: LakeTables, state: LedgerState) -> CommitDraft:
        """Return the commit that goes back to the last delivery of a version that the lake has."""
        ledger, folders = self._store.ledger, list[str]()
        for commit in ledger.history():
            if commit.kind == "create" or (commit.upto is not None and lake.store.ledger.has(commit.upto)):
                there = tuple(folder for folder in folders if folder in state.parts)
                notes = {BACKFILLED: ledger.state_at(commit.version).notes.get(BACKFILLED, "")}
                draft = msgspec.structs.replace(
                    self._store.begin("rewind"), after=state.cursor, upto=commit.upto or START
                )
                return msgspec.structs.replace(draft, removed=there, base=state.version, notes=notes)
            if commit.kind not in ("deliver", "rewind"):
                raise LakeError(
                    f"{self.path} cannot be rewound: a commit of kind {commit.kind} has changed deliveries of versions "
                    "that the lake does not have; begin with a new folder"
                )
            folders += [part.folder for part in commit.added]
        raise LakeError(f"{self.path} cannot be rewound: its old commits were folded; begin with a new folder")

    def _deliver_new(self, route: Route) -> UpdateResult:
        while True:
            before = self._store.state()
            new = next_increment(route.lake, before.cursor, self.path)
            if new is None:
                return UpdateResult(self.version, 0, 0)
            draft = msgspec.structs.replace(self._draft(route, new), deletion=before.notes.get(DELETION, ""))
            if self._commit(draft):
                return UpdateResult(new.upto.version, new.rows, count_rows(draft.added), problem=route.problem)

    def _draft(self, route: Route, new: Increment) -> CommitDraft:
        draft = self._store.begin("deliver")
        added = route._delivery(route.lake.state()).write(self._store, new, draft, INBOXES)
        first = new.after == START  # all subscriptions get all events
        notes = {BACKFILLED: " ".join(sorted(route._asking_for_earlier()))} if first else {}
        catalog = self._new_catalog(route.lake)
        return msgspec.structs.replace(draft, added=added, after=new.after, upto=new.upto, catalog=catalog, notes=notes)

    def _backfill(self, route: Route) -> int:
        """Deliver earlier events to subscriptions that ask for them, in one commit; returns the number of matches.

        If the lake has new events, the next call does it.
        """
        while True:
            before, lake = self._store.state(), route.lake.state()
            asking, noted = route._asking_for_earlier(), before.notes.get(BACKFILLED, "")
            listed = " ".join(sorted(asking))
            if listed == noted or lake.now != before.cursor:
                return 0
            draft, done = self._store.begin("deliver"), set(noted.split())
            due = [entry for key, entry in asking.items() if key not in done]
            added = tuple(self._write_earlier(route.lake, due, lake, draft)) if due else ()
            catalog, notes = self._new_catalog(route.lake), {BACKFILLED: listed}
            draft = msgspec.structs.replace(draft, added=added, base=before.version, catalog=catalog, notes=notes)
            if self._commit(draft):
                return count_rows(added)

    def _commit(self, draft: CommitDraft) -> bool:
        """Commit a draft; if another writer was faster, discard it and return False."""
        try:
            self._store.commit(draft)
        except CommitConflict:
            self._store.discard(draft)
            return False
        return True

    def _write_earlier(
        self, lake: LakeTables, due: Sequence[RouteEntry], state: LedgerState, draft: CommitDraft
    ) -> Iterator[Part]:
        """Write what entries match in a version of the lake, without what was delivered to them already."""
        one = [SUBSCRIBER, SUBSCRIPTION, *EVENT_ID]
        for family, matches in earlier_matches(lake, due, state):
            vector = lake.catalog.vector(family)
            found = with_first_names(matches, vector)
            delivered = self._files(family, vector, self._store.state().table(family)).select(*one)
            left = found.join(delivered, one, "left_anti").select(*found.columns)
            ordered = self._by_subscriber(left, count_rows(state.table(family)))
            with job_description(self._store.spark, f"deliver earlier events to {folder_name(self.path)}"):
                parts = self._store.write(ordered, draft, f"{INBOXES}/{family}")
            yield from (msgspec.structs.replace(part, table=family) for part in parts)

    def _by_subscriber(self, matches: DataFrame, events: int) -> DataFrame:
        """Sort by subscriber, in few files; with adaptive execution Spark merges small partitions itself."""
        adaptive = self._store.spark.conf.get("spark.sql.adaptive.enabled") == "true"
        few = () if adaptive else (max(1, min(-(-events // EVENTS_PER_FILE), MAX_FILES)),)
        return matches.repartition(*few, F.col(SUBSCRIBER)).sortWithinPartitions(SUBSCRIBER, "time")

    def _new_catalog(self, lake: LakeTables) -> str | None:
        """The lake's catalog, which has the columns of the tables, for the ledger; None if that has it already."""
        text = lake.catalog.text()
        return None if text == self._store.state().catalog else text

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, subscriber: str | None = None, family: str | None = None) -> DataFrame:
        """Return the matches that were delivered: subscriber, text of the subscription, and columns of the event.

        Args:
            subscriber: None for all subscribers.
            family: Name of a type; only events of its family, with all their columns. None: events of all families,
                with the columns that all families have, or all columns if there is only one family.
        """
        catalog = self._catalog()
        if family is not None:
            return self._table(subscriber, family_name(family, catalog), catalog)
        tables = self._store.state().tables
        if len(tables) == 1:
            return self._table(subscriber, tables[0], catalog)
        columns = (SUBSCRIBER, SUBSCRIPTION, *COMMON_COLUMNS)
        frames = [self._table(subscriber, table, catalog).select(*columns) for table in tables]
        return reduce(DataFrame.unionByName, frames) if frames else self._table(subscriber, "Event", catalog)

    def _table(self, subscriber: str | None, family: str, catalog: Catalog) -> DataFrame:
        vector = catalog.vector(family)
        frame = with_present_names(self._files(family, vector, self._store.state().table(family)), vector)
        return frame if subscriber is None else frame.where(F.col(SUBSCRIBER) == subscriber)

    def _files(self, family: str, vector: Vector, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of some parts, with the column names of files."""
        schema = StructType([*_ADDRESS, *spark_schema(file_schema(vector), COMMIT)])
        return self._store.frame(parts, schema, f"{INBOXES}/{family}")

    def subscribers(self) -> DataFrame:
        """Return the number of deliveries to each subscriber: `subscriber`, `events`."""
        return self.read().groupBy(SUBSCRIBER).agg(F.count(F.lit(1)).alias("events"))

    def _catalog(self) -> Catalog:
        """The catalog of the lake if it was given, else that of the last delivery; an empty one before the first."""
        text = self._store.state().catalog
        noted = Catalog() if text is None else Catalog.parse(text)
        if self._lake is None or not self._lake.catalog.extends(noted):  # a restored lake may lack types
            return noted
        return self._lake.catalog

    # -- maintenance -------------------------------------------------------------------------------------------------

    def compact(self) -> int:
        """Rewrite the many small deliveries of each family as one; returns by how many the files became fewer."""
        state, catalog, saved = self._store.state(), self._catalog(), 0
        for family in state.tables:
            if len(parts := state.table(family)) > 1:
                rows = self._files(family, catalog.vector(family), parts).drop(COMMIT)
                ordered = self._by_subscriber(rows, count_rows(parts))
                with job_description(self._store.spark, f"compact {family} of {folder_name(self.path)}"):
                    made = self._store.rewrite(ordered, f"{INBOXES}/{family}", parts)
                saved += count_files(parts) - count_files(made)
        return saved

    def delete(
        self, what: Subscription | str | type, *, dry_run: bool = False, progress: ProgressHandler | None = None
    ) -> RemovalResult:
        """Remove the deliveries of events that match a subscription, in one commit; see `Lake.delete`.

        Delete in the lake first: a delivery that is running then finds the events no more, or is done again.
        """
        return self._remove("delete", what, None, dry_run, progress)

    def expire(
        self,
        what: Subscription | str | type | None = None,
        older_than: Span | None = None,
        *,
        now: datetime | None = None,
        dry_run: bool = False,
        progress: ProgressHandler | None = None,
    ) -> RemovalResult:
        """Remove the deliveries of old events in one commit; the arguments are those of `Lake.expire`.

        Inboxes have no stored policy, so `older_than` must be given. SpanError if it is no length of time above zero.
        """
        if older_than is None:
            raise LakeError("older_than is required, such as '90 days'")
        return self._remove(
            "expire", "Event" if what is None else what, time_before(older_than, now), dry_run, progress
        )

    def _remove(
        self,
        kind: Literal["delete", "expire"],
        what: Subscription | str | type,
        before: datetime | None,
        dry_run: bool,
        progress: ProgressHandler | None,
    ) -> RemovalResult:
        catalog = self._catalog()
        subscription = SubscriptionResolver(catalog).resolve(what)
        rule = RemovalRule(subscription, matching_types(subscription, catalog), before)
        tables = EventTables(self._store, lambda family: f"{INBOXES}/{family}", False, self._catalog, self._files)
        return remove_events(tables, [rule], kind, dry_run=dry_run, progress=progress)

    def clean(self, older_than: Span = "7 days") -> int:
        """Remove folders that were compacted that long ago, or left by killed deliveries; returns their number."""
        tables = [found.path[len(self.path) + 1 :] for found in self._store.files.list_folder(f"{self.path}/{INBOXES}")]
        return self._store.clean(tables, seconds(older_than, "older_than"))

    def check(self, *, content: bool = True) -> list[StoreProblem]:
        """Compare the files with the ledger, and with `content` their checksums; an empty list if they agree."""
        return list(self._store.check(content=content))
