"""Covering and merging: sound always, and good enough to be of use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.bindings import count_bindings
from genus import Event, Kind, Maybe, Subscription, this
from genus.filters import merge
from genus.filters._covering import covers
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
    ],
)
def test_not_covered(wide: str, narrow: str) -> None:
    assert not covers(sub(wide), sub(narrow))


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
