"""Edges of loops, and hits: what one vehicle leaves behind at one loop."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genus_traffic.passages.choice import Pair


class LoopEdge(NamedTuple):
    """An edge that a loop of a pair noticed in one lane of one site."""

    at_us: int
    """Its event's time, in microseconds since 1970."""
    upper: bool
    """Of the upper loop, which vehicles reach first, or of the lower one."""
    on: bool
    """True for the leading edge, False for the trailing one."""
    category: str | None = None
    row: int = -1
    """Where the edge came from, for callers that want to know which ones wait."""


def in_order(edge: LoopEdge) -> tuple[int, bool, bool, str]:
    """The order of edges; at one instant those of the upper loop first, and each loop is left before it is entered."""
    return edge.at_us, not edge.upper, edge.on, edge.category or ""


class Hit:
    """What a loop noticed of a vehicle: an on and an off, of which one may be missing."""

    __slots__ = ("off", "on", "partners")

    def __init__(self, on: LoopEdge | None = None, off: LoopEdge | None = None) -> None:
        self.on = on
        self.off = off
        self.partners: dict[Hit, Pair] = {}
        """How hits of the other loop fit, so that it is worked out once."""

    @property
    def edges(self) -> list[LoopEdge]:
        """The edges there are."""
        return [edge for edge in (self.on, self.off) if edge is not None]

    @property
    def is_open(self) -> bool:
        """Whether it has no off yet; whether one still comes, the next edge tells."""
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
        """What the loop took the vehicle for."""
        return None if self.on is None else self.on.category
