"""Event tags: unique, append-only, and a type's filters accept exactly what is below it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import EtagSpace
from genus.codes.types import Block, Grant
from genus.errors import HierarchyError
from tests.examples import examples

from .laws import Hierarchy, ancestors, shuffled, trees

Read = Callable[[str], Hierarchy]


def wrong_filters(space: EtagSpace, tree: Hierarchy) -> list[tuple[str, str]]:
    """All pairs (T, U) for which T's filters accept U's tag although U is not T or below it, or the reverse."""
    above = ancestors(tree)
    tags = [(name, space.etag(name)) for name in tree]
    return [
        (t, u)
        for t in tree
        for filters in [space.filters(t)]
        for u, tag in tags
        if any(block.accepts(tag) for block in filters) != (t in above[u])
    ]


def one_by_one(space: EtagSpace, tree: Hierarchy, order: list[str]) -> None:
    for name in order:
        space.add(name, next(iter(tree[name]), None))


@given(tree=trees(size=40, roots=3), seed=st.integers(0, 9))
@examples(100)
def test_filters_accept_exactly_what_is_below_in_any_order(tree: Hierarchy, seed: int) -> None:
    space = EtagSpace()
    one_by_one(space, tree, shuffled(tree, seed))
    assert len({space.etag(name) for name in tree}) == len(tree)
    assert min(space.etag(name) for name in tree) >= space.reserved
    assert wrong_filters(space, tree) == []


@given(tree=trees(size=40), rooms=st.lists(st.integers(1, 64), min_size=40, max_size=40))
@examples(60)
def test_nothing_given_ever_changes(tree: Hierarchy, rooms: list[int]) -> None:
    space = EtagSpace()
    for name, room in zip(tree, rooms, strict=False):
        tags, grants = (
            {known: space.etag(known) for known in tree if known in dict.fromkeys(g.name for g in space.grants)},
            space.grants,
        )
        space.add(name, next(iter(tree[name]), None), room)
        assert all(space.etag(known) == tag for known, tag in tags.items())
        assert space.grants[: len(grants)] == grants
    assert wrong_filters(space, tree) == []


@given(tree=trees(size=40, roots=2), cut=st.integers(0, 40))
@examples(60)
def test_a_restored_space_continues_identically(tree: Hierarchy, cut: int) -> None:
    whole, part = EtagSpace(), EtagSpace()
    one_by_one(whole, tree, list(tree))
    one_by_one(part, tree, list(tree)[:cut])
    restored = EtagSpace.restore(part.grants)
    one_by_one(restored, tree, list(tree)[cut:])
    assert restored.grants == whole.grants


@given(tree=trees(size=40, roots=3))
@examples(60)
def test_a_whole_tree_costs_one_filter_per_type(tree: Hierarchy) -> None:
    space = EtagSpace()
    space.add_all(tree)
    assert wrong_filters(space, tree) == []
    assert all(len(space.filters(name)) == 1 for name in tree)


@given(tree=trees(size=40), bits=st.integers(3, 5))
@examples(60)
def test_a_full_space_refuses_and_stays_right(tree: Hierarchy, bits: int) -> None:
    space, added = EtagSpace(bits, reserved=2), dict[str, list[str]]()
    for name, parents in tree.items():
        if all(parent in added for parent in parents):
            before = space.grants
            try:
                space.add(name, next(iter(parents), None))
                added[name] = list(parents)
            except HierarchyError:
                assert space.grants == before
    assert wrong_filters(space, added) == []


@given(tree=trees(size=30, roots=3), units=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=30, max_size=30))
@examples(60)
def test_a_type_does_not_share_its_own_event_tags(tree: Hierarchy, units: list[int]) -> None:
    """Whatever units are mixed: own tags are aligned, disjoint and inside the type's filters, also when restored."""
    space, unit = EtagSpace(), dict(zip(tree, units, strict=False))
    for name, parents in tree.items():
        space.add(name, next(iter(parents), None), unit=unit[name])
    owns = {name: space.own_etags(name) for name in tree}
    taken = [tag for own in owns.values() for tag in range(own.value, own.value + own.size)]
    assert len(taken) == len(set(taken)) == sum(unit.values())
    assert all(own.value % unit[name] == 0 and own.value == space.etag(name) for name, own in owns.items())
    above = ancestors(tree)
    for t in tree:
        blocks = space.filters(t)
        for u, own in owns.items():
            inside = {any(block.accepts(tag) for block in blocks) for tag in range(own.value, own.value + own.size)}
            assert inside == {t in above[u]}
    assert EtagSpace.restore(space.grants).grants == space.grants


def test_a_type_that_finds_too_few_adjacent_tags_is_refused() -> None:
    space = EtagSpace(bits=4, reserved=2)
    with pytest.raises(HierarchyError, match="leave no 16 adjacent event tags of 4 bits for 'A'"):
        space.add("A", unit=16)
    assert space.add("A", room=1, unit=4) == Block(4, 12)
    with pytest.raises(HierarchyError, match="must be a power of two, not 3"):
        space.add("B", unit=3)


def test_one_root_can_use_every_tag() -> None:
    space = EtagSpace(bits=6, reserved=4)
    space.add("root")
    for i in range(59):
        space.add(f"child {i}", "root")
    assert {g.block.value for g in space.grants if g.block.size == 1} <= set(range(4, 64))
    with pytest.raises(HierarchyError, match="exhausted: 60 types"):
        space.add("one more", "root")


def test_halves_of_a_block_make_one_filter() -> None:
    space = EtagSpace(bits=6, reserved=8)
    space.add("A", room=4)
    for i in range(7):
        space.add(f"child {i}", "A")
    tags = {space.etag(f"child {i}") for i in range(7)} | {space.etag("A")}
    assert all(any(block.accepts(tag) for block in space.filters("A")) for tag in tags)
    assert len(space.filters("A")) <= 2


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        (Grant("B", "X", Block(8208, 16368)), "parent 'X' is unknown"),
        (Grant("B", "A", Block(128, 16368)), "not free in 'A'"),
        (Grant("B", "A", Block(8192, 16368)), "not free in 'A'"),
        (Grant("B", None, Block(0, 16368)), "not free in 'the space'"),
        (Grant("B", "A", Block(8209, 16368)), "not an aligned block"),
        (Grant("B", "A", Block(8208, 16367)), "not an aligned block"),
        (Grant("A", "A", Block(8208, 16368)), "another parent"),
        (Grant("A", None, Block(128, 16368), 4), "another unit"),
        (Grant("B", "A", Block(8208, 16382), 4), "smaller than its 4 own event tags"),
        (Grant("B", "A", Block(8208, 16368), 0), "a power of two"),
    ],
)
def test_a_stored_block_that_is_wrong_is_refused_by_name(grant: Grant, message: str) -> None:
    with pytest.raises(HierarchyError, match=message) as caught:
        EtagSpace.restore([Grant("A", None, Block(8192, 8192)), grant])
    assert repr(grant.name) in str(caught.value)


def test_several_parents_and_unknown_names_are_refused() -> None:
    space = EtagSpace()
    with pytest.raises(HierarchyError, match="one parent"):
        space.add_all({"A": [], "B": [], "C": ["A", "B"]})
    with pytest.raises(HierarchyError, match="unknown type 'A'"):
        space.filters("A")
    space.add("A")
    with pytest.raises(HierarchyError, match="it has an event tag already"):
        space.add("A")
    with pytest.raises(ValueError, match="at least 1"):
        space.add("B", "A", room=0)


@pytest.mark.parametrize("seed", [1, 2])
def test_all_vehicle_signals_fit_in_random_order(real: Read, seed: int) -> None:
    tree, space = real("vss/vss_flat.csv"), EtagSpace()
    one_by_one(space, tree, shuffled(tree, seed))
    counts = [len(space.filters(name)) for name in tree]
    assert max(counts) <= 10
    assert sum(counts) / len(counts) < 1.5
    if seed == 1:
        assert wrong_filters(space, tree) == []


def test_all_vehicle_signals_fit_as_a_whole_with_one_filter_each(real: Read) -> None:
    tree, space = real("vss/vss_flat.csv"), EtagSpace()
    space.add_all(tree)
    counts = [len(space.filters(name)) for name in tree]
    assert max(counts) <= 2
    assert counts.count(1) >= len(tree) - 1
