"""SYNC and FOLLOW_UP: their bytes, and how the ones heard of a node are paired to samples of two clocks."""

import msgspec

from genus.can.protocol.reckoning import PPB, Assumptions, Sample
from genus.can.wire.frame import Frame
from genus.can.wire.identifier import UNCONFIGURED_NODE, Identifier, Priority, ProtocolTag

SYNC_LENGTH, FOLLOW_UP_LENGTH = 2, 8
ERA_SHIFT = 56
_LOW_MASK = (1 << ERA_SHIFT) - 1
SILENT_SYNCS = 3
"""A node that sends SYNC without FOLLOW_UP so often does not lead."""


def sync_frame(node: int, sequence: int, time: int) -> Frame:
    """SYNC: its number, and the leading 8 of the 64 bits of global time.

    >>> sync_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c008, 0711)
    """
    return _frame(ProtocolTag.SYNC, node, bytes((sequence, era_of(time))))


def follow_up_frame(node: int, sequence: int, time: int) -> Frame:
    """FOLLOW_UP: the number of its SYNC, and the other 56 bits of global time when that had ended.

    >>> follow_up_frame(3, 7, 0x1122_3344_5566_7788)
    Frame(0x1f60c009, 0722334455667788)
    """
    return _frame(ProtocolTag.FOLLOW_UP, node, bytes((sequence,)) + (time & _LOW_MASK).to_bytes(7, "big"))


def _frame(tag: ProtocolTag, node: int, data: bytes) -> Frame:
    return Frame(Identifier(Priority.SYSTEM, node, tag).pack(), data)


def era_of(time: int) -> int:
    """The leading 8 of 64 bits; they change every 834 days."""
    return time >> ERA_SHIFT & 0xFF


def well_formed(frame: Frame) -> bool:
    """Whether a frame of one of the two tags has the length, the priority and the kind of sender it must have."""
    length = SYNC_LENGTH if frame.etag == ProtocolTag.SYNC else FOLLOW_UP_LENGTH
    genuine = frame.extended and frame.priority == Priority.SYSTEM and frame.node != UNCONFIGURED_NODE
    return genuine and len(frame.data) == length


class _Sync(msgspec.Struct, frozen=True):
    """A SYNC that was heard at a local reading; None if it came twice, for nobody knows which one is meant."""

    sequence: int
    era: int
    local: int | None


class Leader:
    """What was heard of a node that leads, or would like to."""

    def __init__(self) -> None:
        self.heard_at = 0
        self.chain: list[Sample] = []
        """Its last samples, which fit each other but not what else is known."""
        self._sync: _Sync | None = None
        self._paired: int | None = None
        self._unpaired = 0

    @property
    def silent(self) -> bool:
        """Whether it tells no time, though it says that it would."""
        return self._unpaired > SILENT_SYNCS

    def hear_sync(self, frame: Frame, now: int) -> str | None:
        """Note when a SYNC ended; returns what is wrong with it."""
        sequence, era = frame.data
        if sequence == self._paired:
            return "duplicate"
        twice = self._sync is not None and self._sync.sequence == sequence
        self._sync = _Sync(sequence, era, None if twice else now)
        self._unpaired += not twice
        self.heard_at = now
        return "duplicate" if twice else None

    def pair(self, frame: Frame, now: int, patience_ns: int) -> Sample | None:
        """The sample that a FOLLOW_UP makes of the SYNC before it, if that is the one it follows."""
        sync, self._sync = self._sync, None
        if sync is None or sync.local is None or sync.sequence != frame.data[0] or now - sync.local > patience_ns:
            return None
        self._paired, self._unpaired = sync.sequence, 0
        return Sample(sync.local, int.from_bytes(bytes((sync.era,)) + frame.data[1:], "big", signed=True))

    def link(self, sample: Sample, assumptions: Assumptions, patience_ns: int) -> None:
        """Add a sample to the chain; one that does not fit the last begins another."""
        if self.chain and not _fit(self.chain[-1], sample, assumptions, patience_ns):
            self.chain.clear()
        self.chain.append(sample)


def _fit(first: Sample, second: Sample, assumptions: Assumptions, patience_ns: int) -> bool:
    span = second.local - first.local
    parted = abs(second.global_ - first.global_ - span)
    return 0 < span <= patience_ns and parted <= 2 * assumptions.sample_ns + span * assumptions.apart_ppb // PPB
