"""The traffic generator: vehicles that behave, sensors that err, and truth that fits what was detected."""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random
from statistics import mean, median
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genus_traffic.road.city import default_city
from genus_traffic.road.generator import Traffic, generate
from genus_traffic.road.lanes import AMBER_S, STEP_S, Road, is_green
from genus_traffic.road.scene import Scene, SceneError, Site
from genus_traffic.road.truth import Detection, Passage
from genus_traffic.road.vehicles import CLOSEST_M, LOWER_M, Vehicle
from genus_traffic.types import DISTANCE_M, Category

from .examples import examples

CITY = default_city(sites=4, duration="10 min", seed=1)
FAULTLESS: dict[str, Any] = {"missed_hits": 0.0, "missed_edges": 0.0, "misread": 0.0}


@pytest.fixture(scope="module")
def traffic() -> Mapping[str, Traffic]:
    """Ten minutes of the default city."""
    return {site.name: generate(site, CITY) for site in CITY.sites}


def one_site(kind: int, minutes: float = 3.0, seed: int = 5, **changes: Any) -> tuple[Site, Scene]:
    """A city of one site: like that of a kind in the default one, with something changed."""
    site = msgspec.structs.replace(default_city(3, seed=seed).sites[kind], **changes)
    return site, msgspec.structs.replace(CITY, sites=(site,), minutes=minutes, seed=seed)


def edges(passage: Passage) -> Iterator[tuple[int, int, str, bool]]:
    """The noticed edges of a passage, as detections have them."""
    for loop, on, at_us in (
        ("upper", True, passage.upper_on_us),
        ("upper", False, passage.upper_off_us),
        ("lower", True, passage.lower_on_us),
        ("lower", False, passage.lower_off_us),
    ):
        if at_us is not None:
            yield at_us, passage.lane, loop, on


@pytest.mark.parametrize("kind", range(3))
def test_vehicles_of_a_lane_keep_their_order_and_never_overlap(kind: int) -> None:
    """The vehicle in front has its rear before the front of the next; much traffic, many lane changes."""
    site, _ = one_site(kind, flow_per_hour=1800.0, lane_changes=0.5)
    road = Road(site, 5, 0.0, 150.0)
    changed = 0
    while road.now < 150.0:
        road.step()
        for lane in road.lanes:
            changed += sum(vehicle.change is not None for vehicle in lane)
            for ahead, behind in pairwise(lane):
                assert ahead.rear > behind.front
    assert changed > 0
    assert any(road.lanes)


@given(speed=st.floats(0, 60), room=st.floats(0, 15))
@examples(40)
def test_no_speed_is_too_high_to_stop_behind_the_one_in_front(speed: float, room: float) -> None:
    """A driver who noticed far too late still does not run into a vehicle that stands."""
    site, _ = one_site(2, flow_per_hour=0.0)
    road = Road(site, 1, 0.0, 10.0)
    ahead, behind = (Vehicle(Category.CAR, 0, number, 14.0, Random(number)) for number in (1, 2))
    ahead.front = ahead.front_before = 200.0
    behind.front = behind.front_before = ahead.rear - CLOSEST_M - room
    behind.speed = behind.speed_before = speed
    road.lanes[0] += [ahead, behind]
    for _ in range(10):
        road.step()
        assert ahead.rear - behind.front >= CLOSEST_M * 0.999


@pytest.mark.parametrize("kind", range(3))
def test_a_loop_is_left_before_the_next_vehicle_comes(kind: int) -> None:
    """With sensors that miss nothing, the edges at each loop alternate: on, off, on, off."""
    site, scene = one_site(kind, lane_changes=0.2, **FAULTLESS)
    seen: dict[tuple[int, str], list[Detection]] = defaultdict(list)
    for detection in generate(site, scene).detections:
        seen[detection.lane, detection.loop].append(detection)
    assert len(seen) == 2 * site.lanes
    for detections in seen.values():
        for before, after in pairwise(detections):
            assert before.on is not after.on
            assert before.at_us < after.at_us


@pytest.mark.slow
def test_detections_are_in_order_and_within_the_scene(traffic: Mapping[str, Traffic]) -> None:
    for made in traffic.values():
        times = [detection.at_us for detection in made.detections]
        assert times == sorted(times)
        assert times[0] >= CITY.start_us
        assert times[-1] < CITY.end_us


def test_the_truth_holds_exactly_the_edges_that_were_detected(traffic: Mapping[str, Traffic]) -> None:
    for name, made in traffic.items():
        detected = Counter((each.at_us, each.lane, each.loop, each.on) for each in made.detections)
        assert Counter(edge for passage in made.passages for edge in edges(passage)) == detected
        assert {passage.site for passage in made.passages} == {name}
        assert len({(passage.vehicle, passage.lane) for passage in made.passages}) == len(made.passages)


def test_speed_is_the_distance_over_the_time_between_the_leading_edges(traffic: Mapping[str, Traffic]) -> None:
    measured = 0
    for made in traffic.values():
        for passage in made.passages:
            if passage.speed is not None and passage.upper_on_us is not None and passage.lower_on_us is not None:
                assert passage.speed == DISTANCE_M * 1e6 / (passage.lower_on_us - passage.upper_on_us)
                measured += 1
    assert measured > 1000


def test_who_stays_in_its_lane_passes_both_loops_front_and_rear(traffic: Mapping[str, Traffic]) -> None:
    for made in traffic.values():
        for passage in made.passages:
            if passage.complete and "lane change" not in passage.traps:
                upper_on, upper_off, lower_on, lower_off = (each[0] for each in edges(passage))
                assert upper_on < upper_off < lower_off
                assert upper_on < lower_on < lower_off
                assert passage.speed is not None


def test_at_a_steady_speed_a_loop_is_occupied_for_as_long_as_the_vehicle_is() -> None:
    """Loops are lines: length is speed times occupancy. On a free street vehicles hardly brake over five metres."""
    site, scene = one_site(2, flow_per_hour=300.0, lane_changes=0.0, **FAULTLESS)
    ratios = []
    for passage in generate(site, scene).passages:
        if passage.complete and passage.speed is not None:
            upper_on, upper_off, *_ = (each[0] for each in edges(passage))
            ratios.append((upper_off - upper_on) / 1e6 * passage.speed / passage.length_m)
    assert len(ratios) > 8
    assert all(ratio == pytest.approx(1.0, abs=0.05) for ratio in ratios)


def test_a_speed_is_known_only_where_the_front_crossed_both_loops_in_one_lane() -> None:
    """Who comes into a lane between or over its loops has no speed there, though both loops may notice it."""
    site, scene = one_site(1, lane_changes=0.6, **FAULTLESS)
    passages = generate(site, scene).passages
    lanes: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        lanes[passage.vehicle].append(passage)
    changed = [each for each in lanes.values() if "lane change" in each[0].traps]
    assert len(changed) > 20
    assert all(sum(passage.speed is not None for passage in each) <= 1 for each in changed)
    speedless = [passage for each in changed for passage in each if passage.speed is None]
    assert any(passage.complete for passage in speedless)
    assert any(passage.upper_on_us is None and passage.lower_on_us is not None for passage in speedless)
    assert any(passage.lower_on_us is None and passage.upper_on_us is not None for passage in speedless)
    assert {"simultaneous"} <= {trap for passage in speedless for trap in passage.traps}


@given(speed=st.floats(0.1, 40), acceleration=st.floats(-8, 4), share=st.floats(0.001, 1), begin=st.floats(-100, 1000))
def test_the_instant_at_a_mark_is_when_the_motion_is_there(
    speed: float, acceleration: float, share: float, begin: float
) -> None:
    """Put into the law of constant acceleration, the instant gives the place again."""
    vehicle = Vehicle(Category.CAR, 0, 1, 14.0, Random(1))
    vehicle.speed = speed
    start = vehicle.front
    vehicle.move(acceleration, begin, STEP_S)
    place = start + share * (vehicle.front - start)
    after = vehicle.reaches(place, acceleration)
    assert 0.0 <= after <= STEP_S * (1 + 1e-9)
    assert start + speed * after + acceleration * after**2 / 2 == pytest.approx(place, abs=1e-6)


def test_all_traps_occur_within_ten_minutes(traffic: Mapping[str, Traffic]) -> None:
    met = Counter(trap for made in traffic.values() for passage in made.passages for trap in passage.traps)
    assert set(met) == {"standing", "two between", "lane change", "missed", "simultaneous"}
    assert met["standing"] >= 40
    assert met["two between"] >= 4


def test_traps_are_what_the_true_edges_say() -> None:
    """Recomputed from the edges of faultless sensors: who was between the loops with another, who came onto both."""
    site, scene = one_site(0, minutes=8, lane_changes=0.2, **FAULTLESS)
    passages = generate(site, scene).passages
    for lane in range(site.lanes):
        here = sorted((each.upper_on_us, each) for each in passages if each.lane == lane and each.upper_on_us)
        together: set[str] = set()
        for (_, first), (upper_us, second) in pairwise(here):
            if first.lower_on_us is not None and upper_us is not None and upper_us < first.lower_on_us:
                together |= {first.vehicle, second.vehicle}
        assert together == {each.vehicle for _, each in here if "two between" in each.traps}
        for upper_us, each in here:
            assert ("simultaneous" in each.traps) == (upper_us == each.lower_on_us)
    assert any("two between" in each.traps for each in passages)


def test_a_vehicle_that_stands_keeps_a_loop_or_the_way_between_them_busy(traffic: Mapping[str, Traffic]) -> None:
    """Its passage takes longer than any that does not stand, and longer than the second that is asked for."""
    for made in traffic.values():
        for passage in made.passages:
            if passage.complete and "standing" in passage.traps:
                times = [at_us for at_us, *_ in edges(passage)]
                assert max(times) - min(times) > 1_000_000


def test_nobody_passes_a_red_light() -> None:
    """But in the amber, which ends the green, and in the moment after it."""
    site, _ = one_site(0, minutes=5)
    signal = site.signal
    assert signal is not None
    road, line = Road(site, 5, -30.0, 300.0), LOWER_M + signal.line_m
    crossings = stood = 0
    while road.now < 300.0:
        road.step()
        for vehicle in (each for lane in road.lanes for each in lane):
            if vehicle.front_before < line <= vehicle.front:
                crossings += 1
                assert is_green(signal, road.now) or is_green(signal, road.now - AMBER_S - 1.0)
            stood += vehicle.speed == 0.0
    assert crossings > 50
    assert stood > 1000


def test_a_queue_leaves_at_some_eighteen_hundred_vehicles_an_hour(traffic: Mapping[str, Traffic]) -> None:
    """From the fifth vehicle of a green on, saturated lanes of mixed traffic discharge every two seconds or so."""
    headways = []
    for site in CITY.sites:
        if site.signal is not None:
            for lane in range(site.lanes):
                greens = defaultdict(list)
                for passage in traffic[site.name].passages:
                    if passage.lane == lane and passage.lower_on_us is not None:
                        since = (passage.lower_on_us - CITY.start_us) / 1e6 - site.signal.offset_s
                        greens[since // site.signal.cycle_s].append(since)
                for times in greens.values():
                    headways += [after - before for before, after in pairwise(sorted(times)[4:10])]
    assert 1600 < 3600 / median(headways) < 2200


def test_waves_of_congestion_come_by_and_leave(traffic: Mapping[str, Traffic]) -> None:
    speeds = [passage.speed for passage in traffic["a8-km12"].passages if passage.speed is not None]
    assert sum(speed < 4 for speed in speeds) > 20
    assert sum(speed > 22 for speed in speeds) > 100


def test_the_same_scene_is_the_same_traffic() -> None:
    site, scene = one_site(0, minutes=1.5)
    assert generate(site, scene) == generate(site, scene)
    other = msgspec.structs.replace(scene, seed=6)
    assert generate(site, other) != generate(site, scene)


DIGEST = """
import hashlib, msgspec
from genus_traffic.road.city import default_city
from genus_traffic.road.generator import generate
city = default_city(2, "2 min", 9)
print(hashlib.sha256(msgspec.json.encode([generate(site, city) for site in city.sites])).hexdigest())
"""


def test_another_process_makes_the_same_traffic() -> None:
    city = default_city(2, "2 min", 9)
    here = hashlib.sha256(msgspec.json.encode([generate(site, city) for site in city.sites])).hexdigest()
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )
    assert done.stdout.strip() == here


def test_a_site_does_not_depend_on_the_others() -> None:
    """But for when its turn in the refit comes."""
    small, large = (msgspec.structs.replace(default_city(sites, "1 min"), refit=None) for sites in (1, 5))
    assert generate(small.sites[0], small) == generate(large.sites[0], large)


@pytest.mark.parametrize("kind", range(3))
def test_the_first_minutes_of_a_long_scene_are_those_of_a_short_one(kind: int) -> None:
    site, long = one_site(kind, minutes=2)
    short = msgspec.structs.replace(long, minutes=1.0)
    long, short = (msgspec.structs.replace(each, refit=None) for each in (long, short))
    first = [each for each in generate(site, long).detections if each.at_us < short.end_us]
    assert list(generate(site, short).detections) == first


def test_faults_change_what_is_noticed_and_not_what_happens() -> None:
    site, scene = one_site(1, **FAULTLESS)
    faulty = msgspec.structs.replace(site, missed_hits=0.2, missed_edges=0.1)
    clean = generate(site, scene).passages
    missed = generate(faulty, msgspec.structs.replace(scene, sites=(faulty,))).passages
    assert [(each.vehicle, each.lane, each.speed) for each in clean] == [
        (each.vehicle, each.lane, each.speed) for each in missed
    ]
    for before, after in zip(clean, missed, strict=True):
        assert set(edges(after)) <= set(edges(before))
        assert ("missed" in after.traps) == ("missed" in before.traps or set(edges(after)) != set(edges(before)))
    there = sum(len(list(edges(each))) for each in clean)
    assert sum(len(list(edges(each))) for each in missed) / there == pytest.approx(0.8 * 0.9, abs=0.04)


def test_confidence_is_said_from_the_refit_on_and_fits_being_right() -> None:
    """By upper loops with leading edges alone; where the category is wrong it is lower on average."""
    site, scene = one_site(1, minutes=6, misread=0.3, missed_hits=0.0, missed_edges=0.0)
    made = generate(site, scene)
    refit_us = scene.refit_us(site.name)
    assert refit_us is not None
    truth = {(each.upper_on_us, each.lane): each.category for each in made.passages}
    right: list[float] = []
    wrong: list[float] = []
    reads = 0
    for each in made.detections:
        leading = each.on and each.loop == "upper"
        assert (each.category is not None) == leading
        assert (each.confidence is not None) == (leading and each.at_us >= refit_us)
        reads += leading and each.category is not truth[each.at_us, each.lane]
        if each.confidence is not None:
            assert 0.0 <= each.confidence <= 1.0
            (right if each.category is truth[each.at_us, each.lane] else wrong).append(each.confidence)
    assert mean(right) > mean(wrong) + 0.2
    assert reads / len(truth) == pytest.approx(0.3, abs=0.05)


def test_a_site_that_is_left_out_of_the_refit_never_says_how_sure_it_is() -> None:
    site, scene = one_site(0)
    scene = msgspec.structs.replace(scene, refit=None)
    assert all(each.confidence is None for each in generate(site, scene).detections)


def test_an_empty_road_has_no_traffic() -> None:
    site, scene = one_site(0, flow_per_hour=0.0)
    assert generate(site, scene) == Traffic((), ())


def test_the_mix_says_which_vehicles_there_are() -> None:
    site, scene = one_site(2, lanes=1, mix={Category.BUS: 2.0, Category.TRUCK: 0.0})
    passages = generate(site, scene).passages
    assert {each.category for each in passages} == {Category.BUS}
    assert not any("lane change" in each.traps for each in passages)


def test_a_site_of_another_city_is_refused() -> None:
    site, _ = one_site(0)
    with pytest.raises(SceneError, match="there is no site"):
        generate(msgspec.structs.replace(site, name="elsewhere"), CITY)


@pytest.mark.slow
@examples(25)
@example(kind=0, seed=454, flow=1003.0, limit=38.0, lanes=7, changes=0.5)
@given(
    kind=st.integers(0, 2),
    seed=st.integers(0, 10_000),
    flow=st.floats(10, 3600),
    limit=st.floats(3, 45),
    lanes=st.integers(1, 8),
    changes=st.floats(0, 1),
)
def test_any_site_has_traffic_that_keeps_the_laws(
    kind: int, seed: int, flow: float, limit: float, lanes: int, changes: float
) -> None:
    """However odd a site is, no two vehicles are on one loop, and every vehicle goes forward."""
    site, scene = one_site(
        kind, seed=seed, flow_per_hour=flow, limit_mps=limit, lanes=lanes, lane_changes=changes, **FAULTLESS
    )
    road = Road(site, seed, 0.0, 180.0)
    while road.now < 180.0:
        road.step()
        for lane in road.lanes:
            assert all(ahead.rear > behind.front for ahead, behind in pairwise(lane))
            assert all(vehicle.front >= vehicle.front_before for vehicle in lane)
    busy: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for detection in generate(site, scene).detections:
        busy[detection.lane, detection.loop].append(detection.on)
    assert all(before is not after for ons in busy.values() for before, after in pairwise(ons))
