"""How long a frame takes the bus, whole or cut off by an error, exactly or at the worst."""

from collections.abc import Iterable
from itertools import takewhile

from genus.can.sim.verdict import Outcome, Ruling
from genus.can.wire.frame import Frame
from genus.can.wire.length import FD_SIZES, SHORTEST_ERROR_BITS, WORST_ERROR_BITS, Timing, padded_size

INTERMISSION_BITS = 3
AFTER_ACKNOWLEDGEMENT_BITS = 11
"""Bits of a frame after its acknowledgement slot: delimiter 1, end of frame 7, intermission 3."""
_KEPT = 1 << 16
"""How many lengths are remembered."""


class Durations:
    """State: the lengths of the frames of a bus, remembered.

    >>> exact, worst = Durations(Timing(500_000), exact=True), Durations(Timing(500_000), exact=False)
    >>> frame = Frame(0x0021_6010, b"hello")
    >>> exact.of(frame), worst.of(frame)
    (220000, 260000)
    >>> error = Ruling(Outcome.ERROR, bit=40, echo=6)
    >>> exact.with_ruling(220_000, error), worst.with_ruling(260_000, error)
    (126000, 322000)
    """

    def __init__(self, timing: Timing, *, exact: bool) -> None:
        self.timing = timing
        self.exact = exact
        self.bit_ns = timing.bit_ns
        self.known: dict[Frame, int] = {}

    def of(self, frame: Frame) -> int:
        """How long a frame takes with its intermission, in nanoseconds."""
        length = self.known.get(frame)
        if length is None:
            if len(self.known) >= _KEPT:
                self.known.clear()
            length = self.known[frame] = self._measure(frame)
        return length

    def _measure(self, frame: Frame) -> int:
        if self.exact:
            return self.timing.exact_ns(frame)
        return self.timing.worst_case_ns(len(frame.data), fd=frame.fd, extended=frame.extended)

    def with_ruling(self, length_ns: int, ruling: Ruling) -> int:
        """How long a frame of this length takes with what befalls it."""
        if ruling.lasts_ns is not None:
            return ruling.lasts_ns
        if ruling.outcome.is_good:
            return length_ns
        if not self.exact:
            return length_ns + WORST_ERROR_BITS * self.bit_ns
        whole = length_ns - INTERMISSION_BITS * self.bit_ns
        cut = whole if ruling.outcome is Outcome.DUPLICATE else min(whole, ruling.bit * self.bit_ns)
        return cut + (SHORTEST_ERROR_BITS + ruling.echo) * self.bit_ns


def bits_until_difference(frames: Iterable[Frame]) -> int:
    """How many bits, without stuff bits, frames of one identifier share, and the first one they do not.

    >>> bits_until_difference([Frame(5, b"abc"), Frame(5, b"abd")])
    61
    """
    shown = list(frames)
    before = 33 if shown[0].extended else 14
    columns = zip(*map(_after_identifier, shown), strict=False)
    return before + sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns)) + 1


def _after_identifier(frame: Frame) -> str:
    code = FD_SIZES.index(padded_size(len(frame.data)))
    return f"{frame.fd:b}0{code:04b}" + "".join(f"{byte:08b}" for byte in frame.data)
