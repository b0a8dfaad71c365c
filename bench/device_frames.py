"""Frames to handlers on an 8-bit processor: five types and eight subscriptions, in generated C.

Cycles are counted by simavr on an ATmega128RFA1 at 16 MHz, and are the same in every run. Every answer is compared with
what the subscriptions say of the same event in Python.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.simavr import SOURCES, Case, Simulator, Size, compile_firmware, microseconds, size, temporary_folder
from bench.timing import markdown
from genus import Catalog, Event, Subscription
from genus.can import PayloadCodec
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import Question, QuestionKind
from genus.devices import Firmware, generate
from genus_traffic.types import Category, Cleared, ConfidentLoop, Edge, Loop, Occupancy

Codec = Literal["table", "straight"]
TYPES = (Edge, Loop, ConfidentLoop, Cleared, Occupancy)
SUBSCRIPTIONS = {
    "named": "Edge has place",
    "left": "Edge where lane > 1",
    "trucks": "Loop where category = 'truck'",
    "heavy": "Loop where category in ('truck', 'bus') and lane < 3",
    "sure": "ConfidentLoop where confidence >= 0.75",
    "unsure": "ConfidentLoop where confidence < 0.5",
    "cleared": "Cleared where lane = 0",
    "busy": "Occupancy where occupied > 3",
}
NOON = datetime(2026, 11, 15, 12, 30, 15, tzinfo=UTC)
CONTEXT: dict[str, Any] = {"time": NOON, "source": "s4", "place": "N", "deadline": NOON, "expires": NOON}
LOOP: dict[str, Any] = {"lane": 1, "category": Category.TRUCK, "confidence": 0.875}
EVENTS: dict[str, Event] = {
    "2 bytes: `Cleared`, 2 predicates, 1 handler": Cleared(lane=0),
    "8 bytes: `ConfidentLoop`, 5 predicates, 3 handlers": ConfidentLoop(**LOOP),
    "31 bytes: `Cleared`, all context": Cleared(lane=0, **CONTEXT),
    "37 bytes: `ConfidentLoop`, all there is": ConfidentLoop(**CONTEXT, **LOOP),
}
FRAME = 64


@dataclass(frozen=True)
class Device:
    """A generated device, and the subscriptions it has."""

    catalog: Catalog
    subscriptions: Mapping[str, Subscription]
    firmware: Firmware
    answers: tuple[bytes, ...] = ()
    """What the broker says of types that were registered after the code was generated."""

    def payload(self, event: Event) -> tuple[int, bytes]:
        """The event tag and the payload of an event."""
        cls = type(event)
        codec = PayloadCodec.of(cls, self.catalog.vector(cls), tagged=self.catalog.tagged_attributes(cls))
        return self.catalog.etag_of(event), codec.encode(event, 0)[1]

    def matching(self, event: Event) -> int:
        """A bit for each subscription that matches an event, the first in the lowest."""
        answers = enumerate(self.subscriptions.values())
        return sum(1 << number for number, asked in answers if asked.accepts(type(event)) and asked.matches(event))


def make_device(
    codec: Codec,
    types: Iterable[type[Event]] = TYPES,
    texts: Mapping[str, str] = SUBSCRIPTIONS,
    later: Iterable[type[Event]] = (),
) -> Device:
    """C for some subscriptions, given as text; some types are registered when it has been generated."""
    known, catalog = list(types), Catalog()
    catalog.register(*known)
    asked = {name: Subscription.parse(text, known) for name, text in texts.items()}
    firmware = generate(catalog, asked, name="road", codec=codec)
    catalog.register(*later)
    broker = CatalogIndex(catalog)
    questions = (Question(5, 1, QuestionKind.CLASS, catalog.etag(cls)) for cls in later)
    return Device(catalog, asked, firmware, tuple(broker.answer(question) for question in questions))


def build(device: Device, folder: Path, program: str, events: Iterable[Event] = (), flags: Sequence[str] = ()) -> Path:
    """Compiles `bench/avr/PROGRAM.c` with the generated C, in the folder."""
    written = device.firmware.write(folder)
    (folder / "handlers.h").write_text(handlers(device.firmware))
    (folder / "frames.h").write_text(frames([device.payload(event) for event in events], device.answers))
    sources = [file for file in written if file.suffix == ".c"]
    return compile_firmware(folder / f"{program}.elf", [SOURCES / f"{program}.c", *sources], flags)


def handlers(firmware: Firmware) -> str:
    """The handlers of a device: each sets the bit of its subscription."""
    program = firmware._program
    found = (
        HANDLER.format(
            name=program.handler_name(handler, family), struct=f"{program.name}_{family.label}", bit=1 << handler.number
        )
        for handler in program.handlers
        for family in program.families_of(handler)
    )
    return "\n".join(['#include "road.h"\n', "volatile uint8_t called;\n", *found])


HANDLER = """void {name}(const {struct} *event)
{{
    (void)event;
    called = (uint8_t)(called | {bit}U);
}}
"""


def frames(payloads: list[tuple[int, bytes]], answers: Sequence[bytes] = ()) -> str:
    """Event tags and payloads as a table in flash; answers of the broker come first, without an event tag."""
    payloads = [*((0, answer) for answer in answers), *payloads]
    rows = (f"    {{{etag}U, {len(data)}U, {{{', '.join(map(str, data))}}}}}," for etag, data in payloads)
    return "\n".join(
        [
            '#include "handlers.h"\n',
            f"enum {{ FRAMES = {len(payloads)} }};",
            f"typedef struct {{\n    uint16_t etag;\n    uint8_t size;\n    uint8_t payload[{FRAME}];\n}} frame;",
            f"static const frame frames[{max(1, len(payloads))}] GENUS_ROM = {{",
            *rows,
            "};\n",
        ]
    )


def measure(device: Device, simulator: Simulator, folder: Path, events: Iterable[Event]) -> list[Case]:
    """A measurement per answer of the broker and per event.

    AssertionError if an answer is not learnt, or other handlers are called than match an event in Python.
    """
    events = list(events)
    run = simulator.run(build(device, folder, "frames", events))
    expected = [*(1 for _ in device.answers), *map(device.matching, events)]
    if [case.result for case in run.cases] != expected:
        raise AssertionError(f"wrong handlers: {run.cases} instead of {expected}")
    return list(run.cases)


def program_size(device: Device, folder: Path, learning: bool = False) -> Size:
    """The size of the whole program of a device, also with what learns later types."""
    return size(build(device, folder, "program", flags=["-DLEARNING"] if learning else []))


class Contestant(NamedTuple):
    """What one codec costs: times by rows of the table, and whole programs."""

    name: str
    cases: dict[str, Case]
    size: Size
    learning: Size | None = None

    def cells(self) -> dict[str, str]:
        """The column of the table, by rows."""
        cells = {label: f"{microseconds(case.cycles):,.1f} µs" for label, case in self.cases.items()}
        cells |= {"whole program: flash": f"{self.size.flash:,} B"}
        cells |= {"whole program: variables in RAM": f"{self.size.ram:,} B"}
        if self.learning:
            cells |= {"the same with later types: flash": f"{self.learning.flash:,} B"}
            cells |= {"the same with later types: variables in RAM": f"{self.learning.ram:,} B"}
        return cells | {"largest stack of a frame": f"{max(case.stack for case in self.cases.values())} B"}


def table() -> str:
    """Frames to handlers and whole programs, by both codecs."""
    with temporary_folder() as name:
        simulator, folder = Simulator(Path(name)), Path(name)
        found = [_by_table(simulator, folder), _by_straight_code(simulator, folder)]
    columns = [each.cells() for each in found]
    rows = [[label, *(column.get(label, "") for column in columns)] for label in columns[0]]
    return markdown(["frame to handlers", *(each.name for each in found)], rows)


def _by_table(simulator: Simulator, folder: Path) -> Contestant:
    device = make_device("table")
    timed = dict(zip(EVENTS, measure(device, simulator, folder, EVENTS.values()), strict=True))
    timed |= _later(simulator, folder)
    return Contestant("by table", timed, program_size(device, folder), program_size(device, folder, learning=True))


def _later(simulator: Simulator, folder: Path) -> dict[str, Case]:
    """A type that is registered after the code was generated: an event of it, and learning it."""
    known = [cls for cls in TYPES if cls is not ConfidentLoop]
    asked = {name: text for name, text in SUBSCRIPTIONS.items() if "ConfidentLoop" not in text}
    device = make_device("table", known, asked, later=[ConfidentLoop])
    learning, learnt = measure(device, simulator, folder, [ConfidentLoop(**LOOP)])
    return {
        "8 bytes: `ConfidentLoop`, learnt in the field, 3 predicates, 2 handlers": learnt,
        "learning it from the broker's answer": learning,
    }


def _by_straight_code(simulator: Simulator, folder: Path) -> Contestant:
    device = make_device("straight")
    cases = measure(device, simulator, folder, EVENTS.values())
    return Contestant("straight code", dict(zip(EVENTS, cases, strict=True)), program_size(device, folder))


if __name__ == "__main__":
    print(table())
