"""Covering and merging: sound always, and good enough to be of use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.bindings import count_bindings
from genus import Event, Kind, Maybe, Subscription, this
from genus.filters import merge
from genus.filters._covering import as_test, covers
from genus.filters._evaluate import COMPARE
from genus.filters._subscription import rebuild
from tests.examples import examples
from tests.generators import Generator


class Sensor(Kind):
    pass


class Device(Event):
    room: Maybe[str] = None
    level: Maybe[int] = None


class Door(Device, Sensor):
    pass


class FrontDoor(Door):
    pass


class BackDoor(Door):
    pass


class Window(Device, Sensor):
    pass


class Heater(Device):
    pass


def sub(text: str) -> Subscription:
    return Subscription.parse(text, [Device, Door, FrontDoor, BackDoor, Window, Heater, Sensor])


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("Device", "Door"),
        ("Sensor", "Door has room"),
        ("Device", "exact Door"),
        ("Device has room", "Door where room == 'a'"),
        ("Device has room", "Device has room, level"),
        ("Device where room is present", "Device has room, level"),
        ("Device where room is absent", "Device lacks room, level"),
        ("Device where level > 3", "Device where level > 5"),
        ("Device where level > 3", "Device where level >= 4 and room == 'a'"),
        ("Device where level >= 3", "Device where level == 3"),
        ("Device where level != 3", "Device where level > 3"),
        ("Device where level in (1, 2, 3)", "Device where level in (1, 3)"),
        ("Device where level < 9", "Device where level in (1, 3)"),
        ("Device where level > 3 or room == 'a'", "Device where room == 'a'"),
        ("Device where level > 1", "Device where level > 3 or level == 2"),
        ("Device where not level > 3", "Device where level <= 2"),
        ("Device where room startswith 'a'", "Device where room startswith 'ab'"),
        ("Device where room contains 'b'", "Device where room startswith 'abc'"),
        ("Device where room startswith 'a'", "Device where room in ('ab', 'ac')"),
        ("Device where room endswith 'b'", "Device where room endswith 'ab'"),
        ("Device where room contains 'b'", "Device where room contains 'abc'"),
        ("Device where room contains 'b'", "Device where room like 'a_bc%d'"),
        ("Device where room startswith 'a'", "Device where room like 'ab%c_'"),
        ("Device where room endswith 'c'", "Device where room like '_b%c'"),
        ("Device where room like 'a_b'", "Device where room in ('axb', 'ayb')"),
        ("Device where room > 'a'", "Device where room == 'b'"),
        ("Device has level", "Device where level > 3 and room == 'a'"),
        ("Device has level", "Device where level + 1 > 3"),
        ("Device has level", "Device where (if level > 1 then room else 'a') == 'b'"),
        ("Device has room", "Device where (if level > 1 then room else room) == 'b'"),
        ("Device has room", "Device where room == 'a' or room startswith 'b'"),
        ("Device lacks room", "Device lacks room, level"),
        ("Device where level > 1 and room == 'a'", "Device where level > 2 and room == 'a'"),
        ("Device where level > 3", "Door where level > 3"),
        ("exact Device", "exact Device has room"),
    ],
)
def test_covered_one_way_only(wide: str, narrow: str) -> None:
    assert covers(sub(wide), sub(narrow))
    assert not covers(sub(narrow), sub(wide))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("Door", "Device"),
        ("exact Device", "Device"),
        ("Device has room", "Device"),
        ("Device lacks room", "Device"),
        ("Device where level > 5", "Device where level > 3"),
        ("Device where level > 5", "Device"),
        ("Device where level != 3", "Device where level >= 3"),
        ("Device where room startswith 'ab'", "Device where room startswith 'a'"),
        ("Device where room endswith 'b'", "Device where room startswith 'ab'"),
        ("Device where room startswith 'b'", "Device where room like '_b%'"),
        ("Device where room contains 'ac'", "Device where room like 'a_c'"),
        ("Device where room contains 'ac'", "Device where room like 'a%c'"),
        ("Device where room == 'a'", "Device where room like 'a%_'"),
        ("Device where room > 'a'", "Device where room startswith 'b'"),
        ("Device has room", "Device where (if level > 1 then room else 'a') == 'b'"),
        ("Device has room", "Device where coalesce(room, 'a') == 'a'"),
        ("Device has room", "Device where room == 'a' or level > 1"),
        ("Device has room", "Device where room is absent or room == 'a'"),
        ("Device where level > 3", "Device where level + 1 > 4"),
        ("Door", "Device & Sensor"),
        ("exact Door", "exact FrontDoor"),
        ("exact Door", "Door"),
    ],
)
def test_not_covered(wide: str, narrow: str) -> None:
    assert not covers(sub(wide), sub(narrow))


MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def test_comparisons_with_constants_cover_those_that_select_a_part_of_their_values() -> None:
    """Exactly those, however they are written: the constant on the other side, or the opposite negated.

    Of `!=` in two spellings it is not found.
    """

    class Scale(Event):
        weight: Maybe[float] = None

    points = [number / 2 for number in range(9)]
    asked = []
    for op, compare in COMPARE.items():
        for bound in (1, 2, 3):
            selected = {point for point in points if compare(point, bound)}
            for where in (
                f"weight {op} {bound}",
                f"{bound} {MIRRORED[op]} weight",
                f"not weight {OPPOSITE[op]} {bound}",
            ):
                asked.append((rebuild(Scale, where=where), selected))
    asked.append((rebuild(Scale, where="weight in (1, 3)"), {1.0, 3.0}))
    for wide, wide_points in asked:
        for narrow, narrow_points in asked:
            is_decided = len(narrow_points) < len(points) - 1 or wide == narrow
            assert covers(wide, narrow) == (is_decided and narrow_points <= wide_points), f"{wide} covers {narrow}"


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("level > 3", (">", 3)),
        ("3 > level", ("<", 3)),
        ("not level > 3", ("<=", 3)),
        ("not not level > 3", (">", 3)),
        ("level in (1, 2)", ("in", (1, 2))),
        ("room startswith 'a'", ("startswith", "a")),
        ("room like 'a_'", ("like", "a_")),
        ("not level in (1, 2)", None),
        ("not room startswith 'a'", None),
        ("level > level", None),
        ("level > 3 or level < 1", None),
    ],
)
def test_what_is_a_test_of_a_value_against_a_constant(where: str, test: tuple[str, object] | None) -> None:
    predicate = rebuild(Device, where=where).where
    assert predicate is not None
    found = as_test(predicate)
    assert (found and found[1:]) == test


@examples(60)
@given(st.integers(0, 10**9))
def test_covering_is_sound_on_generated_cases(seed: int) -> None:
    """If it says that one covers the other, no event matches the narrow one only."""
    generator = Generator(seed)
    subscriptions, events = generator.subscriptions(12, depth=1), generator.events(30)
    for wide in subscriptions:
        for narrow in subscriptions:
            if covers(wide, narrow):
                assert not [event for event in events if narrow.matches(event) and not wide.matches(event)], (
                    f"{wide} does not cover {narrow}"
                )


@examples(60)
@given(st.integers(0, 10**9))
def test_merged_subscriptions_cover_all_and_without_excess_nothing_more(seed: int) -> None:
    generator = Generator(seed)
    subscriptions, events = generator.subscriptions(12, depth=1), generator.events(40)
    merged = merge(subscriptions)
    assert len(merged) <= len(subscriptions)
    assert {member for one in merged for member in one.members} == set(subscriptions)
    for event in events:
        wanted = any(one.matches(event) for one in subscriptions)
        assert any(one.subscription.matches(event) for one in merged) == wanted


def test_an_attribute_that_has_another_type_in_a_family_is_not_the_one_of_all_events() -> None:
    class Meter(Event):
        source: int  # type: ignore[assignment]

    meters, numbered = Subscription(Meter), Subscription(Meter, has="source", where=this.source > 3)
    assert Subscription(Event).covers(meters)
    assert Subscription(Event, has="place").covers(Subscription(Meter, has="place"))
    assert Subscription(Meter, has="source").covers(numbered)
    assert not Subscription(Event, has="source").covers(numbered)
    assert not Subscription(Event, where=this.source.is_present()).covers(numbered)
    assert not Subscription(Event, lacks="source").covers(Subscription(Meter, lacks="source"))


class TestMerging:
    def texts(self, *texts: str, excess: int = 0) -> list[str]:
        return sorted(str(one.subscription) for one in merge(map(sub, texts), excess=excess))

    def test_what_is_covered_goes(self) -> None:
        assert self.texts("Device", "Door", "Door has room", "Device where level > 3") == ["Device"]

    def test_siblings_become_their_parent_if_nothing_else_is_below_it(self) -> None:
        assert self.texts("FrontDoor", "BackDoor", "exact Door") == ["Door"]
        assert self.texts("Door", "Window") == ["Sensor"]

    def test_not_if_that_would_let_others_in(self) -> None:
        assert self.texts("FrontDoor", "BackDoor") == ["BackDoor", "FrontDoor"]
        assert self.texts("Door", "Heater") == ["Door", "Heater"]

    def test_unless_an_excess_is_allowed_which_is_then_named(self) -> None:
        (one,) = merge(map(sub, ["FrontDoor", "BackDoor"]), excess=1)
        assert str(one.subscription) == "Door"
        assert one.excess == (Door,)

    def test_as_many_as_are_allowed_and_the_names_of_the_excess_are_sorted(self) -> None:
        assert self.texts("FrontDoor", "Window", excess=1) == ["FrontDoor", "Window"]
        (one,) = merge(map(sub, ["FrontDoor", "Window"]), excess=2)
        assert (str(one.subscription), one.excess) == ("Sensor", (BackDoor, Door))
        assert set(one.members) == {sub("FrontDoor"), sub("Window")}

    def test_members_are_the_subscriptions_that_were_given_each_once(self) -> None:
        texts = ["Door has room", "Door", "Device", "Door", "Window"]
        (one,) = merge(map(sub, texts))
        assert (str(one.subscription), one.excess) == ("Device", ())
        assert sorted(map(str, one.members)) == sorted(set(texts))

    def test_only_those_with_the_same_conditions_get_a_higher_type(self) -> None:
        assert self.texts("Door has level", "Window has room") == ["Door has level", "Window has room"]
        assert self.texts("Door has level", "Window has level") == [
            "Door has level",
            "Window has level",
        ], "a kind does not have the attribute"
        assert self.texts("FrontDoor has level", "BackDoor has level", "exact Door has level") == ["Door has level"]

    def test_one_without_further_conditions_makes_the_others_of_its_type_needless(self) -> None:
        assert self.texts("Device has room where level > 3", "Device has room") == ["Device has room"]
        assert self.texts("Device where level > 3", "Device where level < 1", "exact Device where level == 2") == [
            "Device where level > 3 or level < 1",
            "exact Device where level == 2",
        ]

    def test_alternatives_on_one_type_are_joined_exactly(self) -> None:
        assert self.texts("Device has room where level > 3", "Device has room, level lacks time") == [
            "Device has room where level > 3 or level is present and time is absent"
        ]

    def test_binding_tables_with_and_without_super_types(self) -> None:
        table = count_bindings(map(sub, ["Door", "Window", "Heater"]))
        assert (table.per_class, table.per_type, len(table.merged)) == (5, 3, 2)
        assert table.saved == pytest.approx(0.6)
        assert count_bindings([]).saved == 0


def test_a_predicate_that_names_a_property_covers_by_what_it_stands_for() -> None:
    class Tank(Event):
        litres: float

        @property
        def gallons(self) -> float:
            return self.litres / 4.546

    low = Subscription(Tank, where=this.gallons < 2)
    assert low.covers(Subscription(Tank, where=this.gallons < 1))
