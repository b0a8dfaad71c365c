"""Numbers in text, read in columns: the same field of very many lines at once.

Characters are read eight at a time, as columns of 64-bit words in little-endian order (the first character is the
lowest byte). Eight decimal digits become a number in three multiplications, after D. Lemire, "Quickly parsing eight
digits" (2022).
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Word: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

FRONT = 16
"""So many bytes must be before the first character that `numbers` reads."""
WIDEST = 16
"""The most digits that `numbers` reads."""
MAX_DISTINCT = 64
"""More distinct texts in one block are read line by line."""


def _repeated(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_HIGH, _LOW, _SIX, _ZEROS = _repeated(0xF0), _repeated(0x0F), _repeated(6), _repeated(ord("0"))
_BYTES, _PAIRS, _FOURS = (np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF))
_LAST = np.array([0, *(((1 << 8 * width) - 1) << (64 - 8 * width) for width in range(1, 9))], np.uint64)
"""By a number of characters: the mask of so many last characters of a word."""


def windows_at(buffer: Bytes, starts: npt.NDArray[np.int64], width: int) -> Bytes:
    windows: npt.NDArray[np.void] = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return windows[starts].view(np.uint8).reshape(len(starts), width)


def words_at(buffer: Bytes, starts: Offsets) -> Word:
    words: Word = windows_at(buffer, starts, 8).view(np.uint64)[:, 0]
    return words


def numbers(buffer: Bytes, starts: Offsets, ends: Offsets, base: int) -> tuple[Offsets, Mask]:
    """Return the numbers in decimal or hexadecimal digits from starts to ends, of any width, and which are valid.

    A field of no digits, or of more than `WIDEST`, is not valid. The buffer has `FRONT` bytes before the first start.

    >>> text = np.frombuffer(b" " * 16 + b"7 12 1234567890", np.uint8)
    >>> numbers(text, np.array([16, 18, 21]), np.array([17, 20, 31]), 10)
    (array([         7,         12, 1234567890]), array([ True,  True,  True]))
    """
    widths = ends - starts
    found, is_valid = _last_eight(buffer, ends, np.clip(widths, 0, 8), base)
    is_valid &= (widths >= 1) & (widths <= WIDEST)
    is_wide = widths > 8
    if is_wide.all():
        high, is_high = _last_eight(buffer, ends - 8, np.clip(widths - 8, 0, 8), base)
        return found + high * base**8, is_valid & is_high
    if (wide := np.flatnonzero(is_wide)).size:
        high, is_high = _last_eight(buffer, ends[wide] - 8, np.clip(widths[wide] - 8, 0, 8), base)
        found[wide] += high * base**8
        is_valid[wide] &= is_high
    return found, is_valid


def _last_eight(buffer: Bytes, ends: Offsets, widths: Offsets, base: int) -> tuple[Offsets, Mask]:
    keep = _LAST[widths]
    words = words_at(buffer, ends - 8) & keep | _ZEROS & ~keep
    if base == 10:
        return _eight_digits(words), _are_decimal(words)
    text = words.view(np.uint8).reshape(len(words), 8)
    return hex_bytes(text).view(">u4")[:, 0].astype(np.int64), all_zero((~is_hex(text)).view(np.uint64))


def _are_decimal(words: Word) -> Mask:
    found: Mask = ((words & _HIGH) == _ZEROS) & (((words + _SIX) & _HIGH) == _ZEROS)
    return found


def _eight_digits(words: Word) -> npt.NDArray[np.int64]:
    digits = words & _LOW
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _BYTES
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _PAIRS
    return ((fours * np.uint64(10_000) + (fours >> np.uint64(32))) & _FOURS).view(np.int64)


def is_hex(text: Bytes) -> npt.NDArray[np.bool_]:
    return (text - np.uint8(ord("0")) < 10) | ((text | np.uint8(0x20)) - np.uint8(ord("a")) < 6)


def hex_bytes(text: Bytes) -> Bytes:
    """Return the bytes that the pairs of hexadecimal digits of each row make.

    >>> hex_bytes(np.frombuffer(b"00fFa9", np.uint8).reshape(1, 6)).tolist()
    [[0, 255, 169]]
    """
    nibbles = (text & np.uint8(0x0F)) + (text >> np.uint8(6)) * np.uint8(9)
    return nibbles[:, 0::2] << np.uint8(4) | nibbles[:, 1::2]


_BASE64 = np.full(256, 255, np.uint8)
_BASE64[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64, dtype=np.uint8)


def base64_bytes(text: Bytes) -> tuple[Bytes, Mask]:
    """Return the bytes of each row of base 64, a multiple of 4 characters without padding, and which rows are valid.

    >>> base64_bytes(np.frombuffer(b"ESIz", np.uint8).reshape(1, 4))[0].tolist()
    [[17, 34, 51]]
    """
    sixes = _BASE64[text]
    a, b, c, d = (sixes[:, part::4] for part in range(4))
    triples = np.stack([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d], axis=2)
    is_valid: Mask = np.all(sixes < 64, axis=1)
    return triples.reshape(len(text), -1), is_valid


def base64_fields(text: Bytes, length: int) -> tuple[Bytes, Mask]:
    """Return the bytes of rows of base 64 with padding, so many in each row, and which rows are valid."""
    text, padding = text.copy(), -length % 3
    is_padded = np.ones(len(text), np.bool_)
    if padding:
        is_padded = (text[:, -padding:] == ord("=")).all(axis=1)
        text[:, -padding:] = ord("A")
    found, is_valid = base64_bytes(text)
    return found[:, :length], is_valid & is_padded


def all_zero(words: npt.NDArray[np.uint64]) -> Mask:
    """Return the rows of zeros only; tested column by column, because there are few columns and many rows."""
    found: Mask = words[:, 0] == 0
    for column in words.T[1:]:
        found &= column == 0
    return found


def distinct(buffer: Bytes, starts: Offsets, width: int) -> Iterator[tuple[bytes, Offsets]]:
    """Yield the distinct texts of one width, `MAX_DISTINCT` at most, each with its rows."""
    rows = np.arange(len(starts))
    words = np.stack([words_at(buffer, starts + part) for part in range(0, width, 8)], axis=1)
    if width % 8:
        words[:, -1] &= np.uint64((1 << 8 * (width % 8)) - 1)
    for _ in range(MAX_DISTINCT):
        if not len(rows):
            return
        same = all_zero(words ^ words[0])
        yield words[0].tobytes()[:width], rows[same]
        rows, words = rows[~same], words[~same]


# -- fields of a matrix of characters ----------------------------------------------------------------------------------


def number_columns(text: Bytes, span: tuple[int, int], base: int) -> tuple[Offsets, Mask]:
    """Return the numbers in some columns of rows of characters, 16 digits at most, and which are valid.

    The rows have 8 characters or more; hexadecimal numbers have 8 digits at most.

    >>> number_columns(np.frombuffer(b"id = 291", np.uint8).reshape(1, 8), (5, 8), 10)
    (array([291]), array([ True]))
    """
    start, end = span
    if end - start > 8:
        high, is_high = number_columns(text, (start, end - 8), base)
        low, is_low = number_columns(text, (end - 8, end), base)
        return high * 100_000_000 + low, is_high & is_low
    words = _words_before(text, start, end, _ZEROS)
    if base == 10:
        return _eight_digits(words), _are_decimal(words)
    characters = words.view(np.uint8).reshape(len(words), 8)
    return hex_bytes(characters).view(">u4")[:, 0].astype(np.int64), all_zero((~is_hex(characters)).view(np.uint64))


_BLANKS, _SEVENS, _ONES, _RAISE = _repeated(ord(" ")), _repeated(0x7F), _repeated(1), _repeated(0x10)


def padded_columns(text: Bytes, span: tuple[int, int]) -> tuple[Offsets, Mask]:
    """Decimal numbers as `number_columns` gives them, which may have blanks before their first digit.

    >>> padded_columns(np.frombuffer(b"  291  7", np.uint8).reshape(1, 8), (0, 5))
    (array([291]), array([ True]))
    """
    start, end = span
    low, blank = _unpadded(_words_before(text, max(start, end - 8), end, _BLANKS))
    is_valid = _are_decimal(low) & _is_first(blank) & (blank >> np.uint64(56) == 0)
    if end - start <= 8:
        return _eight_digits(low), is_valid
    high, more = _unpadded(_words_before(text, start, end - 8, _BLANKS))
    is_valid &= _are_decimal(high) & _is_first(more) & ((blank == 0) | (more == np.uint64(0xFFFF_FFFF_FFFF_FFFF)))
    return _eight_digits(high) * 100_000_000 + _eight_digits(low), is_valid


def _words_before(text: Bytes, start: int, end: int, filled: np.uint64) -> Word:
    """Return the characters of some columns, eight at most, at the end of a word that is filled up before them."""
    at = max(end - 8, 0)
    words: Word = np.ndarray((len(text),), np.uint64, text, at, (text.shape[1],))
    if end < 8:
        words = words << np.uint64(8 * (8 - end))
    keep = _LAST[end - start]
    found: Word = words & keep | filled & ~keep
    return found


def _unpadded(words: Word) -> tuple[Word, Word]:
    """Words with zeros in place of blanks, and where blanks were (all bits of their bytes)."""
    other = words ^ _BLANKS
    is_other = ((other & _SEVENS) + _SEVENS | other) >> np.uint64(7) & _ONES
    blank = (is_other ^ _ONES) * np.uint64(255)
    return words | blank & _RAISE, blank


def _is_first(blank: Word) -> Mask:
    found: Mask = blank & (blank + np.uint64(1)) == 0
    return found


_NIBBLES, _NINES = np.uint16(0x0F0F), np.uint16(0x0101)


def hex_pairs(text: Bytes, start: int, count: int, step: int) -> tuple[Bytes, Mask]:
    """Return the bytes that pairs of hexadecimal digits make, from column `start` on, and which rows are valid.

    >>> hex_pairs(np.frombuffer(b"00 fF a9 ", np.uint8).reshape(1, 9), 0, 3, 3)
    (array([[  0, 255, 169]], dtype=uint8), array([ True]))
    """
    pairs = np.ndarray((len(text), count), np.uint16, text, start, (text.shape[1], step)).copy()
    nibbles = (pairs & _NIBBLES) + (pairs >> np.uint16(6) & _NINES) * np.uint16(9)
    found = (nibbles << np.uint16(4) | nibbles >> np.uint16(8)).astype(np.uint8)
    is_valid = is_hex(pairs.view(np.uint8))
    every: Mask = np.ones(len(text), np.bool_)
    if not is_valid.all():
        every &= is_valid.all(axis=1)
    return found, every


_VALUES = {base: np.full(256, 255, np.uint8) for base in (10, 16)}
for _base, _digits in ((10, b"0123456789"), (16, b"0123456789abcdef"), (16, b"0123456789ABCDEF")):
    _VALUES[_base][list(_digits)] = np.arange(_base, dtype=np.uint8)


def byte_fields(
    buffer: Bytes, starts: Offsets, ends: Offsets, base: int, *, padded: bool = False
) -> tuple[Bytes, Mask]:
    """The bytes of a matrix of fields of one to three decimal or one or two hexadecimal digits; which rows are valid.

    With `padded`, blanks may be before digits.

    >>> text = np.frombuffer(b"7,12,255", np.uint8)
    >>> byte_fields(text, np.array([[0, 2, 5]]), np.array([[1, 4, 8]]), 10)
    (array([[  7,  12, 255]], dtype=uint8), array([ True]))
    """
    widths, values = ends - starts, _VALUES[base]
    value = values[buffer[ends - 1]].astype(np.uint16)
    is_valid = (value < base) & (widths > 0) & (widths <= (2 if base == 16 else 3))
    is_more = np.ones(value.shape, np.bool_)
    for place in range(2, 3 if base == 16 else 4):
        text = buffer[ends - place]
        digit = values[text]
        is_more &= widths >= place
        if padded:
            is_more &= text != ord(" ")
            is_valid &= is_more | (text == ord(" "))
        is_valid &= (digit < base) | ~is_more
        value += np.where(is_more, digit, 0) * np.uint16(base ** (place - 1))
    is_valid &= value < 256
    rows: Mask = np.ones(len(value), np.bool_)
    if not is_valid.all():
        rows &= is_valid.all(axis=1)
    return value.astype(np.uint8), rows
