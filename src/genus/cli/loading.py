"""Event types named on the command line: a dotted module, or the path of a `.py` or `.dbc` file."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from genus.catalog.sources import types_in
from genus.cli.completing import complete_files
from genus.codes.hierarchy import load_module
from genus.errors import HierarchyError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

GENUS_TYPES = "GENUS_TYPES"


def types_option(*, required: bool) -> Callable[[Decorated], Decorated]:
    """The option by which commands are told where event types are declared."""
    return click.option(
        "-t",
        "--types",
        "types",
        multiple=True,
        required=required,
        envvar=GENUS_TYPES,
        metavar="MODULE_OR_FILE",
        shell_complete=complete_files,
        help=f"A Python module or .py file that declares event types, or a .dbc file; repeat it, or set {GENUS_TYPES} "
        "(space-separated).",
    )


TYPES = types_option(required=True)


def load_types(source: str) -> list[type]:
    """The event types and kinds found in a module or a file, which is run as a script would be but for its main part.

    The current folder, and that of a file, can be imported from. The messages of a DBC file are types as well.
    """
    if source.lower().endswith(".dbc"):
        return _load_dbc(source)
    folders = [os.getcwd(), *([str(Path(source).resolve().parent)] if source.endswith(".py") else [])]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    try:
        found = types_in(load_module(source))
    except HierarchyError as problem:
        raise click.ClickException(str(problem)) from problem
    if not found:
        raise click.ClickException(f"{source}: holds no event types; define classes that derive from Event or Kind")
    return found


def _load_dbc(source: str) -> list[type]:
    from genus.can.dbc import load_dbc  # python-can and cantools are extras

    found = load_dbc(source)
    if not found.types:
        raise click.ClickException(f"{source}: holds no messages")
    return [found.kind, *found.types.values()]


def load_all(sources: Iterable[str]) -> list[type]:
    """The event types and kinds of several modules and files, each once."""
    return list(dict.fromkeys(cls for source in sources for cls in load_types(source)))
