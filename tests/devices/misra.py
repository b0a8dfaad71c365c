"""Counts of what cppcheck's addon for MISRA C:2012 reports: `python -m tests.devices.misra --write` fills the page."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from genus.cli._doctor import find_program
from genus.devices import Firmware
from genus.devices._readme import DEVIATIONS

PAGE = Path(__file__).parents[2] / "docs/devices.md"
BEGIN, END = "<!-- misra -->\n", "<!-- end of misra -->"


def reported(files: Iterable[Path]) -> Counter[tuple[str, str]]:
    """How often each rule is reported for each of some sources, or the headers they include."""
    command = ["cppcheck", "--addon=misra", "--std=c99", "--enable=style", "--template={file}:{line}:{id}", "-q"]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
    found = set(re.findall(r"^(.*/)?([^/\n]+):(\d+):misra-c2012-([\d.]+)$", done.stderr, re.MULTILINE))
    if done.returncode != 0 or not found:
        raise RuntimeError(f"cppcheck says {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return Counter((rule, name) for _, name, _, rule in found)


def counts(firmware: Firmware) -> dict[str, Counter[str]]:
    """The reports by rule: for generated files, the runtime, and the node."""
    made: dict[str, Counter[str]] = {"generated": Counter(), "runtime": Counter(), "node": Counter()}
    with tempfile.TemporaryDirectory() as folder:
        files = [path for path in firmware.write(folder) if path.suffix == ".c"]
        for (rule, name), count in reported(files).items():
            is_core = re.match(r"genus_(event|test|code|port)\.", name)
            made["runtime" if is_core else "node" if name.startswith("genus_") else "generated"][rule] += count
    return made


def version() -> str:
    """The version of cppcheck, whose counts differ from those of others."""
    return subprocess.run(["cppcheck", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def table() -> str:
    """The table of the page: the types of a road, by both codecs, with the node."""
    from .test_generate import road_firmware

    table, straight = (counts(road_firmware(codec=codec).with_node()) for codec in ("table", "straight"))
    runtime, node = (table[part] | straight[part] for part in ("runtime", "node"))
    columns = [table["generated"], straight["generated"], runtime, node]
    head = f"| {version()} | generated, by table | generated, straight code | runtime | node |\n|---|---|---|---|---|"
    rows = [f"| {rule} | {' | '.join(str(column[rule] or '') for column in columns)} |" for rule in DEVIATIONS]
    return "\n".join([head, *rows])


@click.command()
@click.option("--write", is_flag=True, help="Write the table into the page.")
def main(write: bool) -> None:
    """Print what cppcheck reports of MISRA C:2012 for generated code, the runtime and the node."""
    if find_program("cppcheck") is None:
        raise click.ClickException("cppcheck is not installed")
    found = table()
    click.echo(found)
    if write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{found}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
