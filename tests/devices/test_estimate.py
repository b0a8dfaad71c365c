"""Estimates of flash and RAM against what a compiler for an 8-bit processor makes."""

import re
import subprocess
from pathlib import Path

import pytest

from genus import Catalog, Event, Subscription
from genus.devices import Firmware, generate
from tests.programs import need

from .compiled import harness_source
from .random_system import RandomSystem
from .test_generate import road_firmware
from .test_generated_code import make

AVR = ["-std=c99", "-Os", "-mmcu=atmega128rfa1", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
MAIN = """
volatile uint16_t tag; volatile uint8_t size; uint8_t payload[8];
int main(void) {{ {calls} return 0; }}
"""
EMPTY = 400
"""Bytes of an empty program: vectors of interrupts and start-up code, and what the harness adds."""


def compiled_flash(firmware: Firmware, folder: Path) -> int:
    """The flash of a program that calls everything, without start-up code."""
    need("avr-gcc")
    sources = [str(path) for path in firmware.write(folder) if path.suffix == ".c"]
    name = firmware.name
    calls = f"tag = {name}_receive(tag, payload, size);"
    calls += f" tag = {name}_learn(payload, size);" if f"{name}_learn" in firmware.header else ""
    handlers = harness_source(firmware).split("long run")[0]
    (folder / "main.c").write_text(handlers + MAIN.format(calls=calls))
    made = folder / "program.elf"
    subprocess.run(["avr-gcc", *AVR, *sources, str(folder / "main.c"), "-o", str(made)], check=True)
    shown = subprocess.run(["avr-size", str(made)], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"\d+", shown.splitlines()[1])[0]) - EMPTY


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("seed", [None, 31])
def test_the_estimate_of_flash_is_near(seed: int | None, codec: str, tmp_path: Path) -> None:
    """Within a factor of 1.5: it is for choosing, not for linking."""
    firmware = road_firmware(codec=codec) if seed is None else make(RandomSystem(seed), codec).firmware
    flash = compiled_flash(firmware, tmp_path)
    assert flash / 1.5 < firmware.estimate.flash < flash * 1.5


def test_variables_of_long_arithmetic_are_on_the_stack() -> None:
    """Each step of 64 bits that may not fit has one of 8 bytes."""

    class Sum(Event):
        amount: int

    catalog = Catalog()
    catalog.register(Sum)
    short, long = (
        generate(catalog, {"a": Subscription(Sum, where=f"{' + '.join(['amount'] * count)} > 3")}).estimate.stack
        for count in (1, 101)
    )
    assert long - short == 800
