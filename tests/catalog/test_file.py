"""The file of a catalog: readable, the same bytes for the same catalog, and judged as a whole when it is read."""

import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from genus import Event
from genus.catalog import Catalog
from genus.errors import CatalogConflict, CatalogDamaged, CatalogUnavailable, GenusError

from .declaring import event_type, kind, reread

Data = dict[str, Any]


class Colour(Enum):
    RED = "rot"
    GREEN = "grün"


class Odd(Enum):
    PRIVATE_CHARACTER = "\ue000"


def sample() -> Catalog:
    """Types 0 Event, 1 Roadside, 2 Loop, 3 Camera, 4 Radar; families 0 Event, 1 Loop, 2 Camera."""
    roadside = kind("Roadside")
    loop = event_type("Loop", Event, roadside, fields={"lane": int, "colour": Colour | None})
    catalog = Catalog()
    catalog.register(loop, event_type("Camera"), event_type("Radar", loop, fields={"odd": Odd | None}))
    catalog.deprecate("Camera", "gone")
    assert catalog.types == ("Event", "Roadside", "Loop", "Camera", "Radar")
    return catalog


def test_there_is_one_line_per_type_and_per_attribute() -> None:
    lines = sample().text().splitlines()
    assert lines[:4] == ["{", '  "format": "genus catalog",', '  "version": 1,', '  "types": [']
    assert lines[5] == '    {"name": "Roadside", "parents": [], "code": "3", "kind": true},'
    assert (
        lines[6] == '    {"name": "Loop", "parents": ["Event", "Roadside"], "code": "12", "etags": [[8224, 16368]], '
        '"attributes": {"lane": "required", "colour": "optional"}},'
    )
    assert '      {"name": "lane", "type": "int64"},' in lines


def test_what_is_added_are_added_lines() -> None:
    catalog = sample()
    before = catalog.text().splitlines()
    catalog.register(event_type("Barrier", fields={"height": float}))
    after = catalog.text().splitlines()
    assert {line.rstrip(",") for line in before} < {line.rstrip(",") for line in after}


def test_a_file_read_and_written_again_has_the_same_bytes(tmp_path: Path) -> None:
    path, copy = tmp_path / "catalog.json", tmp_path / "copy.json"
    sample().save(path)
    Catalog.load(path).save(copy)
    assert path.read_bytes() == copy.read_bytes() == sample().text().encode()
    assert "grün" in path.read_text()
    assert Catalog.load(path).deprecated == {"Camera": "gone"}


def test_large_codes_stay_exact_for_every_json_reader() -> None:
    kinds = [kind(f"Kind{number}") for number in range(20)]
    catalog = Catalog()
    catalog.register(event_type("Everything", Event, *kinds))
    code = catalog.code("Everything")
    assert code > 2**53
    stored = json.loads(catalog.text(), parse_int=float)["types"][-1]["code"]
    assert int(stored) == code == reread(catalog).code("Everything")


def put(path: str, value: Any) -> Callable[[Data], None]:
    """Set what a path such as `types.2.code` leads to."""
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))

    def damage(data: Any) -> None:
        for part in way:
            data = data[part]
        data[last] = value

    return damage


def drop(path: str, key: Any) -> Callable[[Data], None]:
    def damage(data: Any) -> None:
        for part in path.split(".") if path else []:
            data = data[int(part) if part.isdigit() else part]
        del data[key]

    return damage


def twice(part: str, index: int) -> Callable[[Data], None]:
    return lambda data: data[part].append(data[part][index])


DAMAGE: dict[str, tuple[Callable[[Data], None], str]] = {
    "another version": (put("version", 5), "version: is 5; this Genus reads versions 1 to 4"),
    "a version in words": (put("version", "1"), "version: is '1'"),
    "another format": (put("format", "phone book"), "format: Invalid enum value 'phone book'"),
    "no types": (drop("", "types"), "top: Object missing required field `types`"),
    "an unknown key at the top": (put("owner", "me"), "top: Object contains unknown field `owner`"),
    "an unknown key of a type": (put("types.2.colour", 1), r"types\[2\]: Object contains unknown field `colour`"),
    "an unknown key of an attribute": (put("families.1.vector.5.bit", 1), r"families\[1\]\.vector\[5\]: .*`bit`"),
    "a type that is a number": (put("types.1", 7), r"types\[1\]: Expected `object`, got `int`"),
    "a name that is a number": (put("types.1.name", 7), r"types\[1\]\.name: Expected `str`"),
    "a name that cannot be one": (put("types.3.name", "a b"), r"types\[3\]\.name: 'a b' cannot name a type"),
    "a name that texts use": (put("types.3.name", "where"), r"types\[3\]\.name: 'where' cannot name a type"),
    "the name of all kinds": (put("types.1.name", "Kind"), r"types\[1\]\.name: 'Kind' cannot name a type"),
    "a type twice": (twice("types", 2), r"types\[5\]\.name: 'Loop' is there already"),
    "Event not first": (lambda data: data["types"].pop(0), r"types\[0\]\.name: is 'Roadside'; Event comes first"),
    "an unknown parent": (put("types.2.parents", ["Event", "X"]), r"types\[2\]\.parents: 'X' does not come before"),
    "a parent that comes later": (put("types.2.parents", ["Camera"]), r"types\[2\]\.parents: 'Camera' does not"),
    "a parent twice": (put("types.4.parents", ["Loop", "Roadside", "Roadside"]), r"types\[4\]\.parents: .*each once"),
    "two lines": (put("types.4.parents", ["Loop", "Camera"]), r"types\[4\]\.parents: an event type first, then kinds"),
    "no line": (put("types.4.parents", ["Roadside"]), r"types\[4\]\.parents: an event type first"),
    "a kind below a type": (put("types.1.parents", ["Event"]), r"types\[1\]\.parents: only kinds"),
    "a kind with tags": (put("types.1.etags", [[9000, 16383]]), r"types\[1\]\.etags: a kind has none"),
    "a kind with attributes": (
        put("types.1.attributes", {"x": "optional"}),
        r"types\[1\]\.attributes: a kind has none",
    ),
    "a code that is a number": (put("types.2.code", 12), r"types\[2\]\.code: Expected `str`, got `int`"),
    "a code in letters": (put("types.2.code", "0x0c"), r"types\[2\]\.code: Expected `str` matching"),
    "a code of zero": (put("types.2.code", "0"), r"types\[2\]\.code: "),
    "an endless code": (put("types.2.code", "1" * 5000), r"types\[2\]\.code: Expected `str` of length <= 4000"),
    "a code of another": (put("types.3.code", "12"), r"types\[3\]\.code: stored code 12 of 'Camera' contradicts"),
    "a code not below its parent": (put("types.4.code", "10"), r"types\[4\]\.code: stored code 10 of 'Radar'"),
    "no tags": (drop("types.2", "etags"), r"types\[2\]\.etags: an event type has at least one block"),
    "overlapping tags": (put("types.3.etags", [[8224, 16383]]), r"types\[3\]\.etags: stored block .* is not free"),
    "tags outside the parent": (put("types.4.etags", [[8300, 16383]]), r"types\[4\]\.etags: .*not free in 'Loop'"),
    "tags of the protocol": (put("types.0.etags", [[0, 8192]]), r"types\[0\]\.etags: "),
    "an uneven block": (put("types.3.etags", [[8208, 16369]]), r"types\[3\]\.etags: .*not an aligned block"),
    "half a block": (put("types.3.etags", [[8224]]), r"types\[3\]\.etags\[0\]: Expected `array` of length 2"),
    "an attribute outside the vector": (
        put("types.4.attributes", {"x": "optional"}),
        r"types\[4\]\.attributes: 'x' is",
    ),
    "a word for required": (put("types.2.attributes", {"lane": True}), r"types\[2\]\.attributes"),
    "less required below": (put("types.4.attributes", {"lane": "optional"}), r"types\[4\]\.attributes: 'lane' is opt"),
    "a lost vector entry": (drop("families.1.vector", 5), r"types\[2\]\.attributes: 'lane' is not in the vector of"),
    "a lost family": (drop("families", 2), r"types\[3\]\.name: family 'Camera' has no vector"),
    "a family twice": (twice("families", 1), r"families\[3\]\.name: family 'Loop' is there already"),
    "a family without a root type": (put("families.2.name", "Bus"), r"types\[3\]\.name: family 'Camera' has no vector"),
    "a family further down": (
        lambda data: data["families"].append({"name": "Radar", "vector": []}),
        r"families\[3\]\.name: 'Radar' is no type directly below Event",
    ),
    "an unknown attribute type": (
        put("families.1.vector.5.type", "int65"),
        r"families\[1\]\.vector\[5\]\.type: no att",
    ),
    "an empty enum": (put("families.1.vector.6.type", {"enum": []}), r"families\[1\]\.vector\[6\]\.type: no attribute"),
    "more than a type": (
        put("families.1.vector.6.type", {"enum": [1], "x": 1}),
        r"families\[1\]\.vector\[6\]\.type: .* not how",
    ),
    "another context": (put("families.1.vector.2.type", "int8"), r"types\[2\]\.attributes: 'place' has another type"),
    "an attribute twice": (
        put("families.1.vector.6.name", "lane"),
        r"families\[1\]\.vector\[6\]\.name: 'lane' is there",
    ),
    "a private attribute": (
        put("families.1.vector.6.name", "_x"),
        r"families\[1\]\.vector\[6\]\.name: '_x' cannot name",
    ),
    "an attribute that Python uses": (
        put("families.1.vector.6.name", "class"),
        r"families\[1\]\.vector\[6\]\.name: 'class' cannot name",
    ),
    "a value twice": (
        put("families.1.vector.6.type", {"enum": ["rot", "rot"]}),
        r"families\[1\]\.vector\[6\]\.type: no attribute type",
    ),
    "a note that is no text": (put("types.3.deprecated", True), r"types\[3\]\.deprecated: Expected `str \| null`"),
}

TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "line 1 column 1: not JSON"),
    "half a file": (sample().text().encode()[:600], r"line 8 column \d+: not JSON"),
    "a comma too many": (b'{\n  "version": 1,\n}', r"line [23] column \d+: not JSON"),
    "no object": (b"[]", "top: Expected `object`, got `array`"),
    "a key twice": (b'{"version": 1, "version": 1}', "key 'version': is twice in one object"),
    "no UTF-8": (b"{\n\xff}", "line 2: not UTF-8 text"),
    "depth": (b"[" * 100_000, "top: nested too deeply"),
    "a number without end": (b'{"version": ' + b"1" * 5000 + b"}", "top: "),
}


def expect_damage(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    for use in (lambda: Catalog.load(path), lambda: Catalog().save(path), lambda: Catalog.update(path, Event)):
        with pytest.raises(CatalogDamaged, match=rf"catalog\.json: {message}") as caught:
            use()
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == data


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_with_its_place_and_the_file_left_as_it_is(tmp_path: Path, what: str) -> None:
    damage, message = DAMAGE[what]
    data = json.loads(sample().text())
    damage(data)
    expect_damage(tmp_path / "catalog.json", json.dumps(data).encode(), message)


@pytest.mark.parametrize("what", TEXTS)
def test_what_is_no_json_is_named_with_its_line(tmp_path: Path, what: str) -> None:
    expect_damage(tmp_path / "catalog.json", *TEXTS[what])


def test_a_file_is_not_overwritten_by_a_catalog_that_does_not_extend_it(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    sample().save(path)
    data = path.read_bytes()
    other = Catalog()
    other.register(event_type("Barrier"))
    with pytest.raises(CatalogConflict, match=r"catalog\.json has .* use Catalog\.update"):
        other.save(path)
    assert path.read_bytes() == data
    longer = Catalog.load(path)
    longer.register(event_type("Barrier"))
    longer.save(path)
    assert Catalog.load(path).types[-1] == "Barrier"
    with pytest.raises(CatalogConflict):
        sample().save(path)


@pytest.mark.parametrize(
    ("where", "message"),
    [("no/such/folder.json", "No such file"), (".", "Is a directory"), ("file/catalog.json", "Not a directory")],
)
def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, where: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogUnavailable, match=message) as caught:
        Catalog().save(tmp_path / where)
    assert str(tmp_path) in str(caught.value)
    assert isinstance(caught.value, GenusError)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogUnavailable, match=r"none\.json: there is no such file"):
        Catalog.load(tmp_path / "none.json")


def test_a_link_is_followed_and_permissions_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    Catalog().save(real)
    real.chmod(0o640)
    link.symlink_to(real)
    Catalog.update(link, event_type("Barrier"))
    assert link.is_symlink()
    assert Catalog.load(real).types == ("Event", "Barrier")
    assert real.stat().st_mode & 0o777 == 0o640
