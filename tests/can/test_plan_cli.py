"""`genus can plan`: tables, JSON, pictures, calendars, exit codes."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from genus._extras import install_command
from genus.can._plan.calendar import Calendar
from genus.cli._can_plan import plan
from genus.errors import GenusError, PlanError

CROSSING = Path(__file__).parents[2] / "examples" / "crossing.toml"
REFUSED = """
[bus]
bitrate = "125k"
[[channel]]
name = "fast"
node = "a"
class = "soft"
period = "10ms"
deadline = "2ms"
size = 8
[[channel]]
name = "slow"
node = "b"
class = "none"
period = "50ms"
size = 20
"""


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(plan, [str(each) for each in arguments], env={"COLUMNS": "100"})


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    (tmp_path / "refused.toml").write_text(REFUSED)
    return tmp_path / "refused.toml"


def test_an_admitted_system_is_shown_with_its_load_and_its_cycle() -> None:
    result = invoke(CROSSING)
    assert result.exit_code == 0
    assert "1 Mbit/s, 23 channels, 12 nodes" in result.output
    assert "occupancy-north     3   hard   10 ms" in result.output
    assert "middleware" in result.output
    assert "cycle of 10 ms" in result.output
    assert result.output.count("█") > 8


def test_a_system_that_is_not_admitted_says_what_to_change_and_fails(refused: Path) -> None:
    result = invoke(refused)
    assert result.exit_code == 1
    assert "refused" in result.output
    assert "Change: a deadline of at least" in result.output
    assert result.stderr.splitlines() == ["1 of 2 channels are not admitted: fast"]


def test_warnings_are_printed_to_standard_error(tmp_path: Path) -> None:
    system = tmp_path / "system.toml"
    system.write_text(REFUSED.replace("125k", "1M") + 'subscribers = ["bb"]\n[nodes]\na = 1\nb = 2\n')
    result = invoke(system)
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"warning: {system}: [[channel]] 2 'slow': subscribers names 'bb'")
    assert "subscribers names" not in result.stdout
    assert json.loads(invoke(system, "--json").stdout)["warnings"] == [line.removeprefix("warning: ")]


def test_json_has_it_all(refused: Path) -> None:
    found = json.loads(invoke(CROSSING, "--json").stdout)
    assert found["ok"] is True
    assert len(found["slots"]) == 8
    assert found["verdicts"][0]["response_ns"] == 542_000
    refusal = json.loads(invoke(refused, "--json").stdout)
    assert refusal["verdicts"][0]["advice"][0]["key"] == "deadline"


def test_the_calendar_is_written_for_nodes(tmp_path: Path, refused: Path) -> None:
    path = tmp_path / "calendar.json"
    assert invoke(CROSSING, "--calendar", path).exit_code == 0
    assert len(Calendar.load(path).slots) == 8
    other = tmp_path / "other.json"
    result = invoke(refused, "--calendar", other)
    assert "other.json was not written" in result.stderr.replace("\n", "")
    assert not other.exists()


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert invoke(CROSSING, "--svg", tmp_path / "a.svg").exit_code == 0
    first = (tmp_path / "a.svg").read_text()
    assert "<svg" in first
    invoke(CROSSING, "--svg", tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_text() == first


def test_a_picture_without_slots_is_drawn_too(tmp_path: Path, refused: Path) -> None:
    pytest.importorskip("matplotlib")
    assert invoke(refused, "--svg", tmp_path / "a").exit_code == 1
    assert (tmp_path / "a.svg").exists()


def test_a_picture_that_cannot_be_drawn_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(CROSSING, "--png", tmp_path / "no" / "a.png")
    assert isinstance(result.exception, GenusError)
    assert "cannot write" in str(result.exception)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke(CROSSING, "--png", tmp_path / "a.png")
    assert str(result.exception) == f"a picture needs matplotlib: {install_command('plot')}"


def test_a_file_that_is_wrong_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[bus]\nbitrate = 1\n[[channel]]\n")
    result = invoke(tmp_path / "bad.toml")
    assert isinstance(result.exception, PlanError)
    assert "\n" not in str(result.exception)
    assert invoke(tmp_path / "none.toml").exit_code == 2
    (tmp_path / "folder").mkdir()
    result = invoke(CROSSING, "--calendar", tmp_path / "folder" / "deeper" / "c.json")
    assert "No such file" in str(result.exception)
