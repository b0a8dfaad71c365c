"""Sensors are replaced while everything runs: the collector loses no event, and no other node changes.

`lost` is the measure: how many events were published for the collector that it did not get. The tests at the end break
something on purpose and show that the measure detects it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Subscription, open_bus
from genus.can._node.channels import TxChannel
from genus.can._node.node import Node
from genus.can._sim.controller import Controller
from genus_traffic.centre import collector as collector_module
from genus_traffic.centre.collector import StatisticsCollector
from genus_traffic.centre.uplink import Uplink
from genus_traffic.road.truth import Detection
from genus_traffic.segment import refit
from genus_traffic.segment.segment import SegmentOutcome, SegmentRun
from genus_traffic.segment.sensors import Sensor
from genus_traffic.types import Category, Cleared, ConfidentLoop, Loop, Occupancy

from .examples import examples
from .made_detections import SECOND_US, START_US, in_order, segment_of, traffic, vehicle

REFITS_S = {"north": 7.0, "south": 9.0}


def city(**more: Any) -> list[SegmentOutcome]:
    """Two sites that are refitted one after the other."""
    return [
        segment_of(traffic(14, seed=seed), 14, refit_s, site=site, error_share=0.01, **more).run()
        for seed, (site, refit_s) in enumerate(REFITS_S.items())
    ]


def collect(outcomes: Sequence[SegmentOutcome]) -> StatisticsCollector:
    """A collector that got everything that left the segments, over links that are not perfect."""
    uplink = Uplink(outage_us=2 * SECOND_US, straggling=0.1)
    carried = [arrival for outcome in outcomes for arrival in uplink.carry(outcome.events, outcome.site)]
    now = START_US
    with open_bus("local:") as bus:
        collector = StatisticsCollector(bus, lambda: now)
        for arrival in sorted(carried, key=lambda arrival: arrival.at_us):
            now = arrival.at_us
            if now > START_US + 10 * SECOND_US:
                collector.subscribe_to_confidence()
            bus.publish(arrival.event)
    return collector


def lost(outcomes: Sequence[SegmentOutcome]) -> int:
    """How many vehicles that upper loops detected the collector did not count."""
    return sum(outcome.published for outcome in outcomes) - collect(outcomes).delivered


@pytest.fixture(scope="module")
def refitted() -> list[SegmentOutcome]:
    """The city after its refit."""
    return city()


# What must be true


def test_the_collector_loses_no_event_during_the_refit(refitted: list[SegmentOutcome]) -> None:
    """Every vehicle that an upper loop detected is counted, whichever sensor published it."""
    assert lost(refitted) == 0
    assert sum(outcome.published for outcome in refitted) > 20
    assert [outcome.unpublished for outcome in refitted] == [0, 0]


def test_the_collector_gets_events_of_old_and_then_of_new_sensors(refitted: list[SegmentOutcome]) -> None:
    """Up to the refit from the old one, then from the new one, in one unchanged subscription."""
    for outcome in refitted:
        at_us = START_US + round(REFITS_S[outcome.site] * SECOND_US)
        loops = [each for each in outcome.events if isinstance(each.event, Loop) and each.event.place]
        assert {type(each.event) for each in loops if each.at_us < at_us} == {Loop}
        assert {type(each.event) for each in loops if each.at_us >= at_us} == {ConfidentLoop}
        assert outcome.refitted_us == at_us


def test_the_second_subscription_gets_events_with_confidence(refitted: list[SegmentOutcome]) -> None:
    """It is made when all sites are refitted, and gets new events from then on; the first one continues."""
    collector = collect(refitted)
    subscribed_us = collector.subscribed_us
    assert subscribed_us is not None
    assert 0 < collector.confident < collector.delivered
    story = collector.refit({site: START_US + round(at * SECOND_US) for site, at in REFITS_S.items()}, 0)
    assert sum(each.old + each.new for each in story.received) == collector.delivered
    assert all(pause < 5 for pause in story.longest_pause_s.values())


def test_no_other_node_restarts_resubscribes_or_changes_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment the traffic begins, only the new sensor starts, and only its controller is given filters."""
    noted: list[tuple[str, int]] = []

    def note(cls: type, name: str, number: Callable[[Any], int | None]) -> None:
        original = getattr(cls, name)

        def noting(self: Any, *arguments: Any, **named: Any) -> Any:
            noted.append((name, number(self) or 0))
            return original(self, *arguments, **named)

        monkeypatch.setattr(cls, name, noting)

    run = SegmentRun(segment_of(traffic(14), 14, 7.0))
    steps = run.advance()
    next(steps)
    before = {name: station.filters for name, station in run.world.stations.items()}
    note(Node, "start", lambda node: node.number)
    note(Node, "subscribe", lambda node: node.number)
    note(Node, "use", lambda node: node.number)
    note(Controller, "set_filters", lambda controller: controller.number)
    for _ in steps:
        pass
    assert set(noted) == {
        ("start", 5),
        ("set_filters", 5),
        ("set_filters", 2),
    }  # 2 is the old one: its controller is reset
    assert {name: run.outcome().filters[name] for name in before} == before
    assert not run.world.stations["upper"].is_up
    assert all(run.world.stations[name].is_up for name in ("gateway", "monitor", "lower", "upper2"))


def test_no_heartbeat_is_missing_at_the_refit(refitted: list[SegmentOutcome]) -> None:
    """The new sensor goes on in the slot of the old one: there is a heartbeat in each period, and never two."""
    for outcome in refitted:
        beats = [each.at_us for each in outcome.events if isinstance(each.event, Occupancy)]
        apart = {round((after - before) / 1000) for before, after in zip(beats, beats[2:], strict=False)}
        assert apart == {500}
        assert outcome.missing_heartbeats == 0


def test_a_vehicle_on_the_loop_is_handed_over() -> None:
    """The old sensor detects its front and the new one its rear; all heartbeats in between show it."""
    stands = [
        Detection(START_US + 6 * SECOND_US, 1, "upper", True, Category.BUS),
        Detection(START_US + 10 * SECOND_US, 1, "upper", False),
    ]
    outcome = segment_of(stands, 12, 8.0).run()
    assert [type(each.event) for each in outcome.events if not isinstance(each.event, Occupancy)].count(Cleared) == 1
    occupied = [each.at_us for each in outcome.events if isinstance(each.event, Occupancy) and each.event.occupied]
    assert len(occupied) == 8


@pytest.mark.parametrize("ahead_ms", [0, 100, 700])
def test_a_sensor_that_is_not_ready_is_waited_for(monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """Switched on too late, it takes over later; the old one serves until then, and nothing is lost."""
    monkeypatch.setattr(refit, "READY_AHEAD_NS", ahead_ms * 1_000_000)
    outcomes = city()
    assert lost(outcomes) == 0
    for outcome in outcomes:
        assert outcome.refitted_us is not None
        assert outcome.refitted_us > START_US + round(REFITS_S[outcome.site] * SECOND_US)


@examples(8)
@given(st.integers(-3, 3), st.integers(0, 3), st.integers(0, 2**16))
def test_the_instant_of_the_refit_does_not_matter(offset_us: int, edge: int, seed: int) -> None:
    """At an edge, right before or right after it: each edge is published by one of the two."""
    detections = in_order([*vehicle(START_US + 5_500_000), *vehicle(START_US + 5_500_000, lane=1)])
    at_us = detections[edge].at_us + offset_us
    outcome = segment_of(detections, 7, (at_us - START_US) / SECOND_US, seed=seed).run()
    assert lost([outcome]) == 0
    assert outcome.unpublished == 0
    assert outcome.received["VelocityMonitor"] == len(detections)


# That the measure would tell


def test_a_subscription_to_one_exact_type_would_lose_events(
    monkeypatch: pytest.MonkeyPatch, refitted: list[SegmentOutcome]
) -> None:
    """A subscription to the old type alone loses all events of the new sensors."""
    exact = Subscription(Loop, exact=True, has=("time", "place", "category"))
    monkeypatch.setattr(collector_module, "STATISTICS", exact)
    received = [each.event for outcome in refitted for each in outcome.events]
    assert lost(refitted) == sum(isinstance(event, ConfidentLoop) for event in received) > 0


def test_a_takeover_that_is_too_early_would_lose_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A takeover before the new sensor is bound and synchronised loses what happens meanwhile."""
    monkeypatch.setattr(refit, "READY_AHEAD_NS", 0)
    monkeypatch.setattr(Sensor, "is_ready", property(lambda sensor: True))
    at_us = START_US + 7 * SECOND_US
    passing = [edge for moment in range(0, 2_000, 400) for edge in vehicle(at_us + moment)]
    outcome = segment_of(passing, 12, 7.0).run()
    assert outcome.unpublished > 0
    assert lost([outcome]) > 0


def test_an_old_sensor_that_stops_at_once_would_lose_events() -> None:
    """What the old sensor has just published is lost if it stops at once, instead of closing its bus."""
    passing = segment_of(vehicle(START_US + 7 * SECOND_US - 20), 9, 7.0)
    assert lost([passing.run()]) == 0
    with SegmentRun(passing) as run:
        run.world.inject("crash node=upper at=12s")  # five seconds after power-on its traffic begins
        for _ in run.advance():
            pass
        assert lost([run.outcome()]) == 1


def test_a_lost_presence_bit_would_lose_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bit of `category` gets lost on the way from the new sensors, their events do not conform any more."""
    render = TxChannel.render

    def forgetful(channel: TxChannel, payload: bytes) -> Sequence[bytes]:
        if channel.cls is ConfidentLoop:
            payload = bytes((payload[0], payload[1] & ~0x40, *payload[2:]))
        return render(channel, payload)

    monkeypatch.setattr(TxChannel, "render", forgetful)
    outcomes = city()
    arrived = [each.event for outcome in outcomes for each in outcome.events if isinstance(each.event, ConfidentLoop)]
    assert arrived
    assert all(event.category is None for event in arrived)
    assert lost(outcomes) == len(arrived)


def test_an_event_that_does_not_arrive_is_counted_as_lost(refitted: list[SegmentOutcome]) -> None:
    """One event less is one event lost."""
    north, south = refitted
    counted = next(each for each in north.events if isinstance(each.event, ConfidentLoop))
    without = tuple(each for each in north.events if each is not counted)
    assert lost([msgspec.structs.replace(north, events=without), south]) == 1
