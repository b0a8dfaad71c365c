"""MDF 4 (MF4): bus logging, read by asammdf (the extra `mf4`) in columns.

A channel group with a channel `CAN_DataFrame` holds frames; its fields (`ID`, `IDE`, `DataLength`, `DataBytes`,
`BusChannel`, `EDL`) are arrays already. Times count from the start time in the file's header.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from genus._extras import install_command
from genus.can._logs.frames import EXTENDED, FrameColumns, LogBlock
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    BAD_TIME,
    ERROR_FRAME,
    LAST_US,
    LENGTHS_DISAGREE,
    REMOTE_FRAME,
    LogFile,
    suppress_warnings,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK
from genus.errors import RecordingError

RECORDS = 1 << 18
"""How many records are read at once."""
_DATA = "CAN_DataFrame"
_OTHERS = {"CAN_ErrorFrame": ERROR_FRAME, "CAN_RemoteFrame": REMOTE_FRAME}


def read_mf4(file: LogFile) -> Iterator[LogBlock]:
    """The frames of all groups, group by group; positions count frames."""
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
            yield from _groups(mdf, file)
        finally:
            mdf.close()
    file.set_progress(1)


def _groups(mdf: Any, file: LogFile) -> Iterator[LogBlock]:
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
        for offset in range(0, count, RECORDS):
            block = _records(mdf, file, number, offset, start_us, at + offset)
            file.set_progress((number + (offset + RECORDS) / max(count, 1)) / (len(mdf.groups) + 1))
            if block is not None:
                yield block
        at += count
    if not has_frames:
        raise RecordingError("it has no frames: no channel group is bus logging of CAN (CAN_DataFrame)")


def _records(mdf: Any, file: LogFile, group: int, offset: int, start_us: int, at: int) -> LogBlock | None:
    try:
        signal = mdf.get(_DATA, group=group, record_offset=offset, record_count=RECORDS, ignore_invalidation_bits=True)
    except Exception as problem:
        file.skipped.note(f"records damaged ({problem})", f"group {group}, record {offset}")
        return None
    return _block(file, signal.samples, signal.timestamps, start_us, at)


def _block(
    file: LogFile, samples: npt.NDArray[Any], timestamps: npt.NDArray[np.float64], start_us: int, at: int
) -> LogBlock:
    fields = {name.rpartition(".")[2]: samples[name] for name in samples.dtype.names or ()}
    count = len(timestamps)
    identifier = fields["ID"].astype(np.int64)
    extended = _flags(fields.get("IDE"), count) | (identifier & EXTENDED > 0)
    identifier &= ID_MASK
    data = fields["DataBytes"].reshape(count, -1)
    size = fields.get("DataLength", fields.get("DLC"))
    length = np.full(count, data.shape[1], np.int64) if size is None else size.astype(np.int64)
    at_us = np.rint(timestamps * 1e6).astype(np.int64) + start_us
    problems = (
        (BAD_IDENTIFIER, identifier > np.where(extended, ID_MASK, STANDARD_ID_MASK)),
        (LENGTHS_DISAGREE, length > min(data.shape[1], FD_BYTES)),
        (BAD_TIME, (at_us < 0) | (at_us > LAST_US)),
    )
    is_good = np.ones(count, np.bool_)
    for reason, is_bad in problems:
        for row in np.flatnonzero(is_bad & is_good).tolist():
            file.skipped.note(reason, f"record {at + row}")
        is_good &= ~is_bad
    is_fd = _flags(fields.get("EDL"), count) | (length > CLASSIC_BYTES)
    channel, channels = _channels(fields.get("BusChannel"), count)
    marked = np.where(extended, identifier | EXTENDED, identifier).astype(np.uint32)
    found = LogBlock([], [], Counter())
    for fd, width in ((False, CLASSIC_BYTES), (True, FD_BYTES)):
        rows = np.flatnonzero(is_good & (is_fd == fd))
        if len(rows):
            columns = at_us[rows], marked[rows], length[rows].astype(np.uint8), _padded(data[rows], width)
            found.frames.append(
                FrameColumns(*columns, at + rows, channel[rows], channels, np.zeros(len(rows), np.int8))
            )
    return found


def _flags(values: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.bool_]:
    """Flags as numbers, or as text if a conversion was applied."""
    if values is None:
        return np.zeros(count, np.bool_)
    return np.char.lower(values) == b"true" if values.dtype.kind in "SU" else values.astype(np.int64) > 0


def _padded(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    found = np.zeros((len(data), width), np.uint8)
    used = min(width, data.shape[1])
    found[:, :used] = data[:, :used]
    return found


def _channels(values: npt.NDArray[Any] | None, count: int) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...]]:
    if values is None or values.dtype.kind in "SU":
        return np.zeros(count, np.int32), (None,)
    names, which = np.unique(values, return_inverse=True)
    return which.astype(np.int32), tuple(str(int(name)) for name in names)
