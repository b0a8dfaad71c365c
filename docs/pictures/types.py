"""Types as codes and event tags, and attributes as bits."""

from docs.pictures.pen import Pen
from docs.pictures.road import AGREED
from genus_traffic.types import Cleared, ConfidentLoop, Edge, Loop, Occupancy, Setting

TREE: tuple[tuple[type | str, int, int, str | None], ...] = (
    ("Event", 150, 70, None),
    ("Roadside", 300, 70, None),
    (Edge, 80, 150, "Event"),
    (Occupancy, 195, 150, "Event"),
    (Setting, 305, 150, "Event"),
    (Loop, 60, 230, "Edge"),
    (Cleared, 190, 230, "Edge"),
    (ConfidentLoop, 90, 310, "Loop"),
)
_HIGH = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def family() -> Pen:
    """Left the tree with its prime products, right the same types as blocks of event tags."""
    pen = Pen(760, 390, "The types of a road with their prime codes, and their event tags as blocks within blocks")
    pen.words(20, 30, "Codes: below means divisible", "strong")
    pen.words(400, 30, "Event tags: below means within", "strong")
    places = {_name(item): (x, y) for item, x, y, _ in TREE}
    for _, x, y, parent in TREE:
        if parent:
            from_x, from_y = places[parent]
            pen.path(f"M{from_x} {from_y + 16}C{from_x} {from_y + 45} {x} {y - 45} {x} {y - 18}")
    for x in (80, 195, 305):
        pen.path(f"M300 86C300 110 {x + 8} 110 {x + 8} 132", "purple", style="dashed")
    for item, x, y, _ in TREE:
        _type(pen, item, x, y)
    pen.lines(20, 362, ("48 % 24 == 0: a ConfidentLoop is a Loop.", "132 % 24 != 0: a Cleared is none."), "small")
    _blocks(pen)
    return pen


def _name(item: type | str) -> str:
    return item if isinstance(item, str) else item.__name__


def _type(pen: Pen, item: type | str, x: float, y: float) -> None:
    name = _name(item)
    kind = name == "Roadside"
    code = AGREED.code(name)
    label = f"{code} = {_product(code)}" if code > 3 else str(code)
    width = 16 + max(7.4 * len(name), 5.8 * len(label))
    pen.box(x - width / 2, y - 17, width, 34, "purple" if kind else "blue", style="dashed" if kind else "")
    pen.words(x, y - 2, name, "small strong", at="middle")
    pen.words(x, y + 12, label, "tiny", at="middle")


def _product(code: int) -> str:
    parts = []
    prime = 2
    while code > 1:
        power = 0
        while code % prime == 0:
            code, power = code // prime, power + 1
        if power:
            parts.append(f"{prime}{_HIGH[power] if power > 1 else ''}")
        prime += 1
    return "·".join(parts)


def _blocks(pen: Pen) -> None:
    boxes = (
        ("Event", 400, 48, 340, 290),
        (Setting, 416, 86, 308, 30),
        (Occupancy, 416, 122, 308, 30),
        (Edge, 416, 158, 308, 170),
        (Cleared, 432, 192, 276, 30),
        (Loop, 432, 230, 276, 86),
        (ConfidentLoop, 448, 268, 244, 36),
    )
    for item, x, y, width, height in boxes:
        pen.box(x, y, width, height, "blue" if y < 158 else "orange")
        pen.words(x + 10, y + 20, _name(item), "small strong")
        pen.words(x + width - 10, y + 20, _pattern(_name(item)), "code tiny", at="end")
    note = (
        "The last bit of an Edge's event tag says that it has a place:",
        "one filter tests the type and the attribute.",
    )
    pen.lines(400, 362, note, "small")


def _pattern(name: str) -> str:
    (block,) = AGREED.filters(name)
    bits = range(13, -1, -1)
    return "".join("-" if not block.mask >> bit & 1 else str(block.value >> bit & 1) for bit in bits)


ROWS: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("upper loop", Loop, ("time", "place", "lane", "category")),
    ("lower loop", Loop, ("time", "lane")),
    ("a newer upper loop", ConfidentLoop, ("time", "place", "lane", "category", "confidence")),
)
WANTED = ("time", "place", "category")


def vector() -> Pen:
    """The bits of a family's vector, three events as presence bits, and a subscription as a mask."""
    pen = Pen(
        760, 290, "Three events as presence bits over the family's vector, and a subscription as a mask over them"
    )
    names = [attribute.name for attribute in AGREED.vector(Loop)]
    for number, name in enumerate(names):
        x = 190 + 58 * number
        pen.words(x + 22, 38, name, "tiny" + (" strong orange" if name in WANTED else ""), at="middle")
        pen.words(x + 22, 22, f"bit {number}", "tiny faint", at="middle")
    for row, (label, kind, present) in enumerate(ROWS):
        y = 52 + 46 * row
        pen.words(20, y + 15, label, "small strong")
        pen.words(20, y + 30, kind.__name__, "code tiny faint")
        _bits(pen, y, [name in present for name in names], [name in WANTED for name in names])
        fits = set(WANTED) <= set(present)
        pen.words(662, y + 23, "✓ delivered" if fits else "✗ no place", f"small strong {'green' if fits else 'red'}")
    pen.path("M20 198H740", style="dashed")
    pen.words(20, 225, "has time,", "small strong")
    pen.words(20, 241, "place, category", "small strong")
    _bits(pen, 210, [name in WANTED for name in names], [name in WANTED for name in names])
    pen.words(662, 233, "the mask", "small orange")
    pen.words(
        20,
        275,
        "bits & mask == mask: all of the mask must be present. New attributes get new bits at the end.",
        "small",
    )
    return pen


def _bits(pen: Pen, y: float, present: list[bool], wanted: list[bool]) -> None:
    for number, (there, asked) in enumerate(zip(present, wanted, strict=True)):
        x = 190 + 58 * number
        pen.box(x, y, 44, 34, "orange" if asked else "grey", style="" if there else "dashed")
        pen.words(x + 22, y + 22, "1" if there else "0", "code strong" if there else "code faint", at="middle")
