"""Event tags: unique, append-only, and a type's filters accept exactly what is below it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import EtagSpace
from genus.codes._etags import merge_blocks
from genus.codes.types import Block, Grant
from genus.errors import EtagsExhausted, HierarchyError
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
    assert (restored.bits, restored.reserved) == (whole.bits, whole.reserved)


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


@pytest.mark.slow
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


# -- the layout --------------------------------------------------------------------------------------------------------


def layout(space: EtagSpace) -> list[tuple[str, int, int]]:
    """The name, the first event tag and the size of each block."""
    return [(grant.name, grant.block.value, grant.block.size) for grant in space.grants]


def test_two_programs_that_add_the_same_types_give_the_same_event_tags() -> None:
    """Of any version: a root has a sixteenth of what is free; what grows gets as much again, a quarter above or 8."""
    space = EtagSpace(bits=10, reserved=16)
    for name, parent in (("A", None), ("B", "A"), ("C", "B")):
        space.add(name, parent)
    assert layout(space) == [("A", 32, 32), ("B", 33, 1), ("B", 40, 8), ("C", 40, 1)]
    one_by_one(space, {f"c{number}": ("C",) for number in range(12)}, [f"c{number}" for number in range(12)])
    grown = [each for each in layout(space)[4:] if each[0] in "ABC"]
    assert grown == [("C", 44, 4), ("C", 42, 2), ("B", 48, 16), ("C", 48, 8)]
    assert [space.etag(f"c{number}") for number in range(12)] == [*range(44, 48), 42, 43, *range(48, 54)]
    assert [space.add(f"b{number}", "B").value for number in range(3)] == [41, 56, 57]
    before = len(space.grants)
    space.add("D", room=5)
    space.add("E", "D", unit=4)
    space.add("F", "E", room=9)
    for number in range(3):
        space.add(f"f{number}", "F")
    assert layout(space)[before:] == [
        ("D", 16, 8), ("E", 20, 4), ("D", 64, 16), ("E", 64, 16), ("F", 64, 16), ("f0", 65, 1), ("f1", 66, 1),
        ("f2", 67, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bits", "blocks"),
    [
        (7, [("A", 16, 16), ("C", 20, 4), ("E", 8, 1), ("B", 17, 1), ("D", 21, 1)]),
        (5, [("A", 8, 4), ("C", 10, 2), ("E", 12, 1), ("B", 9, 1), ("D", 11, 1)]),
    ],
)
def test_whole_trees_get_room_to_grow_where_it_fits(bits: int, blocks: list[tuple[str, int, int]]) -> None:
    space = EtagSpace(bits, reserved=8)
    space.add_all({"A": [], "B": ["A"], "C": ["A"], "D": ["C"], "E": []})
    assert layout(space) == blocks


@pytest.mark.parametrize(("bits", "reserved", "fits"), [(4, 0, False), (4, 1, True), (4, 15, True), (4, 16, False)])
def test_a_part_of_the_event_tags_belongs_to_the_protocol(bits: int, reserved: int, fits: bool) -> None:
    if not fits:
        with pytest.raises(ValueError, match=r"reserved must be in 1\.\.15, not"):
            EtagSpace(bits, reserved)
        return
    space = EtagSpace(bits, reserved)
    space.add("A")
    for number in range(15 - reserved):
        space.add(f"A{number}", "A")
    assert {space.etag(name) for name in ("A", *(f"A{number}" for number in range(15 - reserved)))} == {
        *range(reserved, 16)
    }


def test_a_lack_of_event_tags_says_who_has_them() -> None:
    space = EtagSpace(bits=4, reserved=8)
    space.add("A", unit=4)
    space.add("B", room=4)
    with pytest.raises(EtagsExhausted) as caught:
        space.add("C", "A")
    assert str(caught.value).startswith(
        "event tags exhausted: 2 types leave no event tag of 4 bits for 'C' below 'A'; of 8 event tags 5 are those"
    )
    with pytest.raises(EtagsExhausted, match="leave no 2 adjacent event tags of 4 bits for 'C' below 'nothing'"):
        space.add("C", unit=2)
    with pytest.raises(HierarchyError, match="a type needs a name"):
        space.add("")
    with pytest.raises(HierarchyError, match="its parent 'X' is unknown; add the parent first"):
        space.add("C", "X")


def test_a_root_that_may_not_grow_uses_the_blocks_that_it_has() -> None:
    space = EtagSpace(bits=5, reserved=8)
    space.add("A", room=2)
    space.add("B", "A", root_grows=False)
    with pytest.raises(EtagsExhausted):
        space.add("C", "A", root_grows=False)
    assert "C" not in space
    assert space.add("C", "A").size == 1


def test_blocks_contain_smaller_ones_and_themselves() -> None:
    whole = Block(8, 0b11000)
    lower, upper = whole.halves()
    assert (whole.size, lower.size, upper.size) == (8, 4, 4)
    assert whole.contains(whole)
    assert whole.contains(lower)
    assert whole.contains(upper)
    assert not lower.contains(whole)
    assert not lower.contains(upper)
    assert merge_blocks([upper, lower]) == (whole,)
    assert merge_blocks([upper, Block(16, 0b11100)]) == (upper, Block(16, 0b11100))


def test_a_type_that_grows_takes_at_most_a_quarter_of_the_largest_room_above_it() -> None:
    """Unless it needs more; so one type does not take all of the room of its siblings."""
    space = EtagSpace(bits=6, reserved=16)
    space.add("A", room=32)
    space.add("B", "A", room=16)
    for number in range(16):
        space.add(f"b{number}", "B")
    assert [each for each in layout(space) if each[0] in "AB"] == [("A", 32, 32), ("B", 48, 16), ("B", 36, 4)]
    space.add("C", "B", room=4)
    assert space.etag("C") in range(32, 64)
