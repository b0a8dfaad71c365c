"""Groups of commands: with headings in their help, imported when they are called, and added by other packages."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from genus.cli._format import meant

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
