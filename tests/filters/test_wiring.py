"""Bindings between components and the messages that make them, with and without super-types."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.bindings import Wiring, count_bindings, read_publishers
from genus import Event, Kind, Subscription
from genus.errors import SubscriptionError
from tests.examples import examples


class Climate(Kind): ...


class Smell(Kind):
    """Without any events."""


class Warmth(Event, Climate): ...


class Damp(Event, Climate): ...


class Draught(Event, Climate): ...


class Passage(Event): ...


class Entry(Passage): ...


ALL = (Climate, Smell, Warmth, Damp, Draught, Passage, Entry)
CLASSES = (Warmth, Damp, Draught, Passage, Entry)
TEXTS = ("Climate", "Warmth", "Damp has place", "Passage", "exact Passage", "Entry", "Climate & Warmth")


def sub(text: str) -> Subscription:
    return Subscription.parse(text, ALL)


def test_a_super_type_is_one_binding_between_two_components() -> None:
    """As in LooCI: without super-types, a binding for each type that two components exchange."""
    found = count_bindings([("desk/average", sub("Climate"))], {"desk/sensors": [Warmth, Damp, Draught]})
    assert (found.wired_per_class, found.wired_per_type) == (Wiring(local=3), Wiring(local=1))
    assert (found.wired_per_class.messages, found.wired_per_type.messages) == (3, 1)


def test_a_binding_between_nodes_takes_two_messages() -> None:
    found = count_bindings([("backend/store", sub("Climate"))], {"desk/sensors": [Warmth, Damp]})
    assert (found.wired_per_class, found.wired_per_type) == (Wiring(distributed=2), Wiring(distributed=1))
    assert (found.wired_per_class.messages, found.wired_per_type.messages) == (4, 2)


def test_a_binding_is_for_each_publisher() -> None:
    """A super-type saves nothing where each of its classes comes from another component."""
    found = count_bindings([("backend", sub("Climate"))], {"a/x": [Warmth], "b/x": [Damp], "backend/y": [Draught]})
    assert found.wired_per_class == found.wired_per_type == Wiring(local=1, distributed=2)


def test_merging_joins_what_one_subscriber_wants_of_one_publisher() -> None:
    asked = [("pc", sub("Passage")), ("pc", sub("Entry")), ("phone", sub("Entry"))]
    found = count_bindings(asked, {"door/contact": [Passage, Entry]})
    assert found.wired_per_class == Wiring(distributed=4)
    assert found.wired_per_type == Wiring(distributed=3)
    assert found.wired_merged == Wiring(distributed=2)
    assert (found.per_class, found.per_type, len(found.merged)) == (3, 2, 1)  # the entries of one table


def test_without_publishers_all_comes_from_another_node() -> None:
    found = count_bindings(map(sub, ["Climate", "Entry"]))
    assert (found.wired_per_class, found.wired_per_type) == (Wiring(distributed=4), Wiring(distributed=2))
    assert found.unpublished == ()


def test_what_nobody_publishes_needs_no_binding_and_is_told() -> None:
    found = count_bindings([("pc", sub("Climate")), ("pc", sub("Entry"))], {"desk": [Warmth]})
    assert found.wired_per_type == Wiring(distributed=1)
    assert found.unpublished == (sub("Entry"),)


def test_the_same_wish_of_the_same_component_is_one() -> None:
    asked = [("pc", sub("Entry")), ("pc", sub("Entry")), ("phone", sub("Entry"))]
    assert count_bindings(asked, {"door": [Entry]}).wired_per_type == Wiring(distributed=2)


def test_an_excess_merges_more() -> None:
    asked = [("pc", sub("Warmth")), ("pc", sub("Damp"))]
    publishers = {"desk": [Warmth, Damp, Draught]}
    assert count_bindings(asked, publishers).wired_merged == Wiring(distributed=2)
    found = count_bindings(asked, publishers, excess=1)
    assert found.wired_merged == Wiring(distributed=1)
    assert found.merged[0].excess == (Draught,)


names = st.sampled_from(["a/x", "a/y", "b/x", "b", "c/z/1"])
wishes = st.lists(st.tuples(names, st.sampled_from(TEXTS).map(sub)), max_size=8)
offers = st.dictionaries(names, st.sets(st.sampled_from(CLASSES), min_size=1), max_size=4)


@given(asked=wishes, publishers=offers)
@examples(300)
def test_bindings_are_what_pairs_of_components_exchange(
    asked: list[tuple[str, Subscription]], publishers: dict[str, set[type]]
) -> None:
    """The oracle asks for every subscriber, publisher and class whether an event of it would be delivered."""
    found = count_bindings(asked, publishers)
    delivered = {
        (who, one, source, cls)
        for (who, one), (source, classes) in product(asked, publishers.items())
        for cls in classes
        if one.accepts(cls)
    }
    bound = {(who, one, source) for who, one, source, _ in delivered}
    for wiring, pairs in ((found.wired_per_class, delivered), (found.wired_per_type, bound)):
        local = sum(who.split("/")[0] == source.split("/")[0] for who, _, source, *_ in pairs)
        assert wiring == Wiring(local, len(pairs) - local)


@pytest.mark.slow
@given(asked=wishes, publishers=offers)
@examples(300)
def test_super_types_never_take_more_messages(
    asked: list[tuple[str, Subscription]], publishers: dict[str, set[type]]
) -> None:
    found = count_bindings(asked, publishers)
    ways = (found.wired_merged, found.wired_per_type, found.wired_per_class)
    assert ways[0].messages <= ways[1].messages <= ways[2].messages
    assert all(way.messages == way.local + 2 * way.distributed for way in ways)


@pytest.mark.slow
@given(asked=wishes, publishers=offers)
@examples(100)
def test_where_all_is_local_or_nothing_is_messages_are_saved_as_bindings_are(
    asked: list[tuple[str, Subscription]], publishers: dict[str, set[type]]
) -> None:
    """Why the paper can call 35 of 55 bindings 36 % fewer messages."""
    here = count_bindings([(f"n/{who}", one) for who, one in asked], {f"n/{who}": c for who, c in publishers.items()})
    apart = count_bindings([(f"s/{who}", one) for who, one in asked], {f"p/{who}": c for who, c in publishers.items()})
    for way in (here.wired_per_class, here.wired_per_type, here.wired_merged):
        assert (way.distributed, way.messages) == (0, way.bindings)
    for way in (apart.wired_per_class, apart.wired_per_type, apart.wired_merged):
        assert (way.local, way.messages) == (0, 2 * way.bindings)


def test_publishers_are_read_from_lines() -> None:
    lines = ["# the office", "", "desk/sensors: Climate", "door : exact Passage, Entry", "desk/sensors: Entry"]
    assert read_publishers(lines, sub) == {
        "desk/sensors": (Warmth, Damp, Draught, Entry),
        "door": (Passage, Entry),
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Climate", "line 1: 'Climate' names no component before a colon"),
        (": Climate", "line 1: ': Climate' names no component before a colon"),
        ("desk: Cold", "line 1: no event type is called Cold"),
        ("desk:", "line 1: "),
        ("desk: Warmth,", "line 1: "),
        ("desk: Warmth has place", "line 1: 'Warmth has place' is no type; a component publishes types"),
        ("desk: Smell", "line 1: no event type is a Smell; name one that has events"),
        ("desk\udcff: Warmth", "line 1: not UTF-8 text"),
    ],
)
def test_a_line_about_a_publisher_that_cannot_be_read_is_named(line: str, problem: str) -> None:
    with pytest.raises(SubscriptionError) as raised:
        read_publishers([line], sub)
    assert problem in str(raised.value)


@given(line=st.text())
def test_any_line_about_a_publisher_is_read_or_refused(line: str) -> None:
    try:
        found = read_publishers([line], sub)
    except SubscriptionError as problem:
        found, line = {}, f"# {problem}"
    assert all(found.values())
    assert bool(found) == bool(line.strip() and not line.strip().startswith("#"))
