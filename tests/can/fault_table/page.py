"""Write rows of the fault table into a Markdown page, and read them back."""

import re
from collections.abc import Mapping

from genus.errors import GenusError
from tests.can.fault_table.row import ROWS, Observation, Row

BEGINS, ENDS = "<!-- the fault table -->", "<!-- end of the fault table -->"
HEADING = "| # | fault | injected | expected | observed | |\n|---|---|---|---|---|---|"
_LINE = re.compile(r"^\| (\d+) \|.*$", re.MULTILINE)


def format_line(row: Row, observation: Observation) -> str:
    """The line of a row in the table."""
    mark = "✓" if observation.ok else "✗"
    return f"| {row.number} | {row.fault} | {row.injected} | {row.expected} | {observation.text} | {mark} |"


def update_page(page: str, observed: Mapping[int, Observation]) -> str:
    """The page with the lines of some rows replaced; GenusError if it has no markers for the table.

    >>> page = update_page(f"text {BEGINS} {ENDS} more", {3: Observation("nothing was delivered", True)})
    >>> page.splitlines()[-2][:8], page.endswith("more")
    ('| 3 | ex', True)
    """
    before, begins, rest = page.partition(BEGINS)
    table, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise GenusError(f"the page has no markers for the table; write {BEGINS} and {ENDS} where it shall be")
    lines = {int(found[1]): found[0] for found in _LINE.finditer(table)}
    lines |= {number: format_line(ROWS[number], observation) for number, observation in observed.items()}
    return f"{before}{BEGINS}\n{HEADING}\n" + "\n".join(lines[n] for n in sorted(lines)) + f"\n{ENDS}{after}"


def read_cells(page: str) -> dict[int, list[str]]:
    """The cells of each row of the table in a page, by its number."""
    return {int(line[1]): [cell.strip() for cell in line[0].strip("| ").split(" | ")] for line in _LINE.finditer(page)}


def format_examples() -> str:
    """The commands that show single rows, as a Markdown list."""
    shown = (ROWS[number] for number in sorted(ROWS) if ROWS[number].example)
    return "\n".join(f"* {row.number}: `genus can sim examples/crossing.toml {row.example}`" for row in shown)
