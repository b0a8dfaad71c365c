"""Creating events: what is refused, and what the message says."""

import pickle
from copy import copy
from enum import Enum

import msgspec
import pytest

from genus import Event, Kind, Maybe, check
from genus.errors import EventError
from genus.model import attributes


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Roadside(Kind):
    pass


class Moving(Roadside):
    pass


class Loop(Event, Roadside):
    lane: int
    length: float
    category: Maybe[Category] = None
    valid: bool = True


class Radar(Loop):
    speed: float
    label: str = msgspec.field(default="none")


class Camera(Loop):
    category: Category


def test_a_missing_attribute_is_named_with_the_class() -> None:
    with pytest.raises(EventError, match=r"^Loop requires lane, length, but 'lane' was not given$"):
        Loop()  # type: ignore[call-arg]
    with pytest.raises(EventError, match=r"^Loop requires lane, length, but 'length' was not given$"):
        Loop(lane=1)  # type: ignore[call-arg]
    assert isinstance(Loop(lane=1, length=2.5), Loop)


def test_the_class_is_the_one_that_was_called_not_the_one_that_declares_the_attribute() -> None:
    with pytest.raises(EventError, match=r"^Radar requires lane, length, speed, but 'lane' was not given$"):
        Radar(length=2.5, speed=3.0)  # type: ignore[call-arg]
    with pytest.raises(EventError, match=r"^Camera requires lane, length, category, but 'category' was not given$"):
        Camera(lane=1, length=2.5)  # type: ignore[call-arg]


def test_it_is_a_type_error_as_for_any_call_and_a_validation_error_for_decoders() -> None:
    with pytest.raises(TypeError):
        Loop()  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError, match="Loop requires lane, length"):
        msgspec.json.decode(b"{}", type=Loop)
    with pytest.raises(msgspec.ValidationError, match="Loop requires lane, length"):
        msgspec.convert({}, Loop)


def test_order_of_attributes_and_encoding_do_not_depend_on_it() -> None:
    assert Radar.__struct_fields__ == tuple(attribute.name for attribute in attributes(Radar))
    event = Radar(lane=1, length=2.5, speed=3.0)
    assert msgspec.json.encode(event) == b'{"lane":1,"length":2.5,"valid":true,"speed":3.0,"label":"none"}'
    assert msgspec.json.decode(msgspec.json.encode(event), type=Radar) == event == copy(event)
    assert pickle.loads(pickle.dumps(event)) == event


def test_a_kind_has_no_events() -> None:
    with pytest.raises(EventError, match=r"Roadside is a kind and has no events of its own.*such as Loop$"):
        Roadside()
    with pytest.raises(EventError, match=r"such as class X\(Event, Moving\)$"):
        Moving()


def test_a_wrong_enum_value_is_answered_with_the_members() -> None:
    with pytest.raises(
        EventError, match=r"Loop\.category is 'truck', but must be one of Category\.TRUCK, Category\.CAR"
    ):
        check(Loop(lane=1, length=2.5, category="truck"))  # type: ignore[arg-type]
    check(Loop(lane=1, length=2.5, category=Category.TRUCK))
