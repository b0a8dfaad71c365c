"""Plans: the example is admitted, admitted systems keep their promises, and advice helps."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genus.can import PreparedSystem, Scenario, Timing, simulate
from genus.can._plan.admission import Advice, Plan, _find_least, plan
from genus.can._plan.interference import middleware_messages
from genus.can._plan.system import BusSpec, System
from genus.can._plan.system_file import load_system, parse_system
from genus.errors import PlanError
from tests.can.bus_model import random_releases, run, simultaneous_releases
from tests.can.random_systems import random_system

CROSSING = Path(__file__).parents[2] / "examples" / "crossing.toml"
MS = 1_000_000


@pytest.fixture(scope="module")
def crossing() -> Plan:
    return plan(load_system(CROSSING))


def test_the_crossing_is_admitted(crossing: Plan) -> None:
    assert crossing.ok
    assert [len(each) for each in (crossing.system.hard, crossing.system.soft, crossing.system.none)] == [8, 12, 3]
    assert crossing.calendar.cycle_ns == 10 * MS
    assert {slot.length_ns for slot in crossing.calendar.slots} == {562_000}


def test_load_is_told_by_class(crossing: Plan) -> None:
    hard, soft, none, own = crossing.load.shares
    assert (hard.used, hard.worst, hard.reserved) == pytest.approx((8 * 0.016, 8 * 0.0351, 8 * 0.0562))
    assert soft.used == pytest.approx(0.1414)
    assert 0 < none.used < 0.05
    assert own.used == pytest.approx(sum(m.length / m.period for m in middleware_messages(crossing.system)))
    assert crossing.load.used < crossing.load.worst < 1


def test_the_middlewares_own_frames_are_in_the_way_of_others_unless_there_are_none(crossing: Plan) -> None:
    bus = msgspec.structs.replace(crossing.system.bus, middleware=False)
    alone = plan(crossing.system.on_bus(bus))
    with_it, without = (each.verdict("journal").response_ns for each in (crossing, alone))
    assert with_it is not None
    assert without is not None
    assert without < with_it
    assert crossing.middleware_response_ns is not None
    assert alone.middleware_response_ns is None


def check(found: Plan, seed: int, until: int) -> int:
    """Run a system in three patterns; how many events ended."""
    rng, system, ended = random.Random(seed), found.system, 0
    for releases in (
        simultaneous_releases(system, until, 0),
        simultaneous_releases(system, until, rng.randrange(10 * MS)),
        random_releases(system, until, rng),
    ):
        outcome = run(system, found.calendar, releases, until, shifts=rng)
        ended += outcome.sent
        for verdict in found.verdicts:
            if verdict.ok:
                assert verdict.response_ns is not None
                slack = 0 if verdict.qos_class != "hard" else system.bus.gap_ns
                assert outcome.worst.get(verdict.channel, 0) <= verdict.response_ns + slack, (verdict, seed)
    return ended


@pytest.mark.parametrize("seed", range(4))
def test_channels_that_are_admitted_keep_their_promises(seed: int) -> None:
    """Frames are as long as they can be, every hard frame fails as often as its slot allows."""
    assert check(plan(random_system(seed), with_advice=False), seed, 200 * MS) > 0


def test_on_can_fd_too() -> None:
    for seed in range(4):
        check(plan(random_system(seed, data_bitrate=4_000_000), with_advice=False), seed, 200 * MS)


@pytest.mark.slow
def test_channels_that_are_admitted_keep_their_promises_in_many_systems() -> None:
    admitted = 0
    for seed in range(100, 400):
        found = plan(random_system(seed), with_advice=False)
        admitted += found.ok
        check(found, seed, 500 * MS)
    assert 90 <= admitted <= 210


def test_a_fair_share_of_random_systems_is_admitted() -> None:
    admitted = sum(plan(random_system(seed), with_advice=False).ok for seed in range(60))
    assert 20 <= admitted <= 45


def two_hard(omissions: int = 2, size: int = 8, bitrate: str = "125k") -> System:
    channel = '[[channel]]\nname = "{}"\nnode = "{}"\nclass = "hard"\nperiod = "10ms"\nomissions = {}\nsize = {}\n'
    text = channel.format("a", "a", omissions, size) + channel.format("b", "b", omissions, size)
    return parse_system(f'[bus]\nbitrate = "{bitrate}"\n{text}')


def test_a_slot_that_finds_no_room_is_refused_with_what_to_change() -> None:
    found = plan(two_hard())
    (refused,) = found.refused
    assert refused.reason == (
        "no room for a slot of 5.884 ms every 10 ms; all slots together would take 118% of the bus"
    )
    assert {advice.key: advice.value for advice in refused.advice} == {"omissions": 0, "size": 0}
    assert [advice.text for advice in found.advice] == ["at 250 kbit/s everything fits"]


def test_a_deadline_that_is_too_short_is_refused_with_one_that_is_not(crossing: Plan) -> None:
    system = crossing.system.with_channel("tram", deadline_ns=700_000)
    refused = plan(system).verdict("tram")
    assert not refused.ok
    assert refused.reason.startswith("may take")
    longer = next(advice for advice in refused.advice if advice.key == "deadline")
    assert 700_000 < longer.value < 2 * MS


def test_a_full_bus_has_no_bound_for_others(crossing: Plan) -> None:
    system = crossing.system.with_channel("journal", period_ns=2 * MS)
    verdict = plan(system).verdict("picture")
    assert (verdict.ok, verdict.response_ns) == (False, None)
    assert verdict.reason.startswith("no bound")


@pytest.mark.parametrize("seed", range(3))
def test_advice_works_when_it_is_followed(seed: int) -> None:
    system = random_system(seed, load=0.6, bitrate=500_000)
    found = plan(system)
    for verdict in found.refused:
        for advice in verdict.advice:
            assert plan(advice.apply(system), with_advice=False).verdict(verdict.channel).ok, advice
    for advice in found.advice:
        assert plan(advice.apply(system), with_advice=False).ok, advice


def test_advice_asks_for_no_more_than_it_must() -> None:
    system = two_hard()
    (refused,) = plan(system).refused
    for advice in refused.advice:
        more = msgspec.structs.replace(advice, value=advice.value + 1)
        assert not plan(more.apply(system), with_advice=False).ok


def test_periods_that_do_not_divide_each_other_are_refused_as_a_whole() -> None:
    system = two_hard(0).with_channel("b", period_ns=10_007_001)
    with pytest.raises(PlanError, match="choose periods that divide each other"):
        plan(system)


def test_a_system_without_channels_has_a_plan() -> None:
    found = plan(parse_system('[bus]\nbitrate = "1M"\n'))
    assert found.ok
    assert found.calendar.slots == ()
    assert found.load.used == pytest.approx(found.load.worst)


def soft(*channels: tuple[str, str, str], bus: str = 'bitrate = "1M"', size: int = 8) -> System:
    """Soft channels by name, period and deadline, without any other frames."""
    text = '[[channel]]\nname = "{0}"\nnode = "{0}"\nclass = "soft"\nperiod = "{1}"\ndeadline = "{2}"\nsize = {3}\n'
    return parse_system(f"[bus]\n{bus}\nmiddleware = false\n" + "".join(text.format(*each, size) for each in channels))


def advised(found: Plan) -> list[tuple[str, int]]:
    return [(advice.key, advice.value) for advice in found.advice]


def test_a_response_that_is_too_long_is_told_with_the_difference() -> None:
    """A deadline of exactly the response time is enough."""
    found = plan(soft(("a", "2ms", "2ms"), ("b", "4ms", "3ms"), bus='bitrate = "125k"'))
    assert [verdict.reason for verdict in found.verdicts] == [
        "may take 3.84 ms, 1.84 ms too long", "may take 5.12 ms, 2.12 ms too long",
    ]  # fmt: skip
    assert [verdict.advice[0].text for verdict in found.verdicts] == [
        "a deadline of at least 3.9 ms", "a deadline of at least 5.2 ms",
    ]  # fmt: skip
    assert not found.ok
    assert advised(found) == [("bitrate", 250_000)]
    assert plan(found.system.with_channel("a", deadline_ns=3_840_000)).verdict("a").ok
    assert not plan(found.system.with_channel("a", deadline_ns=3_839_999)).verdict("a").ok


CROWD = [(f"c{number}", "1ms", "1ms") for number in range(10)]


@pytest.mark.parametrize(
    ("bus", "advice"),
    [
        ('bitrate = "800k"', [("data_bitrate", 8_000_000)]),
        ('bitrate = "1M"', [("data_bitrate", 4_000_000)]),
        ('bitrate = "1M"\nclassic_nodes = ["c0"]', []),
        ('bitrate = "1M"\nclassic_nodes = []', [("data_bitrate", 4_000_000)]),
    ],
)
def test_the_slowest_data_bit_rate_that_carries_everything_is_advised(bus: str, advice: list[tuple[Any, int]]) -> None:
    """Where no classic bus is fast enough, unless a node cannot be on CAN FD."""
    found = plan(soft(*CROWD, bus=bus))
    assert advised(found) == advice
    for key, value in advice:
        for rate in (2_000_000, 4_000_000, 5_000_000, 8_000_000):
            tried = plan(Advice(key, rate, "").apply(found.system), with_advice=False)
            assert tried.ok or rate < value


def test_on_can_fd_no_bit_rate_above_that_of_the_data_is_advised() -> None:
    channels = [(f"c{number}", "3ms", "3ms") for number in range(3)]
    found = plan(soft(*channels, bus='bitrate = "125k"\ndata_bitrate = "250k"', size=64))
    assert not found.ok
    assert all(value <= 250_000 or key == "data_bitrate" for key, value in advised(found))


def test_of_many_refused_channels_the_first_get_advice_of_their_own() -> None:
    """More of them mean that the bus is overloaded: then only what helps all of them."""
    deadlines = [(name, "100ms", "1ms") for name, *_ in CROWD]
    found = plan(soft(*deadlines, bus='bitrate = "250k"'))
    assert len(found.refused) == 10
    assert [bool(verdict.advice) for verdict in found.verdicts] == [True] * 8 + [False] * 2
    without = plan(found.system, with_advice=False)
    assert without.advice == ()
    assert not any(verdict.advice for verdict in without.verdicts)
    assert [each.reason for each in without.verdicts] == [each.reason for each in found.verdicts]


def test_the_time_between_events_must_be_longer_by_the_least_percentage_that_helps() -> None:
    found = plan(soft(("a", "400us", "2ms"), ("b", "400us", "2ms"), ("c", "400us", "2ms"), bus='bitrate = "1M"'))
    percent = dict(advised(found))["load"]
    advice = next(advice for advice in found.advice if advice.key == "load")
    assert advice.text == f"everything fits if the time between soft and other events is {percent} % longer"
    assert plan(advice.apply(found.system), with_advice=False).ok
    less = msgspec.structs.replace(advice, value=percent - 1)
    assert not plan(less.apply(found.system), with_advice=False).ok
    stretched = advice.apply(found.system).channels[0]
    assert stretched.period_ns == 400_000 * (100 + percent) // 100


def test_a_longer_load_leaves_hard_channels_as_they_are() -> None:
    system = two_hard(0).with_channel("b", qos_class="none")
    periods = [each.period_ns for each in Advice("load", 50, "").apply(system).channels]
    assert periods == [10 * MS, 15 * MS]


def test_a_channel_that_a_plan_does_not_have_is_named(crossing: Plan) -> None:
    assert crossing.verdict("tram").channel == "tram"
    with pytest.raises(PlanError, match="has no channel 'metro'"):
        crossing.verdict("metro")


def test_classic_frames_on_a_bus_of_can_fd_are_doubted_unless_the_file_says_who_knows_it() -> None:
    text = '[bus]\nbitrate = "500k"\n{}\n[[foreign]]\nname = "Theirs"\nid = "0x100"\nperiod = "10ms"\n'
    fd = 'data_bitrate = "2M"'
    (warning,) = [each for each in plan(parse_system(text.format(fd))).warnings if "classic" in each]
    assert "Theirs is a classic frame; if its sender knows only classic CAN it destroys every CAN FD frame" in warning
    for bus, more in (("", ""), (fd + "\nclassic_nodes = []", ""), (fd, "fd = true\n")):
        assert not [each for each in plan(parse_system(text.format(bus) + more)).warnings if "classic" in each]


def test_a_gap_of_four_bits_is_enough_for_clocks_that_are_synchronised_over_the_bus() -> None:
    for gap, is_doubtful in (("79us", True), ("80us", False)):
        text = PULSE.replace("250k", "50k").replace("100us", gap).replace("10ms", "100ms").replace("25us", "20us")
        warnings = [each for each in plan(parse_system(text), with_advice=False).warnings if "gap is" in each]
        assert bool(warnings) is is_doubtful
        assert all(each.endswith("use at least 80 us") for each in warnings)


def test_a_station_that_is_off_the_bus_only_above_255_errors_may_fail_as_often() -> None:
    """95 errors and a frame on the wire before, then 8 for each failure, and one less for each frame that went out."""
    for omissions, is_doubtful in ((19, False), (20, True)):
        warnings = plan(two_hard(0).with_channel("a", omissions=omissions), with_advice=False).warnings
        assert any(f"'a' allows {omissions} failures in a slot" in each for each in warnings) is is_doubtful


@pytest.mark.parametrize(("from_ns", "least"), [(1_000, 1_700), (1_000, 16_000), (990, 990), (5, 80)])
def test_the_least_time_that_helps_is_found_up_to_sixteen_times_as_long(from_ns: int, least: int) -> None:
    """To two digits, and by a few steps: it helps, and is not much longer than it must be."""
    found = _find_least(lambda span: Advice("period", span, "") if span >= least else None, from_ns)
    assert found is not None
    assert least <= found.value <= least * 1.1
    assert _find_least(lambda span: Advice("period", span, "") if span > 17 * from_ns else None, from_ns) is None


PULSE = """
[bus]
bitrate = "250k"
gap = "100us"
precision = "25us"
sync_period = "500ms"
[[channel]]
name = "pulse"
node = "a"
class = "hard"
period = "10ms"
omissions = 0
size = 4
subscribers = ["b"]
"""


def test_hard_channels_are_refused_where_clocks_cannot_be_precise_enough() -> None:
    found = plan(parse_system(PULSE))
    assert [verdict.channel for verdict in found.refused] == ["pulse"]
    assert "use a gap of at least 219 us, or a sync_period of 20 ms" in found.refused[0].reason
    for given, enough in [("100us", "219us"), ("500ms", "20ms"), ("[[", "middleware = false\n[[")]:
        assert plan(parse_system(PULSE.replace(given, enough, 1))).ok, enough
    assert not plan(parse_system(PULSE.replace("100us", "218us"))).ok
    assert simulate(Scenario(prepared=PreparedSystem.of(parse_system(PULSE.replace("100us", "219us"))))).broken == ()


def test_the_simulator_tells_of_hard_events_that_nobody_got() -> None:
    outcome = simulate(Scenario(prepared=PreparedSystem.of(parse_system(PULSE)), seed=1))
    assert any("events were sent and not given to a subscriber" in why for why in outcome.broken), outcome


def test_bounds_count_on_no_better_clocks_than_there_are() -> None:
    fast, slow = (BusSpec(timing=Timing(bitrate)) for bitrate in (1_000_000, 50_000))
    assert fast.clock_error_ns == fast.precision_ns == slow.precision_ns == 5_000
    assert slow.clock_error_ns > 22_000, "a bit, and how far clocks drift until the next SYNC"
