"""The README of generated C: its command compiles, it names all handlers, and it lists what MISRA C:2012 objects to."""

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from genus.devices import generate
from genus.devices._firmware import NODE, RUNTIME, runtime_file
from genus.devices._readme import DEVIATIONS
from genus.devices.types import Codec

from . import road
from .compiled import needs_compiler
from .misra import BEGIN, END, PAGE, counts, reported, table, version
from .random_system import RandomSystem
from .test_generate import road_catalog, road_firmware

needs_cppcheck = pytest.mark.skipif(shutil.which("cppcheck") is None, reason="cppcheck is not installed")


@needs_compiler
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


def test_every_file_states_its_licence() -> None:
    made = road_firmware().with_node()
    generated = [made.header, made.source, made.node_header, made.node_source, made.node_settings, made.harness()]
    for text in [*generated, *map(runtime_file, (*RUNTIME, *NODE))]:
        assert "SPDX-License-Identifier: Apache-2.0 */" in text.splitlines()[0] or "SPDX" in text[:200]


@needs_cppcheck
def test_rules_that_generated_code_violates_are_listed(tmp_path: Path) -> None:
    system = RandomSystem(5)
    asked = [(f"s{number}", each) for number, each in enumerate(system.subscriptions(3))]
    codecs: tuple[Codec, ...] = ("table", "straight")
    for codec in codecs:  # one run each: cppcheck takes two files for one program
        made = generate(system.catalog, asked, name="made", publish=system.types, codec=codec, residual=True)
        made.write(tmp_path)
        assert {rule for rule, _ in reported([tmp_path / "made.c"])} <= DEVIATIONS.keys()


@needs_cppcheck
@pytest.mark.slow
def test_rules_that_the_runtime_and_the_node_violate_are_listed_and_no_others() -> None:
    both = [counts(road_firmware(codec=codec).with_node()) for codec in ("table", "straight")]
    assert {rule for made in both for column in made.values() for rule in column} == DEVIATIONS.keys()


@needs_cppcheck
@pytest.mark.slow
def test_the_counts_of_the_page_are_those_of_cppcheck() -> None:
    """`python -m tests.devices.misra --write` writes them anew."""
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    if not shown.startswith(f"| {version()} |"):
        pytest.skip(f"the page has the counts of another version than {version()}")
    assert shown == table()
