"""Bindings of components, and the messages that it takes to make them: what super-types save (LooCI).

"Types in Their Prime", 4.1: a component that publishes is bound to one that subscribes by an entry for each type that
they exchange. Between components of one node that is a *local* binding, and one message to the node makes it. Between
two nodes it is a *distributed* one with an entry on either side, made by two messages. With super-types one binding
stands for all types below one; merged subscriptions make still fewer.

Run as a command it counts them for files: `python -m bench.bindings --help`.

A component is called `node/component`; a name without a slash is a node with one component.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genus import Subscription
from genus.cli._events import TYPES, load_all
from genus.cli._groups import counted, plain_table, print_json
from genus.errors import SubscriptionError
from genus.filters import TypesByName, merge, read_subscriptions
from genus.filters._subscription_lists import Parse, check_text, read_lines, significant
from genus.filters.types import MergedSubscription
from genus.model import name_of

DISTRIBUTED_MESSAGES = 2
"""A distributed binding is an entry on the publisher's node and one on the subscriber's, a message each."""


class Wiring(msgspec.Struct, frozen=True):
    """Bindings between components: `local` ones within nodes, `distributed` ones between nodes."""

    local: int = 0
    distributed: int = 0

    @property
    def bindings(self) -> int:
        """The number of bindings."""
        return self.local + self.distributed

    @property
    def messages(self) -> int:
        """The messages that make them: one for a local binding, two for a distributed one."""
        return self.local + DISTRIBUTED_MESSAGES * self.distributed

    def __add__(self, other: "Wiring") -> "Wiring":
        """Both together."""
        return Wiring(self.local + other.local, self.distributed + other.distributed)


class BindingCounts(msgspec.Struct, frozen=True):
    """What subscriptions need, in a table of one node and as bindings between components.

    Attributes:
        per_class: The entries of a table without super-types: one for each class of each subscription.
        per_type: The entries with super-types: one for each subscription.
        merged: The entries after merging.
        wired_per_class: The bindings between components without super-types.
        wired_per_type: Those with super-types.
        wired_merged: Those after merging what each subscriber wants.
        unpublished: The subscriptions of which no component publishes a class; they need no binding.
    """

    per_class: int
    per_type: int
    merged: tuple[MergedSubscription, ...]
    wired_per_class: Wiring = Wiring()
    wired_per_type: Wiring = Wiring()
    wired_merged: Wiring = Wiring()
    unpublished: tuple[Subscription, ...] = ()

    @property
    def saved(self) -> float:
        """The share of the per-class entries that merging makes unnecessary, 0 to 1."""
        return 1 - len(self.merged) / self.per_class if self.per_class else 0.0


def count_bindings(
    subscriptions: Iterable[Subscription | tuple[str, Subscription]],
    publishers: Mapping[str, Iterable[type]] | None = None,
    *,
    excess: int = 0,
) -> BindingCounts:
    """Return the entries and bindings that subscriptions need without super-types, with them, and merged.

    Args:
        subscriptions: Subscriptions, or pairs of a subscriber and a subscription as `read_subscriptions` gives them.
            Those without a subscriber are of one component, on a node of its own.
        publishers: The components that publish, each with its classes. By default one component, on a node of its own,
            publishes all classes, so that all bindings are distributed.
        excess: How many unwanted classes a merged entry may accept.

    """
    asked = list(dict.fromkeys(("", one) if isinstance(one, Subscription) else one for one in subscriptions))
    wanted = list(dict.fromkeys(one for _, one in asked))
    offered = None if publishers is None else {name: frozenset(classes) for name, classes in publishers.items()}
    return BindingCounts(
        sum(len(one.classes()) for one in wanted),
        len(wanted),
        tuple(merge(wanted, excess=excess)),
        _wire(asked, offered, per_class=True),
        _wire(asked, offered),
        _wire(_merge_each(asked, excess), offered),
        tuple(one for one in wanted if not _is_published(one, offered)),
    )


Offers = Mapping[str, frozenset[type]]
"""The components that publish, with their classes."""


def _wire(asked: Iterable[tuple[str, Subscription]], offered: Offers | None, *, per_class: bool = False) -> Wiring:
    """Return the bindings of subscribers to the publishers of what they want, by type or one for each class."""
    total = Wiring()
    for subscriber, one in asked:
        for publisher, common in _sources(one, offered):
            number = len(common) if per_class else 1
            is_local = bool(subscriber) and node_of(subscriber) == node_of(publisher)
            total += Wiring(local=number) if is_local else Wiring(distributed=number)
    return total


def _sources(one: Subscription, offered: Offers | None) -> list[tuple[str, frozenset[type]]]:
    """Return the publishers of what a subscription wants, with the classes it gets from each."""
    classes = frozenset(one.classes())
    if offered is None:
        return [("", classes)] if classes else []
    return [(name, classes & published) for name, published in offered.items() if classes & published]


def _is_published(one: Subscription, offered: Offers | None) -> bool:
    return offered is None or bool(_sources(one, offered))


def _merge_each(asked: Sequence[tuple[str, Subscription]], excess: int) -> list[tuple[str, Subscription]]:
    """Return what each subscriber wants, in as few subscriptions as cover it."""
    by_subscriber: dict[str, list[Subscription]] = {}
    for subscriber, one in asked:
        by_subscriber.setdefault(subscriber, []).append(one)
    return [(name, one.subscription) for name, many in by_subscriber.items() for one in merge(many, excess=excess)]


def node_of(component: str) -> str:
    """Return the node of a component.

    >>> node_of("desk/averages"), node_of("phone")
    ('desk', 'phone')
    """
    return component.partition("/")[0]


def read_publishers(
    source: str | os.PathLike[str] | Iterable[str], parse: Parse = Subscription.parse
) -> dict[str, tuple[type, ...]]:
    """Read which component publishes which classes, from a text file or from lines.

    A line reads `node/component: Loop, exact Camera`: a type stands for all classes of it, `exact` for the class alone.
    Several lines may be about one component. Empty lines and lines that begin with # are skipped.

    Args:
        source: The path of a file, or lines.
        parse: Reads one type; by default it is looked up among all declared.

    Raises:
        SubscriptionError: A line cannot be read, or the file; the message names it.

    """
    name, lines = read_lines(source)
    found: dict[str, tuple[type, ...]] = {}
    for number, line in significant(lines):
        try:
            component, classes = _read_publisher(line, parse)
        except SubscriptionError as problem:
            raise SubscriptionError(f"{name} {number}: {problem}") from problem
        found[component] = tuple(dict.fromkeys((*found.get(component, ()), *classes)))
    return found


def _read_publisher(line: str, parse: Parse) -> tuple[str, list[type]]:
    check_text(line)
    component, colon, types = line.partition(":")
    if not (colon and component.strip()):
        raise SubscriptionError(f"{line!r} names no component before a colon; write node/component: Type, Type")
    return component.strip(), [cls for text in types.split(",") for cls in _published(parse(text.strip()))]


def _published(one: Subscription) -> tuple[type, ...]:
    """Return the classes of a type; a publisher has no conditions."""
    if one.has or one.lacks or one.where is not None:
        raise SubscriptionError(f"{str(one)!r} is no type; a component publishes types, without has, lacks and where")
    if not one.classes():
        raise SubscriptionError(f"no event type is a {one}; name one that has events")
    return one.classes()


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
    python -m bench.bindings -t examples/traffic.py subscriptions.txt
    python -m bench.bindings -t examples/office.py --publishers publishers.txt subscriptions.txt
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


if __name__ == "__main__":
    bindings()
