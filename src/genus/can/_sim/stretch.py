"""Choosing the stretch of a trace that a picture shows: where much happens, and not only what happens all the time."""

from collections import Counter
from collections.abc import Iterable

from genus.can._sim.trace import Passage, Trace, TrafficClass

PARTS = 4
"""A stretch begins at a multiple of its length divided by this."""
ENOUGH = 4
"""So many frames of a kind show it; more do not count."""
_WEIGHTS: dict[str, int] = {TrafficClass.HARD: 2, TrafficClass.SOFT: 2, TrafficClass.SYSTEM: 1, TrafficClass.NONE: 1}
_FAULT_WEIGHT = 3
_INSTANT_WEIGHT = 4


def choose_stretch(
    trace: Trace, begin_ns: int, end_ns: int, length_ns: int, instants: Iterable[int] = ()
) -> tuple[int, int]:
    """The stretch of a length between two times that shows the most; the first of several that are equal.

    Every class of traffic counts, every kind of fault of a frame counts more, and `instants` of special interest most:
    the first time that something happened. The whole span if it is not longer.

    >>> from genus.can._sim.fault_hooks import FrameOutcome
    >>> from genus.can._wire.frame import Frame
    >>> trace = Trace()
    >>> for at, outcome in ((0, FrameOutcome.SENT), (700, FrameOutcome.ERROR), (900, FrameOutcome.SENT)):
    ...     trace.record(at, at + 50, Frame(7 << 14), (7,), outcome, (8,))
    >>> choose_stretch(trace, 0, 1000, 400), choose_stretch(trace, 0, 300, 400)
    ((600, 1000), (0, 300))
    """
    if end_ns - begin_ns <= length_ns:
        return begin_ns, end_ns
    part_ns = max(1, length_ns // PARTS)
    parts: dict[int, Counter[str]] = {}
    for passage in trace.between(begin_ns, end_ns):
        parts.setdefault((passage.start_ns - begin_ns) // part_ns, Counter()).update(_kinds(passage))
    for instant in instants:
        if begin_ns <= instant < end_ns:
            parts.setdefault((instant - begin_ns) // part_ns, Counter())["instant"] += 1
    starts = range((end_ns - begin_ns - length_ns) // part_ns + 1)
    best = max(starts, key=lambda start: (_score(parts, start), -start), default=0)
    first_ns = begin_ns + best * part_ns
    return first_ns, first_ns + length_ns


def _kinds(passage: Passage) -> Iterable[str]:
    if passage.missed_by:
        yield "missed"
    yield passage.traffic_class if passage.outcome.is_good else passage.outcome


def _score(parts: dict[int, Counter[str]], start: int) -> float:
    counts: Counter[str] = Counter()
    for part in range(start, start + PARTS):
        counts.update(parts.get(part, {}))
    instants = counts.pop("instant", 0)
    shown = sum(_WEIGHTS.get(kind, _FAULT_WEIGHT) * min(count, ENOUGH) / ENOUGH for kind, count in counts.items())
    return shown + _INSTANT_WEIGHT * instants
