"""A site's CAN segment: every detection leaves it as an event, on time, with the right time, and once."""

import pickle
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.errors import BusError, PlanError
from genus_traffic.passages.finder import find_passages, to_loop_edge
from genus_traffic.road.truth import Detection
from genus_traffic.segment import segment as segment_module
from genus_traffic.segment.plan import DEADLINE_NS, city_catalog, segment_plan
from genus_traffic.segment.segment import Segment, SegmentOutcome, SegmentRun
from genus_traffic.segment.sensors import Sensor
from genus_traffic.types import Category, Edge, Loop, Occupancy, Setting

from .examples import examples
from .made_detections import SECOND_US, START_US, seen, segment_of, traffic, vehicle

STAMP_US = 5
"""The time of an edge is as good as that, though oscillators drift apart by up to 190 microseconds in a second."""


@pytest.fixture(scope="module")
def quiet() -> SegmentOutcome:
    """Ten seconds of traffic, nothing goes wrong."""
    return segment_of(traffic(12), request_settings_us=(START_US + 3 * SECOND_US,)).run()


def edges(outcome: SegmentOutcome) -> list[Edge]:
    """The edges that left, in order of reception."""
    return [arrival.event for arrival in outcome.events if isinstance(arrival.event, Edge)]


def rows(outcome: SegmentOutcome) -> dict[str, tuple[int, int, int, int]]:
    """The events of each channel: published, delivered, filtered, missed."""
    return {row.channel: (row.published, row.delivered, row.filtered, row.missed) for row in outcome.channels}


def check_all_left(detections: tuple[Detection, ...], events: list[Edge]) -> None:
    """Every detection left as one event, at its time but for the error of the clocks; no other event did."""
    published = sorted(map(seen, events), key=lambda edge: (edge[1:], edge[0]))
    happened = sorted(
        ((each.at_us, each.lane, each.loop, each.on) for each in detections), key=lambda edge: (edge[1:], edge[0])
    )
    assert [edge[1:] for edge in published] == [edge[1:] for edge in happened]
    assert all(abs(one[0] - other[0]) <= STAMP_US for one, other in zip(published, happened, strict=True))


# Events


def test_every_detection_leaves_by_the_gateway_once(quiet: SegmentOutcome) -> None:
    """The city gets every detection once, and nothing else; times are right to some microseconds."""
    check_all_left(tuple(traffic(12)), edges(quiet))
    assert quiet.unpublished == 0
    assert quiet.stamp_error_us <= STAMP_US


def test_upper_loops_say_where_and_what_and_lower_ones_do_not(quiet: SegmentOutcome) -> None:
    """`has place` selects the upper loops, whose leading edges have a category."""
    for event in edges(quiet):
        upper = event.place is not None
        assert event.place in (None, "Ring road, km 31")
        assert not isinstance(event, Loop) or (event.category is not None) == upper
    categories = Counter(event.category for event in edges(quiet) if isinstance(event, Loop) and event.category)
    assert categories == Counter(each.category for each in traffic(12) if each.category)


def test_the_gateway_stamps_the_site_on_everything(quiet: SegmentOutcome) -> None:
    """Events carry no site on the segment; outside they need one."""
    assert {arrival.event.source for arrival in quiet.events} == {"north"}


def test_events_leave_within_their_deadline_in_order_of_reception(quiet: SegmentOutcome) -> None:
    """An edge has left before its deadline, and not before it happened."""
    instants = [arrival.at_us for arrival in quiet.events]
    assert instants == sorted(instants)
    for arrival in quiet.events:
        if isinstance(arrival.event, Edge):
            assert -STAMP_US <= arrival.at_us - seen(arrival.event)[0] <= DEADLINE_NS // 1000


def test_the_monitor_finds_while_it_happens_what_is_found_afterwards(quiet: SegmentOutcome) -> None:
    """Speeds on the segment are those of the same algorithm over what left it."""
    for lane in (0, 1):
        online = [each.passage for each in quiet.found if each.lane == lane]
        afterwards = find_passages(to_loop_edge(event) for event in edges(quiet) if event.lane == lane)
        assert sorted(online, key=str) == sorted(afterwards, key=str)
    speeds = [each.passage.speed for each in quiet.found]
    assert len(speeds) == quiet.published
    assert all(speed is not None and 9.9 < speed < 35.1 for speed in speeds)


def test_settings_are_published_in_service_after_the_first_vehicle_and_on_request(quiet: SegmentOutcome) -> None:
    """Each of the two sensors publishes its settings three times, in several frames, and tunes itself once."""
    published = [arrival.event for arrival in quiet.events if isinstance(arrival.event, Setting)]
    for upper in (True, False):
        own = [setting.sensitivity for setting in published if (setting.place is not None) == upper]
        assert len(own) == 3
        assert own[0] == 0.5 != own[1] == own[2]


# Classes of traffic


def test_heartbeats_are_handed_over_at_their_deadline(quiet: SegmentOutcome) -> None:
    """Both listeners get every heartbeat when its slot ends, and none is missing."""
    hard = [row for row in quiet.channels if row.qos == "hard"]
    assert [row.channel for row in hard] == ["Occupancy of upper", "Occupancy of lower"]
    for row in hard:
        assert row.delivered == 2 * row.published >= 40
        assert row.bound_us is not None
        assert 0 < row.worst_us <= row.bound_us
    assert quiet.missing_heartbeats == 0


def test_heartbeats_say_which_lanes_are_occupied() -> None:
    """A vehicle that stands on the upper loop of lane 1 is in every heartbeat of the upper sensor meanwhile."""
    stands = [
        Detection(START_US + 2 * SECOND_US, 1, "upper", True, Category.TRUCK),
        Detection(START_US + 6 * SECOND_US, 1, "upper", False),
    ]
    left = segment_of(stands, seconds=8).run().events
    beats = [(each.at_us - START_US, each.event.occupied) for each in left if isinstance(each.event, Occupancy)]
    occupied = [at_us for at_us, lanes in beats if lanes == 0b10]
    assert 2 * SECOND_US < min(occupied) < max(occupied) < 6.1 * SECOND_US
    assert len(occupied) == 8  # two a second, from the upper sensor alone


def test_a_missing_heartbeat_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor that leaves out a heartbeat is found out at the deadline, by name."""
    beat = Sensor.beat

    def leave_out(sensor: Sensor) -> None:
        if (
            sensor.name != "lower"
            or not 4 * SECOND_US < sensor.bus.now().timestamp() * 1e6 - START_US < 4.7 * SECOND_US
        ):
            beat(sensor)

    monkeypatch.setattr(Sensor, "beat", leave_out)
    outcome = segment_of([], seconds=6).run()
    assert outcome.missing_heartbeats == 1
    assert [row.channel for row in outcome.channels if row.missed] == ["Occupancy of lower"]


def test_acceptance_filters_reject_events_without_a_subscription(quiet: SegmentOutcome) -> None:
    """Sensors receive no events, the monitor no settings; gateway and monitor receive the rest."""
    found = rows(quiet)
    for channel, (published, delivered, filtered, missed) in found.items():
        listeners = 1 if channel.startswith("Setting") else 2
        assert (delivered, filtered, missed) == (listeners * published, (3 - listeners) * published, 0), channel
    assert len(found) == 8
    assert quiet.received == {"Gateway": len(quiet.events), "VelocityMonitor": len(edges(quiet))}


def test_corrupted_frames_are_sent_again_and_nothing_is_lost() -> None:
    """With one frame in twenty corrupted, every edge still leaves once, and before it expires."""
    outcome = segment_of(traffic(12), error_share=0.05).run()
    assert outcome.errors > 10
    check_all_left(tuple(traffic(12)), edges(outcome))
    assert [row.missed for row in outcome.channels if row.qos != "hard"] == [0] * 6


@examples(12)
@given(
    st.lists(
        st.tuples(st.integers(0, 3_000), st.integers(0, 1), st.sampled_from(["upper", "lower"]), st.booleans()),
        max_size=12,
        unique=True,
    )
)
def test_whatever_happens_leaves(edges_ms: list[tuple[int, int, str, bool]]) -> None:
    """Edges at one instant, in any order, at both loops and in both lanes: all of them leave."""
    detections = [
        Detection(START_US + at * 1000, lane, loop, on, Category.CAR if on and loop == "upper" else None)  # type: ignore[arg-type]
        for at, lane, loop, on in edges_ms
    ]
    segment = segment_of(detections, seconds=4)
    check_all_left(segment.detections, edges(segment.run()))


# The picture


def test_the_picture_shows_all_classes_of_traffic() -> None:
    """At the refit: settings of the new sensor, edges of a vehicle, a heartbeat in its slot."""
    picture = segment_of([*traffic(12), *vehicle(START_US + 6_020_000)], refit_s=6.0).run().picture
    assert {frame.qos for frame in picture.frames} == {"hard", "soft", "none", "system"}
    assert {"upper2", "gateway"} <= {frame.node for frame in picture.frames}
    assert "Setting of upper2" in {frame.channel for frame in picture.frames}
    assert picture.slots
    assert picture.waits


def test_the_picture_is_true(quiet: SegmentOutcome) -> None:
    """Frames follow each other within the span; a hard frame lies in its slot; soft events came before the deadline."""
    picture = quiet.picture
    ends = [0.0, *(frame.end_us for frame in picture.frames)]
    assert all(end <= frame.start_us for end, frame in zip(ends, picture.frames, strict=False))
    assert ends[-1] <= picture.length_us
    for frame in picture.frames:
        if frame.qos == "hard":
            assert any(
                slot.start_us - 10 <= frame.start_us and frame.end_us <= slot.deadline_us for slot in picture.slots
            )
    for wait in picture.waits:
        assert wait.delivered_us is not None
        assert wait.published_us < wait.delivered_us <= wait.deadline_us


# Runs


def test_a_segment_comes_to_the_same_every_time() -> None:
    """The same seed gives the same outcome except its duration; each site has its own random generator."""
    segment = segment_of(traffic(4), seconds=4, error_share=0.1)
    first, again = (msgspec.structs.replace(segment.run(), seconds=0.0) for _ in range(2))
    assert first == again
    other = msgspec.structs.replace(segment, site="south").run()
    assert [arrival.at_us for arrival in other.events] != [arrival.at_us for arrival in first.events]


def test_segments_and_outcomes_can_be_sent_to_other_processes(quiet: SegmentOutcome) -> None:
    """A process that simulates a site is given a segment and gives back its outcome."""
    segment = segment_of(traffic(4), seconds=4)
    assert pickle.loads(pickle.dumps(segment)) == segment
    assert pickle.loads(pickle.dumps(quiet)) == quiet


def test_progress_is_reported_and_may_end_the_run() -> None:
    """It grows up to 1; what it raises ends the run at once."""
    reported: list[float] = []
    segment = segment_of([], seconds=2)
    segment.run(reported.append)
    assert reported == sorted(reported)
    assert reported[-1] == 1.0

    def stop(done: float) -> None:
        if done > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        segment.run(stop)


def test_clocks_drift_and_are_synchronised() -> None:
    """Oscillators drift apart by more than the error allowed to an edge's time; all nodes agree on bus time."""
    with SegmentRun(segment_of(traffic(6), seconds=6)) as run:
        for _ in run.advance():
            pass
        now, stations = run.world.now_ns, run.world.stations.values()
        gained = [station.host.clock.local_time(now) - station.host.clock.local_time(0) - now for station in stations]
        assert max(gained) - min(gained) > 20 * STAMP_US * 1000
        agreed = [station.bus_time(now) for station in stations]
        assert max(agreed) - min(agreed) < STAMP_US * 1000


# Plans


def test_the_plan_admits_all_sites() -> None:
    """Up to eight lanes, at places of any usual length."""
    for lanes in range(1, 9):
        found = segment_plan("Corner of Long Avenue and the Street of the Fourteenth", lanes)
        assert found.ok
        assert found.load.worst < 0.2


@pytest.mark.parametrize(
    ("place", "lanes", "says"),
    [("Ring", 0, "1 to 8 lanes"), ("Ring", 9, "1 to 8 lanes"), ("x" * 4000, 3, "is refused: Loop of upper")],
)
def test_what_cannot_be_planned_is_refused(place: str, lanes: int, says: str) -> None:
    """In one line that says why."""
    with pytest.raises(PlanError, match=says) as refused:
        segment_plan(place, lanes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("detections", "more", "says"),
    [
        (vehicle(START_US - 10), {}, "before its start"),
        (vehicle(START_US + 12 * SECOND_US), {}, "after its end"),
        (vehicle(START_US, lane=2), {}, "lane that is not one of its 2"),
        ([], {"refit_s": 12.0}, "refitted before it starts or after it ends"),
        ([], {"seconds": 0}, "ends before it starts"),
        ([], {"request_settings_us": (START_US - 1,)}, "requested to publish settings before it starts"),
    ],
)
def test_a_segment_that_cannot_be_is_refused(detections: list[Detection], more: dict[str, Any], says: str) -> None:
    """Before anything is simulated, with the site's name."""
    with pytest.raises(PlanError, match=f"site 'north': .*{says}"):
        segment_of(detections, **more)


def test_a_bus_on_which_nothing_goes_through_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If sensors cannot be bound, the run ends with an error."""
    monkeypatch.setattr(segment_module, "WARM_UP_US", SECOND_US)
    with pytest.raises(BusError, match="site 'north': sensor upper is not ready after 1 s; 100% of all frames"):
        segment_of([], error_share=1.0).run()


def test_detections_out_of_order_are_refused() -> None:
    """Sensors detect vehicles in order of time."""
    segment = segment_of(traffic(4), seconds=4)
    with pytest.raises(PlanError, match="not in order of time"):
        Segment(**{**msgspec.structs.asdict(segment), "detections": segment.detections[::-1]})


def test_the_type_of_the_next_generation_is_in_the_block_of_its_parent() -> None:
    """So no filter has to change when it comes."""
    catalog = city_catalog()
    blocks = catalog.entries["Loop"].blocks
    own = catalog.own_etags("ConfidentLoop")
    assert any(own.value & block.mask == block.value and own.mask & block.mask == block.mask for block in blocks)
