"""Front doors: what they export exists and is documented; docs, examples and applications import nothing else."""

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.front_doors import DOORS, INTERNAL, ROOMS, SOURCE, TARGETS, TYPES

ROOT = Path(__file__).parents[1]

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = [*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "apps").glob("*/src/**/*.py"))]
FENCED = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", [*ROOMS, *TARGETS, *TYPES])
def test_every_public_method_of_an_exported_class_is_documented(name: str) -> None:
    room = import_module(name)
    classes = [cls for each in room.__all__ if inspect.isclass(cls := getattr(room, each))]
    undocumented = [
        f"{cls.__name__}.{member}"
        for cls in classes
        for member, value in vars(cls).items()
        if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
        if not inspect.getdoc(value)
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", ["genus", *ROOMS, *TYPES])
def test_dir_of_a_door_lists_what_it_exports_and_nothing_else(name: str) -> None:
    door = import_module(name)
    if "lazy" in vars(door):
        assert dir(door) == sorted(door.__all__)


def test_help_of_a_room_describes_its_names() -> None:
    text = pydoc.plain(pydoc.render_doc(import_module("genus.net")))
    missing = [name for name in import_module("genus.net").__all__ if name not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("door", "name", "missing", "extra"),
    [
        ("genus.net", "infer_sparkplug", "google.protobuf", "sparkplug"),
        ("genus.testing", "spark_session", "pyspark", "lake"),
        ("genus.testing", "compiled_expressions", "pyspark.sql", "lake"),
    ],
)
def test_names_of_an_extra_that_is_not_installed_say_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, door: str, name: str, missing: str, extra: str
) -> None:
    def fail(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    room = import_module(door)
    monkeypatch.setattr("genus._lazy.import_module", fail)
    with pytest.raises(ImportError, match=rf"{door}.{name} needs .*: pip install .*\[{extra}\]"):
        room.__getattr__(name)


def imported(code: str) -> Iterator[tuple[str, str | None]]:
    """The modules of Genus that a program imports, each with the name that is taken from it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


def wrong_imports(code: str) -> list[str]:
    """The imports of Genus that name something which no front door exports."""
    return [
        f"{module}.{name}" if name else module
        for module, name in imported(code)
        if module.split(".")[0] == "genus"
        if module not in DOORS or (name and not _exports(module, name))
    ]


def _exports(door: str, name: str) -> bool:
    module = import_module(door)
    return name in module.__all__ if hasattr(module, "__all__") else not name.startswith("_")


def test_private_modules_and_names_that_are_not_exported_are_found() -> None:
    assert wrong_imports("from genus.bus._bus import Bus\nimport genus.can._live") == [
        "genus.bus._bus.Bus",
        "genus.can._live",
    ]
    assert wrong_imports("from genus.errors import did_you_mean\nfrom genus import Event, can") == [
        "genus.errors.did_you_mean",
        "genus.can",
    ]
    assert wrong_imports("import genus.can\nfrom genus.targets import python\nfrom genus.cli import on_spark") == []


def test_pages_import_front_doors_only() -> None:
    wrong = {}
    for page in PAGES:
        for block in FENCED.findall(page.read_text()):
            code = "\n".join(re.findall(r"^(?:>>>|\.\.\.) ?(.*)", block, re.MULTILINE)) if ">>> " in block else block
            if found := wrong_imports(code):
                wrong[page.relative_to(ROOT).as_posix()] = found
    assert wrong == {}


def test_examples_and_applications_import_front_doors_only() -> None:
    found = {program.relative_to(ROOT).as_posix(): wrong_imports(program.read_text()) for program in PROGRAMS}
    assert {program: wrong for program, wrong in found.items() if wrong} == {}


DOORS_ONLY = ("genus.cli", "genus.studio")
SHARED = ("genus", *(f"genus.{file.stem}" for file in SOURCE.glob("genus/_[a-z]*.py")))
"""Modules beside the rooms: every room may use what they have."""


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "genus.errors"])
def test_rooms_import_doors_and_internal_modules_of_each_other(room: str) -> None:
    allowed = {*DOORS, *SHARED, *(() if room in DOORS_ONLY else INTERNAL)}
    wrong = {
        f"{file.relative_to(SOURCE)}: {module}.{name or ''}"
        for file in SOURCE.joinpath(*room.split(".")).rglob("*.py")
        for module, name in imported(file.read_text())
        if f"{module}.".startswith("genus.") and not f"{module}.".startswith(f"{room}.")
        if module not in allowed or (name or "").startswith("_")
    }
    assert wrong == set()
