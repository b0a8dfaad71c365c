"""Generated C on a simulated 8-bit processor, whose `int` has 16 bits, gives the answers of the oracle there, too."""

from pathlib import Path

import pytest

from bench import device_codes
from bench.device_frames import FRAME, Codec, Device, build, make_device, measure
from bench.simavr import MissingTool, Simulator, check_tools
from genus import Event
from genus.devices import generate
from genus_traffic.types import Category, ConfidentLoop, Edge, Loop
from tests.devices.random_system import RandomSystem

pytestmark = pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    try:
        check_tools()
    except MissingTool as problem:
        pytest.skip(str(problem))
    return Simulator(tmp_path)


def random_device(system: RandomSystem, codec: Codec) -> Device:
    asked = {f"wanted{number}": each for number, each in enumerate(system.subscriptions(8)[:8])}
    return Device(system.catalog, asked, generate(system.catalog, asked, name="road", codec=codec, residual=True))


def short_events(device: Device, events: list[Event]) -> list[Event]:
    """Those that fit the frames of the firmware, as many as it can number."""
    return [event for event in events if len(device.payload(event)[1]) <= FRAME][:200]


def check(device: Device, event: Event, called: int) -> None:
    """What was called must match, and the other way round where nothing is left to the handler."""
    for number, made in enumerate(device.firmware.filters):
        wanted, was_called = made.subscription.matches(event), bool(called >> number & 1)
        assert was_called == wanted or (was_called and made.residual is not None), f"{made.subscription} on {event!r}"


@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_random_systems(seed: int, codec: Codec, simulator: Simulator, tmp_path: Path) -> None:
    """The random systems of test_generated_code.py, from payloads to handlers."""
    system = RandomSystem(seed)
    device = random_device(system, codec)
    events = short_events(device, system.events(250))
    run = simulator.run(build(device, tmp_path, "frames", events))
    assert len(events) > 100
    assert any(case.result for case in run.cases)
    for event, case in zip(events, run.cases, strict=True):
        check(device, event, case.result)


def test_every_pair_of_codes(simulator: Simulator, tmp_path: Path) -> None:
    """12,544 pairs of the paper's hierarchy, by every test of codes; `measure` compares."""
    found = device_codes.measure(simulator, tmp_path)
    assert {len(cases) for cases in found.values()} == {112 * 112}


def test_a_type_is_learnt_in_the_field(simulator: Simulator, tmp_path: Path) -> None:
    texts = {"trucks": "Loop where category = 'truck'", "left": "Edge where lane > 1"}
    device = make_device("table", [Edge, Loop], texts, later=[ConfidentLoop])
    events: list[Event] = [
        ConfidentLoop(lane=0, category=Category.TRUCK, confidence=0.5),
        ConfidentLoop(lane=3),
        ConfidentLoop(lane=1, category=Category.CAR),
    ]
    (learnt, *cases), _ = measure(device, simulator, tmp_path, events)
    assert (learnt.result, [case.result for case in cases]) == (1, [0b01, 0b10, 0])
