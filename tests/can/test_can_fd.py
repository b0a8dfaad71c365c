"""CAN FD: the same events as on a classic bus, in fewer frames; what cannot be on such a bus is refused."""

from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from cantools.database.can import Database

import can
from genus import BestEffort, Catalog, Event, Hard, Maybe, Soft, UInt16, open_bus
from genus.can import (
    Frame,
    PreparedSystem,
    Scenario,
    Timing,
    World,
    format_dbc,
    format_system,
    parse_system,
    plan,
    simulate,
)
from genus.can._live.interfaces import parse_address
from genus.can._live.link import open_interface
from genus.can._monitor import Monitor
from genus.can._node.node import Node
from genus.can._plan.system import System
from genus.devices import generate
from genus.errors import BusError, PlanError
from tests.can.random_systems import random_system
from tests.generators import Generator

FD = Timing(500_000, 2_000_000)
CONTEXT = ("time", "source", "place", "deadline", "expires")


class Reading(Event):
    number: UInt16
    first: Maybe[float] = None
    second: Maybe[float] = None
    third: Maybe[float] = None


def catalog() -> Catalog:
    made = Catalog()
    made.register(Reading)
    made.give_etags("Reading")
    return made


# -- the same events ---------------------------------------------------------------------------------------------------


def exchange(seed: int, data_bitrate: int | None) -> tuple[dict[str, list[str]], int]:
    """What subscribers of random types get of random events under errors, by type; and the frames that were sent."""
    generator = Generator(seed)
    types, got = generator.types, defaultdict[str, list[str]](list)
    with World("fd", catalog=types, seed=seed, bitrate=500_000, data_bitrate=data_bitrate) as world:
        receiver, sender = open_bus("sim:fd?name=receiver"), open_bus("sim:fd?name=sender")
        for root in (cls for cls in types if Event in cls.__bases__):
            receiver.collection(root).subscribe(lambda event: got[type(event).__name__].append(repr(event)))
        channels = []
        for cls in types:
            qos = generator.random.choice((Soft(deadline="1s"), BestEffort()))
            carries = generator.random.choice((("place",), ("time", "source", "place")))
            channels.append((cls, sender.channel(cls, qos, carries=carries), set(CONTEXT) - set(carries)))
            channels[-1][1].announce()
        world.inject("errors p=0.05")
        for cls, channel, left_out in channels:
            for event in generator.events(4, cls):
                channel.publish(msgspec.structs.replace(event, **dict.fromkeys(left_out)))
                sender.sleep("20ms")
        world.run("1s")
        frames = sum(passage.id & 0x3FFF >= 128 for passage in world.trace.passages)
    return got, frames


@pytest.mark.parametrize("seed", range(4))
def test_random_events_are_the_same_on_both_forms(seed: int) -> None:
    """Types with texts, of any length and with any attributes absent; frames fail and are sent again."""
    classic, more = exchange(seed, None)
    fd, fewer = exchange(seed, 2_000_000)
    assert classic == fd
    assert sum(map(len, fd.values())) == 4 * len(Generator(seed).types)
    assert fewer < more


def on_can_fd(system: System) -> System:
    return system.on_bus(msgspec.structs.replace(system.bus, timing=Timing(system.bus.timing.bitrate, 4_000_000)))


def published(prepared: PreparedSystem, seed: int) -> dict[str, int]:
    """How many soft and other events were published; all were delivered, within their bounds."""
    outcome = simulate(Scenario(prepared=prepared, seed=seed, duration=0.3, clocks="perfect"))
    assert outcome.broken == ()
    for result in outcome.channels:
        assert result.bound_ns is not None
        assert result.worst_ns <= result.bound_ns
        assert result.sent == result.published - result.waiting
        assert all(result.sent - count in (0, 1) for count in result.delivered.values())  # one may be on its way
        assert result.lost == result.unnoticed == 0
    return {result.channel: result.published for result in outcome.channels if result.qos_class != "hard"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_a_system_that_is_admitted_is_admitted_on_can_fd_and_delivers_the_same(seed: int) -> None:
    """No event takes longer on CAN FD, so no bound of a plan may grow, and the simulator keeps those of both."""
    system = random_system(seed, load=0.2, bitrate=500_000)
    for channel, faster in zip(system.channels, on_can_fd(system).channels, strict=True):
        assert faster.event_ns < channel.event_ns
    classic, fd = PreparedSystem.of(system), PreparedSystem.of(on_can_fd(system))
    if classic.plan.ok:
        assert fd.plan.ok
        assert published(classic, seed) == published(fd, seed)


# -- frame times -------------------------------------------------------------------------------------------------------

BLOCK = """
[bus]
bitrate = "500k"
data_bitrate = "2M"
middleware = false
[[channel]]
name = "block"
node = "a"
class = "none"
period = "10ms"
size = 64
subscribers = ["b"]
"""


def test_the_plan_counts_both_bit_rates_and_the_simulator_takes_as_long() -> None:
    """57 bits at 2 us and 679 at 0.5 us; the event is alone on the bus."""
    found = plan(parse_system(BLOCK))
    assert found.system.channels[0].times == (453_500,)
    scenario = Scenario(
        prepared=PreparedSystem.of(found.system), duration=0.2, clocks="perfect", exact_lengths=False, seed=1
    )
    assert simulate(scenario).channel("block").worst_ns == 453_500


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('data_bitrate = "250k"', "data_bitrate is 250000, below the bitrate of 500000"),
        ("fd = true", "fd is said by data_bitrate"),
        ("xl = true", "xl is not there: .* CAN FD"),
        ('data_bitrate = "2M"\nclassic_nodes = ["old"]', "'old', whose controller would destroy every CAN FD frame"),
    ],
)
def test_what_a_bus_cannot_be_is_refused_with_what_to_write(line: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_system(f'[bus]\nbitrate = "500k"\n{line}\n')


FOREIGN = '[bus]\nbitrate = "500k"\n{0}\n[[foreign]]\nname = "Drive"\nid = "0x100"\nfd = {1}\n'


@pytest.mark.parametrize(
    ("bus", "fd", "warned"),
    [
        ('data_bitrate = "2M"', "false", True),
        ('data_bitrate = "2M"\nclassic_nodes = []', "false", False),
        ('data_bitrate = "2M"', "true", False),
        ("", "false", False),
        ('classic_nodes = ["Drive"]', "false", False),
    ],
)
def test_classic_frames_of_others_on_a_can_fd_bus_need_a_declaration(bus: str, fd: str, warned: bool) -> None:
    system = parse_system(FOREIGN.format(bus, fd))
    assert any("Drive is a classic frame" in each for each in plan(system).warnings) is warned
    assert parse_system(format_system(system), system.source) == system


def test_no_plan_advises_can_fd_where_a_node_would_destroy_its_frames() -> None:
    full = BLOCK.replace('"500k"\ndata_bitrate = "2M"', '"1M"\n{0}').replace('"10ms"', '"1ms"')
    keys = [
        {each.key for each in plan(parse_system(full.format(line))).advice} for line in ("", 'classic_nodes = ["b"]')
    ]
    assert "data_bitrate" in keys[0]
    assert "data_bitrate" not in keys[1]


HARD = """
[bus]
bitrate = "500k"
{0}
types = "{1}"
[[channel]]
event = "Reading"
node = "a"
class = "hard"
period = "50ms"
"""


@pytest.fixture
def types(tmp_path: Path) -> Path:
    path = tmp_path / "readings.py"
    path.write_text(
        "from genus import *\nclass Reading(Event):\n    number: UInt16\n"
        + "".join(f"    {name}: Maybe[float] = None\n" for name in ("first", "second", "third"))
    )
    return path


@pytest.mark.parametrize(
    ("planned", "used", "message"),
    [
        (FD, Timing(500_000), "needs 5 frames; its slot has room for 1"),
        (Timing(500_000, 4_000_000), FD, "it was planned for other bit rates, or for shorter events"),
        (FD, FD, ""),
    ],
)
def test_a_calendar_of_other_bit_rates_is_refused(types: Path, planned: Timing, used: Timing, message: str) -> None:
    """A calendar file does not name its bit rates, but its slots say how long events take."""
    slots = plan(parse_system(HARD.format(f"data_bitrate = {planned.data_bitrate}", types))).calendar.slots
    node = Node(1, name="a", timing=used, catalog=catalog(), number=1, slots=slots, synchronised=False)
    node.start(0)
    with pytest.raises(BusError, match=message) if message else nullcontext():
        node.announce(Reading, Hard(period="50ms", omissions=1), 0)


def test_the_node_in_c_is_generated_for_the_frames_of_the_plan(types: Path) -> None:
    for line, size in (('data_bitrate = "2M"', 64), ("", 8)):
        found = plan(parse_system(HARD.format(line + '\nsync_period = "30ms"', types)))
        made = generate(catalog(), publish=[Reading]).with_node(plan=found, station="a")
        assert "config->clock.period_ns = INT64_C(30000000);" in made.node_source, "SYNC as often as planned"
        assert f"\n#define GENUS_DATA_BYTES {size}U /*" in made.node_settings
        assert f"#if GENUS_DATA_BYTES != {size}\n#error" in made.node_source, "settings of another firmware are refused"
        assert ("config->data_bit_ns = 500U;" in made.node_source) is bool(line)


def test_interfaces_without_can_fd_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClassicBus:
        protocol, closed = can.CanProtocol.CAN_20, 0

        def shutdown(self) -> None:
            ClassicBus.closed += 1

    ClassicBus.__module__ = "can.interfaces.gs_usb"
    monkeypatch.setattr("can.Bus", lambda **_: ClassicBus())
    with pytest.raises(BusError, match="can:gs_usb is open for classic frames only"):
        open_interface(parse_address("gs_usb?channel=0&bitrate=500k&data_bitrate=2M"))
    assert ClassicBus.closed == 1
    assert isinstance(open_interface(parse_address("gs_usb?channel=0&bitrate=500k")), ClassicBus)


def test_a_monitor_without_the_data_bit_rate_says_that_its_load_is_too_high() -> None:
    frame = Frame(0x1FC0_4080, bytes(64), fd=True)
    for timing, reasons in [
        (FD, []),
        (Timing(500_000), ["CAN FD, counted at the nominal bit rate: give data_bitrate"]),
    ]:
        monitor = Monitor(timing)
        monitor.receive(frame, 0)
        assert [reason for reason in monitor.problems() if "CAN FD" in reason] == reasons


def test_the_exported_database_has_frames_of_can_fd() -> None:
    database = Database()
    database.add_dbc_string(format_dbc(parse_system(BLOCK)))
    (message,) = database.messages
    assert database.dbc is not None
    assert database.dbc.attributes["BusType"].value == "CAN FD"
    assert (message.is_fd, message.length, message.is_extended_frame) == (True, 64, True)
