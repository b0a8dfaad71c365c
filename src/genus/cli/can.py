"""`genus can ...`: event channels on CAN, planned, simulated and live."""

import click

from genus.cli.lazy import LazyGroup

COMMANDS = {
    "plan": "genus.cli.can_plan:plan",
    "sim": "genus.cli.can_sim:sim",
    "faults": "genus.cli.can_faults:faults",
    "broker": "genus.cli.can_live:broker",
    "node": "genus.cli.can_live:node",
    "monitor": "genus.cli.can_live:monitor",
    "types": "genus.cli.can_dbc:types_",
    "decode": "genus.cli.can_dbc:decode",
}


@click.command(cls=LazyGroup, lazy=COMMANDS)
def can() -> None:
    """Event channels on CAN: plan them, simulate them under faults, run them, and read what others recorded."""
