"""Numbers of packets: what was seen, what is missing."""

from hypothesis import given
from hypothesis import strategies as st

from genus.net._link.numbers import WINDOW, OriginNumbers, SenderNumbers

NUMBERS = 1 << 32
STARTS = st.sampled_from([1, 5000, NUMBERS - 40, NUMBERS - 1])


@given(STARTS, st.lists(st.integers(-30, 60), max_size=60))
def test_a_number_is_new_once(start: int, steps: list[int]) -> None:
    numbers, seen = OriginNumbers(start), {start}
    at = start
    for step in steps:
        at += step
        assert numbers.is_new(at % NUMBERS) is (at not in seen)
        seen.add(at)


@given(STARTS, st.lists(st.integers(1, 3 * WINDOW), min_size=1, max_size=20), st.integers(0, 10**6))
def test_numbers_within_the_window_are_remembered_over_jumps(start: int, jumps: list[int], back: int) -> None:
    numbers, seen, at = OriginNumbers(start), {start}, start
    for jump in jumps:
        at += jump
        assert numbers.is_new(at % NUMBERS)
        seen.add(at)
    old = at - back % (2 * WINDOW)
    expected = at - old < WINDOW and old not in seen
    if old >= start or at - start < WINDOW:
        assert numbers.is_new(old % NUMBERS) is expected


@given(STARTS, st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_what_never_comes_is_lost_and_counted_once(start: int, order: list[int], lost: set[int]) -> None:
    numbers = SenderNumbers(start)
    for place, offset in enumerate(order):
        if offset not in lost:
            numbers.arrive((start + offset) % NUMBERS, 1, float(place))
    numbers.miss_until((start + 29) % NUMBERS, 50.0)
    assert numbers.settle(100.0) == len(lost)
    assert numbers.settle(200.0) == 0


@given(STARTS, st.integers(0, 20_000))
def test_a_large_gap_is_counted_whole(start: int, gap: int) -> None:
    numbers = SenderNumbers(start)
    assert numbers.arrive((start + gap + 1) % NUMBERS, 1, 0.0) == gap
    assert numbers.settle(1.0) == gap
