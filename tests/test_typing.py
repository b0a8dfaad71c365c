"""Type checkers know what a collection carries: mypy and pyright refuse a handler of the wrong type."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[1]


def mypy_lines(file: Path) -> set[int]:
    """The lines mypy finds fault with."""
    options = ["--strict", "--no-error-summary", "--no-pretty", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    return {int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line}


def pyright_lines(file: Path) -> set[int]:
    """The lines pyright finds fault with, at its standard strictness."""
    settings = HERE / "pyrightconfig.json"
    command = [sys.executable, "-m", "basedpyright", "--project", str(settings), "--outputjson", str(file)]
    command += ["--pythonpath", sys.executable]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout)
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1 for one in errors}


@pytest.mark.parametrize("checker", [mypy_lines, pyright_lines])
def test_correct_programs_are_accepted(checker: Callable[[Path], set[int]]) -> None:
    assert checker(HERE / "accepted.py") == set()


@pytest.mark.parametrize("checker", [mypy_lines, pyright_lines])
def test_each_wrong_line_is_refused(checker: Callable[[Path], set[int]]) -> None:
    file = HERE / "refused.py"
    marked = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# refused")}
    assert len(marked) == 13
    assert checker(file) == marked
