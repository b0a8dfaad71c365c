"""Whatever is registered in whatever order: what was given stays, and every number says who conforms to whom."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from genus import Event
from genus.catalog import Catalog
from genus.model import attributes, is_event_type, name_of, tagged_attributes
from tests.examples import examples
from tests.generators import Generator

from .declaring import event_types, hierarchies, reread

FEW = examples(60)


def calls(made: Sequence[type], seed: int) -> list[list[type]]:
    """The classes in random order, shared out to calls of register."""
    chance = random.Random(seed)
    order = list(made)
    chance.shuffle(order)
    cuts = sorted({0, len(order), *(chance.randrange(len(order) + 1) for _ in range(3))})
    return [order[start:end] for start, end in pairwise(cuts)]


def numbers(catalog: Catalog) -> dict[str, Any]:
    """Everything that was given and must stay."""
    types = {name: (entry.code, entry.blocks[:1], entry.parents) for name, entry in catalog.entries.items()}
    bits = {(f, a.name): (bit, a) for f, vector in catalog.families.items() for bit, a in enumerate(vector)}
    return {"types": types, "bits": bits}


@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_nothing_given_ever_changes(made: list[type], seed: int) -> None:
    catalog = Catalog()
    for call in calls(made, seed):
        before, earlier = numbers(catalog), reread(catalog)
        catalog.register(*call)
        after = numbers(catalog)
        assert all(after[part][key] == value for part in before for key, value in before[part].items())
        assert catalog.extends(earlier)
        assert not catalog.register(*call)


@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_codes_and_filters_accept_what_conforms_and_nothing_else(made: list[type], seed: int) -> None:
    catalog = Catalog()
    for call in calls(made, seed):
        catalog.register(*call)
    for wanted in (Event, *made):
        for cls in (Event, *made):
            conforms = issubclass(cls, wanted)
            assert catalog.subsumes(wanted, cls) == conforms
            if is_event_type(cls):
                own = catalog.own_etags(cls)
                accepted = {
                    any(block.accepts(tag) for block in catalog.filters(wanted))
                    for tag in range(own.value, own.value + own.size)
                }
                assert accepted == {conforms}


@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_a_catalog_read_back_is_the_same_and_goes_on_the_same(made: list[type], seed: int) -> None:
    whole, parts = Catalog(), Catalog()
    for call in calls(made, seed):
        whole.register(*call)
        parts = reread(parts)
        parts.register(*call)
        assert parts.text() == whole.text()
    assert reread(whole).text() == whole.text()
    assert not reread(whole).register(*made)


@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_a_tag_names_what_the_event_carries(made: list[type], seed: int) -> None:
    generator, catalog = Generator(seed), Catalog()
    catalog.register(*made)
    for cls in event_types(made):
        event = generator.event(cls)
        present = {a.name for a in attributes(cls) if getattr(event, a.name) is not None}
        for each in (catalog, reread(catalog)):
            name, tag = each.shape(event)
            assert name == name_of(cls)
            assert set(each.vector(cls).names_of(tag)) == present


@FEW
@given(hierarchies(), st.integers(0, 1000))
def test_an_event_tag_gives_the_type_and_the_tagged_attributes(made: list[type], seed: int) -> None:
    generator, catalog = Generator(seed), Catalog()
    for call in calls(made, seed):
        catalog.register(*call)
    owners: dict[int, str] = {}
    for cls in event_types(made):
        event = generator.event(cls)
        for each in (catalog, reread(catalog)):
            etag, names = each.etag_of(event), each.tagged_attributes(cls)
            assert each.type_of(etag) == name_of(cls)
            assert names == tagged_attributes(cls)
            bits = [getattr(event, name) is not None for name in names]
            assert etag == each.etag(cls) + sum(bit << place for place, bit in enumerate(reversed(bits)))
            assert each.etag(cls) % (1 << len(names)) == 0
            assert all(block.size >= 1 << len(names) for block in each.entries[name_of(cls)].blocks)
        own = catalog.own_etags(cls)
        assert own.size == 1 << len(tagged_attributes(cls))
        for tag in range(own.value, own.value + own.size):
            assert owners.setdefault(tag, name_of(cls)) == name_of(cls) == catalog.type_of(tag)


@FEW
@given(st.integers(0, 1000), st.integers(1, 20), st.sampled_from([(), ("place",), ("time", "place", "source")]))
def test_generated_families_round_trip(seed: int, count: int, names: tuple[str, ...]) -> None:
    made = Generator(seed).event_types(count, tagged=names)
    catalog = Catalog()
    assert set(catalog.register(*made).types) == set(map(name_of, made))
    assert catalog.vector(made[-1]) == catalog.vector("Root")
    assert reread(catalog).text() == catalog.text()
