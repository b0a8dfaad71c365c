"""The `genus` command. Each subcommand lives in a module of its own, imported only when it is called.

Packages that add commands may use `SectionedGroup`, a click group with the help of Genus's own groups, `on_spark`,
which gives a command Spark's options and a session, `SpanParam`, the type of options that are lengths of time,
`report_if_interrupted`, for commands that are interrupted, and `wide_console`, which prints tables as they do.
"""

import logging
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from genus._lazy import lazy
from genus.cli._exit import end_by, open_closed_streams, report_if_interrupted, warnings_as_lines
from genus.cli._groups import PluginGroup, SectionedGroup

if TYPE_CHECKING:
    from genus.cli._groups import SpanParam, wide_console
    from genus.cli._lake import on_spark

__all__ = ["SectionedGroup", "SpanParam", "on_spark", "report_if_interrupted", "wide_console"]

COMMANDS = {
    "types": "genus.cli._types:types",
    "codes": "genus.cli._types:codes",
    "catalog": "genus.cli._catalog:catalog",
    "explain": "genus.cli._filters:explain",
    "pub": "genus.cli._bus:pub",
    "sub": "genus.cli._bus:sub",
    "record": "genus.cli._bus:record",
    "replay": "genus.cli._bus:replay",
    "export": "genus.cli._export:export",
    "monitor": "genus.cli._watch:monitor",
    "bus": "genus.cli._watch:bus_command",
    "studio": "genus.cli._studio:studio",
    "gateway": "genus.cli._networks:gateway",
    "grants": "genus.cli._networks:grants",
    "records": "genus.cli._types:records",
    "can": "genus.cli._groups:can",
    "c": "genus.cli._devices:c",
    "lake": "genus.cli._lake:lake",
    "doctor": "genus.cli._doctor:doctor",
    "completion": "genus.cli._completion:completion",
}
HELP_SECTIONS = {
    "Declare what events are": {
        "types": "Show the event types of a module: codes, bits, event tags",
        "codes": "Compare the sizes of prime codes, per scheme",
        "catalog": "Keep the codes, bits and event tags that a system shares",
    },
    "Subscribe to them": {
        "explain": "Show what a subscription is compiled to, for each target",
    },
    "Run a bus": {
        "pub": "Publish events",
        "sub": "Print events as they arrive",
        "record": "Write events to a file, or to a folder for streams",
        "replay": "Publish or print the events of a recording",
        "export": "Write the events of a recording to a file for other programs",
        "monitor": "Show the events and rates of a bus",
        "bus": "Show who is on a bus, what they want, and what happens there",
        "studio": "Show buses, simulations, recordings and lakes in the browser",
    },
    "On networks": {
        "gateway": "Carry events between buses, those that somebody wants",
        "grants": "Say who may publish and subscribe which types",
        "records": "Make event types and mapping files for records of other systems",
    },
    "On CAN": {
        "can": "Plan channels, simulate them under faults, run them, decode logs",
    },
    "On small devices": {
        "c": "Generate C for micro-controllers",
    },
    "On Spark": {
        "lake": "Ingest events, query them, route them, follow a stream",
    },
    "On this machine": {
        "doctor": "Show what is installed, what it is for, and what is missing",
        "completion": "Print the script that completes these commands",
    },
}


@click.command(
    cls=PluginGroup,
    lazy=COMMANDS,
    sections=HELP_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found, 130 interrupted.",
)
@click.version_option(None, "-V", "--version", package_name="genus")
def genus() -> None:
    """Typed publish/subscribe: declare event types once, subscribe to what events are, have and say."""


def main() -> None:
    """Run the command line; an error is one line on standard error and an exit code of `genus.cli._exit`.

    python-can's warning that a bus which could not be opened was not closed either is left out.
    """
    open_closed_streams()
    signal.signal(signal.SIGTERM, _interrupt)
    logging.getLogger("can.bus").addFilter(lambda record: "not properly shut down" not in record.getMessage())
    try:
        _warn_of_passwords(sys.argv[1:])
        with warnings_as_lines():
            status = genus(prog_name="genus", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as problem:
        end_by(problem)
    sys.exit(status if isinstance(status, int) else 0)


def _warn_of_passwords(arguments: list[str]) -> None:
    """Other users of a machine see the arguments of its processes, and passwords in them."""
    for given in arguments if any("@" in each for each in arguments) else ():
        from genus.bus import shown_address

        if (shown := shown_address(given)) != given:
            click.echo(f"genus: others see the password of {shown} in `ps`; use password_file=FILE", err=True)


def _interrupt(number: int, frame: object) -> NoReturn:
    """SIGTERM ends a command as Ctrl-C does: files are finished, sockets removed, Spark stopped."""
    raise KeyboardInterrupt


if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
