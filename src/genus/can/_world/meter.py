"""What a scenario measures on the bus: the load of each class, errors, and the end of every event's last frame."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from genus.can._sim.fault_hooks import Outcome
from genus.can._sim.trace import Band, Header, Trace
from genus.can._wire.frame import ETAG_MASK, NODE_MASK, Frame
from genus.can._world.flow import Flow

FLOW_MASK = NODE_MASK | ETAG_MASK
"""The part of an identifier that names a channel."""

BusTime: TypeAlias = Callable[[int], int]
"""The bus's time, as some station has it, at an instant of virtual time."""


class Meter(Trace):
    """State: a trace that measures, and remembers frames only if asked to."""

    def __init__(self, flows: Mapping[int, tuple[Flow, BusTime]], header: Header, *, keeps: bool) -> None:
        super().__init__(header)
        self._flows = flows
        self._keeps = keeps
        self.begins_ns = 1 << 62
        """What is on the bus before is not counted."""
        self.frames: Counter[Band] = Counter()
        self.errors: Counter[Band] = Counter()
        self.busy_ns: Counter[Band] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.unheard: Counter[Band] = Counter()
        """Receivers that missed a frame."""

    def record(
        self,
        start_ns: int,
        end_ns: int,
        frame: Frame,
        senders: tuple[int, ...],
        outcome: Outcome,
        heard: tuple[int, ...],
        missed: tuple[int, ...] = (),
        segment: int = 0,
    ) -> None:
        """A frame took the bus, well or not."""
        if self._keeps:
            super().record(start_ns, end_ns, frame, senders, outcome, heard, missed, segment)
        if outcome is Outcome.SENT:
            flow = self._flows.get(frame.id & FLOW_MASK)
            if flow is not None:
                flow[0].frame_went(frame.data, start_ns, end_ns, flow[1])
        if start_ns >= self.begins_ns:
            self._count(Band.of(frame.id), end_ns - start_ns, outcome, len(missed))

    def _count(self, band: Band, took_ns: int, outcome: Outcome, missed: int) -> None:
        self.outcomes[outcome] += 1
        (self.frames if outcome is Outcome.SENT else self.errors)[band] += 1
        self.busy_ns[band] += took_ns
        if missed:
            self.unheard[band] += missed
