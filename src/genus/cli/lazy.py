"""Groups of commands that are imported when they are run."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run or describe it."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the story they tell, not of the alphabet."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        if name not in self._lazy:
            return None
        module, _, attribute = self._lazy[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command
