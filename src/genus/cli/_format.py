"""How commands print numbers, tables, JSON and suggestions; common options, such as `--metrics`."""

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
import msgspec

from genus.errors import counted as counted
from genus.errors import did_you_mean
from genus.model import seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from genus.bus import Bus
    from genus.net.types import Measured

    ParamType = click.ParamType
else:

    class ParamType(click.ParamType):
        """click's own, which can be written with the type of its values only since click 8.5."""

        def __class_getitem__(cls, of: Any) -> type:
            return cls


class SpanParam(ParamType[float]):
    """A `genus.Span` on the command line, in seconds.

    >>> SpanParam().convert("2min", None, None), SpanParam().convert("0.5", None, None)
    (120.0, 0.5)
    """

    name = "span"

    def __init__(self, *, may_be_zero: bool = False) -> None:
        self._may_be_zero = may_be_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number and the unit."""
        try:
            return seconds(value, "it", zero=self._may_be_zero, error=ValueError)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the name of the value in the help."""
        return "SPAN"


FOR = click.option("--for", "lasts", type=SpanParam(), help="Stop after this time, like 30s or 2min [at Ctrl-C].")
"""The option of commands that run until they are stopped."""


PIPED_WIDTH = 10_000
"""Columns of a pipe or file: more than a table has, so that programs find each row on one line."""


def sized(amount: int) -> str:
    """Return an amount of bytes, in the unit that suits it."""
    from rich.filesize import decimal

    return decimal(amount)


def rate(number: float, duration: float) -> str:
    """Return how many a second, to three figures.

    >>> rate(1_234_567, 2.0)
    '617,000/s'
    """
    found = number / duration if duration > 0 else 0.0
    return f"{float(f'{found:.3g}'):,.0f}/s" if found >= 100 else f"{found:.3g}/s"


def meant(word: str, known: Iterable[str]) -> str:
    """A suggestion for a word that is not among the known ones.

    >>> meant("repaly", ["record", "replay"]), meant("x", ["record", "replay"])
    ("did you mean 'replay'?", 'there are record, replay')
    """
    names = list(known)
    return did_you_mean(word, names).rstrip() or f"there are {', '.join(names) or 'none'}"


def wide_console(**options: Any) -> "Console":
    """Return the console of results: as wide as the terminal, or as wide as needed if it is a pipe or a file.

    COLUMNS sets the width of both.
    """
    from rich.console import Console

    made = Console(**options)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_WIDTH
    return made


def plain_table(*headings: str, numbers: Iterable[str] = (), title: str | None = None) -> "Table":
    """Return an empty table, the columns of numbers aligned at the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True
    )
    right = set(numbers)
    for heading in headings:
        table.add_column(
            heading, justify="right" if heading in right else "left", overflow="fold", no_wrap=heading in right
        )
    return table


def print_json(what: Any) -> None:
    """Print a value as an indented JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(what), indent=2).decode())


METRICS = click.option(
    "--metrics", metavar="PLACE", help="Serve metrics for Prometheus at this port of the machine, or at HOST:PORT."
)


def serve(stack: ExitStack, source: "Bus | Measured", place: str | None) -> None:
    """Serve the metrics of a source until the stack is left, and say where; nothing without a place."""
    if place is not None:
        from genus.net import serve_metrics

        server = stack.enter_context(serve_metrics(source, place))
        click.echo(f"metrics at {server.url}", err=True)


def is_place(text: str) -> bool:
    """Return whether a text is a port or HOST:PORT, and no file.

    >>> is_place("9100"), is_place("0.0.0.0:9100"), is_place("stream.jsonl")
    (True, True, False)
    """
    return re.fullmatch(r"([\w.-]+:|\[[0-9a-fA-F:.]+\]:)?\d+", text) is not None
