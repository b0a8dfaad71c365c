"""A block of lines of a text log, cut into tokens in columns."""

import re
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import FRONT, Bytes, Mask, Offsets, words_at
from genus.can._wire.frame import FD_BYTES

Rows: TypeAlias = npt.NDArray[np.intp]
"""Numbers of lines in a block."""

BLANKS = " \t\r\n\x0b\x0c"
BEHIND = 8 * FD_BYTES
"""So many bytes are behind the last character, for windows that go over its end."""
_QUOTE = ord('"')
_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(BLANKS.encode())] = True


class Tokens(NamedTuple):
    """The tokens of all lines: where each begins and ends, and for each line its first token and their number."""

    start: Offsets
    end: Offsets
    first: Offsets
    number: Offsets


class TextBlock:
    """Whole lines of a log in a buffer of numpy; offsets count from the beginning of the buffer."""

    def __init__(self, text: bytes, delimiter: str) -> None:
        """Tokens, which `split` finds, are separated by blanks, or by one `delimiter` each: then they can be empty."""
        self.text, self.delimiter = text, delimiter
        end = b"" if text.endswith(b"\n") else b"\n"
        self.buffer: Bytes = np.frombuffer(b"\n" * FRONT + text + end + b"\n" * BEHIND, np.uint8)
        size = FRONT + len(text) + len(end)
        self.end: Offsets = np.flatnonzero(self.buffer[FRONT:size] == ord("\n")) + FRONT
        self.start: Offsets = np.append(FRONT, self.end[:-1] + 1)[: len(self.end)]
        self._size = size

    def __len__(self) -> int:
        return len(self.start)

    def line(self, row: int) -> bytes:
        """Return a line without its newline."""
        return self.text[self.start[row] - FRONT : self.end[row] - FRONT]

    def split(self, is_read: Mask) -> None:
        """Cut lines into tokens, which takes long; if many lines were read already, they are left out."""
        size = self._size
        used = self.buffer[:size]
        if 4 * int(is_read.sum()) > len(is_read):
            lengths = np.append(FRONT, self.end - self.start + 1)
            filled = np.uint8(ord("0" if self.delimiter else "\n"))
            used = np.where(np.repeat(np.append(False, is_read), lengths), filled, used)
            used[self.end] = ord("\n")
        self.tokens = self._tokens(used)

    def _tokens(self, used: Bytes) -> Tokens:
        if not self.delimiter:
            is_blank = _blanks(used)
            edges = np.flatnonzero(is_blank[1:] != is_blank[:-1]) + 1
            start, end = edges[0::2], edges[1::2]
        else:
            end = np.flatnonzero((used == ord(self.delimiter)) | (used == ord("\n")))[FRONT:]
            start = np.append(FRONT, end[:-1] + 1)[: len(end)]
            end = end - ((self.buffer[end - 1] == ord("\r")) & (self.buffer[end] == ord("\n")))
        first = np.searchsorted(start, self.start)
        return Tokens(start, end, first, np.diff(first, append=len(start)))

    def is_unquoted(self) -> Mask | None:
        """Return the lines without quotes; None if that is all lines."""
        quotes = np.flatnonzero(self.buffer == _QUOTE)
        if not len(quotes):
            return None
        found: Mask = np.searchsorted(quotes, self.start) == np.searchsorted(quotes, self.end)
        return found

    def has_bytes(self, starts: Offsets, wanted: bytes) -> Mask:
        """Where the buffer has these bytes."""
        found = np.ones(len(starts), np.bool_)
        for part in range(0, len(wanted), 8):
            piece = wanted[part : part + 8]
            mask, word = np.uint64((1 << 8 * len(piece)) - 1), np.uint64(int.from_bytes(piece, "little"))
            found &= (words_at(self.buffer, starts + part) & mask) == word
        return found


def _blanks(text: Bytes) -> Mask:
    """Return which characters are blanks: by comparing, unless there are control characters that are none."""
    found: Mask = text <= ord(" ")
    if ((text < ord("\t")) | ((text > ord("\r")) & (text < ord(" ")))).any():
        found = _IS_BLANK[text]
    return found


_COLOUR = re.compile(rb"\x1b\[[0-9;]*[mK]")


def without_colours(text: bytes) -> bytes:
    """Text with blanks in place of what sets the colours of a terminal."""
    return _COLOUR.sub(lambda found: b" " * len(found[0]), text) if b"\x1b" in text else text


_TOKEN = re.compile(f"[^{BLANKS}]+")


def split_line(text: str, delimiter: str) -> list[tuple[int, int]]:
    """Return the tokens of one line, as `TextBlock` finds them."""
    if not delimiter:
        return [found.span() for found in _TOKEN.finditer(text)]
    bounds = accumulate((len(cell) + 1 for cell in text.removesuffix("\r").split(delimiter)), initial=0)
    return [(start, end - 1) for start, end in pairwise(bounds)]


def split_quoted(text: str, delimiter: str) -> list[tuple[int, int]]:
    """Return the tokens of one line; a delimiter inside of quotes does not separate."""
    if not delimiter or '"' not in text:
        return split_line(text, delimiter)
    text = text.removesuffix("\r")
    spans, start, is_quoted = [], 0, False
    for at, letter in enumerate(text):
        is_quoted ^= letter == '"'
        if letter == delimiter and not is_quoted:
            spans.append((start, at))
            start = at + 1
    return [*spans, (start, len(text))]
