"""`genus explain`: what a subscription compiles to."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from genus import targets
from genus.cli._events import TYPES, complete_types, load_all
from genus.cli._groups import print_json
from genus.filters import Subscription

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
