"""Tables with figures are written by the command that stands beside them in the page, and by nothing else."""

import re
from pathlib import Path

import pytest

from bench import can_logs
from bench.__main__ import STEPS, Step
from bench.page import cells, headings, read_blocks, write_block, write_rows
from genus.errors import GenusError

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
COMMAND = "python -m that"
PAGE = f"a\n<!-- {COMMAND} -->\n<!-- end -->\nb"


def module_file(command: str) -> Path:
    """The file of the module that a command runs."""
    path = ROOT.joinpath(*command.split()[2].split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_marked_table_ends_and_its_command_exists(page: Path) -> None:
    text = page.read_text()
    blocks = read_blocks(text)
    assert text.count("<!-- python -m ") == len(blocks)
    assert all(module_file(command).is_file() for command in blocks), list(blocks)


def test_every_table_of_the_benchmarks_is_written_by_a_command() -> None:
    blocks = read_blocks(BENCHMARKS)
    known = [f"python -m bench {name}" for each in STEPS for name in each.tables]
    assert sorted(blocks) == sorted([*known, "python -m bench machine"])
    assert headings(BENCHMARKS) == [heading for text in blocks.values() for heading in headings(text)]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.tables[0])
def test_headings_of_the_benchmarks_are_words_of_the_module_that_measures_them(step: Step) -> None:
    tables, module, _, others = step
    source = "".join((ROOT / "bench" / f"{name}.py").read_text() for name in (module, *others))
    for name in tables:
        shown = headings(read_blocks(BENCHMARKS)[f"python -m bench {name}"])
        words = {word for heading in shown for cell in cells(heading) for word in re.findall(r"[A-Za-z]{2,}", cell)}
        assert not [word for word in words if word not in source]


def test_the_table_of_logs_has_a_row_for_every_format() -> None:
    lines = [cells(line) for line in read_blocks(BENCHMARKS)["python -m bench logs"].splitlines() if line[:1] == "|"]
    logs, mf4 = lines[: 2 + len(can_logs.FORMATS)], lines[2 + len(can_logs.FORMATS) :]
    assert (logs[0], mf4[0]) == (can_logs.HEADING, can_logs.MF4_HEADING)
    assert [line[0] for line in logs[2:]] == list(can_logs.FORMATS)
    assert [line[0] for line in mf4[2:]] == list(can_logs.MF4_ROWS)
    read = [line[0] for line in logs[2:] if line[2] != "–"]
    assert read == [name for name in can_logs.FORMATS if name in can_logs.PYTHON_CAN]


def test_a_table_is_written_in_its_place_and_read_back() -> None:
    page = write_block(PAGE, COMMAND, "| x |")
    assert (page[:2], page[-2:], read_blocks(page)) == ("a\n", "\nb", {COMMAND: "| x |"})
    assert write_block(page, COMMAND, "| x |") == page
    with pytest.raises(GenusError, match="no markers"):
        write_block(page, "python -m other", "| x |")


def test_rows_are_replaced_by_their_first_cells_and_unknown_ones_go() -> None:
    page = write_rows(PAGE, COMMAND, "| h | i |\n|---|---|", {"a": "| a | 1 |", "b": "| b | 2 |"}, ["a", "b"])
    page = write_rows(page, COMMAND, "| h | i |\n|---|---|", {"c": "| c | 3 |"}, ["c", "b"])
    assert read_blocks(page)[COMMAND].splitlines()[2:] == ["| c | 3 |", "| b | 2 |"]
