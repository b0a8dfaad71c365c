"""Random and damaged frames under sanitizers: no report, no endless loop, no broken frame."""

import subprocess
from pathlib import Path

import pytest

from tests.devices.c_library import RUNTIME, need, node_sources, run

FUZZ = str(Path(__file__).parent / "c_fuzz.c")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(compiler: str, target: Path, *options: str) -> str:
    """Compile the harness with sanitizers; skips if the compiler or its sanitizers are missing."""
    path = need(compiler)
    probe = target.with_suffix(".c")
    probe.write_text("int main(void) { return 0; }\n")
    if subprocess.run([path, *SANITIZERS, str(probe), "-o", str(target)], capture_output=True, check=False).returncode:
        pytest.skip(f"{compiler} has no sanitizers here")
    run(
        [path, "-std=c99", "-O1", "-g", *SANITIZERS, *options, f"-I{RUNTIME}", FUZZ, *node_sources(), "-o", str(target)]
    )
    return str(target)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_thousand_frames_are_received_without_a_report(tmp_path: Path, seed: int) -> None:
    harness = build("gcc", tmp_path / "fuzz")
    assert run([harness, "100000", str(seed)]).startswith("100000 frames, ")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 8))
def test_a_million_frames_are_received_without_a_report(tmp_path: Path, seed: int) -> None:
    for compiler in ("gcc", "clang"):
        harness = build(compiler, tmp_path / f"fuzz-{compiler}")
        assert run([harness, "1000000", str(seed)]).startswith("1000000 frames, ")


def test_small_capacities_are_as_safe(tmp_path: Path) -> None:
    """Where there is hardly room, things are refused and counted."""
    small = ("-DGENUS_EVENTS=1", "-DGENUS_PUBLISHERS=1", "-DGENUS_TRANSFERS=1", "-DGENUS_QUESTIONS=1")
    clock = ("-DGENUS_CLOCK_SAMPLES=2", "-DGENUS_CLOCK_MASTERS=2", "-DGENUS_CLOCK_FORMERS=1", "-DGENUS_ANSWER_BYTES=12")
    harness = build("gcc", tmp_path / "fuzz", *small, *clock, "-DGENUS_EVENT_BYTES=40", "-DGENUS_HARD_BYTES=12")
    assert run([harness, "100000", "9"]).startswith("100000 frames, ")


@pytest.mark.slow
def test_a_fuzzer_finds_nothing_in_a_minute(tmp_path: Path) -> None:
    clang = need("clang")
    target = str(tmp_path / "fuzzer")
    options = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-DFUZZER", f"-I{RUNTIME}"]
    run([clang, "-std=c99", "-O1", "-g", *options, FUZZ, *node_sources(), "-o", target])
    run([target, "-max_total_time=60", "-max_len=4096", "-verbosity=0", f"-artifact_prefix={tmp_path}/"])
