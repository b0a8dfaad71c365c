"""Time stamps of interfaces, mapped to the host's clock."""

import random

from hypothesis import given
from hypothesis import strategies as st

from genus.can._live.received import MAX_AGE_NS, StampClock
from tests.examples import examples

US, MS, S = 1_000, 1_000_000, 1_000_000_000


def errors_of(epoch_s: float, drift_ppm: float, delays_us: list[int], gap_ns: int = 10 * MS) -> list[int]:
    """By how much the mapped times of frames differ from when they ended; each is read after a delay."""
    clock, found = StampClock(), []
    ended = 5 * S
    for delay in delays_us:
        ended += gap_ns
        stamp = epoch_s + ended / 1e9 * (1 + drift_ppm * 1e-6)
        found.append(clock.time_of(stamp, ended + delay * US) - ended)
    return found


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.integers(0, 1 << 62)), max_size=30))
@examples(300)
def test_a_time_is_never_later_than_its_reading_nor_very_old_whatever_the_stamps_are(
    readings: list[tuple[float, int]],
) -> None:
    clock, now, last = StampClock(), 0, 0
    for stamp, gap in readings:
        now += gap % S
        at = clock.time_of(stamp, now)
        assert last <= at <= now
        assert now - at <= MAX_AGE_NS or at == last
        last = at


@given(
    epoch_s=st.sampled_from([0.0, 12.5, 1_700_000_000.0, -3600.0]),
    drift_ppm=st.floats(-100, 100),
    seed=st.integers(0, 1000),
)
@examples(60)
def test_stamps_of_any_epoch_are_better_than_the_times_of_reading(epoch_s: float, drift_ppm: float, seed: int) -> None:
    rng = random.Random(seed)
    delays = [50 + round(rng.expovariate(1 / 300)) for _ in range(300)]
    errors = errors_of(epoch_s, drift_ppm, delays)[50:]
    by_reading = sorted(delay * US for delay in delays[50:])
    spread, reading_spread = max(errors) - min(errors), by_reading[-1] - by_reading[0]
    assert min(errors) > -150 * US
    assert spread < reading_spread / 3


def test_a_clock_that_was_set_is_followed() -> None:
    clock = StampClock()
    for index in range(100):
        clock.time_of(1000 + index / 100, S + index * 10 * MS)
    for jump in (-3600.0, 7200.0, -0.5):
        for index in range(100, 200):
            now = 3 * S + round(abs(jump)) * S + index * 10 * MS
            at = clock.time_of(1000 + jump + index / 100, now)
        assert now - at < MS


def test_a_stamp_of_zero_is_none() -> None:
    assert StampClock().time_of(0.0, 77) == 77
