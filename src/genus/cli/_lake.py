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
    "mirror": "genus.cli._lake_admin:mirror",
    "keep": "genus.cli._lake_keep:keep",
    "expire": "genus.cli._lake_keep:expire",
    "delete": "genus.cli._lake_keep:delete",
    "history": "genus.cli._lake_keep:history",
    "check": "genus.cli._lake_admin:check",
    "backup": "genus.cli._lake_backup:backup",
    "rewind": "genus.cli._lake_admin:rewind",
    "stats": "genus.cli._lake_admin:stats",
}
HELP_SECTIONS = {
    "Fill a lake": {
        "init": "Make a lake for some event types, or add types to one",
        "ingest": "Ingest files, folders or patterns of files",
        "dead": "Show the dead letters: input that is not an event, and why",
    },
    "Query it": {
        "read": "Show the events that match a subscription",
        "route": "Match many subscriptions: count or deliver",
        "inbox": "Show the events delivered to a subscriber",
    },
    "Follow new events": {
        "stream": "Ingest recordings as they land, and deliver matches",
    },
    "Maintain it": {
        "compact": "Rewrite many small files as few large ones",
        "mirror": "Complete the Delta tables that other engines read",
        "keep": "Set how long events are kept, by type",
        "expire": "Remove old events",
        "delete": "Delete the events that match a subscription",
        "history": "Show what each commit has changed",
        "check": "Compare a lake's files with its ledger",
        "backup": "Copy a lake into another folder while it is in use",
        "rewind": "Take back deliveries that a restored lake does not know",
        "stats": "Show the tables of a lake in numbers",
    },
}


@click.command(cls=LazyGroup, lazy=COMMANDS, sections=HELP_SECTIONS)
def lake() -> None:
    """Ingest events, query them, route them, follow a stream.

    LAKE is a folder, or any path that Spark reaches; the default is GENUS_LAKE.
    """
