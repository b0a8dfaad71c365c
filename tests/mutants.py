"""How strong the tests are: `python -m tests.mutants` changes one expression at a time and counts what tests notice.

A first run under coverage finds which tests reach which line; for each mutant, the doctests of its module and the tests
that reach its line, the quickest of them up to BUDGET_S, are run until one fails, in a process that is forked with the
packages of others in it. What survives is listed. A control of each room is tried in the same way, but changes nothing,
so it may not be found. Runs go on where they stopped, for as long as the commit is the same.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from itertools import accumulate
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).parents[1]
ROOMS = {
    "filters": ["tests/filters", "tests/test_truth_table.py"],
    "targets": ["tests/targets", "tests/test_truth_table.py"],
    "codes": ["tests/codes"],
    "catalog": ["tests/catalog"],
    "bus": ["tests/bus"],
    "can/_wire": ["tests/can"],
    "can/_plan": ["tests/can"],
}
"""Parts of src/genus, each with the tests that are about it."""
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
PRELOADED = ("hypothesis", "sybil.parsers.markdown", "pytest_asyncio", "msgspec", "numpy", "pyarrow.dataset", "can",
             "cantools", "pyspark.sql.functions", "pandas")  # fmt: skip
"""Packages of others that tests import, so that each process need not."""
IGNORED = [
    "ignore::pytest.PytestAssertRewriteWarning",  # of what is preloaded
    "ignore::pytest.PytestCollectionWarning",  # of classes of Genus that are called Test
]
TIMEOUT_S = 120
BUDGET_S = 15
"""So many seconds of tests are tried with a mutant, so that what survives may be found by others: a lower bound."""
QUICK = 20
"""So many of the quickest tests are tried first."""
RAN, UNNOTICED, NO_TESTS = 0, 3, 5
FOUND, SURVIVED, ENDLESS = "found", "survived", "not ended in time"


@dataclass(frozen=True)
class Mutant:
    """A change of one expression: the file, the line, the text there, and what replaces it."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.before.split())} -> {' '.join(self.after.split())}"


def mutants_of(file: Path, root: Path) -> Iterator[Mutant]:
    """Find all mutants of a module; messages of errors, annotations and what only type checkers read are left alone."""
    text = file.read_text()
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in _code(ast.parse(text)):
        assert node.end_lineno is not None, "parsed from a text"
        assert node.end_col_offset is not None
        for changed in _changes(node):
            start, end = offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset
            before = text.encode()[start:end].decode()
            after = f"({ast.unparse(changed)})" if isinstance(node, ast.expr) else ast.unparse(changed)
            yield Mutant(str(file.relative_to(root)), node.lineno, start, end, before, after)


def _code(node: ast.AST) -> "Iterator[ast.expr | ast.stmt]":
    """Walk over the expressions and statements that run."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr | ast.Import):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _code(child)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator], right):
            yield ast.Compare(left, [COMPARED[type(operator)]()], right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.BinOp(left, operator, right) if type(operator) in COMPUTED and not isinstance(left, ast.Constant):
            yield ast.BinOp(left, COMPUTED[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()):
            yield ast.Pass()


def reached(rooms: list[str], store: Path, folder: Path) -> tuple[CoverageData, dict[str, float]]:
    """Run the tests of these rooms once; returns which tests reached which line, and the seconds of each test."""
    data, report = store / "reached.coverage", store / "seconds.json"
    if not report.exists():
        settings = store / "coverage.ini"
        sources = ",".join(f"src/genus/{room}" for room in rooms)
        settings.write_text(f"[run]\nsource = {sources}\ndata_file = {data}\n")
        tests = sorted({each for room in rooms for each in ROOMS[room]})
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-n", "0", "-q"]
        command += ["-p", "tests.mutants", "--seconds", str(report), *tests]
        done = subprocess.run(command, cwd=folder, env=os.environ | environment(folder), check=False)
        if done.returncode != RAN:
            report.unlink(missing_ok=True)
            sys.exit("the tests fail without any mutant")
    coverage = Coverage(data_file=data)
    coverage.load()
    return coverage.get_data(), json.loads(report.read_text())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file for the seconds of each test."""
    parser.addoption("--seconds", type=Path, help="write how long each test takes into this file")


def pytest_configure(config: pytest.Config) -> None:
    """Follow the tests of the first run."""
    if file := config.getoption("--seconds"):
        config.pluginmanager.register(_Followed(file))


class _Followed:
    """State: the seconds of each test; coverage is told which test runs, also of property tests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        running = Coverage.current()
        assert running is not None
        running.switch_context(item.nodeid.partition("[")[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("[")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._seconds))


def environment(folder: Path) -> dict[str, str]:
    """Return what makes Python import Genus from a copy of the repository."""
    return {"PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder / "apps/traffic/src")])}


def tests_of(mutant: Mutant, data: CoverageData, seconds: Mapping[str, float], folder: Path) -> list[str]:
    """Return the tests that reach the line of a mutant, quick ones first; all of the room if it runs at import."""
    contexts = data.contexts_by_lineno(str(folder / mutant.file)).get(mutant.line, [])
    if not contexts:
        return []
    found = {context for context in contexts if context}
    if not found:
        room = next(room for room in ROOMS if mutant.file.startswith(f"src/genus/{room}/"))
        found = {node for node in seconds if node.startswith(tuple(ROOMS[room]))}
    quickest = sorted(found, key=lambda node: (seconds[node], node))
    before = accumulate((seconds[node] for node in quickest), initial=0.0)
    return [node for node, spent in zip(quickest, before, strict=False) if spent < BUDGET_S]


def try_mutant(mutant: Mutant, tests: list[str], folder: Path) -> None:
    """In a process of its own: exit with 3 if no test fails in a copy of the repository that has the mutant."""
    os.setsid()
    for number, name in ((os.O_RDONLY, 0), (os.O_WRONLY, 1), (os.O_WRONLY, 2)):
        os.dup2(os.open(os.devnull, number), name)
    file = folder / mutant.file
    original = file.read_bytes()
    file.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    scratch = folder.parent / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.environ |= environment(folder) | {"TMPDIR": str(scratch)}
    os.chdir(folder)
    sys.path[:0] = [str(folder), *os.environ["PYTHONPATH"].split(os.pathsep)]
    tempfile.tempdir = None
    failed = not _pass([mutant.file, *tests[:QUICK]]) or not _pass(tests[QUICK:])
    file.write_bytes(original)
    os._exit(0 if failed else UNNOTICED)


def _pass(tests: list[str]) -> bool:
    """Return whether these tests pass, in their order; no tests do."""

    class InOrder:
        @staticmethod
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
            order = {name: number for number, name in enumerate(tests)}
            items[:] = [each for each in items if "src/" not in each.nodeid or isinstance(each, pytest.DoctestItem)]
            items.sort(key=lambda item: order.get(item.nodeid.partition("[")[0], -1))

    if not tests:
        return True
    pid = os.fork()
    if pid == 0:
        options = ["-n", "0", "-q", "-x", "-p", "no:cacheprovider", *(f"-W{each}" for each in IGNORED)]
        os._exit(int(pytest.main([*options, *tests], plugins=[InOrder()])))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (RAN, NO_TESTS)


def try_all(mutants: list[Mutant], folders: list[Path], results: "Results") -> None:
    """Try mutants, as many at once as there are folders; one that does not end in time is found."""
    fork = ForkContext()
    waiting, free = iter(mutants), list(folders)
    running: dict[int, tuple[Mutant, Path, ForkProcess, float]] = {}
    while True:
        while free and (mutant := next(waiting, None)):
            folder = free.pop()
            process = fork.Process(target=try_mutant, args=(mutant, results.tests_of(mutant), folder))
            process.start()
            running[process.sentinel] = mutant, folder, process, time.monotonic() + TIMEOUT_S
        if not running:
            return
        wait(list(running), timeout=1)
        for key, (mutant, folder, process, ends) in list(running.items()):
            if process.exitcode is None and time.monotonic() < ends:
                continue
            outcome = {None: ENDLESS, UNNOTICED: SURVIVED}.get(process.exitcode, FOUND)
            with suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)  # also what its tests left running
            process.join()
            del running[key]
            free.append(folder)
            results.add(mutant, outcome)


class Results:
    """What became of each mutant, kept in a file."""

    def __init__(self, file: Path, folder: Path, data: CoverageData, seconds: Mapping[str, float]) -> None:
        self._file, self._folder, self._data, self._seconds = file, folder, data, seconds
        self.outcomes: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant."""
        return tests_of(mutant, self._data, self._seconds, self._folder)

    def add(self, mutant: Mutant, outcome: str) -> None:
        """Write a result to the file and print it."""
        self.outcomes[str(mutant)] = outcome
        self._file.write_text(json.dumps(self.outcomes))
        print(f"{len(self.outcomes):>4} {outcome:<9} {mutant}", flush=True)


def main() -> None:
    """Test a random sample of mutants and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)} [all]")
    parser.add_argument("--count", type=int, default=500, help="how many mutants [500]")
    parser.add_argument("--seed", type=int, default=1, help="which ones [1]")
    parser.add_argument("--write", action="store_true", help="write the result into docs/proof.md")
    parser.add_argument("--workers", type=int, default=2, help="how many at once [2]")
    asked = parser.parse_args()
    rooms = asked.rooms or list(ROOMS)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    name = "-".join(["genus-mutants", commit.stdout[:12], *rooms]).replace("/", "_")
    store = Path(tempfile.gettempdir(), name)
    store.mkdir(exist_ok=True)
    folders = [store / "checkouts" / str(number) / "genus" for number in range(asked.workers)]
    for folder in folders:
        shutil.rmtree(folder.parent, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        (folder.parent / "shared").symlink_to(ROOT.parent / "shared")
    results = Results(store / "results.json", folders[0], *reached(rooms, store, folders[0]))
    every = [each for room in rooms for file in sorted((folders[0] / "src/genus" / room).rglob("*.py"))
             for each in mutants_of(file, folders[0])]  # fmt: skip
    chosen = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)
    assert not any(name.partition(".")[0] == "genus" for name in sys.modules), "mutants would not be loaded"
    first = {room: each for room in rooms for each in reversed(chosen) if each.file.startswith(f"src/genus/{room}/")}
    controls = [replace(each, after=each.before) for each in first.values()]
    try_all([each for each in [*controls, *chosen] if str(each) not in results.outcomes], folders, results)
    if found := [str(each) for each in controls if results.outcomes[str(each)] != SURVIVED]:
        sys.exit("\n".join(["tests fail where nothing is changed, so these results mean nothing:", *found]))
    report = "\n".join(describe(chosen, results.outcomes, rooms, len(every), len(controls), asked.seed, commit.stdout))
    print(f"\n{report}")
    if asked.write:
        from bench.page import write_block

        page = ROOT / "docs" / "proof.md"
        page.write_text(write_block(page.read_text(), "python -m tests.mutants", report))


def describe(
    chosen: list[Mutant],
    outcomes: Mapping[str, str],
    rooms: list[str],
    total: int,
    controls: int,
    seed: int,
    commit: str,
) -> Iterator[str]:
    """Return the lines of the report: how many mutants of each room were found, and what survived."""
    survived = {str(each) for each in chosen if outcomes[str(each)] == SURVIVED}
    endless = sum(outcomes[str(each)] == ENDLESS for each in chosen)
    found = len(chosen) - len(survived)
    yield f"{datetime.now(UTC):%Y-%m-%d}, commit {commit[:8]}, seed {seed}: of a random sample of {total:,} mutants,"
    yield f"**{found} of {len(chosen)} were found, {found / len(chosen):.0%}**, {endless} of them as tests did not"
    yield f"end in {TIMEOUT_S} s. Of {controls} controls, which change nothing, none was found."
    yield "\n| part of src/genus | mutants | found |\n|---|--:|--:|"
    for room in rooms:
        here = [each for each in chosen if each.file.startswith(f"src/genus/{room}/")]
        yield f"| {room} | {len(here)} | {sum(str(each) not in survived for each in here)} |"
    yield "\nThese survived:\n\n```text"
    yield from sorted(survived)
    yield "```"


if __name__ == "__main__":
    main()
