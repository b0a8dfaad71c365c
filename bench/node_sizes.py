"""Flash and RAM of the C node for small processors, by the features it has, as docs/devices-node.md shows them."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, cast

from genus.can import parse_system, plan
from genus.devices import Firmware
from genus.devices.types import NodeFeature

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "devices-node.md"
BOARD = Path(__file__).parent / "avr" / "board.c"
"""The functions that the firmware of the page needs of its board; enough to link it."""
PROCESSORS = {
    "ATmega128RFA1": ("avr", ("-mmcu=atmega128rfa1", "-mcall-prologues")),
    "Cortex-M0": ("arm-none-eabi", ("-mcpu=cortex-m0", "-mthumb", "--specs=nosys.specs")),
}
"""The prefix of the tools, and the options of the processor."""
FEATURES = ("segmentation", "calendar", "late")
WITHOUT = [left_out for count in range(len(FEATURES) + 1) for left_out in combinations(FEATURES, count)]
"""What a node can do without, all combinations."""
FLAGS = ("-std=c99", "-Os", "-ffunction-sections", "-fdata-sections", "-fno-common", "-Wl,--gc-sections")


FD_SYSTEM = """
[bus]
bitrate = "500k"
data_bitrate = "2M"

[[channel]]
name = "level"
event = "Level"
node = "tank"
class = "soft"
period = "100ms"
deadline = "10ms"
expires = "50ms"
size = 2
subscribers = ["pump"]
"""
FD_ROW = "nothing, on CAN FD"


class Sizes(NamedTuple):
    """Bytes of a firmware: of its `genus_node`, of all its RAM but the stack, and of its flash."""

    node: int
    ram: int
    flash: int


def code(language: str) -> str:
    """The code of the page in a language, as one program."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))


def firmware(without: Sequence[str] = ()) -> Firmware:
    """What the Python code of the page generates, without some features."""
    text = code("python")
    if "late" in without:
        text = text.replace("publish=[Level])", "publish=[Level], late=0)")
    features = cast("list[NodeFeature]", [each for each in without if each != "late"])
    names: dict[str, Any] = {"__name__": "page"}
    exec(text.replace('50ms")])', f'50ms")], without={features!r})'), names)
    made: Firmware = names["made"]
    return made


def measure(processor: str, made: Firmware, folder: Path) -> Sizes:
    """The sizes of a firmware of the page."""
    sources = [str(BOARD), *(str(path) for path in made.write(folder) if path.suffix == ".c")]
    ram, flash = _link(processor, folder, code("c"), sources)
    node, _ = _link(processor, folder, '#include "genus_node.h"\ngenus_node node;\n', ["-c"])
    return Sizes(node, ram, flash)


def measure_empty(processor: str, folder: Path) -> Sizes:
    """Those of a program that does nothing: vectors, start-up code, and the C library's own data."""
    return Sizes(0, *_link(processor, folder, "int main(void) { return 0; }\n", []))


def _link(processor: str, folder: Path, text: str, arguments: Sequence[str]) -> tuple[int, int]:
    """RAM and flash of a program or, with `-c`, of its main file."""
    prefix, of_processor = PROCESSORS[processor]
    source, target = folder / "main.c", folder / "main.elf"
    source.write_text(text)
    command = [f"{prefix}-gcc", *FLAGS, *of_processor, f"-I{folder}", str(source), *arguments]
    subprocess.run([*command, "-o", str(target)], check=True, capture_output=True)
    shown = subprocess.run([f"{prefix}-size", str(target)], check=True, capture_output=True, text=True).stdout
    code_size, data, bss = map(int, shown.splitlines()[1].split()[:3])
    return data + bss, code_size + data


def rows() -> dict[str, Firmware]:
    """The firmware of each row, by its first cell."""
    found = {", ".join(without) or "nothing": firmware(without) for without in WITHOUT}
    return found | {FD_ROW: firmware().with_node(plan=plan(parse_system(FD_SYSTEM)), station="tank")}


def table() -> str:
    """The table of the page."""
    columns = [f"{name}: {what}" for name in PROCESSORS for what in ("`genus_node`", "RAM", "flash")]
    lines = [f"| left out | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name, made in rows().items():
        with tempfile.TemporaryDirectory() as folder:
            lines.append(_line(name, [measure(processor, made, Path(folder)) for processor in PROCESSORS]))
    with tempfile.TemporaryDirectory() as folder:
        empty = [measure_empty(processor, Path(folder)) for processor in PROCESSORS]
    return "\n".join([*lines, _line("everything: an empty program", empty)])


def _line(name: str, sizes: Sequence[Sizes]) -> str:
    return f"| {name} | {' | '.join(f'{number:,}' for each in sizes for number in each)} |"


if __name__ == "__main__":
    print(table())
