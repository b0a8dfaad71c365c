"""The option `--metrics`: serve the counters of a bus, a gateway or a stream for Prometheus while a command runs."""

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from genus.bus import Bus
    from genus.net.types import Measured

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
