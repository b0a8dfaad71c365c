"""Groups of commands that tell a story, and those that import a command only to run or describe it."""

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click
from click.shell_completion import CompletionItem

from genus.cli._format import meant

COMMAND_ENTRY_POINTS = "genus.commands"
Story = Mapping[str, Mapping[str, str]]
"""Headings, and below each the commands with the line that says what they do."""


class StoryGroup(click.Group):
    """A group whose help lists its commands in the order of the story they tell, each with a whole line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order they were declared, not of the alphabet."""
        return list(self.commands)

    def story(self, ctx: click.Context) -> Story:
        """What the help shows: the first sentence of each command's own help."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {"Commands": {name: first_sentence(command) for name, command in commands.items() if command}}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One column of names through all headings, and no line cut short."""
        story = self.story(ctx)
        widest = max(len(name) for lines in story.values() for name in lines)
        for heading, lines in story.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), line) for name, line in lines.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for, or say which one was meant."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}; {meant(name, known)}", ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, the help is what was asked for."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, found without importing them, and options."""
        lines = {name: line for part in self.story(ctx).values() for name, line in part.items()}
        found = [CompletionItem(name, help=line) for name, line in lines.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class LazyGroup(StoryGroup):
    """A group that knows its commands by name and imports one only to run or describe it.

    With a story, not even its help imports them.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, str], story: Story | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy
        self._story = story

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

    def story(self, ctx: click.Context) -> Story:
        """The story that was given, or what the commands say of themselves."""
        return super().story(ctx) if self._story is None else self._story


class PluginGroup(LazyGroup):
    """A group that other distributions add commands to, by entry points of the group `genus.commands`.

    The name of the entry point is the name of the command; its object is a click command. A command of Genus itself
    cannot be replaced. Lists of commands show the summary of the package; the command is imported when it is called.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands of Genus, then those that were added."""
        return [*super().list_commands(ctx), *self._added()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        added = None if name in self._lazy else self._added().get(name)
        return super().get_command(ctx, name) if added is None else _load(added)

    def story(self, ctx: click.Context) -> Story:
        """What Genus has, and what was added."""
        added = {name: _described(entry) for name, entry in self._added().items()}
        return {**super().story(ctx), **({"Added by other packages": added} if added else {})}

    def _added(self) -> dict[str, EntryPoint]:
        found = sorted(entry_points(group=COMMAND_ENTRY_POINTS), key=lambda entry: entry.name)
        return {entry.name: entry for entry in found if entry.name not in self._lazy}


def _load(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except Exception as problem:
        raise click.ClickException(
            f"the command {entry.name!r}, which {_package(entry)} adds, cannot be loaded: {problem}"
        ) from problem
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{entry.value}, which {_package(entry)} adds as a command, is not a click command")
    return command


def _described(entry: EntryPoint) -> str:
    """The summary of the package: its command is not imported for the sake of a list."""
    if entry.dist is None or "Summary" not in entry.dist.metadata:
        return _package(entry)
    return f"{entry.dist.name}: {entry.dist.metadata['Summary']}"


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def first_sentence(command: click.Command) -> str:
    """What a command does, as a list of commands says it."""
    return command.get_short_help_str(limit=1000).removesuffix(".")
