"""Growth one by one: the smallest sound prime, room for kinds, stored codes of any rule, deep hierarchies."""

from collections.abc import Callable, Iterator
from itertools import count
from math import log2
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import CompactPrimes, EtagSpace, LinePrimes, OriginalPrimes, Scheme
from genus.codes._prime_schemes import kinds_of
from genus.codes._scheme import prime_at
from genus.codes.types import CodeEntry
from genus.errors import HierarchyError
from tests.codes.hierarchies import ORDERS, chain, class_library, flat, least_mean_bytes, one_goes_on
from tests.examples import examples

from .laws import Hierarchy, ancestors, dags, lines_and_kinds, shuffled, trees, wrong_pairs

Drawn = tuple[Hierarchy, set[str]]


def primes() -> Iterator[int]:
    return map(prime_at, count())


@given(tree=trees(roots=3), seed=st.integers(0, 9))
@examples(80)
def test_a_line_takes_the_smallest_prime_that_makes_no_wrong_pair(tree: Hierarchy, seed: int) -> None:
    """Found here by trying: the rule refuses no prime needlessly."""
    scheme = LinePrimes()
    for name in shuffled(tree, seed):
        before = dict(scheme.codes)
        base = before[tree[name][0]] if tree[name] else 1
        known = {each: tree[each] for each in (*before, name)}
        smallest = next(p for p in primes() if not wrong_pairs({**before, name: base * p}, known))
        assert scheme.add(name, tree[name]) == base * smallest


@given(dag=dags(), seed=st.integers(0, 9))
@examples(80)
def test_a_kind_takes_the_smallest_prime_that_only_types_above_it_have(dag: Hierarchy, seed: int) -> None:
    """Found here from the own factors of all kinds, by the parents alone."""
    scheme, own, above = LinePrimes(joins="any"), dict[str, int](), ancestors(dag)
    for name in shuffled(dag, seed):
        allowed = (p for p in primes() if all(p != factor or kind in above[name] for kind, factor in own.items()))
        own[name] = next(allowed)
        exponents = {p: sum(own[kind] == p for kind in above[name]) for p in set(own.values())}
        assert scheme.add(name, dag[name]) == product(exponents)


def product(exponents: dict[int, int]) -> int:
    found = 1
    for prime, exponent in exponents.items():
        found *= prime**exponent
    return found


@given(drawn=lines_and_kinds(), seed=st.integers(0, 9), cuts=st.tuples(st.integers(0, 24), st.integers(0, 24)))
@examples(150)
def test_stored_codes_go_on_whether_primes_were_kept_for_kinds_or_not(
    drawn: Drawn, seed: int, cuts: tuple[int, int]
) -> None:
    """Catalogs hold codes that were given with and without room for kinds, in any order, read back in between."""
    hierarchy, kinds = drawn
    scheme = LinePrimes()
    for place, name in enumerate(shuffled(hierarchy, seed)):
        before = scheme.entries
        scheme.add(name, hierarchy[name], kind=name in kinds, reserve=min(cuts) <= place < max(cuts))
        assert scheme.entries[:-1] == before
        scheme = LinePrimes.restore(scheme.entries)
    assert wrong_pairs(scheme.codes, hierarchy) == []


@given(drawn=lines_and_kinds(), seed=st.integers(0, 9), cut=st.integers(0, 24))
@examples(80)
def test_a_restored_scheme_keeps_the_same_primes_for_kinds(drawn: Drawn, seed: int, cut: int) -> None:
    hierarchy, kinds = drawn
    whole, part = LinePrimes(), LinePrimes()
    for place, name in enumerate(shuffled(hierarchy, seed)):
        part = LinePrimes.restore(part.entries) if place == cut else part
        for scheme in (whole, part):
            scheme.add(name, hierarchy[name], kind=name in kinds)
    assert part.entries == whole.entries


def test_kinds_that_come_late_find_small_primes() -> None:
    scheme = LinePrimes()
    scheme.add("Event")
    scheme.add("First", kind=True)
    for i in range(200):
        scheme.add(f"T{i}", ["Event"])
    late = [scheme.add(f"K{i}", kind=True) for i in range(8)]
    assert late == [5, 7, 11, 13, 17, 19, 23, 29]


def test_without_kinds_nothing_is_kept_for_them() -> None:
    scheme = LinePrimes()
    assert [scheme.add(f"T{i}") for i in range(4)] == [2, 3, 5, 7]


@pytest.mark.parametrize("large", [1_048_583, 2**61 - 1])
def test_a_stored_prime_beyond_the_sieve_is_kept_from_others(large: int) -> None:
    entries = [CodeEntry("A", (), large), CodeEntry("B", ("A",), 2 * large), CodeEntry("K", (), 3, kind=True)]
    scheme = LinePrimes.restore(entries)
    hierarchy = {"A": [], "B": ["A"], "K": [], **{f"R{i}": [] for i in range(40)}, "C": ["A", "K"], "D": ["C"]}
    for name in list(hierarchy)[3:]:
        scheme.add(name, hierarchy[name])
    assert wrong_pairs(scheme.codes, hierarchy) == []
    with pytest.raises(HierarchyError, match="'E' contradicts"):
        LinePrimes.restore([*entries, CodeEntry("E", (), large)])


def test_a_stored_code_too_long_for_decimal_digits_is_refused_by_name() -> None:
    with pytest.raises(HierarchyError, match=r"stored code 0x1000.* of 'A' contradicts"):
        LinePrimes.restore([CodeEntry("A", (), 1 << 20_000)])


@pytest.mark.parametrize("make", [OriginalPrimes, LinePrimes, lambda: LinePrimes(joins="any"), CompactPrimes])
def test_a_deep_chain_needs_no_recursion(make: Callable[[], Scheme]) -> None:
    scheme, deep = make(), chain(1500)
    for name, parents in deep.items():
        scheme.add(name, parents)
    assert scheme.subsumes("T0", "T1499")
    assert not scheme.subsumes("T1499", "T1498")


def test_a_chain_takes_one_prime_and_siblings_one_each() -> None:
    line, wide = LinePrimes(), LinePrimes()
    for scheme, hierarchy in (line, chain(1500)), (wide, flat(1500)):
        for name, parents in hierarchy.items():
            scheme.add(name, parents)
    assert line.codes["T1499"] == 2**1500
    assert wide.codes["T1499"] == 2 * prime_at(1499)


@pytest.mark.slow
def test_event_tags_of_a_deep_chain_need_no_recursion() -> None:
    space, deep = EtagSpace(), chain(1100)
    for name, parents in deep.items():
        space.add(name, parents[0] if parents else None, room=None if parents else 8192)
    assert all(any(block.accepts(space.etag("T1099")) for block in space.filters(name)) for name in deep)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("joins", ["kinds", "any"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_class_library_in_random_order_has_no_wrong_pair(
    joins: str, order: Callable[[Hierarchy, int], list[str]], seed: int
) -> None:
    """All 13 million pairs."""
    library = class_library(seed)
    kinds = kinds_of(library) if joins == "kinds" else set(library)
    scheme = LinePrimes()
    for name in order(library, seed):
        scheme.add(name, library[name], kind=name in kinds)
    assert wrong_pairs(scheme.codes, library) == []


@pytest.mark.parametrize("make", [OriginalPrimes, LinePrimes, lambda: LinePrimes(joins="any")])
def test_no_scheme_is_below_the_bound_for_random_orders(make: Callable[[], Scheme]) -> None:
    """The mean over 40 orders; the bound holds for the expectation, and these schemes are well above it."""
    levels, width = 4, 12
    hierarchy, bits = one_goes_on(levels, width), list[float]()
    for seed in range(40):
        scheme = make()
        for name in ORDERS["any ready"](hierarchy, seed):
            scheme.add(name, hierarchy[name])
        bits += map(log2, scheme.codes.values())
    assert fmean(bits) / 8 > least_mean_bytes(levels, width)
