"""The laws of all prime schemes: no false pair, no lost pair, no code ever changes, in every order of additions."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import CompactPrimes, LinePrimes, OriginalPrimes, Scheme, compare_schemes
from genus.codes._hierarchy import order_breadth_first
from genus.codes.types import CodeEntry
from genus.errors import HierarchyError
from tests.examples import examples

from .laws import Hierarchy, dags, lines_and_kinds, shuffled, trees, wrong_pairs

FOR_TREES: dict[str, Callable[[], Scheme]] = {
    "original": OriginalPrimes,
    "compact": CompactPrimes,
    "compact forest": lambda: CompactPrimes(rooted=False),
    "line": LinePrimes,
    "line rooted": lambda: LinePrimes(rooted=True),
    "line any": lambda: LinePrimes(joins="any"),
}
FOR_DAGS: dict[str, Callable[[], Scheme]] = {"original": OriginalPrimes, "line any": lambda: LinePrimes(joins="any")}
PAPER: Hierarchy = {"A": "", "B": "A", "C": "A", "D": "A", "E": "B", "F": "B", "G": "B", "H": "C", "I": "D", "J": "D"}


def add_checking(scheme: Scheme, hierarchy: Hierarchy, order: list[str]) -> None:
    """Add one by one; after each addition all pairs must be right and all old codes unchanged."""
    for name in order:
        before = dict(scheme.codes)
        code = scheme.add(name, hierarchy[name])
        assert dict(scheme.codes) == {**before, name: code}
    assert wrong_pairs(scheme.codes, hierarchy) == []


@pytest.mark.parametrize("make", FOR_TREES.values(), ids=FOR_TREES)
@given(tree=trees(), seed=st.integers(0, 9))
@examples(60)
def test_a_tree_in_any_order_has_no_wrong_pair(make: Callable[[], Scheme], tree: Hierarchy, seed: int) -> None:
    add_checking(make(), tree, shuffled(tree, seed))


@pytest.mark.parametrize("make", [lambda: CompactPrimes(rooted=False), LinePrimes], ids=["compact", "line"])
@given(forest=trees(roots=3), seed=st.integers(0, 9))
@examples(60)
def test_a_forest_in_any_order_has_no_wrong_pair(make: Callable[[], Scheme], forest: Hierarchy, seed: int) -> None:
    add_checking(make(), forest, shuffled(forest, seed))


@pytest.mark.parametrize("make", FOR_DAGS.values(), ids=FOR_DAGS)
@given(dag=dags(), seed=st.integers(0, 9))
@examples(80)
def test_any_joins_in_any_order_make_no_wrong_pair(make: Callable[[], Scheme], dag: Hierarchy, seed: int) -> None:
    add_checking(make(), dag, shuffled(dag, seed))


@given(drawn=lines_and_kinds(), seed=st.integers(0, 9))
@examples(150)
def test_lines_with_any_kinds_in_any_order_make_no_wrong_pair(drawn: tuple[Hierarchy, set[str]], seed: int) -> None:
    hierarchy, kinds = drawn
    scheme = LinePrimes()
    for name in shuffled(hierarchy, seed):
        scheme.add(name, hierarchy[name], kind=name in kinds)
    assert wrong_pairs(scheme.codes, hierarchy) == []
    assert scheme.kinds == kinds


@given(dag=dags(), later=dags(), seed=st.integers(0, 9))
@examples(80)
def test_a_batch_followed_by_any_joins_makes_no_wrong_pair(dag: Hierarchy, later: Hierarchy, seed: int) -> None:
    """Later types may join any types of the batch."""
    whole = dict(dag) | {
        f"later {n}": [f"later {p}" for p in ps] + [p for p in ps if p in dag] for n, ps in later.items()
    }
    scheme = LinePrimes(joins="any")
    scheme.add_all(dag)
    add_checking(scheme, whole, [name for name in shuffled(whole, seed) if name not in dag])


@pytest.mark.parametrize("make", [OriginalPrimes, LinePrimes, lambda: LinePrimes(joins="any")])
@given(dag=dags())
@examples(80)
def test_a_whole_hierarchy_has_no_wrong_pair(make: Callable[[], Scheme], dag: Hierarchy) -> None:
    scheme = make()
    scheme.add_all(dag)
    assert wrong_pairs(scheme.codes, dag) == []


@pytest.mark.parametrize("make", FOR_TREES.values(), ids=FOR_TREES)
@given(tree=trees(), cut=st.integers(0, 24))
@examples(60)
def test_additions_after_a_whole_tree_make_no_wrong_pair(make: Callable[[], Scheme], tree: Hierarchy, cut: int) -> None:
    scheme, first = make(), list(tree)[: cut + 1]
    scheme.add_all({name: tree[name] for name in first})
    add_checking(scheme, tree, list(tree)[cut + 1 :])


@pytest.mark.parametrize("make", FOR_TREES.values(), ids=FOR_TREES)
@given(tree=trees(), cut=st.integers(0, 24))
@examples(60)
def test_a_restored_scheme_continues_identically(make: Callable[[], Scheme], tree: Hierarchy, cut: int) -> None:
    whole, part = make(), make()
    for name in list(tree)[:cut]:
        part.add(name, tree[name])
    options = {key: value for key, value in vars(part).items() if key in {"rooted", "joins"}}
    if isinstance(part, OriginalPrimes):
        options = {}
    restored = type(part).restore(part.entries, **options)
    assert restored.entries == part.entries
    for name in list(tree)[cut:]:
        restored.add(name, tree[name])
    for name in tree:
        whole.add(name, tree[name])
    assert restored.entries == whole.entries


@given(drawn=lines_and_kinds())
@examples(60)
def test_restoring_keeps_kinds(drawn: tuple[Hierarchy, set[str]]) -> None:
    hierarchy, kinds = drawn
    scheme = LinePrimes()
    for name, parents in hierarchy.items():
        scheme.add(name, parents, kind=name in kinds)
    restored = LinePrimes.restore(scheme.entries)
    assert restored.kinds == kinds
    assert restored.add("next", list(kinds)[:2]) == scheme.add("next", list(kinds)[:2])


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (3, "not a multiple of the parent's"),
        (8, "not prime"),
        (2, "no factor of its own"),
        (6, "the factor of a sibling"),
    ],
)
def test_a_stored_code_that_makes_a_false_pair_is_refused_by_name(code: int, why: str) -> None:
    entries = [CodeEntry("A", (), 2), CodeEntry("B", (), 5), CodeEntry("C", ("A",), 6), CodeEntry("D", ("A",), code)]
    with pytest.raises(HierarchyError, match="'D'"):
        LinePrimes.restore(entries)


def test_the_papers_example() -> None:
    """Children take the primes that follow the largest used by the vertex or its siblings."""
    scheme = CompactPrimes()
    scheme.add_all(PAPER)
    assert dict(scheme.codes) == {"A": 1, "B": 2, "C": 3, "D": 5} | {
        "E": 2 * 7, "F": 2 * 11, "G": 2 * 13, "H": 3 * 7, "I": 5 * 7, "J": 5 * 11,
    }  # fmt: skip


@pytest.mark.parametrize(("parent", "prime"), [("D", 13), ("A", 17)])
def test_the_papers_examples_of_a_new_leaf(parent: str, prime: int) -> None:
    scheme = CompactPrimes()
    scheme.add_all(PAPER)
    assert scheme.add("K", [parent]) == scheme.codes[parent] * prime


def test_the_papers_printed_rule_for_single_additions_is_unsound() -> None:
    """A new child of A gets 17; the leaves of D go on to 13 and 17: the last tests as a subtype of the new child."""

    def follows_largest(codes: dict[str, int], parent: str, children: dict[str, int]) -> int:
        larger = (p for p in (2, 3, 5, 7, 11, 13, 17, 19, 23) if p > max(children.values()))
        return codes[parent] * next(larger)

    scheme = CompactPrimes()
    scheme.add_all(PAPER)
    codes = dict(scheme.codes)
    codes["K"] = 1 * 17  # case 2: after the largest prime of the siblings and their offspring
    codes["L"] = follows_largest(codes, "D", {"I": 7, "J": 11})  # case 1: after the largest prime of the siblings
    codes["M"] = follows_largest(codes, "D", {"I": 7, "J": 11, "L": 13})
    assert codes["M"] % codes["K"] == 0, "M, a child of D, tests as a subtype of K"

    for name, parent in ("K", "A"), ("L", "D"), ("M", "D"):
        scheme.add(name, [parent])
    assert not scheme.subsumes("K", "M")


def test_a_line_of_types_takes_one_prime() -> None:
    scheme = LinePrimes()
    assert [scheme.add("A"), scheme.add("B", ["A"]), scheme.add("C", ["B"])] == [2, 4, 8]


def test_two_lines_cannot_be_joined_but_kinds_can() -> None:
    scheme = LinePrimes()
    scheme.add("A")
    scheme.add("B")
    with pytest.raises(HierarchyError, match="all parents but one must be kinds"):
        scheme.add("AB", ["A", "B"])
    with pytest.raises(HierarchyError, match="is not a kind"):
        scheme.add("K", ["A"], kind=True)
    scheme.add("K", kind=True)
    scheme.add("L", kind=True)
    scheme.add("AKL", ["A", "K", "L"])
    assert [name for name in "ABKL" if scheme.subsumes(name, "AKL")] == ["A", "K", "L"]


def test_codes_of_lines_cannot_be_restored_for_any_join() -> None:
    scheme = LinePrimes()
    scheme.add("A")
    with pytest.raises(HierarchyError, match="'A' is no kind"):
        LinePrimes.restore(scheme.entries, joins="any")
    with pytest.raises(ValueError, match="kinds, any, not 'all'"):
        LinePrimes(joins="all")  # type: ignore[arg-type]


def test_a_parent_implied_by_another_is_no_join() -> None:
    scheme = CompactPrimes()
    for name, parents in {"A": [], "B": ["A"], "C": ["A", "B"]}.items():
        scheme.add(name, parents)
    assert scheme.codes["C"] % scheme.codes["B"] == 0


@pytest.mark.parametrize("make", FOR_TREES.values(), ids=FOR_TREES)
def test_a_deprecated_type_is_a_placeholder_forever(make: Callable[[], Scheme]) -> None:
    scheme = make()
    scheme.add("A")
    scheme.add("B", ["A"])
    scheme.add("C", ["B"])
    scheme.deprecate("B")
    assert scheme.deprecated == {"B"}
    assert scheme.subsumes("B", "C")
    with pytest.raises(HierarchyError, match="'B' is deprecated"):
        scheme.add("D", ["B"])
    with pytest.raises(HierarchyError, match="it has a code"):
        scheme.add("B", ["A"])
    assert [entry.name for entry in scheme.entries if entry.deprecated] == ["B"]


def test_restoring_keeps_what_is_below_a_deprecated_type() -> None:
    scheme = OriginalPrimes()
    scheme.add("A")
    scheme.add("B", ["A"])
    scheme.deprecate("A")
    assert OriginalPrimes.restore(scheme.entries).entries == scheme.entries


def test_errors_name_the_type_and_what_to_do() -> None:
    scheme = CompactPrimes()
    scheme.add("A")
    for name, parents, message in [
        ("A", [], "'A': it has a code"),
        ("B", ["X"], "parent 'X' is unknown; add the parent first"),
        ("B", [], "name a parent, or use rooted=False"),
        ("B", ["A", "A"], "names a parent twice"),
        ("", ["A"], "a type needs a name"),
    ]:
        with pytest.raises(HierarchyError, match=message):
            scheme.add(name, parents)
    scheme.add("B", ["A"])
    scheme.add("C", ["A"])
    with pytest.raises(HierarchyError, match="use LinePrimes"):
        scheme.add("D", ["B", "C"])
    with pytest.raises(HierarchyError, match="unknown type 'X'"):
        scheme.subsumes("A", "X")


def test_a_cycle_is_refused_before_anything_is_added() -> None:
    scheme = OriginalPrimes()
    with pytest.raises(HierarchyError, match="cycle"):
        scheme.add_all({"A": [], "B": ["C"], "C": ["B"]})
    assert not scheme.codes


def test_breadth_first_is_by_level() -> None:
    assert order_breadth_first(PAPER) == list("ABCDEFGHIJ")


def test_a_scheme_that_cannot_code_a_hierarchy_is_not_compared() -> None:
    """Because of several parents; any other reason is an error."""
    joined = {"A": [], "B": [], "C": ["A", "B"]}
    assert [type(each).__name__ for each in compare_schemes(joined)][:2] == ["CodeCost", "NotApplicable"]
    with pytest.raises(HierarchyError, match="a type needs a name"):
        compare_schemes({"A": [], "": ["A"]})


def test_of_a_whole_hierarchy_what_must_be_kinds_becomes_kinds_and_no_small_prime_is_left_out() -> None:
    """The deepest parent stays a line; one that has a code already cannot become a kind."""
    scheme = LinePrimes()
    scheme.add_all({"E": [], "K": [], "L": ["E"], "LK": ["L", "K"], "M": ["E"], "N": ["E"]})
    assert scheme.kinds == {"K"}
    assert dict(scheme.codes) == {"E": 2, "L": 4, "K": 3, "LK": 24, "M": 10, "N": 14}
    scheme.add_all({"J": [], "NJ": ["J", "N"]})
    assert scheme.kinds == {"K", "J"}
    assert [name for name in scheme.codes if scheme.subsumes(name, "NJ")] == ["E", "N", "J", "NJ"]


def test_only_schemes_with_kinds_have_some() -> None:
    for scheme in (CompactPrimes(), OriginalPrimes()):
        scheme.add_all({"A": [], "B": ["A"]})
        scheme.add("C", ["A"])
        assert not any(entry.kind for entry in scheme.entries)
