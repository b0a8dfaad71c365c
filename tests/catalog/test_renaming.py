"""Renamed attributes in a catalog: names change, bits, codes and event tags do not."""

import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Renamed, Unit
from genus.catalog import Catalog
from genus.errors import CatalogConflict, CatalogDamaged, NotRegistered
from genus.model import attributes, vector

from ..examples import examples
from .declaring import event_type, reread

SPEED = Annotated[float, Unit("km/h")] | None


def named(note: Any, *former: str) -> Any:
    return Annotated[note, Renamed(*former)]


def loop(fields: dict[str, Any], tagged: tuple[str, ...] = ()) -> Any:
    return event_type("Loop", fields={"lane": int, **fields}, tagged=tagged)


def catalog_of(*classes: type) -> Catalog:
    catalog = Catalog()
    catalog.register(*classes)
    return reread(catalog)


def findings(catalog: Catalog, *classes: type) -> list[str]:
    return [*map(str, catalog.check(*classes))]


def test_a_rename_keeps_the_bit_and_is_shown() -> None:
    catalog = catalog_of(loop({"speed": SPEED, "angle": int | None}))
    earlier, new = reread(catalog), loop({"velocity": named(SPEED, "speed"), "angle": int | None})
    assert findings(catalog, new) == ["renamed: Loop.velocity was speed"]
    result = catalog.register(new)
    assert bool(result)
    assert dict(result.renamed) == {"Loop.velocity": ("speed",)}
    assert not result.attributes
    assert [each.name for each in catalog.vector("Loop")][-3:] == ["lane", "velocity", "angle"]
    assert [*map(str, earlier.diff(catalog))] == ["renamed: Loop bit 6 is velocity, was speed"]
    assert [*map(str, catalog.diff(earlier))] == ["missing: Loop bit 6 is velocity, was speed"]
    assert catalog.extends(earlier)
    assert not earlier.extends(catalog)
    assert reread(catalog).text() == catalog.text()
    assert findings(reread(catalog), new) == []


def test_only_a_file_with_renamed_attributes_has_version_2() -> None:
    plain, renamed = catalog_of(loop({"v": SPEED})), catalog_of(loop({"v": named(SPEED, "speed")}))
    assert [json.loads(each.text())["version"] for each in (plain, renamed)] == [1, 2]
    assert '{"name": "v", "type": "float64", "unit": "km/h", "names": ["v", "speed"]}' in renamed.text()


def test_several_renames_in_a_row_are_read_from_any_step() -> None:
    steps = [
        loop({"v": SPEED}),
        loop({"speed": named(SPEED, "v")}),
        loop({"velocity": named(SPEED, "speed", "v")}),
    ]
    catalog = catalog_of(steps[0])
    for step in steps[1:]:
        catalog.register(step)
    assert catalog.vector("Loop").find("velocity").names == ("v", "speed", "velocity")
    skipped = catalog_of(steps[0])
    skipped.register(steps[2])
    assert skipped.vector("Loop").find("velocity").former == ("v", "speed")
    events = [step(lane=1, **{attributes(step)[-1].name: 3.0}) for step in steps]
    assert {catalog.tag(event) for event in events} == {0b1100000}


def test_an_older_class_registers_and_an_older_catalog_serves_a_newer_class() -> None:
    old, new = loop({"speed": SPEED}, ("speed",)), loop({"velocity": named(SPEED, "speed")}, ("velocity",))
    before, after = catalog_of(old), catalog_of(old)
    after.register(new)
    assert after.tagged_attributes("Loop") == ("velocity",)
    assert not reread(after).register(old)
    assert findings(reread(after), old) == ["kept: Loop.speed as velocity, its present name in the catalog"]
    events = (old(lane=1, speed=3.0), new(lane=1, velocity=3.0), old(lane=1), new(lane=1))
    tags = [(each.tag(event), each.etag_of(event)) for each in (reread(before), reread(after)) for event in events]
    assert tags[:2] == tags[4:6]
    assert tags[2:4] == tags[6:]
    assert tags[0] == tags[1]
    assert tags[2] == tags[3]
    assert reread(before).declare("Loop") in (old, new)


def test_a_generated_class_has_the_former_names() -> None:
    made = catalog_of(event_type("Elsewhere", fields={"velocity": named(SPEED, "speed")}))
    cls = reread(made).declare("Elsewhere")
    assert vector(cls).find("velocity").former == ("speed",)


def test_a_type_is_generated_below_a_class_with_the_former_name() -> None:
    new = event_type("Mast", fields={"velocity": named(SPEED, "speed")})
    catalog = catalog_of(new, event_type("TallMast", new, fields={"velocity": Annotated[float, Unit("km/h")]}))
    old = event_type("Mast", fields={"speed": SPEED})
    catalog.use_classes(old)
    catalog._declarations._classes["Mast"] = old
    tall = catalog.declare("TallMast")
    assert issubclass(tall, old)
    assert catalog.tag(tall(speed=3.0)) == 0b100000


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another type": (
        {"speed": SPEED},
        {"velocity": named(int | None, "speed")},
        r"Loop\.velocity is renamed from speed, but is int64 and that is float64 in family Loop",
    ),
    "another unit": (
        {"speed": SPEED},
        {"velocity": named(Annotated[float, Unit("m/s")] | None, "speed")},
        r"Loop\.velocity is renamed from speed, but is in m/s and that is in km/h in family Loop",
    ),
    "a required one that becomes optional": (
        {"speed": float},
        {"velocity": named(float | None, "speed")},
        r"Loop\.velocity may be absent, but is required in the catalog",
    ),
    "both are there": (
        {"speed": SPEED, "velocity": SPEED},
        {"velocity": named(SPEED, "speed")},
        r"Loop\.velocity is renamed from speed, but family Loop has both",
    ),
    "the former name as something else": (
        {"velocity": named(SPEED, "speed")},
        {"velocity": SPEED, "speed": str | None},
        r"Loop\.speed is the former name of velocity in family Loop, but declared beside it; choose",
    ),
    "the former name with another type": (
        {"velocity": named(SPEED, "speed")},
        {"speed": str | None},
        r"Loop\.speed is the former name of velocity in family Loop, but is str and that is float64 there; choose",
    ),
    "the former name of another one": (
        {"velocity": named(SPEED, "speed"), "v": SPEED},
        {"v": named(SPEED, "speed")},
        r"Loop\.v is renamed from speed, but in family Loop that became velocity",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_and_nothing_changed(case: str) -> None:
    before, after, message = REFUSED[case]
    catalog = catalog_of(loop(before))
    text = catalog.text()
    with pytest.raises(CatalogConflict, match=message):
        catalog.register(loop(after))
    assert catalog.text() == text


def test_a_new_class_that_uses_a_former_name_is_refused() -> None:
    catalog = catalog_of(loop({"velocity": named(SPEED, "speed")}))
    other = event_type("Tunnel", loop({}), fields={"speed": str | None})
    with pytest.raises(CatalogConflict, match=r"Tunnel\.speed is the former name of velocity"):
        catalog.register(other)


def test_a_class_with_more_than_a_rename_is_not_registered() -> None:
    catalog = catalog_of(loop({"speed": SPEED}))
    with pytest.raises(NotRegistered, match=r"Loop\.x is not in the catalog"):
        catalog.code(loop({"velocity": named(SPEED, "speed"), "x": int | None}))


DAMAGE: dict[str, tuple[list[str], str]] = {
    "without the present one": (["speed", "v"], "all names of 'velocity', each once"),
    "twice": (["velocity", "velocity"], "all names of 'velocity', each once"),
    "one only": (["velocity"], "all names of 'velocity', each once"),
    "no name": (["velocity", "a b"], "'a b' cannot name an attribute"),
    "of another": (["velocity", "lane"], "'lane' is the name of another attribute"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_wrong_names_in_a_file_are_found(case: str) -> None:
    names, message = DAMAGE[case]
    data = json.loads(catalog_of(loop({"velocity": named(SPEED, "speed")})).text())
    data["families"][1]["vector"][6]["names"] = names
    with pytest.raises(CatalogDamaged, match=rf"families\[1\]\.vector\[6\]\.names: {message}"):
        Catalog.parse(json.dumps(data))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8))
@examples(60)
def test_any_sequence_of_renames_changes_names_only(steps: list[tuple[int, bool]]) -> None:
    """Bits, codes and event tags are those of the first catalog, and every class so far still fits."""
    names: list[list[str]] = [[f"a{number}"] for number in range(4)]
    classes = [_family(names)]
    catalog = catalog_of(*classes[0])
    first, texts = reread(catalog), [catalog.text()]
    for count, (which, reload) in enumerate(steps):
        names[which].append(f"b{count}")
        classes.append(_family(names))
        catalog = reread(catalog) if reload else catalog
        catalog.register(*classes[-1])
        texts.append(catalog.text())
    for name in first.types:
        entry, before = catalog.entries[name], first.entries[name]
        assert (entry.code, entry.blocks, entry.parents) == (before.code, before.blocks, before.parents)
    assert [each.first_name for each in catalog.vector("Loop")] == [each.name for each in first.vector("Loop")]
    assert all(catalog.extends(Catalog.parse(text)) for text in texts)
    for root, below in classes:
        own = [each.name for each in attributes(below)][5:]
        for cls, used in ((below, own), (root, own[:2])):
            event = cls(**dict.fromkeys(used, 1))
            assert first.tag(event) == catalog.tag(event) == (1 << 5 + len(used)) - (1 << 5)
            assert reread(first).etag_of(event) == reread(catalog).etag_of(event)


def _family(names: list[list[str]]) -> tuple[type, type]:
    """Two types with two attributes each, by the last of their names."""
    notes = [named(int | None, *each[:-1]) if len(each) > 1 else int | None for each in names]
    fields = {each[-1]: note for each, note in zip(names, notes, strict=True)}
    items = list(fields.items())
    root = event_type("Loop", Event, fields=dict(items[:2]), tagged=(items[0][0],))
    return root, event_type("Radar", root, fields=dict(items[2:]))


def test_a_generated_class_has_the_other_names_too() -> None:
    """So it reads what older programs wrote, and registering it adds nothing."""
    catalog = catalog_of(loop({"velocity": named(SPEED, "speed")}))
    cls = catalog.declare("Loop", generated=True)
    (found,) = (each for each in attributes(cls) if each.name == "velocity")
    assert (found.former, found.unit, found.optional) == (("speed",), "km/h", True)
    assert findings(catalog, cls) == []
