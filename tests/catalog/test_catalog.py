"""What a catalog answers, and what it takes."""

import types
from enum import Enum
from typing import Annotated, Any

import pytest

from genus import Event, Kind, Maybe, Subscription, Unit
from genus.catalog import Catalog, types_in
from genus.catalog._records import NumberAllocator, TypeTable
from genus.codes import EtagSpace
from genus.errors import CatalogConflict, DeclarationError, EtagsExhausted, NotRegistered, SubscriptionError
from genus.model import vector
from tests.generators import declare

from .declaring import event_type, kind, reread


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Roadside(Kind): ...


class Lit(Roadside): ...


class Loop(Event, Roadside):
    lane: int
    category: Maybe[Category] = None
    speed: Maybe[Annotated[float, Unit("km/h")]] = None


class LitLoop(Loop, Lit):
    lumen: Maybe[float] = None


class Camera(Event, Roadside):
    plate: str


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.register(LitLoop, Camera)
    return made


def test_a_catalog_begins_with_event_and_its_context() -> None:
    empty = Catalog()
    assert empty.types == ("Event",)
    assert [attribute.name for attribute in empty.vector(Event)] == ["time", "source", "place", "deadline", "expires"]
    assert empty.tag(Event(place="here")) == 0b100


def test_everything_above_a_class_is_registered_first(catalog: Catalog) -> None:
    assert catalog.types == ("Event", "Roadside", "Loop", "Lit", "Camera", "LitLoop")


def test_registering_says_what_was_added(catalog: Catalog) -> None:
    class Radar(Loop):
        lane: int
        angle: Maybe[float] = None

    added = catalog.register(Radar, Loop)
    assert added
    assert added.types == ("Radar",)
    assert dict(added.attributes) == {"Loop": ("angle",)}
    assert not catalog.register(Radar, Loop, Event)


def test_a_module_stands_for_the_types_found_in_it() -> None:
    module = types.ModuleType("roads")
    vars(module).update(Event=Event, Kind=Kind, Loop=Loop, alias=Loop, Camera=Camera, number=3)
    assert types_in(module) == [Loop, Camera]
    assert Catalog().register(module).types == ("Roadside", "Loop", "Camera")


@pytest.mark.parametrize("what", [3, int, Kind, "Loop"])
def test_anything_else_cannot_be_registered(what: Any) -> None:
    with pytest.raises(DeclarationError, match="neither an event type nor a kind nor a module"):
        Catalog().register(what)


def test_types_are_asked_for_as_classes_or_by_name(catalog: Catalog) -> None:
    assert catalog.code(Loop) == catalog.code("Loop") == 12
    assert catalog.etag(Loop) == catalog.etag("Loop")
    assert "Loop" in catalog
    assert Loop in catalog
    assert "Lorry" not in catalog


def test_what_is_not_registered_is_named() -> None:
    with pytest.raises(NotRegistered, match="'Loop' is not in the catalog"):
        Catalog().code("Loop")
    with pytest.raises(NotRegistered, match=r"^Camera is not in the catalog; register Camera"):
        Catalog().tag(Camera(plate="M"))
    known = Catalog()
    known.register(event_type("Loop", fields={"lane": int}))
    newer = event_type("Loop", fields={"lane": int, "speed": float | None})
    with pytest.raises(NotRegistered, match=r"Loop\.speed .*register Loop"):
        known.tag(newer(lane=1))
    assert newer not in known


def test_a_family_has_one_vector_and_a_kind_the_context_alone(catalog: Catalog) -> None:
    names = [attribute.name for attribute in catalog.vector(LitLoop)]
    assert names[5:] == ["lane", "category", "speed", "lumen"]
    assert catalog.vector(Loop) == catalog.vector(LitLoop)
    assert catalog.vector(Roadside) == catalog.vector(Event)
    assert catalog.vector(Loop).find("speed").unit == "km/h"


def test_the_vector_says_what_every_event_of_the_family_carries(catalog: Catalog) -> None:
    """Required is what the root type requires; what a type further down requires, others may lack."""
    strict = event_type("Strict", Loop, fields={"extra": int})
    catalog.register(strict)
    assert not catalog.vector(Loop).find("lane").optional
    assert catalog.vector(Loop).find("extra").optional


def test_a_kind_has_no_tag_but_filters_for_the_types_that_take_it_on(catalog: Catalog) -> None:
    with pytest.raises(NotRegistered, match="Roadside is a kind and has no event tag"):
        catalog.etag(Roadside)
    accepted = {cls for cls in (Event, Loop, LitLoop, Camera) if _accepts(catalog, Lit, cls)}
    assert accepted == {LitLoop}
    assert {cls for cls in (Event, Loop, LitLoop, Camera) if _accepts(catalog, Roadside, cls)} == {
        Loop,
        LitLoop,
        Camera,
    }
    catalog.register(kind("Unused"))
    assert catalog.filters("Unused") == ()


def _accepts(catalog: Catalog, wanted: type, cls: type) -> bool:
    return any(block.accepts(catalog.etag(cls)) for block in catalog.filters(wanted))


def test_an_event_is_one_filter_and_so_is_a_family_registered_whole(catalog: Catalog) -> None:
    assert len(catalog.filters(Event)) == 1
    assert len(catalog.filters(Loop)) == 1


def test_thousands_of_families_find_tags() -> None:
    catalog = Catalog()
    catalog.register(*(event_type(f"F{number}") for number in range(2000)))
    assert len({catalog.etag(name) for name in catalog.types}) == 2001


def test_types_are_registered_when_event_tags_run_out_and_a_bus_that_asks_is_told() -> None:
    catalog = Catalog._of(TypeTable({}, {}), NumberAllocator(etags=EtagSpace(bits=8)))
    catalog.register(Event, *(event_type(f"F{number}") for number in range(5)))
    others = [event_type(f"G{number}") for number in range(130)]
    assert {finding.status for finding in catalog.check(*others)} == {"added"}
    catalog.register(*others)
    without = [cls for cls in others if not catalog.has_etag(cls)]
    before = {name: catalog.etag(name) for name in catalog.types if catalog.has_etag(name)}
    assert before
    assert catalog.subsumes(Event, without[0])
    with pytest.raises(NotRegistered, match=r"G\d+ has no event tag yet.*update_etags"):
        catalog.etag(without[0])
    with pytest.raises(EtagsExhausted, match=r"128 event tags.*\(136 types are in the catalog\)"):
        catalog.give_etags(*without)
    assert {name: catalog.etag(name) for name in catalog.types if catalog.has_etag(name)} == before


def test_bit_vectors_of_a_subscription_are_read_over_the_catalogs_vector() -> None:
    """Another process declared the attributes in another order; the catalog's is the one agreed upon."""
    elsewhere = Catalog()
    other = event_type("Counter", fields={"weight": float | None, "axles": int | None})
    elsewhere.register(other)
    agreed = reread(elsewhere)
    here = event_type("Counter", fields={"axles": int | None, "weight": float | None})
    assert Subscription(here, has=agreed.vector(here).names_of(1 << 5)).has == ("weight",)
    assert Subscription(here, has=1 << 5).has == ("axles",)


def test_bits_outside_the_catalogs_vector_are_refused() -> None:
    root = event_type("Truck", fields={"axles": int})
    known = Catalog()
    known.register(root)
    event_type("Lorry", root, fields={"trailer": bool | None})
    assert "trailer" in [attribute.name for attribute in vector(root)]
    with pytest.raises(SubscriptionError, match="reaches outside the 6 attributes of Truck"):
        known.vector(root).names_of(1 << 6)
    with pytest.raises(NotRegistered):
        known.vector(Camera)


def test_a_deprecated_type_keeps_its_numbers_and_gets_no_children(catalog: Catalog) -> None:
    code = catalog.code(Camera)
    catalog.deprecate(Camera, "use Loop")
    catalog.deprecate("Lit")
    assert dict(catalog.deprecated) == {"Lit": "", "Camera": "use Loop"}
    assert catalog.code(Camera) == code
    assert not catalog.register(Camera)
    with pytest.raises(CatalogConflict, match=r"Dome derives from Camera, which is deprecated \(use Loop\)"):
        catalog.register(event_type("Dome", Camera))
    assert reread(catalog).text() == catalog.text()


def speeding() -> tuple[Any, Any]:
    class Sensor(Event):
        speed: Maybe[float] = None
        velocity: Maybe[float] = None

    class Radar(Sensor): ...

    return Sensor, Radar


def test_a_deprecated_attribute_keeps_its_bit_and_is_declared_by_no_further_type() -> None:
    sensor, radar = speeding()
    catalog = Catalog()
    catalog.register(radar)
    bits = catalog.tag(sensor(speed=1.5, velocity=2.5))
    catalog.deprecate(radar, "use velocity", attribute="speed")
    catalog.deprecate(sensor, "use velocity", attribute="speed")
    assert dict(catalog.deprecated) == {"Sensor.speed": "use velocity"}
    assert catalog.tag(sensor(speed=1.5, velocity=2.5)) == bits
    assert [str(found) for found in catalog.check(sensor, radar)] == ["deprecated: Sensor.speed use velocity"]
    assert not catalog.register(*speeding())  # classes that have it may still be used

    doppler = declare("Doppler", sensor, {"speed": float})
    with pytest.raises(CatalogConflict, match=r"^Doppler\.speed is deprecated in family Sensor \(use velocity\)"):
        catalog.register(doppler)


def test_deprecated_attributes_are_kept_in_the_file_and_only_grow() -> None:
    sensor, _ = speeding()
    before = Catalog()
    before.register(sensor)
    after = Catalog.parse(before.text())
    after.deprecate("Sensor", attribute="speed")
    again = Catalog.parse(after.text())
    assert again.text() == after.text()
    assert again.deprecated == {"Sensor.speed": ""}
    assert '"version": 4' in after.text()
    assert '"version": 1' in before.text()
    assert [str(found) for found in before.diff(after)] == ["deprecated: Sensor.speed"]
    assert (after.extends(before), before.extends(after)) == (True, False)
    with pytest.raises(CatalogConflict, match=r"Sensor\.speed is deprecated already, with the note ''"):
        again.deprecate("Sensor", "use velocity", attribute="speed")
    with pytest.raises(CatalogConflict, match="place cannot be deprecated: every event may carry it"):
        again.deprecate("Sensor", attribute="place")
    with pytest.raises(NotRegistered, match="Sensor has no attribute 'sped'; did you mean 'speed'"):
        again.deprecate("Sensor", attribute="sped")


def test_a_note_stays_and_event_cannot_be_deprecated(catalog: Catalog) -> None:
    catalog.deprecate("Loop", "old")
    catalog.deprecate("Loop", "old")
    with pytest.raises(CatalogConflict, match="deprecated already, with the note 'old'"):
        catalog.deprecate("Loop", "new")
    with pytest.raises(CatalogConflict, match="Event cannot be deprecated"):
        catalog.deprecate(Event)
    with pytest.raises(NotRegistered):
        catalog.deprecate("Lorry")


def test_two_classes_with_one_name_are_refused() -> None:
    class Loop(Event): ...

    for before in ([], [globals()["Loop"]]):
        catalog = Catalog()
        catalog.register(*before)
        text = catalog.text()
        with pytest.raises(CatalogConflict, match=r"Loop is the name of two classes, .*name="):
            catalog.register(Loop, globals()["Loop"])
        assert catalog.text() == text


def test_a_class_defined_again_in_its_place_is_the_same() -> None:
    catalog = Catalog()
    first, second = (event_type("Cell", fields={"x": int}) for _ in range(2))
    catalog.register(first)
    assert not catalog.register(second)
    assert catalog.tag(first(x=1)) == catalog.tag(second(x=1)) == 1 << 5
