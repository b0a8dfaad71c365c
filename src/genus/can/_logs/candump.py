"""Logs as `candump -L` writes them: a timestamp, the channel, and identifier#data.

```
(1436509052.249713) can0 123#11223344          standard identifier (three digits)
(1436509052.249720) can0 1F334455##1112233     extended identifier (eight), FD frame with flags 1
(1436509052.249730) can0 20000080#0000         error frame
(1436509052.249740) can0 123#R                 remote frame
```

`parse_line` defines what a line means. `parse_candump` reads a block of lines into columns: lines of the common form
together (it finds brackets, points and `#` in the whole block, then reads all times, channels, identifiers and data at
once), all other lines with `parse_line`.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import (
    Bytes,
    Mask,
    Offsets,
    all_zero,
    decimals,
    distinct,
    hex_bytes,
    is_hex,
    windows_at,
)
from genus.can._logs.frames import EXTENDED, DamagedLine, FrameColumns, LogBlock, LoggedFrame
from genus.can._logs.line_fields import KindOfTimes
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    BAD_TIME,
    DAMAGED_LINE,
    ERROR_FRAME,
    HARMLESS,
    LAST_US,
    LINE_TOO_LONG,
    LONGEST_LINE,
    REMOTE_FRAME,
    decode_text,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame

_ERROR_FLAG = 0x2000_0000
_LINE = re.compile(
    r"\((?P<seconds>\d{1,12})\.(?P<fraction>\d{1,9})\)\s+(?P<channel>\S+)\s+(?P<id>[0-9A-F]{3,8})"
    r"\#(?:(?P<remote>R[0-9A-F]?)|\#(?P<flags>[0-9A-F])(?P<fd>(?:[0-9A-F]{2}){0,64})|(?P<data>(?:[0-9A-F]{2}){0,8}))"
    r"(?:_[9A-F])?(?:\s+[RT])?",
    re.ASCII | re.IGNORECASE,
)


def parse_line(text: str) -> tuple[Frame | str, int | None, str | None]:
    """The frame of a line, or the reason why there is none; its time in microseconds, and its channel.

    >>> parse_line("(1.5) can0 123#1122")
    (Frame(0x123, 1122), 1500000, 'can0')
    """
    found = _LINE.fullmatch(text)
    if found is None:
        return DAMAGED_LINE, None, None
    at_us = int(found["seconds"]) * 1_000_000 + int(found["fraction"][:6].ljust(6, "0"))
    return _frame(found), at_us, found["channel"]


def read_line(line: bytes) -> LoggedFrame | str | None:
    """The frame of a line, or the reason why there is none; None for a blank line or a comment.

    >>> read_line(b"(1.5) can0 123#R")
    'remote frame'
    """
    if len(line) > LONGEST_LINE:
        return LINE_TOO_LONG
    text = decode_text(line).strip()
    if not text or text.startswith("#"):
        return None
    frame, at_us, channel = parse_line(text)
    if isinstance(frame, str):
        return frame
    return BAD_TIME if at_us is None or at_us > LAST_US else LoggedFrame(at_us, channel, frame)


def _frame(found: re.Match[str]) -> Frame | str:
    identifier, extended = int(found["id"], 16), len(found["id"]) > 3
    if extended and identifier & _ERROR_FLAG:
        return ERROR_FRAME
    if identifier > (ID_MASK if extended else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    if found["remote"]:
        return REMOTE_FRAME
    is_fd = found["flags"] is not None
    return Frame(identifier, bytes.fromhex(found["fd"] if is_fd else found["data"]), is_fd, extended)


LONGEST_FIELD = 24
"""The longest channel name, with the blanks around it, that is read in columns."""
_PADDING = bytes(2 * FD_BYTES + 8)
_LAST_THREE = np.uint64(0xFFFFFF_0000000000)
_FIVE_ZEROS = np.uint64(int.from_bytes(b"00000", "little"))
_KEEP = {width: np.tri(width + 1, width, -1, np.uint8) * np.uint8(255) for width in (2 * CLASSIC_BYTES, 2 * FD_BYTES)}
"""By width: for each number of characters a row of masks, 255 for those characters and 0 after them."""
_FIELD = re.compile(rb"\s+(\S+)\s+")


def parse_candump(text: bytes, at: int = 0) -> LogBlock:
    """Read a block of whole lines of a candump log into columns.

    Never raises: a line that cannot be read is in `damaged`.

    Args:
        text: Whole lines.
        at: The byte of the log at which `text` begins; positions count from the beginning of the log.

    Returns:
        Frames of up to 8 and of up to 64 bytes in separate columns, and the damaged lines.

    >>> block = parse_candump(b"(1700000000.250000) can0 123#1122\\n")
    >>> block.frames[0].at_us.tolist(), block.frames[0].identifier.tolist(), block.frames[0].length.tolist()
    ([1700000000250000], [291], [2])
    """
    buffer = np.frombuffer(text + _PADDING, np.uint8)
    starts, ends = _line_bounds(buffer, len(text))
    lines = _find_common(buffer, starts, _trim(buffer, ends))
    frames, is_read, skipped = _read_common(buffer, lines, at)
    is_other = np.ones(len(starts), np.bool_)
    is_other[lines.number[is_read]] = False
    rest = np.flatnonzero(is_other)
    others = _parse_others(text, starts[rest].tolist(), ends[rest].tolist(), at)
    parts = [part for part in (*frames, *others.frames) if len(part.at_us)]
    return LogBlock(parts, others.damaged, skipped + others.skipped, len(starts))


# -- lines -------------------------------------------------------------------------------------------------------------


def _line_bounds(buffer: Bytes, size: int) -> tuple[Offsets, Offsets]:
    """The starts and ends of lines; the last line may lack its newline."""
    ends: Offsets = np.flatnonzero(buffer[:size] == ord("\n"))
    if size and buffer[size - 1] != ord("\n"):
        ends = np.append(ends, size)
    return np.append(0, ends[:-1] + 1)[: len(ends)], ends


def _trim(buffer: Bytes, ends: Offsets) -> Offsets:
    """The ends of lines without a carriage return and without the letter of the direction (R, T)."""
    ends = ends - (buffer[ends - 1] == ord("\r"))
    last = buffer[ends - 1] & 0xDF
    lettered: Offsets = ends - 2 * (((last == ord("R")) | (last == ord("T"))) & (buffer[ends - 2] == ord(" ")))
    return lettered


class CandumpReader:
    """Reads the blocks of a log of `candump -L`, as `TextReader` reads those of other text formats."""

    name = "log"
    is_divisible = True
    times: KindOfTimes = "absolute"

    def parse(self, text: bytes, at: int = 0) -> LogBlock:
        """The frames of a block of whole lines."""
        return parse_candump(text, at)


class _CommonLines(NamedTuple):
    """Lines that look like `(1.1) can0 123#...`: their numbers in the block, and the offsets of their parts."""

    number: Offsets
    start: Offsets
    point: Offsets
    close: Offsets
    hash: Offsets
    end: Offsets


def _find_common(buffer: Bytes, starts: Offsets, ends: Offsets) -> _CommonLines:
    point, close, hash_ = (_first(buffer, sign, starts, ends) for sign in (b".", b")", b"#"))
    is_common = (buffer[starts] == ord("(")) & (point < close) & (close < hash_) & (hash_ < ends)
    is_common &= _is_between(point - starts, 2, 13) & _is_between(close - point, 2, 10)
    number = np.flatnonzero(is_common)
    return _CommonLines(number, *(offsets[number] for offsets in (starts, point, close, hash_, ends)))


def _is_between(sizes: Offsets, least: int, most: int) -> Mask:
    return (sizes >= least) & (sizes <= most)


def _first(buffer: Bytes, sign: bytes, starts: Offsets, ends: Offsets) -> Offsets:
    """The offset of the first `sign` after each start; it may be in a later line, or after the buffer's end."""
    offsets = np.flatnonzero(buffer == ord(sign))
    if len(offsets) == len(starts) and ((starts <= offsets) & (offsets < ends)).all():
        return offsets  # one in every line, the usual case
    found: Offsets = np.append(offsets, len(buffer))[np.searchsorted(offsets, starts)]
    return found


# -- fields of lines ---------------------------------------------------------------------------------------------------


def _read_common(buffer: Bytes, lines: _CommonLines, at: int) -> tuple[list[FrameColumns], Mask, Counter[str]]:
    """The frames of lines of the common form, which of the lines could be read, and how many are error frames."""
    at_us, is_time = _read_times(buffer, lines)
    identifier, first, is_identifier = _read_identifiers(buffer, lines.hash)
    channel, channels, is_channel = _read_channels(buffer, lines.close + 1, first)
    is_read = is_time & is_identifier & is_channel
    is_error = (identifier >= EXTENDED) & _has_error(identifier)
    is_fd = buffer[lines.hash + 1] == ord("#")
    frames = []
    for width in (CLASSIC_BYTES, FD_BYTES):
        rows = np.flatnonzero(is_fd == (width == FD_BYTES))
        data, length, is_data = _read_data(buffer, lines.hash[rows], lines.end[rows], width)
        is_read[rows] &= is_data
        columns = at_us[rows], identifier[rows], length, data, lines.start[rows] + at, channel[rows]
        kept = is_read[rows] & ~is_error[rows]
        found = FrameColumns(*columns, channels, np.zeros(len(columns[0]), np.int8))
        frames.append(found if kept.all() else found.take(np.flatnonzero(kept)))
    errors = int((is_read & is_error).sum())
    return frames, is_read, Counter({ERROR_FRAME: errors} if errors else {})


def _read_times(buffer: Bytes, lines: _CommonLines) -> tuple[Offsets, Mask]:
    """Microseconds since 1970, and which are valid; lines with the same number of digits are read together."""
    at_us, is_time = np.zeros(len(lines.start), np.int64), np.zeros(len(lines.start), np.bool_)
    form = (lines.point - lines.start) * 16 + lines.close - lines.point
    for each in np.flatnonzero(np.bincount(form)).tolist():
        whole, fraction = each // 16 - 1, each % 16 - 1
        rows = slice(None) if (form == each).all() else np.flatnonzero(form == each)
        seconds, are_seconds = decimals(buffer, lines.start[rows] + 1, whole)
        parts, are_parts = decimals(buffer, lines.point[rows] + 1, fraction)
        at_us[rows] = seconds * 1_000_000 + (parts * 10 ** (9 - fraction)) // 1000
        is_time[rows] = are_seconds & are_parts
    return at_us, is_time & (at_us <= LAST_US)


def _read_identifiers(buffer: Bytes, hashes: Offsets) -> tuple[npt.NDArray[np.uint32], Offsets, Mask]:
    """The identifiers of three or eight digits before a `#`, where they begin, and which are valid."""
    before = buffer[hashes - 4]
    is_standard = (before == ord(" ")) | (before == ord("\t"))
    words = windows_at(buffer, hashes - 8, 8).view(np.uint64)
    words = np.where(is_standard[:, np.newaxis], words & _LAST_THREE | _FIVE_ZEROS, words)
    text = words.view(np.uint8)
    identifier = hex_bytes(text).view(">u4")[:, 0].astype(np.uint32)
    is_known = np.where(
        is_standard, identifier <= STANDARD_ID_MASK, (identifier < _ERROR_FLAG) | _has_error(identifier)
    )
    is_valid = is_known & all_zero((~is_hex(text)).view(np.uint64))
    marked = np.where(is_standard, identifier, identifier | np.uint32(EXTENDED))
    return marked, hashes - np.where(is_standard, 3, 8), is_valid


def _has_error(identifier: npt.NDArray[np.uint32]) -> Mask:
    return identifier & np.uint32(_ERROR_FLAG) > 0


def _read_channels(
    buffer: Bytes, starts: Offsets, ends: Offsets
) -> tuple[npt.NDArray[np.int32], tuple[str, ...], Mask]:
    """The number of each line's channel, the names of the channels, and which lines have one."""
    width = ends - starts
    channel = np.full(len(starts), -1, np.int32)
    names: list[str] = []
    for each in np.flatnonzero(np.bincount(np.clip(width, 0, LONGEST_FIELD + 1))[: LONGEST_FIELD + 1]).tolist():
        rows = np.flatnonzero(width == each)
        for field, which in distinct(buffer, starts[rows], each) if each else ():
            if found := _FIELD.fullmatch(field):
                channel[rows[which]] = len(names)
                names.append(decode_text(found[1]))
    return channel, tuple(names), channel >= 0


def _read_data(buffer: Bytes, hashes: Offsets, ends: Offsets, width: int) -> tuple[Bytes, Bytes, Mask]:
    """The data after `#`, or after `##` and the flags of an FD frame; their lengths, and which are valid."""
    first = hashes + (3 if width == FD_BYTES else 1)
    digits = ends - first
    is_data = (digits >= 0) & (digits <= 2 * width) & (digits % 2 == 0)
    keep = _KEEP[2 * width][np.clip(digits, 0, 2 * width)]
    text = windows_at(buffer, first, 2 * width) & keep
    is_data &= all_zero((~is_hex(text) & (keep > 0)).view(np.uint64))
    if width == FD_BYTES:
        is_data &= is_hex(buffer[hashes + 2])
    return hex_bytes(text), (digits // 2).astype(np.uint8), is_data


# -- other lines -------------------------------------------------------------------------------------------------------


def _parse_others(text: bytes, starts: list[int], ends: list[int], at: int) -> LogBlock:
    """The lines that are not of the common form."""
    frames: list[tuple[int, LoggedFrame]] = []
    damaged: list[DamagedLine] = []
    harmless: Counter[str] = Counter()
    for start, end in zip(starts, ends, strict=True):
        found = read_line(text[start:end])
        if isinstance(found, LoggedFrame):
            frames.append((at + start, found))
        elif found in HARMLESS:
            harmless[found] += 1
        elif found is not None:
            damaged.append(DamagedLine(at + start, found, text[start:end]))
    return LogBlock([FrameColumns.of(frames)] if frames else [], damaged, harmless)
