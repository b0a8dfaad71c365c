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
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from genus.bus._audience import FEW, Audience, Family
from genus.bus._link import Delivery, Link
from genus.bus._listener import Counters, Listener
from genus.filters import Subscription
from genus.model import Event, name_of, pure_kind

if TYPE_CHECKING:
    import logging

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


def delivery_to(router: Router) -> Delivery:
    """What a link calls with the events it received; errors are logged, and the router of a closed bus drops them.

    It is a function, as Python calls those quicker than objects.
    """

    def deliver(event: Event) -> None:
        try:
            (router.known_route(type(event)) or router.route(type(event))).deliver(event)
        except Exception:
            _log_failure(event)

    def for_class(cls: type) -> Callable[[Event], None]:
        route = router.route(cls)

        def deliver_one(event: Event) -> None:
            try:
                route.deliver(event)  # which changes with the subscriptions
            except Exception:
                _log_failure(event)

        return deliver_one

    delivery: Any = deliver
    delivery.for_class = for_class
    found: Delivery = delivery
    return found


def _log_failure(event: Event) -> None:
    log().exception("an event from the link was not delivered: %r", event)


def log() -> "logging.Logger":
    """Return the log of a bus; `logging` is slow to import and seldom needed."""
    import logging

    return logging.getLogger("genus.bus")


class Interested:
    """State: the functions that are called after changes."""

    def __init__(self, link: Link | None, route: "Callable[[type], ClassRoute]") -> None:
        self.is_alone = link is None
        """Whether there are no other processes, so that all who are interested are known."""
        self._link = link
        self._route = route
        self._told: dict[object, Callable[[], None]] = {}

    def here(self, event: Event) -> list[Listener[Any]]:
        """Return the listeners of the bus that would get an event."""
        return self._route(type(event)).listeners_of(event)

    def there(self, event: Event) -> bool | None:
        """Return whether others subscribed to an event; None if the medium cannot know."""
        if self._link is None:
            return False
        others = self._link.wanted_by(event)
        return None if others is None else bool(others)

    @property
    def delay_s(self) -> float | None:
        """How long it may take until `there` is known; None if that is not known."""
        return 0.0 if self._link is None else self._link.interest_delay_s

    def asked_of(self, cls: type[Event], is_server: Callable[[Listener[Any]], bool]) -> list[str]:
        """The servers of a type on this bus, and the subscriptions of others to it, as text, whatever else they ask."""
        here = [asked for each in self._route(cls).listeners() if is_server(each) for asked in each.asked()]
        return list(dict.fromkeys([*map(str, here), *([] if self._link is None else self._link.asked_of(cls))]))

    def on_listeners(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when a listener comes or goes; returns a function that ends it."""
        key = object()
        self._told[key] = changed

        def end() -> None:
            self._told.pop(key, None)

        return end

    def on_change(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `here` or `there` may have changed; returns a function that ends it."""
        end_here = self.on_listeners(changed)
        end_there = end_here if self._link is None else self._link.on_interest(changed)

        def end() -> None:
            end_here()
            end_there()

        return end

    def listeners_changed(self) -> None:
        """Call the functions that wait for changes."""
        if not self._told:
            return
        for changed in list(self._told.values()):
            try:
                changed()
            except Exception:
                log().exception("a callback of on_subscriptions failed")

    def forget(self) -> None:
        """Drop all callbacks: the bus is closed."""
        self._told.clear()


class Traffic(msgspec.Struct, frozen=True):
    """Counters of a bus: events published per type, deliveries per subscription, of the link, and of requests."""

    published: Mapping[str, int]
    subscriptions: Mapping[str, Counters]
    link: Mapping[str, int]
    requests: Mapping[str, int] = {}


class SubscriptionCounters(Mapping[str, Counters]):
    """The counters of each subscription, by its text; those with the same text are added up.

    The texts are made when they are first read, as that takes longer than counting.
    """

    def __init__(self, counted: list[tuple[Subscription, Counters]]) -> None:
        self._counted = counted

    @cached_property
    def _by_text(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        for subscription, counters in self._counted:
            text = str(subscription)
            found[text] = found[text] + counters if text in found else counters
        return found

    def largest(self, most: int) -> tuple[dict[str, Counters], list[Counters]]:
        """Return the subscriptions with the most events, with their texts, and the counters of the others without."""
        ordered = sorted(self._counted, key=lambda counted: -(counted[1].delivered + counted[1].dropped))
        return SubscriptionCounters(ordered[:most])._by_text, [counters for _, counters in ordered[most:]]

    def __getitem__(self, text: str) -> Counters:
        return self._by_text[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_text)

    def __len__(self) -> int:
        return len(self._by_text)

    def __repr__(self) -> str:
        return repr(self._by_text)
