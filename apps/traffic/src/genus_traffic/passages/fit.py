"""How well a hit of the upper loop and one of the lower loop fit together, as traces of one vehicle.

A vehicle of length L shows where its front is at four instants: at 0 m as it comes onto the upper loop, 5 m as it comes
onto the lower one, L as it leaves the upper one, and 5 m + L as it leaves the lower one. L is unknown, so the instants
are put to the test with two models: one even acceleration, which gives L, and, for slow vehicles, which may have
stopped anywhere, each of some lengths with the acceleration it takes. What tells against a fit is a cost, like the
negative logarithm of a probability: accelerations that vehicles do not have, and lengths that are rare, or not those of
the category.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from genus_traffic.types import DISTANCE_M

LENGTHS: dict[str, tuple[float, float]] = {
    "car": (3.0, 6.6),
    "truck": (5.5, 26.0),
    "bus": (8.0, 20.0),
    "motorcycle": (1.5, 3.0),
}
"""From and to how many metres the vehicles of a category are long; vans count as cars."""

COMMON_M = (3.3, 5.8)
"""The lengths of most vehicles: what may be taken for granted without a category."""

_SHORTEST_M, _LONGEST_M = 1.0, 30.0
_LIMITS_M, _RARITIES = (1.7, 3.3, 20.0, 26.0), (6.5, 2.0, 0.0, 2.0, 6.0)
"""Lengths up to some metres, and what they cost; the last one is for all beyond."""
_OTHER_CATEGORY = 4.0
"""What a length costs that is not the category's: sensors misread some per cent."""

_BRAKING, _BRAKING_LONG, _SPEEDING = 3.2, 2.0, 1.8
"""How far accelerations spread, in m/s²: braking is harder than speeding up, but not with long vehicles."""
_LONG_M = 7.0
_FASTEST = 80.0
"""No vehicle has more m/s."""

BRISK_S = 1.5
"""Nobody stops and starts again within this time over both loops, or changes speed much."""
SIDEWAYS = 5.5
"""What it costs to believe that a vehicle changed lane over the loops."""
AT_ONCE = 2.0
"""The same if it came onto both, or left both, at one instant, which hardly happens by chance."""
MARGIN = 3.0
"""How much must lie between an explanation and the next best, so that a speed is given."""
_DOUBT, _SAME_SPEED = 1.5, 1.0
"""Two models of one pair may differ by less, as long as their speeds differ by no more than this (m/s)."""
HOPELESS = 10.0
"""A fit that costs more is none: it is likelier that two vehicles were each noticed by one loop only."""
_GOOD = 1.0
"""Below this cost, no other model is tried."""
_TOUCHING_S = 0.15
"""Who leaves the upper loop so soon before or after it is on the lower one is about as long as they are apart."""
_TRIED_SHORT_M = (1.8, 2.2, 2.8, 3.5, 4.2, 4.8)
_TRIED_LONG_M = (5.2, 6.0, 7.5, 9.5, 12.0, 15.0, 18.5, 23.0)


class Fit(NamedTuple):
    """What it costs to believe that two hits are of one vehicle, and how long and how fast that would be."""

    cost: float
    length: float | None
    """None if it was not seen whole."""
    speed: float
    """From loop to loop."""
    leaving: float
    """The same of its rear."""
    doubtful: bool = False
    """Whether another explanation that is nearly as good gives another speed."""


def fitted(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """The best fit of instants in seconds since the vehicle came onto the upper loop; None if there is none.

    >>> fit = fitted(0.46, 0.50, 0.96, "car")
    >>> round(fit.cost, 6), round(fit.length, 2), fit.speed
    (0.0, 4.6, 10.0)
    """
    even = _evenly(upper_off, lower_on, lower_off, category)
    if even is not None and even.cost < _GOOD:
        return even
    if lower_off >= BRISK_S:
        return min((fit for fit in (even, *_by_length(upper_off, lower_on, lower_off, category)) if fit), default=None)
    sideways = _sideways(upper_off, lower_on, lower_off, category)
    return _clearer(even, sideways) if even and sideways else even or sideways


def left_at_once(lower_on: float) -> Fit:
    """The fit of a vehicle on both loops that left them at one instant to the side: its front was seen at both."""
    speed = DISTANCE_M / lower_on
    return Fit(AT_ONCE, None, speed, speed)


def _clearer(one: Fit, other: Fit) -> Fit:
    """The better fit, doubtful if the other is nearly as good and of another speed."""
    better, worse = sorted((one, other))
    doubtful = worse.cost - better.cost < _DOUBT and abs(worse.speed - better.speed) > _SAME_SPEED
    return better._replace(doubtful=doubtful)


def length_cost(length: float, category: str | None) -> float:
    """What it costs to believe in a length: nothing for one of the category, or without one, for a usual one."""
    if not _SHORTEST_M <= length <= _LONGEST_M:
        return 30.0
    if category in LENGTHS:
        shortest, longest = LENGTHS[category]
        if shortest <= length <= longest:
            return 0.0
        return max(_OTHER_CATEGORY, _rarity(length))
    return _rarity(length)


def _rarity(length: float) -> float:
    return _RARITIES[bisect_left(_LIMITS_M, length)]


def _evenly(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """One even acceleration: the mean speeds of front and rear, and the time between their middles, give all."""
    if lower_off <= upper_off:
        return None
    arriving, leaving = DISTANCE_M / lower_on, DISTANCE_M / (lower_off - upper_off)
    acceleration = (leaving - arriving) / ((upper_off + lower_off - lower_on) / 2)
    first = arriving - acceleration * lower_on / 2
    if max(arriving, leaving) > _FASTEST or first <= 0 or first + acceleration * lower_off <= 0:
        return None  # it would have driven backwards
    length = (first + acceleration * upper_off / 2) * upper_off
    return Fit(_roughness(acceleration, length) + length_cost(length, category), length, arriving, leaving)


def _sideways(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """A vehicle that came from another lane over the upper loop, or left to one over the lower: one end was not seen.

    Either makes times shorter: the longer time from loop to loop is the true one, and so is the longer one on a loop.
    """
    speed = DISTANCE_M / max(lower_on, lower_off - upper_off)
    if speed > _FASTEST:
        return None
    length = speed * max(upper_off, lower_off - lower_on)
    return Fit(SIDEWAYS + length_cost(length, category), length, speed, speed)


def _by_length(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Iterator[Fit]:
    """Fits of each length there may be: under 5 m if and only if it left the upper loop before it was on the lower."""
    speeds = DISTANCE_M / lower_on, DISTANCE_M / (lower_off - upper_off)
    if abs(upper_off - lower_on) < _TOUCHING_S:
        length = DISTANCE_M + max(speeds) * (upper_off - lower_on)
        cost = _roughness(_acceleration(DISTANCE_M, lower_on, DISTANCE_M, lower_off - upper_off))
        yield Fit(cost + length_cost(length, category), length, *speeds)
    if upper_off > lower_on:
        for length in _TRIED_LONG_M:
            middle = length - DISTANCE_M, upper_off - lower_on
            cost = _stretches((DISTANCE_M, lower_on), middle, (DISTANCE_M, lower_off - upper_off))
            yield Fit(cost + length_cost(length, category), length, *speeds)
        return
    for length in _TRIED_SHORT_M:
        middle = DISTANCE_M - length, lower_on - upper_off
        cost = _stretches((length, upper_off), middle, (length, lower_off - lower_on))
        yield Fit(cost + length_cost(length, category), length, *speeds)
        if cost > HOPELESS and length * middle[1] > middle[0] * upper_off:
            return  # it had to brake for the stretch between the loops, and a longer one would have to brake harder


def _stretches(first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]) -> float:
    """The cost of driving three stretches (metres, seconds) one after the other."""
    return max(_roughness(_acceleration(*first, *second)), _roughness(_acceleration(*second, *third)))


def _acceleration(m1: float, s1: float, m2: float, s2: float) -> float:
    """What it takes to drive one stretch after another: over their time, and, if it stopped, over their length."""
    if s1 <= 0 or s2 <= 0:
        return 0.0
    before, after = m1 / s1, m2 / s2
    change = after - before
    over_time, over_length = 2 * change / (s1 + s2), change * (before + after) / (m1 + m2)
    return max(over_time, over_length, key=abs)


def _roughness(acceleration: float, length: float = 0.0) -> float:
    braking = _BRAKING_LONG if length > _LONG_M else _BRAKING
    spread = acceleration / (_SPEEDING if acceleration > 0 else braking)
    return spread * spread / 2
