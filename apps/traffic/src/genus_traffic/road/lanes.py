"""The road of a site: lanes with a pair of loops each, on which vehicles enter, follow each other and change lane.

Each lane has its own random generator for its vehicles, and the waves have one, so the first minutes of a long run are
those of a short one.
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
MAX_SIGNAL_BRAKING = 3.5
"""A vehicle that would have to brake harder than this (m/s²) passes the light."""
MAX_CUT_IN_BRAKING = 6.0
"""No lane change if it makes a vehicle brake harder than this (m/s²)."""
CAR_LENGTH_M = 4.5
"""The length of a car to which `lane_changes` applies; longer vehicles are over the loops for longer."""
UPSTREAM_MPS = 4.5
"""How fast waves of congestion travel against the traffic."""
PLATOON = 0.4
"""The share of vehicles that follow closely."""
MOTORCYCLE_PAIRS = 0.5
"""The share of motorcycles that another one follows, regardless of the mix."""
CLOSE_S = 1.3
"""The least time between two vehicles."""


class CongestionWave(NamedTuple):
    """A wave of congestion: from when to when it is at the upper loops, and how fast vehicles are in it."""

    begin: float
    end: float
    speed: float


class Road:
    """State: the vehicles on a site's road, by lane, the first one in front."""

    def __init__(self, site: Site, seed: int, begin: float, end: float) -> None:
        self.site = site
        self.now = begin
        self.lanes: list[list[Vehicle]] = [[] for _ in range(site.lanes)]
        self._leaving: list[list[Vehicle]] = [[] for _ in range(site.lanes)]
        """Vehicles that change lane within the current step: they still block the lane they leave."""
        self.gone: list[Vehicle] = []
        """Vehicles that left at the far end."""
        self._arrivals = [
            Arrivals(site, lane, Random(f"{seed}/{site.name}/lane {lane}"), begin) for lane in range(site.lanes)
        ]
        rng = Random(f"{seed}/{site.name}/waves")
        self._waves = list(waves_until(end, site.waves, rng)) if site.waves is not None else []
        self._red = False
        self._line = LOWER_M + (site.signal.line_m if site.signal is not None else 0.0)

    def step(self) -> None:
        """Advance by one time step."""
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
        acceleration = vehicle.free_acceleration(limit)
        halts = False
        if leader is not None:
            gap, approach = leader.rear_before - vehicle.front, vehicle.speed - leader.speed_before
            acceleration -= vehicle.restraint(gap, approach)
            halts = vehicle.halts(gap, approach)
        if self._red and self._obeys(vehicle):
            gap = self._line - vehicle.stops_short - vehicle.front + vehicle.gap
            acceleration = min(acceleration, vehicle.free_acceleration(limit) - vehicle.restraint(gap, vehicle.speed))
            halts = halts or vehicle.halts(gap, vehicle.speed)
        if halts:
            acceleration = min(acceleration, -vehicle.speed / STEP_S)
        acceleration = max(acceleration, -HARDEST_BRAKING)
        if leader is not None:
            acceleration = min(acceleration, self._safe(vehicle, leader))
        vehicle.move(acceleration, self.now, STEP_S)

    def _safe(self, vehicle: Vehicle, leader: Vehicle) -> float:
        """The largest acceleration with which it does not hit its leader, which has moved already."""
        return vehicle.gentlest_braking(leader.rear - CLOSEST_M - vehicle.front, STEP_S)

    def _obeys(self, vehicle: Vehicle) -> bool:
        """Whether a red light is ahead of it and it can still stop."""
        ahead = self._line - vehicle.front
        return 0.0 < ahead < 120.0 and vehicle.speed**2 <= 2.0 * MAX_SIGNAL_BRAKING * ahead

    def _limit(self, position_m: float, slow: list[CongestionWave]) -> float:
        """The desired speed at a position: that of a wave if there is one."""
        instant = self.now - (UPPER_M - position_m) / UPSTREAM_MPS
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
        """Whether the target lane has a gap, now and a step ago, in which neither it nor the follower brakes hard."""
        for other in (*self.lanes[vehicle.to_lane], *self._leaving[vehicle.to_lane]):
            ahead = min(other.rear - vehicle.front, other.rear_before - vehicle.front_before)
            behind = min(vehicle.rear - other.front, vehicle.rear_before - other.front_before)
            if ahead < 1.0 and behind < 1.0:
                return False
            follower, leader, gap = (vehicle, other, ahead) if ahead >= 1.0 else (other, vehicle, behind)
            if follower.restraint(gap, follower.speed - leader.speed) > MAX_CUT_IN_BRAKING:
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
    """State: the vehicles that enter a lane: some closely behind others, the rest at random."""

    def __init__(self, site: Site, lane: int, rng: Random, begin: float) -> None:
        self._site = site
        self._lane = lane
        self._rng = rng
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
        """Let the next vehicle enter the lane if it is due and there is room."""
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
        """The time to the next one, by Cowan's model: a share follows closely, the rest comes at random."""
        mean = 3600.0 / self._site.flow_per_hour
        close = min(CLOSE_S, 0.8 * mean)
        if self._rng.random() < PLATOON:
            return close
        return close + self._rng.expovariate((1.0 - PLATOON) / (mean - close))

    def _make(self) -> Vehicle:
        rng = self._rng
        in_pair = self._category is Category.MOTORCYCLE and rng.random() < MOTORCYCLE_PAIRS
        if not in_pair:
            self._category = rng.choices(self._categories, self._weights)[0]
        self._count += 1
        vehicle = Vehicle(self._category, self._lane, self._count, self._limit, rng)
        if in_pair:
            vehicle.keep_close()
        neighbours = [lane for lane in (self._lane - 1, self._lane + 1) if 0 <= lane < self._site.lanes]
        longer = (DISTANCE_M + vehicle.length) / (DISTANCE_M + CAR_LENGTH_M)
        if neighbours and rng.random() < self._site.lane_changes * longer:
            vehicle.plan_change(rng.choice(neighbours), rng)
        return vehicle


def is_green(signal: Signal, now: float) -> bool:
    """Whether a light is green; the end of the green is amber, in which vehicles stop if they can.

    >>> [is_green(Signal(cycle_s=60, green_s=20), now) for now in (0, 16, 17.5, 59, 61)]
    [True, True, False, False, True]
    """
    return (now - signal.offset_s) % signal.cycle_s < signal.green_s - min(AMBER_S, 0.5 * signal.green_s)


def waves_until(end: float, waves: Waves, rng: Random) -> Iterator[CongestionWave]:
    """The waves of congestion up to an instant; the first one is early, so that short runs have one."""
    begin = waves.every_s * rng.uniform(0.25, 0.5)
    while begin < end + UPPER_M / UPSTREAM_MPS:
        lasts = waves.lasts_s * rng.uniform(0.7, 1.3)
        speed = waves.speed_mps * rng.uniform(0.6, 1.4)
        halt = lasts * rng.uniform(0.0, 0.25)
        yield CongestionWave(begin, begin + halt, 0.05)
        yield CongestionWave(begin + halt, begin + lasts, speed)
        begin += max(waves.every_s * rng.uniform(0.7, 1.3), lasts * 1.2)
