"""Statistics of a Parquet file for readers that skip files: rows, NULLs and bounds, from the footer of the file.

Bounds are given for columns of integers, times and short texts. They are not given for floating-point numbers: a footer
does not say whether there are NaNs, which readers take for larger than all numbers.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from genus.errors import LakeError
from genus.lake._tables.files import FileSystem, local_path, open_input

LONGEST_BOUND = 32
"""Bounds of longer texts are left out."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Statistics(msgspec.Struct, frozen=True, rename="camel"):
    """The statistics of one file in the form of Delta."""

    num_records: int
    min_values: Mapping[str, int | str] = {}
    max_values: Mapping[str, int | str] = {}
    null_count: Mapping[str, int] = {}


class Chunk(NamedTuple):
    """A column in one row group."""

    nulls: int | None
    """None if it is not known."""
    low: int | str | None
    """The least value; None if it is not known, or if there are NULLs only."""
    high: int | str | None
    rows: int


def file_statistics(files: FileSystem, path: str, rows: int, columns: Mapping[str, str]) -> str:
    """The statistics of a file as JSON; only the number of rows if the file is gone.

    Args:
        files: The file system of the lake.
        path: The file.
        rows: Its number of rows, by the ledger.
        columns: The Delta types of the columns that statistics are wanted of.
    """
    footer = _read_footer(files, path)
    if footer is None:
        return msgspec.json.encode(Statistics(rows)).decode()
    chunks = {name: list(found) for name, found in _chunks(footer, columns)}
    nulls = {name: count for name, found in chunks.items() if (count := _sum_nulls(found)) is not None}
    bounded = {name: found for name, found in chunks.items() if all(map(_is_bounded, found))}
    lows = {name: [each.low for each in found if each.low is not None] for name, found in bounded.items()}
    highs = {name: [each.high for each in found if each.high is not None] for name, found in bounded.items()}
    least: dict[str, Any] = {name: min(values) for name, values in lows.items() if values}
    most: dict[str, Any] = {name: max(values) for name, values in highs.items() if values}
    statistics = Statistics(rows, _shown(least, columns), _shown(most, columns), nulls)
    return msgspec.json.encode(statistics).decode()


def _read_footer(files: FileSystem, path: str) -> Any:
    """The Parquet metadata of a file; None if the file is gone."""
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


def _chunks(footer: Any, columns: Mapping[str, str]) -> Iterator[tuple[str, Iterable[Chunk]]]:
    names = footer.schema.names
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for index, name in enumerate(names):
        if name in columns:
            yield name, [_chunk(group, index, columns[name]) for group in groups]


def _chunk(group: Any, index: int, type_: str) -> Chunk:
    found = group.column(index).statistics
    if found is None:
        return Chunk(None, None, None, group.num_rows)
    nulls = found.null_count if found.has_null_count else None
    low, high = _bounds(found, type_) if found.has_min_max else (None, None)
    return Chunk(nulls, low, high, group.num_rows)


def _bounds(found: Any, type_: str) -> tuple[int | str | None, int | str | None]:
    match type_:
        case "byte" | "short" | "integer" | "long" | "timestamp":
            return found.min_raw, found.max_raw
        case "string" if len(found.min) <= LONGEST_BOUND and len(found.max) <= LONGEST_BOUND:
            return found.min, found.max
    return None, None


def _is_bounded(chunk: Chunk) -> bool:
    """Whether the bounds of a chunk are known; one with NULLs only needs none."""
    return chunk.low is not None or chunk.nulls == chunk.rows


def _sum_nulls(chunks: list[Chunk]) -> int | None:
    counts = [each.nulls for each in chunks if each.nulls is not None]
    return sum(counts) if len(counts) == len(chunks) else None


def _shown(bounds: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, int | str]:
    """Bounds in the form of Delta, which has times as text."""
    return {name: instant(value) if columns[name] == "timestamp" else value for name, value in bounds.items()}


def instant(micros: int) -> str:
    """Microseconds since 1970 as text.

    >>> instant(1_777_615_200_005_000)
    '2026-05-01T06:00:00.005000Z'
    """
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")
