"""The interface between file formats and the ingest job.

A `Format` cuts a file into splits, on the driver, and reads one split, in a task. Reading yields columns of valid
events of one type at a time, and dead letters for everything else; it never raises because of the content of a file.
The job adds Genus' columns and writes both.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.lake._tables.columns import attribute_schema
from genus.model.types import Vector

Unknown: TypeAlias = Literal["dead", "pass"]
"""What to do with frames that the DBC file does not have: make them dead letters, or skip them."""

RAW_LIMIT = 4096
"""A dead letter keeps at most this many characters of the input."""


class Split(msgspec.Struct, frozen=True):
    """A range of a file, in bytes or in another unit of its format."""

    path: str
    start: int
    end: int
    gzipped: bool = False
    """Whether a text file is read through gzip; found out once, when the file is cut."""
    share: str = ""
    """What of the range is read, for formats that read a file by several splits in different ways."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Input that is not a valid event: its position, the reason and the raw text."""

    position: int
    reason: str
    raw: str

    @classmethod
    def of(cls, position: int, reason: str, raw: bytes | str) -> "DeadLetter":
        """Return a dead letter with the raw text cut to `RAW_LIMIT`; bytes that are not UTF-8 are escaped."""
        text = raw if isinstance(raw, str) else raw[: 4 * RAW_LIMIT].decode("utf-8", "backslashreplace")
        return cls(position, reason, text.encode("utf-8", "backslashreplace").decode()[:RAW_LIMIT])


class Columns(msgspec.Struct, frozen=True):
    """Events of one type.

    The batch has a column for every attribute that any of them carries, with the type in `TypePlan.schema`, in any
    order; attributes without a column are absent. It also has `_position` (int64, unique in the source) and `_recorded`
    (timestamp of recording; the event's time if the source does not state it).
    """

    type: str
    batch: pa.RecordBatch


Chunk: TypeAlias = Columns | list[DeadLetter]


class Format(Protocol):
    """A file format of events. Frozen, and small when pickled, because it is sent to every task."""

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Cut a file of `size` bytes into ranges of about `target` bytes that can be read in parallel.

        Ranges need not end at events: `read` finds the first and the last whole event, so that every event is in
        exactly one split. A format that cannot be cut returns one split.
        """

    def read(self, split: Split, types: "Types") -> Iterator[Chunk]:
        """Return the events and dead letters of a split; 10,000 to 100,000 events per chunk are best."""


class Types:
    """The event types of a catalog in a task, parsed once per process."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.entries: Mapping[str, TypeEntry] = dict(catalog.entries)
        self._plans: dict[str, TypePlan | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries.values() if not entry.kind)

    def plan(self, name: str) -> "TypePlan | None":
        """Return the plan of a type; None if the catalog has no such event type."""
        if name not in self._plans:
            known = self.entries.get(name)
            self._plans[name] = None if known is None or known.kind else TypePlan(self, known)
        return self._plans[name]

    def expected(self, name: str) -> "TypePlan":
        """Return the plan of a type that must be in the catalog."""
        plan = self.plan(name)
        assert plan is not None, f"a format returned events of {name}, which is not in the catalog"
        return plan

    def declared(self, name: str) -> dict[str, bool]:
        """Return the own and inherited attributes of a type, and whether each is required."""
        entry = self.entries[name]
        inherited = [self.declared(parent) for parent in entry.parents]
        return {attribute: must for each in (*inherited, entry.attributes) for attribute, must in each.items()}


class TypePlan:
    """One event type: its family's vector, its own attributes and those that are required."""

    def __init__(self, types: Types, entry: TypeEntry) -> None:
        declared = types.declared(entry.name)
        self.name = entry.name
        self.family = entry.family or entry.name
        self.code = str(entry.code)
        self.vector: Vector = types.catalog.vector(entry.name)
        self.attributes = tuple(attribute for attribute in self.vector if attribute.name in declared)
        self.required = tuple(attribute.name for attribute in self.attributes if declared[attribute.name])
        self.schema: pa.Schema = pa.schema([field for field in attribute_schema(self.vector) if field.name in declared])
        """Attribute columns that a batch of this type may have, with the types of the lake."""


@lru_cache(maxsize=4)
def types_of(catalog_text: str) -> Types:
    """Return the types of a catalog given as text; cached, because a task needs them for every split."""
    return Types(Catalog.parse(catalog_text))
