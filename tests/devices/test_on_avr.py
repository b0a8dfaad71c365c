"""Generated C on a simulated 8-bit processor, whose `int` has 16 bits, gives the answers of the oracle there, too."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from bench import device_codes
from bench.device_frames import FRAME, Codec, Device, build, make_device, measure
from bench.simavr import TOOLS, Simulator, compile_firmware
from bench.tools import MissingTool, check_tools
from genus import Event
from genus.codes import Divisor, code_size, encode_code, parse_code
from genus.devices import generate
from genus_traffic.types import Category, ConfidentLoop, Edge, Loop
from tests.devices.random_system import RandomSystem
from tests.devices.test_code_runtime import Question, questions
from tests.devices.toolchain import RUNTIME, SOURCES

pytestmark = pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    try:
        check_tools(*TOOLS)
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


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
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


@pytest.mark.slow
def test_every_pair_of_codes(simulator: Simulator, tmp_path: Path) -> None:
    """12,544 pairs of the paper's hierarchy, by every test of codes; `measure` compares."""
    found = device_codes.measure(simulator, tmp_path)
    assert {len(cases) for cases in found.values()} == {112 * 112}


WIRE = 12
"""The bytes of a code that a question holds."""
QUESTION = f"""#include "genus_code.h"

typedef struct {{
    uint8_t wire[{WIRE}];
    uint8_t type[{WIRE}];
    uint8_t size;
    uint8_t width;
}} question;
"""


def c_table(kind: str, name: str, rows: Iterable[str]) -> str:
    return "\n".join(
        [f"static const {kind} {name}[QUESTIONS] GENUS_ROM = {{", *(f"    {{{row}}}," for row in rows), "};"]
    )


def c_bytes(data: bytes) -> str:
    return f"{{{', '.join(map(str, data)) or '0'}}}"


def divisor_rows(asked: Sequence[Question], width: int) -> Iterator[str]:
    """The constants of the questions for a width; those of 1 for the others."""
    suffix = "ULL" if width == 64 else "UL"
    for _, code, own in asked:
        made = Divisor.of(code if own == width else 1, width)
        constants, own_code = [made.inverse, made.limit], code if own == width else 1
        orders = {8: [own_code, made.low_bits, *constants], 16: [made.low_bits, *constants, own_code]}
        values = orders.get(width, [*constants, own_code, made.low_bits])
        yield ", ".join(f"{value}{suffix}" for value in values)


def question_tables(asked: Sequence[Question]) -> str:
    rows = (f"{c_bytes(wire)}, {c_bytes(encode_code(code))}, {len(wire)}U, {width}U" for wire, code, width in asked)
    tables = (c_table(f"genus_divisor{w}", f"divisors{w}", divisor_rows(asked, w)) for w in (8, 16, 32, 64))
    return "\n".join(
        [QUESTION, f"enum {{ QUESTIONS = {len(asked)} }};", c_table("question", "questions", rows), *tables]
    )


def expected_answer(wire: bytes, code: int, width: int) -> int:
    parsed = parse_code(wire)
    return 0 if parsed is None else (parsed[1] << 2 | 3 * (parsed[0] % code == 0)) & 255


def test_codes_of_all_widths(simulator: Simulator, tmp_path: Path) -> None:
    """Whole and damaged codes up to eleven bytes, by the constants of every width and by bytes."""
    fitting = [(w, c, width) for w, c, width in questions(2000) if width and len(w) <= WIRE and code_size(c) < WIRE]
    asked = [(w, c, width) for w, c, width in fitting if width != 16 or Divisor.of(c, 16).low_bits <= 255][:400]
    (tmp_path / "questions.h").write_text(question_tables(asked))
    sources = [SOURCES / "codes_on_avr.c", RUNTIME / "genus_code.c"]
    run = simulator.run(compile_firmware(tmp_path / "codes.elf", sources))
    assert [case.result for case in run.cases] == [expected_answer(*question) for question in asked]


def test_a_type_is_learnt_in_the_field(simulator: Simulator, tmp_path: Path) -> None:
    texts = {"trucks": "Loop where category = 'truck'", "left": "Edge where lane > 1"}
    device = make_device("table", [Edge, Loop], texts, later=[ConfidentLoop])
    events: list[Event] = [
        ConfidentLoop(lane=0, category=Category.TRUCK, confidence=0.5),
        ConfidentLoop(lane=3),
        ConfidentLoop(lane=1, category=Category.CAR),
    ]
    learnt, *cases = measure(device, simulator, tmp_path, events)
    assert (learnt.result, [case.result for case in cases]) == (1, [0b01, 0b10, 0])
