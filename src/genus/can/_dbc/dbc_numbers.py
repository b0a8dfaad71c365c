"""Numbers, names and strings of DBC files as people and tools write them, in the form that the format asks for."""

import re

from genus.can._dbc.dbc_statements import KEYWORDS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\Z")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9A-Fa-f]+|\d+)\Z")
MOST_DIGITS = 5
"""The longest size, in digits, given to cantools, which builds lists of all bits and of all numbers in a range."""
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")
_MOST_DIGITS = 400
"""A longer number is damage, and Python refuses to convert very long ones."""


def is_name(text: str) -> bool:
    """Whether a DBC file may use this as a name."""
    return _NAME.match(text) is not None and text not in KEYWORDS


def decimal(text: str) -> str | None:
    """A number as a DBC file may write it; None if it is none, or not finite.

    >>> [decimal(each) for each in ("1E-3", ".5", "-5.", "1,5", "0x10", "1.#INF", "")]
    ['1E-3', '0.5', '-5.', '1.5', '16', None, None]
    """
    text = text.strip().replace(",", ".", 1)
    if len(text) > _MOST_DIGITS:
        return None
    if _DECIMAL.match(text):
        return re.sub(r"^([-+]?)\.", r"\g<1>0.", text)
    return str(integer(text)) if integer(text) is not None else None


def integer(text: str) -> int | None:
    """A whole number, also hexadecimal or with zeros behind a point; None if it is none.

    >>> [integer(each) for each in ("12", "0x7FF", "-3", "4.0", "4.5", "x")]
    [12, 2047, -3, 4, None, None]
    """
    text = re.sub(r"\.0*\Z", "", text.strip())
    return int(text, 0 if "x" in text.lower() else 10) if _INTEGER.match(text) and len(text) < _MOST_DIGITS else None


def value_ranges(text: str) -> list[tuple[int, int]] | None:
    """The ranges of a multiplexer's values, each with its first and last value; None if one has too many.

    >>> value_ranges("2-2, 529920-529923"), value_ranges("0-100000")
    ([(2, 2), (529920, 529923)], None)
    """
    found = _RANGE.findall(text)
    if any(len(end) > _MOST_DIGITS for pair in found for end in pair):
        return None
    ranges = [(int(low), int(high)) for low, high in found]
    return None if any(high - low >= 10**MOST_DIGITS for low, high in ranges) else ranges


def scale_and_offset(text: str) -> tuple[str, str] | None:
    """The two numbers between the brackets of a signal; None if they cannot be told.

    Some tools write a decimal comma. Then the numbers are those that can be meant: the scale is not 0, and zeros at the
    end of fractions are written in both numbers or in none.

    >>> [scale_and_offset(each) for each in ("0.1,-40", "0,1,0", "0,5,-40,0", "1,2,5", "a,b")]
    [('0.1', '-40'), ('0.1', '0'), ('0.5', '-40.0'), None, None]
    """
    parts = [part.strip() for part in re.split(r"[,;]", text)]
    if len(parts) == 3:
        possible = [(".".join(parts[:2]), parts[2]), (parts[0], ".".join(parts[1:]))]
        found = [pair for pair in map(_pair, possible) if pair and _is_plausible(*pair)]
        return found[0] if len(found) == 1 else None
    half = len(parts) // 2
    return _pair((".".join(parts[:half]), ".".join(parts[half:]))) if len(parts) in (2, 4) else None


def _pair(texts: tuple[str, str]) -> tuple[str, str] | None:
    scale, offset = map(decimal, texts)
    return None if scale is None or offset is None else (scale, offset)


def _is_plausible(scale: str, offset: str) -> bool:
    return float(scale) != 0 and scale.endswith(".0") == offset.endswith(".0")


def quoted(text: str) -> str:
    """A text as a string of a DBC file; a `\\` at its end would escape the quote, and gets a blank after it.

    >>> quoted('5" pipe'), quoted("C:\\\\")
    ('"5\\\\" pipe"', '"C:\\\\ "')
    """
    text = text.replace('\\"', '"').replace('"', '\\"')
    return f'"{text} "' if text.endswith("\\") else f'"{text}"'
