"""`BusDelivery`: the events that a link received, on their way to the listeners of its bus."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from genus.bus._router import Router
from genus.model import Event

if TYPE_CHECKING:
    import logging


class BusDelivery:
    """Gives the events of a link to the listeners of its bus; errors are logged, and a closed bus drops them."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def __call__(self, event: Event) -> None:
        """Deliver an event of any class."""
        try:
            (self._router.known_route(type(event)) or self._router.route(type(event))).deliver(event)
        except Exception:
            log().exception("an event from the link was not delivered: %r", event)

    def for_class(self, cls: type) -> Callable[[Event], None]:
        """A function for events of exactly one class, which need not look for their route; it stays valid."""
        route = self._router.route(cls)

        def deliver(event: Event) -> None:
            try:
                route.deliver(event)
            except Exception:
                log().exception("an event from the link was not delivered: %r", event)

        return deliver


def log() -> "logging.Logger":
    """The log of a bus; `logging` is slow to import and seldom needed."""
    import logging

    return logging.getLogger("genus.bus")
