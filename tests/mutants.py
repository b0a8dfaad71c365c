"""How strong the tests are: `python -m tests.mutants` changes one expression at a time and counts what tests notice.

A first run under coverage finds which tests reach which line; for each mutant, the tests that reach its line are run
until one fails. What survives is listed. Runs go on where they stopped, for as long as the commit is the same.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

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
TIMEOUT_S = 300
RAN, TESTS_FAILED, NO_TESTS = 0, 1, 5


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


def mutants_of(file: Path) -> Iterator[Mutant]:
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
            yield Mutant(str(file.relative_to(ROOT)), node.lineno, start, end, before, after)


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


def reached(rooms: list[str], store: Path) -> CoverageData:
    """Run the tests of these rooms once; returns which tests reached which line."""
    if not store.exists():
        tests = sorted({each for room in rooms for each in ROOMS[room]})
        settings = store.with_suffix(".ini")
        sources = ",".join(f"src/genus/{room}" for room in rooms)
        settings.write_text(f"[run]\nsource = {sources}\ndata_file = {store}\ndynamic_context = test_function\n")
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-n", "0", "-q"]
        done = subprocess.run([*command, *tests], cwd=ROOT, check=False)
        if done.returncode != RAN:
            store.unlink(missing_ok=True)
            sys.exit("the tests fail without any mutant")
    coverage = Coverage(data_file=store)
    coverage.load()
    return coverage.get_data()


def tests_of(mutant: Mutant, data: CoverageData) -> list[str]:
    """Return the tests that reach the line of a mutant; for lines that run at import, all of the room."""
    contexts = data.contexts_by_lineno(str(ROOT / mutant.file)).get(mutant.line, [])
    found = {node for context in contexts if context and (node := _node(context))}
    room = next(room for room in ROOMS if mutant.file.startswith(f"src/genus/{room}/"))
    return sorted(found) if found or not contexts else ROOMS[room]


def _node(context: str) -> str:
    """Return the name by which pytest runs a test function."""
    parts = context.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        file = Path(*parts[:cut]).with_suffix(".py")
        if (ROOT / file).exists():
            return "::".join([str(file), *parts[cut:]])
    return ""


def survives(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    """Return whether all tests that reach the mutant pass in a copy of the repository that has it."""
    file = folder / mutant.file
    original = file.read_bytes()
    file.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}:{folder / 'apps/traffic/src'}"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=TIMEOUT_S)
        return done.returncode in (RAN, NO_TESTS)
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_bytes(original)


def main() -> None:
    """Test a random sample of mutants and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)} [all]")
    parser.add_argument("--count", type=int, default=500, help="how many mutants [500]")
    parser.add_argument("--seed", type=int, default=1, help="which ones [1]")
    parser.add_argument("--workers", type=int, default=2, help="how many at once [2]")
    asked = parser.parse_args()
    rooms = asked.rooms or list(ROOMS)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    store = Path(tempfile.gettempdir(), f"genus-mutants-{commit.stdout[:12]}")
    store.mkdir(exist_ok=True)
    data = reached(rooms, store / f"{'-'.join(rooms).replace('/', '_')}.coverage")
    every = [each for room in rooms for file in sorted((ROOT / "src/genus" / room).rglob("*.py"))
             for each in mutants_of(file)]  # fmt: skip
    chosen = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    kept = store / "results.json"
    results: dict[str, bool] = json.loads(kept.read_text()) if kept.exists() else {}
    folders: SimpleQueue[Path] = SimpleQueue()
    for number in range(asked.workers):
        folder = store / "checkouts" / str(number) / "genus"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        folders.put(folder)

    def try_one(mutant: Mutant) -> None:
        folder = folders.get()
        tests = tests_of(mutant, data)
        results[str(mutant)] = not tests or survives(mutant, tests, folder)
        folders.put(folder)
        kept.write_text(json.dumps(results))
        print(f"{len(results):>4} {'SURVIVED' if results[str(mutant)] else 'found   '} {mutant}", flush=True)

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(try_one, [each for each in chosen if str(each) not in results]))
    survivors = sorted(str(each) for each in chosen if results[str(each)])
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants of {len(every):,} were found; these survived:")
    print("\n".join(survivors) or "none")


if __name__ == "__main__":
    main()
