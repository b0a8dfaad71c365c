"""Firmware on a simulated ATmega128RFA1 at 16 MHz: compiled, sized, run, its cycles counted exactly.

`bench/avr/simulate.c` runs the processor by libsimavr.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import genus.devices
from bench.tools import check_tools

RUNTIME = Path(genus.devices.__file__).parent / "runtime"
SOURCES = Path(__file__).parent / "avr"
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]
COMPILE = ["avr-gcc", "-mmcu=atmega128rfa1", "-Os", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
TOOLS = ("gcc", "avr-gcc", "/usr/include/simavr/sim_avr.h")
MHZ = 16
MARKER = 2
"""Cycles of the first marker of a measurement, which are within it."""


class Case(NamedTuple):
    """One measurement: the cycles between two markers, without theirs, and the bytes the stack grew."""

    number: int
    cycles: int
    stack: int
    result: int


class Size(NamedTuple):
    """What a program takes: code and constants in flash, and variables in RAM (without the stack)."""

    flash: int
    ram: int


@dataclass(frozen=True)
class Run:
    """What a firmware did."""

    cases: tuple[Case, ...]
    uart: tuple[str, ...]
    cycles: int
    stack: int
    """The largest stack in bytes."""

    def of(self, number: int) -> list[Case]:
        """The measurements with this number."""
        return [case for case in self.cases if case.number == number]


class Simulator:
    """The simulator, compiled into a folder."""

    def __init__(self, folder: Path) -> None:
        check_tools(*TOOLS)
        self._program = folder / "simulate"
        run_tool(["gcc", "-O2", str(SOURCES / "simulate.c"), "-lsimavr", "-o", str(self._program)])

    def run(self, firmware: Path, cycles: int = 1_600_000_000) -> Run:
        """Runs a firmware to its end; RuntimeError if it crashes or takes more than so many cycles."""
        return _parse(run_tool([str(self._program), str(firmware), str(cycles)]).splitlines())


def compile_firmware(firmware: Path, sources: Iterable[Path], flags: Sequence[str] = ()) -> Path:
    """Compiles and links sources."""
    include = [f"-I{folder}" for folder in (firmware.parent, RUNTIME, SOURCES)]
    run_tool([*COMPILE, *WARNINGS, *include, *flags, *map(str, sources), "-o", str(firmware)])
    return firmware


def size(firmware: Path) -> Size:
    """The flash and RAM that a program takes."""
    text, data, bss = map(int, run_tool(["avr-size", str(firmware)]).splitlines()[1].split()[:3])
    return Size(text + data, data + bss)


def microseconds(cycles: float) -> float:
    """How long so many cycles take."""
    return cycles / MHZ


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for what is compiled."""
    return tempfile.TemporaryDirectory(prefix="genus-devices-")


def run_tool(command: list[str]) -> str:
    """The output of a command; RuntimeError with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def _parse(lines: Iterable[str]) -> Run:
    cases, uart, end = [], [], (0, 0)
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "case":
            number, cycles, stack, result = map(int, rest.split())
            cases.append(Case(number, cycles - MARKER, stack, result))
        elif kind == "uart":
            uart.append(rest)
        elif kind == "end":
            cycles, stack = map(int, rest.split())
            end = (cycles, stack)
    return Run(tuple(cases), tuple(uart), *end)
