"""What the commands on a live CAN bus share: its address, and how they say what happens on it."""

import re

import click

from genus.can.live.address import CanAddress, parse_address
from genus.cli.completing import complete_can_bus

ADDRESS = click.argument("address", metavar="BUS", shell_complete=complete_can_bus)


def can_address(text: str) -> CanAddress:
    """The address of a CAN bus; what else there is, is refused."""
    if not text.startswith("can:"):
        raise click.UsageError(f"{text!r} is no CAN bus; write for example can:udp_multicast")
    return parse_address(text.removeprefix("can:"))


def say(notice: object) -> None:
    """A notice or a trouble as a line: `deadline missed: channel Loop, event Loop(lane=2), deadline_ns ...`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(notice).__name__).lower()
    fields = [f"{field} {getattr(notice, field)}" for field in getattr(notice, "__struct_fields__", ())]
    click.echo(f"{words}: {', '.join(fields)}" if fields else words, err=True)
