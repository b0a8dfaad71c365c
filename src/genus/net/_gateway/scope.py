"""Scope: which event types leave a side of a gateway, and which enter it."""

from collections.abc import Iterable, Mapping

import msgspec

from genus.errors import SubscriptionError
from genus.filters import AllOf, Subscription
from genus.filters._subscription import rebuild
from genus.model import is_event_type
from genus.net._gateway.rate import RateLimit


class Scope(msgspec.Struct, frozen=True):
    """The types, with all below them, that leave a side (`export`) and that enter it (`imports`); None: all."""

    export: tuple[type, ...] | None = None
    imports: tuple[type, ...] | None = None

    def exports(self, cls: type) -> bool:
        """Whether events of a class may leave the side."""
        return self.export is None or issubclass(cls, self.export)

    def imports_class(self, cls: type) -> bool:
        """Whether events of a class may enter the side."""
        return self.imports is None or issubclass(cls, self.imports)


class SideRules(msgspec.Struct, frozen=True):
    """What a machine knows of a side.

    `prefix` begins the uids of origins whose events this gateway counts, as those of a CAN bus; empty if there are
    none. `tells_tokens` says whether other gateways are seen there.
    """

    name: str
    scope: Scope = Scope()
    limits: Mapping[type, RateLimit] = {}
    prefix: bytes = b""
    tells_tokens: bool = True


def cut(subscription: Subscription, types: tuple[type, ...] | None) -> list[Subscription]:
    """What a subscription asks for within some types; they are few, and none if it asks for nothing there.

    A subscription to a higher type becomes one for each of the types below it. One that is exact and to a kind may
    stay wider than the types: the gateway tests the class of each event anyway.

    >>> from genus import Event, Subscription
    >>> class Loop(Event):
    ...     lane: int
    >>> class Lamp(Event): ...
    >>> [str(one) for one in cut(Subscription(Event), (Loop,))], cut(Subscription(Lamp), (Loop,))
    (['Loop'], [])
    """
    if types is None or _is_within(subscription, types):
        return [subscription]
    if subscription.exact:
        return [] if is_event_type(subscription.type) else [subscription]
    return list(dict.fromkeys(_narrowed(subscription, types)))


def _is_within(subscription: Subscription, types: tuple[type, ...]) -> bool:
    return any(issubclass(cls, types) for cls in subscription.types)


def _narrowed(subscription: Subscription, types: tuple[type, ...]) -> Iterable[Subscription]:
    """The same subscription to each of the types; an event type of another line has no events in common with it."""
    for cls in types:
        try:
            yield rebuild(
                AllOf((*subscription.types, cls)),
                has=subscription.has,
                lacks=subscription.lacks,
                where=subscription.where,
            )
        except SubscriptionError:
            continue
