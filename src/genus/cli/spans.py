"""Lengths of time as they are written on the command line: 500ms, 1s, 2min, 6h, 7d."""

import re
import threading
from typing import Any

import click

from genus.cli.values import ParamType
from genus.filters.text import UNITS


class Span(ParamType[float]):
    """A length of time such as 500ms, 1s, 2min, 6h or 7d, in seconds; a bare number is seconds.

    >>> Span().convert("2min", None, None), Span().convert("0.5", None, None)
    (120.0, 0.5)
    """

    name = "span"

    def __init__(self, *, may_be_zero: bool = False) -> None:
        self._may_be_zero = may_be_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number and the unit."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|min|h|d)?", str(value))
        if found is None:
            self.fail(f"{value!r} is no length of time; write it like 500ms, 1s, 2min, 6h or 7d", param, ctx)
        seconds = float(found[1]) * UNITS[found[2] or "s"] / 1e6
        if seconds > threading.TIMEOUT_MAX or (seconds == 0 and not self._may_be_zero):
            self.fail(f"{value!r} is too {'long' if seconds else 'short'}", param, ctx)
        return seconds

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows in its place."""
        return "SPAN"


FOR = click.option("--for", "--seconds", "lasts", type=Span(), help="Stop after so long, like 30s or 2min [at Ctrl-C].")
"""The option of commands that go on until they are told to stop."""
