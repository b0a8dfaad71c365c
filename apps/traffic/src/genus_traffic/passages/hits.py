"""Edges of loops; hits, the edges of one vehicle at one loop; and the choice of the hits that belong together.

Every pair of hits has a weight: how much likelier it is that they are of one vehicle than that each is one-sided. Of
all ways to pair hits so that pairs do not cross, the one with the largest sum of weights is the likeliest. It is found
by sequence alignment (Needleman and Wunsch, 1970). The difference to the best alignment without a pair says how certain
that pair is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from genus_traffic.passages.fit import AT_ONCE, COMMON_M, HOPELESS, MARGIN, Fit, fit_hits, left_at_once, length_cost
from genus_traffic.types import DISTANCE_M


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


# -- which hits are of one vehicle -------------------------------------------------------------------------------------


_GAIN = HOPELESS
"""The weight of a perfect pair: that two vehicles were each noticed by one loop only is about e^-10 as likely."""
_CLEAN = 9.0
"""The weight of a pair that needs no second look."""
_CROWDED = 3.0
"""For each other vehicle between the loops at the same time: only two motorcycles fit."""
_AT_ONCE_US = 2_000
"""A vehicle that changes lane comes onto both loops, or leaves both, within this time."""
_EDGE_MISSING, _TWO_MISSING = 3.0, 4.0
_DULL = 4.0
"""The most that the length can cost a pair that lacks an edge."""
_FASTEST_US = int(DISTANCE_M / 80 * 1e6)
_IMPOSSIBLE = -1.0


class Pair(NamedTuple):
    """How likely two hits are of one vehicle, and its fit."""

    weight: float
    fit: Fit | None = None
    """None if there is no speed: an edge is missing, or the vehicle came or left sideways."""


class Choice(NamedTuple):
    """The partner of a hit of the lower loop."""

    upper: int | None
    """The index of the hit of the upper loop; None if the lower one is alone."""
    fit: Fit | None = None
    """None if the pair has no speed, or not a certain one."""


_APART = Pair(_IMPOSSIBLE)


def quick_choice(uppers: Sequence[Hit], lower: Hit) -> Choice | None:
    """The choice if it is evident without later hits; otherwise None."""
    if not uppers or uppers[0].first_us > lower.last_us:
        return Choice(None)
    fit = fitting(uppers, 0, lower).fit
    if fit is None or fit.cost > _GAIN - _CLEAN or not (uppers[0].category or _is_common(fit)):
        return None
    weight = fitting(uppers, 0, lower).weight
    rivals = (fitting(uppers, index, lower).weight for index in range(1, len(uppers)))
    certain = weight >= _CLEAN and all(weight - rival >= MARGIN for rival in rivals)
    return Choice(0, fit) if certain else None


def _is_common(fit: Fit) -> bool:
    return fit.length is not None and COMMON_M[0] < fit.length < COMMON_M[1]


def choose(uppers: Sequence[Hit], lowers: Sequence[Hit]) -> list[Choice]:
    """Choices for the first hits of the lower loop, by the likeliest way to pair all hits.

    That is one choice if it is clear. If the first hit is alone but could have had a partner, the hit that gets that
    partner is in doubt as well: all hits up to the first pair are decided together.
    """
    pairs = [[fitting(uppers, index, lower) for lower in lowers] for index in range(len(uppers))]
    weights = [[pair.weight for pair in row] for row in pairs]
    values = _values(weights, len(lowers))
    first = _first_pair(values)
    if first is None or (first[1] and _clearly_alone(weights, values)):
        return [Choice(None)]
    index, alone = first
    fit = pairs[index][alone].fit
    certain = fit is not None and not fit.doubtful and _lead(weights, values, index, alone) >= MARGIN
    return [Choice(None)] * alone + [Choice(index, fit if certain else None)]


def _first_pair(values: list[list[float]]) -> tuple[int, int] | None:
    """The indices of the first pair of the best alignment."""
    upper, lower = 0, 0
    while (value := values[upper][lower]) > 0:
        if value == values[upper][lower + 1]:
            lower += 1
        elif value == values[upper + 1][lower]:
            upper += 1
        else:
            return upper, lower
    return None


def _clearly_alone(weights: list[list[float]], values: list[list[float]]) -> bool:
    """Whether every alignment that pairs the first hit of the lower loop is much worse than the best."""
    paired = (row[0] + values[index + 1][1] for index, row in enumerate(weights) if row[0] > 0)
    return all(values[0][0] - value >= MARGIN for value in paired)


def _lead(weights: list[list[float]], values: list[list[float]], upper: int, lower: int) -> float:
    """By how much the best alignment is better than the best one without a pair."""
    others = [list(row) for row in weights]
    others[upper][lower] = _IMPOSSIBLE
    return values[0][0] - _values(others, len(weights[0]))[0][0]


def _values(weights: list[list[float]], width: int) -> list[list[float]]:
    """The weight of the best alignment of the hits from each pair of indices on."""
    values = [[0.0] * (width + 1)]
    for row in reversed(weights):
        below, here = values[-1], [0.0] * (width + 1)
        for index in range(width - 1, -1, -1):
            paired = row[index] + below[index + 1] if row[index] > 0 else 0.0
            here[index] = max(below[index], here[index + 1], paired)
        values.append(here)
    return values[::-1]


def fitting(uppers: Sequence[Hit], index: int, lower: Hit) -> Pair:
    """How a hit of the upper loop, given by its index, fits one of the lower loop."""
    upper = uppers[index]
    if (known := lower.partners.get(upper)) is not None:
        return known
    on, off, lower_on, lower_off = upper.on_us, upper.off_us, lower.on_us, lower.off_us
    if on is None or off is None or lower_on is None or lower_off is None:
        return _pair_incomplete(upper, lower)
    pair = _pair_complete(on, off, lower_on, lower_off, upper.category)
    if pair.weight > 0:
        pair = pair._replace(weight=pair.weight - _CROWDED * _between(uppers, index, lower_on))
    lower.partners[upper] = pair
    return pair


def _pair_complete(on: int, off: int, lower_on: int, lower_off: int, category: str | None) -> Pair:
    """The pair of two hits with all edges."""
    arriving, leaving = lower_on - on, lower_off - off
    if arriving < 0 or leaving < 0:
        return _APART
    if min(arriving, leaving) <= _AT_ONCE_US and lower_on < off:
        return Pair(_GAIN - AT_ONCE, left_at_once(arriving / 1e6) if arriving > _AT_ONCE_US else None)
    if not arriving:
        return _APART
    fit = fit_hits((off - on) / 1e6, arriving / 1e6, (lower_off - on) / 1e6, category)
    return _APART if fit is None else Pair(_GAIN - fit.cost, fit)


def _between(uppers: Sequence[Hit], index: int, lower_on: int) -> int:
    """Vehicles that had left the upper loop behind one that was not on the lower loop yet."""
    behind = 0
    for hit in uppers[index + 1 :]:
        if hit.off is None or hit.off.at_us > lower_on:
            break
        behind += hit.on is not None
    return behind


def _pair_incomplete(upper: Hit, lower: Hit) -> Pair:
    """The pair of two hits that lack an edge: they may be of one vehicle, but give no speed."""
    travelling = _elapsed(upper.on_us, lower.on_us)
    if travelling is None:
        travelling = _elapsed(upper.off_us, lower.off_us)
    occupied = _elapsed(upper.on_us, upper.off_us)
    if occupied is None:
        occupied = _elapsed(lower.on_us, lower.off_us)
    if upper.first_us > lower.last_us or (travelling is not None and travelling < _FASTEST_US):
        return _APART
    if travelling is None or occupied is None:
        return Pair(_GAIN - _EDGE_MISSING - _TWO_MISSING)
    length = DISTANCE_M * occupied / travelling
    return Pair(_GAIN - _EDGE_MISSING - min(length_cost(length, upper.category), _DULL))


def _elapsed(start_us: int | None, end_us: int | None) -> int | None:
    return None if start_us is None or end_us is None else end_us - start_us
