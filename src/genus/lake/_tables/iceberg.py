"""Iceberg tables over the files of a lake, made by pyiceberg in a SQLite catalog in the folder of the lake.

A call brings every table to the present state of the ledger in one snapshot: files are added and removed, nothing is
rewritten. Iceberg stores absolute paths, so a lake that was moved gets new tables. Metadata name files that are not in
the tables any more, with bounds of their values, so before such files are removed, the tables are.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

from genus._extras import missing_extra
from genus.errors import LakeError
from genus.lake._tables.delta_log import file_columns, tables_of
from genus.lake._tables.files import local_path
from genus.lake._tables.mirror import MirrorResult
from genus.lake._tables.names import BATCH, table_folder
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

FOLDER, CATALOG, NAMESPACE = "_iceberg", "catalog.db", "lake"
LEDGER_VERSION, IDENTITY, PLACE = "genus.version", "genus.lake", "genus.path"
"""Properties of snapshots, and of the namespace."""
_NOT_IN_PATHS = "%#?"
"""Characters that pyiceberg and SQLAlchemy take for syntax of a URL."""


class IcebergTables:
    """The Iceberg tables of a lake in a local folder."""

    def __init__(self, store: Store) -> None:
        if (path := local_path(store.path)) is None:
            raise LakeError(f"{store.path} is not a local folder; Iceberg tables are made for local lakes only")
        self._store = store
        self._root = os.path.realpath(path)
        self._folder = f"{self._root}/{FOLDER}"

    @property
    def exist(self) -> bool:
        return os.path.exists(self._folder)

    def update(self, progress: Callable[[int, int], object] | None = None) -> MirrorResult:
        began = time.monotonic()
        if found := [sign for sign in _NOT_IN_PATHS if sign in self._root]:
            raise LakeError(f"{self._root}: pyiceberg does not find files in paths with {found[0]!r}; move the lake")
        state = self._store.state()
        changed = 0
        with closing(self._catalog(state)) as catalog:
            known = tables_of(state.catalog or "")
            tables = [each for each in known if state.table(each) or catalog.table_exists(_name(each))]
            for number, table in enumerate(tables, 1):
                changed += self._update(catalog, table, state)
                if progress is not None:
                    progress(number, len(tables))
        return MirrorResult(changed, changed, state.version, time.monotonic() - began)

    def remove(self) -> None:
        """Remove the tables, with the names and bounds of all files that they ever had; events are not touched."""
        self._store.files.delete(self._folder)

    def metadata_path(self, table: str) -> str:
        """Return the metadata file of a table; LakeError if there is no such table. Nothing is changed."""
        missing = LakeError(f"{table} is no Iceberg table yet; call iceberg() or `genus lake mirror --iceberg`")
        if not os.path.exists(f"{self._folder}/{CATALOG}"):
            raise missing
        with closing(self._open_catalog()) as catalog:
            if not catalog.table_exists(_name(table)):
                raise missing
            if not self._is_of(catalog, self._store.state()):
                raise LakeError(
                    f"the Iceberg tables of {self._store.path} were made for a lake at another place; call iceberg() "
                    "or `genus lake mirror --iceberg` to make them again"
                )
            return catalog.load_table(_name(table)).metadata_location

    def _catalog(self, state: LedgerState) -> "SqlCatalog":
        """Return the catalog; one of another lake, or of this one at another place, is replaced."""
        os.makedirs(self._folder, exist_ok=True)
        catalog = self._open_catalog()
        if catalog.namespace_exists(NAMESPACE) and not self._is_of(catalog, state):
            catalog.close()
            self.remove()
            return self._catalog(state)
        if not catalog.namespace_exists(NAMESPACE):
            catalog.create_namespace(NAMESPACE, self._properties(state))
        return catalog

    def _is_of(self, catalog: "SqlCatalog", state: LedgerState) -> bool:
        known = catalog.load_namespace_properties(NAMESPACE)
        return all(known.get(name) == text for name, text in self._properties(state).items())

    def _properties(self, state: LedgerState) -> dict[str, str]:
        return {IDENTITY: state.lake, PLACE: self._root}

    def _open_catalog(self) -> "SqlCatalog":
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError as missing:
            raise missing_extra("Iceberg tables need pyiceberg", "iceberg") from missing
        return SqlCatalog("genus", uri=f"sqlite:///{self._folder}/{CATALOG}", warehouse=f"file://{self._folder}")

    def _update(self, catalog: "SqlCatalog", table: str, state: LedgerState) -> bool:
        """Bring a table to a state; whether it has changed."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files
        from pyiceberg.table import TableProperties

        iceberg = _open(catalog, table, file_columns(state.catalog or "", table))
        parts = state.table(table)
        wanted = {f"file://{self._root}/{part.folder}/{file.name}" for part in parts for file in part.files}
        there = {task.file.file_path: task.file for task in iceberg.scan().plan_files()}
        if there.keys() == wanted:
            return False
        added = sorted(wanted - there.keys())
        properties = {LEDGER_VERSION: str(state.version), IDENTITY: state.lake}
        with iceberg.transaction() as transaction:
            if iceberg.name_mapping() is None:  # files have no numbers of columns
                mapping = iceberg.schema().name_mapping.model_dump_json()
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                for path in sorted(there.keys() - wanted):
                    snapshot.delete_data_file(there[path])
                for file in parquet_files_to_data_files(iceberg.io, transaction.table_metadata, iter(added)):
                    snapshot.append_data_file(file)
        return True


@contextmanager
def remade_without(store: Store, folders: Callable[[], Collection[str]]) -> Iterator[None]:
    """Remove the Iceberg tables of a lake before a block that removes some folders, and make them again after it.

    They name these folders. If the block or the process ends early, there are no tables until `update` is called.
    """
    tables = IcebergTables(store) if local_path(store.path) is not None else None
    if tables is None or not tables.exist or not folders():
        yield
        return
    tables.remove()
    yield
    if find_spec("pyiceberg") is not None:
        tables.update()


def _open(catalog: "SqlCatalog", table: str, files: pa.Schema) -> "Table":
    """The table with all columns of a schema, and `_batch` of rewritten files, because pyiceberg wants all columns."""
    schema, name = files.append(pa.field(BATCH, pa.int64())), _name(table)
    iceberg = catalog.load_table(name) if catalog.table_exists(name) else catalog.create_table(name, schema)
    if set(schema.names) - {field.name for field in iceberg.schema().fields}:
        with iceberg.update_schema() as update:
            update.union_by_name(schema)
    return iceberg


def _name(table: str) -> tuple[str, str]:
    return NAMESPACE, table_folder(table).rpartition("/")[2]
