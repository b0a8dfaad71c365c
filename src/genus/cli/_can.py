"""`genus can ...`: event channels on CAN, planned, simulated and live."""

import click

from genus.cli._groups import LazyGroup

COMMANDS = {
    "plan": "genus.cli._can_plan:plan",
    "sim": "genus.cli._can_sim:sim",
    "broker": "genus.cli._can_live:broker",
    "node": "genus.cli._can_live:node",
    "monitor": "genus.cli._can_live:monitor",
    "types": "genus.cli._can_dbc:types_",
    "decode": "genus.cli._can_dbc:decode",
}
HELP_SECTIONS = {
    "Before there is a bus": {
        "plan": "Plan a system: which guarantees hold, and why others do not",
        "sim": "Simulate a system bit by bit, under faults",
    },
    "On a live bus": {
        "broker": "Give nodes their numbers and channels their event tags",
        "node": "Take part in a bus: print, publish, report problems",
        "monitor": "Show the rate, latency, jitter and losses of every channel",
    },
    "DBC files and CAN logs": {
        "types": "Show the event types that the messages of a database become",
        "decode": "Decode the frames of a CAN log to events",
    },
}


@click.command(cls=LazyGroup, lazy=COMMANDS, sections=HELP_SECTIONS)
def can() -> None:
    """Plan channels, simulate them under faults, run them, decode logs.

    BUS is like can:socketcan?channel=can0 or can:udp_multicast: any interface of python-can, and its options.
    With &database=car.dbc the frames that this file describes are events, too.
    """
