"""The front doors of the lower rooms: every exported name exists and is documented."""

import inspect
from importlib import import_module

import pytest

ROOMS = ("genus.errors", "genus.model", "genus.codes", "genus.catalog", "genus.filters", "genus.targets")
TARGETS = tuple(f"genus.targets.{name}" for name in ("arrow", "can", "dispatch", "index", "python", "spark"))


def documented(thing: object) -> bool:
    """Whether a class has a docstring of its own, or a function has one; constants and aliases need none."""
    if inspect.isclass(thing):
        return bool(vars(thing).get("__doc__"))
    return not inspect.isroutine(thing) or bool(inspect.getdoc(thing))


@pytest.mark.parametrize("name", [*ROOMS, *TARGETS])
def test_every_exported_name_exists_and_is_documented(name: str) -> None:
    room = import_module(name)
    assert len(set(room.__all__)) == len(room.__all__)
    assert [each for each in room.__all__ if not documented(getattr(room, each))] == []


@pytest.mark.parametrize("name", [*ROOMS, *TARGETS])
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
