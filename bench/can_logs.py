"""Logs of every format: frame by frame against python-can, and to columns of values against cantools.

The frames are random, eight messages of a car each as often. Both sides read files of the same frames, in turns, the
least of several rounds. *Frames* are read one by one; python-can cannot read every format. *Values* are decoded
signals: in columns by Genus, frame by frame by cantools (`decode_choices=False`), which gets its frames from its own
log reader, or from python-can's, or, where neither reads the format, from python-can's reader of an ASC file with the
same frames. MF4 is compared with asammdf as well, which works in columns, too.
"""

import io
import sqlite3
import struct
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
from bench.timing import goal, markdown
from genus.can import ColumnDecoder, DecodedFrames, Frame, load_dbc, read_log
from genus.can.types import LoggedFrame
from tests.can.log_writers import START_US, WRITERS

FRAMES, BY_OTHERS = 100_000, 10_000
ROUNDS = 3
CANTOOLS = ("candump -L", "candump -t a", "candump -t A", "candump -t d", "candump", "trc 1.1", "trc 1.3", "trc 2.1")
"""What the log reader of cantools reads."""
PYTHON_CAN: dict[str, Callable[[Any], Any]] = {
    "candump -L": can.CanutilsLogReader,
    "asc hex": can.ASCReader,
    "asc dec": can.ASCReader,
    "asc long": can.ASCReader,
    "trc 1.1": can.TRCReader,
    "trc 1.3": can.TRCReader,
    "trc 2.1": can.TRCReader,
    "python-can csv": can.CSVReader,
    "blf": can.BLFReader,
    "sqlite": can.SqliteReader,
    "mf4": can.MF4Reader,
}
"""What python-can reads."""
ENDINGS = {"trc": "trc", "sqlite": "db", "mf4": "mf4", "blf": "blf"}
FORMATS = (*WRITERS, "python-can csv", "blf", "sqlite", "pcap", "mf4")
TEXTS = (*WRITERS, "python-can csv")
HEADING = ["log", "frames", "× python-can", "values", "× cantools"]
MF4_HEADING = ["mf4 in columns", "asammdf", "Genus", "faster"]
MF4_ROWS = ("frames", "values")


def frames_of(count: int) -> list[LoggedFrame]:
    """Frames as columns make them, one by one."""
    columns = random_frames(_LENGTHS, count)
    rows = zip(columns.at_us.tolist(), columns.identifier.tolist(), columns.length.tolist(), columns.data, strict=True)
    return [
        LoggedFrame(START_US + at, "1", Frame(number, data[:size].tobytes(), extended=False))
        for at, number, size, data in ((at - columns.at_us[0].item(), *rest) for at, *rest in rows)
    ]


# -- logs --------------------------------------------------------------------------------------------------------------


def write(name: str, path: Path, frames: list[LoggedFrame]) -> Path:
    """A log of these frames."""
    path = path.with_suffix("." + ENDINGS.get(name.split()[0], "log"))
    path.unlink(missing_ok=True)
    if name in WRITERS:
        path.write_text(WRITERS[name].write(frames))
    elif name == "pcap":
        path.write_bytes(_capture(frames))
    elif name == "sqlite":  # as python-can's writer makes it, whose thread loses frames that come too fast
        _write_database(path, frames)
    else:
        writer: Any = {"python-can csv": can.CSVWriter, "blf": can.BLFWriter, "mf4": can.MF4Writer}[name]
        with writer(str(path)) as log:
            for each in frames:
                log.on_message_received(_message(each))
    return path


def _capture(frames: list[LoggedFrame]) -> bytes:
    """What tcpdump writes of `can0`."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 227)]
    for at_us, _, frame, _ in frames:
        body = struct.pack(">IB3x8s", frame.id, len(frame.data), frame.data)
        parts += (struct.pack("<IIII", at_us // 1_000_000, at_us % 1_000_000, len(body), len(body)), body)
    return b"".join(parts)


def _write_database(path: Path, frames: list[LoggedFrame]) -> None:
    rows = [(each.at_us / 1e6, each.frame.id, 0, 0, 0, len(each.frame.data), each.frame.data) for each in frames]
    with closing(sqlite3.connect(path)) as database, database:
        columns = (
            "ts REAL, arbitration_id INTEGER, extended INTEGER, remote INTEGER, error INTEGER, dlc INTEGER, data BLOB"
        )
        database.execute(f"CREATE TABLE messages ({columns})")
        database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _message(each: LoggedFrame) -> can.Message:
    return can.Message(
        each.at_us / 1e6, each.frame.id, is_extended_id=each.frame.extended, data=each.frame.data, channel=0
    )


# -- readers -----------------------------------------------------------------------------------------------------------


def _by_cantools(path: Path) -> Iterator[tuple[int, bytes]]:
    for each in logreader.Parser(io.StringIO(path.read_text())):
        yield each.frame_id, each.data


def _by_python_can(name: str, path: Path) -> Iterator[tuple[int, bytes]]:
    for message in PYTHON_CAN[name](str(path)):
        yield message.arbitration_id, bytes(message.data)


def _ns(count: int, run: Callable[[], int]) -> float:
    """Nanoseconds of CPU for each frame; all frames must be read."""
    began = time.process_time()
    found = run()
    took = time.process_time() - began
    assert found >= 0.99 * count, f"{found} of {count} frames"
    return took / count * 1e9


def _decode(database: Any, frames: Iterator[tuple[int, bytes]]) -> int:
    count = 0
    for identifier, data in frames:
        database.decode_message(identifier, data, decode_choices=False)
        count += 1
    return count


def _decode_in_columns(decoder: ColumnDecoder, path: Path) -> int:
    parts = (part for block in read_log(path).blocks() for part in block.frames)
    return sum(
        found.batch.num_rows for part in parts for found in decoder.decode(part) if isinstance(found, DecodedFrames)
    )


# -- tables ------------------------------------------------------------------------------------------------------------


class _Bench:
    """State: a folder with logs, the database of the car, and its decoders."""

    def __init__(self, folder: Path, frames: int, others: int) -> None:
        self.folder, self.others = folder, others
        self.dbc = car(folder)
        self.decoder = ColumnDecoder(load_dbc(self.dbc).messages)
        self.database: Any = cantools.database.load_file(self.dbc)
        self.frames = frames_of(frames)

    def row(self, name: str) -> list[str]:
        """The row of a format."""
        large, small = self._write(name, len(self.frames)), self._write(name, self.others)
        by_cantools = name in CANTOOLS
        instead = small if by_cantools or name in PYTHON_CAN else self._write("asc hex", self.others)
        readable = name if name in PYTHON_CAN else "asc hex"
        runs: dict[str, tuple[int, Callable[[], int]]] = {
            "frames": (len(self.frames), lambda: sum(1 for _ in read_log(large))),
            "values": (len(self.frames), lambda: _decode_in_columns(self.decoder, large)),
            "cantools": (
                self.others,
                lambda: _decode(
                    self.database, _by_cantools(instead) if by_cantools else _by_python_can(readable, instead)
                ),
            ),
        }
        if name in PYTHON_CAN:
            runs["python-can"] = (self.others, lambda: sum(1 for _ in _by_python_can(name, small)))
        least = _least(runs)
        theirs = least.get("python-can")
        return [
            name,
            f"{least['frames']:,.0f} ns",
            "–" if theirs is None else _times(theirs / least["frames"], at_least=1),
            f"{least['values']:,.0f} ns",
            _times(least["cantools"] / least["values"], at_least=10 if name in TEXTS else None),
        ]

    def mf4_rows(self) -> list[list[str]]:
        """Both readers of columns on one MF4 file."""
        path, count = self._write("mf4", len(self.frames)), len(self.frames)
        least = _least(
            {
                "asammdf frames": (count, lambda: _frames_by_asammdf(path)),
                "Genus frames": (count, lambda: _frames_in_columns(path)),
                "asammdf values": (count, lambda: _values_by_asammdf(path, self.dbc)),
                "Genus values": (count, lambda: _decode_in_columns(self.decoder, path)),
            }
        )
        pairs = [(name, least[f"asammdf {name}"], least[f"Genus {name}"]) for name in MF4_ROWS]
        return [[name, f"{one:,.0f} ns", f"{two:,.0f} ns", f"{one / two:,.1f}×"] for name, one, two in pairs]

    def _write(self, name: str, count: int) -> Path:
        return write(name, self.folder / f"{FORMATS.index(name)}-{count}", self.frames[:count])


def _times(ratio: float, at_least: float | None) -> str:
    shown = f"{ratio:,.1f}×"
    return shown if at_least is None else goal(shown, ratio, at_least=at_least, unit="×")


def _least(runs: dict[str, tuple[int, Callable[[], int]]]) -> dict[str, float]:
    """The least time of each contestant, which take turns."""
    rounds = [{name: _ns(*run) for name, run in runs.items()} for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in runs}


def _frames_in_columns(path: Path) -> int:
    return sum(len(part.at_us) for block in read_log(path).blocks() for part in block.frames)


def _frames_by_asammdf(path: Path) -> int:
    from asammdf import MDF  # takes long to import

    with MDF(path) as mdf:
        places = mdf.channels_db["CAN_DataFrame"]
        return sum(len(mdf.get("CAN_DataFrame", group=group, index=index).timestamps) for group, index in places)


def _values_by_asammdf(path: Path, dbc: Path) -> int:
    from asammdf import MDF  # takes long to import

    with MDF(path) as mdf, mdf.extract_bus_logging(database_files={"CAN": [(dbc, 0)]}) as values:
        return sum(group.channel_group.cycles_nr for group in values.groups)


def table(frames: int = FRAMES, others: int = BY_OTHERS) -> str:
    """All formats, and MF4 against asammdf."""
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(Path(folder), frames, others)
        logs = markdown(HEADING, [bench.row(name) for name in FORMATS])
        return f"{logs}\n\n{markdown(MF4_HEADING, bench.mf4_rows())}"


if __name__ == "__main__":
    print(table())
