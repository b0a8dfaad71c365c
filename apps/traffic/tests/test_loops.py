"""Speeds from a file of loop edges, through a lake: as a stream and in batch, against the truth."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from genus_traffic.edges import read_edges, read_truth_file
from genus_traffic.loops import measure
from genus_traffic.results import Steps
from genus_traffic.run_folder import prepare

VEHICLES, SPEED, LENGTH = 6, 10.0, 4.6


def write_scene(folder: Path) -> None:
    """Vehicles one after the other, all at one speed, of which the last leaves the lane between the loops."""
    edges, truth = [], []
    for number in range(VEHICLES):
        at = {"up_enter": 10.0 * number, "up_leave": 10.0 * number + LENGTH / SPEED}
        is_last = number == VEHICLES - 1
        at |= {} if is_last else {"dn_enter": at["up_enter"] + 0.5, "dn_leave": at["up_leave"] + 0.5}
        edges += [
            {"t": t, "detector": f"pair/{name[:2]}", "edge": int(name.endswith("enter"))} for name, t in at.items()
        ]
        instants = {
            f"t_{loop}_{edge}": at.get(f"{loop}_{edge}") for loop in ("up", "dn") for edge in ("enter", "leave")
        }
        speeds = {"v_up": SPEED, "v_dn": None if is_last else SPEED}
        truth.append({"pair": "pair", "veh": f"{number}", "vtype": "car", "length": LENGTH, **instants, **speeds})
    pq.write_table(pa.Table.from_pylist(edges), folder / "edges.parquet")
    pq.write_table(pa.Table.from_pylist(truth), folder / "truth.parquet")


@pytest.mark.slow
def test_edges_without_categories_give_speeds_too(tmp_path: Path, spark: SparkSession) -> None:
    """Such files have no categories, so only passages are analysed, and no statistics."""
    write_scene(tmp_path)
    edges, truth = read_edges(tmp_path / "edges.parquet"), read_truth_file(tmp_path / "truth.parquet")
    measured = measure(edges, truth, prepare(tmp_path / "demo"), spark, Steps())
    assert (measured.edges, measured.pairs, measured.speeds, measured.one_sided) == (22, 1, 5, 1)
    assert measured.stream_equals_batch
    assert not (tmp_path / "demo" / "statistics").exists()
    assert measured.accuracy is not None
    assert (measured.accuracy.complete, measured.accuracy.right, measured.accuracy.invented) == (5, 5, 0)
