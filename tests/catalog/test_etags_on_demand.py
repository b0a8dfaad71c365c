"""Event tags are given while there is room, and then when a bus asks: they never change, and filters stay right."""

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription, targets
from genus.catalog import Catalog
from genus.catalog._records import NumberAllocator, TypeTable
from genus.codes import EtagSpace
from genus.errors import EtagsExhausted, NotRegistered
from genus.model import is_event_type, name_of
from tests.examples import examples

from .declaring import event_type, event_types, fill_etags, hierarchies, kind, reread

FEW = examples(40)


def small_catalog(bits: int) -> Catalog:
    """A catalog for a bus with few event tags."""
    return Catalog._of(TypeTable({}, {}), NumberAllocator(etags=EtagSpace(bits, reserved=1 << bits - 2)))


def given_blocks(catalog: Catalog) -> dict[str, Any]:
    return {name: entry.blocks for name, entry in catalog.entries.items() if entry.blocks}


def assert_filters_are_exact(catalog: Catalog, made: list[type]) -> None:
    """A type's filters accept the event tags of what conforms to it, and of nothing else that has event tags."""
    tagged = [cls for cls in event_types(made) if catalog.has_etag(cls)]
    for wanted in (each for each in (Event, *made) if not is_event_type(each) or catalog.has_etag(each)):
        blocks = catalog.filters(wanted)
        for cls in tagged:
            own = catalog.own_etags(cls)
            tags = range(own.value, own.value + own.size)
            assert {any(block.accepts(tag) for block in blocks) for tag in tags} == {issubclass(cls, wanted)}


def in_random_order(made: list[type], seed: int) -> list[type]:
    return random.Random(seed).sample(made, len(made))


@FEW
@given(hierarchies(), st.integers(0, 1000), st.sampled_from([5, 6, 7, 14]))
def test_event_tags_asked_for_in_any_order_never_change_and_filters_stay_exact(
    made: list[type], seed: int, bits: int
) -> None:
    """Registered one by one and asked for in between, in small spaces, too."""
    catalog, chance = small_catalog(bits), random.Random(seed)
    catalog.register(Event)
    registered: list[type] = []
    for cls in in_random_order(made, seed):
        before = given_blocks(catalog)
        catalog.register(cls)
        registered.append(cls)
        try:
            asked = chance.choice(registered)
            given = catalog.give_etags(asked)
            assert not is_event_type(asked) or catalog.has_etag(asked)
            assert set(given).isdisjoint(before)
        except EtagsExhausted:
            assert bits < 14
        after = given_blocks(catalog)
        assert all(after[name][: len(blocks)] == blocks for name, blocks in before.items())
        assert all(catalog.entries[name].parents[0] in after for name in after if name != "Event")
        assert_filters_are_exact(catalog, registered)


@FEW
@given(hierarchies(), st.integers(0, 1000), st.sampled_from([5, 6]))
def test_registering_never_fails_for_lack_of_event_tags(made: list[type], seed: int, bits: int) -> None:
    catalog = small_catalog(bits)
    catalog.register(Event)
    for cls in in_random_order(made, seed):
        catalog.register(cls)
    for wanted in made:
        assert all(catalog.subsumes(wanted, cls) == issubclass(cls, wanted) for cls in made)


@pytest.mark.slow
@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_a_catalog_read_back_gives_the_same_event_tags(made: list[type], seed: int) -> None:
    catalog = Catalog()
    fill_etags(catalog)
    catalog.register(*made)
    other = reread(catalog)
    for cls in in_random_order(made, seed):
        assert other.give_etags(name_of(cls)) == catalog.give_etags(cls)
        assert other.extends(reread(catalog))
        assert catalog.text() == other.text() == reread(other).text()
    assert_filters_are_exact(catalog, made)


def full_catalog(*types: type) -> Catalog:
    catalog = Catalog()
    fill_etags(catalog)
    catalog.register(*types)
    return catalog


def test_a_type_without_an_event_tag_is_a_type_like_others_except_on_can() -> None:
    lit = kind("Lit")
    lamp = event_type("Lamp", Event, lit)
    spot = event_type("Spot", lamp)
    catalog = full_catalog(spot)
    assert not catalog.has_etag(lamp)
    assert catalog.subsumes(lit, spot)
    assert catalog.shape(spot()) == ("Spot", 0)
    for ask in (catalog.etag, catalog.own_etags, catalog.filters):
        with pytest.raises(NotRegistered, match=r"Spot has no event tag yet.*genus catalog etags FILE Spot"):
            ask(spot)
    with pytest.raises(NotRegistered, match="Spot has no event tag yet"):
        targets.can.compile(Subscription(spot), catalog)
    assert catalog.filters(lit) == () == targets.can.compile(Subscription(lit), catalog).pairs
    assert catalog.give_etags(lit) == ()
    assert catalog.give_etags(spot) == ("Lamp", "Spot")
    assert catalog.type_of(catalog.etag_of(spot())) == "Spot"
    assert all(
        targets.can.compile(Subscription(each), catalog).accepts(catalog.etag_of(spot())) for each in (lit, lamp, spot)
    )


def test_a_type_asked_for_gets_room_for_those_registered_below_it() -> None:
    """So that its filters stay few when they are asked for one by one."""
    root = event_type("Sensor")
    below = [event_type(f"Sensor{number}", root) for number in range(60)]
    catalog = full_catalog(root, *below)
    catalog.give_etags(root)
    before = catalog.filters(root)
    for cls in below:
        catalog.give_etags(cls)
    assert catalog.filters(root) == before
    assert len(before) == 1


def test_chains_registered_one_after_the_other_get_event_tags() -> None:
    """As in issue 14: each chain would double with every level and leave nothing to the next."""
    catalog = Catalog()
    for chain in range(12):
        cls = Event
        for level in range(20):
            cls = event_type(f"Chain{chain}x{level}", cls)
            catalog.register(cls)
    assert all(map(catalog.has_etag, catalog.types))
    assert max(len(catalog.filters(name)) for name in catalog.types) <= 8


@pytest.mark.slow
def test_five_thousand_types_are_registered_one_by_one() -> None:
    catalog = Catalog()
    last: type = Event
    for chain in range(100):
        last = Event
        for level in range(50):
            last = event_type(f"Link{chain}x{level}", last)
            catalog.register(last)
    assert len(catalog.types) == 5001
    assert not all(map(catalog.has_etag, catalog.types))
    assert catalog.subsumes("Link99x0", "Link99x49")
    assert not catalog.subsumes("Link98x0", "Link99x49")
    assert reread(catalog).text() == catalog.text()
    assert len(catalog.give_etags(last)) == 50
    assert len(catalog.filters("Link99x0")) <= 8


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_is_of_the_earliest_version_that_holds_the_catalog(tmp_path: Path) -> None:
    first, path = event_type("Plain"), tmp_path / "catalog.json"
    catalog, _ = Catalog.update(path, first)
    assert '"version": 1' in catalog.text()
    with Catalog.editing(path) as catalog:
        fill_etags(catalog)
    assert '"version": 3' in path.read_text()
    assert '"etags": []' in path.read_text()


def give(path: str, name: str) -> dict[str, int]:
    catalog, _ = Catalog.update_etags(path, name)
    return {name: catalog.etag(name) for name in catalog.types if catalog.has_etag(name)}


@pytest.mark.slow
def test_processes_that_ask_for_event_tags_at_the_same_time_agree(tmp_path: Path) -> None:
    path, names = tmp_path / "catalog.json", [f"Station{number}" for number in range(12)]
    with Catalog.editing(path) as catalog:
        fill_etags(catalog)
        catalog.register(*map(event_type, names))
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        answers = list(pool.map(give, [str(path)] * 36, names * 3))
    last = give(str(path), names[0])
    assert len({last[name] for name in names}) == 12
    assert all(answer.items() <= last.items() for answer in answers)


def test_types_that_all_have_event_tags_are_only_read(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    Catalog.update(path, event_type("Plain"))
    (tmp_path / "catalog.json.lock").unlink()
    assert Catalog.update_etags(path, "Plain")[1] == ()
    assert [each.name for each in tmp_path.iterdir()] == ["catalog.json"]
    with pytest.raises(NotRegistered, match="'Nothing' is not in the catalog"):
        Catalog.update_etags(path, "Nothing")
