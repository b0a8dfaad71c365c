"""The statistics collector on the city's bus: what it counts, and its results of a refit."""

from datetime import UTC, datetime, timedelta

import pytest

from genus import Event, open_bus
from genus_traffic.centre.collector import StatisticsCollector
from genus_traffic.types import Category, Cleared, ConfidentLoop, Loop, Occupancy

START = datetime(2026, 9, 21, 12, 0, tzinfo=UTC)
START_US = round(START.timestamp() * 1e6)
MINUTE_US = 60_000_000


def loop(seconds: float, category: Category = Category.CAR, site: str = "north") -> Loop:
    """An event of an upper loop of the first generation."""
    return Loop(lane=0, time=START + timedelta(seconds=seconds), place="Ring", category=category, source=site)


def confident(seconds: float, confidence: float | None = 0.9, site: str = "north") -> ConfidentLoop:
    """An event of an upper loop of the next generation."""
    time = START + timedelta(seconds=seconds)
    return ConfidentLoop(lane=0, time=time, place="Ring", category=Category.CAR, confidence=confidence, source=site)


def collector_of(*events: Event) -> StatisticsCollector:
    """A collector that got some events."""
    with open_bus("local:") as bus:
        collector = StatisticsCollector(bus, lambda: START_US)
        for event in events:
            bus.publish(event)
    return collector


def test_vehicles_are_counted_by_site_category_and_minute() -> None:
    """By the minute in which they passed, which is not that in which the event came."""
    collector = collector_of(loop(59.9), loop(60.0), loop(10.0, Category.TRUCK), loop(0.0, site="south"), loop(30))
    assert collector.counts == {
        ("north", "car", START_US): 2,
        ("north", "car", START_US + MINUTE_US): 1,
        ("north", "truck", START_US): 1,
        ("south", "car", START_US): 1,
    }
    assert collector.delivered == 5


def test_only_what_conforms_is_counted() -> None:
    """Lower loops say neither where nor what; trailing edges and heartbeats are no vehicles."""
    time = START
    collector = collector_of(
        Loop(lane=0, time=time),
        Loop(lane=0, time=time, place="Ring"),
        Loop(lane=0, place="Ring", category=Category.CAR),
        Cleared(lane=0, time=time, place="Ring"),
        Occupancy(occupied=1, beat=0, time=time, place="Ring"),
    )
    assert collector.delivered == 0


def test_events_with_further_attributes_are_counted() -> None:
    """An event with more attributes than the subscription needs is counted like any other."""
    assert collector_of(loop(1), confident(2), confident(3, None)).delivered == 3


def test_the_second_subscription_leaves_the_first_alone() -> None:
    """From then on events that say how sure they are are counted there too; asking twice changes nothing."""
    now = START_US
    with open_bus("local:") as bus:
        collector = StatisticsCollector(bus, lambda: now)
        first = collector.listener
        bus.publish(confident(1))
        now += 5
        collector.subscribe_to_confidence()
        now += 5
        collector.subscribe_to_confidence()
        for event in (loop(2), confident(3), confident(4, None)):
            bus.publish(event)
        assert collector.listener is first
        assert first.counters.delivered == collector.delivered == 4
    assert (collector.confident, collector.subscribed_us) == (1, START_US + 5)


def test_the_spans_of_a_refit_have_no_gaps() -> None:
    """Every span from a site's first vehicle to its last is there, with what came of old and new sensors."""
    story = collector_of(loop(0), loop(1.5), confident(3.2), loop(4.0, site="south")).refit({"north": START_US}, 7)
    assert story.span_us == 1_000_000
    assert [(each.site, each.start_us - START_US, each.old, each.new) for each in story.received] == [
        ("north", 0, 1, 0),
        ("north", 1_000_000, 1, 0),
        ("north", 2_000_000, 0, 0),
        ("north", 3_000_000, 0, 1),
        ("south", 4_000_000, 1, 0),
    ]
    assert (story.published, story.delivered, story.confident, story.asked_us) == (7, 4, 0, None)


@pytest.mark.parametrize(("seconds", "span_s"), [(0, 1), (120, 1), (121, 2), (600, 5), (36_000, 300)])
def test_long_runs_have_longer_spans(seconds: int, span_s: int) -> None:
    """There are about 120 of them, each of some whole seconds."""
    story = collector_of(loop(0), loop(seconds)).refit({}, 2)
    assert story.span_us == span_s * 1_000_000
    assert len(story.received) <= 121


def test_the_longest_pause_is_that_around_the_refit() -> None:
    """Between two vehicles as they passed, in any order of arrival; pauses long before or after do not count."""
    collector = collector_of(*(loop(second) for second in (0, 300, 340, 310, 330)), confident(352), loop(900))
    pauses = collector.refit({"north": START_US + 345_000_000, "nowhere": START_US}, 0).longest_pause_s
    assert pauses["nowhere"] == 0.0
    assert pauses["north"] == 548.0  # none came for minutes after the refit
    calm = collector_of(*(loop(second) for second in range(200)), *(confident(second) for second in range(203, 400)))
    assert calm.refit({"north": START_US + 201_000_000}, 0).longest_pause_s == {"north": 4.0}


def test_a_city_without_vehicles_has_empty_results() -> None:
    """A city without a vehicle has no spans and no pauses."""
    story = collector_of().refit({}, 0)
    assert (story.received, story.longest_pause_s, story.delivered) == ((), {}, 0)
