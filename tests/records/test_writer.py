"""What a writer makes of an event, a reader with the same mapping reads as an equal event."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.errors import EventError, MappingError
from genus.model._plain import is_same
from genus.records import Mapping, RecordReader, RecordWriter, read_mapping
from tests.examples import examples
from tests.generators import Generator


class Gear(Enum):
    FIRST = 1
    SECOND = 2


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    gear: Maybe[Gear] = None
    is_closed: Maybe[bool] = None
    blob: Maybe[bytes] = None
    gap: Maybe[timedelta] = None
    parts: Maybe[list[float]] = None
    note: Maybe[str] = None


class Lamp(Event):
    watts: float


NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
FULL = Loop(
    time=NOON,
    lane=4,
    speed=2.5,
    gear=Gear.SECOND,
    is_closed=True,
    blob=b"\0\xff",
    gap=timedelta(seconds=1.5),
    parts=[1.5],
)


@examples(150)
@given(st.integers(0, 2**32))
def test_random_events_are_read_as_they_were_written(seed: int) -> None:
    """All attribute types, edge values included, with the mapping that is used if none is given."""
    for event in Generator(seed).events(20):
        reader = RecordReader(types=[type(event)])  # other tests have types of the same names
        back = reader.read(RecordWriter(Mapping(), type(event)).write(event))
        assert type(back) is type(event)
        assert all(is_same(getattr(event, name), getattr(back, name)) for name in event.__struct_fields__), back


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('type.is = "Loop"\ninside = "a.b"', {"a": {"b": {"time": "2026-11-15T12:00:00Z", "blob": "AP8="}}}),
        (
            """
            zone = "Europe/Berlin"
            [type]
            field = "kind.name"
            strip = "road."
            [types]
            loop = "Loop"
            [attributes]
            at = { to = "time", format = "%d.%m.%Y %H:%M" }
            n = { to = "lane", scale = 2, format = "text" }
            v = { to = "speed", scale = 0.5 }
            g = { to = "gear", format = "text" }
            c = { to = "is_closed", format = "text" }
            x = { to = "blob", format = "hex" }
            "times.gap" = { to = "gap", format = "ms" }
            """,
            {
                "kind": {"name": "road.loop"},
                "at": "15.11.2026 13:00",
                "n": "2",
                "v": 5.0,
                "g": "2",
                "c": "true",
                "x": "00ff",
                "times": {"gap": 1500},
            },
        ),
        (
            '[type]\nname = "x/{k}"\n[attributes]\nt = { to = "time", format = "us" }\n[types]\n"x/l" = "Loop"',
            {"k": "l", "t": 1_794_744_000_000_000},
        ),
    ],
)
def test_a_mapping_is_undone(text: str, record: dict[str, Any]) -> None:
    mapping = read_mapping(text)
    written = RecordWriter(mapping, Loop).write(FULL)
    assert RecordReader(mapping, [Loop]).read(written) == FULL
    assert _part(written, record) == record


def _part(written: Any, like: Any) -> Any:
    return {key: _part(written[key], like[key]) for key in like} if isinstance(like, dict) else written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[attributes]\na = "speed"\nb = "speed"', "fields 'a' and 'b' are all Loop.speed"),
        ('[attributes]\na = { to = "lane", scale = 0.5 }', "field 'a': the scale 0.5 rounds an integer"),
        ('[attributes]\na = { to = "speed", scale = 0 }', "field 'a': a scale of 0 cannot be undone"),
        ('[types]\n"l*" = "Loop"', "[types] has patterns for it only"),
        ('[types]\na = "Lamp"', "[types] has patterns for it only, or no name"),
        ('[type]\nis = "Lamp"', "all records are Lamp"),
        ('[type]\nname = "{a}/{b}"', "its name is made of 2 fields"),
        ('ignore = ["lane"]', "no field is Loop.lane, which every event has"),
        ('[attributes]\na = "lane"\n"a.b" = "speed"', "field 'a.b' would be written twice, also as 'a'"),
    ],
)
def test_a_mapping_that_cannot_be_undone_is_refused_with_the_field(text: str, problem: str) -> None:
    with pytest.raises(MappingError) as caught:
        RecordWriter(read_mapping(text), Loop)
    assert "Loop cannot be written: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "event", "problem"),
    [
        ("absent = [1]", Loop(lane=1), "Loop.lane is 1, which field 'lane' cannot hold: absent, as the mapping has it"),
        ('[constants]\nnote = "x"', Loop(lane=1), "Loop.note is absent, but the mapping has the constant 'x' for it"),
        ('[constants]\nnote = "x"\n[attributes]\nn = "note"', Loop(lane=1), "Loop.note is absent, but the mapping has"),
        ('ignore = ["note"]', Loop(lane=1, note="x"), "Loop.note is 'x', but the mapping has no field for it"),
        ("[attributes]\nn = { to = 'lane', scale = 2 }", Loop(lane=3), "cannot hold: no multiple of 2"),
        (
            "[attributes]\nt = { to = 'time', format = '%Y', zone = 'UTC' }",
            Loop(lane=1, time=NOON),
            "Loop.time is datetime.datetime(2026, 11, 15, 12, 0, tzinfo=datetime.timez…, which field 't' cannot hold",
        ),
        ("", Loop(lane="x"), "Loop.lane is 'x', but must be int64"),  # type: ignore[arg-type]
        ("", Loop(lane=1, parts=[float("nan")]), "Loop.parts is [nan], which field 'parts' cannot hold"),
    ],
)
def test_an_event_that_would_be_another_is_refused_with_the_attribute(text: str, event: Loop, problem: str) -> None:
    with pytest.raises(EventError) as caught:
        RecordWriter(read_mapping(text), Loop).write(event)
    assert problem in str(caught.value)


def test_a_constant_is_not_written() -> None:
    mapping = read_mapping('type.is = "Loop"\nignore = ["note"]\n[constants]\nnote = "x"')
    assert RecordWriter(mapping, Loop).write(Loop(lane=1, note="x")) == {"lane": 1}
    with pytest.raises(EventError, match=r"Loop.note is 'y', but the mapping has another constant for it"):
        RecordWriter(mapping, Loop).write(Loop(lane=1, note="y"))


def test_records_need_neither_arrow_nor_spark() -> None:
    """A bus reads mappings without the extras of the lake."""
    names = "ForeignTopics, Mapping, RecordReader, RecordWriter, read_mapping"
    code = f"import sys; from genus.records import {names}; print({{'pyarrow', 'pyspark', 'numpy'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
