"""Soft events through drivers that queue: in order, never after they expired, and every lateness told."""

from itertools import product

import pytest

from genus.can._live.host import BusDriver
from genus.can._node.tx_queue import soft_priority
from genus.can._wire.frame import Frame
from tests.can.driver_workload import Run, Workload
from tests.can.emulated_host import EmulatedHost


def check_promises(run: Run) -> None:
    """What must hold in every run that confirms by echo."""
    assert len(run.events) > 100
    assert run.expired_on_bus == 0
    assert run.count(lambda event: event.is_untold) == 0
    assert run.count(lambda event: event.passages > 1) == 0
    assert run.most_overtaken() <= 1, "only the frame in the driver may be less urgent"


@pytest.mark.slow
@pytest.mark.parametrize("fifo", [10, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 100))])
def test_at_80_percent_load_no_event_is_sent_after_it_expired_and_every_lateness_is_told(fifo: int) -> None:
    run = Run(Workload(fifo=fifo, seconds=2.5), "echo").run()
    assert 0.74 < run.load < 0.86
    check_promises(run)


def test_the_simulators_mailboxes_keep_the_same_order_without_the_frame_in_the_driver() -> None:
    run = Run(Workload(), "simulator").run()
    assert run.most_overtaken() == 0
    assert run.expired_on_bus == 0
    assert run.count(lambda event: event.is_untold) == 0


def test_a_driver_that_is_believed_sends_expired_events_and_nobody_is_told() -> None:
    """What `confirm=send` costs where the driver queues, and that these checks can fail."""
    run = Run(Workload(own_load=0.8, fifo=100), "send").run()
    assert run.expired_on_bus > 0
    assert run.count(lambda event: event.is_untold) > 0
    assert run.most_overtaken() > 1


def test_in_overload_events_are_dropped_and_told_and_none_is_sent_after_it_expired() -> None:
    run = Run(Workload(own_load=0.8), "echo").run()
    assert run.count(lambda event: event.told_expired) > 0
    check_promises(run)


def test_errors_on_the_bus_delay_events_but_break_no_promise() -> None:
    check_promises(Run(Workload(own_load=0.3, foreign_load=0.3, errors=0.05), "echo").run())


def test_a_frame_enters_the_driver_with_the_priority_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over: list[tuple[int, int, Frame]] = []
    send = BusDriver.send

    def note(driver: BusDriver, frame: Frame) -> None:
        handed_over.append((driver.bus.network.now, driver.bus.number, frame))  # type: ignore[attr-defined]
        send(driver, frame)

    monkeypatch.setattr(BusDriver, "send", note)
    run = Run(Workload(seconds=0.5), "echo").run()
    timing = run.network.timing
    checked = 0
    for now, _, frame in handed_over:
        if 1 <= frame.priority <= 250:
            event = run.events[int.from_bytes(frame.data[1:5], "big")]
            slack = event.deadline - timing.worst_case_ns(len(frame.data)) - now
            assert frame.priority == soft_priority(slack, timing.worst_case_ns(8))
            checked += 1
    assert checked == len(run.events) - run.count(lambda event: event.passage is None) > 100


def test_a_host_has_at_most_one_event_in_its_driver() -> None:
    run = Run(Workload(seconds=0.4, fifo=100, own_load=0.8), "echo")
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, *(host.bus.queued for host in run.hosts if isinstance(host, EmulatedHost)))
        run.network.at(run.network.now + 100_000, look)

    run.network.at(0, look)
    run.run()
    assert most == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_promises_hold_for_other_loads_queues_and_computers(seed: int) -> None:
    """Where others outrank a frame for longer than it is valid, it may expire in the driver, which is told too."""
    shares = ((0.4, 0.4), (0.1, 0.7), (0.7, 0.1), (0.8, 0.4), (0.2, 0.9))
    priorities = (tuple(range(1, 251)), tuple(range(1, 20)), (0,), (254,))
    for (own, foreign), foreign_priorities, fifo in product(shares, priorities, (1, 10, 100)):
        workload = Workload(
            own_load=own,
            foreign_load=foreign,
            foreign_priorities=foreign_priorities,
            fifo=fifo,
            hosts=1 + seed * 2,
            seed=seed,
            longest_delay_ns=(100_000, 500_000, 2_000_000, 5_000_000)[seed],
            seconds=1.2,
        )
        run = Run(workload, "echo").run()
        message = f"{workload}"
        outranked = own + foreign > 1 or foreign_priorities == (0,)
        assert outranked or run.expired_on_bus == 0, message
        assert run.expired_on_bus <= sum(
            channel.sent_expired for node in run.nodes for channel in node.counts().sent.values()
        ), message
        assert run.count(lambda event: event.is_untold) == 0, message
        assert run.count(lambda event: event.passages > 1) == 0, message
        assert run.most_overtaken() <= 1, message
