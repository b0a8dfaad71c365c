"""The Delta log of one table: numbered entries, and checkpoints from which the table is opened.

An entry is created atomically, so of two writers of the same entry one succeeds. A checkpoint has all files of the
table. One is written after every `CHECKPOINT_EVERY` entries, and less often where a table has very many files, so that
the cost of an entry stays the same on average.

A log that is damaged is read from its first entry on. If entries are missing, too, it begins anew: the next entry has
all files of the table and is a checkpoint, and what was before it is removed.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from genus.errors import LakeDamaged
from genus.lake._mirror.actions import Action, Add, Metadata, Protocol, Transaction, decode_entry, encode_entry
from genus.lake._mirror.statistics import Statistics
from genus.lake._tables.files import FileSystem, content_of

LOG_FOLDER = "_delta_log"
DIGITS = 20
CHECKPOINT_EVERY = 100
FILES_PER_ENTRY = 100
"""A checkpoint is written when there are as many new entries as the table has files, divided by this number."""

_TEXTS = pa.map_(pa.string(), pa.string())
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_TRANSACTION = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The content of the file `_last_checkpoint`."""

    version: int
    size: int
    """Number of actions."""


class Head(msgspec.Struct, frozen=True):
    """The newest entry of a log."""

    version: int = -1
    """Its number; -1 if there is none."""
    metadata: Metadata | None = None
    transaction: Transaction | None = None
    """Which version of the ledger the table shows."""
    commit: str = ""
    """The id of the ledger's commit; empty if it is not known."""
    checkpoint: int = -1
    """The number of the newest checkpoint; -1 if there is none."""
    size: int = 0
    """The number of actions in the newest checkpoint."""
    is_lost: bool = False
    """Whether the log cannot be read, so that the next entry must have all files."""

    def after(self, version: int, actions: Sequence[Action]) -> "Head":
        """The head after one more entry."""
        metadata, transaction, commit = self.metadata, self.transaction, ""
        for action in actions:
            metadata, transaction = action.meta_data or metadata, action.txn or transaction
            if action.commit_info is not None:
                commit = action.commit_info.operation_parameters.get("commit", "")
        return Head(version, metadata, transaction, commit, self.checkpoint, self.size, self.is_lost)


class TableLog:
    """The Delta log of one table."""

    def __init__(self, files: FileSystem, root: str) -> None:
        self._files = files
        self._folder = f"{root}/{LOG_FOLDER}"
        self.was_damaged = False
        """Whether the log was found damaged."""

    @property
    def exists(self) -> bool:
        """Whether the log has any entry."""
        return self._files.read(self._last_path) is not None or self._files.read(self._entry_path(0)) is not None

    def head(self) -> Head:
        """The newest entry: from the last checkpoint on, entries are looked up by name."""
        last = self._last_number()
        with suppress(LakeDamaged):
            head = self._walk(self._checkpoint_head())
            if head.version >= last:
                return head
        return self._recover(last)

    def _recover(self, last: int) -> Head:
        """The newest entry of a damaged log: by all entries, which get a checkpoint, or a lost one."""
        self.was_damaged = True
        with suppress(LakeDamaged):
            head = self._walk(Head())
            if head.version >= last:
                return self._write_checkpoint(head)
        return Head(last, checkpoint=last, is_lost=True)

    def _walk(self, head: Head) -> Head:
        """The head after all entries that follow each other."""
        version = max(head.version, 0)  # that of the checkpoint again, because checkpoints have no ids of commits
        while (actions := self._entry(version)) is not None:
            head = head.after(version, actions)
            version += 1
        return head

    def _last_number(self) -> int:
        """The number of the newest entry or checkpoint that is there; -1 if there is none."""
        names = [found.name for found in self._files.list_folder(self._folder)]
        return max((int(name[:DIGITS]) for name in names if _is_of_log(name)), default=-1)

    def append(self, head: Head, actions: Sequence[Action]) -> Head | None:
        """Create the entry after a head and return the new head; None if another writer has created one."""
        version = head.version + 1
        if not self._files.create(self._entry_path(version), encode_entry(actions)):
            return None
        return self._with_checkpoint(head.after(version, actions))

    def paths(self, head: Head) -> tuple[Head, set[str]]:
        """The paths of the files in the table; with another head if the checkpoint was found damaged."""
        with suppress(LakeDamaged):
            return head, self._paths(head)
        head = self._recover(self._last_number())
        return head, self._paths(head)

    def _paths(self, head: Head) -> set[str]:
        found: set[str] = set(_field(self._checkpoint_adds(head), "path").to_pylist())
        for action in self._tail(head):
            if action.add is not None:
                found.add(action.add.path)
            elif action.remove is not None:
                found.discard(action.remove.path)
        return found

    def forget_bounds(self, present: Container[str]) -> None:
        """Remove the statistics of all files but some, because bounds are values that files had; the rows stay."""
        for found in self._files.list_folder(self._folder):
            if found.name.endswith(".json"):
                self._forget_in_entry(found.path, present)
            elif found.name.endswith(".checkpoint.parquet"):
                self._forget_in_checkpoint(found.path, present)

    def _forget_in_entry(self, path: str, present: Container[str]) -> None:
        actions = decode_entry(path, self._files.read(path) or b"")
        changed = [_without_bounds(action, present) for action in actions]
        if changed != list(actions):
            self._files.replace(path, encode_entry(changed))

    def _forget_in_checkpoint(self, path: str, present: Container[str]) -> None:
        try:
            table = pq.read_table(pa.BufferReader(self._files.read(path) or b""))
            rows = table.column("add").to_pylist(maps_as_pydicts="strict")
        except (pa.ArrowException, OSError, KeyError):
            self._files.delete(path)  # nobody can read it
            return
        changed = [row and {**row, "stats": _kept(row["path"], row["stats"], present)} for row in rows]
        if changed != rows:
            adds = pa.array(map(_arrow_value, changed), table.schema.field("add").type)
            table = table.set_column(table.schema.get_field_index("add"), "add", adds)
            self._files.replace(path, _parquet(table))

    def _tail(self, head: Head) -> Iterator[Action]:
        """The actions of the entries after the checkpoint."""
        for version in range(head.checkpoint + 1, head.version + 1):
            yield from self._entry(version) or ()

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _with_checkpoint(self, head: Head) -> Head:
        """Write a checkpoint if one is due, and return the head with it."""
        is_due = head.version - head.checkpoint >= max(CHECKPOINT_EVERY, head.size // FILES_PER_ENTRY)
        if not is_due and not head.is_lost:
            return head
        made = self._write_checkpoint(head)
        if head.is_lost:
            self._remove_before(head.version)
        return made

    def _write_checkpoint(self, head: Head) -> Head:
        table = self._checkpoint_table(head)
        self._files.replace(self._checkpoint_path(head.version), _parquet(table))
        note = LastCheckpoint(head.version, table.num_rows)
        self._files.replace(self._last_path, msgspec.json.encode(note))
        return msgspec.structs.replace(head, checkpoint=head.version, size=table.num_rows, is_lost=False)

    def _remove_before(self, version: int) -> None:
        """Remove entries and checkpoints before one that has all files."""
        for found in self._files.list_folder(self._folder):
            if _is_of_log(found.name) and int(found.name[:DIGITS]) < version:
                self._files.delete(found.path)

    def _checkpoint_table(self, head: Head) -> pa.Table:
        added: dict[str, Add] = {}
        removed: list[str] = []
        for action in self._tail(head):
            if action.add is not None:
                added[action.add.path] = msgspec.structs.replace(action.add, data_change=False)
            elif action.remove is not None and added.pop(action.remove.path, None) is None:
                removed.append(action.remove.path)
        before = self._checkpoint_adds(head)
        gone = pc.is_in(_field(before, "path"), value_set=pa.array(removed, pa.string()))
        adds = pa.concat_arrays([before.filter(pc.invert(gone)), _struct_array(list(added.values()), _ADD)])
        columns = {
            "protocol": _struct_array([Protocol()], _PROTOCOL),
            "metaData": _struct_array([head.metadata], _METADATA),
            "txn": _struct_array([head.transaction], _TRANSACTION),
            "add": adds,
        }
        rows = len(columns) - 1 + len(adds)
        return pa.table({name: _padded(each, at, rows) for at, (name, each) in enumerate(columns.items())})

    def _checkpoint_head(self) -> Head:
        last = self._last_checkpoint()
        if last is None:
            return Head()
        table = self._read_checkpoint(last.version, "txn", "metaData")
        try:
            metadata, transaction = _single(table, "metaData", Metadata), _single(table, "txn", Transaction)
        except (KeyError, msgspec.ValidationError) as problem:
            raise LakeDamaged(f"{self._checkpoint_path(last.version)}: {problem}") from problem
        return Head(last.version, metadata, transaction, "", last.version, last.size)

    def _last_checkpoint(self) -> LastCheckpoint | None:
        content = self._files.read(self._last_path)
        try:
            return None if content is None else msgspec.json.decode(content, type=LastCheckpoint)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _checkpoint_adds(self, head: Head) -> Any:
        """The files in the checkpoint, as an array of structs; an empty one if there is no checkpoint."""
        if head.checkpoint < 0 or head.is_lost:
            return pa.array([], _ADD)
        adds = self._read_checkpoint(head.checkpoint, "add").column(0).combine_chunks()
        return adds.filter(adds.is_valid()).cast(_ADD)

    def _read_checkpoint(self, version: int, *columns: str) -> pa.Table:
        path = self._checkpoint_path(version)
        try:
            return pq.read_table(pa.BufferReader(self._files.read(path) or b""), columns=list(columns))
        except (pa.ArrowException, OSError) as problem:
            raise LakeDamaged(f"{path}: {problem}; `genus lake mirror` makes it again") from problem

    # -- files -------------------------------------------------------------------------------------------------------

    def _entry(self, version: int) -> Sequence[Action] | None:
        path = self._entry_path(version)
        content = self._files.read(path)
        return None if content is None else decode_entry(path, content)

    def _entry_path(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}.json"

    def _checkpoint_path(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}.checkpoint.parquet"

    @property
    def _last_path(self) -> str:
        return f"{self._folder}/_last_checkpoint"


def _is_of_log(name: str) -> bool:
    """Whether a file is an entry or a checkpoint.

    >>> _is_of_log("00000000000000000007.json"), _is_of_log(".00000000000000000007.json.4f21")
    (True, False)
    """
    return name[:DIGITS].isdigit() and name[DIGITS:] in (".json", ".checkpoint.parquet")


def _parquet(table: pa.Table) -> bytes:
    content: bytes = content_of(lambda stream: pq.write_table(table, stream, compression="snappy")).to_pybytes()
    return content


def _without_bounds(action: Action, present: Container[str]) -> Action:
    """An action without the bounds of a file that is not present."""
    if (add := action.add) is None:
        return action
    kept = _kept(add.path, add.stats, present)
    return action if kept == add.stats else Action(add=msgspec.structs.replace(add, stats=kept))


def _kept(path: str, stats: str | None, present: Container[str]) -> str | None:
    """What is kept of the statistics of a file: all of them, or the number of rows if it is not present."""
    if stats is None or path in present:
        return stats
    return msgspec.json.encode(Statistics(msgspec.json.decode(stats, type=Statistics).num_records)).decode()


def _struct_array(structs: Sequence[Any], type_: pa.DataType) -> Any:
    return pa.array([_arrow_value(msgspec.to_builtins(each)) for each in structs], type_)


def _arrow_value(value: Any) -> Any:
    """A value of an action as Arrow takes it, which has the entries of maps as pairs."""
    maps = {"options", "configuration", "partitionValues"}
    if not isinstance(value, dict):
        return value
    return {name: list(each.items()) if name in maps else _arrow_value(each) for name, each in value.items()}


def _padded(array: Any, before: int, rows: int) -> Any:
    """An array with NULLs before and after."""
    parts = [pa.nulls(before, array.type), array, pa.nulls(rows - before - len(array), array.type)]
    return pa.concat_arrays(parts)


def _single(table: pa.Table, column: str, type_: type[Any]) -> Any:
    """The one struct in a column; None if there is none."""
    found = table.column(column).drop_null().to_pylist(maps_as_pydicts="strict")
    return msgspec.convert(found[0], type_) if found else None


def _field(structs: Any, name: str) -> Any:
    return pc.struct_field(structs, name)
