"""Promises of the analysis against real nodes on the simulated bus, for random systems and random errors."""

import random
from math import sqrt

import msgspec
import pytest

from bench.admission import heavy_system
from genus.can import PreparedSystem, Scenario, simulate
from genus.can._plan.admission import Plan, plan
from genus.can._plan.system import ForeignFrame, System
from genus.can._plan.system_file import parse_system
from genus.can._sim.faults import ExactErrors, FrameErrors
from genus.can._world.synthetic import PATTERNS
from genus.can.types import Outcome, Pattern
from tests.can.random_systems import random_system
from tests.can.worst_case import find_worst_case

SECONDS = 0.3


def worst(prepared: PreparedSystem, pattern: Pattern, seed: int) -> Outcome:
    """All frames as long as they can be, and every hard frame fails exactly as often as its slot allows."""
    hard = prepared.typed.system.hard
    return simulate(
        Scenario(
            prepared=prepared,
            seed=seed,
            duration=SECONDS,
            pattern=pattern,
            clocks="perfect",
            exact_lengths=False,
            confinement=False,
            faults=tuple(ExactErrors(count=each.omissions, etag=each.etag) for each in hard if each.omissions),
        )
    )


def check(outcome: Outcome, plan: Plan) -> None:
    assert outcome.broken == ()
    for result in outcome.channels:
        assert result.published or plan.system.channel(result.channel).period_ns > SECONDS * 5e8
        assert result.lost == result.unnoticed == 0
        if result.qos_class == "hard" and result.admitted:
            assert result.published == result.sent
            assert sum(result.alarms.values()) == 0
        if plan.ok and result.qos_class != "hard":
            assert result.missed == result.expired == result.waiting == 0
            assert result.bound_ns is not None
            assert result.worst_ns <= result.bound_ns


@pytest.mark.parametrize("seed", range(4))
def test_random_systems_keep_every_promise_of_their_plan(seed: int) -> None:
    """No hard event is missed; no soft one in admitted systems; no bound of the others is exceeded."""
    prepared = PreparedSystem.of(random_system(seed))
    check(worst(prepared, PATTERNS[seed % len(PATTERNS)], seed), prepared.plan)


@pytest.mark.slow
def test_300_random_systems_keep_every_promise_of_their_plan() -> None:
    admitted = 0
    for seed in range(300):
        prepared = PreparedSystem.of(random_system(seed))
        admitted += prepared.plan.ok
        for pattern in PATTERNS:
            check(worst(prepared, pattern, seed), prepared.plan)
    assert admitted > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_systems_on_can_fd_keep_every_promise_of_their_plan(seed: int) -> None:
    prepared = PreparedSystem.of(random_system(seed, bitrate=500_000, data_bitrate=2_000_000))
    for pattern in PATTERNS:
        check(worst(prepared, pattern, seed), prepared.plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_systems_keep_their_promises_with_real_clocks(seed: int) -> None:
    """Clocks are off, drift and are synchronised; slots are wide enough for the precision that is reached."""
    prepared = PreparedSystem.of(random_system(seed, bitrate=1_000_000))
    check(simulate(Scenario(prepared=prepared, seed=seed, duration=1.0)), prepared.plan)


# -- near full load, and with foreign frames -------------------------------------------------------------------------


def foreign_system(seed: int, load: float | None = None) -> System:
    """A random system with frames of other makers, of any priority: before, between and after those of Genus."""
    rng = random.Random(f"foreign {seed}")
    system = random_system(seed, load=load or rng.uniform(0.05, 0.3))
    frames = []
    for number in range(rng.randint(1, 12)):
        extended = rng.random() < 0.5
        band = rng.choice((0, rng.randint(1, 20), rng.randint(1, 250), 252))
        first = band << 21 | rng.choice((0, number + 1)) if extended else min(band << 3 | number % 8, 0x7FF)
        period = rng.randint(10, 100) * 1_000_000 * (1_000_000 // system.bus.timing.bitrate)
        jitter = rng.choice((0, rng.randint(0, period)))
        name, size = f"foreign {number}", rng.randint(0, 8)
        frames.append(
            ForeignFrame(
                name=name, first=first, last=first, extended=extended, size=size, period_ns=period, jitter_ns=jitter
            )
        )
    return msgspec.structs.replace(system, foreign=tuple({frame.text: frame for frame in frames}.values()))


def check_worst_case(system: System, seed: int, runs: int) -> bool:
    """No channel of a plan takes longer than its verdict says if it is admitted; returns whether all are."""
    found = plan(system, with_advice=False)
    if system.soft:
        worst = find_worst_case(system, found.calendar, seed, runs)
        for verdict in found.verdicts:
            if verdict.ok:
                assert verdict.response_ns is not None
                response = worst.responses.get(verdict.channel, 0)
                assert response <= verdict.response_ns, (seed, verdict, response)
    return found.ok


@pytest.mark.parametrize("seed", range(4))
def test_no_admitted_channel_near_full_load_is_late_in_a_search_for_the_worst_case(seed: int) -> None:
    check_worst_case(heavy_system(seed), seed, runs=24)


def test_foreign_frames_delay_no_admitted_channel_more_than_its_plan_says() -> None:
    admitted = sum(check_worst_case(foreign_system(seed), seed, runs=12) for seed in range(12))
    assert admitted >= 3


@pytest.mark.slow
def test_no_admitted_channel_of_3000_systems_is_late_in_a_search_for_the_worst_case() -> None:
    """Of every load, with and without foreign frames."""
    admitted = 0
    for seed in range(1000):
        admitted += check_worst_case(random_system(seed), seed, runs=36)
        admitted += check_worst_case(random_system(seed, load=random.Random(seed).uniform(0.4, 0.9)), seed, runs=36)
        admitted += check_worst_case(foreign_system(seed), seed, runs=36)
    assert admitted > 500


@pytest.mark.parametrize("seed", range(3))
def test_nodes_keep_every_promise_among_foreign_frames(seed: int) -> None:
    prepared = PreparedSystem.of(foreign_system(seed))
    check(worst(prepared, "periodic", seed), prepared.plan)


@pytest.mark.slow
def test_nodes_of_100_systems_keep_every_promise_among_foreign_frames() -> None:
    admitted = 0
    for seed in range(100):
        prepared = PreparedSystem.of(foreign_system(seed))
        admitted += prepared.plan.ok
        for pattern in PATTERNS:
            check(worst(prepared, pattern, seed), prepared.plan)
    assert admitted > 20


# -- loss under random errors ----------------------------------------------------------------------------------------

HARD = """
[[channel]]
name = "pulse-{number}"
node = "sensor-{number}"
class = "hard"
period = "10ms"
omissions = {omissions}
size = 8
subscribers = ["one", "two"]
"""
OTHERS = """
[[channel]]
name = "soft-{number}"
node = "sensor-{number}"
class = "soft"
period = "4ms"
deadline = "3ms"
expires = "6ms"
size = 8
subscribers = ["three"]
"""


def lossy(omissions: int, p: float, seconds: float) -> Outcome:
    """Eight hard channels with some soft traffic between them; every frame of any kind is corrupted with p."""
    channels = [HARD.format(number=number, omissions=omissions) for number in range(8)]
    channels += [OTHERS.format(number=number) for number in range(2)]
    prepared = PreparedSystem.of(parse_system("[bus]\nbitrate = 1_000_000\n" + "".join(channels)))
    return simulate(
        Scenario(
            prepared=prepared, seed=7, duration=seconds, clocks="perfect", confinement=False, faults=(FrameErrors(p=p),)
        )
    )


def check_losses(omissions: int, p: float, seconds: float) -> None:
    hard = lossy(omissions, p, seconds).of_class("hard")
    events, lost = sum(each.published for each in hard), sum(each.not_sent for each in hard)
    expected = events * p ** (omissions + 1)
    assert abs(lost - expected) <= 3 * sqrt(expected * (1 - p ** (omissions + 1)))
    for each in hard:
        assert each.late == each.duplicates == 0
        assert each.published == each.sent + each.not_sent
        assert each.delivered == {"one": each.sent, "two": each.sent}
        assert each.alarms == {"one": each.not_sent, "two": each.not_sent}


@pytest.mark.parametrize(("p", "omissions"), [(0.2, 1)])
def test_hard_events_are_lost_as_often_as_all_their_attempts_fail(p: float, omissions: int) -> None:
    """p^(o+1) of them within three sigma; each loss is told once to each subscriber, and nothing comes late."""
    check_losses(omissions, p, seconds=3)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("omissions", range(4))
def test_36000_hard_events_are_lost_as_often_as_all_their_attempts_fail(p: float, omissions: int) -> None:
    check_losses(omissions, p, seconds=45.01)
