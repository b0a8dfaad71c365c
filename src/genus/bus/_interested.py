"""Who is interested in an event: the listeners of a bus, and others as far as its link knows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.bus._delivery import log
from genus.bus._link import Link
from genus.bus._listener import Listener
from genus.model import Event

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute


class Interested:
    """State: the functions that are told of changes."""

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
        """Tell those that asked for it."""
        if not self._told:
            return
        for changed in list(self._told.values()):
            try:
                changed()
            except Exception:
                log().exception("a function that is told of subscriptions failed")

    def forget(self) -> None:
        """Tell nobody any more: the bus is closed."""
        self._told.clear()
