"""Units that recordings state: the lake's reader converts as the bus's own reader does, wherever a file is cut."""

import struct
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Renamed, Unit, read_recording
from genus.bus import RecordingWriter
from genus.bus._attribute_map import units_of
from genus.bus._codec import encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, FrameFormat
from genus.lake._ingest.format import Columns, Types
from genus.lake._ingest.recordings import Recordings
from genus.lake._tables.commits import POSITION
from genus.model import name_of

from ..examples import examples

UNITS = ("m/s", "km/h", "mph", "kn", "kg")


def loop(**notes: Any) -> Any:
    metaclass: Any = type(Event)
    return metaclass("Loop", (Event,), {"__annotations__": {"lane": int, **notes}, "__module__": __name__})


def measured(symbol: str, type_: Any = float, *former: str) -> Any:
    found = Annotated[type_, Unit(symbol)]
    return (Annotated[found, Renamed(*former)] if former else found) | None


WRITERS = {symbol: loop(speed=measured(symbol), raw=bytes | None, width=measured("cm", int)) for symbol in UNITS}
READER = loop(velocity=measured("m/s", float, "speed"), raw=bytes | None, width=measured("mm", int))


FORMATS = st.sampled_from([FIRST_FORMAT, FORMAT])


def fake_frame(unit: str, form: FrameFormat) -> bytes:
    """A whole frame that states units, to be carried as the value of an attribute."""
    return form.frame(msgspec.msgpack.encode(("units of Loop", 0, {"speed": unit})))


VALUES = st.none() | st.floats(allow_nan=False)
RAW = st.none() | st.binary(max_size=6) | st.builds(fake_frame, st.sampled_from(UNITS), FORMATS)
WIDTHS = st.none() | st.integers(-3, 3) | st.sampled_from([2**62, -(2**62), 922337203685477580])
SESSIONS = st.lists(
    st.tuples(st.sampled_from(UNITS), st.lists(st.tuples(VALUES, RAW, WIDTHS), min_size=1, max_size=4)), max_size=4
)


@given(SESSIONS, st.integers(1, 400), st.none() | FORMATS)
@examples(150)
def test_the_lake_reads_the_same_bits_as_the_bus(
    sessions: list[tuple[str, list[tuple[float | None, bytes | None, int | None]]]],
    target: int,
    form: FrameFormat | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.genus")
        if form is None:
            RecordingWriter(path).close()
        else:
            path.write_bytes(form.header)
        for unit, rows in sessions:
            cls = WRITERS[unit]
            write_session(
                path, form, cls, [cls(lane=1, speed=speed, raw=raw, width=width) for speed, raw, width in rows]
            )
        read = read_recording(path, [READER])
        expected = [_bits(each.event.velocity, each.event.raw, each.event.width) for each in read]  # type: ignore[attr-defined]
        found, dead = ingested(path, target)
    assert not read.damage
    assert found == expected
    assert dead == read.problems.total()


def write_session(path: Path, form: FrameFormat | None, cls: type, events: list[Event]) -> None:
    """Continue a recording; one of an older format, which is only read now, as it was written."""
    if form is None:
        with RecordingWriter(path, append=True) as recording:
            for event in events:
                recording.write(event, 0)
    else:
        units = msgspec.msgpack.encode((f"units of {name_of(cls)}", 0, units_of(cls)))
        packets = [units, *(encode_event(event, 0) for event in events)]
        path.write_bytes(path.read_bytes() + b"".join(map(form.frame, packets)))


def ingested(path: Path, target: int) -> tuple[list[Any], int]:
    """The values of events in the order of the file, and the number of dead letters, read in splits."""
    catalog = Catalog()
    catalog.register(READER)
    types, format, size = Types(Catalog.parse(catalog.text())), Recordings(), path.stat().st_size
    rows, dead = dict[int, Any](), 0
    for split in format.splits(str(path), size, target):
        for chunk in format.read(split, types):
            if isinstance(chunk, Columns):
                rows |= _rows(chunk.batch)
            else:
                dead += len(chunk)
    return [rows[position] for position in sorted(rows)], dead


def _rows(batch: pa.RecordBatch) -> dict[int, Any]:
    return {row[POSITION]: _bits(row.get("velocity"), row.get("raw"), row.get("width")) for row in batch.to_pylist()}


def _bits(speed: float | None, raw: bytes | None, width: int | None) -> tuple[bytes | None, bytes | None, int | None]:
    return None if speed is None else struct.pack("<d", speed), raw, width


def test_reasons_of_dead_letters_name_both_units(tmp_path: Path) -> None:
    path = tmp_path / "a.genus"
    with RecordingWriter(path) as recording:
        recording.write(WRITERS["kg"](lane=1, speed=3.0), 0)
        recording.write(WRITERS["kg"](lane=1, width=2**62), 0)
    catalog = Catalog()
    catalog.register(READER)
    (split,) = Recordings().splits(str(path), path.stat().st_size, 1 << 20)
    (letters,) = Recordings().read(split, Types(catalog))
    assert isinstance(letters, list)
    assert [each.reason for each in letters] == [
        "not a Loop: Loop.velocity is in m/s, but values in kg cannot be converted to m/s: mass is no speed",
        "not a Loop: width does not fit after its conversion to mm",
    ]
