"""Bounds of time and bit rates as text for display, and bit rates read from text."""

import re
from decimal import Decimal

_TIME_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
_BITRATE_UNITS = {"M": 1_000_000, "k": 1_000, "": 1}
_BITRATE = re.compile(r"(\d[\d_]{0,20}(?:\.\d{0,20})?)\s*([kKM]?)\s*(?:(?:bit|b)(?:/s|ps)|bit|Bd)?")


def format_bound(bound_ns: int | None) -> str:
    """Return a bound of time for display: three decimals at most, rounded up; `—` for None.

    `genus.model.format_span` gives a length of time exactly, as files have it.

    >>> format_bound(1_234_567), format_bound(20_000_000), format_bound(None)
    ('1.235 ms', '20 ms', '—')
    """
    if bound_ns is None:
        return "—"
    unit, scale = next((unit, scale) for unit, scale in _TIME_UNITS if abs(bound_ns) >= scale or scale == 1)
    thousandths = -(-bound_ns * 1000 // scale)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def read_bitrate(text: str) -> int:
    """Bits per second of a text such as `500k` or `83.333 kbit/s`, rounded; ValueError if it is none.

    >>> read_bitrate("500k"), read_bitrate("0.25 Mbit/s"), read_bitrate("125000"), read_bitrate("83.333k")
    (500000, 250000, 125000, 83333)
    """
    found = _BITRATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no bit rate; write bits per second, such as 500k, 1Mbit/s or 83333")
    number, unit = found.groups()
    return round(Decimal(number.replace("_", "")) * _BITRATE_UNITS["k" if unit == "K" else unit])


def format_bitrate(bitrate: int) -> str:
    """Bits per second for display.

    >>> format_bitrate(1_000_000), format_bitrate(500_000), format_bitrate(83_333)
    ('1 Mbit/s', '500 kbit/s', '83.333 kbit/s')
    """
    unit = "M" if bitrate >= _BITRATE_UNITS["M"] else "k"
    return f"{bitrate / _BITRATE_UNITS[unit]:g} {unit}bit/s"
