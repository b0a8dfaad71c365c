"""Compilers for tests: C of the runtime for the host, with all warnings as errors; what is missing skips a test."""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import genus.devices

RUNTIME = Path(genus.devices.__file__).parent / "runtime"
SOURCES = Path(__file__).parent / "c"
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
TARGETS = {
    "gcc": ["gcc", "-O2"],
    "clang": ["clang", "-O2"],
    "avr": ["avr-gcc", "-Os", "-mmcu=atmega128rfa1"],
    "cortex-m0": ["arm-none-eabi-gcc", "-Os", "-mcpu=cortex-m0", "-mthumb"],
}


def run(command: Sequence[str]) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def compile_library(folder: Path, sources: Sequence[Path], flags: Sequence[str] = ()) -> ctypes.CDLL:
    """A shared library of these sources, compiled by gcc into the folder and loaded."""
    library = folder / "tested.so"
    run(["gcc", "-O2", *WARNINGS, *flags, "-shared", "-fPIC", f"-I{RUNTIME}", *map(str, sources), "-o", str(library)])
    return ctypes.CDLL(str(library))


def compile_program(folder: Path, compiler: Sequence[str], sources: Sequence[Path]) -> Path:
    """A program of these sources, in the folder."""
    program = folder / "tested"
    run([*compiler, *WARNINGS, f"-I{RUNTIME}", *map(str, sources), "-o", str(program)])
    return program


def compile_object(folder: Path, target: str, source: Path) -> None:
    """Compiles one source for a target without linking; the test fails at the first warning."""
    run([*TARGETS[target], *WARNINGS, f"-I{RUNTIME}", "-c", str(source), "-o", str(folder / "tested.o")])
