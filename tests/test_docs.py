"""What the documentation shows is what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from genus.cli import COMMANDS
from genus.targets import arrow, can, python, spark
from genus.targets.compiler import Compiler, support_matrix

ROOT = Path(__file__).parents[1]


def test_the_support_matrix_is_the_compilers_own() -> None:
    compilers = (arrow.ArrowCompiler, can.CanCompiler, python.PythonCompiler, spark.SparkCompiler)
    assert {compiler.target for compiler in compilers} == {"arrow", "can", "python", "spark"}
    assert support_matrix() in (ROOT / "docs" / "targets.md").read_text()


def test_a_target_that_forgets_something_fails_when_its_class_is_created() -> None:
    with pytest.raises(TypeError, match="half neither handles nor declares unsupported: Attribute"):

        class HalfCompiler(Compiler):
            target = "half"
            operators = python.PythonCompiler.operators


def test_every_page_is_reached_and_every_link_leads_somewhere() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert pages == listed
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "genus", command, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith(f"Usage: genus {command}")


def test_only_the_readmes_two_commands_are_shown_first() -> None:
    block = re.search(r"```\n(make demo.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block[1].strip().splitlines()] == ["make demo", "make test"]
