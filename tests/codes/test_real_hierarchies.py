"""All pairs of real hierarchies, in batch and in random order; and a real evolution in which old codes stay."""

from collections.abc import Callable

import pytest

from genus.codes import CompactPrimes, LinePrimes, OriginalPrimes, Scheme, compare_schemes
from genus.codes._prime_schemes import kinds_of
from genus.codes.types import CodeCost

from .laws import Hierarchy, shuffled, wrong_pairs

VSS = "vss/vss_flat.csv"
BRICK = [f"brick/brick_{version}_classes.csv" for version in ("1.1", "1.3", "1.4")]
PYTHON = "python_types/python311_stdlib_types.csv"

Read = Callable[[str], Hierarchy]


@pytest.mark.parametrize("path", [VSS, BRICK[2], PYTHON])
def test_a_whole_hierarchy_has_no_wrong_pair(real: Read, path: str) -> None:
    hierarchy = real(path)
    scheme = LinePrimes()
    scheme.add_all(hierarchy)
    assert len(scheme.codes) == len(hierarchy)
    assert wrong_pairs(scheme.codes, hierarchy) == []


@pytest.mark.slow
@pytest.mark.parametrize("make", [OriginalPrimes, lambda: LinePrimes(joins="any")], ids=["original", "line any"])
@pytest.mark.parametrize("path", [VSS, BRICK[2], PYTHON])
def test_every_scheme_has_no_wrong_pair_in_batch_and_in_random_order(
    real: Read, path: str, make: Callable[[], Scheme]
) -> None:
    hierarchy = real(path)
    batch, single = make(), make()
    batch.add_all(hierarchy)
    for name in shuffled(hierarchy, 1):
        single.add(name, hierarchy[name])
    assert wrong_pairs(batch.codes, hierarchy) == []
    assert wrong_pairs(single.codes, hierarchy) == []


@pytest.mark.slow
@pytest.mark.parametrize("make", [CompactPrimes, lambda: LinePrimes(rooted=True)], ids=["compact", "line"])
def test_vehicle_signals_arriving_in_random_order_have_no_wrong_pair(real: Read, make: Callable[[], Scheme]) -> None:
    hierarchy, scheme = real(VSS), make()
    for name in shuffled(hierarchy, 7):
        scheme.add(name, hierarchy[name])
    assert wrong_pairs(scheme.codes, hierarchy) == []


def test_python_types_arriving_in_random_order_have_no_wrong_pair(real: Read) -> None:
    hierarchy, scheme = real(PYTHON), LinePrimes()
    kinds = kinds_of(hierarchy)
    for name in shuffled(hierarchy, 3):
        scheme.add(name, hierarchy[name], kind=name in kinds)
    assert wrong_pairs(scheme.codes, hierarchy) == []


def test_three_versions_of_brick_keep_all_codes(real: Read) -> None:
    """A type keeps the parents it was added with, even where a later version moves it; only new types are added."""
    scheme = LinePrimes(joins="any")
    grown: dict[str, tuple[str, ...]] = {}
    moved = []
    for version in BRICK:
        hierarchy = real(version)
        new = {name: tuple(parents) for name, parents in hierarchy.items() if name not in grown}
        moved.append(sum(set(grown[name]) != set(hierarchy[name]) for name in hierarchy if name in grown))
        before = dict(scheme.codes)
        scheme.add_all(new)
        grown |= new
        assert {name: scheme.codes[name] for name in before} == before
    assert wrong_pairs(scheme.codes, grown) == []
    assert moved[0] == 0 < moved[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", [VSS, BRICK[2], PYTHON])
def test_line_codes_are_the_smallest(real: Read, path: str) -> None:
    costs = {line.scheme: line for line in compare_schemes(real(path)) if isinstance(line, CodeCost)}
    best = costs.pop("line")
    assert all(best.mean_bytes <= c.mean_bytes and best.max_bytes <= c.max_bytes for c in costs.values())
