"""SQLite databases, as python-can writes them: a table `messages`."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from genus.can._logs.frames import EXTENDED, FrameColumns, LogBlock, LoggedFrame, block_of
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    ERROR_FRAME,
    LAST_US,
    LENGTHS_DISAGREE,
    REMOTE_FRAME,
    LogFile,
    logged_frame,
    micros_of_seconds,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame
from genus.errors import RecordingError

ROWS_AT_ONCE = 1 << 16
_COLUMNS = "ts, arbitration_id, extended, remote, error, dlc, data"


def read_sqlite(file: LogFile) -> Iterator[LogBlock]:
    """The frames of the table, in its order; positions count its rows."""
    with file.unpacked_path() as path:
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                yield from _blocks(file, database)
        except sqlite3.Error as problem:
            raise RecordingError(f"it is no database of frames: {problem}") from None
    file.set_progress(1)


def _blocks(file: LogFile, database: sqlite3.Connection) -> Iterator[LogBlock]:
    cursor = database.execute(f"SELECT {_COLUMNS} FROM {_table(database)}")
    at = 0
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        if (columns := _columns(rows, at)) is not None:
            at += len(rows)
            yield LogBlock([columns], [], Counter())
            continue
        frames: list[tuple[int, LoggedFrame]] = []
        for number, row in enumerate(rows, at):
            at_us = micros_of_seconds(row[0]) if isinstance(row[0], int | float) else None
            found = logged_frame(_frame(row), at_us, None, f"row {number + 1}", file.skipped)
            frames += [(number, each) for each in found]
        at += len(rows)
        yield block_of(frames)


def _columns(rows: list[tuple[Any, ...]], at: int) -> FrameColumns | None:
    """Rows of valid classic data frames, all together; None if any is something else."""
    times, identifiers, extended, remote, error, _, payloads = zip(*rows, strict=True)
    if any(remote) or any(error) or {*map(type, payloads)} != {bytes} or not {*map(type, times)} <= {int, float}:
        return None
    lengths = np.fromiter(map(len, payloads), np.int64, len(rows))
    try:
        numbers, seconds = np.array(identifiers, np.int64), np.array(times, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    is_extended = np.array([bool(flag) for flag in extended])
    at_us = np.rint(seconds * 1e6)
    is_valid = (numbers >= 0) & (numbers <= np.where(is_extended, ID_MASK, STANDARD_ID_MASK))
    if not (is_valid & (lengths <= CLASSIC_BYTES) & (at_us >= 0) & (at_us <= LAST_US)).all():
        return None
    data = b"".join([payload.ljust(CLASSIC_BYTES, b"\0") for payload in payloads])
    return FrameColumns(
        at_us.astype(np.int64),
        np.where(is_extended, numbers | EXTENDED, numbers).astype(np.uint32),
        lengths.astype(np.uint8),
        np.frombuffer(data, np.uint8).reshape(-1, CLASSIC_BYTES),
        np.arange(at, at + len(rows), dtype=np.int64),
        np.zeros(len(rows), np.int32),
        (None,),
        np.zeros(len(rows), np.int8),
    )


def _table(database: sqlite3.Connection) -> str:
    """The table of messages: `messages`, or another one with its columns."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name != 'messages'"):
        quoted: str = '"' + name.replace('"', '""') + '"'
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({quoted})")}
        if {"ts", "arbitration_id", "data"} <= columns:
            return quoted
    raise RecordingError("it has no table of CAN messages (ts, arbitration_id, data)")


def _frame(row: tuple[Any, ...]) -> Frame | str:
    _, identifier, extended, remote, error, _, data = row
    if error:
        return ERROR_FRAME
    if remote:
        return REMOTE_FRAME
    if not isinstance(identifier, int) or not 0 <= identifier <= (ID_MASK if extended else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    if data is None:
        data = b""
    if not isinstance(data, bytes) or len(data) > FD_BYTES:
        return LENGTHS_DISAGREE
    return Frame(identifier, data, len(data) > CLASSIC_BYTES, bool(extended))
