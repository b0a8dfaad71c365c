"""What can befall a frame on the bus: a judge sees each transmission begin, and may give a verdict on it."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import takewhile
from typing import TypeAlias

import msgspec

from genus.can._wire.frame import Frame
from genus.can._wire.length import FD_SIZES, SHORTEST_ERROR_BITS, WORST_ERROR_BITS, Timing, padded_size


class Transmission(msgspec.Struct, frozen=True, gc=False):
    """A frame that has just won the bus, as judges see it."""

    frame: Frame
    sender: int
    """The number of the station, which is not always the node number in the identifier."""
    start_ns: int
    bits: int
    """Its whole length, in bit times."""
    attempt: int
    """How often this frame failed since it was loaded."""
    hearers: tuple[int, ...]
    """The stations whose filters it passes."""

    def end_ns(self, bit_ns: int) -> int:
        """When it ends, if nothing befalls it."""
        return self.start_ns + self.bits * bit_ns


class Corrupt(msgspec.Struct, frozen=True, gc=False):
    """An error after so many bits: the frame is cut off, nobody has it, its sender tries again."""

    bit: int
    echo: int = 6
    """Bits of error flag that nodes add which saw only the first flag: 0 to 6."""


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit, after the receivers took the frame: its sender sends it again."""


class Deaf(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit but one, at some stations only: these miss the frame, its sender does not know."""

    stations: tuple[int, ...]


class Late(msgspec.Struct, frozen=True, gc=False):
    """Receivers get the frame after the next one of the same sender and event tag."""


class Outcome(StrEnum):
    """How a frame's time on the bus ended."""

    SENT = "sent"
    ERROR = "error"
    """Corrupted on the way."""
    COLLISION = "collision"
    """Two stations sent different frames under one identifier."""
    UNHEARD = "unheard"
    """No other station was there to acknowledge it."""
    CUT = "cut"
    """Its sender died, or was parted from the bus."""
    DUPLICATE = "duplicate"
    """Received, and sent again."""
    LATE = "late"
    """Sent, and received after the next one of its sender and event tag."""

    @property
    def is_good(self) -> bool:
        """Whether the sender takes it for sent."""
        return self is Outcome.SENT or self is Outcome.LATE


class Ruling(msgspec.Struct, frozen=True):
    """What all verdicts on one transmission come to; a judge that replays a trace knows it already."""

    outcome: Outcome
    bit: int = 0
    echo: int = 6
    deaf: frozenset[int] = frozenset()
    lasts_ns: int | None = None
    """How long the bus is taken, if that does not follow from the rest."""

    @property
    def is_delivered(self) -> bool:
        """Whether receivers get the frame."""
        return self.outcome.is_good or self.outcome is Outcome.DUPLICATE


Verdict: TypeAlias = Corrupt | Duplicate | Deaf | Late | Ruling
Judge: TypeAlias = Callable[[Transmission], Verdict | None]


def rule(judges: list[Judge], transmission: Transmission) -> Ruling | None:
    """Ask all judges, each of which may draw lots, and join what they say; the worst of it counts.

    >>> seen = Transmission(Frame(1), 1, 0, 80, 0, (2, 3))
    >>> rule([lambda seen: Deaf((2,)), lambda seen: Deaf((3,)), lambda seen: None], seen).deaf == {2, 3}
    True
    >>> rule([lambda seen: Late(), lambda seen: Corrupt(20)], seen).outcome
    <Outcome.ERROR: 'error'>
    """
    found: list[Verdict] | None = None
    for judge in judges:
        verdict = judge(transmission)
        if verdict is not None:
            found = [verdict] if found is None else [*found, verdict]
    return None if found is None else _join(found)


def _join(verdicts: list[Verdict]) -> Ruling:
    for verdict in verdicts:
        if isinstance(verdict, Ruling):
            return verdict
    errors = [verdict for verdict in verdicts if isinstance(verdict, Corrupt)]
    if errors:
        first = min(errors, key=lambda error: error.bit)
        return Ruling(Outcome.ERROR, first.bit, first.echo)
    kinds = {type(verdict) for verdict in verdicts}
    deaf = frozenset(station for verdict in verdicts if isinstance(verdict, Deaf) for station in verdict.stations)
    return Ruling(
        Outcome.DUPLICATE if Duplicate in kinds else Outcome.LATE if Late in kinds else Outcome.SENT, deaf=deaf
    )


# How long a frame takes the bus, whole or cut off by an error, exactly or at the worst.


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
