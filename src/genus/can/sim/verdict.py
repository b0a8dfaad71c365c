"""What can befall a frame on the bus: a judge sees each transmission begin, and may give a verdict on it."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from genus.can.wire.frame import Frame


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
