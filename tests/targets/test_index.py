"""The index finds exactly the subscriptions that match, whatever they say and however they come and go."""

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, targets, this
from genus.errors import SubscriptionError
from genus.filters._expression import Predicate
from genus.model import Float32
from genus.targets.index import SubscriptionIndex
from genus.targets.index import _buckets as buckets
from genus.targets.index import _family_index as family_index
from genus.targets.index import _segments as segments
from tests.examples import examples


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"
    BIKE = "bike"


class Roadside(Kind): ...


class Heavy(Kind): ...


class Alarm(Kind): ...


class Vehicle(Event, Roadside):
    speed: float
    lane: int
    heading: Maybe[float] = None
    narrow: Maybe[Float32] = None
    category: Maybe[Category] = None
    label: Maybe[str] = None
    blob: Maybe[bytes] = None
    moving: Maybe[bool] = None
    gap: Maybe[timedelta] = None


class Lorry(Vehicle, Heavy):
    axles: Maybe[int] = None


class Weather(Event):
    speed: int
    label: Maybe[int] = None


class Bell(Event, Alarm): ...


class Siren(Event, Alarm):
    tone: float


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 0.1, 1.0, 30.0, 2.0**53, 1e300, math.inf]
INTS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1]
TIMES = [
    NOON,
    NOON + timedelta(microseconds=1),
    NOON.astimezone(timezone(timedelta(hours=2))),
    NOON - timedelta(days=1),
]
SPANS = [timedelta(0), timedelta(microseconds=-1), timedelta(seconds=3)]
TEXTS = ["", "a", "ab", "b", "é"]
OCTETS = [b"", b"a", b"b"]
CONSTANTS: dict[str, list[Any]] = {
    "speed": [*FLOATS, 0, 30, 2**53 + 1],
    "heading": FLOATS,
    "narrow": FLOATS,
    "lane": [*INTS, 0.5, -0.5, 2.0**53, 2.0**63, -(2.0**63), math.inf, -math.inf, 1e300],
    "axles": INTS,
    "time": TIMES,
    "gap": SPANS,
}
EQUALITIES: dict[str, list[Any]] = {
    "label": TEXTS,
    "blob": OCTETS,
    "category": list(Category),
    "moving": [True, False],
}
VALUES: dict[str, list[Any]] = {
    "speed": [*FLOATS, math.nan, 30, 2**53 + 1],
    "lane": [*INTS, 2**63, -(2**70), 2.5, 1.0, True],
    "heading": [*FLOATS, math.nan, None],
    "narrow": [*FLOATS, None],
    "category": [*Category, "car", None],
    "label": [*TEXTS, "unheard of", None],
    "blob": [*OCTETS, None],
    "moving": [True, False, None],
    "gap": [*SPANS, None],
    "time": [*TIMES, None],
    "place": ["here", None],
}
COMPARISONS: dict[str, Callable[[Any, Any], Predicate]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def random_conjunct(rng: random.Random, names: list[str]) -> Predicate:
    name = rng.choice(names)
    term, constant = this[name], rng.choice(CONSTANTS[name])
    if rng.random() < 0.2:
        return term.isin(rng.sample(CONSTANTS[name], 2))
    return COMPARISONS[rng.choice(list(COMPARISONS))](term, constant)


def random_equality(rng: random.Random) -> Predicate:
    name = rng.choice(list(EQUALITIES))
    chosen = rng.sample(EQUALITIES[name], rng.choice([1, 2]))
    test = this[name] == chosen[0] if len(chosen) == 1 else this[name].isin(chosen)
    return ~test if rng.random() < 0.3 else test


def random_residual(rng: random.Random) -> Predicate:
    return rng.choice(
        [
            (this.speed > 1.0) | (this.lane == 2),
            ~(this.heading > 0.0),
            this.speed * 2 > 30,
            this.label.startswith("a"),
            this.label < "b",
            this.speed > this.heading,
            this.heading.is_present(),
            this.category.is_absent(),
            this.time - this.time == timedelta(0),
        ]
    )


def random_subscription(rng: random.Random) -> Subscription:
    if rng.random() < 0.2:
        kinds = [Event, Roadside, Heavy, Alarm, Bell, Siren, Weather]
        where = random_conjunct(rng, ["time"]) if rng.random() < 0.5 else None
        return Subscription(
            rng.choice(kinds), exact=rng.random() < 0.3, has="place" if rng.random() < 0.3 else (), where=where
        )
    type_: Any = rng.choice([Vehicle, Vehicle, Lorry, all_of(Vehicle, Heavy)])
    parts = [random_conjunct(rng, list(CONSTANTS)) for _ in range(rng.randrange(3))]
    parts += [random_equality(rng)] if rng.random() < 0.4 else []
    parts += [random_residual(rng)] if rng.random() < 0.3 else []
    where = None
    for part in parts:
        where = part if where is None else where & part
    has, lacks = rng.sample(["place", "label", "heading", "axles"], 2)
    return Subscription(
        type_,
        exact=type_ in (Vehicle, Lorry) and rng.random() < 0.2,
        has=has if rng.random() < 0.2 else (),
        lacks=lacks if rng.random() < 0.2 else (),
        where=where,
    )


def random_event(rng: random.Random) -> Event:
    context = {name: rng.choice(VALUES[name]) for name in ("time", "place")}
    match rng.randrange(6):
        case 0:
            return Weather(speed=rng.choice(INTS), label=rng.choice([1, None]), **context)
        case 1:
            return rng.choice([Bell(**context), Siren(tone=1.0, **context), Event(**context)])
    values = {name: rng.choice(options) for name, options in VALUES.items()}
    return Vehicle(**values) if rng.random() < 0.5 else Lorry(axles=rng.choice([*INTS, None]), **values)


def matching(subscriptions: dict[int, Subscription], event: Event) -> list[int]:
    return sorted(handle for handle, subscription in subscriptions.items() if subscription.matches(event))


def check(index: SubscriptionIndex, subscriptions: dict[int, Subscription], events: list[Event]) -> None:
    assert len(index) == len(subscriptions)
    for event in events:
        assert index.match(event).tolist() == matching(subscriptions, event), event


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make buckets, groups and segments small, so that small tests cross every boundary."""
    monkeypatch.setattr(buckets, "MAX_LISTED", 2)
    monkeypatch.setattr(buckets, "MIN_ROWS", 3)
    monkeypatch.setattr(family_index, "LARGE_BUCKET", 2)
    monkeypatch.setattr(segments, "PENDING", 5)
    monkeypatch.setattr(segments, "MIN_INTERVALS", 2)
    monkeypatch.setattr(segments, "FIRST_SEGMENT", 64)
    monkeypatch.setattr(segments, "GROWTH", 1)
    monkeypatch.setattr(segments, "MAX_WASTE", 0.1)
    monkeypatch.setattr(segments, "SMALL", 40)


@given(seed=st.integers(0, 2**32))
@examples(60)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_matches_what_the_oracle_matches(seed: int) -> None:
    rng = random.Random(seed)
    subscriptions = [random_subscription(rng) for _ in range(40)]
    index = SubscriptionIndex(subscriptions)
    check(index, dict(enumerate(subscriptions)), [random_event(rng) for _ in range(8)])
    index.compact()
    check(index, dict(enumerate(subscriptions)), [random_event(rng) for _ in range(8)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_stays_exact_while_subscriptions_come_and_go(seed: int, eager: None) -> None:
    churn(random.Random(seed), steps=500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_stays_exact_over_long_churn_at_natural_sizes(seed: int) -> None:
    churn(random.Random(seed), steps=12_000, pool=400, checks=0.01)


def churn(rng: random.Random, steps: int, pool: int = 200, checks: float = 0.2) -> None:
    """Random additions, bulk additions, removals and compactions, against a plain dictionary."""
    pooled = [random_subscription(rng) for _ in range(pool)]
    index, known = SubscriptionIndex(), dict[int, Subscription]()
    for _ in range(steps):
        action = rng.random()
        if action < 0.5 or not known:
            one = rng.choice(pooled)
            known[index.add(one)] = one
        elif action < 0.55:
            many = [rng.choice(pooled) for _ in range(rng.randrange(40))]
            known |= dict(zip(index.add_all(many), many, strict=True))
        elif action < 0.99:
            for handle in rng.sample(list(known), min(len(known), rng.choice([1, 1, 1, 30]))):
                index.remove(handle)
                del known[handle]
        else:
            index.compact()
        if rng.random() < checks:
            check(index, known, [random_event(rng)])
    check(index, known, [random_event(rng) for _ in range(10)])
    assert sorted(index) == sorted(known)
    assert all(index.subscription(handle) == one for handle, one in known.items())


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_stays_exact_across_painting_and_growth() -> None:
    rng = random.Random(7)
    index, known = SubscriptionIndex(), dict[int, Subscription]()
    pooled = [random_subscription(rng) for _ in range(500)]
    for size in (100, 255, 256, 257, 320, 1_000, 5_000, 12_000):
        while len(known) < size:
            one = rng.choice(pooled)
            known[index.add(one)] = one
        check(index, known, [random_event(rng) for _ in range(2)])
    assert "bitmaps of" in index.explain()


def test_bitmaps_grow_also_while_events_keep_coming() -> None:
    index = SubscriptionIndex()
    for limit in range(300):
        index.add(Subscription(Weather, where=this.speed > limit))
        assert index.count(Weather(speed=1_000)) == limit + 1
    assert "300 by intervals" in index.explain()


def test_buckets_are_chosen_again_for_bounds_that_drift_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first subscriptions decide the buckets; later ones all lie beyond them."""
    monkeypatch.setattr(segments, "SMALL", 0)
    index = SubscriptionIndex(Subscription(Siren, where=this.tone.between(n, n + 1.5)) for n in range(4_000))
    (segment,) = next(iter(index._families))._ranges.segments
    before = segment._bitmaps[0].edges
    for tone in range(300):
        assert index.match(Siren(tone=3_000.25 + tone)).tolist() == [2_999 + tone, 3_000 + tone]
    assert segment._bitmaps[0].edges != before
    assert not segment.is_wasteful


def test_a_removed_subscription_matches_no_more_and_its_handle_is_given_again() -> None:
    index = SubscriptionIndex(Subscription(Weather, where=this.speed == n % 3) for n in range(900))
    event = Weather(speed=1)
    assert index.count(event) == 300
    index.remove(1)
    assert index.count(event) == 299
    assert 1 not in index.match(event)
    assert index.add(Subscription(Weather, where=this.speed == 2)) == 1
    assert 1 not in index.match(event)
    assert 1 in index.match(Weather(speed=2))


def sirens(*lows: float) -> list[Subscription]:
    return [Subscription(Siren, where=this.tone.between(low, low + 0.5)) for low in lows]


def test_bitmaps_of_thousands_grow_by_those_that_are_added_later() -> None:
    many = segments.SMALL + segments.PENDING + 1
    lows = random.Random(7).sample(range(many), many)
    index = SubscriptionIndex(sirens(*lows[: segments.SMALL + 1]))
    for low in lows[segments.SMALL + 1 :]:
        index.add(sirens(low)[0])
    for handle in (0, 1, segments.SMALL, segments.SMALL + 1, many - 1):
        assert index.match(Siren(tone=lows[handle] + 0.25)).tolist() == [handle]


def test_one_that_is_left_of_two_stays_when_the_index_is_compacted() -> None:
    index = SubscriptionIndex(sirens(1, 2))
    index.remove(0)
    index.compact()
    assert index.match(Siren(tone=2.25)).tolist() == [1]


def test_a_full_segment_gets_new_subscriptions_again_when_one_of_its_own_was_removed(eager: None) -> None:
    index = SubscriptionIndex(sirens(*range(64)))
    store = next(iter(index._families))._ranges
    assert [(segment.used, segment.has_room) for segment in store.segments] == [(64, False)]
    index.remove(7)
    (handle,) = index.add_all(sirens(100))
    assert handle == 7
    assert len(store.segments) == 1
    assert index.match(Siren(tone=100.25)).tolist() == [7]
    assert index.match(Siren(tone=7.25)).tolist() == []
    index.add_all(sirens(200, 201))
    assert [segment.used for segment in store.segments] == [64, 2]
    assert index.match(Siren(tone=201.0)).tolist() == [65]


def test_what_a_shape_has_seen_of_a_segment_stays_true_however_much_has_changed(eager: None) -> None:
    """The log of changes does not grow for ever: then what shapes have seen is forgotten."""
    index = SubscriptionIndex(sirens(*range(50)))
    (segment,) = next(iter(index._families))._ranges.segments
    for turn in range(2_300):
        index.remove(turn % 50)
        (handle,) = index.add_all(sirens(turn % 50 + (100 if turn >= 2_250 else 0)))
        assert handle == turn % 50
        if turn % 500 == 0 or turn > 2_290:
            wanted = turn % 50 + (100.25 if turn >= 2_250 else 0.25)
            assert index.match(Siren(tone=wanted)).tolist() == [handle]
    assert len(segment._changed) <= segment.room + 4_096 + 2
    assert [index.count(Siren(tone=low + 0.25)) for low in (0, 49, 100, 149, 150)] == [0, 0, 1, 1, 0]


def test_removing_what_is_not_there_is_refused() -> None:
    index = SubscriptionIndex([Subscription(Event)])
    index.remove(0)
    for handle in (0, 1, -1):
        with pytest.raises(KeyError, match="no subscription has the handle"):
            index.remove(handle)


def test_removals_give_memory_back() -> None:
    index = SubscriptionIndex()
    index.add_ranges(Siren, ["tone"], np.arange(50_000.0)[:, None], np.arange(50_000.0)[:, None])
    before = index.nbytes
    for handle in range(49_000):
        index.remove(handle)
    assert len(index) == 1_000
    assert index.count(Siren(tone=49_500.0)) == 1
    assert index.count(Siren(tone=48_000.0)) == 0
    index.compact()
    assert index.nbytes < before / 10 + 24 * 50_000  # a handle once given keeps its place


def test_integers_beyond_what_floats_can_tell_apart() -> None:
    big = 2**53
    index = SubscriptionIndex(Subscription(Weather, where=this.speed == big + n) for n in range(4))
    assert [index.match(Weather(speed=big + n)).tolist() for n in range(4)] == [[0], [1], [2], [3]]
    as_floats = SubscriptionIndex([Subscription(Weather, where=this.speed == float(big))])
    assert [as_floats.count(Weather(speed=big + n)) for n in (-1, 0, 1, 2)] == [0, 1, 1, 0]


@pytest.mark.parametrize("bound", [-1e19, -1e308, -(2.0**63), -math.inf, -(2**63)])
def test_a_bound_below_all_integers_matches_all_that_are_present(bound: float) -> None:
    index = SubscriptionIndex(
        [Subscription(Lorry, where=this.axles > bound), Subscription(Lorry, where=this.axles >= bound)]
    )
    assert index.count(Lorry(speed=1.0, lane=1)) == 0
    assert index.count(Lorry(speed=1.0, lane=1, axles=0)) == 2


@pytest.mark.parametrize("in_bitmaps", [False, True])
def test_absent_and_not_a_number_match_no_comparison(in_bitmaps: bool) -> None:
    wanted = [this.heading > -math.inf, this.heading <= math.inf, this.heading == 1.0, this.narrow < 5.0]
    index = SubscriptionIndex(Subscription(Vehicle, where=one) for one in wanted * (200 if in_bitmaps else 1))
    assert index.count(Vehicle(speed=1.0, lane=1)) == 0
    assert index.count(Vehicle(speed=1.0, lane=1, heading=math.nan, narrow=math.nan)) == 0
    assert index.count(Vehicle(speed=1.0, lane=1, heading=1.0)) == (600 if in_bitmaps else 3)


def test_one_name_may_have_another_type_in_another_family() -> None:
    index = SubscriptionIndex(
        [Subscription(Vehicle, where=this.label == "1"), Subscription(Weather, where=this.label == 1)]
    )
    assert index.match(Vehicle(speed=1.0, lane=1, label="1")).tolist() == [0]
    assert index.match(Weather(speed=1, label=1)).tolist() == [1]


def test_a_type_declared_after_its_subscription_is_found() -> None:
    index = SubscriptionIndex([Subscription(Heavy), Subscription(Vehicle), Subscription(Vehicle, exact=True)])

    class Crane(Vehicle, Heavy):
        reach: float

    assert index.match(Crane(speed=1.0, lane=1, reach=2.0)).tolist() == [0, 1]


def test_many_texts_are_distinguished_and_dropped_when_unused(eager: None) -> None:
    subscriptions = [Subscription(Vehicle, where=this.label == f"place {n}") for n in range(1_000)]
    index = SubscriptionIndex(subscriptions)
    assert index.match(Vehicle(speed=1.0, lane=1, label="place 77")).tolist() == [77]
    for handle in range(990):
        index.remove(handle)
    index.compact()
    assert [index.count(Vehicle(speed=1.0, lane=1, label=f"place {n}")) for n in (77, 989, 990, 999)] == [0, 0, 1, 1]
    assert "label: 10 keys" in index.explain()


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_ranges_from_arrays_mean_what_they_say(count: int) -> None:
    rng = np.random.default_rng(3)
    low = np.where(rng.random((count, 2)) < 0.3, np.nan, rng.choice(FLOATS, (count, 2)))
    high = np.where(rng.random((count, 2)) < 0.3, np.nan, rng.choice(FLOATS, (count, 2)))
    index = SubscriptionIndex([Subscription(Vehicle)])
    handles = index.add_ranges(Vehicle, ["speed", "heading"], low, high)
    known = {0: Subscription(Vehicle)} | {handle: index.subscription(handle) for handle in handles.tolist()}
    for speed, heading in rng.choice([*FLOATS, math.nan, 0.5], (40, 2)).tolist():
        event = Vehicle(speed=speed, lane=1, heading=heading)
        given = np.array([speed, heading])
        untested = np.isnan(low) & np.isnan(high)
        passed = untested | ((np.isnan(low) | (low <= given)) & (np.isnan(high) | (given <= high)) & ~np.isnan(given))
        expected = [0, *handles[passed.all(axis=1)].tolist()]
        assert index.match(event).tolist() == expected == matching(known, event)


def test_a_range_is_a_subscription_with_its_bounds() -> None:
    """NaN is no bound; infinity as a lower bound leaves out what is not a number."""
    low = np.array([[0.5, math.nan], [math.nan, -math.inf], [math.nan, math.nan], [-math.inf, 1.0]])
    high = np.array([[math.nan, 2.0], [math.inf, math.nan], [math.nan, math.nan], [math.inf, 1.0]])
    index = SubscriptionIndex()
    handles = index.add_ranges(Vehicle, ["speed", "heading"], low, high)
    assert [str(index.subscription(handle)) for handle in handles.tolist()] == [
        "Vehicle where speed >= 0.5 and heading <= 2.0",
        "Vehicle where speed >= -inf and heading >= -inf",
        "Vehicle",
        "Vehicle where speed >= -inf and heading >= 1.0 and heading <= 1.0",
    ]
    index.remove(1)
    with pytest.raises(KeyError, match="no subscription has the handle 1"):
        index.subscription(1)
    assert index.match(Vehicle(speed=0.5, lane=1, heading=1.0)).tolist() == [0, 2, 3]
    assert index.match(Vehicle(speed=math.nan, lane=1, heading=1.0)).tolist() == [2]


def test_the_memory_of_an_index_is_that_of_its_arrays() -> None:
    """Of 64,000 ranges: bitmaps of a row of bits per bucket, and the bounds of each interval."""
    index = SubscriptionIndex()
    assert index.nbytes == 0
    low = np.random.default_rng(5).random((64_000, 1))
    index.add_ranges(Siren, ["tone"], low, low + 0.5)
    (segment,) = next(iter(index._families))._ranges.segments
    parts = segment.nbytes
    assert parts["bitmaps"] == sum(one.matrix[:, : 64_000 // 64].nbytes for one in segment._bitmaps.values())
    assert parts["ranges"] == 64_000 * (4 + 2 + 2 * 8)
    assert parts["subscriptions"] == 64_000 * 19
    assert parts["shapes"] == 64_000 // 8
    assert index.nbytes == sum(parts.values()) + 2 * 8 * 64_000
    index.match(Siren(tone=0.5))
    assert segment.nbytes["shapes"] == 2 * 64_000 // 8, "what an event with these attributes can match"
    assert f"bitmaps {parts['bitmaps'] / 1e6:.1f} MB, ranges 1.4 MB, subscriptions 1.2 MB" in index.explain()


def test_many_ranges_at_once_have_as_many_buckets_as_ranges_one_by_one() -> None:
    low = np.random.default_rng(5).random((40_000, 2))
    index = SubscriptionIndex()
    index.add_ranges(Vehicle, ["speed", "heading"], low, low + 0.5)
    (segment,) = next(iter(index._families))._ranges.segments
    assert [len(bitmaps.edges) > 80 for bitmaps in segment._bitmaps.values()] == [True, True]


def test_ranges_need_floats_and_one_column_per_attribute() -> None:
    index = SubscriptionIndex()
    with pytest.raises(SubscriptionError, match="lane: int64 is not a float"):
        index.add_ranges(Vehicle, ["lane"], np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(SubscriptionError, match="one row per subscription and 1 columns"):
        index.add_ranges(Vehicle, ["speed"], np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(SubscriptionError, match="no attribute 'nonsense'"):
        index.add_ranges(Vehicle, ["nonsense"], np.zeros((1, 1)), np.zeros((1, 1)))


def test_an_empty_index_matches_nothing() -> None:
    index = SubscriptionIndex()
    index.compact()
    assert index.match(Bell()).tolist() == []
    assert len(index) == 0


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_more_shapes_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_index, "MAX_SHAPES", 2)
    monkeypatch.setattr(segments, "SMALL", 0)
    rng = random.Random(5)
    subscriptions = [random_subscription(rng) for _ in range(600)]
    index = SubscriptionIndex(subscriptions)
    check(index, dict(enumerate(subscriptions)), [random_event(rng) for _ in range(30)])
    seen = [len(one._views) for family in index._families for one in family._ranges.segments]
    assert max(seen) == 2, "what a forgotten shape has seen of a segment is dropped"


def test_explain_says_what_is_indexed_and_what_it_takes() -> None:
    index = SubscriptionIndex(
        Subscription(Vehicle, where=(this.speed > n) & (this.label.contains("x"))) for n in range(1_000)
    )
    index.add(Subscription(Vehicle, where=this.speed > 3))
    text = index.explain()
    assert "Vehicle: 1001 subscriptions: 1000 by equality or part of a text, 1 by intervals, 0 by form\n" in text
    assert "1 combination of type and attributes, 1 form of predicates\n" in text
    assert "label: 1 key\n" in text
    assert "bitmaps of speed; bitmaps" in text


def test_without_numpy_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "genus.targets.index")
    with pytest.raises(ImportError, match=r"pip install .*\[index\]'"):
        importlib.import_module("genus.targets.index")


def test_explain_says_of_one_subscription_what_is_looked_up_and_what_is_evaluated() -> None:
    asked = Subscription(
        Vehicle, has="place", lacks="source", where=(this.speed > 30) & ((this.lane == 1) | (this.speed < 9))
    )
    index = targets.index.compile([Subscription(Event), asked])
    assert index.explain(1) == (
        "index: Vehicle has place lacks source where speed > 30.0 and (lane == 1 or speed < 9.0)\n"
        "  type: Vehicle and its subtypes, decided once for each class and set of attributes\n"
        "  attributes: place present, source absent\n"
        "  contents: speed > 30.0 and (lane == 1 or speed < 9.0), tested together with those of the same form"
    )
    assert index.explain(0).endswith("  attributes: any\n  contents: any")
    with pytest.raises(KeyError, match="no subscription has the handle 2"):
        index.explain(2)


# -- forms: what is computed for all constants at once ----------------------------------------------------------------

WIDE = [-(2**63), -(2**62), -1, 0, 3, 2**63 - 1]
NARROW = [-math.inf, -1.5, 0.0, 0.1, 1e300]
LETTERS = ["", "a", "ab", "b"]
FORMS = [
    *((f"lane {op} {{a}} > {{b}}", WIDE) for op in ("+", "-", "*", "//", "%")),
    *((f"{{a}} {op} axles <= {{b}}", WIDE) for op in ("+", "-", "*", "//", "%")),
    ("-(lane - {a}) < {b}", WIDE),
    ("-(lane // {a}) != {b}", WIDE),
    ("abs({a} - lane) >= {b}", WIDE),
    ("abs(lane // {a}) == {b}", WIDE),
    ("lane > {a} or axles < {b}", WIDE),
    ("not (lane > {a} and lane + {b} <= 3)", WIDE),
    ("axles + 0 in ({a}, {b})", WIDE),
    ("not axles + 0 in ({a}, {b})", WIDE),
    ("(if axles + 0 > {a} then lane else axles) < {b}", WIDE),
    ("(if axles + 0 > {a} then {b} else lane) < axles", WIDE),
    ("(if axles + 0 > {a} then {b}) < lane", WIDE),
    ("(if lane + 0 > {a} then axles else lane) == {b}", WIDE),
    ("coalesce(axles, {a}) < {b}", WIDE),
    ("coalesce(lane // {a}, lane % {b}, axles) > axles", WIDE),
    ("coalesce(axles // {a}, {b}) > 1", WIDE),
    *((f"speed {op} {{a}} > {{b}}", NARROW) for op in ("+", "-", "*", "/", "//", "%")),
    *((f"{{a}} {op} heading <= {{b}}", NARROW) for op in ("+", "-", "*", "/", "//", "%")),
    ("-(heading / {a}) < {b}", NARROW),
    ("abs({a} - speed) >= {b}", NARROW),
    ("narrow * {a} != {b}", NARROW),
    ("lane + {a} < {b}", NARROW),
    ("(if heading - {a} > 0 then speed else heading) == {b}", NARROW),
    ("coalesce(heading / {a}, speed, {b}) > 0.5", NARROW),
    ("label < {a} or label == {b} or moving", LETTERS),
    ("not (label >= {a} or label != {b})", LETTERS),
    ("not label startswith {a} or moving", LETTERS),
    ("label endswith {a} or label contains {b}", LETTERS),
    ("not (label contains {a} and label startswith {b})", LETTERS),
]


def lorries(**values: Iterable[Any]) -> list[Event]:
    """Lorries with these values; from the shorter lists several times."""
    count = max(len(list(each)) for each in values.values())
    columns = {name: list(each) for name, each in values.items()}
    rows = ({name: each[row % len(each)] for name, each in columns.items()} for row in range(count))
    return [Lorry(**{"speed": 1.0, "lane": 1, **row}) for row in rows]


HARD_NUMBERS = lorries(
    lane=WIDE, axles=[2, None, 2**63 - 1, -(2**63), 0, -1], speed=[0.0, -1.5, math.inf, 0.5, math.nan],
    heading=[1.0, None, math.nan, -0.0, 1e300], narrow=[0.1, None], label=[None, *TEXTS], moving=[None, False, True],
)  # fmt: skip


@pytest.mark.parametrize(("form", "constants"), FORMS, ids=str)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_many_constants_at_once_give_the_same_as_each_alone(form: str, constants: list[Any], eager: None) -> None:
    """Also where 64 bits are not enough, where a divisor is 0, where a result is NaN, and where a value is absent."""
    pairs = [(a, b) for a in constants for b in constants[1::3]]
    asked = [Subscription.parse(f"Lorry where {form.format(a=repr(a), b=repr(b))}", [Lorry]) for a, b in pairs]
    index = SubscriptionIndex(asked)
    assert f"{len(asked)} by form" in index.explain()
    check(index, dict(enumerate(asked)), HARD_NUMBERS)


@pytest.mark.parametrize("form", ["lane + {a} > 1", "abs(speed - {a}) < 2.0", "label < {a} or moving"])
def test_a_constant_that_all_have_counts_for_all(form: str, eager: None) -> None:
    """It is computed with once; not any more when another subscription has another constant."""
    first, second = ("'a'", "'b'") if "label" in form else ("1", "-7")
    one, other = (Subscription.parse(f"Lorry where {form.format(a=a)}", [Lorry]) for a in (first, second))
    known = dict.fromkeys(range(5), one)
    index = SubscriptionIndex(known.values())
    check(index, known, HARD_NUMBERS)
    known[index.add(other)] = other
    check(index, known, HARD_NUMBERS)
