"""The report of `make test-all`, by `pytest -p tests.proof --proof FILE`: what was run, how long, what was not."""

import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from os import getloadavg
from pathlib import Path

import pytest

from bench.page import write_block

STARTED = time.monotonic()
HEAD = """\
{date}, commit {commit}, {machine}, load {load:.1f} at the end: **{passed:,} passed, {failed:,} failed,
{skipped:,} skipped in {minutes:.0f} min.** Property tests drew their examples from the seed `{seed}`, so
`make test-all SEED={seed}` repeats them.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--proof", metavar="FILE", help="write a report of what was run into this page")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was not tried, and write the report if the whole suite was run."""
    if hasattr(config, "workerinput") or not config.getoption("--proof"):
        return
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "when")]
    missing = skip_reasons(reports)
    terminalreporter.section("not tried")
    for reason, count in missing.most_common():
        terminalreporter.write_line(f"{count:>5}  {reason}")
    seconds = time.monotonic() - STARTED
    page = Path(config.getoption("--proof"))
    text = "\n".join(describe(reports, missing, seconds, config))
    page.write_text(write_block(page.read_text(), "make test-all", text))


def skip_reasons(reports: list[pytest.TestReport]) -> "Counter[str]":
    """Count the skipped cases by their reason."""
    skipped = [each.longrepr for each in reports if each.outcome == "skipped"]
    return Counter(str(each[2]).removeprefix("Skipped: ") if isinstance(each, tuple) else "?" for each in skipped)


def describe(
    reports: list[pytest.TestReport], missing: "Counter[str]", seconds: float, config: pytest.Config
) -> Iterator[str]:
    """Return the lines of the report."""
    called = [each for each in reports if each.when == "call" or each.outcome == "skipped"]
    outcomes = Counter(each.outcome for each in called)
    failed = sum(each.outcome == "failed" for each in reports)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    yield HEAD.format(
        seed=config.getoption("--hypothesis-seed", default=None),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit.stdout.strip() or "unknown",
        machine=f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        load=getloadavg()[0],
        passed=outcomes["passed"],
        failed=failed,
        skipped=outcomes["skipped"],
        minutes=seconds / 60,
    )
    yield "| folder | cases | seconds | cases of sweeps | seconds |\n|---|--:|--:|--:|--:|"
    folders: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
    for each in called:
        folders["/".join(Path(each.nodeid.partition("::")[0]).parts[:2])].append(each)
    for name, cases in sorted(folders.items()):
        slow = [each for each in cases if "slow" in each.keywords]
        yield f"| {name} | {len(cases):,} | {_seconds(cases)} | {len(slow):,} | {_seconds(slow)} |"
    yield "\nThe sweeps:\n\n| sweep | cases | seconds |\n|---|--:|--:|"
    sweeps: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
    for each in called:
        if "slow" in each.keywords:
            sweeps[each.nodeid.partition("[")[0]].append(each)
    for name, cases in sorted(sweeps.items()):
        yield f"| `{name}` | {len(cases):,} | {_seconds(cases)} |"
    yield "\nNot tried:\n\n| reason | cases |\n|---|--:|"
    yield from (f"| {reason} | {count} |" for reason, count in missing.most_common())


def _seconds(cases: list[pytest.TestReport]) -> str:
    return f"{sum(each.duration for each in cases):,.1f}"
