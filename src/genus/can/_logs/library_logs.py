"""Logs that a library reads: MDF 4 (the extra `mf4`), and SQLite databases as python-can writes them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from genus._extras import install_command
from genus.can._logs.frames import (
    EXTENDED,
    RX,
    TX,
    FrameColumns,
    LogBlock,
    Mask,
    Records,
    blocks,
    length_of_code,
    numbered,
)
from genus.can._logs.log_file import ERROR_FRAME, LAST_US, REMOTE_FRAME, LogFile, SkippedRecords, suppress_warnings
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
    with file.unpacked_path() as path, suppress_warnings("asammdf"):
        try:
            mdf = MDF(path)
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
"""So few that their values stay in the cache of the processor; with 65,536 a row takes twice as long."""
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
        values = list(chain.from_iterable(rows))  # which takes a third of the time of zip(*rows)
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
