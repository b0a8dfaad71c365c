"""CAN logs in a lake: every frame is an event, a dead letter or left out on request, however logs are cut."""

import gzip
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import can
from genus import Event, Maybe
from genus.can import Frame, read_log
from genus.can._dbc import Dbc, Decoding, load_dbc
from genus.can.types import LoggedFrame
from genus.catalog import Catalog
from genus.errors import DbcError, LakeError
from genus.lake import Lake, register_data_source
from genus.lake._ingest.can_logs import CanLogs
from genus.lake._ingest.format import Columns, DeadLetter, Format, Types
from genus.lake._ingest.sources import FormatChooser
from genus.lake._ingest.writer import Origin, TableWriter
from genus.model import name_of
from tests.can.log_writers import START_US, WRITERS
from tests.examples import examples, some_of

TESLA = Path(__file__).parents[3] / "shared" / "data" / "can" / "tesla"

CAR = """VERSION ""
BU_: Engine Body
BO_ 256 Drive: 4 Engine
 SG_ speed : 0|12@1+ (0.1,0) [0|409] "km/h" Body
 SG_ gear : 12|3@1+ (1,0) [0|7] "" Body
 SG_ page M : 16|8@1+ (1,0) [0|0] "" Body
 SG_ oil m1 : 24|8@1- (1,-40) [0|0] "C" Body
 SG_ water m2 : 24|8@1- (1,-40) [0|0] "C" Body
BO_ 2147484160 Meter: 16 Body
 SG_ serial : 0|64@1+ (1,0) [0|0] "" Engine
 SG_ total : 64|32@1+ (1,0) [0|0] "m" Engine
VAL_ 256 gear 0 "P" 1 "R" 2 "N" 3 "D" ;
"""


@pytest.fixture(scope="module")
def car(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("car") / "car.dbc"
    path.write_text(CAR)
    return path


def catalog_of(*types: type) -> Types:
    catalog = Catalog()
    catalog.register(*types)
    return Types(catalog)


def log_text(seed: int, count: int) -> str:
    """Good frames of both messages and of none, short ones, wrong pages, error and remote frames, damaged lines."""
    rnd = random.Random(seed)

    def said() -> Iterator[str]:
        yield f"100#{rnd.randrange(1 << 16):04X}{rnd.choice(['01', '02', '02'])}{rnd.randrange(256):02x}"
        yield f"00000200##1{rnd.randbytes(16).hex()}"
        yield f"100#{rnd.randbytes(8).hex()}"
        yield f"{rnd.randrange(0x101, 0x800):03X}#{rnd.randbytes(rnd.randrange(9)).hex()}"
        yield from ("100#00", "20000080#0000000000000000", "100#R", "what is this?")

    lines = []
    for number in range(count):
        (frame,) = rnd.choices(list(said()), [20, 5, 2, 3, 1, 1, 1, 1])
        end = rnd.choice(["\n", "\n", "\n", "\r\n", " R\n", "\n\n"])
        lines.append(f"({1700000000 + number}.{rnd.randrange(10**6):06}) {rnd.choice(['can0', 'can1'])} {frame}{end}")
    return "".join(lines).removesuffix("\n")


def logs(dbc: Path, path: Path) -> Format:
    """The format that is chosen for a log by its name."""
    return FormatChooser(None, None, dbc)(str(path))


Read = tuple[dict[int, Any], list[DeadLetter]]
"""Events by their positions, and dead letters."""


def read(format: Format, path: Path, types: Types, target: int = 1 << 20) -> Read:
    """All events of a file: the type and the attributes that are there."""
    events: dict[int, Any] = {}
    letters: list[DeadLetter] = []
    for split in format.splits(str(path), path.stat().st_size, target):
        for chunk in format.read(split, types):
            if isinstance(chunk, Columns):
                for row in chunk.batch.to_pylist():
                    position, recorded = row.pop("_position"), row.pop("_recorded")
                    assert position not in events
                    assert recorded == row.get("time", recorded)
                    events[position] = chunk.type, {name: value for name, value in row.items() if value is not None}
            else:
                letters += chunk
    return events, sorted(letters, key=lambda letter: letter.position)


def one_by_one(dbc: Dbc, path: Path) -> tuple[list[Any], Counter[str]]:
    """The same by `decode_log`'s decoder, and why frames and lines are no events."""
    decoding = Decoding(dbc, read_log(path))
    events = [said(recorded.event) for recorded in decoding]
    harmless = ("error frame", "remote frame")
    reasons = Counter({reason: n for reason, n in decoding.skipped.items() if reason not in harmless})
    return events, reasons + decoding.rejected


def said(event: Event) -> Any:
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    plain = {name: getattr(value, "value", value) for name, value in values.items() if value is not None}
    return name_of(type(event)), plain


def reasons_of(letters: list[DeadLetter]) -> Counter[str]:
    """How often each reason was given; all unknown identifiers together."""
    known = "unknown identifier"
    return Counter(known if letter.reason.startswith(known) else letter.reason for letter in letters)


@pytest.mark.slow
@pytest.mark.parametrize("target", [300, 4096, 1 << 20])
def test_a_candump_log_gives_the_events_of_its_frames_wherever_it_is_cut(
    car: Path, tmp_path: Path, target: int
) -> None:
    """The same events and reasons as frame by frame, each at the byte at which its line begins."""
    path = tmp_path / "drive.log"
    path.write_text(log_text(1, 500))
    events, letters = read(logs(car, path), path, catalog_of(*load_dbc(car).all_types), target)
    wanted, reasons = one_by_one(load_dbc(car), path)
    assert [events[position] for position in sorted(events)] == wanted
    assert reasons_of(letters) == reasons
    assert len(reasons) >= 4
    text = path.read_bytes()
    assert all(text[at : at + 1] == b"(" and text[:at][-1:] in (b"\n", b"") for at in events)
    assert not {letter.position for letter in letters} & set(events)


@given(st.binary(max_size=300), st.integers(1, 400))
@examples(50)
def test_no_bytes_make_reading_fail(tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int) -> None:
    """Whatever stands in a file, of every format, good frames before it are read, or the damage is reported."""
    folder = tmp_path_factory.getbasetemp()
    dbc = folder / "noise.dbc"
    dbc.write_text(CAR)
    text = log_text(2, 8).encode()
    for ending in ("log", "asc", "trc", "csv", "blf", "log.gz"):
        path = folder / f"noise.{ending}"
        path.write_bytes(text[:place] + noise + text[place:] if ending == "log" else noise)
        read(logs(dbc, path), path, catalog_of(*load_dbc(dbc).all_types), target=200)


def write_messages(path: Path, messages: list[can.Message]) -> None:
    with can.Logger(path) as logger:
        for message in messages:
            logger.on_message_received(message)


def messages(count: int) -> Iterator[can.Message]:
    rnd = random.Random(3)
    for number in range(count):
        data = bytes([rnd.randrange(256), rnd.randrange(256), rnd.choice([1, 2, 3]), rnd.randrange(256)])
        known = rnd.random() < 0.8
        yield can.Message(
            timestamp=1_700_000_000 + number / 100,
            arbitration_id=0x100 if known else 0x700,
            is_extended_id=False,
            is_remote_frame=number == 5,
            data=b"" if number == 5 else data,
            channel=0,
        )


@pytest.mark.parametrize("ending", ["asc", "blf", "csv", "trc", "log", "log.gz", "asc.gz"])
def test_every_log_format_gives_the_events_of_its_frames(car: Path, tmp_path: Path, ending: str) -> None:
    """What python-can wrote is read as frame by frame; frames are numbered in binary formats."""
    path = tmp_path / f"drive.{ending}"
    write_messages(path, list(messages(200)))
    events, letters = read(logs(car, path), path, catalog_of(*load_dbc(car).all_types))
    wanted, reasons = one_by_one(load_dbc(car), path)
    assert [events[position] for position in sorted(events)] == wanted
    assert len(wanted) > 50
    assert reasons_of(letters) == reasons
    if ending == "blf":
        assert sorted([*events, *(letter.position for letter in letters)]) == list(range(199))


@pytest.mark.parametrize("name", some_of(sorted(WRITERS), 5))
@pytest.mark.parametrize("packed", [False, True])
def test_every_text_format_gives_the_same_events_wherever_it_is_cut(
    name: str, packed: bool, car: Path, tmp_path: Path
) -> None:
    """Positions are the bytes at which lines begin; logs without time stamps give events without a time."""
    rnd = random.Random(name)
    frames = [
        LoggedFrame(
            START_US + 10_000 * at, "1", Frame(0x100, rnd.randbytes(2) + bytes([at % 3, at % 256]), extended=False)
        )
        for at in range(400)
    ]
    path = tmp_path / "drive.txt"
    text = WRITERS[name].write(frames).encode()
    path.write_bytes(zstandard.compress(text) if packed else text)
    events, letters = read(logs(car, path), path, catalog_of(*load_dbc(car).all_types), 5000)
    wanted, reasons = one_by_one(load_dbc(car), path)
    assert [events[position] for position in sorted(events)] == wanted
    assert reasons_of(letters) == reasons
    assert all(text[:at][-1:] in (b"\n", b"") for at in events)
    assert ("time" in wanted[0][1]) == (name not in ("candump", "slcan"))


def test_a_gzipped_log_that_is_cut_gives_what_is_before_the_cut(car: Path, tmp_path: Path) -> None:
    """And a dead letter that says so; positions are those of the unpacked text."""
    text = log_text(4, 2000).encode()
    (tmp_path / "whole.log").write_bytes(text)
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(text)[:-2000])
    types = catalog_of(*load_dbc(car).all_types)
    events, letters = read(logs(car, path), path, types)
    whole, _ = read(logs(car, tmp_path / "whole.log"), tmp_path / "whole.log", types)
    assert 100 < len(events) < len(whole)
    assert events == {at: event for at, event in whole.items() if at <= max(events)}
    assert [letter.reason for letter in letters if letter.position > max(events)] == [
        "the file is damaged here: it ends too early"
    ]


def test_a_file_that_is_no_log_is_one_dead_letter(car: Path, tmp_path: Path) -> None:
    """A file that is not BLF, and one that is no CSV log."""
    (tmp_path / "no.blf").write_bytes(b"nothing of the kind" * 20)
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    types = catalog_of(*load_dbc(car).all_types)
    for name, reason in (("no.blf", "it is no BLF file"), ("no.csv", "it is no CSV log")):
        events, letters = read(logs(car, tmp_path / name), tmp_path / name, types)
        assert events == {}
        assert [letter.reason.startswith(reason) for letter in letters] == [True]


def test_frames_of_no_message_may_be_left_out(car: Path, tmp_path: Path) -> None:
    """A log has many that a DBC file does not describe; as dead letters they say which identifier they have."""
    path = tmp_path / "drive.log"
    path.write_text("(1.5) can0 7FF#0011\n(1.6) can0 1F334455#\n(1.7) can0 100#00\n")
    types = catalog_of(*load_dbc(car).all_types)
    _, letters = read(logs(car, path), path, types)
    assert letters == [
        DeadLetter(0, "unknown identifier 7FF", "(1.500000) can0 7FF#0011"),
        DeadLetter(20, "unknown identifier 1F334455", "(1.600000) can0 1F334455#"),
        DeadLetter(41, "Drive: too short: 1 of 4 bytes", "(1.700000) can0 100#00"),
    ]
    _, fewer = read(CanLogs.of(load_dbc(car), "log", unknown="pass"), path, types)
    assert fewer == letters[2:]
    with pytest.raises(LakeError, match="unknown='none'"):
        CanLogs.of(load_dbc(car), "log", unknown="none")  # type: ignore[arg-type]


def test_events_that_are_not_the_catalogs_are_dead_letters(car: Path, tmp_path: Path) -> None:
    """A DBC file may say something else than the one that the types were registered of."""

    class Drive(Event):
        speed: float
        gear: Maybe[str] = None

    class Meter(Event):
        serial: bytes
        total: int
        pulses: int

    path = tmp_path / "drive.log"
    path.write_text("(1.5) can0 100#00000100\n(1.6) can0 00000200##0" + "00" * 16)
    events, letters = read(logs(car, path), path, catalog_of(Drive, Meter))
    assert events == {}
    assert [letter.reason for letter in letters] == [
        "Drive: gear is int16, in the catalog string",
        "Meter: pulses is required, but not in the DBC file",
    ]
    _, letters = read(logs(car, path), path, catalog_of(Event))
    assert [letter.reason for letter in letters] == ["unknown type Drive", "unknown type Meter"]


def test_labels_that_the_catalog_does_not_know_are_dead_letters(car: Path, tmp_path: Path) -> None:
    """A value of an enumeration is one that the vector names."""
    newer = tmp_path / "car.dbc"
    newer.write_text(CAR.replace('3 "D"', '3 "D" 4 "B"'))
    path = tmp_path / "drive.log"
    path.write_text("(1.5) can0 100#00000100\n")
    types = catalog_of(*load_dbc(car).all_types)
    _, letters = read(logs(newer, path), path, types)
    assert [letter.reason for letter in letters] == ["Drive: gear_label has labels that are not in the catalog: B"]


def test_what_is_no_can_log_is_refused_with_the_formats_that_are(car: Path, tmp_path: Path) -> None:
    """The content decides the format, unless it is given."""
    path = tmp_path / "drive.txt"
    path.write_text("hello\n")
    with pytest.raises(LakeError, match=r"drive\.txt: it is not recognised as a CAN log: none of the first 1 lines"):
        logs(car, path)
    with pytest.raises(LakeError, match="log='txt' is not a CAN log format; known: log, candump, asc, "):
        CanLogs.of(load_dbc(car), "txt")
    path.write_text("(1.5) can0 100#00000100\n")
    assert len(read(logs(car, path), path, catalog_of(*load_dbc(car).all_types))[0]) == 1
    events, _ = read(FormatChooser("log", None, car)(str(path)), path, catalog_of(*load_dbc(car).all_types))
    assert len(events) == 1
    with pytest.raises(DbcError, match="cannot read"):
        load_dbc(tmp_path / "none.dbc")


def test_a_format_is_sent_to_tasks_as_data(car: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read no DBC file: it need not be where they are."""
    sent = pickle.dumps(CanLogs.of(load_dbc(car), "log"))
    monkeypatch.setattr("genus.can._dbc.dbc_file.read_layouts", lambda path: pytest.fail("read again"))
    assert pickle.loads(sent).messages[0].type_name == "Drive"


def test_a_dbc_file_is_parsed_once_for_each_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all ingests of a process: the same messages, and the same classes, until the file changes."""
    path = tmp_path / "car.dbc"
    path.write_text(CAR)
    log = tmp_path / "drive.log"
    log.write_text("(1.5) can0 100#00000100\n")
    first, second = FormatChooser(None, None, path), FormatChooser(None, None, path)
    made = first(str(log))
    with monkeypatch.context() as patch:
        patch.setattr("genus.can._dbc.database.read_database", lambda *given: pytest.fail("parsed again"))
        assert first.types == second.types
        assert second(str(log)) == made
    path.write_text(CAR.replace("speed", "pace"))
    assert FormatChooser(None, None, path).types != first.types


@pytest.mark.slow
@pytest.mark.skipif(not TESLA.exists(), reason=f"real data not found: {TESLA}")
def test_a_real_log_of_many_messages_fills_a_table_each(tmp_path: Path) -> None:
    """5,368 frames of 159 messages: no frame is lost, and every family gets one file per day."""
    dbc, log = TESLA / "Model3CAN.dbc", TESLA / "tesla_model3_muxfuzz.candump.log.gz"
    format, types = logs(dbc, log), catalog_of(*load_dbc(dbc).all_types)
    (split,) = format.splits(str(log), log.stat().st_size, 1000)
    writer = TableWriter(Origin(str(tmp_path), "c", 1, str(log), 0, 0))
    for chunk in format.read(split, types):
        if isinstance(chunk, Columns):
            plan = types.plan(chunk.type)
            assert plan is not None
            writer.add(chunk, plan)
        else:
            assert chunk == [], "dead letters"
    report = writer.finish()
    assert (report.rows, report.dead, len(report.files)) == (5368, 0, 159)


def test_truncated_frames_are_decoded_where_asked(car: Path, tmp_path: Path) -> None:
    """The same as frame by frame; no frame is too short."""
    path = tmp_path / "drive.log"
    path.write_text(log_text(8, 400))
    database = load_dbc(car, truncated=True)
    format = FormatChooser(None, None, database)(str(path))
    events, letters = read(format, path, catalog_of(*database.all_types))
    wanted, reasons = one_by_one(database, path)
    assert [events[position] for position in sorted(events)] == wanted
    assert reasons_of(letters) == reasons
    assert not any("too short" in reason for reason in reasons)
    _, refused = read(format, path, catalog_of(*load_dbc(car).all_types))
    assert any("is required, but may be absent in these frames" in letter.reason for letter in refused)


@pytest.mark.slow
def test_truncated_frames_go_into_a_lake_where_asked(spark: SparkSession, car: Path, tmp_path: Path) -> None:
    path = tmp_path / "drive.log"
    path.write_text(log_text(9, 300))
    database = load_dbc(car, truncated=True)
    wanted, reasons = one_by_one(database, path)
    done = Lake.create(spark, tmp_path / "lake").ingest(path, dbc=database)
    assert (done.events, done.dead) == (len(wanted), reasons.total())
    register_data_source(spark)
    options = {"dbc": str(car), "type": "Drive", "truncated": "true"}
    rows = spark.read.format("genus").options(**options).load(str(path))
    assert rows.count() == sum(name == "Drive" for name, _ in wanted)


def test_a_log_goes_into_a_lake_with_its_dbc_file(spark: SparkSession, car: Path, tmp_path: Path) -> None:
    """The types are registered, events can be read, and other frames are dead letters."""
    path = tmp_path / "drive.log"
    path.write_text(log_text(6, 3000))
    lake = Lake.create(spark, tmp_path / "lake")
    done = lake.ingest(path, dbc=car)
    wanted, reasons = one_by_one(load_dbc(car), path)
    assert (done.events, done.dead) == (len(wanted), reasons.total())
    assert lake.ingest(path, dbc=car).files == 0
    drive = lake.read("Drive has oil where gear_label == 'D' and speed > 100")
    matching = [
        values
        for name, values in wanted
        if name == "Drive" and "oil" in values and values.get("gear_label") == "D" and values["speed"] > 100
    ]
    rows = drive.select("time", "place", "source", "speed", "oil").toArrow().to_pylist()
    assert sorted(rows, key=lambda row: row["time"]) == [
        {name: values[name] for name in ("time", "place", "source", "speed", "oil")} for values in matching
    ]
    assert len(matching) > 10
    assert lake.dead_letters().count() == reasons.total()


@pytest.mark.slow
def test_a_lake_says_what_is_doubtful_and_takes_the_unit_and_columns(
    spark: SparkSession, car: Path, tmp_path: Path
) -> None:
    """A log whose unit of times is a guess, and one whose columns nothing shows."""
    frames = list(read_log(_written(tmp_path / "drive.log", log_text(9, 60))))
    doubtful, odd = tmp_path / "ticks.csv", tmp_path / "odd.txt"
    rows = [(10 * at, f"{each.frame.id:08X}", each.frame.data) for at, each in enumerate(frames)]
    doubtful.write_text("".join(f"{at},{name},{len(data)},{data.hex(',')}\n" for at, name, data in rows))
    odd.write_text("".join(f"x {data.hex()} y {at} z {name}\n" for at, name, data in rows if data))
    lake = Lake.create(spark, tmp_path / "lake")
    done = lake.ingest(doubtful, dbc=car, identity="path")
    assert any("unit of its times" in doubt for doubt in done.doubts[str(doubtful)])
    assert not lake.ingest(doubtful, dbc=car, time_unit="ms", retry=True).doubts
    with pytest.raises(LakeError, match="not recognised as a CAN log"):
        lake.ingest(odd, dbc=car)
    columns = "-, data, -, time:ms, -, id:hex"
    read = CanLogs.of(load_dbc(car), "csv", columns=columns)
    assert not read.doubts(str(odd))
    done = lake.ingest(odd, dbc=car, columns=columns)
    assert done.events + done.dead == sum(bool(data) for _, _, data in rows)
    with pytest.raises(LakeError, match="is no unit of times"):
        lake.ingest(odd, dbc=car, time_unit="h")
    register_data_source(spark)
    files = spark.read.format("genus").options(dbc=str(car), type="Event", columns=columns).load(str(odd))
    assert files.count() == done.events


@pytest.mark.slow
def test_a_stream_takes_the_unit_of_logs_and_names_what_is_doubtful(
    spark: SparkSession, car: Path, tmp_path: Path
) -> None:
    (landing := tmp_path / "landing").mkdir()
    (landing / "ticks.csv").write_text("".join(f"{10 * at},0000010A,2,01,02\n" for at in range(60)))
    lake = Lake.create(spark, tmp_path / "lake")
    assert "ticks.csv: " in (lake.stream(landing, dbc=car).run().problem or "")
    again = lake.stream(landing, dbc=car, time_unit="ms", identity="path", checkpoint=tmp_path / "again").run()
    assert (again.files, again.problem) == (1, None)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
