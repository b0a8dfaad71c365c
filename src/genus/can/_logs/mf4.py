"""MDF 4 (MF4): bus logging, read by asammdf (the extra `mf4`) in columns.

A channel group with a channel `CAN_DataFrame` holds frames; its fields (`ID`, `IDE`, `DataLength`, `DataBytes`,
`BusChannel`, `Dir`, `EDL`) are arrays already. Times count from the start time in the file's header.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from genus._extras import install_command
from genus.can._logs.frames import EXTENDED, RX, TX, FrameColumns, LogBlock
from genus.can._logs.log_file import ERROR_FRAME, REMOTE_FRAME, LogFile, suppress_warnings
from genus.can._logs.records import Records, blocks, length_of_code, numbered
from genus.can._wire.frame import CLASSIC_BYTES, ID_MASK
from genus.errors import RecordingError

RECORDS = 1 << 18
"""How many records are read at once."""
_DATA = "CAN_DataFrame"
_OTHERS = {"CAN_ErrorFrame": ERROR_FRAME, "CAN_RemoteFrame": REMOTE_FRAME}


def read_mf4(file: LogFile) -> Iterator[LogBlock]:
    """Yield the frames of all groups, group by group; positions count frames."""
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
            signal = _read(mdf, file, number, offset)
            file.set_progress((number + (offset + RECORDS) / max(count, 1)) / (len(mdf.groups) + 1))
            if signal is not None:
                yield _frames(file, signal, start_us, at + offset, bus)
        at += count
    if not has_frames:
        raise RecordingError("it has no frames: no channel group is bus logging of CAN (CAN_DataFrame)")


def _read(mdf: Any, file: LogFile, group: int, offset: int) -> Any | None:
    """Some records of a group; None if asammdf cannot read them."""
    try:
        return mdf.get(_DATA, group=group, record_offset=offset, record_count=RECORDS, ignore_invalidation_bits=True)
    except Exception as problem:
        file.skipped.note(f"records damaged ({problem})", f"group {group}, record {offset}")
        return None


def _frames(file: LogFile, signal: Any, start_us: int, at: int, bus: str | None) -> list[FrameColumns]:
    samples, timestamps = signal.samples, signal.timestamps
    fields = {name.rpartition(".")[2]: samples[name] for name in samples.dtype.names or ()}
    count = len(timestamps)
    identifier, data = fields["ID"].astype(np.int64), fields["DataBytes"].reshape(count, -1)
    fd, length = _flags(fields.get("EDL"), count), np.full(count, data.shape[1], np.int64)
    if "DataLength" in fields:
        length = fields["DataLength"].astype(np.int64)
    elif "DLC" in fields:
        length = length_of_code(fields["DLC"], fd)
    channel, channels = _channels(fields.get("BusChannel"), count, bus)
    records = Records(
        np.rint(timestamps * 1e6).astype(np.int64) + start_us,
        identifier & ID_MASK,
        _flags(fields.get("IDE"), count) | (identifier & EXTENDED > 0),
        length,
        fd | (length > CLASSIC_BYTES),
        data,
        np.arange(at, at + count),
        channel,
        channels,
        _directions(fields.get("Dir"), count),
    )
    return records.frames(file.skipped, "record", length <= data.shape[1])


def _flags(values: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.bool_]:
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
    """Return the number of each frame's channel, or else the name of the bus that its group was recorded from."""
    if values is None or values.dtype.kind in "SU":
        return np.zeros(count, np.int32), (bus,)
    numbers, which = numbered(values)
    return which, tuple(str(each) for each in numbers)
