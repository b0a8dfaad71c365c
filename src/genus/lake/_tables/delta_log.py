"""The Delta log of one table: Genus creates its entries, delta-rs reads it and writes its checkpoints.

An entry is one small file that is created atomically, so of two writers of the same number one succeeds. delta-rs does
not create it, because it reads the list of all files of a table for each of its commits, which takes much longer than
the file itself; and it could not refuse other writers (`NO_OTHER_WRITERS`).

Columns have the names that they have in files, which are the first ones of attributes that were renamed: Delta can map
names to others, but Polars and others refuse tables that do. Durations are microseconds.

A checkpoint has all files of the table. One is written after every `CHECKPOINT_EVERY` entries, and less often where a
table has very many files, so that the cost of an entry stays the same on average. A log that delta-rs cannot read is
read without its checkpoints; if it still cannot, it is removed and begins anew.
"""

import uuid
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from genus._extras import missing_extra
from genus.catalog import Catalog
from genus.errors import LakeDamaged, LakeError
from genus.lake._tables.commits import COMMIT, DAY, DEAD_LETTERS, StoredFile
from genus.lake._tables.file_systems import FileSystem
from genus.lake._tables.files import FileInfo, local_path, open_input
from genus.lake._tables.part_writer import DEAD_SCHEMA, file_schema
from genus.model.internal import time_of_micros

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG_FOLDER = "_delta_log"
DIGITS = 20
CHECKPOINT_EVERY = 100
FILES_PER_ENTRY = 100
"""A checkpoint is written when there are as many new entries as the table has files, divided by this number."""
_ENTRY, _CHECKPOINT, _LAST = ".json", ".checkpoint.parquet", "_last_checkpoint"
MAX_BOUND = 32
"""Bounds of longer texts are left out."""
NO_OTHER_WRITERS = "genusLedger"
"""A writer feature that nobody else has: others read the table, and refuse to write it, because the ledger decides."""
_PATH_COLUMNS = [pa.field(COMMIT, pa.string()), pa.field(DAY, pa.date32())]
"""The columns in the paths of files; those of dead letters have no days."""
_OPERATIONS: Mapping[str, str] = {"compact": "OPTIMIZE", "delete": "DELETE", "expire": "DELETE"}


class TableLog:
    """The Delta log of one table. State: the number and the schema of the newest entry, as far as it is known."""

    def __init__(self, files: FileSystem, root: str) -> None:
        self._files = files
        self._root = root
        self._folder = f"{root}/{LOG_FOLDER}"
        self.version = -1
        """The number of the newest entry; -1 if there is none."""
        self.schema = ""
        """The columns, as JSON."""
        self.was_damaged = False
        self._size = 0
        """The number of files in the table."""
        self._checkpoint = -1
        """The number of the newest checkpoint; -1 if there is none."""

    @property
    def exists(self) -> bool:
        return any(self._files.read(f"{self._folder}/{name}") is not None for name in (_LAST, f"{0:0{DIGITS}}{_ENTRY}"))

    def load(self) -> set[str]:
        """Read the log, or what can be read of it; returns the paths of the files in the table."""
        try:
            return self._load()
        except LakeDamaged:
            self.was_damaged = True
        for found in self._files.list_folder(self._folder):
            if found.name.endswith((_CHECKPOINT, _LAST)):
                self._files.delete(found.path)
        try:
            return self._load()
        except LakeDamaged:
            self._files.delete(self._folder)
        return self._load()

    def _load(self) -> set[str]:
        listed = self._listed(_ENTRY, _CHECKPOINT)
        numbers = list(map(_number, listed))
        self.version, self.schema, self._size = -1, "", 0
        self._checkpoint = max((_number(each) for each in listed if each.name.endswith(_CHECKPOINT)), default=-1)
        if not numbers:
            return set()
        with self._opened() as table:
            self.version, self.schema = table.version(), table.schema().to_json()
            paths = set(table.get_add_actions().column("path").to_pylist())
        if self.version != max(numbers):
            raise LakeDamaged(f"{self._folder}: there is no entry after {self.version}")
        self._size = len(paths)
        return paths

    def append(self, entry: bytes, schema: str, files: int) -> bool:
        """Create the next entry, which changes the number of files; False if another writer has created one."""
        if not self._files.create(f"{self._folder}/{self.version + 1:0{DIGITS}}{_ENTRY}", entry):
            return False
        self.version, self.schema, self._size = self.version + 1, schema, self._size + files
        if self.version - self._checkpoint >= max(CHECKPOINT_EVERY, self._size // FILES_PER_ENTRY):
            self._write_checkpoint()
        return True

    def _write_checkpoint(self) -> None:
        with self._opened() as table:
            table.create_checkpoint()
            self._checkpoint = table.version()

    def forget_bounds(self, present: Container[str]) -> None:
        """Remove the statistics of all files but some, because bounds are values that files had; the rows stay."""
        if older := self._listed(_CHECKPOINT):
            self._write_checkpoint()  # it has the present files only
            for found in older:
                if _number(found) < self._checkpoint:
                    self._files.delete(found.path)
        for found in self._listed(_ENTRY):
            content = self._files.read(found.path) or b""
            lines = [_without_bounds(line, present) for line in content.splitlines(keepends=True)]
            if (changed := b"".join(lines)) != content:
                self._files.replace(found.path, changed)

    # -- files -------------------------------------------------------------------------------------------------------

    def _listed(self, *endings: str) -> list[FileInfo]:
        found = self._files.list_folder(self._folder)
        return [each for each in found if each.name[:DIGITS].isdigit() and each.name[DIGITS:] in endings]

    @contextmanager
    def _opened(self) -> Iterator["DeltaTable"]:
        """The table in delta-rs; files that it writes to the log are kept. LakeDamaged if it cannot read the log."""
        deltalake = import_deltalake()
        try:
            if local_path(self._root) is not None and "%" not in self._root:
                yield deltalake.DeltaTable(self._root)
                return
            with self._local_copy() as folder:
                yield deltalake.DeltaTable(folder)
        except (deltalake.exceptions.DeltaError, FileNotFoundError) as problem:
            line = str(problem).strip().partition("\n")[0]
            raise LakeDamaged(f"{self._folder}: {line}; call mirror() or `genus lake mirror`") from problem

    @contextmanager
    def _local_copy(self) -> Iterator[str]:
        """A folder with the log from its newest checkpoint on, for file systems and paths that delta-rs cannot open."""
        with TemporaryDirectory(prefix="genus-delta-") as root:
            folder = Path(root, LOG_FOLDER)
            folder.mkdir()
            needed = [each for each in self._listed(_ENTRY, _CHECKPOINT) if _number(each) >= self._checkpoint]
            names = [each.name for each in needed] + [_LAST] * (self._checkpoint >= 0)
            contents = {name: self._files.read(f"{self._folder}/{name}") or b"" for name in names}
            for name, content in contents.items():
                (folder / name).write_bytes(content)
            yield root
            for made in sorted(folder.iterdir()):  # a checkpoint comes before the file that names it
                if contents.get(made.name) != (content := made.read_bytes()):
                    self._files.replace(f"{self._folder}/{made.name}", content)


def _number(found: FileInfo) -> int:
    return int(found.name[:DIGITS])


def _without_bounds(line: bytes, present: Container[str]) -> bytes:
    action = msgspec.json.decode(line)
    if (add := action.get("add")) is None or add["path"] in present or not add.get("stats"):
        return line
    add["stats"] = msgspec.json.encode({"numRecords": msgspec.json.decode(add["stats"])["numRecords"]}).decode()
    return msgspec.json.encode(action) + b"\n"


# -- entries, as the Delta transaction log protocol defines them -------------------------------------------------------


class Change(NamedTuple):
    """What one commit of the ledger changes in a table; paths are relative to the table and percent-encoded."""

    kind: str
    """That of the commit; `mirror` for the differences of several."""
    version: int
    commit: str
    at_us: int
    catalog: str
    """The text of the catalog at that commit."""
    removed: Collection[str]
    added: Mapping[str, StoredFile]


def encode_entry(
    lake: str, table: str, change: Change, schema: str | None, stats: Mapping[str, str], *, first: bool
) -> bytes:
    """The content of a file of a log; `schema` is given if it has changed, `stats` has those of the added files."""
    at_ms, changes_data = change.at_us // 1000, change.kind != "compact"  # it has the same rows in other files
    parameters = {"ledgerVersion": str(change.version), "commit": change.commit, "kind": change.kind}
    info = {"timestamp": at_ms, "operation": _OPERATIONS.get(change.kind, "WRITE"), "operationParameters": parameters}
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, "engineInfo": "genus"}}]
    if first:
        features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [NO_OTHER_WRITERS]}
        actions.append({"protocol": features})
    if schema is not None:
        actions.append({"metaData": _metadata(lake, table, schema)})
    actions.append({"txn": {"appId": lake, "version": change.version, "lastUpdated": at_ms}})
    for path in change.removed:
        actions.append({"remove": {**_file(path, changes_data), "deletionTimestamp": at_ms}})
    for path, file in change.added.items():
        told = {"size": file.bytes, "modificationTime": at_ms, "stats": stats[path]}
        actions.append({"add": {**_file(path, changes_data), **told}})
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def _metadata(lake: str, table: str, schema: str) -> Mapping[str, Any]:
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{lake}/{table}")),
        "name": table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [field.name for field in _path_columns(table)],
        "configuration": {},
    }


def _file(path: str, changes_data: bool) -> dict[str, Any]:
    """Return what is said of a file that is added or removed; its path has the values of some columns.

    >>> _file("_commit=4f21/_day=2026-05-01/part-0.parquet", True)["partitionValues"]
    {'_commit': '4f21', '_day': '2026-05-01'}
    """
    pairs = [step.partition("=") for step in path.split("/")[:-1]]
    return {
        "path": path,
        "partitionValues": {name: unquote(value) for name, _, value in pairs},
        "dataChange": changes_data,
    }


# -- columns -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _parse(catalog: str) -> Catalog:
    return Catalog.parse(catalog) if catalog else Catalog()


def tables_of(catalog: str) -> list[str]:
    """Return the tables that a lake with a catalog may have; here and below, `catalog` is its text."""
    return [*_parse(catalog).families, DEAD_LETTERS]


def file_columns(catalog: str, table: str) -> pa.Schema:
    """Return the columns of the files of a table, which may be NULL; LakeDamaged if the catalog lacks its family."""
    families = _parse(catalog).families
    if table != DEAD_LETTERS and table not in families:
        raise LakeDamaged(f"the catalog in the ledger lacks the family {table}, which has events")
    fields = DEAD_SCHEMA if table == DEAD_LETTERS else file_schema(families[table])
    return pa.schema([field.with_nullable(True) for field in fields])


@lru_cache(maxsize=1024)
def delta_schema(catalog: str, table: str) -> str:
    """The columns of a Delta table as JSON: those of files, and all columns in their paths, as Polars wants it."""
    columns = pa.schema([*file_columns(catalog, table), *_path_columns(table)])
    text: str = import_deltalake().Schema.from_arrow(columns).to_json()
    return text


def _path_columns(table: str) -> list[pa.Field]:
    return _PATH_COLUMNS[:1] if table == DEAD_LETTERS else _PATH_COLUMNS


def import_deltalake() -> ModuleType:
    """delta-rs, which is imported when a Delta table is opened or extended."""
    try:
        import deltalake
    except ImportError as missing:
        raise missing_extra("Delta tables need deltalake", "lake") from missing
    return deltalake


# -- statistics --------------------------------------------------------------------------------------------------------


def file_statistics(files: FileSystem, path: str, rows: int, columns: pa.Schema) -> str:
    """Rows, NULLs and bounds of some columns of a file, by its footer, as JSON; only the rows if the file is gone.

    Bounds are given for columns of integers, times and short texts. They are not given for floating-point numbers: a
    footer does not say whether there are NaNs, which readers take for larger than all numbers.
    """
    footer, wanted = _read_footer(files, path), set(columns.names)
    groups = [] if footer is None else [footer.row_group(number) for number in range(footer.num_row_groups)]
    least, most, nulls = dict[str, int | str](), dict[str, int | str](), dict[str, int]()
    for index, name in enumerate(() if footer is None else footer.schema.names):
        chunks = [group.column(index).statistics for group in groups]
        if name in wanted and all(each is not None and each.has_null_count for each in chunks):
            nulls[name] = sum(each.null_count for each in chunks)
            if (bounds := _bounds(chunks, columns.field(name).type)) is not None:
                least[name], most[name] = bounds
    told = {"numRecords": rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return msgspec.json.encode(told).decode()


def _read_footer(files: FileSystem, path: str) -> Any:
    try:
        if local_path(path) is not None:
            return pq.read_metadata(path)
        with open_input(path) as file:
            return pq.read_metadata(file)
    except FileNotFoundError:
        return None
    except LakeError:  # pyarrow has no file system for the path
        content = files.read(path)
        return None if content is None else pq.read_metadata(pa.BufferReader(content))


def _bounds(chunks: Sequence[Any], type_: pa.DataType) -> tuple[int | str, int | str] | None:
    """The least and the greatest value of a column as Delta has them; None if they are not known, or not given."""
    valued = [each for each in chunks if each.num_values > 0]  # the others have NULLs only
    if not valued or not all(each.has_min_max for each in valued):
        return None
    if pa.types.is_string(type_):
        low, high = min(each.min for each in valued), max(each.max for each in valued)
        is_short = all(len(each.min) <= MAX_BOUND >= len(each.max) for each in valued)
        return (low, high) if is_short else None
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        first, last = min(each.min_raw for each in valued), max(each.max_raw for each in valued)
        return (instant(first), instant(last)) if pa.types.is_timestamp(type_) else (first, last)
    return None


def instant(micros: int) -> str:
    """Microseconds since 1970 as text.

    >>> instant(1_777_615_200_005_000)
    '2026-05-01T06:00:00.005000Z'
    """
    return time_of_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")
