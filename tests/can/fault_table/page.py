"""Write rows of the fault table into a Markdown page, and read them back."""

from collections.abc import Mapping

from bench.page import cells, read_blocks, write_rows
from tests.can.fault_table.row import ROWS, Observation, Row

COMMAND = "python -m tests.can.fault_table --full --seed 1 --write docs/can-simulator.md"
HEADING = "| # | fault | injected | observed | |\n|---|---|---|---|---|"


def format_line(row: Row, observation: Observation) -> str:
    """The line of a row in the table."""
    mark = "✓" if observation.ok else "✗"
    return f"| {row.number} | {row.fault} | {row.injected} | {observation.text} | {mark} |"


def update_page(page: str, observed: Mapping[int, Observation]) -> str:
    """The page with the lines of some rows replaced; GenusError if it has no markers for the table."""
    lines = {str(number): format_line(ROWS[number], observation) for number, observation in observed.items()}
    return write_rows(page, COMMAND, HEADING, lines, map(str, sorted(ROWS)))


def read_cells(page: str) -> dict[int, list[str]]:
    """The cells of each row of the table in a page, by its number."""
    lines = map(cells, read_blocks(page)[COMMAND].splitlines()[2:])
    return {int(line[0]): line for line in lines}
