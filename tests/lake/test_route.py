"""Routing finds exactly the matches of `Subscription.matches`, each once."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from genus import Event, Maybe, Subscription, all_of, this
from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.filters import Predicate
from genus.lake._ingest.format import Columns, Types
from genus.lake._ingest.writer import Origin, TableWriter
from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables.columns import POSITION, RECORDED, Shape, table_schema
from genus.model import BoolType, ChoiceType, name_of, vector
from genus.targets.arrow import to_batch
from genus.testing._generators import (
    Bell,
    Chime,
    Generator,
    Impostor,
    MarkedSampler,
    Sampler,
    Stranger,
    WatchedSampler,
    pool,
)

TYPES = (Sampler, MarkedSampler, WatchedSampler, Impostor, Stranger, Bell, Chime)


class Stored:
    """Events in tables of a lake; the position of a row is the index of its event."""

    def __init__(self, spark: SparkSession, folder: Path, catalog: Catalog, events: Sequence[Event]) -> None:
        self.catalog, self.events = catalog, events
        writer = TableWriter(Origin(str(folder), "c", 1, "memory", 0, 0))
        for cls in dict.fromkeys(map(type, events)):
            plan = Types(catalog).plan(name_of(cls))
            assert plan is not None
            writer.add(columns_of(cls, events), plan)
        report = writer.finish()
        self.shapes: list[Shape] = report.shapes
        self.tables = {
            family: spark.read.schema(table_schema(catalog.vector(family))).parquet(str(folder / "tables" / family))
            for family in {file.table for file in report.files}
        }

    def plan(self, subscriptions: Iterable[Subscription], shapes: Iterable[Shape] | None = None) -> RoutePlan:
        """A plan for subscriptions of seven subscribers."""
        given = [RouteEntry(f"s{number % 7}", one) for number, one in enumerate(subscriptions)]
        return plan_routes(given, self.shapes if shapes is None else shapes, self.catalog)

    def matches(self, plan: RoutePlan) -> Counter[tuple[int, int]]:
        """How often each (subscription, event) was found."""
        found: Counter[tuple[int, int]] = Counter()
        for family in plan.families:
            table = plan.matches(self.tables[family], family)
            found.update((row[0], row[1]) for row in table.select("subscription", POSITION).collect())
        return found

    def expected(self, subscriptions: Sequence[Subscription]) -> Counter[tuple[int, int]]:
        """The matches by `Subscription.matches`, each once."""
        return Counter(
            (number, position)
            for number, subscription in enumerate(subscriptions)
            for position, event in enumerate(self.events)
            if subscription.matches(event)
        )


def columns_of(cls: type[Event], events: Sequence[Event]) -> Columns:
    """The events of one class, with their positions among all."""
    mine = [(position, event) for position, event in enumerate(events) if type(event) is cls]
    batch = to_batch([event for _, event in mine], cls)
    kept = [name for name in batch.schema.names if name != "_type" and batch.column(name).null_count < len(mine)]
    arrays = [batch.column(name) for name in kept]
    arrays += [pa.array([at for at, _ in mine], pa.int64()), pa.array([0] * len(mine), pa.timestamp("us", tz="UTC"))]
    return Columns(name_of(cls), pa.RecordBatch.from_arrays(arrays, [*kept, POSITION, RECORDED]))


def without_tags(shapes: Iterable[Shape], *types: str) -> list[Shape]:
    """The shapes as a lake lists them where some types have too many."""
    return [msgspec.structs.replace(shape, tag=None) if shape.type in types else shape for shape in shapes]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """A catalog of the generator's types."""
    made = Catalog()
    made.register(*TYPES)
    return made


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Stored:
    """Events of four families, with values from the edges."""
    generator = Generator(7)
    generator.types.append(Impostor)
    return Stored(spark, tmp_path_factory.mktemp("route"), catalog, generator.events(300))


KEYS = ("number", "tiny", "count", "real", "single", "text", "blob", "span", "time", "colour", "level", "flag")


def keyed_subscriptions(seed: int, count: int) -> list[Subscription]:
    """Subscriptions with a value or a range as key, some with a residual, at all edge values."""
    chosen = random.Random(seed)
    made = []
    for _ in range(count):
        cls = chosen.choice([Sampler, MarkedSampler, WatchedSampler, Impostor])
        where = comparison(chosen)
        where = where if chosen.random() < 0.6 else where & comparison(chosen)
        made.append(Subscription(cls, has=chosen.choice([(), ("place",)]), where=where))
    return made


def comparison(chosen: random.Random) -> Predicate:
    """A test of one attribute against constants."""
    attribute = vector(Sampler).find(chosen.choice(KEYS))
    term, (one, other) = this[attribute.name], chosen.choices(pool(attribute.type), k=2)
    if isinstance(attribute.type, BoolType | ChoiceType):
        tests: list[Predicate] = [term == one, term != one, term.isin([one, other])]
        return chosen.choice(tests)
    ranges: list[Predicate] = [
        term < one,
        term <= one,
        term > one,
        term >= one,
        term.between(one, other),
        ~(term < one),
    ]
    points: list[Predicate] = [term == one, term.isin([one, other]), term != one]
    return chosen.choice(ranges + points)


def test_any_mixture_matches_as_the_oracle_says(stored: Stored) -> None:
    """Types, kinds, exact, all_of, has, lacks and predicates of nearly as many forms, in several families at once."""
    subscriptions = Generator(1).subscriptions(40)
    plan = stored.plan(subscriptions)
    assert {"Sampler", "Stranger", "Bell", "Chime"} == set(plan.families)
    assert stored.matches(plan) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_mixtures_match_as_the_oracle_says(stored: Stored, seed: int) -> None:
    """The same for more seeds and more subscriptions."""
    subscriptions = Generator(seed).subscriptions(300)
    assert stored.matches(stored.plan(subscriptions)) == stored.expected(subscriptions)


@pytest.mark.parametrize("count", [150, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_values_and_ranges_at_every_edge_are_keys(stored: Stored, count: int) -> None:
    """-0.0, NaN, infinities, the ends of 64 bits, years 1 and 9999, rounded floats: keys match as predicates do."""
    subscriptions = keyed_subscriptions(11, count)
    plan = stored.plan(subscriptions)
    used = {(each.method, each.residual is not None) for each in plan._plans["Sampler"]}
    assert {("equal", False), ("range", False), ("range", True)} <= used
    assert stored.matches(plan) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_types_with_too_many_shapes_are_matched_by_their_attributes(stored: Stored) -> None:
    """For types without listed presence bits, presence is tested on events; other types are not affected."""
    subscriptions = [*keyed_subscriptions(12, 30), *Generator(13).subscriptions(10)]
    plan = stored.plan(subscriptions, without_tags(stored.shapes, "Sampler", "WatchedSampler", "Chime"))
    assert {each.shapes.tagged for each in plan._plans["Sampler"]} == {True, False}
    assert stored.matches(plan) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_counting_agrees_with_matching(stored: Stored) -> None:
    """Counting by list sizes and by shape equals counting the matches."""
    subscriptions = [*keyed_subscriptions(14, 24), *(Subscription(Sampler, has=name) for name in ("place", "text"))]
    expected = stored.expected(subscriptions)
    for shapes in (stored.shapes, without_tags(stored.shapes, "Sampler")):
        plan = stored.plan(subscriptions, shapes)
        table = stored.tables["Sampler"]
        assert plan.count(table, "Sampler").collect() == [(sum(expected.values()),)]
        by_subscription = Counter(number for number, _ in expected)
        assert dict(map(tuple, plan.counts(table, "Sampler").collect())) == dict(by_subscription)


def test_a_match_names_its_subscriber_and_keeps_the_event(stored: Stored) -> None:
    """Columns are subscriber, subscription and then those of the event, unchanged."""
    plan = stored.plan([Subscription(Stranger), Subscription(Bell), Subscription(Stranger, has="number")])
    table = stored.tables["Stranger"]
    found = plan.matches(table, "Stranger")
    assert found.columns == ["subscriber", "subscription", *table.columns]
    assert set(map(tuple, found.select("subscriber", "subscription").distinct().collect())) == {("s0", 0), ("s2", 2)}
    events = found.where("subscription = 0").drop("subscriber", "subscription")
    assert Counter(map(tuple, events.collect())) == Counter(map(tuple, table.collect()))


def test_the_subscriber_costs_nothing_where_it_is_not_asked_for(stored: Stored) -> None:
    """Spark drops the lookup of the subscriber if the column is not selected."""
    found = stored.plan([Subscription(Stranger)]).matches(stored.tables["Stranger"], "Stranger")
    plans = [frame._jdf.queryExecution().toString() for frame in (found, found.select("subscription"))]
    assert ["scalar-subquery" in text.split("Optimized")[1] for text in plans] == [True, False]


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_family_that_nothing_can_match_in_is_left_out(stored: Stored) -> None:
    """Its events give no matches, and counting them gives zero."""
    plan = stored.plan([Subscription(Stranger, where=(this.number == "a") & (this.number == "b"))])
    table = stored.tables["Stranger"]
    assert plan.families == ()
    assert plan.matches(table, "Stranger").collect() == [] == plan.counts(table, "Stranger").collect()
    assert plan.count(table, "Stranger").collect() == [(0,)]


def test_types_that_this_process_does_not_know_match_by_their_codes(spark: SparkSession, tmp_path: Path) -> None:
    """A type that only the lake's catalog has is matched by its supertypes, and by no other exact subscription."""
    catalog, events = a_stranger_catalog()
    stored = Stored(spark, tmp_path, catalog, events)
    known = catalog.declare("Vessel")
    lone = Catalog.parse(catalog.text())
    asked = [Subscription(known), Subscription(known, exact=True), Subscription(known, where=this.length > 10.0)]
    plan = plan_routes([RouteEntry("ann", one) for one in asked], stored.shapes, lone)
    assert stored.matches(plan) == Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1, (2, 1): 1})


def a_stranger_catalog() -> tuple[Catalog, list[Event]]:
    class Vessel(Event):
        length: Maybe[float] = None

    class Tug(Vessel):
        power: Maybe[int] = None

    catalog = Catalog()
    catalog.register(Vessel, Tug)
    return catalog, [Vessel(length=5.0), Tug(length=30.0, power=3)]


def test_a_shape_of_a_type_that_is_in_no_catalog_matches_by_its_code(catalog: Catalog) -> None:
    """Types are matched by dividing codes, not by name."""
    later = Shape("Sampler", "LaterSampler", str(catalog.code(Sampler) * 1_000_003), "1")
    subscriptions = [Subscription(Sampler), Subscription(MarkedSampler), Subscription(Sampler, exact=True)]
    plan = plan_routes([RouteEntry("ann", one) for one in subscriptions], [later], catalog)
    assert plan._plans["Sampler"][0].lookup.to_pylist()[0]["__found"] == [0]


def test_an_attribute_that_the_frame_does_not_have_is_absent(stored: Stored) -> None:
    """Predicates on a missing column are unknown, as a key and in a residual."""
    subscriptions = [Subscription(Stranger, where=(this.number == str(at)) | (this.number < "5")) for at in range(20)]
    subscriptions += [Subscription(Stranger, where=this.number == str(at)) for at in range(20)]
    found = stored.plan(subscriptions).matches(stored.tables["Stranger"].drop("number"), "Stranger")
    assert found.count() == 0


def test_a_type_that_the_catalog_does_not_have_is_refused(catalog: Catalog) -> None:
    """The message names the subscription."""

    class Unheard(Event):
        note: Maybe[str] = None

    with pytest.raises(NotRegistered, match="ann: Unheard has note"):
        plan_routes([RouteEntry("ann", Subscription(Unheard, has="note"))], [], catalog)


def test_an_attribute_called_subscriber_is_refused(spark: SparkSession, stored: Stored) -> None:
    """It would clash with a column of the route."""
    table = stored.tables["Stranger"].withColumnRenamed("number", "subscriber")
    with pytest.raises(LakeError, match="column subscriber of its own"):
        stored.plan([Subscription(Stranger)]).matches(table, "Stranger")


def test_wide_and_narrow_subscriptions_do_not_repeat_each_other(catalog: Catalog) -> None:
    """Subscriptions to a root are not repeated for each leaf when that would take too much space."""
    root, leaves = a_wide_family(200)
    agreed = Catalog()
    agreed.register(root, *leaves)
    shapes = [Shape("Wide", name_of(cls), str(agreed.code(cls)), "0") for cls in leaves]
    wide = [RouteEntry("ann", Subscription(root))] * 30_000
    narrow = [RouteEntry("bob", Subscription(cls)) for cls in leaves]
    lookup = plan_routes([*wide, *narrow], shapes, agreed)._plans["Wide"][0].lookup
    assert sum(map(len, lookup["__found"].to_pylist())) == 30_200


def a_wide_family(count: int) -> tuple[type[Event], list[type[Event]]]:
    class Wide(Event): ...

    metaclass: Any = type(Event)
    return Wide, [metaclass(f"Leaf{number}", (Wide,), {}) for number in range(count)]


def test_the_explanation_says_how_subscriptions_are_found(stored: Stored) -> None:
    """The text names shape, equality, range and residual, the columns read and the sizes of tables."""
    asked = [Subscription(Sampler, has="place")] * 3
    asked += [Subscription(Sampler, where=this.number == at) for at in range(20)]
    both = [(this.real > at) & this.text.contains("a") for at in range(20)]
    asked += [Subscription(all_of(Sampler, MarkedSampler), where=where) for where in both]
    text = stored.plan(asked).explain()
    assert "3 subscriptions found by type and attributes" in text
    assert "20 subscriptions found also by the value of number" in text
    assert "20 subscriptions found also by the range of real" in text
    assert "what is found is tested by 1 predicate, such as text contains 'a'" in text
    assert "reads _shape, real, text" in text


def test_the_same_plan_serves_any_number_of_frames(stored: Stored) -> None:
    """The same tables are used for every batch of a stream."""
    subscriptions = [Subscription(Sampler, where=this.number > at) for at in range(-10, 10)]
    plan, table = stored.plan(subscriptions), stored.tables["Sampler"]
    halves = [plan.matches(table.where(f"{POSITION} % 2 = {rest}"), "Sampler") for rest in (0, 1)]
    found = Counter(tuple(row) for half in halves for row in half.select("subscription", POSITION).collect())
    assert found == stored.expected(subscriptions)


def test_bins_keep_the_order_of_values() -> None:
    """For any constants, so that a range covers the bins from that of its lower bound to that of its upper bound."""
    import numpy as np

    from genus.lake._query.lookup_tables import bins_for

    for seed in range(30):
        chosen = random.Random(seed)
        scale = 10.0 ** chosen.randint(-300, 300)
        ends = np.array([chosen.gauss(0, scale) * chosen.choice([1, 1, 1, 1e-9, 1e9]) for _ in range(200)])
        edges = np.array([-np.inf, -1.7e308, -5e-324, 0.0, 5e-324, 1.7e308, np.inf])
        values = np.sort(np.concatenate([ends, edges, ends * 1.0000001]))
        assert (np.diff(bins_for(ends, ends * 1.5).of(values)) >= 0).all()
