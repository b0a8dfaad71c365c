"""The C node compiles without a warning for computers and small processors, and so does the page about it."""

import re
import shlex
import subprocess
import types
from pathlib import Path

import pytest

from bench.node_sizes import BOARD, FD_ROW, PAGE, PROCESSORS, WITHOUT, code, firmware, measure, rows
from bench.page import cells
from genus import Catalog, Event, Subscription
from genus.devices import generate
from genus.testing import run_command
from tests.devices.c_faults import ROWS_OF_NODES
from tests.devices.c_library import node_sources
from tests.devices.toolchain import RUNTIME, WARNINGS, run
from tests.programs import need

COMPILERS = {
    "gcc": ("-O2",),
    "clang": (),
    "avr-gcc": ("-Os", "-mmcu=atmega128rfa1"),
    "arm-none-eabi-gcc": ("-Os", "-mcpu=cortex-m0", "-mthumb"),
}
HEADERS = [RUNTIME / name for name in ("genus_node.h", "genus_clock.h", "genus_segments.h", "genus_frame.h")]
MAX_LINE, MAX_FUNCTION = 100, 60


def make_type(name: str) -> type[Event]:
    """An event type without attributes of its own."""
    return types.new_class(name, (Event,))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_node_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    options = [*WARNINGS, *COMPILERS[compiler]]
    for source in node_sources():
        run([need(compiler), *options, "-c", source, "-o", str(tmp_path / "node.o")])
    if compiler != "gcc":  # what is left out is the same for all
        return
    macros = {"calendar": "GENUS_WITH_CALENDAR", "segmentation": "GENUS_WITH_SEGMENTS", "late": "GENUS_WITH_LATE"}
    for without in WITHOUT[1:]:
        left_out = [f"-D{macros[feature]}=0" for feature in without]
        run([need(compiler), *options, *left_out, "-fsyntax-only", *node_sources()])
    run([need(compiler), *options, "-DGENUS_LATE_BYTES=0", "-DGENUS_DATA_BYTES=64", "-fsyntax-only", *node_sources()])


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_firmware_of_the_page_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text(code("c"))
    generated = [path for path in firmware().write(tmp_path / "firmware") if path.suffix == ".c"]
    options = [*WARNINGS, *COMPILERS[compiler], f"-I{tmp_path / 'firmware'}", "-c"]
    for each in (source, BOARD, *generated):
        run([need(compiler), *options, str(each), "-o", str(tmp_path / "firmware.o")])


def test_the_firmware_of_the_page_uses_every_input_of_a_node() -> None:
    header, shown = (RUNTIME / "genus_node.h").read_text(), code("c")
    inputs = header.split("/* -- inputs ")[1].split("/* -- time ")[0]
    names = re.findall(r"\b(genus_node_\w+)\(", inputs)
    assert len(names) >= 8
    assert [name for name in names if name not in shown] == []


def test_the_firmware_of_the_page_uses_everything_that_its_header_declares() -> None:
    shown = code("c")
    declared = re.findall(r"\b(plant_\w+|PLANT_NODE_FILTERS)[(\[ ]", firmware().node_header.split('extern "C"')[1])
    functions = {name for name in declared if name not in ("plant_level", "plant_valve")}
    assert {"plant_configure", "plant_start", "plant_publish_level", "plant_node_filters"} <= functions
    assert {name for name in functions if name not in shown} == set()


def test_the_commands_of_the_page_generate_what_its_python_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declared, _, rest = code("python").partition("\nfrom genus import Catalog")
    assert rest
    (tmp_path / "plant.py").write_text(declared)
    (tmp_path / "device.txt").write_text(code("text").splitlines()[0] + "\n")
    for command in re.findall(r"^genus (.*)", code("sh"), re.MULTILINE):
        done = run_command(*shlex.split(command))
        assert done.returncode == 0, done.stderr
    made = firmware()
    texts = {"plant.h": made.header, "plant.c": made.source}
    texts |= {"plant_node.h": made.node_header, "plant_node.c": made.node_source}
    for name, text in texts.items():
        assert (tmp_path / "firmware" / name).read_text() == text


def test_a_table_that_does_not_fit_stops_the_compiler_as_the_page_says(tmp_path: Path) -> None:
    """The `#error` of the page, for a firmware that subscribes to five types, with the settings of another one."""
    classes = [make_type(f"Type{number}") for number in range(5)]
    catalog = Catalog()
    catalog.register(*classes)
    made = generate(catalog, {f"on{number}": Subscription(each) for number, each in enumerate(classes)}, name="plant")
    made.with_node().write(tmp_path)
    compile_ = [need("gcc"), "-std=c99", "-fsyntax-only", str(tmp_path / "plant_node.c")]
    run(compile_)
    (tmp_path / "genus_settings.h").write_text(firmware().node_settings)
    done = subprocess.run(compile_, capture_output=True, text=True)
    assert done.returncode != 0
    assert code("text").splitlines()[-1] in done.stderr
    run([*compile_, "-DGENUS_SUBJECTS=5"])


def test_headers_are_for_cpp_too(tmp_path: Path) -> None:
    source = tmp_path / "main.cpp"
    includes = "".join(f'#include "{header.name}"\n' for header in HEADERS)
    source.write_text(f"{includes}int main() {{ return 0; }}\n")
    run([need("g++"), "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", "-c", str(source), "-o", str(tmp_path / "main.o")])


@pytest.mark.parametrize("header", HEADERS)
def test_lines_of_headers_are_short(header: Path) -> None:
    assert [line for line in header.read_text().splitlines() if len(line) > MAX_LINE] == []


@pytest.mark.parametrize("source", node_sources())
def test_lines_and_functions_are_short(source: str) -> None:
    lines = Path(source).read_text().splitlines()
    assert [line for line in lines if len(line) > MAX_LINE] == []
    opened = [number for number, line in enumerate(lines) if line == "{"]
    closed = [number for number, line in enumerate(lines) if line == "}"]
    assert len(opened) == len(closed)
    assert all(end - begin < MAX_FUNCTION for begin, end in zip(opened, closed, strict=True))


@pytest.mark.parametrize("source", node_sources())
def test_there_is_no_heap_goto_or_floating_point(source: str) -> None:
    code = re.sub(r"/\*.*?\*/", "", Path(source).read_text(), flags=re.DOTALL)
    assert re.findall(r"\b(malloc|calloc|realloc|free|alloca|goto|float|double|setjmp)\b", code) == []


def test_the_page_shows_all_rows_of_the_fault_table_that_are_about_nodes() -> None:
    (shown,) = re.findall(r"<!-- rows -->(.*?)<!-- end of rows -->", PAGE.read_text(), re.DOTALL)
    assert [int(number) for number in shown.split(",")] == list(ROWS_OF_NODES)


ROWS_OF_SIZES = [pytest.param(name, marks=() if name == "nothing" else pytest.mark.slow) for name in rows()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS_OF_SIZES)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_firmware_is_about_as_large_as_the_page_says(name: str, processor: str, tmp_path: Path) -> None:
    need(f"{PROCESSORS[processor][0]}-gcc")
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |"))
    first = 1 + 3 * list(PROCESSORS).index(processor)
    shown = [int(cell.replace(",", "")) for cell in cells(row)[first : first + 3]]
    for documented, measured in zip(shown, measure(processor, rows()[name], tmp_path), strict=True):
        assert abs(documented - measured) <= 0.03 * measured


def test_the_firmware_of_a_plan_with_can_fd_compiles_as_it_is_generated(tmp_path: Path) -> None:
    sources = [str(path) for path in rows()[FD_ROW].write(tmp_path) if path.suffix == ".c"]
    run([need("gcc"), *WARNINGS, f"-I{tmp_path}", "-fsyntax-only", *sources])
