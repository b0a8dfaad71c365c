"""`genus explain` and `genus bindings`: what subscriptions compile to and what they cost."""

import importlib
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from genus.cli.loading import TYPES, load_all
from genus.filters import Subscription
from genus.filters import bindings as count_bindings
from genus.model import name_of

TARGETS = ("python", "arrow", "index", "spark", "can")


@click.command()
@TYPES
@click.argument("subscription")
@click.option("--target", type=click.Choice(TARGETS), help="Only this target; default: all that are installed.")
@click.option(
    "--catalog",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take event tags from this catalog, and show the acceptance filters of a CAN controller too.",
)
@click.option("--banks", type=click.IntRange(1), help="How many acceptance filters the controller has [no limit].")
def explain(
    types: tuple[str, ...], subscription: str, target: str | None, path: Path | None, banks: int | None
) -> None:
    """Show what SUBSCRIPTION becomes on each target.

    \b
    genus explain -t examples/traffic.py "Loop has place where speed > 30"
    genus explain -t examples/traffic.py --catalog city.json --target can --banks 2 "Roadside has place"
    """
    if path is None and (target == "can" or banks is not None):
        raise click.UsageError("acceptance filters need --catalog FILE: event tags are what a catalog says")
    asked = Subscription.parse(subscription, load_all(types))
    for name in (target,) if target else [name for name in TARGETS if name != "can" or path is not None]:
        try:
            click.echo(f"{_explained_on_can(asked, path, banks) if name == 'can' else _explained(name, asked)}\n")
        except ImportError as problem:
            if target:
                raise
            click.echo(f"{name}: {problem}\n")


def _explained_on_can(subscription: Subscription, path: Path | None, banks: int | None) -> str:
    from genus.catalog import Catalog
    from genus.targets import can

    assert path is not None
    catalog = Catalog.load(path)
    made = can.compile(subscription, catalog)
    fitted = [] if banks is None else [can.bank([made], catalog, banks=banks).explain()]
    return "\n".join([made.explain(), *fitted])


def _explained(target: str, subscription: Subscription) -> str:
    if target == "index":
        from genus.targets.index import SubscriptionIndex

        return SubscriptionIndex([subscription]).explain()
    module = importlib.import_module(f"genus.targets.{target}")
    explained: str = module.compile(subscription).explain()
    return explained


@click.command()
@TYPES
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--excess", type=click.IntRange(0), default=0, help="How many unwanted classes an entry may let in [0].")
def bindings(types: tuple[str, ...], file: Path, excess: int) -> None:
    """Count the binding-table entries that the subscriptions in FILE (one a line) need."""
    from genus.filters import merge

    asked = read_subscriptions(file, load_all(types))
    found = count_bindings(asked)
    merged = merge(asked, excess=excess)
    table = Table(title=f"{file.name}: {len(asked)} subscriptions")
    for heading in ("merged entry", "stands for", "lets in"):
        table.add_column(heading)
    for one in merged:
        members = "\n".join(map(str, one.members))
        table.add_row(str(one.subscription), members, ", ".join(map(name_of, one.excess)) or "nothing more")
    Console().print(table)
    click.echo(f"{found.per_class} entries without super-types, {found.per_type} with them, {len(merged)} merged")


def read_subscriptions(file: Path, types: list[type]) -> list[Subscription]:
    """One subscription a line; blank lines and those that start with # are passed over."""
    found = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as problem:
        raise click.ClickException(f"{file}: is not text: {problem.reason} at byte {problem.start}") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(Subscription.parse(line, types))
            except ValueError as problem:
                raise click.ClickException(f"{file}:{number}: {problem}") from None
    if not found:
        raise click.ClickException(f"{file}: holds no subscription")
    return found
