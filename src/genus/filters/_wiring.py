"""Bindings of components, and the messages that it takes to make them: what super-types save (LooCI).

"Types in Their Prime", 4.1: a component that publishes is bound to one that subscribes by an entry for each type that
they exchange. Between components of one node that is a *local* binding, and one message to the node makes it. Between
two nodes it is a *distributed* one with an entry on either side, made by two messages. With super-types one binding
stands for all types below one; merged subscriptions make still fewer.

A component is called `node/component`; a name without a slash is a node with one component.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from genus.filters._merging import MergedSubscription, merge
from genus.filters._subscription import Subscription

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

    >>> from genus import Event, Kind, Subscription
    >>> class Sensor(Kind): ...
    >>> class Door(Event, Sensor):
    ...     open: bool
    >>> class Window(Event, Sensor):
    ...     open: bool
    >>> table = count_bindings([("house/alarm", Subscription(Sensor))], {"house/io": [Door, Window]})
    >>> table.per_class, table.per_type, len(table.merged)
    (2, 1, 1)
    >>> table.wired_per_class.messages, table.wired_per_type.messages
    (2, 1)
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
