"""The fault table as Markdown, and read back from its page."""

from collections.abc import Mapping

from bench.page import cells, read_blocks
from tests.can.fault_table.row import ROWS, Observation, Row

COMMAND = "python -m bench fault_table"
HEADING = "| # | fault | injected | observed | |\n|---|---|---|---|---|"


def format_line(row: Row, observation: Observation) -> str:
    """The line of a row in the table."""
    mark = "✓" if observation.ok else "✗"
    return f"| {row.number} | {row.fault} | {row.injected} | {observation.text} | {mark} |"


def format_table(observed: Mapping[int, Observation]) -> str:
    """The table of some rows, by their numbers."""
    return "\n".join([HEADING, *(format_line(ROWS[number], observed[number]) for number in sorted(observed))])


def read_cells(page: str) -> dict[int, list[str]]:
    """The cells of each row of the table in a page, by its number."""
    lines = read_blocks(page)[COMMAND].splitlines()[2:]
    return {int(line[0]): line for line in map(cells, lines) if line}
