"""Where the analysis of soft events is pessimistic: systems near full load, with each term of the bound left out.

`python -m bench.admission` plans 102 random systems whose load is from 70 to 95 % with all failures that hard slots
allow, and whose soft deadlines are longer than a hard slot and a few frames. Without a term the bound is not safe: its
row says how many systems that term refuses. The last row is a search for the worst case (tests/can/worst_case.py):
where it finds a deadline that is missed, no analysis can admit the system.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from statistics import median

import msgspec

from genus.can._plan.admission import candidate_placements, plan
from genus.can._plan.calendar import Calendar, Slot
from genus.can._plan.interference import HardInterference, Message
from genus.can._plan.response_times import ResponseTimes, SoftAnalysis
from genus.can._plan.system import System
from tests.can.random_systems import random_system
from tests.can.worst_case import find_worst_case

SYSTEMS = 102
LOADS = (0.7, 0.95)
SEARCH_RUNS = 200
SEARCH = f"all: no deadline missed in {SEARCH_RUNS} runs of the search"
WORKERS = 3
SPARE_FRAMES = 4
"""How many of the longest frames a soft deadline of a heavy system leaves besides a hard slot and its own event."""


@cache
def heavy_system(seed: int) -> System:
    """A random system near full load, the same for the same seed."""
    load = random.Random(f"heavy {seed}").uniform(*LOADS)
    for attempt in range(seed * 1000, seed * 1000 + 1000):
        others = plan(random_system(attempt, load=0.1), with_advice=False).load.worst - 0.1
        if others < load - 0.1:
            system = random_system(attempt, load=load - others)
            if _has_possible_deadlines(system):
                return system
    raise AssertionError(f"no system for seed {seed}")


def _has_possible_deadlines(system: System) -> bool:
    hard = max((Slot.of(channel, system.bus).busy_ns for channel in system.hard), default=0)
    frames = SPARE_FRAMES * max(channel.frame_ns for channel in system.channels)
    return all((channel.deadline_ns or 0) >= hard + frames + channel.event_ns for channel in system.soft)


class _Unchained(SoftAnalysis):
    """The analysis without chains of events that pass each other."""

    def _chains(self, index: int) -> Iterator[tuple[int, int]]:
        yield 0, 0


def _analysis(system: System, calendar: Calendar) -> SoftAnalysis:
    return ResponseTimes(system, calendar)._soft


def _with(**changes: object) -> "Variant":
    def change(system: System, calendar: Calendar) -> SoftAnalysis:
        found = _analysis(system, calendar)
        return SoftAnalysis(found.messages, msgspec.structs.replace(found.conditions, **changes))

    return change


def _unchained(system: System, calendar: Calendar) -> SoftAnalysis:
    found = _analysis(system, calendar)
    return _Unchained(found.messages, found.conditions)


def _exact_priorities(system: System, calendar: Calendar) -> SoftAnalysis:
    found = _analysis(system, calendar)
    return SoftAnalysis(found.messages, msgspec.structs.replace(found.conditions, tolerance=0))


def _exact_clocks(system: System, calendar: Calendar) -> SoftAnalysis:
    return _analysis(system.on_bus(msgspec.structs.replace(system.bus, precision_ns=0)), calendar)


def _hard_without_failures(system: System, calendar: Calendar) -> SoftAnalysis:
    found = _analysis(system, calendar)
    starts = [(start, slot.used_ns) for start, slot in calendar.starts_in_cycle()]
    hard = HardInterference(starts, calendar.cycle_ns, system.bus.precision_ns)
    return SoftAnalysis(found.messages, msgspec.structs.replace(found.conditions, hard=hard))


def _punctual(system: System, calendar: Calendar) -> SoftAnalysis:
    found = _analysis(system, calendar)
    return SoftAnalysis([msgspec.structs.replace(each, jitter=0) for each in found.messages], found.conditions)


def _unstuffed(system: System, calendar: Calendar) -> SoftAnalysis:
    """Frames without stuff bits: of 80 + 10 n bits, 67 + 8 n remain."""
    found, bit_ns = _analysis(system, calendar), system.bus.timing.bit_ns
    messages = [_shorter(message, bit_ns) for message in found.messages]
    return SoftAnalysis(messages, found.conditions)


def _shorter(message: Message, bit_ns: float) -> Message:
    sizes = [round((time / bit_ns - 80) / 10) for time in message.frames]
    return msgspec.structs.replace(message, frames=tuple(round((67 + 8 * size) * bit_ns) for size in sizes))


Variant = Callable[[System, Calendar], SoftAnalysis]
VARIANTS: dict[str, Variant] = {
    "nothing": _analysis,
    "chains of events that pass each other within a level": _unchained,
    "levels: priorities of exact deadlines, and no chains": _exact_priorities,
    "precision of clocks": _exact_clocks,
    "the frame on the wire, and one that passes after it": _with(blocking=0),
    "failures of hard frames": _hard_without_failures,
    "hard slots": _with(hard=HardInterference((), 0)),
    "jitter": _punctual,
    "stuff bits of soft frames": _unstuffed,
}


def _responses(analysis: SoftAnalysis) -> list[int | None]:
    return [analysis.response_time(index) for index in range(len(analysis.messages))]


class Measured(msgspec.Struct):
    """What was found for one system: by row, whether it is admitted, and the shares of the bound that are left."""

    admitted: dict[str, bool] = {}
    shares: dict[str, list[float]] = {}


def measure(seed: int) -> Measured:
    """Plan a system without each term, and search for its worst case."""
    system, found = heavy_system(seed), Measured()
    calendars = [placement.calendar for placement in candidate_placements(system) if not placement.left]
    bounds = _responses(_analysis(system, calendars[0]))
    for name, variant in VARIANTS.items():
        for calendar in calendars:
            analysis = variant(system, calendar)
            responses = _responses(analysis)
            kept = zip(responses, analysis.messages, strict=True)
            found.admitted[name] = all(response and response <= message.deadline for response, message in kept)
            if calendar is calendars[0]:
                pairs = zip(responses, bounds, strict=True)
                found.shares[name] = [response / bound for response, bound in pairs if response and bound]
            if found.admitted[name]:
                break
    worst = find_worst_case(system, calendars[0], seed, SEARCH_RUNS)
    found.admitted[SEARCH] = not worst.is_missed
    reached = (worst.responses.get(channel.name, 0) for channel in system.soft)
    found.shares[SEARCH] = [response / bound for response, bound in zip(reached, bounds, strict=True) if bound]
    return found


def table(count: int = SYSTEMS) -> str:
    """A row for each term that is left out."""
    with ProcessPoolExecutor(WORKERS) as pool:
        measured = list(pool.map(measure, range(count)))
    lines = [f"| left out of the bound | admitted of {count} | median share of the bound |", "|---|---|---|"]
    for name in (*VARIANTS, SEARCH):
        admitted = sum(found.admitted[name] for found in measured)
        share = median(share for found in measured for share in found.shares[name])
        lines.append(f"| {name} | {admitted} | {share:.0%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
