"""The table of types: codes, bits and event tags of the catalog, and what changed since Studio was opened."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any

import pytest

from genus import Catalog, Event, Kind, Maybe, Unit
from genus.errors import SubscriptionError
from genus.studio._figures import event_text
from genus.studio._questions import Questions
from genus.studio._taps import Taps
from genus.studio._type_table import LOOK_S, TypeTable, describe_types
from genus.studio.types import TypeChangeRow, TypeRow
from tests.studio.made_sources import MadeSource


class Side(Kind, name="table.Side"):
    """At the road."""


class Base(Event, Side, name="table.Base"):
    lane: int


class Below(Base, name="table.Below"):
    speed: Annotated[Maybe[float], Unit("m/s")] = None


class Late(Below, name="table.Late"): ...


def table_of(source: MadeSource, catalog: Path | None = None) -> TypeTable:
    return TypeTable(Taps([source]), catalog)


def row(table: TypeTable, name: str) -> TypeRow:
    found = table.rows[name]
    assert isinstance(found, TypeRow)
    return found


def changes(table: TypeTable) -> list[tuple[str, str]]:
    return [(each.type, each.what) for each in table.changes.values() if isinstance(each, TypeChangeRow)]


def test_rows_have_what_the_catalog_has() -> None:
    catalog = Catalog()
    catalog.register(Below)
    rows = describe_types(catalog, {"table.Side": "At the road."})
    for name, found in rows.items():
        assert prod(map(int, found.factors)) == catalog.code(name)
    below = rows["table.Below"]
    assert below.parents == ("table.Base",)
    assert [(each.name, each.unit, each.required) for each in below.attributes] == [("speed", "m/s", False)]
    assert below.vector[below.attributes[0].bit] == "speed"
    assert rows["table.Side"].kind
    assert rows["table.Side"].doc == "At the road."
    assert rows["table.Side"].etag is None


def test_the_primes_of_a_type_are_those_above_it_and_its_own() -> None:
    catalog = Catalog()
    catalog.register(Late)
    rows = describe_types(catalog)
    above, below = rows["table.Below"].factors, rows["table.Late"].factors
    assert below[: len(above)] == above


def test_types_that_are_declared_later_are_changes() -> None:
    source = MadeSource(types=[Base])
    table = table_of(source)
    table.update([source], 0.0, 1000.0)
    assert "table.Base" in table.rows
    assert changes(table) == []
    source.declared.append(Below)
    table.update([source], LOOK_S / 2, 1001.0)
    assert "table.Below" not in table.rows
    table.update([source], LOOK_S, 1002.0)
    assert changes(table) == [("table.Below", "added")]
    assert "table.Below" in table.rows


class TimedSource(MadeSource):
    """A source that says itself how many events there are in a second of its time."""

    rate = 0.0

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        return dict.fromkeys(counts, self.rate)


def test_rates_of_played_sources_are_of_their_own_time() -> None:
    """They are added to those of others, and what they count in real time is in no rate."""
    live, played = MadeSource(types=[Base]), TimedSource("played")
    table = TypeTable(Taps([live, played]))
    for second in range(5):
        live.counted, played.counted, played.rate = {"table.Base": 3 * second}, {"table.Base": 500 * second}, 5.0
        table.update([live, played], float(second), 1000.0)
    assert (row(table, "table.Base").rate, row(table, "table.Base").events) == (8.0, 2012)
    played.rate = 0.0
    table.update([live, played], 4.5, 1000.0)
    assert row(table, "table.Base").rate < 4


def test_a_class_that_was_generated_has_nothing_to_say_of_itself() -> None:
    """One of the program with the same name does."""
    catalog = Catalog()
    catalog.register(Below)
    made = [catalog.declare(name, generated=True) for name in ("table.Side", "table.Below")]
    source = MadeSource(types=made)
    table = table_of(source)
    table.update([source], 0.0, 1000.0)
    assert [row(table, name).doc for name in ("table.Side", "table.Below")] == ["", ""]
    source.declared = [*made, Side, Late]
    table.update([source], LOOK_S, 1001.0)
    assert row(table, "table.Side").doc == "At the road."


def test_a_catalog_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "city.json"
    Catalog.update(path, Base)
    source = MadeSource()
    table = table_of(source, path)
    table.update([source], 0.0, 1000.0)
    assert "table.Below" not in table.rows
    with Catalog.editing(path) as catalog:
        catalog.register(Below)
        catalog.deprecate(Base, "use Below")
    table.update([source], LOOK_S, 1002.0)
    assert "table.Below" in table.rows
    assert row(table, "table.Base").deprecated == "use Below"
    assert ("table.Below", "added") in [(name, what.split()[0]) for name, what in changes(table)]


def test_a_catalog_file_that_is_gone_for_a_while_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "city.json"
    Catalog.update(path, Base)
    source = MadeSource()
    table = table_of(source, path)
    table.update([source], 0.0, 1000.0)
    path.rename(tmp_path / "elsewhere.json")
    table.update([source], LOOK_S, 1002.0)
    assert "table.Base" in table.rows
    assert changes(table) == []


def test_rates_and_counts_are_those_of_all_sources() -> None:
    one, two = MadeSource("one", [Base]), MadeSource("two", [Base])
    table = TypeTable(Taps([one, two]))
    for second in range(4):
        one.counted, two.counted = {"table.Base": 10 * second}, {"table.Base": 20 * second}
        table.update([one, two], float(second), 1000.0)
    found = row(table, "table.Base")
    assert (found.events, found.rate) == (90, 30.0)


def test_the_last_event_is_shown_while_somebody_looks() -> None:
    source = MadeSource(types=[Base])
    taps = Taps([source])
    table = TypeTable(taps)
    taps.turn(wants_last=True)
    source.emit(Base(lane=1), at_ms=5.0)
    source.emit(Base(lane=2), at_ms=6.0)
    taps.turn(wants_last=True)
    table.update([source], 0.0, 1000.0)
    found = row(table, "table.Base")
    assert (found.last, found.last_ms) == ("lane 2", 6.0)


def test_the_last_event_is_its_values_with_their_units() -> None:
    assert event_text(Below(lane=2, speed=12.5, source="gate")) == "source gate, lane 2, speed 12.5 m/s"


def test_a_catalog_file_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    Catalog().save(path)
    source = MadeSource()
    table = table_of(source, path)
    table.update([source], 0.0, 0.0)
    path.write_text("no catalog")
    for turn in range(1, 5):
        table.update([source], turn * LOOK_S, 0.0)
    assert [type_ for type_, _ in changes(table)] == [str(path)]


def test_of_two_classes_of_one_name_one_is_taken_and_all_others_with_it() -> None:
    first = type("Clash", (Event,), {"__annotations__": {"number": int}})
    second = type("Clash", (Event,), {"__annotations__": {"number": str}})
    others = [type(f"Clash{number}", (Event,), {"__annotations__": {"lane": int}}) for number in range(9)]
    source = MadeSource(types=[first, *others, second])
    table = table_of(source)
    table.update([source], 0.0, 1000.0)
    assert {"Clash", *(f"Clash{number}" for number in range(9))} <= table.rows.keys()


def jacket(type_: type) -> Any:
    return type("Jacket", (Event,), {"__annotations__": {"value": type_}})


@pytest.mark.parametrize("is_second", [False, True])
def test_types_of_one_name_never_hide_each_other(is_second: bool) -> None:
    """A live bus beside a simulation of the same system: rows, counters, subscriptions and plots are those of each."""
    real, made = jacket(float), jacket(int)
    sources = [MadeSource("live", [real]), MadeSource("sim", [made])]
    by_name = {source.name: source for source in sources}
    if is_second:
        sources.reverse()
    taps = Taps(sources)
    table = TypeTable(taps)
    taps.turn(wants_last=True)
    by_name["live"].counted, by_name["sim"].counted = {"Jacket": 2}, {"Jacket": 30}
    by_name["live"].emit(real(value=20.5))
    by_name["sim"].emit(made(value=7))
    taps.turn(wants_last=True)
    table.update(sources, 0.0, 1000.0)
    other = "live" if is_second else "sim"
    own = row(table, f"Jacket ({other})")
    assert (own.name, own.source, own.events) == ("Jacket", other, 2 if is_second else 30)
    assert {row(table, "Jacket").events, own.events} == {2, 30}
    assert {row(table, "Jacket").last, own.last} == {"value 20.5", "value 7"}
    assert {row(table, key).attributes[0].type for key in ("Jacket", f"Jacket ({other})")} == {"float64", "int64"}

    asked = Questions(lambda: {source.name: source.types() for source in sources}, Catalog).ask(
        "Jacket where value > 6"
    )
    assert [seen.source for seen in taps.kept(["live", "sim"]) if asked.is_match(seen)] == ["live", "sim"]


def test_a_subscription_holds_on_the_sources_that_can_read_it() -> None:
    bare = type("Jacket", (Event,), {"__annotations__": {"number": int}})
    types = {"sim": [bare], "live": [jacket(float)]}
    asked = Questions(lambda: types, Catalog).ask("Jacket where value > 20")
    assert asked.on("sim") is None
    assert asked.on("live") is asked.subscription
    with pytest.raises(SubscriptionError, match="speed"):
        Questions(lambda: types, Catalog).ask("Jacket where speed > 20")


def test_an_event_that_several_sources_have_is_counted_once() -> None:
    """A side of a gateway, a bus that a simulation feeds: what the whole does not count is of the part alone."""
    whole, part = MadeSource("whole", [Base, Below]), MadeSource("part", [Base, Below])
    part.part_of = whole
    whole.counted, part.counted = {"table.Base": 5}, {"table.Base": 4, "table.Below": 3}
    table = TypeTable(Taps([whole, part]))
    table.update([whole, part], 0.0, 1000.0)
    assert (row(table, "table.Base").events, row(table, "table.Below").events) == (5, 3)
