"""Which lane of a timeline a frame belongs to, and a timeline as text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from genus.can.sim.band import Band
from genus.can.sim.trace import Passage, Trace

LanesBy: TypeAlias = Literal["node", "band"]
Slot: TypeAlias = tuple[int, int, str]
"""Start, end and label of a slot, in nanoseconds."""

_LETTERS = {Band.HARD: "H", Band.SOFT: "S", Band.SYSTEM: "m", Band.NONE: "n"}
_IDLE, _ERROR, _SLOT, _MARK = "·", "x", "=", "^"
_UNITS = ((10_000_000_000, "s", 1e9), (10_000_000, "ms", 1e6), (0, "µs", 1e3))


class Mark(msgspec.Struct, frozen=True):
    """An instant to mark, such as a deadline: in the lane of one station, or across all."""

    at_ns: int
    label: str = ""
    node: int | None = None


class Lane(msgspec.Struct, frozen=True):
    """A line of a timeline, with the frames on it."""

    label: str
    passages: tuple[Passage, ...]
    node: int | None = None


def lanes_of(trace: Trace, by: LanesBy = "node", names: Mapping[int, str] | None = None) -> list[Lane]:
    """The whole bus, and then a lane for each station that sent or each band; stations may have names."""
    every = Lane("bus", tuple(trace))
    if by == "band":
        return [every, *(_lane(band, [each for each in trace if each.band is band]) for band in trace.by_band())]
    names = names or {}
    stations = sorted({number for each in trace for number in each.senders})
    return [every, *(_station(number, names.get(number, f"node {number}"), trace) for number in stations)]


def _station(number: int, label: str, trace: Trace) -> Lane:
    return Lane(label, tuple(each for each in trace if number in each.senders), number)


def _lane(label: str, passages: Iterable[Passage]) -> Lane:
    return Lane(label, tuple(passages))


def span_of(trace: Trace, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
    """What is to be shown: what was asked for, or from the first start to the last end."""
    start = trace.first_ns if start_ns is None else start_ns
    return start, max(trace.span_ns if end_ns is None else end_ns, start + 1)


def time_unit(span_ns: int) -> tuple[str, float]:
    """The unit to show a span in, and its nanoseconds.

    >>> time_unit(5_000_000), time_unit(60_000_000)
    (('µs', 1000.0), ('ms', 1000000.0))
    """
    return next((name, ns) for least, name, ns in _UNITS if span_ns >= least)


def timeline_text(
    trace: Trace,
    *,
    width: int = 100,
    by: LanesBy = "node",
    slots: Sequence[Slot] = (),
    marks: Sequence[Mark] = (),
    start_ns: int | None = None,
    end_ns: int | None = None,
    names: Mapping[int, str] | None = None,
) -> str:
    """A timeline for a terminal: `H` hard, `S` soft, `m` the middleware's own, `n` none real time, `x` errors.

    >>> from genus.can.sim.verdict import Outcome
    >>> from genus.can.wire.frame import Frame
    >>> trace = Trace()
    >>> trace.record(0, 200_000, Frame(7 << 14), (7,), Outcome.SENT, (8,))
    >>> trace.record(300_000, 400_000, Frame(254 << 21 | 8 << 14), (8,), Outcome.ERROR, ())
    >>> print(timeline_text(trace, width=20, slots=[(0, 250_000, "a")], marks=[Mark(350_000, node=8)]))
    slots   =============·······
    bus     HHHHHHHHHH·····xxxxx
    node 7  HHHHHHHHHH··········
    node 8  ···············xx^xx
            0             400 µs
    """
    start, end = span_of(trace, start_ns, end_ns)
    ruler = _Ruler(start, end, width)
    lanes = lanes_of(trace.between(start, end), by, names)
    rows = {"slots": ruler.row([(start, stop, _SLOT) for start, stop, _ in slots])} if slots else {}
    for lane in lanes:
        row = ruler.row([(each.start_ns, each.end_ns, _letter(each)) for each in lane.passages])
        wanted = [mark.at_ns for mark in marks if mark.node == lane.node]
        rows[lane.label] = ruler.marked(row, wanted)
    room = max(map(len, rows))
    return "\n".join([*(f"{label:<{room}}  {row}" for label, row in rows.items()), " " * (room + 2) + ruler.axis()])


def _letter(passage: Passage) -> str:
    return _LETTERS[passage.band] if passage.outcome.is_good else _ERROR


class _Ruler(msgspec.Struct, frozen=True):
    """A span of time in columns of characters."""

    start_ns: int
    end_ns: int
    width: int

    def column(self, at_ns: int) -> int:
        return (at_ns - self.start_ns) * self.width // (self.end_ns - self.start_ns)

    def row(self, pieces: Iterable[tuple[int, int, str]]) -> str:
        cells = [_IDLE] * self.width
        for start, end, letter in pieces:
            first = max(self.column(start), 0)
            last = min(max(self.column(end - 1), first), self.width - 1)
            for column in range(first, last + 1):
                if cells[column] != _ERROR:
                    cells[column] = letter
        return "".join(cells)

    def marked(self, row: str, instants: Iterable[int]) -> str:
        cells = list(row)
        for instant in instants:
            if 0 <= (column := self.column(instant)) < self.width:
                cells[column] = _MARK
        return "".join(cells)

    def axis(self) -> str:
        unit, ns = time_unit(self.end_ns - self.start_ns)
        left, right = f"{self.start_ns / ns:g}", f"{self.end_ns / ns:g} {unit}"
        return left + right.rjust(max(self.width - len(left), len(right) + 1))
