"""A site's CAN segment, simulated bit by bit: real nodes with the sensors, the monitor and the gateway of the site.

Sensors have crystals that drift; the gateway, which has the time of day, leads their clocks over the bus. Everything
follows from the seed.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from genus.errors import PlanError
from genus_traffic.road.detections import Detection
from genus_traffic.segment.gateway import Arrival
from genus_traffic.segment.outcome import SegmentOutcome
from genus_traffic.segment.run import SegmentRun

__all__ = ["Arrival", "Segment", "SegmentOutcome"]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen on the segment of a site; PlanError if it cannot."""

    site: str
    place: str
    lanes: int
    detections: tuple[Detection, ...]
    """In order of time."""
    start_us: int
    end_us: int
    refit_us: int | None = None
    """When the upper sensor is replaced by one of the next generation."""
    asked_us: tuple[int, ...] = ()
    """When somebody asks the sensors how they are set up."""
    seed: int = 0
    error_share: float = 0.0
    """The share of frames that are corrupted on the bus; their controllers send them again."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise PlanError(f"site {self.site!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        if self.end_us <= self.start_us:
            yield "ends before it starts"
        if self.refit_us is not None and not self.start_us <= self.refit_us < self.end_us:
            yield "is refitted before it starts or after it ends"
        if any(not self.start_us <= asked_us < self.end_us for asked_us in self.asked_us):
            yield "is asked for its settings before it starts or after it ends"
        if any(after.at_us < before.at_us for before, after in pairwise(self.detections)):
            yield "has detections that are not in order of time"
        if (
            self.detections
            and not self.start_us <= self.detections[0].at_us <= self.detections[-1].at_us <= self.end_us
        ):
            yield "has detections before its start or after its end"
        if any(not 0 <= detection.lane < self.lanes for detection in self.detections):
            yield f"has detections in a lane that is not one of its {self.lanes}"

    def run(self, progress: Callable[[float], object] | None = None) -> SegmentOutcome:
        """Let it happen; `progress` is told how much of it has, up to 1."""
        run = SegmentRun(self)
        for done in run.advance():
            if progress is not None:
                progress(done)
        return run.outcome()
