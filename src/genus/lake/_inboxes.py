"""Inboxes: what was delivered to each subscriber, for ten of them or a hundred thousand.

There is one table per family, not a folder per subscriber: every delivery is sorted by subscriber, so that reading one
inbox opens few files and few row groups of them. A delivery and the version of the lake that it came to are one commit;
hence every match is in its inbox once, however often a delivery is killed and begun again.
"""

import os
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.lake._increments import Followed, Increment, increment
from genus.lake._tables.columns import COMMIT, COMMON, DAY, SUBSCRIBER, SUBSCRIPTION, table_schema
from genus.lake._tables.lake_catalog import CATALOG, family_of
from genus.lake._tables.ledger import Draft, Overtaken, Part, files_in, rows_in
from genus.lake._tables.store import Problem, Store

if TYPE_CHECKING:
    from genus.lake._lake import Lake
    from genus.lake._routing import Route

INBOXES = "inboxes"
ROWS_PER_FILE, EVENTS_PER_FILE, MOST_FILES = 8_000_000, 1_000_000, 64
_NUMBER, _TEXT = "__number", "__text"
_ADDRESS = [StructField(SUBSCRIBER, StringType()), StructField(SUBSCRIPTION, StringType())]


class Inboxes:
    """The inboxes at a path; `Route.to_inboxes` and streams deliver to them."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self._store = Store(spark, path)
        self.path = self._store.path
        if not self._store.ledger.exists:
            raise LakeError(f"{self.path} holds no inboxes; deliver some with lake.route(...).to_inboxes(path)")

    @classmethod
    def at(cls, lake: "Lake", path: str | os.PathLike[str]) -> "Inboxes":
        """The inboxes of a lake at a path, made if there are none; refused if they belong to another lake."""
        Store(lake.spark, path).claim({"lake": lake.path, "holds": "inboxes"})
        return cls(lake.spark, path)

    @property
    def version(self) -> int:
        """The version of the lake that was delivered last."""
        return self._store.state().cursor

    # -- in ----------------------------------------------------------------------------------------------------------

    def deliver(self, route: "Route") -> Followed:
        """Deliver what came into the lake since the last time; nothing is delivered twice."""
        while True:
            new = increment(route.lake, self.version)
            if new is None:
                return Followed(self.version, 0, 0)
            draft = self._draft(route, new)
            try:
                self._store.commit(draft)
            except Overtaken:
                self._store.discard(draft)
                continue
            return Followed(new.upto, new.rows, rows_in(draft.added), problem=route.subscriptions.problem)

    def _draft(self, route: "Route", new: Increment) -> Draft:
        plan, texts = route.plan(), route.texts()
        draft = self._store.begin("deliver")
        self._agree(route.lake)
        added: list[Part] = []
        for family in new.families:
            if family in plan.families:
                matches = plan.matches(new.events(route.lake, family), family).drop(COMMIT, DAY)
                ordered = self._by_subscriber(self._with_texts(matches, texts), new.rows)
                added += self._write(ordered, draft, family)
        return msgspec.structs.replace(draft, added=tuple(added), after=new.after, upto=new.upto)

    def _with_texts(self, matches: DataFrame, texts: Sequence[str]) -> DataFrame:
        """Subscriptions by their texts: their places in a list change when the list does."""
        numbered = pa.table({_NUMBER: pa.array(range(len(texts)), pa.int32()), _TEXT: pa.array(texts, pa.string())})
        named = F.broadcast(self._store.spark.createDataFrame(numbered))
        rest = [F.col(name) for name in matches.columns if name not in (SUBSCRIBER, SUBSCRIPTION)]
        found = matches.join(named, F.col(SUBSCRIPTION) == F.col(_NUMBER))
        return found.select(SUBSCRIBER, F.col(_TEXT).alias(SUBSCRIPTION), *rest)

    def _write(self, matches: DataFrame, draft: Draft, family: str) -> Iterable[Part]:
        parts = self._store.write(matches, draft, f"{INBOXES}/{family}", most=ROWS_PER_FILE)
        return [msgspec.structs.replace(part, table=family) for part in parts]

    def _by_subscriber(self, matches: DataFrame, events: int) -> DataFrame:
        """Sorted by subscriber, in few files: Spark joins small ones by itself, unless it is told not to."""
        adapts = self._store.spark.conf.get("spark.sql.adaptive.enabled") == "true"
        few = () if adapts else (min(-(-events // EVENTS_PER_FILE), MOST_FILES),)
        return matches.repartition(*few, F.col(SUBSCRIBER)).sortWithinPartitions(SUBSCRIBER, "time")

    def _agree(self, lake: "Lake") -> None:
        """Keep a copy of the lake's catalog: it says what the columns are."""
        text = lake.catalog.text().encode()
        if self._store.files.read(f"{self.path}/{CATALOG}") != text:
            self._store.files.replace(f"{self.path}/{CATALOG}", text)

    # -- out ---------------------------------------------------------------------------------------------------------

    def read(self, subscriber: str | None = None, family: str | None = None) -> DataFrame:
        """What was delivered to one subscriber, or to all: of one family with all its columns, else those of all."""
        catalog = self._catalog()
        if family is not None:
            return self._of(subscriber, family_of(family, catalog), catalog)
        tables = self._store.state().tables
        if len(tables) == 1:
            return self._of(subscriber, tables[0], catalog)
        frames = [self._of(subscriber, table, catalog).select(SUBSCRIBER, SUBSCRIPTION, *COMMON) for table in tables]
        return reduce(DataFrame.unionByName, frames) if frames else self._of(subscriber, "Event", catalog)

    def _of(
        self, subscriber: str | None, family: str, catalog: Catalog, parts: Sequence[Part] | None = None
    ) -> DataFrame:
        fields = [field for field in table_schema(catalog.vector(family)).fields if field.name not in (COMMIT, DAY)]
        schema = StructType([*_ADDRESS, *fields, StructField(COMMIT, StringType())])
        parts = self._store.state().table(family) if parts is None else parts
        frame = self._store.frame(parts, schema, f"{INBOXES}/{family}")
        return frame if subscriber is None else frame.where(F.col(SUBSCRIBER) == subscriber)

    def subscribers(self) -> DataFrame:
        """How much each subscriber got: subscriber and events."""
        frames = [self._of(None, table, self._catalog()).select(SUBSCRIBER) for table in self._store.state().tables]
        everyone = reduce(DataFrame.unionAll, frames) if frames else self.read().select(SUBSCRIBER)
        return everyone.groupBy(SUBSCRIBER).agg(F.count(F.lit(1)).alias("events"))

    def _catalog(self) -> Catalog:
        content = self._store.files.read(f"{self.path}/{CATALOG}")
        return Catalog() if content is None else Catalog.parse(content.decode())

    # -- keeping -----------------------------------------------------------------------------------------------------

    def compact(self) -> int:
        """Write the many small deliveries of each family anew as one; returns how many files there are less."""
        state, catalog, saved = self._store.state(), self._catalog(), 0
        for family in state.tables:
            parts = state.table(family)
            if len(parts) > 1:
                saved += self._compact(family, parts, catalog)
        return saved

    def _compact(self, family: str, parts: list[Part], catalog: Catalog) -> int:
        rows = self._of(None, family, catalog, parts).drop(COMMIT)
        ordered = self._by_subscriber(rows, rows_in(parts))
        return files_in(parts) - files_in(self._store.rewrite(ordered, f"{INBOXES}/{family}", parts))

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that do not count any more, or that a killed delivery left; returns how many."""
        tables = [found.path[len(self.path) + 1 :] for found in self._store.files.listing(f"{self.path}/{INBOXES}")]
        return self._store.clean(tables, older_than_s)

    def check(self) -> list[Problem]:
        """What is wrong with the files; nothing if all is well."""
        return self._store.check()
