"""Type checkers know what a collection carries and a subscription selects, and refuse a handler of another type."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[1]


FILES = (HERE / "accepted.py", HERE / "refused.py")
Lines = dict[str, set[int]]
"""Lines with errors, by the name of the file."""


@cache
def mypy_lines() -> Lines:
    """The lines mypy finds fault with; one run for all files."""
    options = ["--strict", "--no-error-summary", "--no-pretty", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, *map(str, FILES)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    errors = [line.split(":") for line in found.splitlines() if ": error:" in line]
    return {file.name: {int(number) for path, number, *_ in errors if Path(path).name == file.name} for file in FILES}


@cache
def pyright_lines() -> Lines:
    """The lines pyright finds fault with, at its standard strictness."""
    settings = HERE / "pyrightconfig.json"
    command = [sys.executable, "-m", "basedpyright", "--project", str(settings), "--outputjson", *map(str, FILES)]
    command += ["--pythonpath", sys.executable]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout)
    errors = [
        (one["file"], one["range"]["start"]["line"] + 1)
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    return {file.name: {number for path, number in errors if Path(path).name == file.name} for file in FILES}


@pytest.mark.parametrize("checker", [mypy_lines, pyright_lines])
def test_correct_programs_are_accepted(checker: Callable[[], Lines]) -> None:
    assert checker()["accepted.py"] == set()


@pytest.mark.parametrize("checker", [mypy_lines, pyright_lines])
def test_each_wrong_line_is_refused(checker: Callable[[], Lines]) -> None:
    file = HERE / "refused.py"
    marked = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# refused")}
    assert len(marked) == 56
    assert checker()[file.name] == marked
