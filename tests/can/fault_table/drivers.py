"""Row 24: a driver that queues frames, between a node and its controller."""

from tests.can.driver_workload import Run, Workload
from tests.can.fault_table.row import Observation, Setting, row

QUEUES = (1, 10, 100)


@row(
    24,
    "a driver with a queue",
    injected="500 kbit/s, 40 % soft events of four nodes, 40 % of others; drivers with queues of 1, 10 and 100 frames",
    expected="no event on the bus after it expired, every late one reported, one less urgent event ahead at most",
)
def driver_queues(setting: Setting) -> Observation:
    """The same workload for each queue; then once with a driver that is believed, to show what the row tests."""
    seconds = setting.size(1, 10)
    runs = [Run(Workload(fifo=fifo, seconds=seconds, seed=setting.seed), "echo").run() for fifo in QUEUES]
    believed = Run(Workload(own_load=0.8, fifo=100, seconds=seconds, seed=setting.seed), "send").run()
    events = sum(len(run.events) for run in runs)
    expired = sum(run.expired_on_bus for run in runs)
    late = sum(run.count(lambda event: event.is_late) for run in runs)
    untold = sum(run.count(lambda event: event.is_untold) for run in runs)
    ahead = max(run.most_overtaken() for run in runs)
    text = (
        f"{events:,} events, {expired} after they expired, {late} late, {untold} of them not reported, {ahead} ahead; "
        f"at 120 % load and without confirmation {believed.expired_on_bus:,} of {len(believed.events):,}"
    )
    expected = {"none expired": not expired, "reported": not untold, "one ahead": ahead <= 1}
    return Observation(text, expected | {"some without confirmation": believed.expired_on_bus > 0})
