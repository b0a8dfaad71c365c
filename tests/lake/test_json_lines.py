"""JSON lines and CloudEvents of other systems: every good event is found, all else is a dead letter with a reason."""

import gzip
import json
import random
from collections.abc import Mapping as Table
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus import Catalog, Event, Maybe
from genus.lake._ingest.format import Types
from genus.lake._ingest.json_lines import JsonLines
from genus.model import Float32, Int8, UInt32
from genus.model.types import OpaqueType
from genus.records import read_mapping
from genus.testing._generator import pool
from tests.examples import examples
from tests.generators import Generator, Stranger, WatchedSampler
from tests.lake.foreign_files import Found, expected, format_for, json_line, stored, types_for, written
from tests.lake.stored import ingest_draft

SIGNALK = Path(__file__).parents[3] / "shared/data/signalk/aava_n2k_decoded.jsonl.gz"


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Gear(Enum):
    FIRST = 1
    SECOND = 2


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    tiny: Maybe[Int8] = None
    count: Maybe[UInt32] = None
    ratio: Maybe[Float32] = None
    gear: Maybe[Gear] = None
    is_closed: Maybe[bool] = None
    blob: Maybe[bytes] = None
    gap: Maybe[timedelta] = None
    parts: Maybe[list[int]] = None
    note: Maybe[str] = None


TYPES = types_for(Loop)
GENERATED = types_for(WatchedSampler, Stranger, *Generator(0).types)


def found(folder: Path, *lines: str | bytes | Table[str, Any], format: JsonLines | None = None) -> Found:
    spelt = [json.dumps(line).encode() if isinstance(line, dict) else line for line in lines]
    content = b"\n".join(line if isinstance(line, bytes) else str(line).encode() for line in spelt)
    return Found(format or JsonLines(), written(folder / "events.jsonl", content), TYPES)


def read_one(folder: Path, **fields: Any) -> Any:
    """The event of a line, or the reason why it is not one."""
    read = found(folder, {"type": "Loop", "lane": 1, **fields})
    return read.events()[0] if read.columns and read.events() else read.letter().reason


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("lane", 1.0, 1),
        ("lane", 1e3, 1000),
        ("lane", -(2**63), -(2**63)),
        ("speed", 3, "3.0"),
        ("speed", 2**70, repr(2.0**70)),
        ("speed", "NaN", "nan"),
        ("speed", "-Infinity", "-inf"),
        ("ratio", 0.1, "0.10000000149011612"),
        ("tiny", -128, -128),
        ("count", 2**32 - 1, 2**32 - 1),
        ("category", "truck", "truck"),
        ("gear", 2, 2),
        ("gear", 2.0, 2),
        ("is_closed", False, False),
        ("blob", "AP8=", b"\x00\xff"),
        ("gap", "PT1.5S", 1_500_000),
        ("gap", 1.5, 1_500_000),
        ("gap", -2, -2_000_000),
        ("parts", [1, {"a": None}], '[1,{"a":null}]'),
        ("note", "é\u0000\U0001f600", "é\u0000\U0001f600"),
        ("time", "2026-11-15T12:30:15.5+01:00", 1_794_742_215_500_000),
        ("time", "2026-11-15t12:30:15.123456789z", 1_794_745_815_123_456),
        ("time", "0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_values_become_what_the_attribute_holds(tmp_path: Path, field: str, value: Any, kept: Any) -> None:
    """Whole floats are integers, integers are floats where a float is wanted, enums are their values."""
    assert read_one(tmp_path, **{field: value})[field] == kept


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lane", 1.5),
        ("lane", 2**63),
        ("lane", 2.0**60),
        ("lane", True),
        ("lane", "1"),
        ("lane", [1]),
        ("speed", "fast"),
        ("speed", True),
        ("speed", "1.5"),
        ("tiny", 128),
        ("count", -1),
        ("count", 2**32),
        ("category", "tram"),
        ("category", 1),
        ("gear", 3),
        ("gear", "1"),
        ("is_closed", 1),
        ("is_closed", "true"),
        ("blob", "AP8"),
        ("blob", "no base64!"),
        ("gap", "P1Y"),
        ("gap", "soon"),
        ("gap", 1e300),
        ("note", 7),
        ("note", {"a": 1}),
        ("time", "2026-11-15T12:30:15"),
        ("time", "2026-02-30T00:00:00Z"),
        ("time", "0000-06-01T00:00:00Z"),
        ("time", 1_794_745_815),
        ("time", "yesterday"),
    ],
)
def test_a_wrong_value_is_a_dead_letter_that_names_the_attribute(tmp_path: Path, field: str, value: Any) -> None:
    """Nothing is guessed: text is not a number, true is not 1, a time has a time zone."""
    reason = read_one(tmp_path, **{field: value})
    assert isinstance(reason, str)
    assert reason.startswith(f"Loop.{field} is ")


def test_a_value_of_each_kind_in_one_column_is_read_by_its_kind(tmp_path: Path) -> None:
    """Values of other types in the same column change nothing."""
    values = [1, 2.0, "NaN", None, True, "x", [1], 2**80, 2.5]
    read = found(tmp_path, *({"type": "Loop", "lane": 1, "speed": value} for value in values))
    assert [event.get("speed") for event in read.events()] == ["1.0", "2.0", "nan", None, repr(2.0**80), "2.5"]
    assert [reason.split(",")[0] for reason in read.reasons] == [
        "Loop.speed is True",
        "Loop.speed is 'x'",
        "Loop.speed is [1]",
    ]


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type": "Loop", "lane": 1', "not JSON"),
        (b'{"type": "Loop", "lane": NaN}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"type": "Loop", "lane": 1, "note": "\xff"}', "not UTF-8"),
        (b'{"type": "Loop", "lane": 1, "note": "\\ud800"}', "not JSON"),
        (b"[" * 5000, "not JSON"),
        (b"[1, 2]", "not an object: [1, 2]"),
        (b"null", "not an object: None"),
        (b"{}", "no type: 'type' is missing"),
        (b'{"type": true}', "no type: 'type' is True"),
        (b'{"type": "Tram"}', "unknown type 'Tram'"),
        (b'{"type": "Event", "lane": 1}', "Event has no attribute 'lane'"),
        (b'{"type": "Loop", "lane": 1, "colour": "red"}', "Loop has no attribute 'colour'"),
        (b'{"type": "Loop", "speed": 1}', "Loop lacks 'lane', which it must carry"),
        (b'{"type": "Loop", "lane": null}', "Loop lacks 'lane', which it must carry"),
        (b'{"type": "Loop", "lane": 1, "lane": 2}', "the field 'lane' occurs twice"),
        (b'{"type": "Loop", "lane" :1, "lane": 2}', "the field 'lane' occurs twice"),
        (b'{"type": "Loop", "lane" : 1, "l\\u0061ne"\t: 1}', "the field 'lane' occurs twice"),
        (b'{"type": "Loop", "lane": 1, "parts": [{"a": 1, "a": 2}]}', "the field 'a' occurs twice"),
        (b'{"type": "Loop", "lane": 1, "note": "\\":", "lane": 2}', "the field 'lane' occurs twice"),
    ],
)
def test_what_is_no_event_is_a_dead_letter_between_good_ones(tmp_path: Path, line: bytes, reason: str) -> None:
    """A dead letter has position, text and reason; the lines around it are read."""
    good = {"type": "Loop", "lane": 1}
    read = found(tmp_path, good, line, good)
    assert len(read.events()) == 2
    letter = read.letter()
    assert letter.reason.startswith(reason)
    assert letter.position == len(json.dumps(good)) + 1
    assert letter.raw == line.decode("utf-8", "backslashreplace")[:4096]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"Loop","lane":1,"note":"say \\"lane\\": \\":"}',
        b'{"type" : "Loop" , "lane"\t:1}',
        b'{"type":"Loop","lane":1,"parts":[{"a":{"a":1}},{"a":2}]}',
        b'{"type":"Loop","lane":1,"colour":null}\r',
    ],
)
def test_colons_quotes_and_spaces_make_no_field_double(tmp_path: Path, line: bytes) -> None:
    """Only a field that occurs twice in one object is refused; a null is absent, whatever its name."""
    assert [event["lane"] for event in found(tmp_path, line).events()] == [1]


def test_empty_lines_and_a_mark_at_the_beginning_say_nothing(tmp_path: Path) -> None:
    """A byte order mark is skipped; positions count it."""
    read = found(tmp_path, b'\xef\xbb\xbf{"type":"Loop","lane":1}', b"", b"  \r", b'{"type":"Loop","lane":2}')
    assert [row["_position"] for row in read.rows()] == [3, 33]
    assert not read.letters


def test_a_line_that_is_too_long_is_one_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never in memory as a whole, and the lines after it are read."""
    monkeypatch.setattr("genus.lake._ingest.format.LINE_LIMIT", 1000)
    monkeypatch.setattr("genus.lake._ingest.format.BLOCK", 300)
    good = b'{"type":"Loop","lane":1}'
    for size in (1001, 1300, 50_000):
        read = found(tmp_path, good, b"x" * size, good, b"y" * size)
        assert len(read.events()) == 2
        assert [letter.position for letter in read.letters] == [len(good) + 1, 2 * len(good) + size + 3]
        assert {letter.reason.split(" of ")[0] for letter in read.letters} == {"a line"}


def test_the_time_of_recording_is_the_events_or_a_fields_or_the_files(tmp_path: Path) -> None:
    """The field in the mapping comes first, then the event's time, then the time of the file."""
    mapping = read_mapping('recorded = { field = "seen", format = "ms" }')
    event = {"type": "Loop", "lane": 1}
    read = found(
        tmp_path,
        {**event, "seen": 1_000, "time": "2026-01-01T00:00:00Z"},
        {**event, "time": "1970-01-01T00:00:02Z"},
        event,
        {**event, "seen": "x"},
        format=JsonLines(mapping),
    )
    written_at = (tmp_path / "events.jsonl").stat().st_mtime_ns // 1000
    assert [row["_recorded"] for row in read.rows()] == [1_000_000, 2_000_000, written_at]
    assert read.letter().reason == "the time of recording is 'x', but must be time (field 'seen')"


# -- mappings ----------------------------------------------------------------------------------------------------------

MAPPING = """
absent = ["", "NA", -999]
ignore = ["id", "meta", "axes"]
zone = "Europe/Berlin"

[type]
name = "{kind}/{vehicle.class}"

[types]
"loop/none" = "Event"
"loop/*" = "Loop"

[attributes]
"place.lane" = "lane"
"vehicle.kmh" = { to = "speed", scale = 0.5 }
"vehicle.mph" = { to = "speed", scale = 2 }
"vehicle.class" = "category"
at = { to = "time", format = "%d.%m.%Y %H:%M" }
until = { to = "expires", format = "ns" }
raw = { to = "blob", format = "hex" }
n = { to = "count", format = "text" }
gap = { to = "gap", format = "ms" }

[constants]
source = "north"
"""


def test_a_mapping_says_type_and_attributes(tmp_path: Path) -> None:
    """Paths, scales, formats, constants, ignored fields and values that mean absent."""
    line = {
        "kind": "loop",
        "id": 7,
        "meta": {"a": 1},
        "place": {"lane": 3},
        "vehicle": {"class": "truck", "kmh": 60, "mph": 1},
        "at": "27.10.2024 02:30",
        "until": -1,
        "raw": "00ff",
        "n": "12",
        "gap": 1500,
        "tiny": -999,
        "note": "NA",
    }
    read = found(tmp_path, line, format=JsonLines(read_mapping(MAPPING)))
    assert read.letters == []
    assert read.events() == [
        {
            "_type": "Loop",
            "lane": 3,
            "speed": "30.0",
            "category": "truck",
            "time": 1_729_989_000_000_000,
            "expires": -1,
            "blob": b"\x00\xff",
            "count": 12,
            "gap": 1_500_000,
            "source": "north",
        }
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "lamp"}, "unknown type 'lamp/truck'"),
        ({"kind": None}, "no type: 'kind' and 'vehicle.class' is missing"),
        ({"place": 3}, "the field 'place' is not an object"),
        ({"place": {"lane": 3, "side": 1}}, "Loop has no attribute 'place.side'"),
        ({"speed": 3}, "Loop has no attribute 'speed'"),
        ({"at": "31.03.2024 02:30"}, "Loop.time is '31.03.2024 02:30', but must be time (field 'at')"),
        ({"n": "12x"}, "Loop.count is '12x', but must be uint32 (field 'n')"),
        ({"n": "0x10"}, "Loop.count is '0x10', but must be uint32 (field 'n')"),
        ({"raw": "0"}, "Loop.blob is '0', but must be bytes (field 'raw')"),
    ],
)
def test_what_a_mapping_does_not_allow_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """The reason names the field of the record."""
    line = {"kind": "loop", "place": {"lane": 3}, "vehicle": {"class": "truck"}, **change}
    assert found(tmp_path, line, format=JsonLines(read_mapping(MAPPING))).letter().reason == reason


def test_the_rest_can_be_ignored(tmp_path: Path) -> None:
    """On every level; names of attributes are still read."""
    mapping = read_mapping('ignore = "rest"\n[attributes]\n"a.lane" = "lane"')
    line = {"type": "Loop", "a": {"lane": 1, "b": 2}, "c": 3, "note": "x"}
    assert found(tmp_path, line, format=JsonLines(mapping)).events() == [{"_type": "Loop", "lane": 1, "note": "x"}]


def test_fields_of_one_type_alone_come_before_those_of_all(tmp_path: Path) -> None:
    """A constant is used after all fields."""
    mapping = read_mapping(
        '[attributes]\nv = "speed"\nw = "speed"\n[of.Loop]\nw = "speed"\n[constants]\nspeed = 9.0\nlane = 1'
    )
    lines = [{"type": "Loop", **more} for more in ({"v": 1, "w": 2}, {"v": 1}, {})]
    speeds = [event["speed"] for event in found(tmp_path, *lines, format=JsonLines(mapping)).events()]
    assert speeds == ["2.0", "1.0", "9.0"]


# -- CloudEvents -------------------------------------------------------------------------------------------------------

CLOUD = {
    "specversion": "1.0",
    "id": "1",
    "type": "Loop",
    "source": "/a8",
    "time": "2026-11-15T12:30:15Z",
    "datacontenttype": "application/json",
    "traceparent": "00-1",
    "data": {"lane": 1, "note": "x"},
}
READ = {"_type": "Loop", "source": "/a8", "time": 1_794_745_815_000_000, "lane": 1, "note": "x"}


def test_a_cloud_event_is_known_by_its_version(tmp_path: Path) -> None:
    """Type, source and time come from the envelope, attributes from the data; both kinds may be in one file."""
    assert found(tmp_path, CLOUD, {"type": "Loop", "lane": 2}).events() == [READ, {"_type": "Loop", "lane": 2}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"specversion": "0.3"}, "specversion is '0.3'; CloudEvents 1.0 are read"),
        ({"type": "Tram"}, "unknown type 'Tram'"),
        ({"data": [1]}, "the field 'data' is not an object"),
        ({"data": {"lane": 1, "x": 2}}, "Loop has no attribute 'data.x'"),
        ({"data": {"lane": "x"}}, "Loop.lane is 'x', but must be int64 (field 'data.lane')"),
        ({"data_base64": "AA=="}, "data_base64 holds binary data, which the mapping gives to no attribute"),
        ({"data": None}, "Loop lacks 'lane', which it must carry"),
    ],
)
def test_what_is_wrong_with_a_cloud_event_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    assert found(tmp_path, {**CLOUD, **change}).letter().reason == reason


def test_a_mapping_may_use_the_envelope(tmp_path: Path) -> None:
    """A prefix of types is stripped, and the id and binary data are kept if a field is named for them."""
    mapping = read_mapping(
        '[type]\nfield = "type"\nstrip = "com.city."\n'
        '[attributes]\nid = "note"\ndata_base64 = "blob"\n[constants]\nlane = 4'
    )
    line = {**CLOUD, "type": "com.city.Loop", "data": None, "data_base64": "AP8="}
    (event,) = found(tmp_path, line, format=JsonLines(mapping)).events()
    assert event == {**READ, "note": "1", "blob": b"\x00\xff", "lane": 4}


@pytest.mark.parametrize("text", ["[{}]", " [\n{},\n{}\n]\n", "\ufeff[{},{}, {}]"])
def test_a_batch_is_an_array_of_events(tmp_path: Path, text: str) -> None:
    """It is not cut; the position is the index."""
    event = json.dumps(CLOUD)
    path = written(tmp_path / "batch.json", text.replace("{}", event))
    read = Found(JsonLines(), path, TYPES, target=10)
    assert [row["_position"] for row in read.rows()] == list(range(text.count("{}")))
    assert all(event == READ for event in read.events())


def test_of_a_damaged_array_what_is_whole_is_kept(tmp_path: Path) -> None:
    """A cut array, a broken item, and lines under a line that only looks like one."""
    event = json.dumps({"type": "Loop", "lane": 1})
    for text, count, dead in (
        (f"[{event},{event},{event[:-3]}", 2, 1),
        (f"[{event},\n{{broken}},\n{event}\n]", 2, 1),
        (f"[oops\n{event}\n{event}\n", 2, 1),
        (f"[{event} {event}]", 2, 0),
    ):
        read = Found(JsonLines(), written(tmp_path / "batch.json", text), TYPES, target=10)
        assert (len(read.events()), len(read.letters)) == (count, dead), text


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_compressed_file_is_one_split_and_read_to_where_it_is_damaged(tmp_path: Path) -> None:
    """Positions are those of the text; several members are one text; a damaged end costs one dead letter."""
    lines = [json.dumps({"type": "Loop", "lane": lane}).encode() + b"\n" for lane in range(2000)]
    packed = gzip.compress(b"".join(lines[:1000])) + gzip.compress(b"".join(lines[1000:]))
    read = Found(JsonLines(), written(tmp_path / "events.jsonl.gz", packed), TYPES, target=100)
    assert len(read.splits) == 1
    assert [event["lane"] for event in read.events()] == list(range(2000))
    assert read.rows()[1]["_position"] == len(lines[0])
    for damaged in (packed[:-100], packed[:-8], packed[: len(packed) // 2], packed + b"junk at the end"):
        read = Found(JsonLines(), written(tmp_path / "events.jsonl.gz", damaged), TYPES)
        assert [event["lane"] for event in read.events()] == list(range(len(read.events())))
        assert len(read.events()) >= 2000 * len(damaged) / len(packed) - 700
        assert read.letter().reason.startswith("the file is damaged here: ")


def test_a_file_that_is_not_compressed_but_called_so_is_one_dead_letter(tmp_path: Path) -> None:
    read = Found(JsonLines(), written(tmp_path / "events.jsonl.gz", b'{"type": "Loop"}'), TYPES)
    assert read.letter().reason.startswith("the file is damaged here: ")


# -- laws --------------------------------------------------------------------------------------------------------------


@examples(25)
@given(st.integers(0, 2**32))
def test_random_events_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Compared with an independent writer and with the batches of the Arrow target."""
    path = tmp_path_factory.mktemp("json") / "events.jsonl"
    draw, events = random.Random(seed), Generator(seed).events(40)
    written(path, "".join(json_line(event, draw) + "\n" for event in events))
    read = Found(JsonLines(), path, GENERATED, target=draw.choice([50, 500, 5000]))
    assert read.reasons == []
    assert read.events() == expected(events)


@examples(60)
@given(st.integers(0, 2**32), st.data())
def test_damage_harms_the_damaged_lines_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    """Random damage never raises and never affects the events of other lines, however the file is cut."""
    path = tmp_path_factory.mktemp("json") / "events.jsonl"
    draw, events = random.Random(seed), Generator(seed).events(20)
    content = bytearray("".join(json_line(event, draw) + "\n" for event in events).encode())
    places = data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=6))
    starts = [0, *(at + 1 for at, byte in enumerate(content) if byte == 10)]
    harmed = {place for place, _ in places}
    for place, byte in places:
        content[place] = byte
    written(path, bytes(content))
    read = Found(JsonLines(), path, GENERATED, target=data.draw(st.sampled_from([60, 700, 10**6])))
    kept = {row["_position"]: row for row in read.rows()}
    for number, event in enumerate(events):
        start, end = starts[number], starts[number + 1]
        if start > 0 and not harmed & set(range(start - 1, end)) and not (harmed & {0} and content[0:1] == b"["):
            row = {name: value for name, value in kept[start].items() if name not in ("_position", "_recorded")}
            assert row == expected([event])[0]


@examples(40)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(10, 900))
def test_how_a_file_is_cut_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int, target: int, block: int
) -> None:
    """Every line is in exactly one split, for any sizes of splits and reads."""
    path = tmp_path_factory.mktemp("json") / "events.jsonl"
    draw = random.Random(seed)
    lines = [json_line(event, draw) for event in Generator(seed).events(10)]
    lines.insert(draw.randrange(10), '{"type": ')
    written(path, draw.choice(["\n", "\r\n", "\n\n"]).join(lines) + draw.choice(["", "\n"]))
    whole = Found(JsonLines(), path, GENERATED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genus.lake._ingest.format.BLOCK", block)
        cut = Found(JsonLines(), path, GENERATED, target=target)
    assert cut.rows() == whole.rows()
    assert cut.letters == whole.letters
    assert len(whole.events()) == 10


# -- in a lake ---------------------------------------------------------------------------------------------------------


def test_lines_become_parquet_through_the_job(tmp_path: Path, spark: SparkSession) -> None:
    """Several splits of one file, with dead letters between."""
    lines = [
        json.dumps({"type": "Loop", "lane": lane, "time": f"2026-11-1{lane % 2}T00:00:00Z"}) for lane in range(500)
    ]
    lines[7] = "broken"
    path = str(written(tmp_path / "events.jsonl", "\n".join(lines)))
    catalog = Catalog()
    catalog.register(Loop)
    draft = ingest_draft(spark, tmp_path / "lake", catalog, path, format_for(path), 4000)
    assert (draft.sources[0].rows, draft.sources[0].dead) == (499, 1)
    table = stored(tmp_path / "lake/tables/Loop")
    assert sorted(table.column("lane").to_pylist()) == [lane for lane in range(500) if lane != 7]
    assert stored(tmp_path / "lake/dead").column("raw").to_pylist() == ["broken"]


def test_the_example_of_edges_has_an_edge_for_every_type() -> None:
    """Check that the generated events cover the edge values."""
    assert all(
        len(pool(each.type)) >= 2 for name in GENERATED.entries if (p := GENERATED.plan(name)) for each in p.attributes
    )


# -- a boat's bus ------------------------------------------------------------------------------------------------------


def _attribute_name(field: str) -> str:
    return "f_" + "".join(letter if letter.isalnum() else "_" for letter in field.lower())


def _annotation(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds <= {int, float}:
        return float | None if float in kinds else int | None
    return str | None if kinds == {str} else list[Any] | None


def _declared(records: list[dict[str, Any]]) -> list[type]:
    """A class for every id, with the attributes that its records have."""
    seen: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        fields = seen.setdefault(record["id"], {})
        for name, value in record["fields"].items():
            fields.setdefault(_attribute_name(name), []).append(value)
    metaclass: Any = type(Event)
    return [
        metaclass(f"N2k_{name}", (Event,), {"__annotations__": {f: _annotation(v) for f, v in fields.items()}})
        for name, fields in seen.items()
    ]


@pytest.mark.slow
@pytest.mark.skipif(not SIGNALK.exists(), reason=f"the boat's events are not at {SIGNALK}")
def test_every_event_of_a_boats_bus_is_found_again(spark: SparkSession, tmp_path: Path) -> None:
    """15,668 events of 26 types, nested, through a mapping, into Parquet and back."""
    records = [json.loads(line) for line in gzip.decompress(SIGNALK.read_bytes()).splitlines()]
    classes = _declared(records)
    names = sorted({name for record in records for name in record["fields"]})
    mapping = read_mapping(
        "\n".join(
            [
                'ignore = ["pgn", "prio", "src", "dst", "description"]',
                '[type]\nfield = "id"\n[types]',
                *(f'{name} = "N2k_{name}"' for name in sorted({record["id"] for record in records})),
                '[attributes]\ntimestamp = "time"',
                *(f'"fields.{name}" = "{_attribute_name(name)}"' for name in names),
            ]
        )
    )
    catalog = Catalog()
    catalog.register(*classes)
    types = Types(catalog)
    mapping.check(types)
    draft = ingest_draft(spark, tmp_path / "lake", catalog, str(SIGNALK), format_for(str(SIGNALK), mapping))
    assert (draft.sources[0].rows, draft.sources[0].dead) == (15_668, 0)
    read = [row for part in draft.added for row in stored(tmp_path / "lake" / part.folder).to_pylist()]
    read.sort(key=lambda row: row["_position"])
    for row, record in zip(read, records, strict=True):
        assert row["_type"] == f"N2k_{record['id']}"
        assert row["time"] == datetime.fromisoformat(record["timestamp"])
        vector = catalog.vector(row["_type"])
        said = {name: value for name, value in row.items() if name.startswith("f_") and value is not None}
        opaque = {name for name in said if isinstance(vector.find(name).type, OpaqueType)}
        found = {name: json.loads(value) if name in opaque else value for name, value in said.items()}
        assert found == {_attribute_name(name): value for name, value in record["fields"].items()}
