"""The fault table: every row small, the full runs as slow tests, and the page that shows it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from genus.can._plan.system_file import load_system
from tests.can.fault_table import LIVE, ROWS, Observation, Setting
from tests.can.fault_table.__main__ import faults
from tests.can.fault_table.live import find_multicast_problem
from tests.can.fault_table.page import COMMAND, format_table, read_cells
from tests.can.fault_table.row import NOT_SO

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "can-simulator.md"

FIGURES = json.loads((Path(__file__).parent / "golden" / "small_fault_figures.json").read_text())
"""The figures that a small run with seed 1 gives, row by row; those of live rows depend on the machine."""


def check_row(number: int, *, full: bool, seed: int = 1) -> Observation:
    if number in LIVE and (problem := find_multicast_problem()):
        pytest.skip(f"no multicast on this machine: {problem}")
    observation = ROWS[number].observe(Setting(load_system(ROOT / "examples" / "crossing.toml"), seed, full))
    assert observation.ok, f"row {number}: {observation.text}"
    return observation


def figures_in(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*\d|\d", text)


LONG = (1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 19, 20, 21, 22, 23, 24)
"""Rows whose small runs take more than half a second, or are as long as the full ones."""
QUICK = (6, 18)
"""Rows whose full runs take a second, or are as long as the small ones."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in sorted(ROWS)])
def test_a_small_run_of_a_row_is_as_expected(number: int) -> None:
    observation = check_row(number, full=False)
    assert number in LIVE or figures_in(observation.text) == FIGURES[str(number)], observation.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in sorted(ROWS)]
)
def test_a_full_run_of_a_row_is_as_expected_and_as_the_page_shows_it(number: int) -> None:
    observation = check_row(number, full=True)
    assert number in LIVE or observation.text == read_cells(PAGE.read_text())[number][3]


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(set(ROWS) - set(LIVE)))
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_small_run_of_a_row_is_as_expected_with_other_seeds(number: int, seed: int) -> None:
    check_row(number, full=False, seed=seed)


def test_the_page_shows_all_rows_with_their_observations() -> None:
    """A row that was not as expected says so in its text as in its mark."""
    shown = read_cells(PAGE.read_text())
    assert list(shown) == sorted(ROWS)
    for number, row in ROWS.items():
        assert shown[number][:3] == [str(number), row.fault, row.injected]
        assert figures_in(shown[number][3])
        assert shown[number][4] == ("✗" if NOT_SO in shown[number][3] else "✓")


def test_an_observation_that_is_not_as_expected_says_what_is_not() -> None:
    good, bad = (Observation(f"{late} late", {"all": True, "none late": late == 0}) for late in (0, 3))
    assert (good.ok, good.text) == (True, "0 late")
    assert (bad.ok, bad.text) == (False, f"3 late; {NOT_SO}none late")


def test_a_table_is_read_back_from_a_page() -> None:
    table = format_table({5: Observation("third", {"fourth": False}), 2: Observation("first", {})})
    shown = read_cells(f"text\n<!-- {COMMAND} -->\n\n{table}\n\nMeasured.\n\n<!-- end -->\nmore")
    assert {number: cells[3:] for number, cells in shown.items()} == {
        2: ["first", "✓"],
        5: [f"third; {NOT_SO}fourth", "✗"],
    }


def test_the_command_runs_rows_in_processes() -> None:
    options = ["--system", str(ROOT / "examples" / "crossing.toml"), "--jobs", "2"]
    done = CliRunner().invoke(faults, ["18", "3", *options])
    assert done.exit_code == 0, done.output
    assert "alarmed after" in done.output
    assert "exactly o + 1 errors" in done.output
