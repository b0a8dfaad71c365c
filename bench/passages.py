"""Speeds from loop edges: how fast and how right, against pairing each lower hit with the upper hit just before it.

The traffic is made by the application's generator: signals with queues on the loops, motorways with waves, streets,
lane changes over the loops and missed edges, far more of these than in life. Both see the same edges.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from bench.timing import markdown
from genus_traffic.accuracy import accuracy_of
from genus_traffic.passages.finder import MeasuredPassage, SitePassage, find_passages
from genus_traffic.passages.hits import LoopEdge
from genus_traffic.results import Accuracy
from genus_traffic.road.city import default_city
from genus_traffic.road.generator import generate
from genus_traffic.road.truth import Detection, Passage
from genus_traffic.types import DISTANCE_M

SITES, MINUTES, SEED, TURNS = 12, 10.0, 11, 3

Lane: TypeAlias = tuple[str, int]
Finder: TypeAlias = Callable[[Sequence[LoopEdge]], Iterable[MeasuredPassage]]


class Judged(NamedTuple):
    """A contestant's figures."""

    edges_per_second: float
    accuracy: Accuracy


def neighbours(edges: Sequence[LoopEdge]) -> Iterable[MeasuredPassage]:
    """The baseline: a lower loop's leading edge belongs to the upper one's just before it, if nobody took that."""
    upper: LoopEdge | None = None
    for edge in edges:
        if not edge.on:
            continue
        if edge.upper:
            upper = edge
        elif upper is not None and edge.at_us > upper.at_us:
            speed = DISTANCE_M * 1e6 / (edge.at_us - upper.at_us)
            yield MeasuredPassage(upper.at_us, None, edge.at_us, None, speed, None, None, upper.category)
            upper = None


CONTESTANTS: dict[str, Finder] = {"genus": find_passages, "neighbours": neighbours}


def run() -> dict[str, Judged]:
    """Each contestant over the same city; the least CPU time of several turns counts."""
    lanes, truth = _city()
    count = sum(map(len, lanes.values()))
    best = dict.fromkeys(CONTESTANTS, float("inf"))
    found: dict[str, list[SitePassage]] = {}
    for _ in range(TURNS):
        for name, finder in CONTESTANTS.items():
            began = time.process_time()
            found[name] = [SitePassage(*lane, each) for lane, edges in lanes.items() for each in finder(edges)]
            best[name] = min(best[name], time.process_time() - began)
    return {name: Judged(count / best[name], accuracy_of(found[name], truth, 0)) for name in CONTESTANTS}


def _city() -> tuple[dict[Lane, list[LoopEdge]], list[Passage]]:
    scene = default_city(SITES, f"{MINUTES} min", SEED)
    lanes: dict[Lane, list[LoopEdge]] = defaultdict(list)
    truth: list[Passage] = []
    for site in scene.sites:
        traffic = generate(site, scene)
        truth += traffic.passages
        for detection in traffic.detections:
            lanes[site.name, detection.lane].append(_edge(detection))
    return lanes, truth


def _edge(detection: Detection) -> LoopEdge:
    category = detection.category.value if detection.category is not None else None
    return LoopEdge(detection.at_us, detection.loop == "upper", detection.on, category)


def table(judged: dict[str, Judged]) -> str:
    """Rates and rightness."""
    head = ["", "edges/s", "complete", "right", "wrong", "not measured", "invented"]
    rows = [
        [
            name,
            f"{each.edges_per_second:,.0f}",
            f"{each.accuracy.complete:,}",
            f"{each.accuracy.share:.2%}",
            f"{each.accuracy.wrong:,}",
            f"{each.accuracy.unmeasured:,}",
            f"{each.accuracy.invented:,}",
        ]
        for name, each in judged.items()
    ]
    return markdown(head, rows)


if __name__ == "__main__":
    print(table(run()), file=sys.stdout)
