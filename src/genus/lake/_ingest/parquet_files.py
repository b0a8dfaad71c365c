"""Parquet files of other systems: splits are row groups, the position of an event is the number of its row."""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from genus.lake._ingest.format import Chunk, DeadLetter, Split, Types
from genus.lake._ingest.tabular import TableReader, flatten_structs
from genus.lake._ingest.text_lines import changed_us
from genus.lake._tables.files import open_input
from genus.records._mapping import Mapping

_ROWS = 65_536


class ParquetFiles(msgspec.Struct, frozen=True):
    """Parquet files with one row per event."""

    mapping: Mapping = Mapping()

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Runs of row groups of about `target` bytes."""
        try:
            with open_input(path) as file:
                metadata = pq.ParquetFile(file).metadata
        except (pa.ArrowException, OSError):  # reading the file reports the problem
            return [Split(path, 0, 1)]
        sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
        return [Split(path, start, end) for start, end in _runs(sizes, target)]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events and dead letters of some row groups."""
        reader = TableReader(self.mapping, types, changed_us(split.path), as_text=False)
        with open_input(split.path) as stream:
            try:
                file = pq.ParquetFile(stream)
            except (pa.ArrowException, OSError) as problem:
                yield [DeadLetter.of(0, f"not a Parquet file: {problem}", b"")]
                return
            for group in range(split.start, min(split.end, file.num_row_groups)):
                yield from _read_group(file, group, reader)


def _runs(sizes: list[int], target: int) -> Iterator[tuple[int, int]]:
    start, held = 0, 0
    for group, size in enumerate(sizes):
        if held and held + size > target:
            yield start, group
            start, held = group, 0
        held += size
    yield start, len(sizes)


def _read_group(file: pq.ParquetFile, group: int, reader: TableReader) -> Iterator[Chunk]:
    """The events of a row group; one dead letter for its rest if it is damaged."""
    position = sum(file.metadata.row_group(before).num_rows for before in range(group))
    try:
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group], use_threads=False):
            yield from reader.read(flatten_structs(batch), np.arange(position, position + batch.num_rows))
            position += batch.num_rows
    except (pa.ArrowException, OSError) as problem:
        yield [DeadLetter.of(position, f"row group {group} is damaged here: {problem}", b"")]
