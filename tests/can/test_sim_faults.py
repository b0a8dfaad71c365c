"""Faults: their text, their seeds, and what each does to frames, stations and clocks."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.controller import BusGuardian, Controller, ErrorState
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.faults import (
    FAULTS,
    Babble,
    BlockingErrors,
    Bursts,
    ClockDrift,
    ClockStep,
    Crash,
    Duplicates,
    ExactErrors,
    Fault,
    FrameErrors,
    Losses,
    Omissions,
    Partition,
    SlotStarts,
    Swaps,
    TransmitterFault,
    fault_help,
    parse_fault,
)
from genus.can._sim.simulation import FrameSink, FrameSource, Simulation, periodic
from genus.can._sim.trace import TrafficClass
from genus.can._wire.frame import Frame
from genus.errors import BusError
from tests.can.sim_parts import BIT, RecordingMachine, RecordingStation, RepeatingStation, frame

SECOND = 1_000_000_000

times = st.integers(0, 10**12)
numbers = st.integers(0, 126)
frame_options: dict[str, Any] = {
    "band": st.none() | st.sampled_from(TrafficClass),
    "etag": st.none() | st.integers(0, 16383),
    "node": st.none() | numbers,
}
random_options: dict[str, Any] = {"p": st.floats(0, 1), **frame_options}
faults = st.one_of(
    st.builds(FrameErrors, **random_options),
    st.builds(Duplicates, **random_options),
    st.builds(Losses, **random_options),
    st.builds(Swaps, **random_options),
    st.builds(Omissions, **random_options, receivers=st.integers(1, 126)),
    st.builds(ExactErrors, **(frame_options | {"band": st.sampled_from(TrafficClass)}), count=st.integers(0, 9)),
    st.builds(BlockingErrors, every_ns=st.none() | times, at_ns=times),
    st.builds(Bursts, every_ns=st.integers(1, 10**12), bits=st.integers(1, 10**6), from_ns=times),
    st.builds(TransmitterFault, node=numbers, from_ns=times, until_ns=times),
    st.builds(Babble, node=numbers, priority=st.integers(0, 255), from_ns=times, until_ns=times),
    st.builds(ClockStep, node=numbers, by_ns=st.integers(-(10**12), 10**12), at_ns=times),
    st.builds(ClockDrift, ppm=st.floats(-500, 500), nodes=st.lists(numbers, max_size=4).map(tuple), at_ns=times),
    st.builds(Crash, node=numbers, at_ns=times),
    st.builds(Partition, nodes=st.lists(numbers, min_size=1, max_size=4).map(tuple), from_ns=times),
)


# Text


@given(faults)
def test_every_fault_is_read_back_from_its_text(fault: Fault) -> None:
    assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "there is no fault ''; there are errors, exactly, blocking"),
        ("eror p=1", "did you mean errors?"),
        ("errors", "errors needs p"),
        ("errors p", "errors does not take 'p'; write key=value with one of the keys band, etag, node, from, until, p"),
        ("errors q=1", "errors does not take 'q=1'"),
        ("errors p=much", "errors: p is 'much'; it should be a number"),
        ("errors p=1.5", "errors: p is 1.5; it must be a probability from 0 to 1"),
        ("errors p=nan", "must be a probability"),
        ("errors p=1 band=silk", "errors: band is 'silk'; it should be one of hard, soft, system, none"),
        ("errors p=1 node=x", "errors: node is 'x'; it should be a whole number"),
        ("errors p=1 node=", "it should be a whole number"),
        ("exactly count=-1", "exactly: count is -1; it must be 0 or more"),
        ("omissions p=1 receivers=0", "omissions: receivers is 0; it must be 1 or more"),
        ("bursts every=0s bits=10", "must be more than 0"),
        ("bursts every=soon bits=10", "bursts: every is 'soon'; write seconds as a number"),
        ("partition nodes=", "it should be numbers such as 1,2,5-8"),
        ("partition nodes=9-1", "it should be numbers such as 1,2,5-8"),
        ("crash node=1 at=2s restart=1s", "restart is before at"),
        ("babble node=200", "priority is 0 to 255"),
        ("transmitter", "transmitter needs node"),
    ],
)
def test_the_error_of_a_wrong_text_names_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(BusError, match=wrong.replace("?", r"\?")):
        parse_fault(text)


def test_a_fault_of_frames_can_end() -> None:
    simulation = Simulation(1_000_000, faults=[parse_fault("errors p=1 from=10ms until=20ms")])
    source = FrameSource(simulation.bus, 1, Frame(0x100, b"beat"), periodic(1_000_000))
    sink = FrameSink(simulation.bus, 2)
    simulation.run(9_900_000)
    assert (source.delivered, simulation.bus.errors) == (10, 0)
    simulation.run(19_900_000)
    assert (sink.received, simulation.bus.errors > 0) == (10, True)


def test_help_has_a_line_for_every_fault() -> None:
    lines = dict(fault_help())
    assert len(lines) == len(FAULTS) == 15
    assert lines["errors p= [band=] [etag=] [node=] [from=] [until=]"].startswith("Frames are corrupted")
    assert all(does.endswith(".") or ":" in does or ";" in does for does in lines.values())


def test_numbers_may_be_ranges_and_hexadecimal() -> None:
    assert parse_fault("partition nodes=1,3-5,0x10") == Partition(nodes=(1, 3, 4, 5, 16))


# Effects on frames


def traffic(
    *faults_: Fault, seed: int = 1, period_bits: int = 400, **options: Any
) -> tuple[Simulation, FrameSource, list[RecordingStation]]:
    simulation = Simulation(seed=seed, faults=faults_, traced=True, confinement=False, **options)
    source = FrameSource(simulation.bus, 1, [frame(20, 1, bytes([n])) for n in range(250)], periodic(period_bits * BIT))
    return simulation, source, [RecordingStation(simulation.bus, n) for n in (2, 3, 4)]


def data_of(station: RecordingStation) -> list[int]:
    return [entry[3].data[0] for entry in station.log if entry[2] == "receive"]


def outcomes(simulation: Simulation) -> list[FrameOutcome]:
    assert simulation.trace is not None
    return [each.outcome for each in simulation.trace]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    def trace_of(seed: int) -> bytes:
        faults_ = FrameErrors(p=0.1), Omissions(p=0.1), Swaps(p=0.1)
        simulation, _, _ = traffic(*faults_, seed=seed)
        simulation.run(SECOND)
        assert simulation.trace is not None
        return simulation.trace.to_bytes()

    assert trace_of(1) == trace_of(1)
    assert trace_of(1) != trace_of(2)


def test_a_further_fault_does_not_change_the_random_numbers_of_those_before_it() -> None:
    def errors(*more: Fault) -> list[int]:
        simulation, _, _ = traffic(FrameErrors(p=0.1), *more)
        simulation.run(SECOND)
        assert simulation.trace is not None
        return [each.start_ns // (400 * BIT) for each in simulation.trace if each.outcome is FrameOutcome.ERROR]

    assert errors() == errors(Omissions(p=0.5))


def test_random_errors_corrupt_each_attempt_with_their_probability() -> None:
    simulation, source, stations = traffic(FrameErrors(p=0.2))
    simulation.run(4 * SECOND)
    attempts = simulation.bus.frames + simulation.bus.errors
    assert abs(simulation.bus.errors / attempts - 0.2) < 3 * (0.16 / attempts) ** 0.5
    assert source.delivered == len(data_of(stations[0])) == source.released - (simulation.bus.idle is False)


def test_errors_can_be_limited_to_a_traffic_class_an_event_tag_or_a_station() -> None:
    for fault, hit in (
        (FrameErrors(p=1, band=TrafficClass.HARD), 0),
        (FrameErrors(p=1, band=TrafficClass.SOFT), 1),
        (FrameErrors(p=1, etag=201), 0),
        (FrameErrors(p=1, etag=200), 1),
        (FrameErrors(p=1, node=2), 0),
        (FrameErrors(p=1, node=1), 1),
    ):
        simulation, _, _ = traffic(fault)
        simulation.run(10_000 * BIT)
        assert (simulation.bus.errors > 0, simulation.bus.frames == 0) == (bool(hit), bool(hit))


def test_exact_errors_corrupt_the_first_attempts_of_each_frame() -> None:
    simulation, _, _ = traffic(ExactErrors(count=2, band=None), period_bits=1000)
    simulation.run(SECOND)
    found = outcomes(simulation)
    assert found[:-3] == [FrameOutcome.ERROR, FrameOutcome.ERROR, FrameOutcome.SENT] * ((len(found) - 3) // 3)


def test_exact_errors_corrupt_hard_frames_by_default() -> None:
    simulation, _, _ = traffic(ExactErrors(count=2))
    simulation.run(SECOND)
    assert simulation.bus.errors == 0


@pytest.mark.parametrize("exact", [True, False])
def test_the_frame_on_the_bus_at_the_start_of_a_slot_is_corrupted_at_its_end(exact: bool) -> None:
    slots = SlotStarts(2000 * BIT, (0, 1050 * BIT))
    for fault in (BlockingErrors(), BlockingErrors(every_ns=2000 * BIT, at_ns=1050 * BIT)):
        simulation = Simulation(faults=[fault], slots=slots, traced=True, exact_lengths=exact)
        FrameSource(simulation.bus, 1, frame(20), periodic(1000 * BIT), first_ns=1000 * BIT)
        FrameSource(simulation.bus, 2, frame(0, 2), periodic(2000 * BIT), first_ns=1050 * BIT)
        simulation.run(8000 * BIT)
        assert simulation.trace is not None
        found = [(each.traffic_class, each.outcome) for each in simulation.trace][:4]
        assert found == [("soft", "error"), ("hard", "sent"), ("soft", "sent"), ("soft", "sent")]


def test_blocking_errors_need_a_calendar() -> None:
    with pytest.raises(BusError, match="the simulation has no calendar; give every and at"):
        Simulation(faults=[BlockingErrors()]).run(0)


def test_a_burst_corrupts_the_frames_on_the_bus_and_none_before_or_after() -> None:
    fault = Bursts(every_ns=10_000 * BIT, bits=300, from_ns=5_050 * BIT)
    simulation, source, _ = traffic(fault, period_bits=1000)
    simulation.run(100_000 * BIT)
    assert simulation.trace is not None
    hit = [each.start_ns // BIT % 10_000 for each in simulation.trace if each.outcome is FrameOutcome.ERROR]
    assert len(hit) > 10 * 8
    assert min(hit) == 5_000
    assert max(hit) < 5_350
    assert simulation.trace.passages[5].end_ns == (5_000 + 51 + 23) * BIT, "cut off at the first bad bit"
    assert source.delivered == 100


def test_a_duplicate_is_received_twice_and_sent_once_more() -> None:
    simulation, source, stations = traffic(Duplicates(p=0.3))
    simulation.run(40_000 * BIT)
    received = data_of(stations[0])
    assert sorted(set(received)) == list(range(source.delivered))
    assert len(received) == source.delivered + source.failures
    assert received == sorted(received)


def test_an_inconsistent_omission_affects_the_given_number_of_receivers() -> None:
    simulation, source, stations = traffic(Omissions(p=1, receivers=2))
    simulation.run(40_000 * BIT)
    counts = [len(data_of(station)) for station in stations]
    assert sum(counts) == source.delivered
    assert min(counts) > 10, "not always the same receivers"
    assert source.failures == 0


def test_an_omission_at_more_receivers_than_there_are_affects_all() -> None:
    simulation, source, stations = traffic(Omissions(p=1, receivers=99))
    simulation.run(40_000 * BIT)
    assert [data_of(station) for station in stations] == [[], [], []]
    assert source.delivered == 100


def test_losses_affect_all_receivers() -> None:
    simulation, source, stations = traffic(Losses(p=0.5))
    simulation.run(40_000 * BIT)
    assert data_of(stations[0]) == data_of(stations[1]) == data_of(stations[2])
    assert 30 < len(data_of(stations[0])) < 70
    assert source.delivered == 100


def test_swaps_exchange_neighbours_and_lose_nothing() -> None:
    simulation, _, stations = traffic(Swaps(p=0.2))
    simulation.run(40_000 * BIT)
    received = data_of(stations[0])
    assert received != sorted(received)
    assert len(set(received)) == len(received) >= 99
    assert all(abs(position - data) < 6 for position, data in enumerate(received))


def test_a_broken_transmitter_takes_its_station_off_the_bus_and_does_not_disturb_others() -> None:
    simulation = Simulation(faults=[TransmitterFault(node=1, from_ns=10_000 * BIT)], exact_lengths=False)
    broken = RepeatingStation(simulation.bus, 1, frame(30, 1))
    other = FrameSource(simulation.bus, 2, frame(20, 2), periodic(1000 * BIT), deadline_ns=(191 + 160) * BIT)
    simulation.run(100_000 * BIT)
    assert broken.times_of("bus_off")[0] - 10_000 <= 160 + 32 * 191 + 8 * 160
    assert len(broken.times_of("bus_off")) > 5, "again and again"
    assert (other.late, other.delivered) == (0, 100)


def misses_with_babbler(guarded: bool, priority: int) -> tuple[int, int]:
    """How many frames of a hard and of a soft source are late or not sent, of 100 each."""
    simulation = Simulation(faults=[Babble(node=9, priority=priority)], exact_lengths=False)
    guardian = BusGuardian(cycle_ns=1000 * BIT, windows=[(900 * BIT, 910 * BIT)], interval_ns=10_000 * BIT)
    if guarded:
        simulation.guardians[9] = guardian
    hard = FrameSource(simulation.bus, 20, frame(0, 20), periodic(1000 * BIT), deadline_ns=371 * BIT)
    soft = FrameSource(simulation.bus, 21, frame(20, 21), periodic(1000 * BIT), deadline_ns=600 * BIT)
    simulation.run(99_999 * BIT)
    return tuple(source.released - source.delivered + source.late for source in (hard, soft))  # type: ignore[return-value]


def test_a_babbling_idiot_of_the_highest_priority_blocks_all_frames_without_a_guardian() -> None:
    assert misses_with_babbler(False, 0) == (100, 100)
    assert misses_with_babbler(True, 0) == (0, 0)


def test_a_babbling_idiot_below_hard_blocks_soft_frames_only_without_a_guardian() -> None:
    assert misses_with_babbler(False, 1) == (0, 100)
    assert misses_with_babbler(True, 1) == (0, 0)


def test_a_babbling_idiot_of_the_lowest_priority_delays_no_frame_beyond_its_deadline() -> None:
    assert misses_with_babbler(False, 254) == (0, 0)


def test_a_babbling_idiot_starts_and_stops_at_its_times() -> None:
    simulation = Simulation(faults=[Babble(node=9, from_ns=1000 * BIT, until_ns=1600 * BIT)], exact_lengths=False)
    sink = FrameSink(simulation.bus, 1)
    simulation.run(10_000 * BIT)
    assert sink.received == 4


# Effects on stations


def simulation_with_hosts(*faults_: Fault, hosts: int = 3) -> tuple[Simulation, dict[int, list[RecordingMachine]]]:
    simulation = Simulation(faults=faults_, exact_lengths=False, seed=3)
    made: dict[int, list[RecordingMachine]] = {}

    def maker(number: int) -> Callable[[], RecordingMachine]:
        def make() -> RecordingMachine:
            made.setdefault(number, []).append(RecordingMachine())
            return made[number][-1]

        return make

    for number in range(1, hosts + 1):
        simulation.add_host(number, maker(number))
    return simulation, made


def test_a_clock_steps_at_its_time() -> None:
    simulation, _ = simulation_with_hosts(ClockStep(node=2, by_ns=-500, at_ns=1000))
    simulation.run(999)
    assert [host.now for host in simulation.hosts.values()] == [999, 999, 999]
    simulation.run(2000)
    assert [host.now for host in simulation.hosts.values()] == [2000, 1500, 2000]


def test_clocks_drift_as_given_or_each_at_random() -> None:
    simulation, _ = simulation_with_hosts(ClockDrift(ppm=100, nodes=(1, 3)))
    simulation.run(SECOND)
    assert [host.now - SECOND for host in simulation.hosts.values()] == [100_000, 0, 100_000]
    simulation, _ = simulation_with_hosts(ClockDrift(ppm=100))
    simulation.run(SECOND)
    drifts = [host.now - SECOND for host in simulation.hosts.values()]
    assert len(set(drifts)) == 3
    assert max(map(abs, drifts)) <= 100_000


def test_a_crashed_host_is_down_until_it_restarts_with_a_new_machine() -> None:
    simulation, made = simulation_with_hosts(Crash(node=1, at_ns=1000, restart_ns=3000), Crash(node=2, at_ns=1000))
    simulation.run(2000)
    assert [host.is_up for host in simulation.hosts.values()] == [False, False, True]
    simulation.run(4000)
    assert [host.is_up for host in simulation.hosts.values()] == [True, False, True]
    assert [len(machines) for machines in made.values()] == [2, 1, 1]


def test_hosts_on_two_sides_of_a_partition_do_not_receive_each_other() -> None:
    simulation, made = simulation_with_hosts(Partition(nodes=(1, 2), from_ns=1000 * BIT, until_ns=2000 * BIT), hosts=4)
    for start in (0, 1200, 2200):
        for number in (1, 3):
            host = simulation.hosts[number]
            loads = frame(10 + number, number)
            simulation.at(start * BIT, lambda h=host, n=number, f=loads: h.call(lambda now: made[n][0].load(f)))  # type: ignore[misc]
    simulation.run(5000 * BIT)
    received = {n: [each.node for each in machines[0].frames] for n, machines in made.items()}
    assert received == {1: [3, 3], 2: [1, 3, 1, 1, 3], 3: [1, 1], 4: [1, 3, 3, 1, 3]}


def test_the_end_of_a_partition_does_not_disturb_hosts_that_stayed_on_the_bus() -> None:
    simulation, made = simulation_with_hosts(Partition(nodes=(2,), from_ns=0, until_ns=100 * BIT))
    simulation.hosts[1].call(lambda now: made[1][0].load(frame(10)))
    simulation.run(1000 * BIT)
    assert made[1][0].inputs == [("sent", 160 * BIT)]


@pytest.mark.parametrize(
    "fault", [ClockStep(node=7, by_ns=1), ClockDrift(ppm=1, nodes=(7,)), Crash(node=7, at_ns=1), Partition(nodes=(7,))]
)
def test_a_fault_of_an_unknown_station_raises_a_bus_error(fault: Fault) -> None:
    simulation, _ = simulation_with_hosts(fault)
    with pytest.raises(BusError, match="there is no host 7 in the simulation; there are 1, 2, 3"):
        simulation.run(1)


def test_two_hosts_cannot_have_the_same_number() -> None:
    simulation, _ = simulation_with_hosts()
    with pytest.raises(BusError, match="there is a station 2 already"):
        simulation.add_host(2, RecordingMachine)


def test_all_faults_can_be_injected_together() -> None:
    """Frames are still delivered, and a controller that only receives stays on the bus."""
    texts = (
        "errors p=0.1", "duplicates p=0.05", "omissions p=0.1 receivers=2", "swaps p=0.05", "losses p=0.05",
        "bursts every=20ms bits=500", "transmitter node=1 from=100ms until=200ms", "blocking every=10ms",
        "babble node=2 from=300ms until=310ms", "drift ppm=100", "step node=1 by=3us at=50ms", "exactly count=1",
        "crash node=3 at=10ms restart=20ms", "partition nodes=1 from=1ms until=2ms",
    )  # fmt: skip
    simulation, _ = simulation_with_hosts(*map(parse_fault, texts))
    sources = [
        FrameSource(simulation.bus, 30 + n, Frame(n * 50 << 21 | (30 + n) << 14 | 200, bytes(8)), periodic(5000 * BIT))
        for n in range(5)
    ]
    receiver = simulation.bus.attach(Controller(50))
    simulation.run(SECOND)
    assert all(source.delivered > 150 for source in sources)
    assert receiver.state is not ErrorState.OFF
