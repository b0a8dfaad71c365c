"""What constructors and defaults refuse, and how they say so."""

import copy
import pickle
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from genus import Event, Maybe, UInt8
from genus.errors import DeclarationError, EventError
from tests.generators import Colour


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    colour: Colour = Colour.RED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lane": 1, "sped": 3},
            "Loop has no attribute 'sped'; did you mean 'speed'? its attributes are ",
        ),
        ({"lane": 1, "plcae": 3}, "Loop has no attribute 'plcae'; did you mean 'place'?"),
        ({"x": 1}, "Loop has no attribute 'x'; its attributes are lane, speed, colour, time, source ... of 8"),
        ({"speed": 1.5}, "Loop requires lane, but 'lane' was not given"),
        ({}, "Loop requires lane, but 'lane' was not given"),
    ],
)
def test_a_wrong_call_names_the_class_and_what_to_write(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError) as caught:
        Loop(**given)
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, TypeError)


def test_attributes_are_given_by_name() -> None:
    cls: Any = Loop
    with pytest.raises(EventError, match=r"^Loop takes its attributes by name: write Loop\(lane=1, speed=2.5\)$"):
        cls(1, 2.5)


def test_an_error_of_a_default_function_is_left_as_it_is() -> None:
    def fail() -> int:
        raise TypeError("no number today")

    class Lamp(Event):
        number: int = msgspec.field(default_factory=fail)

    with pytest.raises(TypeError, match=r"^no number today$"):
        Lamp()


def test_events_are_copied_pickled_and_replaced_as_they_are() -> None:
    made = Loop(lane=np.int64(2), speed=np.float32(0.5))  # type: ignore[arg-type]
    assert [copy.copy(made), pickle.loads(pickle.dumps(made)), msgspec.structs.replace(made)] == [made] * 3
    assert type(msgspec.structs.replace(made, place="a").lane) is int


DEFAULTS: list[tuple[Any, Any, bool]] = [
    (int, "a", False),
    (int, 3, True),
    (int, True, False),
    (int, 2**63, False),
    (int, None, False),
    (int | None, None, True),
    (int | None, "a", False),
    (UInt8, 300, False),
    (UInt8, np.int64(200), True),
    (Annotated[int, msgspec.Meta(ge=0)], -1, False),
    (float, 3, True),
    (float, "3", False),
    (Colour, "red", False),
    (Colour, Colour.RED, True),
    (str, b"", False),
    (datetime, datetime(2026, 1, 1), False),
    (timedelta, timedelta.max, False),
    (timedelta, np.timedelta64(1, "s"), True),
    (list[int], [], True),
    (list[int], ["a"], False),
]


@pytest.mark.parametrize(("annotation", "default", "good"), DEFAULTS)
def test_a_default_is_a_value_that_the_attribute_may_have(annotation: Any, default: Any, good: bool) -> None:
    namespace = {"__annotations__": {"x": annotation}, "x": default}
    metaclass: Any = type(Event)
    if good:
        made: Any = metaclass("Lamp", (Event,), namespace)()
        assert made.x == default
        assert "numpy" not in type(made.x).__module__
    else:
        with pytest.raises(DeclarationError, match=r"^Lamp\.x has the default .*, but must be "):
            metaclass("Lamp", (Event,), namespace)


def test_a_dataclass_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"^Loop is an event type and needs no @dataclass; leave that out$"):
        dataclass(Loop)
    assert Loop(lane=1) == Loop(lane=1)
