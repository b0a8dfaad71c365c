"""Which hit of the upper loop belongs to the first hit of the lower one that is not decided yet.

Every pair of hits has a weight: how much likelier it is that they are of one vehicle than that each is one-sided. Of
all ways to pair hits so that pairs do not cross, the one with the largest sum of weights is the likeliest. It is found
as sequences are aligned (Needleman and Wunsch, 1970), and tells the fate of the first hit of the lower loop; by how
much it is better than the best way without a pair says how certain that pair is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from genus_traffic.passages.fit import AT_ONCE, COMMON_M, HOPELESS, MARGIN, Fit, fitted, left_at_once, length_cost
from genus_traffic.passages.hits import Hit
from genus_traffic.types import DISTANCE_M

_GAIN = HOPELESS
"""The weight of a perfect pair: that two vehicles were each noticed by one loop only is about e^-10 as likely."""
_CLEAN = 9.0
"""The weight of a pair that needs no second look."""
_CROWDED = 3.0
"""For each other vehicle that would stand between the loops, too: only two motorcycles have room."""
_AT_ONCE_US = 2_000
"""A vehicle that changes lane comes onto both loops, or leaves both, within this time."""
_EDGE_MISSING, _TWO_MISSING = 3.0, 4.0
_DULL = 4.0
"""The most that the length can tell against a pair that lacks an edge."""
_FASTEST_US = int(DISTANCE_M / 80 * 1e6)
_IMPOSSIBLE = -1.0


class Pair(NamedTuple):
    """How likely two hits are of one vehicle, and what they would say of it."""

    weight: float
    fit: Fit | None = None
    """None if a speed cannot be had: an edge is missing, or the vehicle came or left sideways."""


class Choice(NamedTuple):
    """The hit of the upper loop to take, by its place; None: the lower one is alone."""

    place: int | None
    fit: Fit | None = None
    """None if there is no speed to be given."""


_APART = Pair(_IMPOSSIBLE)


def quick_choice(uppers: Sequence[Hit], lower: Hit) -> Choice | None:
    """What is evident without a look at later hits; None if nothing is."""
    if not uppers or uppers[0].first_us > lower.last_us:
        return Choice(None)
    fit = fitting(uppers, 0, lower).fit
    if fit is None or fit.cost > _GAIN - _CLEAN or not (uppers[0].category or _is_common(fit)):
        return None
    weight = fitting(uppers, 0, lower).weight
    rivals = (fitting(uppers, place, lower).weight for place in range(1, len(uppers)))
    certain = weight >= _CLEAN and all(weight - rival >= MARGIN for rival in rivals)
    return Choice(0, fit) if certain else None


def _is_common(fit: Fit) -> bool:
    return fit.length is not None and COMMON_M[0] < fit.length < COMMON_M[1]


def choose(uppers: Sequence[Hit], lowers: Sequence[Hit]) -> list[Choice]:
    """What the likeliest way to pair all these hits says of the first ones of the lower loop.

    That is the first one, if it is clear. If it is alone but might have had a partner, the doubt is about whoever gets
    that partner as well: all are settled together, up to the first pair.
    """
    pairs = [[fitting(uppers, place, lower) for lower in lowers] for place in range(len(uppers))]
    weights = [[pair.weight for pair in row] for row in pairs]
    values = _values(weights, len(lowers))
    first = _first_pair(values)
    if first is None or (first[1] and _clearly_alone(weights, values)):
        return [Choice(None)]
    place, alone = first
    fit = pairs[place][alone].fit
    certain = fit is not None and not fit.doubtful and _lead(weights, values, place, alone) >= MARGIN
    return [Choice(None)] * alone + [Choice(place, fit if certain else None)]


def _first_pair(values: list[list[float]]) -> tuple[int, int] | None:
    """The places of the first hits that the best way pairs."""
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
    """Whether every way that gives the first hit of the lower loop a partner is much worse than the best."""
    paired = (row[0] + values[place + 1][1] for place, row in enumerate(weights) if row[0] > 0)
    return all(values[0][0] - value >= MARGIN for value in paired)


def _lead(weights: list[list[float]], values: list[list[float]], upper: int, lower: int) -> float:
    """By how much the best way is better than the best without some pair."""
    others = [list(row) for row in weights]
    others[upper][lower] = _IMPOSSIBLE
    return values[0][0] - _values(others, len(weights[0]))[0][0]


def _values(weights: list[list[float]], width: int) -> list[list[float]]:
    """The weight of the best pairs among the hits from some place on, at each loop."""
    values = [[0.0] * (width + 1)]
    for row in reversed(weights):
        below, here = values[-1], [0.0] * (width + 1)
        for place in range(width - 1, -1, -1):
            paired = row[place] + below[place + 1] if row[place] > 0 else 0.0
            here[place] = max(below[place], here[place + 1], paired)
        values.append(here)
    return values[::-1]


def fitting(uppers: Sequence[Hit], place: int, lower: Hit) -> Pair:
    """How the hit of the upper loop at some place fits one of the lower loop."""
    upper = uppers[place]
    if (known := lower.partners.get(upper)) is not None:
        return known
    on, off, lower_on, lower_off = upper.on_us, upper.off_us, lower.on_us, lower.off_us
    if on is None or off is None or lower_on is None or lower_off is None:
        return _partly(upper, lower)
    pair = _wholly(on, off, lower_on, lower_off, upper.category)
    if pair.weight > 0:
        pair = pair._replace(weight=pair.weight - _CROWDED * _between(uppers, place, lower_on))
    lower.partners[upper] = pair
    return pair


def _wholly(on: int, off: int, lower_on: int, lower_off: int, category: str | None) -> Pair:
    """The weight of two hits that have all edges."""
    arriving, leaving = lower_on - on, lower_off - off
    if arriving < 0 or leaving < 0:
        return _APART
    if min(arriving, leaving) <= _AT_ONCE_US and lower_on < off:
        return Pair(_GAIN - AT_ONCE, left_at_once(arriving / 1e6) if arriving > _AT_ONCE_US else None)
    if not arriving:
        return _APART
    fit = fitted((off - on) / 1e6, arriving / 1e6, (lower_off - on) / 1e6, category)
    return _APART if fit is None else Pair(_GAIN - fit.cost, fit)


def _between(uppers: Sequence[Hit], place: int, lower_on: int) -> int:
    """Vehicles that had left the upper loop behind one that was not on the lower loop yet."""
    behind = 0
    for hit in uppers[place + 1 :]:
        if hit.off is None or hit.off.at_us > lower_on:
            break
        behind += hit.on is not None
    return behind


def _partly(upper: Hit, lower: Hit) -> Pair:
    """The weight of two hits that lack an edge: they can be of one vehicle, but that is no measurement."""
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
