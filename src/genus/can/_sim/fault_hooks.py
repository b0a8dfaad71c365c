"""Fault-injection hooks of a simulated bus, and how long a frame takes with and without a fault.

A bus calls its fault hooks with each transmission that starts. A hook returns a `FaultEffect`, or None for no effect.
`combine_effects` combines the effects of all hooks to one `TransmissionResult`.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import takewhile
from typing import TypeAlias

import msgspec

from genus.can._wire.frame import Frame
from genus.can._wire.length import ACTIVE_ERROR_BITS, FD_SIZES, SHORTEST_ERROR_BITS, Timing, padded_size

INTERMISSION_BITS = 3
AFTER_ACKNOWLEDGEMENT_BITS = 11
"""Bits of a frame after its acknowledgement slot: delimiter 1, end of frame 7, intermission 3."""


class Transmission(msgspec.Struct, frozen=True, gc=False):
    """A frame that has just won arbitration, as fault hooks get it."""

    frame: Frame
    sender: int
    """The number of the station, which is not always the node number in the identifier."""
    start_ns: int
    bits: int
    """The length of the frame with its intermission, in bit times."""
    attempt: int
    """How often this frame has failed since it was loaded."""
    receivers: tuple[int, ...]
    """The stations whose filters accept the frame."""

    def end_ns(self, timing: Timing) -> int:
        """When the frame ends if no fault occurs."""
        return self.start_ns + timing.bits_ns(self.bits)


class Corrupt(msgspec.Struct, frozen=True, gc=False):
    """An error after this many bits: the frame is cut off, no station receives it, its sender retries."""

    bit: int
    echo: int = 6
    """Bits of error flag added by nodes that detected only the first flag: 0 to 6."""


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit, after the receivers accepted the frame: its sender sends it again."""


class MissedBy(msgspec.Struct, frozen=True, gc=False):
    """An error at the last bit but one, at some stations only: these miss the frame, its sender does not notice."""

    stations: tuple[int, ...]


class Late(msgspec.Struct, frozen=True, gc=False):
    """Receivers get the frame after the next one of the same sender and event tag."""


class FrameOutcome(StrEnum):
    """How a transmission ended; traces contain these texts."""

    SENT = "sent"
    ERROR = "error"
    """Corrupted on the way."""
    COLLISION = "collision"
    """Two stations sent different frames with the same identifier."""
    NOT_ACKNOWLEDGED = "unheard"
    """No other station was on the bus to acknowledge the frame."""
    CUT = "cut"
    """The sender crashed or was detached from the bus while sending."""
    DUPLICATE = "duplicate"
    """Received, and sent again."""
    LATE = "late"
    """Sent, and received after the next frame of the same sender and event tag."""

    @property
    def is_good(self) -> bool:
        """Whether the frame counts as sent at its sender."""
        return self is FrameOutcome.SENT or self is FrameOutcome.LATE


class TransmissionResult(msgspec.Struct, frozen=True):
    """The combined effect of all hooks on one transmission."""

    outcome: FrameOutcome
    bit: int = 0
    echo: int = 6
    missed_by: frozenset[int] = frozenset()

    @property
    def is_delivered(self) -> bool:
        """Whether receivers get the frame."""
        return self.outcome.is_good or self.outcome is FrameOutcome.DUPLICATE


FaultEffect: TypeAlias = Corrupt | Duplicate | MissedBy | Late
FaultHook: TypeAlias = Callable[[Transmission], FaultEffect | None]


def combine_effects(hooks: list[FaultHook], transmission: Transmission) -> TransmissionResult | None:
    """Call all hooks, each of which may use its random generator, and combine their effects; the worst one counts.

    >>> frame = Transmission(Frame(1), 1, 0, 80, 0, (2, 3))
    >>> combine_effects([lambda _: MissedBy((2,)), lambda _: MissedBy((3,)), lambda _: None], frame).missed_by == {2, 3}
    True
    >>> combine_effects([lambda _: Late(), lambda _: Corrupt(20)], frame).outcome
    <FrameOutcome.ERROR: 'error'>
    """
    effects: list[FaultEffect] | None = None
    for hook in hooks:
        effect = hook(transmission)
        if effect is not None:
            effects = [effect] if effects is None else [*effects, effect]
    return None if effects is None else _combine(effects)


def _combine(effects: list[FaultEffect]) -> TransmissionResult:
    errors = [effect for effect in effects if isinstance(effect, Corrupt)]
    if errors:
        first = min(errors, key=lambda error: error.bit)
        return TransmissionResult(FrameOutcome.ERROR, first.bit, first.echo)
    kinds = {type(effect) for effect in effects}
    missed_by = frozenset(station for effect in effects if isinstance(effect, MissedBy) for station in effect.stations)
    late = FrameOutcome.LATE if Late in kinds else FrameOutcome.SENT
    return TransmissionResult(FrameOutcome.DUPLICATE if Duplicate in kinds else late, missed_by=missed_by)


class FrameDurations:
    """How long the frames of a bus take.

    >>> exact, worst = FrameDurations(Timing(500_000), exact=True), FrameDurations(Timing(500_000), exact=False)
    >>> frame = Frame(0x0021_6010, b"hello")
    >>> exact.frame_ns(frame), worst.frame_ns(frame)
    (220000, 260000)
    >>> error = TransmissionResult(FrameOutcome.ERROR, bit=40, echo=6)
    >>> exact.busy_ns(220_000, error), worst.busy_ns(260_000, error)
    (126000, 322000)
    """

    def __init__(self, timing: Timing, *, exact: bool) -> None:
        self.timing = timing
        self.exact = exact
        self.frame_ns: Callable[[Frame], int] = timing.exact_ns if exact else self._longest_ns
        """How long a frame takes with its intermission, in nanoseconds."""

    def _longest_ns(self, frame: Frame) -> int:
        return self.timing.worst_case_ns(len(frame.data), fd=frame.fd, extended=frame.extended)

    def busy_ns(self, frame_ns: int, result: TransmissionResult, *, suspended: bool = False) -> int:
        """Return how long the bus is busy with a frame of this length that ends with this result.

        The longest error includes the suspension of its sender; if the sender is `suspended` the bus is free then.
        """
        if result.outcome.is_good:
            return frame_ns
        if not self.exact:
            return frame_ns + (self.timing.bits_ns(ACTIVE_ERROR_BITS) if suspended else self.timing.error_ns)
        whole = frame_ns - self.timing.bits_ns(INTERMISSION_BITS)
        cut = whole if result.outcome is FrameOutcome.DUPLICATE else min(whole, self.timing.bits_ns(result.bit))
        return cut + self.timing.bits_ns(SHORTEST_ERROR_BITS + result.echo)


def bits_until_difference(frames: Iterable[Frame]) -> int:
    """How many bits, without stuff bits, frames of one identifier have up to and including the first that differs.

    >>> bits_until_difference([Frame(5, b"abc"), Frame(5, b"abd")])
    61
    """
    given = list(frames)
    before = 33 if given[0].extended else 14
    columns = zip(*map(_bits_after_identifier, given), strict=False)
    return before + sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns)) + 1


def _bits_after_identifier(frame: Frame) -> str:
    code = FD_SIZES.index(padded_size(len(frame.data)))
    return f"{frame.fd:b}0{code:04b}" + "".join(f"{byte:08b}" for byte in frame.data)
