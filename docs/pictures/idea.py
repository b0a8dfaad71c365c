"""The idea: one subscription on many targets, and its three tests."""

from docs.pictures.pen import Pen
from docs.pictures.road import AGREED, truck_with_place
from genus import Event, Subscription, this
from genus.targets import arrow, can, python, spark
from genus_traffic.types import Category, Cleared, ConfidentLoop, Loop, Occupancy

ANSWER = (
    "An event matches on all of these targets, or on none. A target that cannot test a part",
    "lets the event through and leaves that part to the receiver: too much at times, never too little.",
)


def one_subscription() -> Pen:
    """A subscription, and what its three parts become for every target."""
    pen = Pen(760, 470, "One subscription, compiled for every target, with the same result everywhere")
    _subscription(pen, 380, 54)
    pen.path("M380 72V96", arrow=True)
    pen.box(12, 100, 736, 258, style="dashed")
    for number, (name, tests) in enumerate(_targets()):
        _target(pen, 24 + number % 2 * 362, 112 + number // 2 * 122, name, tests)
    pen.path("M380 360V378", "green", arrow=True)
    pen.box(12, 382, 736, 76, "green")
    pen.words(380, 406, "One answer", "strong green", at="middle")
    pen.lines(380, 427, ANSWER, "small", at="middle", step=18)
    return pen


def _subscription(pen: Pen, x: float, y: float) -> None:
    parts = (("Loop", "blue strong"), (" has place", "orange strong"), (" where category == 'truck'", "green strong"))
    pen.box(x - 220, y - 40, 440, 58)
    pen.pieces(x, y + 4, parts, "code big", at="middle")
    for at, text, colour in ((x - 183, "it is", "blue"), (x - 106, "it has", "orange"), (x + 70, "it says", "green")):
        pen.words(at, y - 19, text, f"tiny {colour}", at="middle")


def _targets() -> list[tuple[str, tuple[str, str, str]]]:
    wanted = truck_with_place()
    return [
        ("In your process: generated code", _generated(wanted)),
        ("In a CAN controller: an acceptance filter", _filter(wanted)),
        ("Over recorded columns: a mask (Arrow)", _explained(arrow.compile(wanted).explain())),
        ("Over years of events: Parquet files on Spark", _explained(spark.compile(wanted).explain())),
    ]


def _generated(wanted: Subscription) -> tuple[str, str, str]:
    explained = python.compile(wanted).explain()
    is_there, _, says = explained.splitlines()[-1].strip().removeprefix("return ").split(" and ")
    return "one table look-up by class", is_there, says


def _filter(wanted: Subscription) -> tuple[str, str, str]:
    (pair,) = can.compile(wanted, AGREED).pairs
    (block,) = AGREED.filters(Loop)
    return _bits(pair.value, block.mask), f"{_bits(pair.value, pair.mask & ~block.mask)}", "left to the receiver"


def _explained(text: str) -> tuple[str, str, str]:
    """What a target says of type, attributes and contents, without the notes behind."""
    is_, has, says = (line.split(": ", 1)[1] for line in text.splitlines()[1:4])
    return is_.split(";")[0], has, says.split(", on the rows")[0]


def _bits(value: int, mask: int) -> str:
    return "".join("-" if not mask >> bit & 1 else str(value >> bit & 1) for bit in range(13, -1, -1))


def _target(pen: Pen, x: float, y: float, name: str, tests: tuple[str, str, str]) -> None:
    pen.box(x, y, 350, 112)
    pen.words(x + 16, y + 28, name, "strong small")
    for number, (test, colour) in enumerate(zip(tests, ("blue", "orange", "green"), strict=True)):
        pen.dot(x + 22, y + 48 + 22 * number, colour, 4)
        pen.words(x + 36, y + 52 + 22 * number, test, f"code {colour}")


EVENTS: tuple[tuple[str, Event], ...] = (
    ("a heartbeat", Occupancy(occupied=1, beat=7)),
    ("a truck left the loop", Cleared(lane=1, place="A8")),
    ("a lower loop", Loop(lane=1)),
    ("a car over an upper loop", Loop(lane=1, place="A8", category=Category.CAR)),
    ("a truck over an upper loop", Loop(lane=2, place="A8", category=Category.TRUCK)),
    ("a truck, a newer sensor", ConfidentLoop(lane=1, place="A8", category=Category.TRUCK, confidence=0.5)),
)
STAGES = (
    ("is", "blue", "Loop", "once per class", Subscription(Loop)),
    ("has", "orange", "has place", "bits & mask", Subscription(Loop, has="place")),
    (
        "says",
        "green",
        "category == 'truck'",
        "compiled code",
        Subscription(Loop, where=this.category == Category.TRUCK),
    ),
)
_STAGE_X, _STAGE_STEP = 372, 124


def sieves() -> Pen:
    """Events pass the three tests, cheapest first; each rejects some."""
    pen = Pen(760, 330, "Six events pass three tests: is it a Loop, does it have a place, is it a truck; two match")
    for number, (name, colour, question, cost, _) in enumerate(STAGES):
        x = _STAGE_X + number * _STAGE_STEP
        pen.box(x - 9, 66, 18, 236, colour)
        pen.words(x, 24, name, f"big strong {colour}", at="middle")
        pen.words(x, 42, question, "code tiny", at="middle")
        pen.words(x, 58, cost, "tiny faint", at="middle")
    for number, (label, event) in enumerate(EVENTS):
        _meets(pen, 86 + number * 39, label, event)
    return pen


def _meets(pen: Pen, y: float, label: str, event: Event) -> None:
    pen.words(20, y, label, "small strong")
    pen.words(20, y + 15, f"{type(event).__name__}{_carried(event)}", "code tiny faint")
    stopped = next((number for number, stage in enumerate(STAGES) if not stage[-1].matches(event)), None)
    colour = "green" if stopped is None else "grey"
    end = 708 if stopped is None else _STAGE_X + stopped * _STAGE_STEP - 11
    pen.path(f"M320 {y}H{end}", colour, arrow=stopped is None)
    if stopped is None:
        pen.words(718, y + 4, "✓", "strong green")
    else:
        pen.path(f"M{end - 4} {y - 5}L{end + 4} {y + 5}M{end + 4} {y - 5}L{end - 4} {y + 5}", "red", style="thick")


def _carried(event: Event) -> str:
    names = [name for name in ("lane", "place", "category", "confidence") if getattr(event, name, None) is not None]
    return f"({', '.join(names)})"
