"""An open lake: the session, the store, the catalog and the event tables, for all layers above."""

import os
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus.catalog import Catalog, RegistrationResult
from genus.errors import LakeError
from genus.filters import AllOf, Subscription
from genus.lake._tables.columns import (
    COMMIT,
    DEAD,
    DEAD_LETTERS,
    DEAD_SCHEMA,
    SOURCE,
    TABLES,
    spark_schema,
    table_schema,
    with_present_names,
)
from genus.lake._tables.lake_catalog import CatalogFile, SubscriptionResolver, family_name
from genus.lake._tables.ledger import LedgerState, Part
from genus.lake._tables.store import Store


class LakeTables:
    """Base of `Lake`: what ingest, queries and followers need of a lake."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        self.store = Store(spark, path)
        self.path = self.store.path
        if not self.store.ledger.exists:
            raise LakeError(f"{self.path} is not a lake; create one with Lake.create or `genus lake init`")
        self.catalog_file = CatalogFile(self.store.files, self.path)

    @property
    def catalog(self) -> Catalog:
        """The present catalog of the lake; add types with `register`."""
        return self.catalog_file.catalog

    @property
    def catalog_path(self) -> str:
        """The path of the catalog file, which a bus or a broker may share."""
        return self.catalog_file.path

    def register(self, *what: type | ModuleType) -> RegistrationResult:
        """Add the types of classes and modules to the catalog.

        Tables get new columns; rows written before have NULL there. CatalogConflict, and nothing is changed, if a type
        contradicts the catalog.
        """
        return self.catalog_file.register(what)

    @property
    def version(self) -> int:
        """The number of commits so far."""
        return self.state().version

    def state(self) -> LedgerState:
        """The present state of the ledger: parts, ingested files and shapes."""
        return self.store.state()

    def table(self, family: type | str) -> DataFrame:
        """All events of a family with all columns; any type of the family names it."""
        name = family_name(family, self.catalog)
        return self.events(name, self.state().table(name))

    def events(self, family: str, parts: Sequence[Part]) -> DataFrame:
        """The events in some parts of a family's table."""
        vector = self.catalog.vector(family)
        return with_present_names(self.store.frame(parts, table_schema(vector), f"{TABLES}/{family}"), vector)

    def dead_letters(self, *, after: int = 0) -> DataFrame:
        """The dead letters: `reason`, `path`, `_position`, `raw` and more, without those ingested successfully since.

        Args:
            after: A version of the lake; only dead letters of files that were ingested after it. 0 for all.
        """
        state = self.state()
        frame = self.store.frame(state.table(DEAD_LETTERS), spark_schema(DEAD_SCHEMA, COMMIT), DEAD)
        recent = None if not after else {commit.id for commit in self.store.ledger.commits(after, state.version)}
        latest = [
            (number, source.commit)
            for number, source in state.sources.items()
            if source.dead and (recent is None or source.commit in recent)
        ]
        if not latest:
            return frame.limit(0)
        current = self.spark.createDataFrame(latest, f"{SOURCE} bigint, {COMMIT} string")
        return frame.join(F.broadcast(current), [SOURCE, COMMIT], "left_semi")

    def subscription(self, what: Subscription | str | type | AllOf[Any], *, strict: bool = False) -> Subscription:
        """Resolve a subscription against the catalog; a text may name types for which this process has no class.

        NotRegistered if the catalog lacks a type, LakeError if it lacks an attribute; with `strict`, SubscriptionError
        if no event can match.
        """
        resolver = SubscriptionResolver(self.catalog, partial(Subscription.parse, strict=strict))
        found = resolver.resolve(what)
        if strict:
            resolver.report_never(found, strict=True)
        return found
