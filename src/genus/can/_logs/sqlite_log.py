"""SQLite databases, as python-can writes them: a table `messages`."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from genus.can._logs.frames import LogBlock, LoggedFrame, block_of
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    ERROR_FRAME,
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
        frames: list[tuple[int, LoggedFrame]] = []
        for number, row in enumerate(rows, at):
            at_us = micros_of_seconds(row[0]) if isinstance(row[0], int | float) else None
            found = logged_frame(_frame(row), at_us, None, f"row {number + 1}", file.skipped)
            frames += [(number, each) for each in found]
        at += len(rows)
        yield block_of(frames)


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
