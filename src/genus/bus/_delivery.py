"""The events that a link received, on their way to the listeners of its bus."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.bus._link import Delivery
from genus.bus._router import Router
from genus.model import Event

if TYPE_CHECKING:
    import logging


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
