"""An open lake: the session, the store, the catalog and the event tables, for all layers above."""

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus.lake._tables.columns import COMMIT, DEAD, DEAD_LETTERS, DEAD_SCHEMA, SOURCE, table_folder
from genus.lake._tables.commits import Part
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.spark_columns import spark_schema, table_schema, with_present_names
from genus.lake._tables.spark_store import SparkStore


class LakeTables(LakeFolder):
    """Base of `Lake`: what ingest, queries and followers need of a lake."""

    store: SparkStore

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        super().__init__(SparkStore(spark, path))

    def table(self, family: type | str) -> DataFrame:
        """All events of a family with all columns; any type of the family names it."""
        name = family_name(family, self.catalog)
        return self.events(name, self.state().table(name))

    def events(self, family: str, parts: Sequence[Part]) -> DataFrame:
        """The events in some parts of a family's table."""
        vector = self.catalog.vector(family)
        return with_present_names(self.store.frame(parts, table_schema(vector), table_folder(family)), vector)

    def dead_letters(self, *, after: int = 0) -> DataFrame:
        """The dead letters: `reason`, `path`, `_position`, `raw` and more, without those ingested successfully since.

        Args:
            after: A version of the lake; only dead letters of files that were ingested after it. 0 for all.
        """
        state = self.state()
        frame = self.store.frame(state.table(DEAD_LETTERS), spark_schema(DEAD_SCHEMA, COMMIT), DEAD)
        frame = frame.withColumn(COMMIT, F.substring_index(COMMIT, "-", 1))  # without the id of a deletion
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
