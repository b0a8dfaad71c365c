"""Files of loop edges and their truth: what they stand for, and one clear line if they cannot be used."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from genus_traffic.edges import read_edges, read_truth_file
from genus_traffic.road.scene import SceneError
from genus_traffic.types import Category, Cleared, Loop

EDGES = {"t": [2.5, 1.25, 1.0], "detector": ["a/b/dn", "a/b/up", "a/b/up"], "edge": [1, 0, 1]}
PASSAGE = {
    "pair": "p", "veh": "v1", "vtype": "car", "length": 4.6, "t_up_enter": 10.0, "t_up_leave": 10.46,
    "t_dn_enter": 10.5, "t_dn_leave": 10.96, "v_up": 10.1, "v_dn": 9.9,
}  # fmt: skip


def second(at: float) -> datetime:
    """An instant of a file that counts from zero."""
    return datetime.fromtimestamp(at, UTC)


@pytest.mark.parametrize("name", ["edges.parquet", "edges.csv"])
def test_edges_become_events_in_order_of_time(tmp_path: Path, name: str) -> None:
    """A pair of loops is a site with one lane; only its upper loop says where it is."""
    table = pa.table(EDGES)
    (pa.csv.write_csv if name.endswith("csv") else pq.write_table)(table, tmp_path / name)
    assert read_edges(tmp_path / name) == [
        Loop(lane=0, time=second(1.0), source="a/b", place="a/b"),
        Cleared(lane=0, time=second(1.25), source="a/b", place="a/b"),
        Loop(lane=0, time=second(2.5), source="a/b"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detector": None}, "no column detector; it has t, edge"),
        ({"t": ["soon", "1", "2"]}, "column t: "),
        ({"t": [None, 1.0, 2.0]}, "column t is empty in 1 rows"),
        ({"t": [float("nan"), 1.0, 2.0]}, "row 0: t = nan is no time"),
        ({"t": [1.0, -1.0, 2.0]}, "row 1: t = -1.0 is no time"),
        ({"detector": ["a/up", "a/left", "b/dn"]}, "row 1: detector 'a/left' is no <pair>/up or <pair>/dn"),
        ({"detector": ["/up", "a/dn", "b/dn"]}, "row 0: detector '/up' is no"),
        ({"edge": [1, 0, 2]}, "row 2: edge = 2 is neither 1"),
        ({"edge": [1.0, 0.5, 0.0]}, "column edge: "),
    ],
)
def test_broken_edges_are_refused_in_one_line(tmp_path: Path, change: dict[str, list[object]], message: str) -> None:
    columns = {name: values for name, values in {**EDGES, **change}.items() if values is not None}
    pq.write_table(pa.table(columns), tmp_path / "edges.parquet")
    with pytest.raises(SceneError, match=r"edges\.parquet: ") as refused:
        read_edges(tmp_path / "edges.parquet")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "says"), [("x.parquet", "is not Parquet"), ("x.csv", "is not CSV")])
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SceneError, match=says):
        read_edges(tmp_path / name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=r"edges\.parquet: No such file"):
        read_edges(tmp_path / "edges.parquet")
    with pytest.raises(SceneError, match="Is a directory"):
        read_truth_file(tmp_path)


def truth(tmp_path: Path, **change: object) -> Path:
    """A file with one passage."""
    pq.write_table(pa.Table.from_pylist([{**PASSAGE, **change}]), tmp_path / "truth.parquet")
    return tmp_path / "truth.parquet"


def test_the_truth_tells_of_passages(tmp_path: Path) -> None:
    (passage,) = read_truth_file(truth(tmp_path))
    assert passage.complete
    assert (passage.site, passage.lane, passage.vehicle) == ("p", 0, "v1")
    assert (passage.category, passage.length_m) == (Category.CAR, 4.6)
    assert passage.upper_on_us == 10_000_000
    assert passage.speed == 10.0, "the mean speed over the 5 m"
    assert passage.traps == ()


@pytest.mark.parametrize(
    ("change", "speed", "traps"),
    [
        ({"t_up_enter": 10.48}, 10.0, ()),
        ({"t_up_enter": 10.5}, 10.0, ("simultaneous",)),
        ({"t_up_enter": 0.5}, 0.5, ()),
        ({"t_up_enter": -30.0}, 5 / 40.5, ("standing",)),
        ({"t_dn_enter": None, "t_dn_leave": None, "v_dn": None}, None, ("lane change",)),
        ({"t_dn_enter": float("nan"), "t_dn_leave": None}, None, ("lane change",)),
    ],
)
def test_the_true_speed_is_that_of_the_front_unless_it_came_from_the_side(
    tmp_path: Path, change: dict[str, float | None], speed: float | None, traps: tuple[str, ...]
) -> None:
    (passage,) = read_truth_file(truth(tmp_path, **change))
    assert passage.speed == (None if speed is None else pytest.approx(speed))
    assert passage.traps == traps


@pytest.mark.parametrize(
    ("vtype", "category"),
    [("semi", "truck"), ("truck_b", "truck"), ("bus", "bus"), ("motorcycle", "motorcycle"), ("van", "car")],
)
def test_types_of_vehicles_have_a_category(tmp_path: Path, vtype: str, category: str) -> None:
    (passage,) = read_truth_file(truth(tmp_path, vtype=vtype))
    assert passage.category is Category(category)


def test_a_truth_without_its_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pair": ["a"]}), tmp_path / "truth.parquet")
    with pytest.raises(SceneError, match="holds no truth: there is no column veh"):
        read_truth_file(tmp_path / "truth.parquet")
