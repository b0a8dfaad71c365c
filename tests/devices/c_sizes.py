"""Flash and RAM of the C node for small processors, as docs/devices-node.md shows them."""

import re
import tempfile
from pathlib import Path
from typing import Any

import click

from genus.devices import Firmware
from tests.devices.toolchain import RUNTIME, run

PAGE = Path(__file__).parents[2] / "docs" / "devices-node.md"
STUBS = Path(__file__).parent / "c_stubs.c"
AVR = ("-mmcu=atmega128rfa1", "-mcall-prologues")
CORTEX = ("-mcpu=cortex-m0", "-mthumb", "--specs=nosys.specs")
WITHOUT = "-DGENUS_WITH_CALENDAR=0"
TARGETS = {
    "ATmega128RFA1": ("avr", AVR),
    "ATmega128RFA1, no calendar": ("avr", (*AVR, WITHOUT)),
    "Cortex-M0": ("arm-none-eabi", CORTEX),
    "Cortex-M0, no calendar": ("arm-none-eabi", (*CORTEX, WITHOUT)),
}
"""The prefix of the tools, and the options of the processor."""


def code(language: str) -> str:
    """The code of the page in a language, as one program."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))


def firmware() -> Firmware:
    """What the Python code of the page generates."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(code("python"), names)
    made: Firmware = names["made"]
    return made


class Sizes:
    """Compiles and measures in a folder of its own."""

    def __init__(self, folder: Path, prefix: str, options: tuple[str, ...]) -> None:
        self._folder, self._prefix, self._options = folder, prefix, options

    def _compile(self, *arguments: str) -> None:
        common = ("-std=c99", "-Os", "-ffunction-sections", "-fdata-sections", "-fno-common", f"-I{RUNTIME}")
        run([f"{self._prefix}-gcc", *common, *self._options, *arguments])

    def _measure(self, path: Path) -> tuple[int, int]:
        """Flash and RAM of an object file or a program."""
        text, data, bss, *_ = run([f"{self._prefix}-size", str(path)]).splitlines()[1].split()
        return int(text) + int(data), int(data) + int(bss)

    def state(self) -> int:
        """The bytes of a `genus_node`."""
        source, target = self._folder / "state.c", self._folder / "state.o"
        source.write_text('#include "genus_node.h"\ngenus_node node;\n')
        self._compile("-c", str(source), "-o", str(target))
        return self._measure(target)[1]

    def program(self) -> tuple[int, int]:
        """Flash and RAM of the whole firmware of the page."""
        written = firmware().write(self._folder / "firmware")
        return self._link(code("c"), [str(path) for path in written if path.suffix == ".c"])

    def empty(self) -> tuple[int, int]:
        """Those of a program that does nothing: vectors, start-up code, and the C library's own data."""
        return self._link('#include "genus_node.h"\nint main(void) { return 0; }\n', [])

    def _link(self, text: str, sources: list[str]) -> tuple[int, int]:
        source, target = self._folder / "main.c", self._folder / "main.elf"
        source.write_text(text)
        include = f"-I{self._folder / 'firmware'}"
        self._compile("-Wl,--gc-sections", include, str(source), str(STUBS), *sources, "-o", str(target))
        return self._measure(target)


def measure(name: str, folder: Path) -> tuple[int, int, int, int]:
    """State, flash of the firmware, flash of an empty program, RAM of the firmware."""
    prefix, options = TARGETS[name]
    sizes = Sizes(folder, prefix, options)
    flash, ram = sizes.program()
    return sizes.state(), flash, sizes.empty()[0], ram


def table() -> str:
    """The table of the page."""
    rows = [
        "| | `genus_node` | RAM of the firmware | flash of the firmware | flash of an empty program |",
        "|---|---|---|---|---|",
    ]
    for name in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            state, flash, empty, ram = measure(name, Path(folder))
        rows.append(f"| {name} | {state:,} | {ram:,} | {flash:,} | {empty:,} |")
    return "\n".join(rows)


@click.command()
@click.option("--write", is_flag=True, help="Write the table into the page.")
def main(write: bool) -> None:
    """Print flash and RAM of the firmware in docs/devices-node.md."""
    try:
        found = table()
    except FileNotFoundError as problem:
        raise click.ClickException(f"{problem.filename} is not installed") from problem
    click.echo(found)
    if write:
        begin, end = "<!-- sizes -->\n", "<!-- end of sizes -->"
        before, rest = PAGE.read_text().split(begin)
        PAGE.write_text(f"{before}{begin}{found}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
