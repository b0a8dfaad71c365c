"""Read files of loop edges and of their truth, as traffic simulators write them: Parquet, or CSV with a header.

Edges have the columns `t` (seconds, since 1970 or since the start), `detector` (`<pair>/up` or `<pair>/dn`) and `edge`
(1 for the leading one, 0 for the trailing one). A pair of loops becomes a site with one lane. The truth has a row per
vehicle at a pair: `pair`, `veh`, `vtype`, `length`, the instants `t_up_enter`, `t_up_leave`, `t_dn_enter`, `t_dn_leave`
and the speeds `v_up`, `v_dn` at the loops; missing values are empty.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from genus_traffic.road.scene import SceneError
from genus_traffic.road.truth import Passage
from genus_traffic.types import DISTANCE_M, Category, Cleared, Edge, Loop

_EDGES = pa.schema(
    [
        pa.field("t", pa.float64(), nullable=False),
        pa.field("detector", pa.string(), nullable=False),
        pa.field("edge", pa.int64(), nullable=False),
    ]
)
_INSTANTS = ("t_up_enter", "t_up_leave", "t_dn_enter", "t_dn_leave")
_TRUTH = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("pair", "veh", "vtype")),
        pa.field("length", pa.float64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in (*_INSTANTS, "v_up", "v_dn")),
    ]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_S = 4e9
_LOOPS = {"up": True, "dn": False}
_CATEGORIES = {"bus": Category.BUS, "moto": Category.MOTORCYCLE, "truck": Category.TRUCK, "semi": Category.TRUCK}
"""Categories by the start of a vehicle type's name; all others are cars."""
_STANDING = 0.5
"""A vehicle with a mean speed (m/s) below this stood somewhere."""


def read_edges(path: str | Path) -> list[Edge]:
    """Read a file of edges as events, in order of time; SceneError says what is wrong with the file."""
    table = _read(Path(path), _EDGES, "edges")
    rows = zip(*(table.column(name).to_pylist() for name in _EDGES.names), strict=True)
    edges = [_edge(path, number, *row) for number, row in enumerate(rows)]
    return sorted(edges, key=lambda edge: edge.time or _EPOCH)


def read_truth_file(path: str | Path) -> list[Passage]:
    """Read the passages of a truth file; SceneError says what is wrong with the file."""
    return [_passage(row) for row in _read(Path(path), _TRUTH, "truth").to_pylist()]


def _read(path: Path, schema: pa.Schema, what: str) -> pa.Table:
    table = _open(path)
    names = table.column_names
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise SceneError(f"{path}: column {doubled[0]} is there twice")
    if absent := [name for name in schema.names if name not in table.column_names]:
        raise SceneError(
            f"{path}: holds no {what}: there is no column {', '.join(absent)}; it has {', '.join(table.column_names)}"
        )
    return pa.table([_cast(path, table.column(field.name), field) for field in schema], schema=schema)


def _open(path: Path) -> pa.Table:
    # One file, opened here: pyarrow would take a folder for a dataset, and a text with a colon for an address.
    is_csv = path.suffix.lower() == ".csv"
    try:
        with path.open("rb") as file:
            return pa.csv.read_csv(file) if is_csv else pq.read_table(file)
    except pa.ArrowException as problem:
        raise SceneError(f"{path}: is not {'CSV' if is_csv else 'Parquet'}: {_short(problem)}") from problem
    except OSError as problem:
        raise SceneError(f"{path}: {_short(problem)}") from problem


def _cast(path: Path, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not field.nullable and column.null_count:
        raise SceneError(f"{path}: column {field.name} is empty in {column.null_count} rows; every row needs one")
    try:
        return column.cast(field.type)
    except pa.ArrowException as problem:
        raise SceneError(f"{path}: column {field.name}: {_short(problem)}") from problem


def _short(problem: Exception) -> str:
    """The first line of an error: Arrow's messages go on with its own source files."""
    return str(getattr(problem, "strerror", None) or problem).strip().partition("\n")[0]


def _edge(path: str | Path, number: int, t: float, detector: str, edge: int) -> Edge:
    pair, _, loop = detector.rpartition("/")
    if not pair or loop not in _LOOPS:
        raise SceneError(f"{path}: row {number}: detector {detector!r} is no <pair>/up or <pair>/dn")
    if not 0 <= t < _LATEST_S:
        raise SceneError(f"{path}: row {number}: t = {t} is no time in seconds")
    if edge not in (0, 1):
        raise SceneError(f"{path}: row {number}: edge = {edge} is neither 1 (on) nor 0 (off)")
    time = _EPOCH + timedelta(microseconds=round(t * 1e6))
    place = pair if _LOOPS[loop] else None
    return (Loop if edge else Cleared)(lane=0, time=time, source=pair, place=place)


def _passage(row: Mapping[str, Any]) -> Passage:
    upper_on, upper_off, lower_on, lower_off = (_micros(row[name]) for name in _INSTANTS)
    speed = _speed(upper_on, lower_on, row["v_up"], row["v_dn"])
    return Passage(
        site=row["pair"],
        lane=0,
        vehicle=row["veh"],
        category=_category(row["vtype"]),
        length_m=row["length"],
        upper_on_us=upper_on,
        upper_off_us=upper_off,
        lower_on_us=lower_on,
        lower_off_us=lower_off,
        speed=speed,
        traps=tuple(_traps(upper_on, lower_on, speed)),
    )


def _micros(t: float | None) -> int | None:
    return None if t is None or not isfinite(t) else round(t * 1e6)


def _speed(upper_on: int | None, lower_on: int | None, v_up: float | None, v_dn: float | None) -> float | None:
    """The mean speed from loop to loop; for a vehicle that came from the side, the mean of its speeds at the loops."""
    if upper_on is None or lower_on is None or v_up is None or v_dn is None:
        return None
    if lower_on > upper_on and (mean := DISTANCE_M * 1e6 / (lower_on - upper_on)) <= max(v_up, v_dn) + 1:
        return mean
    return (v_up + v_dn) / 2


def _category(vtype: str) -> Category:
    return next((category for name, category in _CATEGORIES.items() if vtype.startswith(name)), Category.CAR)


def _traps(upper_on: int | None, lower_on: int | None, speed: float | None) -> Iterator[str]:
    if upper_on is None or lower_on is None:
        yield "lane change"
    elif upper_on == lower_on:
        yield "simultaneous"
    elif speed is not None and speed < _STANDING:
        yield "standing"
