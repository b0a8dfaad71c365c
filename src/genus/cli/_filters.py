"""`genus explain` and `genus bindings`: what subscriptions compile to and what they cost."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genus import targets
from genus.cli._events import TYPES, complete_types, load_all
from genus.cli._format import counted, plain_table, print_json
from genus.filters import (
    BindingCounts,
    MergedSubscription,
    Subscription,
    TypesByName,
    Wiring,
    count_bindings,
    read_publishers,
    read_subscriptions,
)
from genus.model import name_of

TARGETS = ("python", "arrow", "index", "spark", "topics", "can", "c", "coap")
NEED_CATALOG = {
    "can": "acceptance filters need --catalog FILE, which has the event tags",
    "c": "conditions in C need --catalog FILE, which has the vectors",
    "coap": "requests of CoAP need --catalog FILE, which has the codes",
}
DIALECTS = ("zenoh", "mqtt", "nats")


@click.command()
@TYPES
@click.argument("subscription", shell_complete=complete_types)
@click.option("--target", type=click.Choice(TARGETS), help="Only this target [all that are installed].")
@click.option(
    "--catalog",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take types and their numbers from this catalog, and show CAN's filters, C and CoAP's requests, too.",
)
@click.option(
    "--banks", type=click.IntRange(1), metavar="N", help="How many acceptance filters the controller has [no limit]."
)
@click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    default="zenoh",
    show_default=True,
    help="How the network writes the patterns of topics.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with one text per target.")
def explain(
    types: tuple[str, ...],
    subscription: str,
    target: str | None,
    path: Path | None,
    banks: int | None,
    dialect: str,
    as_json: bool,
) -> None:
    """Show what a subscription is compiled to, for each target.

    \b
    genus explain -t examples/traffic.py "Loop has place where speed > 30"
    genus explain -t examples/traffic.py --catalog city.json --target can --banks 2 "Roadside has place"
    genus explain -t examples/traffic.py --target topics --dialect mqtt "Loop has place"
    genus explain -t examples/traffic.py --catalog city.json --target coap "Loop has place"
    """
    if path is None and (target in NEED_CATALOG or banks is not None):
        raise click.UsageError(NEED_CATALOG[target if target in NEED_CATALOG else "can"])
    asked = Subscription.parse(subscription, load_all(types))
    names = [target] if target else [name for name in TARGETS if name not in NEED_CATALOG or path is not None]
    special = {
        "can": lambda: _explain_can(asked, path, banks),
        "c": lambda: _explain_by_catalog(targets.c.compile, asked, path),
        "coap": lambda: _explain_by_catalog(targets.coap.compile, asked, path),
        "topics": lambda: _explain_topics(asked, path, dialect),
    }
    texts = {name: special.get(name, partial(_explain, name, asked)) for name in names}
    found = {name: _explain_if_installed(name, text, must=target is not None) for name, text in texts.items()}
    if as_json:
        print_json({"subscription": str(asked), "targets": found})
    else:
        click.echo("".join(f"{text}\n\n" for text in found.values()), nl=False)


def _explain_if_installed(name: str, explained: Callable[[], str], *, must: bool) -> str:
    try:
        return explained()
    except ImportError as problem:
        if must:
            raise
        return f"{name}: {problem}"


def _explain_can(subscription: Subscription, path: Path | None, banks: int | None) -> str:
    from genus.catalog import Catalog

    assert path is not None
    catalog = Catalog.load(path)
    made = targets.can.compile(subscription, catalog)
    fitted = [] if banks is None else [targets.can.fit_bank([made], catalog, banks=banks).explain()]
    return "\n".join([made.explain(), *fitted])


def _explain_by_catalog(
    compile: Callable[[Subscription, Any], Any], subscription: Subscription, path: Path | None
) -> str:
    from genus.catalog import Catalog

    assert path is not None
    return str(compile(subscription, Catalog.load(path)).explain())


def _explain_topics(subscription: Subscription, path: Path | None, dialect: str) -> str:
    from genus.catalog import Catalog

    written = {each.name: each for each in (targets.topics.ZENOH, targets.topics.MQTT, targets.topics.NATS)}
    catalog = None if path is None else Catalog.load(path)
    return targets.topics.compile(subscription, written[dialect], catalog=catalog).explain()


def _explain(target: str, subscription: Subscription) -> str:
    module = getattr(targets, target)
    made = module.compile([subscription]).explain(0) if target == "index" else module.compile(subscription).explain()
    return str(made)


@click.command()
@TYPES
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--excess",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="How many unwanted classes an entry may let in.",
)
@click.option(
    "--publishers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Which component publishes which types, a component a line: `node/component: Loop, Lamp` [one component of "
    "another node publishes all].",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of tables.")
def bindings(types: tuple[str, ...], file: Path, excess: int, publishers: Path | None, as_json: bool) -> None:
    """Count the table entries that many subscriptions need.

    FILE has one subscription a line, with or without a subscriber before it (`ann: Loop has place`), as for `genus lake
    route`; empty lines and lines that begin with # are skipped. A subscriber may be a component of a node,
    `node/component`; to bind it to a publisher takes one message within the node and two between nodes.

    \b
    genus bindings -t examples/traffic.py subscriptions.txt
    genus bindings -t examples/office.py --publishers examples/office-publishers.txt examples/office-subscribers.txt
    """
    known = TypesByName(load_all(types))
    asked = read_subscriptions(file, lambda text: Subscription.parse(text, known))
    if not asked:
        raise click.ClickException(f"{file}: has no subscription")
    offered = None if publishers is None else _publishers(publishers, known)
    found = count_bindings([one if name == str(one) else (name, one) for name, one in asked], offered, excess=excess)
    if as_json:
        print_json({"subscriptions": len(asked), **_counts(found)})
        return
    Console().print(_entries(found.merged, f"{file.name}: {counted(len(asked), 'subscription')}"))
    click.echo(f"{found.per_class} entries without super-types, {found.per_type} with them, {len(found.merged)} merged")
    Console().print(_wirings(found))
    for one in found.unpublished:
        click.echo(f"no component publishes what {one} wants")


def _publishers(path: Path, types: TypesByName) -> dict[str, tuple[type, ...]]:
    found = read_publishers(path, lambda text: Subscription.parse(text, types))
    if not found:
        raise click.ClickException(f"{path}: has no publisher")
    return found


def _counts(found: BindingCounts) -> dict[str, Any]:
    return {
        "per_class": found.per_class,
        "per_type": found.per_type,
        "merged": len(found.merged),
        "entries": [_entry(one) for one in found.merged],
        "bindings": {
            "per_class": _wiring(found.wired_per_class),
            "per_type": _wiring(found.wired_per_type),
            "merged": _wiring(found.wired_merged),
        },
        "unpublished": list(map(str, found.unpublished)),
    }


def _wiring(one: Wiring) -> dict[str, int]:
    return {"local": one.local, "distributed": one.distributed, "bindings": one.bindings, "messages": one.messages}


def _wirings(found: BindingCounts) -> Table:
    numbers = ("local", "distributed", "bindings", "messages")
    table = plain_table("bindings of components", *numbers, numbers=numbers)
    ways = {
        "without super-types": found.wired_per_class,
        "with them": found.wired_per_type,
        "merged": found.wired_merged,
    }
    for name, one in ways.items():
        table.add_row(name, *map(str, _wiring(one).values()))
    return table


def _entry(one: MergedSubscription) -> dict[str, Any]:
    return {
        "entry": str(one.subscription),
        "stands_for": list(map(str, one.members)),
        "lets_in": list(map(name_of, one.excess)),
    }


def _entries(merged: Iterable[MergedSubscription], title: str) -> Table:
    table = plain_table("merged entry", "stands for", "lets in", title=title)
    for one in merged:
        members = "\n".join(map(str, one.members))
        lets_in = ", ".join(map(name_of, one.excess)) or "nothing more"
        table.add_row(Text(str(one.subscription)), Text(members), lets_in)
    return table
