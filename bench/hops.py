"""The way of one event: the functions of Genus that handle it between publishing and the handler, or a row.

Each case is brought to its steady state by some events; the next one is followed by `sys.setprofile`, in all threads. A
hop is a function of `src/genus`, or one that Genus generated, that has the event in some form as an argument, variable
or result: the event, its payload, a queue entry, a frame, a line of text, or columns with its row. Functions that
only read the clock, set timers or hold locks are no hops. Comprehensions belong to the function around them. What a
world counts for `outcome()` is left out.

`python -m bench.hops [CASE ...]` prints the tables of docs/architecture.md: files in the order of first calls, with
what their docstrings say; with `--functions` also the functions, and how many calls there were; with `--write` it
writes the tables into the page.
"""

import ast
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from genus import Catalog, Event, Soft, UInt8, open_bus, record
from genus.can import Frame, World
from genus.can._machine import Call, Load
from genus.can._node.tx_queue import OutgoingEvent

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "genus"
PAGE = ROOT / "docs" / "architecture.md"
GENERATED = "generated code"
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"}
STATISTICS = {"observation.py", "tracker.py"}
IN_COLUMNS = {"TextBlock", "LogBlock", "FrameColumns", "DecodedFrames", "Columns", "BlockRun", "DecodedPackets"}
LINE = b" can0 100#"


class Hop(NamedTuple):
    """A function on the way."""

    file: str
    function: str


class Follower:
    """State: the functions that were entered, in order, those of them that had the event, and all calls."""

    def __init__(self) -> None:
        self.active = False
        self.entered: dict[CodeType, None] = {}
        self.having: set[CodeType] = set()
        self.calls: Counter[CodeType] = Counter()

    def profile(self, frame: FrameType, what: str, result: object) -> None:
        if not self.active or what not in ("call", "return"):
            return
        if what == "call":
            self.calls[frame.f_code] += 1
        if _counts_only(frame):
            return
        self.entered.setdefault(frame.f_code)
        if frame.f_code not in self.having:
            values = [*frame.f_locals.values(), result]
            if any(map(has_event, values)):
                self.having.add(frame.f_code)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow an event in this thread, and in threads that were started by code of the same case."""
        self.active = True
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.active = False

    def way(self) -> "Way":
        """The way, in the order of first calls."""
        hops = [hop for code in self.entered if code in self.having and (hop := hop_of(code))]
        called = [(hop.file, times) for code, times in self.calls.items() if (hop := hop_of(code))]
        return Way(hops, sum(times for _, times in called), len({file for file, _ in called} - {GENERATED}))


class Way(NamedTuple):
    """The way of an event: functions that had it, and how many calls there were meanwhile, in how many files."""

    hops: list[Hop]
    calls: int
    files: int


def hop_of(code: CodeType) -> Hop | None:
    if code.co_name in COMPREHENSIONS:
        return None
    if code.co_filename.startswith("<genus"):
        return Hop(GENERATED, code.co_qualname)
    path = Path(code.co_filename)
    return Hop(path.relative_to(SOURCE).as_posix(), code.co_qualname) if path.is_relative_to(SOURCE) else None


def _counts_only(frame: FrameType | None) -> bool:
    """Whether a call belongs to the statistics of a world."""
    while frame is not None:
        code = frame.f_code
        if "_world" in code.co_filename and Path(code.co_filename).name in STATISTICS:
            return True
        frame = frame.f_back
    return False


def has_event(value: object) -> bool:
    """Whether a value is the event in some form, or a short sequence with one."""
    if isinstance(value, Event | Frame | OutgoingEvent | Load | Call | pa.RecordBatch | pa.Table):
        return True
    if isinstance(value, bytes | bytearray | memoryview):
        return 0 < len(value) <= 8 or LINE in bytes(value)
    if isinstance(value, tuple | list) and type(value).__name__ not in IN_COLUMNS:
        return 0 < len(value) < 9 and any(map(has_event, value))
    return type(value).__name__ in IN_COLUMNS


# -- the cases ---------------------------------------------------------------------------------------------------------


class Loop(Event):
    lane: UInt8


def in_process(follower: Follower) -> None:
    with open_bus("local:") as bus:
        loops = bus.collection(Loop)
        loops.subscribe(lambda event: None, where="lane > 1")
        for _ in range(3):
            loops.publish(Loop(lane=2))
        event = Loop(lane=2)
        with follower.following():
            loops.publish(event)


def in_the_simulator(follower: Follower) -> None:
    handled: list[Event] = []
    with World("hops", catalog=[Loop], clocks="perfect", trace=False) as world:
        sensor, logger = open_bus("sim:hops?name=sensor"), open_bus("sim:hops?name=logger")
        logger.collection(Loop).subscribe(handled.append, where="lane > 1")
        loops = sensor.channel(Loop, Soft(deadline="10ms"))
        loops.announce()
        for _ in range(3):
            loops.publish(Loop(lane=2))
            world.run("20ms")
        event = Loop(lane=2)
        with follower.following():
            loops.publish(event)
            world.run_ns(1_000_000)
    assert len(handled) == 4


def on_a_live_bus(follower: Follower) -> None:
    handled: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "catalog.json"
        Catalog.update(file, Loop)
        address = f"can:virtual?channel=hops&catalog={file}&synchronised=no&number="
        with open_bus(address + "1") as sensor, open_bus(address + "2") as logger:
            logger.collection(Loop).subscribe(handled.append, where="lane > 1")
            loops = sensor.channel(Loop, Soft(deadline="100ms"))
            loops.announce()
            for _ in range(3):
                loops.publish(Loop(lane=2))
                time.sleep(0.05)
            event = Loop(lane=2)
            with follower.following():
                loops.publish(event)
                time.sleep(0.05)
    assert len(handled) == 4


class HereSession:
    """A Spark session that runs the tasks of an ingest in this process, where they can be followed."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def range(self, _start: int, end: int, _step: int, _partitions: int) -> Any:
        numbers = pa.record_batch({"id": pa.array(range(end), pa.int64())})

        def collect(work: Callable[[Any], Iterator[pa.RecordBatch]]) -> list[tuple[object, ...]]:
            return [tuple(row.values()) for batch in work(iter([numbers])) for row in batch.to_pylist()]

        return SimpleNamespace(mapInArrow=lambda work, _: SimpleNamespace(collect=lambda: collect(work)))


DBC = """VERSION ""
BS_:
BU_: ECU
BO_ 256 Engine: 8 ECU
 SG_ rpm : 0|16@1+ (0.25,0) [0|0] "rpm" X
"""


def from_a_candump_line(follower: Follower) -> None:
    def write(folder: Path, number: int) -> Path:
        log = folder / f"{number}.log"
        log.write_bytes(b"(170000000%d.000000)" % number + LINE + b"1122334455667788\n")
        return log

    def types(folder: Path) -> dict[str, Path]:
        dbc = folder / "engine.dbc"
        dbc.write_text(DBC)
        return {"dbc": dbc}

    _ingest(follower, write, types)


def from_a_recording(follower: Follower) -> None:
    def write(folder: Path, number: int) -> Path:
        file = folder / f"{number}.genus"
        with open_bus("local:") as bus, record(bus, file):
            bus.publish(Loop(lane=number, time=datetime.now(UTC)))
        return file

    _ingest(follower, write, lambda _: {})


def _ingest(follower: Follower, write: Callable[[Path, int], Path], options: Callable[[Path], dict[str, Path]]) -> None:
    """Ingest three files of one event each; the last one is followed."""
    from genus.lake import Lake, local_session

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = Lake.create(HereSession(local_session("local[1]")), folder / "lake")  # type: ignore[arg-type]
        lake.register(Loop)
        given: Any = options(folder)
        for number in range(3):
            file = write(folder, number)
            with follower.following() if number == 2 else nullcontext():
                lake.ingest(file, **given)


CASES: dict[str, Callable[[Follower], None]] = {
    "in process": in_process,
    "simulator": in_the_simulator,
    "live": on_a_live_bus,
    "recording": from_a_recording,
    "candump": from_a_candump_line,
}
QUICK = ("in process", "simulator")
"""The cases that take little time and are the same at every run."""


def follow(case: str) -> Way:
    """The way of one event in its steady state."""
    follower = Follower()
    threading.setprofile(follower.profile)
    try:
        CASES[case](follower)
    finally:
        threading.setprofile(None)
    return follower.way()


def table(way: Way) -> str:
    """The way as a Markdown table: files in the order of first calls."""
    files = dict.fromkeys(hop.file for hop in way.hops)
    rows = [f"| {file if file == GENERATED else f'`{file}`'} | {purpose(file)} |" for file in files]
    return "\n".join(["| file | what it is for |", "|---|---|", *rows])


def purpose(file: str) -> str:
    """What the docstring of a module says first, up to a semicolon or full stop, or to a colon after some words."""
    if file == GENERATED:
        return "tests, encodes or decodes: made for the type and its subscriptions"
    text = " ".join((ast.get_docstring(ast.parse((SOURCE / file).read_text())) or "").split())
    sentence = re.split(r"[;.](?:\s|$)", text)[0].replace("|", "\\|")
    before, _, _ = sentence.partition(": ")
    return before if len(before) > 24 else sentence


def functions(way: Way) -> str:
    """The functions by file, and how long the way is."""
    lines = [f"{hop.file}: {hop.function.replace('.<locals>', '')}" for hop in way.hops]
    files = len({hop.file for hop in way.hops} - {GENERATED})
    count = f"{len(way.hops)} functions in {files} files; {way.calls:,} calls in {way.files} files"
    return "\n".join([*lines, count])


def in_page(page: str, case: str, made: str) -> str:
    """The page with the table of one case replaced."""
    before, begin, rest = page.partition(f"<!-- hops: {case} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert begin, f"{PAGE} has no table for {case}"
    assert end, f"the table for {case} does not end"
    return f"{before}{begin}\n{made}\n\n{end}{after}"


def main(*arguments: str) -> None:
    page = PAGE.read_text()
    for case in [each for each in CASES if each in arguments] or CASES:
        way = follow(case)
        made = table(way)
        print(f"{case}\n\n{made}\n")
        if "--functions" in arguments:
            print(f"{functions(way)}\n")
        page = in_page(page, case, made)
    if "--write" in arguments:
        PAGE.write_text(page)


if __name__ == "__main__":
    main(*sys.argv[1:])
