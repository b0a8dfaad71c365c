"""An edge that arrived too late counts as missed."""

from datetime import UTC, datetime, timedelta

from genus_traffic.accuracy import TOO_LATE, without_late_edges
from genus_traffic.road.truth import Passage
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import Category, Cleared, Loop, Occupancy

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
SECOND = 1_000_000
LATENESS = timedelta(seconds=60)


def passage(after_s: int, lane: int = 1) -> Passage:
    at_us = START_US + after_s * SECOND
    return Passage(
        site="mill", lane=lane, vehicle=f"{after_s}", category=Category.CAR, length_m=4.6, speed=10.0,
        upper_on_us=at_us, upper_off_us=at_us + 460_000, lower_on_us=at_us + 500_000, lower_off_us=at_us + 960_000,
    )  # fmt: skip


PASSAGES = [passage(0), passage(5), passage(5, lane=2)]


def remaining(*arriving: Arrival) -> list[Passage]:
    return without_late_edges(PASSAGES, arriving, LATENESS)


def test_an_edge_in_time_changes_nothing() -> None:
    edge = Loop(time=START, source="mill", place="Mill Street", lane=1)
    assert remaining(Arrival(START_US + 60 * SECOND, edge)) == PASSAGES


def test_a_late_edge_is_taken_from_the_passage_it_is_of() -> None:
    """The sensor's clock may be off by some microseconds, and other lanes have vehicles at the same time."""
    edge = Cleared(time=START + timedelta(seconds=5.96, microseconds=3), source="mill", lane=2)
    first, second, third = remaining(Arrival(START_US + 99 * SECOND, edge))
    assert (first, second) == (PASSAGES[0], PASSAGES[1])
    assert third.lower_off_us is None
    assert not third.complete
    assert third.traps == (TOO_LATE,)


def test_a_late_heartbeat_is_no_edge() -> None:
    assert (
        remaining(Arrival(START_US + 99 * SECOND, Occupancy(time=START, source="mill", occupied=0, beat=1))) == PASSAGES
    )


def test_an_edge_of_no_passage_is_ignored() -> None:
    assert (
        remaining(Arrival(START_US + 99 * SECOND, Loop(time=START, source="elsewhere", place="x", lane=1))) == PASSAGES
    )
