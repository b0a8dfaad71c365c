"""Numbers of packets: what was seen, what is missing; and that invented ones change neither."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genus.net._link.numbers import MAX_GAPS, MAX_MARKS, MAX_RUNS, Numbers, OriginNumbers, Verdict

NUMBERS = 1 << 32
STARTS = st.sampled_from([1, 5000, NUMBERS - 40, NUMBERS - 1])
NEW, SEEN, OLD, CONFLICT = Verdict
DISTANCES = st.one_of(st.integers(-100, 100), st.integers(-70_000, 70_000), st.integers(-(2**31) + 1, 2**31 - 1))


@given(STARTS, st.lists(st.one_of(st.integers(-30, 60), st.integers(-5000, 5000)), max_size=60))
def test_a_number_is_new_once(start: int, steps: list[int]) -> None:
    numbers, seen = OriginNumbers(start), {start}
    at = start
    for step in steps:
        at += step
        assert numbers.has(at % NUMBERS) is (at in seen)
        assert numbers.is_new(at % NUMBERS) is (at not in seen)
        seen.add(at)
        assert numbers.has_newer(at % NUMBERS) is any(0 < each - at <= 1024 for each in seen)


@given(STARTS, st.lists(st.tuples(DISTANCES, st.integers(0, 9)), max_size=80), st.integers(0, 2))
def test_invented_numbers_silence_nobody(start: int, invented: list[tuple[int, int]], beats: int) -> None:
    """Each number of the sender is new, or known to be another event than what somebody sent under its number."""
    numbers = Numbers(start, mark=start)
    at = start
    for distance, count in invented:
        numbers.arrive((at + distance) % NUMBERS, -1)
        for _ in range(count):
            at += 1
            assert numbers.arrive(at % NUMBERS, at) in (NEW, CONFLICT)
            assert numbers.arrive(at % NUMBERS, at) in (SEEN, CONFLICT)
        for _ in range(beats):
            numbers.claim(at % NUMBERS, at % NUMBERS, 0.0)


@given(STARTS, st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_packets_that_the_reader_notes_itself_are_known(start: int, runs: list[int]) -> None:
    numbers, at = Numbers(start, mark=start), start
    for lost, count in enumerate(runs):
        at += lost % 2
        for _ in range(count):
            at += 1
            if at % NUMBERS == numbers.last + 1 and at % NUMBERS < numbers.limit:
                numbers.last = at % NUMBERS
                numbers.mark(at)
            else:
                assert numbers.arrive(at % NUMBERS, at) is NEW
            assert numbers.arrive(at % NUMBERS, at) is SEEN
            assert numbers.arrive(at % NUMBERS, -at) is CONFLICT


@given(
    STARTS,
    st.permutations(range(1, 30)),
    st.sets(st.integers(1, 29)),
    st.lists(st.tuples(st.integers(0, 28), DISTANCES), max_size=10),
)
def test_what_never_comes_is_lost_and_counted_once(
    start: int, order: list[int], lost: set[int], invented: list[tuple[int, int]]
) -> None:
    """Also if somebody invents beats; an invented event is one under its number, all others are nothing."""
    numbers = Numbers(start, is_accounted=True)
    for place, offset in enumerate(order):
        for _, distance in [each for each in invented if each[0] == place]:
            numbers.claim((start - 2**29 - place) % NUMBERS, (start + offset + distance) % NUMBERS, 1.0)
            numbers.arrive((start + 30 + abs(distance)) % NUMBERS, -1, float(place))
        if offset not in lost:
            numbers.arrive((start + offset) % NUMBERS, 1, float(place))
    for before, newest in ((3, 29), (29, 29), (29, 29)):
        numbers.claim((start + before) % NUMBERS, (start + newest) % NUMBERS, 50.0)
    assert numbers.settle(100.0) == len(lost)
    assert numbers.settle(200.0) == 0
    assert not numbers.has_missing


@given(STARTS, st.integers(1, 20_000))
def test_a_large_gap_is_counted_whole_when_the_sender_says_that_it_sent_so_much(start: int, gap: int) -> None:
    numbers = Numbers(start, is_accounted=True)
    assert numbers.arrive((start + gap + 1) % NUMBERS) is NEW
    assert not numbers.has_missing
    for _ in range(2):
        numbers.claim((start + gap + 1) % NUMBERS, (start + gap + 1) % NUMBERS, 0.0)
    assert numbers.settle(1.0) == gap


def test_a_start_that_was_invented_is_given_up() -> None:
    numbers = Numbers(10 + 2**30)
    told = 0
    for number in range(11, 60):
        if number % 10:
            assert numbers.arrive(number) is NEW
        if number % 7 == 0:
            numbers.claim(number - 7, number, float(number))
        told += numbers.settle(float(number) - 1)
    numbers.claim(56, 59, 60.0)
    numbers.claim(59, 59, 61.0)
    assert told + numbers.settle(100.0) == 3  # 30, 40, 50: it was noticed after 20
    assert numbers.arrive(60) is NEW


def test_after_a_break_losses_are_counted_from_the_next_packet_on() -> None:
    numbers = Numbers(1, is_accounted=True)
    numbers.arrive(2)
    numbers.begin_again(7)
    for number in (50, 51, 53):
        assert numbers.arrive(number) is NEW
    numbers.claim(2, 53, 0.0)
    numbers.claim(53, 53, 0.5)
    assert (numbers.settle(1.0), numbers.turn, numbers.arrive(2)) == (1, 7, SEEN)


def test_what_is_remembered_is_limited_and_old_numbers_are_told_apart_from_copies() -> None:
    chance, numbers = random.Random(4), Numbers(1, is_accounted=True)
    for number in range(2, 3 * MAX_RUNS):
        assert numbers.arrive(2 * number, number) is NEW
    assert numbers.arrive(2 * number) is SEEN
    for _ in range(2):
        numbers.claim(2 * number, 2 * number, 0.0)
    assert numbers.arrive(5) is OLD
    for _ in range(20_000):
        numbers.arrive(chance.randrange(NUMBERS), 1)
        numbers.claim(chance.randrange(NUMBERS), chance.randrange(NUMBERS), 0.0)
    assert len(numbers._runs) <= MAX_RUNS
    assert len(numbers._gaps) <= MAX_GAPS
    assert all(len(run.marks) <= MAX_MARKS for run in numbers._runs)


@pytest.mark.slow
@settings(max_examples=15)
@given(STARTS, st.sampled_from([200, 1000, 4000]), st.sampled_from([2, 3, 7]))
def test_losses_that_alternate_with_packets_are_counted_at_any_rate(start: int, rate: int, every: int) -> None:
    """More runs between two beats than are remembered; rates are per 0.1 s, a beat comes after 0.5 s."""
    numbers, at, before, told, lost = Numbers(start, is_accounted=True), start, start, 0, 0
    for tick in range(1, 21):
        for _ in range(rate):
            at += 1
            lost += at % every == 0
            if at % every:
                assert numbers.arrive(at % NUMBERS, at, tick / 10) is NEW
        if tick % 5 == 0:
            numbers.claim(before % NUMBERS, at % NUMBERS, tick / 10)
            before = at
        told += numbers.settle(tick / 10 - 1)
    assert told
    numbers.claim(at % NUMBERS, at % NUMBERS, 3.0)
    assert told + numbers.settle(100.0) == lost


@given(STARTS, st.integers(2, 2**30), st.integers(2, 5))
def test_any_number_of_invented_packets_silences_nobody(start: int, distance: int, step: int) -> None:
    """Also if the sender is quiet meanwhile, and in the order of their numbers; nothing else is told as lost."""
    numbers = Numbers(start, mark=start, is_accounted=True)
    for place in range(MAX_RUNS + MAX_RUNS // 2):
        numbers.arrive((start + distance + place * step) % NUMBERS, -1)
    at = start
    for beat in range(1, 5):
        for _ in range(5):
            at += 1
            assert numbers.arrive(at % NUMBERS, at) in (NEW, CONFLICT)
        numbers.claim((at - 5) % NUMBERS, at % NUMBERS, float(beat))
    numbers.claim(at % NUMBERS, at % NUMBERS, 5.0)
    assert numbers.settle(100.0) == 0
