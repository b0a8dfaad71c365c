"""The order of messages in the protocols between nodes and broker."""

from typing import NamedTuple

from docs.pictures.pen import Pen

_TOP, _STEP = 74, 30


class Said(NamedTuple):
    """A frame from one to another, by their places from the left."""

    sender: int
    receiver: int
    text: str


class Note(NamedTuple):
    """What happens meanwhile at one of them."""

    at: int
    text: str


def number() -> Pen:
    """How nodes get numbers, two that begin together."""
    return _draw(
        "Two nodes without numbers ask at once; the broker finds their uids nibble by nibble, one after the other",
        ("node, uid 3A…", "node, uid 3B…", "broker"),
        (
            Said(0, 2, "RSI stage 15, nibble 3"),
            Note(1, "the same frame, at the same time"),
            Said(2, 0, "SSI prefix 3, stage 15"),
            Said(0, 2, "RSI stage 14, nibble A: wins"),
            Note(1, "takes its nibble B back"),
            Said(2, 0, "SSI prefix 3A, stage 14"),
            Note(1, "does not fit: waits"),
            Note(0, "stages 13 to 1"),
            Said(0, 2, "RSI stage 0"),
            Note(2, "tables written"),
            Said(2, 0, "SSI uid 3A…, number 7"),
            Said(0, 2, "CLAIM 7, uid 3A…"),
            Said(1, 2, "RSI stage 15, nibble 3 …"),
        ),
    )


def binding() -> Pen:
    """How a publisher and a subscriber get the event tag of a type."""
    return _draw(
        "A publisher asks for the event tag of Loop and announces its class; a subscriber asks and gets both",
        ("publisher 5", "broker", "subscriber 9"),
        (
            Said(0, 1, "GET_ETAG Loop"),
            Said(1, 0, "SUPPLY to 5: 8208, no class yet"),
            Said(0, 1, "ANNOUNCE 8208, soft, 20 ms"),
            Note(1, "first announcement: kept"),
            Said(2, 1, "GET_ETAG Loop"),
            Said(1, 2, "SUPPLY to 9: 8208, soft"),
        ),
    )


def roll_call() -> Pen:
    """How a broker that becomes active finds the nodes on the bus."""
    return _draw(
        "A broker makes two roll calls, receives the claims of all nodes, and only then grants numbers",
        ("broker", "all nodes with a number"),
        (
            Said(0, 1, "BROKER, roll call"),
            Said(1, 0, "CLAIM, each within 10 ms"),
            Note(0, "12 ms after the frame went out"),
            Said(0, 1, "BROKER, roll call"),
            Said(1, 0, "CLAIM"),
            Note(0, "12 ms"),
            Said(0, 1, "SSI zeros: nodes without a number may begin"),
        ),
    )


def _draw(title: str, names: tuple[str, ...], steps: tuple[Said | Note, ...]) -> Pen:
    pen = Pen(760, _TOP + _STEP * len(steps) + 10, title)
    places = [150 + 460 * number / (len(names) - 1) for number in range(len(names))]
    for x, name in zip(places, names, strict=True):
        pen.path(f"M{x:g} 50V{pen.height - 14}", style="dashed")
        pen.box(x - 88, 16, 176, 32, "purple" if name == "broker" else "blue")
        pen.words(x, 37, name, "small strong", at="middle")
    for number, step in enumerate(steps):
        _step(pen, places, _TOP + _STEP * number, step, names.index("broker"))
    return pen


def _step(pen: Pen, places: list[float], y: float, step: Said | Note, broker: int) -> None:
    if isinstance(step, Note):
        pen.words(places[step.at] + 8, y + 4, step.text, "tiny faint")
        return
    start, end = places[step.sender], places[step.receiver]
    pen.path(
        f"M{start:g} {y}H{end + (-3 if end > start else 3):g}",
        "purple" if step.sender == broker else "blue",
        arrow=True,
    )
    pen.words(min(start, end) + 12, y - 7, step.text, "code tiny")
