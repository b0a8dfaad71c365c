"""What is on a CAN bus: identifiers and filters, and three classes of channels."""

from docs.pictures.pen import Pen
from docs.pictures.road import AGREED, truck_with_place
from genus.can import Identifier
from genus.targets import can
from genus_traffic.types import Loop

_BIT, _LEFT = 22, 82


def identifier() -> Pen:
    """An identifier of 29 bits, field by field, and the acceptance filter of a subscription under it."""
    pen = Pen(
        760,
        220,
        "A CAN identifier: 8 bits of priority, 7 of node, 14 of event tag; a filter tests some bits of the event tag",
    )
    etag = AGREED.etag_of(Loop(lane=2, place="A8"))
    packed = Identifier(priority=9, node=5, etag=etag).pack()
    fields = (
        (28, 8, "priority: class and urgency", "red"),
        (20, 7, "node: who", "grey"),
        (13, 14, "event tag: type", "blue"),
    )
    for high, width, name, colour in fields:
        x = _x(high)
        pen.words(x + width * _BIT / 2, 34, name, f"small strong {colour}", at="middle")
        _cells(pen, 46, high, [str(packed >> bit & 1) for bit in range(high, high - width, -1)], colour)
    (pair,) = can.compile(truck_with_place(), AGREED).pairs
    bits = ["-" if not pair.mask >> bit & 1 else str(pair.value >> bit & 1) for bit in range(13, -1, -1)]
    _cells(pen, 112, 13, bits, "orange")
    pen.words(_x(13) - 12, 131, "filter of  Loop has place", "small strong orange", at="end")
    pen.path(f"M{_x(13)} 152V158H{_x(3)}V152", "blue")
    pen.words((_x(13) + _x(3)) / 2, 174, "a Loop, or below", "small blue", at="middle")
    pen.path(f"M{_x(0) + 2} 152V158H{_x(0) + 18}V152", "orange")
    pen.words(_x(0) + 22, 174, "with a place", "small orange", at="end")
    pen.words(
        20,
        204,
        "The controller compares in hardware: rejected frames do not interrupt the processor.",
        "tiny faint",
    )
    return pen


def _x(bit: int) -> float:
    return _LEFT + (28 - bit) * _BIT


def _cells(pen: Pen, y: float, high: int, bits: list[str], colour: str) -> None:
    for number, bit in enumerate(bits):
        x = _x(high - number)
        pen.box(x, y, _BIT - 2, 30, "grey" if bit == "-" else colour)
        pen.words(x + _BIT / 2 - 1, y + 20, bit, "code", at="middle")


FRAMES = (
    (40, 46, "red"),
    (92, 40, "blue"),
    (138, 46, "blue"),
    (190, 70, "grey"),
    (270, 46, "red"),
    (322, 46, "blue"),
    (374, 70, "grey"),
    (450, 70, "grey"),
    (530, 46, "red"),
    (582, 46, "blue"),
)


WAITS = ((8, 92, 200), (60, 138, 300), (290, 322, 420), (500, 582, 628))


def channels() -> Pen:
    """One bus, three promises: slots, deadlines, and what is left."""
    pen = Pen(
        760,
        330,
        "Three classes of channels on one bus: hard events in slots, soft ones by deadline, others in what is left",
    )
    _row(pen, 62, "hard", "red", "in its slot, delivered at its end")
    _row(pen, 132, "soft", "blue", "earliest deadline first")
    _row(pen, 202, "none", "grey", "when the bus is free")
    for start in (40, 270, 530):
        x = 110 + start
        pen.box(x - 8, 50, 96, 34, "red", style="dashed")
        pen.path(f"M{x + 88} 44V90", "red", style="thick")
        pen.words(x + 88, 40, "delivered", "tiny red", at="end")
    for number, (published, sent, deadline) in enumerate(WAITS):
        y = 128 + 17 * (number % 2)
        pen.dot(110 + published, y, "blue", 4)
        pen.path(f"M{110 + published} {y}H{108 + sent}", "blue", arrow=True)
        pen.path(f"M{110 + deadline} {y - 8}V{y + 8}", "blue", style="thick")
    pen.words(318, 132, "deadline", "tiny blue")
    pen.path("M116 207H298", style="dashed", arrow=True)
    pen.path("M330 207H482", style="dashed", arrow=True)
    pen.words(20, 281, "the bus", "small strong")
    pen.path("M110 296H740")
    for start, width, colour in FRAMES:
        pen.box(110 + start, 258, width, 38, colour)
    pen.words(740, 316, "time →", "tiny faint", at="end")
    pen.words(110, 316, "Other classes use the unused part of a slot at once.", "tiny faint")
    return pen


def _row(pen: Pen, y: float, name: str, colour: str, promise: str) -> None:
    pen.words(20, y + 6, name, f"strong {colour}")
    pen.words(110, y + 42, promise, "tiny faint")
    pen.path(f"M110 {y + 29}H740", style="dashed")
