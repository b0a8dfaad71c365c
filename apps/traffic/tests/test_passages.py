"""Passages: vehicles and their speeds in the edges of a pair of loops, and no speed where none was measured."""

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.errors import EventError
from genus.model import micros_of_time
from genus_traffic.accuracy import accuracy_of
from genus_traffic.edges import read_edges, read_truth_file
from genus_traffic.passages.finder import (
    PATIENCE_US,
    MeasuredPassage,
    PassageFinder,
    SitePassage,
    find_passages,
    to_loop_edge,
)
from genus_traffic.passages.hits import LoopEdge
from genus_traffic.results import Accuracy
from genus_traffic.types import Category, Cleared, Loop

from .examples import examples

MORNING = datetime(2026, 5, 1, 6, tzinfo=UTC)
SUMO = Path("/work/shared/data/sumo_road")
UPPER, LOWER = True, False
ON, OFF = True, False


def car(at: float, speed: float, length: float = 4.6, category: str | None = None) -> list[LoopEdge]:
    """The edges of a vehicle that reaches the upper loop at some second and drives evenly."""
    instants = (at, at + length / speed, at + 5 / speed, at + (5 + length) / speed)
    kinds = ((UPPER, ON), (UPPER, OFF), (LOWER, ON), (LOWER, OFF))
    return [
        LoopEdge(round(instant * 1e6), *kind, category if kind == (UPPER, ON) else None)
        for instant, kind in zip(instants, kinds, strict=True)
    ]


def edges(upper: Sequence[float | None], lower: Sequence[float | None]) -> list[LoopEdge]:
    """Edges at some seconds; None for one that was missed."""
    found = [(at, UPPER, on) for at, on in zip(upper, (ON, OFF), strict=True)]
    found += [(at, LOWER, on) for at, on in zip(lower, (ON, OFF), strict=True)]
    return [LoopEdge(round(at * 1e6), loop, on) for at, loop, on in found if at is not None]


def speeds(found: Iterable[MeasuredPassage]) -> list[float | None]:
    """Speeds in order of time, rounded."""
    order = sorted(found, key=lambda each: min(at for at in each[:4] if at is not None))
    return [None if each.speed is None else round(each.speed, 3) for each in order]


def test_the_speed_is_the_distance_of_the_loops_over_the_time_between_them() -> None:
    (found,) = find_passages(car(10, 20.0, 4.6, "car"))
    assert (found.speed, found.category) == (20.0, "car")
    assert found.speed_leaving == pytest.approx(20.0)
    assert found.length == pytest.approx(4.6)
    assert found[:4] == (10_000_000, 10_230_000, 10_250_000, 10_480_000)


@pytest.mark.parametrize(("speed", "length"), [(2.0, 4.6), (8.0, 2.2), (15.0, 12.0), (25.0, 16.5), (40.0, 4.0)])
def test_a_vehicle_alone_is_measured_whatever_it_is(speed: float, length: float) -> None:
    (found,) = find_passages(car(0, speed, length))
    assert found.speed == pytest.approx(speed, abs=0.001)
    assert found.length == pytest.approx(length, rel=0.01)


def test_two_motorcycles_between_the_loops_keep_their_order() -> None:
    """The second one is over the upper loop before the first one is at the lower."""
    first, second = car(0, 4.0, 2.2), car(0.9, 4.2, 2.2)
    assert second[0] < first[2]
    assert speeds(find_passages([*first, *second])) == [4.0, 4.2]
    assert speeds(find_passages([*first, *second, *car(4, 5.0), *car(7, 6.0)])) == [4.0, 4.2, 5.0, 6.0]


def test_a_hit_of_one_loop_gets_no_speed() -> None:
    """Vehicles that left the lane between the loops, or came into it there, whatever drives around them."""
    around = [*car(0, 20.0), *car(9, 20.0), *car(18, 20.0)]
    left, came = edges((3.0, 3.2), (None, None)), edges((None, None), (12.0, 12.2))
    assert speeds(find_passages([*around, *left, *came])) == [20.0, None, 20.0, None, 20.0]


def test_one_that_left_and_one_that_came_are_not_taken_for_one_vehicle() -> None:
    """Their instants would be a speed, but not one at which their times on the loops make a vehicle."""
    assert speeds(find_passages(edges((3.0, 3.15), (4.0, 4.15)))) == [None, None]


def test_in_a_queue_one_that_left_the_lane_does_not_shift_the_others() -> None:
    queue = [edge for number in range(8) for edge in car(10 + 2.5 * number, 4.0)]
    gone = edges((7.5, 8.65), (None, None))
    assert speeds(find_passages([*gone, *queue])) == [None, *[4.0] * 8]


def test_a_doubt_about_one_vehicle_is_a_doubt_about_whoever_gets_its_partner() -> None:
    """A lorry stood over both loops, then a car came from the side onto the lower one: either may have stood.

    If the likeliest way to pair them leaves the lorry's lower hit alone by a hair, the car's is not certain either.
    """
    before, after = edges((7.711, 8.524), (8.54, 9.347)), edges((58.729, 59.776), (59.891, 60.638))
    lorry, came = edges((10.0, 55.819), (51.583, 56.736)), edges((None, None), (57.164, 58.723))
    found = find_passages([*before, *lorry, *came, *after, *car(64, 8.0)])
    speed_of = {each.lower_on_us: each.speed for each in found}
    assert speed_of[57_164_000] is None
    assert [speed_of[at] for at in (8_540_000, 59_891_000)] == pytest.approx([5 / 0.829, 5 / 1.162])


@pytest.mark.parametrize("missing", range(4))
def test_a_passage_that_lacks_an_edge_is_one_passage_without_a_speed(missing: int) -> None:
    """Any edge can be missed; the vehicles before and after it are measured all the same."""
    torn = car(5, 10.0)
    del torn[missing]
    found = find_passages([*car(0, 10.0), *torn, *car(10, 10.0), *car(15, 10.0)])
    assert speeds(found) == [10.0, None, 10.0, 10.0]


def test_a_vehicle_may_stand_for_minutes() -> None:
    """On the upper loop, between the loops, and on the lower one; its speed is the mean over the 5 m."""
    on_upper = edges((0.0, 60.5), (61.0, 62.6))
    between = edges((100.0, 101.5), (161.0, 162.5))
    on_lower = edges((200.0, 201.2), (201.3, 262.0))
    found = find_passages([*on_upper, *between, *on_lower])
    assert speeds(found) == [round(5 / 61, 3), round(5 / 61, 3), round(5 / 1.3, 3)]


def test_a_vehicle_that_comes_onto_both_loops_at_once_has_no_speed() -> None:
    (found,) = find_passages(edges((10.0, 10.2), (10.0, 10.4)))
    assert found[:4] == (10_000_000, 10_200_000, 10_000_000, 10_400_000)
    assert found.speed is None


def test_a_vehicle_that_leaves_both_loops_at_once_is_measured_by_its_front() -> None:
    (found,) = find_passages(edges((10.0, 10.6), (10.25, 10.6)))
    assert (found.speed, found.length) == (20.0, None)


def test_a_vehicle_from_the_side_is_measured_by_its_rear() -> None:
    """Its first edge is not that of its front: taken for it, the speed would be 200 m/s."""
    (found,) = find_passages(edges((10.225, 10.23), (10.25, 10.48)))
    assert found.speed == found.speed_leaving == 20.0


def test_two_edges_at_one_instant_are_an_end_and_a_beginning() -> None:
    """Bumper to bumper: a loop is left before it is entered."""
    assert speeds(find_passages([*car(0, 10.0, 5.0), *car(0.5, 10.0, 5.0)])) == [10.0, 10.0]


def test_an_edge_without_a_partner_at_the_end_is_a_hit() -> None:
    found = find_passages([*car(0, 10.0), LoopEdge(60_000_000, UPPER, ON)])
    assert speeds(found) == [10.0, None]


def test_a_speed_is_given_as_soon_as_it_is_certain() -> None:
    """A usual vehicle is found as it leaves the lower loop, and one that never came is given up after the patience."""
    finder = PassageFinder(order_us=0)
    assert [finder.feed(edge) for edge in car(0, 10.0)] == [[], [], [], []]
    assert speeds(finder.advance(960_001)) == [10.0]
    assert finder.waiting == []
    lost = LoopEdge(2_000_000, UPPER, ON)
    assert finder.feed(lost) == []
    assert finder.advance(2_000_000 + PATIENCE_US - 1) == []
    assert finder.waiting == [lost]
    assert speeds(finder.advance(2_000_000 + PATIENCE_US)) == [None]


def test_edges_may_come_out_of_order() -> None:
    finder = PassageFinder(order_us=500_000)
    disordered = [edge for one in (car(0, 20.0), car(3, 20.0)) for edge in reversed(one)]
    found = [each for edge in disordered for each in finder.feed(edge)]
    assert speeds([*found, *finder.finish()]) == [20.0, 20.0]


def test_edges_are_made_of_events() -> None:
    """Only upper loops say where they are."""
    upper = Loop(lane=1, time=MORNING, place="A8", category=Category.TRUCK)
    at_us = micros_of_time(MORNING)
    assert to_loop_edge(upper) == LoopEdge(at_us, UPPER, ON, "truck")
    assert to_loop_edge(Cleared(lane=1, time=MORNING)) == LoopEdge(at_us, LOWER, OFF)
    with pytest.raises(EventError, match="has no time"):
        to_loop_edge(Loop(lane=1))


@st.composite
def some_traffic(draw: st.DrawFn) -> list[LoopEdge]:
    """Vehicles close to each other and far apart, of which edges are missed, and edges without a vehicle."""
    at, found = 0.0, []
    for _ in range(draw(st.integers(0, 9))):
        at += draw(st.sampled_from((0.0, 0.3, 1.1, 2.5, 7.0, 40.0, 700.0)))
        length = draw(st.sampled_from((2.2, 4.6, 5.0, 12.0)))
        category = draw(st.sampled_from((None, "car", "truck", "motorcycle")))
        found += draw(st.permutations(car(at, draw(st.sampled_from((0.1, 1.0, 4.0, 20.0))), length, category)))[
            draw(st.integers(0, 2)) :
        ]
    stray = st.builds(LoopEdge, st.integers(0, 60_000_000), st.booleans(), st.booleans())
    return [*found, *draw(st.lists(stray, max_size=4))]


@examples(200)
@given(given_edges=some_traffic(), shares=st.lists(st.floats(0, 1), max_size=6))
def test_edges_may_be_cut_anywhere(given_edges: list[LoopEdge], shares: list[float]) -> None:
    """What waits, fed again with what came later, gives what all edges at once give; and no edge is lost or doubled."""
    last = max((edge.at_us for edge in given_edges), default=0) + 2 * PATIENCE_US
    waiting: list[LoopEdge] = []
    given_out: list[MeasuredPassage] = []
    before = -1
    for limit in sorted(round(share * last) for share in shares):
        finder = PassageFinder()
        finder.load([*waiting, *(edge for edge in given_edges if before <= edge.at_us < limit)])
        given_out += finder.advance(limit)
        waiting, before = finder.waiting, max(limit, before)
    finder = PassageFinder()
    finder.load([*waiting, *(edge for edge in given_edges if before <= edge.at_us)])
    given_out += finder.finish()
    assert not finder.waiting
    assert sorted(map(repr, given_out)) == sorted(map(repr, find_passages(given_edges)))
    assert sorted(at for each in given_out for at in each[:4] if at is not None) == sorted(e.at_us for e in given_edges)


@given(given_edges=some_traffic())
def test_a_speed_needs_all_four_edges_and_is_one_that_vehicles_have(given_edges: list[LoopEdge]) -> None:
    for found in find_passages(given_edges):
        if found.speed is not None:
            assert None not in found[:4]
            assert 0 < found.speed <= 80


@given(given_edges=some_traffic(), seed=st.integers())
def test_the_order_in_which_edges_are_given_does_not_matter(given_edges: list[LoopEdge], seed: int) -> None:
    shuffled = list(given_edges)
    random.Random(seed).shuffle(shuffled)
    assert find_passages(shuffled) == find_passages(given_edges)


def measured(edges_file: Path, truth_file: Path, pairs: int | None = None) -> Accuracy:
    """How right the speeds of a file are, of some pairs of loops or of all."""
    by_pair: dict[str, list[LoopEdge]] = {}
    for event in read_edges(edges_file):
        by_pair.setdefault(str(event.source), []).append(to_loop_edge(event))
    chosen = sorted(by_pair)[:pairs]
    found = [SitePassage(pair, 0, each) for pair in chosen for each in find_passages(by_pair[pair])]
    return accuracy_of(found, [each for each in read_truth_file(truth_file) if each.site in chosen], 0)


@pytest.mark.slow
@pytest.mark.skipif(not SUMO.exists(), reason="needs the simulated road in /work/shared/data/sumo_road")
def test_on_a_simulated_road_nearly_all_speeds_are_right_and_none_is_invented() -> None:
    accuracy = measured(SUMO / "hw_loop_edges.parquet", SUMO / "hw_passages_truth.parquet")
    assert accuracy.complete == 14_024
    assert accuracy.share >= 0.999
    assert (accuracy.wrong, accuracy.invented) == (0, 0)
