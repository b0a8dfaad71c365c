"""The `genus` command. Each subcommand lives in a module of its own, imported only when it is called."""

import os
import sys
from typing import NoReturn

import click

from genus.cli.lazy import LazyGroup
from genus.errors import GenusError

COMMANDS = {
    "types": "genus.cli.types:types",
    "codes": "genus.cli.codes:codes",
    "catalog": "genus.cli.catalog:catalog",
    "explain": "genus.cli.filters:explain",
    "bindings": "genus.cli.filters:bindings",
    "pub": "genus.cli.bus:pub",
    "sub": "genus.cli.bus:sub",
    "record": "genus.cli.bus:record",
    "replay": "genus.cli.bus:replay",
    "can": "genus.cli.can:can",
    "lake": "genus.cli.lake:lake",
}


@click.command(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="genus")
def genus() -> None:
    """Typed publish/subscribe: declare event types once, subscribe to what events are, have and say."""


def main() -> None:
    """Run the command line; what goes wrong is one line and exit code 1 (2 for wrong usage, 130 for Ctrl-C)."""
    try:
        status = genus(prog_name="genus", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.UsageError as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except click.ClickException as problem:
        _fail(problem.format_message())
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: nothing to say
        sys.exit(1)
    except (GenusError, OSError, ImportError) as problem:
        _fail(str(problem))


def _fail(why: str) -> NoReturn:
    click.echo(f"genus: {why}", err=True)
    if _stdout_is_lost():
        os._exit(1)
    sys.exit(1)


def _stdout_is_lost() -> bool:
    """Whether what was printed cannot be written: then Python would complain once more on its way out."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False
