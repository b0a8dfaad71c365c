"""`spark.read.format("genus")`: typed events of files that are in no lake, as rows.

Recordings, CAN logs and files with a mapping are read where they lie, by the formats that ingest uses, a split a task;
rows have the columns that `Lake.read` gives, except the day. Nothing is kept: every query decodes the files anew, and
whatever it filters by is tested after that. What is asked more than once belongs into a lake, whose views
(`Lake.views`) are plain Parquet to Spark.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._ingest.format import Chunk, Columns, Format, Split, TypePlan, types_of
from genus.lake._ingest.job import SPLIT_BYTES
from genus.lake._ingest.sources import Chooser
from genus.lake._ingest.writer import DEAD_SCHEMA, Origin, letter_rows, table_rows, tags_of
from genus.lake._tables.columns import OWN, TYPE, attribute_schema, spark_schema
from genus.lake._tables.files import found_in_tasks, open_input, size_of
from genus.lake._tables.lake_catalog import CATALOG, Terms, type_names
from genus.model import Event, attributes, is_event_type
from genus.targets import arrow

_OPTIONS = ("catalog", "dbc", "dead", "format", "mapping", "path", "paths", "splitBytes", "subscription", "type")


def register(spark: SparkSession) -> None:
    """Let a session read `format("genus")`; workers without Genus need `genus.lake.ship` first."""
    spark.dataSource.register(GenusDataSource)


class GenusDataSource(DataSource):
    """What `spark.read.format("genus")` stands for.

    | option | |
    |---|---|
    | `subscription` | what to read, as text: `Loop has place where speed > 30` |
    | `type` | the same for a type alone |
    | `catalog` | a catalog's file, or a lake's folder; the types of `dbc`, if that is given, are added to it |
    | `format`, `mapping`, `dbc` | as in `Lake.ingest` |
    | `dead` | `true` gives what is no event instead: reason, path, position and raw text |
    | `splitBytes` | how much of a file a task reads |
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "genus"

    def schema(self) -> StructType:
        """The columns of the type that is asked for, or of dead letters."""
        return spark_schema(asked_by(self.options).columns)

    def reader(self, schema: StructType) -> "GenusReader":
        """A reader of the columns that are wanted: all, or those of `.schema(...)`."""
        asked = asked_by(self.options)
        return GenusReader(asked, chosen(asked.columns, schema), self.options)


class GenusReader(DataSourceReader):
    """Reads splits of files; filters of the query are left to Spark."""

    def __init__(self, asked: "Asked", columns: pa.Schema, options: Mapping[str, str]) -> None:
        self._asked, self._columns, self._options = asked, columns, options

    def partitions(self) -> list[InputPartition]:
        """One task a split; they are not kept, for the reader goes to every task."""
        return [InputPartition(piece) for piece in pieces(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split, as they are decoded."""
        piece: Piece | None = partition.value
        if piece is None:  # where there are no partitions, Spark asks for one with nothing
            return
        for chunk in piece.format.read(piece.split, types_of(self._asked.catalog)):
            rows = self._asked.rows(chunk, piece.origin, self._columns)
            if rows is not None:
                yield from rows.combine_chunks().to_batches()


# -- what is asked for -------------------------------------------------------------------------------------------------


class Events(msgspec.Struct, frozen=True):
    """The events that match a subscription; texts, for these are understood by every process."""

    catalog: str
    subscription: str

    @property
    def columns(self) -> pa.Schema:
        """Those of the type, and Genus' own."""
        cls = _parsed(self).type
        cls = cls if is_event_type(cls) else Event
        stored = attribute_schema(types_of(self.catalog).catalog.vector(cls))
        return pa.schema([*(stored.field(attribute.name) for attribute in attributes(cls)), *OWN])

    def rows(self, chunk: Chunk, origin: "Origin", columns: pa.Schema) -> pa.Table | None:
        """The rows of a chunk that match."""
        plan = None if isinstance(chunk, list) else types_of(self.catalog).plan(chunk.type)
        if isinstance(chunk, list) or plan is None or chunk.type not in _names(self):
            return None
        rows = chunk.batch.filter(_filter(self).mask(_comparable(chunk, plan)))
        return table_rows(rows, plan, tags_of(rows, plan), origin, columns)


class DeadLetters(msgspec.Struct, frozen=True):
    """What is no event."""

    catalog: str

    @property
    def columns(self) -> pa.Schema:
        """Those of a lake's dead letters."""
        return DEAD_SCHEMA

    def rows(self, chunk: Chunk, origin: "Origin", columns: pa.Schema) -> pa.Table | None:
        """The dead letters of a chunk."""
        return letter_rows(chunk, origin).select(columns.names).cast(columns) if isinstance(chunk, list) else None


Asked: TypeAlias = Events | DeadLetters


def asked_by(options: Mapping[str, str]) -> Asked:
    """What options ask for; LakeError names the one that is missing or wrong."""
    known = {name.lower() for name in _OPTIONS}
    if unknown := sorted(name for name in options if name.lower() not in known):
        raise LakeError(f"no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    if options.get("dead", "false").lower() == "true":
        return DeadLetters(_catalog_text(options))
    if not (text := options.get("subscription") or options.get("type")):
        raise LakeError("nothing is asked for; give option 'type' or 'subscription'")
    return Events(_catalog_text(options), text)


def _catalog_text(options: Mapping[str, str]) -> str:
    """The catalog's text; types of a DBC file are added to it here, not in its file."""
    path, dbc = options.get("catalog"), options.get("dbc")
    if path is None and dbc is None:
        raise LakeError("no types are known; give option 'catalog': a catalog's file, or a lake's folder")
    text = "" if path is None else _read_text(path if path.endswith(".json") else f"{path.rstrip('/')}/{CATALOG}")
    if dbc is None:
        return text
    from genus.lake._ingest.can_logs import types_of_dbc  # cantools is an extra

    catalog = Catalog.parse(text) if text else Catalog()
    catalog.register(*types_of_dbc(dbc))
    return catalog.text()


def _read_text(path: str) -> str:
    try:
        with open_input(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise LakeError(f"cannot read {path}, given by option 'catalog': {problem}") from problem


@lru_cache(maxsize=4)
def _parsed(asked: Events) -> Subscription:
    return Terms(types_of(asked.catalog).catalog)(asked.subscription)


@lru_cache(maxsize=4)
def _filter(asked: Events) -> arrow.ArrowFilter:
    return arrow.compile(_parsed(asked))


@lru_cache(maxsize=4)
def _names(asked: Events) -> frozenset[str]:
    """The types whose events can match."""
    found = type_names(_parsed(asked), types_of(asked.catalog).catalog)
    return frozenset(name for names in found.values() for name in names)


def _comparable(chunk: Columns, plan: TypePlan) -> pa.RecordBatch:
    """A chunk as the Arrow target takes it, which has unsigned integers where a lake has wider signed ones."""
    types = {attribute.name: arrow.stored_type(attribute.type) for attribute in plan.attributes}
    there = [name for name in chunk.batch.schema.names if name in types]
    columns = [chunk.batch.column(name).cast(types[name]) for name in there]
    return pa.record_batch([pa.repeat(chunk.type, chunk.batch.num_rows), *columns], names=[TYPE, *there])


# -- what is read ------------------------------------------------------------------------------------------------------


class Piece(msgspec.Struct, frozen=True):
    """What one task reads."""

    split: Split
    format: Format
    origin: Origin


def pieces(options: Mapping[str, str]) -> Iterator[Piece]:
    """The splits of all files that were given to `load`."""
    choose = Chooser(options.get("format"), options.get("mapping"), options.get("dbc"))
    at_us, target = time.time_ns() // 1000, int(options.get("splitBytes", SPLIT_BYTES))
    for path in dict.fromkeys(path for given in _paths(options) for path in _found(given)):
        format = choose(path)
        origin = Origin("", "", _number(path), path, 0, at_us)
        for split in format.splits(path, size_of(path), target):
            yield Piece(split, format, origin)


def _paths(options: Mapping[str, str]) -> list[str]:
    """What was given to `load`: Spark makes an option of it."""
    several: list[str] = json.loads(options.get("paths", "[]"))
    if not (given := [*several, *([options["path"]] if "path" in options else [])]):
        raise LakeError("no files are given; name files, folders or patterns in load(...)")
    return given


def _found(path: str) -> list[str]:
    if not (found := found_in_tasks(path)):
        raise LakeError(f"{path}: there is no such file, or nothing in that folder")
    return found


def _number(path: str) -> int:
    """The source's number: here of the path, for files are not read twice to number their contents."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little", signed=True)


def chosen(columns: pa.Schema, wanted: StructType) -> pa.Schema:
    """The columns that a schema names, in its order; LakeError if there is none of a name, or it has another type."""
    types = {field.name: field.dataType for field in spark_schema(columns).fields}
    for field in wanted.fields:
        if field.name not in types:
            raise LakeError(f"no column {field.name!r}; there are {', '.join(columns.names)}")
        if field.dataType != types[field.name]:
            told, is_ = field.dataType.simpleString(), types[field.name].simpleString()
            raise LakeError(f"column {field.name!r} is {is_}, not {told}; cast it after it is read")
    return pa.schema([pa.field(field.name, columns.field(field.name).type, field.nullable) for field in wanted.fields])
