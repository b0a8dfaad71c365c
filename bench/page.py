"""Tables of pages that commands write: `<!-- COMMAND -->`, the table, `<!-- end -->`; nothing else writes between."""

import re
from itertools import pairwise

from genus.errors import GenusError

_BLOCK = re.compile(r"<!-- (python -m [^>]+?) -->\n(.*?)<!-- end -->", re.DOTALL)
_CELL = re.compile(r"(?<!\\)\|")


def read_blocks(page: str) -> dict[str, str]:
    """The texts that commands wrote into a page, by command.

    >>> read_blocks("a <!-- python -m that -->\\n\\n| x |\\n\\n<!-- end --> b")
    {'python -m that': '| x |'}
    """
    return {found[1]: found[2].strip("\n") for found in _BLOCK.finditer(page)}


def write_block(page: str, command: str, text: str) -> str:
    """The page with another text of a command; GenusError if it has no place for it."""
    begins, ends = f"<!-- {command} -->\n", "<!-- end -->"
    before, found, rest = page.partition(begins)
    _, ended, after = rest.partition(ends)
    if not found or not ended:
        raise GenusError(f"the page has no markers for this table; write {begins.strip()} and {ends} where it shall be")
    return f"{before}{begins}\n{text}\n\n{ends}{after}"


def cells(line: str) -> list[str]:
    """The cells of a line of a table.

    >>> cells("| a | b \\\\| c |")
    ['a', 'b \\\\| c']
    """
    return [cell.strip() for cell in _CELL.split(line)[1:-1]]


def headings(text: str) -> list[str]:
    """The first lines of the tables in a text."""
    lines = text.splitlines()
    return [line for line, below in pairwise(lines) if line.startswith("|") and "|---" in below.replace(" ", "")]
