"""`genus completion`: the script by which a shell completes commands, options and values."""

import click
from click.shell_completion import get_completion_class

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
