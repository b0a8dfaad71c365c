"""`genus completion`, and the functions by which the shell completes values: files, buses, faults, types of a lake.

A half-typed command is often wrong, and what it names may not load. Then nothing is proposed and nothing printed: the
shell would print it into the line that is being typed.
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
    """Decorator: complete with the names that a function returns; with none if it fails."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                found = list(names(ctx))
        except Exception:  # a user's module may raise anything; the command itself will report it
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


@quietly
def complete_catalog_types(ctx: click.Context) -> list[str]:
    """Return the types of the catalog file that an earlier argument names."""
    from genus.catalog import Catalog

    return sorted(Catalog.load(ctx.params.get("path") or ctx.params["catalog"]).types)


@quietly
def complete_bus(ctx: click.Context) -> list[str]:
    """Addresses of buses."""
    networks = ["ipc:", "zenoh:", "mqtt://localhost", "mqtts://localhost"]
    return [*networks, "can:socketcan?channel=can0", "can:udp_multicast", "can:virtual"]


@quietly
def complete_can_bus(ctx: click.Context) -> list[str]:
    """Addresses of CAN buses."""
    return ["can:socketcan?channel=can0", "can:udp_multicast", "can:virtual"]


@quietly
def complete_faults(ctx: click.Context) -> list[str]:
    """Names of faults on a simulated bus."""
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
    """Folders until the lake is named, then its types; a lake on another machine is not read."""
    types = _lake_types(ctx, param, incomplete)
    return types if ctx.params.get("given") else [*types, *complete_files(ctx, param, incomplete)]


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GENUS_COMPLETE"
"""The environment variable by which the script asks this command for completions."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes these commands.

    Commands, options and values are completed: files, type names, faults.

    \b
    eval "$(genus completion bash)"                                  # in ~/.bashrc
    eval "$(genus completion zsh)"                                   # in ~/.zshrc, after `compinit`
    genus completion fish > ~/.config/fish/completions/genus.fish    # once
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "genus", VARIABLE).source(), nl=False)
    if shell == "bash":
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//:}  # addresses of buses are one word, colons included")
