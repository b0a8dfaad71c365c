"""Bytes per code: the paper's figure 2 and real hierarchies, each scheme; whole hierarchies against random orders."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from statistics import fmean

from bench.balanced_trees import measure_balanced_trees
from bench.hierarchies import ORDERS, Hierarchy, chain, class_library, flat, least_mean_bytes, one_goes_on
from bench.timing import markdown
from genus.codes import LinePrimes, OriginalPrimes, Scheme, code_size, compare_schemes, read_hierarchy
from genus.codes._prime_schemes import kinds_of
from genus.codes.types import CodeCost, NotApplicable

DATA = Path(__file__).parents[2] / "shared" / "data"
FILES = {
    "VSS (vehicle signals)": "vss/vss_flat.csv",
    "Brick 1.4 (buildings)": "brick/brick_1.4_classes.csv",
    "Python's library": "python_types/python311_stdlib_types.csv",
}
SEEDS = (1, 2, 3)
NONE_KEPT = "kinds, no primes kept"
LEVELS, WIDTH = 8, 458
MADE: dict[str, Callable[[int], Hierarchy]] = {
    "class libraries, 1,476 of 3,665 types with several parents": class_library,
    f"one of {WIDTH} siblings goes on, {LEVELS} levels": lambda seed: one_goes_on(LEVELS, WIDTH),
    "8,000 siblings": lambda seed: flat(8000),
    "a chain of 2,000": lambda seed: chain(2000),
}


def table() -> str:
    """A row per hierarchy and scheme; one line saying so where the data is not there."""
    if not DATA.is_dir():
        return "(the hierarchies were not there when this was made)"
    head = ["hierarchy", "scheme", "types", "primes", "largest code", "mean bytes", "max bytes", "density"]
    return markdown(head, [row(name, line) for name, file in FILES.items() for line in lines(file)])


def lines(file: str) -> list[CodeCost | NotApplicable]:
    return compare_schemes(read_hierarchy(str(DATA / file)))


def row(name: str, line: CodeCost | NotApplicable) -> list[str]:
    if isinstance(line, NotApplicable):
        return [name, line.scheme, "", "", f"n/a: {line.reason}", "", "", ""]
    sizes = [f"{line.mean_bytes:.2f}", str(line.max_bytes), f"{line.density_percent:.1g} %"]
    return [name, line.scheme, f"{line.vertices:,}", f"{line.primes:,}", f"{line.largest.bit_length()} bits", *sizes]


def figure_table() -> str:
    """The paper's figure 2: bytes of the largest code over all trees of 2 to 8 levels and children."""
    cells = measure_balanced_trees()
    rows = []
    for scheme in dict.fromkeys(cell.scheme for cell in cells):
        sizes = [cell.bytes for cell in cells if cell.scheme == scheme]
        rows.append([scheme, f"{sum(sizes) / len(sizes):.2f}", str(max(sizes))])
    return markdown(["scheme", "mean bytes", "max bytes"], rows)


def growth_table() -> str:
    """Mean bytes of whole hierarchies and of types one by one in random orders, as a multiple of the whole."""
    hierarchies = {**{name: _reader(file) for name, file in FILES.items() if (DATA / file).exists()}, **MADE}
    rows = [growth_row(name, make, joins) for name, make in hierarchies.items() for joins in ways(make(SEEDS[0]))]
    limit = f"at least {least_mean_bytes(LEVELS, WIDTH):.2f}"
    rows.append([f"one of {WIDTH} siblings goes on, by any scheme at all", "", "", "", limit, ""])
    head = ["hierarchy", "joins", "whole", *(f"one by one, {order}" for order in ORDERS), "one prime each, any ready"]
    return markdown(head, rows)


def ways(hierarchy: Hierarchy) -> list[str]:
    """How types may be joined; where there are kinds, also without primes that are kept for them."""
    return ["kinds", NONE_KEPT, "any"] if kinds_of(hierarchy) else ["kinds", "any"]


def growth_row(name: str, make: Callable[[int], Hierarchy], joins: str) -> list[str]:
    """The means over the seeds, of which each gives an order and, for hierarchies made by rule, a hierarchy."""
    made = [make(seed) for seed in SEEDS]
    whole = fmean(mean_bytes(_whole(hierarchy, joins)) for hierarchy in made)
    single = [
        fmean(mean_bytes(one_by_one(h, order(h, seed), joins)) for h, seed in zip(made, SEEDS, strict=True))
        for order in ORDERS.values()
    ]
    primes = fmean(
        mean_bytes(_add_each(OriginalPrimes(), h, ORDERS["any ready"](h, seed)))
        for h, seed in zip(made, SEEDS, strict=True)
    )
    return [name, joins, f"{whole:.2f}", *(f"{size:.2f} ({size / whole:.2f}×)" for size in single), f"{primes:.2f}"]


def one_by_one(hierarchy: Hierarchy, order: Iterable[str], joins: str) -> Scheme:
    """Line primes for types that come in an order; kinds are declared when they come, as in a catalog."""
    if joins == "any":
        return _add_each(LinePrimes(joins="any"), hierarchy, order)
    scheme, kinds = LinePrimes(), kinds_of(hierarchy)
    for name in order:
        scheme.add(name, hierarchy[name], kind=name in kinds, reserve=joins != NONE_KEPT)
    return scheme


def mean_bytes(scheme: Scheme) -> float:
    codes: Collection[int] = scheme.codes.values()
    return fmean(map(code_size, codes))


def _whole(hierarchy: Hierarchy, joins: str) -> Scheme:
    scheme = LinePrimes(joins="any" if joins == "any" else "kinds")
    scheme.add_all(hierarchy)
    return scheme


def _add_each(scheme: Scheme, hierarchy: Hierarchy, order: Iterable[str]) -> Scheme:
    for name in order:
        scheme.add(name, hierarchy[name])
    return scheme


def _reader(file: str) -> Callable[[int], Hierarchy]:
    return lambda seed: read_hierarchy(str(DATA / file))


if __name__ == "__main__":
    print(table(), figure_table(), growth_table(), sep="\n\n")
