"""Vehicles and how they are driven: the Intelligent Driver Model of Treiber, Hennecke and Helbing (2000).

A driver accelerates towards a desired speed and keeps a standstill gap and a time headway to what is in front. Within
a time step the acceleration is constant, so the instant at which a front reaches a line is known exactly. Distances are
in metres, times in seconds, and a vehicle's position is that of its front.
"""

from collections.abc import Mapping
from math import inf, sqrt
from random import Random
from typing import NamedTuple, TypeAlias

from genus_traffic.types import DISTANCE_M, Category

UPPER_M = 300.0
"""The position of the upper loops, from the start of the road."""
LOWER_M = UPPER_M + DISTANCE_M

HARDEST_BRAKING = 8.0
CLOSEST_M = 0.3
"""The least gap between two vehicles of a lane."""
START_GAP_M = 0.5
"""A standing driver starts when so much more than the standstill gap is free."""

_CREEPING = 0.2
"""Below this speed (m/s), a driver close to what is in front stops."""

Range: TypeAlias = tuple[float, float]


class Build(NamedTuple):
    """Ranges of the properties of vehicles of a category and of their drivers."""

    length: Range
    eagerness: Range
    """Desired speed, as a share of the limit."""
    headway: Range
    gap: Range
    """Between two that stand."""
    acceleration: Range
    braking: Range


BUILDS: Mapping[Category, Build] = {
    Category.CAR: Build((3.7, 5.4), (0.88, 1.12), (0.7, 1.2), (1.2, 2.2), (1.8, 2.8), (1.8, 2.8)),
    Category.TRUCK: Build((7.0, 16.5), (0.76, 0.92), (1.2, 1.7), (1.8, 3.0), (0.9, 1.4), (1.5, 2.2)),
    Category.BUS: Build((11.0, 13.5), (0.78, 0.92), (1.1, 1.6), (1.8, 2.8), (1.0, 1.5), (1.5, 2.0)),
    Category.MOTORCYCLE: Build((2.0, 2.4), (0.90, 1.20), (0.6, 1.0), (0.8, 1.3), (2.6, 3.8), (2.2, 3.2)),
}


class Change(NamedTuple):
    """A lane change: from when it left one lane to when it arrived in the other, no loop detects the vehicle."""

    left: float
    arrived: float
    lane: int


class Vehicle:
    """State: a vehicle in a lane, and when it passed the loops."""

    __slots__ = (
        "acceleration", "astride", "braking", "category", "change", "change_at", "desired", "front", "front_before",
        "gap", "headway", "instants", "lane", "length", "marks", "number", "speed", "speed_before", "stood",
        "stops_short", "to_lane",
    )  # fmt: skip

    def __init__(self, category: Category, lane: int, number: int, limit: float, rng: Random) -> None:
        build = BUILDS[category]
        self.category = category
        self.lane = lane
        """The lane in which it entered; `change` has a later one."""
        self.number = number
        self.length = rng.uniform(*build.length)
        self.desired = limit * rng.uniform(*build.eagerness)
        self.headway = rng.uniform(*build.headway)
        self.gap = rng.uniform(*build.gap)
        self.acceleration = rng.uniform(*build.acceleration)
        self.braking = rng.uniform(*build.braking)
        self.stops_short = rng.uniform(0.3, 5.0)
        self.front = self.front_before = 0.0
        self.speed = self.speed_before = 0.0
        self.marks = sorted((UPPER_M, LOWER_M, UPPER_M + self.length, LOWER_M + self.length))
        self.instants: list[float] = []
        """When the front was at each of the marks."""
        self.stood = 0.0
        """How long it stood on or between the loops."""
        self.change_at: float | None = None
        self.to_lane = lane
        self.astride = 0.0
        """How far it drives between two lanes, over the loops of neither."""
        self.change: Change | None = None

    @property
    def rear(self) -> float:
        """The position of its rear."""
        return self.front - self.length

    @property
    def rear_before(self) -> float:
        """The position of its rear a step ago."""
        return self.front_before - self.length

    def keep_close(self) -> None:
        """Follow the vehicle in front closely."""
        self.headway *= 0.4
        self.gap *= 0.7

    def plan_change(self, to_lane: int, rng: Random) -> None:
        """Plan a lane change over or between the loops."""
        self.to_lane = to_lane
        self.astride = rng.uniform(0.5, 5.0)
        self.change_at = rng.uniform(UPPER_M, LOWER_M + self.length) - self.astride

    def free_acceleration(self, limit: float) -> float:
        """The acceleration on an empty road on which vehicles are no faster than `limit`."""
        desired = min(self.desired, limit)
        if self.speed <= desired:
            return self.acceleration * (1.0 - (self.speed / desired) ** 4)
        eased: float = (desired / self.speed) ** (4.0 * self.acceleration / self.braking)
        return self.braking * (eased - 1.0)

    def restraint(self, gap: float, approach: float) -> float:
        """How much less it accelerates because of an obstacle at a distance, which it approaches at a speed."""
        keep = self.speed * self.headway + self.speed * approach / (2.0 * sqrt(self.acceleration * self.braking))
        wanted = self.gap + max(keep, 0.0)
        wanted /= max(gap, 0.01)
        return self.acceleration * wanted * wanted

    def halts(self, gap: float, approach: float) -> bool:
        """Whether it stands, or stops, behind an obstacle."""
        if self.speed == 0.0:
            return gap < self.gap + START_GAP_M
        return self.speed < _CREEPING and approach >= 0.0 and gap < self.gap + START_GAP_M

    def move(self, acceleration: float, begin: float, step: float) -> None:
        """Drive for a time step, and record when the front reaches a mark."""
        self.front_before, self.speed_before = self.front, self.speed
        speed = self.speed + acceleration * step
        if speed > 0.0:
            self.front += (self.speed + speed) * 0.5 * step
            self.speed = speed
        elif self.speed > 0.0:
            self.front += self.speed**2 / (-2.0 * acceleration)
            self.speed = 0.0
        elif self.front >= UPPER_M and self.rear <= LOWER_M:
            self.stood += step
        while len(self.instants) < 4 and self.front >= self.marks[len(self.instants)]:
            self.instants.append(begin + self.reaches(self.marks[len(self.instants)], acceleration))

    def reaches(self, position_m: float, acceleration: float) -> float:
        """How long after the start of the last step its front passed a position."""
        ahead = position_m - self.front_before
        speed_there = sqrt(max(self.speed_before**2 + 2.0 * acceleration * ahead, 0.0))
        return 2.0 * ahead / (self.speed_before + speed_there) if ahead > 0.0 else 0.0

    def gentlest_braking(self, room: float, step: float) -> float:
        """The acceleration with which it goes no further than `room` in a step."""
        acceleration = 2.0 * (room - self.speed * step) / step**2
        if self.speed + acceleration * step >= 0.0:
            return acceleration
        return -(self.speed**2) / (2.0 * room) if room > 0.0 else -inf

    def passed(self, mark: float) -> float | None:
        """When its front was at one of the marks; None if it is not there yet."""
        index = self.marks.index(mark)
        return self.instants[index] if index < len(self.instants) else None
