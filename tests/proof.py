"""`make test-all`: run all tests, the long sweeps as well, part by part, and write what was run into docs/proof.md.

A part is a folder of tests and has a process of its own. What passed is not run again, so a run that was stopped, or
had failures that were mended, goes on there; each part says of which commit it is. `--all` runs all of them anew,
`python -m tests.proof can net` two of them.
"""

import argparse
import platform
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from os import getloadavg
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.page import read_blocks, write_block

STARTED = time.monotonic()
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "proof.md"
COMMAND = "python -m tests.proof"
OTHERS = "others"
HEAD = """\
{date}, commit {commit}, {machine}, load {load:.1f} at the end, seed {seed}:
**{passed:,} passed, {failed:,} failed, {skipped:,} skipped in {minutes:.1f} min.**
"""
_HEAD = re.compile(
    r"(?P<day>\S+), commit (?P<commit>\w+),.* load (?P<load>\S+) at the end, seed (?P<seed>\S+):\n"
    r"\*\*(?P<passed>\S+) passed, (?P<failed>\S+) failed, (?P<skipped>\S+) skipped in (?P<minutes>\S+) min"
)
COLUMNS = ("day", "commit", "load", "seed", "passed", "failed", "skipped", "minutes")


class Case(NamedTuple):
    """What became of a test with its parameters."""

    outcome: str
    seconds: float
    is_sweep: bool
    reason: str


def parts() -> dict[str, list[str]]:
    """Return the parts by name, with the files and folders that pytest gets."""
    folders = sorted({path.parent.name for path in ROOT.glob("tests/*/test_*.py")})
    rest = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))
    return {name: [f"tests/{name}"] for name in folders} | {
        OTHERS: [*rest, "apps/traffic/tests", "src", "apps/traffic/src", "docs", "README.md"]
    }


# -- in pytest: `-p tests.proof --part NAME` ---------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the part."""
    parser.addoption("--part", metavar="NAME", help="write a report of what was run into docs/proof.md")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the report of a part."""
    name = config.getoption("--part")
    if hasattr(config, "workerinput") or not name:
        return
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "when")]
    seed = config.getoption("--hypothesis-seed", default=None)
    write(f"{COMMAND} {name}", "\n".join(describe(dict(cases_of(reports)), str(seed))))


def write(command: str, text: str) -> None:
    """Write a text into its place on the page."""
    PAGE.write_text(write_block(PAGE.read_text(), command, text))


def cases_of(reports: Iterable[pytest.TestReport]) -> Iterator[tuple[str, Case]]:
    """Return the cases of a run by their names; one whose fixture failed has failed."""
    steps: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
    for each in reports:
        steps[each.nodeid].append(each)
    for node, found in steps.items():
        outcomes = {each.outcome for each in found}
        outcome = next((name for name in ("failed", "skipped") if name in outcomes), "passed")
        seconds = sum(each.duration for each in found if each.when == "call")
        yield node, Case(outcome, seconds, "slow" in found[0].keywords, next(filter(None, map(_reason, found)), ""))


def _reason(report: pytest.TestReport) -> str:
    told = report.longrepr if report.outcome == "skipped" else ""
    return str(told[2]).removeprefix("Skipped: ") if isinstance(told, tuple) else ""


def describe(cases: dict[str, Case], seed: str) -> Iterator[str]:
    """Return the lines of the report of a part."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    outcomes = Counter(each.outcome for each in cases.values())
    yield HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit.stdout.strip() or "unknown",
        machine=f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        load=getloadavg()[0],
        seed=seed,
        minutes=(time.monotonic() - STARTED) / 60,
        **{name: outcomes[name] for name in ("passed", "failed", "skipped")},
    )
    sweeps: defaultdict[str, list[Case]] = defaultdict(list)
    for node, each in cases.items():
        if each.is_sweep:
            sweeps[node.partition("[")[0]].append(each)
    if sweeps:
        yield "| sweep | cases | seconds |\n|---|--:|--:|"
    for name, found in sorted(sweeps.items()):
        yield f"| `{name}` | {len(found):,} | {sum(each.seconds for each in found):,.1f} |"
    missing = Counter(each.reason for each in cases.values() if each.outcome == "skipped")
    if missing:
        yield "\nNot tried:\n"
    yield from (f"* {count} × {reason}" for reason, count in missing.most_common())


# -- the command -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the parts that did not pass yet; exit code 1 if one of all parts has failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = parts()
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)} [those that did not pass]")
    parser.add_argument("--all", action="store_true", help="also those that passed")
    parser.add_argument("--workers", default="2", help="how many processes run tests at once [2]")
    parser.add_argument("--seed", default=f"{datetime.now(UTC):%Y%m%d}", help="of property tests [the day]")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(known):
        parser.error(f"there is no part {min(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    for name in asked.parts or [name for name in known if asked.all or not has_passed(name)]:
        print(f"{COMMAND} {name}", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", asked.workers, "-m", "", "-p", "tests.proof", "--part", name]
        command += ["--hypothesis-profile", "full", "--hypothesis-seed", asked.seed, *known[name]]
        subprocess.run(command, cwd=ROOT, check=False)
        write(COMMAND, summary(known))
    blocks = read_blocks(PAGE.read_text())
    missing = [line for name in known for line in re.findall(r"^\* .*", blocks[f"{COMMAND} {name}"], re.MULTILINE)]
    print("\n".join(["", blocks[COMMAND], *(["", "Not tried:", *missing] if missing else [])]))
    if left := [name for name in known if not has_passed(name)]:
        sys.exit(f"not passed: {', '.join(left)}")


def has_passed(name: str) -> bool:
    """Return whether a part was run, and nothing failed."""
    found = _HEAD.search(read_blocks(PAGE.read_text())[f"{COMMAND} {name}"])
    return found is not None and found["failed"] == "0" and found["passed"] != "0"


def summary(names: Iterable[str]) -> str:
    """Return the table of all parts."""
    lines = [f"| part | {' | '.join(COLUMNS)} |", f"|---{'|--:' * len(COLUMNS)}|"]
    blocks = read_blocks(PAGE.read_text())
    for name in names:
        found = _HEAD.search(blocks[f"{COMMAND} {name}"])
        lines.append(f"| {name} | {' | '.join('–' if found is None else found[each] for each in COLUMNS)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
