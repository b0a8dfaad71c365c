"""The API reference has every name that a front door exports, once, and nothing else."""

import ast
import inspect
import re
from collections import Counter
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import click
import pytest

from tests.front_doors import DOORS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
PRIVATE_IMPORT = re.compile(r">>> (?:from|import) genus[\w.]*\._.*")
LINK = re.compile(r"\[`(\w+)`\]\[(genus[\w.]*)\]")


@cache
def entries() -> Counter[str]:
    """All names that the pages document, by their path."""
    return Counter(name for page in PAGES for name in ENTRY.findall(page.read_text()))


@cache
def links(door: str) -> dict[str, str]:
    """The names that the page of a front door lists with a link to the page of another one."""
    page = "index" if door == "genus" else door.removeprefix("genus.")
    path = ROOT / "docs" / "api" / f"{page}.md"
    return dict(LINK.findall(path.read_text())) if path.exists() else {}


def resolve(path: str) -> object:
    """The object at a path such as `genus.bus.Bus`; AttributeError or ImportError if there is none."""
    if path in DOORS:
        return import_module(path)
    door, _, name = path.rpartition(".")
    assert name in import_module(door).__all__, f"{path} is not exported"
    return getattr(import_module(door), name)


@cache
def documented_assignments(folder: Path) -> set[str]:
    """The constants and type aliases of a room that a docstring follows."""
    files = folder.rglob("*.py") if folder.is_dir() else [folder]
    return {name for file in files for name in _documented_in(ast.parse(file.read_text()).body)}


def _documented_in(body: list[ast.stmt]) -> list[str]:
    nested = [name for statement in body if isinstance(statement, ast.If) for name in _documented_in(statement.body)]
    return nested + [
        target.id
        for statement, docstring in pairwise(body)
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    ]


def is_documented(door: str, name: str) -> bool:
    """Whether a name has a docstring of its own."""
    thing = getattr(import_module(door), name)
    if inspect.isclass(thing):
        return bool(vars(thing).get("__doc__"))
    if inspect.isroutine(thing) or isinstance(thing, ModuleType):
        return bool(inspect.getdoc(thing))
    if isinstance(thing, click.Command):
        return bool(thing.help)
    room = ROOT.joinpath("src", *door.split(".")[:2])
    return name in documented_assignments(room if room.is_dir() else room.with_suffix(".py"))


@pytest.mark.parametrize("door", DOORS)
def test_every_exported_name_has_a_docstring(door: str) -> None:
    if door != "genus":  # its names are documented in their rooms
        assert [name for name in import_module(door).__all__ if not is_documented(door, name)] == []


@pytest.mark.parametrize("door", DOORS)
def test_every_exported_name_is_on_one_page(door: str) -> None:
    exported = import_module(door).__all__
    assert len(set(exported)) == len(exported)
    for name in exported:
        linked = links(door).get(name)
        assert entries()[f"{door}.{name}"] == (0 if linked else 1), f"{door}.{name}"
        assert not linked or resolve(linked) is getattr(import_module(door), name)


def test_pages_document_only_what_exists_and_is_exported() -> None:
    for path in entries():
        resolve(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_names_lead_to_an_entry(page: Path) -> None:
    for name, path in LINK.findall(page.read_text()):
        assert path in entries(), f"{name} -> {path}"


@pytest.mark.parametrize("door", DOORS)
def test_examples_in_docstrings_import_front_doors_only(door: str) -> None:
    exported = [getattr(import_module(door), name) for name in import_module(door).__all__]
    members = [member for thing in exported if inspect.isclass(thing) for member in vars(thing).values()]
    texts = [getattr(thing, "__doc__", None) or "" for thing in [*exported, *members]]
    assert [line for text in texts for line in PRIVATE_IMPORT.findall(text)] == []
