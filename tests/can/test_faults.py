"""The fault table: every row small, the whole of it among the slow tests, and the page that shows it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from genus.can._plan import load_system
from genus.errors import GenusError
from tests.can.fault_table import ROWS, Observation, Setting
from tests.can.fault_table.__main__ import faults
from tests.can.fault_table.live import is_possible
from tests.can.fault_table.page import BEGINS, ENDS, cells, examples, updated

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
LIVE = (20, 21)


def look(number: int, *, full: bool, seed: int = 1) -> None:
    if number in LIVE and (problem := is_possible()):
        pytest.skip(f"no multicast here: {problem}")
    seen = ROWS[number].observe(Setting(load_system(ROOT / "examples" / "crossing.toml"), seed, full))
    assert seen.ok, f"row {number}: {seen.text}"


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_of_the_fault_table_is_as_it_must_be(number: int) -> None:
    look(number, full=False)


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_of_the_fault_table_is_as_it_must_be_in_full(number: int) -> None:
    look(number, full=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(set(ROWS) - set(LIVE)))
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_row_does_not_depend_on_the_seed(number: int, seed: int) -> None:
    look(number, full=False, seed=seed)


def test_the_table_has_22_rows_and_the_page_shows_what_was_seen_of_each() -> None:
    assert sorted(ROWS) == list(range(1, 23))
    shown = cells(PAGE.read_text())
    for number, row in ROWS.items():
        assert shown[number][:4] == [str(number), row.fault, row.injected, row.expected]
        assert shown[number][4]
        assert shown[number][5] == "✓"
    assert examples() in PAGE.read_text()


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(GenusError, match="no place"):
        updated("nothing", {})


def test_rows_that_were_not_run_stay_as_they_are() -> None:
    page = updated(f"{BEGINS}{ENDS}", {2: Observation("first", True), 5: Observation("second", True)})
    page = updated(page, {5: Observation("third", False)})
    assert [cells(page)[number][4:] for number in (2, 5)] == [["first", "✓"], ["third", "✗"]]


def test_the_command_runs_a_row_and_writes_it_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGINS}\n{ENDS}\n")
    system = str(ROOT / "examples" / "crossing.toml")
    done = CliRunner().invoke(faults, ["18", "--system", system, "--write", str(page)])
    assert done.exit_code == 0, done.output
    assert "both alarmed" in done.output
    assert cells(page.read_text())[18][1] == "the same uid twice"
