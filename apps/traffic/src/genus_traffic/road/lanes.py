"""The road of a site: lanes with a pair of loops each, on which vehicles enter, follow each other and change lane.

Everything that chance decides comes from streams of its own (one per lane for the vehicles, one for waves), so the
first minutes of a long run are those of a short one.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from genus_traffic.road.scene import Signal, Site, Waves
from genus_traffic.road.vehicles import CLOSEST_M, HARDEST_BRAKING, LOWER_M, UPPER_M, Change, Vehicle
from genus_traffic.types import DISTANCE_M, Category

STEP_S = 0.2
END_M = LOWER_M + 100.0
AMBER_S = 3.0
HURRY = 3.5
"""Who would have to brake harder than that (m/s²) for a light passes it."""
CUTTING_IN = 6.0
"""Nobody changes lane if that means to brake harder (m/s²), or to make another do so."""
MIDDLING_M = 4.5
"""The length of a car of which `lane_changes` speaks; who is longer is over the loops for longer."""
UPSTREAM_MPS = 4.5
"""How fast waves of congestion travel against the traffic."""
PLATOON = 0.4
"""The share of vehicles that come close behind the one before."""
TOGETHER = 0.5
"""The share of motorcycles that another one follows, whatever the mix says."""
CLOSE_S = 1.3
"""How long a vehicle comes after the one before, at least."""


class Slow(NamedTuple):
    """A wave of congestion: between two instants at the upper loops, earlier downstream and later upstream."""

    begin: float
    end: float
    speed: float


class Road:
    """The vehicles on a site's road, lane by lane with the first one in front, at an instant of its time."""

    def __init__(self, site: Site, seed: int, begin: float, end: float) -> None:
        self.site = site
        self.now = begin
        self.lanes: list[list[Vehicle]] = [[] for _ in range(site.lanes)]
        self._leaving: list[list[Vehicle]] = [[] for _ in range(site.lanes)]
        """Those that leave a lane for another within the present step: until then they are in the way there."""
        self.gone: list[Vehicle] = []
        """Those that left at the far end."""
        self._arrivals = [
            Arrivals(site, lane, Random(f"{seed}/{site.name}/lane {lane}"), begin) for lane in range(site.lanes)
        ]
        chance = Random(f"{seed}/{site.name}/waves")
        self._waves = list(waves_until(end, site.waves, chance)) if site.waves is not None else []
        self._red = False
        self._line = LOWER_M + (site.signal.line_m if site.signal is not None else 0.0)

    def step(self) -> None:
        """Let a step of time go by."""
        self._red = self.site.signal is not None and not is_green(self.site.signal, self.now)
        slow = [wave for wave in self._waves if wave.begin - 60.0 < self.now < wave.end + 120.0]
        for lane, arrivals in zip(self.lanes, self._arrivals, strict=True):
            arrivals.enter(lane, self.now)
            leader = None
            for vehicle in lane:
                self._drive(vehicle, leader, self._limit(vehicle.front, slow) if slow else vehicle.desired)
                leader = vehicle
        self._change_lanes()
        for lane in self.lanes:
            while lane and lane[0].rear > END_M:
                self.gone.append(lane.pop(0))
        self.now += STEP_S

    def _drive(self, vehicle: Vehicle, leader: Vehicle | None, limit: float) -> None:
        acceleration = vehicle.freely(limit)
        halts = False
        if leader is not None:
            gap, approach = leader.rear_before - vehicle.front, vehicle.speed - leader.speed_before
            acceleration -= vehicle.restraint(gap, approach)
            halts = vehicle.halts(gap, approach)
        if self._red and self._obeys(vehicle):
            gap = self._line - vehicle.stops_short - vehicle.front + vehicle.gap
            acceleration = min(acceleration, vehicle.freely(limit) - vehicle.restraint(gap, vehicle.speed))
            halts = halts or vehicle.halts(gap, vehicle.speed)
        if halts:
            acceleration = min(acceleration, -vehicle.speed / STEP_S)
        acceleration = max(acceleration, -HARDEST_BRAKING)
        if leader is not None:
            acceleration = min(acceleration, self._safe(vehicle, leader))
        vehicle.move(acceleration, self.now, STEP_S)

    def _safe(self, vehicle: Vehicle, leader: Vehicle) -> float:
        """The most acceleration with which it does not run into its leader, who has moved already."""
        return vehicle.gentlest_braking(leader.rear - CLOSEST_M - vehicle.front, STEP_S)

    def _obeys(self, vehicle: Vehicle) -> bool:
        """Whether a red light ahead is for it, and it can still stop."""
        ahead = self._line - vehicle.front
        return 0.0 < ahead < 120.0 and vehicle.speed**2 <= 2.0 * HURRY * ahead

    def _limit(self, place: float, slow: list[Slow]) -> float:
        """How fast one may wish to be at a place: that of the wave that is there."""
        instant = self.now - (UPPER_M - place) / UPSTREAM_MPS
        return next((wave.speed for wave in slow if wave.begin <= instant < wave.end), 1000.0)

    def _change_lanes(self) -> None:
        for leaving in self._leaving:
            leaving.clear()
        for lane, leaving in zip(self.lanes, self._leaving, strict=True):
            for vehicle in [each for each in lane if each.change_at is not None and each.front >= each.change_at]:
                if self._has_room(vehicle):
                    self._change(vehicle, lane)
                    leaving.append(vehicle)
                else:
                    vehicle.change_at = vehicle.front + 0.5
                if vehicle.rear > LOWER_M:
                    vehicle.change_at = None

    def _has_room(self, vehicle: Vehicle) -> bool:
        """Whether there is a gap beside it, now and a step ago, for it and for whom it would cut in on."""
        for other in (*self.lanes[vehicle.to_lane], *self._leaving[vehicle.to_lane]):
            ahead = min(other.rear - vehicle.front, other.rear_before - vehicle.front_before)
            behind = min(vehicle.rear - other.front, vehicle.rear_before - other.front_before)
            if ahead < 1.0 and behind < 1.0:
                return False
            follower, leader, gap = (vehicle, other, ahead) if ahead >= 1.0 else (other, vehicle, behind)
            if follower.restraint(gap, follower.speed - leader.speed) > CUTTING_IN:
                return False
        return True

    def _change(self, vehicle: Vehicle, lane: list[Vehicle]) -> None:
        assert vehicle.change_at is not None
        acceleration = (vehicle.speed - vehicle.speed_before) / STEP_S
        left = self.now + min(vehicle.reaches(vehicle.change_at, acceleration), STEP_S)
        vehicle.change = Change(left, left + vehicle.astride / max(vehicle.speed, 1.0), vehicle.to_lane)
        vehicle.change_at = None
        lane.remove(vehicle)
        target = self.lanes[vehicle.to_lane]
        target.insert(sum(other.front > vehicle.front for other in target), vehicle)


class Arrivals:
    """The vehicles that come to a lane: at least some time apart, some close behind others, the rest at random."""

    def __init__(self, site: Site, lane: int, chance: Random, begin: float) -> None:
        self._site = site
        self._lane = lane
        self._chance = chance
        share = lane / (site.lanes - 1) if site.lanes > 1 else 0.5
        self._limit = site.limit_mps * (0.94 + 0.12 * share)
        self._categories = list(site.mix)
        heavy = Category.TRUCK, Category.BUS
        self._weights = [site.mix[each] * (1.8 - 1.6 * share if each in heavy else 1.0) for each in site.mix]
        self._count = 0
        self._category = next(iter(site.mix))
        self._next = self._make()
        self._due = begin + self._headway() if site.flow_per_hour > 0 else float("inf")

    def enter(self, lane: list[Vehicle], now: float) -> None:
        """Let the next vehicle onto its lane if its time has come and there is room."""
        if now < self._due:
            return
        last = lane[-1] if lane else None
        vehicle = self._next
        vehicle.speed = vehicle.desired
        if last is not None:
            if last.rear < 20.0 + 2.0 * vehicle.speed:
                vehicle.speed = min(vehicle.speed, last.speed)
            if last.rear < vehicle.gap + vehicle.speed * vehicle.headway:
                return
        vehicle.speed_before = vehicle.speed
        lane.append(vehicle)
        self._next = self._make()
        self._due += self._headway()

    def _headway(self) -> float:
        """The time to the next one: Cowan's model, in which a share follows closely and the rest comes by chance."""
        mean = 3600.0 / self._site.flow_per_hour
        close = min(CLOSE_S, 0.8 * mean)
        if self._chance.random() < PLATOON:
            return close
        return close + self._chance.expovariate((1.0 - PLATOON) / (mean - close))

    def _make(self) -> Vehicle:
        chance = self._chance
        riding_together = self._category is Category.MOTORCYCLE and chance.random() < TOGETHER
        if not riding_together:
            self._category = chance.choices(self._categories, self._weights)[0]
        self._count += 1
        vehicle = Vehicle(self._category, self._lane, self._count, self._limit, chance)
        if riding_together:
            vehicle.ride_along()
        neighbours = [lane for lane in (self._lane - 1, self._lane + 1) if 0 <= lane < self._site.lanes]
        longer = (DISTANCE_M + vehicle.length) / (DISTANCE_M + MIDDLING_M)
        if neighbours and chance.random() < self._site.lane_changes * longer:
            vehicle.wish_to_change(chance.choice(neighbours), chance)
        return vehicle


def is_green(signal: Signal, now: float) -> bool:
    """Whether a light is green; the last of the green is amber, in which those stop that can.

    >>> [is_green(Signal(cycle_s=60, green_s=20), now) for now in (0, 16, 17.5, 59, 61)]
    [True, True, False, False, True]
    """
    return (now - signal.offset_s) % signal.cycle_s < signal.green_s - min(AMBER_S, 0.5 * signal.green_s)


def waves_until(end: float, waves: Waves, chance: Random) -> Iterator[Slow]:
    """The waves of congestion up to an instant; the first comes early, so that short runs see one."""
    begin = waves.every_s * chance.uniform(0.25, 0.5)
    while begin < end + UPPER_M / UPSTREAM_MPS:
        lasts = waves.lasts_s * chance.uniform(0.7, 1.3)
        speed = waves.speed_mps * chance.uniform(0.6, 1.4)
        halt = lasts * chance.uniform(0.0, 0.25)
        yield Slow(begin, begin + halt, 0.05)
        yield Slow(begin + halt, begin + lasts, speed)
        begin += max(waves.every_s * chance.uniform(0.7, 1.3), lasts * 1.2)
