"""`genus lake ...`: years of recorded events, and live ones, on Spark."""

import click

from genus.cli._groups import LazyGroup

COMMANDS = {
    "init": "genus.cli._lake_admin:init",
    "ingest": "genus.cli._lake_ingest:ingest",
    "dead": "genus.cli._lake_ingest:dead",
    "read": "genus.cli._lake_read:read",
    "route": "genus.cli._lake_route:route",
    "inbox": "genus.cli._lake_route:inbox",
    "stream": "genus.cli._lake_stream:stream",
    "compact": "genus.cli._lake_admin:compact",
    "check": "genus.cli._lake_admin:check",
    "stats": "genus.cli._lake_admin:stats",
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
