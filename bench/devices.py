"""Generated C on an 8-bit processor: codes, frames to handlers, nanopb on the same message, and growth.

`python -m bench.devices` prints the tables; `--profile` says where the cycles go instead. Cycles are counted by simavr
on an ATmega128RFA1 at 16 MHz, and are the same in every run.
"""

import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import device_codes
from bench.device_frames import EVENTS, LOOP, SUBSCRIPTIONS, TYPES, Codec, make_device, measure, program_size
from bench.device_nanopb import Nanopb
from bench.simavr import Case, MissingTool, Simulator, Size, functions, microseconds, temporary_folder
from bench.timing import markdown
from genus import Event, UInt8
from genus_traffic.types import ConfidentLoop

CODECS: tuple[Codec, ...] = ("table", "straight")
GROWTH = (5, 20, 100)
OPTIONAL: Any = UInt8 | None


def codes_table() -> str:
    """Subtype tests and equality."""
    return device_codes.table()


class Contestant(NamedTuple):
    """What one way of decoding costs: times by rows of the table, and whole programs."""

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


def frames_tables() -> tuple[str, str]:
    """Frames to handlers and whole programs, by both codecs and by nanopb; and the ratios to nanopb."""
    with temporary_folder() as name:
        simulator, folder = Simulator(Path(name)), Path(name)
        found = [_by_table(simulator, folder), _by_straight_code(simulator, folder)]
        try:
            theirs = _by_nanopb(simulator, folder)
        except MissingTool as problem:
            return _frames_table(found), f"(no nanopb: {problem})"
    return _frames_table([*found, theirs]), _ratio_table(found, theirs)


def _frames_table(found: Sequence[Contestant]) -> str:
    columns = [each.cells() for each in found]
    rows = [[label, *(column.get(label, "") for column in columns)] for label in columns[0]]
    return markdown(["frame to handlers", *(each.name for each in found)], rows)


def _ratio_table(found: Sequence[Contestant], theirs: Contestant) -> str:
    frame = list(EVENTS)[1]
    rows = [
        [
            each.name,
            f"{theirs.cases[frame].cycles / each.cases[frame].cycles:.1f} ×",
            f"{each.size.flash / theirs.size.flash:.0%}",
        ]
        for each in found
    ]
    return markdown(["8-byte frame against nanopb", "faster", "flash"], rows)


def _by_table(simulator: Simulator, folder: Path) -> Contestant:
    device = make_device("table")
    cases, _ = measure(device, simulator, folder, EVENTS.values())
    timed = dict(zip(EVENTS, cases, strict=True)) | _later(simulator, folder)
    return Contestant("by table", timed, program_size(device, folder), program_size(device, folder, learning=True))


def _later(simulator: Simulator, folder: Path) -> dict[str, Case]:
    """A type that is registered after the code was generated: an event of it, and learning it."""
    known = [cls for cls in TYPES if cls is not ConfidentLoop]
    asked = {name: text for name, text in SUBSCRIPTIONS.items() if "ConfidentLoop" not in text}
    device = make_device("table", known, asked, later=[ConfidentLoop])
    (learning, learnt), _ = measure(device, simulator, folder, [ConfidentLoop(**LOOP)])
    return {
        "8 bytes: `ConfidentLoop`, learnt in the field, 3 predicates, 2 handlers": learnt,
        "learning it from the broker's answer": learning,
    }


def _by_straight_code(simulator: Simulator, folder: Path) -> Contestant:
    device = make_device("straight")
    cases, _ = measure(device, simulator, folder, EVENTS.values())
    return Contestant("straight code", dict(zip(EVENTS, cases, strict=True)), program_size(device, folder))


def _by_nanopb(simulator: Simulator, folder: Path) -> Contestant:
    nanopb, labels = Nanopb(folder), list(EVENTS)
    cases = dict(zip((labels[1], labels[3]), nanopb.measure(simulator), strict=True))
    return Contestant("nanopb, decoding alone", cases, nanopb.program_size())


def growth_table() -> str:
    """Flash, RAM and time by number of types, with eight subscriptions."""
    head = ["types", *(f"{codec}: {what}" for codec in CODECS for what in ("flash", "RAM", "first type", "last type"))]
    with temporary_folder() as name:
        simulator = Simulator(Path(name))
        rows = [[str(count), *_growth_cells(count, simulator, Path(name))] for count in GROWTH]
    return markdown(head, rows)


def _growth_cells(count: int, simulator: Simulator, folder: Path) -> Iterator[str]:
    classes = growing_types(count)
    events = [cls(level=3, spread=7) for cls in (classes[0], classes[-1])]
    for codec in CODECS:
        device = make_device(codec, classes, growing_subscriptions(classes))
        cases, _ = measure(device, simulator, folder, events)
        found = program_size(device, folder)
        yield from (f"{found.flash:,} B", f"{found.ram} B", *(_time(case) for case in cases))


def growing_types(count: int) -> list[Any]:
    """A family of so many types, four below each; one in five has an attribute of its own."""
    root: dict[str, Any] = {"__annotations__": {"level": UInt8, "spread": OPTIONAL}, "spread": None}
    made = [_event_type(f"Grown{count}At0", Event, root)]
    for number in range(1, count):
        own: dict[str, Any] = {}
        if number % 5 == 4:
            own = {"__annotations__": {f"extra{number}": OPTIONAL}, f"extra{number}": None}
        made.append(_event_type(f"Grown{count}At{number}", made[(number - 1) // 4], own))
    return made


def _event_type(name: str, base: Any, members: dict[str, Any]) -> Any:
    return types.new_class(name, (base,), exec_body=lambda body: body.update(members, __module__=__name__))


def growing_subscriptions(classes: list[Any]) -> dict[str, str]:
    """Eight subscriptions to the family, of which all are tested for its root."""
    root = classes[0].__name__
    levels = {f"above_{level}": f"{root} where level > {level}" for level in range(4)}
    spreads = {f"spread_{level}": f"{root} where spread < {level}" for level in range(6, 9)}
    return {**levels, **spreads, "both": f"{root} where level = 3 and spread = 7"}


def profile() -> str:
    """Cycles by function of the frames in the table, by both codecs."""
    parts = []
    with temporary_folder() as name:
        folder = Path(name)
        simulator = Simulator(folder)
        for codec in CODECS:
            _, run = measure(make_device(codec), simulator, folder, EVENTS.values(), profile=True)
            lines = functions(folder / "frames.elf", run.profile)
            parts.append(markdown([codec, "cycles"], [[function, f"{cycles:,}"] for function, cycles in lines]))
    return "\n\n".join(parts)


def tables() -> dict[str, str]:
    """The parts for docs/benchmarks.md; where a tool is missing, which one."""
    try:
        return {"device_frames": frames_tables()[0]}
    except MissingTool as problem:
        return {"device_frames": f"({problem})"}


def _time(case: Case) -> str:
    return f"{microseconds(case.cycles):,.1f} µs"


def main() -> None:
    try:
        if "--profile" in sys.argv[1:]:
            print(profile())
        else:
            print(codes_table(), *frames_tables(), growth_table(), sep="\n\n")
    except MissingTool as problem:
        sys.exit(f"bench.devices: {problem}")


if __name__ == "__main__":
    main()
