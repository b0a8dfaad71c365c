"""The report of `make test-all`, by `pytest -p tests.proof --proof FILE`: what was run, how long, what was not.

With `--last-failed`, which `make test-all AGAIN=1` gives, what failed in the last run is run again, and the report of
that run is corrected: it says how many cases failed at first, and in which commit they passed.
"""

import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from os import getloadavg
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.page import write_block

STARTED = time.monotonic()
LAST_RUN = "genus/proof"
"""The key of the last run in pytest's cache."""
HEAD = """\
{date}, commit {commit}, {machine}, load {load:.1f} at the end: **{passed:,} passed, {failed:,} failed,
{skipped:,} skipped in {minutes:.0f} min.** Property tests drew their examples from the seed `{seed}`, so
`make test-all SEED={seed}` repeats them.
"""
AGAIN = "Of these, {count} had failed at first; they were run again with commit {commit}: {passed} passed.\n"


class Case(NamedTuple):
    """What became of a test with its parameters."""

    outcome: str
    seconds: float
    is_sweep: bool
    reason: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--proof", metavar="FILE", help="write a report of what was run into this page")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was not tried, and write the report if the whole suite was run."""
    if hasattr(config, "workerinput") or not config.getoption("--proof"):
        return
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "when")]
    assert config.cache is not None
    run = update_run(config.cache.get(LAST_RUN, None), reports, config)
    config.cache.set(LAST_RUN, run)
    cases = {node: Case(*each) for node, each in run["cases"].items()}
    missing = Counter(each.reason for each in cases.values() if each.outcome == "skipped")
    terminalreporter.section("not tried")
    for reason, count in missing.most_common():
        terminalreporter.write_line(f"{count:>5}  {reason}")
    page = Path(config.getoption("--proof"))
    text = "\n".join(describe(run, cases, missing))
    page.write_text(write_block(page.read_text(), "make test-all", text))


def update_run(last: Any, reports: list[pytest.TestReport], config: pytest.Config) -> dict[str, Any]:
    """Return what is kept of this run, or of the last one with what was run again."""
    cases = dict(cases_of(reports))
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    commit = done.stdout.strip() or "unknown"
    if config.getoption("lf") and last is not None:
        passed = sum(each.outcome == "passed" for each in cases.values())
        again = {"commit": commit, "count": len(cases), "passed": passed}
        return {**last, "cases": last["cases"] | cases, "again": [*last["again"], again]}
    return {
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        "load": getloadavg()[0],
        "minutes": (time.monotonic() - STARTED) / 60,
        "seed": config.getoption("--hypothesis-seed", default=None),
        "again": [],
        "cases": cases,
    }


def cases_of(reports: Iterable[pytest.TestReport]) -> Iterator[tuple[str, Case]]:
    """Return the cases of a run by their names; one whose fixture failed has failed."""
    parts: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
    for each in reports:
        parts[each.nodeid].append(each)
    for node, found in parts.items():
        outcomes = {each.outcome for each in found}
        outcome = next((name for name in ("failed", "skipped") if name in outcomes), "passed")
        seconds = sum(each.duration for each in found if each.when == "call")
        yield node, Case(outcome, seconds, "slow" in found[0].keywords, next(filter(None, map(_reason, found)), ""))


def _reason(report: pytest.TestReport) -> str:
    told = report.longrepr if report.outcome == "skipped" else ""
    return str(told[2]).removeprefix("Skipped: ") if isinstance(told, tuple) else ""


def describe(run: dict[str, Any], cases: dict[str, Case], missing: "Counter[str]") -> Iterator[str]:
    """Return the lines of the report."""
    outcomes = Counter(each.outcome for each in cases.values())
    yield HEAD.format(**run, **{name: outcomes[name] for name in ("passed", "failed", "skipped")})
    yield from (AGAIN.format(**each) for each in run["again"])
    yield "| folder | cases | seconds | cases of sweeps | seconds |\n|---|--:|--:|--:|--:|"
    folders: defaultdict[str, list[Case]] = defaultdict(list)
    sweeps: defaultdict[str, list[Case]] = defaultdict(list)
    for node, each in cases.items():
        folders["/".join(Path(node.partition("::")[0]).parts[:2])].append(each)
        if each.is_sweep:
            sweeps[node.partition("[")[0]].append(each)
    for name, found in sorted(folders.items()):
        slow = [each for each in found if each.is_sweep]
        yield f"| {name} | {len(found):,} | {_seconds(found)} | {len(slow):,} | {_seconds(slow)} |"
    yield "\nThe sweeps:\n\n| sweep | cases | seconds |\n|---|--:|--:|"
    for name, found in sorted(sweeps.items()):
        yield f"| `{name}` | {len(found):,} | {_seconds(found)} |"
    yield "\nNot tried:\n\n| reason | cases |\n|---|--:|"
    yield from (f"| {reason} | {count} |" for reason, count in missing.most_common())


def _seconds(cases: Iterable[Case]) -> str:
    return f"{sum(each.seconds for each in cases):,.1f}"
