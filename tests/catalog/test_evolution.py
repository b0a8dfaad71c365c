"""How classes may change once they are registered: each change is allowed, or refused with a reason and a way out."""

import json
from enum import Enum
from typing import Annotated, Any

import pytest

from genus import Event, Unit
from genus.catalog import Catalog
from genus.errors import CatalogConflict

from .declaring import event_type, kind, reread


def choice(*values: str | int) -> Any:
    return Enum("Choice", [(f"V{value}", value) for value in values])


def speed(unit: str | None) -> Any:
    return {"speed": Annotated[float, Unit(unit)] if unit else float}


def loop(fields: dict[str, Any]) -> list[type]:
    return [event_type("Loop", fields=fields)]


def sub(above: dict[str, Any], below: dict[str, Any]) -> list[type]:
    root = event_type("Loop", fields=above)
    return [root, event_type("Radar", root, fields=below)]


LANE = {"lane": int}

ALLOWED = {
    "the same": (loop(LANE), loop(LANE), []),
    "an optional attribute more": (
        loop(LANE),
        loop({**LANE, "x": int | None}),
        ["Loop.x (attribute)", "may now carry"],
    ),
    "attributes in another order": (loop({**LANE, "x": int | None}), loop({"x": int | None, **LANE}), []),
    "an optional attribute less": (loop({**LANE, "x": int | None}), loop(LANE), ["kept: Loop.x"]),
    "an enum with more values": (
        loop({"c": choice("a", "b")}),
        loop({"c": choice("a", "b", "d")}),
        ["Loop.c may now be 'd'"],
    ),
    "an enum with its last values less": (
        loop({"c": choice("a", "b")}),
        loop({"c": choice("a")}),
        ["kept: Loop.c may be b"],
    ),
    "an optional attribute moved up": (
        sub(LANE, {"x": int | None}),
        sub({**LANE, "x": int | None}, {}),
        ["Loop may now carry x"],
    ),
    "an optional attribute moved down": (
        sub({"x": int | None}, {}),
        sub({}, {"x": int | None}),
        ["kept: Loop.x in the catalog"],
    ),
    "an optional attribute declared above as well": (
        sub(LANE, {"x": int | None}),
        sub({**LANE, "x": int | None}, {"x": int | None}),
        ["Loop may now carry x"],
    ),
    "a unit not repeated below": (
        loop({"v": Annotated[float, Unit("m")] | None}),
        sub({"v": Annotated[float, Unit("m")] | None}, {"v": float | None}),
        ["added: Radar"],
    ),
    "kinds in another order": (
        [event_type("Loop", Event, kind("K"), kind("L"))],
        [event_type("Loop", Event, kind("L"), kind("K"))],
        [],
    ),
}

REFUSED = {
    "another type": (loop(LANE), loop({"lane": str}), r"Loop\.lane is str, but int64 in family Loop; rename"),
    "another width": (loop({"c": choice(1)}), loop({"c": int}), r"Loop\.c is int64, but one of 1 in family Loop"),
    "another type below": (
        sub(LANE, {"x": int | None}),
        [event_type("Tunnel", event_type("Loop", fields=LANE), fields={"x": str | None})],
        r"Tunnel\.x is str, but int64 in family Loop; rename",
    ),
    "a required attribute more": (loop({}), loop(LANE), r"Loop\.lane is new and required.*Maybe"),
    "a required attribute less": (loop(LANE), loop({}), r"Loop\.lane is required in the catalog.*declare it again"),
    "optional becomes required": (
        loop({"x": int | None}),
        loop({"x": int}),
        r"Loop\.x is required, but optional in the catalog",
    ),
    "required becomes optional": (loop({"x": int}), loop({"x": int | None}), r"Loop\.x may be absent, but is required"),
    "narrowed below later": (sub({"x": int | None}, {}), sub({"x": int | None}, {"x": int}), r"Radar\.x is required"),
    "widened below later": (sub({"x": int | None}, {"x": int}), sub({"x": int | None}, {}), r"Radar\.x may be absent"),
    "an enum reordered": (
        loop({"c": choice("a", "b")}),
        loop({"c": choice("b", "a")}),
        r"Loop\.c may be b, a, but a, b in family Loop; keep these in their order",
    ),
    "an enum without its first": (
        loop({"c": choice("a", "b")}),
        loop({"c": choice("b")}),
        r"Loop\.c may be b, but a, b",
    ),
    "another unit": (loop(speed("km/h")), loop(speed("m/s")), r"Loop\.speed is in m/s, but in km/h in family Loop"),
    "a unit later": (loop(speed(None)), loop(speed("m/s")), r"Loop\.speed is in m/s, but without a unit"),
    "another parent": (
        sub(LANE, {}),
        [event_type("Radar", fields={})],
        "Radar derives from Event, but from Loop in the catalog; keep these, or give the changed class another name",
    ),
    "a kind more": (loop({}), [event_type("Loop", Event, kind("K"))], "Loop derives from Event, K, but from Event"),
    "a kind less": ([event_type("Loop", Event, kind("K"))], loop({}), "Loop derives from Event, but from Event, K"),
    "a kind from an event type": (loop({}), [kind("Loop")], "Loop is a kind, but an event type in the catalog"),
    "an event type from a kind": ([kind("Loop")], loop(LANE), "Loop is an event type, but a kind in the catalog"),
}


def registered(classes: list[type]) -> Catalog:
    """A catalog with these, read back so that it knows no class."""
    catalog = Catalog()
    catalog.register(*classes)
    return reread(catalog)


@pytest.mark.parametrize("change", ALLOWED)
def test_allowed(change: str) -> None:
    before, after, findings = ALLOWED[change]
    catalog = registered(before)
    earlier = reread(catalog)
    found = [*map(str, catalog.check(*after))]
    assert all(any(part in line for line in found) for part in findings), found
    assert bool(found) == bool(findings)
    catalog.register(*after)
    assert catalog.extends(earlier)
    assert reread(catalog).text() == catalog.text()
    assert all(finding.status == "kept" for finding in reread(catalog).check(*after))


@pytest.mark.parametrize("change", REFUSED)
def test_refused_and_nothing_changed(change: str) -> None:
    before, after, message = REFUSED[change]
    catalog = registered(before)
    text = catalog.text()
    with pytest.raises(CatalogConflict, match=message):
        catalog.register(event_type("Innocent"), *after)
    assert {finding.status for finding in catalog.check(*after)} == {"refused"}
    assert catalog.text() == text


def test_one_call_of_check_lists_every_reason() -> None:
    catalog = registered(loop({"a": int, "b": int, "c": int | None}))
    changed = loop({"a": str, "c": int})
    found = catalog.check(*changed)
    assert sorted(finding.subject for finding in found) == ["Loop.a", "Loop.b", "Loop.c"]
    with pytest.raises(CatalogConflict, match="and 2 more; Catalog"):
        catalog.register(*changed)


def test_check_changes_nothing() -> None:
    catalog = registered(loop(LANE))
    text = catalog.text()
    assert [str(finding) for finding in catalog.check(event_type("Camera", fields={"plate": str}))] == [
        "added: Camera",
        "added: Camera.plate (attribute)",
    ]
    assert catalog.text() == text


def test_an_older_class_still_gives_the_agreed_bits() -> None:
    """Started again while newer ones run, it neither loses nor takes a bit."""
    catalog = registered(loop({**LANE, "x": int | None}))
    catalog.register(*loop({**LANE, "y": str | None, "x": int | None}))
    older = loop(LANE)[0]
    assert not catalog.register(older)
    assert catalog.vector(older).names_of(catalog.tag(older(lane=1, place="here"))) == ("place", "lane")
    assert [attribute.name for attribute in catalog.vector("Loop")][5:] == ["lane", "x", "y"]


def test_a_context_attribute_that_event_gains_later_is_appended_to_every_vector() -> None:
    """As when a newer Genus reads a catalog of an older one."""
    catalog = Catalog()
    catalog.register(*loop(LANE), event_type("Camera"))
    data = json.loads(catalog.text())
    del data["types"][0]["attributes"]["expires"]
    for family in data["families"]:
        family["vector"] = [attribute for attribute in family["vector"] if attribute["name"] != "expires"]
    older = Catalog._parse("memory", json.dumps(data))
    added = older.register(*loop(LANE))
    assert dict(added.attributes) == {"Event": ("expires",), "Loop": ("expires",), "Camera": ("expires",)}
    assert [attribute.name for attribute in older.vector("Loop")][-2:] == ["lane", "expires"]
    assert reread(older).text() == older.text()


def test_diff_says_what_was_added_deprecated_or_is_missing() -> None:
    old = registered(loop({**LANE, "c": choice("a")}))
    new = reread(old)
    new.register(*loop({**LANE, "c": choice("a", "b"), "x": int | None}), event_type("Camera"))
    new.deprecate("Loop", "use Camera")
    assert [str(finding) for finding in old.diff(new)] == [
        "added: Loop.x may be carried",
        "deprecated: Loop use Camera",
        "added: Camera with code 6",
        "added: Loop bit 6 c may be 'b'",
        "added: Loop.x at bit 7",
    ]
    assert {finding.status for finding in new.diff(old)} == {"missing"}
    assert new.extends(old)
    assert not old.extends(new)
    assert old.diff(reread(old)) == []


def test_diff_names_contradictions() -> None:
    one = registered(sub({"a": int}, {}))
    other = registered([event_type("Camera"), event_type("Loop", fields={"b": int}), event_type("Radar")])
    text = [str(finding) for finding in one.diff(other) if finding.status == "conflict"]
    assert "conflict: Loop has code 6, but had 4" in text
    assert "conflict: Loop has other event tags" in text
    assert "conflict: Radar has parents ('Event',), but had ('Loop',)" in text
    assert "conflict: Loop bit 5 is b: int64, but was a: int64" in text
    assert not one.extends(other)


def test_diff_names_attributes_that_became_required_or_optional() -> None:
    """Which registering refuses: the two catalogs were made apart."""
    one, other = registered(loop({"a": int, "b": int | None})), registered(loop({"a": int | None, "b": int}))
    assert [str(finding) for finding in one.diff(other)] == [
        "conflict: Loop.a is optional, but was required",
        "conflict: Loop.b is required, but was optional",
    ]
    assert not one.extends(other)


def test_diff_names_types_that_are_missing_or_of_another_order() -> None:
    one, other = registered([event_type("Camera"), event_type("Radar")]), registered([event_type("Radar")])
    assert "missing: Camera with code 4" in [str(finding) for finding in one.diff(other)]
    assert not other.extends(one)
    first, second = Catalog(), Catalog()
    first.register(kind("A"))
    first.register(kind("B"))
    second.register(kind("B"))
    assert not first.extends(second)
    assert first.extends(first)


def test_check_says_which_classes_are_deprecated() -> None:
    catalog = registered(sub(LANE, {}))
    loops = sub(LANE, {})
    catalog.deprecate("Loop", "use Camera")
    assert [str(finding) for finding in catalog.check(*loops)] == ["deprecated: Loop use Camera"]
    assert [str(finding) for finding in catalog.check(event_type("Other"))] == ["added: Other"]
