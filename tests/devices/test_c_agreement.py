"""The C node does what the Python node does: on the same bus, and with the same inputs, frame by frame."""

from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from genus import Catalog, Maybe, Subscription, UInt8, UInt16
from genus.can import PreparedSystem, Scenario, World
from genus.can._machine import Call, Load
from genus.can._node.node import Node
from genus.can._plan.system import System
from genus.can._plan.system_file import load_system, parse_system
from genus.can._protocol.messages import Claim, QosClass, Supply
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.faults import parse_fault
from genus.can._wire.frame import Frame, subject_uid
from genus.can._world.outcome import Outcome
from genus.can._world.synthetic import PATTERNS
from genus.can._world.world import Clocks
from genus.can.types import ScenarioRun
from genus.model import Event, name_of
from tests.can.fault_table.row import Setting
from tests.can.random_systems import random_system
from tests.devices.c_library import LARGE, node_library
from tests.devices.c_node import DROPS, CNode, c_stations
from tests.devices.lockstep import LateBus, Lockstep, RandomBus
from tests.examples import some_of

SETTING = Setting(load_system(Path(__file__).parents[2] / "examples" / "crossing.toml"), 1, False)
TYPED, SLOTS = SETTING.prepared.typed, SETTING.prepared.plan.calendar.slots
MASTER = "monitor"
OTHERS = tuple(name for name in SETTING.system.nodes if name != MASTER)
"""All stations but the only one that may be the time master."""

Trace = list[tuple[int, int, int, str, FrameOutcome]]


def run(names: tuple[str, ...], *faults: str, **options: Any) -> tuple[Trace, Outcome]:
    """Every frame on the bus, with its times and what became of it, if some stations are C nodes."""
    node_library(*LARGE)
    with c_stations(*names) as made:
        scenario = SETTING.scenario(*faults, traced=True, **{"duration": 0.4, "masters": (MASTER,), **options})
        with ScenarioRun(scenario) as running:
            for _ in running.advance():
                pass
            outcome = running.outcome()
            trace = [(each.start_ns, each.end_ns, each.id, each.data, each.outcome) for each in running.world.trace]
    assert set(made) == set(names)
    return trace, outcome


def assert_same(*faults: str, **options: Any) -> None:
    python, expected = run((), *faults, **options)
    c, outcome = run(OTHERS, *faults, **options)
    assert len(python) > 800
    for mine, theirs in zip(python, c, strict=True):
        assert mine == theirs
    assert outcome.problems == expected.problems
    assert outcome.channels == expected.channels


FAULTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "without faults": ((), {}),
    "errors": (("errors p=0.1",), {}),
    "duplicates": (("duplicates p=0.1",), {}),
    "omissions": (("omissions p=0.05 band=hard receivers=2", "omissions p=0.05 band=soft receivers=1"), {}),
    "lost segments": (("losses p=0.02 band=none", "swaps p=0.02 band=none"), {}),
    "bursts": (("bursts every=50013us bits=1000",), {}),
    "bus off": (("transmitter node=11 from=300ms until=500ms",), {}),
    "clock step": (("step node=4 by=100us at=400ms",), {"duration": 0.8}),
    "master lost": (("crash node=2 at=600ms",), {"duration": 0.6}),
    "error passive": (("counters nodes=1-12 tec=135 every=100ms", "exactly count=1 p=0.2"), {"exact_lengths": False}),
    "restart": (("crash node=4 at=400ms restart=500ms",), {"duration": 0.6}),
}


@pytest.mark.parametrize("case", some_of(FAULTS, 5))
def test_a_bus_of_c_nodes_carries_the_same_frames_at_the_same_times_as_one_of_python_nodes(case: str) -> None:
    """Eleven of twelve stations are C nodes; all frames, deliveries and troubles are those of Python nodes."""
    faults, options = FAULTS[case]
    assert_same(*faults, **options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("case", FAULTS)
def test_that_is_so_for_longer_runs_with_other_seeds(case: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, options = FAULTS[case]
    monkeypatch.setattr(f"{__name__}.SETTING", Setting(SETTING.system, seed, False))
    assert_same(*faults, **{**options, "duration": 5.0})


def sporadic_system() -> PreparedSystem:
    """The crossing with hard channels of which half are sporadic."""
    system = SETTING.system
    for channel in system.hard[::2]:
        system = system.with_channel(channel.name, sporadic=True)
    return PreparedSystem.of(system)


def test_sporadic_slots_are_used_in_the_same_way() -> None:
    assert_same("errors p=0.2", prepared=sporadic_system(), confinement=False)


def assert_same_on_random_system(seed: int, clocks: Clocks, data_bitrate: int | None = None) -> int:
    """Compare a random system; returns how many frames were on the bus."""
    return assert_same_on(random_system(seed, data_bitrate=data_bitrate), seed, clocks)


def assert_same_on(system: System, seed: int, clocks: Clocks) -> int:
    """Compare a system with errors and repeated frames; returns how many frames were on the bus."""
    prepared = PreparedSystem.of(system)
    names = tuple(prepared.typed.system.nodes)
    faults = tuple(map(parse_fault, ("errors p=0.05", "duplicates p=0.02")))
    results = []
    for c_names in ((), names if clocks == "perfect" else names[1:]):
        scenario = Scenario(
            prepared=prepared,
            seed=seed,
            duration=0.3,
            pattern=PATTERNS[seed % len(PATTERNS)],
            clocks=clocks,
            faults=faults,
            traced=True,
            masters=() if clocks == "perfect" else names[:1],
        )
        with c_stations(*c_names), ScenarioRun(scenario) as running:
            for _ in running.advance():
                pass
            outcome = running.outcome()
            trace = [(each.start_ns, each.end_ns, each.frame, each.outcome) for each in running.world.trace]
            results.append((trace, outcome.channels, outcome.problems))
    assert results[0] == results[1]
    return len(results[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3, 5])
def test_random_systems_are_carried_in_the_same_way(seed: int) -> None:
    """Other bit rates, hard events in several frames, many nodes; with perfect clocks all stations are C nodes."""
    assert assert_same_on_random_system(seed, "perfect") > 200
    assert assert_same_on_random_system(seed, "real") > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_random_systems_on_can_fd_are_carried_in_the_same_way(seed: int) -> None:
    """Events are in FD frames, padded and segmented as in Python; those of the middleware are classic."""
    assert assert_same_on_random_system(seed, "perfect", 2_000_000) > 200
    assert assert_same_on_random_system(seed, "real", 4_000_000) > 200


def test_long_events_on_can_fd_are_carried_in_the_same_way() -> None:
    """Of 48 to 300 bytes: one padded frame, or segments of 64 bytes."""
    channels = [("hard", 48), ("hard", 64), ("soft", 33), ("soft", 65), ("soft", 130), ("none", 300)]
    text = "".join(
        f"""
        [[channel]]
        name = "{qos}-{size}"
        node = "node-{number}"
        class = "{qos}"
        period = "20ms"
        size = {size}
        subscribers = ["node-{(number + 1) % 6}", "node-{(number + 2) % 6}"]
        {'deadline = "15ms"' if qos == "soft" else ""}
        """
        for number, (qos, size) in enumerate(channels)
    )
    system = parse_system(f'[bus]\nbitrate = "500k"\ndata_bitrate = "2M"\ngap = "50us"\n{text}')
    assert assert_same_on(system, 1, "perfect") > 100
    assert assert_same_on(system, 2, "real") > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_random_systems_are_carried_in_the_same_way(seed: int) -> None:
    for data_bitrate in (None, 4_000_000):
        assert assert_same_on_random_system(seed, "perfect", data_bitrate)
        assert assert_same_on_random_system(seed, "real", data_bitrate)


# -- a trace that was recorded -----------------------------------------------------------------------------------------


class Recording:
    """State: a Python node in a simulation, every input of it, and what it did then."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.steps: list[tuple[str, tuple[Any, ...], list[tuple[int, Frame | None]], list[Event]]] = []
        self._inputs: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.node, name)
        if name not in ("receive", "sent", "failed", "lost", "error_passive", "bus_off", "bus_on", "wake", "start"):
            return found if name not in ("announce", "subscribe", "publish") else self._record(name, found)
        return self._record(name, found)

    def _record(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._inputs.append((name, arguments))
            return function(*arguments, **named)

        return call

    def take(self) -> list[Any]:
        outputs = self.node.take()
        loads = [(each.mailbox, each.frame) for each in outputs if isinstance(each, Load)]
        events = [each.arguments[0] for each in outputs if isinstance(each, Call) and _is_event(each)]
        for name, arguments in self._inputs[:-1]:
            self.steps.append((name, arguments, [], []))
        if self._inputs:
            name, arguments = self._inputs[-1]
            self.steps.append((name, arguments, loads, events))
        elif loads or events:
            self.steps.append(("", (), loads, events))
        self._inputs = []
        return outputs


def _is_event(call: Call) -> bool:
    return getattr(call.handler, "__name__", "") == "_receive"  # of the station


def record(name: str, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """What one Python node got and did in a run with errors and lost frames."""
    recordings: list[Recording] = []
    make = World._make_node

    def make_node(world: World, station: Any) -> Any:
        node = make(world, station)
        if station.name != name:
            return node
        recordings.append(Recording(node))
        return recordings[-1]

    monkeypatch.setattr(World, "_make_node", make_node)
    faults = ("errors p=0.05", "duplicates p=0.02", "omissions p=0.02 band=soft receivers=1")
    with ScenarioRun(SETTING.scenario(*faults, duration=0.8, masters=(MASTER,))) as running:
        for _ in running.advance():
            pass
    monkeypatch.undo()
    return recordings[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["controller", "loop-north", "camera"])
def test_a_recorded_trace_gives_the_same_frames_and_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = record(name, monkeypatch)
    events: list[Event] = []
    number = SETTING.number(name)
    c = CNode(
        recording.node.uid,
        name=name,
        timing=SETTING.system.bus.timing,
        catalog=TYPED.catalog,
        number=number,
        slots=SLOTS,
        sync_period_ns=SETTING.system.bus.sync_period_ns,
        seed=SETTING.seed << 7 | number,
        on_event=events.append,
    )
    frames = 0
    for step, (what, arguments, loads, delivered) in enumerate(recording.steps):
        if what:
            getattr(c, what)(*arguments)
        outputs = c.take()
        for output in outputs:
            if isinstance(output, Call):
                output.handler(*output.arguments)
        mine = [(each.mailbox, each.frame) for each in outputs if isinstance(each, Load)]
        assert mine == loads, f"step {step} of {len(recording.steps)}: {what} {arguments}"
        assert events == delivered, f"step {step}: {what} {arguments}"
        frames += len(loads)
        events.clear()
    assert frames > 100
    assert len(recording.steps) > 500


# -- random buses ------------------------------------------------------------------------------------------------------

OPTIONS = {
    "calendar": "-DGENUS_WITH_CALENDAR=0",
    "segmentation": "-DGENUS_WITH_SEGMENTS=0",
    "late": "-DGENUS_WITH_LATE=0",
}
CHANNELS = SETTING.system.channels
ETAGS = {channel.event: TYPED.catalog.etag(TYPED.stand_ins[channel.event].cls) for channel in CHANNELS}


def supply_of(channel: Any) -> Supply:
    cls = TYPED.stand_ins[channel.event].cls
    return Supply(
        subject_uid(name_of(cls)), TYPED.catalog.etag(cls), QosClass[channel.qos_class.upper()], channel.size > 8
    )


def check_random_bus(
    name: str,
    seed: int,
    steps: int,
    *,
    planned: bool,
    synchronised: bool,
    without: Collection[str] = (),
    until: Callable[[Lockstep], bool] = lambda pair: False,
) -> Lockstep:
    """Feed both nodes with what a random bus does, for some steps or until something is so.

    Raises at the first difference.

    Without segmentation the C node delivers no event of a channel that segments, and without a calendar hard events
    when they come, as a Python node without a plan.
    """
    segmented = {channel.event for channel in CHANNELS if channel.size > 8} if "segmentation" in without else set()
    pair = Lockstep(
        0x1234_5678_0000_0000 | seed,
        timing=SETTING.system.bus.timing,
        catalog=TYPED.catalog,
        name=name,
        number=SETTING.number(name) if planned else None,
        slots=() if "calendar" in without else SLOTS,
        synchronised=synchronised and "calendar" not in without,
        seed=seed,
        options=(*LARGE, *(OPTIONS[feature] for feature in without)),
        takes=lambda event: name_of(type(event)) not in segmented,
    )
    pair.start(1_000)
    own = [TYPED.stand_ins[channel.event] for channel in CHANNELS if channel.node == name]
    for channel in CHANNELS:
        if channel.node == name:
            pair.announce(TYPED.stand_ins[channel.event].cls, channel.qos, 2_000)
    for event in dict.fromkeys(channel.event for channel in CHANNELS if name in channel.subscribers or seed % 2):
        if TYPED.stand_ins[event] not in own:  # a C node does not deliver its own events to itself
            pair.subscribe(TYPED.stand_ins[event].cls, 3_000)
    etags = [*ETAGS.values(), *(20 * [ETAGS[event] for event in segmented])]
    bus = RandomBus(pair, f"{seed} {name} {planned} {synchronised}", etags, [supply_of(each) for each in CHANNELS])

    def publish(random: Random) -> Event:
        return random.choice(own).make(random.randrange(200))

    for _ in range(steps):
        if until(pair):
            break
        bus.step(publish if own else None)
    return pair


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tram", "loop-north", "controller", "camera", "head-east"])
@pytest.mark.parametrize("planned", [True, False])
def test_random_frames_timers_and_errors_make_no_difference(name: str, planned: bool) -> None:
    pairs = [
        check_random_bus(name, seed, 600, planned=planned, synchronised=synchronised)
        for seed in (1, 2)
        for synchronised in (True, False)
    ]
    assert sum(pair.compared for pair in pairs) >= 2400
    assert sum(pair.loaded for pair in pairs) > 100


@pytest.mark.parametrize("seed", range(4))
def test_a_hard_event_may_have_been_sent_if_it_was_in_a_mailbox_when_the_number_was_lost(seed: int) -> None:
    pair = check_random_bus(
        "head-east", seed, 3000, planned=True, synchronised=True, until=lambda pair: pair.mailboxes[0] is not None
    )
    assert pair.python.number is not None
    pair.receive(Claim(pair.python.number, pair.python.uid - 9).frame(), pair.now + 1_000)
    assert pair.python.number is None
    assert pair.c.notices["maybe sent"] == sum(each.counts.unknown for each in pair.python.tx.channels.values()) == 1


WITHOUT = [
    ("camera", ["calendar"]),
    ("head-east", ["segmentation"]),
    ("loop-north", ["late"]),
    ("tram", ["segmentation", "calendar", "late"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "without"), WITHOUT)
def test_a_node_without_some_features_does_all_else_in_the_same_way(name: str, without: list[str]) -> None:
    pairs = [check_random_bus(name, seed, 600, planned=True, synchronised=True, without=without) for seed in (1, 2)]
    assert sum(pair.loaded for pair in pairs) > 50
    if "segmentation" in without:
        assert sum(pair.c.dropped()[DROPS[-1]] for pair in pairs) > 5


class Vessel(Event, tagged=("note",)):
    number: UInt16
    note: Maybe[UInt8] = None


class Tank(Vessel): ...


class Drum(Vessel):
    litres: Maybe[UInt8] = None


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [0, 2, 8])
def test_the_first_event_of_a_late_class_waits_for_the_answer_and_none_comes_twice_or_out_of_order(buffer: int) -> None:
    """Answers come, are negative or lost, numbers are lost: events are delivered in order, or counted, or one waits.

    One of 3 to 5 bytes does not fit a buffer of 2. None is delivered more than 10 s after it came.
    """
    catalog = Catalog()
    catalog.register(Vessel, Tank, Drum)
    kept = 0
    for seed in range(4):
        bus = LateBus(seed, catalog, Subscription(Vessel), (Tank, Drum), buffer)
        for _ in range(60):
            before = len(bus.delivered)
            bus.step()
            assert 0 <= bus.waiting <= 1
            kept += bus.waiting
            for number in bus.delivered[before:]:
                assert bus.delivered_at[number] - bus.arrived[number][1] <= 10_000_000_000
        for cls in bus.late:
            numbers = [number for number in bus.delivered if bus.arrived[number][0] is cls]
            assert numbers == sorted(set(numbers))
        bus.pass_time(60_000_000_000)
        assert bus.waiting == 0
        assert bus.delivered, "a class was learnt"
    assert (kept > 15) is (buffer == 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 40))
def test_random_buses_for_longer(seed: int) -> None:
    for name in ("tram", "loop-north", "controller", "camera", "head-east"):
        for planned in (True, False):
            for synchronised in (True, False):
                check_random_bus(name, seed, 4000, planned=planned, synchronised=synchronised)
