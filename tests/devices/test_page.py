"""The C that docs/devices.md shows compiles with what its Python generates, and prints what is shown."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from genus.devices import Firmware
from tests.programs import need, needs

from .toolchain import WARNINGS

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
FUNCTION = """
void statements(uint32_t identifier, const uint8_t *data, uint16_t size, uint8_t sequence, uint8_t *payload);
void statements(uint32_t identifier, const uint8_t *data, uint16_t size, uint8_t sequence, uint8_t *payload)
{{
{body}
    (void)status; (void)length;
}}
"""


def blocks(language: str) -> list[str]:
    """The code of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def made() -> Firmware:
    names: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks("python")[:2]), names)
    firmware: Firmware = names["made"]
    return firmware


def run(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, capture_output=True, text=True, input=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs("gcc")
def test_the_c_on_the_page_compiles(made: Firmware, tmp_path: Path) -> None:
    made.with_node().write(tmp_path)
    whole, *parts, node, _ = blocks("c")
    assert len(parts) == 2
    body = "\n".join(parts).replace("identifier & 0x3FFFU", "(uint16_t)(identifier & 0x3FFFU)")
    node = node.replace("void start(", "static void start(").replace("void light(", "static void light(")
    used = "void use(void);\nvoid use(void) { start(0, NULL); light(0); }\n"
    (tmp_path / "page.c").write_text(f"{whole}{node}{used}{FUNCTION.format(body=body)}")
    run([need("gcc"), *WARNINGS, "-Wno-sizeof-pointer-div", "-fsyntax-only", str(tmp_path / "page.c")])


@needs("gcc")
def test_the_program_for_the_host_prints_what_is_shown(made: Firmware, tmp_path: Path) -> None:
    made.write(tmp_path / "firmware")
    (tmp_path / "try.c").write_text(blocks("c")[-1])
    sources = [str(path) for path in (tmp_path / "firmware").glob("*.c")]
    include = f"-I{tmp_path / 'firmware'}"
    run([need("gcc"), *WARNINGS, include, str(tmp_path / "try.c"), *sources, "-o", str(tmp_path / "try")])
    shown = re.findall(r'^\$ echo "(.*)" \| \./try\n([^$]*)', blocks("console")[0], re.MULTILINE)
    assert len(shown) == 2
    for given, printed in shown:
        assert run([str(tmp_path / "try")], f"{given}\n") == printed
