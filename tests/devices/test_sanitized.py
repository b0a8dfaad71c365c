"""Generated C under sanitizers and a fuzzer: bytes from outside never make it read or write where it must not."""

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from genus import Subscription
from genus.devices import Firmware, generate
from tests.programs import need, needs

from . import road
from .compiled import MALFORMED, OK, frame_of, harness_source
from .random_system import RandomSystem
from .test_generate import road_catalog
from .test_generated_code import make
from .toolchain import WARNINGS

pytestmark = [needs("gcc"), pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")]

SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MAIN = """
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    uint8_t head[4];
    unsigned long count = 0UL;
    uint8_t *out = malloc(200000U);
    while (fread(head, 1U, 4U, stdin) == 4U) {
        const uint16_t size = (uint16_t)(head[2] | (head[3] << 8));
        uint8_t *record = malloc(4U + (size_t)size); /* a byte too far is then found */
        memcpy(record, head, 4U);
        if (fread(record + 4, 1U, size, stdin) != size) { free(record); break; }
        (void)run(record, 1L, out);
        free(record);
        count++;
    }
    free(out);
    printf("%lu", count);
    return 0;
}
"""


def build_program(firmware: Firmware, folder: Path) -> Path:
    sources = [path for path in firmware.write(folder) if path.suffix == ".c"]
    (folder / "main.c").write_text(harness_source(firmware) + MAIN)
    made = folder / "program"
    command = [need("gcc"), *WARNINGS, *SANITIZED, *map(str, sources), str(folder / "main.c"), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in done.stderr and "asan" in done.stderr:
        pytest.skip("the compiler has no address sanitizer")
    assert done.returncode == 0, done.stderr[:3000]
    return made


def feed(program: Path, system: RandomSystem, count: int) -> None:
    frames = [frame_of(event, system.catalog) for event in system.events(200)]
    damaged = (system.damaged(frames[number % len(frames)]) for number in range(count))
    records = b"".join(struct.pack("<HH", etag, len(payload)) + payload for etag, payload in damaged)
    done = subprocess.run([program], input=records, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[:3000]
    assert int(done.stdout) == count


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_damaged_payloads_are_read_within_their_bytes(codec: str, tmp_path: Path) -> None:
    system = RandomSystem(21)
    feed(build_program(make(system, codec).firmware, tmp_path), system, 5_000)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("seed", range(10))
def test_a_million_damaged_payloads_are_read_within_their_bytes(seed: int, codec: str, tmp_path: Path) -> None:
    """A million with each codec."""
    system = RandomSystem(3000 + seed)
    feed(build_program(make(system, codec).firmware, tmp_path), system, 100_000)


EMPTY = """
#include <stdio.h>

int main(void) {
    uint16_t etag = 0U;
    uint8_t payload[8];
    road_loop event = {.type = ROAD_TYPE_LOOP, .lane = 2U}; /* its place is a text without bytes */
    genus_set(event.present, ROAD_LOOP_PLACE);
    const uint16_t size = road_loop_encode(&event, 0U, payload, (uint16_t)sizeof payload, &etag);
    printf("%u %u %u", (unsigned)size, (unsigned)road_receive(etag, payload, size),
           (unsigned)road_receive(etag, NULL, 0U));
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_empty_texts_and_payloads_may_be_null(compiler: str, codec: Any, tmp_path: Path) -> None:
    need(compiler)
    catalog = road_catalog()
    made = generate(catalog, {"all": Subscription(road.Loop)}, name="road", publish=[road.Loop], codec=codec)
    sources = [str(path) for path in made.write(tmp_path) if path.suffix == ".c"]
    handler = '#include "road.h"\nvoid road_on_all(const road_loop *event) { (void)event; }\n'
    (tmp_path / "main.c").write_text(handler + EMPTY)
    program = tmp_path / "program"
    flags = ["-std=c99", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run([compiler, *flags, *sources, str(tmp_path / "main.c"), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"3 {OK} {MALFORMED}", "")


def fuzz(firmware: Firmware, folder: Path, seconds: int) -> str:
    clang = need("clang")
    sources = [str(path) for path in firmware.write(folder, harness=True) if path.suffix == ".c"]
    made = folder / "fuzz"
    flags = [*WARNINGS, "-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    done = subprocess.run([clang, *flags, *sources, "-o", str(made)], capture_output=True, text=True)
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("clang is here without the runtime of libFuzzer (libclang-rt-dev)")
    assert done.returncode == 0, done.stderr[:3000]
    corpus = folder / "corpus"
    corpus.mkdir()
    command = [str(made), str(corpus), f"-max_total_time={seconds}", "-max_len=128", "-seed=1", "-print_final_stats=1"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stderr


@pytest.mark.slow
def test_a_fuzzer_finds_nothing(tmp_path: Path) -> None:
    assert "stat::number_of_executed_units" in fuzz(make(RandomSystem(22), "table").firmware, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_a_fuzzer_finds_nothing_in_five_minutes(codec: str, tmp_path: Path) -> None:
    """Ten minutes in all."""
    assert "stat::number_of_executed_units" in fuzz(make(RandomSystem(23), codec).firmware, tmp_path, 300)
