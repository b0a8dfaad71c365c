"""The traffic generator: the detections of a site's loops, and the true passages.

A small microscopic model moves vehicles along the site's road. The instants at which fronts and rears are at the loops
are the true edges; sensors miss some of them and misread some categories, which gives the detections.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from random import Random
from typing import NamedTuple

import msgspec

from genus_traffic.road.lanes import Road
from genus_traffic.road.scene import Scene, Site
from genus_traffic.road.truth import Detection, LoopOfPair, Passage
from genus_traffic.road.vehicles import LOWER_M, UPPER_M, Vehicle
from genus_traffic.types import DISTANCE_M, Category

WARM_UP_S = 90.0
"""How long traffic runs before a scene begins, so that the road is not empty."""
ROAD_STEPS = 25
"""How many steps of the road are simulated at once: five seconds."""
STANDS_S = 1.0
"""A vehicle that stands at least so long on or between the loops is a trap for measurements."""

_MISREAD_AS = {
    Category.CAR: (Category.TRUCK, Category.MOTORCYCLE),
    Category.TRUCK: (Category.BUS, Category.CAR),
    Category.BUS: (Category.TRUCK,),
    Category.MOTORCYCLE: (Category.CAR,),
}
"""What a category may be misread as."""


class Traffic(msgspec.Struct, frozen=True):
    """The detections of a site's loops, in order of time, and the true passages."""

    detections: tuple[Detection, ...]
    passages: tuple[Passage, ...]


class Edges(NamedTuple):
    """The four edges of a vehicle in a lane, in microseconds since 1970; None for missing ones."""

    upper_on: int | None
    upper_off: int | None
    lower_on: int | None
    lower_off: int | None


class Visit(NamedTuple):
    """The true edges of a vehicle in a lane."""

    vehicle: Vehicle
    lane: int
    edges: Edges
    speed: float | None

    @property
    def first_us(self) -> int:
        """Its first edge."""
        return min(edge for edge in self.edges if edge is not None)


def generate(site: Site, scene: Scene) -> Traffic:
    """Generate the traffic of a site; it depends on the seed and the site only, not on other sites.

    >>> from genus_traffic.road.city import default_city
    >>> city = default_city(sites=1, duration="2 min")
    >>> traffic = generate(city.sites[0], city)
    >>> len(traffic.detections) > len(traffic.passages) > 10
    True
    """
    visits = visits_of(simulate_road(site, scene), scene)
    together = _two_between(visits)
    loops = SiteLoops(site, scene)
    passages: list[Passage] = []
    detections: list[Detection] = []
    for visit in visits:
        detected, made = loops.detect(visit)
        passages.append(_passage(site, visit, detected, visit in together))
        detections += made
    return Traffic(tuple(sorted(detections, key=_order)), tuple(passages))


def detections_in_time(site: Site, scene: Scene) -> Iterator[Detection]:
    """The detections that `generate` makes, in the same order; the road is simulated only as far as is needed.

    >>> from genus_traffic.road.city import default_city
    >>> city = default_city(sites=1, duration="1 day")
    >>> next(detections_in_time(city.sites[0], city)).at_us - city.start_us < 60_000_000
    True
    """
    loops = SiteLoops(site, scene)
    seconds = scene.minutes * 60.0
    road = Road(site, scene.seed, -WARM_UP_S, seconds)
    visits: list[Visit] = []
    detections: list[Detection] = []
    while road.now < seconds:
        for _ in range(ROAD_STEPS):
            if road.now < seconds:
                road.step()
        gone, road.gone = road.gone, []
        visits += visits_of(gone, scene)
        known_us = scene.start_us + int(_known_until(road) * 1e6) - 1
        visits.sort(key=_visit_order)
        while visits and visits[0].first_us < known_us:
            detections += loops.detect(visits.pop(0))[1]
        detections.sort(key=_order)
        while detections and detections[0].at_us < known_us:
            yield detections.pop(0)
    visits += visits_of((vehicle for lane in road.lanes for vehicle in lane), scene)
    for visit in sorted(visits, key=_visit_order):
        detections += loops.detect(visit)[1]
    yield from sorted(detections, key=_order)


def _known_until(road: Road) -> float:
    """All edges before this time are known, and belong to vehicles that have left the road."""
    on_loops = (vehicle.instants[0] for lane in road.lanes for vehicle in lane if vehicle.instants)
    return min(road.now, *on_loops, road.now)


class SiteLoops:
    """State: the random generators of a site's loops, which detect visits in the order of their first edges."""

    def __init__(self, site: Site, scene: Scene) -> None:
        self._site, self._scene = site, scene
        refit_us = scene.refit_us(site.name)
        self._confident_from_us = scene.end_us if refit_us is None else refit_us
        self._faults = Random(f"{scene.seed}/{site.name}/faults")
        self._readings = Random(f"{scene.seed}/{site.name}/readings")

    def detect(self, visit: Visit) -> tuple[Edges, list[Detection]]:
        """The edges that the loops detect of the next visit, and the detections that they make of them."""
        detected = _detected_edges(visit.edges, self._site, self._scene, self._faults)
        category, confidence = _read_category(visit.vehicle.category, self._site.misread, self._readings)
        return detected, list(_detect(visit.lane, detected, category, confidence, self._confident_from_us))


def simulate_road(site: Site, scene: Scene) -> list[Vehicle]:
    """Simulate a site's road, and return its vehicles."""
    seconds = scene.minutes * 60.0
    road = Road(site, scene.seed, -WARM_UP_S, seconds)
    while road.now < seconds:
        road.step()
    return road.gone + [vehicle for lane in road.lanes for vehicle in lane]


def visits_of(vehicles: Iterable[Vehicle], scene: Scene) -> list[Visit]:
    """The visits of all vehicles to their lanes, in order of time, if an edge is within the scene."""
    made = [visit for vehicle in vehicles for visit in _visits(vehicle, scene.start_us)]
    seen = [visit for visit in made if any(_within(edge, scene) for edge in visit.edges)]
    return sorted(seen, key=_visit_order)


def _visit_order(visit: Visit) -> tuple[int, int]:
    return visit.first_us, visit.lane


def _visits(vehicle: Vehicle, start_us: int) -> Iterator[Visit]:
    change = vehicle.change
    if change is None:
        lanes = [(vehicle.lane, -inf, inf)]
    else:
        lanes = [(vehicle.lane, -inf, change.left), (change.lane, change.arrived, inf)]
    for lane, begin, end in lanes:
        upper, lower = (_hit(vehicle, loop_m, begin, end, start_us) for loop_m in (UPPER_M, LOWER_M))
        if upper or lower:
            edges = Edges(*(upper or (None, None)), *(lower or (None, None)))
            yield Visit(vehicle, lane, edges, _speed(vehicle, edges, begin, end))


def _hit(vehicle: Vehicle, loop_m: float, begin: float, end: float, start_us: int) -> tuple[int, int | None] | None:
    """When a vehicle came onto a loop of a lane, in which it is from `begin` to `end`, and left it."""
    came, went = vehicle.passed(loop_m), vehicle.passed(loop_m + vehicle.length)
    if came is None:
        return None
    on, off = max(came, begin), min(inf if went is None else went, end)
    on_us, off_us = round(on * 1e6), None if off == inf else round(off * 1e6)
    if off_us is None:
        return start_us + on_us, None
    return (start_us + on_us, start_us + off_us) if on_us < off_us else None


def _speed(vehicle: Vehicle, edges: Edges, begin: float, end: float) -> float | None:
    """The mean speed between the loops, if the front crossed both in this lane."""
    upper, lower = vehicle.passed(UPPER_M), vehicle.passed(LOWER_M)
    if upper is None or lower is None or upper < begin or lower >= end:
        return None
    if edges.upper_on is None or edges.lower_on is None:
        return None
    return DISTANCE_M * 1e6 / (edges.lower_on - edges.upper_on)


def _two_between(visits: Sequence[Visit]) -> set[Visit]:
    """Visits of vehicles whose fronts were between the loops of a lane at the same time."""
    lanes: dict[int, list[tuple[int, Visit]]] = {}
    for visit in visits:
        if visit.edges.upper_on is not None:
            lanes.setdefault(visit.lane, []).append((visit.edges.upper_on, visit))
    found: set[Visit] = set()
    for lane in lanes.values():
        for (_, first), (upper_us, second) in pairwise(sorted(lane, key=lambda each: each[0])):
            if first.edges.lower_on is not None and upper_us < first.edges.lower_on:
                found |= {first, second}
    return found


def _within(edge: int | None, scene: Scene) -> bool:
    return edge is not None and scene.start_us <= edge < scene.end_us


def _detected_edges(edges: Edges, site: Site, scene: Scene, rng: Random) -> Edges:
    """The edges that the loops detect: without missed hits, missed edges, and edges outside the scene."""
    blind = [rng.random() < site.missed_hits for _ in range(2)]
    lost = [rng.random() < site.missed_edges for _ in range(4)]
    hits = blind[0], blind[0], blind[1], blind[1]
    return Edges(
        *(
            None if missed_hit or missed or not _within(edge, scene) else edge
            for edge, missed_hit, missed in zip(edges, hits, lost, strict=True)
        )
    )


def _passage(site: Site, visit: Visit, detected: Edges, two_between: bool) -> Passage:
    vehicle = visit.vehicle
    change, edges = vehicle.change, visit.edges
    traps = {
        "standing": vehicle.stood >= STANDS_S,
        "two between": two_between,
        "lane change": change is not None,
        "missed": detected != edges,
        "simultaneous": edges.upper_on is not None and edges.upper_on == edges.lower_on,
    }
    return Passage(
        site=site.name,
        lane=visit.lane,
        vehicle=f"{site.name}/{vehicle.lane}-{vehicle.number}",
        category=vehicle.category,
        length_m=round(vehicle.length, 3),
        upper_on_us=detected.upper_on,
        upper_off_us=detected.upper_off,
        lower_on_us=detected.lower_on,
        lower_off_us=detected.lower_off,
        speed=visit.speed,
        traps=tuple(name for name, applies in traps.items() if applies),
    )


def _read_category(category: Category, misread: float, rng: Random) -> tuple[Category, float]:
    """The category that an upper loop reads, and its confidence, which is mostly lower if it is wrong."""
    if rng.random() >= misread:
        return category, round(rng.betavariate(9.0, 1.6), 3)
    return rng.choice(_MISREAD_AS[category]), round(rng.betavariate(3.0, 3.0), 3)


def _detect(
    lane: int, detected: Edges, category: Category, confidence: float, confident_from_us: int
) -> Iterator[Detection]:
    loops: tuple[tuple[LoopOfPair, int | None, int | None], ...] = (
        ("upper", detected.upper_on, detected.upper_off),
        ("lower", detected.lower_on, detected.lower_off),
    )
    for loop, on_us, off_us in loops:
        if on_us is not None:
            seen = category if loop == "upper" else None
            sure = confidence if loop == "upper" and on_us >= confident_from_us else None
            yield Detection(on_us, lane, loop, True, seen, sure)
        if off_us is not None:
            yield Detection(off_us, lane, loop, False)


def _order(detection: Detection) -> tuple[int, bool, int, bool]:
    """Sort key: by time; at one instant off before on, and the upper loop first."""
    return detection.at_us, detection.on, detection.lane, detection.loop == "lower"
