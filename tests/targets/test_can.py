"""Acceptance filters: a type with all below it is one pair, tagged attributes are bits, the rest is left over."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, this
from genus.catalog import Catalog
from genus.errors import NotRegistered
from genus.filters.types import AllOf, Predicate, Term
from genus.model import is_event_type, vector
from genus.targets import can
from tests.examples import examples
from tests.generators import Generator

from ..catalog.declaring import event_type, hierarchies

ETAG = 0x3FFF
OTHER_BITS = 0x1FFFC000
"""Priority and node, which no filter looks at."""


class Roadside(Kind): ...


class Lit(Kind): ...


class Loop(Event, Roadside, tagged=("place", "category")):
    lane: int
    category: Maybe[str] = None
    speed: Maybe[float] = None


class Radar(Loop):
    angle: Maybe[float] = None


class Dopplar(Radar, Lit):
    category: str


class Camera(Event, Roadside, Lit, tagged=("source", "place", "plate")):
    plate: Maybe[str] = None


class Barrier(Event, Roadside): ...


class Gate(Event, Roadside): ...


LOOPS = ("Loop", "Radar", "Dopplar")
TYPES = (Loop, Radar, Dopplar, Camera, Barrier, Gate)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    found = Catalog()
    found.register(*TYPES)
    return found


def accepted(made: can.CanFilter, catalog: Catalog) -> dict[str, set[int]]:
    """Which low bits of which types' tags pass, by trying every event tag there is."""
    found: dict[str, set[int]] = {}
    for etag in range(1 << 14):
        if made.accepts(OTHER_BITS | etag) and (name := catalog.type_of(etag)):
            found.setdefault(name, set()).add(etag - catalog.etag(name))
    return found


def compiled(asked: Any, catalog: Catalog, **parts: Any) -> can.CanFilter:
    made = can.compile(Subscription(asked, **parts), catalog)
    assert all(pair.mask <= ETAG and pair.value & ~pair.mask == 0 for pair in made.pairs)
    return made


def test_a_type_with_all_below_it_is_one_pair(catalog: Catalog) -> None:
    made = compiled(Loop, catalog)
    assert len(made.pairs) == 1
    assert accepted(made, catalog) == {name: {0, 1, 2, 3} for name in LOOPS}
    assert made.residual is None


@pytest.mark.parametrize(
    ("has", "lacks", "bits"),
    [
        (("place",), (), {2, 3}),
        (("category",), (), {1, 3}),
        (("place", "category"), (), {3}),
        ((), ("place",), {0, 1}),
        ((), ("place", "category"), {0}),
        (("category",), ("place",), {1}),
    ],
)
def test_tagged_attributes_are_bits_of_the_one_pair(catalog: Catalog, has: Any, lacks: Any, bits: set[int]) -> None:
    made = compiled(Loop, catalog, has=has, lacks=lacks)
    assert len(made.pairs) == 1
    assert accepted(made, catalog) == dict.fromkeys(LOOPS, bits)
    assert made.residual is None


def test_other_attributes_are_left_to_the_receiver(catalog: Catalog) -> None:
    made = compiled(Loop, catalog, has=("place", "time"), lacks=("source", "category"), where=this.lane > 1)
    assert accepted(made, catalog)["Loop"] == {2}
    assert made.residual == Subscription(Loop, has="time", lacks="source", where=this.lane > 1)


def test_exact_is_the_own_tags_only(catalog: Catalog) -> None:
    assert accepted(compiled(Loop, catalog, exact=True, has="place"), catalog) == {"Loop": {2, 3}}
    assert accepted(compiled(Event, catalog, exact=True), catalog) == {"Event": {0}}


def test_a_kind_is_the_types_that_take_it_on_each_with_its_own_bits(catalog: Catalog) -> None:
    made = compiled(Roadside, catalog, has="place")
    loops = {name: {2, 3} for name in LOOPS}
    assert accepted(made, catalog) == {**loops, "Camera": {2, 3, 6, 7}, "Barrier": {0}, "Gate": {0}}
    assert made.residual == Subscription(Roadside, has="place"), "Barrier has no tagged attributes"
    assert compiled(Lit, catalog, has="place").residual is None, "place is tagged in all these types"
    assert accepted(compiled(Lit, catalog, lacks="place"), catalog) == {"Dopplar": {0, 1}, "Camera": {0, 1, 4, 5}}


def test_several_types_at_once_are_those_below_all_of_them(catalog: Catalog) -> None:
    assert accepted(compiled(all_of(Loop, Lit), catalog, has="place"), catalog) == {"Dopplar": {2, 3}}
    assert set(accepted(compiled(all_of(Roadside, Lit), catalog), catalog)) == {"Dopplar", "Camera"}
    assert compiled(all_of(Barrier, Lit), catalog).pairs == ()


def test_any_event_is_one_pair_and_what_it_has_is_left_over(catalog: Catalog) -> None:
    """Where a family has its bits differs, and new families come: they must pass too."""
    made = compiled(Event, catalog, has="place")
    assert len(made.pairs) == 1
    assert made.residual == made.subscription


SAID: dict[str, tuple[Callable[[], Predicate | Term], dict[str, bool] | None]] = {
    "a comparison": (lambda: this.category == "truck", {"category": True}),
    "its opposite": (lambda: ~(this.category == "truck"), {"category": True}),
    "an inequality": (lambda: this.category != this.place, {"category": True, "place": True}),
    "a list": (lambda: this.category.isin(["a", "b"]), {"category": True}),
    "a part of a text": (lambda: this.place.startswith("A8"), {"place": True}),
    "presence": (lambda: this.place.is_present() & this.category.is_absent(), {"place": True, "category": False}),
    "not absent": (lambda: ~this.place.is_absent(), {"place": True}),
    "neither nor": (
        lambda: ~(this.place.is_present() | this.category.is_present()),
        {"place": False, "category": False},
    ),
    "not both": (lambda: ~(this.place.is_present() & this.category.is_present()), {}),
    "alternatives on one": (lambda: (this.place == "A8") | (this.place == "A9"), {"place": True}),
    "alternatives on two": (lambda: (this.place == "A8") | (this.category == "car"), {}),
    "what alternatives share": (
        lambda: ((this.place == "A8") & (this.category == "car")) | this.place.is_present(),
        {"place": True},
    ),
    "an impossible alternative": (
        lambda: ((this.place == "A8") & this.place.is_absent()) | this.category.is_present(),
        {"category": True},
    ),
    "not an implication": (
        lambda: ~(this.place.is_absent() | (this.category == "car")),
        {"place": True, "category": True},
    ),
    "other attributes": (lambda: (this.lane > 1) & (this.speed > 3), {}),
    "arithmetic": (lambda: this.lane + 1 > 2, {}),
    "a contradiction": (lambda: this.place.is_absent() & (this.place == "A8"), None),
    "a contradiction of another attribute": (lambda: this.speed.is_absent() & (this.speed > 1), None),
}


@pytest.mark.parametrize("what", SAID)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_what_a_predicate_says_about_presence_is_used(catalog: Catalog, what: str) -> None:
    predicate, said = SAID[what]
    made = compiled(Loop, catalog, where=predicate())
    if said is None:
        assert (made.pairs, made.residual) == ((), None)
        assert "no frame is accepted" in made.explain()
    else:
        assert made.tagged == said
        places = {"place": 2, "category": 1}
        bits = {tag for tag in range(4) if all(bool(tag & places[name]) is here for name, here in said.items())}
        assert accepted(made, catalog)["Loop"] == bits


def test_presence_alone_leaves_nothing_over_and_all_else_the_whole_part(catalog: Catalog) -> None:
    both = (this.place.is_present()) & (this.category.is_absent()) & (this.speed > 30)
    assert compiled(Loop, catalog, where=both).residual == Subscription(Loop, where=this.speed > 30)
    assert compiled(Loop, catalog, where=this.place.is_present()).residual is None
    assert compiled(Loop, catalog, where=this.speed.is_present()).residual is not None


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_subscription_that_contradicts_itself_accepts_nothing(catalog: Catalog) -> None:
    assert compiled(Loop, catalog, lacks="place", where=this.place == "A8").pairs == ()


def test_a_type_that_is_not_registered_is_refused() -> None:
    with pytest.raises(NotRegistered, match="register Loop"):
        can.compile(Subscription(Loop), Catalog())


def test_types_registered_later_pass_without_compiling_again(catalog: Catalog) -> None:
    root = event_type("Sensor", tagged=("place",))
    found = Catalog()
    found.register(root)
    made = can.compile(Subscription(root, has="place"), found)
    later = event_type("Thermometer", root)
    found.register(later)
    assert made.accepts(found.etag_of(later(place="here")))
    assert not made.accepts(found.etag_of(later()))


def test_an_exact_kind_is_its_pure_classes_and_those_that_may_be(catalog: Catalog) -> None:
    """A catalog does not know methods, so a type this process never saw may be pure or not."""
    made = compiled(Roadside, catalog, exact=True)
    assert set(accepted(made, catalog)) == {"Barrier", "Gate"}
    assert made.residual is None
    assert compiled(Barrier, catalog, exact=True).pairs == made.pairs, "a pure class stands for its kind"
    elsewhere = Catalog._parse("memory", catalog.text().replace('"Gate"', '"Fence"').replace('"Camera"', '"Eye"'))
    made = compiled(Roadside, elsewhere, exact=True)
    assert set(accepted(made, elsewhere)) == {"Barrier", "Fence"}
    assert made.residual == made.subscription


def test_explain_shows_pairs_and_what_is_left(catalog: Catalog) -> None:
    asked = Subscription(Lit, has="place", where=this.source.is_present() & (this.time > this.deadline))
    assert can.compile(asked, catalog).explain() == (
        "can: Lit has place where source is present and time > deadline\n"
        "  type: Camera, Dopplar, and all subtypes\n"
        "  tagged: place present, source present\n"
        f"  {can.compile(asked, catalog).pairs[0]}\n"
        f"  {can.compile(asked, catalog).pairs[1]}\n"
        "  residual: Lit where source is present and time > deadline"
    )
    assert str(can.Pair(0x2042, 0x3FC2)) == "0x2042/0x3fc2  10000001----1-"


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[type], list[Subscription]]:
    """Types with and without tagged attributes, and subscriptions to them, with predicates."""
    made = draw(hierarchies(size=8))
    generator = Generator(draw(st.integers(0, 10_000)))
    found = []
    for cls in draw(st.lists(st.sampled_from([Event, *made]), min_size=1, max_size=6)):
        others = [other for other in made if not is_event_type(other) and not issubclass(cls, other)]
        several = bool(others) and bool(draw(st.integers(0, 1)))
        asked: Any = AllOf((cls, draw(st.sampled_from(others)))) if several else cls
        scope = Subscription(asked).type
        names = draw(st.lists(st.sampled_from([a.name for a in vector(scope)]), max_size=3, unique=True))
        where = generator.predicate(scope, 2) if draw(st.integers(0, 1)) else None
        exact = not isinstance(asked, AllOf) and draw(st.integers(0, 3)) == 0
        found.append(Subscription(asked, exact=exact, has=names[:2], lacks=names[2:], where=where))
    return made, found


@examples(80)
@given(questions(), st.integers(0, 10_000))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_filter_and_residual_together_are_the_subscription(
    asked: tuple[list[type], list[Subscription]], seed: int
) -> None:
    """For any family and subscription, with and without tagged attributes: what matches passes filter and residual."""
    made, subscriptions = asked
    generator, catalog = Generator(seed), Catalog()
    catalog.register(*made)
    events = [generator.event(cls) for cls in (Event, *made) if is_event_type(cls) for _ in range(3)]
    for subscription in subscriptions:
        found = can.compile(subscription, catalog)
        for event in events:
            passed = found.accepts(OTHER_BITS | catalog.etag_of(event))
            left = found.residual is None or found.residual.matches(event)
            assert subscription.matches(event) is (passed and left), found.explain()
