"""The data source `genus` of a session: typed events of files and lakes in batch, and of a lake as a stream.

`spark.readStream.format("genus").load(path)` follows a lake. The offsets that Spark stores in its checkpoint say how
far it was read: a version, with the id of its commit. So a query that is started again goes on where it ended, and
reads nothing twice.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._ingest.format import types_of
from genus.lake._ingest.frames import FramePlan, FrameWriter, StreamWriter, source_path
from genus.lake._query.data_source import (
    EventQuery,
    GenusReader,
    LakeBatchReader,
    LakeFiles,
    SourceQuery,
    check_known,
    is_lake,
    number_option,
    parse_options,
    select_columns,
    subscription_of,
)
from genus.lake._query.scan import DataFile
from genus.lake._tables.commits import BATCH, DEAD_LETTERS, Cursor, Part, count_files
from genus.lake._tables.files import absolute_path, local_path
from genus.lake._tables.lake_catalog import CatalogFile, matching_types
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.lake_tables import spark_schema
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.state import LedgerState, find_versions, is_cut, parts_after
from genus.lake._tables.store import Store
from genus.records import read_mapping

Offset = dict[str, Any]
"""An offset as Spark stores it, in JSON."""
_SINK_OPTIONS = ("checkpointLocation", "mapping", "path", "queryName", "source", "type")
"""Options of writing, with those that Spark passes on."""


def register_data_source(spark: SparkSession) -> None:
    """Register the data source `genus` with a session, for `spark.read`, `readStream`, `df.write` and `writeStream`.

    It reads a lake, or recordings, CAN logs and mapped files that are not in one; as a stream it follows a lake, which
    `Lake.stream` fills with the files of a folder. It writes frames (with `mode("append")`) and streams to a lake in a
    local folder or in s3://, as `Lake.append` does; each batch of a stream is in the lake exactly once, however often
    the query is killed. Workers without Genus need `ship` first.

    The options of reading are:

    | option | |
    |---|---|
    | `subscription` | the events to read, as text: `Loop has place where speed > 30` |
    | `type` | a type, as a shorter form of `subscription` |
    | `version` | in batch, of a lake: read it as it was after this commit |
    | `catalog` | a catalog file, or the folder of a lake; the types of `dbc` are added to it. A lake has its own |
    | `format`, `mapping`, `dbc`, `columns`, `timeUnit` | as in `Lake.ingest` |
    | `truncated` | `true` decodes frames that are shorter than their message as far as they reach |
    | `j1939`, `nmea2000` | `true` for logs of such buses, if the file does not say it; `false` for those of others |
    | `dead` | `true` returns the dead letters of files instead of events |
    | `splitBytes` | the number of bytes that a task reads |
    | `maxFilesPerTrigger` | on a stream: the most files of the lake in a batch, which has whole commits |

    The options of writing are:

    | option | |
    |---|---|
    | `type` | the event type of all rows, whose attributes the columns are named like |
    | `mapping` | instead of it, the path of a mapping file |
    | `source` | of a frame: a name; what is written again under the same name adds nothing |
    """
    spark.dataSource.register(GenusDataSource)


class GenusDataSource(DataSource):
    """The data source of `spark.read` and `spark.readStream`; `register_data_source` lists its options."""

    @classmethod
    def name(cls) -> str:
        return "genus"

    def schema(self) -> StructType:
        return spark_schema(self._query().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all columns, or of those in `.schema(...)`."""
        query, path = self._query(), self.options.get("path", "")
        columns = select_columns(query.columns, schema)
        if not is_lake(path):
            return GenusReader(query, columns, self.options)
        if not isinstance(query, EventQuery):
            raise LakeError("the dead letters of a lake are read with Lake.dead_letters")
        return LakeBatchReader(query, columns, path, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a lake."""
        query, options = self._query(), dict(self.options)
        if "version" in options:
            raise LakeError("option 'version' is for spark.read; a stream begins with the events that the lake has")
        columns, given = select_columns(query.columns, schema), options.get("path")
        if given is None or local_path(given) is None:
            raise LakeError(f"{given}: a stream follows one local or mounted folder; name it in load(...)")
        path = absolute_path(given)
        max_files = number_option(options, "maxFilesPerTrigger")
        if not is_lake(path):
            raise LakeError(
                f"{path} is not a lake; files of a folder come into one by Lake.stream, and are followed there"
            )
        if not isinstance(query, EventQuery):
            raise LakeError("the dead letters of a lake are no stream; read them with Lake.dead_letters")
        return LakeStreamReader(query.subscription, columns, path, max_files)

    def writer(self, schema: StructType, overwrite: bool) -> FrameWriter:
        if overwrite:
            raise LakeError("a lake is not overwritten; write with mode('append'), remove events with Lake.delete")
        return FrameWriter(self._frame_plan(schema), source_path(self.options.get("source")))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        if "source" in self.options:
            raise LakeError("option 'source' is for frames; the batches of a stream are known by the id of the query")
        return StreamWriter(self._frame_plan(schema))

    def _query(self) -> SourceQuery:
        options = {name: text for name, text in self.options.items() if name.lower() != "maxfilespertrigger"}
        if "catalog" not in options and "path" in options and is_lake(options["path"]):
            options["catalog"] = absolute_path(options["path"])
        return parse_options(options)

    def _frame_plan(self, schema: StructType) -> FramePlan:
        check_known(self.options, _SINK_OPTIONS)
        name, mapping = self.options.get("type"), self.options.get("mapping")
        if (name is None) == (mapping is None):
            raise LakeError("what are the rows? give option 'type', an event type, or 'mapping', the path of a mapping")
        path = self.options.get("path", "")
        return FramePlan.of(LakeFolder(Store(path)), name or read_mapping(str(mapping)), schema.names)


class LakeOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a lake was read: up to a version, and the id of its commit."""

    version: int = 0
    commit: str = ""
    after: int | None = None
    files: int | None = None
    """In the checkpoints of an older Genus: so many of the files that came in after another version were read."""


class NewFiles(LakeFiles, frozen=True):
    """Files with new events that a task reads."""

    catalog: str
    """The text of the catalog."""
    between: tuple[int, int] | None
    """Only rows that came after the first version, up to the second; None for all."""


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the events of new commits from the present files; rows are those that `Lake.read` returns for them.

    A query goes on exactly where it ended, also after a compaction and `clean`. Events that were deleted before it came
    to them are not read. A batch has whole commits.
    """

    def __init__(self, subscription: str, columns: pa.Schema, path: str, max_files: int | None) -> None:
        self._subscription, self._columns, self._path, self._max_files = subscription, columns, path, max_files
        self._last: int | None = None
        """The version at which a query that reads what is available now ends."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit given as an option."""
        return ReadAllAvailable() if self._max_files is None else ReadMaxFiles(self._max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the present version only."""
        self._last = Store(self._path).state().version

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before the first commit: a new query first reads all events of the lake."""
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        store = Store(self._path)
        begun = self._checked(store, start)
        last = max(begun.version, store.state().version if self._last is None else self._last)
        parts = parts_to_read(store.ledger, store.state(), begun.version)
        reached = last_version(parts, begun.version, last, limit.max_files if isinstance(limit, ReadMaxFiles) else None)
        return {"version": reached, "commit": store.ledger.id_at(reached)}

    def _checked(self, store: Store, offset: Offset) -> LakeOffset:
        """Return an offset; LakeError if the lake does not have its commit, as after a restore."""
        found = msgspec.convert(offset, LakeOffset)
        if not store.ledger.has(Cursor(found.version, found.commit)):
            raise LakeError(
                f"the query has read version {found.version} of {self._path}, which the lake does not have: the lake "
                "was restored from a backup or replaced; begin with a new checkpoint"
            )
        if found.files is not None and found.files != _count_files(store.ledger, found):
            raise LakeError(
                f"the checkpoint of the query was written by an older Genus, which stopped within version "
                f"{found.version} of {self._path}; begin with a new checkpoint"
            )
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the files with events of a batch that can have matches, one for each task."""
        store = Store(self._path)
        after, upto = self._checked(store, start).version, self._checked(store, end).version
        catalog = CatalogFile(store.files, self._path).text
        families = matching_types(subscription_of(EventQuery(catalog, self._subscription)), types_of(catalog).catalog)
        tasks: list[InputPartition] = []
        for part in parts_to_read(store.ledger, store.state(), after):
            if part.table in families and part.first <= upto:
                between = (after, upto) if is_cut(part, after) or is_cut(part, upto) else None
                files = [[DataFile(path, part.day)] for path in store.file_paths([part])]
                types = tuple(families[part.table])
                tasks += [InputPartition(NewFiles(part.table, types, each, catalog, between)) for each in files]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        files: NewFiles | None = partition.value
        if files is None:
            return
        columns = self._columns if files.between is None else self._columns.append(pa.field(BATCH, pa.int64()))
        reader = LakeBatchReader(EventQuery(files.catalog, self._subscription), columns, self._path, {})
        for batch in reader.read(partition):
            yield batch if files.between is None else _select_between(batch, *files.between)


def parts_to_read(ledger: Ledger, state: LedgerState, after: int) -> list[Part]:
    """The parts with rows after a version; at the start, too, those of an older Genus have the versions of commits.

    Otherwise a batch could leave out what the next one takes for read.
    """
    return find_versions(ledger.history(), parts_after(ledger.history(), state, after), after)


def last_version(parts: Sequence[Part], after: int, last: int, max_files: int | None) -> int:
    """The last version of a batch after another: with at most so many files of some parts, but at least one commit.

    What an older Genus has compacted is read in one batch, because its rows cannot be told apart.
    """
    files: dict[int, int] = {}
    unsure = max((part.unsure for part in parts), default=0)
    for part in parts:
        first = max(part.first, after + 1)
        files[first] = files.get(first, 0) + len(part.files)
    begins, count = sorted(version for version in files if version <= last), 0
    for number, version in enumerate(begins if max_files is not None else ()):
        count += files[version]
        if number and max_files is not None and count > max_files:
            return min(max(version - 1, unsure), last)
    return last


def _select_between(rows: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    versions = rows.column(BATCH)
    found = rows.filter(pc.and_(pc.greater(versions, after), pc.less_equal(versions, upto)))
    return found.select(found.schema.names[:-1])


def _count_files(ledger: Ledger, offset: LakeOffset) -> int:
    """Return the number of files that an older Genus had to read up to the end of an offset; -1 if it is not known."""
    try:
        if offset.after:
            commits = ledger.commits(offset.after, offset.version)
            parts = [part for commit in commits if commit.kind == "ingest" for part in commit.added]
        else:
            parts = list(ledger.state_at(offset.version).parts.values()) if offset.version else []
    except LakeError:
        return -1
    return count_files(part for part in parts if part.table != DEAD_LETTERS)
