"""The accuracy of measured speeds, compared with the truth.

A speed belongs to a true passage if both of its instants are those of that vehicle: sensor clocks are off by less than
the time between two vehicles at one loop. The true speed of a complete passage is that of the vehicle's front, or, if
it came from the side so that its front did not pass both loops, that of its rear. A speed counts as invented if it
belongs to no passage, or, unless it is right, to a passage that is not complete or has no true speed.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from math import floor
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from genus.model import micros_of_time
from genus_traffic.passages.finder import MeasuredPassage, SitePassage
from genus_traffic.results import Accuracy, Trap
from genus_traffic.road.truth import Passage
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import DISTANCE_M, Edge, Loop

TOLERANCE = 1.0
"""In m/s."""
CLOSE_US = 5_000
"""How much an instant may differ from the truth; two vehicles at one loop are further apart."""
_BARS = 8
"""Bars of the histogram on each side of the one around zero; larger errors are in the outermost bars."""
_TOLERATED = 9
"""Bars within the tolerance: an odd number, so that one of them is around zero."""
_FEWEST_BARS, _NARROWEST = 2.5, 1e-5
"""Bars are narrowed, to this many m/s at most, until the largest error is so many bars from zero."""

Lane: TypeAlias = tuple[str, int]


class _Instants(NamedTuple):
    """When vehicles came onto a loop, in order, and the number of each one's passage."""

    at_us: list[int]
    passages: list[int]

    def nearest(self, at_us: int | None) -> int | None:
        """The passage of the vehicle that came onto the loop at that instant, or None."""
        if at_us is None:
            return None
        index = bisect_left(self.at_us, at_us)
        near = [n for n in (index - 1, index) if 0 <= n < len(self.at_us) and abs(self.at_us[n] - at_us) <= CLOSE_US]
        return min(((abs(self.at_us[n] - at_us), self.passages[n]) for n in near), default=(0, None))[1]


class _Matched(NamedTuple):
    """Speeds by the number of their passage, and how many speeds have none."""

    speeds: dict[int, float]
    unmatched: int


def accuracy_of(
    found: Iterable[SitePassage], truth: Iterable[Passage], counted: int, tolerance: float = TOLERANCE
) -> Accuracy:
    """Compare measured speeds with true passages; `counted` is the number of vehicles in the statistics."""
    passages = list(truth)
    matched = _match(found, passages)
    true = {number: speed for number, passage in enumerate(passages) if (speed := true_speed(passage)) is not None}
    complete = [number for number in true if passages[number].complete]
    errors = {number: matched.speeds[number] - true[number] for number in complete if number in matched.speeds}
    right = {number for number, error in errors.items() if abs(error) <= tolerance}
    others = {number: speed for number, speed in matched.speeds.items() if number not in errors}
    invented = {n for n, speed in others.items() if n not in true or abs(speed - true[n]) > tolerance}
    return Accuracy(
        complete=len(complete),
        right=len(right),
        wrong=len(errors) - len(right),
        unmeasured=len(complete) - len(errors),
        one_sided=len(passages) - len(complete),
        invented=len(invented) + matched.unmatched,
        tolerance=tolerance,
        errors=_histogram(list(errors.values()), tolerance),
        by_site=_by_site(passages, complete, right),
        traps=_traps(passages, right | (set(range(len(passages))) - set(complete) - invented)),
        counted=counted,
        to_count=sum(passage.upper_on_us is not None for passage in passages),
    )


def _match(found: Iterable[SitePassage], passages: Sequence[Passage]) -> _Matched:
    """Match each speed with the passage that it belongs to."""
    uppers, lowers = _instants(passages, "upper_on_us"), _instants(passages, "lower_on_us")
    speeds: dict[int, float] = {}
    unmatched = 0
    for site, lane, passage in found:
        if passage.speed is None:
            continue
        number = _passage_number(passage, uppers[site, lane], lowers[site, lane])
        if number is None or number in speeds:
            unmatched += 1
        else:
            speeds[number] = passage.speed
    return _Matched(speeds, unmatched)


def _passage_number(found: MeasuredPassage, uppers: _Instants, lowers: _Instants) -> int | None:
    upper, lower = uppers.nearest(found.upper_on_us), lowers.nearest(found.lower_on_us)
    return upper if upper == lower else None


def _instants(passages: Sequence[Passage], name: str) -> Mapping[Lane, _Instants]:
    by_lane: dict[Lane, list[tuple[int, int]]] = defaultdict(list)
    for number, passage in enumerate(passages):
        if (at_us := getattr(passage, name)) is not None:
            by_lane[passage.site, passage.lane].append((at_us, number))
    instants: dict[Lane, _Instants] = defaultdict(lambda: _Instants([], []))
    for lane, rows in by_lane.items():
        rows.sort()
        instants[lane] = _Instants([at_us for at_us, _ in rows], [number for _, number in rows])
    return instants


def true_speed(passage: Passage) -> float | None:
    """A vehicle's speed from loop to loop; None if it was in the lane at one loop only, or came onto both at once."""
    if passage.speed is not None:
        return passage.speed
    if not passage.complete or passage.upper_on_us == passage.lower_on_us:
        return None
    return _leaving(passage)


def _leaving(passage: Passage) -> float | None:
    """The speed of the rear, which passed both loops of the lane unless the vehicle left it."""
    if passage.upper_off_us is None or passage.lower_off_us is None or passage.lower_off_us <= passage.upper_off_us:
        return None
    return DISTANCE_M * 1e6 / (passage.lower_off_us - passage.upper_off_us)


def _histogram(errors: Sequence[float], tolerance: float) -> tuple[tuple[float, float, int], ...]:
    width = _bar_width(max(map(abs, errors), default=0.0), tolerance)
    bars = Counter(min(max(floor(error / width + 0.5), -_BARS), _BARS) for error in errors)
    return tuple(((bar - 0.5) * width, (bar + 0.5) * width, bars[bar]) for bar in range(-_BARS, _BARS + 1))


def _bar_width(largest: float, tolerance: float) -> float:
    """Bars that end at the tolerance, or narrower ones if all errors would be in the few around zero."""
    width = 2 * tolerance / _TOLERATED
    while 0 < largest < _FEWEST_BARS * width and width > _NARROWEST:
        width /= 2
    return width


def _by_site(passages: Sequence[Passage], complete: Iterable[int], right: set[int]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {passage.site: (0, 0) for passage in passages}
    for number in complete:
        site = passages[number].site
        met, good = found[site]
        found[site] = met + 1, good + (number in right)
    return found


def _traps(passages: Sequence[Passage], right: set[int]) -> tuple[Trap, ...]:
    met: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for number, passage in enumerate(passages):
        met.update(passage.traps)
        good.update(passage.traps if number in right else ())
    return tuple(Trap(name=name, met=count, right=good[name]) for name, count in sorted(met.items()))


# -- the truth without late edges --------------------------------------------------------------------------------------


TOO_LATE = "too late"
"""The trap of a passage with such an edge."""
InstantField: TypeAlias = Literal["upper_on_us", "upper_off_us", "lower_on_us", "lower_off_us"]
"""The field of a passage that an edge sets."""


def without_late_edges(passages: Iterable[Passage], arriving: Iterable[Arrival], lateness: timedelta) -> list[Passage]:
    """The passages without the edges whose events arrived more than `lateness` after they happened."""
    truth = list(passages)
    for edge in _late_edges(arriving, lateness // timedelta(microseconds=1)):
        number = _find_passage(edge, truth)
        if number is not None:
            passage = truth[number]
            truth[number] = msgspec.structs.replace(
                passage, **{_instant_field(edge): None}, traps=tuple(dict.fromkeys((*passage.traps, TOO_LATE)))
            )
    return truth


def lanes_with_late_edges(arriving: Iterable[Arrival], lateness: timedelta) -> set[tuple[str, int]]:
    """The sites and lanes of late edges: roadside monitors received these in time, so their results may differ."""
    late = _late_edges(arriving, lateness // timedelta(microseconds=1))
    return {(edge.source or "", edge.lane) for edge in late}


def _late_edges(arriving: Iterable[Arrival], lateness_us: int) -> Iterable[Edge]:
    for arrival in arriving:
        event = arrival.event
        if isinstance(event, Edge) and arrival.at_us - _at_us(event) > lateness_us:
            yield event


def _find_passage(edge: Edge, passages: Sequence[Passage]) -> int | None:
    """The number of the passage with this edge; sensor clocks may be off by up to `CLOSE_US`."""
    field, at_us = _instant_field(edge), _at_us(edge)
    for number, passage in enumerate(passages):
        true_us = getattr(passage, field)
        same_lane = passage.site == edge.source and passage.lane == edge.lane
        if same_lane and true_us is not None and abs(true_us - at_us) <= CLOSE_US:
            return number
    return None


def _instant_field(edge: Edge) -> InstantField:
    if edge.place is not None:
        return "upper_on_us" if isinstance(edge, Loop) else "upper_off_us"
    return "lower_on_us" if isinstance(edge, Loop) else "lower_off_us"


def _at_us(edge: Edge) -> int:
    assert edge.time is not None, "sensors publish edges with a time"
    return micros_of_time(edge.time)
