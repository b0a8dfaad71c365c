"""Logs of `candump -L` as columns of frames, a block of lines at a time.

Lines of the common form are read together: places of brackets, points and `#` are found for the whole block, then all
times, channels, identifiers and data at once. A line that does not look so is given to `read_candump`, which says what
every line means; so both readers agree on all of them.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._dbc.columns import EXTENDED, Frames, gathered
from genus.can._dbc.log_file import BAD_TIME, ERROR_FRAME, HARMLESS, LAST_US, REMOTE_FRAME, LogFile, Logged, PassedOver
from genus.can._dbc.text_logs import DAMAGED_LINE, lines_of
from genus.can._wire.frame import ID_MASK, Frame

# Logs as `candump -L` writes them: a time stamp, the channel, and identifier#data.
#
# ```
# (1436509052.249713) can0 123#11223344          standard identifier (three digits)
# (1436509052.249720) can0 1F334455##1112233     extended identifier (eight), FD frame with flags 1
# (1436509052.249730) can0 20000080#0000         error frame
# (1436509052.249740) can0 123#R                 remote frame
# ```


_ERROR_FLAG = 0x2000_0000
_CANDUMP = re.compile(
    r"\((?P<seconds>\d{1,12})\.(?P<fraction>\d{1,9})\)\s+(?P<channel>\S+)\s+(?P<id>[0-9A-F]{3,8})"
    r"\#(?:(?P<remote>R[0-9A-F]?)|\#(?P<flags>[0-9A-F])(?P<fd>(?:[0-9A-F]{2}){0,64})|(?P<data>(?:[0-9A-F]{2}){0,8}))"
    r"(?:_[9A-F])?(?:\s+[RT])?",
    re.ASCII | re.IGNORECASE,
)


def read_candump(file: LogFile) -> Iterator[Logged]:
    """The frames of a log that `candump -L` wrote."""
    for line in lines_of(file):
        found = _CANDUMP.fullmatch(line.text)
        frame = _candump_frame(found) if found else DAMAGED_LINE
        if found is None or isinstance(frame, str):
            file.passed.note(str(frame), "" if frame in HARMLESS else line.place)
            continue
        at_us = int(found["seconds"]) * 1_000_000 + int(found["fraction"][:6].ljust(6, "0"))
        if at_us > LAST_US:
            file.passed.note(BAD_TIME, line.place)
        else:
            yield Logged(at_us, found["channel"], frame)


def _candump_frame(found: re.Match[str]) -> Frame | str:
    identifier, extended = int(found["id"], 16), len(found["id"]) > 3
    if extended and identifier & _ERROR_FLAG:
        return ERROR_FRAME
    if identifier > (ID_MASK if extended else 0x7FF):
        return "identifier out of range"
    if found["remote"]:
        return REMOTE_FRAME
    is_fd = found["flags"] is not None
    return Frame(identifier, bytes.fromhex(found["fd"] if is_fd else found["data"]), is_fd, extended)


# Digits of text, eight characters at a time: a column of 64-bit words is read with a few operations each.
#
# The words are little-endian: the first character is in the lowest byte. How eight decimal digits become a number in
# three multiplications is D. Lemire's "Quickly parsing eight digits" (2022).


Bytes: TypeAlias = npt.NDArray[np.uint8]
Word: TypeAlias = npt.NDArray[np.uint64]


def _repeated(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_HIGH, _LOW, _SIX, _ZEROS = _repeated(0xF0), _repeated(0x0F), _repeated(6), _repeated(ord("0"))
_BYTES, _PAIRS, _FOURS = (np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF))


def rows_at(buffer: Bytes, starts: npt.NDArray[np.int64], width: int) -> Bytes:
    """So many bytes from each start on, as a row each; the buffer must reach so far."""
    windows: npt.NDArray[np.void] = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return windows[starts].view(np.uint8).reshape(len(starts), width)


def numbers(
    buffer: Bytes, starts: npt.NDArray[np.int64], digits: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The decimal numbers of some digits from each start on, and whether they are digits at all.

    >>> numbers(np.frombuffer(b"20261231T0123", np.uint8), np.array([0, 4]), 4)
    (array([2026, 1231]), array([ True,  True]))
    """
    if digits > 8:
        high, is_high = numbers(buffer, starts, digits - 8)
        low, is_low = numbers(buffer, starts + digits - 8, 8)
        return high * 100_000_000 + low, is_high & is_low
    words: Word = rows_at(buffer, starts, 8).view(np.uint64)[:, 0]
    if digits < 8:
        words = words << np.uint64(64 - 8 * digits) | _ZEROS >> np.uint64(8 * digits)
    return _decimal(words), ((words & _HIGH) == _ZEROS) & (((words + _SIX) & _HIGH) == _ZEROS)


def _decimal(words: Word) -> npt.NDArray[np.int64]:
    digits = words & _LOW
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _BYTES
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _PAIRS
    return ((fours * np.uint64(10_000) + (fours >> np.uint64(32))) & _FOURS).view(np.int64)


def is_hexadecimal(text: Bytes) -> npt.NDArray[np.bool_]:
    """Which characters are hexadecimal digits, in upper or lower case."""
    return (text - np.uint8(ord("0")) < 10) | ((text | np.uint8(0x20)) - np.uint8(ord("a")) < 6)


def hexadecimal(text: Bytes) -> Bytes:
    """The bytes that pairs of hexadecimal digits are, in every row.

    >>> hexadecimal(np.frombuffer(b"00fFa9", np.uint8).reshape(1, 6)).tolist()
    [[0, 255, 169]]
    """
    nibbles = (text & np.uint8(0x0F)) + (text >> np.uint8(6)) * np.uint8(9)
    return nibbles[:, 0::2] << np.uint8(4) | nibbles[:, 1::2]


Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

CLASSIC, FD = 8, 64
"""The widths of data."""
MOST_CHANNELS = 64
LONGEST_FIELD = 24
"""Of a channel's name with the blanks around it."""
_PADDING = bytes(2 * FD + 8)
_ERROR_BIT = 0x2000_0000
_LAST_THREE = np.uint64(0xFFFFFF_0000000000)
_FIVE_ZEROS = np.uint64(int.from_bytes(b"00000", "little"))
_KEEP = {width: np.tri(width + 1, width, -1, np.uint8) * np.uint8(255) for width in (2 * CLASSIC, 2 * FD)}
"""For each number of characters, ones where they are in a row of so many bytes."""
_FIELD = re.compile(rb"\s+(\S+)\s+")


class Damaged(NamedTuple):
    """A line that is no frame, and should be one."""

    position: int
    reason: str
    line: bytes


class CandumpBlock(NamedTuple):
    """What is in some lines of a log; error and remote frames are passed over."""

    frames: list[Frames]
    damaged: list[Damaged]


def candump_frames(text: bytes, at: int = 0) -> CandumpBlock:
    """The frames in whole lines of a log, which begin at some byte of it; that byte counts in their positions.

    >>> block = candump_frames(b"(1700000000.250000) can0 123#1122\\n")
    >>> block.frames[0].at_us.tolist(), block.frames[0].identifier.tolist(), block.frames[0].length.tolist()
    ([1700000000250000], [291], [2])
    """
    buffer = np.frombuffer(text + _PADDING, np.uint8)
    starts, ends = _lines(buffer, len(text))
    lines = _common(buffer, starts, _trimmed(buffer, ends))
    found = _read(buffer, lines, at)
    is_read = np.zeros(len(starts), np.bool_)
    is_read[lines.number[found.is_read]] = True
    rest = np.flatnonzero(~is_read)
    others, damaged = _one_by_one(text, starts[rest].tolist(), ends[rest].tolist(), at)
    return CandumpBlock([frames for frames in (*found.frames, *others) if len(frames.at_us)], damaged)


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(buffer: Bytes, size: int) -> tuple[Places, Places]:
    """Where lines begin and end; the last may lack its end."""
    ends: Places = np.flatnonzero(buffer[:size] == ord("\n"))
    if size and buffer[size - 1] != ord("\n"):
        ends = np.append(ends, size)
    return np.append(0, ends[:-1] + 1)[: len(ends)], ends


def _trimmed(buffer: Bytes, ends: Places) -> Places:
    """The ends of lines without a carriage return and without the letter of a direction."""
    ends = ends - (buffer[ends - 1] == ord("\r"))
    last = buffer[ends - 1] & 0xDF
    lettered: Places = ends - 2 * (((last == ord("R")) | (last == ord("T"))) & (buffer[ends - 2] == ord(" ")))
    return lettered


class _Common(NamedTuple):
    """Lines that look like `(1.1) can0 123#...`: their numbers in the block, and the places of what is in all."""

    number: Places
    start: Places
    point: Places
    close: Places
    hash: Places
    end: Places


def _common(buffer: Bytes, starts: Places, ends: Places) -> _Common:
    point, close, hash_ = (_first(buffer, sign, starts, ends) for sign in (b".", b")", b"#"))
    looks_so = (buffer[starts] == ord("(")) & (point < close) & (close < hash_) & (hash_ < ends)
    looks_so &= _is_between(point - starts, 2, 13) & _is_between(close - point, 2, 10)
    number = np.flatnonzero(looks_so)
    return _Common(number, *(places[number] for places in (starts, point, close, hash_, ends)))


def _is_between(sizes: Places, least: int, most: int) -> Mask:
    return (sizes >= least) & (sizes <= most)


def _first(buffer: Bytes, sign: bytes, starts: Places, ends: Places) -> Places:
    """The place of a sign behind each start, which may be in a later line, or behind all."""
    places = np.flatnonzero(buffer == ord(sign))
    if len(places) == len(starts) and ((starts <= places) & (places < ends)).all():
        return places  # one in every line, as it mostly is
    found: Places = np.append(places, len(buffer))[np.searchsorted(places, starts)]
    return found


# -- what lines say ----------------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    frames: list[Frames]
    is_read: Mask
    """Which of the common lines are understood."""


def _read(buffer: Bytes, lines: _Common, at: int) -> _Read:
    at_us, is_time = _times(buffer, lines)
    identifier, first, is_identifier = _identifiers(buffer, lines.hash)
    channel, channels, is_channel = _channels(buffer, lines.close + 1, first)
    is_read = is_time & is_identifier & is_channel
    is_error = (identifier >= EXTENDED) & _has_error(identifier)
    is_fd = buffer[lines.hash + 1] == ord("#")
    frames = []
    for width in (CLASSIC, FD):
        rows = np.flatnonzero(is_fd == (width == FD))
        data, length, is_data = _data(buffer, lines.hash[rows], lines.end[rows], width)
        is_read[rows] &= is_data
        columns = at_us[rows], identifier[rows], length, data, lines.start[rows] + at, channel[rows]
        kept = is_read[rows] & ~is_error[rows]
        found = Frames(*columns, channels)
        frames.append(found if kept.all() else found.take(np.flatnonzero(kept)))
    return _Read(frames, is_read)


def _times(buffer: Bytes, lines: _Common) -> tuple[Places, Mask]:
    """Microseconds, for lines with equally many digits together."""
    at_us, is_time = np.zeros(len(lines.start), np.int64), np.zeros(len(lines.start), np.bool_)
    form = (lines.point - lines.start) * 16 + lines.close - lines.point
    for each in np.flatnonzero(np.bincount(form)).tolist():
        whole, fraction = each // 16 - 1, each % 16 - 1
        rows = slice(None) if (form == each).all() else np.flatnonzero(form == each)
        seconds, are_seconds = numbers(buffer, lines.start[rows] + 1, whole)
        parts, are_parts = numbers(buffer, lines.point[rows] + 1, fraction)
        at_us[rows] = seconds * 1_000_000 + (parts * 10 ** (9 - fraction)) // 1000
        is_time[rows] = are_seconds & are_parts
    return at_us, is_time & (at_us <= LAST_US)


def _identifiers(buffer: Bytes, hashes: Places) -> tuple[npt.NDArray[np.uint32], Places, Mask]:
    """The identifiers of three or eight digits before a `#`, and where they begin."""
    before = buffer[hashes - 4]
    is_standard = (before == ord(" ")) | (before == ord("\t"))
    words = rows_at(buffer, hashes - 8, 8).view(np.uint64)
    words = np.where(is_standard[:, np.newaxis], words & _LAST_THREE | _FIVE_ZEROS, words)
    text = words.view(np.uint8)
    identifier = hexadecimal(text).view(">u4")[:, 0].astype(np.uint32)
    is_known = np.where(is_standard, identifier <= 0x7FF, (identifier < _ERROR_BIT) | _has_error(identifier))
    is_valid = is_known & _all_zero((~is_hexadecimal(text)).view(np.uint64))
    marked = np.where(is_standard, identifier, identifier | np.uint32(EXTENDED))
    return marked, hashes - np.where(is_standard, 3, 8), is_valid


def _has_error(identifier: npt.NDArray[np.uint32]) -> Mask:
    return identifier & np.uint32(_ERROR_BIT) > 0


def _channels(buffer: Bytes, starts: Places, ends: Places) -> tuple[npt.NDArray[np.int32], tuple[str, ...], Mask]:
    """The channels between a time and an identifier: which each line has, their names, and whether it has one."""
    width = ends - starts
    channel = np.full(len(starts), -1, np.int32)
    names: list[str] = []
    for each in np.flatnonzero(np.bincount(np.clip(width, 0, LONGEST_FIELD + 1))[: LONGEST_FIELD + 1]).tolist():
        rows = np.flatnonzero(width == each)
        for field, which in _distinct(buffer, starts[rows], each) if each else ():
            if found := _FIELD.fullmatch(field):
                channel[rows[which]] = len(names)
                names.append(_decoded(found[1]))
    return channel, tuple(names), channel >= 0


def _distinct(buffer: Bytes, starts: Places, width: int) -> Iterator[tuple[bytes, Places]]:
    """The different texts of one width, up to some number, each with the rows it is in."""
    rows = np.arange(len(starts))
    words = np.stack([rows_at(buffer, starts + part, 8).view(np.uint64)[:, 0] for part in range(0, width, 8)], axis=1)
    if width % 8:
        words[:, -1] &= np.uint64((1 << 8 * (width % 8)) - 1)
    for _ in range(MOST_CHANNELS):
        if not len(rows):
            return
        same = _all_zero(words ^ words[0])
        yield words[0].tobytes()[:width], rows[same]
        rows, words = rows[~same], words[~same]


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("latin-1")


def _data(buffer: Bytes, hashes: Places, ends: Places, width: int) -> tuple[Bytes, Bytes, Mask]:
    """The data behind a `#`, or behind two and the flags of an FD frame; how many bytes, and whether they are any."""
    first = hashes + (3 if width == FD else 1)
    digits = ends - first
    is_data = (digits >= 0) & (digits <= 2 * width) & (digits % 2 == 0)
    keep = _KEEP[2 * width][np.clip(digits, 0, 2 * width)]
    text = rows_at(buffer, first, 2 * width) & keep
    is_data &= _all_zero((~is_hexadecimal(text) & (keep > 0)).view(np.uint64))
    if width == FD:
        is_data &= is_hexadecimal(buffer[hashes + 2])
    return hexadecimal(text), (digits // 2).astype(np.uint8), is_data


def _all_zero(words: npt.NDArray[np.uint64]) -> Mask:
    """The rows that are nothing but zeros; column by column, for rows are short and many."""
    found: Mask = words[:, 0] == 0
    for column in words.T[1:]:
        found &= column == 0
    return found


# -- other lines -------------------------------------------------------------------------------------------------------


class _OneLine(LogFile):
    """A log of one line."""

    def __init__(self, line: bytes) -> None:
        self.passed = PassedOver()
        self.is_cut = False
        self._line = line

    def chunks(self) -> Iterator[bytes]:
        yield self._line


def _one_by_one(text: bytes, starts: list[int], ends: list[int], at: int) -> tuple[list[Frames], list[Damaged]]:
    """What `read_candump` makes of lines."""
    logged: list[tuple[int, Logged]] = []
    damaged: list[Damaged] = []
    for start, end in zip(starts, ends, strict=True):
        log = _OneLine(text[start:end])
        logged += [(at + start, each) for each in read_candump(log)]
        reasons = [reason for reason in log.passed.reasons if reason not in HARMLESS]
        damaged += [Damaged(at + start, reason, text[start:end]) for reason in reasons]
    return [gathered(logged)] if logged else [], damaged
