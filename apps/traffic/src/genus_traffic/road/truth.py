"""Detections, as the hardware of loops makes them; passages, which are the truth; and the truth as a Parquet file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from genus_traffic.road.scene import SceneError
from genus_traffic.types import Category

LoopOfPair: TypeAlias = Literal["upper", "lower"]


class Detection(msgspec.Struct, frozen=True):
    """An edge of a vehicle at a loop, at an instant of true time (microseconds since 1970)."""

    at_us: int
    lane: int
    loop: LoopOfPair
    on: bool
    """True for the leading edge, False for the trailing one."""
    category: Category | None = None
    """The category that an upper loop reads with the leading edge; a lower loop reads none."""
    confidence: float | None = None
    """The confidence of a loop of the new generation; loops of the old one have none."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one vehicle at one pair of loops; an edge that no sensor detected is None."""

    site: str
    lane: int
    vehicle: str
    category: Category
    length_m: float
    upper_on_us: int | None = None
    upper_off_us: int | None = None
    lower_on_us: int | None = None
    lower_off_us: int | None = None
    speed: float | None = None
    """Its mean speed from the upper to the lower loop, in m/s; None unless its front was over both in this lane."""
    traps: tuple[str, ...] = ()
    """What makes it hard to measure: "standing", "two between", "lane change", "missed", "simultaneous"."""

    @property
    def complete(self) -> bool:
        """Whether both loops detected both of its edges."""
        edges = self.upper_on_us, self.upper_off_us, self.lower_on_us, self.lower_off_us
        return None not in edges


# -- the truth as a file -----------------------------------------------------------------------------------------------


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
