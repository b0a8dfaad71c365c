"""`Renamed`: the former names of an attribute, and what is refused when a class is declared."""

from typing import Annotated, Any

import pytest

from genus import Event, Maybe, Renamed, Subscription, Unit
from genus.errors import DeclarationError, SubscriptionError
from genus.model import attributes, vector


def event_type(base: type, **notes: Any) -> Any:
    metaclass: Any = type(Event)
    return metaclass("Made", (base,), {"__annotations__": notes, "__module__": __name__})


class Loop(Event):
    lane: int
    velocity: Maybe[Annotated[float, Unit("m/s"), Renamed("speed", "v")]] = None


class Radar(Loop):
    velocity: Annotated[float, Unit("m/s")]


def test_an_attribute_knows_its_former_names_beside_unit_and_maybe() -> None:
    found = vector(Loop).find("velocity")
    assert (found.former, found.unit, found.optional) == (("speed", "v"), "m/s", True)
    assert str(found) == "velocity: float64?"


def test_the_order_of_annotations_does_not_matter() -> None:
    notes = (Annotated[float, Renamed("speed")] | None, Annotated[float, Renamed("speed"), Unit("m")] | None)
    assert all(vector(event_type(Event, v=note)).find("v").former == ("speed",) for note in notes)
    both = event_type(Event, v=Annotated[float, Renamed("speed"), Renamed("pace", "speed")])
    assert vector(both).find("v").former == ("speed", "pace")


def test_a_class_that_narrows_an_attribute_has_its_former_names_too() -> None:
    assert next(each for each in attributes(Radar) if each.name == "velocity").former == ("speed", "v")


@pytest.mark.parametrize("use", [{"has": "speed"}, {"lacks": "v"}, {"where": "speed > 3"}])
def test_a_subscription_by_a_former_name_is_told_the_present_one(use: dict[str, Any]) -> None:
    with pytest.raises(SubscriptionError, match=r"has no attribute '(speed|v)'; it was renamed to 'velocity'"):
        Subscription(Loop, **use)


def test_the_text_of_a_subscription_too_with_the_column() -> None:
    with pytest.raises(SubscriptionError, match=r"it was renamed to 'velocity'.*column 12"):
        Subscription.parse("Loop where speed > 3", [Loop])


REFUSED: dict[str, tuple[type, dict[str, Any], str]] = {
    "its own name": (Event, {"v": Annotated[int, Renamed("v")]}, r"Made\.v is renamed from 'v', which is its present"),
    "no name": (Event, {"v": Annotated[int, Renamed("a b")]}, r"Made\.v is renamed from 'a b', which is no name"),
    "one that the class has": (
        Event,
        {"speed": float, "v": Annotated[float, Renamed("speed")]},
        r"Made: 'speed' is a former name of 'v' .* also an attribute of family Made; rename it in every class",
    ),
    "one that every event has": (Event, {"v": Annotated[str, Renamed("place")]}, "'place' is a former name of 'v'"),
    "one that another class of the family has": (
        Loop,
        {"row": Annotated[int, Renamed("lane")]},
        r"Made: 'lane' is a former name of 'row' .* family Loop",
    ),
    "two from one": (
        Event,
        {"v": Annotated[float, Renamed("speed")], "w": Annotated[float, Renamed("speed")]},
        "'v' and 'w' are both renamed from 'speed'",
    ),
    "the same as in another class": (
        Loop,
        {"w": Annotated[float, Renamed("speed")] | None},
        "'velocity' and 'w' are both renamed from 'speed'",
    ),
    "a former name used again": (Loop, {"speed": float | None}, "'speed' is a former name of 'velocity'"),
    "renamed below only": (
        Loop,
        {"lane": Annotated[int, Renamed("row")]},
        r"Made\.lane is renamed from row, but family Loop has 'lane' already without that; write Renamed where",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_names(case: str) -> None:
    base, notes, message = REFUSED[case]
    before = vector(base)
    with pytest.raises(DeclarationError, match=message):
        event_type(base, **notes)
    assert vector(base) == before


@pytest.mark.parametrize("names", [(), (5,), ("speed", None)])
def test_renamed_takes_names(names: tuple[Any, ...]) -> None:
    with pytest.raises(DeclarationError, match="Renamed takes former names"):
        Renamed(*names)


def test_equal_if_the_names_are() -> None:
    assert Renamed("a", "b") == Renamed("a", "b") != Renamed("a")
    assert len({Renamed("a"), Renamed("a")}) == 1
    assert repr(Renamed("a", "b")) == "Renamed('a', 'b')"
