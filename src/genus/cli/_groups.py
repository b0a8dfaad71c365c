"""How commands are grouped, and how they print: headings in help, imports when they are called, numbers, tables, JSON.

Other packages add commands by entry points. Options that several commands have are here, such as `--metrics`.
"""

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from genus.errors import GenusError, did_you_mean
from genus.errors import counted as counted
from genus.model import seconds

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rich.console import Console
    from rich.table import Table

    from genus.bus import Bus
    from genus.net.types import Measured

if TYPE_CHECKING:
    ParamType = click.ParamType
else:

    class ParamType(click.ParamType):
        """click's own, which can be written with the type of its values only since click 8.5."""

        def __class_getitem__(cls, of: Any) -> type:
            return cls


class SpanParam(ParamType[float]):
    """A `genus.Span` on the command line, in seconds.

    >>> SpanParam().convert("2min", None, None), SpanParam().convert("0.5", None, None)
    (120.0, 0.5)
    """

    name = "span"

    def __init__(self, *, may_be_zero: bool = False) -> None:
        self._may_be_zero = may_be_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number and the unit."""
        try:
            return seconds(_number(value), "it", zero=self._may_be_zero, error=ValueError)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the name of the value in the help."""
        return "SPAN"


def _number(value: Any) -> Any:
    """Return a text that is only a number as that: on the command line it means seconds, as for `sleep`."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


FOR = click.option("--for", "lasts", type=SpanParam(), help="Stop after this time, like 30s or 2min [at Ctrl-C].")
"""The option of commands that run until they are stopped."""


PIPED_WIDTH = 10_000
"""Columns of a pipe or file: more than a table has, so that programs find each row on one line."""


def sized(amount: int) -> str:
    """Return an amount of bytes, in the unit that suits it."""
    from rich.filesize import decimal

    return decimal(amount)


def rate(number: float, duration: float) -> str:
    """Return how many a second, to three figures.

    >>> rate(1_234_567, 2.0)
    '617,000/s'
    """
    found = number / duration if duration > 0 else 0.0
    return f"{float(f'{found:.3g}'):,.0f}/s" if found >= 100 else f"{found:.3g}/s"


def meant(word: str, known: Iterable[str]) -> str:
    """A suggestion for a word that is not among the known ones.

    >>> meant("repaly", ["record", "replay"]), meant("x", ["record", "replay"])
    ("did you mean 'replay'?", 'there are record, replay')
    """
    names = list(known)
    return did_you_mean(word, names).rstrip() or f"there are {', '.join(names) or 'none'}"


def wide_console(**options: Any) -> "Console":
    """Return the console of results: as wide as the terminal, or as wide as needed if it is a pipe or a file.

    COLUMNS sets the width of both.
    """
    from rich.console import Console

    made = Console(**options)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_WIDTH
    return made


def plain_table(*headings: str, numbers: Iterable[str] = (), title: str | None = None) -> "Table":
    """Return an empty table, the columns of numbers aligned at the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True
    )
    right = set(numbers)
    for heading in headings:
        table.add_column(
            Text(heading), justify="right" if heading in right else "left", overflow="fold", no_wrap=heading in right
        )
    return table


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A temporary file beside `out`, which takes its place when it is complete and is removed if it is not.

    If `out` is a link, the file behind it is replaced and not the link. UsageError if it is a device or pipe, such as
    /dev/stdout: renaming a file to it would remove the device.
    """
    if out.exists() and not out.is_file():
        raise click.UsageError(f"cannot write {out}: not a regular file")
    target = out.resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        yield part
        os.replace(part, target)
    except OSError as problem:
        if isinstance(problem, GenusError):
            raise
        raise GenusError(f"cannot write {out}: {problem.strerror or problem}") from problem
    finally:
        with suppress(OSError):  # there is no such folder, as was said
            part.unlink(missing_ok=True)


def print_json(what: Any) -> None:
    """Print a value as an indented JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(what), indent=2).decode())


METRICS = click.option(
    "--metrics", metavar="PLACE", help="Serve metrics for Prometheus at this port of the machine, or at HOST:PORT."
)


def serve(stack: ExitStack, source: "Bus | Measured", place: str | None) -> None:
    """Serve the metrics of a source until the stack is left, and say where; nothing without a place."""
    if place is not None:
        from genus.net import serve_metrics

        server = stack.enter_context(serve_metrics(source, place))
        click.echo(f"metrics at {server.url}", err=True)


def is_place(text: str) -> bool:
    """Return whether a text is a port or HOST:PORT, and no file.

    >>> is_place("9100"), is_place("0.0.0.0:9100"), is_place("stream.jsonl")
    (True, True, False)
    """
    return re.fullmatch(r"([\w.-]+:|\[[0-9a-fA-F:.]+\]:)?\d+", text) is not None


COMMAND_ENTRY_POINTS = "genus.commands"
HelpSections = Mapping[str, Mapping[str, str]]
"""Headings, each with its commands and their one-line descriptions."""


class SectionedGroup(click.Group):
    """A group whose help lists its commands in the order of declaration, under headings, with whole lines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of declaration."""
        return list(self.commands)

    def sections(self, ctx: click.Context) -> HelpSections:
        """Return the commands under one heading, described by the first sentence of their help."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {"Commands": {name: first_sentence(command) for name, command in commands.items() if command}}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the headings with their commands; names take the same width under all headings."""
        sections = self.sections(ctx)
        widest = max(len(name) for lines in sections.values() for name in lines)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), line) for name, line in lines.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; UsageError with a suggestion if there is none."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}; {meant(name, known)}", ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if no command is given."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin like the word; commands are not imported."""
        lines = {name: line for part in self.sections(ctx).values() for name, line in part.items()}
        found = [CompletionItem(name, help=line) for name, line in lines.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class LazyGroup(SectionedGroup):
    """A group that knows its commands by name and imports one only to run or describe it.

    With a story, not even its help imports them.
    """

    def __init__(
        self, *arguments: Any, lazy: Mapping[str, str], sections: HelpSections | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order they were given."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        if name not in self._lazy:
            return None
        module, _, attribute = self._lazy[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the list of all commands is made only if it is none of those given."""
        if args[0] in self._lazy:
            return click.Group.resolve_command(self, ctx, args)
        return super().resolve_command(ctx, args)

    def sections(self, ctx: click.Context) -> HelpSections:
        """Return the given sections, or one made from the help of the commands."""
        return super().sections(ctx) if self._sections is None else self._sections


class PluginGroup(LazyGroup):
    """A group that other distributions add commands to, by entry points of the group `genus.commands`.

    The name of the entry point is the name of the command; its object is a click command. A command of Genus itself
    cannot be replaced. Lists of commands show the summary of the package; the command is imported when it is called.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands of Genus, then those that were added."""
        return [*super().list_commands(ctx), *self._added()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        added = None if name in self._lazy else self._added().get(name)
        return super().get_command(ctx, name) if added is None else _load(added)

    def sections(self, ctx: click.Context) -> HelpSections:
        """Return the sections of Genus, and one for commands of other packages."""
        added = {name: _described(entry) for name, entry in self._added().items()}
        return {**super().sections(ctx), **({"Added by other packages": added} if added else {})}

    def _added(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import entry_points  # slow to import, and not needed for commands of Genus

        found = sorted(entry_points(group=COMMAND_ENTRY_POINTS), key=lambda entry: entry.name)
        return {entry.name: entry for entry in found if entry.name not in self._lazy}


def _load(entry: "EntryPoint") -> click.Command:
    try:
        command = entry.load()
    except Exception as problem:
        raise click.ClickException(
            f"the command {entry.name!r}, which {_package(entry)} adds, cannot be loaded: {problem}"
        ) from problem
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{entry.value}, which {_package(entry)} adds as a command, is not a click command")
    return command


def _described(entry: "EntryPoint") -> str:
    """Return the name and summary of the package; the command is not imported."""
    if entry.dist is None or "Summary" not in entry.dist.metadata:
        return _package(entry)
    return f"{entry.dist.name}: {entry.dist.metadata['Summary']}"


def _package(entry: "EntryPoint") -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def first_sentence(command: click.Command) -> str:
    """Return the first sentence of a command's help, for lists."""
    return command.get_short_help_str(limit=1000).removesuffix(".")


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
