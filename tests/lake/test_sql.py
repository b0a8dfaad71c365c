"""SQL over a lake: the function is_a, and tables that a metastore keeps."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from genus import Event
from genus.errors import LakeError
from genus.lake import Lake
from genus.lake._query import reading
from tests.lake.roads import ALL, MORNING, Counter, Gate, Radar, Streetside, traffic, write_recording


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("sql")
    made = Lake.create(spark, folder / "lake", *ALL)
    made.ingest(write_recording(folder / "a.genus", traffic(100)))
    made.views("sql_")
    return made


def count(lake: Lake, condition: str) -> int:
    return int(lake.spark.sql(f"SELECT count(*) AS n FROM sql_Event WHERE {condition}").collect()[0]["n"])


def test_is_a_agrees_with_the_catalog(lake: Lake) -> None:
    """For every pair of types and kinds, those without events included; NULL is neither."""
    names = lake.catalog.types
    pairs = [(below, above) for below in names for above in names if not lake.catalog.entries[below].kind]
    columns = ", ".join(f"sql_is_a('{below}', '{above}')" for below, above in pairs)
    found = list(lake.spark.sql(f"SELECT {columns}").collect()[0])
    assert found == [lake.catalog.subsumes(above, below) for below, above in pairs]
    unknown = lake.spark.sql("SELECT sql_is_a(NULL, 'Counter'), sql_is_a('Counter', NULL)")
    assert list(unknown.collect()[0]) == [None, None]


def test_is_a_selects_what_a_subscription_selects(lake: Lake) -> None:
    """Also together with other conditions; a list of names reaches the files."""
    for cls in (Streetside, Counter, Radar, Gate):
        assert count(lake, f"sql_is_a(_type, '{cls.__name__}')") == lake.read(cls).count()
    assert count(lake, "NOT sql_is_a(_type, 'Counter')") == lake.read(Gate).count()
    frame: Any = lake.spark.sql("SELECT * FROM sql_Counter WHERE sql_is_a(_type, 'Radar')")
    assert frame.count() == lake.read(Radar).count() < lake.read(Counter).count()
    assert "EqualTo(_type,Radar)" in frame._jdf.queryExecution().executedPlan().toString()


def test_is_a_refuses_a_name_that_the_lake_does_not_have(lake: Lake) -> None:
    with pytest.raises(PySparkException, match="no event type of the lake is called Countr"):
        count(lake, "sql_is_a(_type, 'Countr')")


def test_names_with_any_letters_have_views(spark: SparkSession, tmp_path: Path) -> None:
    """SQL has them in backquotes; a metastore does not take them."""

    class Ölstand(Event):
        größe: float

    lake = Lake.create(spark, tmp_path / "lake", Ölstand)
    lake.ingest(write_recording(tmp_path / "a.genus", [Ölstand(größe=1.5, time=MORNING)]))
    assert "sql_Ölstand" in lake.views("sql_")
    query = "SELECT `größe` FROM `sql_Ölstand` WHERE sql_is_a(_type, 'Ölstand')"
    assert [tuple(row) for row in spark.sql(query).collect()] == [(1.5,)]


def test_tables_are_refused_by_a_session_without_a_metastore(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"its catalog is in memory; start it with enableHiveSupport\(\)"):
        lake.register_tables()


class DeltaSession:
    """A session with Delta that notes statements; no Delta jar fits the Spark of these tests."""

    def __init__(self, provider: str) -> None:
        self.statements: list[str] = []
        self.conf = {"spark.sql.catalogImplementation": "hive", "spark.sql.extensions": "x," + reading.DELTA_EXTENSION}
        self.conf["spark.sql.catalog.spark_catalog"] = reading.DELTA_CATALOG
        self.provider = provider
        self.catalog = SimpleNamespace(refreshTable=lambda table: None)

    def table(self, name: str) -> Any:
        raise AnalysisException("there is no such table")

    def sql(self, text: str) -> Any:
        self.statements.append(text)
        rows = [{"col_name": "Provider", "data_type": self.provider}] if text.startswith("DESCRIBE") else []
        return SimpleNamespace(collect=lambda: rows)


@pytest.mark.parametrize("provider", ["delta", "parquet"])
def test_a_session_with_delta_has_the_delta_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    """They follow new commits; a table of a session without Delta is replaced, and one without events listed."""
    session = DeltaSession(provider)
    monkeypatch.setattr(reading, "job_description", lambda spark, text: nullcontext())
    seen = SimpleNamespace(spark=session, path=lake.path, catalog=lake.catalog, state=lake.state)
    reading.create_tables(cast(Any, seen), "city", subtypes=False, is_mirrored=lambda family: family == "Counter")
    made = f"CREATE TABLE IF NOT EXISTS `city`.`Counter_files` USING DELTA LOCATION 'file://{lake.path}/tables/Counter'"
    assert made in session.statements
    assert ("DROP TABLE `city`.`Counter_files`" in session.statements) == (provider == "parquet")
    (listed,) = (text for text in session.statements if text.startswith("CREATE TABLE IF NOT EXISTS `city`.`Gate_"))
    assert "USING parquet" in listed
    assert not reading.has_delta(lake.spark)


@pytest.mark.slow
def test_tables_outlive_the_session_where_there_is_a_metastore(tmp_path: Path) -> None:
    """Registered by one process, read by another; a table has the present folders of the lake and no others."""
    made = run(tmp_path, "register")
    assert made["between"] == 100
    assert "city.Counter" in made["views"]
    found = run(tmp_path, "read")
    events = [*traffic(50), *traffic(50, first=100)]
    named = [type(event).__name__ for event in events]
    wanted = {"Streetside": 100, "Counter": named.count("Counter") + named.count("Radar")}
    assert found["counts"] == wanted | {"Radar": named.count("Radar"), "Gate": named.count("Gate")}
    assert found["angles"] == sum(isinstance(event, Radar) for event in events)
    assert {"counter_files", "gate_files"} <= {name.lower() for name in found["tables"]}


def run(folder: Path, what: str) -> dict[str, Any]:
    """Run the program in a process of its own, as there is one Spark context in each."""
    command = [sys.executable, "-m", "tests.lake.metastore_program", str(folder), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
