"""The data source `genus` of a session: typed events of files in batch, and of a lake or a landing folder as a stream.

`spark.readStream.format("genus").load(path)` follows a lake if there is one at the path, and otherwise a folder in
which complete files appear. The offsets that Spark stores in its checkpoint say exactly what was read: of a lake the
version with the id of its commit, of a folder the files by name. So a query that is started again goes on where it
ended, and reads nothing twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._ingest.format import types_of
from genus.lake._ingest.job import SPLIT_BYTES
from genus.lake._local.scan import DataFile, TableScan
from genus.lake._query.data_source import (
    EventQuery,
    GenusDataSource,
    SourceQuery,
    SourceSplit,
    chooser_of,
    parse_options,
    read_split,
    select_columns,
    split_files,
    subscription_of,
)
from genus.lake._query.result_columns import attribute_columns
from genus.lake._tables.columns import DAY, DEAD_LETTERS
from genus.lake._tables.commits import Part, unprocessed_parts
from genus.lake._tables.files import FileInfo, LocalFileSystem, absolute_path, local_path, walk_files
from genus.lake._tables.lake_catalog import CatalogFile, matching_types
from genus.lake._tables.spark_columns import spark_schema
from genus.lake._tables.store import Store

Offset = dict[str, Any]
"""An offset as Spark stores it, in JSON."""
_STREAM_OPTIONS = ("maxFilesPerTrigger", "pattern")


def register_data_source(spark: SparkSession) -> None:
    """Register the data source `genus` with a session, for `spark.read` and `spark.readStream`.

    In batch it reads recordings, CAN logs and mapped files that are not in a lake. As a stream it follows a lake, or a
    landing folder with such files. Workers without Genus need `ship` first.

    The options are:

    | option | |
    |---|---|
    | `subscription` | the events to read, as text: `Loop has place where speed > 30` |
    | `type` | a type, as a shorter form of `subscription` |
    | `catalog` | a catalog file, or the folder of a lake; the types of `dbc` are added to it. A lake has its own |
    | `format`, `mapping`, `dbc` | as in `Lake.ingest` |
    | `truncated` | `true` decodes frames that are shorter than their message as far as they reach |
    | `j1939`, `nmea2000` | `true` for logs of such buses, if the file does not say it; `false` for those of others |
    | `dead` | `true` returns the dead letters instead of events |
    | `splitBytes` | the number of bytes that a task reads |
    | `maxFilesPerTrigger` | on a stream: the most files in a batch, those of the lake or those that landed |
    | `pattern` | on a stream of a folder: which files are read, by name, such as `*.genus` |
    """
    spark.dataSource.register(StreamingDataSource)


class StreamingDataSource(GenusDataSource):
    """The data source of `spark.read` and `spark.readStream`; `register_data_source` lists its options."""

    def schema(self) -> StructType:
        """The columns of the subscribed type, or of dead letters."""
        return spark_schema(self._query().columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of a lake or of a landing folder."""
        query, options = self._query(), dict(self.options)
        columns = select_columns(query.columns, schema)
        path = _path(options)
        most = _most_files(options)
        if not is_lake(path):
            return LandingStreamReader(query, columns, path, options, most)
        if not isinstance(query, EventQuery):
            raise LakeError("the dead letters of a lake are no stream; read them with Lake.dead_letters")
        return LakeStreamReader(query.subscription, columns, path, most)

    def _query(self) -> SourceQuery:
        options = {name: text for name, text in self.options.items() if name.lower() not in _lower(_STREAM_OPTIONS)}
        if "catalog" not in options and "path" in options and is_lake(options["path"]):
            options["catalog"] = absolute_path(options["path"])
        return parse_options(options)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def is_lake(path: str) -> bool:
    """Whether there is a lake at a local path."""
    return local_path(path) is not None and Store(path).ledger.exists


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if path is None or local_path(path) is None:
        raise LakeError(f"{path}: a stream follows one local or mounted folder; name it in load(...)")
    return absolute_path(path)


def _most_files(options: Mapping[str, str]) -> int | None:
    text = {name.lower(): text for name, text in options.items()}.get("maxfilespertrigger")
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise LakeError(f"option maxFilesPerTrigger is {text!r}; give a number above 0")
    return int(text)


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both readers share: the limit of a batch."""

    def __init__(self, most: int | None) -> None:
        self._most = most

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit given as an option."""
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)


def _limit_of(limit: ReadLimit) -> int | None:
    return limit.max_files if isinstance(limit, ReadMaxFiles) else None


# -- lakes -------------------------------------------------------------------------------------------------------------


class LakeOffset(msgspec.Struct, frozen=True):
    """How far a lake was read: some files of the events that came in after a version, up to another."""

    after: int
    """The version before."""
    version: int
    commit: str
    """The version that is read, and the id of its commit."""
    files: int
    """The number of files that were read of those that came in between."""


class LakeFile(msgspec.Struct, frozen=True):
    """A file of a lake that a task reads."""

    path: str
    family: str
    day: str
    catalog: str
    """The text of the catalog."""


class LakeStreamReader(FollowingReader):
    """Reads the files of new commits; rows are those that `Lake.read` returns for them."""

    def __init__(self, subscription: str, columns: pa.Schema, path: str, most: int | None) -> None:
        super().__init__(most)
        self._subscription, self._columns, self._path = subscription, columns, path
        self._last: int | None = None
        """The version at which a query that reads what is available now ends."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the present version only."""
        self._last = Store(self._path).state().version

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before the first commit: a new query first reads all events of the lake."""
        return msgspec.to_builtins(LakeOffset(0, 0, "", 0))  # type: ignore[no-any-return]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """The end of the next batch."""
        store = Store(self._path)
        begun = self._checked(store, start)
        there = len(_lake_files(store, begun))
        if begun.files == there:
            begun = self._next_version(store, begun)
            there = len(_lake_files(store, begun))
        most = _limit_of(limit)
        files = there if most is None else min(there, begun.files + most)
        return msgspec.to_builtins(msgspec.structs.replace(begun, files=files))  # type: ignore[no-any-return]

    def _next_version(self, store: Store, begun: LakeOffset) -> LakeOffset:
        ledger = store.ledger
        state = ledger.state() if self._last is None else ledger.state_at(max(self._last, begun.version))
        if state.version == begun.version:
            return begun
        return LakeOffset(begun.version, state.version, state.commit, 0)

    def _checked(self, store: Store, offset: Offset) -> LakeOffset:
        """An offset; LakeError if the lake does not have its commit, as after a restore."""
        found = msgspec.convert(offset, LakeOffset)
        if found.version and (
            store.state().version < found.version or store.ledger.commit_at(found.version).id != found.commit
        ):
            raise LakeError(
                f"the query has read version {found.version} of {self._path}, which the lake does not have: the lake "
                "was restored from a backup or replaced; begin with a new checkpoint"
            )
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The files of a batch that can have matches, one for each task."""
        store = Store(self._path)
        begun, reached = msgspec.convert(start, LakeOffset), self._checked(store, end)
        first = begun.files if (begun.after, begun.version) == (reached.after, reached.version) else 0
        catalog = CatalogFile(store.files, self._path).text
        families = matching_types(subscription_of(EventQuery(catalog, self._subscription)), types_of(catalog).catalog)
        return [
            InputPartition(LakeFile(path, part.table, part.folder.rpartition(f"{DAY}=")[2], catalog))
            for path, part in _lake_files(store, reached)[first : reached.files]
            if part.table in families
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a file that match."""
        file: LakeFile | None = partition.value
        if file is None:
            return
        catalog = types_of(file.catalog).catalog
        subscription = subscription_of(EventQuery(file.catalog, self._subscription))
        sources = {name: name for name in attribute_columns(subscription)}
        types = matching_types(subscription, catalog)[file.family]
        scan = TableScan(subscription, catalog.vector(file.family), types, self._columns, sources)
        for group in scan.row_groups(DataFile(file.path, date.fromisoformat(file.day))):
            batch = scan.read(group)
            if batch is not None:
                yield batch


def _lake_files(store: Store, offset: LakeOffset) -> list[tuple[str, Part]]:
    """The files with the events that came in between the versions of an offset, in a fixed order."""
    if not offset.version:
        return []
    ledger = store.ledger
    parts = (
        unprocessed_parts(ledger.commits(offset.after, offset.version))
        if offset.after
        else ledger.state_at(offset.version).parts
    )
    events = [part for part in parts.values() if part.table != DEAD_LETTERS]
    return [(f"{store.path}/{part.folder}/{file.name}", part) for part in events for file in part.files]


# -- landing folders ---------------------------------------------------------------------------------------------------


class _NumberedName(NamedTuple):
    """The name of a file as a series and a number in it."""

    series: str
    """The name with a zero for each digit of the number; the whole name if it has no number."""
    number: int | None


_NUMBERED = re.compile(r"(?P<before>(?:.*/)?[^/.]*?)(?P<number>\d+)(?P<after>(?:\.[^/]*)?)")


def number_of(name: str) -> _NumberedName:
    """Take a name apart.

    >>> number_of("north/bus-0017.genus")
    _NumberedName(series='north/bus-0000.genus', number=17)
    >>> number_of("noon.genus")
    _NumberedName(series='noon.genus', number=None)
    """
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return _NumberedName(name, None)
    return _NumberedName(f"{found['before']}{'0' * len(found['number'])}{found['after']}", int(found["number"]))


class FileSet:
    """A set of file names, small if they are numbered: of each series, ranges of numbers."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._series: dict[str, set[int]] = {}
        for name in names:
            self.add(name)

    @classmethod
    def parse(cls, text: Mapping[str, str]) -> "FileSet":
        """The set in an offset."""
        made = cls()
        made._series = {series: set(_numbers(ranges)) for series, ranges in text.items()}
        return made

    def format(self) -> dict[str, str]:
        """The set for an offset.

        >>> FileSet(["a-1", "a-2", "a-3", "a-7", "noon"]).format()
        {'a-0': '1-3,7', 'noon': ''}
        """
        return {series: _ranges(sorted(numbers)) for series, numbers in self._series.items()}

    def add(self, name: str) -> None:
        """Add a name."""
        series, number = number_of(name)
        self._series.setdefault(series, set()).update(() if number is None else (number,))

    def __contains__(self, name: str) -> bool:
        series, number = number_of(name)
        known = self._series.get(series)
        return known is not None and (number is None or number in known)

    def __sub__(self, other: "FileSet") -> list[str]:
        """The names that are not in another set."""
        return [name for name in self._names() if name not in other]

    def _names(self) -> Iterator[str]:
        for series, numbers in self._series.items():
            found = _NUMBERED.fullmatch(series)
            if found is None:
                yield series
            else:
                digits = len(found["number"])
                yield from (f"{found['before']}{number:0{digits}}{found['after']}" for number in sorted(numbers))


def _ranges(numbers: Sequence[int]) -> str:
    starts = [number for index, number in enumerate(numbers) if index == 0 or numbers[index - 1] != number - 1]
    ends = [number for index, number in enumerate(numbers) if numbers[index + 1 : index + 2] != [number + 1]]
    return ",".join(str(one) if one == last else f"{one}-{last}" for one, last in zip(starts, ends, strict=True))


def _numbers(ranges: str) -> Iterator[int]:
    for each in ranges.split(",") if ranges else []:
        first, _, last = each.partition("-")
        yield from range(int(first), int(last or first) + 1)


class LandingStreamReader(FollowingReader):
    """Reads files that land in a folder, each once, by name; an offset lists those that were read."""

    def __init__(
        self, query: SourceQuery, columns: pa.Schema, path: str, options: Mapping[str, str], most: int | None
    ) -> None:
        super().__init__(most)
        self._query, self._columns, self._path, self._options = query, columns, path, options
        self._pattern = {name.lower(): text for name, text in options.items()}.get("pattern", "*")
        self._present: FileSet | None = None
        """The files that a query reads which ends with what is available now."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the files that are present only."""
        self._present = FileSet(self._name(file) for file in self._files(lambda _: True))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """No files."""
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """The files that were read, and the next ones, the oldest first."""
        done, present = FileSet.parse(start), self._present
        new = self._files(lambda name: name not in done and (present is None or name in present))
        for file in new[: _limit_of(limit)]:
            done.add(self._name(file))
        return done.format()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The splits of the files of a batch."""
        paths = [f"{self._path}/{name}" for name in FileSet.parse(end) - FileSet.parse(start)]
        options = self._options
        splits = split_files(paths, chooser_of(options), int(options.get("splitBytes", SPLIT_BYTES)))
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        split: SourceSplit | None = partition.value
        if split is not None:
            yield from read_split(split, self._query, self._columns)

    def _files(self, wanted: Callable[[str], bool]) -> list[FileInfo]:
        found = walk_files(LocalFileSystem(), self._path, hidden=False)
        chosen = [each for each in found if fnmatchcase(each.name, self._pattern) and wanted(self._name(each))]
        return sorted(chosen, key=lambda each: (each.modified, each.path))

    def _name(self, file: FileInfo) -> str:
        return file.path[len(self._path) + 1 :]
