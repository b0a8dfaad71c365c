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
STORY = {
    "Fill it": {
        "init": "Make a lake for some event types, or add types to one",
        "ingest": "Read in files, folders or patterns of files",
        "dead": "Show what was no event, and why",
    },
    "Ask it": {
        "read": "Show the events that match a subscription",
        "route": "Match many subscriptions: count or deliver",
        "inbox": "Show what was delivered to a subscriber",
    },
    "Follow what comes": {
        "stream": "Read in recordings as they land, and deliver matches",
    },
    "Keep it": {
        "compact": "Make few large files of many small ones",
        "check": "Compare a lake's files with its ledger",
        "stats": "Show the tables of a lake in numbers",
    },
}


@click.command(cls=LazyGroup, lazy=COMMANDS, story=STORY)
def lake() -> None:
    """Read in events, read them out, route them, follow what comes.

    LAKE is a folder, or any path that Spark reaches; GENUS_LAKE is taken where it is left out.
    """
