"""Random and damaged frames under sanitizers: no report, no endless loop, no broken frame."""

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.devices.c_library import build, node_sources
from tests.devices.toolchain import run
from tests.programs import need

FUZZ = str(Path(__file__).parent / "c_fuzz.c")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@cache
def harness(compiler: str, *options: str) -> str:
    """The harness with sanitizers; skips if the compiler or its sanitizers are missing."""
    path = need(compiler)
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("int main(void) { return 0; }\n")
        command = [path, *SANITIZERS, str(probe), "-o", str(Path(folder) / "probe")]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{compiler} has no sanitizers here")
    return str(build(path, [FUZZ, *node_sources()], ["-g", *SANITIZERS, *options]))


WITHOUT = ("-DGENUS_WITH_CALENDAR=0", "-DGENUS_WITH_SEGMENTS=0", "-DGENUS_WITH_LATE=0")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "options"), [(1, ()), (2, WITHOUT), (3, ("-DGENUS_DATA_BYTES=64",))])
def test_a_hundred_thousand_frames_are_received_without_a_report(seed: int, options: tuple[str, ...]) -> None:
    assert run([harness("gcc", *options), "100000", str(seed)]).startswith("100000 frames, ")


@pytest.mark.slow
@pytest.mark.parametrize("options", [WITHOUT[:1], WITHOUT[1:2], WITHOUT[2:], ("-DGENUS_LATE_BYTES=0",), WITHOUT[:2]])
def test_nodes_without_some_features_are_as_safe(options: tuple[str, ...]) -> None:
    for compiler in ("gcc", "clang"):
        assert run([harness(compiler, *options), "100000", "11"]).startswith("100000 frames, ")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 8))
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_million_frames_are_received_without_a_report(compiler: str, seed: int) -> None:
    assert run([harness(compiler), "1000000", str(seed)]).startswith("1000000 frames, ")


@pytest.mark.slow
def test_small_capacities_are_as_safe() -> None:
    """Where there is hardly room, things are refused and counted."""
    small = ("-DGENUS_EVENTS=1", "-DGENUS_PUBLISHERS=1", "-DGENUS_TRANSFERS=1", "-DGENUS_QUESTIONS=1")
    clock = ("-DGENUS_CLOCK_SAMPLES=2", "-DGENUS_CLOCK_MASTERS=2", "-DGENUS_CLOCK_FORMERS=1", "-DGENUS_ANSWER_BYTES=12")
    program = harness("gcc", *small, *clock, "-DGENUS_EVENT_BYTES=40", "-DGENUS_HARD_BYTES=12")
    assert run([program, "100000", "9"]).startswith("100000 frames, ")


def on_avr(frames: int) -> tuple[str, str]:
    """What the harness prints on a simulated 8-bit processor, and on this computer."""
    options = ["-Os", "-mcall-prologues", "-mmcu=atmega128rfa1", f"-DFRAMES={frames}UL"]
    firmware = build(need("avr-gcc"), [FUZZ, *node_sources()], options)
    here = build(need("gcc"), [FUZZ, *node_sources()], ["-O1"])
    command = [need("simavr"), "-m", "atmega128rfa1", "-f", "16000000", str(firmware)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    found = re.search(r"\d+ frames, .* digest [0-9a-f]{8}", shown)
    assert found is not None, shown
    return found[0], run([str(here), str(frames), "1"]).strip()


@pytest.mark.slow
def test_the_node_does_the_same_on_an_8_bit_processor() -> None:
    """All frames, events and notices are the same where an int has 16 bits, by a digest of them."""
    there, here = on_avr(1_000)
    assert there == here


@pytest.mark.slow
def test_the_node_does_the_same_on_an_8_bit_processor_for_longer() -> None:
    there, here = on_avr(20_000)
    assert there == here


@pytest.mark.slow
def test_a_fuzzer_finds_nothing_in_a_minute(tmp_path: Path) -> None:
    options = ["-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-DFUZZER"]
    fuzzer = str(build(need("clang"), [FUZZ, *node_sources()], options))
    run([fuzzer, "-max_total_time=60", "-max_len=4096", "-verbosity=0", f"-artifact_prefix={tmp_path}/"])
