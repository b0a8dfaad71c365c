"""CAN identifiers as system files write them."""

from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK
from genus.errors import PlanError


def parse_identifiers(text: str) -> tuple[int, int, bool]:
    """The first and last identifier of `0x100` or `0x100-0x1FF`, and whether they have 29 bits.

    Identifiers are hexadecimal. As in logs, those of up to three digits have 11 bits, and those of more have 29.
    PlanError if it is none.

    >>> parse_identifiers("0x100-0x1FF"), parse_identifiers("18FEF100")
    ((256, 511, False), (419361024, 419361024, True))
    """
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        low, long = _parse_identifier(first)
        high, also_long = _parse_identifier(last) if dash else (low, long)
    except ValueError:
        raise PlanError(
            f"{text!r} is no identifier; write for example '0x100', '0x18FEF100' or '0x100-0x1FF'"
        ) from None
    if long != also_long or high < low or high > (ID_MASK if long else STANDARD_ID_MASK):
        raise PlanError(f"{text!r} is no range of identifiers of 11 bits (up to 0x7FF) or of 29 (up to 0x1FFFFFFF)")
    return low, high, long


def _parse_identifier(text: str) -> tuple[int, bool]:
    digits = text.lower().removeprefix("0x")
    return int(digits, 16), len(digits) > 3
