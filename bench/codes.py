"""Bytes per code: the paper's figure 2 and real hierarchies, each scheme."""

from pathlib import Path

from bench.timing import markdown
from genus.codes import CodeCost, NotApplicable, compare_schemes, measure_balanced_trees, read_hierarchy

DATA = Path(__file__).parents[2] / "shared" / "data"
FILES = {
    "VSS (vehicle signals)": "vss/vss_flat.csv",
    "Brick 1.4 (buildings)": "brick/brick_1.4_classes.csv",
    "Python's library": "python_types/python311_stdlib_types.csv",
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


if __name__ == "__main__":
    print(table(), figure_table(), sep="\n\n")
