"""Declaring from a catalog: classes for events of types this process never imported."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Float32, Int8, Int16, Kind, Maybe, Subscription, UInt8, UInt16, UInt32, Unit, check
from genus.catalog import Catalog
from genus.errors import DeclarationError, EventError, NotRegistered
from genus.model import Int32, attributes, name_of, parents, tagged_attributes, vector
from tests.examples import examples

from .declaring import event_type, hierarchies, kind, reread


class Category(Enum):
    CAR = "car"
    TRUCK = "truck, heavy"


class Gear(Enum):
    REVERSE = -1
    FIRST = 1


class Position(msgspec.Struct):
    x: float
    y: float


class Roadside(Kind, name="city.Roadside"): ...


class Lit(Roadside): ...


class Everything(Event, Lit, name="city.Everything", tagged=("category", "place")):
    """An attribute of every type."""

    flag: bool
    number: int
    tiny: Int8
    short: Int16
    narrow: Int32
    octet: UInt8
    word: UInt16
    count: UInt32
    real: Annotated[float, Unit("km/h")]
    single: Annotated[Float32, Unit("°C")]
    text: str
    blob: bytes
    when: datetime
    span: timedelta
    gear: Gear
    category: Maybe[Category] = None
    position: Maybe[Position] = None
    points: Maybe[list[int]] = None
    label: Maybe[Annotated[str, Unit("“quoted”")]] = None


class Narrowed(Everything):
    """What is optional above it requires."""

    category: Category
    place: str
    more: Maybe[dict[str, float]] = None


class Pure(Event, Lit): ...


CLASSES = (Everything, Narrowed, Pure)

IN_ANOTHER_PROCESS = """
import sys
from genus.catalog import Catalog
from genus.model import tagged_attributes
path = sys.argv[1]
catalog = Catalog.load(path)
classes = [catalog.declare(name) for name in catalog.types]
assert all(cls is catalog.declare(name) for cls, name in zip(classes, catalog.types))
assert not catalog.register(*classes)
assert catalog.check(*classes) == []
assert catalog.text() == Catalog.load(path).text() == open(path, encoding="utf-8").read()
fresh = Catalog()
fresh.register(*classes)
assert {n: (e.parents, e.attributes) for n, e in fresh.entries.items()} == {
    n: (e.parents, e.attributes) for n, e in catalog.entries.items()}
assert {n: set(v) for n, v in fresh.families.items()} == {n: set(v) for n, v in catalog.families.items()}
assert all(fresh.tagged_attributes(name) == catalog.tagged_attributes(name) for name in catalog.types)
print(len(classes))
"""


def elsewhere(*classes: type, far: str = "Far") -> Catalog:
    """A catalog of such classes under names that no class of this process has."""
    catalog = Catalog()
    catalog.register(*classes)
    return Catalog._parse("memory", catalog.text().replace('"Type', f'"{far}').replace('"Kind', '"Sort'))


def test_another_process_declares_all_and_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    catalog, _ = Catalog.update(path, *CLASSES)
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) == len(catalog.types)


@examples(60)
@given(hierarchies())
def test_whatever_is_declared_from_a_catalog_adds_nothing_to_it(made: list[type]) -> None:
    catalog = elsewhere(*made)
    text = catalog.text()
    classes = [catalog.declare(name) for name in reversed(catalog.types)]
    assert not catalog.register(*classes)
    assert catalog.check(*classes) == []
    assert catalog.text() == text
    for cls in classes:
        entry = catalog.entries[name_of(cls)]
        assert tuple(map(name_of, parents(cls))) == entry.parents
        assert tagged_attributes(cls) == catalog.tagged_attributes(cls)
        if not entry.kind and cls is not Event:
            assert [a.name for a in vector(cls)] == [a.name for a in catalog.vector(cls)]


@examples(30)
@given(hierarchies(size=6), st.integers(0, 99))
def test_events_of_declared_classes_have_the_tags_of_the_real_ones(made: list[type], seed: int) -> None:
    from tests.generators import Generator

    real, catalog = Catalog(), elsewhere(*made)
    real.register(*made)
    for cls in made:
        if issubclass(cls, Event):
            event = Generator(seed).event(cls)
            far = catalog.declare(name_of(cls).replace("Type", "Far"))
            same = far(**{name: getattr(event, name) for name in event.__struct_fields__})
            assert catalog.etag_of(same) == real.etag_of(event)
            assert catalog.tag(same) == real.tag(event)


def test_the_class_of_this_process_goes_first() -> None:
    catalog = Catalog()
    catalog.register(*CLASSES)
    assert [reread(catalog).declare(name_of(cls)) for cls in (*CLASSES, Lit)] == [*CLASSES, Lit]
    assert reread(catalog).declare("Event") is Event


def test_an_older_class_of_this_process_goes_first_too() -> None:
    """It knows less, and every event it does know is still a valid one."""
    catalog = Catalog()
    catalog.register(event_type("Sluice", fields={"level": float, "gate": int | None}))
    older = event_type("Sluice", fields={"level": float})
    assert reread(catalog).declare("Sluice") is older


def test_a_class_of_this_process_that_does_not_fit_is_passed_over() -> None:
    catalog = Catalog()
    catalog.register(event_type("Weir", fields={"level": float}))
    other = event_type("Weir", fields={"level": str})
    newer = event_type("Weir", fields={"level": float, "gate": int | None})
    made = Catalog._parse("memory", catalog.text()).declare("Weir")
    assert made not in (other, newer)


def test_a_registered_class_goes_before_a_later_one() -> None:
    catalog = Catalog()
    first = event_type("Dam", fields={"level": float})
    catalog.register(first)
    later = event_type("Dam", fields={"level": float})
    assert catalog.declare("Dam") is first
    assert later is not first


def test_a_type_below_a_declared_one_is_declared_below_it() -> None:
    """A class that came later, below another class of the parent's name, would not be delivered to its subscribers."""
    catalog = elsewhere(event_type("Type1", event_type("Type0")), far="Late")
    parent = catalog.declare("Late0")
    late = event_type("Late1", event_type("Late0"))
    assert catalog.declare("Late1") is not late
    assert issubclass(catalog.declare("Late1"), parent)


def test_the_real_class_is_welcome_after_its_stand_in() -> None:
    catalog = elsewhere(event_type("Type0", fields={"x": int | None}, tagged=("x",)), far="Real")
    made = catalog.declare("Real0")
    event = made(x=1)
    etag = catalog.etag_of(event)
    real = event_type("Real0", fields={"x": int | None}, tagged=("x",))
    assert not catalog.register(real)
    assert catalog.etag_of(real(x=1)) == etag == catalog.etag_of(event)
    assert catalog.declare("Real0") is made


def test_a_subscription_to_a_declared_type_may_name_what_types_below_carry() -> None:
    root = event_type("Type0", fields={"x": int | None})
    catalog = elsewhere(event_type("Type1", root, fields={"y": Category | None}))
    subscription = Subscription(catalog.declare("Far0"), has="y")
    below = catalog.declare("Far1")
    assert subscription.matches(below(y=next(iter(below.__annotations__["y"].__args__[0]))))


def test_a_declared_enum_is_one_for_the_family_and_checked() -> None:
    root = event_type("Type0", fields={"c": Category | None})
    catalog = elsewhere(event_type("Type1", root, fields={"c": Category}), event_type("Type2", root))
    enums = {a.type.enum for name in ("Far0", "Far1", "Far2") for a in attributes(catalog.declare(name))[5:]}  # type: ignore[union-attr]
    assert len(enums) == 1
    (found,) = enums
    assert [(member.name, member.value) for member in found] == [("CAR", "car"), ("TRUCK__HEAVY", "truck, heavy")]  # type: ignore[union-attr]
    check(catalog.declare("Far1")(c=found("car")))  # type: ignore[misc]
    with pytest.raises(EventError):
        check(catalog.declare("Far1")(c="car"))


def test_a_declared_class_reads_what_the_real_one_wrote() -> None:
    """Opaque attributes come as plain lists and dicts, whatever struct they were."""
    real = event_type("Type0", fields={"at": Position, "points": list[int] | None, "when": datetime, "c": Category})
    made = elsewhere(real).declare("Far0")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    data = msgspec.msgpack.encode(real(at=Position(1.0, 2.0), points=[1, 2], when=now, c=Category.CAR, place="A8"))
    read = msgspec.msgpack.decode(data, type=made)
    assert (read.at, read.points, read.when, read.c.value) == ({"x": 1.0, "y": 2.0}, [1, 2], now, "car")
    assert msgspec.msgpack.encode(read) == data
    for wrong in ({"at": {}, "when": 1, "c": "car"}, {"at": {}, "when": now, "c": "bus"}, {"c": "car", "when": now}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=made)


def test_a_sibling_here_that_contradicts_the_catalog_is_named() -> None:
    root = event_type("Lock", fields={"level": float})
    text = Catalog()
    text.register(
        root, event_type("LockGate", event_type("Lock", fields={"level": float}), fields={"speed": int | None})
    )
    event_type("LockBridge", root, fields={"speed": str | None})
    catalog = Catalog()
    catalog.register(root)
    loaded = Catalog._parse("memory", text.text().replace('"LockGate"', '"FarGate"'))
    loaded._classes["Lock"] = root
    with pytest.raises(DeclarationError, match=r"FarGate cannot be declared here: .*'speed' is str"):
        loaded.declare("FarGate")


def test_what_the_catalog_lacks_cannot_be_declared() -> None:
    with pytest.raises(NotRegistered, match="'Loop' is not in the catalog"):
        Catalog().declare("Loop")


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["a", "A", "a!"], ["A", "A_1", "A_2"]),
        (["a 1", "a", "a?"], ["A_1", "A", "A_2"]),
        ([1, -1, 10], ["V1", "V1_1", "V10"]),
        (["", "_", "__x__", "mro", "class"], ["V", "V_1", "X", "MRO", "CLASS"]),
        (["\ue000", "½", "straße"], ["V", "V½" if "V½".isidentifier() else "V_1", "STRASSE"]),
    ],
)
def test_members_of_a_declared_enum_are_named_for_their_values(values: list[Any], names: list[str]) -> None:
    choices: Any = Enum("Choices", [(f"M{index}", value) for index, value in enumerate(values)])  # type: ignore[misc]
    made = elsewhere(event_type("Type0", fields={"c": choices | None})).declare("Far0")
    found = list(attributes(made)[-1].type.enum)  # type: ignore[union-attr,arg-type]
    assert [member.value for member in found] == values
    assert [member.name for member in found] == names


def test_an_order_of_kinds_that_no_class_can_have_is_named() -> None:
    above = kind("Kind0")
    catalog = elsewhere(event_type("Type0", Event, kind("Kind1", above), above))
    twisted = catalog.text().replace('"Sort1", "Sort0"]', '"Sort0", "Sort1"]')
    assert twisted != catalog.text()
    with pytest.raises(DeclarationError, match="Far0 cannot be declared here: Cannot create a consistent"):
        Catalog._parse("memory", twisted).declare("Far0")
