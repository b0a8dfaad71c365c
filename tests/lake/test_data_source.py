"""`spark.read.format("genus")`: typed rows of files that are not in a lake, equal to those of a lake."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from genus import Event, Maybe, Subscription, UInt16, this
from genus.can import load_dbc
from genus.catalog import Catalog
from genus.errors import GenusError, LakeError
from genus.lake import Lake, register_data_source
from genus.lake._stream.source import GenusDataSource
from genus.model import name_of
from tests.lake.roads import ALL, Counter, Radar, Streetside, traffic, write_recording

DBC = """VERSION ""
BU_: ECU
BO_ 256 Speed: 4 ECU
 SG_ Kmh : 0|16@1+ (0.1,0) [0|6553.5] "km/h" Vector__XXX
 SG_ Gear : 16|8@1+ (1,0) [0|255] "" Vector__XXX
"""


class Meter(Event):
    port: UInt16
    watts: Maybe[float] = None


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings, one of them damaged, and the catalog of their types."""
    register_data_source(spark)
    folder = tmp_path_factory.mktemp("loose")
    Catalog.update(folder / "catalog.json", *ALL, Meter)
    (folder / "in").mkdir()
    write_recording(folder / "in" / "first.genus", traffic(300))
    second = write_recording(folder / "in" / "second.genus", traffic(300, first=300))
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 0xFF
    second.write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path) -> Lake:
    lake = Lake.create(spark, folder / "lake", *ALL)
    lake.ingest(folder / "in")
    return lake


@pytest.fixture
def genus(spark: SparkSession, folder: Path) -> DataFrameReader:
    return spark.read.format("genus").option("catalog", str(folder / "catalog.json"))


def planned(options: dict[str, str], schema: StructType | None = None) -> Sequence[InputPartition]:
    """What Spark asks of the data source before it starts tasks."""
    source = GenusDataSource(options)
    return source.reader(source.schema() if schema is None else schema).partitions()


def rows(frame: DataFrame) -> list[Any]:
    """All rows; the source is numbered by its path here and by its content in a lake."""
    kept = [name for name in frame.columns if name not in ("_source", "_ingested", "_day", "_commit")]
    return sorted((tuple(row) for row in frame.select(*kept).collect()), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [
        Subscription(Radar, has="place", where=this.speed > 30),
        Subscription(Counter, exact=True, lacks="category", where=this.lane != 2),
        Subscription(Streetside, has="place"),
    ],
    ids=str,
)
def test_rows_are_those_that_a_lake_gives(
    genus: DataFrameReader, lake: Lake, folder: Path, wanted: Subscription
) -> None:
    """The same columns except the day, for types, kinds, attributes and predicates."""
    found = genus.option("subscription", str(wanted)).load(str(folder / "in"))
    expected = lake.read(wanted)
    assert found.columns == [name for name in expected.columns if name != "_day"]
    assert rows(found) == rows(expected) != []


@pytest.mark.slow
def test_a_file_is_read_by_many_tasks(genus: DataFrameReader, lake: Lake, folder: Path) -> None:
    """Every event is read once, for any splits."""
    found = genus.option("type", "Counter").option("splitBytes", "2000").load(str(folder / "in" / "first.genus"))
    assert found.rdd.getNumPartitions() > 4
    whole = genus.option("splitBytes", "1000000").load(str(folder / "in" / "first.genus"))
    assert rows(found) == rows(whole) != []


@pytest.mark.slow
def test_files_folders_and_patterns_are_loaded(genus: DataFrameReader, folder: Path) -> None:
    reader = genus.option("type", "Counter")
    first, second = str(folder / "in" / "first.genus"), str(folder / "in" / "second.genus")
    everything = rows(reader.load(str(folder / "in")))
    assert rows(reader.load([first, second])) == everything
    assert rows(reader.load(str(folder / "in" / "*.genus"))) == everything
    assert sorted([*rows(reader.load(first)), *rows(reader.load(second))], key=repr) == everything


def test_dead_letters_are_what_the_rows_leave_out(genus: DataFrameReader, lake: Lake, folder: Path) -> None:
    found = genus.option("dead", "true").load(str(folder / "in"))
    assert rows(found) == rows(lake.dead_letters()) != []


def test_sql_reaches_it_through_a_view(spark: SparkSession, folder: Path, lake: Lake) -> None:
    spark.sql(
        f"""create or replace temporary view loose using genus
        options (catalog '{folder}/catalog.json', subscription 'Counter where speed > 30', path '{folder}/in')"""
    )
    lake.views("kept_")
    query = (
        "select lane, count(*) as events, max(speed) as fastest from {} where speed > 30 group by lane order by lane"
    )
    found = spark.sql(query.format("loose")).collect()
    assert found == spark.sql(query.format("kept_Counter")).collect()
    assert len(found) == 4


def test_a_schema_chooses_columns(genus: DataFrameReader, folder: Path) -> None:
    """Only the columns of the schema are made, in its order; Spark does not pass a select to a Python data source."""
    found = genus.option("type", "Counter").schema("speed double, _type string, time timestamp")
    assert found.load(str(folder / "in")).columns == ["speed", "_type", "time"]
    whole = genus.schema("speed double, _type string, time timestamp").load(str(folder / "in"))
    assert rows(found.load(str(folder / "in"))) == rows(whole)


def test_a_lakes_folder_is_as_good_as_a_catalog(spark: SparkSession, lake: Lake, folder: Path) -> None:
    found = spark.read.format("genus").option("catalog", lake.path).option("type", "Gate").load(str(folder / "in"))
    assert rows(found) == rows(lake.read("Gate"))


def test_mapped_files_and_unsigned_integers(genus: DataFrameReader, tmp_path: Path) -> None:
    """Lines of JSON with a mapping; a predicate on a type that Spark does not have."""
    lines = [{"kind": "Meter", "p": 40_000 + number, "watts": float(number)} for number in range(10)]
    lines.append({"kind": "Meter", "p": 70_000})
    (tmp_path / "meters.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "meters.toml").write_text('[type]\nfield = "kind"\n[attributes]\np = "port"\n')
    reader = genus.option("mapping", str(tmp_path / "meters.toml"))
    found = reader.option("subscription", "Meter where port >= 40005").load(str(tmp_path / "meters.jsonl"))
    assert sorted(row.port for row in found.collect()) == list(range(40_005, 40_010))
    (dead,) = reader.option("dead", "true").load(str(tmp_path / "meters.jsonl")).collect()
    assert "port" in dead.reason


@pytest.mark.slow
def test_a_can_log_needs_its_dbc_file_alone(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """The DBC file gives the types."""
    (tmp_path / "car.dbc").write_text(DBC)
    frames = [f"({1700000000 + n}.000000) can0 100#{(100 * n).to_bytes(2, 'little').hex()}0300" for n in range(20)]
    (tmp_path / "drive.log").write_text("\n".join(frames) + "\n")
    _, speed = load_dbc(tmp_path / "car.dbc").all_types
    reader = spark.read.format("genus").option("dbc", str(tmp_path / "car.dbc"))
    found = reader.option("type", name_of(speed)).load(str(tmp_path / "drive.log"))
    lake = Lake.create(spark, tmp_path / "lake")
    lake.ingest(tmp_path / "drive.log", dbc=tmp_path / "car.dbc")
    assert rows(found) == rows(lake.read(name_of(speed)))
    assert found.count() == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give option 'type' or 'subscription'"),
        ({"type": "Counter", "dead": "yes"}, "option 'dead' is 'yes'; it must be true or false"),
        ({"type": "Counter", "catalgo": "x"}, "unknown option 'catalgo'; the options are catalog, columns, dbc"),
        ({"type": "Ship"}, "Ship"),
        ({"subscription": "Counter where weight > 3"}, "weight"),
        ({"type": "Counter", "catalog": "/nowhere"}, "cannot read /nowhere/catalog.json, given by option 'catalog'"),
        ({"type": "Counter", "format": "tape"}, "unknown ending 'tape'"),
    ],
    ids=["nothing", "no switch", "misspelt", "unknown type", "unknown attribute", "no catalog", "unknown format"],
)
def test_wrong_options_are_named(folder: Path, options: dict[str, str], message: str) -> None:
    given = {"catalog": str(folder / "catalog.json"), "path": str(folder / "in"), **options}
    with pytest.raises(GenusError, match=re.escape(message)):
        planned(given)


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("weight", "double", "no column 'weight'; the columns are time"),
        ("lane", "string", "column 'lane' is bigint, not string"),
    ],
)
def test_wrong_schemas_are_named(folder: Path, name: str, type_: str, message: str) -> None:
    given = {"catalog": str(folder / "catalog.json"), "path": str(folder / "in"), "type": "Counter"}
    with pytest.raises(LakeError, match=re.escape(message)):
        planned(given, StructType().add(name, type_))


def test_no_such_file_is_named(genus: DataFrameReader, folder: Path) -> None:
    with pytest.raises(PySparkException, match=r"nothing\.genus: no such file"):
        genus.option("type", "Counter").load(str(folder / "nothing.genus")).collect()
