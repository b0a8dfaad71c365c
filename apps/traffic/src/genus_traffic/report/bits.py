"""Identifiers and event tags, drawn bit by bit: what must be 1, what must be 0, and what may be either."""

from collections.abc import Iterator

from genus_traffic.report.markup import Markup, element

MEANINGS = (("one", "bit must be 1"), ("zero", "must be 0"), ("any", "may be either"))
"""For legends: the class of a bit, and what it says."""
_CELL = 14
_GAP = 8


def strip(value: int, mask: int, fields: tuple[tuple[str, int], ...], *, named: bool = True) -> Markup:
    """Bits from the highest to the lowest, in named fields of so many bits each."""
    width = sum(bits for _, bits in fields) * _CELL + (len(fields) - 1) * _GAP
    top = 14 if named else 0
    return element(
        "svg",
        *_cells(value, mask, fields, top),
        *(_names(fields) if named else ()),
        width=width,
        height=top + 20,
        class_="bits",
        role="img",
        aria_label=spelled(value, mask, sum(bits for _, bits in fields)),
    )


def spelled(value: int, mask: int, bits: int) -> str:
    """The same as text.

    >>> spelled(0b1010, 0b1110, 4)
    '101-'
    """
    return "".join(_digit(value, mask, bit) for bit in reversed(range(bits)))


def _digit(value: int, mask: int, bit: int) -> str:
    return "-" if not mask >> bit & 1 else str(value >> bit & 1)


def _cells(value: int, mask: int, fields: tuple[tuple[str, int], ...], top: int) -> Iterator[Markup]:
    x, bit = 0, sum(bits for _, bits in fields)
    for _, bits in fields:
        for _ in range(bits):
            bit -= 1
            yield from _cell(x, top, _digit(value, mask, bit))
            x += _CELL
        x += _GAP


def _cell(x: int, top: int, digit: str) -> Iterator[Markup]:
    class_ = {"1": "one", "0": "zero", "-": "any"}[digit]
    yield element("rect", x=x + 0.5, y=top + 0.5, width=_CELL - 1, height=19, rx=2, class_=class_)
    yield element("text", "·" if digit == "-" else digit, x=x + _CELL // 2, y=top + 14, class_=class_)


def _names(fields: tuple[tuple[str, int], ...]) -> Iterator[Markup]:
    x = 0
    for name, bits in fields:
        yield element("text", name, x=x, y=9, class_="field")
        x += bits * _CELL + _GAP
