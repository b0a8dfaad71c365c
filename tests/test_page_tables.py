"""Tables with figures are written by `make bench`, all from the same sources, and by nothing else."""

import re
from datetime import date

import pytest

from bench import can_logs
from bench.__main__ import NOT_MEASURED, ROOT, STAMP, STEPS
from bench.page import cells, headings, read_blocks, write_block
from genus.errors import GenusError
from tests import proof

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
BENCHMARKS = read_blocks(PAGES["benchmarks"])
COMMAND = "python -m that"
PAGE = f"a\n<!-- {COMMAND} -->\n<!-- end -->\nb"


def test_every_marked_table_is_written_by_a_step_of_the_benchmarks() -> None:
    known = {(each.page, f"python -m bench {name}") for each in STEPS for name in each.tables}
    found = [(page, command) for page, text in PAGES.items() for command in read_blocks(text)]
    others = {("benchmarks", "python -m bench machine"), ("proof", "python -m tests.mutants"), ("proof", proof.COMMAND)}
    others |= {("proof", f"{proof.COMMAND} {name}") for name in proof.parts()}
    assert sorted(found) == sorted(known | others)
    assert sum(text.count("<!-- python -m ") for text in PAGES.values()) == len(found)
    shown = [heading for text in BENCHMARKS.values() for heading in headings(text)]
    assert headings(PAGES["benchmarks"]) == shown


def test_all_tables_are_of_the_same_sources_and_of_two_days_at_most() -> None:
    """Where not, `make bench` measures what is missing; it need not be run again for every change of the sources."""
    texts = {name: read_blocks(PAGES[each.page])[f"python -m bench {name}"] for each in STEPS for name in each.tables}
    stamps = {name: STAMP.search(text) for name, text in texts.items() if not text.startswith(NOT_MEASURED)}
    assert not [name for name, stamp in stamps.items() if stamp is None]
    assert len({stamp["sources"] for stamp in stamps.values() if stamp}) == 1
    days = [date.fromisoformat(stamp["day"]) for stamp in stamps.values() if stamp]
    assert (max(days) - min(days)).days <= 1


def test_headings_of_the_benchmarks_are_words_of_the_module_that_measures_them() -> None:
    for each in STEPS:
        if each.page == "benchmarks":
            source = ROOT.joinpath(*each.module.split(".")).with_suffix(".py").read_text()
            shown = [heading for name in each.tables for heading in headings(BENCHMARKS[f"python -m bench {name}"])]
            words = {word for heading in shown for cell in cells(heading) for word in re.findall(r"[A-Za-z]{2,}", cell)}
            assert not [word for word in words if word not in source], each.tables


def test_the_table_of_logs_has_a_row_for_every_format() -> None:
    lines = [cells(line) for line in BENCHMARKS["python -m bench logs"].splitlines() if line[:1] == "|"]
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
