"""CSV and Parquet of other systems: columns become attributes, rows that do not fit are dead letters."""

import gzip
import json
import random
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus import Catalog, Event, Maybe
from genus.errors import LakeError
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.sources import FormatChooser
from genus.lake._ingest.tabular import ParquetFiles
from genus.model import Float32, Int8
from genus.records import Mapping, read_mapping
from genus.targets.arrow import to_batch
from tests.examples import examples
from tests.generators import Generator, Sampler, Stranger, WatchedSampler
from tests.lake.foreign_files import Found, csv_text, expected, format_for, stored, types_for, written
from tests.lake.stored import ingest_draft

SUMO = Path(__file__).parents[3] / "shared/data/sumo_road"


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    tiny: Maybe[Int8] = None
    ratio: Maybe[Float32] = None
    category: Maybe[Category] = None
    is_closed: Maybe[bool] = None
    blob: Maybe[bytes] = None
    gap: Maybe[timedelta] = None
    parts: Maybe[list[int]] = None
    note: Maybe[str] = None


class Lamp(Event):
    watts: float


TYPES = types_for(Loop, Lamp)
GENERATED = types_for(WatchedSampler, Stranger, *Generator(0).types)


def from_csv(folder: Path, text: str | bytes, mapping: str = "", target: int = 1 << 30) -> Found:
    read = read_mapping(mapping)
    return Found(Csv(read, read.csv.delimiter or ","), written(folder / "rows.csv", text), TYPES, target)


def from_parquet(folder: Path, table: pa.Table, mapping: str = '[type]\nis = "Loop"', **options: Any) -> Found:
    pq.write_table(table, folder / "rows.parquet", **options)
    return Found(ParquetFiles(read_mapping(mapping)), folder / "rows.parquet", TYPES, target=1)


# -- CSV ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "kept"),
    [
        ("lane", "-9223372036854775808", -(2**63)),
        ("lane", "2.0", 2),
        ("speed", "3", "3.0"),
        ("speed", "1e3", "1000.0"),
        ("speed", "nan", "nan"),
        ("ratio", "0.1", "0.10000000149011612"),
        ("tiny", "-128", -128),
        ("category", "car", "car"),
        ("is_closed", "TRUE", True),
        ("is_closed", "0", False),
        ("blob", "AP8=", b"\x00\xff"),
        ("gap", "PT1.5S", 1_500_000),
        ("gap", "1.5", 1_500_000),
        ("parts", '"[1, 2]"', "[1,2]"),
        ("note", "12", "12"),
        ("note", '"a ""b"", c"', 'a "b", c'),
        ("note", '"two\nlines"', "two\nlines"),
        ("note", '""', ""),
        ("note", "", None),
        ("time", "2026-11-15 12:30:15+01:00", 1_794_742_215_000_000),
    ],
)
def test_a_cell_becomes_what_the_attribute_holds(tmp_path: Path, field: str, text: str, kept: Any) -> None:
    """All values are text; an empty cell is absent, two quotes are an empty text."""
    extra = "" if field == "lane" else ",lane"
    read = from_csv(tmp_path, f"type,{field}{extra}\nLoop,{text}{',1' if extra else ''}\n")
    assert read.reasons == []
    assert read.events()[0].get(field) == kept


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("lane", "1.5"),
        ("lane", "one"),
        ("lane", "0x10"),
        ("lane", "9223372036854775808"),
        ("tiny", "128"),
        ("speed", "fast"),
        ("category", "tram"),
        ("is_closed", "yes"),
        ("blob", "?"),
        ("gap", "soon"),
        ("parts", "[1"),
        ("time", "2026-11-15 12:30:15"),
        ("time", "1794742215"),
    ],
)
def test_a_wrong_cell_is_a_dead_letter_with_the_row_as_json(tmp_path: Path, field: str, text: str) -> None:
    """The reason names the attribute; the position is the offset of the row."""
    columns = ["type", "lane", "note"] if field == "lane" else ["type", "lane", "note", field]
    bad = {"type": "Loop", "lane": "1", "note": "x", field: text}
    header = ",".join(columns)
    rows = ["Loop,1,x" + ("," if len(columns) > 3 else ""), ",".join(bad[name] for name in columns)]
    read = from_csv(tmp_path, "\n".join([header, rows[0], rows[1], rows[0]]))
    assert len(read.events()) == 2
    letter = read.letter()
    assert letter.reason.startswith(f"Loop.{field} is {text!r}, but must be ")
    assert letter.position == len(header) + len(rows[0]) + 2
    assert json.loads(letter.raw) == bad


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"Loop,1", "2 columns instead of 3"),
        (b"Loop,1,x,y", "4 columns instead of 3"),
        (b"Loop,1,\xff", "not UTF-8"),
        (b'Loop,1,"x', "a quote is not closed"),
        (b",1,x", "no type: 'type' is missing"),
        (b"Tram,1,x", "unknown type 'Tram'"),
        (b"Loop,,x", "Loop lacks 'lane', which it must carry"),
        (b"Event,1,", "Event has no attribute 'lane'"),
    ],
)
def test_a_broken_row_is_one_dead_letter(tmp_path: Path, row: bytes, reason: str) -> None:
    """Rows around it are read, also where a quote stays open."""
    content = b"\n".join([b"type,lane,note", b"Loop,1,a", row, b"Loop,2,b", b'Loop,3,"c\nd"', b"Loop,4,e"])
    read = from_csv(tmp_path, content)
    assert [event["lane"] for event in read.events()] == [1, 2, 3, 4]
    assert read.letter().reason.startswith(reason)
    assert read.letter().position == 24


def test_a_row_cut_off_at_the_end_is_one_dead_letter(tmp_path: Path) -> None:
    assert from_csv(tmp_path, "type,lane,note\nLoop,1,a\nLoop,2").letter().raw == "Loop,2"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no header"),
        (b"\n\n", "no header"),
        (b"type,lane,lane\nLoop,1,2\nLoop,1,2", "the header names 'lane' more than once"),
        (b"type,\xff\nLoop,1", "the header cannot be read"),
        (b'type,"lane\nLoop,1', "the header cannot be read"),
    ],
)
def test_a_file_without_a_header_that_can_be_read_is_one_dead_letter(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    """One dead letter, however many splits the file has."""
    mapping = read_mapping("[csv]\nnewlines = false")
    read = Found(Csv(mapping), written(tmp_path / "rows.csv", content), TYPES, target=5)
    assert read.letter().reason.startswith(reason)


def test_a_csv_file_without_types_is_refused_if_no_mapping_says_what_it_is(tmp_path: Path) -> None:
    """Instead of a dead letter for each row; the message has a mapping to begin with."""
    bare, gz = written(tmp_path / "bare.csv", "lane,km/h\n1,50\n"), tmp_path / "bare.csv.gz"
    gz.write_bytes(gzip.compress(bare.read_bytes()))
    for path in (bare, gz):
        with pytest.raises(LakeError, match="no column 'type', but lane, km/h") as refused:
            FormatChooser(None, None, None).check_named(str(path), TYPES)
        line, other = re.findall("`(.*?)`", str(refused.value))[0::2]
        assert (line, other) == ('type.is = "Loop"', '"km/h" = "attribute"')
        mapping = read_mapping(f"{line}\n[attributes]\n{other.replace('attribute', 'speed')}")
        FormatChooser(None, mapping, None).check_named(str(path), TYPES)
        assert Found(Csv(mapping), path, TYPES).events() == [{"_type": "Loop", "lane": 1, "speed": "50.0"}]
    typed, damaged = written(tmp_path / "typed.csv", "type,lane\n"), written(tmp_path / "damaged.csv", b"\xff\n")
    for path in (typed, damaged, tmp_path / "a.jsonl"):
        FormatChooser(None, None, None).check_named(str(path), TYPES)


def test_options_of_csv_are_in_the_mapping(tmp_path: Path) -> None:
    """Delimiter, quote, column names, and values that mean absent."""
    mapping = """
    absent = ["NA", -1]
    [type]
    is = "Loop"
    [csv]
    delimiter = ";"
    quote = "'"
    columns = ["lane", "speed", "note"]
    """
    read = from_csv(tmp_path, "1;NA;'a;b'\n2;-1;'NA'\n\n3;2.5;\n", mapping)
    assert read.events() == [
        {"_type": "Loop", "lane": 1, "note": "a;b"},
        {"_type": "Loop", "lane": 2, "note": "NA"},
        {"_type": "Loop", "lane": 3, "speed": "2.5"},
    ]


def test_types_of_several_kinds_share_a_table(tmp_path: Path) -> None:
    """A column that a type does not have must be empty in its rows."""
    read = from_csv(tmp_path, "type,lane,watts\nLoop,1,\nLamp,,2.5\nLamp,1,2.5\n")
    assert [event["_type"] for event in read.events()] == ["Loop", "Lamp"]
    assert read.letter().reason == "Lamp has no attribute 'lane'"


def test_a_file_is_cut_if_no_value_can_hold_a_line_end(tmp_path: Path) -> None:
    """Files without quotes are cut, or if the mapping says so; compressed files are not."""
    path = written(tmp_path / "rows.csv", "type,lane,note\n" + "Loop,1,a\n" * 50)
    assert len(Csv().splits(str(path), path.stat().st_size, 100)) == 5
    quoted = written(tmp_path / "quoted.csv", "type,lane,note\n" + 'Loop,1,"a"\n' * 50)
    assert len(Csv().splits(str(quoted), quoted.stat().st_size, 100)) == 1
    for newlines, splits in (("true", 1), ("false", 6)):
        said = Csv(read_mapping(f"[csv]\nnewlines = {newlines}"))
        assert len(said.splits(str(quoted), quoted.stat().st_size, 100)) == splits
        assert len(Found(said, quoted, TYPES, target=100).events()) == 50
    packed = written(tmp_path / "rows.csv.gz", gzip.compress(quoted.read_bytes()))
    assert len(Found(Csv(), packed, TYPES, target=10).events()) == 50


# -- Parquet -----------------------------------------------------------------------------------------------------------


def test_columns_of_any_layout_are_read(tmp_path: Path) -> None:
    """Dictionaries, other widths, decimals, structs, and times of other units with a zone."""
    moment = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
    table = pa.table(
        {
            "lane": pa.array([1, 2], pa.uint16()),
            "speed": pa.array(["1.50", "2.25"]).cast(pa.decimal128(10, 2)),
            "tiny": pa.array([1.0, None], pa.float32()),
            "category": pa.array(["car", "truck"]).dictionary_encode(),
            "note": pa.array(["a", "b"], pa.large_string()),
            "time": pa.array([moment, None], pa.timestamp("ns", "Asia/Tokyo")),
            "gap": pa.array([timedelta(seconds=1), None], pa.duration("ms")),
            "parts": pa.array([[1, 2], []], pa.list_(pa.int8())),
            "more": pa.array([{"blob": b"x"}, None], pa.struct([("blob", pa.binary())])),
        }
    )
    read = from_parquet(tmp_path, table, '[type]\nis = "Loop"\n[attributes]\n"more.blob" = "blob"')
    assert read.reasons == []
    micros = int(moment.timestamp()) * 10**6
    assert read.events() == [
        {
            "_type": "Loop", "lane": 1, "speed": "1.5", "tiny": 1, "category": "car", "note": "a", "time": micros,
            "gap": 1_000_000, "parts": "[1,2]", "blob": b"x",
        },
        {"_type": "Loop", "lane": 2, "speed": "2.25", "category": "truck", "note": "b", "parts": "[]"},
    ]  # fmt: skip


def test_wrong_rows_are_dead_letters_at_their_number(tmp_path: Path) -> None:
    """Positions are counted over all row groups; each is a split."""
    table = pa.table({"lane": [1, 2, None, 4, 5, 6], "tiny": [0, 1, 2, 300, 4, 5], "odd": [None] * 5 + ["x"]})
    read = from_parquet(tmp_path, table, row_group_size=2)
    assert len(read.splits) == 3
    assert [(letter.position, letter.reason.split(",")[0]) for letter in read.letters] == [
        (2, "Loop lacks 'lane'"),
        (3, "Loop.tiny is 300"),
        (5, "Loop has no attribute 'odd'"),
    ]
    assert json.loads(read.letters[1].raw) == {"lane": 4, "tiny": 300}
    assert [row["_position"] for row in read.rows()] == [0, 1, 4]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pa.array([True]), "lane"),
        (pa.array(["1"]), "lane"),
        (pa.array([2**63], pa.uint64()), "lane"),
        (pa.array([1]), "note"),
        (pa.array([1]), "is_closed"),
        (pa.array([datetime(2026, 1, 1)]), "time"),
        (pa.array([1]), "time"),
        (pa.array([[1]]), "speed"),
        (pa.array([{"x": 1}]), "speed"),
        (pa.array([b"\xff"]).view(pa.string()), "note"),
        (pa.array([0], pa.time32("s")), "gap"),
    ],
)
def test_a_column_of_another_type_is_not_guessed_at(tmp_path: Path, values: pa.Array, name: str) -> None:
    """A naive timestamp needs a time zone, a number a unit, and text is not a number."""
    table = pa.table({"lane": [1], name: values})
    reason = from_parquet(tmp_path, table).letter().reason
    assert reason.startswith(f"Loop.{name} is ")


def test_a_stated_zone_dates_naive_timestamps(tmp_path: Path) -> None:
    table = pa.table({"lane": [1], "time": [datetime(2026, 7, 1, 12)]})
    read = from_parquet(tmp_path, table, 'zone = "Europe/Berlin"\n[type]\nis = "Loop"')
    assert read.events()[0]["time"] == int(datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp()) * 10**6


def test_a_file_that_is_no_parquet_is_one_dead_letter(tmp_path: Path) -> None:
    for content in (b"", b"PAR1", b"nonsense" * 100):
        read = Found(ParquetFiles(), written(tmp_path / "rows.parquet", content), TYPES)
        assert read.letter().reason.startswith("not a Parquet file")


def test_a_damaged_row_group_costs_no_other(tmp_path: Path) -> None:
    """A damaged row group is one dead letter at its first row."""
    table = pa.table({"lane": list(range(3000)), "note": [f"{lane} {lane * 7919 % 3001}" for lane in range(3000)]})
    pq.write_table(table, tmp_path / "whole.parquet", row_group_size=1000, compression="zstd", use_dictionary=False)
    content = bytearray((tmp_path / "whole.parquet").read_bytes())
    start = pq.ParquetFile(tmp_path / "whole.parquet").metadata.row_group(1).column(1).data_page_offset
    content[start + 40 : start + 400] = b"\xff" * 360
    path = written(tmp_path / "rows.parquet", bytes(content))
    read = Found(ParquetFiles(read_mapping('[type]\nis = "Loop"')), path, TYPES, target=1)
    assert {event["lane"] // 1000 for event in read.events()} == {0, 2}
    assert len(read.events()) == 2000
    assert (read.letter().position, read.letter().reason.split(":")[0]) == (1000, "row group 1 is damaged here")


# -- laws --------------------------------------------------------------------------------------------------------------


@examples(40)
@given(st.integers(0, 2**32))
def test_random_events_are_read_from_csv_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Against an independent writer that quotes every value, line ends inside included."""
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    draw, events = (
        random.Random(seed),
        [event for event in Generator(seed).events(40) if not isinstance(event, Stranger)],
    )
    delimiter = draw.choice([",", ";", "\t"])
    written(path, csv_text(events, delimiter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genus.lake._ingest.format.BLOCK", draw.choice([50, 1000, 1 << 20]))
        read = Found(Csv(delimiter=delimiter), path, GENERATED)
    assert read.reasons == []
    assert read.events() == expected(events)


@examples(40)
@given(st.integers(0, 2**32))
def test_random_events_are_read_from_parquet_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Columns as the Arrow target makes them, in row groups of any size."""
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    events = [event for event in Generator(seed).events(60) if isinstance(event, Sampler)]
    batch = to_batch(events)
    table = pa.Table.from_arrays(batch.columns, names=["type", *batch.schema.names[1:]])
    pq.write_table(table, path, row_group_size=7)
    read = Found(ParquetFiles(), path, GENERATED, target=1)
    assert len(read.splits) > 1
    assert read.reasons == []
    assert read.events() == expected(events)


@examples(60)
@given(st.integers(0, 2**32), st.data())
def test_damage_to_csv_without_quotes_harms_the_damaged_rows_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    """Random damage never raises and never affects other rows, however the file is cut."""
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    rows = [f"Loop,{lane},{random.Random(seed + lane).choice(['a', '', 'long text'])}" for lane in range(30)]
    content = bytearray(("type,lane,note\n" + "\n".join(rows) + "\n").encode())
    starts = [at + 1 for at, byte in enumerate(content) if byte == 10]
    places = data.draw(st.lists(st.tuples(st.integers(15, len(content) - 1), st.integers(0, 255)), max_size=5))
    for place, byte in places:
        content[place] = byte
    written(path, bytes(content))
    mapping = Mapping() if data.draw(st.booleans()) else read_mapping("[csv]\nnewlines = false")
    read = Found(Csv(mapping), path, TYPES, target=data.draw(st.sampled_from([20, 100, 10**6])))
    kept = {row["_position"]: row["lane"] for row in read.rows()}
    harmed = {place for place, _ in places}
    is_quoted = b'"' in content and mapping == Mapping()
    for lane in range(30):
        start, end = starts[lane], starts[lane + 1]
        if not harmed & set(range(start - 1, end)) and not is_quoted:
            assert kept[start] == lane
    assert len(kept) >= 30 - 2 * len(places) - (3 * len(places) if is_quoted else 0)


@examples(40)
@given(st.integers(0, 2**32), st.data())
def test_damage_to_parquet_never_raises(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pq.write_table(pa.table({"lane": list(range(200)), "note": ["abc"] * 200}), path, row_group_size=50)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read = Found(ParquetFiles(read_mapping('[type]\nis = "Loop"')), written(path, bytes(content)), TYPES, target=1)
    assert read.letters or read.events()


# -- in a lake ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_become_parquet_through_the_job(tmp_path: Path, spark: SparkSession, ending: str) -> None:
    """Several splits of one file, with a dead letter between."""
    path = tmp_path / f"rows.{ending}"
    table = pa.table(
        {"type": ["Loop"] * 500, "lane": list(range(500)), "tiny": [300 if n == 7 else 1 for n in range(500)]}
    )
    if ending == "csv":
        written(path, "type,lane,tiny\n" + "".join(f"Loop,{lane},{300 if lane == 7 else 1}\n" for lane in range(500)))
    else:
        pq.write_table(table, path, row_group_size=100)
    catalog = Catalog()
    catalog.register(Loop)
    draft = ingest_draft(spark, tmp_path / "lake", catalog, str(path), format_for(str(path)), 1000)
    assert (draft.sources[0].rows, draft.sources[0].dead) == (499, 1)
    read = stored(tmp_path / "lake/tables/Loop")
    assert sorted(read.column("lane").to_pylist()) == [lane for lane in range(500) if lane != 7]
    assert len(list((tmp_path / "lake/tables").rglob("*.parquet"))) > 1
    (dead,) = stored(tmp_path / "lake/dead").to_pylist()
    assert dead["reason"].startswith("Loop.tiny is ")


class LoopEdge(Event):
    detector: str
    edge: Int8


@pytest.mark.slow
@pytest.mark.skipif(not SUMO.exists(), reason=f"the recorded road is not at {SUMO}")
def test_the_recorded_road_is_read_whole() -> None:
    """56,169 edges of induction loops: seconds of the simulation become times."""
    path = SUMO / "hw_loop_edges.parquet"
    source = pq.read_table(path)
    mapping = read_mapping('[type]\nis = "LoopEdge"\n[attributes]\nt = { to = "time", format = "s" }')
    read = Found(ParquetFiles(mapping), path, types_for(LoopEdge))
    assert read.reasons[:3] == []
    rows = read.rows()
    assert len(rows) == source.num_rows == 56_169
    assert [row["detector"] for row in rows] == source.column("detector").to_pylist()
    assert [row["time"] for row in rows] == [round(t * 1e6) for t in source.column("t").to_pylist()]
