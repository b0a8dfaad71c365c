"""The README of generated C: its command compiles, it names all handlers, and it lists what MISRA C:2012 objects to."""

import re
import subprocess
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from genus.can import parse_system, plan
from genus.devices import DeviceChannel, Firmware, generate
from genus.devices._firmware import NODE, RUNTIME, runtime_file
from genus.devices._readme import DEVIATIONS, NODE_SIZES
from genus.devices.types import Codec
from tests.programs import needs

from . import road
from .misra import BEGIN, END, PAGE, counts, reported, table, version
from .random_system import RandomSystem
from .test_generate import road_catalog, road_firmware


@pytest.mark.slow
@needs("gcc")
@pytest.mark.parametrize(("codec", "node"), [("table", True), ("straight", False)])
def test_the_command_of_the_readme_compiles_with_what_it_says_to_provide(
    codec: Any, node: bool, tmp_path: Path
) -> None:
    made = road_firmware(codec=codec)
    (made.with_node() if node else made).write(tmp_path, harness=True)
    text = (tmp_path / "road_README.md").read_text()
    declared = re.findall(r"^void (\w+)\(const (\w+) \*event\);$", text, re.MULTILINE)
    handlers = [f"void {name}(const {event} *event) {{ (void)event; }}" for name, event in declared]
    (tmp_path / "main.c").write_text("\n".join(['#include "road.h"', *handlers, "int main(void) { return 0; }\n"]))
    command = re.search(r"^gcc .*$", text, re.MULTILINE)
    assert command is not None
    done = subprocess.run(command[0].split(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    assert str(made.estimate) in text
    called = {"road_publish_confident_loop"} if node else {"road_receive", "road_loop_encode"}
    assert called <= set(re.findall(r"^\* `(\w+)", text, re.MULTILINE))
    assert ("`road_learn" in text) is (codec == "table" and not node)


def test_every_function_of_a_header_has_a_comment() -> None:
    made = road_firmware().with_node()
    for text in (made.header, made.node_header):
        functions = [
            (before, line) for before, line in pairwise(text.splitlines()) if re.match(r"\w+ road_\w+\(", line)
        ]
        assert len(functions) > 2
        assert all(before.endswith("*/") or before.startswith("#define") for before, _ in functions), functions


def test_a_device_that_only_publishes_provides_nothing(tmp_path: Path) -> None:
    generate(road_catalog(), name="lamp", publish=[road.Lamp]).write(tmp_path, runtime=False)
    text = (tmp_path / "lamp_README.md").read_text()
    assert "Nothing: the functions below are all." in text
    assert "`lamp_lamp_encode`" in text
    assert "genus_event.c" in text


PLANNED = """
[bus]
bitrate = "250k"

[[channel]]
name = "lamp"
event = "Lamp"
node = "mast"
class = "hard"
period = "10ms"
size = 8
subscribers = ["centre"]
"""


def readme_of(made: Firmware, folder: Path, **options: Any) -> str:
    made.write(folder, **options)
    return (folder / f"{made.name}_README.md").read_text()


def test_the_readme_says_what_it_was_made_from_and_what_the_bus_expects(tmp_path: Path) -> None:
    made = road_firmware().with_node([DeviceChannel("ConfidentLoop", "soft:20ms:50ms")], bitrate=125_000)
    text = readme_of(made, tmp_path, origin={"catalog": "road.json"})
    assert f"| Genus | {metadata.version('genus')} |\n| catalog | road.json |" in text
    assert "The bus has 125,000 bit/s. The node has a number that the broker gives." in text
    assert re.search(
        r"^\| ConfidentLoop \| 0x\w{4} \| soft: deadline 20 ms, expires after 50 ms \|$", text, re.MULTILINE
    )
    assert re.search(r"^0x0000/0x3f80  0000000-------$", text, re.MULTILINE), "the middleware's messages"
    assert "* `calendar` saves about 23,856 bytes of flash and 677 of RAM" in text
    assert text == readme_of(made, tmp_path, origin={"catalog": "road.json"})


def test_the_readme_offers_to_leave_out_only_what_the_node_does_not_use(tmp_path: Path) -> None:
    made = generate(road_catalog(), name="lamp", publish=[road.Lamp], keep=["on", "hours"])
    planned = made.with_node(plan=plan(parse_system(PLANNED)), station="mast")
    text = readme_of(planned, tmp_path)
    assert "The bus has 250,000 bit/s. The node has number 1." in text
    assert re.search(r"^\| Lamp \| 0x\w{4} \| hard: slot at [\d.]+ ms, every 10 ms \|$", text, re.MULTILINE)
    assert "* `calendar` saves" not in text
    assert "* `late` saves" not in text, "it learns no types"
    without = readme_of(made.with_node(without=["calendar"]), tmp_path)
    assert "* `calendar` saves" not in without
    assert "without calendar, late, takes 32,646 bytes of flash" in without


def test_the_sizes_of_the_readme_are_those_of_the_page() -> None:
    page = PAGE.with_name("devices-node.md").read_text()
    rows = dict(re.findall(r"^\| ((?:nothing|segmentation|calendar|late)[\w, ]*) \|(.*)\|$", page, re.MULTILINE))
    for left_out, sizes in NODE_SIZES.items():
        _, avr_ram, avr_flash, _, arm_ram, arm_flash = (
            int(cell.replace(",", "")) for cell in rows[left_out or "nothing"].split("|")
        )
        assert sizes == (avr_flash, avr_ram, arm_flash, arm_ram)


def test_every_file_states_its_licence() -> None:
    made = road_firmware().with_node()
    generated = [made.header, made.source, made.node_header, made.node_source, made.node_settings, made.harness()]
    for text in [*generated, *map(runtime_file, (*RUNTIME, *NODE))]:
        assert "SPDX-License-Identifier: Apache-2.0 */" in text.splitlines()[0] or "SPDX" in text[:200]


@pytest.mark.slow
@needs("cppcheck")
def test_rules_that_generated_code_violates_are_listed(tmp_path: Path) -> None:
    system = RandomSystem(5)
    asked = [(f"s{number}", each) for number, each in enumerate(system.subscriptions(3))]
    codecs: tuple[Codec, ...] = ("table", "straight")
    for codec in codecs:  # one run each: cppcheck takes two files for one program
        made = generate(system.catalog, asked, name="made", publish=system.types, codec=codec, residual=True)
        made.write(tmp_path)
        assert {rule for rule, _ in reported([tmp_path / "made.c"])} <= DEVIATIONS.keys()


@needs("cppcheck")
@pytest.mark.slow
def test_rules_that_the_runtime_and_the_node_violate_are_listed_and_no_others() -> None:
    both = [counts(road_firmware(codec=codec).with_node()) for codec in ("table", "straight")]
    assert {rule for made in both for column in made.values() for rule in column} == DEVIATIONS.keys()


@needs("cppcheck")
@pytest.mark.slow
def test_the_counts_of_the_page_are_those_of_cppcheck() -> None:
    """`python -m tests.devices.misra --write` writes them anew."""
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    if not shown.startswith(f"| {version()} |"):
        pytest.skip(f"the page has the counts of another version than {version()}")
    assert shown == table()
