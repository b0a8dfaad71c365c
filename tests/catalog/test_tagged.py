"""Tagged attributes: a family whose event tags contain presence bits; they never change once registered."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from genus import Event
from genus.catalog import Catalog
from genus.errors import CatalogConflict, CatalogDamaged, EtagsExhausted, NotRegistered

from .declaring import event_type, kind, reread

LANE = {"lane": int, "category": str | None}


def loop(tagged: Sequence[str] = ()) -> Any:
    return event_type("Loop", fields=LANE, tagged=tagged)


def registered(*classes: type) -> Catalog:
    catalog = Catalog()
    catalog.register(*classes)
    return reread(catalog)


def test_the_first_name_is_the_highest_bit() -> None:
    cls = loop(("place", "category"))
    catalog = registered(cls)
    base = catalog.etag(cls)
    assert base & 0b11 == 0
    assert catalog.etag_of(cls(lane=1)) == base
    assert catalog.etag_of(cls(lane=1, category="car")) == base + 0b01
    assert catalog.etag_of(cls(lane=1, place="A8")) == base + 0b10
    assert catalog.type_of(base + 0b11) == "Loop"
    assert catalog.tagged_attributes(cls) == catalog.tagged_attributes("Loop") == ("place", "category")


def test_what_has_no_family_has_nothing_tagged() -> None:
    catalog = registered(kind("Lit"), loop())
    assert [catalog.tagged_attributes(name) for name in ("Event", "Lit", "Loop")] == [(), (), ()]
    with pytest.raises(NotRegistered, match="Lit is a kind and has no event tag"):
        catalog.own_etags("Lit")
    with pytest.raises(NotRegistered, match="'Radar' is not in the catalog"):
        catalog.tagged_attributes("Radar")


def test_a_tag_that_no_type_has_is_of_none_until_one_gets_it() -> None:
    catalog = registered(loop())
    etag = catalog.etag("Loop")
    assert [catalog.type_of(tag) for tag in (0, 127, etag, etag + 1, 1 << 14, -1)] == [None, None, "Loop", *[None] * 3]
    catalog.register(event_type("Radar", loop()))
    assert catalog.type_of(etag + 1) == "Radar"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ((), ("place",), "Loop has tagged place, but nothing in the catalog"),
        (("place",), (), "Loop has tagged nothing, but place in the catalog"),
        (("place", "category"), ("category", "place"), "Loop has tagged category, place, but place, category"),
        (("place",), ("place", "category"), "keep that, or give the changed class another name"),
    ],
)
def test_what_a_family_has_tagged_never_changes(before: tuple[str, ...], after: tuple[str, ...], message: str) -> None:
    catalog, changed = registered(loop(before)), loop(after)
    text = catalog.text()
    for what in (changed, event_type("Radar", changed)):
        with pytest.raises(CatalogConflict, match=message):
            catalog.register(what)
        assert [finding.status for finding in catalog.check(what)] == ["refused"]
        assert catalog.text() == text
    with pytest.raises(CatalogConflict):
        catalog.etag_of(changed(lane=1))


def test_a_family_without_tagged_is_written_as_before() -> None:
    assert "tagged" not in registered(loop()).text()
    text = registered(loop(("place",))).text()
    assert '    {"name": "Loop", "tagged": ["place"], "vector": [' in text.splitlines()
    assert Catalog._parse("memory", text).text() == text


def test_diff_and_extends_see_it() -> None:
    plain, tagged = registered(loop()), registered(loop(("place", "category")))
    assert "conflict: Loop has tagged place, category, but had nothing" in map(str, plain.diff(tagged))
    assert "conflict: Loop has tagged nothing, but had place, category" in map(str, tagged.diff(plain))
    assert not plain.extends(tagged)
    assert not tagged.extends(plain)
    assert tagged.extends(reread(tagged))


@pytest.mark.parametrize(
    ("family", "tagged", "message"),
    [
        (1, ["wheels"], r"families\[1\]\.tagged: 'wheels' is no optional attribute"),
        (1, ["lane"], r"families\[1\]\.tagged: 'lane' is no optional attribute"),
        (1, ["angle"], r"families\[1\]\.tagged: 'angle' is no optional attribute of a type directly below Event"),
        (1, ["place", "place"], r"families\[1\]\.tagged: up to 8 attributes, each once"),
        (1, ["place", 3], r"families\[1\]\.tagged\[1\]: Expected `str`"),
        (1, "place", r"families\[1\]\.tagged: Expected `array`"),
        (0, ["place"], r"families\[0\]\.tagged: 'place' is no optional attribute of a type directly below Event"),
        (1, ["place", "category", "time"], r"types\[2\]\.etags: .*smaller than its 8 own event tags"),
        (1, ["place"], r"types\[2\]\.etags: .*not free in 'Loop'"),
    ],
)
def test_damage_is_named_with_its_place(family: int, tagged: Any, message: str) -> None:
    """Types 0 Event, 1 Loop, 2 Radar."""
    data = json.loads(registered(event_type("Radar", loop(), fields={"angle": float | None})).text())
    if "not free" in message:
        data["types"][2]["etags"] = [[data["types"][1]["etags"][0][0], (1 << 14) - 2]]
    data["families"][family]["tagged"] = tagged
    with pytest.raises(CatalogDamaged, match=f"memory: {message}"):
        Catalog._parse("memory", json.dumps(data))


def test_many_tagged_families_find_tags_and_keep_finding_them() -> None:
    """Families with eight tagged attributes take 256 tags a type; the 14 bits still hold some dozens."""
    names = ["time", "source", "place", "deadline", "expires", "x", "y", "z"]
    catalog, fields = Catalog(), dict.fromkeys("xyz", int | None)
    for number in range(40):
        catalog.register(event_type(f"F{number}", fields=fields, tagged=names[: 1 + number % 8]))
    others = [event_type(f"G{number}", fields=fields, tagged=names) for number in range(60)]
    assert catalog.register(*others)
    before = catalog.text()
    with pytest.raises(EtagsExhausted, match=r"event tags exhausted.*256 adjacent event tags"):
        catalog.give_etags(*others)
    assert catalog.text() == before == reread(catalog).text()
    last = event_type("H", Event)
    assert catalog.register(last)
    assert catalog.give_etags(last) == ("H",) or catalog.has_etag(last)


def test_a_family_registered_whole_is_one_filter() -> None:
    root = loop(("place", "category"))
    radars = [event_type(f"Radar{number}", root) for number in range(30)]
    catalog = registered(root, *radars)
    assert len(catalog.filters("Loop")) == 1
    assert all(len(catalog.filters(cls)) == 1 for cls in radars)
