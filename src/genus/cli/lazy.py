"""Groups of commands that tell a story, and those that import a command only to run or describe it."""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from genus.cli.words import meant

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


def first_sentence(command: click.Command) -> str:
    """What a command does, as a list of commands says it."""
    return command.get_short_help_str(limit=1000).removesuffix(".")
