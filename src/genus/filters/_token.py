"""A word of the text of a subscription, and errors that point at one."""

import msgspec

from genus.errors import SyntaxProblem

EXAMPLE_TIME = "@2026-05-01T00:00:00Z"


class Token(msgspec.Struct, frozen=True, gc=False):
    """A word of the text, its kind and where it starts."""

    kind: str
    text: str
    column: int


def problem_at(text: str, column: int, what: str) -> SyntaxProblem:
    """Return an error that shows the text with a mark under the column (counted from 1)."""
    line = text.replace("\n", " ").replace("\t", " ")
    return SyntaxProblem(f"{what} (column {column})\n  {line}\n  {' ' * (column - 1)}^", column, what)
