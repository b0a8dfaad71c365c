"""The paper's table and figure, and the command that prints them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.balanced_trees import MAX_CODES, figure_2, measure_balanced_trees
from genus.cli._types import codes
from genus.codes import CompactPrimes, LinePrimes, OriginalPrimes, Scheme, compare_schemes
from genus.codes.types import CodeCost, NotApplicable


def balanced(levels: int, children: int) -> dict[str, list[str]]:
    tree: dict[str, list[str]] = {"/": []}
    level = ["/"]
    for _ in range(levels - 1):
        level = [f"{parent}{child}/" for parent in level for child in range(children)]
        tree |= {name: [name[: name[:-1].rindex("/") + 1]] for name in level}
    return tree


@pytest.mark.parametrize(("levels", "children"), [(1, 3), (2, 1), (2, 4), (3, 2), (3, 5), (4, 3), (5, 2), (6, 1)])
def test_figure_2_needs_no_tree(levels: int, children: int) -> None:
    schemes: dict[str, Scheme] = {
        "original": OriginalPrimes(),
        "compact": CompactPrimes(),
        "line": LinePrimes(rooted=True),
    }
    for label, scheme in schemes.items():
        scheme.add_all(balanced(levels, children))
        assert max(scheme.codes.values()) == MAX_CODES[label](levels, children)


def test_figure_2_is_the_papers() -> None:
    cells = measure_balanced_trees()
    sizes = {label: [cell.bytes for cell in cells if cell.scheme == label] for label in MAX_CODES}
    assert max(sizes["original"]) == 14
    assert max(sizes["compact"]) == 6
    assert sum(sizes["original"]) / 49 == pytest.approx(5.20, abs=0.005)
    assert sum(sizes["compact"]) / 49 == pytest.approx(3.00, abs=0.005)
    assert sum(sizes["line"]) < sum(sizes["compact"])


def test_table_1_counts_primes_bytes_and_density() -> None:
    lines = {line.scheme: line for line in compare_schemes({"A": [], "B": ["A"], "C": ["A"], "D": ["B"]})}
    assert lines["compact"] == CodeCost("compact", 4, 3, 10, 1.0, 1, 40.0)
    assert lines["line"] == CodeCost("line", 4, 2, 4, 1.0, 1, 100.0)


def test_compact_codes_do_not_apply_to_several_parents() -> None:
    lines = compare_schemes({"A": [], "B": [], "C": ["A", "B"]})
    assert NotApplicable("compact", "several parents") in lines


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text("type,parents\nA,\nB,\nC,A;B\n")
    table = CliRunner().invoke(codes, [str(path)])
    assert table.exit_code == 0
    assert "n/a: several parents" in table.output
    answer = json.loads(CliRunner().invoke(codes, [str(path), "--json"]).output)
    assert [line["scheme"] for line in answer["table"]] == ["original", "compact", "line", "line, any join"]


@pytest.mark.slow
def test_figure_2_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = CliRunner().invoke(figure_2, ["--png", str(tmp_path / "fig2.png")])
    assert result.exit_code == 0, result.output
    assert "mean 5.20" in result.output
    assert (tmp_path / "fig2.png").read_bytes().startswith(b"\x89PNG")
