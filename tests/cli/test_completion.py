"""`genus completion`: what a shell is told when Tab is pressed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from genus.cli import COMMANDS, HELP_SECTIONS, genus
from genus.cli._completion import LAKE_CATALOG, SHELLS, VARIABLE

SOURCE = """
from genus import Event, Kind

class Roadside(Kind): ...

class Loop(Event, Roadside):
    lane: int

class Lamp(Event, Roadside): ...

print("noise")
"""
HEAVY = ("pyspark", "can.bus", "cantools", "matplotlib", "pyarrow", "numpy")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "completed_road.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("GENUS_TYPES", raising=False)


def completed(text: str) -> list[str]:
    """What may stand in the place of the last word."""
    *words, last = text.split(" ")
    shell = BashComplete(genus, {}, "genus", VARIABLE)
    return [item.value for item in shell.get_completions(words, last)]


def test_commands_are_completed_with_what_they_do() -> None:
    assert completed("")[: len(COMMANDS)] == list(COMMANDS)
    assert completed("re") == ["record", "replay", "records"]
    assert completed("can s") == ["sim"]
    (item,) = BashComplete(genus, {}, "genus", VARIABLE).get_completions([], "repl")
    assert item.help == HELP_SECTIONS["Run a bus"]["replay"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("sub --ti", ["--timeout"]),
        ("pub -t completed_road.py L", ["Lamp", "Loop"]),
        ("sub -t completed_road.py R", ["Roadside"]),
        ("can node can:virtual -t completed_road.py --publish Lo", ["Loop"]),
        ("pub -t broken.py L", []),
        ("pub -t nowhere.py L", []),
        ("pub L", []),
        ("sub --bus i", ["ipc:"]),
        ("can monitor can:u", ["can:udp_multicast"]),
        ("can sim x.toml --faults om", ["omissions"]),
        ("can sim x.toml --pattern s", ["sporadic"]),
        ("explain --target s", ["spark"]),
        ("completion z", ["zsh"]),
        ("doctor la", ["lake"]),
        ("catalog deprecate none.json L", []),
    ],
)
def test_values_are_completed_where_they_can_be(
    text: str, values: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """What a module prints or raises does not get into the line that is typed."""
    assert completed(text) == values
    assert capfd.readouterr() == ("", "")


def test_types_come_from_the_environment_a_catalog_or_a_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    from genus.lake._tables.lake_catalog import CATALOG_FILE

    assert CATALOG_FILE == LAKE_CATALOG
    Path("city").mkdir()
    register = ["catalog", "register", f"city/{CATALOG_FILE}", "completed_road.py"]
    assert CliRunner().invoke(genus, register).exit_code == 0
    assert completed(f"catalog deprecate city/{CATALOG_FILE} L") == ["Lamp", "Loop"]
    assert completed("lake read city L") == ["Lamp", "Loop"]
    assert completed("lake read L") == ["L"], "a folder that begins so"
    monkeypatch.setenv("GENUS_TYPES", "completed_road.py")
    assert completed("pub L") == ["Lamp", "Loop"]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["genus lake read city L", "genus can node can:v", "genus can sim --", "genus pub L"])
def test_completing_imports_nothing_that_takes_long(words: str) -> None:
    around = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), VARIABLE: "bash_complete"}
    command = [sys.executable, "-X", "importtime", "-m", "genus"]
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=60, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "genus.cli" in imported
    assert imported.isdisjoint(HEAVY)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_this_command(shell: str) -> None:
    done = CliRunner().invoke(genus, ["completion", shell])
    assert done.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in done.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script() -> None:
    """`genus` is found where Python is, as in any virtual environment."""
    bin_ = Path(sys.executable).parent
    if not (bin_ / "genus").exists():
        pytest.skip(f"genus is not installed in {bin_}")
    script = 'eval "$(genus completion bash)"\nCOMP_WORDS=(genus can pl)\nCOMP_CWORD=2\n_genus_completion genus\n'
    around = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", f'COMP_WORDBREAKS="=:"\n{script}echo "${{COMPREPLY[@]}}$COMP_WORDBREAKS"']
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "plan=\n", "and a colon does not end a word: addresses have one"
