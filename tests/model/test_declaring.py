"""Declaring event types: what a class may say, and what is refused with advice."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest

from genus import Event, Float32, Int8, Int16, Kind, Maybe, UInt32, Unit, check
from genus.errors import DeclarationError, EventError, SubscriptionError
from genus.model import attributes, conforms, pure_kind, signature, tagged_attributes, vector
from genus.model.internal import parse_type
from genus.model.types import (
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)


class Gear(Enum):
    PARK = "P"
    DRIVE = "D"


class Point(msgspec.Struct):
    x: float
    y: float


class Moving(Kind):
    @property
    def is_late(self) -> Any:
        return self.time > self.deadline  # type: ignore[attr-defined]


class Heavy(Kind):
    pass


class Car(Event, Moving):
    doors: Int8
    gear: Maybe[Gear] = None
    speed: Annotated[float, Unit("m/s")] = 0.0


class Truck(Car, Heavy):
    load: Maybe[Float32] = None


def declare(*bases: type, options: Any = None, **fields: Any) -> Any:
    metaclass: Any = type(Event) if any(issubclass(base, Event) for base in bases) else type(Kind)
    return metaclass("Bad", bases, {"__annotations__": fields}, **options or {})


def test_a_name_of_its_own() -> None:
    class Wheel(Event, name="vehicle.Wheel"):
        pass

    class Round(Kind, name="vehicle.Round"):
        pass

    assert [signature(cls).name for cls in (Wheel, Round)] == ["vehicle.Wheel", "vehicle.Round"]


def test_tagged_is_of_the_whole_family() -> None:
    root = declare(Event, Moving, options={"tagged": ("x", "place")}, x=int | None)
    below = declare(declare(root, x=int), Heavy, y=int)
    assert tagged_attributes(root) == tagged_attributes(below) == ("x", "place")
    assert [tagged_attributes(cls) for cls in (Car, Event, Moving)] == [(), (), ()]
    assert tagged_attributes(declare(Event, options={"tagged": "place"})) == ("place",)
    assert tagged_attributes(declare(Event, options={"tagged": ["place", "time"]})) == ("place", "time")


def test_the_signature_has_everything_a_target_needs() -> None:
    found = signature(Truck)
    assert found.name == "Truck"
    assert found.parents == ("Car", "Heavy")
    assert found.family == "Car"
    assert not found.is_kind
    assert signature(Moving).is_kind
    assert [a.name for a in found.attributes] == [
        *("time", "source", "place", "deadline", "expires"),
        *("doors", "gear", "speed", "load"),
    ]
    speed = found.attributes[7]
    assert (speed.type, speed.optional, speed.unit) == (FloatType(), False, "m/s")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, BoolType()),
        (int, IntType()),
        (Int16, IntType(16)),
        (UInt32, IntType(32, signed=False)),
        (float, FloatType()),
        (Float32, FloatType(32)),
        (str, TextType()),
        (bytes, BytesType()),
        (datetime, TimeType()),
        (timedelta, DurationType()),
        (Gear, ChoiceType(("P", "D"))),
        (list[int], OpaqueType("list[int]")),
        (Point, OpaqueType("Point")),
    ],
)
def test_each_attribute_type_and_its_description(annotation: Any, expected: Any) -> None:
    made = declare(Event, x=annotation, y=annotation | None)
    required, optional = attributes(made)[-2:]
    assert required.type == optional.type == expected
    assert (required.optional, optional.optional) == (False, True)
    assert parse_type(expected.describe()) == expected


def test_events_are_frozen_compare_by_value_and_show_what_they_carry() -> None:
    event = Car(doors=4, gear=Gear.PARK, place="home")
    assert event == Car(doors=4, gear=Gear.PARK, place="home")
    assert hash(event) == hash(Car(doors=4, gear=Gear.PARK, place="home"))
    assert repr(event) == "Car(place='home', doors=4, gear=<Gear.PARK: 'P'>, speed=0.0)"
    with pytest.raises(AttributeError):
        event.doors = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Car(doors=4, weight=3)  # type: ignore[call-arg]


def test_a_maybe_without_default_is_absent_by_default() -> None:
    made: Any = declare(Event, x=int | None)
    assert made().x is None


def test_a_subtype_may_require_what_its_base_may_lack() -> None:
    class Parked(Car):
        gear: Gear  # pyright: ignore

    assert [a.optional for a in attributes(Parked) if a.name == "gear"] == [False]
    with pytest.raises(TypeError):
        Parked(doors=2)  # type: ignore[call-arg]


def test_string_annotations_are_read() -> None:
    class Later(Event):
        gear: "Maybe[Gear]" = None

    assert attributes(Later)[-1].type == ChoiceType(("P", "D"))


class TestRefused:
    """Each with a message that says what to do."""

    def test_two_bases_with_fields(self) -> None:
        class Boat(Event):
            draught: float

        with pytest.raises(DeclarationError, match=r"Car and Boat: attributes may come from one base only"):
            declare(Car, Boat)

    def test_another_type_than_the_familys_also_between_siblings(self) -> None:
        declare(Car, wheels=int)
        with pytest.raises(DeclarationError, match=r"Bad.wheels is str, but in family Car 'wheels' is int64; rename"):
            declare(Car, wheels=str)
        assert vector(Car).find("wheels").type == IntType(), "and the family did not change"

    @pytest.mark.parametrize("name", ["where", "has", "_private", "this", "from", "None"])
    def test_a_reserved_name(self, name: str) -> None:
        with pytest.raises(DeclarationError, match="reserved"):
            declare(Event, **{name: int})

    @pytest.mark.parametrize("annotation", [object, int | str, complex, Any, "Nowhere"])
    def test_a_type_no_attribute_has(self, annotation: Any) -> None:
        with pytest.raises(DeclarationError, match=r"Bad\.x"):
            declare(Event, x=annotation)

    def test_an_enum_of_mixed_values(self) -> None:
        class Mixed(Enum):
            A = 1
            B = "b"

        with pytest.raises(DeclarationError, match="all str or all int"):
            declare(Event, x=Mixed)

    def test_a_kind_with_fields_or_with_a_stranger_as_base(self) -> None:
        with pytest.raises(DeclarationError, match="a kind has no attributes"):
            declare(Kind, x=int)
        with pytest.raises(DeclarationError, match="dict, which is no kind"):
            declare(Kind, dict)

    def test_a_required_attribute_made_optional(self) -> None:
        with pytest.raises(DeclarationError, match="a subtype may require more, never less"):
            declare(Car, doors=int | None)

    def test_other_bases_and_options(self) -> None:
        with pytest.raises(DeclarationError, match="derive from Event and kinds only"):
            declare(Event, dict)
        with pytest.raises(DeclarationError, match="must name Event before its kinds"):
            declare(Moving, Event)
        with pytest.raises(DeclarationError, match="takes no option frozen"):
            declare(Event, options={"frozen": False})
        with pytest.raises(DeclarationError, match="cannot be named 'a b'"):
            declare(Event, options={"name": "a b"})

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (("place", "wheels"), "'wheels' in tagged=, which is no attribute of it; its attributes are time, source"),
            (("doors",), r"every event of it carries doors.* leave it out, or make it Maybe"),
            (("place", "place"), "up to 8 attributes, each once"),
            ([f"x{number}" for number in range(9)], "up to 8 attributes, each once"),
            (("place", 3), "3 in tagged=, which is no attribute"),
            (None, "None in tagged=, which is no attribute"),
            ({"place"}, r"\{'place'\} in tagged=, which is no attribute"),
        ],
    )
    def test_tagged_that_event_tags_cannot_tell(self, names: Any, message: str) -> None:
        with pytest.raises(DeclarationError, match=message):
            declare(Event, options={"tagged": names}, doors=int, **{f"x{number}": int | None for number in range(9)})

    def test_tagged_anywhere_but_at_the_root_of_a_family(self) -> None:
        with pytest.raises(DeclarationError, match=r"Bad cannot have tagged=.*directly below Event"):
            declare(Car, options={"tagged": ("place",)})
        with pytest.raises(DeclarationError, match=r"takes no option tagged.*to the root of a family"):
            declare(Kind, options={"tagged": ("place",)})


def test_a_refused_class_leaves_no_trace_in_its_family() -> None:
    with pytest.raises(DeclarationError):
        declare(Car, trace=int, where=int)
    assert vector(Car).get("trace") is None


def test_purity_and_exact_conformance() -> None:
    class Buoy(Event, Heavy):
        """Adds nothing."""

    class Anchor(Event, Heavy):
        """Adds nothing either."""

    class Chain(Event, Heavy):
        links: int

    class Moored(Event, Heavy, Moving):
        """Two kinds: a type of its own."""

    class Fixed(Event, Heavy):
        place: str  # pyright: ignore

    pure = [cls for cls in (Buoy, Anchor, Chain, Moored, Truck) if pure_kind(cls) is not None]
    assert pure == [Buoy, Anchor]
    assert pure_kind(Fixed) is None, "it requires what its kind does not"
    assert conforms(Anchor, Buoy, exact=True), "both stand for the kind"
    assert conforms(Buoy, Heavy, exact=True)
    assert not conforms(Chain, Heavy, exact=True)
    assert not conforms(Moored, Heavy, exact=True)
    assert conforms(Truck, Heavy)
    assert not conforms(Truck, Car, exact=True)


class TestVectors:
    def test_context_first_then_in_order_of_declaration(self) -> None:
        names = [a.name for a in vector(Car)]
        assert names[:9] == ["time", "source", "place", "deadline", "expires", "doors", "gear", "speed", "load"]

    def test_tags_and_back(self) -> None:
        tag = vector(Car).presence_of(["gear", "time"])
        assert tag == 0b1000001
        assert vector(Car).names_of(tag) == ("time", "gear")

    def test_outside_is_refused_with_the_vector(self) -> None:
        with pytest.raises(SubscriptionError, match=r"no attribute 'mast'; its attributes are doors, gear, .* of 10$"):
            vector(Car).presence_of(["mast"])
        with pytest.raises(SubscriptionError, match="reaches outside"):
            vector(Moving).names_of(1 << 5)


@pytest.mark.parametrize(
    "values",
    [
        {"doors": 200},
        {"doors": True},
        {"doors": 4, "gear": "P"},
        {"doors": 4, "speed": "fast"},
        {"doors": 4, "time": datetime(2026, 1, 1)},
        {"doors": 4, "time": datetime.min.replace(tzinfo=UTC).astimezone(UTC).replace(tzinfo=None)},
        {"doors": 4, "place": "\ud800"},
        {"doors": None},
    ],
)
def test_check_names_the_attribute_at_fault(values: dict[str, Any]) -> None:
    with pytest.raises(EventError, match=rf"Car\.{list(values)[-1]} is "):
        check(Car(**values))


def test_check_accepts_what_is_right() -> None:
    check(Truck(doors=2, gear=Gear.DRIVE, speed=3, load=1.5, time=datetime.now(UTC)))


def test_import_is_quick_and_pulls_in_nothing_heavy() -> None:
    """The figure is in docs/benchmarks.md; here only what must not be loaded."""
    code = "import sys, genus; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pyspark", "pyarrow", "numpy", "can", "pandas", "asyncio", "click", "rich", "dataclasses"}
    assert heavy.isdisjoint(loaded)
