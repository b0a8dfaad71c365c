"""Recordings against files that a program would write by hand: msgpack messages and JSON lines, typed by msgspec.

The msgpack file has a length and the number of a type before each message, and neither times of recording, nor
checksums, nor an index; its messages are encoded and decoded by msgspec as they are, without the checks of Genus.
`seek` opens a recording of a million events and reads the first event from a time on, of the clock.
"""

import random
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from bench.timing import goal, human, markdown
from genus import Event, Maybe
from genus.bus import RecordingWriter, read_recording

COUNT, SEEK_COUNT, ROUNDS = 100_000, 1_000_000, 7
START = datetime(2026, 1, 1, tzinfo=UTC)
PREFIX = struct.Struct("<IB")


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[str] = None


class Tank(Event):
    level: float
    number: int


class Lamp(Event):
    on: bool
    watts: Maybe[float] = None


TYPES: list[type[Event]] = [Loop, Tank, Lamp]


def make_event(number: int, types: int) -> Event:
    """An event of the first so many types, in turn."""
    common: dict[str, Any] = {"time": START + timedelta(milliseconds=number), "place": f"A8/km{number % 90}"}
    match number % types:
        case 0:
            category = "truck" if number % 3 else None
            return Loop(lane=number % 4, speed=number % 50 * 1.5, category=category, **common)
        case 1:
            return Tank(level=number / 7, number=number, **common)
    return Lamp(on=number % 2 == 0, watts=60.0, **common)


class Program(NamedTuple):
    """How a file is written and read."""

    write: Callable[[Path, Sequence[Event]], object]
    read: Callable[[Path], int]


def write_messages(path: Path, events: Sequence[Event]) -> None:
    """Msgpack messages, each after its length and the number of its type."""
    encode, pack = msgspec.msgpack.Encoder().encode, PREFIX.pack
    numbers = {cls: number for number, cls in enumerate(TYPES)}
    with path.open("wb") as file:
        write = file.write
        for event in events:
            message = encode(event)
            write(pack(len(message), numbers[type(event)]))
            write(message)


def read_messages(path: Path) -> int:
    """The messages, each decoded as its type."""
    decoders = [msgspec.msgpack.Decoder(cls).decode for cls in TYPES]
    unpack, size, count = PREFIX.unpack, PREFIX.size, 0
    with path.open("rb") as file:
        read = file.read
        while prefix := read(size):
            length, number = unpack(prefix)
            decoders[number](read(length))
            count += 1
    return count


def write_lines(path: Path, events: Sequence[Event]) -> None:
    """A line of JSON for each event: the number of its type, a tabulator, its attributes."""
    encode = msgspec.json.Encoder().encode
    numbers = {cls: b"%d\t" % number for number, cls in enumerate(TYPES)}
    with path.open("wb") as file:
        for event in events:
            file.write(numbers[type(event)] + encode(event) + b"\n")


def read_lines(path: Path) -> int:
    """The lines, each decoded as its type."""
    decoders = [msgspec.json.Decoder(cls).decode for cls in TYPES]
    count = 0
    with path.open("rb") as file:
        for line in file:
            number, _, text = line.partition(b"\t")
            decoders[int(number)](text)
            count += 1
    return count


def write_recording(path: Path, events: Sequence[Event], **options: Any) -> None:
    """A recording."""
    with RecordingWriter(path, **options) as writer:
        write = writer.write
        for at_us, event in enumerate(events):
            write(event, at_us)


def read_events(path: Path) -> int:
    """All events of a recording, with their times of recording."""
    count = 0
    for count, _ in enumerate(read_recording(path, TYPES), 1):  # noqa: B007
        pass
    return count


PROGRAMS = {
    "msgpack messages, typed msgspec": Program(write_messages, read_messages),
    "JSON lines, typed msgspec": Program(write_lines, read_lines),
    "recording": Program(write_recording, read_events),
    'recording, compress="zstd"': Program(
        lambda path, events: write_recording(path, events, compress="zstd"), read_events
    ),
}


def measure(types: int) -> dict[str, tuple[float, float, float]]:
    """For each program the nanoseconds to write and to read an event, and bytes; the least of some rounds, in turn."""
    events = [make_event(number, types) for number in range(COUNT)]
    best = {name: (float("inf"), float("inf"), 0.0) for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for name, program in PROGRAMS.items():
                path = Path(folder) / "events"
                began = time.process_time()
                program.write(path, events)
                written = time.process_time()
                assert program.read(path) == COUNT
                read = time.process_time()
                times = (written - began) / COUNT * 1e9, (read - written) / COUNT * 1e9
                best[name] = (min(best[name][0], times[0]), min(best[name][1], times[1]), path.stat().st_size / COUNT)
                path.unlink()
    return best


def speed_table() -> str:
    """A row for each program, with ratios to msgpack messages."""
    found = measure(1)
    base = found["msgpack messages, typed msgspec"]
    rows = []
    for name, each in found.items():
        ratios = [took / least for took, least in zip(each[:2], base[:2], strict=True)]
        cells = [f"{human(took)}, {ratio:.2f}×" for took, ratio in zip(each, ratios, strict=False)]
        if name == "recording":
            limits = zip(cells, ratios, (2.0, 1.5), strict=True)
            cells = [goal(cell, ratio, at_most=limit, unit="×") for cell, ratio, limit in limits]
        rows.append([name, *cells, f"{each[2]:.0f}"])
    return markdown(["", "write an event", "read an event", "bytes of an event"], rows)


def seek_table() -> str:
    """Milliseconds from opening a file to the first event of a time, for files that were closed and killed."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.genus"
        with RecordingWriter(path) as writer:
            for number in range(SEEK_COUNT):
                writer.write(make_event(number, 3), number * 1000)
            writer.flush()
            rows.append(["killed, without an index", *seek(path)])
        rows.append(["closed", *seek(path)])
    return markdown(["seek in a million events", "median", "largest"], rows)


def seek(path: Path) -> list[str]:
    """The median and the largest of some times."""
    chance, times = random.Random(1), []
    for _ in range(50):
        wanted = chance.randrange(SEEK_COUNT) * 1000
        began = time.perf_counter()
        first = next(read_recording(path, TYPES).read_from(wanted))
        times.append((time.perf_counter() - began) * 1e3)
        assert first.at_us == wanted
    return [goal(f"{median(times):.2f} ms", median(times), at_most=5, unit=" ms"), f"{max(times):.2f} ms"]


def table() -> str:
    """Both tables."""
    return f"{speed_table()}\n\n{seek_table()}"


if __name__ == "__main__":
    print(table())
