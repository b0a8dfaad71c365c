"""Queries of the data source `genus`, and its readers in batch: typed events of a lake, or of files that are in none.

Recordings, CAN logs and files with a mapping are read by the formats of ingest, one split per task. Every query decodes
them again, and its filters are evaluated after that; files that are queried more than once should be ingested into a
lake. Of a lake, tasks read the row groups that can have matches. Rows have the columns of `Lake.read` except the day.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.filters import Subscription, parse_again
from genus.lake._ingest.format import Chunk, Columns, Format, Split, TypePlan, types_of
from genus.lake._ingest.job import SPLIT_BYTES
from genus.lake._ingest.sources import FormatChooser
from genus.lake._ingest.writer import Origin, dead_letter_table, event_table, presence_bits
from genus.lake._query.scan import DataFile, TableScan
from genus.lake._query.selection import count_parts, select_tables
from genus.lake._tables.commits import TYPE, hash_of
from genus.lake._tables.files import file_info, list_files, open_input
from genus.lake._tables.lake_catalog import CATALOG_FILE, SubscriptionResolver, matching_types
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.lake_tables import spark_schema
from genus.lake._tables.part_writer import DEAD_SCHEMA, OWN_SCHEMA, attribute_schema
from genus.lake._tables.store import Store
from genus.model import Event, attributes, is_event_type
from genus.targets import arrow

_DBC_SWITCHES = ("truncated", "j1939", "nmea2000")
"""Options of `load_dbc`."""
_OPTIONS = (
    *["catalog", "columns", "dbc", "dead", "format", "mapping", "path", "paths", "splitBytes", "subscription"],
    *["timeUnit", "type", "version"],
    *_DBC_SWITCHES,
)


class GenusReader(DataSourceReader):
    """Reads splits of files; Spark applies the filters of the query."""

    def __init__(self, query: "SourceQuery", columns: pa.Schema, options: Mapping[str, str]) -> None:
        self._query, self._columns, self._options = query, columns, options

    def partitions(self) -> list[InputPartition]:
        """One partition per split; they are not stored, because the reader is sent to every task."""
        return [InputPartition(item) for item in plan_splits(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        item: SourceSplit | None = partition.value
        if item is None:  # if there are no partitions, Spark reads one without a value
            return
        for chunk in item.format.read(item.split, types_of(self._query.catalog)):
            rows = self._query.rows(chunk, item.origin, self._columns)
            if rows is not None:
                yield from rows.combine_chunks().to_batches()


# -- lakes -------------------------------------------------------------------------------------------------------------


class LakeFiles(msgspec.Struct, frozen=True):
    family: str
    types: tuple[str, ...]
    """The types that can match."""
    files: list[DataFile]


class LakeBatchReader(DataSourceReader):
    """Reads a version of a lake; rows are those of `Lake.read`."""

    def __init__(self, query: "EventQuery", columns: pa.Schema, path: str, options: Mapping[str, str]) -> None:
        self._query, self._columns, self._path = query, columns, path
        self._version = number_option(options, "version")
        self._bytes = number_option(options, "splitBytes") or SPLIT_BYTES

    def partitions(self) -> list[InputPartition]:
        """Return the files that can have matches, by the ledger; small files of a family are read by one task."""
        lake = LakeFolder(Store(self._path))
        state = lake._state_of(self._version)
        catalog = types_of(self._query.catalog).catalog
        tasks: list[LakeFiles] = []
        with lake._reading(state):
            asked = subscription_of(self._query)
            for family, table in select_tables(asked, catalog, state).items():
                room = 0
                for part, _ in count_parts(asked, table, state):
                    for path, file in zip(lake.store.file_paths([part]), part.files, strict=True):
                        if file.bytes > room:
                            tasks.append(LakeFiles(family, table.types, []))
                            room = self._bytes
                        tasks[-1].files.append(DataFile(path, part.day))
                        room -= file.bytes
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        files: LakeFiles | None = partition.value
        if files is None:
            return
        subscription = subscription_of(self._query)
        vector = types_of(self._query.catalog).catalog.vector(files.family)
        scan = TableScan(subscription, vector, files.types, self._columns)
        for file in files.files:
            yield from scan.read_file(file)


def is_lake(path: str) -> bool:
    """Return whether there is a lake at a path that can be opened without Spark."""
    try:
        store = Store(path) if path else None
    except LakeError:  # a pattern, or another file system
        return False
    return store is not None and store.ledger.exists


# -- queries -----------------------------------------------------------------------------------------------------------


class EventQuery(msgspec.Struct, frozen=True):
    """A query for events; catalog and subscription are text, so that any process can parse them."""

    catalog: str
    subscription: str

    @property
    def columns(self) -> pa.Schema:
        """The attributes of the type, and the columns that Genus adds."""
        cls = subscription_of(self).type
        cls = cls if is_event_type(cls) else Event
        stored = attribute_schema(types_of(self.catalog).catalog.vector(cls))
        return pa.schema([*(stored.field(attribute.name) for attribute in attributes(cls)), *OWN_SCHEMA])

    def rows(self, chunk: Chunk, origin: "Origin", columns: pa.Schema) -> pa.Table | None:
        plan = None if isinstance(chunk, list) else types_of(self.catalog).plan(chunk.type)
        if isinstance(chunk, list) or plan is None or chunk.type not in _type_names(self):
            return None
        rows = chunk.batch.filter(_filter(self).mask(_for_arrow_target(chunk, plan)))
        return event_table(rows, plan, presence_bits(rows, plan), origin, columns)


class DeadLetterQuery(msgspec.Struct, frozen=True):
    catalog: str

    @property
    def columns(self) -> pa.Schema:
        return DEAD_SCHEMA

    def rows(self, chunk: Chunk, origin: "Origin", columns: pa.Schema) -> pa.Table | None:
        return dead_letter_table(chunk, origin).select(columns.names).cast(columns) if isinstance(chunk, list) else None


SourceQuery: TypeAlias = EventQuery | DeadLetterQuery


def parse_options(options: Mapping[str, str]) -> SourceQuery:
    """Return the query of some options; LakeError names the option that is missing or unknown."""
    check_known(options, _OPTIONS)
    if is_on(options, "dead"):
        return DeadLetterQuery(_catalog_text(options))
    if not (text := options.get("subscription") or options.get("type")):
        raise LakeError("the query has no type; give option 'type' or 'subscription'")
    return EventQuery(_catalog_text(options), text)


def check_known(options: Mapping[str, str], known: Sequence[str]) -> None:
    names = {name.lower() for name in known}
    if unknown := sorted(name for name in options if name.lower() not in names):
        raise LakeError(f"unknown option {unknown[0]!r}; the options are {', '.join(known)}")


def number_option(options: Mapping[str, str], name: str) -> int | None:
    """Return a number above 0; None if it is not given, LakeError if it is something else."""
    text = {each.lower(): text for each, text in options.items()}.get(name.lower())
    if text is not None and (not text.isdecimal() or int(text) < 1):
        raise LakeError(f"option {name} is {text!r}; give a number above 0")
    return None if text is None else int(text)


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Return whether a switch is `true`; LakeError if it is neither that nor `false`."""
    text = options.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise LakeError(f"option {name!r} is {text!r}; it must be true or false")
    return text.lower() == "true"


def _catalog_text(options: Mapping[str, str]) -> str:
    """Return the text of the catalog; types of a DBC file are added to the text, not to the file."""
    path, dbc = options.get("catalog"), options.get("dbc")
    if path is None and dbc is None:
        raise LakeError("no catalog; give option 'catalog': a catalog file, or the folder of a lake")
    text = "" if path is None else _read_text(path if path.endswith(".json") else f"{path.rstrip('/')}/{CATALOG_FILE}")
    if dbc is None:
        return text
    catalog = Catalog.parse(text) if text else Catalog()
    catalog.register(*chooser_of(options).types)
    return catalog.text()


def chooser_of(options: Mapping[str, str]) -> FormatChooser:
    dbc: Any = options.get("dbc")
    switches: dict[str, Any] = {each: is_on(options, each) for each in _DBC_SWITCHES if each in options}
    if dbc is not None and switches:
        from genus.can import load_dbc

        dbc = load_dbc(dbc, **switches)
    given = (options.get(name) for name in ("format", "mapping", "timeUnit", "columns"))
    format, mapping, time_unit, columns = given
    return FormatChooser(format, mapping, dbc, time_unit=time_unit, columns=columns)


def _read_text(path: str) -> str:
    try:
        with open_input(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise LakeError(f"cannot read {path}, given by option 'catalog': {problem}") from problem


@lru_cache(maxsize=4)
def subscription_of(query: EventQuery) -> Subscription:
    resolver = SubscriptionResolver(types_of(query.catalog).catalog, parse_again)  # every worker parses it
    return resolver.resolve(query.subscription)


@lru_cache(maxsize=4)
def _filter(query: EventQuery) -> arrow.ArrowFilter:
    return arrow.compile(subscription_of(query))


@lru_cache(maxsize=4)
def _type_names(query: EventQuery) -> frozenset[str]:
    found = matching_types(subscription_of(query), types_of(query.catalog).catalog)
    return frozenset(name for names in found.values() for name in names)


def _for_arrow_target(chunk: Columns, plan: TypePlan) -> pa.RecordBatch:
    """Cast a chunk to the types of the Arrow target, which has unsigned integers where a lake has wider signed ones."""
    types = {attribute.name: arrow.stored_type(attribute.type) for attribute in plan.attributes}
    there = [name for name in chunk.batch.schema.names if name in types]
    columns = [chunk.batch.column(name).cast(types[name]) for name in there]
    return pa.record_batch([pa.repeat(chunk.type, chunk.batch.num_rows), *columns], names=[TYPE, *there])


# -- splits ------------------------------------------------------------------------------------------------------------


class SourceSplit(NamedTuple):
    split: Split
    format: Format
    origin: Origin


def plan_splits(options: Mapping[str, str]) -> Iterator[SourceSplit]:
    choose, at_us = chooser_of(options), time.time_ns() // 1000
    target = number_option(options, "splitBytes") or SPLIT_BYTES
    for path in dict.fromkeys(_paths(options)):
        format = choose(path)
        origin = Origin("", "", hash_of(path), path, 0, at_us)
        for split in format.splits(path, file_info(path).size, target):
            yield SourceSplit(split, format, origin)


def _paths(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of the paths given to `load`, which Spark passes as options."""
    several: list[str] = json.loads(options.get("paths", "[]"))
    if not (given := [*several, *([options["path"]] if "path" in options else [])]):
        raise LakeError("no files; name files, folders or patterns in load(...)")
    for path in given:
        if not (found := list_files(path)):
            raise LakeError(f"{path}: no such file, or an empty folder")
        yield from found


def select_columns(columns: pa.Schema, wanted: StructType) -> pa.Schema:
    """Return the columns of a Spark schema, in its order; LakeError if one does not exist or has another type."""
    types = {field.name: field.dataType for field in spark_schema(columns).fields}
    for field in wanted.fields:
        if field.name not in types:
            raise LakeError(f"no column {field.name!r}; the columns are {', '.join(columns.names)}")
        if field.dataType != types[field.name]:
            given, actual = field.dataType.simpleString(), types[field.name].simpleString()
            raise LakeError(f"column {field.name!r} is {actual}, not {given}; cast it after reading")
    return pa.schema([pa.field(field.name, columns.field(field.name).type, field.nullable) for field in wanted.fields])
