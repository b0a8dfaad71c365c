"""What the shell may put in the place of a value: names of types, buses, faults.

A half-typed command is often wrong, and what it names may not load; then there is nothing to propose, and nothing is
said: the shell would print it into the line that is being typed.
"""

import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

GENUS_LAKE = "GENUS_LAKE"
LAKE_CATALOG = "catalog.json"
"""Name of a lake's catalog file; repeated here because `genus.lake` imports pyspark."""
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def quietly(names: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Completes by the names that a function finds; by none if it fails."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                found = list(names(ctx))
        except Exception:  # whatever a module of the user's raises: the command itself will say it
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


@quietly
def complete_types(ctx: click.Context) -> list[str]:
    """The types that -t or GENUS_TYPES name."""
    from genus.cli._events import load_all
    from genus.model import name_of

    sources = ctx.params.get("types") or os.environ.get("GENUS_TYPES", "").split()
    return sorted(name_of(cls) for cls in load_all(sources))


@quietly
def complete_catalog_types(ctx: click.Context) -> list[str]:
    """The types of the catalog file that is named before."""
    from genus.catalog import Catalog

    return sorted(Catalog.load(ctx.params["path"]).types)


@quietly
def complete_bus(ctx: click.Context) -> list[str]:
    """How the address of a bus begins."""
    return ["ipc:", "can:socketcan?channel=can0", "can:udp_multicast", "can:virtual"]


@quietly
def complete_can_bus(ctx: click.Context) -> list[str]:
    """How the address of a CAN bus begins."""
    return ["can:socketcan?channel=can0", "can:udp_multicast", "can:virtual"]


@quietly
def complete_faults(ctx: click.Context) -> list[str]:
    """What can go wrong on a simulated bus."""
    from genus.can import fault_help

    return [usage.split()[0] for usage, _ in fault_help()]


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders, for values that may be something else as well."""
    return [CompletionItem(incomplete, type="file")]


@quietly
def _lake_types(ctx: click.Context) -> list[str]:
    from genus.catalog import Catalog

    words = ctx.params.get("given") or (os.environ[GENUS_LAKE],)
    return sorted(Catalog.load(Path(words[0]) / LAKE_CATALOG).types)


def complete_lake_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder where the lake is not named yet, then its types; a lake that is farther away is not asked."""
    types = _lake_types(ctx, param, incomplete)
    return types if ctx.params.get("given") else [*types, *complete_files(ctx, param, incomplete)]


# `genus completion`: the script by which a shell completes commands, options and values.


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GENUS_COMPLETE"
"""The environment variable by which the script asks this command what fits."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes these commands.

    Commands, options and values are completed: files, type names, faults.

    \b
    eval "$(genus completion bash)"                                  # in ~/.bashrc
    eval "$(genus completion zsh)"                                   # in ~/.zshrc
    genus completion fish > ~/.config/fish/completions/genus.fish    # once
    """
    from genus.cli import genus

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(genus, {}, "genus", VARIABLE).source(), nl=False)
