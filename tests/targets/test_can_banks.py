"""Filters for a whole node: few enough for its controller, accepting all that is needed and little else."""

import random
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription
from genus.catalog import Catalog
from genus.errors import NotRegistered, SubscriptionError
from genus.targets import can
from genus.targets.can import FilterBank, Pair, SharedFilters, fit_bank
from genus.targets.can import _banks as banks_module
from genus.targets.can._compiler import EtagWeights, Weight, condense, drop_covered
from tests.examples import examples

from ..catalog.declaring import event_type, kind

PAIRS = st.builds(lambda value, mask: Pair(value & mask, mask), st.integers(0, 255), st.integers(0, 255))


def tags(pairs: Sequence[Pair], bits: int = 8) -> set[int]:
    return {tag for tag in range(1 << bits) if any(pair.accepts(tag) for pair in pairs)}


class World:
    """Random types in a catalog, traffic, and what a node subscribes to."""

    def __init__(self, seed: int, types: int = 30, wanted: tuple[int, int] = (5, 8)) -> None:
        chance = random.Random(seed)
        self.types: list[type] = []
        for index in range(types):
            base: Any = chance.choice([Event, *self.types])
            names = ["place", "time"][: chance.randint(1, 2)] if base is Event and chance.random() < 0.4 else []
            self.types.append(event_type(f"T{index}", base, tagged=names))
        self.catalog = Catalog()
        self.catalog.register(*self.types)
        rates = {f"T{index}": chance.choice([0, 1, 5, 20, 100]) for index in range(types)}
        self.traffic = rates if seed % 2 else None
        self.asked = [self._ask(chance) for _ in range(chance.randint(*wanted))]

    def _ask(self, chance: random.Random) -> Subscription:
        has = ("place",) if chance.random() < 0.3 else ()
        return Subscription(chance.choice(self.types), exact=chance.random() < 0.3, has=has)

    def bank(self, banks: int) -> FilterBank:
        return fit_bank(self.asked, self.catalog, banks=banks, traffic=self.traffic)


@examples(200)
@given(st.lists(PAIRS, max_size=12))
def test_condensed_pairs_accept_exactly_the_same(pairs: list[Pair]) -> None:
    found = condense(pairs)
    assert tags(found) == tags(pairs) == tags(drop_covered(pairs))
    assert len(found) <= len(drop_covered(pairs)) <= len(set(pairs))
    assert condense(found) == found


@examples(200)
@given(PAIRS, PAIRS)
def test_covering_and_joining_are_those_of_sets(one: Pair, other: Pair) -> None:
    assert one.covers(other) == (tags([one]) >= tags([other]))
    joined = one.join(other)
    assert tags([joined]) >= tags([one, other])
    assert (tags([joined]) == tags([one, other])) or not one.is_adjacent(other)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_number_of_banks_accepts_all_that_is_needed(seed: int) -> None:
    world = World(seed, wanted=(1, 25))
    filters = [can.compile(asked, world.catalog) for asked in world.asked]
    wanted = {tag for tag in range(1 << 14) if any(made.accepts(tag) for made in filters)}
    for banks in (1, 2, 3, 4, 7, 14, 28):
        found = world.bank(banks)
        assert len(found.pairs) <= banks
        passed = tags(found.pairs, 14)
        assert passed >= wanted
        assert passed == wanted or len(found.needed) > banks
        assert found.false_accepts == pytest.approx(share_in_vain(world, passed - wanted))


def share_in_vain(world: World, vain: set[int]) -> float:
    """The same by counting tag by tag."""
    total = wasted = 0.0
    for name in world.catalog.types:
        own = world.catalog.own_etags(name)
        rate = 1.0 if world.traffic is None else world.traffic.get(name, 0)
        mine = set(range(own.value, own.value + own.size))
        total += rate
        wasted += rate * len(mine & vain) / len(mine)
    return wasted / total


def test_more_banks_never_cost_more() -> None:
    for seed in range(10):
        shares = [World(seed).bank(banks).false_accepts for banks in range(1, 12)]
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] == 0.0


def partitions(items: Sequence[Pair]) -> Iterator[list[list[Pair]]]:
    """Every way to put things into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for groups in partitions(rest):
        yield from ([*groups[:at], [first, *groups[at]], *groups[at + 1 :]] for at in range(len(groups)))
        yield [[first], *groups]


def cost(pairs: Sequence[Pair], needed: Sequence[Pair], weights: EtagWeights) -> Weight:
    accepted, wanted = (reduce(int.__or__, map(weights.accepted_etags, group), 0) for group in (pairs, needed))
    return weights.weight(accepted & ~wanted)


def optimum(needed: Sequence[Pair], banks: int, weights: EtagWeights) -> Weight:
    """The least that can be: some pair stands for each group of those needed, and none is narrower than their join."""
    few = (groups for groups in partitions(needed) if len(groups) <= banks)
    return min(cost([reduce(Pair.join, group) for group in groups], needed, weights) for groups in few)


def gaps(seeds: range) -> list[float]:
    """How far from the optimum small cases come out, as a share of all traffic."""
    found = []
    for world in map(World, seeds):
        needed = world.bank(100).needed
        if 4 <= len(needed) <= 8:
            weights = EtagWeights(world.catalog, world.traffic)
            field = 0 if world.traffic else 1
            total = weights.weight(weights.everything)[field]
            for number in range(1, len(needed)):
                pairs = banks_module.fit_pairs(needed, number, weights)
                best = optimum(needed, number, weights)[field]
                found.append((cost(pairs, needed, weights)[field] - best) / total)
    return found


def test_small_cases_come_out_optimal() -> None:
    """Against all partitions."""
    found = gaps(range(60))
    assert len(found) > 120
    assert max(found) == pytest.approx(0.0, abs=1e-9)


def test_following_the_cheapest_join_alone_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why several alternatives are followed: the greedy way misses the optimum in about one case in ten."""
    monkeypatch.setattr(banks_module, "BEAM", 1)
    found = gaps(range(60))
    missed = [gap for gap in found if gap > 1e-9]
    assert 0.02 < len(missed) / len(found) < 0.25
    assert sum(found) / len(found) < 0.05
    assert max(found) > 0.1


@pytest.mark.slow
def test_hundreds_of_small_cases_come_out_optimal() -> None:
    found = gaps(range(1000, 1400))
    assert sum(gap > 1e-9 for gap in found) <= len(found) / 200
    assert max(found) < 0.05


def test_traffic_decides_what_is_merged() -> None:
    """Three that are needed, two filters: the one to be merged with a busy neighbour stays alone."""
    types = [event_type(f"T{index}") for index in range(8)]
    catalog = Catalog()
    catalog.register(*types)
    order = sorted(types, key=catalog.etag)
    asked = [Subscription(order[index]) for index in (0, 3, 5)]
    busy_left = {catalog.type_of(catalog.etag(order[index])): 100.0 for index in (1, 2)}
    busy_right = {catalog.type_of(catalog.etag(order[index])): 100.0 for index in (4, 6, 7)}
    for traffic in (busy_left, busy_right):
        found = fit_bank(asked, catalog, banks=2, traffic=traffic)  # type: ignore[arg-type]
        assert len(found.pairs) == 2
        assert (found.false_accepts, found.false_rate) == (0.0, 0.0)
    assert fit_bank(asked, catalog, banks=1, traffic=busy_left).false_rate == 200.0  # type: ignore[arg-type]


def test_what_a_node_needs_besides_is_kept() -> None:
    world = World(3)
    protocol, broker = (0, 0x3F80), (0x7F << 14, 0x7F << 14 | 0x3F80)
    found = fit_bank(world.asked, world.catalog, banks=3, always=[protocol, broker])
    assert all(found.accepts(tag) for tag in range(128))
    assert any(pair.covers(Pair(*protocol)) for pair in found.pairs)
    assert Pair(*broker) not in found.needed, "the first covers it"


def test_nothing_asked_is_nothing_accepted() -> None:
    found = fit_bank([], Catalog(), banks=4)
    assert (found.pairs, found.needed, found.false_accepts) == ((), (), 0.0)
    assert not found.accepts(8192)


def test_hundreds_of_filters_are_fitted() -> None:
    catalog = Catalog()
    types = [event_type(f"T{index}", tagged=("place",)) for index in range(400)]
    catalog.register(*types)
    asked = [Subscription(cls, has="place") for cls in random.Random(1).sample(types, 150)]
    found = fit_bank(asked, catalog, banks=14)
    assert len(found.pairs) <= 14 < len(found.needed)
    assert all(found.accepts(catalog.etag_of(each.type(place="here"))) for each in asked)
    assert found.false_accepts < 0.5


@pytest.mark.parametrize(
    ("banks", "traffic", "message"),
    [
        (0, None, "banks is 0; a controller has at least one filter"),
        (-3, None, "banks is -3"),
        (1, {"T0": -1.0}, "traffic of 'T0' is -1.0"),
        (1, {"T0": float("nan")}, "traffic of 'T0' is nan"),
        (1, {8200: float("inf")}, "traffic of 8200 is inf"),
        (1, {1 << 14: 1.0}, "the event tag 16384, which does not fit 14 bits"),
        (1, {-1: 1.0}, "the event tag -1"),
    ],
)
def test_wrong_numbers_are_named(banks: int, traffic: Any, message: str) -> None:
    world = World(0)
    with pytest.raises(SubscriptionError, match=message):
        fit_bank(world.asked, world.catalog, banks=banks, traffic=traffic)


def test_traffic_of_what_is_not_registered_or_a_kind_is_refused() -> None:
    catalog = Catalog()
    catalog.register(kind("Lit"))
    with pytest.raises(NotRegistered, match="'Unknown' is not in the catalog"):
        fit_bank([], catalog, banks=1, traffic={"Unknown": 1.0})
    with pytest.raises(NotRegistered, match="Lit is a kind"):
        fit_bank([], catalog, banks=1, traffic={"Lit": 1.0})


def test_explain_says_what_it_costs() -> None:
    catalog = Catalog()
    types = [event_type(f"T{index}") for index in range(16)]
    catalog.register(*types)
    order = sorted(types, key=catalog.etag)
    asked = [Subscription(order[0]), Subscription(order[13])]
    found = fit_bank(asked, catalog, banks=1)
    lines = found.explain().splitlines()
    assert lines[0] == "bank: 2 pairs fitted into 1"
    assert lines[1] == f"  {found.pairs[0]}"
    assert lines[2] == f"  accepted, but unwanted: {14 / 17:.1%} of all traffic"
    assert lines[3].startswith("  from: Event, ")
    assert lines[3].endswith(" and 6 more")
    assert "5 of the rate given" in fit_bank(asked, catalog, banks=1, traffic={"Event": 5.0}).explain()


# -- shared ------------------------------------------------------------------------------------------------------------


def test_a_second_equal_consumer_changes_nothing() -> None:
    world = World(1)
    shared = SharedFilters(world.catalog)
    first = shared.add(world.asked[0])
    pairs = shared.take()
    assert pairs == shared.pairs == can.compile(world.asked[0], world.catalog).pairs
    second = shared.add(world.asked[0])
    assert shared.take() is None
    shared.remove(first)
    assert (shared.take(), shared.pairs) == (None, pairs)
    shared.remove(second)
    assert (shared.take(), shared.take(), len(shared)) == ((), None, 0)


def test_a_change_that_is_taken_back_is_none() -> None:
    world = World(1)
    shared = SharedFilters(world.catalog)
    shared.add(world.asked[0])
    shared.take()
    shared.remove(shared.add(Subscription(Event)))
    assert shared.take() is None


def test_a_handle_is_good_once() -> None:
    shared = SharedFilters(World(1).catalog)
    handle = shared.add(Subscription(Event))
    shared.remove(handle)
    with pytest.raises(SubscriptionError, match=f"handle {handle}; was it removed already"):
        shared.remove(handle)
    assert shared.add(Subscription(Event)) != handle


@examples(40)
@given(st.lists(st.integers(0, 14), max_size=25), st.sampled_from([None, 1, 3]))
def test_whoever_came_and_went_the_filters_are_of_those_who_stayed(steps: list[int], banks: int | None) -> None:
    world = World(5, wanted=(10, 10))
    protocol = [(0, 0x3F80)]
    shared = SharedFilters(world.catalog, banks=banks, traffic=world.traffic, always=protocol)
    present: list[tuple[int, Subscription]] = []
    for step in steps:
        if step < 10 or not present:
            asked = world.asked[step % 10]
            present.append((shared.add(asked), asked))
        else:
            shared.remove(present.pop(step % len(present))[0])
    fresh = SharedFilters(world.catalog, banks=banks, traffic=world.traffic, always=protocol)
    for _, asked in present:
        fresh.add(asked)
    assert shared.pairs == fresh.pairs
    assert len(shared) == len(present)
    for _, asked in present:
        for pair in can.compile(asked, world.catalog).pairs:
            assert any(kept.accepts(pair.value) for kept in shared.pairs)


def test_after_types_were_registered_all_is_compiled_anew() -> None:
    lit = kind("Lit")
    catalog = Catalog()
    catalog.register(event_type("Lamp", Event, lit))
    shared = SharedFilters(catalog, banks=4)
    shared.add(Subscription(lit))
    shared.take()
    later = event_type("Torch", Event, lit)
    catalog.register(later)
    shared.refresh()
    pairs = shared.take()
    assert pairs is not None
    assert any(pair.accepts(catalog.etag(later)) for pair in pairs)


def test_shared_filters_of_a_controller_without_any_are_refused() -> None:
    with pytest.raises(SubscriptionError, match="banks is 0"):
        SharedFilters(Catalog(), banks=0)
