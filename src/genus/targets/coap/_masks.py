"""Presence bits as text in the options of a request."""

import re

_MASK = re.compile(r"[1-9a-f][0-9a-f]{0,252}", re.ASCII)


def format_mask(mask: int) -> str:
    """Presence bits as text: hexadecimal digits; ValueError unless there are some.

    >>> format_mask(36)
    '24'
    """
    if mask < 1:
        raise ValueError(f"presence bits are a positive integer, not {mask}")
    return f"{mask:x}"


def parse_mask(text: str) -> int | None:
    """The presence bits of a text; None if it is malformed.

    >>> parse_mask("24"), parse_mask("024"), parse_mask("2G")
    (36, None, None)
    """
    return int(text, 16) if _MASK.fullmatch(text) else None
