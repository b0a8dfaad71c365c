"""Detections, as the hardware of loops makes them, and passages, which are the truth."""

from typing import Literal, TypeAlias

import msgspec

from genus_traffic.types import Category

LoopOfPair: TypeAlias = Literal["upper", "lower"]


class Detection(msgspec.Struct, frozen=True):
    """An edge of a vehicle at a loop, at an instant of true time (microseconds since 1970)."""

    at_us: int
    lane: int
    loop: LoopOfPair
    on: bool
    """True for the leading edge, False for the trailing one."""
    category: Category | None = None
    """The category that an upper loop reads with the leading edge; a lower loop reads none."""
    confidence: float | None = None
    """The confidence of a loop of the new generation; loops of the old one have none."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one vehicle at one pair of loops; an edge that no sensor detected is None."""

    site: str
    lane: int
    vehicle: str
    category: Category
    length_m: float
    upper_on_us: int | None = None
    upper_off_us: int | None = None
    lower_on_us: int | None = None
    lower_off_us: int | None = None
    speed: float | None = None
    """Its mean speed from the upper to the lower loop, in m/s; None unless its front was over both in this lane."""
    traps: tuple[str, ...] = ()
    """What makes it hard to measure: "standing", "two between", "lane change", "missed", "simultaneous"."""

    @property
    def complete(self) -> bool:
        """Whether both loops detected both of its edges."""
        edges = self.upper_on_us, self.upper_off_us, self.lower_on_us, self.lower_off_us
        return None not in edges
