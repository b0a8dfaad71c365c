"""Types are found by name, as a search among all declared types would find them."""

import gc
import weakref
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Subscription
from genus.errors import SubscriptionError, SyntaxProblem
from genus.filters import TypesByName
from genus.model import is_type, name_of, subtypes
from genus.model._declared import declared_types
from genus.model._event import EventMeta, KindMeta
from tests.examples import examples

NAMES = ("FoundA", "FoundB", "found.C")
MODULES = ("here", "there", "genus.catalog._declare")
SERIAL = count()


def declare(name: str, module: str, base: type) -> type:
    """A new class, which knows when it was declared."""
    metaclass = EventMeta if issubclass(base, Event) else KindMeta
    body = {"__module__": module, "__qualname__": name, "serial": next(SERIAL)}
    made: type = metaclass(name.replace(".", "_"), (base,), body, name=name)
    return made


def search(name: str) -> list[type]:
    """What a name means by the rules, found by a walk over all classes."""
    walked = dict.fromkeys((*subtypes(Event), *subtypes(Kind)))
    named = sorted((cls for cls in walked if is_type(cls) and name_of(cls) == name), key=lambda cls: cls.serial)  # type: ignore[attr-defined]
    written = [cls for cls in named if cls.__module__ != "genus.catalog._declare"] or named
    return list({(cls.__module__, cls.__qualname__): cls for cls in written}.values())


def parsed(name: str) -> type | None:
    try:
        return Subscription.parse(name).type
    except SyntaxProblem:
        return None


Declaration = tuple[str, str, int]


@pytest.fixture
def few_objects() -> Iterator[None]:
    """Garbage is collected after every step, but not among the objects of the tests before, which takes long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("few_objects")
@examples(60)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(MODULES), st.integers(0, 5)),
            st.integers(0, 5),
        ),
        max_size=12,
    )
)
def test_declarations_and_dropped_classes_are_followed_at_once(steps: list[Declaration | int]) -> None:
    """A step declares a class below `Event`, `Kind` or one declared before, or drops one that nothing derives from."""
    classes: list[type] = []
    for step in steps:
        if isinstance(step, tuple):
            name, module, base = step
            classes.append(declare(name, module, [Event, Kind, *classes][base % (len(classes) + 2)]))
        elif classes:
            dropped = weakref.ref(classes.pop(step % len(classes)))
            gc.collect()
            still_base = any(issubclass(cls, found) for cls in classes) if (found := dropped()) else False
            assert (found is not None) == still_base
            del found
        for name in NAMES:
            meant = search(name)
            assert TypesByName().named(name) == meant
            assert parsed(name) is (meant[0] if len(meant) == 1 else None)
            given = TypesByName([Event, *meant])
            assert given.named(name) == meant
            assert set(given) == {Event, *meant}
        del meant, given
    del classes
    gc.collect()
    assert not any(map(declared_types, NAMES))


def test_a_class_that_cannot_be_declared_is_not_found() -> None:
    with pytest.raises(TypeError):
        EventMeta("FoundD", (Event,), {"__annotations__": {"where": int}})
    assert declared_types("FoundD") == []


def test_the_latest_definition_is_meant_wherever_it_stands_in_the_hierarchy() -> None:
    first, second = declare("FoundE", "here", Event), declare("FoundF", "here", Event)
    declare("FoundG", "here", second)
    latest = declare("FoundG", "here", first)
    assert Subscription.parse("FoundG").type is latest


def test_preferred_types_come_before_all_others() -> None:
    one, other = declare("FoundH", "here", Event), declare("FoundH", "there", Event)
    with pytest.raises(SubscriptionError, match=r"several types are called FoundH: here\.FoundH, there\.FoundH"):
        Subscription.parse("FoundH", TypesByName([one, other]))
    for preferring in (TypesByName(preferred={"FoundH": one}), TypesByName([one, other], {"FoundH": one})):
        assert Subscription.parse("FoundH", preferring).type is one
        assert other not in set(preferring)


def test_a_name_that_is_not_known_shows_twelve_of_those_that_are() -> None:
    known = [declare(f"Known{number:02}", "here", Event) for number in range(13)]
    listed = ", ".join(f"Known{number:02}" for number in range(12))
    for count_, end in ((12, ""), (13, ", ...")):
        with pytest.raises(SyntaxProblem) as caught:
            Subscription.parse("Zzz", known[:count_])
        assert caught.value.reason == f"no event type is called Zzz; known: {listed}{end}"


def test_a_name_without_its_room_is_answered_with_the_names_that_end_with_it() -> None:
    known = [declare(name, "here", Event) for name in ("east.FoundK", "west.FoundK", "west.OtherFoundK")]
    with pytest.raises(SyntaxProblem, match=r"called FoundK; did you mean 'east\.FoundK' or 'west\.FoundK'\? known: "):
        Subscription.parse("FoundK", known)


def test_a_problem_shows_its_column_under_the_text_in_one_line() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse("FoundL\twhere\nlane", [declare("FoundL", "here", Event)])
    assert str(caught.value).split("\n")[1:] == ["  FoundL where lane", "               ^"]


def test_what_is_no_type_has_no_name() -> None:
    found = declare("FoundM", "here", Event)
    given: list[type] = [int, found, Kind]
    assert set(TypesByName(given)) == {found, Kind}
    assert TypesByName(given).named("int") == []


def test_a_type_of_a_catalog_is_meant_only_if_there_is_no_other() -> None:
    made, written = declare("FoundN", "genus.catalog._declare", Event), declare("FoundN", "here", Event)
    assert TypesByName([made]).named("FoundN") == [made]
    assert TypesByName([made, written]).named("FoundN") == [written]
