"""The truth about a run, kept as a Parquet file: one row per passage, with the columns of `Passage`."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from genus_traffic.road.detections import Passage
from genus_traffic.road.scene import SceneError

SCHEMA = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        pa.field("lane", pa.int64(), nullable=False),
        pa.field("vehicle", pa.string(), nullable=False),
        pa.field("category", pa.string(), nullable=False),
        pa.field("length_m", pa.float64(), nullable=False),
        pa.field("upper_on_us", pa.int64()),
        pa.field("upper_off_us", pa.int64()),
        pa.field("lower_on_us", pa.int64()),
        pa.field("lower_off_us", pa.int64()),
        pa.field("speed", pa.float64()),
        pa.field("traps", pa.list_(pa.string()), nullable=False),
    ]
)


def write_truth(passages: Iterable[Passage], path: str | Path) -> Path:
    """Write passages to a file, in their order, and return its path; SceneError if it cannot be written."""
    rows = msgspec.to_builtins(list(passages))
    try:
        with Path(path).open("wb") as file:
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
    except OSError as problem:
        raise SceneError(f"{path}: cannot write the truth: {_short(problem)}") from problem
    return Path(path)


def read_truth(path: str | Path) -> list[Passage]:
    """Read the passages of a file; SceneError says what is wrong with it."""
    table = _read_table(Path(path))
    absent = [name for name in SCHEMA.names if name not in table.column_names]
    if absent:
        raise SceneError(f"{path}: holds no truth: there is no column {', '.join(absent)}")
    try:
        rows = table.select(SCHEMA.names).cast(SCHEMA).to_pylist()
        return msgspec.convert(rows, list[Passage])
    except (pa.ArrowException, ValueError) as problem:
        raise SceneError(f"{path}: holds no truth: {_short(problem)}") from problem


def _read_table(path: Path) -> pa.Table:
    # One file, opened here: pyarrow would take a folder for a dataset, and a text with a colon for an address.
    try:
        with path.open("rb") as file:
            return pq.read_table(file)
    except pa.ArrowException as problem:
        raise SceneError(f"{path}: is not Parquet, or is damaged: {_short(problem)}") from problem
    except OSError as problem:
        raise SceneError(f"{path}: {problem.strerror or _short(problem)}") from problem


def _short(problem: Exception) -> str:
    """The first line of an error: Arrow's messages go on with its own source files."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem).strip().partition("\n")[0]
