"""Vehicles over a pair of loops, as simple as can be, and what is to become of their detections."""

from collections.abc import Iterable
from random import Random

from genus.model import micros_of_time
from genus_traffic.road.truth import Detection
from genus_traffic.segment.segment import Segment
from genus_traffic.types import DISTANCE_M, Category, Cleared, Edge

START_US = 1_790_000_000_000_000
SECOND_US = 1_000_000


def vehicle(
    at_us: int, lane: int = 0, speed: float = 25.0, length: float = 4.5, category: Category = Category.CAR
) -> list[Detection]:
    """The four edges of a vehicle whose front is over the upper loop at an instant."""
    lower_us, passes_us = round(DISTANCE_M / speed * 1e6), round(length / speed * 1e6)
    return [
        Detection(at_us, lane, "upper", True, category, 0.75),
        Detection(at_us + passes_us, lane, "upper", False),
        Detection(at_us + lower_us, lane, "lower", True),
        Detection(at_us + lower_us + passes_us, lane, "lower", False),
    ]


def traffic(seconds: int, lanes: int = 2, seed: int = 1, start_us: int = START_US) -> list[Detection]:
    """Vehicles in all lanes, a second or two apart."""
    random = Random(seed)
    found: list[Detection] = []
    for lane in range(lanes):
        at_us = start_us + random.randint(100_000, 900_000)
        while at_us < start_us + (seconds - 2) * SECOND_US:
            found += vehicle(at_us, lane, random.uniform(10, 35), random.uniform(2, 12), random.choice([*Category]))
            at_us += random.randint(1_300_000, 2_500_000)
    return in_order(found)


def in_order(detections: Iterable[Detection]) -> list[Detection]:
    """The same, in order of time."""
    return sorted(detections, key=lambda detection: detection.at_us)


def segment_of(
    detections: Iterable[Detection], seconds: int = 12, refit_s: float | None = None, **more: object
) -> Segment:
    """A segment on which these detections happen."""
    given: dict[str, object] = {"site": "north", "place": "Ring road, km 31", "lanes": 2, **more}
    return Segment(
        **given,  # type: ignore[arg-type]
        detections=tuple(in_order(detections)),
        start_us=START_US,
        end_us=START_US + seconds * SECOND_US,
        refit_us=None if refit_s is None else START_US + round(refit_s * SECOND_US),
    )


def seen(event: Edge) -> tuple[int, int, str, bool]:
    """Instant, lane, loop and edge of an event."""
    assert event.time is not None
    loop = "lower" if event.place is None else "upper"
    return micros_of_time(event.time), event.lane, loop, not isinstance(event, Cleared)
