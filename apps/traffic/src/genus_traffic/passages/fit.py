"""How well a hit of the upper loop and one of the lower loop fit together, as traces of one vehicle.

A vehicle of length L shows where its front is at four instants: at 0 m as it comes onto the upper loop, 5 m as it comes
onto the lower one, L as it leaves the upper one, and 5 m + L as it leaves the lower one. L is unknown, so the instants
are tested with two models: one constant acceleration, which gives L, and, for slow vehicles, which may have stopped
anywhere, each of some lengths with the acceleration it takes. The cost of a fit is like the negative logarithm of a
probability: it grows with unusual accelerations, and with lengths that are rare or not those of the category.
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
"""The shortest and longest vehicles of a category, in metres; vans count as cars."""

COMMON_M = (3.3, 5.8)
"""The lengths of most vehicles, which are plausible without a category."""

_SHORTEST_M, _MAX_M = 1.0, 30.0
_LIMITS_M, _RARITIES = (1.7, 3.3, 20.0, 26.0), (6.5, 2.0, 0.0, 2.0, 6.0)
"""Upper limits of lengths and their costs; the last cost is for longer ones."""
_OTHER_CATEGORY = 4.0
"""The cost of a length that is not the category's: sensors misread some per cent."""

_BRAKING, _BRAKING_LONG, _SPEEDING = 3.2, 2.0, 1.8
"""Standard deviations of accelerations in m/s²: larger for braking, except of long vehicles."""
_LONG_M = 7.0
_FASTEST = 80.0
"""The highest speed in m/s."""

BRISK_S = 1.5
"""A vehicle that passes both loops within this time did not stop or change its speed much."""
SIDEWAYS = 5.5
"""The cost of a lane change over the loops."""
AT_ONCE = 2.0
"""The same if the vehicle came onto both loops, or left both, at one instant."""
MARGIN = 3.0
"""A speed is given if the next best explanation costs so much more."""
_DOUBT, _SAME_SPEED = 1.5, 1.0
"""A fit is doubtful if another costs less than this more, and their speeds differ by more than this (m/s)."""
HOPELESS = 10.0
"""A fit that costs more is rejected: it is likelier that two vehicles were each detected by one loop only."""
_GOOD = 1.0
"""Below this cost, no other model is tried."""
_TOUCHING_S = 0.15
"""A vehicle that leaves the upper loop within this time of reaching the lower one is about 5 m long."""
_TRIED_SHORT_M = (1.8, 2.2, 2.8, 3.5, 4.2, 4.8)
_TRIED_LONG_M = (5.2, 6.0, 7.5, 9.5, 12.0, 15.0, 18.5, 23.0)


class Fit(NamedTuple):
    """The cost of explaining two hits by one vehicle, with its length and speeds."""

    cost: float
    length: float | None
    """None if it is not known."""
    speed: float
    """Of its front, from loop to loop."""
    leaving: float
    """Of its rear."""
    doubtful: bool = False
    """Whether another explanation that is nearly as good gives another speed."""


def fit_hits(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """The best fit of instants, in seconds since the vehicle came onto the upper loop; None if there is none.

    >>> fit = fit_hits(0.46, 0.50, 0.96, "car")
    >>> round(fit.cost, 6), round(fit.length, 2), fit.speed
    (0.0, 4.6, 10.0)
    """
    even = _fit_constant(upper_off, lower_on, lower_off, category)
    if even is not None and even.cost < _GOOD:
        return even
    if lower_off >= BRISK_S:
        return min(
            (fit for fit in (even, *_fits_by_length(upper_off, lower_on, lower_off, category)) if fit), default=None
        )
    sideways = _fit_sideways(upper_off, lower_on, lower_off, category)
    return _better(even, sideways) if even and sideways else even or sideways


def left_at_once(lower_on: float) -> Fit:
    """The fit of a vehicle that left both loops sideways at one instant: the speed of its front is known."""
    speed = DISTANCE_M / lower_on
    return Fit(AT_ONCE, None, speed, speed)


def _better(one: Fit, other: Fit) -> Fit:
    """The better fit, doubtful if the other is nearly as good and of another speed."""
    better, worse = sorted((one, other))
    doubtful = worse.cost - better.cost < _DOUBT and abs(worse.speed - better.speed) > _SAME_SPEED
    return better._replace(doubtful=doubtful)


def length_cost(length: float, category: str | None) -> float:
    """The cost of a length: 0 for one of the category or, without a category, for a usual one."""
    if not _SHORTEST_M <= length <= _MAX_M:
        return 30.0
    if category in LENGTHS:
        shortest, longest = LENGTHS[category]
        if shortest <= length <= longest:
            return 0.0
        return max(_OTHER_CATEGORY, _rarity(length))
    return _rarity(length)


def _rarity(length: float) -> float:
    return _RARITIES[bisect_left(_LIMITS_M, length)]


def _fit_constant(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """Fit one constant acceleration, from the mean speeds of front and rear and the time between their midpoints."""
    if lower_off <= upper_off:
        return None
    arriving, leaving = DISTANCE_M / lower_on, DISTANCE_M / (lower_off - upper_off)
    acceleration = (leaving - arriving) / ((upper_off + lower_off - lower_on) / 2)
    first = arriving - acceleration * lower_on / 2
    if max(arriving, leaving) > _FASTEST or first <= 0 or first + acceleration * lower_off <= 0:
        return None  # it would have driven backwards
    length = (first + acceleration * upper_off / 2) * upper_off
    return Fit(_roughness(acceleration, length) + length_cost(length, category), length, arriving, leaving)


def _fit_sideways(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Fit | None:
    """Fit a vehicle that came from another lane over the upper loop, or left to one over the lower loop.

    Either makes times shorter, so the longer time from loop to loop is the true one, and the longer one on a loop.
    """
    speed = DISTANCE_M / max(lower_on, lower_off - upper_off)
    if speed > _FASTEST:
        return None
    length = speed * max(upper_off, lower_off - lower_on)
    return Fit(SIDEWAYS + length_cost(length, category), length, speed, speed)


def _fits_by_length(upper_off: float, lower_on: float, lower_off: float, category: str | None) -> Iterator[Fit]:
    """Fits of each possible length: under 5 m if and only if it left the upper loop before it was on the lower one."""
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
    """The acceleration between two stretches: over their time or, if the vehicle stopped, over their length."""
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
