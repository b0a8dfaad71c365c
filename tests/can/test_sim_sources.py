"""Sources and sinks of frames, and soft real time by four policies on the same releases."""

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.simulation import QUEUE_LIMIT, FrameSink, FrameSource, periodic, poisson, sporadic
from genus.errors import BusError
from tests.can.sim_parts import BIT, frame, worst_case_bus
from tests.can.soft_policies import CHANNELS, POLICIES, soft_channels, soft_misses
from tests.examples import examples


def test_a_periodic_source_releases_every_period_and_measures_response_times() -> None:
    bus = worst_case_bus()
    source = FrameSource(bus, 1, frame(20), periodic(1000 * BIT), first_ns=500 * BIT, deadline_ns=200 * BIT)
    FrameSource(bus, 2, frame(10, 2), periodic(2000 * BIT), first_ns=500 * BIT)
    sink = FrameSink(bus, 3)
    bus.run(10_000 * BIT)
    assert (source.released, source.delivered, source.late, source.worst_ns) == (10, 10, 5, 320 * BIT)
    assert sink.received == 15


def test_frames_wait_in_a_queue_and_are_sent_in_turn() -> None:
    bus = worst_case_bus()
    source = FrameSource(bus, 1, [frame(20), frame(21)], periodic(80 * BIT))
    bus.run(1600 * BIT)
    assert (source.released, source.delivered) == (21, 10)


def test_a_full_queue_drops_and_counts_frames() -> None:
    bus = worst_case_bus()
    source = FrameSource(bus, 1, frame(20), periodic(1 * BIT))
    bus.run(16_000 * BIT)
    assert source.dropped > 14_000
    assert source.released == source.delivered + source.dropped + QUEUE_LIMIT


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 1000))
def test_sporadic_gaps_are_never_shorter_than_the_minimum(least: int, extra: int, seed: int) -> None:
    gaps = sporadic(least, least + extra, Random(seed))
    assert all(next(gaps) >= least for _ in range(100))


def test_gaps_have_the_given_mean() -> None:
    for gaps in (poisson(1_000_000, Random(1)), sporadic(600_000, 1_000_000, Random(1))):
        assert mean(next(gaps) for _ in range(20_000)) == pytest.approx(1_000_000, rel=0.03)


def test_impossible_gaps_raise_a_bus_error() -> None:
    with pytest.raises(BusError, match="every 0 ns"):
        periodic(0)
    with pytest.raises(BusError, match="cannot have a mean of 5 ns"):
        sporadic(10, 5, Random())


# Soft real time


@given(st.floats(0.05, 1.5), st.integers(0, 1000))
@examples(30)
def test_channels_have_the_given_load_and_periods_in_bounds(load: float, seed: int) -> None:
    channels = soft_channels(load, Random(seed), 160_000)
    assert len(channels) == CHANNELS
    assert sum(160_000 / channel.period_ns for channel in channels) == pytest.approx(load, rel=1e-4)
    assert all(2_000_000 <= channel.period_ns <= 100_000_000 for channel in channels)
    assert sorted(channel.rank for channel in channels) == list(range(CHANNELS))


@pytest.mark.parametrize("load", [0.0, 5.0])
def test_an_impossible_load_raises_a_bus_error(load: float) -> None:
    with pytest.raises(BusError, match="cannot give a load"):
        soft_misses(load)


def test_all_policies_have_the_same_releases() -> None:
    found = soft_misses(0.9, seed=1, seconds=0.5)
    assert tuple(found) == POLICIES
    assert len({misses.released for misses in found.values()}) == 1


def test_at_a_moderate_load_no_policy_misses_anything() -> None:
    assert [misses.percent for misses in soft_misses(0.5, seed=1, seconds=1).values()] == [0, 0, 0, 0]


def test_with_promotion_misses_are_near_those_of_edf_and_less_than_half_of_fixed_priorities() -> None:
    """At a load of 0.9, with hard frames and frames without deadline besides."""
    found = soft_misses(0.9, seed=2, seconds=2)
    assert 0 < found["quantised"].percent <= 1.5 * found["edf"].percent
    assert found["quantised"].percent < found["deadline-monotonic"].percent / 2


@pytest.mark.slow
def test_in_overload_earliest_deadline_first_collapses_and_fixed_priorities_do_not() -> None:
    found = soft_misses(1.0, seed=1, seconds=1.5)
    assert found["edf"].percent > 4 * found["unpromoted"].percent
    assert found["deadline-monotonic"].percent < 15


@pytest.mark.slow
def test_over_many_systems_the_order_of_policies_is_the_same() -> None:
    for seed in range(8):
        found = soft_misses(0.9, seed=seed, seconds=10)
        assert found["quantised"].percent <= 1.5 * found["edf"].percent + 0.01
        assert found["quantised"].percent < found["deadline-monotonic"].percent / 2


# Speed


def test_the_quick_path_leaves_no_callbacks_behind() -> None:
    """Memory does not grow with the number of frames."""
    bus = SimBus()
    source = FrameSource(bus, 1, frame(20), periodic(1000 * BIT))
    bus.run(999_999 * BIT)
    assert source.delivered == 1000
    assert len(bus.scheduler.heap) == 1
    assert not bus.pending
