"""Inboxes: the matches that were delivered to each subscriber.

There is one table per family, not one folder per subscriber, for any number of subscribers. Every delivery is sorted by
subscriber, so that reading one inbox opens few files and few row groups. A delivery and the version of the lake that it
processed are one commit, so that every match is delivered once, even if a delivery is killed and started again.
"""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Protocol

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
from genus.lake._query.route_job import RouteJob
from genus.lake._query.route_plan import RoutePlan
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._stream.backfill import BACKFILLED, Backfill, BackfillList
from genus.lake._stream.delivery import Delivery
from genus.lake._stream.increments import Increment, UpdateResult, last_common, next_increment
from genus.lake._tables.commits import DELETION, START, CommitConflict, CommitDraft, Part, count_files, count_rows
from genus.lake._tables.lake_catalog import SubscriptionResolver, family_name, matching_types
from genus.lake._tables.lake_tables import LakeTables, table_schema, with_first_names, with_present_names
from genus.lake._tables.names import COMMIT, COMMON_COLUMNS, DAY, EVENT_ID, SUBSCRIBER, SUBSCRIPTION
from genus.lake._tables.spark_store import SparkStore
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import StoreProblem
from genus.model import Span, Vector, seconds

INBOXES = "inboxes"
EVENTS_PER_FILE, MAX_FILES = 1_000_000, 64
_ADDRESS = [StructField(SUBSCRIBER, StringType()), StructField(SUBSCRIPTION, StringType())]


class Matcher(Protocol):
    """What a delivery needs of a `Route`."""

    @property
    def lake(self) -> LakeTables:
        """The lake whose events are delivered."""

    def plan(self) -> RoutePlan:
        """The present plan."""

    def subscriptions(self) -> list[RouteEntry]:
        """The present subscriptions."""

    def texts(self) -> list[str]:
        """The subscriptions of the last plan as text, by number."""

    @property
    def job(self) -> RouteJob:
        """The job of the last plan."""

    @property
    def problem(self) -> str | None:
        """Which subscriptions are not used, and why; or why the previous list is used."""


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
        self._delivery: Delivery | None = None
        self._lake: LakeTables | None = None
        self._backfills = BackfillList()
        if not self._store.ledger.exists:
            raise LakeError(f"{self.path} has no inboxes; create them with lake.route(...).to_inboxes(path)")
        self._store.check_holds("inboxes")

    @classmethod
    def at(cls, lake: LakeTables, path: str | os.PathLike[str]) -> "Inboxes":
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

    def deliver(self, route: Matcher) -> UpdateResult:
        """Deliver the matches of events that came into the lake since the last delivery.

        Subscriptions that are new and ask for it (`RouteEntry.since`) also get events that were there before.
        """
        with self._store.discarding():
            delivered = self._deliver(route)
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
        state, back = self._store.state(), last_common(lake, self._store)
        if back.upto != state.cursor:
            draft = self._store.begin("rewind")
            notes = {BACKFILLED: back.notes.get(BACKFILLED, "")}
            self._store.commit(
                msgspec.structs.replace(
                    draft, removed=back.folders, after=state.cursor, upto=back.upto, base=state.version, notes=notes
                )
            )
        return back.upto.version

    def _deliver(self, route: Matcher) -> UpdateResult:
        while True:
            before = self._store.state()
            new = next_increment(route.lake, before.cursor, self.path)
            if new is None:
                return UpdateResult(self.version, 0, 0)
            draft = msgspec.structs.replace(self._draft(route, new), deletion=before.notes.get(DELETION, ""))
            try:
                self._store.commit(draft)
            except CommitConflict:
                self._store.discard(draft)
                continue
            return UpdateResult(new.upto.version, new.rows, count_rows(draft.added), problem=route.problem)

    def _draft(self, route: Matcher, new: Increment) -> CommitDraft:
        route.plan()
        draft = self._store.begin("deliver")
        added = self._write(route, new, draft)
        first = new.after == START  # all subscriptions get all events
        notes = {BACKFILLED: self._backfills.note(route.subscriptions())} if first else {}
        return msgspec.structs.replace(
            draft,
            added=added,
            after=new.after,
            upto=new.upto,
            catalog=self._new_catalog(route.lake),
            notes=notes,
        )

    def _backfill(self, route: Matcher) -> int:
        """Deliver events of before to subscriptions that ask for them, in one commit; returns the number of matches.

        Events that a subscription has got already are left out. If the lake has new events, the next call does it.
        """
        while True:
            before, lake = self._store.state(), route.lake.state()
            entries, noted = route.subscriptions(), before.notes.get(BACKFILLED, "")
            listed = self._backfills.note(entries)
            if listed == noted or lake.now != before.cursor:
                return 0
            draft = self._store.begin("deliver")
            due = self._backfills.due(entries, noted)
            added = tuple(self._write_backfill(Backfill(route.lake, due), lake, draft)) if due else ()
            catalog, notes = self._new_catalog(route.lake), {BACKFILLED: listed}
            draft = msgspec.structs.replace(draft, added=added, base=before.version, catalog=catalog, notes=notes)
            try:
                self._store.commit(draft)
            except CommitConflict:
                self._store.discard(draft)
                continue
            return count_rows(added)

    def _write_backfill(self, backfill: Backfill, lake: LedgerState, draft: CommitDraft) -> Iterator[Part]:
        for family in backfill.families:
            vector = backfill.lake.catalog.vector(family)
            found = with_first_names(backfill.matches(family, lake).drop(COMMIT, DAY), vector)
            delivered = self._store.state().table(family)
            if delivered:
                known = self._files(family, vector, delivered).select(SUBSCRIBER, SUBSCRIPTION, *EVENT_ID)
                found = found.join(known, [SUBSCRIBER, SUBSCRIPTION, *EVENT_ID], "left_anti").select(*found.columns)
            ordered = self._by_subscriber(found, count_rows(lake.table(family)))
            with job_description(self._store.spark, f"deliver earlier events to {folder_name(self.path)}"):
                parts = self._store.write(ordered, draft, f"{INBOXES}/{family}")
            yield from (msgspec.structs.replace(part, table=family) for part in parts)

    def _write(self, route: Matcher, new: Increment, draft: CommitDraft) -> tuple[Part, ...]:
        """Write the matches of new events."""
        if self._delivery is None or self._delivery.job is not route.job:
            self._delivery = Delivery(route.job, route.texts())
        return self._delivery.write(self._store, new, draft, INBOXES)

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
        """The matches that were delivered: subscriber, text of the subscription, and columns of the event.

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
        """The rows of some parts, with the column names of files."""
        fields = [field for field in table_schema(vector).fields if field.name not in (COMMIT, DAY)]
        schema = StructType([*_ADDRESS, *fields, StructField(COMMIT, StringType())])
        return self._store.frame(parts, schema, f"{INBOXES}/{family}")

    def subscribers(self) -> DataFrame:
        """The number of deliveries to each subscriber: `subscriber`, `events`."""
        frames = [self._table(None, table, self._catalog()).select(SUBSCRIBER) for table in self._store.state().tables]
        everyone = reduce(DataFrame.unionAll, frames) if frames else self.read().select(SUBSCRIBER)
        return everyone.groupBy(SUBSCRIBER).agg(F.count(F.lit(1)).alias("events"))

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
            parts = state.table(family)
            if len(parts) > 1:
                saved += self._compact(family, parts, catalog)
        return saved

    def _compact(self, family: str, parts: list[Part], catalog: Catalog) -> int:
        rows = self._files(family, catalog.vector(family), parts).drop(COMMIT)
        ordered = self._by_subscriber(rows, count_rows(parts))
        with job_description(self._store.spark, f"compact {family} of {folder_name(self.path)}"):
            return count_files(parts) - count_files(self._store.rewrite(ordered, f"{INBOXES}/{family}", parts))

    def delete(
        self, what: Subscription | str | type, *, dry_run: bool = False, progress: ProgressHandler | None = None
    ) -> RemovalResult:
        """Remove the deliveries of events that match a subscription, in one commit; see `Lake.delete`.

        Delete in the lake first: a delivery that is running then finds the events no more, or is done again.
        """
        catalog = self._catalog()
        subscription = SubscriptionResolver(catalog).resolve(what)
        rule = RemovalRule(subscription, matching_types(subscription, catalog))
        return remove_events(self._tables, [rule], "delete", dry_run=dry_run, progress=progress)

    def expire(
        self,
        what: Subscription | str | type | None = None,
        older_than: Span | None = None,
        *,
        now: datetime | None = None,
        dry_run: bool = False,
        progress: ProgressHandler | None = None,
    ) -> RemovalResult:
        """Remove the deliveries of old events in one commit; see `Lake.expire`. Inboxes have no stored policy.

        Args:
            what: A subscription; None for all events.
            older_than: The age, such as `"90 days"`, which must be given.
            now: The time from which the age is counted.
            dry_run: Only count; nothing is changed.
            progress: Called with the number of folders that are rewritten and the total.

        Raises:
            LakeError: There is no age.
            SpanError: The age is no length of time above zero.
        """
        if older_than is None:
            raise LakeError("older_than is required, such as '90 days'")
        catalog = self._catalog()
        subscription = SubscriptionResolver(catalog).resolve("Event" if what is None else what)
        rule = RemovalRule(subscription, matching_types(subscription, catalog), time_before(older_than, now))
        return remove_events(self._tables, [rule], "expire", dry_run=dry_run, progress=progress)

    @property
    def _tables(self) -> EventTables:
        return EventTables(self._store, lambda family: f"{INBOXES}/{family}", False, self._catalog, self._files)

    def clean(self, older_than: Span = "7 days") -> int:
        """Remove folders that were compacted that long ago, or left by killed deliveries; returns their number."""
        tables = [found.path[len(self.path) + 1 :] for found in self._store.files.list_folder(f"{self.path}/{INBOXES}")]
        return self._store.clean(tables, seconds(older_than, "older_than"))

    def check(self, *, content: bool = True) -> list[StoreProblem]:
        """Compare the files with the ledger; an empty list if they agree.

        Args:
            content: Also compare the checksums of the files, which reads all of them.
        """
        return list(self._store.check(content=content))
