"""The contract between formats and the ingest job.

A `Format` knows how to cut a file into splits, on the driver, and how to read one, in a task. Reading gives columns of
events of one type at a time, every one of them valid, and dead letters for everything that is not; it never raises on
what a file holds. The job adds the columns of Genus' own and writes both.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol, TypeAlias

import msgspec
import pyarrow as pa

from genus.catalog import Catalog, TypeEntry
from genus.lake._tables.columns import INSTANT, POSITION, RECORDED, attribute_schema
from genus.model import Vector

RAW_LIMIT = 4096
"""A dead letter keeps so many characters of what was there."""


class Split(msgspec.Struct, frozen=True):
    """A range of a file, in bytes or whatever its format counts in."""

    path: str
    start: int
    end: int
    gzipped: bool = False
    """Whether a text file is read through gzip; found out once, when the file is cut."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Something that is no event: where it was, why it is none, and what it said."""

    position: int
    reason: str
    raw: str

    @classmethod
    def of(cls, position: int, reason: str, raw: bytes | str) -> "DeadLetter":
        """A dead letter with as much of the raw text as is kept; bytes that are no text are shown as escapes."""
        text = raw if isinstance(raw, str) else raw[: 4 * RAW_LIMIT].decode("utf-8", "backslashreplace")
        return cls(position, reason, text.encode("utf-8", "backslashreplace").decode()[:RAW_LIMIT])


class Columns(msgspec.Struct, frozen=True):
    """Events of one type.

    The batch has a column for every attribute that any of them carries, as `TypePlan.schema` says, in any order; what
    it lacks is absent. Beside them it has `_position` (int64: where in the source; unique in it) and `_recorded`
    (timestamp: when it was seen; the event's time where nobody says).
    """

    type: str
    batch: pa.RecordBatch


Chunk: TypeAlias = Columns | list[DeadLetter]


class Format(Protocol):
    """One way in which events are kept outside a lake. Frozen, and small when pickled: it is sent to every task."""

    @property
    def name(self) -> str:
        """What it is called on the command line and in messages."""

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """A file of some size in ranges of about `target` bytes, which can be read at the same time.

        Ranges may be guesses: `read` then finds the first and last whole event by itself, so that every event is in
        exactly one split. A format that cannot be cut gives one.
        """

    def read(self, split: Split, types: "Types") -> Iterator[Chunk]:
        """The events of a split; about 10,000 to 100,000 a chunk are best."""


class Types:
    """The event types of a catalog, as a task knows them: parsed once per process, for all its splits."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.entries: Mapping[str, TypeEntry] = dict(catalog.entries)
        self._plans: dict[str, TypePlan | None] = {}

    def plan(self, name: str) -> "TypePlan | None":
        """What events of a type may hold; None if the catalog has no such event type."""
        if name not in self._plans:
            known = self.entries.get(name)
            self._plans[name] = None if known is None or known.kind else TypePlan(self, known)
        return self._plans[name]

    def expected(self, name: str) -> "TypePlan":
        """What events of a type may hold that a format found in the catalog."""
        plan = self.plan(name)
        assert plan is not None, f"a format gave events of {name}, which the catalog does not have"
        return plan

    def declared(self, name: str) -> dict[str, bool]:
        """The attributes of a type, its own and inherited, and whether each is required."""
        entry = self.entries[name]
        inherited = [self.declared(parent) for parent in entry.parents]
        return {attribute: must for each in (*inherited, entry.attributes) for attribute, must in each.items()}


class TypePlan:
    """One event type: its vector, the attributes it has itself, and those of them that must be there."""

    def __init__(self, types: Types, entry: TypeEntry) -> None:
        declared = types.declared(entry.name)
        self.name = entry.name
        self.family = entry.family or entry.name
        self.code = str(entry.code)
        self.vector: Vector = types.catalog.vector(entry.name)
        self.attributes = tuple(attribute for attribute in self.vector if attribute.name in declared)
        self.required = tuple(attribute.name for attribute in self.attributes if declared[attribute.name])
        self.schema: pa.Schema = pa.schema([field for field in attribute_schema(self.vector) if field.name in declared])
        """The columns that a batch of this type may have, by the lake's types."""


POSITION_FIELD = pa.field(POSITION, pa.int64(), nullable=False)
RECORDED_FIELD = pa.field(RECORDED, INSTANT, nullable=False)


@lru_cache(maxsize=4)
def types_of(catalog_text: str) -> Types:
    """The types of a catalog's text; a task asks for the same one for every split."""
    return Types(Catalog.parse(catalog_text))
