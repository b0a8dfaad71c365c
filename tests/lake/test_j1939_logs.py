"""J1939 logs in a lake: addresses are numbers in the tables, and long messages are whole however a log is cut."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from genus import Subscription
from genus.can._dbc import Decoding, load_dbc
from genus.can._logs import read_log
from genus.lake import Lake, LakeReader
from genus.lake._ingest.can_logs import CanLogs
from tests.can.truck import MESSAGES, TRUCK, TSC1, candump, traffic

from .test_can_logs import catalog_of, read, reasons_of, said


@pytest.fixture(scope="module")
def truck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("truck") / "truck.dbc"
    path.write_text(TRUCK)
    return path


def frame_by_frame(dbc: Path, log: Path) -> tuple[list[Any], Counter[str]]:
    """The events of a log, and why frames and long messages are none."""
    decoding = Decoding(load_dbc(dbc), read_log(log))
    events = [said(recorded.event) for recorded in decoding]
    lost = Counter({f"long message incomplete: {reason}": n for reason, n in decoding.incomplete.items()})
    return events, decoding.rejected + lost


@pytest.mark.slow
@pytest.mark.parametrize("target", [800, 5_000, 1 << 20])
@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_a_log_in_ranges_gives_what_it_gives_frame_by_frame(
    truck: Path, tmp_path: Path, target: int, loss: float
) -> None:
    """Sessions cross the ranges; the events, their values and what is incomplete are the same."""
    rnd = random.Random(target)
    lines = [line for line in traffic(target, 500) if rnd.random() >= loss]
    log = tmp_path / "truck.log"
    log.write_text(candump(lines))
    dbc = load_dbc(truck)
    format = CanLogs.of(dbc, "log")
    splits = format.splits(str(log), log.stat().st_size, target)
    assert len(splits) == 1 if target == 1 << 20 else len(splits) > 3
    events, letters = read(format, log, catalog_of(*dbc.all_types), target)
    wanted, reasons = frame_by_frame(truck, log)
    assert sorted(map(as_text, events.values())) == sorted(map(as_text, wanted))
    assert reasons_of(letters) == reasons
    assert bool(loss) == any("incomplete" in reason for reason in reasons)


def as_text(event: Any) -> str:
    name, values = event
    values["time"] = values["time"].timestamp()
    return f"{name} {sorted(values.items())}"


@pytest.mark.slow
def test_a_labelled_set_is_found_in_a_lake(spark: SparkSession, truck: Path, tmp_path: Path) -> None:
    """By Spark and without it; a read of all families has the text sources, and no number among them."""
    lines = traffic(4, 1500)
    (tmp_path / "truck.log").write_text(candump(lines))
    (tmp_path / "plain.dbc").write_text(MESSAGES)
    lake = Lake.create(spark, tmp_path / "lake")
    done = lake.ingest(tmp_path / "truck.log", dbc=truck)
    sent = [line.label for line in lines if line.label is not None]
    labels = [label for label in sent if label.pgn == TSC1 and label.source == 11]
    asked = "TSC1 where source == 11"
    rows = lake.read(asked).select("source", "destination", "priority", "pgn").toArrow().to_pylist()
    there = [{"source": 11, "destination": each.destination, "priority": each.priority, "pgn": 0} for each in labels]
    assert sorted(map(str, rows)) == sorted(map(str, there))
    local = LakeReader(lake.path)
    assert local.read(asked).count() == len(labels) > 30
    everything = lake.read("Event")
    assert dict(everything.dtypes)["source"] == "string"
    assert everything.count() == done.events == local.read("Event").count()
    assert {row["source"] for row in everything.select("source").distinct().collect()} == {None, "Cruise"}
    assert set(local.read("Event").to_arrow().column("source").to_pylist()) == {None, "Cruise"}
    by_type = lake.read("truck", subtypes=True)
    assert {"TSC1_source", "Local_source"} <= set(by_type.columns)
    assert by_type.where("TSC1_source = 11").count() == len(labels)


def test_a_file_that_does_not_say_it_is_ingested_by_the_switch(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "truck.log").write_text(candump(traffic(4, 100)))
    (tmp_path / "plain.dbc").write_text(MESSAGES)
    lake = Lake.create(spark, tmp_path / "lake")
    lake.ingest(tmp_path / "truck.log", dbc=load_dbc(tmp_path / "plain.dbc", j1939=True))
    assert lake.read("TSC1 where source == 11").count() > 0
    assert Subscription.parse("TSC1 where source == 11", [lake.catalog.declare("TSC1")]).has == ()
