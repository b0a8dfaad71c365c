"""`genus export`: a recording as a file that other programs read."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mcap.reader import make_reader

from genus import Event
from genus.bus import RecordingWriter
from genus.cli._events import load_types
from genus.net import read_cloudevents
from genus.net.types import CloudEvent
from genus.testing import run_command as genus

TYPES = """
from datetime import timedelta
from genus import Event, Maybe

class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    gap: Maybe[timedelta] = None

class Camera(Loop):
    plate: str

class Tank(Event):
    speed: int
    picture: Maybe[bytes] = None
"""

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp() * 1e6)


@pytest.fixture(autouse=True)
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events of two families in turn, in a recording."""
    (tmp_path / "road.py").write_text(TYPES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENUS_TYPES", "road.py")
    types: dict[str, Any] = {cls.__name__: cls for cls in load_types("road.py")}
    made: list[Event] = []
    for number in range(30):
        made.append(types["Loop"](lane=number, gap=timedelta(milliseconds=number), time=NOON))
        made.append(types["Tank"](speed=number, picture=b"\xff"))
        made.append(types["Camera"](lane=number, speed=0.5, plate="S-AB 1"))
    with RecordingWriter("road.genus") as writer:
        for number, event in enumerate(made):
            writer.write(event, NOON_US + number)
    return made


def test_an_mcap_file_has_json_messages_with_a_schema_for_each_type() -> None:
    done = genus("export", "road.genus", "road.mcap")
    assert "exported 90 of 90 events" in done.stderr
    with open("road.mcap", "rb") as file:
        found = list(make_reader(file).iter_messages())
    assert [message.log_time for _, _, message in found] == [(NOON_US + number) * 1000 for number in range(90)]
    schema, channel, message = found[0]
    assert schema is not None
    assert (schema.name, schema.encoding, channel.topic, channel.message_encoding) == (
        "Loop",
        "jsonschema",
        "Loop",
        "json",
    )
    assert message.publish_time == NOON_US * 1000
    described = json.loads(schema.data)
    assert described["type"] == "object"
    assert described["properties"]["lane"]["type"] == "integer"
    assert described["required"] == ["lane"]
    assert json.loads(found[3][2].data) == {"lane": 1, "gap": "PT0.001S", "time": "2026-06-01T12:00:00Z"}
    assert {schema.name for schema, _, _ in found if schema} == {"Loop", "Tank", "Camera"}


def test_a_parquet_file_is_one_table_in_the_order_of_the_recording(events: list[Event]) -> None:
    """An attribute that has other types in two families has a column for each."""
    genus("export", "road.genus", "road.parquet")
    rows = pq.read_table("road.parquet").to_pylist()
    assert [row["_type"] for row in rows] == [type(event).__name__ for event in events]
    assert [row["_recorded"] for row in rows] == [NOON + timedelta(microseconds=number) for number in range(90)]
    assert (rows[0]["lane"], rows[0]["gap"], rows[0]["time"]) == (0, timedelta(0), NOON)
    assert (rows[1]["Tank.speed"], rows[1]["picture"], rows[1]["lane"]) == (0, b"\xff", None)
    assert (rows[2]["Loop.speed"], rows[2]["plate"]) == (0.5, "S-AB 1")


def test_json_lines_are_those_that_replay_prints() -> None:
    done = genus("export", "road.genus", "road.jsonl", "Loop where lane < 3")
    assert "exported 6 of 90 events" in done.stderr
    assert (
        Path("road.jsonl").read_text()
        == genus("replay", "road.genus", "Loop where lane < 3", "--print", "--json").stdout
    )


@pytest.mark.parametrize("arguments", [["road.cloudevents.jsonl"], ["road.txt", "--format", "cloudevents"]])
def test_cloudevents_are_read_as_the_same_events(events: list[Event], arguments: list[str]) -> None:
    genus("export", "road.genus", *arguments)
    found = list(read_cloudevents(arguments[0], [type(event) for event in events]))
    assert [each.event for each in found if isinstance(each, CloudEvent)] == events


def test_a_file_that_exists_is_replaced_unless_it_is_the_recording() -> None:
    Path("road.jsonl").write_text("older")
    assert genus("export", "road.genus", "road.jsonl").returncode == 0
    assert Path("road.jsonl").read_text().count("\n") == 90
    recording = Path("road.genus").read_bytes()
    done = genus("export", "road.genus", "./road.genus", "--format", "jsonl")
    assert (done.returncode, Path("road.genus").read_bytes()) == (2, recording)
    assert "is the recording itself" in done.stderr


def test_of_a_link_the_file_behind_it_is_replaced_and_devices_are_refused() -> None:
    """A rename to /dev/stdout would remove it, which root may do."""
    Path("link.jsonl").symlink_to("behind.jsonl")
    assert genus("export", "road.genus", "link.jsonl").returncode == 0
    assert (Path("link.jsonl").is_symlink(), Path("behind.jsonl").read_text().count("\n")) == (True, 90)
    os.mkfifo("pipe.jsonl")
    done = genus("export", "road.genus", "pipe.jsonl")
    assert (done.returncode, Path("pipe.jsonl").is_fifo()) == (2, True)
    assert "cannot write pipe.jsonl: not a regular file" in done.stderr


def without_bytecode() -> list[Path]:
    """The files here, without what Python compiles."""
    return sorted(path for path in Path().iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["road.genus", "road.xlsx"], "names no form"),
        (["road.py", "road.jsonl"], "not a recording"),
        (["road.genus", "no/road.jsonl"], "cannot write no/road.jsonl"),
        (["road.genus", "road.py/road.jsonl"], "cannot write road.py/road.jsonl"),
        (["road.genus", "road.jsonl", "-t", "other.py"], "none of the events"),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(arguments: list[str], problem: str) -> None:
    Path("other.py").write_text("from genus import Event\nclass Bell(Event): ...\n")
    before = without_bytecode()
    done = genus("export", *arguments)
    assert problem in done.stderr
    assert done.returncode in (1, 2)
    assert without_bytecode() == before


def test_damage_is_told_and_the_rest_exported() -> None:
    data = bytearray(Path("road.genus").read_bytes())
    data[500:540] = bytes(40)
    Path("road.genus").write_bytes(data)
    done = genus("export", "road.genus", "road.jsonl")
    assert done.returncode == 3
    assert "events lost" in done.stderr
    assert Path("road.jsonl").exists()
