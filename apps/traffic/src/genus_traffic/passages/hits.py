"""Edges of loops, and hits: the edges of one vehicle at one loop."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genus_traffic.passages.choice import Pair


class LoopEdge(NamedTuple):
    """An edge at a loop in one lane of one site."""

    at_us: int
    """Its event's time, in microseconds since 1970."""
    upper: bool
    """True for the upper loop, which vehicles reach first, False for the lower one."""
    on: bool
    """True for the leading edge, False for the trailing one."""
    category: str | None = None
    row: int = -1
    """The row the edge came from, so that callers know which ones wait."""


def in_order(edge: LoopEdge) -> tuple[int, bool, bool, str]:
    """Sort key: by time; at one instant the upper loop first, and at each loop off before on."""
    return edge.at_us, not edge.upper, edge.on, edge.category or ""


class Hit:
    """The edges of a vehicle at a loop: on and off, of which one may be missing."""

    __slots__ = ("off", "on", "partners")

    def __init__(self, on: LoopEdge | None = None, off: LoopEdge | None = None) -> None:
        self.on = on
        self.off = off
        self.partners: dict[Hit, Pair] = {}
        """Cached fits with hits of the other loop."""

    @property
    def edges(self) -> list[LoopEdge]:
        """The edges that are not missing."""
        return [edge for edge in (self.on, self.off) if edge is not None]

    @property
    def is_open(self) -> bool:
        """Whether it has no off yet."""
        return self.off is None

    @property
    def on_us(self) -> int | None:
        """When the vehicle came onto the loop."""
        return None if self.on is None else self.on.at_us

    @property
    def off_us(self) -> int | None:
        """When it left the loop."""
        return None if self.off is None else self.off.at_us

    @property
    def first_us(self) -> int:
        """The instant of its first edge."""
        return self.edges[0].at_us

    @property
    def last_us(self) -> int:
        """The instant of its last edge."""
        return (self.off or self.edges[0]).at_us

    @property
    def category(self) -> str | None:
        """The category that the loop reported."""
        return None if self.on is None else self.on.category
