"""The firmware in examples/firmware is generated, built and run: on a simulated board, and on the host."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from genus import Event, UInt8
from genus.can import Identifier, PayloadCodec, Priority
from genus.catalog import Catalog
from genus.codes import load_module
from genus.testing import run_command
from tests.devices.toolchain import TARGETS, WARNINGS
from tests.programs import needs

EXAMPLES = Path(__file__).parents[2] / "examples" / "firmware"
ARDUINO = EXAMPLES / "arduino"
ZEPHYR = EXAMPLES / "zephyr"
STUB = Path(__file__).parent / "zephyr"
HAS_SIMAVR = Path("/usr/include/simavr/sim_avr.h").exists()

ON_THE_BOARD = """\
ready
cold: room 2, tenths 183
[sent 1fc1e010 000232]
cold: room 3, tenths 148
[sent 1fc1e010 200364]
opened: room 3
cold: room 3, tenths 146
[sent 1fc1e010 400300]
empty: battery in room 3
humid: room 4, percent 83
closed: room 3
malformed: 1
malformed: 2
[1 frames refused by the filters]
"""


def run(command: list[str], folder: Path, given: str = "") -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, input=given, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def codec_of(type_: type[Event], catalog: Catalog) -> PayloadCodec:
    return PayloadCodec.of(type_, catalog.vector(type_), catalog.tagged_attributes(type_))


def sent_frames(lines: list[str]) -> list[list[str]]:
    """Identifier and data, in hexadecimal, of the frames that a firmware sent."""
    return [line.strip("[]").split()[1:] for line in lines if line.startswith("[sent")]


@pytest.mark.slow
@needs("gcc", "avr-gcc")
@pytest.mark.skipif(not HAS_SIMAVR, reason="not installed: libsimavr-dev")
def test_the_arduino_sketch_runs_on_a_simulated_board(tmp_path: Path) -> None:
    """`make run` of the example: the sketch gets frames by an MCP2515, prints what it wants, and sends valves."""
    command = ["make", "-s", "run", f"BUILD={tmp_path}", f"PYTHON={sys.executable}"]
    printed = run(command, ARDUINO)
    assert printed.endswith(ON_THE_BOARD), printed


@pytest.mark.slow
@needs("gcc", "avr-gcc")
@pytest.mark.skipif(not HAS_SIMAVR, reason="not installed: libsimavr-dev")
def test_what_the_sketch_sends_python_reads(tmp_path: Path) -> None:
    printed = run(["make", "-s", "run", f"BUILD={tmp_path}", f"PYTHON={sys.executable}"], ARDUINO)
    catalog, rooms = Catalog.load(ARDUINO / "rooms.json"), load_module(str(ARDUINO / "rooms.py"))
    codec = codec_of(rooms.Valve, catalog)
    sent = sent_frames(printed.splitlines())
    assert {Identifier.unpack(int(identifier, 16)).etag for identifier, _ in sent} == {catalog.etag(rooms.Valve)}
    assert [codec.decode(0, bytes.fromhex(data)) for _, data in sent] == [
        rooms.Valve(room=2, opening=50),
        rooms.Valve(room=3, opening=100),
        rooms.Valve(room=3, opening=0),
    ]


@pytest.mark.parametrize(("folder", "name"), [(ARDUINO, "rooms"), (ZEPHYR, "tank")])
def test_the_catalog_of_an_example_has_its_types(folder: Path, name: str) -> None:
    """Catalogs are under version control beside their types; a type that is not registered yet would be reported."""
    done = run_command("catalog", "check", str(folder / f"{name}.json"), str(folder / f"{name}.py"), "--json")
    assert done.returncode == 0, done.stderr
    assert {finding["status"] for finding in json.loads(done.stdout)} <= {"kept"}


def test_an_event_with_tagged_attributes_has_its_presence_bits_in_the_identifier() -> None:
    """`frames.py` is a pattern to copy: it works for types that it does not have."""

    class Loop(Event, tagged=("place",)):
        lane: UInt8

    catalog = Catalog()
    catalog.register(Loop)
    frames = load_module(str(ARDUINO / "frames.py"))
    event = Loop(lane=2, place="A8")
    identifier, payload = frames.frame(0, event, catalog)
    etag = Identifier.unpack(identifier).etag
    assert etag == catalog.etag_of(event) != catalog.etag(Loop)
    assert codec_of(Loop, catalog).decode(etag & 1, payload) == event


class Pump:
    """The Zephyr example, generated into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.types: ModuleType = load_module(str(ZEPHYR / "tank.py"))
        generate = run_command(*self._generate())
        assert generate.returncode == 0, generate.stderr
        self.catalog = Catalog.load(ZEPHYR / "tank.json")

    def _generate(self) -> list[str]:
        """The arguments that CMakeLists.txt has."""
        words = (ZEPHYR / "CMakeLists.txt").read_text().partition("genus c generate")[2].partition("DEPENDS")[0].split()
        places = {"${made}": str(self.folder), "${here}": str(ZEPHYR)}
        return ["c", "generate", *(re.sub(r"\$\{\w+\}", lambda found: places[found[0]], word) for word in words)]

    def sources(self) -> list[str]:
        return [str(ZEPHYR / "src" / "main.c"), *map(str, sorted(self.folder.glob("*.c")))]

    def include(self) -> list[str]:
        return [f"-I{self.folder}", f"-I{STUB}"]

    def frame(self, event: Event) -> str:
        """The line of an event for the stub."""
        identifier = Identifier(Priority.NONE, node=5, etag=self.catalog.etag_of(event)).pack()
        return f"{identifier:08x} {codec_of(type(event), self.catalog).encode(event, 0)[1].hex()}"


@pytest.fixture
def pump(tmp_path: Path) -> Pump:
    return Pump(tmp_path)


@needs("arm-none-eabi-gcc")
def test_the_zephyr_example_compiles_for_a_cortex(pump: Pump) -> None:
    for source in pump.sources():
        command = [*TARGETS["cortex-m0"], *WARNINGS, *pump.include(), "-c", source]
        run([*command, "-o", os.devnull], pump.folder)


@needs("gcc")
def test_the_zephyr_example_pumps(pump: Pump) -> None:
    """On the host: it starts and stops as its subscriptions say, and publishes that."""
    run(["gcc", *WARNINGS, *pump.include(), *pump.sources(), str(STUB / "stub.c"), "-o", "pump"], pump.folder)
    types = pump.types
    events = [
        types.Level(tank=3, percent=20.75),
        types.Level(tank=4, percent=10.0),
        types.Level(tank=3, percent=20.25),
        types.Level(tank=3, percent=19.0),
        types.SonarLevel(tank=3, percent=95.0, fault=types.Fault.DIRTY),
        types.SonarLevel(tank=3, percent=12.5),
        types.SonarLevel(tank=3, percent=50.0, fault=types.Fault.BROKEN),
        types.Pumping(tank=7, on=True),
        types.SonarLevel(tank=3, percent=2.0),
        types.Stop(tank=3),
    ]
    lines = [pump.frame(event) for event in events]
    printed = run(["./pump"], pump.folder, "\n".join([*lines, lines[0][:-2]]) + "\n").splitlines()
    refused = f"[{lines[7].split()[0]} refused by the filters]"
    told = [line for line in printed if not line.startswith("[sent")]
    assert told == [
        "ready",
        "pump on: low",
        "pump off: full",
        "pump on: low",
        "pump off: sensor broken",
        refused,
        "pump on: low",
        "pump off: button",
        "malformed",
    ]
    codec = codec_of(types.Pumping, pump.catalog)
    sent = [codec.decode(0, bytes.fromhex(data)) for _, data in sent_frames(printed)]
    assert sent == [types.Pumping(tank=3, on=on) for on in (True, False) * 3]
