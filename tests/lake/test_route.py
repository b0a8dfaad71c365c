"""Routing finds exactly the matches of `Subscription.matches`, each once."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription, all_of, this
from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.filters.types import Predicate
from genus.lake._ingest.format import Columns, Types
from genus.lake._ingest.writer import Origin, TableWriter
from genus.lake._jobs import read_object, write_object
from genus.lake._query import lookup, number_tables, route_job, route_plan
from genus.lake._query.lookup import Lookup
from genus.lake._query.number_tables import POSITION_BITS, IntTable, positions_for
from genus.lake._query.route_job import FileShare, read_shares
from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables.commits import POSITION, RECORDED, Shape
from genus.model import name_of, vector
from genus.model._event import EventMeta
from genus.model._types import INT64_MAX, INT64_MIN
from genus.model.types import BoolType, ChoiceType
from genus.targets import python
from genus.targets.arrow import to_batch
from genus.testing._generator import pool
from tests.generators import Bell, Chime, Generator, Impostor, MarkedSampler, Sampler, Stranger, WatchedSampler

TYPES = (Sampler, MarkedSampler, WatchedSampler, Impostor, Stranger, Bell, Chime)


class Stored:
    """Events in tables of a lake; the position of a row is the index of its event."""

    def __init__(self, folder: Path, catalog: Catalog, events: Sequence[Event]) -> None:
        self.catalog, self.events = catalog, events
        writer = TableWriter(Origin(str(folder), "c", 1, "memory", 0, 0))
        for cls in dict.fromkeys(map(type, events)):
            plan = Types(catalog).plan(name_of(cls))
            assert plan is not None
            writer.add(columns_of(cls, events), plan)
        report = writer.finish()
        self.shapes: list[Shape] = report.shapes
        self.tables = {family: _read_files(folder / "tables" / family) for family in {f.table for f in report.files}}

    def plan(self, subscriptions: Iterable[Subscription], shapes: Iterable[Shape] | None = None) -> RoutePlan:
        """A plan for subscriptions of seven subscribers."""
        given = [RouteEntry(f"s{number % 7}", one) for number, one in enumerate(subscriptions)]
        return plan_routes(given, by_id(self.shapes if shapes is None else shapes), self.catalog)

    def matches(self, plan: RoutePlan) -> Counter[tuple[int, int]]:
        """How often each (subscription, event) was found."""
        found: Counter[tuple[int, int]] = Counter()
        for family in plan.families:
            found.update(self.matches_in(plan, family, self.tables[family]))
        return found

    def matches_in(self, plan: RoutePlan, family: str, table: pa.Table) -> Counter[tuple[int, int]]:
        """How often each (subscription, event) of one table was found; counting must agree."""
        own = plan.plans[family]
        rows, subscriptions = own.match(table.select(_there(own.columns_needed(), table)))
        assert own.count(table) == len(rows)
        assert own.counts(table).tolist() == np.bincount(subscriptions, minlength=len(plan)).tolist()
        return Counter(zip(subscriptions.tolist(), table[POSITION].to_numpy()[rows].tolist(), strict=True))

    def expected(self, subscriptions: Sequence[Subscription]) -> Counter[tuple[int, int]]:
        """The matches by `Subscription.matches`, each once."""
        return Counter(
            (number, position)
            for number, subscription in enumerate(subscriptions)
            for position, event in enumerate(self.events)
            if subscription.matches(event)
        )


def _read_files(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))])


def _there(names: Iterable[str], table: pa.Table) -> list[str]:
    return [name for name in names if name in table.schema.names]


def by_id(shapes: Iterable[Shape]) -> dict[int, Shape]:
    """Shapes as a ledger has them."""
    return {shape.id: shape for shape in shapes}


def lookups(plan: RoutePlan, family: str) -> list[Lookup]:
    """All lookups of a family."""
    own = plan.family(family)
    assert own is not None
    return [lookup for each in own.lists for lookup in each.lookups]


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
    return [msgspec.structs.replace(shape, presence=None) if shape.type in types else shape for shape in shapes]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """A catalog of the generator's types."""
    made = Catalog()
    made.register(*TYPES)
    return made


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Stored:
    """Events of four families, with values from the edges."""
    generator = Generator(7)
    generator.types.append(Impostor)
    return Stored(tmp_path_factory.mktemp("route"), catalog, generator.events(300))


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


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))])
def test_many_mixtures_match_as_the_oracle_says(stored: Stored, seed: int) -> None:
    """The same for more seeds and more subscriptions."""
    subscriptions = Generator(seed).subscriptions(300)
    assert stored.matches(stored.plan(subscriptions)) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, 400])
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_values_and_ranges_at_every_edge_are_keys(stored: Stored, count: int) -> None:
    """-0.0, NaN, infinities, the ends of 64 bits, years 1 and 9999, rounded floats: keys match as predicates do."""
    subscriptions = keyed_subscriptions(11, count)
    plan = stored.plan(subscriptions)
    assert {"equal", "range"} <= {each.method for each in lookups(plan, "Sampler")}
    assert stored.matches(plan) == stored.expected(subscriptions)


def test_a_range_of_few_floats_around_zero_has_each_match_once(tmp_path: Path, catalog: Catalog) -> None:
    """-0.0 and 0.0 in such a range are one value."""
    tiny = Stored(tmp_path, catalog, [Sampler(real=real) for real in (0.0, -0.0, 5e-324, -5e-324, 1.0)])
    subscriptions = [Subscription(Sampler, where=this.real.between(-5e-324, high)) for high in (0.0, 5e-324)] * 20
    plan = tiny.plan(subscriptions)
    assert {each.method for each in lookups(plan, "Sampler")} == {"equal"}
    assert tiny.matches(plan) == tiny.expected(subscriptions)


@pytest.mark.parametrize("values", [(INT64_MIN,), (INT64_MIN, INT64_MIN + 1), (INT64_MAX - 1, INT64_MAX)])
def test_the_ends_of_64_bits_alone_are_keys(tmp_path: Path, catalog: Catalog, values: tuple[int, ...]) -> None:
    """A table of neighbouring values may begin or end with the least or greatest integer."""
    numbers = (INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX, None)
    ends = Stored(tmp_path, catalog, [Sampler(number=number) for number in numbers])
    subscriptions = [Subscription(Sampler, where=this.number.isin(values))] * 20
    plan = ends.plan(subscriptions)
    assert {each.method for each in lookups(plan, "Sampler")} == {"equal"}
    assert ends.matches(plan) == ends.expected(subscriptions)


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_subscription_that_contradicts_itself_may_be_the_only_one_with_its_attributes(stored: Stored) -> None:
    """No constants are known then, by which to choose a key."""
    never = Subscription(Sampler, where=(this.tiny > 3) & (this.tiny < 2) & (this.real > 5.0))
    subscriptions = [never, Subscription(Sampler)]
    assert stored.matches(stored.plan(subscriptions)) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_types_with_too_many_shapes_are_matched_by_their_attributes(stored: Stored) -> None:
    """For types without listed presence bits, presence is tested on events; other types are not affected."""
    subscriptions = [*keyed_subscriptions(12, 300), *Generator(13).subscriptions(100)]
    plan = stored.plan(subscriptions, without_tags(stored.shapes, "Sampler", "WatchedSampler", "Chime"))
    assert {each.tests_masks for each in lookups(plan, "Sampler")} == {True, False}
    assert stored.matches(plan) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_where_shapes_would_take_too_much_space_types_are_looked_up(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes are then tested on candidates, and wide subscriptions looked up apart from narrow ones."""
    subscriptions = [*keyed_subscriptions(15, 300), *Generator(16).subscriptions(200)]
    for name in ("UNKEYED_ROOM", "KEYED_ROOM", "UNKEYED_REPEATS", "KEYED_REPEATS"):
        monkeypatch.setattr(route_plan, name, 1)
    plan = stored.plan(subscriptions)
    assert any(each.tests_masks and each.by_type for each in lookups(plan, "Sampler"))
    assert stored.matches(plan) == stored.expected(subscriptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_events_and_candidates_are_processed_in_blocks(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events a batch has, and candidates they have, memory is limited; the matches are the same."""
    subscriptions = [*keyed_subscriptions(17, 100), *Generator(18).subscriptions(100)]
    for module in (number_tables, lookup, route_plan):
        monkeypatch.setattr(module, "BLOCK", 7)
    monkeypatch.setattr(route_plan, "TESTED", 50)
    assert stored.matches(stored.plan(subscriptions)) == stored.expected(subscriptions)


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_plan_is_the_same_after_its_way_to_a_task(stored: Stored) -> None:
    """Its arrays are views of the bytes that were sent."""
    subscriptions = [*keyed_subscriptions(19, 100), *Generator(20).subscriptions(100)]
    plan = stored.plan(subscriptions).family("Sampler")
    assert plan is not None
    arrived, table = read_object(write_object(plan)), stored.tables["Sampler"]
    assert arrived.columns_needed() == plan.columns_needed()
    assert [found.tolist() for found in arrived.match(table)] == [found.tolist() for found in plan.match(table)]


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_family_that_nothing_can_match_in_is_left_out(stored: Stored) -> None:
    """Its events are not read."""
    plan = stored.plan([Subscription(Stranger, where=(this.number == "a") & (this.number == "b"))])
    assert plan.families == ()
    assert plan.family("Stranger") is None


def test_types_that_this_process_does_not_know_match_by_their_codes(tmp_path: Path) -> None:
    """A type that only the lake's catalog has is matched by its supertypes, and by no other exact subscription."""
    catalog, events = a_stranger_catalog()
    stored = Stored(tmp_path, catalog, events)
    known = catalog.declare("Vessel")
    lone = Catalog.parse(catalog.text())
    asked = [Subscription(known), Subscription(known, exact=True), Subscription(known, where=this.length > 10.0)]
    plan = plan_routes([RouteEntry("ann", one) for one in asked], by_id(stored.shapes), lone)
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
    plan = plan_routes([RouteEntry("ann", one) for one in subscriptions], by_id([later]), catalog)
    rows, found = plan.plans["Sampler"].match(pa.table({"_shape": [later.number] * 2}))
    assert (rows.tolist(), found.tolist()) == ([0, 1], [0, 0])


def test_a_type_whose_code_has_more_than_64_bits_may_have_no_events(tmp_path: Path) -> None:
    """Types above it have events whose codes are small numbers."""
    types: list[Any] = [EventMeta("RouteWell0", (Event,), {})]
    for depth in range(1, 66):
        types.append(EventMeta(f"RouteWell{depth}", (types[-1],), {}))
    catalog = Catalog()
    catalog.register(*types)
    assert catalog.code(types[-1]) > INT64_MAX
    wells = Stored(tmp_path, catalog, [cls() for cls in types[:3]])
    subscriptions = list(map(Subscription, types))
    assert wells.matches(wells.plan(subscriptions)) == wells.expected(subscriptions)


def test_an_event_of_a_shape_that_is_not_planned_is_refused(stored: Stored) -> None:
    """It is in no ledger, or the plan is an old one; it is not passed over."""
    plan = stored.plan([Subscription(Stranger)])
    with pytest.raises(LakeError, match="1 events of a shape that its ledger does not list"):
        plan.plans["Stranger"].match(pa.table({"_shape": [12345]}))


def test_an_attribute_that_the_frame_does_not_have_is_absent(stored: Stored) -> None:
    """Predicates on a missing column are unknown, as a key and in a residual."""
    subscriptions = [Subscription(Stranger, where=(this.number == str(at)) | (this.number < "5")) for at in range(20)]
    subscriptions += [Subscription(Stranger, where=this.number == str(at)) for at in range(20)]
    table = stored.tables["Stranger"].drop_columns(["number"])
    assert stored.matches_in(stored.plan(subscriptions), "Stranger", table) == Counter()


def test_a_type_that_the_catalog_does_not_have_is_refused(catalog: Catalog) -> None:
    """The message names the subscription."""

    class Unheard(Event):
        note: Maybe[str] = None

    with pytest.raises(NotRegistered, match="ann: Unheard has note"):
        plan_routes([RouteEntry("ann", Subscription(Unheard, has="note"))], {}, catalog)


@pytest.mark.slow
def test_wide_and_narrow_subscriptions_do_not_repeat_each_other(catalog: Catalog) -> None:
    """Subscriptions to a root are not repeated for each leaf when that would take too much space."""
    root, leaves = a_wide_family(200)
    agreed = Catalog()
    agreed.register(root, *leaves)
    shapes = [Shape("Wide", name_of(cls), str(agreed.code(cls)), "0") for cls in leaves]
    wide = [RouteEntry("ann", Subscription(root))] * 30_000
    narrow = [RouteEntry("bob", Subscription(cls)) for cls in leaves]
    found = lookups(plan_routes([*wide, *narrow], by_id(shapes), agreed), "Wide")
    assert sum(len(each.cells.columns[0]) for each in found) == 30_200


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
    assert "reads _shape, number, real, text" in text


def test_the_same_plan_serves_any_number_of_batches(stored: Stored) -> None:
    """The same tables are used for every batch of a stream."""
    subscriptions = [Subscription(Sampler, where=this.number > at) for at in range(-10, 10)]
    plan, table = stored.plan(subscriptions), stored.tables["Sampler"]
    halves = [table.slice(0, 50), table.slice(50)]
    found = [stored.matches_in(plan, "Sampler", half) for half in halves]
    assert found[0] + found[1] == stored.expected(subscriptions)


def test_positions_keep_the_order_of_values() -> None:
    """For any constants, so that a range covers the bins from that of its lower bound to that of its upper bound."""
    for seed in range(30):
        chosen = random.Random(seed)
        scale = 10.0 ** chosen.randint(-300, 300)
        ends = np.array([chosen.gauss(0, scale) * chosen.choice([1, 1, 1, 1e-9, 1e9]) for _ in range(200)])
        edges = np.array([-np.inf, -1.7e308, -5e-324, 0.0, 5e-324, 1.7e308, np.inf])
        values = np.sort(np.concatenate([ends, edges, ends * 1.0000001]))
        found = positions_for(ends, ends * 1.5).of(values)
        assert (np.diff(found) >= 0).all()
        assert 0 <= found.min() <= found.max() < 1 << POSITION_BITS


@given(st.lists(st.integers(INT64_MIN, INT64_MAX), unique=True), st.lists(st.integers(INT64_MIN, INT64_MAX)))
def test_a_hash_table_finds_what_it_has(keys: list[int], others: list[int]) -> None:
    """The position of each key, and nothing for others."""
    table, asked = IntTable(np.array(keys, np.int64)), [*keys, *others]
    position = {key: number for number, key in enumerate(keys)}
    assert table.find(np.array(asked, np.int64)).tolist() == [position.get(key, -1) for key in asked]


# -- random catalogs ---------------------------------------------------------------------------------------------------


INTEGERS = (INT64_MIN, INT64_MIN + 1, -(2**53) - 1, -1, 0, 1, 7, 2**53, 2**53 + 1, INT64_MAX - 1, INT64_MAX)
FLOATS = (math.nan, -0.0, 0.0, 5e-324, -1.5, 2.5, float(2**53), 9.223372036854775e18, math.inf, -math.inf)
TEXTS = ("", "a", "ab", "A8", "é", "%", "tram 4")


class RandomWorld:
    """Types, events and subscriptions from one seed: shapes by a Zipf law, a third of the values absent."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        kinds: list[Any] = [self.chosen.choice([int, float, str, bool]) for _ in range(self.chosen.randint(3, 12))]
        self.values = {f"a{number}": kind for number, kind in enumerate(kinds)}
        fields = {name: kind | None for name, kind in self.values.items()}
        root: Any = EventMeta(f"Chance{seed}", (Event,), {"__annotations__": fields} | dict.fromkeys(fields))
        self.types = [root]
        for number in range(self.chosen.randint(2, 20)):
            self.types.append(EventMeta(f"Chance{seed}x{number}", (self.chosen.choice(self.types),), {}))
        self.catalog = Catalog()
        self.catalog.register(*self.types)

    def events(self, count: int) -> list[Event]:
        """Events of a few frequent shapes and many rare ones."""
        shapes = [self._shape() for _ in range(60)]
        weights = [1 / (rank + 1) for rank in range(len(shapes))]
        return [self._event(*shape) for shape in self.chosen.choices(shapes, weights, k=count)]

    def _shape(self) -> tuple[Any, list[str]]:
        return self.chosen.choice(self.types), [name for name in self.values if self.chosen.random() < 0.7]

    def _event(self, cls: Any, present: list[str]) -> Event:
        event: Event = cls(**{name: self._value(name) for name in present})
        return event

    def _value(self, name: str) -> Any:
        kind = self.values[name]
        edges: Any = {int: INTEGERS, float: FLOATS, str: TEXTS, bool: (True, False)}[kind]
        return (
            self.chosen.randint(-20, 20) * kind(1)
            if kind in (int, float) and self.chosen.random() < 0.5
            else (self.chosen.choice(edges))
        )

    def subscription(self) -> Subscription:
        """A type, perhaps attributes, and none to three tests, some of them alternatives."""
        names = self.chosen.sample(list(self.values), 3)
        split = self.chosen.randint(0, 2)
        where = [self._test() for _ in range(self.chosen.randint(0, 3))]
        joined = None if not where else where[0] if len(where) == 1 else self._join(where)
        exact = self.chosen.random() < 0.1
        return Subscription(
            self.chosen.choice(self.types), exact=exact, has=names[:split], lacks=names[split : split + 1], where=joined
        )

    def _join(self, tests: list[Predicate]) -> Predicate:
        first, *others = tests
        for other in others:
            first = first & other if self.chosen.random() < 0.7 else first | ~other
        return first

    def _constant(self, name: str) -> Any:
        value = self._value(name)
        return value if value == value else 0.0

    def _test(self) -> Predicate:
        name = self.chosen.choice(list(self.values))
        kind, term = self.values[name], this[name]
        one, other = map(self._constant, (name, name))
        if kind is bool:
            flags: list[Predicate] = [term == one, term != one]
            return self.chosen.choice(flags)
        if kind is str:
            parts: list[Predicate] = [
                term == one,
                term.isin([one, other]),
                term > one,
                term.startswith(str(one)),
                term.contains(str(one)),
                term.like(f"{one}_%"),
                term.length() > 1,
            ]
            return self.chosen.choice(parts)
        computed: list[Predicate] = [term % 7 == 3, term // 3 > 2, abs(term) < 5, term + term > one, -term >= other]
        tests: list[Predicate] = [term == one, term != one, term < one, term >= one, term.between(one, other)]
        return self.chosen.choice([*tests, term.isin([one, other, 3]), term > 2.5, *computed])


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_random_catalogs_are_routed_as_each_subscription_matches(tmp_path: Path, seed: int) -> None:
    """Compared with code generated for each subscription; with listed shapes and with types that have too many."""
    world = RandomWorld(seed)
    stored = Stored(tmp_path, world.catalog, world.events(300))
    subscriptions = [world.subscription() for _ in range(300)]
    tests = [python.compile(subscription) for subscription in subscriptions]
    expected = Counter(
        (number, position)
        for number, matches in enumerate(tests)
        for position, event in enumerate(stored.events)
        if matches(event)
    )
    many = [name_of(cls) for cls in world.types[::3]]
    for shapes in (stored.shapes, without_tags(stored.shapes, *many)):
        assert stored.matches(stored.plan(subscriptions, shapes)) == expected


def test_rows_per_shape_answer_counts_without_events(stored: Stored) -> None:
    """Where type and attributes decide, the ledger's counts are enough."""
    subscriptions = [
        Subscription(Sampler, has="place"),
        Subscription(MarkedSampler),
        Subscription(Sampler, lacks="text"),
    ]
    plan = stored.plan(subscriptions).family("Sampler")
    assert plan is not None
    assert plan.is_plain
    table = stored.tables["Sampler"]
    rows = Counter(table["_shape"].to_pylist())
    assert plan.count_by_shape(rows) == plan.count(table)
    assert plan.counts_by_shape(rows).tolist() == plan.counts(table).tolist()
    keyed = stored.plan([Subscription(Sampler, where=this.number > 3)]).family("Sampler")
    assert keyed is not None
    assert not keyed.is_plain


# -- files in tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "most"), [(10, 200), (10, 2), (3, 2), (1, 1), (1000, 3)])
def test_small_files_are_matched_together_and_large_ones_in_pieces(
    tmp_path: Path, rows: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row once, in order; columns that a file lacks are null."""
    monkeypatch.setattr(route_job, "BATCH_ROWS", rows)
    monkeypatch.setattr(route_job, "MAX_OPEN", most)
    shares, expected = [], []
    for number, count in enumerate([1, 7, 0, 2, 25, 1, 1, 4]):
        values = list(range(100 * number, 100 * number + count))
        table = pa.table({"old": values} | ({"late": values} if number % 2 else {}))
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
        shares.append(FileShare("Old", str(tmp_path / f"{number}.parquet"), f"c{number}", "2026-05-01"))
        expected += [(value, value if number % 2 else None, f"c{number}") for value in values]
    batches = [batch(["present", "late", "_commit"]) for batch in read_shares(shares, {"present": "old"})]
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == expected
    assert all(batch.num_rows >= rows for batch in batches[:-1]) or most < 200
