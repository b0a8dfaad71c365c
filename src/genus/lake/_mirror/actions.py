"""Actions of a Delta log, as the Delta transaction log protocol defines them, and the files that hold them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from genus.errors import LakeDamaged

NO_OTHER_WRITERS = "genusLedger"
"""A writer feature that nobody else has: others read the table, and refuse to write it, because the ledger decides."""


class Protocol(msgspec.Struct, frozen=True, rename="camel"):
    """What readers and writers of the table must support."""

    min_reader_version: int = 1
    min_writer_version: int = 7
    writer_features: tuple[str, ...] = (NO_OTHER_WRITERS,)


class Format(msgspec.Struct, frozen=True):
    """The format of data files."""

    provider: str = "parquet"
    options: Mapping[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The schema of the table."""

    id: str
    name: str
    schema_string: str
    partition_columns: tuple[str, ...]
    created_time: int
    """In milliseconds since 1970, as all times of actions."""
    format: Format = Format()
    configuration: Mapping[str, str] = {}


class Transaction(msgspec.Struct, frozen=True, rename="camel"):
    """The version of the ledger that the table shows, with the identity of the lake."""

    app_id: str
    version: int
    last_updated: int | None = None


class Add(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the table."""

    path: str
    """Relative to the table, percent-encoded."""
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    """False where the rows were in the table before, in other files."""
    stats: str | None = None
    """JSON: rows, bounds and NULLs of columns."""


class Remove(msgspec.Struct, frozen=True, rename="camel"):
    """A file that is no longer in the table."""

    path: str
    data_change: bool
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None


class CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the entry came from."""

    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, str] = {}
    engine_info: str | None = None


class Action(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One line of an entry: exactly one of the fields is given. Fields of other writers are passed over."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Transaction | None = None
    add: Add | None = None
    remove: Remove | None = None


def encode_entry(actions: Iterable[Action]) -> bytes:
    """The content of a file of the log.

    >>> encode_entry([Action(txn=Transaction("4f21", 7, 1000))])
    b'{"txn":{"appId":"4f21","version":7,"lastUpdated":1000}}\\n'
    """
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def decode_entry(path: str, content: bytes) -> Sequence[Action]:
    """The actions in a file of the log; LakeDamaged if they cannot be read."""
    try:
        return msgspec.json.decode(b"[" + b",".join(content.splitlines()) + b"]", type=list[Action])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise LakeDamaged(f"{path}: {problem}; remove the folder, `genus lake mirror` makes it again") from problem
