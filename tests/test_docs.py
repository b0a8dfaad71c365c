"""What the documentation shows is what there is."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from bench import hops
from docs.pictures.gallery import PICTURES
from docs.pictures.rooms import PURPOSES, room_layers
from genus.cli import genus
from genus.targets import arrow, python, support_matrix
from genus.targets._compiler import Compiler
from genus.targets.c._compiler import CCompiler
from genus.targets.can._compiler import CanCompiler
from genus.targets.coap import CoapCompiler
from genus.targets.spark._compiler import SparkCompiler
from genus.targets.topics._compiler import TopicsCompiler

ROOT = Path(__file__).parents[1]
HELP = ["-h", "--help"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = re.compile(r"<!-- run -->\n+```console\n(.*?)```", re.DOTALL)
"""Commands that are shown with what they print: a block of the kind `console` with this comment before it."""


FENCED = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ |echo .* \| )?genus +(?!=)(.*)", re.MULTILINE)


class Shown(NamedTuple):
    """A command as a page shows it."""

    page: str
    command: str
    output: str


def shown_commands() -> Iterator[Shown]:
    """All commands that pages show to be run, with what they are said to print."""
    for page in PAGES:
        for block in RUN.findall(page.read_text()):
            for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = example.partition("\n")
                yield Shown(page.name, command, output)


def test_the_support_matrix_is_the_compilers_own() -> None:
    compilers = (
        arrow.ArrowCompiler,
        CCompiler,
        CanCompiler,
        CoapCompiler,
        python.PythonCompiler,
        SparkCompiler,
        TopicsCompiler,
    )
    assert {compiler.target for compiler in compilers} == {"arrow", "c", "can", "coap", "python", "spark", "topics"}
    assert support_matrix() in (ROOT / "docs" / "subscriptions.md").read_text()


def test_a_target_that_forgets_something_fails_when_its_class_is_created() -> None:
    with pytest.raises(TypeError, match="half neither handles nor declares unsupported: Attribute"):

        class HalfCompiler(Compiler):
            target = "half"
            operators = python.PythonCompiler.operators


def test_every_page_is_reached() -> None:
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == pages | {"contributing.md", "changelog.md"}  # made from files outside docs/, by docs/hooks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading_there(page: Path) -> None:
    for link, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if link.startswith("https://"):
            continue
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not heading or heading in headings(target), f"{link}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_have_at_most_120_characters(page: Path) -> None:
    """Tables, code and the targets of links may be longer."""
    prose = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "``", FENCED.sub("", page.read_text())))
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))] == []


def headings(page: Path) -> set[str]:
    """The names by which a site links to the headings of a page."""
    found = re.findall(r"^#+ (.*)", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in found}


def test_only_the_readmes_two_commands_are_shown_first() -> None:
    block = re.search(r"```\n(make demo.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block[1].strip().splitlines()] == ["make demo", "make test"]


def test_the_readmes_code_has_fifteen_lines_at_most() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_types_are(name: str) -> None:
    """Pictures hold codes, tags and generated code: `python -m docs.pictures` draws them anew when these change."""
    assert (ROOT / "docs" / f"{name}.svg").read_text() == PICTURES[name]().svg()


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case if case in hops.QUICK else pytest.param(case, marks=pytest.mark.slow) for case in hops.CASES]
)
def test_the_way_of_an_event_is_as_measured(case: str) -> None:
    """`python -m bench.hops --write` measures it again when the code has changed."""
    command = [sys.executable, "-m", "bench.hops", case]
    measured = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    tables = dict(re.findall(r"<!-- hops: (.*?) -->\n\n(.*?)\n\n<!-- end -->", hops.PAGE.read_text(), re.DOTALL))
    assert measured == f"{case}\n\n{tables[case]}\n\n"


def test_the_picture_of_the_rooms_has_every_room() -> None:
    packages = {path.name for path in (ROOT / "src" / "genus").iterdir() if (path / "__init__.py").exists()}
    drawn = {room for layer in room_layers() for room in layer}
    assert drawn - {"errors"} == packages == set(PURPOSES) - {"errors"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_that_is_shown_exists(page: Path) -> None:
    for block in FENCED.findall(page.read_text()):
        for line in COMMAND.findall(block):
            words = shlex.split(line, comments=True)
            command: click.Command = genus
            while isinstance(command, click.Group):
                found = command.get_command(click.Context(command, help_option_names=HELP), words.pop(0))
                assert found is not None, line
                command = found
            command.make_parser(click.Context(command, help_option_names=HELP)).parse_args(words)


@pytest.mark.parametrize("shown", list(shown_commands()), ids=lambda shown: f"{shown.page}: {shown.command}")
def test_a_command_prints_what_is_shown(shown: Shown) -> None:
    """`...` in what is shown stands for anything; without any output shown, the command must only succeed."""
    program, *rest = shlex.split(shown.command)
    assert program == "genus", "only the command of Genus is run"
    done = subprocess.run(
        [sys.executable, "-m", "genus", *rest], capture_output=True, text=True, cwd=ROOT, env={"COLUMNS": "80"}
    )
    assert done.returncode == 0, done.stderr
    if shown.output:
        wanted = ".*?".join(re.escape(part) for part in tidy(shown.output).split("..."))
        assert re.fullmatch(wanted, tidy(done.stdout), re.DOTALL), done.stdout


def tidy(text: str) -> str:
    """With single blanks, and without the rules of tables, whose lengths depend on the width of the screen."""
    return " ".join(word for word in text.split() if set(word) != {"─"})
