"""Which listeners get an event: all subscriptions of a bus, by the types they accept.

Listeners of a family with few subscriptions are tested one after the other; a family with many has an index
(`targets.index`), in which a change costs as much as its own subscription, however many others there are.
`_class_route` has what happens to the events of a class.

Locks: `Router.lock` protects the lists of listeners and is held for a few operations only; nothing is compiled under
it. The index of a family has its own lock, held while an event is looked up or a subscription is added, not while
handlers run. A thread takes the lock of a family before that of the router, never after it. The sum of the versions of
some audiences only grows, so that an equal sum shows that nothing has changed.
"""

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from genus.bus._audience import FEW, Audience, Family
from genus.bus._listener import Listener
from genus.model import name_of, pure_kind

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute
    from genus.filters import Subscription
    from genus.targets.dispatch import Prepare

MANY_WITHOUT_INDEX = 1000
"""A program without numpy is warned when a family has so many subscriptions."""

AudienceKey: TypeAlias = tuple[tuple[type, ...], bool]


class Router:
    """State: the listeners of a bus and the routes of event classes."""

    def __init__(self, prepare: "Prepare | None") -> None:
        self.lock = threading.RLock()
        self.prepare = prepare
        self._audiences: dict[AudienceKey, Audience] = {}
        self._families: dict[object, Family] = {}
        self._routes: dict[type, ClassRoute] = {}
        self._is_closed = False
        self._has_index: bool | None = None
        """Whether indexes can be made; None before the first."""

    def add(self, listener: Listener[Any]) -> None:
        """Deliver events to a listener from now on."""
        with self.lock:
            audience = self._audience(listener.subscription)
            family = audience.family
            audience.listeners[listener] = None
            family.count += 1
            self._changed(audience)
            count, index = family.count, family.index
        if index is not None:
            index.add(listener)
        elif count > FEW and self._can_index(count):
            family.build_index(self.lock)

    def remove(self, listener: Listener[Any]) -> None:
        """Deliver no more events to a listener."""
        with self.lock:
            audience = self._audience(listener.subscription)
            family = audience.family
            if listener not in audience.listeners:
                return
            del audience.listeners[listener]
            family.count -= 1
            self._changed(audience)
            index = family.index
        if index is not None:
            index.remove(listener)

    def route(self, cls: type) -> "ClassRoute":
        """Return the route of a class, made if it is new."""
        from genus.bus._class_route import ClassRoute  # with the first event: `import genus` stays quick

        with self.lock:
            if cls not in self._routes:
                audiences = [audience for audience in self._audiences.values() if audience.accepts(cls)]
                self._routes[cls] = ClassRoute(self, cls, audiences)
                if self._is_closed:
                    self._routes[cls].close()
            return self._routes[cls]

    def known_route(self, cls: type) -> "ClassRoute | None":
        """Return the route of a class that had events."""
        return self._routes.get(cls)

    def published(self) -> dict[str, int]:
        """Return the number of events of each type."""
        with self.lock:
            counts: dict[str, int] = {}
            for cls, route in self._routes.items():
                counts[name_of(cls)] = counts.get(name_of(cls), 0) + route.published
            return counts

    def close(self) -> None:
        """Make all publishing functions look for their route again, and drop what links deliver."""
        with self.lock:
            self._is_closed = True
            for route in self._routes.values():
                route.close()

    def _audience(self, subscription: "Subscription") -> Audience:
        key = subscription.types, subscription.exact
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = Audience(subscription, self._family(subscription))
            audience.family.audiences.append(audience)
            for cls, route in self._routes.items():
                if audience.accepts(cls):
                    route.add_audience(audience)
        return audience

    def _family(self, subscription: "Subscription") -> Family:
        """The family that events must belong to; one of its own for `Event`, kinds, and exactly the kind of a class."""
        cls = (pure_kind(subscription.type) if subscription.exact else None) or subscription.type
        key = getattr(cls, "__genus_family__", None)
        if key not in self._families:
            self._families[key] = Family(subscription.vector.scope, is_shared=key is None)
        return self._families[key]

    def _changed(self, audience: Audience) -> None:
        audience.version += 1
        if audience.family.index is None:
            audience.plan_version += 1
        for route in list(audience.compiled):
            route.discard_code()

    def _can_index(self, count: int) -> bool:
        if self._has_index is None or (not self._has_index and count == MANY_WITHOUT_INDEX):
            self._has_index = _import_index(count)
        return self._has_index


def _import_index(count: int) -> bool:
    try:
        import genus.targets.index  # noqa: F401
    except ImportError as missing:
        if count >= MANY_WITHOUT_INDEX:
            import warnings

            warnings.warn(
                f"{count} subscriptions in one family are tested one after the other: {missing}",
                RuntimeWarning,
                stacklevel=2,
            )
        return False
    return True
