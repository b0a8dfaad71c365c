"""Key patterns: a type with all below it is one pattern, tagged attributes are bits, the rest is left over."""

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, this
from genus.catalog import Catalog
from genus.errors import NotRegistered
from genus.model import is_event_type, name_of, tagged_attributes
from genus.targets import topics
from genus.targets.topics import MQTT, NATS, ZENOH, Dialect, EventKeys, ParsedKey, key_of, parse_key
from tests.examples import examples
from tests.generators import Generator

from ..catalog.declaring import event_type, hierarchies, kind, reread

DIALECTS = (ZENOH, MQTT, NATS)
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


class Roadside(Kind): ...


class Lit(Kind): ...


class Edge(Event, Roadside, tagged=("place",)):
    lane: Maybe[int] = None


class Loop(Edge):
    speed: Maybe[float] = None


class Radar(Loop, Lit):
    angle: Maybe[float] = None


class Camera(Event, Roadside, Lit, tagged=("place", "plate")):
    plate: Maybe[str] = None


class Gate(Event, Roadside): ...


class Bar(Event, Roadside): ...


TYPES = (Radar, Camera, Gate, Bar)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    found = Catalog()
    found.register(*TYPES)
    return found


@pytest.fixture(params=["catalog", "classes"])
def known(request: pytest.FixtureRequest, catalog: Catalog) -> Catalog | None:
    """The types of a catalog, or those of the process."""
    return catalog if request.param == "catalog" else None


def patterns(asked: Any, dialect: Dialect = ZENOH, known: Catalog | None = None, **parts: Any) -> tuple[str, ...]:
    made = topics.compile(Subscription(asked, **parts), dialect, "city", known)
    assert all(dialect.is_pattern(pattern) for pattern in made.patterns)
    return made.patterns


LAYOUT: list[tuple[Any, dict[str, Any], str, str, str]] = [
    (Loop, {}, "city/Edge/*/Loop/**", "city/Edge/+/Loop/#", "city.Edge.*.Loop.>"),
    (Loop, {"exact": True}, "city/Edge/*/Loop", "city/Edge/+/Loop", "city.Edge.*.Loop._"),
    (Loop, {"has": "place"}, "city/Edge/1/Loop/**", "city/Edge/1/Loop/#", "city.Edge.1.Loop.>"),
    (Loop, {"lacks": "place"}, "city/Edge/0/Loop/**", "city/Edge/0/Loop/#", "city.Edge.0.Loop.>"),
    (Edge, {}, "city/Edge/*/**", "city/Edge/+/#", "city.Edge.*.>"),
    (Edge, {"exact": True}, "city/Edge/*", "city/Edge/+", "city.Edge.*._"),
    (Gate, {"has": "place"}, "city/Gate/**", "city/Gate/#", "city.Gate.>"),
    (Event, {}, "city/**", "city/#", "city.>"),
    (Event, {"exact": True}, "city/Event", "city/Event", "city.Event._"),
    (all_of(Edge, Lit), {}, "city/Edge/*/Loop/Radar/**", "city/Edge/+/Loop/Radar/#", "city.Edge.*.Loop.Radar.>"),
]


@pytest.mark.parametrize(("asked", "parts", "zenoh", "mqtt", "nats"), LAYOUT)
def test_one_layout_in_three_dialects(
    asked: Any, parts: dict[str, Any], zenoh: str, mqtt: str, nats: str, known: Catalog | None
) -> None:
    written = [patterns(asked, dialect, known, **parts) for dialect in DIALECTS]
    assert written == [(zenoh,), (mqtt,), (nats,)]


def test_a_kind_is_the_highest_types_that_have_it_each_with_its_own_bits(known: Catalog | None) -> None:
    lit = {"city/Edge/1/Loop/Radar/**", "city/Camera/1/*/**"}
    assert set(patterns(Lit, known=known, has="place")) == lit
    both = topics.compile(Subscription(all_of(Roadside, Lit), has="place"), catalog=known)
    assert (len(both.patterns), both.residual) == (2, None)
    some = topics.compile(Subscription(Roadside, has="place"), catalog=known)
    assert some.residual == Subscription(Roadside, has="place"), "Gate has no tagged attributes"
    assert some.tagged == {"place": True}


def test_exact_pure_classes_are_their_kind_and_each_other() -> None:
    """A class that adds nothing to its kind is the kind, so that either is asked for by the other."""

    class Alarm(Kind): ...

    class Bell(Event, Alarm): ...

    class Siren(Event, Alarm):
        tone: int

    class Whistle(Event, Alarm, tagged=("place",)): ...

    catalog = Catalog()
    catalog.register(Bell, Siren, Whistle)
    for known in (catalog, None):
        for asked in (Alarm, Bell, Whistle):
            assert set(patterns(asked, known=known, exact=True)) == {"city/Bell", "city/Whistle/*"}
        assert patterns(Siren, known=known, exact=True) == ("city/Siren",)
        assert len(patterns(Alarm, known=known)) == 3


def test_what_predicates_imply_is_tested_and_the_rest_is_left_over(known: Catalog | None) -> None:
    asked = Subscription(Camera, has="time", where=(this.plate == "S-AB 1") & this.place.is_absent())
    made = topics.compile(asked, realm="city", catalog=known)
    assert made.patterns == ("city/Camera/0/1/**",)
    assert made.tagged == {"place": False, "plate": True}
    assert made.residual == Subscription(Camera, has="time", where=this.plate == "S-AB 1")


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_what_cannot_match_has_no_pattern(known: Catalog | None) -> None:
    made = topics.compile(Subscription(Loop, lacks="place", where=this.place == "A8"), catalog=known)
    assert (made.patterns, made.residual) == ((), None)
    assert not made.accepts(key_of(Loop()))
    assert "no key is accepted: nothing can match" in made.explain()
    assert topics.compile(Subscription(all_of(Gate, Lit)), catalog=known).patterns == ()


def test_a_type_that_is_not_registered_is_refused() -> None:
    with pytest.raises(NotRegistered, match="Loop"):
        topics.compile(Subscription(Loop), catalog=Catalog())


def test_keys_of_another_realm_are_not_accepted() -> None:
    everything = topics.compile(Subscription(Event), realm="city")
    assert everything.accepts(key_of(Loop(), realm="city"))
    assert not everything.accepts(key_of(Loop(), realm="town"))
    assert not everything.accepts("@genus/city/here/1")
    spaced = topics.compile(Subscription(Event), NATS, "a.b/c d")
    assert spaced.patterns == ("a~2Eb~2Fc~20d.>",)
    assert spaced.accepts(key_of(Loop(), NATS, "a.b/c d"))


def test_explain_says_what_becomes_of_a_subscription() -> None:
    made = topics.compile(Subscription(Lit, has=("place", "time")), MQTT, "city")
    assert made.explain().splitlines() == [
        "topics: Lit has time, place",
        "  type: Radar, Camera, and all subtypes",
        "  tagged: place present",
        "  mqtt: city/Edge/1/Loop/Radar/#",
        "  mqtt: city/Camera/1/+/#",
        "  residual: Lit has time",
    ]


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_is_made_for_every_set_of_tagged_attributes() -> None:
    made = EventKeys(Camera, MQTT, "city")
    assert made.keys == ("city/Camera/0/0", "city/Camera/0/1", "city/Camera/1/0", "city/Camera/1/1")
    assert made.key(Camera(plate="S")) == "city/Camera/0/1"
    assert made.key(Camera(place="A8")) == "city/Camera/1/0"
    assert EventKeys(Gate).keys == ("genus/Gate",)
    assert EventKeys(Event, NATS).keys == ("genus.Event._",)
    assert len(EventKeys(event_type("Wide", fields=WIDE, tagged=tuple(WIDE))).keys) == 256


WIDE: dict[str, Any] = {f"a{number}": int | None for number in range(8)}


@each_dialect
@pytest.mark.parametrize("name", ["Door", "house.Door", "a.b.c.Door", "_", "Tür", "_._", "D0"])
def test_names_with_dots_and_other_letters_are_one_chunk(dialect: Dialect, name: str) -> None:
    metaclass: Any = type(Event)
    door = metaclass("Door", (Event,), {"__module__": __name__}, name=name, tagged=("place",))
    below = metaclass("Below", (door,), {"__module__": __name__}, name=f"{name}.Below")
    for cls, line in ((door, (name,)), (below, (name, f"{name}.Below"))):
        key = key_of(cls(place="A8"), dialect)
        assert dialect.is_key(key)
        assert parse_key(key, dialect) == ParsedKey(line, (True,))
        assert topics.compile(Subscription(door), dialect).accepts(key)
        assert topics.compile(Subscription(door, exact=True), dialect).accepts(key) is (cls is door)


@each_dialect
@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "genus",
        "genus/",
        "genus/_",
        "town/Edge/1/_",
        "genus/Edge/1/Loop//_",
        "genus/1/Edge/_",
        "genus/Edge/1/Loop/0/_",
        "genus/Edge/2/Loop/_",
        "genus/Edge/*/Loop/_",
        "genus/Edge/1/Lo op/_",
        "genus/Edge/1/L~6Fop/_",
        "genus/Edge/1/Loop~2E/_",
        "genus/Edge/1/Loop~FF/_",
        "genus/Event/1/_",
        "genus/Event/Loop/_",
        "genus/@Edge/1/_",
        "@genus/genus/Edge/_",
        "genus/Edge/" + "0/" * 9 + "_",
        "genus/" + "a" * 5000 + "/_",
    ],
)
def test_what_is_no_key_of_an_event_is_none(dialect: Dialect, wrong: str) -> None:
    written = wrong if dialect is NATS else wrong.removesuffix("/_")
    assert parse_key(written.replace("/", dialect.separator), dialect) is None


@each_dialect
@given(chunks=st.lists(st.text(max_size=4) | st.sampled_from(["genus", "Edge", "Loop", "0", "1", "_", "Event"])))
@examples(300)
def test_any_text_is_parsed_or_none(dialect: Dialect, chunks: list[str]) -> None:
    """Nothing raises, and what is parsed is what would be written for it."""
    for key in (dialect.join(chunks), dialect.join(["genus", "Edge", *chunks])):
        if found := parse_key(key, dialect):
            family, *below = map(dialect.escape, found.line)
            bits = ["01"[bit] for bit in found.bits]
            assert dialect.join(["genus", family, *bits, *below, *[dialect.end] * bool(dialect.end)]) == key
            assert (found.family, found.type) == (found.line[0], found.line[-1])


@each_dialect
@pytest.mark.parametrize("seed", range(3))
def test_the_key_of_an_event_says_its_line_and_what_it_has(dialect: Dialect, seed: int) -> None:
    for event in [*Generator(seed).events(50), Radar(place="A8"), Event()]:
        found = parse_key(key_of(event, dialect, "city"), dialect, "city")
        assert found is not None
        assert found.type == name_of(type(event))
        assert found.bits == tuple(getattr(event, name) is not None for name in tagged_attributes(type(event)))
        assert key_of(event, dialect, "city") == EventKeys(type(event), dialect, "city").key(event)


# -- catalogs ----------------------------------------------------------------------------------------------------------


@each_dialect
@given(types=hierarchies())
@examples(60)
def test_patterns_accept_exactly_the_types_that_conform(dialect: Dialect, types: list[type]) -> None:
    """For every type and kind of a random hierarchy, exact or not; and no pattern is there without need."""
    catalog = Catalog()
    catalog.register(*types)
    events = [cls for cls in types if is_event_type(cls)]
    keys = {cls: EventKeys(cls, dialect).keys for cls in events}
    for asked in (*types, Event):
        for exact in (False, True):
            wanted = Subscription(asked, exact=exact)
            made = topics.compile(wanted, dialect, catalog=catalog)
            for cls in events:
                assert {made.accepts(key) for key in keys[cls]} == {wanted.accepts(cls)}, made.explain()
            for pattern in made.patterns:
                assert not any(dialect.includes(other, pattern) for other in made.patterns if other != pattern)


@each_dialect
def test_patterns_grow_with_the_catalog(dialect: Dialect) -> None:
    """A new type below a known one is accepted at once; a new one of a kind when the patterns are made again."""
    marked = kind("Marked")
    root = event_type("Root", fields={"number": int | None}, tagged=("place",))
    one = event_type("One", root, marked)
    catalog = Catalog()
    catalog.register(one)
    asked = {cls: Subscription(cls) for cls in (marked, root, one)}
    before = {cls: topics.compile(each, dialect, catalog=catalog) for cls, each in asked.items()}
    below = event_type("Below", one)
    other = event_type("Other", Event, marked)
    catalog.register(below, other)
    after = {cls: topics.compile(each, dialect, catalog=catalog) for cls, each in asked.items()}
    assert all(made.accepts(key_of(below(), dialect)) for made in before.values())
    assert not before[marked].accepts(key_of(other(), dialect))
    assert after[marked].accepts(key_of(other(), dialect))
    assert [before[cls].patterns == after[cls].patterns for cls in (marked, root, one)] == [False, True, True]
    assert set(before[marked].patterns) < set(after[marked].patterns)


def test_a_type_without_a_class_here_counts() -> None:
    """A catalog that was read knows types that this process never declared."""

    class Marked(Kind): ...

    class Known(Event, Marked): ...

    def elsewhere() -> Catalog:
        catalog = Catalog()
        catalog.register(Known, event_type("Faraway", Event, Marked, tagged=("place",)))
        return reread(catalog)

    catalog = elsewhere()
    assert set(patterns(Marked, known=catalog)) == {"city/Known/**", "city/Faraway/*/**"}
    assert set(patterns(Marked, known=catalog, has="place")) == {"city/Known/**", "city/Faraway/1/**"}


@pytest.mark.slow
def test_a_type_that_may_be_pure_is_accepted_and_left_to_the_receiver() -> None:
    class Marked(Kind): ...

    class Known(Event, Marked): ...

    def elsewhere() -> Catalog:
        catalog = Catalog()
        catalog.register(Known, event_type("MaybePure", Event, Marked))
        return reread(catalog)

    catalog = elsewhere()
    gc.collect()  # the class, which only the other catalog had
    made = topics.compile(Subscription(Marked, exact=True), catalog=catalog)
    assert set(made.patterns) == {"genus/Known", "genus/MaybePure"}
    assert made.residual == Subscription(Marked, exact=True)


def test_a_class_that_was_defined_again_adds_no_pattern() -> None:
    """As in a notebook: the former class is still there, with the same name."""

    def define() -> type[Event]:
        class Cell(Event, Noted): ...

        return Cell

    class Noted(Kind): ...

    cells = [define(), define()]
    assert len(cells) == 2
    assert patterns(Noted) == ("city/Cell/**",)
