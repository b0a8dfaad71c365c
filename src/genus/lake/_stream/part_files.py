"""Files of parts read and written in this process, because a Spark job takes longer to start than few rows take."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from genus.errors import LakeDamaged
from genus.lake._ingest.writer import write_parquet
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.commits import CommitDraft, Part, StoredFile
from genus.lake._tables.files import local_path, open_input, write_file
from genus.lake._tables.spark_columns import spark_schema
from genus.lake._tables.store import Store

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Metadata of a Parquet file that tells Spark the types of its columns."""


def read_rows(store: Store, parts: Sequence[Part], schema: pa.Schema) -> pa.Table:
    """The rows of some parts with the columns of a schema; columns that a file lacks are NULL."""
    tables = [_conform(_read_file(path), schema) for path in store.file_paths(parts)]
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def _read_file(path: str) -> pa.Table:
    with (
        _damage_named(path),
        open_input(path) as file,
        pq.ParquetFile(file, page_checksum_verification=True) as opened,
    ):
        return opened.read()


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Turn an error of pyarrow about a file into LakeDamaged."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as problem:
        raise LakeDamaged(f"{path} cannot be read: {problem}; restore it from a backup") from problem


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(table.schema.names)
    columns = [
        table.column(field.name).cast(field.type) if field.name in there else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def written_schema(store: Store, parts: Sequence[Part]) -> StructType | None:
    """The columns of the files of local parts, by their footers; None if a file does not say them.

    Spark would start a job to merge them.
    """
    if local_path(store.path) is None:
        return None
    texts = dict.fromkeys(_read_footer(path).get(_SPARK_SCHEMA) for path in store.file_paths(parts))
    fields: dict[str, StructField] = {}
    for text in texts:
        if text is None:
            return None
        fields = {field.name: field for field in StructType.fromJson(msgspec.json.decode(text))} | fields
    return StructType(list(fields.values()))


def _read_footer(path: str) -> dict[bytes, bytes]:
    with _damage_named(path), open_input(path) as file:
        return pq.read_metadata(file).metadata or {}


def write_rows(store: Store, rows: pa.Table, draft: CommitDraft, table: str) -> tuple[Part, ...]:
    """Write rows into a folder of a draft, as Spark would write them; returns it as a part, or none without rows."""
    if not rows.num_rows:
        return ()
    store.drafts.begin(draft.id)
    folder, name = f"{table}/{COMMIT}={draft.id}", "part-00000.parquet"
    stored = _as_stored(rows)
    written = write_file(f"{store.path}/{folder}/{name}", lambda stream: write_parquet(stream, stored))
    return (Part(table, folder, (StoredFile(name, rows.num_rows, *written),)),)


def _as_stored(rows: pa.Table) -> pa.Table:
    """Rows with durations as integers, because Parquet has no durations; the metadata says that they are intervals."""
    stored = [pa.field(each.name, pa.int64() if pa.types.is_duration(each.type) else each.type) for each in rows.schema]
    return rows.cast(pa.schema(stored)).replace_schema_metadata({_SPARK_SCHEMA: spark_schema(rows.schema).json()})
