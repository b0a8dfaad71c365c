"""`genus lake ...`: years of recorded events, and live ones, on Spark."""

import click

from genus.cli.lazy import LazyGroup

COMMANDS = {
    "init": "genus.cli.lake_keep:init",
    "ingest": "genus.cli.lake_in:ingest",
    "dead": "genus.cli.lake_in:dead",
    "read": "genus.cli.lake_out:read",
    "route": "genus.cli.lake_route:route",
    "inbox": "genus.cli.lake_route:inbox",
    "stream": "genus.cli.lake_stream:stream",
    "compact": "genus.cli.lake_keep:compact",
    "check": "genus.cli.lake_keep:check",
    "stats": "genus.cli.lake_keep:stats",
}


@click.command(cls=LazyGroup, lazy=COMMANDS)
def lake() -> None:
    """Events at rest on Spark: read them in, read them out, route them, and follow what comes.

    LAKE is a folder, or any path that Spark reaches; GENUS_LAKE is taken where it is left out.
    """
