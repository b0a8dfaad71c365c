"""`genus records`: event types and mapping files for records of other systems."""

from pathlib import Path

import click

from genus.cli._groups import SectionedGroup
from genus.net import infer_sparkplug


@click.group(cls=SectionedGroup)
def records() -> None:
    """Make event types and mapping files for records of other systems."""


@records.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--py", "types", type=click.Path(dir_okay=False, path_type=Path), help="Write the event types to this .py file."
)
@click.option(
    "--map", "mapping", type=click.Path(dir_okay=False, path_type=Path), help="Write the mapping to this file."
)
def infer(path: Path, types: Path | None, mapping: Path | None) -> None:
    """Make event types and a mapping of captured births of Sparkplug.

    FILE has a topic and a payload in hexadecimal digits on each line, as `mosquitto_sub -t 'spBv1.0/#' -F '%t %x'`
    prints them. What is not written to files is printed. What could not be read is said on standard error.

    \b
    genus records infer births.txt
    genus records infer births.txt --py plant.py --map plant.toml
    """
    with path.open(encoding="utf-8") as lines:
        found = infer_sparkplug(lines)
    if not found.mapping:
        raise click.ClickException(f"{path} has no birth with metrics")
    for to, text in ((types, found.types), (mapping, found.mapping)):
        if to is None:
            click.echo(text)
        else:
            to.write_text(text, encoding="utf-8")
    for problem in found.problems:
        click.echo(f"not read: {problem}", err=True)
