"""Logs of every format to columns of events, against cantools: its log reader, or python-can's where it has none.

The frames are random, eight messages of a car each as often. Genus reads a file of 100,000 frames and decodes it in
columns; cantools decodes frame by frame (`decode_choices=False`), what its own reader or python-can's gives of the
first frames of the same file. Formats that neither reads are compared with python-can's reader of ASC. Both in one run.
"""

import io
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cantools.database
from cantools import logreader

import can
from bench.can_columns import _LENGTHS, car, random_frames
from bench.timing import markdown
from genus.can import ColumnDecoder, DecodedFrames, Frame, LoggedFrame, load_dbc, read_log
from tests.can.log_writers import START_US, WRITERS

FRAMES = 100_000
BY_CANTOOLS = 5_000
ROUNDS = 3
CANTOOLS = ("candump -L", "candump -t a", "candump -t A", "candump -t d", "candump", "trc 1.1", "trc 1.3", "trc 2.1")
PYTHON_CAN: dict[str, Callable[[Any], Any]] = {
    "asc hex": can.ASCReader,
    "asc dec": can.ASCReader,
    "asc long": can.ASCReader,
    "python-can csv": can.CSVReader,
}
BINARY: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "python-can csv": ("csv", can.CSVWriter, can.CSVReader),
    "blf": ("blf", can.BLFWriter, can.BLFReader),
    "sqlite": ("db", can.SqliteWriter, can.SqliteReader),
    "mf4": ("mf4", can.MF4Writer, can.MF4Reader),
}


def frames_of(count: int) -> list[LoggedFrame]:
    """Frames as columns make them, one by one."""
    columns = random_frames(_LENGTHS, count)
    rows = zip(columns.at_us.tolist(), columns.identifier.tolist(), columns.length.tolist(), columns.data, strict=True)
    return [
        LoggedFrame(START_US + at, "1", Frame(number, data[:size].tobytes(), extended=False))
        for at, number, size, data in ((at - columns.at_us[0].item(), *rest) for at, *rest in rows)
    ]


def write(name: str, path: Path, frames: list[LoggedFrame]) -> Path:
    """A log of these frames."""
    if name in WRITERS:
        path.write_text(WRITERS[name].write(frames))
        return path
    ending, writer, _ = BINARY[name]
    path = path.with_suffix(f".{ending}")
    if name == "sqlite":  # as python-can's writer makes it, whose thread loses frames that come too fast
        return _database(path, frames)
    with writer(str(path)) as log:
        for each in frames:
            log.on_message_received(_message(each))
    return path


def _database(path: Path, frames: list[LoggedFrame]) -> Path:
    path.unlink(missing_ok=True)
    rows = [(each.at_us / 1e6, each.frame.id, 0, 0, 0, len(each.frame.data), each.frame.data) for each in frames]
    with closing(sqlite3.connect(path)) as database, database:
        columns = (
            "ts REAL, arbitration_id INTEGER, extended INTEGER, remote INTEGER, error INTEGER, dlc INTEGER, data BLOB"
        )
        database.execute(f"CREATE TABLE messages ({columns})")
        database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return path


def _message(each: LoggedFrame) -> can.Message:
    return can.Message(
        each.at_us / 1e6, each.frame.id, is_extended_id=each.frame.extended, data=each.frame.data, channel=0
    )


def theirs(name: str, path: Path) -> Iterator[tuple[int, bytes]]:
    """Identifiers and data, by the reader of cantools or of python-can."""
    if name in CANTOOLS:
        with path.open() as file:
            for each in logreader.Parser(io.StringIO(file.read())):
                yield each.frame_id, each.data
        return
    reader = PYTHON_CAN.get(name) or BINARY[name][2]
    for message in reader(str(path)):
        yield message.arbitration_id, bytes(message.data)


def their_ns(name: str, database: Any, path: Path, count: int) -> tuple[float, float]:
    """Nanoseconds per frame of their reader, and of reader and decoder together."""
    began = time.process_time()
    found = sum(1 for _ in theirs(name, path))
    reading = time.process_time() - began
    assert found == count, f"{name}: {found} of {count} frames"
    began = time.process_time()
    for identifier, data in theirs(name, path):
        database.decode_message(identifier, data, decode_choices=False)
    return reading / count * 1e9, (time.process_time() - began) / count * 1e9


def our_ns(decoder: ColumnDecoder, path: Path) -> tuple[float, float, float]:
    """Nanoseconds per frame: frame by frame, in columns, and in columns with the decoder."""
    began = time.process_time()
    count = sum(1 for _ in read_log(path))
    singly = time.process_time() - began
    began = time.process_time()
    parts = [part for block in read_log(path).blocks() for part in block.frames]
    reading = time.process_time() - began
    assert sum(len(part.at_us) for part in parts) == count
    began = time.process_time()
    decoded = sum(
        found.batch.num_rows for part in parts for found in decoder.decode(part) if isinstance(found, DecodedFrames)
    )
    decoding = time.process_time() - began
    assert decoded > 0.99 * count, f"{decoded} of {count} decoded"
    return singly / count * 1e9, reading / count * 1e9, (reading + decoding) / count * 1e9


def rows(frames: int = FRAMES) -> Iterator[list[str]]:
    """A row for each format."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dbc = car(folder)
        decoder, database = ColumnDecoder(load_dbc(dbc).messages), cantools.database.load_file(dbc)
        every = frames_of(frames)
        for format in (*WRITERS, *BINARY):
            large = every[: frames if format != "mf4" else min(frames, 20_000)]
            path = write(format, folder / "large", large)
            few = min(BY_CANTOOLS, len(large))
            reference = format if format in (*CANTOOLS, *PYTHON_CAN, *BINARY) else "asc hex"
            small = write(reference, folder / "small", large[:few])
            read, whole = (
                min(each)
                for each in zip(*(their_ns(reference, database, small, few) for _ in range(ROUNDS)), strict=True)
            )
            singly, columns, decoded = (
                min(each) for each in zip(*(our_ns(decoder, path) for _ in range(ROUNDS)), strict=True)
            )
            by = "cantools" if reference in CANTOOLS else "python-can" if reference == format else "python-can's ASC"
            yield [
                format, by, f"{read:,.0f}", f"{whole:,.0f}", f"{singly:,.0f}", f"{columns:,.0f}", f"{decoded:,.0f}",
                f"{read / singly:,.1f}×", f"{whole / decoded:,.0f}×",
            ]  # fmt: skip


def table() -> str:
    """All formats."""
    head = ["format", "their reader", "reads", "and decodes", "Genus singly", "in columns", "and decoded"]
    return markdown([*head, "singly faster", "decoded faster"], list(rows()))


if __name__ == "__main__":
    print(table())
