"""Digits of text, eight characters at a time: a column of 64-bit words is read with a few operations each.

The words are little-endian: the first character is in the lowest byte. How eight decimal digits become a number in
three multiplications is D. Lemire's "Quickly parsing eight digits" (2022).
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
