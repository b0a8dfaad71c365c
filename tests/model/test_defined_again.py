"""A class that is defined again in its module: the same class if it declares the same, else a warning."""

import importlib
import linecache
import re
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from genus import Catalog, Event, Subscription, open_bus
from genus.errors import DeclarationError, DeclarationWarning, EventError
from genus.model import attributes

CELL = """
from enum import Enum
from typing import Annotated
import msgspec
from genus import Event, Kind, Maybe, Unit

class Roadside(Kind):
    "Beside a road."

class Loop(Event, Roadside, tagged=("place",)):
    lane: int
    speed: Maybe[Annotated[float, Unit("km/h")]] = None
    limit: float = 50
    parts: list[int] = msgspec.field(default_factory=lambda: [1])

    @property
    def is_fast(self):
        return self.speed > self.limit

class Radar(Loop):
    angle: Maybe[float] = None
"""


class Notebook(dict[str, Any]):
    """The names of a notebook, in which cells are run."""

    def run(self, cell: str) -> None:
        """Run a cell whose source Python can find, as notebooks do."""
        text, name = textwrap.dedent(cell), f"<cell {len(linecache.cache)}>"
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec"), self)


@pytest.fixture
def notebook() -> Notebook:
    made = Notebook(__name__="__main__")
    made.run(CELL)
    return made


def test_the_same_declaration_is_the_same_class(notebook: Notebook) -> None:
    before = dict(notebook)
    catalog = Catalog()
    catalog.register(before["Radar"])
    notebook.run(CELL)
    assert [notebook[name] is before[name] for name in ("Roadside", "Loop", "Radar")] == [True] * 3
    assert catalog.code(notebook["Radar"]) == catalog.code(before["Radar"])
    assert not catalog.register(notebook["Radar"])


def test_old_subscriptions_get_new_events_and_the_other_way_round(notebook: Notebook) -> None:
    old_class, old_event = notebook["Loop"], notebook["Radar"](lane=1)
    with open_bus("local:") as bus:
        found: list[Event] = []
        bus.collection(old_class).subscribe(found.append)
        notebook.run(CELL)
        bus.collection(notebook["Loop"]).subscribe(found.append)
        bus.publish(notebook["Radar"](lane=2))
        bus.publish(old_event)
        bus.collection(old_class).publish(notebook["Loop"](lane=3))
    assert [event.lane for event in found] == [2, 2, 1, 1, 3, 3]  # type: ignore[attr-defined]


def test_methods_and_properties_are_those_of_the_last_definition(notebook: Notebook) -> None:
    """They are no part of the declaration; subscriptions made before keep the property that they were made with."""
    loop = notebook["Loop"]
    event = loop(lane=1, speed=60)
    before = Subscription(loop, where="is_fast")
    changed = CELL.replace("self.speed > self.limit", "self.speed > 100").replace(
        "class Radar", "    def text(self):\n        return super().__repr__()\n\nclass Radar"
    )
    notebook.run(changed.replace('"Beside a road."', '"Near a road."'))
    assert notebook["Loop"] is loop
    assert not event.is_fast
    assert event.text() == repr(event)
    assert notebook["Roadside"].__doc__ == "Near a road."
    assert before.matches(event)
    assert not Subscription(loop, where="is_fast").matches(event)
    notebook.run(CELL)
    assert not hasattr(event, "text")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lane: int\n", "lane: str\n", "Loop is defined again with another annotation of lane"),
        ("lane: int\n", "lane: int\n    more: Maybe[int] = None\n", "Loop is defined again with a new attribute more"),
        ("    lane: int\n", "", "Loop is defined again with no attribute lane"),
        ("limit: float = 50", "limit: float = 60", "Loop is defined again with another default of limit"),
        ("[1]", "[2]", "Loop is defined again with another default of parts"),
        ("(Event, Roadside", "(Event", "Loop is defined again with the bases Event"),
        ('tagged=("place",)', "tagged=()", r"Loop is defined again with tagged=\(\)"),
        ('tagged=("place",)', 'tagged=("place",), name="city.Loop"', r"Loop is defined again with the name city\.Loop"),
        ("Roadside(Kind)", 'Roadside(Kind, name="city.Side")', r"Roadside is defined again with the name city\.Side"),
    ],
)
def test_another_declaration_is_another_class_with_a_warning(
    notebook: Notebook, old: str, new: str, message: str
) -> None:
    loop = notebook["Loop"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notebook.run(CELL.replace(old, new, 1))
    assert {each.category for each in caught} == {DeclarationWarning}
    first, *below = [str(each.message) for each in caught]
    assert re.match(f"{message}, so it is another class: ", first)
    assert all("is defined again with a base that was defined again" in each for each in below)
    assert notebook["Loop"] is not loop
    event = notebook["Loop"](**{each.name: 1 for each in attributes(notebook["Loop"]) if not each.optional})
    with open_bus("local:") as bus, pytest.raises(EventError, match=r"cannot publish a Loop: it is (another class|no)"):
        bus.collection(loop).publish(event)


@pytest.mark.parametrize("note", ["Cat", "Maybe[Cat]", "list[Cat]"])
def test_a_class_of_an_attribute_that_is_defined_again_is_named(notebook: Notebook, note: str) -> None:
    default = " = None" if note.startswith("Maybe") else ""
    cell = f"{CELL}class Cat(Enum):\n    A = 1\nclass Owner(Event):\n    c: {note}{default}\n"
    notebook.run(cell)
    with pytest.warns(DeclarationWarning, match="with an attribute c whose class Cat was defined again, so it is ano"):
        notebook.run(cell)


def test_within_a_family_an_attribute_keeps_its_type(notebook: Notebook) -> None:
    with pytest.raises(DeclarationError, match=r"Radar\.angle is str, but in family Loop .*, or restart the program"):
        notebook.run(CELL.replace("angle: Maybe[float]", "angle: Maybe[str]"))


def test_a_module_that_is_loaded_again_has_the_same_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reloaded_types.py").write_text(CELL)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_types")
    loop = module.Loop
    assert importlib.reload(module).Loop is loop
    del sys.modules["reloaded_types"]


def test_classes_of_functions_and_of_other_programs_are_classes_of_their_own(notebook: Notebook) -> None:
    def declare() -> type[Event]:
        class Lamp(Event):
            watts: float

        return Lamp

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert declare() is not declare()
        other = Notebook(__name__="__main__")
        other.run(CELL)
        assert other["Loop"] is not notebook["Loop"]
        notebook.run("for _ in range(2):\n    Loop = None\n    class Loop(Event):\n        lane: str\n")
