"""SQLite databases, as python-can writes them: a table `messages`, which has neither channels nor directions."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np

from genus.can._logs.frames import FrameColumns, LogBlock
from genus.can._logs.log_file import ERROR_FRAME, LAST_US, REMOTE_FRAME, LogFile, SkippedRecords
from genus.can._logs.records import Mask, Records, blocks
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES
from genus.errors import RecordingError

ROWS_AT_ONCE = 1 << 10
"""So few that their values stay in the cache of the processor; with 65,536 a row takes twice as long."""
_COLUMNS = "ts, arbitration_id, extended, remote, error, data"


def read_sqlite(file: LogFile) -> Iterator[LogBlock]:
    """Yield the frames of the table, in its order; positions count its rows."""
    with file.unpacked_path() as path:
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                yield from blocks(_frames(file.skipped, database))
        except sqlite3.Error as problem:
            raise RecordingError(f"it is no database of frames: {problem}") from None
    file.set_progress(1)


def _table(database: sqlite3.Connection) -> str:
    """Return the table of messages: `messages`, or another one with its columns."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name != 'messages'"):
        quoted: str = '"' + name.replace('"', '""') + '"'
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({quoted})")}
        if {"ts", "arbitration_id", "data"} <= columns:
            return quoted
    raise RecordingError("it has no table of CAN messages (ts, arbitration_id, data)")


def _frames(skipped: SkippedRecords, database: sqlite3.Connection) -> Iterator[list[FrameColumns]]:
    cursor = database.execute(f"SELECT {_COLUMNS} FROM {_table(database)}")
    at = 0
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        values = list(chain.from_iterable(rows))  # which takes a third of the time of zip(*rows)
        times, identifiers, extended, remote, error, payloads = (values[column::6] for column in range(6))
        is_error = _flags(error)
        is_remote = _flags(remote) & ~is_error
        for reason, which in ((ERROR_FRAME, is_error), (REMOTE_FRAME, is_remote)):
            if which.any():
                skipped.reasons[reason] += int(which.sum())
        found = _records(times, identifiers, _flags(extended), payloads, at)
        yield found.of(~(is_error | is_remote)).frames(skipped, "row")
        at += len(rows)


def _flags(values: Sequence[Any]) -> Mask:
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
    """Return the values, with another one in place of those of other types."""
    if {*map(type, values)} <= {*types}:
        return values
    return [each if type(each) in types else otherwise for each in values]
