"""Schemas of a lake's tables in the form of Delta.

Columns have the names that they have in files, which are the first ones of attributes that were renamed: Delta can map
names to others, but Polars and others refuse tables that do. Durations are microseconds.
"""

from collections.abc import Mapping
from functools import cached_property

import msgspec
import pyarrow as pa

from genus.catalog import Catalog
from genus.errors import LakeDamaged
from genus.lake._tables.columns import COMMIT, DAY, DEAD_LETTERS, DEAD_SCHEMA, INSTANT, file_schema

_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    INSTANT: "timestamp",
}
_PATHS = {COMMIT: "string", DAY: "date"}
"""Columns in the paths of files: all of them must be named, or Polars refuses the table."""


class Field(msgspec.Struct, frozen=True):
    """A column."""

    name: str
    type: str
    nullable: bool = True
    metadata: Mapping[str, str] = {}


class Schema(msgspec.Struct, frozen=True):
    """The columns of a table."""

    fields: tuple[Field, ...]
    type: str = "struct"


class TableSchema(msgspec.Struct, frozen=True):
    """The schema of a table, and which columns are in the paths of its files."""

    text: str
    """As JSON."""
    columns: Mapping[str, str]
    """The Delta types of the columns in files."""
    partitions: tuple[str, ...]


class Schemas:
    """The schemas of the tables of a lake, by the text of its catalog."""

    def __init__(self, catalog: str) -> None:
        self.text = catalog
        self._made: dict[str, TableSchema] = {}

    @cached_property
    def _catalog(self) -> Catalog:
        return Catalog.parse(self.text)

    @property
    def tables(self) -> list[str]:
        """The tables that a lake with this catalog may have."""
        return [*self._catalog.families, DEAD_LETTERS]

    def of(self, table: str) -> TableSchema:
        """The schema of a table; LakeDamaged if the catalog lacks its family."""
        if table not in self._made:
            self._made[table] = self._make(table)
        return self._made[table]

    def _make(self, table: str) -> TableSchema:
        partitions = (COMMIT,) if table == DEAD_LETTERS else (COMMIT, DAY)
        return table_schema(self.file_schema(table), *partitions)

    def file_schema(self, table: str) -> pa.Schema:
        """The Arrow schema of the files of a table; LakeDamaged if the catalog lacks its family."""
        if table == DEAD_LETTERS:
            return DEAD_SCHEMA
        if table not in self._catalog.families:
            raise LakeDamaged(f"the catalog in the ledger lacks the family {table}, which has events")
        return file_schema(self._catalog.families[table])


def table_schema(files: pa.Schema, *partitions: str) -> TableSchema:
    """The schema of a table by that of its files.

    >>> table_schema(pa.schema([("lane", pa.int64())]), "_day").columns
    {'lane': 'long'}
    """
    columns = {field.name: _TYPES[field.type] for field in files}
    paths = {name: _PATHS[name] for name in partitions}
    fields = tuple(Field(name, type_) for name, type_ in {**columns, **paths}.items())
    return TableSchema(msgspec.json.encode(Schema(fields)).decode(), columns, partitions)
