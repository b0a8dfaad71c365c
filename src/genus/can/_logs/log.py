"""CAN logs of all formats: which reader a file needs, and its frames one by one and in columns.

Reading continues after damage, as far as a format allows: what cannot be read is counted by reason, and the first
problems are listed with their location.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from genus._extras import install_command
from genus.can._logs.blf import read_blf
from genus.can._logs.detect import (
    FORMATS,
    HEAD_BYTES,
    TEXT_FORMATS,
    Detected,
    Head,
    Opened,
    find,
    format_by_ending,
    open_text,
)
from genus.can._logs.formats import LineFormat
from genus.can._logs.frames import (
    EXTENDED,
    RX,
    TX,
    FrameColumns,
    LogBlock,
    LoggedFrame,
    Mask,
    Records,
    blocks,
    length_of_code,
    numbered,
)
from genus.can._logs.log_file import (
    COMPRESSED_ENDINGS,
    ERROR_FRAME,
    LAST_US,
    REMOTE_FRAME,
    LogFile,
    SkippedRecords,
    file_and_member,
    read_head,
    suppress_warnings,
)
from genus.can._logs.pcap import read_pcap
from genus.can._logs.text_reader import TextReader
from genus.can._logs.times import KindOfTimes, Unit, unit_of
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK
from genus.errors import RecordingError

# -- MDF 4 -------------------------------------------------------------------------------------------------------------

RECORDS = 1 << 18
"""How many records are read at once."""
_DATA = "CAN_DataFrame"
_OTHERS = {"CAN_ErrorFrame": ERROR_FRAME, "CAN_RemoteFrame": REMOTE_FRAME}


def read_mf4(file: LogFile) -> Iterator[LogBlock]:
    try:
        from asammdf import MDF  # an extra
    except ImportError:
        raise RecordingError(f"MF4 files need asammdf: {install_command('mf4')}") from None
    with file.unpacked_path() as path, path.open("rb") as source, suppress_warnings("asammdf"):
        try:
            mdf = MDF(source)  # given the path, it leaves a damaged file open
        except Exception as problem:
            raise RecordingError(f"it is no MF4 file that asammdf can read: {problem}") from None
        try:
            yield from blocks(_groups(mdf, file))
        finally:
            mdf.close()
    file.set_progress(1)


def _groups(mdf: Any, file: LogFile) -> Iterator[list[FrameColumns]]:
    start_us = round(mdf.header.start_time.timestamp() * 1e6)
    at, has_frames = 0, False
    for number, group in enumerate(mdf.groups):
        names = {channel.name for channel in group.channels}
        count = group.channel_group.cycles_nr
        for name in _OTHERS.keys() & names:
            file.skipped.reasons[_OTHERS[name]] += count
            has_frames = True
        if _DATA not in names:
            continue
        has_frames = True
        source = group.channel_group.acq_source
        bus = (source.name or source.path or None) if source is not None else None
        for offset in range(0, count, RECORDS):
            signal = _read_records(mdf, file, number, offset)
            file.set_progress((number + (offset + RECORDS) / max(count, 1)) / (len(mdf.groups) + 1))
            if signal is not None:
                yield _mf4_frames(file, signal, start_us, at + offset, bus)
        at += count
    if not has_frames:
        raise RecordingError("it has no frames: no channel group is bus logging of CAN (CAN_DataFrame)")


def _read_records(mdf: Any, file: LogFile, group: int, offset: int) -> Any | None:
    try:
        return mdf.get(_DATA, group=group, record_offset=offset, record_count=RECORDS, ignore_invalidation_bits=True)
    except Exception as problem:
        file.skipped.note(f"records damaged ({problem})", f"group {group}, record {offset}")
        return None


def _mf4_frames(file: LogFile, signal: Any, start_us: int, at: int, bus: str | None) -> list[FrameColumns]:
    samples, timestamps = signal.samples, signal.timestamps
    fields = {name.rpartition(".")[2]: samples[name] for name in samples.dtype.names or ()}
    count = len(timestamps)
    identifier, data = fields["ID"].astype(np.int64), fields["DataBytes"].reshape(count, -1)
    fd, length = _mf4_flags(fields.get("EDL"), count), np.full(count, data.shape[1], np.int64)
    if "DataLength" in fields:
        length = fields["DataLength"].astype(np.int64)
    elif "DLC" in fields:
        length = length_of_code(fields["DLC"], fd)
    channel, channels = _channels(fields.get("BusChannel"), count, bus)
    records = Records(
        np.rint(timestamps * 1e6).astype(np.int64) + start_us,
        identifier & ID_MASK,
        _mf4_flags(fields.get("IDE"), count) | (identifier & EXTENDED > 0),
        length,
        fd | (length > CLASSIC_BYTES),
        data,
        np.arange(at, at + count),
        channel,
        channels,
        _directions(fields.get("Dir"), count),
    )
    return records.frames(file.skipped, "record", length <= data.shape[1])


def _mf4_flags(values: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.bool_]:
    """Flags as numbers, or as text if a conversion was applied."""
    if values is None:
        return np.zeros(count, np.bool_)
    return np.char.lower(values) == b"true" if values.dtype.kind in "SU" else values.astype(np.int64) > 0


def _directions(values: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.int8]:
    """Directions: 0 for received and 1 for sent, or as text if a conversion was applied."""
    if values is None:
        return np.zeros(count, np.int8)
    is_sent = np.char.lower(values) == b"tx" if values.dtype.kind in "SU" else values.astype(np.int64) > 0
    return np.where(is_sent, TX, RX).astype(np.int8)


def _channels(
    values: npt.NDArray[Any] | None, count: int, bus: str | None
) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...]]:
    if values is None or values.dtype.kind in "SU":
        return np.zeros(count, np.int32), (bus,)
    numbers, which = numbered(values)
    return which, tuple(str(each) for each in numbers)


# -- SQLite ------------------------------------------------------------------------------------------------------------

ROWS_AT_ONCE = 1 << 10
"""So few that their values stay in the cache of the processor; with many more a row takes longer."""
_COLUMNS = "ts, arbitration_id, extended, remote, error, data"


def read_sqlite(file: LogFile) -> Iterator[LogBlock]:
    with file.unpacked_path() as path:
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                yield from blocks(_sqlite_frames(file.skipped, database))
        except sqlite3.Error as problem:
            raise RecordingError(f"it is no database of frames: {problem}") from None
    file.set_progress(1)


def _table(database: sqlite3.Connection) -> str:
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name != 'messages'"):
        quoted: str = '"' + name.replace('"', '""') + '"'
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({quoted})")}
        if {"ts", "arbitration_id", "data"} <= columns:
            return quoted
    raise RecordingError("it has no table of CAN messages (ts, arbitration_id, data)")


def _sqlite_frames(skipped: SkippedRecords, database: sqlite3.Connection) -> Iterator[list[FrameColumns]]:
    cursor = database.execute(f"SELECT {_COLUMNS} FROM {_table(database)}")
    at = 0
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        values = list(chain.from_iterable(rows))  # which is quicker than zip(*rows)
        times, identifiers, extended, remote, error, payloads = (values[column::6] for column in range(6))
        is_error = _sqlite_flags(error)
        is_remote = _sqlite_flags(remote) & ~is_error
        for reason, which in ((ERROR_FRAME, is_error), (REMOTE_FRAME, is_remote)):
            if which.any():
                skipped.reasons[reason] += int(which.sum())
        found = _records(times, identifiers, _sqlite_flags(extended), payloads, at)
        yield found.of(~(is_error | is_remote)).frames(skipped, "row")
        at += len(rows)


def _sqlite_flags(values: Sequence[Any]) -> Mask:
    if {*values} <= {0, None}:
        return np.zeros(len(values), np.bool_)
    return np.array([bool(each) for each in values])


def _records(
    times: Sequence[Any], identifiers: Sequence[Any], extended: Mask, payloads: Sequence[Any], at: int
) -> Records:
    """Rows as columns; values of other types than those of python-can become impossible ones."""
    seconds = np.array(_of_types(times, -1.0, float, int), np.float64)
    if None in payloads:
        payloads = [b"" if each is None else each for each in payloads]
    data = _of_types(payloads, bytes(FD_BYTES + 1), bytes)
    length = np.fromiter(map(len, data), np.int64, len(data))
    width = CLASSIC_BYTES if length.max() <= CLASSIC_BYTES else FD_BYTES
    count = len(data)
    return Records(
        np.clip(np.rint(seconds * 1e6), -1, LAST_US + 1).astype(np.int64),
        np.array(_of_types(identifiers, -1, int), np.int64),
        extended,
        length,
        length > CLASSIC_BYTES,
        np.array(data, f"S{width}").view(np.uint8).reshape(-1, width),
        np.arange(at, at + count),
        np.zeros(count, np.int32),
        (None,),
        np.zeros(count, np.int8),
    )


def _of_types(values: Sequence[Any], otherwise: Any, *types: type) -> Sequence[Any]:
    if {*map(type, values)} <= {*types}:
        return values
    return [each if type(each) in types else otherwise for each in values]


Reader: TypeAlias = Callable[[LogFile], Iterator[LogBlock]]


BINARY_READERS: Mapping[str, Reader] = MappingProxyType(
    {"blf": read_blf, "mf4": read_mf4, "sqlite": read_sqlite, "pcap": read_pcap}
)


@dataclass(slots=True)
class CanLog:
    """A CAN log; iterating gives its data frames, and afterwards `skipped` and `problems` say what else was in it.

    Each iteration reads the file from its beginning. RecordingError if the file cannot be read at all.
    """

    path: Path
    format: str
    """The name of the format, such as `log` (`candump -L`), `asc` or `csv`."""
    detected: Detected
    """What the log is taken for: its columns and units, by which evidence, and what is doubtful."""
    times: KindOfTimes | None = None
    """What time stamps count from, known when reading has begun: `none` if the log has no time stamps."""
    frames: int = 0
    """How many data frames were read so far."""
    _format: LineFormat | None = None
    _skipped: SkippedRecords = field(default_factory=SkippedRecords)
    _file: LogFile | None = None

    @property
    def skipped(self) -> Counter[str]:
        """How many records are no data frames, by reason: error and remote frames, and damage."""
        return self._skipped.reasons

    @property
    def problems(self) -> list[str]:
        """The location and reason of the first damaged records, 100 at most."""
        return self._skipped.problems

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return file_and_member(self.path)[0].stat().st_size

    @property
    def position(self) -> int:
        """How many bytes of the file were read so far."""
        return self._file.position if self._file else 0

    def __iter__(self) -> Iterator[LoggedFrame]:
        for block in self.blocks():
            before = self.frames - sum(len(part.at_us) for part in block.frames)
            for number, (_, logged) in enumerate(block.rows(), 1):
                self.frames = before + number
                yield logged

    def blocks(self) -> Iterator[LogBlock]:
        """Yield the data frames in columns, a block at a time, which is the quickest way to read a log.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".log") as file:
        ...     _ = Path(file.name).write_text("(1.5) can0 123#1122")
        ...     [block.frames[0].identifier.tolist() for block in read_log(file.name).blocks()]
        [[291]]
        """
        self.frames, self._skipped = 0, SkippedRecords()
        try:
            with closing(LogFile(self.path, self._skipped)) as self._file:
                for block in self._text_blocks() if self.format not in BINARY_READERS else self._binary_blocks():
                    self.frames += sum(len(part.at_us) for part in block.frames)
                    yield block
        except RecordingError as problem:
            raise RecordingError(f"{self.path}: {problem}") from None
        except OSError as problem:
            raise RecordingError(f"cannot read {self.path}: {problem.strerror or problem}") from None

    def _binary_blocks(self) -> Iterator[LogBlock]:
        assert self._file is not None
        self.times = "absolute"
        yield from BINARY_READERS[self.format](self._file)

    def _text_blocks(self) -> Iterator[LogBlock]:
        assert self._file is not None
        if self._format is None:
            head = Head.of(read_head(self.path, HEAD_BYTES))
            self._format = open_text(self.format, head).format
        reader = TextReader(self._format.again())
        self.times = reader.times
        if reader.times == "none":
            reader.format.times.start_us = self._file.changed_us
        lines = 0
        for at, text in self._file.lines():
            block = reader.parse(text, at)
            self.times = reader.times
            self._note(block, text, at, lines)
            lines += block.lines
            yield block

    def _note(self, block: LogBlock, text: bytes, at: int, lines: int) -> None:
        """Count what is no frame, and list damaged lines by their numbers."""
        self._skipped.reasons.update(block.skipped)
        if not block.damaged:
            return
        feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        for position, reason, _ in sorted(block.damaged):
            self._skipped.note(reason, f"line {lines + 1 + int(np.searchsorted(feeds, position - at))}")


def read_log(
    path: str | os.PathLike[str], format: str | None = None, *, columns: str | None = None, time_unit: str | None = None
) -> CanLog:
    """Open a CAN log; `log.detected` says what it is taken for, and what is doubtful.

    Print `log.detected` once for logs of a new tool: if it has doubts, give `time_unit` or `columns`.

    Args:
        path: A log, plain or compressed (gzip, zstd, bzip2, xz), which its content shows.
        format: The name of a format (see `docs/can-logs.md`); by default it is found by the content, and only if that
            shows nothing by the ending of the name.
        columns: The columns of a text log in their order, like `time:ms, id:hex, -, length, data`, instead of a format.
        time_unit: What plain numbers count that are times: `s`, `ms`, `100us`, `us` or `ns`. Give it if `log.detected`
            says that it is doubtful.

    Raises:
        RecordingError: The file cannot be opened, its format is not known, or the columns are none.

    >>> read_log("drive.log", "xyz")
    Traceback (most recent call last):
    genus.errors.RecordingError: drive.log: 'xyz' is no format of CAN logs; known: log, candump, asc, trc, ...
    """
    if format is not None and format not in FORMATS:
        raise RecordingError(f"{path}: {format!r} is no format of CAN logs; known: {', '.join(FORMATS)}")
    try:
        found = _find(path, format, columns, None if time_unit is None else unit_of(time_unit))
    except RecordingError as problem:
        raise RecordingError(f"{path}: {problem}") from None
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror or problem}") from None
    opened, detected = (None, found) if isinstance(found, Detected) else found
    assert detected.format is not None
    return CanLog(Path(path), detected.format, detected, _format=opened)


def _find(
    path: str | os.PathLike[str], format: str | None, columns: str | None, time_unit: Unit | None
) -> Opened | Detected:
    start = read_head(Path(path), HEAD_BYTES)
    if columns is not None:
        return open_text("columns", Head.of(start), columns, time_unit)
    found = find(start) if format is None else Detected(format)
    if not isinstance(found, Detected):
        assert found.detected.format is not None
        return found if time_unit is None else open_text(found.detected.format, Head.of(start), None, time_unit)
    name = found.format or format_by_ending(log_ending(path), start)
    if name is None:
        raise RecordingError(f"it is not recognised as a CAN log: {found.tried}")
    if name not in TEXT_FORMATS:
        return found._replace(format=name)
    try:
        return open_text(name, Head.of(start), None, time_unit)
    except RecordingError:
        return Detected(name)  # reading it says why


def log_ending(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file's name in lower case, before that of a compression.

    >>> log_ending("Drive.ASC.gz")
    'asc'
    """
    name = os.path.basename(os.fspath(path)).lower()
    for ending in COMPRESSED_ENDINGS:
        name = name.removesuffix(ending)
    return os.path.splitext(name)[1].removeprefix(".")
