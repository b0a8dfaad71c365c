"""Inboxes: the matches that were delivered to each subscriber.

There is one table per family, not one folder per subscriber, for any number of subscribers. Every delivery is sorted by
subscriber, so that reading one inbox opens few files and few row groups. A delivery and the version of the lake that it
processed are one commit, so that every match is delivered once, even if a delivery is killed and started again.
"""

import os
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.lake._query.route_plan import RoutePlan
from genus.lake._stream.increments import Increment, UpdateResult, next_increment
from genus.lake._tables.columns import (
    COMMIT,
    COMMON_COLUMNS,
    DAY,
    SUBSCRIBER,
    SUBSCRIPTION,
    table_schema,
    with_first_names,
    with_present_names,
)
from genus.lake._tables.lake_catalog import CATALOG_FILE, family_name
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import CommitConflict, CommitDraft, Part, count_files, count_rows
from genus.lake._tables.store import Store, StoreProblem
from genus.model import Vector

INBOXES = "inboxes"
ROWS_PER_FILE, EVENTS_PER_FILE, MAX_FILES = 8_000_000, 1_000_000, 64
_NUMBER, _TEXT = "__number", "__text"
_ADDRESS = [StructField(SUBSCRIBER, StringType()), StructField(SUBSCRIPTION, StringType())]


class Matcher(Protocol):
    """What a delivery needs of a `Route`."""

    @property
    def lake(self) -> LakeTables:
        """The lake whose events are delivered."""

    def plan(self) -> RoutePlan:
        """The present plan."""

    def texts(self) -> list[str]:
        """The subscriptions of the last plan as text, by number."""

    @property
    def problem(self) -> str | None:
        """Why the previous list of subscriptions is used."""


class Inboxes:
    """The inboxes at a path, to which `Route.to_inboxes` and streams deliver.

    Args:
        spark: Your session.
        path: The path that was given to `to_inboxes`.

    Raises:
        LakeError: There are no inboxes at the path.
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self._store = Store(spark, path)
        self.path = self._store.path
        if not self._store.ledger.exists:
            raise LakeError(f"{self.path} has no inboxes; create them with lake.route(...).to_inboxes(path)")

    @classmethod
    def at(cls, lake: LakeTables, path: str | os.PathLike[str]) -> "Inboxes":
        """Open the inboxes of a lake at a path, or create them; LakeError if they belong to another lake."""
        Store(lake.spark, path).claim({"lake": lake.path, "holds": "inboxes"})
        return cls(lake.spark, path)

    @property
    def version(self) -> int:
        """The version of the lake that was delivered last."""
        return self._store.state().cursor

    # -- delivery ----------------------------------------------------------------------------------------------------

    def deliver(self, route: Matcher) -> UpdateResult:
        """Deliver the matches of events that came into the lake since the last delivery."""
        while True:
            new = next_increment(route.lake, self.version)
            if new is None:
                return UpdateResult(self.version, 0, 0)
            draft = self._draft(route, new)
            try:
                self._store.commit(draft)
            except CommitConflict:
                self._store.discard(draft)
                continue
            return UpdateResult(new.upto, new.rows, count_rows(draft.added), problem=route.problem)

    def _draft(self, route: Matcher, new: Increment) -> CommitDraft:
        plan, texts = route.plan(), route.texts()
        draft = self._store.begin("deliver")
        self._copy_catalog(route.lake)
        added: list[Part] = []
        for family in new.families:
            if family in plan.families:
                matches = plan.matches(new.events(route.lake, family), family).drop(COMMIT, DAY)
                stored = with_first_names(matches, route.lake.catalog.vector(family))
                ordered = self._by_subscriber(self._with_texts(stored, texts), new.rows)
                added += self._write(ordered, draft, family)
        return msgspec.structs.replace(draft, added=tuple(added), after=new.after, upto=new.upto)

    def _with_texts(self, matches: DataFrame, texts: Sequence[str]) -> DataFrame:
        """Matches with the text of the subscription instead of its number, which changes with the list."""
        numbered = pa.table({_NUMBER: pa.array(range(len(texts)), pa.int32()), _TEXT: pa.array(texts, pa.string())})
        named = F.broadcast(self._store.spark.createDataFrame(numbered))
        rest = [F.col(name) for name in matches.columns if name not in (SUBSCRIBER, SUBSCRIPTION)]
        found = matches.join(named, F.col(SUBSCRIPTION) == F.col(_NUMBER))
        return found.select(SUBSCRIBER, F.col(_TEXT).alias(SUBSCRIPTION), *rest)

    def _write(self, matches: DataFrame, draft: CommitDraft, family: str) -> Iterable[Part]:
        parts = self._store.write(matches, draft, f"{INBOXES}/{family}", most=ROWS_PER_FILE)
        return [msgspec.structs.replace(part, table=family) for part in parts]

    def _by_subscriber(self, matches: DataFrame, events: int) -> DataFrame:
        """Sort by subscriber, in few files; with adaptive execution Spark merges small partitions itself."""
        adaptive = self._store.spark.conf.get("spark.sql.adaptive.enabled") == "true"
        few = () if adaptive else (min(-(-events // EVENTS_PER_FILE), MAX_FILES),)
        return matches.repartition(*few, F.col(SUBSCRIBER)).sortWithinPartitions(SUBSCRIBER, "time")

    def _copy_catalog(self, lake: LakeTables) -> None:
        """Keep a copy of the lake's catalog, which has the columns of the tables."""
        text = lake.catalog.text().encode()
        if self._store.files.read(f"{self.path}/{CATALOG_FILE}") != text:
            self._store.files.replace(f"{self.path}/{CATALOG_FILE}", text)

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
        content = self._store.files.read(f"{self.path}/{CATALOG_FILE}")
        return Catalog() if content is None else Catalog.parse(content.decode())

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
        return count_files(parts) - count_files(self._store.rewrite(ordered, f"{INBOXES}/{family}", parts))

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that were compacted that long ago, or left by killed deliveries; returns their number."""
        tables = [found.path[len(self.path) + 1 :] for found in self._store.files.list_folder(f"{self.path}/{INBOXES}")]
        return self._store.clean(tables, older_than_s)

    def check(self) -> list[StoreProblem]:
        """Compare the files with the ledger; an empty list if they agree."""
        return self._store.check()
