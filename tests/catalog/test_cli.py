"""`genus types` and `genus catalog`: what they print and how they end."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from genus.catalog import Catalog
from genus.cli import genus
from genus.cli._events import load_types
from genus.errors import CatalogConflict, CatalogDamaged
from genus.model import name_of

from .declaring import fill_etags

ROADS = """
from genus import Event, Kind, Maybe

class Roadside(Kind): ...

class Loop(Event, Roadside):
    lane: int
    speed: Maybe[float] = None

class Radar(Loop):
    angle: Maybe[float] = None
"""


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    return write(tmp_path / "roads.py", ROADS)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def run(*arguments: object, width: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(width)}).invoke(genus, [*map(str, arguments)])


def test_types_shows_the_tree_with_codes_bits_and_tags(roads: Path) -> None:
    result = run("types", roads)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["└", "Loop", "(Roadside)", "12", "0x2010/10", "5", "lane:", "int64,", "6", "speed:", "float64?"] in lines
    assert any(line[:3] == ["└", "Radar", "24"] for line in lines)
    assert ["Roadside", "(kind)", "3", "0x2010/10"] in lines


def test_types_marks_what_a_catalog_does_not_have(roads: Path, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    run("catalog", "register", path, roads)
    text = path.read_text()
    more = write(tmp_path / "more.py", "from roads import Loop\nclass Lidar(Loop): ...\n")
    result = run("types", more, "--catalog", path)
    assert "Lidar not registered" in result.output
    assert "Loop not registered" not in result.output
    assert "Radar" not in result.output
    assert path.read_text() == text


def test_types_as_json(roads: Path) -> None:
    found = {entry["name"]: entry for entry in json.loads(run("types", roads, "--json").output)}
    assert list(found) == ["Event", "Roadside", "Loop", "Radar"]
    assert found["Radar"]["code"] == "24"
    assert found["Radar"]["attributes"] == [
        {"name": "angle", "bit": 7, "type": "float64", "required": False, "unit": None}
    ]
    assert found["Roadside"]["etag"] is None
    assert found["Roadside"]["filters"] == found["Loop"]["filters"]


def test_a_module_is_found_in_the_current_folder(roads: Path) -> None:
    command = [sys.executable, "-c", "from genus.cli import main; main()", "types", "roads", "--json"]
    output = subprocess.run(command, cwd=roads.parent, capture_output=True, check=True).stdout
    assert [entry["name"] for entry in json.loads(output)] == ["Event", "Roadside", "Loop", "Radar"]


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "near" / "neighbour_types.py", "from genus import Event\nclass Near(Event): ...\n")
    user = write(tmp_path / "near" / "neighbour_user.py", "from neighbour_types import Near\n")
    assert [name_of(cls) for cls in load_types(str(user))] == ["Near"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("class 3", r"cannot be imported: invalid syntax"),
        ("x = 3", "declares no event types"),
        ("from genus import Event, Kind", "declares no event types"),
        ("import sys\nsys.exit('bye')", "cannot be imported: bye"),
        ("from genus import Event\nclass A(Event):\n    x: complex", r"cannot be imported: A\.x has type"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "broken_types.py", text)
    with pytest.raises(click.ClickException, match=message) as caught:
        load_types(str(path))
    assert "\n" not in caught.value.message
    result = run("types", path)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1


def test_register_says_what_it_added_and_then_that_there_is_nothing(roads: Path, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    dry = run("catalog", "register", path, roads, "--dry-run")
    assert not path.exists()
    first = run("catalog", "register", path, roads)
    assert dry.output.replace("would add:", "added:") == first.output
    assert first.output.splitlines() == [
        "added: Roadside",
        "added: Loop",
        "added: Radar",
        "added: Loop.lane (attribute)",
        "added: Loop.speed (attribute)",
        "added: Loop.angle (attribute)",
    ]
    assert run("catalog", "register", path, roads).output == "nothing to add\n"


def test_check_ends_with_1_unless_everything_is_registered(roads: Path, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    Catalog().save(path)
    result = run("catalog", "check", path, roads)
    assert result.exit_code == 1
    assert "not registered: Loop" in result.output
    run("catalog", "register", path, roads)
    result = run("catalog", "check", path, roads)
    assert (result.exit_code, result.output) == (0, "all registered\n")
    older = write(tmp_path / "older" / "older_roads.py", ROADS.replace("    speed: Maybe[float] = None\n", ""))
    result = run("catalog", "check", path, older)
    assert result.exit_code == 0
    assert "kept: Loop.speed" in result.output


def test_what_is_refused_ends_with_1_and_changes_nothing(roads: Path, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    run("catalog", "register", path, roads)
    text = path.read_text()
    changed = write(tmp_path / "changed_roads.py", ROADS.replace("lane: int", "lane: str"))
    for arguments in (("check",), ("register", "--dry-run")):
        result = run("catalog", *arguments, path, changed)
        assert result.exit_code == 1
        assert "refused: Loop.lane is str, but int64 in family Loop" in result.output
    assert isinstance(run("catalog", "register", path, changed).exception, CatalogConflict)
    assert path.read_text() == text


def test_check_says_who_uses_a_deprecated_attribute(roads: Path, tmp_path: Path) -> None:
    path, asked = str(tmp_path / "city.json"), tmp_path / "asked.txt"
    asked.write_text("ann: Loop where speed > 30\nbob: Radar has place\ncy: Radar lacks speed\n")
    run("catalog", "register", path, str(roads))
    done = run("catalog", "deprecate", path, "Radar", "speed", "--note", "use velocity")
    assert done.output == "deprecated: Radar.speed\n"
    found = run("catalog", "check", path, str(roads), "--subscriptions", str(asked))
    assert found.output.splitlines() == [
        "deprecated: Loop.speed use velocity",
        f"deprecated: Loop.speed is used by {asked}: ann; use velocity",
        f"deprecated: Loop.speed is used by {asked}: cy; use velocity",
    ]
    assert found.exit_code == 0
    assert "speed: float64? (deprecated: use velocity)" in run("catalog", "show", path).output
    assert run("catalog", "deprecate", path, "Radar", "sped").exit_code == 1


def test_deprecate_show_and_diff(roads: Path, tmp_path: Path) -> None:
    path, old = tmp_path / "catalog.json", tmp_path / "old.json"
    run("catalog", "register", path, roads)
    old.write_bytes(path.read_bytes())
    assert run("catalog", "diff", old, path).output == "no difference\n"
    assert run("catalog", "deprecate", path, "Radar", "--note", "use Loop").output == "deprecated: Radar\n"
    assert "Radar deprecated: use Loop" in run("catalog", "show", path).output
    shown = json.loads(run("catalog", "show", path, "--json").output)
    assert [entry["deprecated"] for entry in shown] == [None, None, None, "use Loop"]
    forward, backward = run("catalog", "diff", old, path), run("catalog", "diff", path, old)
    assert (forward.exit_code, forward.output) == (0, "deprecated: Radar use Loop\n")
    assert (backward.exit_code, backward.output) == (1, "missing: Radar was deprecated: use Loop\n")


def test_a_damaged_file_is_one_line_of_the_whole_command(tmp_path: Path) -> None:
    path = write(tmp_path / "catalog.json", "{")
    assert isinstance(run("catalog", "show", path).exception, CatalogDamaged)
    command = [sys.executable, "-m", "genus", "catalog", "show", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"genus: {path}: line 1 column 2: not JSON")
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert run("catalog", "show", tmp_path / "none.json").exit_code == 2


def test_check_and_diff_show_a_rename(roads: Path, tmp_path: Path) -> None:
    """Before it is registered the check fails; afterwards the new catalog extends the old one."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    run("catalog", "register", old, roads)
    run("catalog", "register", new, roads)
    named = ROADS.replace("speed: Maybe[float]", "velocity: Maybe[Annotated[float, Renamed('speed')]]")
    later = write(tmp_path / "later" / "roads.py", f"from typing import Annotated\nfrom genus import Renamed\n{named}")
    for command, path in (("check", new), ("register", new)):
        result = run("catalog", command, path, later)
        assert (result.output, result.exit_code) == ("renamed: Loop.velocity was speed\n", int(command == "check"))
    result = run("catalog", "diff", old, new)
    assert (result.output, result.exit_code) == ("renamed: Loop bit 6 is velocity, was speed\n", 0)
    assert run("catalog", "diff", new, old).exit_code == 1
    assert "6 velocity: float64? (was speed)" in run("catalog", "show", new, width=160).output


def test_etags_are_given_to_types_that_have_none(roads: Path, tmp_path: Path) -> None:
    path, old = tmp_path / "catalog.json", tmp_path / "old.json"
    with Catalog.editing(path) as catalog:
        fill_etags(catalog)
    run("catalog", "register", path, roads)
    old.write_text(path.read_text())
    shown = {entry["name"]: entry for entry in json.loads(run("catalog", "show", path, "--json").output)}
    assert (shown["Radar"]["etag"], shown["Radar"]["filters"], shown["Roadside"]["filters"]) == (None, [], [])
    assert run("catalog", "show", path).exit_code == 0
    result = run("explain", "-t", roads, "--catalog", path, "--target", "can", "Radar")
    assert "has no event tag yet" in str(result.exception)
    result = run("catalog", "etags", path, "Radar", "Roadside")
    tag = Catalog.load(path).etag("Radar")
    assert result.output == f"Radar: {tag:#06x} (new)\nRoadside: a kind has none\n"
    assert run("catalog", "etags", path, "Radar").output == f"Radar: {tag:#06x}\n"
    result = run("catalog", "diff", old, path)
    assert ("added: Radar has 1 more block(s) of event tags" in result.output, result.exit_code) == (True, 0)
    assert run("explain", "-t", roads, "--catalog", path, "--target", "can", "Radar").exit_code == 0
