"""Times and bit rates as text: exact in system files, rounded for display."""

import re
from decimal import Decimal

from genus.model import nanoseconds

TIME_UNITS = tuple((nanoseconds(f"1{unit}"), unit) for unit in ("s", "ms", "us", "ns"))
"""The units of time with their lengths in nanoseconds, the longest first."""
_BITRATE_UNITS = {"M": 1_000_000, "k": 1_000, "": 1}
_BITRATE = re.compile(r"(\d[\d_]{0,20}(?:\.\d{0,20})?)\s*([kKM]?)\s*(?:(?:bit|b)(?:/s|ps)|bit|Bd)?")


def write_span(span_ns: int) -> str:
    """A length of time as a system file has it, exact.

    >>> write_span(562_000), write_span(1_234_567), write_span(20_000_000), write_span(0)
    ('562us', '1.234567ms', '20ms', '0ns')
    """
    scale, unit = _unit_of(span_ns)
    whole, rest = divmod(abs(span_ns), scale)
    digits = str(rest).zfill(len(str(scale)) - 1).rstrip("0") if rest else ""
    return f"{'-' if span_ns < 0 else ''}{whole}{'.' if digits else ''}{digits}{unit}"


def format_span(span_ns: int | None) -> str:
    """A length of time for display: three decimals at most, rounded up, because it is a bound; `—` for None.

    >>> format_span(1_234_567), format_span(20_000_000), format_span(None)
    ('1.235 ms', '20 ms', '—')
    """
    if span_ns is None:
        return "—"
    scale, unit = _unit_of(span_ns)
    thousandths = -(-span_ns * 1000 // scale)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def _unit_of(span_ns: int) -> tuple[int, str]:
    """The longest unit that a length of time is not shorter than."""
    return next((scale, unit) for scale, unit in TIME_UNITS if abs(span_ns) >= scale or scale == 1)


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
